"""Which phases are passed over, and why: a person skipped them, or their `when:` is not so. Computed at each read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidDocument, Problem, quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.session.reading import Reading
    from haytham.workflow import Phase

Outcomes = dict[str, dict[str, Any]]


def left_out(reading: Reading) -> dict[int, str]:
    """The phases of the mode that are passed over, and why, by number."""
    found: dict[int, str] = {}
    conditional = any(phase.when is not None for phase in reading.phases)
    outcomes = {phase.slug: _skipped() for phase in reading.workflow.phases if phase not in reading.phases}
    for phase in reading.phases:
        why = _why(reading, phase, outcomes)
        if why is not None:
            found[phase.number] = why
        if conditional:
            outcomes[phase.slug] = _skipped() if why is not None else _outcome(reading, phase)
    return found


def _skipped() -> dict[str, Any]:
    return {"status": "skipped", "approved": False}


def _why(reading: Reading, phase: Phase, outcomes: Mapping[str, dict[str, Any]]) -> str | None:
    checkpoint, review = reading.checkpoint(phase), reading.review(phase)
    asked = review is not None and review.decision == "skip" and reading.is_current(phase)
    if asked or (checkpoint is not None and checkpoint.value["status"] == "skipped"):
        return "it was skipped"
    if phase.when is not None and not _holds(reading, phase, outcomes):
        return f"its condition is not met: {phase.when}"
    return None


def _outcome(reading: Reading, phase: Phase) -> dict[str, Any]:
    """How a phase came out, as conditions see it."""
    checkpoint, review = reading.checkpoint(phase), reading.review(phase)
    status = "pending" if checkpoint is None else checkpoint.value["status"]
    unasked = phase.review == "none" and review is None and status == "completed"
    decided = review is not None and review.decision == "approved" and not review.outdated
    return {"status": status, "approved": unasked or (decided and reading.is_current(phase))}


def _holds(reading: Reading, phase: Phase, outcomes: Mapping[str, dict[str, Any]]) -> bool:
    """Whether a phase's condition holds, over how the phases before it came out."""
    from haytham.sandbox import TemplateFault, holds  # noqa: PLC0415 - only where a workflow has conditions

    try:
        return holds(phase.when or "", {"phases": outcomes})
    except TemplateFault as fault:
        message = f"phase {phase.number}: when: {quote(phase.when)}: {fault}"
        raise InvalidDocument([Problem(message, phase.when_line, file=reading.workflow.file)]) from None
