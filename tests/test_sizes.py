"""What snapshots take as stored: each counted once, and known without reading it again."""

from __future__ import annotations

import pytest

from haytham import CheckpointManager, FileStore, History, MemoryStore
from haytham.history import sizes
from haytham.history.catalog import SnapshotCatalog
from haytham.session import SessionDocuments

IDS = ("p", "s")


def new_history(store):
    return History(SessionDocuments(store, *IDS))


@pytest.fixture
def history(tmp_path):
    """The history of a session with two snapshots."""
    manager = CheckpointManager(tmp_path)
    manager.create_session(*IDS, "ann")
    history = new_history(FileStore(tmp_path))
    history.take()
    manager.save_agent_output(*IDS, 1, "one", "A page. " * 500)
    history.take()
    return history


def test_a_stored_size_is_that_of_the_blobs(history):
    """Each snapshot is as large as its compressed documents, by itself."""
    assert history.stored_sizes() == {one.id: history.stored_size(one) for one in history.list()}
    newest, first = history.list()
    assert history.stored_sizes()[newest.id] < newest.raw
    assert history.stored_sizes()[first.id] < history.stored_sizes()[newest.id]


def test_only_new_snapshots_are_read(history, tmp_path, monkeypatch):
    """Another process has the sizes from the local cache; a deleted snapshot leaves it."""
    before = history.stored_sizes()
    sizes._SIZES.clear()
    read = []
    monkeypatch.setattr(SnapshotCatalog, "read", lambda _self, ref: read.append(ref))
    assert new_history(FileStore(tmp_path)).stored_sizes() == before
    assert read == []
    monkeypatch.undo()
    history.delete(2)
    assert [*history.stored_sizes()] == [history.latest().id]


@pytest.mark.parametrize("data", [b"", b"[1]", b'{"x": "large"}', b"{"])
def test_a_damaged_cache_is_made_again(history, tmp_path, data):
    """Sizes are counted again if the cache cannot be read."""
    before = history.stored_sizes()
    (cache,) = (tmp_path / ".haytham").rglob("sizes/p/s.json")
    cache.write_bytes(data)
    sizes._SIZES.clear()
    assert new_history(FileStore(tmp_path)).stored_sizes() == before


def test_a_store_without_a_cache_has_sizes_too():
    """In memory, nothing but the snapshots themselves is written."""
    store = MemoryStore()
    session = SessionDocuments(store, *IDS)
    store.write("p/sessions/s/notes.md", b"A page. " * 500)
    history = History(session)
    snapshot = history.take()
    keys = store.keys()
    assert history.stored_sizes() == {snapshot.id: history.stored_size(snapshot)}
    assert store.keys() == keys
