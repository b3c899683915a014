"""Whether a run drifts: a pure judgement of its events and state, and the monitor that warns of it.

A cycle is a call of an agent that ended. An action is a phase with its agent. Progress is a completed phase, or a
higher number in the state's `task.progress`.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from haytham import clock
from haytham.errors import HaythamError, InvalidDocument
from haytham.events import EVERY
from haytham.session.state import read_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.agents.base import Task
    from haytham.config.policy import DriftPolicy
    from haytham.engine.autosnapshot import AutoSnapshotter
    from haytham.events import Event, Events
    from haytham.session.session import SessionDocuments
    from haytham.session.view import SessionView

Signal = Literal["cycles", "errors", "repeats", "no_progress", "age"]

ALIKE = 0.95
_FEWEST_CYCLES = 10  # fewer have no error rate
_MOST_KEPT = 1000  # cycles and actions that are remembered, whatever the length of the run


@dataclass(frozen=True)
class DriftReport:
    """The signals that are on, and the figures they were judged by."""

    signals: tuple[Signal, ...]
    cycles: int
    error_rate: float
    repeats: int
    stalled: int
    age_minutes: float


@dataclass
class DriftFold:
    """What is remembered of the events and states of a run: its size does not grow with their number."""

    started: str
    cycles: int = 0
    recent: list[tuple[bool, str]] = field(default_factory=list)
    repeats: dict[str, int] = field(default_factory=dict)
    stalled: int = 0
    task: str | None = None
    progress: float | None = None
    is_backwards: bool = False

    def add(self, event: Event) -> None:
        """Fold one event."""
        if event.name == "phase_completed":
            self.stalled = 0
        elif event.name in ("agent_completed", "agent_failed"):
            self.stalled += 1
            self._add_cycle(event, f"{event.facts.get('phase')}/{event.facts.get('agent')}")

    def observe(self, state: Mapping[str, Any]) -> None:
        """Compare the state's progress with the highest of the same task."""
        task = state.get("task") or {}
        current, progress = task.get("current"), _number(task.get("progress"))
        is_same = current == self.task and self.progress is not None
        self.is_backwards = is_same and progress is not None and progress < (self.progress or 0)
        if progress is not None and (not is_same or progress > (self.progress or 0)):
            self.stalled, self.task, self.progress = 0, current, progress

    def _add_cycle(self, event: Event, action: str) -> None:
        self.cycles += 1
        self.recent = [*self.recent[1 - _MOST_KEPT :], (event.name == "agent_failed", action)]
        if event.name == "agent_failed":  # which wrote nothing to compare
            return
        similarity = _number(event.facts.get("similarity"))
        is_alike = similarity is not None and similarity >= ALIKE
        self.repeats[action] = self.repeats.pop(action, 0) + 1 if is_alike else 1
        if len(self.repeats) > _MOST_KEPT:
            del self.repeats[next(iter(self.repeats))]


def judge(fold: DriftFold, policy: DriftPolicy, *, now: str) -> DriftReport:
    """Return how far a run drifts, by what was folded of it."""
    window = fold.recent[-policy.window :]
    rate = sum(is_error for is_error, _ in window) / len(window) if len(window) >= _FEWEST_CYCLES else 0.0
    repeats = max((fold.repeats.get(action, 0) for _, action in window), default=0)
    age = _minutes(fold.started, now)
    signals: dict[Signal, bool] = {
        "cycles": fold.cycles > policy.cycles,
        "errors": rate > policy.error_rate,
        "repeats": repeats > policy.repeats,
        "no_progress": fold.stalled >= policy.no_progress or fold.is_backwards,
        "age": age >= policy.age_minutes,
    }
    names = tuple(name for name, is_on in signals.items() if is_on)
    return DriftReport(names, fold.cycles, rate, repeats, fold.stalled, age)


def text_similarity(old: str, new: str) -> float:
    """Return how alike two texts are, from 0 to 1, by the words they share; the cost grows with their length only."""
    if old == new:
        return 1.0
    before, after = Counter(old.split()), Counter(new.split())
    total = before.total() + after.total()
    return round(2 * (before & after).total() / total, 4) if total else 1.0


class DriftMonitor:
    """Watches the runs of a session, and warns once an episode: the time from when a signal comes on until it clears.

    Counts begin with each run, so that the time between two runs does not count.
    """

    def __init__(self, session: SessionDocuments, events: Events, snapshotter: AutoSnapshotter) -> None:
        self._session, self._events, self._snapshotter = session, events, snapshotter
        self._fold = DriftFold(clock.now())
        self._on: tuple[Signal, ...] = ()
        events.on(EVERY, self._add)

    def _add(self, event: Event) -> None:
        self._fold.add(event)

    def start(self) -> None:
        """Begin to count: a run starts."""
        self._fold, self._on = DriftFold(clock.now()), ()
        self._observe(self._session.read())

    def check(self) -> None:
        """Judge the run; signals that came on make one recovery snapshot and one event together."""
        view = self._session.read()
        self._observe(view)
        policy = view.settings.drift
        signals = judge(self._fold, policy, now=clock.now()).signals
        begun = [signal for signal in signals if signal not in self._on]
        self._on = signals
        if begun:
            self._snapshotter.after_error(f"drift: {', '.join(begun)}")
            self._events.emit("drift_detected", signals=begun, action=policy.action)

    def similarity(self, task: Task, text: str) -> dict[str, float]:
        """Return how alike an answer is to the agent's text before it, as a fact; nothing where there is none."""
        with suppress(HaythamError, OSError):  # which the run itself reports
            before = _text_before(self._session.read(), task)
            return {} if before is None else {"similarity": text_similarity(before, text)}
        return {}

    def _observe(self, view: SessionView) -> None:
        with suppress(InvalidDocument):  # a damaged state, which the next task reports
            self._fold.observe(read_state(view))


def _text_before(view: SessionView, task: Task) -> str | None:
    """Return the text of an agent in the present attempt at its phase, else in the one before."""
    phase = view.require_phase(task.phase)
    output, attempt = view.output(phase, task.agent), view.attempt(phase)
    if output is not None and output.value.status == "completed":
        return str(output.value.text)
    return view.archived_attempt(phase, attempt - 1).texts.get(task.agent) if attempt > 1 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _minutes(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() / 60
