"""The stores that come with the package pass the contract; what is special to files is shown here."""

from __future__ import annotations

import os
import shutil
import stat
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace

import pytest

from haytham import clock
from haytham.errors import SymbolicLink
from haytham.storage import Append, Batch, Delete, FileStore, MemoryStore, Write
from haytham.storage.base import VERBS
from haytham.storage.conformance import SessionStoreConformance, StoreConformance
from support.git_clones import git


class TestMemoryStore(SessionStoreConformance):
    @pytest.fixture
    def store(self):
        return MemoryStore()


class TestFileStore(SessionStoreConformance):
    @pytest.fixture
    def store(self, tmp_path):
        return FileStore(tmp_path / "base")


class SevenVerbs:
    """The store of somebody who read the protocol and wrote no more than it asks for."""

    def __init__(self):
        inner = MemoryStore()
        self.__dict__ |= {verb: getattr(inner, verb) for verb in VERBS}


class TestSevenVerbs(StoreConformance):
    @pytest.fixture
    def store(self):
        return SevenVerbs()


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "base"
    folder.mkdir()
    return folder


def test_a_link_that_leads_out_is_refused(base, tmp_path):
    """A file or folder that is a link to somewhere else is neither read, written, listed through, nor deleted."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_bytes(b"secret")
    (base / "folder").symlink_to(outside)
    (base / "file.md").symlink_to(outside / "secret.md")
    store = FileStore(base)
    for key in ("folder/secret.md", "file.md"):
        write, append = lambda key: store.write(key, b"x"), lambda key: store.append(key, b"x\n")
        for verb in (store.read, write, append, store.delete):
            with pytest.raises(ValueError, match="leads out"):
                verb(key)
    with pytest.raises(ValueError, match="leads out"):
        store.delete("folder/")
    assert store.keys() == ["file.md", "folder"]
    assert (outside / "secret.md").read_bytes() == b"secret"
    assert os.listdir(outside) == ["secret.md"]


def verbs(store, key):
    """Every verb that reaches a key, or the folder of that name."""
    yield lambda: store.read(key)
    yield lambda: store.write(key, b"x")
    yield lambda: store.write_all({key: b"x"})
    yield lambda: store.commit(Batch((Write("q/first", b"x"), Write(key, b"x"))))
    yield lambda: store.commit(Batch((Write("q/first", b"x"),), (Append(key, b"x\n"),)))
    yield lambda: store.commit(Batch((Write("q/first", b"x"),), (), (Delete(key),)))
    yield lambda: store.commit(Batch((Write("q/first", b"x"),), folders=(f"{key}/",)))
    yield lambda: store.append(key, b"x\n")
    yield lambda: store.delete(key)
    yield lambda: store.write_folder(f"{key}/", [("new.md", b"x")])
    yield lambda: store.delete(f"{key}/")
    for verb in (store.ensure_folder, store.keys, store.folders, store.has_folder, store.versions):
        yield partial(verb, f"{key}/")


@pytest.mark.parametrize("key", ["p/file.md", "p/folder", "p/folder/b.md", "p/folder/new.md", "p/folder/in/new.md"])
def test_no_key_is_reached_through_a_link_within_the_base(base, key):
    """A link to another place in the base folder is refused by every verb, and that place stays as it is."""
    store = FileStore(base)
    store.write("good/b.md", b"1")
    (base / "p").mkdir()
    (base / "p" / "file.md").symlink_to(base / "good" / "b.md")
    (base / "p" / "folder").symlink_to("../good")
    for verb in verbs(store, key):
        with pytest.raises(SymbolicLink, match="allowed: no symbolic link"):
            verb()
    assert not store.is_regular(key)
    assert not store.has_folder("q/")
    assert [path.name for path in (base / "good").iterdir()] == ["b.md"]
    assert (base / "good" / "b.md").read_bytes() == b"1"


def test_no_lock_is_taken_through_a_link(base):
    """A link in the place of a lock, of the note beside it, or of a folder above is refused and not written to."""
    store = FileStore(base)
    store.write("good/b.md", b"1")
    with store.lock("p"), store.run_lock("p"):
        files = [path for path in base.rglob(".*") if path.is_file() and path.name != ".gitignore"]
    assert len(files) >= 3
    for path in (*files, files[0].parent):
        kept = shutil.move(path, base / "kept") if path.exists() else base / "nothing"
        path.symlink_to(base / "good" if kept.is_dir() else base / "good" / "b.md")
        with pytest.raises(SymbolicLink), store.lock("p"), store.run_lock("p"):
            pytest.fail(str(path))
        path.unlink()
        if kept.exists():
            kept.rename(path)
    assert (base / "good" / "b.md").read_bytes() == b"1"
    assert [path.name for path in (base / "good").iterdir()] == ["b.md"]


@pytest.mark.parametrize("call", ["write", "append", "write_all", "write_folder"])
def test_a_folder_that_becomes_a_link_while_it_is_written_to_is_refused(base, monkeypatch, call):
    """A folder replaced by a link between the check and the write changes nothing where the link leads."""
    store = FileStore(base)
    store.write("good/log", b"1\n")
    store.write("p/log", b"2\n")
    real = os.open

    def swap(path, flags, *rest, **options):
        written = f"{base}/p/" in path or f"{base}/.haytham/tmp/" in path
        if flags & os.O_CREAT and written and not (base / "p").is_symlink():
            (base / "p").rename(base / "moved")
            (base / "p").symlink_to("good")
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", swap)
    act = {
        "write": lambda: store.write("p/log", b"x"),
        "append": lambda: store.append("p/log", b"x\n"),
        "write_all": lambda: store.write_all({"p/log": b"x", "q/log": b"x"}),
        "write_folder": lambda: store.write_folder("p/new/", [("a", b"x")]),
    }[call]
    with pytest.raises((SymbolicLink, OSError)):
        act()
    assert (base / "p").is_symlink()
    assert {path.name: path.read_bytes() for path in (base / "good").iterdir()} == {"log": b"1\n"}


def test_reading_asks_once_for_each_part_of_a_key(base, monkeypatch):
    """Links cost one look at each part of a path to find, however often a folder was looked at before."""
    store = FileStore(base)
    store.write("a/b/c.md", b"1")
    store.write("a/b/d.md", b"1")
    looked, real = [], os.lstat
    monkeypatch.setattr(os, "lstat", lambda path, **options: (looked.append(path), real(path, **options))[1])
    store.read("a/b/c.md")
    assert len(looked) <= 3
    looked.clear()
    store.write_all({"a/b/c.md": b"2", "a/b/d.md": b"2"})
    assert len(looked) <= 2 * 2 + 2 * 2


@pytest.mark.parametrize("linked", ["p", "p/a", "p/a/b"])
def test_a_folder_that_was_checked_and_becomes_a_link_is_refused(base, linked):
    """A store that has read and written in a folder refuses it once it, or one above it, is a link to elsewhere."""
    store = FileStore(base)
    for top in ("p", "good"):
        store.write(f"{top}/a/b/c.md", b"1")
        store.write(f"{top}/b/c.md", b"1")
        store.write(f"{top}/c.md", b"1")
        store.read(f"{top}/a/b/c.md")
    (base / linked).rename(base / "moved")
    (base / linked).symlink_to(base / "good" if linked != "p/a" else base / "good" / "a")
    changed = [base / "good", base / "moved"]
    before = [path.read_bytes() for top in changed for path in sorted(top.rglob("*.md"))]
    for verb in verbs(store, "p/a/b/c.md"):
        with pytest.raises(SymbolicLink):
            verb()
    assert not store.is_regular("p/a/b/c.md")
    assert [path.read_bytes() for top in changed for path in sorted(top.rglob("*.md"))] == before


@pytest.mark.parametrize("change", [FileStore.delete, lambda store, key: store.write(key, b"3")])
def test_a_folder_that_becomes_a_link_while_its_lock_is_held_is_not_written_to(base, change):
    """What was checked when the lock was acquired is looked at again before anything is written or deleted there."""
    store = FileStore(base)
    store.write_all({"p/a/b.md": b"1", "good/a/b.md": b"2"})
    with store.lock("p"):
        assert store.read("p/a/b.md") == b"1"
        (base / "p").rename(base / "moved")
        (base / "p").symlink_to(base / "good")
        with pytest.raises(SymbolicLink):
            change(store, "p/a/b.md")
    assert (base / "good" / "a" / "b.md").read_bytes() == b"2"
    assert (base / "moved" / "a" / "b.md").read_bytes() == b"1"


def test_a_folder_that_is_moved_behind_a_link_is_not_written_to(base):
    """A folder that was moved, with a link to it in its place, is the same folder: no lock and no write go there."""
    store = FileStore(base)
    with store.lock("p"):
        store.write("p/a/b.md", b"1")
        assert store.read("p/a/b.md") == b"1"
        (base / "p").rename(base / "moved")
        (base / "p").symlink_to(base / "moved")
        with pytest.raises(SymbolicLink):
            store.write("p/a/b.md", b"2")
    with store.lock("p"), pytest.raises(SymbolicLink):
        store.read("p/a/b.md")
    assert (base / "moved" / "a" / "b.md").read_bytes() == b"1"


def test_the_base_may_be_a_link(base, tmp_path):
    """The base folder itself may be a link."""
    (tmp_path / "link").symlink_to(base)
    FileStore(tmp_path / "link").write("a", b"1")
    assert FileStore(base).read("a") == b"1"


def test_a_pipe_is_refused_and_does_not_hang(base):
    """What is no file is not read: a named pipe in a folder from elsewhere does not stop the program."""
    os.mkfifo(base / "a.md")
    (base / "folder").mkdir()
    for key in ("a.md", "folder"):
        with pytest.raises(ValueError, match="a folder, a pipe or a device"):
            FileStore(base).read(key)


def test_hidden_names_are_no_keys(base):
    """Editors' files, temporary files and locks are never listed."""
    (base / ".vim.swp").write_bytes(b"")
    (base / ".git").mkdir()
    (base / ".git" / "config").write_bytes(b"")
    (base / ".haytham-left").write_bytes(b"")
    assert FileStore(base).keys() == []


