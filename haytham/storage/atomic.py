"""Durable reading and writing of files and folders, by path: after a crash each is old or new, never half.

Knows nothing of keys, locks or stores; the caller has checked where a path leads.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from haytham.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

log = logging.getLogger(__name__)

TEMPORARY = ".haytham-"
HAS_NOFOLLOW = hasattr(os, "O_NOFOLLOW")
_PLAIN = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
_READ = os.O_RDONLY | _PLAIN | getattr(os, "O_NONBLOCK", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | _PLAIN
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
_SECOND = 1_000_000_000
_FRESH, _FRESH_COARSE = _SECOND // 20, 2 * _SECOND  # ns in which a second change may leave the times of a file the same
_MOST_OPEN = 64  # files that are open at a time while several are written


# Files.


def read_file(path: str, limit: int | None = None, offset: int = 0) -> bytes | None:
    """Return the bytes of a file, or the first of them; None if it is a folder, a pipe or a device."""
    handle = os.open(path, _READ)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            return None
        size = max(about.st_size - offset, 0)
        if offset:
            os.lseek(handle, offset, os.SEEK_SET)
        return read_bytes(handle, size if limit is None else min(limit, size))
    finally:
        os.close(handle)


def change_token(about: os.stat_result, now: float) -> object | None:
    """Return identity, size and times of a file; None for what is no file, or changed a moment ago.

    A change within one tick of the disk's clock may leave all times as they are; whole seconds show a coarse clock.
    """
    if not stat.S_ISREG(about.st_mode):
        return None
    window = _FRESH if about.st_ctime_ns % _SECOND else _FRESH_COARSE
    if now * _SECOND - max(about.st_mtime_ns, about.st_ctime_ns) < window:
        return None
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def open_file(path: str) -> int:
    """Open a file for reading, not through a link; the caller closes it."""
    return os.open(path, _READ)


def sync_file(path: str) -> None:
    """Have the bytes of a file on the disk; a file that is missing, or no file, is skipped."""
    with suppress(FileNotFoundError, NotADirectoryError):
        handle = os.open(path, _READ)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_bytes(file: int, size: int) -> bytes:
    """Return the first bytes of an open file, as many as it had when it was opened."""
    data = os.read(file, size)
    while len(data) < size and (more := os.read(file, size - len(data))):
        data += more
    return data


def write_bytes(file: int, data: bytes) -> None:
    """Write all bytes to an open file, however many the system takes at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def write_new(path: str, data: bytes, *, durable: bool = True) -> None:
    """Create a file with these bytes; the caller removes what a failure leaves."""
    file = os.open(path, _CREATE, 0o666)
    try:
        write_bytes(file, data)
        if durable:
            os.fsync(file)
    finally:
        os.close(file)


def write_temporaries(files: Sequence[tuple[str, bytes]]) -> None:
    """Create temporary files durably: write all, then sync all; remove them if that fails."""
    try:
        for start in range(0, len(files), _MOST_OPEN):
            _write_together(files[start : start + _MOST_OPEN])
    except BaseException:
        for path, _ in files:
            remove(path)
        raise


def _write_together(files: Sequence[tuple[str, bytes]]) -> None:
    handles: list[int] = []
    try:
        for path, data in files:
            handles.append(os.open(path, _CREATE, 0o666))
            write_bytes(handles[-1], data)
        if len(handles) > 1:
            for handle in handles:
                _start_writing(handle)
        for handle in handles:
            os.fsync(handle)
    finally:
        for handle in handles:
            os.close(handle)


