"""The review of a phase: its gate is opened for a person, and their decision is bound to the texts they saw.

Also requests for the next task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.errors import DecidedPhase, InvalidArgument, NothingToUndo, StaleNeeds, phase_list
from haytham.session import paths
from haytham.session.attempts import (
    archive,
    complete_moves,
    is_left_over,
    is_request_given,
    reopen,
    reviewed_rows,
    start_attempt,
    undecided_feedback,
    write_feedback,
)
from haytham.session.derived import ReviewDecision, parse_decision, reviewer_problem
from haytham.session.pages import complete_phase, is_revised, remove_blank
from haytham.session.paths import check_agents
from haytham.session.plan import SessionPlan, approval_problem
from haytham.session.state import change_state
from haytham.text import conflict_lines, diff_stat, unified_diff
from haytham.validation import require_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from haytham.agents.base import Task
    from haytham.config.workflow import Phase
    from haytham.errors import RefusedDecision
    from haytham.session.changes import Transaction
    from haytham.session.derived import Decision, Value
    from haytham.session.models import FeedbackAction, ReviewedRow, UserFeedback
    from haytham.session.session import SessionDocuments
    from haytham.session.view import SessionView

_ACTIONS: dict[Decision, FeedbackAction] = {
    "approved": "approved",
    "changes": "retry_with_changes",
    "skip": "skip_phase",
    "rejected": "rejected",
}
_DECISIONS: dict[str, Decision] = {action: decision for decision, action in _ACTIONS.items()}
_UNDECIDED = ReviewDecision(None, outdated=False)


@dataclass(frozen=True)
class BoundDecision:
    """A decision bound to the texts of a phase: who made it, whom it asks for changes, and lines edited by hand."""

    phase: int
    decision: Decision
    by: str | None = None
    agents: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0

    @property
    def facts(self) -> dict[str, Any]:
        """Return the decision as the facts of an event."""
        facts: dict[str, Any] = {"phase": self.phase, "decision": self.decision, "by": self.by}
        facts |= {"agents": list(self.agents)} if self.agents else {}
        return facts | ({"added": self.added, "removed": self.removed} if self.added or self.removed else {})


class ReviewGate:
    """The gates of a session's phases. Each method is one transaction."""

    def __init__(self, session: SessionDocuments) -> None:
        self._session = session

    def open_review(self, number: int, reason: str | None = None) -> None:
        """Present a phase to a person, with no decision yet; archive a review of another text first.

        With a reason, the event says that the gate was opened, and why.
        """
        with self._session.transaction() as changes:
            open_gate(changes, changes.view.require_phase(number), reason)

    def decide(  # noqa: PLR0913 - a decision, who made it, and what they said
        self,
        number: int,
        decision: Decision,
        *,
        by: str | None,
        comments: str = "",
        changes: list[str],
        agents: Sequence[str] = (),
        anyway: bool = False,
        guard: Callable[[SessionView, Phase], None] | None = None,
    ) -> BoundDecision:
        """Decide on a phase as its texts are now, and return the decision; an earlier one is archived.

        `agents` are those that changes are requested of; without any, all of the phase are. RefusedDecision if a
        rule refuses it; `anyway` waives that, and is recorded. `guard` is called before anything changes, and raises
        if the caller saw another state.
        """
        contents: dict[str, Any] = {"comments": comments, "changes": changes, "agents": agents}
        self._session.make_folders()
        with self._session.transaction() as transaction:
            complete_moves(transaction)
            phase = transaction.view.require_phase(number)
            if guard is not None:
                guard(transaction.view, phase)
            typed = {bound.phase: bound for bound in bind_typed(transaction, by)}
            bound = _decide(transaction, phase, decision, by, contents, anyway=anyway)
            if bound is None:
                bound = typed.get(number, BoundDecision(number, decision, by))
            transaction.emit("decision", **bound.facts)
        return bound

    def bind_editor_decisions(self, by: str | None) -> list[BoundDecision]:
        """Bind decisions that a person typed into feedback files to the present texts; return them."""
        view = self._session.read()
        if not any(_is_unbound(view, phase) for phase in view.phases):
            return []
        with self._session.transaction() as changes:
            return bind_typed(changes, by)

    def add_comment(self, number: int, text: str) -> None:
        """Add a comment to the feedback on a phase that nothing is decided on; it decides nothing."""
        with self._session.transaction() as changes:
            view = changes.view
            phase = view.require_phase(number)
            feedback = view.feedback(phase)
            if feedback is not None and (view.review(phase) != _UNDECIDED or not view.is_current(phase)):
                raise DecidedPhase(number)
            before = undecided_feedback(view, phase) if feedback is None else feedback.value
            write_feedback(changes, phase, replace(before, comments=_joined(before.comments, text)))

    def withdraw(self, by: str) -> BoundDecision:
        """Withdraw the last decision of a person, whose words stay; return it.

        NothingToUndo if they made none, or if an agent has worked on the ground of it since.
        """
        with self._session.transaction() as changes:
            phase, feedback = _last_decision(changes.view, by)
            built = _built_on(changes.view, phase, feedback)
            if built is not None:
                raise NothingToUndo(by, phase.number, built)
            open_again = replace(
                feedback,
                reviewed=False,
                approved=None,
                timestamp=None,
                action="pending",
                by=None,
                bound_decision=None,
                anyway=None,
                revised=None,
            )
            write_feedback(changes, phase, open_again)
            withdrawn = BoundDecision(phase.number, _DECISIONS[feedback.action], by)
            changes.emit("decision_withdrawn", phase=phase.number, decision=withdrawn.decision, by=by)
        return withdrawn

    def start_attempt(self, number: int) -> None:
        """Archive the present attempt, whole, and start the next one."""
        with self._session.transaction() as changes:
            phase = changes.view.require_phase(number)
            start_attempt(changes, phase)
            changes.emit("attempt_started", phase=number, attempt=changes.view.attempt(phase))

    def archive_copy(self, number: int) -> None:
        """Archive a copy of an attempt that was given a request, with it: another one is about to replace it."""
        with self._session.transaction() as changes:
            phase = changes.view.require_phase(number)
            if is_request_given(changes.view, phase):
                archive(changes, phase, move=False)

    def retry(self, number: int, by: str | None = None) -> None:
        """Make a phase run again: lift a skip; leave a failed one to its failed agents; else start a new attempt.

        Blank pages that wait for a person to write are removed.
        """
        self._session.make_folders()
        with self._session.transaction() as changes:
            complete_moves(changes)
            bind_typed(changes, by)
            phase = changes.view.require_phase(number)
            remove_blank(changes, phase)
            checkpoint, review = changes.view.checkpoint(phase), changes.view.review(phase)
            status = "pending" if checkpoint is None else checkpoint.value.status
            if status in ("skipped", "completed") or (review is not None and review.decision == "skip"):
                start_attempt(changes, phase)

    def save_reply(
        self,
        task: Task,
        facts: Value,
        text: str,
        state: Mapping[str, Any] | None = None,
        *,
        then: Callable[[Transaction], None] | None = None,
    ) -> bool:
        """Store a reply; return whether that was done: a text of a person is never overwritten.

        `then` adds to the same transaction what follows from the reply.
        """
        with self._session.transaction() as changes:
            view = changes.view
            phase = view.require_phase(task.phase)
            output = view.output(phase, task.agent)
            if output is not None and is_revised(output):
                return False
            if state:
                change_state(changes, state)
            if output is not None and output.value.status == "completed" and output.value.text != text:
                reopen(changes, phase, task.agent)
            changes.save_task(phase, task)
            changes.save_output(phase, task.agent, facts, text)
            if then is not None:
                then(changes)
        return True

    def complete_pending_move(self) -> None:
        """Finish an interrupted move: feedback that names an earlier attempt than the present one."""
        view = self._session.read()
        if any(is_left_over(view, phase) for phase in view.phases):
            with self._session.transaction() as changes:
                complete_moves(changes)


