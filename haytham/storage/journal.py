"""Journals of new folders: one synced copy of all files of a folder, so that they need not be synced one by one.

A journal is kept until the files themselves are on the disk. If the machine goes down before that, files that were cut
off are written again from it; what anybody wrote since is left as it is.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from haytham import clock
from haytham.errors import HaythamError
from haytham.storage import atomic
from haytham.storage.base import check_folder, check_key
from haytham.storage.locks import lock_open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

log = logging.getLogger(__name__)

_LARGEST = 8 * 1024 * 1024  # bytes of a folder; the files of a larger one are synced one by one
_LONGEST = 200  # characters of a name
_MARK = ","  # between folder and writer; it is quoted in the name of a folder
_SETTLED = 60.0  # seconds after which the system has written a file
_PATIENCE = 60.0
_BOOT = "/proc/sys/kernel/random/boot_id"


class JournalFolder:
    """The journals of the folders below a base, each named after its folder and its writer.

    `check` is given each path before it is used, and raises if a link leads to it.
    """

    def __init__(self, base: str, folder: str, check: Callable[[str], object]) -> None:
        self._base, self._folder, self._check = base, folder, check

    def write(self, prefix: str, files: Sequence[tuple[str, bytes]]) -> str:
        """Write the journal of a new folder, durably; return its path, or "" if there is too much for one."""
        name = quote(prefix, safe="")
        if len(name) > _LONGEST or sum(len(data) for _, data in files) > _LARGEST:
            return ""
        self._settle_old()
        path = f"{self._folder}/{name}{_MARK}{atomic.temporary_name('').rpartition('-')[2]}"
        atomic.write_new(path, _pack(files))
        atomic.sync_folder(self._folder)
        return path

    def keep_only(self, path: str) -> None:
        """Remove other journals of the same folder, whose writers were killed or came too late."""
        prefix = path.rpartition(_MARK)[0] + _MARK
        for other in (f"{self._folder}/{name}" for name in self._names()):
            if other.startswith(prefix) and other != path:
                atomic.remove(other)

    def settle_below(self, keys: Sequence[str]) -> None:
        """Settle the journals of folders in which keys are about to change; a folder that is deleted needs none."""
        names = self._names()
        changed = [quote(key, safe="") for key in keys] if names else []
        for name in names:
            prefix = name.partition(_MARK)[0]
            if any(key.startswith(prefix) and key != prefix for key in changed):
                self._settle(name)

    def discard(self, folders: Iterable[str]) -> None:
        """Remove the journals of folders that were deleted."""
        deleted = tuple(folders)
        for name in self._names():
            if _prefix(name).startswith(deleted):
                atomic.remove(f"{self._folder}/{name}")

    def recover(self) -> None:
        """Settle the journals that were written before the machine was started."""
        for name in self._names():
            try:
                if not _is_current(f"{self._folder}/{name}"):
                    self._settle(name)
            except (HaythamError, OSError) as error:
                log.warning("%s: its files may be incomplete: %s", _prefix(name), error)

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _settle_old(self) -> None:
        """Settle journals of some time ago, whose files the system has written by now."""
        before = clock.timestamp() - _SETTLED
        for entry in os.scandir(self._folder):
            with suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < before:
                    self._settle(entry.name)

    def _settle(self, name: str) -> None:
        """Bring the files of a journal to the disk, and remove it; wait for another process that does so."""
        path, folder = f"{self._folder}/{name}", f"{self._base}/{check_folder(_prefix(name))[:-1]}"
        self._check(path)
        with suppress(FileNotFoundError):
            handle = atomic.open_file(path)
            try:
                if lock_open_file(handle, _PATIENCE) and os.path.lexists(path):
                    self._bring_to_disk(folder, _unpack(atomic.read_file(path) or b""), is_current=_is_current(path))
                    atomic.remove(path)
            finally:
                os.close(handle)

    def _bring_to_disk(self, folder: str, files: Mapping[str, bytes], *, is_current: bool) -> None:
        self._check(folder)
        if not os.path.isdir(folder):
            return
        parents = {folder}
        for name, data in files.items():
            path = f"{folder}/{name}"
            self._check(path)
            if not is_current and _is_cut_off(path, data):
                log.warning("%s: was not on the disk when the machine went down, and is written again", path)
                atomic.make_folder(os.path.dirname(path))
                atomic.remove(path)
                atomic.write_new(path, data)
            else:
                atomic.sync_file(path)
            parents.add(os.path.dirname(path))
        for parent in sorted(parents, reverse=True):
            with suppress(FileNotFoundError):
                atomic.sync_folder(parent)


def _prefix(name: str) -> str:
    return unquote(name.partition(_MARK)[0])


@cache
def _boot() -> bytes:
    """Return the id of this run of the machine; empty if that is unknown."""
    with suppress(OSError):
        return Path(_BOOT).read_bytes().strip()
    return b""


def _is_current(path: str) -> bool:
    """Return whether the machine has not been started since a journal was written: then no file can be cut off."""
    line = (atomic.read_file(path, 64) or b"").partition(b"\n")[0]
    return _boot() != b"" and line.endswith(b" " + _boot())


def _pack(files: Sequence[tuple[str, bytes]]) -> bytes:
    sizes = [[name, len(data)] for name, data in files if not name.endswith("/")]
    body = b"".join([json.dumps(sizes).encode(), b"\n", *(data for _, data in files)])
    return b"%08x %b\n%b" % (zlib.crc32(body), _boot(), body)


def _unpack(journal: bytes) -> dict[str, bytes]:
    """Return the files of a journal; none if it is incomplete, so that its folder never appeared."""
    first, _, body = journal.partition(b"\n")
    if first[:8] != b"%08x" % zlib.crc32(body):
        return {}
    header, _, data = body.partition(b"\n")
    files, start = {}, 0
    try:
        for name, size in json.loads(header):
            files[check_key(name)] = data[start : start + size]
            start += size
    except (ValueError, TypeError, RecursionError):  # not written by us
        return {}
    return files


def _is_cut_off(path: str, data: bytes) -> bool:
    """Return whether a file is missing, or has only the first bytes of what was written, and zeros behind them."""
    try:
        present = atomic.read_file(path)
    except FileNotFoundError:
        return True
    return present is not None and present != data and data.startswith(present.rstrip(b"\0"))
