"""A restore: the session is what it was, to the byte and all of it; what it was before can be had again."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
from contextlib import suppress
from functools import partial

import pytest

from haytham import History
from haytham.errors import AlreadyRunning, HaythamError, InvalidArgument, WriteConflict
from haytham.history import restore
from haytham.session import SessionDocuments
from haytham.session.paths import session_lock
from haytham.session.summary import summarize
from haytham.storage import FileStore
from support.history_workers import (
    FOLDERS,
    PATHS,
    again,
    copied,
    copy_of,
    difference,
    is_stray,
    new_session,
    past,
    place,
    put,
    text_of,
    tree,
    upset,
    whole,
    work,
    worked_session,
    write,
)
from support.subprocess_workers import apart, runs_to_its_end, start


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A session with a snapshot, number 1."""
    session = worked_session(tmp_path_factory.mktemp("origin"))
    (place(session) / "empty_then" / "below").mkdir(parents=True)
    put(session, "phase_1_one/attempts/1/a.md", "an earlier attempt\n")
    History(session).take()
    return session


@pytest.fixture
def session(origin, tmp_path):
    return copied(origin, tmp_path / "projects")


# All of it.


def test_a_restore_brings_back_what_was_to_the_byte(session, tmp_path):
    """Whatever was edited, deleted and added, folders without a file included: `diff -r` finds no difference."""
    copy = copy_of(place(session), tmp_path / "copy")
    upset(session)
    assert difference(copy, place(session))
    past(session).restore("1")
    assert difference(copy, place(session)) == ""


def test_the_recovery_snapshot_undoes_a_restore(session, tmp_path):
    """What was there before a restore comes back from the snapshot that it returns, and goes again."""
    old = copy_of(place(session), tmp_path / "old")
    upset(session)
    new = copy_of(place(session), tmp_path / "new")
    recovery = past(session).restore("1")
    assert (recovery.kind, recovery.number) == ("recovery", 2)
    undone = past(session).restore(recovery)
    assert difference(new, place(session)) == ""
    past(session).restore(undone)
    assert difference(old, place(session)) == ""
    assert past(session).verify() == []


def becomes_a_folder(folder):
    (folder / "evidence.md").unlink()
    (folder / "evidence.md" / "deep").mkdir(parents=True)
    (folder / "evidence.md" / "deep" / "x.md").write_text("x", encoding="utf-8")


def becomes_an_empty_folder(folder):
    (folder / "evidence.md").unlink()
    (folder / "evidence.md").mkdir()


def becomes_a_file(folder):
    shutil.rmtree(folder / FOLDERS[2])
    (folder / FOLDERS[2]).write_text("x", encoding="utf-8")


def empty_becomes_a_file(folder):
    shutil.rmtree(folder / "empty_then")
    (folder / "empty_then").write_text("x", encoding="utf-8")


def empty_becomes_full(folder):
    (folder / "empty_then" / "below" / "x").write_text("x", encoding="utf-8")
    (folder / FOLDERS[3] / "x").write_text("x", encoding="utf-8")


def all_goes(folder):
    shutil.rmtree(folder)
    folder.mkdir()


def even_the_folder_goes(folder):
    shutil.rmtree(folder)


def hidden_stays(folder):
    (folder / ".notes").write_text("x", encoding="utf-8")


CHANGES = [
    becomes_a_folder,
    becomes_an_empty_folder,
    becomes_a_file,
    empty_becomes_a_file,
    empty_becomes_full,
    all_goes,
    even_the_folder_goes,
    hidden_stays,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_restore_and_its_undoing_cope_with_any_change(session, tmp_path, change):
    """A file in the place of a folder, a folder in the place of a file, all gone: what was comes back, and goes."""
    old = tree(place(session))
    change(place(session))
    new = tree(place(session))
    recovery = past(session).restore("1")
    assert difference_but_hidden(old, tree(place(session))) == set()
    past(session).restore(recovery)
    assert tree(place(session)) == new
    past(session).restore("1")
    assert summarize(again(session).read()).completed_phases == [1]


def difference_but_hidden(old, new):
    """The names that differ, but for those with a leading dot."""
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name) and not name.startswith(".")}


