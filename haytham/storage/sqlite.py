"""A store in one SQLite file: for history that many threads and processes write to, and that is moved as one file.

Each call is one transaction, on the disk before it returns. A file that is no such store is refused and left as it is,
and so is one with a link beside it that would make SQLite write elsewhere.
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
from haytham.storage.base import (
    ANY,
    Append,
    Batch,
    Delete,
    Write,
    bytes_digest,
    check_batch,
    check_folder,
    check_key,
    check_line,
    check_precondition,
    check_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PATIENCE = 60.0
_POLL = 0.002
_ENTRY = "entry (key TEXT PRIMARY KEY NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL)"
_TABLES = "SELECT sql FROM sqlite_master WHERE name NOT GLOB 'sqlite_*'"
_FIND = "SELECT rowid FROM entry WHERE key = ?"
_GET = "SELECT data FROM entry WHERE key = ?"
_PUT = (  # a version is random: a counter would begin again after a delete
    "INSERT INTO entry VALUES (?, ?, random())"
    " ON CONFLICT (key) DO UPDATE SET data = excluded.data, version = excluded.version"
)
_REMOVE = "DELETE FROM entry WHERE key = ?"
_REMOVE_BELOW = "DELETE FROM entry WHERE key >= ? AND key < ?"
_VERSION = "SELECT version FROM entry WHERE key = ?"
_VERSIONS_BELOW = "SELECT key, version FROM entry WHERE key >= ? AND key < ? ORDER BY key"
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
            pass  # a wrong path is an error here, and not in the first call

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """Return the bytes of a row, or only the first of them, without loading the others."""
        name = _check_text(key)
        with self._transaction("DEFERRED") as connection:
            row = connection.execute(_FIND, (name,)).fetchone()
            if row is None:
                raise NotFound("document", key)
            with connection.blobopen("entry", "data", row[0], readonly=True) as blob:
                return blob.read(-1 if limit is None else limit)

    def write(self, key: str, data: bytes, *, expect: str = ANY) -> str:
        """Write a row if the present bytes are as expected."""
        return self.commit(Batch((Write(key, data, expect),)))[key]

    def append(self, key: str, line: bytes) -> None:
        """Append a line to a row."""
        self.commit(Batch(appends=(Append(key, check_line(line)),)))

    def delete(self, key: str) -> None:
        """Delete a row, or all rows of a folder."""
        self.commit(Batch(deletes=(Delete(key),)))

    def commit(self, batch: Batch) -> dict[str, str]:
        """Apply a batch in one transaction."""
        check_batch(batch)
        digests = {change.key: bytes_digest(change.data) for change in batch.writes}
        for key in batch.changed_keys():
            _check_text(key.removesuffix("/"))
        with self._transaction() as connection:
            for key, expect in batch.expectations().items():
                row = connection.execute(_GET, (key,)).fetchone()
                check_precondition(key, expect, bytes_digest(row[0]) if row else None)
            connection.executemany(_PUT, [(change.key, memoryview(change.data)) for change in batch.writes])
            for key, lines in batch.appends:
                row = connection.execute(_GET, (key,)).fetchone()
                connection.execute(_PUT, (key, row[0] + lines if row else lines))
            for change in batch.deletes:
                is_folder = change.key.endswith("/")
                bounds: tuple[object, ...] = _bounds(change.key) if is_folder else (change.key,)
                connection.execute(_REMOVE_BELOW if is_folder else _REMOVE, bounds)
        return digests

    def versions(self, prefix: str = "", *, folders: Iterable[str] | None = None) -> dict[str, object | None]:
        """Return the versions of the rows of a folder, from one query."""
        start = check_prefix(prefix)
        within = None if folders is None else tuple(start + check_folder(folder) for folder in folders)
        with self._transaction("DEFERRED") as connection:
            rows = connection.execute(_VERSIONS_BELOW, _bounds(start)).fetchall()
        return {
            key: version
            for key, version in rows
            if within is None or key.startswith(within) or "/" not in key[len(start) :]
        }

    def change_token(self, key: str) -> object | None:
        """Return the version of a row."""
        name = _check_text(key)
        with self._transaction("DEFERRED") as connection:
            row = connection.execute(_VERSION, (name,)).fetchone()
        return row[0] if row else None

    def keys(self, prefix: str = "", *, depth: int | None = None) -> list[str]:
        """Return the keys of a folder, sorted; only the index is read."""
        start = check_prefix(prefix)
        with self._transaction("DEFERRED") as connection:
            below = [row[0] for row in connection.execute(_KEYS_BELOW, _bounds(start))]
        return [key for key in below if depth is None or key.count("/", len(start)) < depth]

    def ensure_folder(self, prefix: str) -> None:
        """Do nothing: rows need no folder, and SQLite itself removes what a crash left."""
        check_prefix(prefix)

    def close(self) -> None:
        """Close the database; a closed store refuses all other calls."""
        with self._guard:
            self._is_closed = True
            _close(self._connections)

    @property
    def _guard(self) -> threading.Lock:
        return self._guards.setdefault(os.getpid(), threading.Lock())

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Have exclusive use of the connection of this process; raise SQLite's errors as those of a store."""
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
        """Run one transaction, which an error rolls back."""
        with self._open() as connection:
            connection.execute(f"BEGIN {kind}")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")


