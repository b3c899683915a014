"""Files and folders on the disk, by path: what is written here stays, or is not there at all.

Knows nothing of keys, locks or stores; whoever calls has checked where a path leads.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import secrets
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from haytham.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

log = logging.getLogger(__name__)

TEMPORARY = ".haytham-"
_PLAIN = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
_READ = os.O_RDONLY | _PLAIN | getattr(os, "O_NONBLOCK", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | _PLAIN
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


# Files.


def read_file(path: str, limit: int | None = None) -> bytes | None:
    """The bytes of a file, or the first of them; None where it is no file but a folder, a pipe or a device."""
    handle = os.open(path, _READ)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            return None
        return read_bytes(handle, about.st_size if limit is None else min(limit, about.st_size))
    finally:
        os.close(handle)


def read_bytes(file: int, size: int) -> bytes:
    """The first bytes of an open file, as many as it had when it was opened."""
    data = os.read(file, size)
    while len(data) < size and (more := os.read(file, size - len(data))):
        data += more
    return data


def write_bytes(file: int, data: bytes) -> None:
    """Write all bytes to an open file, however many the system takes at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def write_new(path: str, data: bytes) -> None:
    """Make a file with these bytes, to stay; what a failure leaves is for the caller to remove."""
    file = os.open(path, _CREATE, 0o666)
    try:
        write_bytes(file, data)
        os.fsync(file)
    finally:
        os.close(file)


def write_temporary(temporary: str, data: bytes) -> None:
    """Write a temporary file, to stay; remove it where that fails."""
    try:
        write_new(temporary, data)
    except BaseException:
        remove(temporary)
        raise


