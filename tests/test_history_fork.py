"""A fork: a session of its own that begins where another was, and its end."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from functools import partial

import pytest

from haytham import History, ProjectManager, clock
from haytham.errors import AlreadyRunning, InvalidArgument, InvalidDocument, NotFound
from haytham.session import SessionDocuments
from haytham.session.paths import session_lock
from haytham.session.summary import summarize
from haytham.storage import FileStore
from support.history_workers import (
    PATHS,
    again,
    all_of,
    blobs,
    copied,
    new_session,
    past,
    place,
    put,
    records,
    text_of,
    tree,
    upset,
    whole,
    work,
    worked_session,
    write,
)
from support.subprocess_workers import together


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A session with a snapshot, number 1, and work since."""
    session = worked_session(tmp_path_factory.mktemp("origin"), "{frequency: 3}")
    History(session).take()
    write(session, 2, "two, since")
    return session


@pytest.fixture
def session(origin, tmp_path):
    return copied(origin, tmp_path / "projects")


# Forking.


@pytest.mark.parametrize("which", ["1", None])
def test_a_fork_does_not_touch_its_parent(session, which):
    """Not a byte of the parent's documents, events and records changes, whatever is forked and done in the fork."""
    before = all_of(session)
    fork = past(session).fork(which, name="f", purpose="another market")
    upset(fork)
    History(fork).restore("1")
    History(fork).prune()
    assert all_of(session) == before
    assert past(session).verify() == History(fork).verify() == []


def test_a_fork_is_a_session_of_its_own(session):
    """It has its own id and times, and says where it comes from and why."""
    with clock.override(lambda: datetime(2031, 1, 2, 3, 4, 5, tzinfo=UTC)):
        fork = past(session).fork("1", name="f", purpose="another market")
    mine, his = again(session).read().manifest.value.to_value(), again(fork).read().manifest.value.to_value()
    assert (his["session_id"], his["created"]) == ("f", "2031-01-02T03:04:05Z")
    assert summarize(again(fork).read()).last_updated == "2031-01-02T03:04:05Z"
    point = past(session).get("1")
    assert (his["forked_from"], his["fork_point"], his["purpose"]) == ("s", point.id, "another market")
    own = {"session_id", "created", "forked_from", "fork_point", "purpose"}
    assert {name: his[name] for name in mine if name not in own} == {n: mine[n] for n in mine if n not in own}
    (event,) = map(json.loads, (place(fork) / "events.jsonl").read_bytes().splitlines())
    assert (event["event"], event["session"], event["snapshot"]) == ("snapshot_forked", "s", point.id)
    assert event["fork"] == "f"


def test_a_fork_begins_with_a_snapshot(session):
    """The first one is of kind fork, comes of the one that was forked, and holds what the fork holds."""
    fork = past(session).fork("1", name="f", metadata={"by": "ann"})
    (first,) = History(fork).list()
    point = past(session).get("1")
    assert (first.number, first.kind, first.parent, first.session) == (1, "fork", point.id, "f")
    assert (first.metadata, first.label, first.user) == ({"by": "ann"}, None, "u")
    held = {path: History(fork).read(first, path) for path in History(fork).documents(first)}
    assert held == {path: data for path, data in tree(place(fork)).items() if data is not None}
    assert first.raw == sum(map(len, held.values()))


def test_a_snapshot_or_the_present_is_forked(session):
    """A fork of a snapshot is what was then; one of the present is what is now, and names no snapshot that is not."""
    then, now = past(session).fork("1", name="then"), past(session).fork(name="now")
    assert (text_of(then, 2), text_of(now, 2)) == ("two", "two, since")
    assert tree(place(now), without=("session_manifest.md", "events.jsonl", "spend.jsonl")) == tree(
        place(session), without=("session_manifest.md", "events.jsonl", "spend.jsonl")
    )
    assert again(now).read().manifest.value.fork_point is None
    assert History(now).latest().parent == past(session).get("1").id
    taken = past(session).take()
    assert again(past(session).fork(name="same")).read().manifest.value.fork_point == taken.id


def test_what_is_done_on_either_side_stays_there(session):
    """Work, snapshots, restores and removals of a fork and its parent are nothing to each other."""
    fork = past(session).fork("1", name="f")
    write(session, 2, "mine")
    write(fork, 2, "his")
    mine, his = past(session).take(), History(fork).take()
    assert (text_of(session, 2), text_of(fork, 2)) == ("mine", "his")
    assert (mine.number, his.number) == (2, 2)
    past(session).delete(mine)
    past(session).restore("1")
    assert (text_of(session, 2), text_of(fork, 2)) == ("two", "his")
    assert b"\nhis\n" in past(fork).read("2", PATHS[2])
    assert past(session).verify() == past(fork).verify() == []


