"""Labels in the manifest of a session: its display name, and whether it is archived."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham import clock
from haytham.errors import HaythamError, InvalidArgument
from haytham.history.lookup import require_line
from haytham.session.paths import MANIFEST, session_prefix

if TYPE_CHECKING:
    from haytham.app.session import Session
    from haytham.app.workspace import Workspace

_LONGEST = 100
_FIELD = b"\ndisplay_name:"


def set_name(session: Session, name: str | None) -> None:
    """Set or remove the display name of a session; InvalidArgument if it is the name or id of another one."""
    plain = require_line("name of a session", (name or "").strip() or None)
    if plain is not None:
        others = [pair for pair in session.workspace.folders() if pair != (session.project_id, session.session_id)]
        is_taken = plain in {pair[1] for pair in others} or bool(find_by_name(session.workspace, plain, others))
        if is_taken or len(plain) > _LONGEST:
            allowed = f"up to {_LONGEST} characters that no other session has as its name or id"
            raise InvalidArgument("name of a session", plain, allowed)
    with session.documents.transaction() as changes:
        changes.change_manifest({"display_name": plain})
        changes.emit("session_renamed", name=plain)


def archive(session: Session, *, undo: bool) -> None:
    """Archive a session, or bring it back with `undo`; do nothing if it is so already."""
    if (session.manifest.archived is None) == undo:
        return
    with session.documents.transaction() as changes:
        changes.change_manifest({"archived": None if undo else clock.now()})
        changes.emit("session_archived", archived=not undo)


def find_by_name(workspace: Workspace, name: str, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those of some sessions that have a display name; only manifests that have one at all are parsed."""
    return [pair for pair in pairs if _has_name(workspace, pair) and _name(workspace, pair) == name]


def _has_name(workspace: Workspace, pair: tuple[str, str]) -> bool:
    try:
        return _FIELD in workspace.store.read(session_prefix(*pair) + MANIFEST)
    except (HaythamError, OSError):
        return False


def _name(workspace: Workspace, pair: tuple[str, str]) -> str | None:
    try:
        return workspace.open(*pair).manifest.display_name
    except (HaythamError, OSError):
        return None
