"""Haytham drives an idea through phases; the folder of Markdown it writes is the database.

The public names, each imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haytham.agent import Reply, Task
    from haytham.checkpoint.checkpoint_manager import CheckpointManager
    from haytham.errors import HaythamError
    from haytham.project.project_manager import ProjectManager
    from haytham.runner import Runner
    from haytham.session import Session
    from haytham.snapshot.everywhere import history
    from haytham.snapshot.history import History
    from haytham.snapshot.snapshot import Snapshot
    from haytham.store import FileStore, MemoryStore, SqliteStore

__version__ = "0.1.0"

_HOMES = {
    "CheckpointManager": "haytham.checkpoint.checkpoint_manager",
    "FileStore": "haytham.store",
    "HaythamError": "haytham.errors",
    "History": "haytham.snapshot.history",
    "MemoryStore": "haytham.store",
    "Reply": "haytham.agent",
    "Runner": "haytham.runner",
    "Snapshot": "haytham.snapshot.snapshot",
    "SqliteStore": "haytham.store",
    "Task": "haytham.agent",
    "ProjectManager": "haytham.project.project_manager",
    "Session": "haytham.session",
    "history": "haytham.snapshot.everywhere",
}

__all__ = [
    "CheckpointManager",
    "FileStore",
    "HaythamError",
    "History",
    "MemoryStore",
    "ProjectManager",
    "Reply",
    "Runner",
    "Session",
    "Snapshot",
    "SqliteStore",
    "Task",
    "history",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'haytham' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
