"""The two sides of a comparison: a snapshot, or a session as it is; as the documents they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.compare import Side, compare
from haytham.errors import InvalidValue
from haytham.session import Session
from haytham.session.layout import sessions_prefix
from haytham.snapshot import freezing
from haytham.snapshot.content import read_content
from haytham.snapshot.finding import find_anywhere, spoken
from haytham.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from haytham.compare import Comparison
    from haytham.snapshot.archive import Archive

Which = str | int | Snapshot | Session


def differences(archive: Archive, old: Which, new: Which) -> Comparison:
    """What differs from one side to the other; unknown sides are an error."""
    return compare(side(archive, old), side(archive, new))


def side(archive: Archive, which: Which) -> Side:
    """A side as it is named: a session, by its whole id too, or a snapshot of any session of the project."""
    if isinstance(which, Session):
        return _present(archive, which)
    if isinstance(which, str) and which in archive.session.store.folders(sessions_prefix(archive.session.project_id)):
        return _present(archive, Session(archive.session.store, archive.session.project_id, which))
    where, name = find_anywhere(archive, spoken(which))
    record = where.records.read(name)
    return Side(dict(freezing.documents(where, record)), record.snapshot.status)


def _present(archive: Archive, session: Session) -> Side:
    if session.project_id != archive.session.project_id:
        raise InvalidValue("session", session.session_id, f"one of project {archive.session.project_id}")
    with archive.lock():
        content = read_content(session, ())
        status = str(freezing.circumstances(session, None)["status"])
    return Side({row.path: content.new[row.digest] for row in content.rows}, status)