def replace_file(temporary: str, path: str) -> None:
    """Move a temporary file to its path; where that is on another file system, move a copy that is made beside it."""
    try:
        os.replace(temporary, path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        beside = temporary_name(os.path.dirname(path))
        write_temporary(beside, read_file(temporary) or b"")
        try:
            os.replace(beside, path)
        except BaseException:
            remove(beside)
            raise
        remove(temporary)


def append_line(path: str, line: bytes, *, check: Callable[[os.stat_result], None]) -> None:
    """Add a line to a file, whole or not at all; a line that a crash cut off is ended first.

    `check` is given what was opened before anything is written to it, and raises where it is the wrong file.
    """
    file = os.open(path, _APPEND, 0o666)
    try:
        check(os.fstat(file))
        size = os.lseek(file, 0, os.SEEK_END)
        ended = not size or os.lseek(file, size - 1, os.SEEK_SET) < 0 or os.read(file, 1) == b"\n"
        try:
            write_bytes(file, line if ended else b"\n" + line)
            os.fsync(file)
        except OSError:
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


def temporary_name(folder: str, mark: str = "") -> str:
    """A path in a folder that nobody else uses, under a name that is no key; `mark` is part of it."""
    return f"{folder}/{TEMPORARY}{mark}{secrets.token_hex(8)}"


def move_away(path: str, temporary: str) -> str:
    """Move a file or folder to a temporary path, or to one beside it on its own file system; return which."""
    try:
        os.rename(path, temporary)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        temporary = temporary_name(os.path.dirname(path))
        os.rename(path, temporary)
    return temporary


def remove(path: str) -> None:
    """Remove a file or a folder; who else removes it at the same time is welcome to."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, onerror=_unless_gone)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _unless_gone(_call: object, _path: str, about: tuple[type[BaseException], BaseException, object]) -> None:
    if not isinstance(about[1], FileNotFoundError):
        raise about[1]


# Folders.


def make_folder(folder: str) -> None:
    """Make a folder and what is missing above it, to stay."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    make_folder(parent)
    with suppress(FileExistsError):
        os.mkdir(folder)
        sync_folder(parent)


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
    """Remove the temporary files and folders with a mark that killed writers left in a folder.

    Those that were written before a time go, too, whatever their mark.
    """
    for entry in os.scandir(folder):
        if entry.name.startswith(TEMPORARY + mark) or (entry.name.startswith(TEMPORARY) and _modified(entry) < before):
            remove(entry.path)


def _modified(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:  # its writer is done with it
        return math.inf


def subfolders(folder: str) -> list[str]:
    """The names of the folders in a folder; neither links to folders nor names with a leading dot."""
    inside = _look_into(folder)
    return inside.folders if inside else []


def walk(folder: str, *, depth: int | None = None, empty: bool = False) -> list[str]:
    """The files below a folder, each by its path from there; with `empty`, also the folders with nothing in them.

    A name with a leading dot is passed over, but where there is one its folder is not empty.
    """
    found: list[str] = []
    waiting = [("", 0)]
    for start, level in waiting:  # which grows
        inside = _look_if_readable(f"{folder}/{start}") if level else _look_into(folder)
        if inside is None:
            continue
        if empty and level and inside.is_empty:
            found.append(start)
        if depth is None or level < depth:
            found += [start + name for name in inside.files]
        if depth is None or level + (not empty) < depth:  # whether one is empty shows a step further down
            waiting += [(f"{start}{name}/", level + 1) for name in inside.folders]
    return found


@dataclass(frozen=True)
class _Inside:
    """The names in a folder: files (links are), folders, and whether there are none at all but a dead writer's."""

    files: list[str]
    folders: list[str]
    is_empty: bool


def _look_into(folder: str) -> _Inside | None:
    """What is in a folder; None where there is no such folder."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return None
    files: list[str] = []
    folders: list[str] = []
    for entry in entries:
        if not entry.name.startswith("."):
            (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
    return _Inside(files, folders, all(entry.name.startswith(TEMPORARY) for entry in entries))


def _look_if_readable(folder: str) -> _Inside | None:
    try:
        return _look_into(folder)
    except PermissionError as error:
        log.warning("a folder cannot be read and is passed over: %s", error)
        return None


# Whole folders.


def write_tree(folder: str, files: Iterable[tuple[str, bytes]]) -> None:
    """Make a folder with these files, by their paths in it, all on the disk; a path that ends in `/` is a folder's."""
    os.mkdir(folder)
    made = {""}
    for name, data in files:
        try:
            _make_folders(folder, name, made)
            if not name.endswith("/"):
                write_new(f"{folder}/{name}", data)
        except (FileExistsError, NotADirectoryError):
            raise InvalidArgument("key", name, "each name in a folder once") from None
    for above in sorted(made, reverse=True):  # what lies in a folder sorts behind it
        sync_folder(f"{folder}/{above}")


def _make_folders(folder: str, name: str, made: set[str]) -> None:
    """Make the folders that a path in a folder goes through, but for those made before."""
    above = name.rpartition("/")[0]
    if above not in made:
        _make_folders(folder, above, made)
        os.mkdir(f"{folder}/{above}")
        made.add(above)


def publish_folder(temporary: str, path: str) -> None:
    """Give a folder that is on the disk its name, to stay; FileExistsError where something has that name.

    Folders with nothing in them make way. Where this fails the folder has its temporary name again. Where the path is
    on another file system, a copy that is made beside it gets the name.
    """
    try:
        _rename_folder(temporary, path)
    except OSError as error:
        if error.errno in _TAKEN:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        if error.errno == errno.EXDEV and os.path.dirname(temporary) != os.path.dirname(path):
            _name_copy(temporary, path)
            return
        raise
    try:
        sync_folder(os.path.dirname(path))
    except BaseException:
        os.rename(path, temporary)
        raise


def _name_copy(temporary: str, path: str) -> None:
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
        with suppress(FileNotFoundError):  # who else clears it is welcome to
            _remove_empty(path)
        os.rename(temporary, path)


def blocking_path(path: str) -> str | None:
    """What keeps a new folder from having a path: what is there, or the first thing in it that is no folder.

    What killed writers left does not count.
    """
    if not os.path.isdir(path) or os.path.islink(path):
        return path if os.path.lexists(path) else None
    below = [entry.path for entry in os.scandir(path) if not entry.name.startswith(TEMPORARY)]
    return next(filter(None, map(blocking_path, below)), None)


def _remove_empty(folder: str) -> None:
    """Remove a folder that holds nothing but such folders, and what killed writers left; never a file."""
    for entry in os.scandir(folder):
        if entry.name.startswith(TEMPORARY):
            remove(entry.path)
        else:
            _remove_empty(entry.path)
    os.rmdir(folder)
