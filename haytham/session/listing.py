"""The files of a session's folders and their change tokens, each folder listed once; and digests by change token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.cache import LruCache
from haytham.storage.base import bytes_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from haytham.storage.base import SessionStore

    Tokens = dict[str, object | None]  # by path in a folder; None for a file that is pending or changed a moment ago

_MEASURED: LruCache[tuple[int, str]] = LruCache(8192)  # size and digest by change token


class FileListing:
    """The files in the folders directly below a session's prefix, as they were when each folder was listed."""

    def __init__(self, store: SessionStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix
        self._folders: dict[str, Tokens] = {}

    def files(self, folder: str) -> Tokens:
        """Return the change tokens of all files below a folder."""
        if folder not in self._folders:
            self._folders[folder] = self._list(folder)
        return self._folders[folder]

    def list_all(self, folders: Iterable[str]) -> None:
        """List folders in one walk, those that were not listed before."""
        missing: dict[str, Tokens] = {folder: {} for folder in folders if folder not in self._folders}
        start = len(self._prefix)
        versions = self._store.versions(self._prefix, folders=[folder[start:] for folder in missing]) if missing else {}
        for key, token in versions.items():
            end = key.find("/", start) + 1
            if key[:end] in missing:
                missing[key[:end]][key[end:]] = token
        self._folders |= missing

    def use(self, versions: Mapping[str, object | None]) -> None:
        """Use a listing of the whole prefix, by path below it."""
        folders: dict[str, Tokens] = {}
        for path, token in versions.items():
            folder, slash, rest = path.partition("/")
            files = folders.setdefault(f"{self._prefix}{folder}/", {}) if slash else {}
            if not rest.endswith("/") and rest:
                files[rest] = token
        self._folders = folders | self._folders

    def has_changed(self, folder: str) -> bool:
        """Return whether a folder has other files now, or a file that had a change token has another one."""
        before, now = self.files(folder), self._list(folder)
        is_same = before.keys() == now.keys()
        return not is_same or any(token not in (None, now[path]) for path, token in before.items())

    def add(self, key: str) -> None:
        """Add a file that was just written, if its folder is listed."""
        folder = self._folder(key)
        if folder in self._folders:
            self._folders[folder] = {**self._folders[folder], key[len(folder) :]: None}

    def forget(self, key: str) -> None:
        """List the folder of a file again when it is asked for."""
        self._folders.pop(self._folder(key), None)

    def _list(self, folder: str) -> Tokens:
        return {key[len(folder) :]: token for key, token in self._store.versions(folder).items()}

    def _folder(self, key: str) -> str:
        return key[: key.find("/", len(self._prefix)) + 1]


def measured(token: object | None) -> tuple[int, str] | None:
    """Return size and digest of the file of a change token, if they are known."""
    return None if token is None else _MEASURED.get(token)


def measure_bytes(store: SessionStore, key: str, token: object | None, data: bytes) -> tuple[int, str]:
    """Return size and digest of bytes that were read after the change token of their file; cache them by the token."""
    size_and_digest = len(data), bytes_digest(data)
    if token is not None and token == store.change_token(key):
        _MEASURED.put(token, size_and_digest)
    return size_and_digest


def file_digest(store: SessionStore, key: str, token: object | None) -> str:
    """Return the digest of a file, which is read only if its change token is a new one, or there is none."""
    return (measured(token) or measure_bytes(store, key, token, store.read(key)))[1]
