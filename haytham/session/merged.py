"""Pages of a phase merged with those of another session: written as a person's revision, and the gate opens.

Only the text of an output is merged; its header, the checkpoint, feedback and earlier attempts stay this session's own.
The text that was merged is the base of the next merge with that session: `merged/<session>/<agent>.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from haytham import clock
from haytham.session import paths
from haytham.session.derived import derived_output, execution_mode, row_from_output
from haytham.session.inputs import TaskInputs
from haytham.session.models import AgentOutput, MergeBase
from haytham.session.pages import complete_phase, is_revised
from haytham.session.review import open_gate
from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from haytham.config.workflow import Phase
    from haytham.session.changes import Transaction
    from haytham.session.documents import StoredDocument
    from haytham.session.view import SessionView


@dataclass(frozen=True)
class PageMerge:
    """An output after a merge: its text with marked conflicts, their number, and whether the text differs from now.

    `source` is the other session's output, `last` the record of the last merge of both sessions, in either direction.
    """

    phase: Phase
    agent: str
    text: str
    conflicts: int
    source: AgentOutput
    is_changed: bool
    last: MergeBase | None = None


def is_written(output: StoredDocument[AgentOutput] | None) -> bool:
    """Return whether there is an output that an agent completed or a person wrote."""
    return output is not None and (output.value.status == "completed" or is_revised(output))


def save_merge(changes: Transaction, session_id: str, pages: Sequence[PageMerge]) -> list[int]:
    """Write what was merged with a session, and open the gates of phases whose texts change; return those.

    A phase that lacks a page has no gate yet. Bases are written after the pages: if a crash comes between them, the
    same merge again changes nothing else.
    """
    changed = [page for page in pages if page.is_changed]
    missing = [page for page in changed if not is_written(changes.view.output(page.phase, page.agent))]
    for page in missing:
        _save_page(changes, page)
    taken_over = [page for page in pages if not page.is_changed and _is_taken_over(changes.view, page)]
    for phase in {page.phase.number: page.phase for page in (*missing, *taken_over)}.values():
        _complete(changes, phase)
    phases = {page.phase.number: page.phase for page in (*changed, *taken_over)}.values()
    opened = [phase.number for phase in phases if _open_gate(changes, phase, session_id)]
    for page in changed:  # after all gates, which present the texts before the merge: a conflict cannot be presented
        if page not in missing:
            _save_page(changes, page)
    for page in pages:
        _save_base(changes, session_id, page)
    return opened


def _is_taken_over(view: SessionView, page: PageMerge) -> bool:
    """Return whether a merge that was killed wrote a page that was missing, but did not complete its phase."""
    output, record = view.output(page.phase, page.agent), view.checkpoint(page.phase)
    is_completed = record is not None and record.value.status == "completed"
    return not is_completed and output is not None and output.value.agent_digest == text_digest("")


def _open_gate(changes: Transaction, phase: Phase, session_id: str) -> bool:
    """Open the gate of a phase that has run to its end; return whether it has."""
    record = changes.view.checkpoint(phase)
    if record is None or record.value.status != "completed" or not _has_all(changes.view, phase):
        return False
    open_gate(changes, phase, f"its text was merged with that of {session_id}")
    return True


def _save_page(changes: Transaction, page: PageMerge) -> None:
    view, phase = changes.view, page.phase
    output = view.output(phase, page.agent)
    value = _new_output(view, page) if output is None else replace(output.value, text=page.text)
    key = view.phase_prefix(phase) + paths.output_file(page.agent)
    derived_values = derived_output(phase, page.agent)
    changes.write(AgentOutput, key, value, derived_values=derived_values, previous=output)
    changes.emit("revised", phase=phase.number, agent=page.agent, text=text_digest(page.text))


def _new_output(view: SessionView, page: PageMerge) -> AgentOutput:
    """Return an output for a page that this session has not: no agent wrote it here, and nothing was spent on it."""
    return replace(
        page.source,
        attempt=view.attempt(page.phase),
        agent_digest=text_digest(""),
        task=TaskInputs(view).task(page.phase, page.agent).digest,
        status="completed",
        duration=None,
        input_tokens=None,
        output_tokens=None,
        error_type=None,
        error_message=None,
        stack_trace=None,
        text=page.text,
    )


def _complete(changes: Transaction, phase: Phase) -> None:
    """Complete a phase that has all of its pages now."""
    complete_phase(changes, phase)
    view = changes.view
    outputs, record = view.outputs(phase), view.checkpoint(phase)
    if not _has_all(view, phase) or (record is not None and record.value.status == "completed"):
        return
    facts = {
        "status": "completed",
        "started": None,
        "completed": clock.now(),
        "duration": None,
        "retry_count": view.attempt(phase) - 1,
        "execution_mode": execution_mode(phase),
    }
    rows = [row_from_output(outputs[agent].value) for agent in phase.agents]
    changes.save_checkpoint(phase, facts, rows, report=False)


def _has_all(view: SessionView, phase: Phase) -> bool:
    return all(is_written(view.output(phase, agent)) for agent in phase.agents)


def _save_base(changes: Transaction, session_id: str, page: PageMerge) -> None:
    """Record the other session's text."""
    view, phase, text = changes.view, page.phase, page.source.text
    before = view.merge_base(phase, page.agent, session_id)
    number = 1 if page.last is None else page.last.number + 1
    value = MergeBase(agent=page.agent, phase=phase.number, session=session_id, number=number, text=text)
    key = paths.merge_base_key(view.phase_prefix(phase), session_id, page.agent)
    title = {"agent_title": paths.humanize(page.agent)}
    changes.write(MergeBase, key, value, derived_values=title, previous=before)
