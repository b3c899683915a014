"""Rebuilding what is derived: a manifest from folders, project and events; shown copies from their homes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haytham.config.workflow import FILE, WorkflowFiles
from haytham.errors import HaythamError, InvalidArgument
from haytham.session import paths
from haytham.session.models import Project
from haytham.session.paths import phase_folder, session_lock

if TYPE_CHECKING:
    from haytham.session.session import SessionDocuments
    from haytham.storage.base import SessionStore

STARTED = "session_started"
FORKED = "snapshot_forked"


@dataclass(frozen=True)
class InferredManifest:
    """The facts of a lost manifest, as far as other files have them; None for what no file says."""

    session_id: str
    source: WorkflowFiles
    user: str | None
    mode: str | None
    model: str | None = None
    created: str | None = None
    identity: str | None = None
    lineage: dict[str, Any] = field(default_factory=dict)


def infer_manifest(
    session: SessionDocuments, *, user: str | None, mode: str | None, workflow: str | None = None
) -> InferredManifest:
    """Return the facts of a lost manifest: as given, else from its first event, else from project and folders."""
    store = session.store
    start_event = _started(store, session.prefix + paths.EVENTS)
    source = _workflow_copy(session, workflow, start_event)
    return InferredManifest(
        session_id=session.session_id,
        source=source,
        user=user or start_event.get("user") or _project_user(store, session.project_id),
        mode=mode or start_event.get("mode") or _mode_of_folders(session, source),
        model=start_event.get("model"),
        created=start_event.get("time"),
        identity=start_event.get("identity") if user is None else None,
        lineage=_lineage(start_event),
    )


def repair(session: SessionDocuments, facts: InferredManifest | None) -> list[str]:
    """Repair a session, with these facts if its manifest is lost; return what was done. Refused during a run."""
    with session.store.run_lock(session_lock(session.project_id, session.session_id)):
        done = _rebuild(session, facts) if facts is not None else []
        done += [f"made {folder}" for folder in session.make_folders()]
        done += session.regenerate_derived()
        _sweep(session)
        return done


def _rebuild(session: SessionDocuments, facts: InferredManifest) -> list[str]:
    if facts.user is None or facts.mode is None:
        raise InvalidArgument(f"user and mode of session {session.session_id}", (facts.user, facts.mode), "both, known")
    session.create(source=facts.source, user_id=facts.user, mode=facts.mode, model=facts.model, rebuild=True)
    inferred = {"created": facts.created, "identity": facts.identity}
    known = {name: value for name, value in inferred.items() if value is not None}
    if known or facts.lineage:
        session.update_manifest({**known, **facts.lineage})
    return [f"rebuilt {paths.MANIFEST} for user {facts.user} in mode {facts.mode}"]


def _sweep(session: SessionDocuments) -> None:
    """Sweep what killed writers left in every folder of the session, and in those it shares with its project."""
    store, project = session.store, session.project_id
    with store.lock(project):
        shared = store.keys(f"{project}/workflows/")
        for folder in {f"{project}/", *(key.rpartition("/")[0] + "/" for key in shared)}:
            store.ensure_folder(folder)
    with store.lock(session_lock(project, session.session_id)):
        for folder in {key.rpartition("/")[0] + "/" for key in store.keys(session.prefix)}:
            store.ensure_folder(folder)


def _lineage(start_event: dict[str, Any]) -> dict[str, Any]:
    """Return where a fork comes from, as the event of its start says."""
    if start_event.get("event") != FORKED:
        return {}
    return {
        "forked_from": start_event["session"],
        "fork_point": start_event.get("snapshot"),
        "purpose": start_event.get("purpose"),
    }


def _started(store: SessionStore, key: str) -> dict[str, Any]:
    """Return the facts of a session's first event; empty if none can be read."""
    try:
        lines = store.read(key).split(b"\n")
    except FileNotFoundError:
        return {}
    for line in lines:
        try:
            event = json.loads(line or b"{}")
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and event.get("event") in (STARTED, FORKED):
            return event
    return {}


def _workflow_copy(session: SessionDocuments, named: str | None, start_event: dict[str, Any]) -> WorkflowFiles:
    """Return the copy of a session's workflow: as given, by its first event, else the one that fits its folders."""
    copies = _copies(session.store, session.project_id)
    if named is not None:
        fitting = {name: copy for name, copy in copies.items() if name.startswith(named)}
    elif start_event.get("workflow"):
        fitting = {name: copy for name, copy in copies.items() if copy.digest == start_event["workflow"]}
    else:
        fitting = {name: copy for name, copy in copies.items() if len(copies) == 1 or _fits(session, copy)}
    if len(fitting) != 1:
        what = f"the workflow of session {session.session_id}"
        raise InvalidArgument(
            what, named or start_event.get("workflow"), f"one of {', '.join(copies) or 'none'}: --workflow NAME"
        )
    copy = next(iter(fitting.values()))
    return WorkflowFiles(start_event.get("origin") or copy.workflow.name, copy.files)


def _copies(store: SessionStore, project_id: str) -> dict[str, WorkflowFiles]:
    """Return the copies of workflows that a project holds, by the names of their folders."""
    prefix = f"{project_id}/workflows/"
    folders: dict[str, dict[str, bytes]] = {}
    for key in store.keys(prefix):
        folder, _, name = key.removeprefix(prefix).partition("/")
        folders.setdefault(folder, {})[name] = store.read(key)
    return {folder: WorkflowFiles(prefix + folder, files) for folder, files in folders.items() if FILE in files}


def _fits(session: SessionDocuments, copy: WorkflowFiles) -> bool:
    """Return whether a workflow has a phase for every phase folder."""
    names = {key.removeprefix(session.prefix).partition("/")[0] for key in session.store.keys(session.prefix)}
    owned = {phase_folder(phase) for phase in copy.workflow.phases}
    return all(name in owned for name in names if name.startswith("phase_"))


def _project_user(store: SessionStore, project_id: str) -> str | None:
    from haytham.session.documents import DocumentRepository  # noqa: PLC0415 - only where a manifest is lost

    try:
        return str(DocumentRepository(store).read(Project, paths.project_key(project_id)).value.user_id)
    except HaythamError:
        return None


def _mode_of_folders(session: SessionDocuments, source: WorkflowFiles) -> str | None:
    """Return the mode whose phases are the existing folders."""
    for name in source.workflow.modes:
        phases = source.workflow.mode_phases(name)
        held = [
            phase
            for phase in source.workflow.phases
            if session.store.has_folder(f"{session.prefix}{phase_folder(phase)}/")
        ]
        if tuple(held) == phases:
            return name
    return None
