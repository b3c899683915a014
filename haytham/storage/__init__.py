"""Bytes at rest: the protocols of a store, and the stores. Knows nothing of documents or sessions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from haytham.storage.base import (
    ABSENT,
    ANY,
    Append,
    Batch,
    Delete,
    SessionStore,
    Store,
    Write,
    bytes_digest,
    commit,
    write_all,
)
from haytham.storage.files import FileStore
from haytham.storage.memory import MemoryStore

if TYPE_CHECKING:
    from haytham.storage.factory import open_store
    from haytham.storage.sqlite import SqliteStore

_HOMES = {"SqliteStore": "haytham.storage.sqlite", "open_store": "haytham.storage.factory"}

__all__ = [
    "ABSENT",
    "ANY",
    "Append",
    "Batch",
    "Delete",
    "FileStore",
    "MemoryStore",
    "SessionStore",
    "SqliteStore",
    "Store",
    "Write",
    "bytes_digest",
    "commit",
    "open_store",
    "write_all",
]


def __getattr__(name: str) -> object:
    """Import a name when it is first used: few need a database."""
    if name not in _HOMES:
        raise AttributeError(f"module 'haytham.storage' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
