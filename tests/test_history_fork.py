"""A fork: a session of its own that begins where another was, whole phases taken from it, and its end."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from functools import partial

import pytest

from haytham import History, ProjectManager, clock
from haytham.errors import AlreadyRunning, HaythamError, InvalidArgument, InvalidDocument, MergeConflict, NotFound
from haytham.session import SessionDocuments
from haytham.session.paths import session_lock
from haytham.session.plan import summarize
from haytham.storage import FileStore
from support.history_workers import (
    FOLDERS,
    PATHS,
    again,
    approve,
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


def all_of(session):
    """Everything there is of a session: documents, records, and what is remembered beside them."""
    history = session.store.base / session.project_id / "history"
    name = session.session_id
    branch, pins = history / "branches" / f"{name}.jsonl", history / "pins" / name
    said = branch.read_bytes() if branch.exists() else None
    return whole(place(session)), whole(records(session)), said, whole(pins)


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


# Merging.


@pytest.fixture
def fork(session):
    return past(session).fork(name="f")


def test_what_only_the_other_has_changed_is_taken(session, fork):
    """A phase comes over whole: outputs, record, review and attempts; the manifest shows it, the other is untouched."""
    work(fork, 2, "his")
    approve(fork, 2)
    put(fork, f"{FOLDERS[2]}/attempts/1/b.md", "an attempt")
    before = all_of(fork)
    assert past(session).merge("f", [1, 2, 3]) == [2]
    assert tree(place(session) / FOLDERS[2]) == tree(place(fork) / FOLDERS[2])
    assert summarize(again(session).read()).completed_phases == [1, 2]
    assert all_of(fork) == before
    assert [one.kind for one in past(session).list()] == ["manual"]
    assert past(session).verify() == []


def test_what_only_this_session_has_changed_is_kept(session, fork):
    """A phase that the other left as it was stays as it is here."""
    work(session, 2, "mine")
    write(fork, 1, "his one")
    assert past(session).merge(fork, [1, 2]) == [1]
    assert (text_of(session, 1), text_of(session, 2)) == ("his one", "mine")
    assert past(session).merge(fork, [2, 3]) == []


def test_what_both_have_changed_stops_a_merge(session, fork):
    """The list of those documents is told, and nothing is merged, of other phases neither."""
    write(fork, 1, "his one")
    work(session, 2, "mine")
    work(fork, 2, "his")
    before = all_of(session)
    with pytest.raises(MergeConflict, match=r"phase_2_two/b\.md") as caught:
        past(session).merge(fork, [1, 2])
    assert PATHS[2] in caught.value.documents
    assert all(path.startswith(f"{FOLDERS[2]}/") for path in caught.value.documents)
    assert all_of(session) == before


def test_what_both_have_made_alike_is_no_conflict(session, fork):
    """The same bytes on both sides need no merge."""
    put(session, f"{FOLDERS[3]}/notes.md", "the same")
    put(fork, f"{FOLDERS[3]}/notes.md", "the same")
    assert past(session).merge(fork, [3]) == []


def test_what_the_other_has_removed_goes(session, fork):
    """Documents and empty folders of a phase are the other's afterwards, and no more."""
    (place(fork) / PATHS[2]).unlink()
    (place(fork) / FOLDERS[2] / "empty").mkdir()
    assert past(session).merge(fork, [2]) == [2]
    assert tree(place(session) / FOLDERS[2]) == {"empty": None}


def test_a_merge_goes_both_ways(session, fork):
    """A fork takes what its parent has changed since."""
    write(session, 2, "mine")
    assert History(fork).merge(session, [2]) == [2]
    assert text_of(fork, 2) == "mine"


