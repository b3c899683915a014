"""The state of a session, as typed values: its phases by the plan of `resume`, what it spent, who runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.app.decisions import run_owner
from haytham.app.results import (
    UNREADABLE,
    AgentFailure,
    CostReport,
    Output,
    PhaseStatus,
    SessionStatus,
    Spending,
)
from haytham.app.review import contract_faults, redacted
from haytham.errors import AmbiguousOutput, HaythamError, InvalidArgument, InvalidDocument, NotFound
from haytham.session.pages import output_paths
from haytham.session.paths import output_file
from haytham.session.plan import SessionPlan
from haytham.session.summary import summarize_plan
from haytham.text import text_digest

if TYPE_CHECKING:
    from haytham.config.workflow import Phase
    from haytham.engine.result import RunResult
    from haytham.session.documents import StoredDocument
    from haytham.session.models import AgentOutput
    from haytham.session.plan import PhasePlan
    from haytham.session.session import SessionDocuments
    from haytham.session.view import SessionView


def session_status(documents: SessionDocuments) -> SessionStatus:
    """Return the state of a session; a file that cannot be read hides no other."""

    def compute(view: SessionView) -> SessionStatus:
        plan = SessionPlan(view)
        phases = tuple(_phase_status(plan, entry) for entry in plan.phases)
        state = summarize_plan(plan).status
        ids, spent = (documents.project_id, documents.session_id), spending(view)
        paused = spent.paused or (view.drift_pause() if state == "paused" else None)
        name = view.manifest.value.display_name
        return SessionStatus(*ids, state, run_owner(documents), phases, spent, paused=paused, name=name)

    try:
        return documents.read_consistently(compute)
    except HaythamError as error:
        return _unreadable_status(documents, error)


def output(documents: SessionDocuments, agent: str, phase: int | None) -> Output:
    """Return an agent's output; AmbiguousOutput if several phases have one and none is named."""
    matching = [output for output in outputs(documents, phase) if output.agent == agent]
    if not matching:
        where = "" if phase is None else f" in phase {phase}"
        name = f"{documents.project_id}/{documents.session_id}"
        raise NotFound(f"an output of agent {agent!r}{where}", f"{output_file(agent)} in session {name}")
    if len(matching) > 1:
        raise AmbiguousOutput(agent, [output.phase for output in matching])
    return matching[0]


def spending(view: SessionView) -> Spending:
    """Return what a session has spent and may spend."""
    return Spending(view.spending(), view.limits, view.budget_denial())


def cost_report(documents: SessionDocuments) -> CostReport:
    """Return what a session has spent, with what a report of it names."""
    view = documents.read()
    names = {phase.number: phase.name for phase in view.phases}
    forked_from = view.manifest.value.forked_from
    return CostReport(documents.project_id, documents.session_id, spending(view), names, forked_from)


def _phase_status(plan: SessionPlan, entry: PhasePlan) -> PhaseStatus:
    view, phase, action = plan.view, entry.state.phase, entry.next_action
    feedback = view.feedback(phase)
    value = feedback.value if feedback is not None and action.action in ("approved", "rejected") else None
    is_gate = action.action == "gate"
    return PhaseStatus(
        number=phase.number,
        name=phase.name,
        status=entry.state.status,
        reviewers=phase.reviewers,
        attempt=entry.state.attempt,
        action=action.action,
        reason=action.reason,
        cause=action.cause,
        agents=action.agents,
        all_agents=phase.agents,
        decision=view.decision(phase),
        has_feedback=feedback is not None,
        by=None if value is None else value.by,
        at=None if value is None else value.timestamp,
        revised=None if value is None else value.revised,
        anyway=None if value is None else value.anyway,
        stale=entry.stale,
        faults=contract_faults(view, phase) if is_gate else (),
        redacted=tuple(redacted(view, phase)) if is_gate else (),
        failed=tuple(agent for agent, output in entry.state.outputs.items() if output.status == "failed"),
        lost=entry.state.lost,
        open_needs=_open_needs(plan, entry),
        refused=entry.refused,
        output_keys=output_paths(view, phase, action.agents) if action.action == "write" else "",
    )


