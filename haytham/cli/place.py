"""Which projects folder a path lies in, and where in it; a path may be a file, a session, or a folder further up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from haytham.session.paths import MANIFEST, PROJECT

if TYPE_CHECKING:
    from pathlib import Path

_SESSIONS = "sessions"


@dataclass(frozen=True)
class StoreLocation:
    """A projects folder, and a prefix of keys in it: a folder's with a slash at its end, or a file's own key."""

    base: Path
    prefix: str


def locate(path: Path) -> StoreLocation:
    """Where a path lies, by the folders around it: a link is where it stands, not where it leads."""
    here = path.absolute()
    whole = here.parent.resolve() / here.name if here.name not in ("", "..") else here.resolve()
    base = _base_of(whole)
    if base == whole or base.is_relative_to(whole):
        return StoreLocation(base, "")
    inner = whole.relative_to(base).as_posix()
    return StoreLocation(base, f"{inner}/" if whole.is_dir() else inner)


def _base_of(path: Path) -> Path:
    for folder in (path, *path.parents):
        if folder.name == _SESSIONS and _holds_sessions(folder, path):
            return folder.parent.parent
    for folder in (path, path.parent, path.parent.parent):
        if (folder / PROJECT).is_file() or any((folder / _SESSIONS).glob(f"*/{MANIFEST}")):
            return folder.parent
    inner = path / "projects"
    if inner.is_dir():
        return inner
    return path if path.is_dir() else path.parent


def _holds_sessions(folder: Path, path: Path) -> bool:
    """Whether a folder called sessions is one of ours; a folder further up may have that name, too."""
    if path == folder or (folder.parent / PROJECT).is_file():
        return path != folder or folder.is_dir()
    session = folder / path.relative_to(folder).parts[0]
    return (session / MANIFEST).is_file() or any(session.glob("phase_*/"))
