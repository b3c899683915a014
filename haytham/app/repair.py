"""Putting right: validate what a path names, show a session as it was in a snapshot, restore and repair it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haytham.app.results import RepairReport, RestoreResult, SettingChange
from haytham.app.workflows import check
from haytham.config.workflow import FILE, load_workflow
from haytham.errors import HaythamError, InvalidDocument, Problem, UnknownFact
from haytham.session import paths
from haytham.session.paths import MANIFEST, MEMORY, PROJECT
from haytham.session.repair import infer_manifest, repair
from haytham.session.session import SessionDocuments
from haytham.session.swap import snapshot_paths
from haytham.session.validate import ValidationReport, schema_for_path, validate_tree
from haytham.storage.files import FileStore
from haytham.storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

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


_SESSIONS = "sessions"


@dataclass(frozen=True)
class StoreLocation:
    """A workspace, and a prefix of keys in it: a folder's with a slash at its end, or a file's own key."""

    base: Path
    prefix: str


def validate_path(path: Path, readable: Callable[[Path, str], str]) -> ValidationReport:
    """Return all problems of what a path names; `readable` makes a path for people of a workspace and a key in it."""
    if path.name == FILE or (path / FILE).is_file():
        return validate_workflow(path)
    location = locate(path)
    if location.prefix and not location.prefix.endswith("/") and schema_for_path(location.prefix) is None:
        return ValidationReport(1, (Problem("is no document of haytham by its name and place", file=str(path)),))
    report = validate_tree(FileStore(location.base), location.prefix)
    problems = (replace(problem, file=readable(location.base, problem.file)) for problem in report.problems)
    return ValidationReport(report.documents, tuple(problems))


def validate_workflow(path: Path) -> ValidationReport:
    """Return all problems of a workflow."""
    source = load_workflow(str(path), Path())
    try:
        check(source)
    except InvalidDocument as error:
        return ValidationReport(len(source.files), tuple(error.problems))
    return ValidationReport(len(source.files), ())


def locate(path: Path) -> StoreLocation:
    """Return the workspace that a path lies in, by the folders around it; links are not followed."""
    absolute = path.absolute()
    whole = absolute.parent.resolve() / absolute.name if absolute.name not in ("", "..") else absolute.resolve()
    base = _base_of(whole)
    if base == whole or base.is_relative_to(whole):
        return StoreLocation(base, "")
    inner = whole.relative_to(base).as_posix()
    return StoreLocation(base, f"{inner}/" if whole.is_dir() else inner)


def _base_of(path: Path) -> Path:
    for folder in (path, *path.parents):
        if folder.name == _SESSIONS and _has_sessions(folder, path):
            return folder.parent.parent
    for folder in (path, path.parent, path.parent.parent):
        if (folder / PROJECT).is_file() or any((folder / _SESSIONS).glob(f"*/{MANIFEST}")):
            return folder.parent
    if path.parent.parent.name == MEMORY and path.is_file():
        return path.parent.parent.parent
    inner = path / "projects"
    if inner.is_dir():
        return inner
    return path if path.is_dir() else path.parent


def _has_sessions(folder: Path, path: Path) -> bool:
    """Return whether a folder called sessions is one of ours; a folder further up may have that name, too."""
    if path == folder or (folder.parent / PROJECT).is_file():
        return path != folder or folder.is_dir()
    session = folder / path.relative_to(folder).parts[0]
    return (session / MANIFEST).is_file() or any(session.glob("phase_*/"))
