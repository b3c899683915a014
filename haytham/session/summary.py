"""What is computed from a session's documents: decisions, statuses, sums. Pure, and stored nowhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from haytham import clock
from haytham.budget import Total
from haytham.errors import HaythamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from haytham.workflow import Phase

Decision = Literal["approved", "changes", "skip", "rejected"]
Value = dict[str, Any]

_ACTIONS: dict[str, Decision] = {
    "approved": "approved",
    "retry_with_changes": "changes",
    "skip_phase": "skip",
    "rejected": "rejected",
}


@dataclass(frozen=True)
class Review:
    """What a person decided on a phase, if anything, and whether an approved text has changed since."""

    decision: Decision | None
    outdated: bool

    @property
    def open(self) -> bool:
        """Whether the gate waits for a person."""
        return self.decision is None or self.outdated


@dataclass(frozen=True)
class Summary:
    """A session at one moment: what its documents say, and all that follows from them.

    `changed` is the status of phases as the plan sees them; `error` why there is no plan, where the status is
    `unreadable`; `times` when outputs were written, reviews were given and the state was saved.
    """

    manifest: Mapping[str, Any]
    phases: tuple[Phase, ...]
    checkpoints: Mapping[int, Mapping[str, Any]]
    reviews: Mapping[int, Review]
    changed: Mapping[int, str] = field(default_factory=dict)
    status: str = "in_progress"
    error: Exception | None = None
    spent: Total = field(default_factory=Total)
    times: tuple[str, ...] = ()

    @property
    def statuses(self) -> dict[int, str]:
        """The status of each phase of the mode; no checkpoint means pending."""
        known = {number: str(value["status"]) for number, value in self.checkpoints.items()} | dict(self.changed)
        return {phase.number: known.get(phase.number, "pending") for phase in self.phases}

    @property
    def current_phase(self) -> int:
        """The phase saved last; 0 before any."""
        saved = [(value["saved"], number) for number, value in self.checkpoints.items()]
        return max(saved)[1] if saved else 0

    @property
    def completed_phases(self) -> list[int]:
        """The phases that are completed."""
        return [number for number, status in self.statuses.items() if status == "completed"]

    @property
    def approved_phases(self) -> list[int]:
        """The phases a person approved, on the very text that is there."""
        return [n for n, review in self.reviews.items() if review.decision == "approved" and not review.outdated]

    @property
    def last_updated(self) -> str:
        """The newest time that a document is the home of: created, closed, saved, written, reviewed."""
        own = [self.manifest[name] for name in ("created", "closed") if name in self.manifest]
        saved = [value["saved_at"] for value in self.checkpoints.values() if "saved_at" in value]
        return clock.newest([*own, *saved, *self.times])


class UnlikeDecision(HaythamError, ValueError):
    """`Approved` and `Action` say different things."""

    def __init__(self, approved: bool, action: str) -> None:  # noqa: FBT001 - a value, not a switch
        said = f"found Approved: {str(approved).lower()} and Action: {action}"
        super().__init__(f"{said}; allowed: two that agree, or one of them alone")


def decide(feedback: Mapping[str, Any]) -> Decision | None:
    """What a review decides; None where it decides nothing, UnlikeDecision where it says two things."""
    approved, action = feedback["approved"], feedback["action"]
    if approved is not None and action != "pending" and approved != (action == "approved"):
        raise UnlikeDecision(approved, action)
    if action != "pending":
        return _ACTIONS[action]
    if approved:
        return "approved"
    asked = feedback["comments"].strip() or feedback["requested_changes"]
    return "changes" if approved is False and asked else None


def asked_agents(feedback: Mapping[str, Any], agents: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of a phase's agents that a review asks for changes: the named ones, else all."""
    named = feedback.get("agents") or agents
    return tuple(agent for agent in agents if agent in named)


def total(values: Iterable[float | None]) -> float | None:
    """The sum of what is known, to the digit as people add; None where nothing is."""
    known = [value for value in values if value is not None]
    if all(isinstance(value, int) for value in known):
        return sum(known) if known else None
    return float(sum(Decimal(repr(float(value))) for value in known))


def row_tokens(row: Mapping[str, Any]) -> int | None:
    """All tokens of an agent: as given, else input and output together."""
    if row["tokens"] is not None:
        return int(row["tokens"])
    both = total([row["input_tokens"], row["output_tokens"]])
    return None if both is None else int(both)


def next_phase(phases: tuple[Phase, ...], number: int) -> Phase | None:
    """The phase that follows in the mode."""
    return next((phase for phase in phases if phase.number > number), None)
