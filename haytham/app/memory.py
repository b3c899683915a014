"""Notes of users: open the store they are in, for a notebook or for a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.memory.factory import open_notes
from haytham.memory.notebook import Notebook
from haytham.memory.session_memory import SessionMemory
from haytham.session.settings import read_settings

if TYPE_CHECKING:
    from haytham.memory.base import NoteStore
    from haytham.session.session import SessionDocuments
    from haytham.storage.base import SessionStore

STORE = "memory.store"


def open_notebook(store: SessionStore, user: str) -> Notebook:
    """Return the notes of a user: in the store that the environment or haytham.toml names, else in files."""
    setting = read_settings(store).get(STORE)
    return Notebook(open_notes(setting.value, store, may_run_code=setting.source == "environment"), user)


def session_memory(documents: SessionDocuments, *, may_run_code: bool) -> SessionMemory:
    """Return the memory of a session, or none if that is switched off.

    A store that the workflow names is opened only if that may run code; whoever sets the environment trusts theirs.
    """

    def open_store() -> NoteStore | None:
        settings = documents.read().settings
        trusted = may_run_code or settings.get(STORE).source == "environment"
        policy = settings.memory
        return open_notes(policy.store, documents.store, may_run_code=trusted) if policy.enabled else None

    return SessionMemory(documents, open_store)
