"""Documents that have lost their place, and are kept in a folder of their own: a person may want them back."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from haytham.errors import HaythamError, InvalidArgument
from haytham.session import paths
from haytham.storage.base import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from haytham.config.workflow import Phase
    from haytham.session.documents import DocumentRepository
    from haytham.session.session import Session
    from haytham.session.view import SessionView
    from haytham.storage.base import SessionStore


def orphaned_files(reading: SessionView, phases: tuple[Phase, ...], keys: list[str]) -> list[str]:
    """Documents of phases that a new workflow has not, or of agents that its phases have not."""
    owned = {paths.phase_folder(phase): phase for phase in phases}
    names = {(phase.number, phase.name, phase.slug) for phase in phases}
    kept = {paths.phase_folder(phase) for phase in reading.phases if (phase.number, phase.name, phase.slug) in names}
    found = []
    for name in (key.removeprefix(reading.prefix) for key in keys):
        folder, _, rest = name.partition("/")
        agents = paths.output_agents([rest]) if "/" not in rest else []
        lost = folder in owned and any(agent not in owned[folder].agents for agent in agents)
        if folder.startswith("phase_") and (folder not in kept or lost):
            found.append(name)
    return found


def quarantine(store: SessionStore, prefix: str, names: list[str]) -> list[str]:
    """Move documents to a folder that nothing was set aside in before; what is where. Call it holding the lock."""
    aside = paths.next_set_aside(store.keys(prefix + paths.SET_ASIDE))
    for name in names:
        store.write(f"{prefix}{aside}{name}", store.read(prefix + name), expect=ABSENT)
        store.delete(prefix + name)
    folders = {name.partition("/")[0] for name in names}
    return [f"set aside: {folder}, now in {aside}{folder}" for folder in sorted(folders)]


def quarantine_reply(session: Session, number: int, agent: str, text: str) -> str:
    """Keep an answer that could not be stored in its place; return its key.

    In the session; where that is gone, in its project or in the workspace.
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


def _home(session: Session) -> str:
    """The folder to keep something in: of the session, else of its project, else of the workspace."""
    folders = (session.prefix, f"{session.project_id}/")
    return next((folder for folder in folders if session.store.has_folder(folder)), "")


def _phase_folder(session: Session, number: int) -> str:
    try:
        return paths.phase_folder(session.read().phase(number))
    except (HaythamError, OSError):  # nothing says what the phase is called
        return f"phase_{number}"


def find_renamed(shelf: DocumentRepository, project_id: str, session_id: str) -> str | None:
    """Return the only session folder whose manifest has these ids, whatever its name; None if there is no such one."""
    found = [prefix for prefix in _session_prefixes(shelf.store) if _ids(shelf, prefix) == (project_id, session_id)]
    return found[0] if len(found) == 1 else None


def _session_prefixes(store: SessionStore) -> Iterator[str]:
    """The folders of all sessions of all projects; one whose name no key can have is passed over."""
    for project in store.folders():
        with suppress(InvalidArgument):
            yield from (paths.session_prefix(project, name) for name in store.folders(paths.sessions_prefix(project)))


def _ids(shelf: DocumentRepository, prefix: str) -> tuple[str, str] | None:
    """The ids of project and session that a manifest says; None where it cannot be read."""
    try:
        manifest = shelf.read("session_manifest", prefix + paths.MANIFEST).value
    except (HaythamError, OSError):
        return None
    return manifest["project_id"], manifest["session_id"]
