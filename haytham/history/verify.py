"""Whether a past can be relied on: records and bytes are as they were, and each snapshot restores for real."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.errors import HaythamError, InvalidDocument, Problem
from haytham.history import restore
from haytham.history.catalog import SnapshotCatalog, recorded_sessions
from haytham.session.swap import replace_tree, snapshot_paths
from haytham.storage import MemoryStore
from haytham.storage.base import bytes_digest

if TYPE_CHECKING:
    from haytham.history.catalog import HistoryStore, RecordRef
    from haytham.history.snapshot import SnapshotManifest


def verify(archive: HistoryStore, names: list[RecordRef] | None = None) -> list[Problem]:
    """All that is wrong with a session's snapshots, or with some of them; what is wrong with one hides no other."""
    with archive.lock():
        there = archive.records.refs()
        found: list[Problem] = []
        ids = _known_ids(archive)
        for name in there if names is None else names:
            found += _told(archive, name, ids)
    return list(dict.fromkeys(found))


def _told(archive: HistoryStore, name: RecordRef, ids: set[str]) -> list[Problem]:
    try:
        record = archive.records.read(name)
        damaged = _damaged(archive, record)
        return [*_orphaned(record, name, ids), *damaged, *([] if damaged else _not_restored(archive, record, name))]
    except InvalidDocument as error:
        return list(error.problems)
    except (HaythamError, OSError) as error:
        return [Problem(str(error), file=name.key)]


def _known_ids(archive: HistoryStore) -> set[str]:
    """The ids of all snapshots of the project that are there, or were removed on purpose."""
    project, found = archive.session.project_id, set()
    for session_id in recorded_sessions(archive.store, project):
        records = SnapshotCatalog(archive.store, project, session_id)
        found |= records.removed() | {name.id for name in records.refs()}
    return found


def _orphaned(record: SnapshotManifest, name: RecordRef, ids: set[str]) -> list[Problem]:
    """A parent that is not there, and was not removed by any command."""
    parent = record.snapshot.parent
    known = parent is None or parent in ids
    return [] if known else [Problem(f"comes of snapshot {parent}, which is lost", file=name.key)]


def _damaged(archive: HistoryStore, record: SnapshotManifest) -> list[Problem]:
    """Every document of it whose bytes are gone or damaged."""
    found: list[Problem] = []
    for row in record.files:
        try:
            archive.blobs.read(row)
        except InvalidDocument as error:
            found += error.problems
    return found


def _not_restored(archive: HistoryStore, record: SnapshotManifest, name: RecordRef) -> list[Problem]:
    """Whether a restore into a scratch store brings back just what was frozen."""
    scratch, prefix = MemoryStore(), archive.session.prefix
    replace_tree(scratch, prefix, restore.read_files(archive, record), record.folders, before={})
    back = {path: bytes_digest(scratch.read(prefix + path)) for path in snapshot_paths(scratch, prefix)}
    return [] if back == record.digests else [Problem("does not restore to what it says", file=name.key)]