def _start_writing(file: int) -> None:
    """Have the system begin to write a file, so that syncing several one by one waits less."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def replace_file(temporary: str, path: str) -> None:
    """Move a temporary file to its path; on another file system, move a copy that is made beside the path."""
    try:
        os.replace(temporary, path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        beside = temporary_name(os.path.dirname(path))
        write_temporaries([(beside, read_file(temporary) or b"")])
        try:
            os.replace(beside, path)
        except BaseException:
            remove(beside)
            raise
        remove(temporary)


def append_lines(path: str, lines: bytes, *, check: Callable[[int], None]) -> bool:
    """Append lines to a file durably, all or none; return whether it was empty or missing.

    An incomplete line that a crash left is ended first. `check` is given the open file before anything is written to
    it, and raises if it is the wrong one.
    """
    file = os.open(path, _APPEND, 0o666)
    try:
        check(file)
        size = os.lseek(file, 0, os.SEEK_END)
        is_ended = not size or os.lseek(file, size - 1, os.SEEK_SET) < 0 or os.read(file, 1) == b"\n"
        try:
            write_bytes(file, lines if is_ended else b"\n" + lines)
            os.fsync(file)
        except OSError:
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)
    return not size


def temporary_name(folder: str, mark: str = "") -> str:
    """Return a unique path in a folder, with a name that is no key; `mark` is part of it."""
    return f"{folder}/{TEMPORARY}{mark}{os.urandom(8).hex()}"


def move_away(path: str, temporary: str) -> str:
    """Move a file or folder to a temporary path, or to one beside it if that is another file system; return which."""
    try:
        os.rename(path, temporary)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        temporary = temporary_name(os.path.dirname(path))
        os.rename(path, temporary)
    return temporary


def remove(path: str) -> None:
    """Remove a file or a folder, even if others remove it at the same time."""
    if os.path.isdir(path) and not os.path.islink(path):
        import shutil  # noqa: PLC0415 - loads all compressors, and few saves delete a folder

        shutil.rmtree(path, onerror=_unless_missing)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _unless_missing(_call: object, _path: str, about: tuple[type[BaseException], BaseException, object]) -> None:
    if not isinstance(about[1], FileNotFoundError):
        raise about[1]


# Folders.


def make_folder(folder: str) -> None:
    """Make a folder and those missing above it, durably."""
    for parent in make_folders([folder]):
        sync_folder(parent)


def make_folders(folders: Iterable[str]) -> list[str]:
    """Make folders and those missing above them; return the parents to sync, outer ones first."""
    parents: dict[str, None] = {}
    for folder in folders:
        missing: list[str] = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)  # noqa: PLW2901 - up to the first that exists
        for path in reversed(missing):
            with suppress(FileExistsError):
                os.mkdir(path)
                parents[os.path.dirname(path)] = None
    return list(parents)


def sync_folder(folder: str) -> None:
    """Have the names in a folder on the disk."""
    if os.name == "nt":  # a folder cannot be opened there, and need not be
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_temp_files(folder: str, mark: str = "", *, before: float = 0) -> None:
    """Remove temporary files and folders with a mark from a folder, and those last changed before a time."""
    for entry in os.scandir(folder):
        if entry.name.startswith(TEMPORARY + mark) or (entry.name.startswith(TEMPORARY) and _modified(entry) < before):
            remove(entry.path)


def _modified(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:  # its writer is done with it
        return math.inf


def subfolders(folder: str) -> list[str]:
    """Return the names of the folders in a folder, without links and names with a leading dot."""
    entries = _list(folder)
    return [entry.name for entry in entries.folders] if entries else []


def walk(folder: str, *, depth: int | None = None, empty: bool = False) -> list[str]:
    """Return the paths of files below a folder, from there; with `empty` also those of folders without entries.

    Names with a leading dot are skipped, but a folder that has one is not empty.
    """
    return [path for path, _ in _walk(folder, depth=depth, empty=empty)]


def scan(
    folder: str, *, within: Collection[str] | None = None, empty: bool = False
) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield the paths of files below a folder as `walk` does, each with its status; None for an empty folder.

    With `within`, only files directly in the folder and below these subfolders are listed.
    """
    for path, entry in _walk(folder, within=within, empty=empty):
        if entry is None:
            yield path, None
        else:
            with suppress(FileNotFoundError):  # it was deleted in between
                yield path, entry.stat(follow_symlinks=False)


def _walk(
    folder: str, *, depth: int | None = None, empty: bool = False, within: Collection[str] | None = None
) -> Iterator[tuple[str, os.DirEntry[str] | None]]:
    pending = [("", 0)]
    listed = ("",) if within is None else tuple(within)
    on_the_way = {path[: at + 1] for path in listed for at, letter in enumerate(path) if letter == "/"}
    for start, level in pending:  # which grows
        is_listed = not start or start.startswith(listed)
        entries = _list_if_readable(f"{folder}/{start}") if level else _list(folder)
        if entries is None:
            continue
        if empty and level and entries.is_empty and is_listed:
            yield start, None
        if is_listed and (depth is None or level < depth):
            for entry in entries.files:
                yield start + entry.name, entry
        if depth is None or level + (not empty) < depth:  # whether a folder is empty shows one level further down
            inner = [f"{start}{entry.name}/" for entry in entries.folders]
            pending += [(path, level + 1) for path in inner if path.startswith(listed) or path in on_the_way]


