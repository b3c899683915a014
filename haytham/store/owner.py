"""Who holds a run lock, by the note beside it. The lock itself decides; the note is for people. Writes nothing."""

from __future__ import annotations

import os
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

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, a process of this host."""
        return self.host == HOST

    @property
    def lives(self) -> bool:
        """Whether it may still run: of another host nobody can tell from here."""
        return not self.is_here or _is_alive(self.process)

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


def _is_alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True
