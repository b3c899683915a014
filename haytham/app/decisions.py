"""Decisions on phases: chosen, checked against what the reviewer saw, stored with event and snapshot in one call."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from haytham.app.results import (
    ContractFault,
    DecisionResult,
    EditorDecisions,
    InputResult,
    review_guard,
)
from haytham.app.review import contract_faults
from haytham.engine.autosnapshot import AutoSnapshotter
from haytham.errors import (
    HaythamError,
    InvalidArgument,
    InvalidRequest,
    NoPhaseToRun,
    NotFound,
    NothingToDecide,
    PhaseRunning,
    ReviewChanged,
    WriteConflict,
)
from haytham.memory.session_memory import NO_MEMORY
from haytham.session.derived import asked_agents, derived_output
from haytham.session.milestones import report_completed, report_stale
from haytham.session.models import AgentOutput
from haytham.session.paths import output_file, session_lock
from haytham.session.plan import SessionPlan
from haytham.session.review import ReviewGate, save_request
from haytham.text import text_digest
from haytham.validation import require_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from haytham.app.results import ReviewGuard
    from haytham.config.workflow import Phase
    from haytham.history.history import History
    from haytham.memory.session_memory import SessionMemory
    from haytham.session.derived import Decision
    from haytham.session.plan import PhasePlan
    from haytham.session.review import BoundDecision
    from haytham.session.session import SessionDocuments
    from haytham.session.view import SessionView

_RUNS = ("run", "run again", "next attempt")
_RUNS_OR_WAITS = ("run", "write", "run again", "next attempt")


@dataclass(frozen=True)
class Answer:
    """What a person says of a phase: the decision, their words, and whom they ask for changes."""

    decision: Decision
    comment: str = ""
    changes: Sequence[str] = ()
    agents: Sequence[str] = ()
    anyway: bool = False


def decide(  # noqa: PLR0913 - a decision, who made it, and what they saw
    documents: SessionDocuments,
    history: History,
    answer: Answer,
    *,
    phase: int | None,
    by: str,
    guard: ReviewGuard | None = None,
    memory: SessionMemory = NO_MEMORY,
) -> DecisionResult:
    """Store a decision on a phase, its event, the snapshot if the policy asks for one, and a note of what was said.

    Without `phase`, on the first that waits. ReviewChanged if the phase is not what `guard` says; PhaseRunning while
    it runs. Decisions typed into files are bound first.
    """
    changes = [change for change in answer.changes if change.strip()]
    if answer.decision == "changes" and not changes and not answer.comment.strip():
        raise InvalidRequest("say what is to change: -m COMMENTS or --change TEXT")
    gate, snapshotter = ReviewGate(documents), AutoSnapshotter(history)
    _ = documents.read().settings  # a fault in them is told before anything changes
    if guard is None:
        _take_notes(history, memory, gate.bind_editor_decisions(by))
    plan = SessionPlan(documents.read())
    typed = [entry.number for entry in plan.phases if entry.may_bind(by)]
    number = _choose(plan, phase, answer.decision)
    if guard is not None and guard.phase != number:
        raise InvalidArgument("guard", f"of phase {guard.phase}", f"the guard of phase {number}")

    def check(view: SessionView, chosen: Phase) -> None:
        if guard is not None:
            _check_guard(view, guard)
        _check_idle(documents, view, chosen)
        now = _choose(SessionPlan(view), phase, answer.decision)  # again, since somebody else may have decided
        if now != number:
            raise ReviewChanged(number, ["the phase that waits"])

    bound = gate.decide(
        number,
        answer.decision,
        by=by,
        comments=answer.comment,
        changes=changes,
        agents=answer.agents,
        anyway=answer.anyway,
        guard=check,
    )
    if guard is not None:
        snapshotter.backfill_approvals()  # of decisions that were typed into files
    _take_notes(history, memory, [bound])
    memory.learn(typed)
    _report_milestones(documents)
    view = documents.read()
    faults = contract_faults(view, view.phase(number)) if answer.decision == "approved" else ()
    return _result(view, bound, faults)


def comment(documents: SessionDocuments, phase: int, text: str) -> None:
    """Store a comment on a phase that waits for review; it goes with the decision. DecidedPhase if there is one."""
    if not require_text("comment", text).strip():
        raise InvalidArgument("comment", text, "words")
    ReviewGate(documents).add_comment(phase, text)


def undo(documents: SessionDocuments, *, by: str, memory: SessionMemory = NO_MEMORY) -> DecisionResult:
    """Withdraw the last decision of a person, with the note of it; their words stay in the feedback.

    NothingToUndo if they made none, or if agents have worked on it since. AlreadyRunning while the session runs.
    """
    with documents.store.run_lock(session_lock(documents.project_id, documents.session_id)):
        withdrawn = ReviewGate(documents).withdraw(by)
    memory.forget(withdrawn.phase)
    return _result(documents.read(), withdrawn)


def _choose(plan: SessionPlan, phase: int | None, decision: Decision) -> int:
    """Return the number of the phase to decide on; RefusedDecision if it has nothing to decide on."""
    entry = _first_open(plan, decision) if phase is None else _named(plan, phase, decision)
    return entry.state.phase.number


def bind_editor_decisions(
    documents: SessionDocuments, history: History, by: str, *, memory: SessionMemory = NO_MEMORY
) -> EditorDecisions:
    """Bind decisions typed into feedback files to the texts, each with its event, snapshot and note."""
    bound = ReviewGate(documents).bind_editor_decisions(by)
    _take_notes(history, memory, bound)
    if bound:
        _report_milestones(documents)
    view = documents.read()
    refused = tuple(entry.refused for entry in SessionPlan(view).phases if entry.refused is not None)
    return EditorDecisions(tuple(_result(view, decision) for decision in bound), refused)


def give_input(
    documents: SessionDocuments, history: History, text: str, *, by: str, memory: SessionMemory = NO_MEMORY
) -> InputResult:
    """Store a person's words for the next phase that will run; NoPhaseToRun if there is none."""
    with documents.store.run_lock(session_lock(documents.project_id, documents.session_id)):
        editor = bind_editor_decisions(documents, history, by, memory=memory)
        entry = next_to_run(SessionPlan(documents.read()))
        phase, starts = entry.state.phase, entry.next_action.action == "next attempt"
        if starts:
            AutoSnapshotter(history).before_rerun(phase, "input for the next attempt")
        save_request(documents, phase.number, text, by=by)
        AutoSnapshotter(history).after_save()
    return InputResult(phase.number, phase.name, entry.state.attempt + starts, editor)