def open_gate(changes: Transaction, phase: Phase, reason: str | None = None) -> None:
    """Present a phase to a person, nothing decided yet; archive a review of another text first."""
    view = changes.view
    feedback = view.feedback(phase)
    if feedback is not None and view.is_current(phase) and view.review(phase) == _UNDECIDED:
        write_feedback(changes, phase, replace(feedback.value, reviewed_content=_moved_ground(view, phase)))
    else:
        if feedback is not None:
            archive(changes, phase, move=False)
        _present(changes, phase)
        write_feedback(changes, phase, undecided_feedback(view, phase))
    if reason is not None:
        changes.emit("review_opened", phase=phase.number, why=reason)


def save_request(session: SessionDocuments, number: int, text: str, *, by: str | None = None) -> None:
    """Store a request for the next task of a phase, word for word.

    If changes are requested, that is a task of the next attempt, which is started first: hold the run lock, as for a
    retry. Another request that an agent was given is archived with its attempt; one that nobody was given is replaced.
    Decisions made in an editor are bound before all that, in the name of `by`.
    """
    if not require_text("request", text).strip():
        raise InvalidArgument("request", text, "words that ask for something")
    if conflict_lines(text):
        raise InvalidArgument("request", text, "words without the markers of a git conflict")
    session.make_folders()
    with session.transaction() as changes:
        complete_moves(changes)
        bind_typed(changes, by)
        view = changes.view
        phase = view.require_phase(number)
        review = view.review(phase)
        if review is not None and review.decision == "changes" and view.is_current(phase):
            start_attempt(changes, phase)
            changes.emit("attempt_started", phase=number, attempt=view.attempt(phase))
        elif view.request(phase) not in ("", text) and is_request_given(view, phase):
            archive(changes, phase, move=False)
        changes.put(view.phase_prefix(phase) + paths.REQUEST, text.encode())


