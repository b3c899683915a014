"""The protocols of a store: verbs over keys and bytes, batches, the rules for keys, and preconditions of writes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from haytham.errors import InvalidArgument, WriteConflict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

VERBS = ("read", "write", "append", "delete", "keys", "ensure_folder", "close")
ANY = "anything"
ABSENT = "nothing there"

_PART = r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*"
_KEY = re.compile(rf"{_PART}(?:/{_PART})*")


# A batch.


class Write(NamedTuple):
    """New bytes of a key; `expect` is ANY, ABSENT, or the digest of the bytes they replace."""

    key: str
    data: bytes
    expect: str = ANY


class Append(NamedTuple):
    """Whole lines to add at the end of a key's bytes."""

    key: str
    lines: bytes


class Delete(NamedTuple):
    """A key to delete or, if it ends in `/`, a folder; `expect` is that of a write."""

    key: str
    expect: str = ANY


@dataclass(frozen=True)
class Batch:
    """The changes of one transaction: folders to make, then writes, appends and deletes, each in this order."""

    writes: tuple[Write, ...] = ()
    appends: tuple[Append, ...] = ()
    deletes: tuple[Delete, ...] = ()
    folders: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.writes or self.appends or self.deletes or self.folders)

    def expectations(self) -> dict[str, str]:
        """Return what is expected of each key that is not free to be anything."""
        expectations = {change.key: change.expect for change in self.writes}
        expectations |= {change.key: change.expect for change in self.deletes}
        return {key: expect for key, expect in expectations.items() if expect != ANY}

    def changed_keys(self) -> list[str]:
        """Return the keys and folders that are written, appended to and deleted, in this order."""
        written = [change.key for change in self.writes]
        return [*written, *(change.key for change in self.appends), *(change.key for change in self.deletes)]


class Store(Protocol):
    """Bytes under keys. A key is a relative path with `/` between its parts; no part starts with a dot."""

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """Return the bytes under a key, or only the first `limit` of them; FileNotFoundError if there are none."""

    def write(self, key: str, data: bytes, *, expect: str = ANY) -> str:
        """Write bytes under a key, durably, all or nothing; return their digest.

        `expect` is ANY, ABSENT, or the digest of the present bytes; WriteConflict if it does not hold.
        """

    def append(self, key: str, line: bytes) -> None:
        """Append a line to the bytes under a key, durably; lines of several writers never mix."""

    def delete(self, key: str) -> None:
        """Delete a key or, if it ends in `/`, all keys of that folder; deleting twice is harmless."""

    def keys(self, prefix: str = "", *, depth: int | None = None) -> list[str]:
        """Return all keys below a folder (empty, or with `/` at its end), sorted; at most `depth` parts below it."""

    def ensure_folder(self, prefix: str) -> None:
        """Create a folder, and remove what a crash left in it. Call it holding the folder's lock."""

    def close(self) -> None:
        """Close what the store holds open."""


class BatchStore(Store, Protocol):
    """A store that writes several keys in one transaction, and lists change tokens in one query."""

    def commit(self, batch: Batch) -> dict[str, str]:
        """Apply a batch, durably; return the digests of the bytes written, by key.

        All preconditions are checked first: WriteConflict leaves everything as it was. After a crash each key is old
        or new, and no change is visible without those before it.
        """

    def versions(self, prefix: str = "", *, folders: Iterable[str] | None = None) -> dict[str, object | None]:
        """Return the change token of each key below a folder, by key, from one walk.

        With `folders` (paths below `prefix`, each with `/` at its end) only the keys in those folders and directly in
        `prefix` are listed.
        """

    def change_token(self, key: str) -> object | None:
        """Return a cheap change token: different whenever the bytes may have changed; None if that cannot be told."""


class SessionStore(BatchStore, Protocol):
    """A store that several processes write sessions to: it has folders and locks."""

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Write several keys in the order of the mapping, each all or nothing, durably."""

    def write_folder(self, prefix: str, files: Iterable[tuple[str, bytes]]) -> None:
        """Write a new folder, all of its keys or none, durably; WriteConflict if it has keys already.

        Keys are relative to the folder; one that ends in `/` is an empty folder and has no bytes. If this raises,
        nothing was written.
        """

    def keys(self, prefix: str = "", *, depth: int | None = None, empty: bool = False) -> list[str]:
        """Return all keys below a folder, sorted; with `empty` also folders without entries, with `/` at the end.

        Of nested folders without entries only the innermost is listed.
        """

    def versions(
        self, prefix: str = "", *, folders: Iterable[str] | None = None, empty: bool = False
    ) -> dict[str, object | None]:
        """Return the change token of each key below a folder; with `empty` also folders without entries, as None."""

    def folders(self, prefix: str = "") -> list[str]:
        """Return the names of the folders directly below a folder, sorted."""

    def has_folder(self, prefix: str) -> bool:
        """Return whether a folder was made or written to, and not deleted since."""

    def is_regular(self, key: str) -> bool:
        """Return whether a key has bytes of its own: it exists and is neither a folder nor a link."""

    def run_lock(self, name: str) -> AbstractContextManager[None]:
        """Hold the lock of a runner, however long it runs; AlreadyRunning if another one holds it."""

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Hold the write lock of a name for some milliseconds; LockTimeout if it cannot be acquired.

        A thread may hold it twice. Writers below a folder that has a lock always hold it: preconditions are checked
        under it.
        """


