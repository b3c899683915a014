"""The shown parts of documents: drawn for people from what is computed, never read by the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haytham.session.names import title
from haytham.session.summary import next_phase, row_tokens, total

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.budget import Total
    from haytham.session.summary import Summary, Value
    from haytham.workflow import Phase

Shown = dict[str, Any]


def shown_manifest(summary: Summary) -> Shown:
    """What a manifest shows: when it was updated, status, the table of phases, the current one, totals."""
    status, current = summary.status, summary.current_phase
    names = {phase.number: phase.name for phase in summary.phases}
    rows = [row for value in summary.checkpoints.values() for row in value["ledger"]]
    return {
        "last_updated": summary.last_updated,
        "status": status,
        "phase_status": [_phase_row(phase, summary) for phase in summary.phases],
        "current_phase": current or None,
        "current_name": names.get(current),
        "current_status": summary.statuses.get(current),
        "can_resume": status not in ("completed", "rejected"),
        "total_duration": total(value["duration"] for value in summary.checkpoints.values()),
        "total_tokens": _spent_tokens(summary.spent, rows),
        "total_cost": _spent_cost(summary.spent, rows),
    }


def _spent_tokens(spent: Total, rows: list[Value]) -> int | None:
    """Return all tokens spent; None where no agent tells any."""
    is_told = spent.tokens or any(row_tokens(row) is not None for row in rows)
    return spent.tokens if is_told else None


def _spent_cost(spent: Total, rows: list[Value]) -> float | None:
    """Return all that was spent, as far as known; agents that tell a cost and were not paid for cost nothing."""
    if spent.calls:
        return spent.known
    return 0.0 if any(row["cost"] is not None for row in rows) else None


def _phase_row(phase: Phase, summary: Summary) -> Shown:
    value = summary.checkpoints.get(phase.number, {})
    duration = value.get("duration")
    return {
        "phase": phase.number,
        "name": phase.name,
        "status": summary.statuses[phase.number],
        "started": value.get("started"),
        "completed": value.get("completed"),
        "duration": None if duration is None else round(duration),
    }


def shown_checkpoint(value: Mapping[str, Any], phases: tuple[Phase, ...]) -> Shown:
    """What a checkpoint shows: names, inputs, outputs, sums and the next phase."""
    phase = next(phase for phase in phases if phase.number == value["phase"])
    following = next_phase(phases, phase.number)
    rows = value["ledger"]
    return {
        "phase_name": phase.name,
        "agents": {row["agent_name"]: row["status"] for row in rows},
        "inputs": [f"Phase {need.number}: {need.name}" for need in phases if need.number in phase.needs],
        "outputs": [row["output_file"] for row in rows if row["output_file"] is not None],
        "total_tokens": total(row_tokens(row) for row in rows),
        "input_tokens": total(row["input_tokens"] for row in rows),
        "output_tokens": total(row["output_tokens"] for row in rows),
        "cost": total(row["cost"] for row in rows),
        "next_phase": following.number if following else None,
        "next_name": following.name if following else None,
    }


def shown_output(phase: Phase, agent_name: str) -> Shown:
    """What an agent output shows: its phase, and its agent's name as a title."""
    return {"phase": f"{phase.number} - {phase.name}", "agent_title": title(agent_name)}


def shown_feedback(phase: Phase) -> Shown:
    """What feedback shows: the name of its phase."""
    return {"phase_name": phase.name}
