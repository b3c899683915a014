"""Automatic snapshots: taken and deleted as a session's policy says, at each step of a run and after saves of a caller.

A snapshot that cannot be taken is logged and emitted as an event, and stops nothing: the documents are saved already.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from haytham.errors import HaythamError, SnapshotVetoed
from haytham.session.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from haytham.config.policy import SnapshotKind
    from haytham.config.workflow import Phase
    from haytham.history.history import History
    from haytham.history.snapshot import Snapshot
    from haytham.session.derived import Decision

log = logging.getLogger(__name__)

_is_suspended: ContextVar[bool] = ContextVar("is_suspended", default=False)  # whether saves take no snapshots


@contextmanager
def without_autosnapshots() -> Iterator[None]:
    """Take no snapshots after saves in this block; the caller counts them as one step."""
    token = _is_suspended.set(True)
    try:
        yield
    finally:
        _is_suspended.reset(token)


class AutoSnapshotter:
    """Takes snapshots of a session as its policy says, and deletes those that it no longer keeps."""

    def __init__(self, history: History) -> None:
        self._history = history
        # Taken before a phase ran again, by phase, until it completes: in this run, and in earlier ones.
        self._rerun_snapshots: dict[int, Snapshot] = {}
        self._earlier_rerun_snapshots: dict[int, list[Snapshot]] = {}

    @property
    def _is_automatic(self) -> bool:
        """Return whether the policy asks for snapshots that nobody requests."""
        return self._history.policy.enabled and self._history.policy.auto != "off"

    def prune_on_start(self) -> None:
        """Delete, at the start of a run, what retention and limits no longer keep in the whole project."""
        if self._history.policy.enabled:
            self._attempt_flushed("prune", self._history.prune_project)
            self._attempt("snapshot", self._find_earlier_rerun_snapshots)

    def _find_earlier_rerun_snapshots(self) -> None:
        """Find snapshots that earlier runs took before they ran a phase again; its completion deletes them."""
        for snapshot in self._history.list("pre_operation"):
            number = snapshot.metadata.get("phase")
            if isinstance(number, int):
                self._earlier_rerun_snapshots.setdefault(number, []).append(snapshot)

    def backfill_approvals(self) -> None:
        """Take a snapshot for each approved phase whose approval has none, as for one typed into its file."""
        if self._is_automatic:
            self._attempt_flushed("snapshot", self._take_missing_approvals)

    def _take_missing_approvals(self) -> None:
        approved = summarize(self._history.session.read()).approved_phases
        recorded = {snapshot.approval for snapshot in self._history.list()} if approved else set()
        for phase in approved:
            if self._approval_name(phase) not in recorded:
                self.after_decision(phase, "approved")

    def _approval_name(self, phase: int) -> str:
        """Return what an approval is called in the record of its snapshot."""
        view = self._history.session.read()
        return f"phase {phase}, attempt {view.attempt(view.phase(phase))}"

    def takes_after_agent(self, declared: bool | None) -> bool:  # noqa: FBT001 - a value, not a switch
        """Return whether a snapshot or a step follows an answer; `declared` is what the agent's file says."""
        if declared is None:
            return self._is_automatic and self._history.policy.auto == "every"
        return declared and self._history.policy.enabled

    def after_agent(self, phase: int, agent: str, *, declared: bool | None) -> None:
        """Take a snapshot after a stored answer if the agent's file says so, else if one is due."""
        if declared is None:
            self._take_if_due()
        elif declared and self._history.policy.enabled:
            self._take("routine", metadata={"agent": agent, "phase": phase})

    def after_save(self, *, completed: int | None = None, approved: int | None = None) -> None:
        """Take the snapshots that are due after a save: of a completed phase, of an approval, else a routine one.

        A failure is logged, and a later save takes the snapshot. Saves of event handlers that this calls take none, as
        that would never end.
        """
        if _is_suspended.get():
            return
        with without_autosnapshots():
            self._attempt("snapshot", lambda: self._after_save(completed, approved))

    def _after_save(self, completed: int | None, approved: int | None) -> None:
        if completed is not None:
            self.after_phase(self._history.session.read().phase(completed), done=True)
        if approved is not None:
            self.after_approval(approved)
        self._take_if_due()

    def after_approval(self, phase: int) -> None:
        """Take a snapshot of an approval that is bound to the present texts, and those that earlier approvals lack."""
        if self._is_automatic and phase in summarize(self._history.session.read()).approved_phases:
            self.after_decision(phase, "approved")
            self.backfill_approvals()

    def _take_if_due(self) -> None:
        """Count a step if every step counts; else take a routine snapshot if the interval is over."""
        if not self._is_automatic:
            return
        if self._history.policy.auto == "every":
            self._attempt_flushed("step", self._history.count_step)
        elif self._attempt("snapshot", self._history.is_interval_over):
            self._take("routine")

    def after_phase(self, phase: Phase, *, done: bool) -> None:
        """Take a snapshot after a phase has run; if all agents are done, delete those from before it ran again."""
        before = self._rerun_snapshots.pop(phase.number, None)
        if not self.takes(phase) or self._take("phase", metadata={"phase": phase.number}) is None:
            return
        if done:
            obsolete = [*self._earlier_rerun_snapshots.pop(phase.number, ()), *([] if before is None else [before])]
            for snapshot_id in dict.fromkeys(snapshot.id for snapshot in obsolete):
                self._attempt_flushed("prune", partial(self._history.delete, snapshot_id, why="operation"))

    def takes(self, phase: Phase) -> bool:
        """Return whether snapshots are taken before and after a phase; its own setting wins over the policy."""
        is_on = self._is_automatic if phase.snapshot is None else phase.snapshot
        return is_on and self._history.policy.enabled

    def after_decision(self, phase: int, decision: Decision) -> None:
        """Take a snapshot if a bound decision is an approval; retention keeps the last one of each attempt."""
        if decision == "approved" and self._is_automatic:
            self._take("phase", metadata={"approved": phase}, approval=self._approval_name(phase))

    def before_rerun(self, phase: Phase, why: str) -> None:
        """Take a snapshot before a phase runs again, once a run."""
        if self.takes(phase) and phase.number not in self._rerun_snapshots:
            metadata = {"operation": f"phase {phase.number} again: {why}", "phase": phase.number}
            snapshot = self._take("pre_operation", metadata=metadata)
            if snapshot is not None:
                self._rerun_snapshots[phase.number] = snapshot

    def after_error(self, error: str) -> Snapshot | None:
        """Take a recovery snapshot after an error; return it, or None if none was taken."""
        return self._take("recovery", metadata={"operation": error}) if self._is_automatic else None

    def on_completed(self) -> None:
        """Take the final snapshot of a completed session, unless nothing has changed since the last one."""
        if self._is_automatic:
            self._attempt_flushed("snapshot", self._take_final)

    def _take_final(self) -> None:
        last = self._history.latest()
        if last is None or last.kind != "final" or not self._history.compare(last).is_empty:
            self._history.take("final")

    def _take(self, kind: SnapshotKind, **facts: Any) -> Snapshot | None:
        snapshot: Snapshot | None = self._attempt_flushed("snapshot", lambda: self._history.take(kind, **facts))
        return snapshot

    def _attempt_flushed(self, name: str, step: Callable[[], Any]) -> Any:
        """Render the manifest if a run left it behind, then run a best-effort step."""

        def flush_and_run() -> Any:
            self._history.session.flush_derived()
            return step()

        return self._attempt(name, flush_and_run)

    def _attempt(self, name: str, step: Callable[[], Any]) -> Any:
        """Run a best-effort step: log a failure and emit `<name>_failed`, never raise."""
        try:
            return step()
        except SnapshotVetoed as veto:  # the history has recorded it
            log.info("%s", veto)
            return None
        except Exception as error:  # noqa: BLE001 - the save before it is done; a store of another package raises anything
            log.warning("no %s: %s", name, error)
            with suppress(HaythamError, OSError):  # a disk that is full takes no event, either
                self._history.events.emit(f"{name}_failed", error=str(error))
            return None


class SessionTaskSnapshots:
    """Snapshots that an agent takes itself, through its task."""

    def __init__(self, history: History) -> None:
        self._history = history

    def snapshot(self, label: str) -> Snapshot:
        """Take a snapshot of the session, with a label."""
        self._history.session.flush_derived()
        return self._history.take("manual", label)

    @contextmanager
    def operation(self, name: str) -> Iterator[Snapshot]:
        """Take a snapshot before a block; delete it if the block ends without an error."""
        self._history.session.flush_derived()
        with self._history.operation(name) as before:
            yield before
