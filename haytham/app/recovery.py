"""Going back and putting right: a session as it was in a snapshot, restored, or repaired after a loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haytham.app.results import RepairReport, RestoreResult, SettingChange
from haytham.errors import HaythamError, UnknownFact
from haytham.session import paths
from haytham.session.repair import infer_manifest, repair
from haytham.session.session import SessionDocuments
from haytham.session.swap import snapshot_paths
from haytham.storage.memory import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from haytham.app.history import SessionHistory
    from haytham.history.snapshot import Snapshot

_SETTINGS = ("model", "max_cost", "max_tokens", "record")
_TEMPORARY = ".haytham-*"


def documents_at(documents: SessionDocuments, history: SessionHistory, snapshot: Snapshot) -> SessionDocuments:
    """Return a session as it was in a snapshot, in memory."""
    memory, project_id = MemoryStore(), documents.project_id
    memory.write_all({documents.prefix + path: data for path, data in history.files(snapshot).items()})
    workflow = paths.workflow_prefix(project_id, snapshot.workflow) if snapshot.workflow else None
    shared = [] if workflow is None else documents.store.keys(workflow)
    for key in (*shared, paths.project_key(project_id)):
        if documents.store.is_regular(key):
            memory.write(key, documents.store.read(key))
    return SessionDocuments(memory, project_id, documents.session_id)


def restore(documents: SessionDocuments, history: SessionHistory, snapshot: Snapshot) -> RestoreResult:
    """Make a session what it was in a snapshot; return what that changed, and the snapshot that undoes it."""
    before = _settings(documents)
    recovery = history.restore(snapshot)
    after, old, new = _settings(documents), history.files(recovery), _present(documents)
    changes = [SettingChange(name, before.get(name), after[name]) for name in after]
    return RestoreResult(
        snapshot,
        recovery,
        changed=tuple(path for path in new if path in old and new[path] != old[path]),
        added=tuple(path for path in new if path not in old),
        removed=tuple(path for path in old if path not in new),
        settings=tuple(change for change in changes if change.before != change.after),
    )


def _settings(documents: SessionDocuments) -> dict[str, Any]:
    """Return what a person set for a session, as far as it can be read."""
    try:
        manifest = documents.read().manifest.value
    except (HaythamError, OSError):
        return {}
    return {name: getattr(manifest, name) for name in _SETTINGS}


def _present(documents: SessionDocuments) -> dict[str, bytes]:
    """Return the documents of a session as they are now, by path."""
    store, prefix = documents.store, documents.prefix
    return {path: store.read(prefix + path) for path in snapshot_paths(store, prefix)}


def repair_session(
    documents: SessionDocuments, folder: Path, *, user: str | None, mode: str | None, workflow: str | None
) -> RepairReport:
    """Rebuild what is derived, a lost manifest included; `folder` is the workspace.

    UnknownFact for what no file says and nobody gave.
    """
    before, facts = _temporary_files(documents, folder), None
    if not documents.exists():
        facts = infer_manifest(documents, user=user, mode=mode, workflow=workflow)
        missing = [name for name in ("user", "mode") if getattr(facts, name) is None]
        if missing:
            raise UnknownFact(missing[0], documents.session_id)
    done = repair(documents, facts)
    return RepairReport(tuple(done), before - _temporary_files(documents, folder))


def _temporary_files(documents: SessionDocuments, folder: Path) -> int:
    """Count temporary files that killed writers left in a session, beside it, and where all are written."""
    project = folder / documents.project_id
    inside = (folder / documents.prefix).rglob(_TEMPORARY)
    beside = [*project.glob(_TEMPORARY), *project.glob(f"workflows/**/{_TEMPORARY}")]
    return sum(1 for _ in inside) + len(beside) + sum(1 for _ in folder.glob(f".haytham/tmp/{_TEMPORARY}"))