# Decisions.


def _decide(  # noqa: PLR0913 - a decision and what came with it
    changes: Transaction, phase: Phase, decision: Decision, by: str | None, contents: dict[str, Any], *, anyway: bool
) -> BoundDecision | None:
    """Bind a decision to the present texts; None if just this was decided already."""
    view = changes.view
    if (problem := reviewer_problem(phase, decision, by)) is not None:
        raise problem
    check_agents(phase, contents["agents"])
    _check_answerable(view, phase, decision)
    refused = approval_problem(SessionPlan(view).phase(phase.number).state, decision)
    if refused is not None and not anyway:
        raise refused
    if not any(contents.values()) and _stands(view, phase, decision):
        return None
    if _is_acted_on(view, phase):
        archive(changes, phase, move=False)
    feedback = view.feedback(phase)
    before = feedback.value if feedback is not None else undecided_feedback(view, phase)
    decided = replace(
        before,
        approved=decision == "approved",
        comments=_joined(before.comments, contents["comments"]),
        requested_changes=(*before.requested_changes, *contents["changes"]),
        agents=_asked(before, contents["agents"]),
        action=_ACTIONS[decision],
        anyway=_waived(refused),
    )
    return _bind(changes, phase, decided, by, rows=reviewed_rows(view, phase))


def bind_typed(changes: Transaction, by: str | None) -> list[BoundDecision]:
    """Bind the decisions that a person typed into feedback files, but for those that a rule refuses."""
    view = changes.view
    unbound = [phase for phase in view.phases if _is_unbound(view, phase)]
    if not unbound:
        return []
    refused = {entry.number for entry in SessionPlan(view).phases if entry.refused and not entry.may_bind(by)}
    bound = []
    for phase in (phase for phase in unbound if phase.number not in refused):
        feedback, review = view.feedback(phase), view.review(phase)
        if feedback is None or review is None or review.decision is None:
            continue
        action = _ACTIONS[review.decision]
        decided = replace(feedback.value, approved=review.decision == "approved", action=action)
        tasks = {row.document: row.task for row in feedback.value.reviewed_content}
        rows = [replace(row, task=tasks.get(row.document, row.task)) for row in reviewed_rows(view, phase)]
        decision = _bind(changes, phase, decided, by, rows=tuple(rows))
        changes.emit("decision", **decision.facts)
        bound.append(decision)
    return bound


def _bind(
    changes: Transaction, phase: Phase, decided: UserFeedback, by: str | None, *, rows: tuple[ReviewedRow, ...]
) -> BoundDecision:
    """Write feedback with its decision bound to the texts."""
    added, removed = _changed_by_hand(changes.view, phase)
    if decided.action in ("approved", "retry_with_changes"):
        complete_phase(changes, phase)
    asked = decided.agents or () if decided.action == "retry_with_changes" else ()
    decision = _DECISIONS[decided.action]
    bound = replace(
        decided,
        agents=asked or None,
        reviewed=True,
        timestamp=clock.now(),
        reviewed_content=rows,
        by=decided.by if by is None else by,
        bound_decision=decision,
        revised=f"+{added} -{removed}" if added or removed else None,
    )
    write_feedback(changes, phase, bound)
    if decided.action == "approved":
        _present(changes, phase)
    return BoundDecision(phase.number, decision, by, asked, added, removed)


def _present(changes: Transaction, phase: Phase) -> None:
    """Copy the outputs as they are presented or approved, to tell later what a person changed in them."""
    view = changes.view
    folder, before = view.phase_prefix(phase) + paths.PRESENTED, view.reviewed_copies(phase)
    for agent, document in view.outputs(phase).items():
        if agent not in before or before[agent].faults or before[agent].value != document.value:
            changes.put(folder + paths.output_file(agent), document.data)


