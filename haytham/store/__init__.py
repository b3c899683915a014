"""Bytes at rest: the seven verbs, and the stores that know them. Knows nothing of documents or sessions."""

from haytham.store.files import FileStore
from haytham.store.memory import MemoryStore
from haytham.store.protocol import ABSENT, ANY, SharedStore, Store, bytes_digest

__all__ = ["ABSENT", "ANY", "FileStore", "MemoryStore", "SharedStore", "Store", "bytes_digest"]
