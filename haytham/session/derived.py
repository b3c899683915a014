"""What is computed from a session's documents: decisions, statuses, sums. Pure, and stored nowhere.

The Agent Ledger of a checkpoint: one row an agent, as a caller gives it and as the agent's own file completes it.

The derived parts of documents: rendered for people, never read by the engine.

Which phases are skipped, and why: by a person, or because their `when:` is false. Computed at each read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from haytham import clock
from haytham.errors import HaythamError, InvalidArgument, InvalidDocument, NotReviewer, Problem, short_repr
from haytham.session.models import LedgerRow
from haytham.session.paths import check_agent_name, humanize, output_file
from haytham.usage import UsageTotal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from haytham.config.workflow import Phase
    from haytham.session.models import OutputHeader, PhaseCheckpoint, PhaseMode, SessionManifest, UserFeedback
    from haytham.session.view import SessionView

Decision = Literal["approved", "changes", "skip", "rejected"]
Value = dict[str, Any]

_ACTIONS: dict[str, Decision] = {
    "approved": "approved",
    "retry_with_changes": "changes",
    "skip_phase": "skip",
    "rejected": "rejected",
}


@dataclass(frozen=True)
class ReviewDecision:
    """What a person decided on a phase, if anything, and whether an approved text has changed since."""

    decision: Decision | None
    outdated: bool

    @property
    def open(self) -> bool:
        """Return whether the gate waits for a person."""
        return self.decision is None or self.outdated


NextKind = Literal["review", "write", "resume", "retry", "raise limit"]


@dataclass(frozen=True)
class NextStep:
    """What a session waits for, in which phase, and who may do it: the reviewers of the phase, else its owner."""

    kind: NextKind
    phase: int
    users: tuple[str, ...] = ()

    @property
    def is_for_person(self) -> bool:
        """Return whether a page waits to be reviewed or written."""
        return self.kind in ("review", "write")


@dataclass(frozen=True)
class Summary:
    """A session at one moment: what its documents say, and all that follows from them.

    `changed` is the status of phases as the plan sees them; `error` why there is no plan, where the status is
    `unreadable`; `times` when outputs were written, reviews were given and the state was saved. `next` is None if
    nothing is left to do, or if nobody can tell.
    """

    manifest: SessionManifest
    phases: tuple[Phase, ...]
    checkpoints: Mapping[int, PhaseCheckpoint]
    reviews: Mapping[int, ReviewDecision]
    changed: Mapping[int, str] = field(default_factory=dict)
    status: str = "in_progress"
    error: Exception | None = None
    spent: UsageTotal = field(default_factory=UsageTotal)
    times: tuple[str, ...] = ()
    next: NextStep | None = None

    @cached_property
    def statuses(self) -> dict[int, str]:
        """Return the status of each phase of the mode; pending without a checkpoint."""
        known = {number: str(value.status) for number, value in self.checkpoints.items()} | dict(self.changed)
        return {phase.number: known.get(phase.number, "pending") for phase in self.phases}

    @property
    def current_phase(self) -> int:
        """Return the phase saved last; 0 before any."""
        saved = [(value.save_counter, number) for number, value in self.checkpoints.items()]
        return max(saved)[1] if saved else 0

    @property
    def completed_phases(self) -> list[int]:
        """Return the phases that are completed."""
        return [number for number, status in self.statuses.items() if status == "completed"]

    @property
    def approved_phases(self) -> list[int]:
        """Return the phases that a person approved, on the present texts."""
        return [n for n, review in self.reviews.items() if review.decision == "approved" and not review.outdated]

    @property
    def last_updated(self) -> str:
        """Return the newest time in any document: created, closed, saved, written, reviewed."""
        saved = [value.saved_at for value in self.checkpoints.values()]
        own = (self.manifest.created, self.manifest.closed, *saved)
        return clock.newest([*(time for time in own if time is not None), *self.times])


class ConflictingDecision(HaythamError, ValueError):
    """`Approved` and `Action` say different things."""

    def __init__(self, approved: bool, action: str) -> None:  # noqa: FBT001 - a value, not a switch
        conflict = f"found Approved: {str(approved).lower()} and Action: {action}"
        super().__init__(f"{conflict}; allowed: two that agree, or one of them alone")


def parse_decision(feedback: UserFeedback) -> Decision | None:
    """Return what a review decides, or None; ConflictingDecision if it says two things."""
    approved, action = feedback.approved, feedback.action
    if approved is not None and action != "pending" and approved != (action == "approved"):
        raise ConflictingDecision(approved, action)
    if action != "pending":
        return _ACTIONS[action]
    if approved:
        return "approved"
    asked = feedback.comments.strip() or feedback.requested_changes
    return "changes" if approved is False and asked else None


def asked_agents(feedback: UserFeedback, agents: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of a phase's agents that a review asks for changes: the named ones, else all."""
    named = feedback.agents or agents
    return tuple(agent for agent in agents if agent in named)


