"""Milestones of a session: a text is revised, a phase becomes stale, work is resumed, everything is done.

Each is one event, when it becomes so: what `events.jsonl` says already is not emitted again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haytham.logs import LogKind, parse_line
from haytham.session.plan import what_changed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.events import Events
    from haytham.session.plan import SessionPlan

_RENEWING = ("phase_started", "attempt_started", "decision")  # of one phase
_REPLACING = ("snapshot_restored", "merged")  # of the whole session
_REOPENING = ("phase_started", "attempt_started", "review_opened", "phase_stale", "decision_withdrawn", *_REPLACING)
_NAMES = {*_RENEWING, *_REPLACING, *_REOPENING, "revised", "session_completed"}
_QUOTED = tuple(f'"{name}"'.encode() for name in sorted(_NAMES))


@dataclass
class Milestones:
    """What the events of a session have said: which texts were revised, which phases are stale, whether all is done."""

    revised: set[str] = field(default_factory=set)
    stale: set[int] = field(default_factory=set)
    is_completed: bool = False

    def add(self, event: Mapping[str, Any]) -> None:
        """Fold one event."""
        name, phase = event.get("event"), event.get("phase")
        if name == "revised":
            self.revised.add(_key(event))
        elif name == "phase_stale" and isinstance(phase, int):
            self.stale.add(phase)
        elif name in _RENEWING and isinstance(phase, int):
            self.stale.discard(phase)
        elif name in _REPLACING:
            self.stale.clear()
        if name in _REOPENING or name == "session_completed":
            self.is_completed = name == "session_completed"


def _key(event: Mapping[str, Any]) -> str:
    facts = {name: value for name, value in event.items() if name not in ("time", "event")}
    return json.dumps(facts, sort_keys=True)


def _fold(state: Milestones, lines: list[bytes]) -> bool:
    for line in lines:
        if any(name in line for name in _QUOTED) and (event := parse_line(line)) is not None:
            state.add(event)
    return True


def _encode(state: Milestones) -> dict[str, Any]:
    return {"revised": sorted(state.revised), "stale": sorted(state.stale), "is_completed": state.is_completed}


def _decode(facts: Mapping[str, Any]) -> Milestones:
    return Milestones(set(facts["revised"]), set(facts["stale"]), facts["is_completed"])


_KIND: LogKind[Milestones] = LogKind("milestones-1", Milestones, _fold, _encode, _decode)


def report_revised(events: Events, **facts: Any) -> None:
    """Emit that a person revised a text, unless the events have just these facts."""
    if _key(facts) not in events.fold(_KIND).revised:
        events.emit("revised", **facts)


def report_stale(events: Events, plan: SessionPlan) -> None:
    """Emit which phases have become stale."""
    stale = [entry for entry in plan.phases if entry.stale]
    reported = events.fold(_KIND).stale if stale else set()
    for entry in (entry for entry in stale if entry.number not in reported):
        outputs = {agent: entry.state.outputs[agent] for agent in entry.stale}
        why = what_changed(entry.state, outputs)
        events.emit("phase_stale", phase=entry.number, agents=list(entry.stale), why=why)


def report_completed(events: Events, plan: SessionPlan | None, *, version: int | None = None) -> None:
    """Emit that nothing is left to do by the plan; without one, that the session was closed."""
    is_done = plan is None or plan.next is None
    if is_done and not events.fold(_KIND).is_completed:
        events.emit("session_completed", version=version)


def has_begun(plan: SessionPlan) -> bool:
    """Return whether an earlier run left work: an output, a decision, or a task."""
    states = [entry.state for entry in plan.phases]
    if any(state.outputs or state.lost or state.feedback is not None or state.attempt > 1 for state in states):
        return True
    return plan.next is not None and bool(plan.view.task_agents(plan.next.state.phase))
