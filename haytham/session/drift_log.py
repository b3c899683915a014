"""What `events.jsonl` says of drift: cycles, errors, repeats and progress so far, and the episode that is on.

A cycle is a call of an agent that ended, or a step of a caller's own loop. Its action is the phase with the agent, or
the state's `task.current`. Only folded here; `engine.drift` judges.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from haytham.events import Event
from haytham.logs import LogKind, parse_line, read_from, read_log
from haytham.session.paths import EVENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.config.policy import DriftPolicy
    from haytham.storage.base import Store

ALIKE = 0.95
_MOST_KEPT = 1000  # cycles and actions that are remembered, whatever the length of the log
_IDLE = 30  # minutes without a cycle before another process goes on: nobody was at work
_FAILED = ("agent_failed", "cycle_failed")
_CYCLES = ("agent_completed", "cycle_completed", *_FAILED)
_EVENTS = (*_CYCLES, "run_ended", "phase_completed", "snapshot_restored", "drift_detected", "drift_cleared")
_NAMES = tuple(f'"{name}"'.encode() for name in _EVENTS)


@dataclass
class DriftFold:
    """What is remembered of events and states: its size does not grow with their number.

    `started` is when the age began, `first` the first event; `signals` are on by the log, and `stop` is the action
    that follows from them, with `why`: it holds until a refresh.
    """

    started: str = ""
    first: str = ""
    cycles: int = 0
    recent: list[list[Any]] = field(default_factory=list)
    repeats: dict[str, int] = field(default_factory=dict)
    stalled: int = 0
    task: str | None = None
    progress: float | None = None
    is_backwards: bool = False
    signals: list[str] = field(default_factory=list)
    stop: str | None = None
    why: str = ""
    process: str | None = None
    last: str = ""

    def copy(self) -> DriftFold:
        """Return a fold that can be added to without changing this one."""
        return replace(self, recent=[*self.recent], repeats={**self.repeats}, signals=[*self.signals])

    def add(self, event: Event) -> None:
        """Fold one event."""
        self.first = self.first or event.time
        facts = event.facts
        if event.name == "run_ended":
            self.started, self.process = event.time, None
        elif event.name == "phase_completed":
            self.stalled = 0
        elif event.name in _CYCLES:
            self._add_cycle(event)
        elif event.name == "snapshot_restored":
            self.refresh(event.time)
        elif event.name == "drift_detected":
            self._begin(facts)
        elif event.name == "drift_cleared":
            self._end(facts, event.time)

    def observe(self, state: Mapping[str, Any]) -> None:
        """Compare the state's progress with the highest of the same task."""
        task = state.get("task") or {}
        self._observe(task.get("current"), as_number(task.get("progress")))

    def refresh(self, time: str) -> None:
        """Begin all counts anew, as after a controlled restart."""
        vars(self).update(vars(DriftFold(time, self.first or time, process=self.process, last=self.last)))

    def _begin(self, facts: Mapping[str, Any]) -> None:
        begun = [signal for signal in _texts(facts.get("signals")) if signal not in self.signals]
        self.signals += begun
        if facts.get("action") in ("pause", "refresh"):
            self.stop, self.why = str(facts["action"]), str(facts.get("why", ""))

    def _end(self, facts: Mapping[str, Any], time: str) -> None:
        if facts.get("by") in ("refresh", "resume"):
            self.refresh(time)
        else:
            ended = _texts(facts.get("signals"))
            self.signals = [signal for signal in self.signals if signal not in ended]

    def _add_cycle(self, event: Event) -> None:
        facts, is_error = event.facts, event.name in _FAILED
        is_step = "agent" not in facts
        action = f"task {facts.get('task')}" if is_step else f"{facts.get('phase')}/{facts.get('agent')}"
        if is_step:
            self._follow_process(event)
        progress = as_number(facts.get("progress"))
        self.cycles += 1
        if not is_step or progress is not None:  # a loop that tells no number is not stalled
            self.stalled += 1
        if progress is not None:
            self._observe(facts.get("task"), progress)
        self.recent.append([is_error, action])
        if len(self.recent) > 2 * _MOST_KEPT:
            del self.recent[:-_MOST_KEPT]
        if not is_error:  # which wrote nothing to compare
            self._add_text(action, as_number(facts.get("similarity")))

    def _add_text(self, action: str, similarity: float | None) -> None:
        is_alike = similarity is not None and similarity >= ALIKE
        self.repeats[action] = self.repeats.pop(action, 0) + 1 if is_alike else 1
        if len(self.repeats) > _MOST_KEPT:
            del self.repeats[next(iter(self.repeats))]

    def _follow_process(self, event: Event) -> None:
        """Start the age again if a loop goes on in another process after an idle time."""
        process = event.facts.get("process")
        is_new = self.process is not None and process != self.process
        if is_new and minutes_between(self.last, event.time) >= _IDLE:
            self.started = event.time
        self.process, self.last = None if process is None else str(process), event.time

    def _observe(self, task: Any, progress: float | None) -> None:
        is_first = self.progress is None
        is_same = task == self.task and not is_first
        highest = self.progress or 0
        self.is_backwards = is_same and progress is not None and progress < highest
        if progress is not None and (not is_same or progress > highest):
            self.stalled = self.stalled if is_first else 0
            self.task, self.progress = None if task is None else str(task), progress


def as_number(value: object) -> float | None:
    """Return a number as a float; None for anything else, also for a truth value."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def minutes_between(start: str, end: str) -> float:
    """Return the minutes from one time to another; 0 where one of them cannot be read."""
    try:
        return (_instant(end) - _instant(start)).total_seconds() / 60
    except ValueError:
        return 0.0


def _instant(time: str) -> datetime:
    instant = datetime.fromisoformat(time)
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def read_drift(store: Store, prefix: str) -> DriftFold:
    """Return what the log of a session says of drift; only lines that were not there at the last look are read."""
    key = prefix + EVENTS
    fold = read_log(store, key, _DRIFT)
    if fold is None:  # a line that a crash cut off
        fold = DriftFold()
        _fold(fold, read_from(store, key, 0).split(b"\n"))
    return fold.copy()


def pause_by_drift(policy: DriftPolicy, store: Store, prefix: str) -> str | None:
    """Return why a session is paused by its policy, until the next run; None where it is not."""
    if policy.action != "pause":
        return None
    fold = read_drift(store, prefix)
    return fold.why if fold.stop == "pause" else None


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _fold(fold: DriftFold, lines: list[bytes]) -> bool:
    for line in lines:
        facts = parse_line(line) if any(name in line for name in _NAMES) else None
        if facts is not None and facts.get("event") in _EVENTS:
            fold.add(Event(facts["event"], str(facts.get("time", "")), facts))
    return True


_DRIFT: LogKind[DriftFold] = LogKind("drift-1", DriftFold, _fold, vars, lambda facts: DriftFold(**facts))
