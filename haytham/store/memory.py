"""A store in memory: for tests, and for history that need not outlive its process."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from haytham.errors import NotThere, Running
from haytham.store.protocol import ANY, bytes_digest, check_expected, check_key, check_line, check_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator


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
            raise NotThere("document", key)
        return found[:limit]

    def write(self, key: str, data: bytes, *, expect: str = ANY) -> str:
        """Put bytes under a key where what is there is as expected."""
        check_key(key)
        with self._guard:
            before = self._bytes.get(key)
            check_expected(key, expect, None if before is None else bytes_digest(before))
            self._bytes[key] = bytes(data)
            self._folders |= set(_folders(key))
        return bytes_digest(data)

    def append(self, key: str, line: bytes) -> None:
        """Add a line to the bytes under a key."""
        check_line(line)
        with self._guard:
            self._bytes[check_key(key)] = self._bytes.get(key, b"") + line

    def delete(self, key: str) -> None:
        """Remove the bytes under a key, or under all keys of a folder."""
        check_key(key.removesuffix("/"))
        with self._guard:
            below = [other for other in self._bytes if key.endswith("/") and other.startswith(key)]
            for gone in [key, *below]:
                self._bytes.pop(gone, None)
            self._folders = {folder for folder in self._folders if not (key.endswith("/") and folder.startswith(key))}

    def keys(self, prefix: str = "", *, depth: int | None = None) -> list[str]:
        """The keys that start with a prefix, sorted."""
        start = check_prefix(prefix)
        with self._guard:
            found = sorted(key for key in self._bytes if key.startswith(start))
        return [key for key in found if depth is None or key.count("/", len(start)) < depth]

    def prepare(self, prefix: str) -> None:
        """Take note of a folder; a crash leaves nothing in it."""
        with self._guard:
            self._folders |= set(_folders(check_prefix(prefix)))

    def holds(self, prefix: str) -> bool:
        """Whether a folder was prepared or written to, and not deleted since."""
        with self._guard:
            return check_prefix(prefix) in self._folders

    def stamp(self, key: str) -> object | None:
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
            raise Running(name, "another runner of this process")
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


def _folders(key: str) -> list[str]:
    """The folders that a key, or a folder, lies in; itself where it is one."""
    parts = key.split("/")[:-1]
    return ["/".join(parts[: at + 1]) + "/" for at in range(len(parts))]
