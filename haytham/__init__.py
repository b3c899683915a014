"""Haytham drives an idea through phases; the folder of Markdown it writes is the database.

The public names, each imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haytham.agents.base import Reply, Task
    from haytham.app.session import Session
    from haytham.app.workspace import Workspace
    from haytham.checkpoint.checkpoint_manager import CheckpointManager
    from haytham.config.workflow import Phase, Workflow
    from haytham.engine.runner import Runner, RunResult
    from haytham.errors import HaythamError, SnapshotVetoed, Veto
    from haytham.history.history import History
    from haytham.history.snapshot import Snapshot
    from haytham.project.project_manager import ProjectManager
    from haytham.storage import FileStore, MemoryStore, SqliteStore

__version__ = "0.1.0"

_HOMES = {
    "CheckpointManager": "haytham.checkpoint.checkpoint_manager",
    "FileStore": "haytham.storage",
    "HaythamError": "haytham.errors",
    "History": "haytham.history.history",
    "MemoryStore": "haytham.storage",
    "Phase": "haytham.config.workflow",
    "Reply": "haytham.agents.base",
    "RunResult": "haytham.engine.runner",
    "Runner": "haytham.engine.runner",
    "Snapshot": "haytham.history.snapshot",
    "SnapshotVetoed": "haytham.errors",
    "SqliteStore": "haytham.storage",
    "Task": "haytham.agents.base",
    "ProjectManager": "haytham.project.project_manager",
    "Session": "haytham.app.session",
    "Veto": "haytham.errors",
    "Workflow": "haytham.config.workflow",
    "Workspace": "haytham.app.workspace",
}

__all__ = [
    "CheckpointManager",
    "FileStore",
    "HaythamError",
    "History",
    "MemoryStore",
    "Phase",
    "ProjectManager",
    "Reply",
    "RunResult",
    "Runner",
    "Session",
    "Snapshot",
    "SnapshotVetoed",
    "SqliteStore",
    "Task",
    "Veto",
    "Workflow",
    "Workspace",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'haytham' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
