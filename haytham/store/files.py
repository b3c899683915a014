"""A store in a folder: the only place that writes session data to disk.

A write is a temporary file in the same folder, fsync, replace, fsync of the folder: a reader sees the old bytes or
the new ones, whatever is killed when. Names with a leading dot are never keys: temporary files, locks, editors' files.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from haytham.errors import InvalidValue, Locked, NotThere
from haytham.store.protocol import ANY, bytes_digest, check_expected, check_key, check_line, check_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_TEMPORARY = ".haytham-"
_LOCKS = ".locks"
_ALL = ".all.lock"
_PATIENCE = 60.0
_POLL = 0.002
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


class FileStore:
    """Bytes under keys, each a file below one base folder; a link that leads out of it is refused."""

    def __init__(self, base_dir: str | os.PathLike[str]) -> None:
        self.base = Path(os.path.realpath(base_dir))

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """The bytes of a file, or the first of them."""
        try:
            handle = os.open(self._path(key), _READ)
        except (FileNotFoundError, NotADirectoryError):
            raise NotThere("document", key) from None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise InvalidValue("key", key, "a file; this is a folder, a pipe or a device")
            return _read_all(handle, limit)
        finally:
            os.close(handle)

    def write(self, key: str, data: bytes, *, expect: str = ANY) -> str:
        """Replace a file, all or nothing, where what is there is as expected."""
        path = self._path(key)
        temporary = _write_temporary(path.parent, data)
        try:
            self._put(key, temporary, path, expect)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
        return bytes_digest(data)

    def append(self, key: str, line: bytes) -> None:
        """Add a line to a file, whole or not at all; a line that a crash cut off is ended first."""
        path = self._path(key)
        check_line(line)
        _make_folder(path.parent)
        with self._lock(self.base / _LOCKS / _ALL), path.open("ab+", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                line = b"\n" + line
            try:
                _write_all(file.fileno(), line)
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)
                raise
        if not size:
            _sync_folder(path.parent)

    def delete(self, key: str) -> None:
        """Remove a file, or a folder with all it holds: out of sight at once, then for good."""
        path = self._path(key.removesuffix("/"))
        gone = path.parent / f"{_TEMPORARY}{secrets.token_hex(8)}"
        if key.endswith("/") != path.is_dir():
            return
        with suppress(FileNotFoundError, NotADirectoryError):
            path.rename(gone)
            _sync_folder(path.parent)
            _remove(gone)

    def keys(self, prefix: str = "", *, depth: int | None = None) -> list[str]:
        """The files below a folder, sorted; names with a leading dot are none."""
        start = check_prefix(prefix)
        folder = self._path(start[:-1]) if start else self.base
        return sorted(start + name for name in _walk(folder, "", depth))

    def prepare(self, prefix: str) -> None:
        """Make a folder, and sweep the temporary files that killed writers left in it."""
        start = check_prefix(prefix)
        folder = self._path(start[:-1]) if start else self.base
        _make_folder(folder)
        for path in folder.iterdir():
            if path.name.startswith(_TEMPORARY):
                _remove(path)

    def close(self) -> None:
        """Nothing is held open between calls."""

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Hold the write lock of a name; it is let go when the process dies."""
        return self._lock(self.base / _LOCKS / f"{check_key(name)}.lock")

    @contextmanager
    def _lock(self, path: Path) -> Iterator[None]:
        from filelock import FileLock, Timeout  # noqa: PLC0415 - who only reads need not load it

        _make_folder(path.parent)
        lock = FileLock(path, timeout=_PATIENCE, poll_interval=_POLL)
        try:
            lock.acquire()
        except Timeout:
            raise Locked(str(path), _PATIENCE) from None
        try:
            yield
        finally:
            lock.release()

    def _path(self, key: str) -> Path:
        """The path of a key; below the base folder, links included."""
        path = str(self.base)
        for part in check_key(key).split("/"):
            path = f"{path}{os.sep}{part}"
            try:
                is_link = stat.S_ISLNK(os.lstat(path).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                break
            if is_link and not Path(os.path.realpath(path)).is_relative_to(self.base):
                raise InvalidValue("key", key, f"no link that leads out of {self.base}")
        return self.base / key

    def _put(self, key: str, temporary: Path, path: Path, expect: str) -> None:
        if expect == ANY:
            temporary.replace(path)
            return
        with self._lock(self.base / _LOCKS / _ALL):
            check_expected(key, expect, self._found(key))
            temporary.replace(path)

    def _found(self, key: str) -> str | None:
        try:
            return bytes_digest(self.read(key))
        except FileNotFoundError:
            return None


def _write_temporary(folder: Path, data: bytes) -> Path:
    """A new file with these bytes, on the disk, under a name that is no key."""
    temporary = folder / f"{_TEMPORARY}{secrets.token_hex(8)}"
    try:
        file = os.open(temporary, _CREATE, 0o666)
    except FileNotFoundError:
        _make_folder(folder)
        file = os.open(temporary, _CREATE, 0o666)
    try:
        _write_all(file, data)
        os.fsync(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)
    return temporary


def _make_folder(folder: Path) -> None:
    """Make a folder and what is missing above it, to stay."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir()
        _sync_folder(folder.parent)


def _remove(path: Path) -> None:
    """Remove a file or a folder; who else removes it at the same time is welcome to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _read_all(file: int, limit: int | None) -> bytes:
    """What a file holds, in one read where it is not growing."""
    left = os.fstat(file).st_size + 1 if limit is None else limit
    parts = [os.read(file, left)]
    while parts[-1] and (limit is None or sum(map(len, parts)) < limit):
        parts.append(os.read(file, left if limit is None else limit - sum(map(len, parts))))
    return b"".join(parts)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # a folder cannot be opened there, and need not be
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _walk(folder: Path, start: str, depth: int | None) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if not entry.is_dir(follow_symlinks=False):
            yield start + entry.name
        elif depth is None or depth > 1:
            yield from _walk(Path(entry.path), f"{start}{entry.name}/", None if depth is None else depth - 1)