def _connect(path: Path) -> sqlite3.Connection:
    """Open a database; create it if it is missing."""
    _check_path(path)
    atomic.make_folder(str(path.parent))
    connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        _set_up_in_time(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_path(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise InvalidArgument("database", str(path), "the path of a file; this is a folder, a pipe or a device")
    if any(Path(f"{path}{tail}").is_symlink() for tail in _BESIDE):
        raise InvalidArgument(
            "database", str(path), f"a file with no link beside it that ends in {' or '.join(_BESIDE)}"
        )


def _set_up_in_time(path: Path, connection: sqlite3.Connection) -> None:
    """Set up a database; SQLite does not wait by itself for another process that sets up the same new one."""
    begun = clock.monotonic()
    while True:
        try:
            return _set_up(path, connection)
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or clock.monotonic() - begun > _PATIENCE:
                raise
        time.sleep(_POLL)


def _set_up(path: Path, connection: sqlite3.Connection) -> None:
    """Create the table of a new database; raise if an existing one is no store, and leave it as it is."""
    tables = [row[0] for row in connection.execute(_TABLES)]
    if tables not in ([], [f"CREATE TABLE {_ENTRY}"]):
        raise InvalidArgument("database", str(path), "one that is a store; this one has tables of something else")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if not tables:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {_ENTRY}")


def _close(connections: dict[int, sqlite3.Connection]) -> None:
    """Close the connection of this process, if there is one."""
    connection = connections.pop(os.getpid(), None)
    if connection is not None:
        connection.close()


def _error_of(path: Path, error: sqlite3.Error) -> Exception:
    """Return the error that other stores raise in the same case."""
    if _is_busy(error):
        return LockTimeout(str(path), _PATIENCE)
    code = _code(error)
    if code in _NOT_OURS:
        return InvalidArgument("database", str(path), f"a SQLite database that is whole and can be opened ({error})")
    return OSError(_ERRNO.get(code, errno.EIO), str(error), str(path))


def _is_busy(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary code of an error."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _check_text(key: str) -> str:
    """Return a key; raise if no column of text can hold it."""
    try:
        check_key(key).encode()
    except UnicodeEncodeError:
        raise InvalidArgument("key", key, "text that UTF-8 can hold") from None
    return key


def _bounds(prefix: str) -> tuple[str, str | bytes]:
    """Return the first key of a folder, and the first beyond it; SQLite sorts any bytes after all text."""
    return (prefix, _check_text(prefix[:-1]) + chr(ord("/") + 1)) if prefix else ("", b"")
