"""Pages that a person writes: laid out for them, or in place of a failure; pending or failed until they are written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.session import paths
from haytham.session.derived import derived_output, update_rows
from haytham.session.models import AgentOutput
from haytham.text import text_digest

if TYPE_CHECKING:
    from haytham.config.workflow import Phase
    from haytham.session.changes import Transaction
    from haytham.session.documents import StoredDocument
    from haytham.session.view import SessionView

UNWRITTEN: dict[str, Any] = {
    "status": "pending",
    "model": "human",
    "input_tokens": None,
    "output_tokens": None,
    "tools_used": None,
}
_UNFINISHED = ("failed", "in_progress")


def output_paths(view: SessionView, phase: Phase, agents: tuple[str, ...]) -> str:
    """Return the files that a person has to write, by their keys."""
    return ", ".join(view.phase_prefix(phase) + paths.output_file(agent) for agent in agents)


def accept_written(changes: Transaction, phase: Phase) -> bool:
    """Mark the pages of a phase that a person wrote as completed; return whether one is still to be written."""
    _complete_pages(changes, phase)
    return not all(map(is_revised, _pages(changes.view, phase).values()))


def complete_phase(changes: Transaction, phase: Phase) -> None:
    """Complete a phase that is decided on, if a person wrote what was missing: its pages, then its checkpoint.

    A phase that a program saved stays as it is.
    """
    view = changes.view
    if not _complete_pages(changes, phase) and not view.task_agents(phase):
        return
    outputs, record = view.outputs(phase), view.checkpoint(phase)
    done = [agent for agent in phase.agents if agent in outputs and outputs[agent].value.status == "completed"]
    if record is None or record.value.status not in _UNFINISHED or len(done) < len(phase.agents):
        return
    rows = record.value.ledger
    for agent in phase.agents:
        rows = update_rows(rows, outputs[agent].value, outputs[agent].value)
    now = clock.now()
    completed = replace(record.value, status="completed", saved_at=now, completed=now, ledger=rows, errors=None)
    changes.write_checkpoint(phase, completed)


def _complete_pages(changes: Transaction, phase: Phase) -> bool:
    """Mark what a person wrote as completed, without the error it replaces; return whether there was any."""
    written = _written(changes.view, phase)
    for agent, page in written.items():
        executed = clock.now() if page.value.status == "pending" else page.value.executed
        completed = replace(
            page.value, status="completed", executed=executed, error_type=None, error_message=None, stack_trace=None
        )
        changes.write(AgentOutput, page.key, completed, derived_values=derived_output(phase, agent), previous=page)
    return bool(written)


def remove_blank(changes: Transaction, phase: Phase) -> None:
    """Remove the pages that nobody has written on: their agents are asked again, by whatever model answers now."""
    for page in _pages(changes.view, phase).values():
        if not is_revised(page):
            changes.delete(page.key, expect=page.digest)


def _pages(view: SessionView, phase: Phase) -> dict[str, StoredDocument[AgentOutput]]:
    outputs = view.outputs(phase)
    own = {agent: outputs[agent] for agent in phase.agents if agent in outputs}
    return {
        agent: page for agent, page in own.items() if page.value.status == "pending" and page.value.task is not None
    }


def _written(view: SessionView, phase: Phase) -> dict[str, StoredDocument[AgentOutput]]:
    """Return the pages that a person wrote: those laid out for them, and those in place of a failure."""
    outputs = view.outputs(phase)
    failed = {agent: outputs[agent] for agent in phase.agents if agent in outputs}
    failed = {agent: page for agent, page in failed.items() if page.value.status == "failed"}
    return {agent: page for agent, page in (_pages(view, phase) | failed).items() if is_revised(page)}


def is_revised(output: StoredDocument[AgentOutput]) -> bool:
    """Return whether a person changed an output since its agent wrote it."""
    return output.value.agent_digest != text_digest(output.value.text)