def next_to_run(plan: SessionPlan) -> PhasePlan:
    """Return the first phase that will run: it is neither settled nor waits for review."""
    if any(entry.next_action.action == "rejected" for entry in plan.phases):
        raise NoPhaseToRun(rejected=True)
    entry = next((entry for entry in plan.phases if entry.next_action.action in _RUNS_OR_WAITS), None)
    if entry is None:
        raise NoPhaseToRun(rejected=False)
    return entry


def update_state(documents: SessionDocuments, history: History, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge changes into the values of the caller, and take the snapshot that is due; return all values."""
    state = documents.update_state(changes)
    AutoSnapshotter(history).after_save()
    return state


def save_output(  # noqa: PLR0913 - whose output, of which phase
    documents: SessionDocuments, history: History, number: int, agent: str, text: str, *, expect: str | None
) -> None:
    """Replace the text of an output as a person does in an editor, and emit that it was revised.

    WriteConflict if `expect` is given and is not the digest of the text that is there.
    """
    with documents.transaction() as changes:
        view = changes.view
        phase = view.require_phase(number)
        output, key = view.output(phase, agent), view.phase_prefix(phase) + output_file(agent)
        if output is None:
            raise NotFound(f"an output of agent {agent!r} in phase {number}", key)
        before, digest = text_digest(output.value.text), text_digest(require_text("output", text))
        if expect is not None and expect != before:
            raise WriteConflict(key, expect, before)
        value = replace(output.value, text=text)
        changes.write(AgentOutput, key, value, derived_values=derived_output(phase, agent), previous=output)
        if digest not in (before, output.value.agent_digest):
            changes.emit("revised", phase=number, agent=agent, text=digest)
    AutoSnapshotter(history).after_save()


def run_owner(documents: SessionDocuments) -> str | None:
    """Return who runs the session now; None if nobody does, or the store has no runners."""
    lock_owner = getattr(documents.store, "lock_owner", None)
    owner = None if lock_owner is None else lock_owner(session_lock(documents.project_id, documents.session_id))
    return None if owner is None else str(owner)


def _check_guard(view: SessionView, guard: ReviewGuard) -> None:
    changed = guard.changes(review_guard(view, guard.phase))
    if changed:
        raise ReviewChanged(guard.phase, changed)


def _check_idle(documents: SessionDocuments, view: SessionView, phase: Phase) -> None:
    """Raise PhaseRunning for a phase that somebody runs: the next of the plan, or one whose agents were asked."""
    owner = run_owner(documents)
    if owner is None:
        return
    plan = SessionPlan(view)
    is_next = plan.next is not None and plan.next.state.phase.number == phase.number
    if plan.phase(phase.number).next_action.action in _RUNS and (is_next or view.task_agents(phase)):
        raise PhaseRunning(phase.number, owner)


def _first_open(plan: SessionPlan, decision: Decision) -> PhasePlan:
    """Return the first phase that waits for a decision; to skip, the first that is not settled."""
    entry = plan.next
    if entry is None:
        raise NothingToDecide("settled")
    if _has_all(entry) or (decision == "skip" and entry.next_action.action != "rejected"):
        return entry
    is_rejected = entry.next_action.action == "rejected"
    raise NothingToDecide("rejected" if is_rejected else "to_run", entry.state.phase.number)


def _named(plan: SessionPlan, number: int, decision: Decision) -> PhasePlan:
    """Return the phase with this number, which has something to decide on, unless it is to be skipped."""
    entry = plan.phase(plan.view.phase(number).number)
    if entry.next_action.action in ("run", "nothing") and decision != "skip" and not _has_all(entry):
        raise NothingToDecide("not_run", number, entry.next_action.reason or "it has not run to its end")
    return entry


def _has_all(entry: PhasePlan) -> bool:
    """Return whether a phase waits for a decision, or would once it is taken up: a failure was mended by hand."""
    return entry.next_action.action == "gate" or (entry.next_action.action == "run" and not entry.next_action.agents)


def _take_notes(history: History, memory: SessionMemory, decisions: Sequence[BoundDecision]) -> None:
    """Take the snapshots of decisions, and make notes of what was said."""
    snapshotter = AutoSnapshotter(history)
    for decision in decisions:
        snapshotter.after_decision(decision.phase, decision.decision)
        snapshotter.after_save()
    memory.learn(decision.phase for decision in decisions)


def _report_milestones(documents: SessionDocuments) -> None:
    """Emit what became stale, and that the session is completed, if a decision led to that."""
    with suppress(HaythamError, OSError):  # a file that cannot be read, which the next run reports
        plan = SessionPlan(documents.read())
        report_stale(documents.events, plan)
        report_completed(documents.events, plan)


def _result(view: SessionView, bound: BoundDecision, faults: tuple[ContractFault, ...] = ()) -> DecisionResult:
    phase = view.phase(bound.phase)
    return DecisionResult(
        phase=bound.phase,
        name=phase.name,
        decision=bound.decision,
        attempt=view.attempt(phase),
        by=bound.by,
        agents=bound.agents,
        asked=_asked(view, phase) if bound.decision == "changes" else (),
        added=bound.added,
        removed=bound.removed,
        faults=faults,
    )


def _asked(view: SessionView, phase: Phase) -> tuple[str, ...]:
    """Return the agents of a phase that its feedback asks for changes."""
    feedback = view.feedback(phase)
    return () if feedback is None else asked_agents(feedback.value, phase.agents)
