"""Haytham drives an idea through phases; the folder of Markdown it writes is the database.

The public names, each imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haytham.checkpoint.checkpoint_manager import CheckpointManager
    from haytham.errors import HaythamError
    from haytham.project.project_manager import ProjectManager
    from haytham.session import Session
    from haytham.store import FileStore, MemoryStore

__version__ = "0.1.0"

_HOMES = {
    "CheckpointManager": "haytham.checkpoint.checkpoint_manager",
    "FileStore": "haytham.store",
    "HaythamError": "haytham.errors",
    "MemoryStore": "haytham.store",
    "ProjectManager": "haytham.project.project_manager",
    "Session": "haytham.session",
}

__all__ = ["CheckpointManager", "FileStore", "HaythamError", "MemoryStore", "ProjectManager", "Session"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'haytham' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