def test_a_fork_carries_neither_spend_nor_events(session):
    """What its parent has spent is its parent's."""
    put(session, "spend.jsonl", '{"cost": 1}\n')
    fork = past(session).fork(name="f")
    assert not (place(fork) / "spend.jsonl").exists()


def test_empty_folders_are_forked_too(session):
    """A fork has every folder of its parent, also where nothing is in it yet."""
    (place(session) / "empty" / "below").mkdir(parents=True)
    fork = past(session).fork(name="f")
    folders = {name for name, data in tree(place(session)).items() if data is None}
    assert {name for name, data in tree(place(fork)).items() if data is None} == folders
    work(fork, 3, "three")
    assert text_of(fork, 3) == "three"


@pytest.mark.parametrize("name", ["s", "f", "", ".f", "a/b", "../f", "x" * 101, "a\nb", " f", None])
def test_a_name_that_cannot_be_had_is_refused(session, name):
    """One that a session has, or that is no name of a folder: nothing is made."""
    new_session(session.store.base, name="f")
    before = whole(session.store.base / "p")
    with pytest.raises(InvalidArgument, match="name of a fork"):
        past(session).fork(name=name)
    assert whole(session.store.base / "p") == before


def test_the_past_of_a_session_whose_folder_is_gone_is_not_taken_over(session):
    """Its name is refused: the snapshots are the way to bring it back."""
    lost = worked_session(session.store.base, name="lost")
    kept = [History(lost).take(), History(lost).take()]
    shutil.rmtree(place(lost))
    with pytest.raises(InvalidArgument, match="name of a fork"):
        past(session).fork(name="lost")
    past(lost).restore(kept[0])
    assert (text_of(lost, 2), past(lost).list()[1:]) == ("two", kept[::-1])


def test_a_completed_session_can_be_forked_and_go_on(tmp_path):
    """A fork of a session that was closed is open, and is completed anew."""
    manager = ProjectManager(tmp_path)
    project = manager.create_project("u", "An idea", "idea")["project_id"]
    name = manager.start_session(project)["session_id"]
    manager.complete_session(project, name, "# Requirements\n")
    session = SessionDocuments(FileStore(tmp_path), project, name)
    assert summarize(session.read()).status == "completed"
    fork = History(session).fork(name="f")
    assert summarize(again(fork).read()).status == "in_progress"
    assert manager.complete_session(project, "f", "# Other requirements\n")["version"] == 2
    assert summarize(again(fork).read()).status == "completed"


def test_steps_go_on_from_the_point_of_a_fork(session):
    """A fork counts from the steps of the snapshot that was forked, and its parent from its own."""
    assert [past(session).step(), past(session).step()] == [None, None]
    taken = past(session).take()
    assert past(session).step() is None
    fork = past(session).fork(taken, name="f")
    assert (taken.step, History(fork).latest().step) == (2, 2)
    write(fork, 2, "his")
    assert [past(fork).step(), past(fork).step()] == [None, None]
    assert (past(fork).step().step, past(session).take().step) == (5, 3)


def test_a_session_whose_manifest_is_garbled_is_not_forked(session):
    """What cannot say what it is does not become another: the error names the file, and nothing is made."""
    put(session, "session_manifest.md", "garbled")
    before = whole(session.store.base / "p" / "sessions")
    with pytest.raises(InvalidDocument, match=r"session_manifest\.md"):
        past(session).fork(name="f")
    assert whole(session.store.base / "p" / "sessions") == before
    assert text_of(past(session).fork("1", name="f"), 2) == "two"


def test_a_name_that_two_want_at_once_is_had_by_one(session):
    """One of two forks of a name is made, whole; the other is refused."""

    def try_to_fork(text):
        try:
            past(session).fork("1", name="f", purpose=text)
        except InvalidArgument:
            return None
        return text

    told = together(partial(try_to_fork, "left"), partial(try_to_fork, "right"))
    (won,) = [text for text in told if text is not None]
    fork = SessionDocuments(session.store, "p", "f")
    assert (fork.read().manifest.value.purpose, past(fork).verify(), len(past(fork).list())) == (won, [], 1)


