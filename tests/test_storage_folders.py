"""Whole folders and several keys at once in a folder on disk: all of it or none, whatever fails or is killed when."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import shutil
import stat
from functools import partial

import pytest

from haytham.errors import WriteConflict
from haytham.storage import ABSENT, Append, Batch, Delete, FileStore, Write, bytes_digest
from support.subprocess_workers import apart, fail_at, runs_to_its_end
from test_faults import raises_input_output_error

FILES = [("a.md", b"1" * 5000), ("b/c/d.md", b"2"), ("b/e.md", b""), ("f/g/", b""), ("b/c/h.md", b"3")]
WHOLE = {f"p/new/{key}": data for key, data in FILES if not key.endswith("/")}


@pytest.fixture
def base(tmp_path):
    """A folder with one document beside the place of what is to come."""
    FileStore(tmp_path / "base").write("p/old", b"0")
    return tmp_path / "base"


def write_new(base):
    FileStore(base).write_folder("p/new/", iter(FILES))


def state(base):
    store = FileStore(base)
    return {key: store.read(key) for key in store.keys()}  # noqa: SIM118 - a store is no dict


def strays(base):
    return list(base.rglob(".haytham-*"))


def noted(monkeypatch, base):
    """The calls that put things on the disk from now on, in order: what is synced, and what gets its name."""
    seen, sync = [], os.fsync

    def note_sync(file):
        seen.append(os.path.relpath(os.path.realpath(f"/proc/self/fd/{file}"), base))
        sync(file)

    def note_name(call, source, target):
        seen.append(f"-> {os.path.relpath(target, base)}")
        call(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, partial(note_name, getattr(os, name)))
    return seen


# A new folder.


@pytest.mark.parametrize("call", ["mkdir", "write", "fsync", "rename"])
def test_a_call_that_fails_leaves_no_folder(base, monkeypatch, call):
    """Whichever call fails while a folder is written: the error is told, and nothing of it is there or left over."""
    for nth in itertools.count():
        with monkeypatch.context() as patch:
            calls = fail_at(patch, call, nth)
            failed = raises_input_output_error(partial(write_new, base))
        if len(calls) <= nth:
            break
        assert failed
        assert (os.listdir(base / "p"), strays(base)) == (["old"], [])
    assert nth > 0
    assert state(base) == {"p/old": b"0", **WHOLE}


def test_a_kill_at_any_step_leaves_the_whole_folder_or_none(tmp_path):
    """Kill -9 in each call that changes the disk: the folder is absent or whole, and is written well afterwards."""
    for step in itertools.count():
        base = tmp_path / f"step_{step}"
        store = FileStore(base)
        store.write("p/old", b"0")
        if runs_to_its_end(partial(write_new, base), step):
            break
        assert state(base) in ({"p/old": b"0"}, {"p/old": b"0", **WHOLE})
        assert store.folders("p/") == ["new"] * (len(state(base)) > 1)
        store.ensure_folder("p/")
        assert strays(base) == []
        store.delete("p/new/")
        write_new(base)
        assert (state(base), strays(base)) == ({"p/old": b"0", **WHOLE}, [])
    assert step > len(FILES)
    assert (state(base), store.folders("p/new/")) == ({"p/old": b"0", **WHOLE}, ["b", "f"])


def test_one_copy_of_all_files_is_synced_before_the_folder_has_its_name(base, monkeypatch):
    """The journal comes first, then its name; then the name of the folder, then the folder it is in."""
    seen = noted(monkeypatch, base)
    write_new(base)
    assert [path.partition(",")[0] for path in seen] == [
        *(".haytham/journals/p%2Fnew%2F", ".haytham/journals"),
        *("-> p/new", "p"),
    ]


def test_each_file_of_a_large_folder_is_synced_once_before_the_folder_has_its_name(base, monkeypatch):
    """Files come first, then folders, the inner ones before the outer; then the name, then the folder it is in."""
    monkeypatch.setattr("haytham.storage.journal._LARGEST", 1000)
    seen = noted(monkeypatch, base)
    write_new(base)
    temporary = seen[0].split("/")[2]
    inside = [path.removeprefix(f".haytham/tmp/{temporary}").lstrip("/") for path in seen[:-2]]
    files, folders = inside[:4], inside[4:]
    assert sorted(files) == ["a.md", "b/c/d.md", "b/c/h.md", "b/e.md"]
    assert folders == ["f/g", "f", "b/c", "b", ""]
    assert seen[-2:] == ["-> p/new", "p"]


def test_an_iterable_that_fails_leaves_nothing(base):
    """Where the bytes cannot be had, no folder and no temporary one are left."""

    def files():
        yield from FILES
        assert len(strays(base)) == 1
        raise FileExistsError("the source is gone")

    with pytest.raises(FileExistsError, match="the source is gone"):
        FileStore(base).write_folder("p/new/", files())
    assert (os.listdir(base / "p"), strays(base)) == (["old"], [])


def test_what_comes_in_between_is_kept(base):
    """A key that somebody writes to the folder while it is being written is a Conflict, and stays."""

    def files():
        yield from FILES
        FileStore(base).write("p/new/mine", b"1")

    with pytest.raises(WriteConflict, match="expected nothing there, found p/new/mine"):
        FileStore(base).write_folder("p/new/", files())
    assert state(base) == {"p/old": b"0", "p/new/mine": b"1"}
    assert strays(base) == []


def test_hidden_files_are_not_written_over(base):
    """A file that is no key keeps its folder from being replaced; what killed writers left does not."""
    (base / "p/new/.git").mkdir(parents=True)
    write_new(copy := base.parent / "copy")
    (base / "p/new/.git/config").write_bytes(b"1")
    with pytest.raises(WriteConflict, match=r"found p/new/\.git/config"):
        write_new(base)
    (base / "p/new/.git/config").rename(base / "p/new/.haytham-1")
    write_new(base)
    assert sorted(os.listdir(base / "p/new")) == sorted(os.listdir(copy / "p/new"))


def test_a_folder_is_not_written_through_a_link_that_leads_out(base, tmp_path):
    """Neither a folder above nor the folder itself may be a link to somewhere else, be it there or not."""
    (outside := tmp_path / "outside").mkdir()
    (base / "out").symlink_to(outside)
    (base / "p/gone").symlink_to(tmp_path / "nowhere")
    for prefix in ("out/", "out/new/", "out/b/c/", "p/gone/", "p/gone/new/"):
        with pytest.raises(ValueError, match="leads out"):
            FileStore(base).write_folder(prefix, FILES)
    assert os.listdir(outside) == []
    assert not (tmp_path / "nowhere").exists()


def test_no_folder_is_written_through_or_in_the_place_of_a_link(base):
    """A link to another place of the base is neither a folder to write to nor one to replace."""
    (base / "q").symlink_to(base / "p")
    for prefix in ("q/new/", "q/"):
        with pytest.raises(ValueError, match="allowed: no symbolic link"):
            FileStore(base).write_folder(prefix, FILES)
    assert FileStore(base).keys() == ["p/old", "q"]


def test_a_new_folder_has_usual_permissions(base):
    """What is written has the permissions that any new file and folder has."""
    before = os.umask(0o027)
    try:
        write_new(base)
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((base / "p/new" / name).stat().st_mode) for name in (".", "b", "a.md")}
    assert modes == {".": 0o750, "b": 0o750, "a.md": 0o640}


# Several keys.


def test_several_keys_sync_each_folder_once(base, monkeypatch):
    """All bytes are on the disk before the first name, names come in order, and each folder is synced once."""
    store = FileStore(base)
    store.ensure_folder("q/")
    seen = noted(monkeypatch, base)
    store.write_all({"p/b": b"1", "q/a": b"2", "p/a": b"3"})
    assert [path.rpartition("/.")[0] for path in seen[:3]] == [".haytham/tmp"] * 3
    assert seen[3:] == ["-> p/b", "-> q/a", "-> p/a", "p", "q"]


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_several_keys_are_each_old_or_new_when_a_call_fails(base, monkeypatch, call):
    """Whichever call fails while several keys are written: each has its old bytes or its new ones, nothing is left."""
    new = {"p/old": b"1", "p/b/c": b"2", "d": b"3"}
    for nth in itertools.count():
        FileStore(base).write("p/old", b"0")
        with monkeypatch.context() as patch:
            calls = fail_at(patch, call, nth)
            failed = raises_input_output_error(partial(FileStore(base).write_all, new))
        if len(calls) <= nth:
            break
        assert failed
        assert all(data in (b"0", new[key]) for key, data in state(base).items())
        assert strays(base) == []
    assert nth > 2
    assert state(base) == new


# A folder that is a mount of its own.


@pytest.fixture
def mounted(base, monkeypatch):
    """A base folder in which `p/` is another file system: nothing can be renamed into it or out of it."""

    def note_apart(call, source, target):
        inside = [str(path).startswith(f"{base}/p/") for path in (source, target)]
        if inside[0] != inside[1]:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        call(source, target)

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, partial(note_apart, getattr(os, name)))
    return base


def test_a_folder_that_is_a_mount_is_written_with_temporary_files_beside(mounted):
    """Files, folders and several keys are written to a mount, and deleted from it; nothing is left on either side."""
    store = FileStore(mounted)
    store.write("p/old", b"1", expect=bytes_digest(b"0"))
    store.write_all({"p/a/b": b"2", "q/c": b"3"})
    write_new(mounted)
    assert state(mounted) == {"p/old": b"1", "p/a/b": b"2", "q/c": b"3", **WHOLE}
    assert store.has_folder("p/new/f/g/")
    store.delete("p/a/")
    store.delete("p/old")
    assert state(mounted) == {"q/c": b"3", **WHOLE}
    with pytest.raises(WriteConflict, match="expected nothing there, found p/new"):
        write_new(mounted)
    assert strays(mounted) == []


def test_a_call_that_fails_on_a_mount_leaves_nothing_over(mounted, monkeypatch):
    """Whichever write fails while a mount is written to: the old bytes stay, and no temporary file is left."""
    for nth in itertools.count():
        with monkeypatch.context() as patch:
            calls = fail_at(patch, "fsync", nth)
            failed = raises_input_output_error(partial(FileStore(mounted).write, "p/old", b"1"))
        if len(calls) <= nth:
            break
        assert (failed, strays(mounted)) == (True, [])
    assert nth > 2


# Looking.


def test_a_folder_with_a_hidden_file_is_not_empty(base):
    """A folder with nothing but a file that is no key is not told as empty; with what a killed writer left it is."""
    for name in ("a/.keep", "b/.haytham-1", "c/d/.haytham-2"):
        (base / name).parent.mkdir(parents=True)
        (base / name).write_bytes(b"")
    assert FileStore(base).keys(empty=True) == ["b/", "c/d/", "p/old"]


def test_links_are_neither_folders_nor_plain(base):
    """A link is no folder by name and no key with bytes of its own, wherever it leads; neither is a pipe."""
    (base / "link").symlink_to(base / "p")
    (base / "file").symlink_to(base / "p/old")
    (base / "gone").symlink_to(base / "nowhere")
    (base / ".hidden").mkdir()
    os.mkfifo(base / "pipe")
    store = FileStore(base)
    assert store.folders() == ["p"]
    assert store.keys() == ["file", "gone", "link", "p/old", "pipe"]
    assert list(filter(store.is_regular, store.keys())) == ["p/old"]


# A batch.

OLD = {"p/old": b"0", "p/log": b"1\n", "p/gone": b"2", "p/folder/x": b"3", "q/y": b"4"}
BATCH = Batch(
    writes=(Write("p/new/a", b"5" * 5000, ABSENT), Write("p/old", b"6", bytes_digest(b"0")), Write("q/y", b"7")),
    appends=(Append("p/log", b"8\n9\n"), Append("r/log", b"10\n")),
    deletes=(Delete("p/gone"), Delete("p/folder/")),
    folders=("p/empty/",),
)
STEPS = [  # what each change leaves, in order
    {"p/new/a": b"5" * 5000},
    {"p/old": b"6"},
    {"q/y": b"7"},
    {"p/log": b"1\n8\n9\n"},
    {"r/log": b"10\n"},
    {"p/gone": None},
    {"p/folder/x": None},
]


def states():
    """The contents after no change of the batch, after the first, and so on."""
    contents = dict(OLD)
    yield contents
    for step in STEPS:
        contents = {key: data for key, data in {**contents, **step}.items() if data is not None}
        yield contents


def without_half_lines(contents):
    """Contents as they are once the next line is appended: half a line is no line, an empty log is none."""
    logs = {key: data[: data.rfind(b"\n") + 1] for key, data in contents.items() if key.endswith("log")}
    return {key: data for key, data in {**contents, **logs}.items() if data or not key.endswith("log")}


def lines_in_order(contents):
    """Whether a log has only some of the lines of one append, the first ones."""
    return {**contents, "p/log": b"1\n8\n9\n"} if contents.get("p/log") == b"1\n8\n" else contents


@pytest.fixture
def old(tmp_path):
    FileStore(tmp_path / "old").write_all(OLD)
    return tmp_path / "old"


def test_a_kill_at_any_step_of_a_batch_leaves_its_first_changes(old, tmp_path):
    """Kill -9 in each call that changes the disk: the changes made are the first ones of the batch, each whole."""
    allowed = list(states())
    for step in itertools.count():
        base = shutil.copytree(old, tmp_path / f"step_{step}")
        if runs_to_its_end(partial(FileStore(base).commit, BATCH), step):
            break
        assert lines_in_order(without_half_lines(state(base))) in allowed
        store = FileStore(base)
        for folder in ("p/", "p/new/", "q/"):
            store.ensure_folder(folder)
        assert strays(base) == []
        store.append("p/log", b"11\n")
        assert store.read("p/log").endswith(b"\n11\n")
    assert step > len(STEPS)
    assert state(base) == allowed[-1]
    assert FileStore(base).has_folder("p/empty/")


@pytest.mark.parametrize("call", ["mkdir", "write", "fsync", "replace", "rename", "unlink"])
def test_a_call_that_fails_in_a_batch_leaves_its_first_changes(old, tmp_path, monkeypatch, call):
    """Whichever call fails: the error is raised, the changes made are the first ones, nothing temporary is left."""
    allowed = list(states())
    for nth in itertools.count():
        base = shutil.copytree(old, tmp_path / f"nth_{nth}")
        with monkeypatch.context() as patch:
            calls = fail_at(patch, call, nth)
            failed = raises_input_output_error(partial(FileStore(base).commit, BATCH))
        if len(calls) <= nth:
            break
        assert failed
        assert without_half_lines(state(base)) in allowed
        assert call == "unlink" or not [path for path in strays(base) if path.is_file()]
    assert nth > 0
    assert state(base) == allowed[-1]


def test_a_batch_syncs_files_before_names_and_each_folder_once(old, monkeypatch):
    """New folders, then all bytes, then names in order, then logs in order, then each changed folder once."""
    seen = noted(monkeypatch, old)
    FileStore(old).commit(BATCH)
    seen = [path.rpartition("/.")[0] if "/.haytham-" in path else path for path in seen]
    temporary, moved = ".haytham/tmp", "-> .haytham/tmp"
    assert seen == [
        *("p", "."),
        *[temporary] * 3,
        *("-> p/new/a", "-> p/old", "-> q/y", "p/log", "r/log", moved),
        *("p/new", "p", "q", "r"),
    ]


def test_a_batch_over_a_folder_changes_nothing(old):
    """A key that is a folder cannot be written; that is found before the first change."""
    for batch in (
        Batch((Write("q/y", b""), Write("p/folder", b""))),
        Batch((Write("q/y", b""),), (Append("p", b"\n"),)),
    ):
        with pytest.raises(IsADirectoryError):
            FileStore(old).commit(batch)
    assert state(old) == OLD


def test_more_files_than_may_be_open_are_written_in_one_batch(base):
    """A batch may have more files than a process may have open."""
    new = {f"p/{number}": b"%d" % number for number in range(300)}

    def commit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        FileStore(base).write_all(new)

    apart(commit)
    assert state(base) == {"p/old": b"0", **new}