def test_what_only_grows_is_not_rewound(session):
    """Events and spend have all their lines after a restore, and those of the restore itself more."""
    events, spend = place(session) / "events.jsonl", place(session) / "spend.jsonl"
    events.write_bytes(b'{"event": "x"}\n')
    spend.write_bytes(b"{}\n{}\n{}\n")
    recovery = past(session).restore("1")
    assert spend.read_bytes() == b"{}\n{}\n{}\n"
    first, *between, last = map(json.loads, events.read_bytes().splitlines())
    assert first == {"event": "x"}
    assert [event["event"] for event in between] == ["snapshot_taking", "snapshot_saved"]
    assert (last["event"], last["number"], last["recovery"]) == ("snapshot_restored", 1, recovery.id)


def test_a_restore_to_what_is_there_changes_nothing(session):
    """Nothing is written anew where the documents are those of the snapshot already."""
    times = {path: path.stat().st_mtime_ns for path in place(session).rglob("*.md")}
    past(session).restore("1")
    assert {path: path.stat().st_mtime_ns for path in place(session).rglob("*.md")} == times


def test_a_restored_session_goes_on(session):
    """It loads as it stood then, and saves on top of that."""
    before = summarize(again(session).read())
    write(session, 2, "other")
    past(session).restore("1")
    assert summarize(again(session).read()) == before
    write(again(session), 2, "and on")
    assert (text_of(session, 1), text_of(session, 2)) == ("one", "and on")


# Not finished.


@pytest.fixture
def unfinished(session, tmp_path):
    """A session in which a restore to snapshot 1 was killed when all was staged and nothing replaced; what it was."""
    old = copy_of(place(session), tmp_path / "old")
    write(session, 2, "newer")
    put(session, "notes.txt", "a note\n")
    leave_unfinished(session, "1")
    assert text_of_bytes(session) == "newer"
    return session, old


def leave_unfinished(session, which):
    """Have a restore killed in its first step after the stage is there."""

    def restore():
        for name in ("replace", "rename", "unlink"):
            setattr(os, name, partial(die_once_staged, getattr(os, name)))
        past(session).restore(which)

    def die_once_staged(call, *args):
        if (place(session) / "restoring").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args)

    process = start(restore)
    process.join()
    assert process.exitcode == -signal.SIGKILL


def aside_files(session):
    return [path for path in (place(session) / "set_aside").rglob("*") if path.is_file() and not is_stray(path)]


def text_of_bytes(session):
    """The output of phase 2, without opening the session."""
    return (place(session) / PATHS[2]).read_text(encoding="utf-8").rpartition("## Output\n\n")[2].strip()


def openings(session):
    """What opens a session, each in its way."""
    return {
        "reading": lambda: summarize(again(session).read()),
        "saving": lambda: write(again(session), 3, "three"),
        "freezing": lambda: past(session).take(),
        "comparing": lambda: past(session).compare("1"),
        "forking": lambda: past(session).fork(name="f"),
        "restoring": lambda: past(session).restore("1"),
        "in a process": lambda: apart(lambda: summarize(again(session).read())),
    }


@pytest.mark.parametrize("way", ["reading", "saving", "freezing", "comparing", "forking", "restoring", "in a process"])
def test_an_unfinished_restore_is_finished_by_the_next_opening(unfinished, way):
    """Whoever comes next and however: the session is what was to come, and nothing of the stage is left."""
    session, old = unfinished
    openings(session)[way]()
    left_out = ("events.jsonl", "spend.jsonl", *(("c.md", "session_manifest.md") if way == "saving" else ()))
    assert tree(place(session), without=left_out) == tree(old, without=left_out)
    assert not (place(session) / "set_aside").exists()
    assert past(session).verify() == []


def test_a_restore_that_begins_while_a_session_is_read_is_finished_first(session):
    """A reader who finds a stage when done reads again: what a half-done restore left is no moment of the session."""
    work(session, 2, "newer")
    read, store = [], again(session).store

    def look(reading):
        statuses = summarize(reading).statuses
        if not read:
            leave_unfinished(session, "1")
        read.append(statuses[2])
        return statuses

    assert SessionDocuments(store, "p", "s").read_consistently(look)[2] == "pending"
    assert read == ["completed", "pending"]