def test_a_fork_takes_hardly_any_bytes(session):
    """Documents that it shares with its parent rest once."""
    past(session).take()
    before = {path: path.read_bytes() for path in blobs(session)}
    past(session).fork(name="f")
    assert len({path: path.read_bytes() for path in blobs(session)}.items() - before.items()) == 1


@pytest.fixture
def fork(session):
    return past(session).fork(name="f")


# The end of a fork.


def test_a_fork_is_discarded_and_only_it(session, fork):
    """Its documents, records, pins and bytes go; its parent and its siblings have all of theirs."""
    sibling = past(session).fork(name="sibling")
    put(fork, "own.md", "only the fork has this")
    History(fork).pin(History(fork).take())
    kept = {one.session_id: all_of(one) for one in (session, sibling)}
    History(fork).discard()
    assert {one.session_id: all_of(one) for one in (session, sibling)} == kept
    left = [path for path in (session.store.base / "p").rglob("*") if path.name in ("f", "f.jsonl")]
    assert left == []
    assert past(session).verify() == past(sibling).verify() == []
    named = {row for one in (session, sibling) for snapshot in past(one).list() for row in digests(one, snapshot)}
    assert {path.name.removesuffix(".gz") for path in blobs(session)} == named


def digests(session, snapshot):
    """The digests of the documents of a snapshot, as the names of their bytes say them."""
    from haytham.storage.base import bytes_digest

    documents = past(session).documents(snapshot)
    return {bytes_digest(past(session).read(snapshot, path)).removeprefix("sha256:") for path in documents}


def test_a_discarded_name_is_free_again(session, fork):
    """A new fork of that name has nothing of the old one."""
    write(fork, 2, "old")
    History(fork).take()
    History(fork).discard()
    new = past(session).fork("1", name="f")
    assert (text_of(new, 2), len(History(new).list()), History(new).verify()) == ("two", 1, [])


def test_any_session_that_does_not_run_can_be_deleted(session, fork):
    """One that was not forked too, and one whose manifest cannot be read; one that does not exist is no session."""
    put(fork, "session_manifest.md", "garbled")
    with session.store.run_lock(session_lock("p", "f")), pytest.raises(AlreadyRunning):
        History(fork).discard()
    with pytest.raises(NotFound, match="nobody"):
        History(SessionDocuments(session.store, "p", "nobody")).discard()
    report = History(fork).discard()
    assert (report.documents > 1, len(report.snapshots), report.kept) == (True, 1, ())
    History(session).discard()
    assert (session.store.folders("p/sessions/"), blobs(session)) == ([], [])


def test_what_forks_need_of_a_deleted_session_stays(session):
    """The snapshots that they come from, with their bytes; a fork of that name cannot take them over."""
    point = past(session).get("1")
    later = past(session).take()
    fork, now = past(session).fork("1", name="f"), past(session).fork(name="now")
    below = History(fork).fork(name="below")
    assert History(session).discard(dry_run=True).kept == (point.id, later.id)
    report = History(session).discard()
    assert (report.snapshots, report.kept, place(session).exists()) == ((), (point.id, later.id), False)
    with pytest.raises(InvalidArgument, match="has snapshots of"):
        History(fork).fork(name="s")
    assert all(past(one).verify() == [] for one in (fork, now, below))
    write(below, 2, "his")
    assert past(fork).merge(below, [2]).phases == (2,)
    for other in (below, fork):
        History(other).discard()
    assert [ref.number for ref in past(session)._archive.records.refs()] == [later.number]
    History(now).discard()
    assert (list(records(session).parent.rglob("*.md")), blobs(session)) == ([], [])


def test_a_fork_of_the_present_needs_no_snapshot(session):
    """It comes of no snapshot, but after the last one: that may go with its session, and nothing is lost."""
    fork = past(session).fork(name="now")
    report = History(session).discard()
    assert (len(report.snapshots), report.kept, past(fork).verify()) == (1, (), [])
    History(fork).discard()
    assert not list(records(session).parent.rglob("*.*"))


def test_the_parent_of_a_fork_keeps_its_fork_point(session):
    """A snapshot that a fork comes from is not deleted while the fork is there."""
    fork = past(session).fork("1", name="f")
    with pytest.raises(InvalidArgument, match="delete the fork first"):
        past(session).delete("1")
    History(fork).discard()
    assert past(session).delete("1") not in {one.id for one in past(session).list()}
