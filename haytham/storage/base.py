"""What a store is: seven verbs over keys and bytes, the rules for keys, and what a writer may expect."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Protocol

from haytham.errors import InvalidArgument, WriteConflict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

VERBS = ("read", "write", "append", "delete", "keys", "ensure_folder", "close")
ANY = "anything"
ABSENT = "nothing there"

_PART = r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*"
_KEY = re.compile(rf"{_PART}(?:/{_PART})*")


class Store(Protocol):
    """Where bytes rest. A key is a relative path with `/` between its parts; no part starts with a dot."""

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """The bytes under a key, or only the first `limit` of them; FileNotFoundError where there are none."""

    def write(self, key: str, data: bytes, *, expect: str = ANY) -> str:
        """Put bytes under a key, all or none, to stay; the digest of them.

        `expect` is ANY, ABSENT, or the digest of what must be there: Conflict where it is not.
        """

    def append(self, key: str, line: bytes) -> None:
        """Add a line to the bytes under a key, to stay; lines of several writers never mix."""

    def delete(self, key: str) -> None:
        """Remove the bytes under a key or, where it ends in `/`, under all keys of that folder; harmless twice."""

    def keys(self, prefix: str = "", *, depth: int | None = None) -> list[str]:
        """All keys below a folder (nothing, or a path that ends in `/`), sorted; at most `depth` parts below it."""

    def ensure_folder(self, prefix: str) -> None:
        """Make a folder ready for writers, and clear what a crash left in it. Call it holding the folder's lock."""

    def close(self) -> None:
        """Let go of what the store holds open."""


class SessionStore(Store, Protocol):
    """A store that several processes write sessions to: it knows folders, and can hold a lock."""

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Put bytes under several keys, each whole, all to stay; they appear in the order of the mapping."""

    def write_folder(self, prefix: str, files: Iterable[tuple[str, bytes]]) -> None:
        """Put a new folder, all of its keys or none, to stay; Conflict where it holds something already.

        Its keys are told from the folder on; one that ends in `/` is an empty folder's, and has no bytes. Where this
        raises, whatever the reason, nothing is there.
        """

    def keys(self, prefix: str = "", *, depth: int | None = None, empty: bool = False) -> list[str]:
        """All keys below a folder, sorted; with `empty`, so are the folders that hold nothing, with `/` at their end.

        Of folders that lie in each other and hold nothing, the innermost is told.
        """

    def folders(self, prefix: str = "") -> list[str]:
        """The names of the folders directly below a folder, sorted."""

    def has_folder(self, prefix: str) -> bool:
        """Whether a folder was prepared or written to, and not deleted since."""

    def is_regular(self, key: str) -> bool:
        """Whether a key has bytes of its own: it is there, and is neither a folder nor a link to something else."""

    def change_token(self, key: str) -> object | None:
        """What is another whenever the bytes under a key may be others, told without reading; None if unsure."""

    def run_lock(self, name: str) -> AbstractContextManager[None]:
        """Hold the lock of a runner, however long it runs; Running where another one holds it."""

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Hold the write lock of a name for some milliseconds; Locked where it cannot be had.

        A thread may hold it twice. Who writes below a folder that has a lock holds it, always: expectations are then
        checked under it.
        """


def write_all(store: Store, files: Mapping[str, bytes]) -> None:
    """Put bytes under several keys: at once where the store knows how, else one by one."""
    at_once = getattr(store, "write_all", None)
    if at_once is not None:
        at_once(files)
        return
    for key, data in files.items():
        store.write(key, data)


def cache_of(store: Store) -> Store:
    """Return where to keep what can be computed again: this machine's own place if the store has one, else itself."""
    found: Store = getattr(store, "cache", store)
    return found


def bytes_digest(data: bytes) -> str:
    """The digest of bytes, as `write` returns it."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def check_key(key: str) -> str:
    """Refuse a key that could leave the base folder or hide in it."""
    if _KEY.fullmatch(key) is None:
        raise InvalidArgument("key", key, "names with / between them, none empty or with a leading dot")
    return key


def check_prefix(prefix: str) -> str:
    """Refuse a prefix that is not empty and not a folder's."""
    if prefix and not prefix.endswith("/"):
        raise InvalidArgument("prefix", prefix, "nothing, or a folder with / at its end")
    return check_key(prefix[:-1]) + "/" if prefix else ""


def check_folder(prefix: str) -> str:
    """Refuse a prefix that is not a folder's own: the whole store is none."""
    if not prefix:
        raise InvalidArgument("prefix", prefix, "a folder with / at its end")
    return check_prefix(prefix)


def check_files(files: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """The keys and bytes of a new folder, refused one by one as they come."""
    for key, data in files:
        check_key(key.removesuffix("/"))
        if data and key.endswith("/"):
            raise InvalidArgument("key", key, "a key without / at its end, since it has bytes")
        yield key, data


def check_line(line: bytes) -> bytes:
    """Refuse to append what is not exactly one line."""
    if not line.endswith(b"\n") or line.count(b"\n") != 1:
        raise InvalidArgument("line", line, "bytes with one line end, at the end")
    return line


def check_precondition(key: str, expect: str, found: str | None) -> None:
    """Raise Conflict where what is there is not what the writer expects."""
    if expect not in (ANY, found or ABSENT):
        raise WriteConflict(key, expect, found or ABSENT)