def test_what_a_person_wrote_before_a_restore_was_finished_is_set_aside(unfinished, caplog):
    """An edit, and a new file, made while the stage lay there: what was restored is in place, the edits beside it."""
    session, old = unfinished
    put(session, PATHS[2], "my own words")
    put(session, "mine.md", "mine")
    put(session, "deep/er/mine.md", "mine too")
    summarize(again(session).read())
    aside = place(session) / "set_aside" / "1"
    assert tree(aside) == {
        "deep": None,
        "deep/er": None,
        "deep/er/mine.md": b"mine too",
        "mine.md": b"mine",
        "phase_2_two": None,
        PATHS[2]: b"my own words",
    }
    shutil.rmtree(place(session) / "set_aside")
    assert difference(old, place(session)) == ""
    assert f"set_aside/1/{PATHS[2]}" in caplog.text


def test_what_a_person_wrote_outlives_a_kill_at_any_step_of_finishing(unfinished, tmp_path):
    """However often the finishing is killed, in the end the session is what it was to be, with the edits beside it."""
    session, old = unfinished
    put(session, PATHS[2], "my own words")
    for step in itertools.count():
        trial = copied(session, tmp_path / f"step_{step}")
        if runs_to_its_end(lambda trial=trial: summarize(again(trial).read()), step):
            break
        summarize(again(trial).read())
        assert {path.read_text(encoding="utf-8") for path in aside_files(trial)} == {"my own words"}
        shutil.rmtree(place(trial) / "set_aside")
        assert difference(old, place(trial)) == ""
    assert step > 10


def test_what_is_set_aside_takes_nobody_elses_place(session):
    """A folder of what was set aside earlier, there now or about to come back, is never written to again."""
    put(session, "set_aside/2/mine.md", "the second")
    put(session, "set_aside/1/mine.md", "the first")
    taken = past(session).take()
    (place(session) / "set_aside" / "1" / "mine.md").unlink()
    leave_unfinished(session, taken)
    put(session, "mine.md", "the third")
    again(session).read()
    kept = {str(path.relative_to(place(session))): path.read_text(encoding="utf-8") for path in aside_files(session)}
    assert kept == {
        "set_aside/1/mine.md": "the first",
        "set_aside/2/mine.md": "the second",
        "set_aside/3/mine.md": "the third",
    }


def test_a_stage_that_does_not_say_how_to_finish_is_named_with_the_way_out(unfinished):
    """A plan that is lost or garbled is an error that says what to remove; that done, the session is as it was."""
    session, _ = unfinished
    for data in (
        b"",
        b"[]",
        b"{}",
        b'{"before": 3, "folders": []}',
        b'{"before": {}, "folders": ["../x"]}',
        b"[" * 9999,
    ):
        (place(session) / "restoring" / "plan.json").write_bytes(data)
        with pytest.raises(HaythamError, match="restoring/"):
            again(session).read()
    shutil.rmtree(place(session) / "restoring")
    assert (text_of(session, 2), past(session).verify()) == ("newer", [])


# At the same moment.


class Meddling(FileStore):
    """A store that lets a person write a document at the very moment when a snapshot has been taken."""

    def __init__(self, base):
        super().__init__(base)
        self.told = 0

    def commit(self, batch):
        digests = super().commit(batch)
        if any("/history/snapshots/" in key for key in digests):
            self.told += 1
            words = f"words of my own, {self.told}"
            (self.base / "p" / "sessions" / "s" / PATHS[2]).write_text(words, encoding="utf-8")
        return digests


def words_aside(session):
    return [path.read_text(encoding="utf-8") for path in aside_files(session)]


def test_what_is_written_just_before_a_restore_is_set_aside(session):
    """An edit that came too late for the recovery snapshot is not lost."""
    write(session, 2, "newer")
    History(SessionDocuments(Meddling(session.store.base), "p", "s")).restore("1")
    assert (text_of(session, 2), words_aside(session)) == ("two", ["words of my own, 1"])


def test_what_is_written_just_before_a_merge_is_not_overwritten(session):
    """If the very page is edited that is about to be merged, nothing is merged."""
    fork = past(session).fork(name="f")
    write(fork, 2, "his")
    with pytest.raises(WriteConflict, match=r"phase_2_two/b\.md"):
        History(SessionDocuments(Meddling(session.store.base), "p", "s")).merge("f", [2])
    assert (place(session) / PATHS[2]).read_text() == "words of my own, 1"


