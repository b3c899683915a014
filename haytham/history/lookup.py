"""Finding a snapshot by what a person says: its id, a unique part of it, or its number."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from haytham.errors import AmbiguousSnapshot, InvalidArgument, NotFound, short_repr
from haytham.history.catalog import recorded_sessions
from haytham.history.snapshot import Snapshot
from haytham.session import Session

if TYPE_CHECKING:
    from haytham.history.catalog import HistoryStore, RecordRef

_MOST_DIGITS = 5  # more of them may be a part of an id
_LONGEST = 18


def ref_text(which: str | int | Snapshot) -> str:
    """A snapshot as a person would name it."""
    if isinstance(which, Snapshot):
        return which.id
    return f"#{which}" if type(which) is int else which  # type: ignore[return-value] # what it is not is told below


def resolve(archive: HistoryStore, part: str) -> RecordRef:
    """The snapshot of a session that is meant; an error that says what there is, where none or several are."""
    matching = _matching(archive.records.refs(), part)
    if len(matching) == 1:
        return matching[0]
    if matching:
        by_number = matching == _numbered(archive.records.refs(), part)
        raise AmbiguousSnapshot(part, [name.id for name in matching], by_number=by_number)
    elsewhere = [other for other in _others(archive) if _matching(other.records.refs(), part)]
    if elsewhere:
        there = elsewhere[0].session.session_id
        raise InvalidArgument("snapshot", part, f"one of session {archive.session.session_id}; this is one of {there}")
    name = f"snapshot {short_repr(part)}"
    raise NotFound(name, f"record of it in session {archive.session.session_id}", "haytham checkpoints lists them")


def resolve_anywhere(archive: HistoryStore, part: str) -> tuple[HistoryStore, RecordRef]:
    """The snapshot that is meant, of the session itself or else of another one of the project."""
    if not _matching(archive.records.refs(), part):
        for other in _others(archive):
            if _matching(other.records.refs(), part):
                return other, resolve(other, part)
    return archive, resolve(archive, part)


def _matching(names: list[RecordRef], part: str) -> list[RecordRef]:
    """By number, which a few digits always are; by the whole id, else by a part of it."""
    if not isinstance(part, str) or not part.strip():
        raise InvalidArgument("snapshot", part, "its id, a part of it, or its number")
    found = _numbered(names, part)
    if found is not None and (found or part.startswith("#") or len(part) <= _MOST_DIGITS):
        return found
    return [name for name in names if name.id == part] or [name for name in names if part in name.id]


def _numbered(names: list[RecordRef], part: str) -> list[RecordRef] | None:
    """Return the snapshots with a number; None where what is given is no number."""
    number = part.removeprefix("#")
    if not number.isdecimal() or not number.isascii():
        return None
    return [name for name in names if name.number == int(number[:_LONGEST])]


def _others(archive: HistoryStore) -> list[HistoryStore]:
    """The pasts of the project's other sessions."""
    own = archive.session
    names = [name for name in recorded_sessions(archive.store, own.project_id) if name != own.session_id]
    found = []
    for name in names:
        with suppress(InvalidArgument):  # a folder that is no session's
            found.append(archive.for_session(Session(own.store, own.project_id, name)))
    return found
