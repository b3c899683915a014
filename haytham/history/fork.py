"""Forks: creating a session from the documents of another, deleting one, and the tree of snapshots over all forks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.errors import HaythamError, InvalidArgument, InvalidDocument, NotFound
from haytham.events import Event
from haytham.history import restore
from haytham.history.catalog import BranchHead
from haytham.history.lookup import other_histories
from haytham.history.retention import collect_garbage, fork_points, remove
from haytham.history.snapshot import FileEntry, Snapshot, SnapshotManifest, scan
from haytham.markdown.parser import parse
from haytham.markdown.renderer import render
from haytham.markdown.schema import load_schema
from haytham.session import SessionDocuments
from haytham.session.paths import EVENTS, MANIFEST, SPEND, check_id, sessions_prefix
from haytham.session.repair import FORKED
from haytham.session.spend_log import SpendLog, inherited_entry
from haytham.storage.base import Batch, bytes_digest, commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from haytham.history.catalog import HistoryStore

_OWN_FIELDS = frozenset({"closed", "version", "requirements", "metrics", "display_name", "archived"})
_FACTS_OF_A_FORK = {  # of its event, from which a lost manifest can be rebuilt
    "session": "forked_from",
    "snapshot": "fork_point",
    "fork": "session_id",
    "purpose": "purpose",
    "user": "user_id",
    "mode": "execution_mode",
    "workflow": "workflow",
    "origin": "origin",
    "model": "model",
}


def fork(
    archive: HistoryStore,
    point: SnapshotManifest | None,
    *,
    name: str,
    purpose: str | None,
    metadata: Mapping[str, Any] | None,
) -> SessionDocuments:
    """Create a session with the documents of another as they were, or as they are; the other is not changed.

    Blobs and the first record are written before the session appears, whole: a fork always has a history.
    """
    parent = archive.session
    child = SessionDocuments(parent.store, parent.project_id, check_id("name of a fork", name))
    own = archive.for_session(child)
    with archive.lock():
        leftover = [ref.id for ref in own.records.refs()]
        if parent.store.has_folder(child.prefix) or len(leftover) > 1 or fork_points(archive, leftover):
            raise InvalidArgument("name of a fork", name, "one that no session of the project has, or has snapshots of")
        parent.store.ensure_folder(sessions_prefix(parent.project_id))
        own.delete_all()  # what a fork of this name left that was killed before its folder appeared
        source, new = _source(archive, point)
        contents = {
            entry.path: new[entry.digest] if entry.digest in new else archive.blobs.read(entry)
            for entry in source.files
        }
        manifest, value = _manifest(parent, child, source, contents.get(MANIFEST, b""), purpose)
        blobs = archive.blobs.pack({**new, bytes_digest(manifest): manifest})
        entries = _with_manifest(source, manifest)
        added = next((len(write.data) for write in blobs if bytes_digest(manifest)[7:] in write.key), 0)
        record = SnapshotManifest(
            _first_snapshot(source, child, added, entries, metadata or {}), entries, source.folders
        )
        branch = BranchHead()
        commit(archive.store, Batch((*blobs, *own.records.pack(record, branch, step=source.snapshot.step))))
        logs = {**_spending(parent), EVENTS: _event(value)}
        child.store.write_folder(child.prefix, _files({**contents, MANIFEST: manifest, **logs}, source.folders))
    return child


def _files(contents: Mapping[str, bytes], folders: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    yield from contents.items()
    yield from ((f"{folder}/", b"") for folder in folders)


def _spending(parent: SessionDocuments) -> dict[str, bytes]:
    """Return the spend log of a fork: what was spent before it counts."""
    total = SpendLog(parent.store, parent.prefix).read().total
    return {SPEND: inherited_entry(parent.session_id, total)} if total.calls else {}


def _event(manifest: Mapping[str, Any]) -> bytes:
    """Return the first event of a fork, from which a lost manifest can be rebuilt."""
    return Event(FORKED, clock.now(), {fact: manifest.get(name) for fact, name in _FACTS_OF_A_FORK.items()}).line()


def _source(archive: HistoryStore, point: SnapshotManifest | None) -> tuple[SnapshotManifest, dict[str, bytes]]:
    """Return what is forked, a snapshot or else the present, and the bytes of it that are no blobs yet."""
    if point is not None:
        return point, {}
    pending = scan(archive)
    parent = None if pending.parent is None else archive.records.read(pending.parent)
    is_same = parent is not None and pending.has_documents_of(parent)
    return parent if parent is not None and is_same else pending.record(), pending.tree.new


def _manifest(
    parent: SessionDocuments, child: SessionDocuments, source: SnapshotManifest, data: bytes, purpose: str | None
) -> tuple[bytes, Mapping[str, Any]]:
    """Return the manifest of a fork, as bytes and as a value: its own id and times, its origin, and not closed."""
    parsed = parse(load_schema("session_manifest"), data)
    if parsed.faults:
        raise InvalidDocument([problem.with_file(parent.prefix + MANIFEST) for problem in parsed.faults])
    moment = clock.now()
    value = {name: item for name, item in parsed.value.items() if name not in _OWN_FIELDS}
    value |= {"session_id": child.session_id, "created": moment}
    value |= {"forked_from": parent.session_id, "fork_point": source.snapshot.id or None, "purpose": purpose}
    text = render(load_schema("session_manifest"), value, {**parsed.derived, "last_updated": moment})
    return text.encode(), value


def _with_manifest(source: SnapshotManifest, manifest: bytes) -> tuple[FileEntry, ...]:
    own = FileEntry(MANIFEST, len(manifest), bytes_digest(manifest))
    return tuple(own if entry.path == MANIFEST else entry for entry in source.files)


def _first_snapshot(
    source: SnapshotManifest,
    child: SessionDocuments,
    added: int,
    entries: tuple[FileEntry, ...],
    metadata: Mapping[str, Any],
) -> Snapshot:
    """Return the first snapshot of a fork, whose parent is the snapshot that was forked."""
    return replace(
        source.snapshot,
        id=clock.new_id(),
        number=1,
        kind="fork",
        parent=source.snapshot.id or source.snapshot.parent,
        session=child.session_id,
        label=None,
        approval=None,
        time=clock.now(),
        raw=sum(entry.size for entry in entries),
        added=added,
        metadata=dict(metadata),
    )


@dataclass(frozen=True)
class DeletionReport:
    """What is deleted with a session: how many documents, which snapshots; `kept` are those that forks come from."""

    documents: int
    snapshots: tuple[str, ...]
    kept: tuple[str, ...]


def delete_session(archive: HistoryStore, *, dry_run: bool = False) -> DeletionReport:
    """Delete a session: its documents, its snapshots and their blobs, but for what forks need; return what.

    Snapshots go first, so that a kill leaves a session, which can be deleted again.
    """
    session = archive.session
    with restore.exclusive_run(session), archive.lock():
        if not session.store.has_folder(session.prefix):
            raise NotFound(f"session {session.session_id!r}", session.prefix)
        ids = [ref.id for ref in archive.records.refs()]
        kept = fork_points(archive, ids)
        deleted = tuple(snapshot_id for snapshot_id in ids if snapshot_id not in kept)
        report = DeletionReport(
            len(session.store.keys(session.prefix)), deleted, tuple(one for one in ids if one in kept)
        )
        if not dry_run:
            _delete_history(archive)
            session.store.delete(session.prefix)
            if _has_forks(archive):
                archive.records.mark_deleted()
            _delete_what_forks_needed(archive)
            collect_garbage(archive)
        return report


def _delete_history(archive: HistoryStore) -> None:
    """Delete the snapshots of a session that no fork comes from, and their log unless a fork needs that."""
    if not _has_forks(archive):
        archive.delete_all()
        return
    ids = {ref.id for ref in archive.records.refs()}
    remove(archive, ids - fork_points(archive, ids))


def _delete_what_forks_needed(archive: HistoryStore) -> None:
    """Delete what was kept of sessions that were deleted before, and that no fork needs now."""
    for other in other_histories(archive):
        if not other.session.store.has_folder(other.session.prefix) and other.records.is_marked_deleted():
            _delete_history(other)


def _has_forks(archive: HistoryStore) -> bool:
    """Return whether a session of the project was forked from this one."""
    session = archive.session
    names = session.store.folders(sessions_prefix(session.project_id))
    return any(lineage(archive, name)[:1] == [session.session_id] for name in names)


def lineage(archive: HistoryStore, session_id: str) -> list[str]:
    """Return the ancestors of a session, its parent first, as far as their manifests can be read."""
    ancestors: list[str] = []
    while True:
        try:
            manifest = (
                SessionDocuments(archive.session.store, archive.session.project_id, session_id).read().manifest.value
            )
        except (HaythamError, OSError):
            return ancestors
        parent = manifest.forked_from
        if parent is None or parent in ancestors:
            return ancestors
        ancestors.append(parent)
        session_id = parent


@dataclass(frozen=True)
class SnapshotNode:
    """A snapshot and its children, oldest first."""

    snapshot: Snapshot
    children: tuple[SnapshotNode, ...]


def build_forest(sessions: Iterable[Sequence[Snapshot]]) -> list[SnapshotNode]:
    """Return the trees of snapshots, given those of each session in the order of their numbers.

    A snapshot whose parent was deleted is a child of the one before it in its session; the first one is a root.
    """
    lines = [list(line) for line in sessions]
    known = {snapshot.id for line in lines for snapshot in line}
    parents: dict[str, str | None] = {}
    for line in lines:
        previous: str | None = None
        for snapshot in line:
            parents[snapshot.id] = snapshot.parent if snapshot.parent in known else previous
            previous = snapshot.id
    children: dict[str | None, list[Snapshot]] = {}
    for snapshot in (snapshot for line in lines for snapshot in line):
        children.setdefault(parents[snapshot.id], []).append(snapshot)
    return _nodes(children)


def _nodes(children: dict[str | None, list[Snapshot]]) -> list[SnapshotNode]:
    """Return the roots, built from the leaves up without recursion: a line may be thousands long."""
    nodes: dict[str, SnapshotNode] = {}
    pending = list(children.get(None, []))
    order: list[Snapshot] = []
    while pending:
        snapshot = pending.pop()
        order.append(snapshot)
        pending += children.get(snapshot.id, [])
    for snapshot in reversed(order):
        below = tuple(nodes[child.id] for child in children.get(snapshot.id, []))
        nodes[snapshot.id] = SnapshotNode(snapshot, below)
    return [nodes[snapshot.id] for snapshot in children.get(None, [])]


def descendants(archive: HistoryStore) -> list[list[Snapshot]]:
    """Return the snapshots of a session, and those of each of its forks and their forks."""
    own = archive.session
    forks = [name for name in own.store.folders(sessions_prefix(own.project_id)) if _descends(archive, name)]
    others = [archive.for_session(SessionDocuments(own.store, own.project_id, name)) for name in forks]
    return [history.records.snapshots() for history in (archive, *others)]


def _descends(archive: HistoryStore, session_id: str) -> bool:
    return session_id != archive.session.session_id and archive.session.session_id in lineage(archive, session_id)
