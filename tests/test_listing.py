"""The files of a session's folders, each folder listed once; and digests by change token."""

from __future__ import annotations

import pytest

from haytham.session.listing import FileListing, file_digest, measured
from haytham.storage import FileStore, MemoryStore
from haytham.storage.base import bytes_digest

FILES = {"s/top.md": b"t", "s/one/a.md": b"a", "s/one/tasks/a.md": b"b", "s/two/b.md": b"c"}


@pytest.fixture
def store():
    made = MemoryStore()
    made.write_all(FILES)
    return made


def test_folders_are_listed_with_all_that_is_below_them(store):
    """One walk lists the same as a walk of each folder; a folder that is missing has no files."""
    together, alone = FileListing(store, "s/"), FileListing(store, "s/")
    together.list_all(["s/one/", "s/two/", "s/three/"])
    for folder, names in {"s/one/": ["a.md", "tasks/a.md"], "s/two/": ["b.md"], "s/three/": []}.items():
        assert sorted(together.files(folder)) == sorted(alone.files(folder)) == names


def test_a_listing_stays_as_it_was_until_a_file_is_forgotten(store):
    """What others write is not listed before the folder is listed again; what is added is there, without a token."""
    listing = FileListing(store, "s/")
    assert list(listing.files("s/one/")) == ["a.md", "tasks/a.md"]
    store.write("s/one/new.md", b"n")
    assert "new.md" not in listing.files("s/one/")
    listing.add("s/one/other.md")
    assert listing.files("s/one/")["other.md"] is None
    listing.forget("s/one/a.md")
    assert sorted(listing.files("s/one/")) == ["a.md", "new.md", "tasks/a.md"]


@pytest.mark.parametrize(
    ("change", "is_changed"),
    [
        (lambda store: None, False),
        (lambda store: store.write("s/two/b.md", b"z"), False),
        (lambda store: store.write("s/one/a.md", b"z"), True),
        (lambda store: store.write("s/one/more.md", b"z"), True),
        (lambda store: store.delete("s/one/a.md"), True),
    ],
)
def test_a_change_of_a_listed_folder_shows(store, change, is_changed):
    """Another token, another file or one less is a change of its folder alone."""
    listing = FileListing(store, "s/")
    listing.list_all(["s/one/", "s/two/"])
    change(store)
    assert listing.has_changed("s/one/") is is_changed


def test_a_digest_is_cached_only_for_a_file_that_is_surely_the_same(tmp_path, monkeypatch):
    """A file whose change token is another one after it was read is read again."""
    monkeypatch.setattr("haytham.storage.atomic._FRESH", 0)
    store = FileStore(tmp_path)
    store.write("a.md", b"one")
    old = store.change_token("a.md")
    store.write("a.md", b"other")
    assert file_digest(store, "a.md", old) == bytes_digest(b"other")
    assert measured(old) is None
    new = store.change_token("a.md")
    assert file_digest(store, "a.md", new) == bytes_digest(b"other")
    assert measured(new) == (5, bytes_digest(b"other"))
