"""Memory across sessions: notes of a user, searched for what matters to a task. Knows nothing of runs or commands."""

from haytham.memory.base import Note, NoteStore

__all__ = ["Note", "NoteStore"]
