"""Documents that have lost their place, and are kept in a folder of their own: a person may want them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.session import layout
from haytham.store.protocol import ABSENT

if TYPE_CHECKING:
    from haytham.session.reading import Reading
    from haytham.session.session import Session
    from haytham.store.protocol import SharedStore
    from haytham.workflow import Phase


def unowned(reading: Reading, phases: tuple[Phase, ...], keys: list[str]) -> list[str]:
    """Documents of phases that a new workflow has not, or of agents that its phases have not."""
    owned = {layout.phase_folder(phase): phase for phase in phases}
    names = {(phase.number, phase.name, phase.slug) for phase in phases}
    kept = {layout.phase_folder(phase) for phase in reading.phases if (phase.number, phase.name, phase.slug) in names}
    found = []
    for name in (key.removeprefix(reading.prefix) for key in keys):
        folder, _, rest = name.partition("/")
        agents = layout.output_agents([rest]) if "/" not in rest else []
        lost = folder in owned and any(agent not in owned[folder].agents for agent in agents)
        if folder.startswith("phase_") and (folder not in kept or lost):
            found.append(name)
    return found


def set_aside(store: SharedStore, prefix: str, names: list[str]) -> list[str]:
    """Move documents to a folder that nothing was set aside in before; what is where. Call it holding the lock."""
    aside = layout.next_set_aside(store.keys(prefix + layout.SET_ASIDE))
    for name in names:
        store.write(f"{prefix}{aside}{name}", store.read(prefix + name), expect=ABSENT)
        store.delete(prefix + name)
    folders = {name.partition("/")[0] for name in names}
    return [f"set aside: {folder}, now in {aside}{folder}" for folder in sorted(folders)]


def keep_reply(session: Session, number: int, agent: str, text: str) -> str:
    """Keep an answer that could not be stored in its place, as something of a person's lies there; where it is now."""
    reading = session.read()
    folder = layout.phase_folder(reading.phase(number))
    with session.store.lock(layout.session_lock(session.project_id, session.session_id)):
        aside = layout.next_set_aside(session.store.keys(session.prefix + layout.SET_ASIDE))
        path = f"{aside}{folder}/{layout.output_file(agent)}"
        session.store.write(session.prefix + path, text.encode(), expect=ABSENT)
    return path
