"""What a session holds at one moment, as bytes: every document with size and digest, readable as a document or not."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from haytham.errors import InvalidDocument, Problem
from haytham.history.blobs import LARGEST
from haytham.history.snapshot import FileEntry
from haytham.session.swap import snapshot_paths
from haytham.storage.base import bytes_digest

if TYPE_CHECKING:
    from collections.abc import Collection

    from haytham.session import Session
    from haytham.storage.base import SessionStore

_MOST_KNOWN = 4096


@dataclass(frozen=True)
class WorkingTree:
    """The documents of a session, its empty folders, and the bytes of those documents that were not known before."""

    files: tuple[FileEntry, ...]
    folders: tuple[str, ...]
    new: dict[str, bytes]

    @property
    def raw(self) -> int:
        """The bytes of all documents together."""
        return sum(row.size for row in self.files)


def scan_tree(session: Session, known: Collection[str]) -> WorkingTree:
    """All that is frozen of a session, consistent among its writers; bytes only of digests that are not known."""
    from haytham.session.paths import session_lock  # noqa: PLC0415

    new: dict[str, bytes] = {}
    with session.store.lock(session_lock(session.project_id, session.session_id)):
        session.complete_pending_restore()
        paths = snapshot_paths(session.store, session.prefix, empty=True)
        documents = [path for path in paths if not path.endswith("/")]
        rows = tuple(_row(session.store, session.prefix, path, known, new) for path in documents)
    return WorkingTree(rows, tuple(path[:-1] for path in paths if path.endswith("/")), new)


def _row(store: SessionStore, prefix: str, path: str, known: Collection[str], new: dict[str, bytes]) -> FileEntry:
    """One document; a link is refused, as what it leads to is no part of the session."""
    key = prefix + path
    stamp = store.change_token(key)
    seen = None if stamp is None else _SEEN.get(stamp)
    if seen is not None and seen[1] in known:
        return FileEntry(path, *seen)
    if not store.is_regular(key):
        raise InvalidDocument([Problem("is no file of its own but a link, or no file at all; move it away", file=key)])
    data = store.read(key)
    if len(data) > LARGEST:
        raise InvalidDocument([Problem(f"has {len(data)} bytes, and the most a snapshot takes is {LARGEST}", file=key)])
    row = FileEntry(path, len(data), bytes_digest(data))
    if row.digest not in known:
        new[row.digest] = data
    if stamp is not None and stamp == store.change_token(key):
        _remember(stamp, row)
    return row


_SEEN: OrderedDict[object, tuple[int, str]] = OrderedDict()


def _remember(stamp: object, row: FileEntry) -> None:
    """Keep size and digest of a file that is surely the same while its stamp is."""
    _SEEN[stamp] = row.size, row.digest
    while len(_SEEN) > _MOST_KNOWN:
        _SEEN.popitem(last=False)
