"""A snapshot: its record, the working tree it is taken of, and taking it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from haytham import clock
from haytham.config.policy import KINDS
from haytham.errors import HaythamError, InvalidDocument, Problem
from haytham.session.listing import measure_bytes, measured
from haytham.session.paths import session_lock
from haytham.session.swap import check_paths, snapshot_versions
from haytham.storage.base import Batch, commit
from haytham.validation import matches_format

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from haytham.config.policy import SnapshotKind
    from haytham.history.catalog import BranchHead, HistoryStore, RecordRef
    from haytham.session import SessionDocuments
    from haytham.storage.base import Append, SessionStore

LARGEST = 256 * 1024 * 1024  # bytes of one document
_THOROUGH = frozenset({"recovery", "pre_operation"})  # kinds whose documents are about to be replaced


# Records.


@dataclass(frozen=True)
class Snapshot:
    """An immutable, numbered copy of a session's documents at one moment, without the documents themselves.

    `raw` is the size of its documents, `added` the compressed size of those that no earlier snapshot had.
    """

    id: str
    number: int
    kind: SnapshotKind
    parent: str | None
    project: str
    session: str
    user: str | None
    status: str
    phase: int | None
    step: int
    label: str | None
    approval: str | None
    time: str
    workflow: str | None
    raw: int
    added: int
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


class FileEntry(NamedTuple):
    """A document of a session: its path, its size, and the digest of its bytes."""

    path: str
    size: int
    digest: str


@dataclass(frozen=True)
class SnapshotManifest:
    """A snapshot with its documents and the folders that were empty."""

    snapshot: Snapshot
    files: tuple[FileEntry, ...]
    folders: tuple[str, ...]

    @property
    def digests(self) -> dict[str, str]:
        """The digest of each document by its path."""
        return {entry.path: entry.digest for entry in self.files}

    def value(self) -> dict[str, Any]:
        """Return the value of the record's document."""
        facts = {name: getattr(self.snapshot, name) for name in _NAMES}
        rows = [{"path": entry.path, "size": entry.size, "digest": entry.digest} for entry in self.files]
        return {**facts, "folders": list(self.folders), "documents": rows}


_NAMES = tuple(Snapshot.__annotations__)

_WHOLE: frozenset[type] = frozenset({int})
_TEXT: frozenset[type] = frozenset({str})
_MAYBE: frozenset[type] = frozenset({str, type(None)})
_TYPES: tuple[tuple[str, frozenset[type]], ...] = (
    *((name, _WHOLE) for name in ("number", "step", "raw", "added")),
    *((name, _TEXT) for name in ("id", "kind", "project", "session", "status", "time")),
    *((name, _MAYBE) for name in ("parent", "user", "label", "approval", "workflow")),
    ("phase", frozenset({int, type(None)})),
    ("metadata", frozenset({dict})),
)


def parse_snapshot(value: Mapping[str, Any]) -> Snapshot:
    """Return the snapshot of a record's value, or of a line of the index; TypeError if it cannot be one."""
    for name, types in _TYPES:
        if type(value[name]) not in types:
            raise TypeError(f"{name} of a snapshot: {value[name]!r}")
    if value["kind"] not in KINDS or not matches_format("time", value["time"]):
        raise TypeError(f"kind or time of a snapshot: {value['kind']!r}, {value['time']!r}")
    return Snapshot(**{name: value[name] for name in _NAMES})


def parse_manifest(value: Mapping[str, Any]) -> SnapshotManifest:
    """Return the manifest of a record's value; InvalidArgument if a path could leave the session or is never frozen."""
    entries = tuple(FileEntry(row["path"], row["size"], row["digest"]) for row in value["documents"])
    check_paths([entry.path for entry in entries], value["folders"])
    return SnapshotManifest(parse_snapshot(value), entries, tuple(value["folders"]))


# The working tree.


@dataclass(frozen=True)
class WorkingTree:
    """The documents of a session, its empty folders, the bytes of those documents that were not known, and versions."""

    files: tuple[FileEntry, ...]
    folders: tuple[str, ...]
    new: dict[str, bytes]
    versions: Mapping[str, object | None]

    @property
    def raw(self) -> int:
        """The size of all documents together."""
        return sum(entry.size for entry in self.files)


def scan_tree(session: SessionDocuments, known: Collection[str]) -> WorkingTree:
    """Return the documents of a session, consistent among its writers; the bytes only of digests that are not known."""
    entries: list[FileEntry] = []
    new: dict[str, bytes] = {}
    with session.store.lock(session_lock(session.project_id, session.session_id)):
        session.complete_pending_restore()
        versions = snapshot_versions(session.store, session.prefix)
        for path, token in versions.items():
            if not path.endswith("/"):
                size, digest, data = _measure(session.store, session.prefix + path, token, known)
                entries.append(FileEntry(path, size, digest))
                new |= {} if digest in known or data is None else {digest: data}
    return WorkingTree(tuple(entries), tuple(path[:-1] for path in versions if path.endswith("/")), new, versions)


