"""Who holds a run lock: whether it is held is decided by the lock itself, the note beside it is for people only.

A store in a folder: keys, links and locks; `disk` beside it does the writing. Nothing else writes session data.

A write is a temporary file, fsync, replace, fsync of the folder: a reader sees the old bytes or the new ones, whatever
is killed when. Names with a leading dot are never keys. Locks, caches and temporary files are in `.haytham/` of the
base folder, which git ignores; where a folder is a mount of its own, temporary files are beside what they replace.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
import threading
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from haytham import clock
from haytham.errors import AlreadyRunning, InvalidArgument, LockTimeout, NotFound, SymbolicLink, WriteConflict
from haytham.storage import atomic
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
    from contextlib import AbstractContextManager

HOST = socket.gethostname()


@dataclass(frozen=True)
class LockOwner:
    """The process that took a run lock: its number, its host, and since when."""

    process: str
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.process} on host {self.host} since {self.since}"


NOBODY = LockOwner("?", "?", "?")


def read_owner(note: str) -> LockOwner | None:
    """What a note says; None where there is none, or one that was cut off."""
    try:
        process, host, since, *_ = Path(note).read_text(encoding="utf-8").split("\n")
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return LockOwner(process, host, since)


def is_held(lock_file: str) -> bool:
    """Return whether a process holds a lock file, by asking the system for a shared lock for an instant."""
    try:
        import fcntl  # noqa: PLC0415 - not on every system
    except ImportError:
        return _is_held_exclusively(lock_file)
    try:
        with Path(lock_file).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no such file, or one that may not be read: no lock that anybody could name
        return False
    return False


def _is_held_exclusively(lock_file: str) -> bool:
    from filelock import FileLock, Timeout  # noqa: PLC0415 - only where the system has no shared locks

    try:
        FileLock(lock_file, timeout=0).acquire().lock.release()
    except Timeout:
        return True
    except OSError:
        return False
    return False


_LOCAL = ".haytham"
_LOCKS, _CACHE, _TEMPORARY = "locks", "cache", "tmp"
_ABANDONED = 24 * 60 * 60.0  # seconds after which a temporary file has no writer any more
_ALL = ""
_PATIENCE = 60.0
_POLL = 0.002
_FRESH = 2.0
_PROBE = 0.5  # seconds; longer than anybody takes who only asks whether a run lock is held


class HeldLocks(threading.local):
    """What a thread has of its own: the names of the locks it holds."""

    def __init__(self) -> None:
        self.held: list[str] = []


class FileStore:
    """Bytes under keys, each a file below one base folder. The base may be a symbolic link; nothing below it may."""

    def __init__(self, base_dir: str | os.PathLike[str]) -> None:
        if not isinstance(base_dir, str | os.PathLike) or "\0" in os.fspath(base_dir):
            raise InvalidArgument("base folder", base_dir, "the path of a folder")
        self.base = Path(os.path.realpath(base_dir))
        if os.path.lexists(self.base) and not self.base.is_dir():
            raise InvalidArgument("base folder", str(base_dir), "a folder; this is a file")
        self._root = str(self.base)
        self._own = HeldLocks()

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """The bytes of a file, or the first of them."""
        path, is_there = self._find(key)
        if not is_there:
            raise NotFound("document", key)
        try:
            data = atomic.read_file(path, limit)
        except FileNotFoundError:  # it went away in between
            raise NotFound("document", key) from None
        if data is None:
            raise InvalidArgument("key", key, "a file; this is a folder, a pipe or a device")
        return data

    def write(self, key: str, data: bytes, *, expect: str = ANY) -> str:
        """Replace a file, all or nothing, where what is there is as expected."""
        path = self._name(key)
        folder = path.rpartition("/")[0]
        temporary = self._write_temporary(self._temporaries(), folder, data)
        try:
            self._look(folder)
            self._put(key, temporary, path, expect)
        except BaseException:
            atomic.remove(temporary)
            raise
        atomic.sync_folder(folder)
        return bytes_digest(data)

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Replace several files, each all or nothing; their folders are synced once, at the end."""
        seen: set[str] = set()
        paths = {self._find(key, seen)[0]: data for key, data in files.items()}
        room, temporaries = self._temporaries(), dict[str, str]()
        try:
            for path, data in paths.items():
                temporaries[path] = self._write_temporary(room, path.rpartition("/")[0], data)
            for folder in {path.rpartition("/")[0] for path in temporaries}:
                self._look(folder)
            for path, temporary in temporaries.items():
                atomic.replace_file(temporary, path)
        except BaseException:
            for temporary in temporaries.values():
                atomic.remove(temporary)
            raise
        for folder in {path.rpartition("/")[0]: None for path in paths}:
            atomic.sync_folder(folder)

    def write_folder(self, prefix: str, files: Iterable[tuple[str, bytes]]) -> None:
        """Write a new folder under a temporary name, whole and synced, then give it its own name."""
        folder = self._name(check_folder(prefix)[:-1])
        parent = folder.rpartition("/")[0]
        self._check_free(prefix, folder)
        atomic.make_folder(parent)
        temporary = atomic.temporary_name(self._temporaries(), self._mark(parent))
        try:
            atomic.write_tree(temporary, check_files(files))
            self._look(folder)
            self._name_folder(prefix, temporary, folder)
        except BaseException:
            atomic.remove(temporary)
            raise

    def append(self, key: str, line: bytes) -> None:
        """Add a line to a file, whole or not at all; a line that a crash cut off is ended first."""
        path = self._name(key)
        folder = path.rpartition("/")[0]
        atomic.make_folder(folder)
        with self._lock(_ALL):
            is_new = not os.path.lexists(path)
            atomic.append_line(path, check_line(line), check=partial(self._check_same, path))
        if is_new:
            atomic.sync_folder(folder)

    def delete(self, key: str) -> None:
        """Remove a file, or a folder with all it holds: out of sight at once, then for good."""
        path = self._name(key.removesuffix("/"))
        folder = path.rpartition("/")[0]
        if key.endswith("/") != Path(path).is_dir() or not os.path.lexists(path):
            return
        temporary = atomic.temporary_name(self._temporaries(), self._mark(folder))
        with suppress(FileNotFoundError, NotADirectoryError):
            moved = atomic.move_away(path, temporary)
            atomic.sync_folder(folder)
            atomic.remove(moved)

    def keys(self, prefix: str = "", *, depth: int | None = None, empty: bool = False) -> list[str]:
        """The files below a folder, sorted; names with a leading dot are none."""
        start = check_prefix(prefix)
        found = atomic.walk(self._folder(start), depth=depth, empty=empty)
        return sorted([start + name for name in found] if start else found)

    def folders(self, prefix: str = "") -> list[str]:
        """The names of the folders in a folder, sorted; a link to a folder is none."""
        return sorted(atomic.subfolders(self._folder(check_prefix(prefix))))

    def ensure_folder(self, prefix: str) -> None:
        """Make a folder, and sweep the temporary files that killed writers left in it."""
        folder = self._folder(check_prefix(prefix))
        atomic.make_folder(folder)
        atomic.remove_temp_files(folder)
        temporaries = self._local_path(_TEMPORARY)
        if os.path.isdir(temporaries) and os.listdir(temporaries):
            atomic.remove_temp_files(temporaries, self._mark(folder), before=clock.timestamp() - _ABANDONED)

    def has_folder(self, prefix: str) -> bool:
        """Whether a folder is there, be it empty."""
        return os.path.isdir(self._folder(check_prefix(prefix)))

    def is_regular(self, key: str) -> bool:
        """Whether a file is there that is no link, and is not reached through one."""
        try:
            about = self._look(f"{self._root}/{check_key(key)}")
        except SymbolicLink:
            return False
        return about is not None and stat.S_ISREG(about.st_mode)

    def change_token(self, key: str) -> object | None:
        """Identity, size and times of a file; None for a link, and for what changed a moment ago: clocks are coarse.

        Folders above it are not checked for links: bytes get here through `read`, which checks them.
        """
        try:
            about = os.lstat(f"{self._root}/{check_key(key)}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(about.st_mode) or clock.timestamp() - max(about.st_mtime, about.st_ctime) < _FRESH:
            return None
        return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns

    def write_setting(self, name: str, data: bytes) -> None:
        """Write a file with a leading dot in the base folder, which is no key; one that is there stays as it is."""
        path = f"{self._root}/.{check_key(name)}"
        if os.path.lexists(path):
            return
        with self._lock(_ALL):
            if not os.path.lexists(path):
                atomic.remove_temp_files(self._temporaries(), self._mark(path))
                temporary = atomic.temporary_name(self._temporaries(), self._mark(path))
                atomic.write_temporary(temporary, data)
                try:
                    atomic.replace_file(temporary, path)
                except BaseException:
                    atomic.remove(temporary)
                    raise

    @property
    def cache(self) -> FileStore:
        """The store of what can be computed again, on this machine only."""
        return FileStore(self._local_path(_CACHE))

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

        The system releases it when the process dies. The note beside it only tells people who holds it.
        """
        from filelock import FileLock, Timeout  # noqa: PLC0415 - who only reads need not load it

        note = self._note(name)
        lock = FileLock(self._local(f"{_LOCKS}/{name}/.run"), timeout=_PROBE, poll_interval=_POLL)
        try:
            lock.acquire()
        except Timeout:
            raise AlreadyRunning(name, str(read_owner(note) or NOBODY)) from None
        try:
            note = self._local(f"{_LOCKS}/{name}/.runner")
            Path(note).write_text(f"{os.getpid()}\n{HOST}\n{clock.now()}\n", encoding="utf-8")
            try:
                yield
            finally:
                atomic.remove(note)
        finally:
            lock.release()

    def lock_owner(self, name: str) -> LockOwner | None:
        """Return who holds the run lock, or None if it is free; nothing is written."""
        owner = read_owner(self._note(name))
        return owner if owner is not None and is_held(self._run_file(name)) else None

    def _run_file(self, name: str) -> str:
        run = f"{self._root}/{_LOCAL}/{_LOCKS}/{check_key(name)}/.run"
        self._look(run)
        return run

    def _note(self, name: str) -> str:
        note = f"{self._root}/{_LOCAL}/{_LOCKS}/{check_key(name)}/.runner"
        self._look(note)
        return note

    @contextmanager
    def _lock(self, folder: str) -> Iterator[None]:
        """Hold the lock file of a folder, whose own name no key can have."""
        from filelock import FileLock, Timeout  # noqa: PLC0415 - who only reads need not load it

        path = self._local(f"{_LOCKS}/{folder}.lock")
        lock = FileLock(path, timeout=_PATIENCE, poll_interval=_POLL)
        try:
            lock.acquire()
        except Timeout:
            raise LockTimeout(folder.rstrip("/") or "the store", _PATIENCE) from None
        try:
            yield
        finally:
            lock.release()

    def _local(self, name: str) -> str:
        """Return the path of a file of this machine's own, and make its folder; SymbolicLink where a part is one."""
        path = self._local_path(name)
        self._make_local(path.rpartition("/")[0])
        return path

    def _local_path(self, name: str) -> str:
        path = f"{self._root}/{_LOCAL}/{name}"
        self._look(path)
        return path

    def _make_local(self, folder: str) -> None:
        if not os.path.isdir(folder):
            atomic.make_folder(self._root)
            os.makedirs(folder, exist_ok=True)
            ignored = f"{self._root}/{_LOCAL}/.gitignore"
            if not os.path.lexists(ignored):
                Path(ignored).write_bytes(b"*\n")

    def _temporaries(self) -> str:
        """Return the folder of temporary files, and make it."""
        folder = self._local_path(_TEMPORARY)
        self._make_local(folder)
        return folder

    def _mark(self, folder: str) -> str:
        """Return what marks the temporary files of a folder, so that only they are swept under its lock."""
        name = os.fsencode(folder.removeprefix(self._root))
        return f"{hashlib.sha256(name).hexdigest()[:16]}-"

    def _write_temporary(self, temporaries: str, folder: str, data: bytes) -> str:
        """Write a temporary file that will move to a folder, which is made where it is missing; return its path."""
        atomic.make_folder(folder)
        temporary = atomic.temporary_name(temporaries, self._mark(folder))
        atomic.write_temporary(temporary, data)
        return temporary

    def _name(self, key: str) -> str:
        return self._find(key)[0]

    def _find(self, key: str, seen: set[str] | None = None) -> tuple[str, bool]:
        """Return the path of a key, and whether anything is there; raise SymbolicLink where a part of it is a link."""
        path = f"{self._root}/{check_key(key)}"
        return path, self._look(path, seen) is not None

    def _look(self, path: str, seen: set[str] | None = None) -> os.stat_result | None:
        """Return what is at a path below the base, or None; raise SymbolicLink where a part of the path is a link.

        Parts in `seen` were looked at before; those that are no links are added to it. Who writes looks a second time,
        once the temporary file is there: a folder replaced by a link meanwhile is noticed before a name is given.
        """
        end, about = len(self._root), None
        while end < len(path):
            slash = path.find("/", end + 1)
            end = len(path) if slash < 0 else slash
            part = path[:end]
            if seen is not None and part in seen:
                continue
            try:
                about = os.lstat(part)
            except (FileNotFoundError, NotADirectoryError):
                return None
            if stat.S_ISLNK(about.st_mode):
                raise self._link_error(path, part)
            if seen is not None:
                seen.add(part)
        return about

    def _link_error(self, path: str, link: str) -> SymbolicLink:
        key, name = (one.removeprefix(f"{self._root}/") for one in (path, link))
        leads_out = not Path(os.path.realpath(link)).is_relative_to(self.base)
        return SymbolicLink(key, name, self._root if leads_out else "")

    def _check_same(self, path: str, opened: os.stat_result) -> None:
        """Refuse an open file that is not the one at its path, reached without links."""
        about = self._look(path)
        if about is None or not os.path.samestat(about, opened):
            raise OSError(errno.ESTALE, "was replaced while it was opened", path)

    def _folder(self, prefix: str) -> str:
        return self._name(prefix[:-1]) if prefix else self._root

    def _put(self, key: str, temporary: str, path: str, expect: str) -> None:
        if expect == ANY:
            atomic.replace_file(temporary, path)
            return
        with self._alone(key):
            check_precondition(key, expect, self._found(key))
            atomic.replace_file(temporary, path)

    def _alone(self, key: str) -> AbstractContextManager[None]:
        """Keep other writers of a key away: by the lock its writer holds already, else by one for all keys."""
        covered = any(key.startswith(f"{name}/") for name in self._own.held)
        return nullcontext() if covered else self._lock(_ALL)

    def _name_folder(self, prefix: str, temporary: str, folder: str) -> None:
        try:
            atomic.publish_folder(temporary, folder)
        except FileExistsError:  # somebody wrote to it in between
            self._check_free(prefix, folder)
            raise

    def _check_free(self, prefix: str, folder: str) -> None:
        """Raise Conflict where a folder that is to be new holds something."""
        held = atomic.blocking_path(folder)
        if held is not None:
            raise WriteConflict(prefix, ABSENT, held.removeprefix(f"{self._root}/"))

    def _found(self, key: str) -> str | None:
        try:
            return bytes_digest(self.read(key))
        except FileNotFoundError:
            return None
