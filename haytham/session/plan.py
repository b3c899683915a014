"""Decide what resume does with each phase; docs/architecture.md has the table.

An output is the agent's own text while it matches the digest in its header; else a person revised it. It is stale if
the task it would get now is neither the one it answered nor one that an approval accepted for that text, or if a phase
that its phase needs is stale. The first row of the table that applies decides.

A phase without recorded tasks was saved by a program: its status counts as saved, its outputs are never stale, and it
has a gate only if there is feedback.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from haytham.errors import InvalidDocument, NotReviewer, Problem, RefusedDecision, StaleNeeds
from haytham.session.derived import (
    ReviewDecision,
    asked_agents,
    has_conditions,
    outcomes_outside,
    phase_outcome,
    reviewer_problem,
    skip_reason,
)
from haytham.session.inputs import TaskInputs, no_notes
from haytham.session.plan_cache import PlanCache

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from haytham.agents.base import Task
    from haytham.config.agent_spec import AgentSpec
    from haytham.config.workflow import Phase
    from haytham.session.derived import Decision, PhaseOutcome
    from haytham.session.inputs import Recall
    from haytham.session.models import PhaseCheckpoint
    from haytham.session.view import OutputFacts, SessionView

Action = Literal["rejected", "nothing", "run", "write", "next attempt", "run again", "gate", "approved"]
Cause = Literal["skipped", "unwritten", "stale", "text_changed", "review", "no_review"]


@dataclass(frozen=True)
class OutputState:
    """An agent's output as far as progress asks: its digests, the task it would get now, and what is new in that."""

    status: str
    text: str
    agent_digest: str
    task: str | None
    current_task: str
    changed: tuple[str, ...] = ()

    @property
    def revised(self) -> bool:
        """Return whether a person changed the text since the agent wrote it."""
        return self.text != self.agent_digest


@dataclass(frozen=True)
class ReviewState:
    """A person's review as far as progress asks; `agents` are those that changes are requested of, if not all."""

    decision: Decision | None
    attempt: int
    texts: Mapping[str, str]
    tasks: Mapping[str, str | None]
    agents: tuple[str, ...] = ()
    is_bound: bool = True


@dataclass(frozen=True)
class PhaseState:
    """What the documents of a phase say.

    `skipped`: why the phase is skipped, or None. `stale_needs`: the phases it needs that are stale. `by_program`: a
    program saved it instead of the runner. `lost`: the agents whose outputs are on record and whose files are gone.
    """

    phase: Phase
    status: str
    attempt: int
    outputs: Mapping[str, OutputState]
    feedback: ReviewState | None
    skipped: str | None = None
    stale_needs: tuple[int, ...] = ()
    by_program: bool = False
    lost: tuple[str, ...] = ()

    @property
    def current_feedback(self) -> ReviewState | None:
        """Return the feedback on the present attempt."""
        return self.feedback if self.feedback is not None and self.feedback.attempt == self.attempt else None

    @cached_property
    def stale(self) -> tuple[str, ...]:
        """Return the agents whose outputs are stale."""
        has_stale_needs = bool(self.stale_needs)
        return tuple(
            agent
            for agent, output in self.outputs.items()
            if output.task is not None and (has_stale_needs or _is_outdated(agent, output, self.current_feedback))
        )


@dataclass(frozen=True)
class NextAction:
    """What resume does with a phase, for which agents, and why."""

    action: Action
    agents: tuple[str, ...] = ()
    reason: str = ""
    cause: Cause | None = None


def next_action(facts: PhaseState) -> NextAction:
    """Return the first row of the table that applies to a phase."""
    feedback = facts.current_feedback
    decision = feedback.decision if feedback is not None else None
    if decision == "rejected":
        return NextAction("rejected")
    if facts.skipped is not None:
        return NextAction("nothing", reason=facts.skipped, cause="skipped")
    undone = tuple(agent for agent in _required(facts) if not _is_done(facts, agent))
    if undone or facts.status != "completed":
        return _judge_undone(facts, undone)
    if decision == "changes":
        asked = feedback.agents if feedback is not None else ()
        return NextAction("next attempt", asked or facts.phase.agents)
    return _judge_texts(facts, feedback)