def test_prepare_sweeps_what_a_crash_left(base):
    """Temporary files and folders of killed writers are removed when a folder is prepared, and nothing else is."""
    (base / "a").mkdir()
    for name in (".haytham-1", ".other", "b.md"):
        (base / "a" / name).write_bytes(b"")
    (base / "a" / ".haytham-2").mkdir()
    FileStore(base).ensure_folder("a/")
    assert sorted(os.listdir(base / "a")) == [".other", "b.md"]


def temporaries(base):
    return sorted(path.name for path in (base / ".haytham" / "tmp").iterdir())


def test_locks_and_temporary_files_are_in_a_folder_that_git_ignores(base):
    """Whatever a store writes beside keys is in `.haytham/`, where a .gitignore with `*` hides it, itself included."""
    store = FileStore(base)
    with store.run_lock("p/s"), store.lock("p/s"):
        store.write("p/s/a", b"1")
        store.append("p/s/b", b"1\n")
    store.delete("p/s/a")
    assert sorted(os.listdir(base)) == [".haytham", "p"]
    assert (base / ".haytham" / ".gitignore").read_bytes() == b"*\n"
    git("init", "-q", cwd=base)
    assert git("status", "--porcelain", "-uall", cwd=base) == "?? p/s/b\n"


def test_prepare_sweeps_only_temporary_files_of_its_folder(base):
    """What writers to other folders are about to move stays; what is a day old is swept whoever wrote it."""
    store = FileStore(base)
    store.ensure_folder("a/")

    def files():
        yield "c", b"1"
        mine, old = temporaries(base)[0], base / ".haytham" / "tmp" / ".haytham-0-left"
        (base / ".haytham" / "tmp" / (mine + "-of-a-dead-writer")).write_bytes(b"")
        old.write_bytes(b"")
        os.utime(old, (0, 0))
        store.ensure_folder("a/")
        assert temporaries(base) == [mine, mine + "-of-a-dead-writer"]

    store.write_folder("b/new/", files())
    assert len(temporaries(base)) == 1
    store.ensure_folder("b/")
    assert temporaries(base) == []