def reviewer_problem(phase: Phase, decision: Decision | None, by: str | None = None) -> NotReviewer | None:
    """Return why a decision does not count if it is for others to make; nobody has bound one without `by`."""
    if decision is None or not phase.reviewers or phase.may_review(by):
        return None
    return NotReviewer(phase.number, phase.reviewers, by)


def sum_known(values: Iterable[float | None]) -> float | None:
    """Return the exact sum of the known values; None if none is known."""
    known = [value for value in values if value is not None]
    if all(isinstance(value, int) for value in known):
        return sum(known) if known else None
    return float(sum(Decimal(repr(float(value))) for value in known))


def row_tokens(row: LedgerRow) -> int | None:
    """Return all tokens of an agent: as given, else input and output together."""
    if row.tokens is not None:
        return int(row.tokens)
    both = sum_known([row.input_tokens, row.output_tokens])
    return None if both is None else int(both)


def execution_mode(phase: Phase) -> PhaseMode:
    """Return how the agents of a phase run, as its checkpoint says it."""
    if phase.run == "sequential":
        return "sequential_interactive"
    return "parallel" if len(phase.agents) > 1 else "single"


def next_phase(phases: tuple[Phase, ...], number: int) -> Phase | None:
    """Return the phase that follows in the mode."""
    return next((phase for phase in phases if phase.number > number), None)


_COLUMNS = ("agent_name", "status", "output_file", "tokens", "input_tokens", "output_tokens", "cost", "duration")


_SKIPPED: Mapping[str, Any] = {"status": "skipped", "approved": False}


def parse_rows(agents: Any) -> list[LedgerRow]:
    """Return the rows of what a caller says of its agents: dicts with agent_name, status and any other column."""
    if not isinstance(agents, list | tuple):
        raise InvalidArgument("agents", agents, "a list of dicts, one an agent")
    rows = [_read_row(agent) for agent in agents]
    names = [row.agent_name for row in rows]
    if len(set(names)) != len(names):
        raise InvalidArgument("agents", names, "each agent once")
    return rows


def _read_row(agent: Any) -> LedgerRow:
    if not isinstance(agent, dict) or not {"agent_name", "status"} <= agent.keys() <= set(_COLUMNS):
        raise InvalidArgument("agent", agent, f"a dict with agent_name, status and any of {', '.join(_COLUMNS[2:])}")
    check_agent_name(agent["agent_name"])
    return LedgerRow.from_value({column: agent.get(column) for column in _COLUMNS})


def complete_row(row: LedgerRow, output: OutputHeader | None) -> LedgerRow:
    """Merge a ledger row with the agent's output file; the file wins, the row fills its gaps."""
    if output is None:
        return row
    known = row_from_output(output)
    gaps = {column: getattr(row, column) for column in _COLUMNS if getattr(known, column) is None}
    return replace(known, **gaps)


def update_rows(rows: Iterable[LedgerRow], output: OutputHeader, before: OutputHeader | None) -> tuple[LedgerRow, ...]:
    """Return the rows once an agent's file was written, without what only the file before it said."""
    by_agent = {row.agent_name: row for row in rows}
    row = by_agent.get(output.agent)
    if row is not None and before is not None:
        old = row_from_output(before)
        unchanged: dict[str, Any] = {name: None for name in _COLUMNS[2:] if getattr(row, name) == getattr(old, name)}
        row = replace(row, **unchanged)
    by_agent[output.agent] = row_from_output(output) if row is None else complete_row(row, output)
    return tuple(by_agent.values())


def row_from_output(output: OutputHeader) -> LedgerRow:
    """Return what an agent's own file says, as a row."""
    both = output.input_tokens, output.output_tokens
    return LedgerRow(
        agent_name=output.agent,
        status=output.status,
        output_file=output_file(output.agent),
        tokens=None if both[0] is None or both[1] is None else both[0] + both[1],
        input_tokens=both[0],
        output_tokens=both[1],
        cost=None,
        duration=output.duration,
    )


Derived = dict[str, Any]


def derived_manifest(summary: Summary) -> Derived:
    """Return the derived fields of a manifest: last update, status, phases, current phase, totals."""
    status, current = summary.status, summary.current_phase
    names = {phase.number: phase.name for phase in summary.phases}
    rows = [row for value in summary.checkpoints.values() for row in value.ledger]
    return {
        "last_updated": summary.last_updated,
        "status": status,
        "phase_status": [_phase_row(phase, summary) for phase in summary.phases],
        "current_phase": current or None,
        "current_name": names.get(current),
        "current_status": summary.statuses.get(current),
        "can_resume": status not in ("completed", "rejected"),
        "total_duration": sum_known(value.duration for value in summary.checkpoints.values()),
        "total_tokens": _spent_tokens(summary.spent, rows),
        "total_cost": _spent_cost(summary.spent, rows),
    }


