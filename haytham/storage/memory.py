"""A store in memory: for tests, and for history that need not outlive its process."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

from haytham.errors import AlreadyRunning, InvalidArgument, NotFound, WriteConflict
from haytham.storage.base import (
    ABSENT,
    ANY,
    Append,
    Batch,
    Delete,
    Write,
    bytes_digest,
    check_batch,
    check_files,
    check_folder,
    check_key,
    check_line,
    check_precondition,
    check_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class MemoryStore:
    """Bytes under keys in a dict, safe among threads."""

    def __init__(self) -> None:
        self._bytes: dict[str, bytes] = {}
        self._folders: set[str] = set()
        self._guard = threading.Lock()
        self._locks: dict[str, threading.RLock] = {}
        self._runs: dict[str, threading.Lock] = {}

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """Return the bytes under a key, or the first of them."""
        with self._guard:
            data = self._bytes.get(check_key(key))
        if data is None:
            raise NotFound("document", key)
        return data[:limit]

    def write(self, key: str, data: bytes, *, expect: str = ANY) -> str:
        """Write bytes under a key if the present ones are as expected."""
        return self.commit(Batch((Write(key, data, expect),)))[key]

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Write several keys, all at one moment."""
        self.commit(Batch(tuple(Write(key, data) for key, data in files.items())))

    def commit(self, batch: Batch) -> dict[str, str]:
        """Apply a batch, at one moment."""
        check_batch(batch)
        written = {change.key: bytes(change.data) for change in batch.writes}
        with self._guard:
            for key, expect in batch.expectations().items():
                present = self._bytes.get(key)
                check_precondition(key, expect, None if present is None else bytes_digest(present))
            self._bytes |= written
            for key, lines in batch.appends:
                self._bytes[key] = self._bytes.get(key, b"") + lines
            self._folders |= _folders_of([*batch.folders, *written, *(change.key for change in batch.appends)])
            for change in batch.deletes:
                self._delete(change.key)
        return {key: bytes_digest(data) for key, data in written.items()}

    def write_folder(self, prefix: str, files: Iterable[tuple[str, bytes]]) -> None:
        """Write all keys of a new folder, at one moment."""
        start = check_folder(prefix)
        new = _new_files(files)
        with self._guard:
            present = min((key for key in self._bytes if f"{key}/".startswith(start)), default=None)
            if present is not None:
                raise WriteConflict(prefix, ABSENT, present)
            self._bytes |= {start + key: data for key, data in new.items() if not key.endswith("/")}
            self._folders = {folder for folder in self._folders if not folder.startswith(start)}
            self._folders |= _folders_of([start, *(start + key for key in new)])

    def append(self, key: str, line: bytes) -> None:
        """Append a line to the bytes under a key."""
        self.commit(Batch(appends=(Append(key, check_line(line)),)))

    def delete(self, key: str) -> None:
        """Delete a key, or all keys of a folder."""
        self.commit(Batch(deletes=(Delete(key),)))

    def _delete(self, key: str) -> None:
        if not key.endswith("/"):
            self._bytes.pop(key, None)
            return
        self._bytes = {other: data for other, data in self._bytes.items() if not other.startswith(key)}
        self._folders = {folder for folder in self._folders if not folder.startswith(key)}

    def keys(self, prefix: str = "", *, depth: int | None = None, empty: bool = False) -> list[str]:
        """Return the keys that start with a prefix, sorted; with `empty` also folders without entries."""
        start = check_prefix(prefix)
        with self._guard:
            names = chain(self._bytes, self._empty_folders() if empty else ())
            below = sorted(name for name in names if name.startswith(start) and name != start)
        return [name for name in below if depth is None or name[:-1].count("/", len(start)) < depth]

    def versions(
        self, prefix: str = "", *, folders: Iterable[str] | None = None, empty: bool = False
    ) -> dict[str, object | None]:
        """Return the bytes of the keys below a folder as their change tokens."""
        start = check_prefix(prefix)
        within = None if folders is None else tuple(start + check_folder(folder) for folder in folders)
        keys = self.keys(prefix, empty=empty)
        listed = [key for key in keys if within is None or key.startswith(within) or "/" not in key[len(start) :]]
        with self._guard:
            return {key: self._bytes.get(key) for key in listed if key.endswith("/") or key in self._bytes}

    def folders(self, prefix: str = "") -> list[str]:
        """Return the names of the folders directly below a prefix, sorted."""
        start = check_prefix(prefix)
        with self._guard:
            below = [folder[len(start) : -1] for folder in self._folders if folder.startswith(start)]
        return sorted(name for name in below if name and "/" not in name)

    def ensure_folder(self, prefix: str) -> None:
        """Make a folder; a crash leaves nothing in it."""
        with self._guard:
            self._folders |= _folders_of([check_prefix(prefix)])

    def has_folder(self, prefix: str) -> bool:
        """Return whether a folder was made or written to, and not deleted since."""
        with self._guard:
            return check_prefix(prefix) in self._folders

    def is_regular(self, key: str) -> bool:
        """Return whether a key exists."""
        with self._guard:
            return check_key(key) in self._bytes

    def change_token(self, key: str) -> object | None:
        """Return the bytes themselves: comparing them is cheap."""
        with self._guard:
            return self._bytes.get(check_key(key))

    def close(self) -> None:
        """Do nothing: no file is open."""

    @contextmanager
    def run_lock(self, name: str) -> Iterator[None]:
        """Hold the lock of a runner."""
        with self._guard:
            lock = self._runs.setdefault(check_key(name), threading.Lock())
        if not lock.acquire(blocking=False):
            raise AlreadyRunning(name, "another runner of this process")
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the write lock of a name."""
        with self._guard:
            lock = self._locks.setdefault(check_key(name), threading.RLock())
        with lock:
            yield

    def _empty_folders(self) -> set[str]:
        """Return the folders with neither a key nor a folder in them."""
        return self._folders - _folders_of(self._bytes) - _folders_of(folder[:-1] for folder in self._folders)


def _folders_of(keys: Iterable[str]) -> set[str]:
    """Return the folders above keys and folders; a folder counts as above itself."""
    folders: set[str] = set()
    for key in keys:
        parts = key.split("/")[:-1]
        folders |= {"/".join(parts[: at + 1]) + "/" for at in range(len(parts))}
    return folders


def _new_files(files: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """Return the keys and bytes of a new folder; raise if a key comes twice, or is also a folder."""
    new: dict[str, bytes] = {}
    for key, data in check_files(files):
        if key in new and not key.endswith("/"):
            raise InvalidArgument("key", key, "each name in a folder once")
        new[key] = bytes(data)
    for folder in _folders_of(new):
        if folder[:-1] in new:
            raise InvalidArgument("key", folder[:-1], "each name in a folder once")
    return new
