"""Whether a session drifts: a pure judgement of its events and state, with figures and words.

What is remembered of the events is folded in `session.drift_log`; `engine.drift_monitor` acts on what is found.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from haytham.session.drift_log import DriftFold, minutes_between

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from haytham.config.policy import DriftPolicy
    from haytham.events import Event

Signal = Literal["cycles", "errors", "repeats", "no_progress", "age"]
SIGNALS: tuple[Signal, ...] = get_args(Signal)

_FEWEST_CYCLES = 10  # fewer have no error rate


@dataclass(frozen=True)
class DriftReport:
    """The signals that are on, and the figures they were judged by.

    `stalled` are the cycles without progress, `is_backwards` whether the state's progress is below its highest.
    """

    signals: tuple[Signal, ...]
    cycles: int
    error_rate: float
    repeats: int
    stalled: int
    is_backwards: bool
    age_minutes: float


def detect(
    events: Iterable[Event], state: Mapping[str, Any], policy: DriftPolicy, *, now: str | None = None
) -> DriftReport:
    """Return how far a session drifts, by its events and its state; `now` is the time of the last event by default."""
    fold, last = DriftFold(), ""
    for event in events:
        fold.add(event)
        last = event.time
    fold.observe(state)
    return judge(fold, policy, now=last if now is None else now)


def judge(fold: DriftFold, policy: DriftPolicy, *, now: str) -> DriftReport:
    """Return how far a session drifts, by what was folded of it."""
    window = fold.recent[-policy.window :]
    rate = sum(is_error for is_error, _ in window) / len(window) if len(window) >= _FEWEST_CYCLES else 0.0
    repeats = max((fold.repeats.get(action, 0) for _, action in window), default=0)
    age = minutes_between(fold.started or fold.first, now)
    is_on: dict[Signal, bool] = {
        "cycles": fold.cycles > policy.cycles,
        "errors": rate > policy.error_rate,
        "repeats": repeats > policy.repeats,
        "no_progress": fold.stalled >= policy.no_progress or fold.is_backwards,
        "age": age >= policy.age_minutes,
    }
    signals = tuple(signal for signal in SIGNALS if is_on[signal])
    return DriftReport(signals, fold.cycles, rate, repeats, fold.stalled, fold.is_backwards, age)


def describe(report: DriftReport, signals: Iterable[Signal]) -> str:
    """Return what some signals of a report mean, with their figures, in one line."""
    stalled = "progress went backwards" if report.is_backwards else f"{_cycles(report.stalled)} without progress"
    words: dict[Signal, str] = {
        "cycles": f"{_cycles(report.cycles)} since the last refresh",
        "errors": f"{report.error_rate:.0%} of the last cycles failed",
        "repeats": f"the same answer {report.repeats} times",
        "no_progress": stalled,
        "age": f"{report.age_minutes:.0f} minutes since the last refresh",
    }
    return "drift: " + ", ".join(words[signal] for signal in signals)


def _cycles(count: int) -> str:
    return f"{count} cycle{'' if count == 1 else 's'}"


def text_similarity(old: str, new: str) -> float:
    """Return how alike two texts are, from 0 to 1, by the words they share; the cost grows with their length only."""
    if old == new:
        return 1.0
    before, after = Counter(old.split()), Counter(new.split())
    total = before.total() + after.total()
    return round(2 * (before & after).total() / total, 4) if total else 1.0
