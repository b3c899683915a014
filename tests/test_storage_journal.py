"""A new folder is on the disk as soon as one copy of all its files is: whatever the machine loses is written again."""

from __future__ import annotations

import itertools
import os
import shutil

import pytest

from haytham.storage import Append, Batch, Delete, FileStore, Write, journal
from support.subprocess_workers import runs_to_its_end

FILES = [("a.md", b"1" * 5000), ("b/c.md", b"22"), ("b/d.md", b"3"), ("b/e.md", b"4"), ("f/", b"")]
WHOLE = {name: data for name, data in FILES if data}


@pytest.fixture
def base(tmp_path):
    """A base with a new folder that was written a moment ago."""
    FileStore(tmp_path / "base").write_folder("p/new/", FILES)
    return tmp_path / "base"


def journals(base):
    """The folders that have a journal."""
    return [path.name.partition(",")[0] for path in (base / ".haytham" / "journals").iterdir()]


def journal_file(base):
    [path] = (base / ".haytham" / "journals").iterdir()
    return path


def contents(base):
    folder = base / "p" / "new"
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def restarted(base, monkeypatch):
    """The base after the machine went down, with files that were cut off."""
    (base / "p/new/a.md").write_bytes(b"1" * 4096)
    (base / "p/new/b/c.md").write_bytes(b"2\0")
    (base / "p/new/b/d.md").unlink()
    (base / "p/new/b/e.md").write_bytes(b"")
    monkeypatch.setattr(journal, "_boot", lambda: b"another")
    return base


def test_files_that_were_cut_off_are_written_again(restarted, caplog):
    """After a restart, files that are missing, shorter or zeros are as they were written, and the log names them."""
    FileStore(restarted)
    assert (contents(restarted), journals(restarted)) == (WHOLE, [])
    assert caplog.text.count("is written again") == 4


def test_what_was_written_since_is_left_as_it_is(restarted):
    """A file that a person changed is not replaced, and a file that came later stays."""
    (restarted / "p/new/a.md").write_bytes(b"mine")
    (restarted / "p/new/mine.md").write_bytes(b"mine")
    FileStore(restarted)
    assert contents(restarted) == {**WHOLE, "a.md": b"mine", "mine.md": b"mine"}


def test_nothing_is_written_again_while_the_machine_runs(base):
    """Without a restart no file can be cut off: what is missing was deleted, and stays so."""
    (base / "p/new/b/d.md").unlink()
    (base / "p/new/b/e.md").write_bytes(b"")
    FileStore(base).write("p/new/x.md", b"5")
    assert contents(base) == {"a.md": WHOLE["a.md"], "b/c.md": b"22", "b/e.md": b"", "x.md": b"5"}
    assert journals(base) == []


def test_a_kill_while_files_are_written_again_loses_nothing(restarted, tmp_path):
    """Kill -9 in each call that changes the disk: the next store finishes."""
    for step in itertools.count():
        trial = shutil.copytree(restarted, tmp_path / f"step_{step}")
        if runs_to_its_end(lambda trial=trial: FileStore(trial), step):
            break
        FileStore(trial)
        assert (contents(trial), journals(trial)) == (WHOLE, [])
    assert step > 4


@pytest.mark.parametrize(
    "batch",
    [
        Batch((Write("p/new/a.md", b"x"),)),
        Batch((), (Append("p/new/log", b"x\n"),)),
        Batch((), (), (Delete("p/new/a.md"),)),
    ],
    ids=["write", "append", "delete"],
)
def test_the_files_are_synced_before_one_of_them_changes(base, monkeypatch, batch):
    """A change in the folder brings all its files to the disk first; then the journal goes."""
    synced, real = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (synced.append(os.path.realpath(f"/proc/self/fd/{file}")), real(file))
    )
    FileStore(base).commit(Batch((Write("p/other/a.md", b""),)))
    assert journals(base) == ["p%2Fnew%2F"]
    synced.clear()
    FileStore(base).commit(batch)
    assert {str(base / "p/new" / name) for name in WHOLE} <= set(synced[:6])
    assert journals(base) == []


def test_a_folder_that_is_deleted_has_no_journal(base):
    """A deleted folder does not come back, and one of the same name is a new one."""
    FileStore(base).delete("p/")
    assert journals(base) == []
    FileStore(base).write_folder("p/new/", [("a.md", b"other")])
    FileStore(base).write_folder("p/next/", FILES)
    assert (contents(base), len(journals(base))) == ({"a.md": b"other"}, 2)


def test_a_journal_of_a_killed_writer_goes_with_the_next_of_the_same_folder(base):
    """Only what the writer wrote that gave the folder its name may be written again."""
    shutil.copy(journal_file(base), base / ".haytham" / "journals" / "p%2Fnext%2F,1")
    FileStore(base).write_folder("p/next/", [("a.md", b"other")])
    assert sorted(journals(base)) == ["p%2Fnew%2F", "p%2Fnext%2F"]


def test_a_journal_of_some_time_ago_is_settled_by_the_next(base):
    """What the system has written by itself needs no journal any more."""
    path = journal_file(base)
    os.utime(path, (0, 0))
    FileStore(base).write_folder("p/next/", FILES)
    assert journals(base) == ["p%2Fnext%2F"]


def test_a_journal_whose_folder_never_appeared_is_removed(restarted):
    """A writer that was killed before the folder had its name has written nothing."""
    shutil.rmtree(restarted / "p" / "new")
    FileStore(restarted)
    assert (journals(restarted), os.listdir(restarted / "p")) == ([], [])


@pytest.mark.parametrize(
    "files",
    [[("../x", b"1")], [("/x", b"1")], [(".x", b"1")], [("a/../../x", b"1")], 3, [3], [("b/c.md", "x")]],
    ids=str,
)
def test_a_journal_from_elsewhere_writes_nothing_outside_its_folder(base, monkeypatch, files, tmp_path):
    """A journal with names that are no keys, or that is no list of files, is removed and writes nothing."""
    before = contents(base)
    sizes = [[name, len(data)] for name, data in files] if isinstance(files, list) and files != [3] else files
    body = journal.json.dumps(sizes).encode() + b"\n" + b"1"
    path = journal_file(base)
    path.write_bytes(b"%08x elsewhere\n%b" % (journal.zlib.crc32(body), body))
    FileStore(base)
    assert (contents(base), journals(base)) == (before, [])
    assert not (tmp_path / "x").exists()


def test_a_journal_with_a_bad_name_or_a_link_stops_nothing(base, tmp_path, caplog):
    """A journal that is a link, a folder, or named after no folder is reported, and the store works."""
    folder = base / ".haytham" / "journals"
    (tmp_path / "outside").write_bytes(b"1")
    for name in ("..%2F", "x", "p%2Flink%2F"):
        (folder / name).symlink_to(tmp_path / "outside")
    (folder / "%2F").mkdir()
    (folder / "p%2Ffolder%2F").mkdir()
    FileStore(base).write("q", b"1")
    assert (tmp_path / "outside").read_bytes() == b"1"
    assert "its files may be incomplete" in caplog.text


def test_no_file_is_written_again_through_a_link(restarted, tmp_path):
    """A folder that became a link after the machine went down is not followed."""
    (outside := tmp_path / "outside").mkdir()
    shutil.rmtree(restarted / "p/new/b")
    (restarted / "p/new/b").symlink_to(outside)
    FileStore(restarted)
    assert os.listdir(outside) == []
