"""The page laid out for a person: an output that is pending until they have written on it, and completed then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham import clock
from haytham.session import layout
from haytham.session.shown import shown_output
from haytham.text import text_digest

if TYPE_CHECKING:
    from haytham.session.reading import Reading
    from haytham.session.session import Session
    from haytham.session.shelf import Document
    from haytham.session.summary import Value
    from haytham.store.protocol import Store
    from haytham.workflow import Phase

UNWRITTEN: Value = {
    "status": "pending",
    "model": "human",
    "input_tokens": None,
    "output_tokens": None,
    "tools_used": None,
}


def files(reading: Reading, phase: Phase, agents: tuple[str, ...]) -> str:
    """The files that a person has to write, by their keys."""
    return ", ".join(reading.folder(phase) + layout.output_file(agent) for agent in agents)


def settle(session: Session, number: int) -> bool:
    """Take the pages of a phase that a person wrote on as completed, their texts as they are; whether one is left."""
    reading = session.read()
    found = _pages(reading, reading.there(number))
    if any(map(_is_written, found.values())):
        with session.saving() as reading:
            phase = reading.there(number)
            for agent, page in _pages(reading, phase).items():
                if _is_written(page):
                    value = {**page.value, "status": "completed", "executed": clock.now()}
                    shown = shown_output(phase, agent)
                    session.write(reading, "agent_output", page.key, value, shown=shown, over=page)
    return not all(map(_is_written, found.values()))


def withdraw(store: Store, reading: Reading, phase: Phase) -> None:
    """Take back the pages that nobody has written on: their agents are asked again, by whatever model answers now."""
    for page in _pages(reading, phase).values():
        if not _is_written(page):
            store.delete(page.key)
            reading.forget(page.key)


def _pages(reading: Reading, phase: Phase) -> dict[str, Document]:
    outputs = reading.outputs(phase)
    own = {agent: outputs[agent] for agent in phase.agents if agent in outputs}
    return {agent: page for agent, page in own.items() if page.value["status"] == "pending" and "task" in page.value}


def _is_written(page: Document) -> bool:
    return bool(text_digest(page.value["text"]) != page.value["wrote"])
