"""A note, and the protocol of a store of notes: four methods, so that another store is soon written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

METHODS = ("add", "search", "update", "delete")


@dataclass(frozen=True)
class Note:
    """What is remembered of a user: a short text with tags, and the session that it was learned in, if any.

    `history` has the earlier texts, the oldest first, each after the time at which it was replaced.
    """

    id: str
    user: str
    text: str
    created: str
    tags: tuple[str, ...] = ()
    session: str | None = None
    history: tuple[tuple[str, str], ...] = ()


class NoteStore(Protocol):
    """Where notes rest. A call is about the notes of one user, and never finds another's."""

    def add(self, note: Note) -> bool:
        """Store a note; return False, and change nothing, if the user has one with this id."""

    def search(self, user: str, query: str, *, limit: int | None = None) -> Sequence[Note]:
        """Return the notes that fit a query, the best first; for an empty query all of them, the newest first."""

    def update(self, user: str, note_id: str, *, text: str, tags: tuple[str, ...]) -> Note:
        """Replace text and tags of a note and return it; NotFound if no note has this id."""

    def delete(self, user: str, note_id: str) -> None:
        """Delete a note; NotFound if no note has this id."""
