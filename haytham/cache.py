"""The cache that the whole package uses: bounded, safe to share between threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class LruCache(Generic[T]):
    """A cache that drops the least recently used value when it is full."""

    def __init__(self, size: int = 2048) -> None:
        self._values: OrderedDict[object, T] = OrderedDict()
        self._size = size
        self._lock = threading.Lock()

    def get(self, key: object) -> T | None:
        """Return the cached value, or None."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: object, value: T) -> None:
        """Cache a value."""
        with self._lock:
            self._values[key] = value
            if len(self._values) > self._size:
                self._values.popitem(last=False)

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._values.clear()
