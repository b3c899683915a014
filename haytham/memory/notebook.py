"""The notes of one user: add, search, list, show, update, edit and delete them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.errors import InvalidArgument, InvalidDocument, InvalidRequest, NoteNotFound
from haytham.memory.base import Note
from haytham.memory.files import NoteFiles
from haytham.session.paths import check_id, note_key
from haytham.text import conflict_lines
from haytham.validation import require_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from haytham.errors import Problem
    from haytham.memory.base import NoteStore

LONGEST_NOTE = 20_000
_LONGEST_TAG = 100
Notes = list[Note]  # `list` is a method of Notebook


class Notebook:
    """The notes of one user in a store. A note is named by its id, or any part of it that no other id has."""

    def __init__(self, notes: NoteStore, user: str) -> None:
        self.user = check_id("user", user)
        self._notes = notes

    def add(self, text: str, *, tags: Sequence[str] = (), session: str | None = None) -> Note:
        """Store a new note and return it."""
        note = Note(clock.new_id(), self.user, _checked_text(text), clock.now(), _checked_tags(tags), session)
        if not self._notes.add(note):
            raise InvalidRequest(f"there is a note {note.id} already; add it again")
        return note

    def search(self, query: str, *, limit: int | None = None) -> Notes:
        """Return the notes that have a word of a query, the best first; none for a query without words."""
        return list(self._notes.search(self.user, query, limit=limit)) if query.strip() else []

    def list(self) -> Notes:
        """Return all notes, the newest first."""
        return list(self._notes.search(self.user, ""))

    def show(self, which: str) -> Note:
        """Return a note; NoteNotFound if none or several are meant, InvalidDocument if its file cannot be read."""
        note_id = self._find(which)
        note = next((note for note in self.list() if note.id == note_id), None)
        if note is None:
            key = note_key(self.user, note_id)
            raise InvalidDocument([problem for problem in self.problems if problem.file == key])
        return note

    def update(self, which: str, text: str | None = None, *, tags: Sequence[str] | None = None) -> Note:
        """Replace the text of a note, or its tags, and return it; the text before stays in its history."""
        before = self.show(which)
        new_text = before.text if text is None else _checked_text(text)
        new_tags = before.tags if tags is None else _checked_tags(tags)
        return self._notes.update(self.user, before.id, text=new_text, tags=new_tags)

    def edit(self, which: str, open_file: Callable[[str], Any]) -> Note:
        """Let a person edit the file of a note, by its key; InvalidRequest if the store has no files."""
        if not isinstance(self._notes, NoteFiles):
            raise InvalidRequest("this store has no files to edit; give the new text instead")
        return self._notes.edit(self.user, self._find(which), open_file)

    def delete(self, which: str) -> str:
        """Delete a note, readable or not, and return its id."""
        note_id = self._find(which)
        self._notes.delete(self.user, note_id)
        return note_id

    @property
    def problems(self) -> Sequence[Problem]:
        """Return what is wrong with files of notes, by file and line; a store without files has none."""
        return self._notes.problems(self.user) if isinstance(self._notes, NoteFiles) else ()

    def _find(self, which: str) -> str:
        """Return the only id that has a part, also of a file that cannot be read."""
        files = self._notes if isinstance(self._notes, NoteFiles) else None
        ids = [note.id for note in self.list()] if files is None else files.ids(self.user)
        matching = [note_id for note_id in ids if note_id == which] or [
            other for other in ids if which and which in other
        ]
        if len(matching) != 1:
            raise NoteNotFound(which, matching)
        return matching[0]


def _checked_text(text: str) -> str:
    if not require_text("note", text).strip() or len(text) > LONGEST_NOTE:
        raise InvalidArgument("note", text, f"1 to {LONGEST_NOTE:,} characters, and not only space")
    if conflict_lines(text):
        raise InvalidArgument("note", text, "a text without the markers of a git conflict")
    return text


def _checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    if isinstance(tags, str) or not all(_is_tag(tag) for tag in tags):
        raise InvalidArgument("tags", tags, f"a list of words, each one line of 1 to {_LONGEST_TAG} characters")
    return tuple(dict.fromkeys(tag.strip() for tag in tags))


def _is_tag(tag: object) -> bool:
    return isinstance(tag, str) and tag.isprintable() and 0 < len(tag.strip()) <= _LONGEST_TAG