def _required(facts: PhaseState) -> tuple[str, ...]:
    """Return the agents that must have an output: all, or those on record if a program saved the phase."""
    if facts.by_program and facts.status == "completed":
        return tuple(agent for agent in facts.phase.agents if agent in facts.lost)
    return facts.phase.agents


def _judge_undone(facts: PhaseState, undone: tuple[str, ...]) -> NextAction:
    """Return that agents without a completed output run, or wait if a person has to write first."""
    unwritten = tuple(agent for agent in undone if _is_unwritten(facts, agent))
    if unwritten and facts.phase.run == "sequential":
        ahead = undone[: undone.index(unwritten[0])]
    else:
        ahead = tuple(agent for agent in undone if agent not in unwritten)
    if unwritten and not ahead:
        return NextAction("write", unwritten, reason="a person has to write it", cause="unwritten")
    return NextAction("run", ahead)


def _judge_texts(facts: PhaseState, feedback: ReviewState | None) -> NextAction:
    stale = {agent: facts.outputs[agent] for agent in facts.stale}
    own = tuple(agent for agent in facts.phase.agents if agent in stale and not stale[agent].revised)
    if own:
        return NextAction("run again", own, reason=what_changed(facts, stale), cause="stale")
    if stale:
        reason = f"{what_changed(facts, stale)}, and a person has revised it"
        return NextAction("gate", tuple(stale), reason=reason, cause="stale")
    if feedback is not None and feedback.decision == "approved":
        texts = {agent: output.text for agent, output in facts.outputs.items()}
        if feedback.texts == texts:
            return NextAction("approved")
        return NextAction("gate", reason="the text has changed since", cause="text_changed")
    if feedback is None and (facts.phase.review == "none" or facts.by_program):
        return NextAction("approved", reason="no review is asked for", cause="no_review")
    return NextAction("gate", reason="it waits for review", cause="review")


def what_changed(facts: PhaseState, stale: Mapping[str, OutputState]) -> str:
    """Return what changed in the tasks of stale outputs, each part once; else the needed phases that are stale."""
    parts = sorted({part for output in stale.values() for part in output.changed})
    parts = parts or [f"phase {number} is stale" for number in facts.stale_needs]
    return "what it builds on has changed" + (f" ({'; '.join(parts)})" if parts else "")


def _is_outdated(agent: str, output: OutputState, feedback: ReviewState | None) -> bool:
    """Return whether the task an output would get now is neither the one it answered nor an accepted one."""
    if output.task is None or output.current_task == output.task:
        return False
    accepted = (
        feedback is not None and feedback.decision == "approved" and feedback.tasks.get(agent) == output.current_task
    )
    return not (accepted and feedback is not None and feedback.texts.get(agent) == output.text)


def _is_done(facts: PhaseState, agent: str) -> bool:
    """Return whether an agent has an output that is completed, or that a person wrote, also in place of a failed one.

    What lies in the phase's folder is of the present attempt: an earlier one was moved away.
    """
    output = facts.outputs.get(agent)
    return output is not None and _is_good(output)


def _is_good(output: OutputState) -> bool:
    return output.status == "completed" or output.revised


def _is_unwritten(facts: PhaseState, agent: str) -> bool:
    """Return whether an output is a page that a person has yet to write on, for the task as it is now."""
    output = facts.outputs.get(agent)
    if output is None or output.status != "pending" or output.task is None:
        return False
    return agent not in facts.stale


_UNDECIDED = ReviewDecision(None, outdated=False)


@dataclass(frozen=True)
class PhasePlan:
    """One phase: its facts, the verdict on it, and the decision in its file that a rule refuses, if there is one."""

    state: PhaseState
    next_action: NextAction
    refused: RefusedDecision | None = None
    outcome: PhaseOutcome | None = None
    checkpoint: PhaseCheckpoint | None = None
    review: ReviewDecision | None = None
    times: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Return the number of the phase."""
        return self.state.phase.number

    def may_bind(self, by: str | None) -> bool:
        """Return whether a person typed a decision that can be bound to the texts in a user's name."""
        if isinstance(self.refused, NotReviewer):
            return self.state.phase.may_review(by)
        feedback = self.state.current_feedback
        return feedback is not None and feedback.decision is not None and not feedback.is_bound

    @property
    def status(self) -> str:
        """Return the status of the phase: as its checkpoint says, or skipped."""
        return self.state.status if self.state.skipped is None else "skipped"

    @property
    def stale(self) -> tuple[str, ...]:
        """Return the agents whose outputs are stale."""
        return self.state.stale

    @property
    def is_presented(self) -> bool:
        """Return whether an open gate waits already with the present texts, for the tasks as they are now."""
        feedback = self.state.current_feedback
        if feedback is None or feedback.decision is not None:
            return False
        tasks = {agent: output.current_task for agent, output in self.state.outputs.items() if output.task is not None}
        return all(feedback.tasks.get(agent) == task for agent, task in tasks.items())

    @property
    def is_done(self) -> bool:
        """Return whether resume has nothing to do here."""
        return self.next_action.action in ("approved", "nothing")


