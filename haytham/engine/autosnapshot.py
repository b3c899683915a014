"""When a snapshot is taken by itself: the policy of a session, carried out beside whoever drives it.

What cannot be taken is told and stops nothing: the documents themselves are as safe as they were.
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

_is_following: ContextVar[bool] = ContextVar("is_following", default=False)  # whether a save is being followed up


@contextmanager
def without_autosnapshots() -> Iterator[None]:
    """Take no snapshot after saves that are made within: what follows counts them as one step."""
    token = _is_following.set(True)
    try:
        yield
    finally:
        _is_following.reset(token)


class AutoSnapshotter:
    """Takes snapshots of a session as its policy says, and deletes those whose time is over."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._before: dict[int, Snapshot] = {}
        self._unfinished: dict[int, list[Snapshot]] = {}

    @property
    def _policy_takes(self) -> bool:
        return self._history.policy.enabled and self._history.policy.auto != "off"

    def prune_on_start(self) -> None:
        """At the start of a run: delete what retention and limits delete in the whole project."""
        if self._history.policy.enabled:
            self._carefully("prune", self._history.prune_project)
            self._attempt("snapshot", self._find_unfinished)

    def _find_unfinished(self) -> None:
        """Find what earlier runs took before a phase ran again that never completed: its completion clears them."""
        for snapshot in self._history.list("pre_operation"):
            number = snapshot.metadata.get("phase")
            if isinstance(number, int):
                self._unfinished.setdefault(number, []).append(snapshot)

    def backfill_approvals(self) -> None:
        """Take what is missing of approvals that were bound to texts where nobody was there to take it."""
        if self._policy_takes:
            self._carefully("snapshot", self._take_approvals)

    def _take_approvals(self) -> None:
        approved = summarize(self._history.session.read()).approved_phases
        known = {one.approval for one in self._history.list()} if approved else set()
        for phase in approved:
            if self._approval(phase) not in known:
                self.after_decision(phase, "approved")

    def _approval(self, phase: int) -> str:
        view = self._history.session.read()
        return f"phase {phase}, attempt {view.attempt(view.phase(phase))}"

    def takes_after_agent(self, wanted: bool | None) -> bool:  # noqa: FBT001 - a value, not a switch
        """Return whether a snapshot or a step follows an agent's answer; `wanted` is what the agent's file says."""
        if wanted is None:
            return self._policy_takes and self._history.policy.auto == "every"
        return wanted and self._history.policy.enabled

    def after_agent(self, phase: int, agent: str, *, wanted: bool | None) -> None:
        """Once an agent's answer is stored: what is due; or what the agent's own file says."""
        if wanted is None:
            self._take_if_due()
        elif wanted and self._history.policy.enabled:
            self._take("routine", metadata={"agent": agent, "phase": phase})

    def after_save(self, *, completed: int | None = None, approved: int | None = None) -> None:
        """Take what is due once a caller has saved something: a completed phase, an approval, or anything else.

        The save is done: whatever keeps a snapshot from being taken is logged, and the next save that is due takes it.
        What a handler of such a snapshot saves takes none, as that would have no end.
        """
        if _is_following.get():
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
        """Take a snapshot of an approval if it is bound to the texts that are there, and those of earlier approvals."""
        if self._policy_takes and phase in summarize(self._history.session.read()).approved_phases:
            self.after_decision(phase, "approved")
            self.backfill_approvals()

    def _take_if_due(self) -> None:
        """Count a step if every step counts; else take a routine snapshot if the interval is over."""
        if not self._policy_takes:
            return
        if self._history.policy.auto == "every":
            self._carefully("step", self._history.count_step)
        elif self._attempt("snapshot", self._history.is_interval_over):
            self._take("routine")

    def after_phase(self, phase: Phase, *, done: bool) -> None:
        """Once all agents of a phase have run: one of the phase; what was taken before it ran again may go."""
        before = self._before.pop(phase.number, None)
        if not self.takes(phase) or self._take("phase", metadata={"phase": phase.number}) is None:
            return
        if done:
            finished = [*self._unfinished.pop(phase.number, ()), *([] if before is None else [before])]
            for snapshot_id in dict.fromkeys(snapshot.id for snapshot in finished):
                self._carefully("prune", partial(self._history.delete, snapshot_id, why="operation"))

    def takes(self, phase: Phase) -> bool:
        """Whether snapshots are taken around a phase: what it says itself wins."""
        wanted = self._policy_takes if phase.snapshot is None else phase.snapshot
        return wanted and self._history.policy.enabled

    def after_decision(self, phase: int, decision: Decision) -> None:
        """Take a snapshot of an approval that was bound to its texts; the last one of each attempt is kept for good."""
        if decision == "approved" and self._policy_takes:
            self._take("phase", metadata={"approved": phase}, approval=self._approval(phase))

    def before_rerun(self, phase: Phase, why: str) -> None:
        """Before a phase runs again: what would be lost if that went wrong."""
        if self.takes(phase) and phase.number not in self._before:
            about = {"operation": f"phase {phase.number} again: {why}", "phase": phase.number}
            taken = self._take("pre_operation", metadata=about)
            if taken is not None:
                self._before[phase.number] = taken

    def after_error(self, what: str) -> Snapshot | None:
        """Once something went wrong: how far it came."""
        return self._take("recovery", metadata={"operation": what}) if self._policy_takes else None

    def on_completed(self) -> None:
        """Once the session is completed; again only where something has changed since."""
        if self._policy_takes:
            self._carefully("snapshot", self._finally)

    def _finally(self) -> None:
        last = self._history.latest()
        if last is None or last.kind != "final" or not self._history.compare(last).is_empty:
            self._history.take("final")

    def _take(self, kind: SnapshotKind, **facts: Any) -> Snapshot | None:
        taken: Snapshot | None = self._carefully("snapshot", lambda: self._history.take(kind, **facts))
        return taken

    def _carefully(self, what: str, do: Callable[[], Any]) -> Any:
        """Attempt a step on up-to-date documents."""
        return self._attempt(what, lambda: self._on_fresh_documents(do))

    def _on_fresh_documents(self, do: Callable[[], Any]) -> Any:
        self._history.session.flush_derived()
        return do()

    def _attempt(self, what: str, do: Callable[[], Any]) -> Any:
        """Run a best-effort step: log and emit an event on failure, never raise."""
        try:
            return do()
        except SnapshotVetoed as veto:  # which the history has recorded
            log.info("%s", veto)
            return None
        except Exception as error:  # noqa: BLE001 - what it follows is done; a store of another package raises anything
            log.warning("no %s: %s", what, error)
            with suppress(HaythamError, OSError):  # a disk that is full takes no event, either
                self._history.events.emit(f"{what}_failed", error=str(error))
            return None


class SessionTaskSnapshots:
    """What an agent reaches of its session's history, through its task."""

    def __init__(self, history: History) -> None:
        self._history = history

    def snapshot(self, label: str) -> Snapshot:
        """Take a snapshot of the session, with a label."""
        self._history.session.flush_derived()
        return self._history.take("manual", label)

    @contextmanager
    def operation(self, name: str) -> Iterator[Snapshot]:
        """Do something that may go wrong: how it was before is kept until it went well."""
        self._history.session.flush_derived()
        with self._history.operation(name) as before:
            yield before