def _open_needs(plan: SessionPlan, entry: PhasePlan) -> tuple[int, ...]:
    """Return the phases that an approved phase builds on and that are not settled: it may become stale."""
    if entry.next_action.action != "approved":
        return ()
    numbers = [other.state.phase.number for other in plan.phases if not other.is_done]
    return tuple(need for need in entry.state.phase.needs if need in numbers)


def _unreadable_status(documents: SessionDocuments, error: HaythamError) -> SessionStatus:
    """Return what can be read of a session in which something cannot."""
    try:
        view = documents.read()
        phases = tuple(_readable_phase(view, phase) for phase in view.phases)
    except HaythamError:
        phases = _phase_folders(documents)
    problems = tuple(map(str, error.problems)) if isinstance(error, InvalidDocument) else (str(error),)
    ids = documents.project_id, documents.session_id
    return SessionStatus(*ids, UNREADABLE, None, phases, None, problems)


def _readable_phase(view: SessionView, phase: Phase) -> PhaseStatus:
    """Return a phase by its own documents alone."""
    try:
        checkpoint, feedback, review = view.checkpoint(phase), view.feedback(phase), view.review(phase)
        value = None if feedback is None else feedback.value
        view.texts(phase)
        return PhaseStatus(
            number=phase.number,
            name=phase.name,
            status="pending" if checkpoint is None else checkpoint.value.status,
            reviewers=phase.reviewers,
            decision=None if review is None else review.decision,
            has_feedback=feedback is not None and review is not None,
            by=None if value is None else value.by,
            at=None if value is None else value.timestamp,
            revised=None if value is None else value.revised,
            anyway=None if value is None else value.anyway,
        )
    except HaythamError:
        return PhaseStatus(phase.number, phase.name, UNREADABLE)


def _phase_folders(documents: SessionDocuments) -> tuple[PhaseStatus, ...]:
    """Return the folders of phases, if not even the manifest says which there are."""
    keys = documents.store.keys(documents.prefix, depth=2)
    names = {key.removeprefix(documents.prefix).split("/")[0] for key in keys if "/phase_" in key}
    numbers = {name: name.split("_")[1] for name in sorted(names)}
    return tuple(
        PhaseStatus(int(number) if number.isdecimal() else 0, name, "unknown") for name, number in numbers.items()
    )


# Outputs.


def outputs(documents: SessionDocuments, number: int | None) -> tuple[Output, ...]:
    """Return the outputs of the present attempts, of all phases or of one, from one moment."""

    def compute(view: SessionView) -> tuple[Output, ...]:
        phases = view.phases if number is None else (view.phase(number),)
        return tuple(
            _output(agent, document, view.attempt(phase))
            for phase in phases
            for agent, document in view.outputs(phase).items()
        )

    return documents.read_consistently(compute)


def texts(documents: SessionDocuments, number: int, *, attempt: int | None, tasks: bool) -> dict[str, str]:
    """Return what agents wrote in a phase, or were asked: in the present attempt or an earlier one."""
    view = documents.read()
    phase = view.phase(number)
    if attempt is not None and not 1 <= attempt <= view.attempt(phase):
        raise InvalidArgument("attempt", attempt, f"1 to {view.attempt(phase)}")
    return view.shown_texts(phase, attempt=attempt, tasks=tasks)


def failures(documents: SessionDocuments, result: RunResult) -> tuple[AgentFailure, ...]:
    """Return what agents said that failed in a run, by their own files."""
    if result.status != "failed" or result.phase is None:
        return ()
    view = documents.read()
    written = view.outputs(view.phase(result.phase))
    return tuple(_failure(name, written[name]) for name in result.agents if name in written)


def _failure(agent: str, output: StoredDocument[AgentOutput]) -> AgentFailure:
    message = str(output.value.error_message or "failed")
    return AgentFailure(agent, str(output.value.error_type), message, output.key)


def _output(agent: str, document: StoredDocument[AgentOutput], attempt: int) -> Output:
    value = document.value
    digest = text_digest(value.text)
    return Output(
        agent=agent,
        phase=value.phase_number,
        attempt=attempt,
        status=value.status,
        text=value.text,
        digest=digest,
        revised=digest != value.agent_digest,
        model=value.model,
        input_tokens=value.input_tokens,
        output_tokens=value.output_tokens,
        error_type=value.error_type,
        error_message=value.error_message,
    )
