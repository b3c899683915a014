"""Documents without an owner and replies that cannot be stored in place: kept in `set_aside/`, never deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.errors import HaythamError
from haytham.session import paths
from haytham.storage.base import ABSENT

if TYPE_CHECKING:
    from haytham.config.workflow import Phase
    from haytham.session.changes import Transaction
    from haytham.session.session import SessionDocuments
    from haytham.session.view import SessionView


def orphaned_files(view: SessionView, phases: tuple[Phase, ...], keys: list[str]) -> list[str]:
    """Return the documents of phases that a new workflow does not have, or of agents that its phases do not have."""
    owned = {paths.phase_folder(phase): phase for phase in phases}
    names = {(phase.number, phase.name, phase.slug) for phase in phases}
    shared = {paths.phase_folder(phase) for phase in view.phases if (phase.number, phase.name, phase.slug) in names}
    orphans = []
    for name in (key.removeprefix(view.prefix) for key in keys):
        folder, _, rest = name.partition("/")
        agents = paths.output_agents([rest]) if "/" not in rest else []
        is_lost = folder in owned and any(agent not in owned[folder].agents for agent in agents)
        if folder.startswith("phase_") and (folder not in shared or is_lost):
            orphans.append(name)
    return orphans


def quarantine(changes: Transaction, names: list[str]) -> list[str]:
    """Move documents to a new folder of `set_aside/`; return a line for each folder, with its new place."""
    prefix = changes.view.prefix
    aside = paths.next_set_aside(changes.store.keys(prefix + paths.SET_ASIDE))
    for name in names:
        changes.put(f"{prefix}{aside}{name}", changes.store.read(prefix + name), expect=ABSENT)
        changes.delete(prefix + name)
    folders = {name.partition("/")[0] for name in names}
    return [f"set aside: {folder}, now in {aside}{folder}" for folder in sorted(folders)]


def quarantine_reply(session: SessionDocuments, number: int, agent: str, text: str) -> str:
    """Store a reply that could not be stored in its place; return its key.

    It is stored in the session; if that was deleted, in its project or in the workspace.
    """
    store, home = session.store, _home(session)
    folder = _phase_folder(session, number)
    if home != session.prefix:
        folder = f"{session.session_id}/{folder}"
    with store.lock(paths.session_lock(session.project_id, session.session_id)):
        aside = paths.next_set_aside([f"/{key}" for key in store.keys(home + paths.SET_ASIDE)])
        key = f"{home}{aside}{folder}/{paths.output_file(agent)}"
        store.write(key, text.encode(), expect=ABSENT)
    return key


def _home(session: SessionDocuments) -> str:
    """Return the folder to store something in: of the session, else of its project, else of the workspace."""
    folders = (session.prefix, f"{session.project_id}/")
    return next((folder for folder in folders if session.store.has_folder(folder)), "")


def _phase_folder(session: SessionDocuments, number: int) -> str:
    try:
        return paths.phase_folder(session.read().phase(number))
    except (HaythamError, OSError):  # nothing says what the phase is called
        return f"phase_{number}"
