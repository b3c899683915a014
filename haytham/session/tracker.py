"""A view of a store that remembers what was read through it, and tells whether any of that has changed since."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from haytham.errors import HaythamError, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham.storage.base import SessionStore

T = TypeVar("T")


class ReadTracker:
    """The calls of a store that read, each checked again later: by change token where there is one, else by content."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._checks: list[Callable[[], bool]] = []

    def has_changed(self) -> bool:
        """Return whether anything that was read is different now, or can no longer be read."""
        try:
            return not all(is_same() for is_same in self._checks)
        except (HaythamError, OSError):
            return True

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """Return the bytes under a key, or the first of them; FileNotFoundError where there are none."""
        token = self._store.change_token(key)
        data = self._find(key, limit)
        self._checks.append(lambda: self._has_token(key, token) or self._find(key, limit) == data)
        if data is None:
            raise NotFound("document", key)
        return data

    def change_token(self, key: str) -> object | None:
        """Return the change token of a key; None if there is none."""
        token = self._store.change_token(key)
        if token is not None:
            self._checks.append(lambda: self._has_token(key, token))
        return token

    def keys(self, prefix: str = "", *, depth: int | None = None, empty: bool = False) -> list[str]:
        """Return the keys below a folder, sorted."""
        return self._look(lambda: self._store.keys(prefix, depth=depth, empty=empty))

    def folders(self, prefix: str = "") -> list[str]:
        """Return the names of the folders in a folder, sorted."""
        return self._look(lambda: self._store.folders(prefix))

    def has_folder(self, prefix: str) -> bool:
        """Return whether a folder exists."""
        return self._look(lambda: self._store.has_folder(prefix))

    def is_regular(self, key: str) -> bool:
        """Return whether a key has bytes of its own."""
        return self._look(lambda: self._store.is_regular(key))

    def _look(self, look: Callable[[], T]) -> T:
        result = look()
        self._checks.append(lambda: look() == result)
        return result

    def _find(self, key: str, limit: int | None) -> bytes | None:
        try:
            return self._store.read(key, limit=limit)
        except FileNotFoundError:
            return None

    def _has_token(self, key: str, token: object | None) -> bool:
        return token is not None and self._store.change_token(key) == token
