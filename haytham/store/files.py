"""A store in a folder: the only place that writes session data to disk.

A write is a temporary file in the same folder, fsync, replace, fsync of the folder: a reader sees the old bytes or
the new ones, whatever is killed when. Names with a leading dot are never keys: temporary files, locks, editors' files.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import stat
import threading
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from haytham import clock
from haytham.errors import InvalidValue, Locked, NotThere, Running
from haytham.store.owner import HOST, NOBODY, read_owner
from haytham.store.protocol import ANY, bytes_digest, check_expected, check_key, check_line, check_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from haytham.store.owner import Owner

log = logging.getLogger(__name__)

_TEMPORARY = ".haytham-"
_LOCKS = ".locks"
_ALL = ""
_PATIENCE = 60.0
_POLL = 0.002
_FRESH = 2.0
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


class _Own(threading.local):
    """What a thread has of its own: the names of the locks it holds."""

    def __init__(self) -> None:
        self.held: list[str] = []


class FileStore:
    """Bytes under keys, each a file below one base folder; a link that leads out of it is refused."""

    def __init__(self, base_dir: str | os.PathLike[str]) -> None:
        if not isinstance(base_dir, str | os.PathLike) or "\0" in os.fspath(base_dir):
            raise InvalidValue("base folder", base_dir, "the path of a folder")
        self.base = Path(os.path.realpath(base_dir))
        if os.path.lexists(self.base) and not self.base.is_dir():
            raise InvalidValue("base folder", str(base_dir), "a folder; this is a file")
        self._root = str(self.base)
        self._own = _Own()

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """The bytes of a file, or the first of them."""
        path, is_there = self._find(key)
        if not is_there:
            raise NotThere("document", key)
        try:
            handle = os.open(path, _READ)
        except FileNotFoundError:  # it went away in between
            raise NotThere("document", key) from None
        try:
            about = os.fstat(handle)
            if not stat.S_ISREG(about.st_mode):
                raise InvalidValue("key", key, "a file; this is a folder, a pipe or a device")
            return _read_all(handle, about.st_size if limit is None else min(limit, about.st_size))
        finally:
            os.close(handle)

    def write(self, key: str, data: bytes, *, expect: str = ANY) -> str:
        """Replace a file, all or nothing, where what is there is as expected."""
        path = self._name(key)
        folder = path.rpartition("/")[0]
        temporary = _write_temporary(folder, data)
        try:
            self._put(key, temporary, path, expect)
        except BaseException:
            _remove(temporary)
            raise
        _sync_folder(folder)
        return bytes_digest(data)

    def append(self, key: str, line: bytes) -> None:
        """Add a line to a file, whole or not at all; a line that a crash cut off is ended first."""
        path = self._name(key)
        folder = path.rpartition("/")[0]
        _make_folder(folder)
        with self._lock(_ALL):
            is_new = not os.path.lexists(path)
            _append_line(path, check_line(line))
        if is_new:
            _sync_folder(folder)

    def delete(self, key: str) -> None:
        """Remove a file, or a folder with all it holds: out of sight at once, then for good."""
        path = self._name(key.removesuffix("/"))
        folder = path.rpartition("/")[0]
        gone = f"{folder}/{_TEMPORARY}{secrets.token_hex(8)}"
        if key.endswith("/") != Path(path).is_dir():
            return
        with suppress(FileNotFoundError, NotADirectoryError):
            os.rename(path, gone)
            _sync_folder(folder)
            _remove(gone)

    def keys(self, prefix: str = "", *, depth: int | None = None) -> list[str]:
        """The files below a folder, sorted; names with a leading dot are none."""
        start = check_prefix(prefix)
        return sorted(start + name for name in _walk(self._folder(start), "", depth))

    def prepare(self, prefix: str) -> None:
        """Make a folder, and sweep the temporary files that killed writers left in it."""
        folder = self._folder(check_prefix(prefix))
        _make_folder(folder)
        for entry in os.scandir(folder):
            if entry.name.startswith(_TEMPORARY):
                _remove(entry.path)

    def holds(self, prefix: str) -> bool:
        """Whether a folder is there, be it empty."""
        return os.path.isdir(self._folder(check_prefix(prefix)))

    def stamp(self, key: str) -> object | None:
        """Identity, size and times of a file; None for one that changed a moment ago, as clocks of disks are coarse."""
        try:
            about = os.stat(self._name(key))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if clock.seconds() - max(about.st_mtime, about.st_ctime) < _FRESH:
            return None
        return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns

    def close(self) -> None:
        """Nothing is held open between calls."""

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the write lock of a name; it is let go when the process dies."""
        if name in self._own.held:
            yield
            return
        with self._lock(f"{check_key(name)}/"):
            self._own.held.append(name)
            try:
                yield
            finally:
                self._own.held.remove(name)

    @contextmanager
    def run_lock(self, name: str) -> Iterator[None]:
        """Hold the lock of a runner, however long it runs; Running, with who holds it, where another one does.

        It is let go when the process dies. One that a process of another host left behind is never taken over.
        """
        from filelock import FileLock, Timeout  # noqa: PLC0415 - who only reads need not load it

        note = self._note(name)
        _make_folder(note.rpartition("/")[0])
        lock = FileLock(f"{note.rpartition('/')[0]}/.run", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise Running(name, str(read_owner(note) or NOBODY)) from None
        try:
            owner = read_owner(note)
            if owner is not None and not owner.is_here:
                raise Running(name, str(owner))
            Path(note).write_text(f"{os.getpid()}\n{HOST}\n{clock.now()}\n", encoding="utf-8")
            try:
                yield
            finally:
                _remove(note)
        finally:
            lock.release()

    def runner(self, name: str) -> Owner | None:
        """Who runs now, as far as can be told without taking the lock."""
        owner = read_owner(self._note(name))
        return owner if owner is not None and owner.lives else None

    def _note(self, name: str) -> str:
        return f"{self._root}/{_LOCKS}/{check_key(name)}/.runner"

    @contextmanager
    def _lock(self, folder: str) -> Iterator[None]:
        """Hold the lock file of a folder, whose own name no key can have."""
        from filelock import FileLock, Timeout  # noqa: PLC0415 - who only reads need not load it

        path = f"{self._root}/{_LOCKS}/{folder}.lock"
        _make_folder(path.rpartition("/")[0])
        lock = FileLock(path, timeout=_PATIENCE, poll_interval=_POLL)
        try:
            lock.acquire()
        except Timeout:
            raise Locked(folder.rstrip("/") or "the store", _PATIENCE) from None
        try:
            yield
        finally:
            lock.release()

    def _name(self, key: str) -> str:
        return self._find(key)[0]

    def _find(self, key: str) -> tuple[str, bool]:
        """The path of a key, below the base folder with all links followed, and whether anything is there."""
        path = self._root
        for part in check_key(key).split("/"):
            path = f"{path}/{part}"
            try:
                is_link = stat.S_ISLNK(os.lstat(path).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                return f"{self._root}/{key}", False
            if is_link and not Path(os.path.realpath(path)).is_relative_to(self.base):
                raise InvalidValue("key", key, f"no link that leads out of {self.base}")
        return path, True

    def _folder(self, prefix: str) -> str:
        return self._name(prefix[:-1]) if prefix else self._root

    def _put(self, key: str, temporary: str, path: str, expect: str) -> None:
        if expect == ANY:
            os.replace(temporary, path)
            return
        with self._alone(key):
            check_expected(key, expect, self._found(key))
            os.replace(temporary, path)

    def _alone(self, key: str) -> AbstractContextManager[None]:
        """Keep other writers of a key away: by the lock its writer holds already, else by one for all keys."""
        covered = any(key.startswith(f"{name}/") for name in self._own.held)
        return nullcontext() if covered else self._lock(_ALL)

    def _found(self, key: str) -> str | None:
        try:
            return bytes_digest(self.read(key))
        except FileNotFoundError:
            return None


def _write_temporary(folder: str, data: bytes) -> str:
    """A new file with these bytes, on the disk, under a name that is no key."""
    temporary = f"{folder}/{_TEMPORARY}{secrets.token_hex(8)}"
    try:
        file = os.open(temporary, _CREATE, 0o666)
    except FileNotFoundError:
        _make_folder(folder)
        file = os.open(temporary, _CREATE, 0o666)
    try:
        _write_all(file, data)
        os.fsync(file)
    except BaseException:
        _remove(temporary)
        raise
    finally:
        os.close(file)
    return temporary


def _make_folder(folder: str) -> None:
    """Make a folder and what is missing above it, to stay."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    _make_folder(parent)
    with suppress(FileExistsError):
        os.mkdir(folder)
        _sync_folder(parent)


def _remove(path: str) -> None:
    """Remove a file or a folder; who else removes it at the same time is welcome to."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, onerror=_unless_gone)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _unless_gone(_call: object, _path: str, about: tuple[type[BaseException], BaseException, object]) -> None:
    if not isinstance(about[1], FileNotFoundError):
        raise about[1]


def _read_all(file: int, size: int) -> bytes:
    """The first bytes of a file, as many as it had when it was opened."""
    data = os.read(file, size)
    while len(data) < size and (more := os.read(file, size - len(data))):
        data += more
    return data


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _append_line(path: str, line: bytes) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
    try:
        size = os.lseek(file, 0, os.SEEK_END)
        ended = not size or os.lseek(file, size - 1, os.SEEK_SET) < 0 or os.read(file, 1) == b"\n"
        try:
            _write_all(file, line if ended else b"\n" + line)
            os.fsync(file)
        except OSError:
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


def _sync_folder(folder: str) -> None:
    if os.name == "nt":  # a folder cannot be opened there, and need not be
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _walk(folder: str, start: str, depth: int | None) -> Iterator[str]:
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
            try:
                yield from _walk(entry.path, f"{start}{entry.name}/", None if depth is None else depth - 1)
            except PermissionError as error:
                log.warning("a folder cannot be read and is passed over: %s", error)