def test_siblings_and_grandchildren_are_merged_by_where_they_parted(session):
    """Two forks of one session, and a fork of a fork: what each has changed since they parted counts."""
    left, right = past(session).fork(name="left"), past(session).fork(name="right")
    below = History(left).fork(name="below")
    write(below, 1, "below one")
    write(right, 2, "right two")
    assert History(right).merge(below, [1, 2]) == [1]
    assert (text_of(right, 1), text_of(right, 2)) == ("below one", "right two")
    assert past(session).merge(below, [1]) == [1]
    write(left, 2, "left two")
    with pytest.raises(MergeConflict, match=r"phase_2_two/b\.md"):
        past(right).merge(left, [2])


def test_siblings_that_parted_at_different_moments_count_as_changed(session):
    """Where two forks began with different texts of a phase nobody can tell who changed it: it is not guessed."""
    early, late = past(session).fork("1", name="early"), past(session).fork(name="late")
    with pytest.raises(MergeConflict, match=r"phase_2_two/b\.md"):
        History(early).merge(late, [2])
    assert History(early).merge(late, [1, 3]) == []


def test_strangers_are_not_merged(session):
    """Of two sessions that do not come from each other every phase that differs counts as changed by both."""
    stranger = worked_session(session.store.base, name="stranger")
    before = all_of(session)
    with pytest.raises(MergeConflict):
        past(session).merge(stranger, [2])
    with pytest.raises(InvalidArgument, match="another one of project p"):
        past(session).merge("s", [1])
    with pytest.raises(InvalidArgument, match="another one of project p"):
        past(session).merge(new_session(session.store.base, project="q"), [1])
    with pytest.raises(NotFound, match="nobody"):
        past(session).merge("nobody", [1])
    assert all_of(session) == before


@pytest.mark.parametrize("numbers", [[9], [1, 9], ["1"], [True], [1.0]])
def test_only_phases_that_there_are_are_merged(session, fork, numbers):
    """A phase that neither has is refused, and so are the others of the same call."""
    write(fork, 1, "his one")
    with pytest.raises(InvalidArgument, match="phase"):
        past(session).merge(fork, numbers)
    assert text_of(session, 1) == "one"


def test_a_merge_is_refused_while_the_session_runs(session, fork):
    """This one's documents are replaced, so that nobody else may be at work on it; the other may run."""
    write(fork, 2, "his")
    with session.store.run_lock(session_lock("p", "s")), pytest.raises(AlreadyRunning):
        past(session).merge(fork, [2])
    with session.store.run_lock(session_lock("p", "f")):
        assert past(session).merge(fork, [2]) == [2]


def test_a_fork_whose_first_snapshot_was_let_go_is_merged_by_its_fork_point(session):
    """What the parent keeps for the fork's sake says as well what they were when they parted."""
    fork = past(session).fork("1", name="f")
    write(fork, 1, "his one")
    past(fork).take()
    past(fork).delete("1")
    write(session, 2, "mine")
    assert past(session).merge(fork, [1, 2]) == [1]
    assert (text_of(session, 1), text_of(session, 2)) == ("his one", "mine")


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


def test_what_is_no_fork_is_not_discarded(session, fork):
    """Neither a session that was not forked, nor a fork that has forks, nor one that runs."""
    below = History(fork).fork(name="below")
    before = whole(session.store.base / "p")
    with pytest.raises(InvalidArgument, match="not forked from another"):
        past(session).discard()
    with pytest.raises(InvalidArgument, match="discard first: below"):
        History(fork).discard()
    with session.store.run_lock(session_lock("p", "below")), pytest.raises(AlreadyRunning):
        History(below).discard()
    with pytest.raises(HaythamError):
        History(SessionDocuments(session.store, "p", "nobody")).discard()
    assert whole(session.store.base / "p") == before
    History(below).discard()
    History(fork).discard()
    assert past(session).verify() == []


def test_the_parent_of_a_fork_keeps_its_fork_point(session):
    """A snapshot that a fork comes from is not deleted while the fork is there."""
    fork = past(session).fork("1", name="f")
    with pytest.raises(InvalidArgument, match="discard the fork first"):
        past(session).delete("1")
    History(fork).discard()
    assert past(session).delete("1") not in {one.id for one in past(session).list()}
