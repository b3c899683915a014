"""Notes of users: open the store they are in, for a notebook or for a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.app.settings import memory_store
from haytham.memory.factory import FILES, open_notes
from haytham.memory.notebook import Notebook
from haytham.memory.session_memory import SessionMemory

if TYPE_CHECKING:
    from haytham.memory.base import NoteStore
    from haytham.session.session import SessionDocuments
    from haytham.storage.base import SessionStore


def open_notebook(store: SessionStore, user: str) -> Notebook:
    """Return the notes of a user: in the store that the environment names, else in files."""
    named = memory_store()
    return Notebook(open_notes(named or FILES, store, may_run_code=named is not None), user)


def session_memory(documents: SessionDocuments, *, may_run_code: bool) -> SessionMemory:
    """Return the memory of a session: in the store that the environment names, else its workflow; or none.

    A store that the workflow names is opened only if that may run code; whoever sets the environment trusts theirs.
    """
    named = memory_store()

    def open_store() -> NoteStore | None:
        policy, trusted = documents.read().workflow.memory, may_run_code or named is not None
        return open_notes(named or policy.store, documents.store, may_run_code=trusted) if policy.enabled else None

    return SessionMemory(documents, open_store)
