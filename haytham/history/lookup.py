"""Finding snapshots: one by a part of its id, its number or as the latest; several by kind, status, user and time."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from haytham import clock
from haytham.config.policy import KINDS
from haytham.errors import AmbiguousSnapshot, InvalidArgument, NotFound, short_repr
from haytham.history.catalog import recorded_sessions
from haytham.history.retention import parse_duration
from haytham.history.schedule import parse_time
from haytham.history.snapshot import Snapshot
from haytham.session import SessionDocuments
from haytham.validation import require_text

if TYPE_CHECKING:
    from haytham.config.policy import SnapshotKind
    from haytham.history.catalog import HistoryStore, RecordRef

_MOST_DIGITS = 5  # more of them may be a part of an id
_LONGEST = 18
LATEST = "latest"  # no id contains it


# One.


def ref_text(which: str | int | Snapshot) -> str:
    """Return the text that names a snapshot."""
    if isinstance(which, Snapshot):
        return which.id
    return f"#{which}" if type(which) is int else which  # type: ignore[return-value] # other types are refused below


def resolve(archive: HistoryStore, part: str) -> RecordRef:
    """Return the record of a session that is named; raise if none or several are."""
    matching = _matching(archive, part)
    if len(matching) == 1:
        return matching[0]
    if matching:
        by_number = len({ref.number for ref in matching}) == 1 and _number(part) == matching[0].number
        raise AmbiguousSnapshot(part, [ref.id for ref in matching], by_number=by_number)
    others = [] if part == LATEST else other_histories(archive)
    owner = next((other.session.session_id for other in others if _matching(other, part)), None)
    if owner is not None:
        raise InvalidArgument("snapshot", part, f"one of session {archive.session.session_id}; this is one of {owner}")
    name = f"snapshot {short_repr(part)}"
    raise NotFound(name, f"record of it in session {archive.session.session_id}", "haytham checkpoints lists them")


def resolve_anywhere(archive: HistoryStore, part: str) -> tuple[HistoryStore, RecordRef]:
    """Return the record that is named, of the session itself or else of another one of the project."""
    if part != LATEST and not _matching(archive, part):
        for other in other_histories(archive):
            if _matching(other, part):
                return other, resolve(other, part)
    return archive, resolve(archive, part)


def _matching(archive: HistoryStore, part: str) -> list[RecordRef]:
    """Return the records that match: by number, which a few digits always are, by the whole id, or by a part of it."""
    if not isinstance(part, str) or not part.strip():
        raise InvalidArgument("snapshot", part, "its id, a part of it, its number, or latest")
    if part == LATEST:
        newest = archive.records.newest()
        return [] if newest is None else [newest]
    number = _number(part)
    if number is not None:
        refs = archive.records.numbered(number)
        if refs or part.startswith("#") or len(part) <= _MOST_DIGITS:
            return refs
    refs = archive.records.refs()
    return [ref for ref in refs if ref.id == part] or [ref for ref in refs if part in ref.id]


def _number(part: str) -> int | None:
    """Return the number that is given; None if it is no number."""
    number = part.removeprefix("#")
    return int(number[:_LONGEST]) if number.isdecimal() and number.isascii() else None


def other_histories(archive: HistoryStore) -> list[HistoryStore]:
    """Return the histories of the project's other sessions."""
    own = archive.session
    names = [name for name in recorded_sessions(archive.store, own.project_id) if name != own.session_id]
    others = []
    for name in names:
        with suppress(InvalidArgument):  # a folder that is no session's
            others.append(archive.for_session(SessionDocuments(own.store, own.project_id, name)))
    return others


# Several.


@dataclass(frozen=True)
class SnapshotQuery:
    """What snapshots must be like; None is any. `since` is the earliest time."""

    kind: str | None = None
    status: str | None = None
    user: str | None = None
    since: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse a kind that does not exist."""
        if self.kind is not None and self.kind not in KINDS:
            raise InvalidArgument("kind", self.kind, ", ".join(KINDS))

    def matches(self, snapshot: Snapshot) -> bool:
        """Return whether a snapshot is one of those."""
        facts = (self.kind, snapshot.kind), (self.status, snapshot.status), (self.user, snapshot.user)
        is_alike = all(asked in (None, actual) for asked, actual in facts)
        return is_alike and (self.since is None or parse_time(snapshot.time) >= self.since)


def parse_since(since: str | datetime | None) -> datetime | None:
    """Return a time that is given as a date, a time or an age (`30d`); without a zone it is in UTC."""
    if since is None or isinstance(since, datetime):
        return since if since is None or since.tzinfo is not None else since.replace(tzinfo=UTC)
    for read in (parse_time, _parse_age):
        with suppress(TypeError, ValueError, OverflowError):
            return read(since.strip() if isinstance(since, str) else since)
    raise InvalidArgument("since", since, "an age like 90m, 12h, 30d or 2w, or a time in UTC like 2024-11-24T10:00")


def _parse_age(age: str) -> datetime:
    return parse_time(clock.now()) - parse_duration(age)


# What callers give.


def paginate(snapshots: list[Snapshot], limit: int | None, offset: int) -> list[Snapshot]:
    """Return a part of a list."""
    for name, value in (("limit", limit), ("offset", offset)):
        if value is not None and (type(value) is not int or value < 0):
            raise InvalidArgument(name, value, "a whole number, 0 or more")
    return snapshots[offset:] if limit is None else snapshots[offset : offset + limit]


def check_kind(kind: object) -> None:
    """Raise InvalidArgument if there is no such kind of snapshot."""
    if kind not in KINDS:
        raise InvalidArgument("kind of snapshot", kind, ", ".join(KINDS))


def require_line(what: str, text: str | None) -> str | None:
    """Return one line of text, or None; InvalidArgument for anything else."""
    if text is not None and (not isinstance(text, str) or not text.strip() or not text.isprintable()):
        raise InvalidArgument(what, text, "one line of text")
    return text if text is None else require_text(what, text)


def parse_prune_args(older_than: str | timedelta | None, kind: SnapshotKind | None) -> timedelta | None:
    """Return the age as a duration, and check the kind."""
    if kind is not None:
        check_kind(kind)
    return older_than if older_than is None or isinstance(older_than, timedelta) else parse_duration(older_than)
