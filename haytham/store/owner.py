"""Who holds a run lock: whether it is held is decided by the lock itself, the note beside it is for people only."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

HOST = socket.gethostname()


@dataclass(frozen=True)
class Owner:
    """The process that took a run lock: its number, its host, and since when."""

    process: str
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.process} on host {self.host} since {self.since}"


NOBODY = Owner("?", "?", "?")


def read_owner(note: str) -> Owner | None:
    """What a note says; None where there is none, or one that was cut off."""
    try:
        process, host, since, *_ = Path(note).read_text(encoding="utf-8").split("\n")
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return Owner(process, host, since)


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
