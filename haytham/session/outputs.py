"""The pages that a person writes: laid out for them, or in place of a failure; pending or failed until then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham import clock
from haytham.session import derived, paths
from haytham.session.derived import derived_output
from haytham.text import text_digest

if TYPE_CHECKING:
    from haytham.config.workflow import Phase
    from haytham.session.derived import Value
    from haytham.session.documents import StoredDocument
    from haytham.session.session import Session
    from haytham.session.view import SessionView
    from haytham.storage.base import Store

UNWRITTEN: Value = {
    "status": "pending",
    "model": "human",
    "input_tokens": None,
    "output_tokens": None,
    "tools_used": None,
}

_ERROR_FIELDS = ("error_type", "error_message", "stack_trace")
_UNFINISHED = ("failed", "in_progress")


def output_paths(reading: SessionView, phase: Phase, agents: tuple[str, ...]) -> str:
    """The files that a person has to write, by their keys."""
    return ", ".join(reading.phase_prefix(phase) + paths.output_file(agent) for agent in agents)


def accept_written(session: Session, number: int) -> bool:
    """Take the pages of a phase that a person wrote on as completed, their texts as they are; whether one is left."""
    reading = session.read()
    phase = reading.require_phase(number)
    if _written(reading, phase):
        with session.transaction() as reading:
            _complete_pages(session, reading, phase)
    return not all(map(_is_written, _pages(reading, phase).values()))


def complete_phase(session: Session, reading: SessionView, phase: Phase) -> None:
    """Complete a phase that is decided on, if a person wrote what was missing: its pages, then its checkpoint.

    What a program saved of a phase is left as it is.
    """
    if not _complete_pages(session, reading, phase) and not reading.task_agents(phase):
        return
    outputs, record = reading.outputs(phase), reading.checkpoint(phase)
    done = [agent for agent in phase.agents if agent in outputs and outputs[agent].value["status"] == "completed"]
    if record is None or record.value["status"] not in _UNFINISHED or len(done) < len(phase.agents):
        return
    rows = record.value["ledger"]
    for agent in phase.agents:
        rows = derived.update_rows(rows, outputs[agent].value, outputs[agent].value)
    facts = {name: value for name, value in record.value.items() if name != "errors"}
    facts |= {"status": "completed", "saved_at": clock.now(), "completed": clock.now(), "ledger": rows}
    session.write_checkpoint(reading, phase, facts)


def _complete_pages(session: Session, reading: SessionView, phase: Phase) -> bool:
    """Take what a person wrote as completed, without the error it stands in place of; whether there was any."""
    written = _written(reading, phase)
    for agent, page in written.items():
        facts = {name: value for name, value in page.value.items() if name not in _ERROR_FIELDS}
        facts |= {"executed": clock.now()} if page.value["status"] == "pending" else {}
        shown = derived_output(phase, agent)
        session.write(reading, "agent_output", page.key, {**facts, "status": "completed"}, shown=shown, over=page)
    return bool(written)


def remove_blank(store: Store, reading: SessionView, phase: Phase) -> None:
    """Take back the pages that nobody has written on: their agents are asked again, by whatever model answers now."""
    for page in _pages(reading, phase).values():
        if not _is_written(page):
            store.delete(page.key)
            reading.evict(page.key)


def _pages(reading: SessionView, phase: Phase) -> dict[str, StoredDocument]:
    outputs = reading.outputs(phase)
    own = {agent: outputs[agent] for agent in phase.agents if agent in outputs}
    return {agent: page for agent, page in own.items() if page.value["status"] == "pending" and "task" in page.value}


def _written(reading: SessionView, phase: Phase) -> dict[str, StoredDocument]:
    """Return the pages that a person wrote: those laid out for them, and those in place of a failure."""
    outputs = reading.outputs(phase)
    failed = {agent: outputs[agent] for agent in phase.agents if agent in outputs}
    failed = {agent: page for agent, page in failed.items() if page.value["status"] == "failed"}
    return {agent: page for agent, page in (_pages(reading, phase) | failed).items() if _is_written(page)}


def _is_written(page: StoredDocument) -> bool:
    return bool(text_digest(page.value["text"]) != page.value["agent_digest"])
