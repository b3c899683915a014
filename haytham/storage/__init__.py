"""Bytes at rest: the seven verbs, and the stores that know them. Knows nothing of documents or sessions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from haytham.storage.base import ABSENT, ANY, SessionStore, Store, bytes_digest, write_all
from haytham.storage.files import FileStore
from haytham.storage.memory import MemoryStore

if TYPE_CHECKING:
    from haytham.storage.factory import open_store
    from haytham.storage.sqlite import SqliteStore

_HOMES = {"SqliteStore": "haytham.storage.sqlite", "open_store": "haytham.storage.factory"}

__all__ = [
    "ABSENT",
    "ANY",
    "FileStore",
    "MemoryStore",
    "SessionStore",
    "SqliteStore",
    "Store",
    "bytes_digest",
    "open_store",
    "write_all",
]


def __getattr__(name: str) -> object:
    """A name that is imported when it is first used: few need a database."""
    if name not in _HOMES:
        raise AttributeError(f"module 'haytham.storage' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