class SessionPlan:
    """All phases of a session's mode, in order, as its documents are now.

    With `previous`, only the phases in `numbers` are looked at; the entries of the others are taken over.
    """

    def __init__(
        self, view: SessionView, *, previous: SessionPlan | None = None, numbers: Collection[int] = ()
    ) -> None:
        self.view = view
        self.is_complete = previous is None
        self._skipped: dict[int, str] = {}
        self.inputs = TaskInputs(view, self._skipped)
        self._has_conditions = has_conditions(view)
        self._outcomes = outcomes_outside(view) if self._has_conditions else {}
        self.phases: list[PhasePlan] = []
        known = {}
        if previous is None:
            _check_folders(view)
            view.files.list_all([view.phase_prefix(phase) for phase in view.phases])
        else:
            self.inputs.take_over(previous.inputs)
            known = {entry.number: entry for entry in previous.phases if entry.number not in numbers}
        self._stale: set[int] = set()
        cache = PlanCache(view, self.inputs, self._skipped, self._stale)
        for phase in view.phases:
            self._add(known.get(phase.number) or cache.find_or_compute(phase, self._plan_phase))

    def _add(self, entry: PhasePlan) -> None:
        self.phases.append(entry)
        if entry.state.skipped is not None:
            self._skipped[entry.number] = entry.state.skipped
        if entry.stale:
            self._stale.add(entry.number)
        if entry.outcome is not None:
            self._outcomes[entry.state.phase.slug] = entry.outcome

    @property
    def next(self) -> PhasePlan | None:
        """Return the first phase that resume has something to do with."""
        return next((entry for entry in self.phases if not entry.is_done), None)

    def phase(self, number: int) -> PhasePlan:
        """Return a phase by its number."""
        return next(entry for entry in self.phases if entry.number == number)

    def needed(self, phase: Phase) -> list[PhasePlan]:
        """Return the phases that a phase needs, directly or through others."""
        numbers = set(phase.needs)
        for entry in reversed(self.phases):
            if entry.state.phase.number in numbers:
                numbers |= set(entry.state.phase.needs)
        return [entry for entry in self.phases if entry.state.phase.number in numbers]

    def changed_by_step(self) -> set[int]:
        """Return the phases whose entries the next step may change: its own, and finished ones that need it."""
        if self.next is None:
            return set()
        number = self.next.number
        return {number, *(entry.number for entry in self.dependents(number) if entry.state.outputs)}

    def dependents(self, number: int) -> list[PhasePlan]:
        """Return the phases that need a phase, directly or through others."""
        numbers, phases = {number}, []
        for entry in self.phases:
            if numbers.intersection(entry.state.phase.needs):
                numbers.add(entry.number)
                phases.append(entry)
        return phases

    def unfinished_needs(self, number: int) -> list[int]:
        """Return the phases with work left that a phase needs, directly or through others."""
        return [entry.state.phase.number for entry in self.needed(self.view.phase(number)) if not entry.is_done]

    def task(self, phase: Phase, agent: str) -> Task:
        """Return the task that an agent would get now."""
        return self.inputs.task(phase, agent)

    def build_request(
        self, phase: Phase, agent: str, state: Mapping[str, Any], recall: Recall = no_notes
    ) -> tuple[Task, AgentSpec]:
        """Return the exact task that an agent gets now, and its settings; `recall` finds notes for it."""
        return self.inputs.request(phase, agent, state, recall)

    def agent_file(self, agent: str) -> str:
        """Return the text of an agent's file."""
        return self.inputs.agent_files[agent]

    def _plan_phase(self, phase: Phase) -> PhasePlan:
        checkpoint = self.view.checkpoint(phase)
        status = "pending" if checkpoint is None else checkpoint.value.status
        why = skip_reason(self.view, phase, self._outcomes)
        if why is not None:
            self._skipped[phase.number] = why
        lost = () if why is not None else self.view.lost_outputs(phase)
        facts = PhaseState(
            phase,
            "requires_retry" if status == "completed" and set(lost) & set(phase.agents) else status,
            self.view.attempt(phase),
            {} if why is not None else self._outputs(phase),
            self._feedback(phase),
            skipped=why,
            stale_needs=tuple(sorted(self._stale & set(phase.needs))),
            by_program=not self.view.task_agents(phase),
            lost=lost,
        )
        refused = self._refused(facts)
        if refused is not None and facts.feedback is not None:
            facts = replace(facts, feedback=replace(facts.feedback, decision=None))
        outcome = phase_outcome(self.view, phase, why) if self._has_conditions else None
        return PhasePlan(
            facts,
            next_action(facts),
            refused,
            outcome,
            None if checkpoint is None else checkpoint.value,
            self.view.review(phase),
            self._times(phase, is_skipped=why is not None),
        )

    def _times(self, phase: Phase, *, is_skipped: bool) -> tuple[str, ...]:
        """Return when outputs of a phase were written and its review was given."""
        if is_skipped:
            return tuple(self.view.phase_times(phase))
        feedback = self.view.feedback(phase)
        reviewed = None if feedback is None else feedback.value.timestamp
        written = [facts.executed for facts in self.view.output_facts(phase).values()]
        return (*([] if reviewed is None else [reviewed]), *written)

    def _refused(self, facts: PhaseState) -> RefusedDecision | None:
        """Return why a decision that is not bound yet does not count."""
        document, feedback = self.view.feedback(facts.phase), facts.current_feedback
        if document is None or feedback is None or document.value.bound_decision == feedback.decision:
            return None
        return approval_problem(facts, feedback.decision) or reviewer_problem(facts.phase, feedback.decision)

    def _outputs(self, phase: Phase) -> dict[str, OutputState]:
        return {agent: self._output(phase, agent, facts) for agent, facts in self.view.output_facts(phase).items()}

    def _output(self, phase: Phase, agent: str, facts: OutputFacts) -> OutputState:
        known = OutputState(facts.status, facts.text, facts.agent_digest, facts.task, facts.task or "")
        if facts.task is None or agent not in phase.agents:
            return known
        due = self.task(phase, agent)
        return replace(known, current_task=due.digest, changed=self._changed(phase, due, facts.task))

    def _changed(self, phase: Phase, due: Task, task: str) -> tuple[str, ...]:
        """Return the parts of a task that have changed since it was answered."""
        if due.digest == task:
            return ()
        before = self.view.task_parts(phase, due.agent)
        changed = (name for name in {**before, **due.parts} if before.get(name) != due.parts.get(name))
        return tuple(map(due.part_title, changed))

    def _feedback(self, phase: Phase) -> ReviewState | None:
        document, review = self.view.feedback(phase), self.view.review(phase)
        if document is None or review is None:
            return None
        rows = document.value.reviewed_content
        names = [row.document.removesuffix(".md") for row in rows]
        return ReviewState(
            decision=review.decision,
            attempt=document.value.attempt,
            texts=dict(zip(names, (row.digest for row in rows), strict=True)),
            tasks=dict(zip(names, (row.task for row in rows), strict=True)),
            agents=asked_agents(document.value, phase.agents),
            is_bound=document.value.bound_decision == review.decision,
        )


def approval_problem(facts: PhaseState, decision: Decision | None) -> RefusedDecision | None:
    """Return the rule that refuses a decision on a phase, or None."""
    if decision == "approved" and facts.stale_needs and any(output.task for output in facts.outputs.values()):
        return StaleNeeds(facts.phase.number, facts.stale_needs)
    return None


def _check_folders(view: SessionView) -> None:
    """Raise InvalidDocument if there is a folder of a phase that the mode does not have."""
    unknown = view.unknown_phase_folders()
    if unknown:
        message = "is a folder of no phase; rename it back, or move it out of the session"
        raise InvalidDocument([Problem(message, file=view.prefix + folder) for folder in unknown])
