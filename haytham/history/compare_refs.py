"""The two sides of a comparison: a snapshot, or a session as it is; as the documents they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.errors import InvalidArgument
from haytham.history import restore
from haytham.history.compare import CompareSide, compare
from haytham.history.lookup import ref_text, resolve_anywhere
from haytham.history.snapshot import Snapshot
from haytham.history.tree import scan_tree
from haytham.session import Session
from haytham.session.paths import sessions_prefix

if TYPE_CHECKING:
    from haytham.history.catalog import HistoryStore
    from haytham.history.compare import Comparison

Which = str | int | Snapshot | Session


def compare_refs(archive: HistoryStore, old: Which, new: Which) -> Comparison:
    """What differs from one side to the other; unknown sides are an error."""
    return compare(resolve_side(archive, old), resolve_side(archive, new))


def resolve_side(archive: HistoryStore, which: Which) -> CompareSide:
    """A side as it is named: a session, by its whole id too, or a snapshot of any session of the project."""
    if isinstance(which, Session):
        return _present(archive, which)
    if isinstance(which, str) and which in archive.session.store.folders(sessions_prefix(archive.session.project_id)):
        return _present(archive, Session(archive.session.store, archive.session.project_id, which))
    where, name = resolve_anywhere(archive, ref_text(which))
    record = where.records.read(name)
    return CompareSide(dict(restore.read_files(where, record)), record.snapshot.status)


def _present(archive: HistoryStore, session: Session) -> CompareSide:
    if session.project_id != archive.session.project_id:
        raise InvalidArgument("session", session.session_id, f"one of project {archive.session.project_id}")
    with archive.lock():
        content = scan_tree(session, ())
        status = str(restore.session_status(session, None)["status"])
    return CompareSide({row.path: content.new[row.digest] for row in content.files}, status)
