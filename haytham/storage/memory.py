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
    bytes_digest,
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
        """The bytes under a key, or the first of them."""
        with self._guard:
            found = self._bytes.get(check_key(key))
        if found is None:
            raise NotFound("document", key)
        return found[:limit]

    def write(self, key: str, data: bytes, *, expect: str = ANY) -> str:
        """Put bytes under a key where what is there is as expected."""
        check_key(key)
        with self._guard:
            before = self._bytes.get(key)
            check_precondition(key, expect, None if before is None else bytes_digest(before))
            self._bytes[key] = bytes(data)
            self._folders |= _folders_of([key])
        return bytes_digest(data)

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Put bytes under several keys, all at one moment."""
        new = {check_key(key): bytes(data) for key, data in files.items()}
        with self._guard:
            self._bytes |= new
            self._folders |= _folders_of(new)

    def write_folder(self, prefix: str, files: Iterable[tuple[str, bytes]]) -> None:
        """Put all keys of a new folder, at one moment."""
        start = check_folder(prefix)
        new = _new_files(files)
        with self._guard:
            held = min((key for key in self._bytes if f"{key}/".startswith(start)), default=None)
            if held is not None:
                raise WriteConflict(prefix, ABSENT, held)
            self._bytes |= {start + key: data for key, data in new.items() if not key.endswith("/")}
            self._folders = {folder for folder in self._folders if not folder.startswith(start)}
            self._folders |= _folders_of([start, *(start + key for key in new)])

    def append(self, key: str, line: bytes) -> None:
        """Add a line to the bytes under a key."""
        check_line(line)
        with self._guard:
            self._bytes[check_key(key)] = self._bytes.get(key, b"") + line
            self._folders |= _folders_of([key])

    def delete(self, key: str) -> None:
        """Remove the bytes under a key, or under all keys of a folder."""
        check_key(key.removesuffix("/"))
        with self._guard:
            below = [other for other in self._bytes if key.endswith("/") and other.startswith(key)]
            for gone in [key, *below]:
                self._bytes.pop(gone, None)
            self._folders = {folder for folder in self._folders if not (key.endswith("/") and folder.startswith(key))}

    def keys(self, prefix: str = "", *, depth: int | None = None, empty: bool = False) -> list[str]:
        """The keys that start with a prefix, sorted; with `empty`, so are the folders that hold nothing."""
        start = check_prefix(prefix)
        with self._guard:
            names = chain(self._bytes, self._empty_folders() if empty else ())
            found = sorted(name for name in names if name.startswith(start) and name != start)
        return [name for name in found if depth is None or name[:-1].count("/", len(start)) < depth]

    def folders(self, prefix: str = "") -> list[str]:
        """The names of the folders directly below a prefix, sorted."""
        start = check_prefix(prefix)
        with self._guard:
            below = [folder[len(start) : -1] for folder in self._folders if folder.startswith(start)]
        return sorted(name for name in below if name and "/" not in name)

    def ensure_folder(self, prefix: str) -> None:
        """Take note of a folder; a crash leaves nothing in it."""
        with self._guard:
            self._folders |= _folders_of([check_prefix(prefix)])

    def has_folder(self, prefix: str) -> bool:
        """Whether a folder was prepared or written to, and not deleted since."""
        with self._guard:
            return check_prefix(prefix) in self._folders

    def is_regular(self, key: str) -> bool:
        """Whether a key is there."""
        with self._guard:
            return check_key(key) in self._bytes

    def change_token(self, key: str) -> object | None:
        """The bytes themselves: to compare them is as cheap as anything."""
        with self._guard:
            return self._bytes.get(check_key(key))

    def close(self) -> None:
        """Nothing is held open."""

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
        """The folders with neither a key nor a folder in them."""
        return self._folders - _folders_of(self._bytes) - _folders_of(folder[:-1] for folder in self._folders)


def _folders_of(keys: Iterable[str]) -> set[str]:
    """The folders that keys, or folders, lie in; a folder lies in itself."""
    found: set[str] = set()
    for key in keys:
        parts = key.split("/")[:-1]
        found |= {"/".join(parts[: at + 1]) + "/" for at in range(len(parts))}
    return found


def _new_files(files: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """The keys and bytes of a new folder; no key twice, nor one that is a folder, too."""
    new: dict[str, bytes] = {}
    for key, data in check_files(files):
        if key in new and not key.endswith("/"):
            raise InvalidArgument("key", key, "each name in a folder once")
        new[key] = bytes(data)
    for folder in _folders_of(new):
        if folder[:-1] in new:
            raise InvalidArgument("key", folder[:-1], "each name in a folder once")
    return new
