"""What follows from drift: an episode takes one recovery snapshot, emits one event and asks for the policy's action.

A run has one monitor, which continues the counts of the session's log; a caller's own loop makes one for each step.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.engine.drift import describe, judge, text_similarity
from haytham.errors import HaythamError, InvalidDocument
from haytham.session.drift_log import DriftFold, as_number, read_drift
from haytham.session.state import read_state

if TYPE_CHECKING:
    from haytham.agents.base import Task
    from haytham.engine.autosnapshot import AutoSnapshotter
    from haytham.engine.drift import DriftReport, Signal
    from haytham.events import Events
    from haytham.history.snapshot import Snapshot
    from haytham.session.session import SessionDocuments
    from haytham.session.view import SessionView


class DriftMonitor:
    """Watches a session by its log: emits events when a signal comes on or clears, and says what has to stop for it."""

    recovery: Snapshot | None = None  # of the episode that began last

    def __init__(self, session: SessionDocuments, events: Events, snapshotter: AutoSnapshotter) -> None:
        self._session, self._events, self._snapshotter = session, events, snapshotter
        self._started = ""
        self._at_start: dict[str, Any] = {"task": None, "progress": None}
        self._fold = DriftFold()

    @property
    def stop(self) -> str | None:
        """Return the action that an episode asks for and that is not done yet: `pause`, `refresh` or None."""
        return self._fold.stop

    @property
    def why(self) -> str:
        """Return why something has to stop, in words."""
        return self._fold.why

    def start(self) -> None:
        """Begin to watch a run: its age begins, and an earlier stop is over, as all is read from disk again."""
        self.go_on()
        view = self._session.read()
        self._started = clock.now()
        with suppress(InvalidDocument):  # a damaged state, which the next task reports
            self._at_start = task_facts(view)
        self._judge(view, may_begin=False)

    def go_on(self) -> None:
        """Continue the counts of the log, for a step of a loop; an earlier stop is over."""
        self._read()
        if self.stop is not None:
            self.clear("resume")

    def _read(self) -> None:
        """Read the log as it is now; the progress at the start of a run counts until the log has a higher one."""
        fold = self._fold = read_drift(self._session.store, self._session.prefix)
        fold.started = self._started or fold.started
        task, progress = self._at_start["task"], self._at_start["progress"]
        if fold.progress is None or (fold.task == task and fold.progress < (progress or 0)):
            fold.task, fold.progress = task, progress

    def clear(self, by: str) -> None:
        """End the episode by a refresh or by resuming: all counts begin anew."""
        self._emit("drift_cleared", signals=list(self._fold.signals), by=by)

    def check(self) -> DriftReport:
        """Judge the session; new signals take one recovery snapshot and emit one event together."""
        return self._judge(self._session.read())

    def _judge(self, view: SessionView, *, may_begin: bool = True) -> DriftReport:
        policy = view.settings.drift
        self._read()
        with suppress(InvalidDocument):  # a damaged state, which the next task reports
            self._fold.observe(read_state(view))
        self._fold.started = self._fold.started or view.manifest.value.created
        report = judge(self._fold, policy, now=clock.now())
        over = [signal for signal in self._fold.signals if signal not in report.signals]
        begun = [signal for signal in report.signals if signal not in self._fold.signals]
        if over:
            self._emit("drift_cleared", signals=over, by="itself")
        if begun and may_begin:
            self._begin(begun, policy.action, describe(report, begun))
        return report

    def _emit(self, name: str, **facts: Any) -> None:
        self._events.emit(name, **facts)
        self._read()

    def _begin(self, signals: list[Signal], action: str, why: str) -> None:
        self.recovery = taken = self._snapshotter.after_error(f"drift: {', '.join(signals)}")
        recovery = None if taken is None else taken.id
        self._emit("drift_detected", signals=list(signals), action=action, why=why, recovery=recovery)

    def similarity(self, task: Task, text: str) -> dict[str, float]:
        """Return how alike an answer is to the agent's text before it, as a fact; nothing where there is none."""
        with suppress(HaythamError, OSError):  # which the run itself reports
            before = _text_before(self._session.read(), task)
            return {} if before is None else {"similarity": text_similarity(before, text)}
        return {}


def progress_facts(view: SessionView) -> dict[str, Any]:
    """Return the task of a session's state and its progress, as facts of an agent's call; nothing without a number."""
    with suppress(InvalidDocument):  # which the next task reports
        facts = task_facts(view)
        return {} if facts["progress"] is None else facts
    return {}


def task_facts(view: SessionView) -> dict[str, Any]:
    """Return the task of a session's state and its progress, None if that is no number."""
    task = read_state(view)["task"]
    return {"task": task.get("current"), "progress": as_number(task.get("progress"))}


def process_name() -> str:
    """Return a name of this process that no other one has."""
    return _process_name(os.getpid())


@cache
def _process_name(_pid: int) -> str:
    return clock.new_id()


def _text_before(view: SessionView, task: Task) -> str | None:
    """Return the text of an agent in the present attempt at its phase, else in the one before."""
    phase = view.require_phase(task.phase)
    output, attempt = view.output(phase, task.agent), view.attempt(phase)
    if output is not None and output.value.status == "completed":
        return str(output.value.text)
    return view.archived_attempt(phase, attempt - 1).texts.get(task.agent) if attempt > 1 else None
