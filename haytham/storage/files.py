"""A store in a folder: keys, batches, links and locks. Nothing else writes session data.

A write is a temporary file, fsync, replace, fsync of the folder: a reader sees the old bytes or the new ones, whatever
is killed when. Names with a leading dot are never keys. Locks, caches and temporary files are in `.haytham/` of the
base folder, which git ignores; in a folder that is a mount, temporary files are beside what they replace.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from haytham import clock
from haytham.errors import AlreadyRunning, InvalidArgument, LockTimeout, NotFound, SymbolicLink, WriteConflict
from haytham.storage import atomic
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
    current_digest,
)
from haytham.storage.journal import JournalFolder
from haytham.storage.locks import (
    HAS_FLOCK,
    NOBODY,
    HeldLocks,
    LockOwner,
    acquire,
    is_held,
    lock_open_file,
    owner_note,
    read_owner,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

_LOCAL = ".haytham"
_LOCKS, _CACHE, _TEMPORARY, _JOURNALS = "locks", "cache", "tmp", "journals"
_ABANDONED = 24 * 60 * 60.0  # seconds after which a temporary file has no writer any more
_ALL = ""
_LOCK_TIMEOUT = 60.0
_RUN_LOCK_TIMEOUT = 0.5  # seconds; longer than a process holds a run lock only to ask whether it is held
_MOST_CHECKED = 4096


class FileStore:
    """Bytes under keys, each a file below one base folder. The base may be a symbolic link; nothing below it may."""

    def __init__(self, base_dir: str | os.PathLike[str]) -> None:
        if not isinstance(base_dir, str | os.PathLike) or "\0" in os.fspath(base_dir):
            raise InvalidArgument("base folder", base_dir, "the path of a folder")
        self.base = Path(os.path.realpath(base_dir))
        if os.path.lexists(self.base) and not self.base.is_dir():
            raise InvalidArgument("base folder", str(base_dir), "a folder; this is a file")
        self._root = str(self.base)
        self._locks = HeldLocks()
        self._checked: dict[str, tuple[int, int]] = {}  # device and inode of folders that no link leads to
        self._cache: FileStore | None = None
        self._journals = JournalFolder(
            self._root, f"{self._root}/{_LOCAL}/{_JOURNALS}", partial(self._check_links, fresh=True)
        )
        self._journals.recover()

    # Reading.

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """Return the bytes of a file, or the first of them."""
        return self._read(key, limit=limit)

    def read_from(self, key: str, offset: int) -> bytes:
        """Return the bytes of a file from an offset on."""
        return self._read(key, offset=offset)

    def size(self, key: str) -> int:
        """Return how many bytes a file has."""
        return os.lstat(f"{self._root}/{check_key(key)}").st_size

    def _read(self, key: str, *, limit: int | None = None, offset: int = 0) -> bytes:
        path = f"{self._root}/{check_key(key)}"
        if not atomic.HAS_NOFOLLOW or not self._was_checked(_parent(path)):
            self._check_links(path if not atomic.HAS_NOFOLLOW else _parent(path))
        try:
            data = atomic.read_file(path, limit, offset)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound("document", key) from None
        except OSError:
            self._check_links(path, fresh=True)  # which tells of a link
            raise
        if data is None:
            raise InvalidArgument("key", key, "a file; this is a folder, a pipe or a device")
        return data

    def keys(self, prefix: str = "", *, depth: int | None = None, empty: bool = False) -> list[str]:
        """Return the files below a folder, sorted; names with a leading dot are none."""
        start = check_prefix(prefix)
        paths = atomic.walk(self._folder(start), depth=depth, empty=empty)
        return sorted([start + path for path in paths] if start else paths)

    def versions(
        self, prefix: str = "", *, folders: Iterable[str] | None = None, empty: bool = False
    ) -> dict[str, object | None]:
        """Return the change tokens of the files below a folder, from one walk with one status a file."""
        start = check_prefix(prefix)
        within = None if folders is None else {check_folder(folder) for folder in folders}
        now = clock.timestamp()
        files = atomic.scan(self._folder(start), within=within, empty=empty)
        return {start + path: None if about is None else atomic.change_token(about, now) for path, about in files}

    def folders(self, prefix: str = "") -> list[str]:
        """Return the names of the folders in a folder, sorted; a link to a folder is none."""
        return sorted(atomic.subfolders(self._folder(check_prefix(prefix))))

    def has_folder(self, prefix: str) -> bool:
        """Return whether a folder exists, be it empty."""
        return os.path.isdir(self._folder(check_prefix(prefix)))

    def is_regular(self, key: str) -> bool:
        """Return whether a file exists that is no link, and is not reached through one."""
        try:
            about = self._check_links(f"{self._root}/{check_key(key)}")
        except SymbolicLink:
            return False
        return about is not None and stat.S_ISREG(about.st_mode)

    def change_token(self, key: str) -> object | None:
        """Return identity, size and times of a file; None for a link, and for one that changed a moment ago.

        Folders above it are not checked for links: its bytes are read through `read`, which checks them.
        """
        try:
            about = os.lstat(f"{self._root}/{check_key(key)}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return atomic.change_token(about, clock.timestamp())

    # Writing.

    def write(self, key: str, data: bytes, *, expect: str = ANY) -> str:
        """Replace a file, all or nothing, if the present bytes are as expected."""
        return self.commit(Batch((Write(key, data, expect),)))[key]

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Replace several files in order, each all or nothing."""
        self.commit(Batch(tuple(Write(key, data) for key, data in files.items())))

    def append(self, key: str, line: bytes) -> None:
        """Append a line to a file, whole or not at all; an incomplete line that a crash left is ended first."""
        self.commit(Batch(appends=(Append(key, check_line(line)),)))

    def delete(self, key: str) -> None:
        """Delete a file, or a folder with everything in it: first its name, then its bytes."""
        self.commit(Batch(deletes=(Delete(key),)))

    def commit(self, batch: Batch) -> dict[str, str]:
        """Apply a batch: write and sync all temporary files, rename them in order, append, delete, sync the folders."""
        check_batch(batch)
        self._journals.settle_below(batch.changed_keys())
        expectations = batch.expectations()
        with self._exclusive(expectations):
            for key, expect in expectations.items():
                check_precondition(key, expect, current_digest(self, key))
            self._apply(batch)
        return {change.key: bytes_digest(change.data) for change in batch.writes}

    def _apply(self, batch: Batch) -> None:
        writes = [(self._target(change.key), change.data) for change in batch.writes]
        appends = [(self._target(change.key), change.lines) for change in batch.appends]
        deletes = [path for change in batch.deletes if (path := self._existing(change.key))]
        made = [self._folder(folder) for folder in batch.folders]
        changed = dict.fromkeys(_parent(path) for path, _ in writes)
        for folder in atomic.make_folders([*made, *changed, *(_parent(path) for path, _ in appends)]):
            atomic.sync_folder(folder)
        if writes:
            self._replace(writes)
        for path, lines in appends:
            if self._append(path, lines):
                changed[_parent(path)] = None
        folders = [self._move_away(path) for path in deletes]
        changed |= dict.fromkeys(map(_parent, deletes))
        for folder in changed:
            if not any(f"{folder}/".startswith(f"{path}/") for path in deletes):
                atomic.sync_folder(folder)
        for folder in folders:
            atomic.remove(folder)
        if folders:
            self._journals.discard(change.key for change in batch.deletes if change.key.endswith("/"))

    def _target(self, key: str) -> str:
        """Return the path of a key to be written; raise if it is a link, or a folder."""
        path = f"{self._root}/{key}"
        about = self._check_links(path, again=True)
        if about is not None and stat.S_ISDIR(about.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return path

    def _existing(self, key: str) -> str | None:
        """Return the path of a key or folder to be deleted; None if there is nothing of that kind."""
        path = f"{self._root}/{key.removesuffix('/')}"
        about = self._check_links(path, again=True)
        return path if about is not None and stat.S_ISDIR(about.st_mode) == key.endswith("/") else None

    def _replace(self, writes: Sequence[tuple[str, bytes]]) -> None:
        """Write all temporary files, sync them together, and rename them in order."""
        room = self._temporaries()
        temporaries = [atomic.temporary_name(room, self._mark(_parent(path))) for path, _ in writes]
        atomic.write_temporaries([(name, data) for name, (_, data) in zip(temporaries, writes, strict=True)])
        try:
            self._recheck_links(path for path, _ in writes)
            for name, (path, _) in zip(temporaries, writes, strict=True):
                atomic.replace_file(name, path)
        except BaseException:
            for name in temporaries:
                atomic.remove(name)
            raise

    def _append(self, path: str, lines: bytes) -> bool:
        """Append lines to a file that no other writer appends to meanwhile; return whether it is new."""
        with nullcontext() if HAS_FLOCK else self._lock(_ALL):
            return atomic.append_lines(path, lines, check=lambda file: self._claim(path, file))

    def _claim(self, path: str, file: int) -> None:
        """Lock an open file against other writers; raise if it is not the one at its path, reached without links."""
        if not lock_open_file(file, _LOCK_TIMEOUT):
            raise LockTimeout(path.removeprefix(f"{self._root}/"), _LOCK_TIMEOUT)
        about = self._check_links(path, fresh=True)
        if about is None or not os.path.samestat(about, os.fstat(file)):
            raise OSError(errno.ESTALE, "was replaced while it was opened", path)

    def _move_away(self, path: str) -> str:
        """Remove a file, or move a folder away; return the path that is left to be removed."""
        if not os.path.isdir(path):
            atomic.remove(path)
            return path
        temporary = atomic.temporary_name(self._temporaries(), self._mark(_parent(path)))
        with suppress(FileNotFoundError, NotADirectoryError):
            return atomic.move_away(path, temporary)
        return temporary

    def write_folder(self, prefix: str, files: Iterable[tuple[str, bytes]]) -> None:
        """Write a new folder under a temporary name, sync one copy of its files, then give it its own name."""
        folder = self._folder(check_folder(prefix))
        self._check_free(prefix, folder)
        atomic.make_folder(_parent(folder))
        temporary = atomic.temporary_name(self._temporaries(), self._mark(_parent(folder)))
        written: list[tuple[str, bytes]] = []
        copy = ""
        try:
            atomic.write_tree(temporary, _recorded(check_files(files), written), durable=False)
            self._make_local(self._local_path(_JOURNALS))
            copy = self._journals.write(prefix, written)
            if not copy:
                atomic.sync_tree(temporary)
            self._check_links(folder, fresh=True)
            self._publish(prefix, temporary, folder)
        except BaseException:
            atomic.remove(temporary)
            if copy:
                atomic.remove(copy)
            raise
        if copy:
            with suppress(OSError):  # the folder itself is written
                self._journals.keep_only(copy)

    def _publish(self, prefix: str, temporary: str, folder: str) -> None:
        try:
            atomic.publish_folder(temporary, folder)
        except FileExistsError:  # another process wrote to it in between
            self._check_free(prefix, folder)
            raise

    def _check_free(self, prefix: str, folder: str) -> None:
        """Raise WriteConflict if a folder that is to be new has something in it."""
        path = atomic.blocking_path(folder)
        if path is not None:
            raise WriteConflict(prefix, ABSENT, path.removeprefix(f"{self._root}/"))

    def ensure_folder(self, prefix: str) -> None:
        """Make a folder, and remove the temporary files that killed writers left in it."""
        folder = self._folder(check_prefix(prefix))
        atomic.make_folder(folder)
        atomic.remove_temp_files(folder)
        temporaries = self._local_path(_TEMPORARY)
        if os.path.isdir(temporaries) and os.listdir(temporaries):
            atomic.remove_temp_files(temporaries, self._mark(folder), before=clock.timestamp() - _ABANDONED)

    def write_setting(self, name: str, data: bytes) -> None:
        """Write a file with a leading dot in the base folder, which is no key; leave one that exists as it is."""
        path = f"{self._root}/.{check_key(name)}"
        if os.path.lexists(path):
            return
        with self._lock(_ALL):
            if not os.path.lexists(path):
                atomic.remove_temp_files(self._temporaries(), self._mark(path))
                temporary = atomic.temporary_name(self._temporaries(), self._mark(path))
                atomic.write_temporaries([(temporary, data)])
                try:
                    atomic.replace_file(temporary, path)
                except BaseException:
                    atomic.remove(temporary)
                    raise

    @property
    def cache(self) -> FileStore:
        """The store of what can be computed again, local to this machine."""
        path = self._local_path(_CACHE)
        if self._cache is None:
            self._cache = FileStore(path)
        return self._cache

    def close(self) -> None:
        """Do nothing: no file is open between calls."""

    # Locks.

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the write lock of a name; the system releases it when the process dies."""
        if name in self._locks.names:
            yield
            return
        self._checked.clear()
        with self._lock(f"{check_key(name)}/"):
            self._locks.names.append(name)
            try:
                yield
            finally:
                self._locks.names.remove(name)

    @contextmanager
    def run_lock(self, name: str) -> Iterator[None]:
        """Hold the lock of a runner, however long it runs; AlreadyRunning, with its owner, if another one does."""
        self._checked.clear()
        note = self._note(name)
        release = self._acquire(f"{_LOCKS}/{name}/.run", _RUN_LOCK_TIMEOUT)
        if release is None:
            raise AlreadyRunning(name, str(read_owner(note) or NOBODY))
        try:
            Path(note).write_bytes(owner_note())
            try:
                yield
            finally:
                atomic.remove(note)
        finally:
            release()

    def lock_owner(self, name: str) -> LockOwner | None:
        """Return who holds the run lock, or None if it is free; nothing is written."""
        owner = read_owner(self._note(name))
        return owner if owner is not None and is_held(self._local_path(f"{_LOCKS}/{name}/.run")) else None

    def _note(self, name: str) -> str:
        return self._local_path(f"{_LOCKS}/{check_key(name)}/.runner")

    @contextmanager
    def _lock(self, folder: str) -> Iterator[None]:
        """Hold the lock file of a folder, which no key can be."""
        release = self._acquire(f"{_LOCKS}/{folder}.lock", _LOCK_TIMEOUT)
        if release is None:
            raise LockTimeout(folder.rstrip("/") or "the store", _LOCK_TIMEOUT)
        try:
            yield
        finally:
            release()

    def _acquire(self, name: str, timeout: float) -> Callable[[], None] | None:
        path = self._local_path(name)
        self._make_local(_parent(path))
        return acquire(path, timeout)

    def _exclusive(self, keys: Iterable[str]) -> AbstractContextManager[None]:
        """Keep other writers of keys away: by locks that this thread holds already, else by the lock of all keys."""
        held = tuple(f"{name}/" for name in self._locks.names)
        return nullcontext() if all(key.startswith(held) for key in keys) else self._lock(_ALL)

    # Files of this machine.

    def _local_path(self, name: str) -> str:
        """Return the path of a file that is local to this machine; raise SymbolicLink if a part of it is a link."""
        path = f"{self._root}/{_LOCAL}/{name}"
        self._check_links(path)
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
        """Return the mark of a folder's temporary files, so that only they are removed under its lock."""
        name = os.fsencode(folder.removeprefix(self._root))
        return f"{hashlib.sha256(name).hexdigest()[:16]}-"

    # Links.

    def _folder(self, prefix: str) -> str:
        """Return the path of a folder; raise SymbolicLink if a part of it is a link."""
        if not prefix:
            return self._root
        path = f"{self._root}/{prefix[:-1]}"
        if not self._was_checked(path):
            self._check_links(path)
        return path

    def _check_links(
        self, path: str, *, fresh: bool = False, again: bool = False, seen: set[str] | None = None
    ) -> os.stat_result | None:
        """Return the status of a path below the base, or None; raise SymbolicLink if a part of the path is a link.

        Folders that were checked before are known by device and inode, unless all parts are to be checked afresh; of
        those, parts in `seen` are skipped, and parts that are no links are added to it.
        """
        folder = _parent(path)
        if not fresh and len(folder) > len(self._root) and self._was_checked(folder, again=again):
            return self._check_part(path, path)
        end, about = len(self._root), None
        while end < len(path):
            slash = path.find("/", end + 1)
            end = len(path) if slash < 0 else slash
            part = path[:end]
            if seen is not None and part in seen:
                continue
            about = self._check_part(path, part)
            if about is None:
                return None
            if seen is not None:
                seen.add(part)
        return about

    def _was_checked(self, folder: str, *, again: bool = False) -> bool:
        """Return whether a path leads to the folder that it led to without links; a reader with a lock asks once."""
        identity = self._checked.get(folder)
        if identity is None or (self._locks.names and not again):
            return identity is not None
        with suppress(OSError):
            about = os.stat(folder)
            return identity == (about.st_dev, about.st_ino)
        return False

    def _check_part(self, path: str, part: str) -> os.stat_result | None:
        try:
            about = os.lstat(part)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISLNK(about.st_mode):
            raise self._link_error(path, part)
        if stat.S_ISDIR(about.st_mode):
            if len(self._checked) >= _MOST_CHECKED:
                self._checked.clear()
            self._checked[part] = about.st_dev, about.st_ino
        return about

    def _recheck_links(self, paths: Iterable[str]) -> None:
        """Check the folders of paths afresh, each once: a link that replaced one meanwhile is not followed."""
        seen: set[str] = set()
        for folder in dict.fromkeys(map(_parent, paths)):
            self._check_links(folder, fresh=True, seen=seen)

    def _link_error(self, path: str, link: str) -> SymbolicLink:
        key, name = (part.removeprefix(f"{self._root}/") for part in (path, link))
        leads_out = not Path(os.path.realpath(link)).is_relative_to(self.base)
        return SymbolicLink(key, name, self._root if leads_out else "")


def _recorded(files: Iterable[tuple[str, bytes]], written: list[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yield files, and add each to a list."""
    for item in files:
        written.append(item)
        yield item


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
