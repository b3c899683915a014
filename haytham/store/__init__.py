"""Bytes at rest: the seven verbs, and the stores that know them. Knows nothing of documents or sessions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from haytham.store.files import FileStore
from haytham.store.memory import MemoryStore
from haytham.store.protocol import ABSENT, ANY, SharedStore, Store, bytes_digest, write_all

if TYPE_CHECKING:
    from haytham.store.opening import open_store
    from haytham.store.sqlite import SqliteStore

_HOMES = {"SqliteStore": "haytham.store.sqlite", "open_store": "haytham.store.opening"}

__all__ = [
    "ABSENT",
    "ANY",
    "FileStore",
    "MemoryStore",
    "SharedStore",
    "SqliteStore",
    "Store",
    "bytes_digest",
    "open_store",
    "write_all",
]


def __getattr__(name: str) -> object:
    """A name that is imported when it is first used: few need a database."""
    if name not in _HOMES:
        raise AttributeError(f"module 'haytham.store' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
