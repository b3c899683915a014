"""Restoring a snapshot: reading its documents, and making them those of the session."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from haytham.session.paths import session_lock
from haytham.session.swap import replace_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from haytham.history.catalog import HistoryStore
    from haytham.history.snapshot import SnapshotManifest
    from haytham.session import SessionDocuments


log = logging.getLogger(__name__)


def read_files(archive: HistoryStore, record: SnapshotManifest) -> Iterator[tuple[str, bytes]]:
    """Yield the documents of a snapshot, each blob read once; InvalidDocument at the first that is damaged."""
    for entry in record.files:
        yield entry.path, archive.blobs.read(entry)


def verify_blobs(archive: HistoryStore, record: SnapshotManifest) -> None:
    """Raise InvalidDocument if a blob of a snapshot is missing or damaged."""
    for _ in read_files(archive, record):
        continue


def checkout(
    archive: HistoryStore, record: SnapshotManifest, contents: Mapping[str, bytes], *, before: SnapshotManifest
) -> None:
    """Make a snapshot's documents those of its session, all or none; documents changed since `before` are kept."""
    session = archive.session
    with session.store.lock(session_lock(session.project_id, session.session_id)):
        kept = replace_tree(session.store, session.prefix, contents.items(), record.folders, before=before.digests)
    for path in kept:
        log.warning("%s%s: was written while a restore was under way, and is kept there", session.prefix, path)


@contextmanager
def exclusive_run(session: SessionDocuments) -> Iterator[None]:
    """Keep runners away while the documents of a session are replaced; AlreadyRunning if one is at work."""
    with session.store.run_lock(session_lock(session.project_id, session.session_id)):
        yield