def _measure(
    store: SessionStore, key: str, token: object | None, known: Collection[str]
) -> tuple[int, str, bytes | None]:
    """Return size, digest and, unless the digest is known, bytes of a document; raise if it is a link."""
    cached = measured(token)
    if cached is not None and cached[1] in known:
        return *cached, None
    try:
        data = store.read(key)
    except (HaythamError, OSError):
        if store.is_regular(key):
            raise
        message = "is no file of its own but a link, or no file at all; move it away"
        raise InvalidDocument([Problem(message, file=key)]) from None
    if len(data) > LARGEST:
        raise InvalidDocument([Problem(f"has {len(data)} bytes, and the most a snapshot takes is {LARGEST}", file=key)])
    return *measure_bytes(store, key, token, data), data


# Taking a snapshot.


@dataclass(frozen=True)
class PendingSnapshot:
    """A session as it is now: its branch, the newest record (if readable), the parent of the next one, and its tree."""

    session: SessionDocuments
    branch: BranchHead
    newest: RecordRef | None
    last: SnapshotManifest | None
    parent: RecordRef | None
    tree: WorkingTree

    @property
    def is_unchanged(self) -> bool:
        """Whether the newest snapshot has the same documents."""
        return self.last is not None and self.has_documents_of(self.last)

    def has_documents_of(self, record: SnapshotManifest) -> bool:
        """Return whether a record has the same documents."""
        return (record.files, record.folders) == (self.tree.files, self.tree.folders)

    def record(self, **facts: Any) -> SnapshotManifest:
        """Return the record of the present, which is not written."""
        snapshot = Snapshot(
            id="",
            number=0,
            kind="manual",
            parent=None if self.parent is None else self.parent.id,
            project=self.session.project_id,
            session=self.session.session_id,
            step=max(self.branch.step, 0 if self.last is None else self.last.snapshot.step),
            label=None,
            approval=None,
            time=clock.now(),
            raw=self.tree.raw,
            added=0,
            **session_status(self.session, self.last, self.tree.versions),
        )
        return SnapshotManifest(replace(snapshot, **facts), self.tree.files, self.tree.folders)


def scan(archive: HistoryStore, *, thorough: bool = False) -> PendingSnapshot:
    """Return a session as it is, to take a snapshot or fork it. Call it holding the project's lock.

    Blobs of documents that the newest snapshot has are relied on, unless `thorough`: then all bytes are read, so that
    damaged blobs are written again.
    """
    branch = archive.records.branch.read()
    newest = archive.records.newest(branch)
    last = _read_if_valid(archive, newest)
    known = set() if thorough or last is None else set(last.digests.values())
    tree = scan_tree(archive.session, known)
    parent = archive.records.restored(branch, newest) or newest
    return PendingSnapshot(archive.session, branch, newest, last, parent, tree)


def capture(  # noqa: PLR0913 - a kind, what is said of it, and what is written with it
    archive: HistoryStore,
    kind: SnapshotKind,
    *,
    label: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    approval: str | None = None,
    appends: Callable[[Snapshot], tuple[Append, ...]] = lambda _snapshot: (),
    intact: Collection[str] = (),
) -> tuple[SnapshotManifest, bool]:
    """Take a snapshot; return its record, and whether it is new: a routine one is skipped if nothing changed.

    Blobs, the branch and the record are written in this order, in one commit with `appends`. `intact` are digests of
    blobs that were read just now.
    """
    with archive.lock():
        pending = scan(archive, thorough=kind in _THOROUGH)
        if kind == "routine" and pending.last is not None and pending.is_unchanged:
            return pending.last, False
        blobs = archive.blobs.pack(pending.tree.new, intact=intact)
        record = pending.record(
            id=clock.new_id(),
            number=archive.records.next_number(pending.branch, pending.newest),
            added=sum(len(write.data) for write in blobs),
            kind=kind,
            label=label,
            approval=approval,
            metadata=dict(metadata or {}),
        )
        writes = (*blobs, *archive.records.pack(record, pending.branch))
        commit(archive.store, Batch(writes, appends(record.snapshot)))
        return record, True


def _read_if_valid(archive: HistoryStore, newest: RecordRef | None) -> SnapshotManifest | None:
    """Return the newest record; None if there is none, or it cannot be read: then everything counts as new."""
    try:
        return None if newest is None else archive.records.read(newest)
    except (HaythamError, OSError):
        return None


def session_status(
    session: SessionDocuments, last: SnapshotManifest | None, versions: Mapping[str, object | None]
) -> dict[str, Any]:
    """Return user, workflow, status and phase of a session, as far as its documents can be read.

    `versions` are the change tokens of its files, from the walk that a snapshot begins with.
    """
    user = None if last is None else last.snapshot.user
    unknown = {"user": user, "status": "unreadable", "phase": None, "workflow": None}
    try:
        view = session.read()
        view.files.use(versions)
        manifest = view.manifest.value
        known = {**unknown, "user": manifest.user_id, "workflow": manifest.workflow}
    except (HaythamError, OSError):
        return unknown
    try:
        summary = session.summarize(view)
    except (HaythamError, OSError):
        return known
    return {**known, "status": summary.status, "phase": summary.current_phase or None}
