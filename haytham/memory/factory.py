"""Opening a store of notes by its name: files, one that a package registers, or `package.module:Class`.

A name may come from a workflow from elsewhere: only a trusted one runs code.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from haytham.errors import HaythamError, InvalidArgument, MemoryFailed
from haytham.memory.base import METHODS
from haytham.memory.files import NoteFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from haytham.memory.base import Note, NoteStore
    from haytham.storage.base import SessionStore

GROUP = "haytham.memory"
FILES = "files"
_DOTTED = re.compile(r"\w+(\.\w+)*:\w+")
_WHAT = "memory store"

T = TypeVar("T")


def open_notes(kind: str, store: SessionStore, *, may_run_code: bool = False) -> NoteStore:
    """Open a store of notes; `store` is the workspace's, which those of other packages do not see."""
    if kind == FILES:
        return NoteFiles(store)
    check_note_store(kind)
    if not may_run_code:
        raise InvalidArgument(_WHAT, kind, f"{_allowed()}; this one is not trusted")
    return _Guarded(kind, _make(kind))


def check_note_store(kind: str) -> None:
    """Raise InvalidArgument if a name is neither built in, nor registered, nor a `package.module:Class`."""
    if kind != FILES and kind not in _registered() and _DOTTED.fullmatch(kind) is None:
        raise InvalidArgument(_WHAT, kind, _allowed())


def is_note_store_registered(kind: str) -> bool:
    """Return whether an installed package registers a store of notes under a name."""
    return kind in _registered()


def _registered() -> dict[str, Any]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and few commands need it

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _allowed() -> str:
    return ", ".join([FILES, *sorted(_registered()), "or a trusted package.module:Class"])


def _make(kind: str) -> NoteStore:
    """Import the class of a store and call it; raise if it lacks a method."""
    module, _, name = kind.partition(":")
    registered = _registered()
    try:
        make = registered[kind].load() if kind in registered else getattr(import_module(module), name)
        notes: NoteStore = make()
    except Exception as error:
        raise InvalidArgument(_WHAT, kind, f"one that can be opened ({type(error).__name__}: {error})") from error
    missing = [method for method in METHODS if not callable(getattr(notes, method, None))]
    if missing:
        raise InvalidArgument(_WHAT, kind, f"a store with four methods; it lacks {', '.join(missing)}")
    return notes


class _Guarded:
    """A store of another package: its errors become MemoryFailed, and notes of other users are dropped."""

    def __init__(self, kind: str, notes: NoteStore) -> None:
        self._kind, self._notes = kind, notes

    def add(self, note: Note) -> bool:
        return self._call(lambda: self._notes.add(note))

    def search(self, user: str, query: str, *, limit: int | None = None) -> Sequence[Note]:
        notes = self._call(lambda: list(self._notes.search(user, query, limit=limit)))
        return [note for note in notes if note.user == user][:limit]

    def update(self, user: str, note_id: str, *, text: str, tags: tuple[str, ...]) -> Note:
        return self._call(lambda: self._notes.update(user, note_id, text=text, tags=tags))

    def delete(self, user: str, note_id: str) -> None:
        self._call(lambda: self._notes.delete(user, note_id))

    def _call(self, do: Callable[[], T]) -> T:
        try:
            return do()
        except HaythamError:
            raise
        except Exception as error:
            raise MemoryFailed(self._kind, error) from error
