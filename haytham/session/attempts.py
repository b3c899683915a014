"""The attempts of a phase: the present one, and earlier ones in `attempts/<k>/`.

An attempt is one round up to a decision. What a person wrote or decided is never replaced in place: it moves to
`attempts/<k>/`, feedback last, so that feedback which names an earlier attempt is a move to be finished.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from haytham import clock
from haytham.session import paths
from haytham.session.derived import derived_feedback
from haytham.session.inputs import TaskInputs
from haytham.session.models import UserFeedback
from haytham.storage.base import bytes_digest
from haytham.text import text_digest

if TYPE_CHECKING:
    from haytham.config.workflow import Phase
    from haytham.session.changes import Transaction
    from haytham.session.models import ReviewedRow
    from haytham.session.view import SessionView


def reopen(changes: Transaction, phase: Phase, agent: str) -> None:
    """Archive the review of a phase, with a copy of what it was of: a text of it is about to change."""
    view = changes.view
    output, copies = view.output(phase, agent), view.archived_attempt(phase, view.attempt(phase) - 1).texts
    is_copied = output is not None and copies.get(agent) == output.value.text
    if view.feedback(phase) is not None or not is_copied:
        archive(changes, phase, move=False)


def complete_moves(changes: Transaction) -> None:
    """Finish moves to `attempts/` that a crash interrupted."""
    view = changes.view
    for phase in [phase for phase in view.phases if is_left_over(view, phase)]:
        feedback, review, checkpoint = view.feedback(phase), view.review(phase), view.checkpoint(phase)
        is_marked = checkpoint is not None and checkpoint.value.status == "requires_retry"
        move = is_marked or (review is not None and review.decision == "changes")
        if feedback is not None:
            archive(changes, phase, move=move, attempt=feedback.value.attempt)


def start_attempt(changes: Transaction, phase: Phase) -> None:
    """Move an attempt to `attempts/`, whole; outputs of agents that are not asked for changes stay for the next one.

    Feedback names the attempt, on disk, before anything moves: a crash in between shows.
    """
    view = changes.view
    if view.feedback(phase) is None:
        write_feedback(changes, phase, undecided_feedback(view, phase))
        changes.flush()
    checkpoint = view.checkpoint(phase)
    if checkpoint is not None:
        staying = _kept_outputs(view, phase)
        rows = tuple(row for row in checkpoint.value.ledger if row.agent_name in staying)
        marked = replace(checkpoint.value, saved_at=clock.now(), status="requires_retry", ledger=rows)
        changes.write_checkpoint(phase, marked)
    archive(changes, phase, move=True)


def archive(changes: Transaction, phase: Phase, *, move: bool, attempt: int | None = None) -> None:
    """Copy or move the tasks and outputs of an attempt to its own folder, and move the feedback, last.

    A request that nobody was given yet stays where it is, for the next task; tasks, which tell that, go after it.
    In a move, outputs of agents that are not asked for changes stay, with their tasks and what they were asked.
    What was merged from other sessions belongs to no attempt, and stays.
    """
    view = changes.view
    folder = view.phase_prefix(phase)
    aside = paths.attempt_prefix(folder, view.attempt(phase) if attempt is None else attempt)
    unmoved = {paths.CHECKPOINT} | (set() if is_request_given(view, phase) else {paths.REQUEST})
    others = (paths.ATTEMPTS, paths.MERGED)
    names = [name for name in view.phase_files(phase) if not name.startswith(others) and name not in unmoved]
    decided = {} if move else _as_decided(view, phase)
    outputs = [paths.output_file(agent) for agent in _kept_outputs(view, phase)] if move else []
    staying = {*outputs, *(paths.TASKS + name for name in outputs), *([paths.REQUEST] if outputs else [])}
    order = sorted(names, key=lambda name: (name == paths.FEEDBACK, name.startswith(paths.TASKS), name))
    contents = {name: changes.store.read(folder + name) for name in order}
    for name, data in contents.items():
        copy = decided.get(name) or data
        changes.put(aside + name, _superseded(copy) if move and name == paths.FEEDBACK else copy)
    for name, data in contents.items():
        if (move and name not in staying) or name == paths.FEEDBACK:
            changes.delete(folder + name, expect=bytes_digest(data))


def write_feedback(changes: Transaction, phase: Phase, feedback: UserFeedback) -> None:
    """Write the feedback on a phase over the present one."""
    key = changes.view.phase_prefix(phase) + paths.FEEDBACK
    previous = changes.view.feedback(phase)
    changes.write(UserFeedback, key, feedback, derived_values=derived_feedback(phase), previous=previous)


def is_left_over(view: SessionView, phase: Phase) -> bool:
    """Return whether the feedback on a phase names an earlier attempt: a move that a crash interrupted."""
    feedback = view.feedback(phase)
    return feedback is not None and feedback.value.attempt < view.attempt(phase)


def _kept_outputs(view: SessionView, phase: Phase) -> list[str]:
    """Return the agents whose outputs the next attempt begins with: those that are not asked for changes."""
    feedback, review = view.feedback(phase), view.review(phase)
    if feedback is None or review is None or review.decision != "changes" or not feedback.value.agents:
        return []
    return [agent for agent in view.outputs(phase) if agent not in feedback.value.agents]


def is_request_given(view: SessionView, phase: Phase) -> bool:
    """Return whether some agent was given the present request."""
    request = view.request(phase)
    given = (view.task_parts(phase, agent).get("input") for agent in phase.agents if request)
    return not request or text_digest(request) in given


def reviewed_rows(view: SessionView, phase: Phase) -> tuple[ReviewedRow, ...]:
    """Return each output with the digests of its text and of the task it would get now."""
    due = {paths.output_file(agent): digest for agent, digest in TaskInputs(view).current_digests(phase).items()}
    return tuple(replace(row, task=due.get(row.document, row.task)) for row in view.reviewed_content(phase))


def _as_decided(view: SessionView, phase: Phase) -> dict[str, bytes]:
    """Return the outputs that a person changed after they decided, as they were decided on, by file."""
    feedback, review = view.feedback(phase), view.review(phase)
    if feedback is None or review is None or review.decision is None:
        return {}
    rows = {row.document: row.digest for row in feedback.value.reviewed_content}
    now = {paths.output_file(agent): text_digest(text) for agent, text in view.texts(phase).items()}
    copies = {paths.output_file(agent): document for agent, document in view.reviewed_copies(phase).items()}
    changed = [name for name in copies if name in rows and now.get(name) != rows[name]]
    return {name: copies[name].data for name in changed if text_digest(copies[name].value.text) == rows[name]}


def _superseded(feedback: bytes) -> bytes:
    """Note in a feedback file that the next attempt starts from this one; all other bytes stay a person's own."""
    return feedback.replace(b"\nphase_number:", b"\nsuperseded: true\nphase_number:", 1)


def undecided_feedback(view: SessionView, phase: Phase) -> UserFeedback:
    """Return the feedback that an open gate waits with: nothing decided, and what it presents."""
    return UserFeedback(
        phase_number=phase.number,
        attempt=view.attempt(phase),
        reviewed=False,
        approved=None,
        timestamp=None,
        comments="",
        requested_changes=(),
        reviewed_content=reviewed_rows(view, phase),
        action="pending",
        retry_count=view.attempt(phase) - 1,
        agents=() if len(phase.agents) > 1 else None,
    )
