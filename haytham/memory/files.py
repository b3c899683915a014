"""Notes as Markdown documents in the folder of their user: the store that is used unless another is named.

A note's id is the name of its file, so that a file which a person edits, copies, adds or deletes counts as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.errors import HaythamError, InvalidDocument, NotFound, Problem, WriteConflict
from haytham.memory.base import Note
from haytham.memory.index import NoteIndex
from haytham.session import paths
from haytham.session.documents import DocumentRepository
from haytham.session.models import MemoryNote, NoteChange

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham.session.documents import StoredDocument
    from haytham.storage.base import SessionStore


class NoteFiles:
    """The notes of a workspace. Each change is one write under the lock of the user's folder."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._documents = DocumentRepository(store)

    def add(self, note: Note) -> bool:
        """Write a note to a file of its own; return False if there is one."""
        prefix, key = paths.memory_prefix(note.user), paths.note_key(note.user, note.id)
        history = tuple(NoteChange(changed=changed, before=before) for changed, before in note.history)
        value = MemoryNote(
            user=note.user,
            created=note.created,
            session=note.session,
            tags=note.tags,
            text=note.text,
            history=history or None,
        )
        with self._store.lock(prefix[:-1]):
            self._store.ensure_folder(prefix)
            try:
                self._documents.write(MemoryNote, key, value, derived_values={}, previous=None)
            except WriteConflict:
                return False
        return True

    def search(self, user: str, query: str, *, limit: int | None = None) -> list[Note]:
        """Return the notes that fit a query, by the index; a file that cannot be read hides no other."""
        versions = self._versions(user)
        if not query.strip():
            notes = [note for note in map(self._reader(user), versions) if note is not None]
            return sorted(notes, key=lambda note: (note.created, note.id), reverse=True)[:limit]
        read = self._reader(user)
        index = NoteIndex(self._store, paths.memory_index_key(user))
        keys = index.search(query, versions, lambda key: _searched(read(key)))
        return [note for note in map(read, keys) if note is not None][:limit]

    def update(self, user: str, note_id: str, *, text: str, tags: tuple[str, ...]) -> Note:
        """Replace text and tags of a note; the text before goes to its history."""
        with self._store.lock(paths.memory_prefix(user)[:-1]):
            document = self._require(user, note_id)
            value = replace(_with_text(document.value, text), tags=tags)
            if value != document.value:
                document = self._documents.write(MemoryNote, document.key, value, derived_values={}, previous=document)
            return _note(note_id, document.value)

    def delete(self, user: str, note_id: str) -> None:
        """Delete the file of a note, readable or not."""
        key = paths.note_key(user, note_id)
        with self._store.lock(paths.memory_prefix(user)[:-1]):
            if not self._store.is_regular(key):
                raise NotFound(f"note {note_id!r}", key)
            self._store.delete(key)

    # Beyond the protocol: what only files have.

    def problems(self, user: str) -> list[Problem]:
        """Return what is wrong with the files of a user's notes, by file and line."""
        return [problem for key in self._versions(user) for problem in self._look(user, key)[1]]

    def ids(self, user: str) -> list[str]:
        """Return the ids of all files of a user's notes, readable or not."""
        return [note_id for key in self._versions(user) if (note_id := paths.note_id(key)) is not None]

    def edit(self, user: str, note_id: str, open_file: Callable[[str], Any]) -> Note:
        """Let a person edit the file of a note, by its key; InvalidDocument if it cannot be read then."""
        key = paths.note_key(user, note_id)
        before = self._documents.find(MemoryNote, key)
        if before is None:
            raise NotFound(f"note {note_id!r}", key)
        open_file(key)
        after = self._require(user, note_id)
        if before.faults or after.value.history != before.value.history:
            return _note(note_id, after.value)
        with self._store.lock(paths.memory_prefix(user)[:-1]):
            value = replace(_with_text(before.value, after.value.text), tags=after.value.tags)
            if value.history != after.value.history:
                after = self._documents.write(MemoryNote, key, value, derived_values={}, previous=after)
        return _note(note_id, after.value)

    def _versions(self, user: str) -> dict[str, object | None]:
        """Return the change token of each file of a user's notes."""
        prefix = paths.memory_prefix(user)
        versions = self._store.versions(prefix, folders=())
        return {key: token for key, token in versions.items() if paths.note_id(key) is not None}

    def _reader(self, user: str) -> Callable[[str], Note | None]:
        """Return a function that reads the note at a key, once; None for a file that is no note of this user."""
        notes: dict[str, Note | None] = {}

        def read(key: str) -> Note | None:
            if key not in notes:
                notes[key] = self._look(user, key)[0]
            return notes[key]

        return read

    def _look(self, user: str, key: str) -> tuple[Note | None, list[Problem]]:
        """Return the note at a key, or what makes the file there none; neither if it went away."""
        try:
            document = self._documents.find(MemoryNote, key)
        except (HaythamError, OSError) as error:  # a link, a pipe, a file that may not be read
            return None, [Problem(str(error), file=key)]
        problems = [] if document is None else _problems(document, user)
        if document is None or problems:
            return None, problems
        return _note(paths.note_id(key) or "", document.value), []

    def _require(self, user: str, note_id: str) -> StoredDocument[MemoryNote]:
        key = paths.note_key(user, note_id)
        document = self._documents.read(MemoryNote, key, f"note {note_id!r}")
        problems = _problems(document, user)
        if problems:
            raise InvalidDocument(problems)
        return document


def _problems(document: StoredDocument[MemoryNote], user: str) -> list[Problem]:
    """Return what makes a file no note of a user: it cannot be read, has conflicts of git, or names another user."""
    if document.faults:
        return list(document.faults)
    if document.value.user != user:
        return [document.problem(f"names another user than its folder, which is of {user}", "user")]
    return list(document.content_conflicts())


def _with_text(value: MemoryNote, text: str) -> MemoryNote:
    """Return a note with another text, and the one before in its history."""
    if text == value.text:
        return value
    change = NoteChange(changed=clock.now(), before=value.text)
    return replace(value, text=text, history=(*(value.history or ()), change))


def _note(note_id: str, value: MemoryNote) -> Note:
    history = tuple((change.changed, change.before) for change in value.history or ())
    return Note(note_id, value.user, value.text, value.created, value.tags, value.session, history)


def _searched(note: Note | None) -> str:
    """Return what a search looks at: the text and the tags."""
    return "" if note is None else "\n".join([note.text, *note.tags])