def commit(store: Store, batch: Batch) -> dict[str, str]:
    """Apply a batch: in one transaction if the store has them, else change by change, preconditions first."""
    apply = getattr(store, "commit", None)
    if apply is not None:
        digests: dict[str, str] = apply(batch)
        return digests
    check_batch(batch)
    for key, expect in batch.expectations().items():
        check_precondition(key, expect, current_digest(store, key))
    for prefix in batch.folders:
        store.ensure_folder(prefix)
    digests = {change.key: store.write(change.key, change.data, expect=change.expect) for change in batch.writes}
    for key, lines in batch.appends:
        for line in lines.split(b"\n")[:-1]:
            store.append(key, line + b"\n")
    for key, _ in batch.deletes:
        store.delete(key)
    return digests


def write_all(store: Store, files: Mapping[str, bytes]) -> None:
    """Write several keys in the order of the mapping, in one transaction if the store has them."""
    commit(store, Batch(tuple(Write(key, data) for key, data in files.items())))


def current_digest(store: Store, key: str) -> str | None:
    """Return the digest of the bytes under a key; None if there are none."""
    try:
        return bytes_digest(store.read(key))
    except FileNotFoundError:
        return None


def cache_of(store: Store) -> Store:
    """Return the store for what can be computed again: local to this machine if there is one, else the store itself."""
    cache: Store = getattr(store, "cache", store)
    return cache


def bytes_digest(data: bytes) -> str:
    """Return the digest of bytes, as `write` does."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


# Checks of arguments.


def check_key(key: str) -> str:
    """Return a key; InvalidArgument if it could leave the base folder or be hidden in it."""
    if _KEY.fullmatch(key) is None:
        raise InvalidArgument("key", key, "names with / between them, none empty or with a leading dot")
    return key


def check_prefix(prefix: str) -> str:
    """Return a prefix; InvalidArgument if it is neither empty nor a folder."""
    if prefix and not prefix.endswith("/"):
        raise InvalidArgument("prefix", prefix, "nothing, or a folder with / at its end")
    return check_key(prefix[:-1]) + "/" if prefix else ""


def check_folder(prefix: str) -> str:
    """Return a prefix; InvalidArgument if it is no folder below the base."""
    if not prefix:
        raise InvalidArgument("prefix", prefix, "a folder with / at its end")
    return check_prefix(prefix)


def check_files(files: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yield the keys and bytes of a new folder, each checked as it comes."""
    for key, data in files:
        check_key(key.removesuffix("/"))
        if data and key.endswith("/"):
            raise InvalidArgument("key", key, "a key without / at its end, since it has bytes")
        yield key, data


def check_line(line: bytes) -> bytes:
    """Return a line to append; InvalidArgument if it is not exactly one."""
    if not line.endswith(b"\n") or line.count(b"\n") != 1:
        raise InvalidArgument("line", line, "bytes with one line end, at the end")
    return line


def check_batch(batch: Batch) -> None:
    """Raise InvalidArgument if a batch has a bad key, a key twice, or a part of a line."""
    changed = [check_key(change.key) for change in batch.writes]
    changed += [change.key for change in batch.deletes if check_key(change.key.removesuffix("/"))]
    if len(set(changed)) != len(changed):
        raise InvalidArgument("key", next(key for key in changed if changed.count(key) > 1), "each key of a batch once")
    for key, lines in batch.appends:
        check_key(key)
        if not lines.endswith(b"\n"):
            raise InvalidArgument("lines", lines, "bytes with a line end at the end")
    for change in batch.deletes:
        if change.key.endswith("/") and change.expect != ANY:
            raise InvalidArgument("key", change.key, "a key, since the digest of its bytes is expected")
    for prefix in batch.folders:
        check_folder(prefix)


def check_precondition(key: str, expect: str, digest: str | None) -> None:
    """Raise WriteConflict if the present bytes are not the expected ones."""
    if expect not in (ANY, digest or ABSENT):
        raise WriteConflict(key, expect, digest or ABSENT)