@pytest.mark.parametrize("place", [".haytham", ".haytham/tmp", ".haytham/locks", ".haytham/locks/p"])
def test_a_link_in_the_folder_for_locks_is_refused(base, tmp_path, place):
    """A workspace from elsewhere cannot have locks and temporary files written outside of it."""
    (outside := tmp_path / "outside").mkdir()
    (base / place).parent.mkdir(parents=True, exist_ok=True)
    (base / place).symlink_to(outside)
    store = FileStore(base)
    with pytest.raises(SymbolicLink), store.lock("p"):
        store.write("a", b"1")
    assert os.listdir(outside) == []


def test_a_setting_is_written_only_if_absent(base):
    """A file with a leading dot in the base folder is written once, and a person's own is left as it is."""
    store = FileStore(base)
    store.write_setting("gitattributes", b"1")
    assert ((base / ".gitattributes").read_bytes(), temporaries(base)) == (b"1", [])
    (base / ".gitattributes").write_bytes(b"mine")
    store.write_setting("gitattributes", b"2")
    assert (base / ".gitattributes").read_bytes() == b"mine"


def test_a_line_cut_off_by_a_crash_is_ended_before_the_next(base):
    """A line that a crash left without its end does not swallow the next one."""
    (base / "log").write_bytes(b'{"a": 1}\n{"b"')
    FileStore(base).append("log", b'{"c": 3}\n')
    assert (base / "log").read_bytes() == b'{"a": 1}\n{"b"\n{"c": 3}\n'


