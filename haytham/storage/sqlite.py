"""A store in one SQLite file: for history that many threads and processes write to, and that is moved as one file.

Each verb is one transaction, on the disk before it returns. A file that is not a store of ours is refused and left as
it is, and so is one with a link beside it that would have SQLite write elsewhere.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from haytham import clock
from haytham.errors import InvalidArgument, LockTimeout, NotFound
from haytham.storage import atomic
from haytham.storage.base import ANY, bytes_digest, check_key, check_line, check_precondition, check_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PATIENCE = 60.0
_POLL = 0.002
_ENTRY = "entry (key TEXT PRIMARY KEY NOT NULL, data BLOB NOT NULL)"
_TABLES = "SELECT sql FROM sqlite_master WHERE name NOT GLOB 'sqlite_*'"
_FIND = "SELECT rowid FROM entry WHERE key = ?"
_GET = "SELECT data FROM entry WHERE key = ?"
_PUT = "INSERT INTO entry VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET data = excluded.data"
_REMOVE = "DELETE FROM entry WHERE key = ?"
_REMOVE_BELOW = "DELETE FROM entry WHERE key >= ? AND key < ?"
_KEYS_BELOW = "SELECT key FROM entry WHERE key >= ? AND key < ? ORDER BY key"
_BESIDE = ("-wal", "-shm", "-journal")
_NOT_OURS = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CANTOPEN)
_ERRNO = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_TOOBIG: errno.EFBIG}


class SqliteStore:
    """Bytes under keys, each a row of one table; threads take turns, processes wait for each other."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike) or "\0" in os.fspath(path):
            raise InvalidArgument("database", path, "the path of a file")
        self.path = Path(os.path.realpath(path))
        self._is_closed = False
        self._guards: dict[int, threading.Lock] = {}
        self._connections: dict[int, sqlite3.Connection] = {}  # by process: a fork must not touch its parent's
        weakref.finalize(self, _close, self._connections)
        with self._open():
            pass  # a wrong path is told here, and not by the first verb

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """The bytes of a row, or only the first of them, without loading the others."""
        name = _check_text(key)
        with self._transaction("DEFERRED") as connection:
            row = connection.execute(_FIND, (name,)).fetchone()
            if row is None:
                raise NotFound("document", key)
            with connection.blobopen("entry", "data", row[0], readonly=True) as blob:
                return blob.read(-1 if limit is None else limit)

    def write(self, key: str, data: bytes, *, expect: str = ANY) -> str:
        """Put a row where what is there is as expected."""
        name, digest = _check_text(key), bytes_digest(data)
        with self._transaction() as connection:
            if expect != ANY:
                there = connection.execute(_GET, (name,)).fetchone()
                check_precondition(key, expect, bytes_digest(there[0]) if there else None)
            connection.execute(_PUT, (name, data))
        return digest

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Put several rows, all or none."""
        rows = [(_check_text(key), memoryview(data)) for key, data in files.items()]
        with self._transaction() as connection:
            connection.executemany(_PUT, rows)

    def append(self, key: str, line: bytes) -> None:
        """Add a line to a row."""
        name, line = _check_text(key), check_line(line)
        with self._transaction() as connection:
            there = connection.execute(_GET, (name,)).fetchone()
            connection.execute(_PUT, (name, there[0] + line if there else line))

    def delete(self, key: str) -> None:
        """Remove a row, or all rows of a folder."""
        name = _check_text(key.removesuffix("/"))
        with self._transaction() as connection:
            if key.endswith("/"):
                connection.execute(_REMOVE_BELOW, _bounds(key))
            else:
                connection.execute(_REMOVE, (name,))

    def keys(self, prefix: str = "", *, depth: int | None = None) -> list[str]:
        """The keys of a folder, in order; only the index is read."""
        start = check_prefix(prefix)
        with self._transaction("DEFERRED") as connection:
            found = [row[0] for row in connection.execute(_KEYS_BELOW, _bounds(start))]
        return [key for key in found if depth is None or key.count("/", len(start)) < depth]

    def ensure_folder(self, prefix: str) -> None:
        """Nothing: a folder need not be made, and what a crash left SQLite clears by itself."""
        check_prefix(prefix)

    def close(self) -> None:
        """Close the database; a closed store refuses all other verbs."""
        with self._guard:
            self._is_closed = True
            _close(self._connections)

    @property
    def _guard(self) -> threading.Lock:
        return self._guards.setdefault(os.getpid(), threading.Lock())

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Have the connection of this process to oneself; what SQLite raises is told in our words."""
        with self._guard:
            if self._is_closed:
                raise InvalidArgument("store", str(self.path), "one that is not closed")
            try:
                if os.getpid() not in self._connections:
                    self._connections[os.getpid()] = _connect(self.path)
                yield self._connections[os.getpid()]
            except sqlite3.Error as error:
                raise _error_of(self.path, error) from error

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """Have the connection for one transaction, which an error undoes."""
        with self._open() as connection:
            connection.execute(f"BEGIN {kind}")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")


def _connect(path: Path) -> sqlite3.Connection:
    """Open a database, and make it where there is none."""
    _check_place(path)
    atomic.make_folder(str(path.parent))
    connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        _set_up_in_time(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_place(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise InvalidArgument("database", str(path), "the path of a file; this is a folder, a pipe or a device")
    if any(Path(f"{path}{tail}").is_symlink() for tail in _BESIDE):
        raise InvalidArgument(
            "database", str(path), f"a file with no link beside it that ends in {' or '.join(_BESIDE)}"
        )


def _set_up_in_time(path: Path, connection: sqlite3.Connection) -> None:
    """Set a database up; SQLite does not wait by itself for who sets up the same new one at the same moment."""
    begun = clock.monotonic()
    while True:
        try:
            return _set_up(path, connection)
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or clock.monotonic() - begun > _PATIENCE:
                raise
        time.sleep(_POLL)


def _set_up(path: Path, connection: sqlite3.Connection) -> None:
    """Make a new database a store; one that holds anything else is not touched."""
    tables = [row[0] for row in connection.execute(_TABLES)]
    if tables not in ([], [f"CREATE TABLE {_ENTRY}"]):
        raise InvalidArgument("database", str(path), "one that is a store; this one has tables of something else")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if not tables:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {_ENTRY}")


def _close(connections: dict[int, sqlite3.Connection]) -> None:
    """Close the connection of this process, where there is one."""
    connection = connections.pop(os.getpid(), None)
    if connection is not None:
        connection.close()


def _error_of(path: Path, error: sqlite3.Error) -> Exception:
    """What SQLite raised, as the error that other stores raise for the same."""
    if _is_busy(error):
        return LockTimeout(str(path), _PATIENCE)
    code = _code(error)
    if code in _NOT_OURS:
        return InvalidArgument("database", str(path), f"a SQLite database that is whole and can be opened ({error})")
    return OSError(_ERRNO.get(code, errno.EIO), str(error), str(path))


def _is_busy(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: sqlite3.Error) -> int:
    """SQLite's number for an error, without what it adds to tell variants apart."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _check_text(key: str) -> str:
    """Refuse a key that no column of text can hold."""
    try:
        check_key(key).encode()
    except UnicodeEncodeError:
        raise InvalidArgument("key", key, "text that UTF-8 can hold") from None
    return key


def _bounds(prefix: str) -> tuple[str, str | bytes]:
    """The first key of a folder, and the first that is beyond it; in SQLite's order any bytes are beyond all text."""
    return (prefix, _check_text(prefix[:-1]) + chr(ord("/") + 1)) if prefix else ("", b"")
