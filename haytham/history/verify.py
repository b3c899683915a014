"""Verifying a history: records and blobs are as they were written, and each snapshot restores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.errors import HaythamError, InvalidDocument, Problem
from haytham.history.catalog import SnapshotCatalog, recorded_sessions
from haytham.session.swap import replace_tree, snapshot_paths
from haytham.storage import MemoryStore
from haytham.storage.base import bytes_digest

if TYPE_CHECKING:
    from haytham.history.catalog import HistoryStore, RecordRef
    from haytham.history.snapshot import SnapshotManifest


def verify(archive: HistoryStore, refs: list[RecordRef] | None = None) -> list[Problem]:
    """Return all problems of a session's snapshots, or of some of them."""
    with archive.lock():
        checked = archive.records.refs() if refs is None else refs
        ids = _known_ids(archive)
        problems = [problem for ref in checked for problem in _verify_record(archive, ref, ids)]
    return list(dict.fromkeys(problems))


def _verify_record(archive: HistoryStore, ref: RecordRef, ids: set[str]) -> list[Problem]:
    try:
        record = archive.records.read(ref)
        contents, damaged = _read_blobs(archive, record)
        unrestored = [] if damaged else _verify_restore(archive, record, contents, ref)
        return [*_verify_parent(record, ref, ids), *damaged, *unrestored]
    except InvalidDocument as error:
        return list(error.problems)
    except (HaythamError, OSError) as error:
        return [Problem(str(error), file=ref.key)]


def _known_ids(archive: HistoryStore) -> set[str]:
    """Return the ids of all snapshots of the project, those removed on purpose included."""
    project, ids = archive.session.project_id, set()
    for session_id in recorded_sessions(archive.store, project):
        records = SnapshotCatalog(archive.store, project, session_id)
        ids |= records.removed() | {ref.id for ref in records.refs()}
    return ids


def _verify_parent(record: SnapshotManifest, ref: RecordRef, ids: set[str]) -> list[Problem]:
    """Return a problem if the parent is missing, and was not removed by any command."""
    parent = record.snapshot.parent
    is_known = parent is None or parent in ids
    return [] if is_known else [Problem(f"comes of snapshot {parent}, which is lost", file=ref.key)]


def _read_blobs(archive: HistoryStore, record: SnapshotManifest) -> tuple[dict[str, bytes], list[Problem]]:
    """Return the documents of a snapshot, and the problems of those that are missing or damaged."""
    contents: dict[str, bytes] = {}
    problems: list[Problem] = []
    for entry in record.files:
        try:
            contents[entry.path] = archive.blobs.read(entry)
        except InvalidDocument as error:
            problems += error.problems
    return contents, problems


def _verify_restore(
    archive: HistoryStore, record: SnapshotManifest, contents: dict[str, bytes], ref: RecordRef
) -> list[Problem]:
    """Return a problem if a restore into a store in memory does not bring back the documents."""
    scratch, prefix = MemoryStore(), archive.session.prefix
    replace_tree(scratch, prefix, contents.items(), record.folders, before={})
    restored = {path: bytes_digest(scratch.read(prefix + path)) for path in snapshot_paths(scratch, prefix)}
    return [] if restored == record.digests else [Problem("does not restore to what it says", file=ref.key)]
