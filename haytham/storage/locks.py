"""Locks between processes: flock on a file; the package filelock on systems that have no flock.

Whether a lock is held is decided by the lock itself. The note beside a run lock only tells people who holds it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from haytham import clock

if TYPE_CHECKING:
    from collections.abc import Callable

HAS_FLOCK = sys.platform != "win32"
_POLL = 0.002

if sys.platform == "win32":
    import socket

    HOST = socket.gethostname()
else:
    HOST = os.uname().nodename
_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True)
class LockOwner:
    """The process that holds a run lock: its id, its host, and since when."""

    process: str
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.process} on host {self.host} since {self.since}"


NOBODY = LockOwner("?", "?", "?")


class HeldLocks(threading.local):
    """The names of the locks that a thread holds."""

    def __init__(self) -> None:
        self.names: list[str] = []


def read_owner(note: str) -> LockOwner | None:
    """Return the owner that a note names; None if there is no note, or an incomplete one."""
    try:
        process, host, since, *_ = Path(note).read_text(encoding="utf-8").split("\n")
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return LockOwner(process, host, since)


def owner_note() -> bytes:
    """Return the note of this process, as `read_owner` reads it."""
    return f"{os.getpid()}\n{HOST}\n{clock.now()}\n".encode()


if sys.platform == "win32":

    def acquire(path: str, timeout: float) -> Callable[[], None] | None:
        """Acquire the lock of a file, which is created if missing; return what releases it, or None at the timeout."""
        from filelock import FileLock, Timeout  # noqa: PLC0415 - a package that only these systems need

        lock = FileLock(path, timeout=timeout, poll_interval=_POLL)
        try:
            lock.acquire()
        except Timeout:
            return None
        return lock.release

    def lock_open_file(file: int, timeout: float) -> bool:  # noqa: ARG001 - the same call on every system
        """Return True: an open file cannot be locked here, so the caller holds a lock of its own (HAS_FLOCK)."""
        return True

    def is_held(lock_file: str) -> bool:
        """Return whether a process holds the lock of a file, by acquiring it for an instant."""
        if not Path(lock_file).is_file():
            return False
        release = acquire(lock_file, 0)
        if release is not None:
            release()
        return release is None

else:
    import fcntl

    def acquire(path: str, timeout: float) -> Callable[[], None] | None:
        """Acquire the lock of a file, which is created if missing; return what releases it, or None at the timeout."""
        file = os.open(path, _OPEN, 0o666)
        try:
            if lock_open_file(file, timeout):
                return partial(_release, file)
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        return None

    def _release(file: int) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_UN)  # a forked process may have the same file open
        finally:
            os.close(file)

    def lock_open_file(file: int, timeout: float) -> bool:
        """Wait for the lock of an open file; return whether it was acquired before the timeout."""
        deadline = clock.monotonic() + timeout
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if clock.monotonic() >= deadline:
                    return False
                time.sleep(_POLL)
            else:
                return True

    def is_held(lock_file: str) -> bool:
        """Return whether a process holds the lock of a file, by acquiring a shared lock for an instant."""
        try:
            with Path(lock_file).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # no such file, or an unreadable one: nobody can hold a lock of this name
            return False
        return False
