"""Who runs a session now, judged by the note beside its run lock and whether that process lives. Writes nothing."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haytham.cli.context import Here
    from haytham.session import Session


def running(here: Here, session: Session) -> str:
    """Who runs a session, in words; empty where nobody does."""
    note = here.base / ".locks" / session.project_id / "sessions" / session.session_id / ".runner"
    try:
        process, host, since, *_ = note.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return ""
    if host == socket.gethostname() and not _is_alive(process):
        return ""
    return f"process {process} on host {host} since {since}"


def _is_alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True