def _spent_tokens(spent: UsageTotal, rows: list[LedgerRow]) -> int | None:
    """Return all tokens spent; None if no agent reports any."""
    is_told = spent.tokens or any(row_tokens(row) is not None for row in rows)
    return spent.tokens if is_told else None


def _spent_cost(spent: UsageTotal, rows: list[LedgerRow]) -> float | None:
    """Return all that was spent, as far as known; agents that tell a cost and were not paid for cost nothing."""
    if spent.calls:
        return spent.known_cost
    return 0.0 if any(row.cost is not None for row in rows) else None


def _phase_row(phase: Phase, summary: Summary) -> Derived:
    value = summary.checkpoints.get(phase.number)
    duration = None if value is None else value.duration
    return {
        "phase": phase.number,
        "name": phase.name,
        "status": summary.statuses[phase.number],
        "started": None if value is None else value.started,
        "completed": None if value is None else value.completed,
        "duration": None if duration is None else round(duration),
    }


def derived_checkpoint(value: PhaseCheckpoint, phases: tuple[Phase, ...]) -> Derived:
    """Return the derived fields of a checkpoint: names, inputs, outputs, sums and the next phase."""
    phase = next(phase for phase in phases if phase.number == value.phase)
    following = next_phase(phases, phase.number)
    rows = value.ledger
    return {
        "phase_name": phase.name,
        "agents": {row.agent_name: row.status for row in rows},
        "inputs": [f"Phase {need.number}: {need.name}" for need in phases if need.number in phase.needs],
        "outputs": [row.output_file for row in rows if row.output_file is not None],
        "total_tokens": sum_known(row_tokens(row) for row in rows),
        "input_tokens": sum_known(row.input_tokens for row in rows),
        "output_tokens": sum_known(row.output_tokens for row in rows),
        "cost": sum_known(row.cost for row in rows),
        "next_phase": following.number if following else None,
        "next_name": following.name if following else None,
    }


def derived_output(phase: Phase, agent_name: str) -> Derived:
    """Return the derived fields of an agent output: its phase, and its agent's name as a title."""
    return {"phase": f"{phase.number} - {phase.name}", "agent_title": humanize(agent_name)}


def derived_feedback(phase: Phase) -> Derived:
    """Return the derived field of feedback: the name of its phase."""
    return {"phase_name": phase.name}


PhaseOutcome = Mapping[str, Any]


def skipped_phases(view: SessionView) -> dict[int, str]:
    """Return the phases of the mode that are skipped, and why, by number."""
    reasons: dict[int, str] = {}
    outcomes = outcomes_outside(view)
    for phase in view.phases:
        reason = skip_reason(view, phase, outcomes)
        if reason is not None:
            reasons[phase.number] = reason
        if has_conditions(view):
            outcomes[phase.slug] = phase_outcome(view, phase, reason)
    return reasons


def has_conditions(view: SessionView) -> bool:
    """Return whether a phase of the mode has a condition."""
    return any(phase.when is not None for phase in view.phases)


def outcomes_outside(view: SessionView) -> dict[str, PhaseOutcome]:
    """Return the outcomes of the phases that are not in the mode, by slug."""
    return {phase.slug: _SKIPPED for phase in view.workflow.phases if phase not in view.phases}


def skip_reason(view: SessionView, phase: Phase, outcomes: Mapping[str, PhaseOutcome]) -> str | None:
    """Return why a phase is skipped, by the outcomes of the phases before it; None if it is not."""
    checkpoint, review = view.checkpoint(phase), view.review(phase)
    asked = review is not None and review.decision == "skip" and view.is_current(phase)
    if asked or (checkpoint is not None and checkpoint.value.status == "skipped"):
        return "it was skipped"
    if phase.when is not None and not _holds(view, phase, outcomes):
        return f"its condition is not met: {phase.when}"
    return None


def phase_outcome(view: SessionView, phase: Phase, reason: str | None) -> PhaseOutcome:
    """Return the outcome of a phase, as conditions see it; `reason` is why it is skipped."""
    if reason is not None:
        return _SKIPPED
    checkpoint, review = view.checkpoint(phase), view.review(phase)
    status = "pending" if checkpoint is None else checkpoint.value.status
    unasked = phase.review == "none" and review is None and status == "completed"
    decided = review is not None and review.decision == "approved" and not review.outdated
    return {"status": status, "approved": unasked or (decided and view.is_current(phase))}


def _holds(view: SessionView, phase: Phase, outcomes: Mapping[str, PhaseOutcome]) -> bool:
    """Return whether a phase's condition holds, over the outcomes of the phases before it."""
    from haytham.sandbox import TemplateFault, holds  # noqa: PLC0415 - only where a workflow has conditions

    try:
        return holds(phase.when or "", {"phases": {slug: dict(outcome) for slug, outcome in outcomes.items()}})
    except TemplateFault as fault:
        message = f"phase {phase.number}: when: {short_repr(phase.when)}: {fault}"
        raise InvalidDocument([Problem(message, phase.when_line, file=view.workflow.file)]) from None
