"""A fork: a new session that begins with the documents of another; and its end.

The tree of snapshots: what came of what, over a session and all its forks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.errors import HaythamError, InvalidArgument, InvalidDocument
from haytham.history import restore
from haytham.history.retention import collect_garbage
from haytham.history.snapshot import FileEntry, Snapshot, SnapshotManifest
from haytham.markdown.parser import parse
from haytham.markdown.renderer import render
from haytham.markdown.schema import load_schema
from haytham.session import Session
from haytham.session.paths import MANIFEST, SPEND, check_id, sessions_prefix
from haytham.session.spend_log import SpendLog, inherited_entry
from haytham.storage.base import bytes_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from haytham.history.catalog import HistoryStore
    from haytham.history.restore import PendingSnapshot

_OF_THE_END = frozenset({"closed", "version", "requirements", "metrics"})


def fork(
    archive: HistoryStore,
    point: SnapshotManifest | None,
    *,
    name: str,
    purpose: str | None,
    metadata: Mapping[str, Any] | None,
) -> Session:
    """Begin a session with the documents of another as they were, or as they are; the other is not touched.

    The first record is written before the session appears, whole: a fork that is there has its past.
    """
    parent = archive.session
    child = Session(parent.store, parent.project_id, check_id("name of a fork", name))
    own = archive.for_session(child)
    records = own.records
    with archive.lock():
        if parent.store.has_folder(child.prefix) or len(records.refs()) > 1:
            raise InvalidArgument("name of a fork", name, "one that no session of the project has, or has snapshots of")
        parent.store.ensure_folder(sessions_prefix(parent.project_id))
        own.delete_all()  # what a fork of this name left that was killed before it was there
        source = _frozen(archive, point)
        contents = dict(restore.read_files(archive, source))
        contents[MANIFEST] = _manifest(parent, child, source, contents.get(MANIFEST, b""), purpose)
        rows = _with_manifest(source, contents[MANIFEST])
        added = archive.blobs.put({bytes_digest(contents[MANIFEST]): contents[MANIFEST]})
        records.write(
            SnapshotManifest(_first_snapshot(source, child, added, rows, metadata or {}), rows, source.folders)
        )
        if source.snapshot.step:
            records.branch.change(step=source.snapshot.step)
        child.store.write_folder(child.prefix, _all({**contents, **_spent(parent)}, source.folders))
    return child


def _all(contents: Mapping[str, bytes], folders: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    yield from contents.items()
    yield from ((f"{folder}/", b"") for folder in folders)


def _spent(parent: Session) -> dict[str, bytes]:
    """What was spent before a fork, which does not get it back."""
    total = SpendLog(parent.store, parent.prefix).read().total
    return {SPEND: inherited_entry(parent.session_id, total)} if total.calls else {}


def _frozen(archive: HistoryStore, point: SnapshotManifest | None) -> SnapshotManifest:
    """What is forked: a snapshot, else the present, whose bytes are kept and of which the parent keeps no record."""
    if point is not None:
        return point
    now = restore.scan(archive)
    archive.blobs.put(now.content.new)
    known = _same_content(archive, now)
    return now.record() if known is None else known


def _same_content(archive: HistoryStore, now: PendingSnapshot) -> SnapshotManifest | None:
    """The snapshot that the present comes of, where nothing changed since."""
    found = [name for name in archive.records.refs() if name.id == now.snapshot.parent]
    record = archive.records.read(found[0]) if found else None
    same = record is not None and (record.files, record.folders) == (now.content.files, now.content.folders)
    return record if same else None


def _manifest(parent: Session, child: Session, source: SnapshotManifest, data: bytes, purpose: str | None) -> bytes:
    """The manifest of a fork: its own id and times, where it comes from, and not yet at an end."""
    parsed = parse(load_schema("session_manifest"), data)
    if parsed.faults:
        raise InvalidDocument([problem.with_file(parent.prefix + MANIFEST) for problem in parsed.faults])
    moment = clock.now()
    value = {name: found for name, found in parsed.value.items() if name not in _OF_THE_END}
    value |= {"session_id": child.session_id, "created": moment}
    value |= {"forked_from": parent.session_id, "fork_point": source.snapshot.id or None, "purpose": purpose}
    return render(load_schema("session_manifest"), value, {**parsed.derived, "last_updated": moment}).encode()


def _with_manifest(source: SnapshotManifest, manifest: bytes) -> tuple[FileEntry, ...]:
    own = FileEntry(MANIFEST, len(manifest), bytes_digest(manifest))
    return tuple(own if row.path == MANIFEST else row for row in source.files)


def _first_snapshot(
    source: SnapshotManifest, child: Session, added: int, rows: tuple[FileEntry, ...], facts: Mapping[str, Any]
) -> Snapshot:
    """What a fork begins with: it comes of the snapshot that was forked."""
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
        raw=sum(row.size for row in rows),
        added=added,
        metadata=dict(facts),
    )


def discard(archive: HistoryStore) -> None:
    """Remove a fork: its documents, its records, and the bytes that only they named. Refused for what is no fork."""
    session = archive.session
    with restore.exclusive_run(session), archive.lock():
        manifest = session.read().manifest.value
        if "forked_from" not in manifest:
            raise InvalidArgument(
                "session to discard", session.session_id, "a fork; this one was not forked from another"
            )
        forks = _forks_of(archive)
        if forks:
            raise InvalidArgument(
                "session to discard", session.session_id, f"one without forks; discard first: {forks}"
            )
        archive.delete_all()  # first, so that what a kill leaves is a session, which can be discarded again
        session.store.delete(session.prefix)
        collect_garbage(archive)


def _forks_of(archive: HistoryStore) -> str:
    """The sessions of the project that were forked from this one."""
    return ", ".join(
        name
        for name in archive.session.store.folders(sessions_prefix(archive.session.project_id))
        if lineage(archive, name)[:1] == [archive.session.session_id]
    )


def lineage(archive: HistoryStore, session_id: str) -> list[str]:
    """The sessions that a session comes from, its parent first; as far as their manifests can be read."""
    found: list[str] = []
    while True:
        try:
            manifest = Session(archive.session.store, archive.session.project_id, session_id).read().manifest.value
        except (HaythamError, OSError):
            return found
        parent = manifest.get("forked_from")
        if parent is None or parent in found:
            return found
        found.append(parent)
        session_id = parent


@dataclass(frozen=True)
class SnapshotNode:
    """A snapshot, and those that came of it, oldest first."""

    snapshot: Snapshot
    children: tuple[SnapshotNode, ...]


def build_forest(sessions: Iterable[Sequence[Snapshot]]) -> list[SnapshotNode]:
    """The trees of snapshots, each session's in the order of their numbers.

    One whose parent was let go hangs on the one before it in its session; one without any before it is a root.
    """
    lines = [list(line) for line in sessions]
    known = {one.id for line in lines for one in line}
    parents: dict[str, str | None] = {}
    for line in lines:
        before: str | None = None
        for one in line:
            parents[one.id] = one.parent if one.parent in known else before
            before = one.id
    children: dict[str | None, list[Snapshot]] = {}
    for one in (one for line in lines for one in line):
        children.setdefault(parents[one.id], []).append(one)
    return _nodes(children)


def _nodes(children: dict[str | None, list[Snapshot]]) -> list[SnapshotNode]:
    """Nodes from the leaves up, without a call for each generation: a line may be thousands long."""
    done: dict[str, SnapshotNode] = {}
    todo = list(children.get(None, []))
    order: list[Snapshot] = []
    while todo:
        one = todo.pop()
        order.append(one)
        todo += children.get(one.id, [])
    for one in reversed(order):
        done[one.id] = SnapshotNode(one, tuple(done[child.id] for child in children.get(one.id, [])))
    return [done[one.id] for one in children.get(None, [])]


def descendants(archive: HistoryStore) -> list[list[Snapshot]]:
    """The snapshots of a session, and of every session that comes from it."""
    own = archive.session
    forks = [name for name in own.store.folders(sessions_prefix(own.project_id)) if _descends(archive, name)]
    others = [archive.for_session(Session(own.store, own.project_id, name)) for name in forks]
    return [one.records.snapshots() for one in (archive, *others)]


def _descends(archive: HistoryStore, session_id: str) -> bool:
    return session_id != archive.session.session_id and archive.session.session_id in lineage(archive, session_id)