class _Entries(NamedTuple):
    """The entries of a folder: files (links included), folders, and whether there are none but temporary ones."""

    files: list[os.DirEntry[str]]
    folders: list[os.DirEntry[str]]
    is_empty: bool


def _list(folder: str) -> _Entries | None:
    """Return the entries of a folder; None if there is no such folder."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return None
    files: list[os.DirEntry[str]] = []
    folders: list[os.DirEntry[str]] = []
    is_empty = True
    for entry in entries:
        if entry.name.startswith("."):
            is_empty = is_empty and entry.name.startswith(TEMPORARY)
        else:
            is_empty = False
            (folders if entry.is_dir(follow_symlinks=False) else files).append(entry)
    return _Entries(files, folders, is_empty)


def _list_if_readable(folder: str) -> _Entries | None:
    try:
        return _list(folder)
    except PermissionError as error:
        log.warning("a folder cannot be read and is skipped: %s", error)
        return None


# Whole folders.


def write_tree(folder: str, files: Iterable[tuple[str, bytes]], *, durable: bool = True) -> None:
    """Create a folder with these files, by their paths in it; a path that ends in `/` is a folder's."""
    os.mkdir(folder)
    made = {""}
    for name, data in files:
        try:
            _make_inner_folders(folder, name, made)
            if not name.endswith("/"):
                write_new(f"{folder}/{name}", data, durable=durable)
        except (FileExistsError, NotADirectoryError):
            raise InvalidArgument("key", name, "each name in a folder once") from None
    if durable:
        for path in sorted(made, reverse=True):  # inner folders sort behind outer ones
            sync_folder(f"{folder}/{path}")


def sync_tree(folder: str) -> None:
    """Have a folder with all its files and folders on the disk."""
    folders = {""}
    for path in walk(folder, empty=True):
        if not path.endswith("/"):
            sync_file(f"{folder}/{path}")
        folders |= {path[:at] for at, letter in enumerate(path) if letter == "/"}
    for path in sorted(folders, reverse=True):  # inner folders sort behind outer ones
        sync_folder(f"{folder}/{path}")


def _make_inner_folders(folder: str, name: str, made: set[str]) -> None:
    """Make the folders above a path in a folder, except those made before."""
    parent = name.rpartition("/")[0]
    if parent not in made:
        _make_inner_folders(folder, parent, made)
        os.mkdir(f"{folder}/{parent}")
        made.add(parent)


def publish_folder(temporary: str, path: str) -> None:
    """Give a folder that is on the disk its name, durably; FileExistsError if something has that name.

    Empty folders make way. If this fails the folder has its temporary name again. If the path is on another file
    system, a copy that is made beside it gets the name.
    """
    try:
        _rename_folder(temporary, path)
    except OSError as error:
        if error.errno in _TAKEN:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        if error.errno == errno.EXDEV and os.path.dirname(temporary) != os.path.dirname(path):
            _publish_copy(temporary, path)
            return
        raise
    try:
        sync_folder(os.path.dirname(path))
    except BaseException:
        os.rename(path, temporary)
        raise


def _publish_copy(temporary: str, path: str) -> None:
    beside = temporary_name(os.path.dirname(path))
    names = walk(temporary, empty=True)
    files = ((name, b"" if name.endswith("/") else read_file(f"{temporary}/{name}") or b"") for name in names)
    try:
        write_tree(beside, files)
        publish_folder(beside, path)
    except BaseException:
        remove(beside)
        raise
    remove(temporary)


def _rename_folder(temporary: str, path: str) -> None:
    try:
        os.rename(temporary, path)
    except OSError as error:
        if error.errno not in _TAKEN or blocking_path(path) is not None:
            raise
        with suppress(FileNotFoundError):  # another process removed it
            _remove_empty(path)
        os.rename(temporary, path)


def blocking_path(path: str) -> str | None:
    """Return what keeps a new folder from having a path: what is at it, or the first thing in it that is no folder.

    Temporary files do not count.
    """
    if not os.path.isdir(path) or os.path.islink(path):
        return path if os.path.lexists(path) else None
    below = [entry.path for entry in os.scandir(path) if not entry.name.startswith(TEMPORARY)]
    return next(filter(None, map(blocking_path, below)), None)


def _remove_empty(folder: str) -> None:
    """Remove a folder that has nothing but such folders and temporary files; never another file."""
    for entry in os.scandir(folder):
        if entry.name.startswith(TEMPORARY):
            remove(entry.path)
        else:
            _remove_empty(entry.path)
    os.rmdir(folder)