def test_what_is_written_just_before_a_rollback_is_set_aside(session):
    """An edit that came too late for the snapshot of how far an operation came is not lost."""
    history = History(SessionDocuments(Meddling(session.store.base), "p", "s"))
    with pytest.raises(RuntimeError, match="no"), history.operation("x", rollback=True):
        raise RuntimeError("no")
    assert (text_of(session, 2), words_aside(session)) == ("two", ["words of my own, 2"])
    assert past(session).read(past(session).latest("recovery"), PATHS[2]) == b"words of my own, 1"


# Refused.


def test_a_restore_is_refused_while_the_session_runs(session):
    """With who runs it; nothing changes, no snapshot is taken, and afterwards it works."""
    write(session, 2, "newer")
    before = whole(session.store.base / "p")
    with session.store.run_lock(session_lock("p", "s")):
        with pytest.raises(AlreadyRunning, match=str(os.getpid())):
            past(session).restore("1")
        assert apart(lambda: refused(session)) == "AlreadyRunning"
    assert whole(session.store.base / "p") == before
    past(session).restore("1")
    assert text_of(session, 2) == "two"


def test_a_rollback_is_refused_while_the_session_runs(session, caplog):
    """An operation that fails beside a run leaves the documents alone, says what to restore, and that works later."""
    with (
        session.store.run_lock(session_lock("p", "s")),
        pytest.raises(AlreadyRunning, match=str(os.getpid())) as refusal,
    ):
        fail_after_writing(session, "half")
    assert isinstance(refusal.value.__cause__, RuntimeError)
    assert text_of(session, 2) == "half"
    before = past(session).latest("pre_operation")
    assert f"haytham restore {before.id}" in caplog.text
    past(session).restore(before)
    assert text_of(session, 2) == "two"


def test_a_rollback_holds_the_run_lock(session, monkeypatch):
    """While documents are put back no run can begin; before it can, and when handlers are called."""
    seen, checkout = [], restore.checkout

    def probe(*_about, **_more):
        seen.append(apart(lambda: is_running(session)))

    def put_back(*about, **more):
        probe()
        checkout(*about, **more)

    monkeypatch.setattr(restore, "checkout", put_back)
    with pytest.raises(RuntimeError, match="no"):
        fail_after_writing(session, "half", probe)
    assert (seen, is_running(session), text_of(session, 2)) == ([False, True, False], False, "two")


def fail_after_writing(session, text, probe=None):
    """Write something in an operation with rollback, and fail; `probe` is called in it and once it is put back."""
    history = past(session)
    if probe is not None:
        history.on("snapshot_restored", probe)
    with history.operation("x", rollback=True):
        write(session, 2, text)
        if probe is not None:
            probe()
        raise RuntimeError("no")


def is_running(session):
    """Whether a run would be refused."""
    try:
        with session.store.run_lock(session_lock("p", "s")):
            return False
    except AlreadyRunning:
        return True


def refused(session):
    """The name of the error that a restore raises."""
    try:
        past(session).restore("1")
    except HaythamError as error:
        return type(error).__name__
    return None


def test_another_sessions_snapshot_is_refused_by_name(session):
    """The error names the session that the snapshot is of; neither session changes."""
    other = new_session(session.store.base, name="other")
    taken = History(other).take()
    before = whole(session.store.base)
    for word in (taken, taken.id):
        with pytest.raises(InvalidArgument, match="one of session s; this is one of other"):
            past(session).restore(word)
    assert whole(session.store.base) == before


@pytest.mark.parametrize("name", ["restoring", "set_aside"])
def test_a_file_with_the_name_of_a_folder_of_ours_does_no_harm(session, name):
    """A person's file that stands where a restore needs a folder: it is refused, or kept; nothing breaks."""
    put(session, name, "mine")
    before = tree(place(session))
    taken = past(session).take()
    assert past(session).get(taken.id) == taken
    with suppress(HaythamError):
        past(session).restore("1")
        past(session).restore(taken)
    assert tree(place(session)) == before
    assert (summarize(again(session).read()).completed_phases, past(session).verify()) == ([1], [])


def test_a_restore_that_cannot_freeze_what_is_there_does_nothing(session, tmp_path):
    """Without a way back there is no restore: a link in the session stops it before anything is written."""
    (place(session) / "link.md").symlink_to(tmp_path / "nowhere")
    put(session, PATHS[2], "mine")
    before = whole(session.store.base / "p")
    with pytest.raises(HaythamError, match=r"link\.md"):
        past(session).restore("1")
    assert whole(session.store.base / "p") == before
