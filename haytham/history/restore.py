"""Freezing a session and putting a frozen one back: bytes in, bytes out, under the locks that each needs."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.errors import HaythamError
from haytham.history.snapshot import Snapshot, SnapshotManifest
from haytham.history.tree import scan_tree
from haytham.session.paths import session_lock
from haytham.session.plan import summarize
from haytham.session.swap import replace_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from haytham.config.policy import SnapshotKind
    from haytham.history.catalog import HistoryStore, RecordRef
    from haytham.history.tree import WorkingTree
    from haytham.session import Session


log = logging.getLogger(__name__)


_WAYS_BACK = frozenset({"recovery", "pre_operation"})  # what they hold is about to be replaced


@dataclass(frozen=True)
class PendingSnapshot:
    """A session as it is now: what it holds, its last record if readable, and a snapshot without a number."""

    newest: RecordRef | None
    last: SnapshotManifest | None
    content: WorkingTree
    snapshot: Snapshot

    @property
    def is_unchanged(self) -> bool:
        """Whether the last snapshot holds just this."""
        return (
            self.last is not None
            and self.last.files == self.content.files
            and self.last.folders == self.content.folders
        )

    def record(self) -> SnapshotManifest:
        """The present as a record that is not written."""
        return SnapshotManifest(self.snapshot, self.content.files, self.content.folders)


def scan(archive: HistoryStore, *, thorough: bool = False) -> PendingSnapshot:
    """Read a session as it is, to freeze or fork it. Call it holding the project's lock.

    The bytes that the last snapshot names are relied on; a thorough look reads them, so that damaged ones are mended.
    """
    newest = archive.records.newest()
    last = _last_readable(archive, newest)
    known = set() if thorough or last is None else set(last.digests.values())
    content = scan_tree(archive.session, known)
    branch, session = archive.records.branch.read(), archive.session
    is_restored = newest is not None and branch.head_after == newest.number
    since = next((name.id for name in archive.records.refs() if name.id == branch.head), None) if is_restored else None
    snapshot = Snapshot(
        id="",
        number=0,
        kind="manual",
        parent=since or (None if newest is None else newest.id),
        project=session.project_id,
        session=session.session_id,
        step=max(branch.step, 0 if last is None else last.snapshot.step),
        label=None,
        approval=None,
        time=clock.now(),
        raw=content.raw,
        added=0,
        **session_status(session, last),
    )
    return PendingSnapshot(newest, last, content, snapshot)


def capture(
    archive: HistoryStore,
    kind: SnapshotKind,
    *,
    label: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    approval: str | None = None,
) -> tuple[Snapshot, bool]:
    """Freeze a session as it is; whether that is a new snapshot: a routine one is left out where nothing changed."""
    with archive.lock():
        now = scan(archive, thorough=kind in _WAYS_BACK)
        if kind == "routine" and now.last is not None and now.is_unchanged:
            return now.last.snapshot, False
        said: Any = {"kind": kind, "label": label, "approval": approval, "metadata": dict(metadata or {})}
        number, added = archive.records.next_number(now.newest), archive.blobs.put(now.content.new)
        snapshot = replace(now.snapshot, id=clock.new_id(), number=number, added=added, **said)
        archive.records.write(SnapshotManifest(snapshot, now.content.files, now.content.folders))
        return snapshot, True


def _last_readable(archive: HistoryStore, newest: RecordRef | None) -> SnapshotManifest | None:
    """The newest record; None where there is none, or none that can be read: then everything counts as new."""
    try:
        return None if newest is None else archive.records.read(newest)
    except (HaythamError, OSError):
        return None


def session_status(session: Session, last: SnapshotManifest | None) -> dict[str, Any]:
    """Whose a session is and how it stands, as far as its documents can be read."""
    user = None if last is None else last.snapshot.user
    unknown = {"user": user, "status": "unreadable", "phase": None, "workflow": None}
    try:
        reading = session.read()
        manifest = reading.manifest.value
        known = {**unknown, "user": manifest["user_id"], "workflow": manifest["workflow"]}
    except (HaythamError, OSError):
        return unknown
    try:
        summary = summarize(reading)
    except (HaythamError, OSError):
        return known
    return {**known, "status": summary.status, "phase": summary.current_phase or None}


def read_files(archive: HistoryStore, record: SnapshotManifest) -> Iterator[tuple[str, bytes]]:
    """The documents of a snapshot, one after the other; InvalidDocument at the first that is damaged."""
    for row in record.files:
        yield row.path, archive.blobs.read(row)


def verify_blobs(archive: HistoryStore, record: SnapshotManifest) -> None:
    """Refuse a snapshot of which not every byte is there as it was."""
    for _ in read_files(archive, record):
        continue


def checkout(archive: HistoryStore, record: SnapshotManifest, *, before: SnapshotManifest) -> None:
    """Make a snapshot's documents those of its session, all of them or none; what changed since `before` is kept."""
    session, contents = archive.session, read_files(archive, record)
    with session.store.lock(session_lock(session.project_id, session.session_id)):
        aside = replace_tree(session.store, session.prefix, contents, record.folders, before=before.digests)
    for path in aside:
        log.warning("%s%s: was written while a restore was under way, and is kept there", session.prefix, path)


@contextmanager
def exclusive_run(session: Session) -> Iterator[None]:
    """Keep runners away while the documents of a session are replaced; Running where one is at work."""
    with session.store.run_lock(session_lock(session.project_id, session.session_id)):
        yield
