"""What the events of a session add up to: counts, times of phases, waits for people, failures and drift.

Only events that were not there at the last look are read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from haytham.logs import Line, LogKind, parse_line, read_from, read_log

if TYPE_CHECKING:
    from haytham.storage.base import Store

_PHASE_ENDS = frozenset({"phase_completed", "phase_failed", "phase_waiting"})
_REVIEW_ENDS = frozenset({"decision", "phase_started", "attempt_started"})


@dataclass(frozen=True)
class WaitTotals:
    """How long people took: reviews that ended, the seconds they were open together, and the longest."""

    reviews: int = 0
    seconds: float = 0.0
    longest: float = 0.0

    def add(self, seconds: float) -> WaitTotals:
        """Return the totals with one more review."""
        return self + WaitTotals(1, seconds, seconds)

    def __add__(self, other: WaitTotals) -> WaitTotals:
        longest = max(self.longest, other.longest)
        return WaitTotals(self.reviews + other.reviews, self.seconds + other.seconds, longest)


@dataclass
class EventTotals:
    """What the events of a session add up to, by phase where they name one.

    `open_reviews` are the phases that wait for a person, `running` the phase at work, each with the time it began.
    """

    counts: dict[str, int] = field(default_factory=dict)
    failures: dict[tuple[int, str], int] = field(default_factory=dict)
    signals: dict[str, int] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    waits: dict[int, WaitTotals] = field(default_factory=dict)
    open_reviews: dict[int, str] = field(default_factory=dict)
    running: tuple[int, str] | None = None
    last: str = ""

    def add(self, line: Line) -> None:
        """Add an event; one without a name or a phase counts as far as it can."""
        name, moment, phase = str(line.get("event")), str(line.get("time")), line.get("phase")
        self.counts[name] = self.counts.get(name, 0) + 1
        if name == "drift_detected":
            for signal in _names(line.get("signals")):
                self.signals[signal] = self.signals.get(signal, 0) + 1
        if type(phase) is int:
            self._add_of_phase(name, moment, phase, line)
        elif name == "run_ended":
            self._end_phase(moment)
        self.last = moment

    def _add_of_phase(self, name: str, moment: str, phase: int, line: Line) -> None:
        if name in _REVIEW_ENDS and phase in self.open_reviews:
            waited = seconds_between(self.open_reviews.pop(phase), moment)
            self.waits[phase] = self.waits.get(phase, WaitTotals()).add(waited)
        if name == "review_opened":
            self.open_reviews.setdefault(phase, moment)
        elif name == "phase_started":
            self._end_phase(self.last)  # of a run that was killed: it worked until its last event
            self.running = phase, moment
            self.attempts.setdefault(phase, 1)
        elif name in _PHASE_ENDS or name == "run_ended":
            self._end_phase(moment)
        elif name == "attempt_started":
            self.attempts[phase] = self.attempts.get(phase, 0) + 1
        elif name == "agent_failed":
            key = phase, str(line.get("agent"))
            self.failures[key] = self.failures.get(key, 0) + 1

    def _end_phase(self, moment: str) -> None:
        if self.running is not None:
            phase, since = self.running
            self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds_between(since, moment)
            self.running = None


def seconds_between(start: str, end: str) -> float:
    """Return the seconds from one time to another; 0 if one cannot be read, or the clock was set back."""
    try:
        return max((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return 0.0


def read_event_totals(store: Store, key: str) -> EventTotals:
    """Return what the events under a key add up to; do not change it. A line that cannot be read is skipped."""
    totals = read_log(store, key, _TOTALS)
    if totals is None:  # the last line is not complete
        totals = EventTotals()
        _fold(totals, read_from(store, key, 0).split(b"\n"))
    return totals


def _fold(totals: EventTotals, lines: list[bytes]) -> bool:
    for line in lines:
        event = parse_line(line)
        if event is not None:
            totals.add(event)
    return True


def _names(value: Any) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else []


def _encode(totals: EventTotals) -> Any:
    return {
        "counts": totals.counts,
        "failures": [[*key, count] for key, count in totals.failures.items()],
        "signals": totals.signals,
        "attempts": [*totals.attempts.items()],
        "seconds": [*totals.seconds.items()],
        "waits": [[phase, wait.reviews, wait.seconds, wait.longest] for phase, wait in totals.waits.items()],
        "open_reviews": [*totals.open_reviews.items()],
        "running": totals.running,
        "last": totals.last,
    }


def _decode(facts: Any) -> EventTotals:
    return EventTotals(
        counts=facts["counts"],
        failures={(phase, agent): count for phase, agent, count in facts["failures"]},
        signals=facts["signals"],
        attempts=dict(facts["attempts"]),
        seconds=dict(facts["seconds"]),
        waits={phase: WaitTotals(*wait) for phase, *wait in facts["waits"]},
        open_reviews=dict(facts["open_reviews"]),
        running=None if facts["running"] is None else (facts["running"][0], facts["running"][1]),
        last=facts["last"],
    )


_TOTALS: LogKind[EventTotals] = LogKind("statistics-1", EventTotals, _fold, _encode, _decode)
