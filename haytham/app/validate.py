"""Validation of whatever a path names: a document, a session, a project, a workspace or a workflow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from haytham.app.workflows import check
from haytham.config.workflow import FILE, load_workflow
from haytham.errors import InvalidDocument, Problem
from haytham.session.paths import MANIFEST, PROJECT
from haytham.session.validate import ValidationReport, schema_for_path, validate_tree
from haytham.storage.files import FileStore

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """Return the workspace that a path lies in, by the folders around it; a link is where it stands."""
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
