"""Rebuilding what is derived: a manifest from folders, project and events; shown copies from their homes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from haytham.errors import HaythamError, InvalidValue
from haytham.session import layout
from haytham.session.layout import phase_folder, session_lock
from haytham.workflow import FILE, WorkflowFiles

if TYPE_CHECKING:
    from haytham.session.session import Session
    from haytham.store.protocol import SharedStore

STARTED = "session_started"


def mend(session: Session, *, user: str | None, mode: str | None) -> list[str]:
    """Mend a session, as far as its files allow; what was done."""
    with session.store.run_lock(session_lock(session.project_id, session.session_id)):
        done = []
        if not session.exists():
            facts = _lost_facts(session, user=user, mode=mode)
            source = facts.pop("source")
            session.create(source=source, rebuild=True, **facts)
            done.append(f"rebuilt {layout.MANIFEST} for user {facts['user_id']} in mode {facts['mode']}")
        return done + session.redraw()


def _lost_facts(session: Session, *, user: str | None, mode: str | None) -> dict[str, Any]:
    """What a lost manifest was the home of: from the event of its start, else from project and folders, else asked."""
    store = session.store
    told = _started(store, session.prefix + layout.EVENTS)
    source = _workflow_copy(store, session.project_id, told.get("workflow"))
    user = user or told.get("user") or _project_user(store, session.project_id)
    mode = mode or told.get("mode") or _mode_of_folders(session, source)
    for what, value, option in (("user", user, "--user"), ("mode", mode, "--mode")):
        if not value:
            raise InvalidValue(f"the {what} of session {session.session_id}", None, f"say it with {option}")
    return {"source": source, "user_id": user, "mode": mode, "model": told.get("model")}


def _started(store: SharedStore, key: str) -> dict[str, Any]:
    try:
        lines = store.read(key).split(b"\n")
    except FileNotFoundError:
        return {}
    for line in lines:
        try:
            event = json.loads(line or b"{}")
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == STARTED:
            return event
    return {}


def _workflow_copy(store: SharedStore, project_id: str, digest: str | None) -> WorkflowFiles:
    prefix = f"{project_id}/workflows/"
    folders: dict[str, dict[str, bytes]] = {}
    for key in store.keys(prefix):
        folder, _, name = key.removeprefix(prefix).partition("/")
        folders.setdefault(folder, {})[name] = store.read(key)
    copies = [WorkflowFiles(prefix + folder, files) for folder, files in folders.items() if FILE in files]
    matching = [copy for copy in copies if digest in (None, copy.digest)]
    if len(matching) != 1:
        raise InvalidValue(
            f"the workflow copies of project {project_id}", [copy.origin for copy in copies], "one that fits"
        )
    copy = matching[0]
    return WorkflowFiles(copy.workflow.name, copy.files)


def _project_user(store: SharedStore, project_id: str) -> str | None:
    from haytham.session.shelf import Shelf  # noqa: PLC0415 - only where a manifest is lost

    try:
        return str(Shelf(store).read("project", layout.project_key(project_id)).value["user_id"])
    except HaythamError:
        return None


def _mode_of_folders(session: Session, source: WorkflowFiles) -> str | None:
    """The mode whose phases are the folders that are there."""
    for name in source.workflow.modes:
        phases = source.workflow.mode_phases(name)
        held = [
            phase for phase in source.workflow.phases if session.store.holds(f"{session.prefix}{phase_folder(phase)}/")
        ]
        if tuple(held) == phases:
            return name
    return None