def test_a_write_leaves_one_file_with_usual_permissions(base):
    """A written file has the permissions that any new file has, and no temporary file is left."""
    before = os.umask(0o022)
    try:
        FileStore(base).write("a/b", b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((base / "a" / "b").stat().st_mode) == 0o644
    assert os.listdir(base / "a") == ["b"]


def test_every_write_is_synced_file_first_then_folder(base, monkeypatch):
    """The bytes are on the disk before the name, and the name before the write returns."""
    store = FileStore(base)
    store.write("a/b", b"0")
    seen = []
    real_sync, real_replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (seen.append(stat.S_ISDIR(os.fstat(file).st_mode)), real_sync(file)))
    monkeypatch.setattr(os, "replace", lambda *names: (seen.append("replace"), real_replace(*names)))
    store.write("a/b", b"1")
    assert seen == [False, "replace", True]


def test_a_new_folder_is_synced_in_the_one_above(base, monkeypatch):
    """A folder that a write makes is on the disk before what is written in it."""
    synced = []
    real = os.fsync
    name = "/proc/self/fd/{}".format
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.path.realpath(name(file))), real(file)))
    FileStore(base).write("a/b/c", b"1")
    assert synced[:2] == [str(base), str(base / "a")]


def test_a_lock_that_is_not_let_go_is_told(base, monkeypatch):
    """A lock that cannot be had in time is an error that names it."""
    monkeypatch.setattr("haytham.storage.files._LOCK_TIMEOUT", 0.01)
    first, second = FileStore(base), FileStore(base)
    with first.lock("p/s"), pytest.raises(TimeoutError, match="p/s: another process has held"), second.lock("p/s"):
        pytest.fail("two held it")


def test_a_token_changes_with_the_file_and_is_none_for_a_fresh_one(base):
    """A token tells two states of a file apart; one that changed a moment ago has none, since clocks are coarse."""
    store = FileStore(base)
    store.write("a", b"1")
    assert store.change_token("a") is None
    long_ago = 1_700_000_000_000_000_000
    os.utime(base / "a", ns=(long_ago, long_ago))
    assert store.change_token("a") is None
    assert store.change_token("nowhere") is None
    time.sleep(0.1)
    token = store.change_token("a")
    assert token is not None
    assert store.versions() == {"a": token}
    (base / "a").write_bytes(b"2")
    time.sleep(0.1)
    assert store.change_token("a") not in (None, token)


def test_a_disk_with_a_coarse_clock_needs_a_longer_time(base, monkeypatch):
    """Where times are whole seconds, a file has no token for two of them."""
    store, real = FileStore(base), os.lstat
    store.write("a", b"1")

    def coarse(path, **options):
        about = real(path, **options)
        whole = about.st_ctime_ns // 10**9 * 10**9
        return SimpleNamespace(
            **{name: getattr(about, name) for name in ("st_mode", "st_dev", "st_ino", "st_size")},
            st_mtime_ns=whole,
            st_ctime_ns=whole,
        )

    time.sleep(0.1)
    monkeypatch.setattr(os, "lstat", coarse)
    assert store.change_token("a") is None
    with clock.override(lambda: datetime.now(UTC) + timedelta(seconds=3)):
        assert store.change_token("a") is not None


def test_folders_that_were_checked_are_not_checked_part_by_part_again(base, monkeypatch):
    """Of a folder that was checked only its identity is asked for."""
    store = FileStore(base)
    keys = [f"a/b/c/d/{number}.md" for number in range(20)]
    store.write_all(dict.fromkeys(keys, b"1"))
    looked, real = [], os.lstat
    monkeypatch.setattr(os, "lstat", lambda path, **options: (looked.append(path), real(path, **options))[1])
    for key in keys:
        store.read(key)
    assert not looked
    assert all(map(store.is_regular, keys))
    assert len(looked) == len(keys)
    looked.clear()
    store.write_all(dict.fromkeys(keys, b"2"))
    assert len(looked) <= len(keys) + 6


def test_appending_holds_no_lock_of_other_files(base):
    """A writer that holds one log's lock keeps nobody from another log."""
    first, second = FileStore(base), FileStore(base)
    with first.lock("p"), second.lock("q"):
        first.append("p/log", b"1\n")
        second.append("q/log", b"2\n")
    assert not (base / ".haytham" / "locks" / ".lock").exists()