# What a review looks at.


def _waived(refused: RefusedDecision | None) -> str | None:
    """Return the rule that an approval overrides, as it is recorded; None if no rule refused it."""
    return f"{phase_list(refused.needs)} stale" if isinstance(refused, StaleNeeds) else None


def _is_unbound(view: SessionView, phase: Phase) -> bool:
    """Return whether a person decided in an editor, and the decision is not bound to the texts yet."""
    feedback, review = view.feedback(phase), view.review(phase)
    if feedback is None or review is None or review.decision is None or not view.is_current(phase):
        return False
    return feedback.value.bound_decision != review.decision


def _is_acted_on(view: SessionView, phase: Phase) -> bool:
    """Return whether feedback holds a decision that later work may rely on, or of another attempt."""
    review = view.review(phase)
    return review is not None and (review.decision in ("approved", "skip", "rejected") or not view.is_current(phase))


def _stands(view: SessionView, phase: Phase, decision: Decision) -> bool:
    """Return whether the same decision was made already, on the same texts and tasks."""
    feedback, review = view.feedback(phase), view.review(phase)
    if feedback is None or review is None or not view.is_current(phase):
        return False
    return review.decision == decision and feedback.value.reviewed_content == reviewed_rows(view, phase)


def _check_answerable(view: SessionView, phase: Phase, decision: Decision) -> None:
    """Refuse to approve, or to want changed, what is not there."""
    outputs = view.outputs(phase)
    good = {name for name, output in outputs.items() if output.value.status == "completed" or is_revised(output)}
    missing = [name for name in phase.agents if name not in good]
    if missing and decision in ("approved", "changes"):
        raise InvalidArgument(
            "phase", phase.number, f"a phase that has run; {', '.join(missing)} has not: haytham resume"
        )


def _moved_ground(view: SessionView, phase: Phase) -> tuple[ReviewedRow, ...]:
    """Return the reviewed rows of an open gate, updated if tasks have changed since it was opened."""
    feedback, now = view.feedback(phase), reviewed_rows(view, phase)
    presented = {} if feedback is None else {row.document: row.digest for row in feedback.value.reviewed_content}
    return tuple(replace(row, digest=presented.get(row.document, row.digest)) for row in now)


def _asked(feedback: UserFeedback, agents: Sequence[str]) -> tuple[str, ...]:
    """Return who is asked for changes, with those whom feedback names already; empty means all."""
    before = feedback.agents or ()
    if parse_decision(feedback) == "changes" and not (before and agents):
        return ()
    return tuple(dict.fromkeys([*before, *agents]))


def _changed_by_hand(view: SessionView, phase: Phase) -> tuple[int, int]:
    """Count the lines that a person added and removed since a phase was presented; the agent's own words are none."""
    presented, added, removed = view.reviewed_copies(phase), 0, 0
    for agent, output in view.outputs(phase).items():
        if agent in presented and is_revised(output):
            plus, minus = diff_stat(unified_diff(presented[agent].value.text, output.value.text))
            added, removed = added + plus, removed + minus
    return added, removed


def _last_decision(view: SessionView, by: str) -> tuple[Phase, UserFeedback]:
    """Return the newest decision of a person that is bound to the present attempt of its phase."""
    documents = [(phase, view.feedback(phase)) for phase in view.phases if view.is_current(phase)]
    decided = [
        (phase, document.value)
        for phase, document in documents
        if document is not None and document.value.bound_decision is not None and document.value.by == by
    ]
    if not decided:
        raise NothingToUndo(by)
    return max(decided, key=lambda entry: (entry[1].timestamp or "", entry[0].number))


def _built_on(view: SessionView, phase: Phase, feedback: UserFeedback) -> int | None:
    """Return the first phase in which an agent has worked since a decision on a phase; None if there is none."""
    later = [entry.state.phase for entry in SessionPlan(view).dependents(phase.number)]
    since = feedback.timestamp or ""
    return next((other.number for other in later if any(time >= since for time in _worked(view, other))), None)


def _worked(view: SessionView, phase: Phase) -> Iterator[str]:
    """Yield when the agents of a phase answered."""
    yield from (output.value.executed for output in view.outputs(phase).values() if output.value.executed)


def _joined(before: str, added: str) -> str:
    return "\n\n".join(text for text in (before, added) if text.strip())
