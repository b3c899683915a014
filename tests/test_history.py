"""The past of a session: snapshots are taken, listed, found, read, counted and compared; what was is never changed."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham import History, MemoryStore, clock
from haytham.config.policy import KINDS
from haytham.errors import HaythamError, InvalidArgument, InvalidDocument, NotFound
from haytham.history.catalog import BranchHead, BranchHeadFile
from haytham.history.snapshot_fields import SnapshotFields
from haytham.session import SessionDocuments
from support.history_workers import (
    PATHS,
    again,
    approve,
    blobs,
    branch_file,
    copied,
    copy_of,
    index_file,
    is_sound,
    new_session,
    past,
    place,
    put,
    record_file,
    records,
    source,
    text_of,
    tree,
    upset,
    whole,
    work,
    worked_session,
    write,
)
from support.hostile_inputs import lines, plain_values, texts
from support.subprocess_workers import apart, together


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    return worked_session(tmp_path_factory.mktemp("origin"))


@pytest.fixture
def session(origin, tmp_path):
    return copied(origin, tmp_path / "projects")


@pytest.fixture
def history(session):
    return History(session)


def numbers(snapshots):
    return [snapshot.number for snapshot in snapshots]


def shortly(word):
    return repr(word[:12])


# Taking.


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_says_who_froze_what_when(session, kind):
    """A snapshot of any kind knows its session, its user, where that stood, and the bytes of its documents."""
    with clock.override(lambda: datetime(2024, 11, 24, 10, tzinfo=UTC), lambda: "abcdef"):
        taken = past(session).take(kind, label="before the call", metadata={"why": ["x", 1, None]}, approval="1/1")
    assert (taken.id, taken.time) == ("20241124-100000000-abcdef", "2024-11-24T10:00:00Z")
    assert (taken.number, taken.kind, taken.parent, taken.project, taken.session) == (1, kind, None, "p", "s")
    assert (taken.user, taken.status, taken.phase, taken.step) == ("u", "in_progress", 1, 0)
    assert (taken.label, taken.approval, taken.metadata) == ("before the call", "1/1", {"why": ["x", 1, None]})
    assert taken.raw == sum(len(data) for data in tree(place(session)).values() if data is not None)
    assert past(session).list() == [taken] == [past(session).get(taken.id)]


def test_a_routine_snapshot_is_left_out_where_nothing_changed(session, history):
    """Without a change the last snapshot stands for a routine one; with one, be it an empty folder, it is taken."""
    first = history.take("routine")
    assert history.take("routine") == first
    assert numbers(history.list()) == [1]
    (place(session) / "empty").mkdir()
    assert history.take("routine").number == 2
    session.store.append(f"{session.prefix}spend.jsonl", b"{}\n")
    assert history.take("routine").number == 2
    write(session, 2, "another")
    assert history.take("routine").number == 3


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "routine"])
def test_any_other_snapshot_is_taken_though_nothing_changed(history, kind):
    """Only routine ones are left out: who asks for another kind has a reason."""
    assert numbers([history.take(kind), history.take(kind)]) == [1, 2]
    assert history.latest().added == 0


def test_a_kind_that_there_is_not_is_refused(session, history):
    """Taking, listing and pruning name the kinds there are; nothing is written."""
    for act in (history.take, history.list, lambda kind: history.prune(kind=kind)):
        with pytest.raises(InvalidArgument, match="routine, phase, pre_operation, recovery, manual, fork, final"):
            act("weekly")
    assert not records(session).exists()


@pytest.mark.parametrize("label", ["", " ", "two\nlines", "\x1b[31m", 7, "\ud800"])
def test_a_label_is_a_line_of_text(session, history, label):
    """Anything else is refused in a sentence, and no snapshot is taken."""
    with pytest.raises(HaythamError, match="label"):
        history.take(label=label)
    assert not records(session).exists()


@pytest.mark.parametrize(
    "metadata",
    [{1: "x"}, {"x": (1,)}, {"x": float("nan")}, {"x": b""}, {"x": "\ud800"}, {"x": 10**5000}, [1], "text", 7],
)
def test_metadata_is_what_comes_back_from_a_file(session, history, metadata):
    """What would come back as something else is refused in a sentence, and no snapshot is taken."""
    with pytest.raises(HaythamError, match="metadata"):
        history.take(metadata=metadata)
    assert not records(session).exists()


@pytest.mark.parametrize("approval", ["", "two\nlines", 7, "\ud800"])
def test_an_approval_is_a_line_of_text(session, history, approval):
    """Anything else is refused with an error of ours, and no snapshot is taken."""
    with pytest.raises(HaythamError):
        history.take(approval=approval)
    assert history.list() == []


@pytest.mark.soak
@settings(max_examples=rounds(300))
@given(label=st.none() | lines.filter(str.isprintable).filter(str.strip), metadata=st.dictionaries(texts, plain_values))
def test_label_and_metadata_come_back_as_they_went_in(label, metadata):
    """Whatever text and plain values a caller gives stand in the record, read anew."""
    session = SessionDocuments(MemoryStore(), "p", "s")
    session.create(user_id="u", source=source(), mode="all")
    taken = History(session).take(label=label, metadata=metadata)
    History(session).take()  # so that the first is no longer at hand
    assert History(session).get(taken.id) == taken
    assert (taken.label, taken.metadata) == (label, metadata)


def test_a_session_that_is_not_there_has_no_past(tmp_path):
    """Freezing a name that no session has is an error, and leaves nothing."""
    nobody = SessionDocuments(new_session(tmp_path).store, "p", "nobody")
    before = whole(tmp_path / "p")
    with pytest.raises(NotFound, match="nobody"):
        past(nobody).take()
    assert whole(tmp_path / "p") == before


def test_a_hundred_snapshots_in_a_tight_loop_are_a_hundred(session, history):
    """Each is there, with a number and an id of its own, in the order they were taken."""
    taken = [history.take() for _ in range(100)]
    assert numbers(taken) == list(range(1, 101))
    assert len({one.id for one in taken}) == 100
    assert past(session).list() == taken[::-1]
    assert [one.parent for one in taken] == [None, *(one.id for one in taken[:-1])]


def test_a_snapshot_among_hundreds_is_taken_and_found(session, history):
    """Beyond a hundred, where records fill more than one folder, numbers go on, and the last is the last."""
    taken = [history.take() for _ in range(110)]
    assert past(session).latest() == taken[-1]
    assert past(session).get("105") == taken[104]
    branch_file(session).unlink()
    assert past(session).latest() == taken[-1]
    assert past(session).take().number == 111


@pytest.mark.parametrize("change", [timedelta(days=-400), timedelta(seconds=-1), timedelta(0)])
def test_numbers_grow_whatever_the_clock_does(session, history, change):
    """A clock that is set back, or stands, changes no order: the snapshot taken last is the latest."""
    moment = datetime(2024, 11, 24, 10, tzinfo=UTC)
    taken = []
    for at in range(5):
        with clock.override(lambda at=at: moment + at * change):
            taken.append(history.take())
    assert numbers(taken) == [1, 2, 3, 4, 5]
    assert past(session).list() == taken[::-1]
    assert past(session).latest() == taken[-1]


def test_a_removed_number_is_not_used_again(session, history):
    """A snapshot that was deleted leaves a gap, also where it was the last."""
    history.take()
    history.delete(history.take())
    assert past(session).take().number == 3
    for number in ("3", "1"):
        history.delete(number)
    assert past(session).take().number == 4
    assert past(session).verify() == []


# Looking.


def test_snapshots_are_listed_newest_first(session, history):
    """By kind, by status, a part of them; the rest of a list that is too short is empty."""
    taken = [history.take(kind) for kind in ("manual", "phase", "manual", "final")]
    work(session, 2, "two")
    work(session, 3, "three")
    taken.append(history.take("manual"))
    assert history.list() == taken[::-1]
    assert numbers(history.list("manual")) == [5, 3, 1]
    assert numbers(history.list(status="completed")) == [5]
    assert numbers(history.list(status="in_progress", kind="manual")) == [3, 1]
    assert numbers(history.list(limit=2)) == [5, 4]
    assert numbers(history.list(limit=2, offset=4)) == [1]
    assert (history.list(limit=0), history.list(offset=9), history.list("fork")) == ([], [], [])


@pytest.mark.parametrize("given", [{"limit": -1}, {"offset": -1}, {"limit": 1.5}, {"offset": "1"}, {"limit": True}])
def test_limit_and_offset_count(history, given):
    """Anything but a whole number from 0 on is refused."""
    with pytest.raises(InvalidArgument, match=r"limit|offset"):
        history.list(**given)


def test_a_snapshot_is_found_by_what_a_person_says(history):
    """By its id, a part that only it has, its number, that with a #, and by itself."""
    taken = [history.take() for _ in range(12)]
    third = taken[2]
    for word in (third.id, third.id.rpartition("-")[2], "3", "#3", "000003", 3, third):
        assert history.get(word) == third
    with pytest.raises(InvalidArgument, match=r"part of one id only; this is part of 12: .*, .*"):
        history.get(third.id[:8] + "-")


@pytest.mark.parametrize("word", ["99", "#99", "zzz", "../x", "x" * 100_000, "9" * 5000, "s/../1", "\x00"], ids=shortly)
def test_a_snapshot_that_there_is_not_is_an_error(session, history, word):
    """Looking, restoring, forking and comparing name it, shortened, and change nothing."""
    history.take()
    before = whole(session.store.base)
    acts = (history.get, history.documents, history.restore, history.compare, history.delete, history.pin)
    for act in (*acts, partial(history.fork, name="f"), partial(history.read, path="x"), history.stored_size):
        with pytest.raises(NotFound) as caught:
            act(word)
        assert len(str(caught.value)) < 400
    assert whole(session.store.base) == before


def test_a_snapshot_shows_the_fields_of_its_state(session, history):
    """Agent type, collected and required fields and summary are values, of the moment the snapshot was taken."""
    empty = history.take()
    fields = {"collected": {"name": "Ann", "age": 7}, "required": ["name", {"name": "age"}]}
    session.update_state({"agent": {"type": "Seller"}, "fields": fields, "summary": "Two lines\n\nof it."})
    full = history.take()
    session.update_state({"agent": {"type": "Buyer"}})
    assert history.fields(empty) == SnapshotFields()
    required = tuple(fields["required"])
    assert history.fields(full) == SnapshotFields("Seller", fields["collected"], required, "Two lines\n\nof it.")
    assert history.compare(full).changed_fields["state.agent.type"].new == "Buyer"


def test_fields_of_a_state_that_cannot_be_read_are_refused(session, history):
    """A damaged state in a snapshot is reported with its file, and never taken for an empty one."""
    session.update_state({"summary": "Short."})
    key = f"{session.prefix}state.md"
    session.store.write(key, session.store.read(key).replace(b"- Type:", b"- Tpye:"))
    damaged = history.take()
    with pytest.raises(InvalidDocument, match=r"state\.md:\d+: Agent"):
        history.fields(damaged)


@pytest.mark.parametrize("word", ["", "  ", None, 1.0, True, b"1"])
def test_no_word_is_no_snapshot(history, word):
    """An empty word, or what is no text, is refused though there is only one snapshot."""
    history.take()
    with pytest.raises(InvalidArgument, match="its id, a part of it, its number, or latest"):
        history.get(word)


def test_the_latest_is_the_one_taken_last(history):
    """Of all, of a kind, and None where there is none."""
    assert history.latest() is None
    phase, manual = history.take("phase"), history.take("manual")
    assert (history.latest(), history.latest("phase"), history.latest("fork")) == (manual, phase, None)


def test_a_document_is_read_as_it_was(session, history):
    """Each document of a snapshot has the bytes it had, whatever became of it since."""
    before = {path: data for path, data in tree(place(session)).items() if data is not None}
    first = history.take()
    upset(session)
    second = history.take()
    assert {path: history.read(first, path) for path in history.documents(first)} == before
    assert history.read(second, "notes.txt") == b"a note\n"
    with pytest.raises(NotFound, match=r"notes\.txt in snapshot 1"):
        history.read(first, "notes.txt")


def test_what_only_grows_is_in_no_snapshot(session, history):
    """Neither events nor spend nor files with a leading dot are frozen."""
    (place(session) / ".hidden").write_text("x", encoding="utf-8")
    history.restore(history.take())
    assert (place(session) / "events.jsonl").exists()
    frozen = history.documents(history.take())
    assert not {"events.jsonl", "spend.jsonl", ".hidden"} & set(frozen)


NAMES = [
    "a|b.md",
    "`x`.md",
    "# x.md",
    " y",
    "y ",
    "-",
    "é.md",
    "e\u0301.md",
    "日本.md",
    "a,b",
    "<!-- x -->",
    "~",
    "|",
    "%00",
    "x" * 200,
]


def test_names_that_a_document_could_trip_over_are_frozen(session, history):
    """Whatever name a file has, its bytes come back under that very name."""
    for name in NAMES:
        put(session, f"odd/{name}", name)
        (place(session) / "empty" / name).mkdir(parents=True)
    before = tree(place(session))
    history.take()
    shutil.rmtree(place(session) / "odd")
    shutil.rmtree(place(session) / "empty")
    past(session).restore("1")
    assert (tree(place(session)), past(session).verify()) == (before, [])


@pytest.mark.parametrize("name", [b"\xff.md", b"a\nb.md", b"a\\b.md", b"\x7f"])
def test_a_name_that_no_document_can_hold_is_refused(session, history, name):
    """The error is one of ours, and no snapshot is taken."""
    Path(os.fsdecode(os.fsencode(place(session)) + b"/" + name)).write_text("x", encoding="utf-8")
    with pytest.raises(HaythamError):
        history.take()
    assert past(session).list() == []


@pytest.mark.parametrize("data", [b"", b"\xff\xfe\x00", b"# Session Manifest\n", None])
def test_a_session_that_does_not_validate_is_frozen_and_restored_to_the_byte(session, data, tmp_path):
    """A manifest that is garbled, cut or gone, and a checkpoint that is cut, are bytes like any other."""
    manifest, checkpoint = place(session) / "session_manifest.md", place(session) / "phase_1_one" / "checkpoint.md"
    manifest.unlink() if data is None else manifest.write_bytes(data)
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    copy = copy_of(place(session), tmp_path / "copy")
    taken = past(session).take()
    assert (taken.status, taken.user, taken.phase) == ("unreadable", None, None)
    manifest.write_bytes(b"something else")
    checkpoint.unlink()
    past(session).restore(taken)
    assert tree(place(session)) == tree(copy)
    assert past(session).verify() == []


def test_a_checkpoint_that_is_cut_hides_no_user(session, history):
    """Where only a phase cannot be read the snapshot still knows whose it is and what it runs on."""
    known = history.take()
    checkpoint = place(session) / "phase_1_one" / "checkpoint.md"
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    taken = history.take()
    assert (taken.user, taken.workflow) == (known.user, known.workflow)
    assert (taken.status, taken.phase) == ("unreadable", None)


# What came of what.


def test_after_a_restore_the_next_snapshot_comes_of_the_restored_one(session, history):
    """Parents form a chain; a restore turns it back, its recovery stays aside, and one more restore turns it again."""
    first, second = history.take(), history.take()
    assert (first.parent, second.parent) == (None, first.id)
    recovery = history.restore(first)
    assert (recovery.number, recovery.kind, recovery.parent) == (3, "recovery", second.id)
    branched = past(session).take()
    assert branched.parent == first.id
    assert past(session).take().parent == branched.id
    past(session).restore(second)
    assert past(session).take().parent == second.id


def test_a_tree_shows_branches_and_forks(session, history):
    """Children stand under what they came of, oldest first, forks of forks included."""
    first, second = history.take(), history.take()
    recovery = history.restore(first)
    branched = history.take()
    fork = past(session).fork(first, name="f")
    grandchild = History(fork).fork(name="g")
    (root,) = past(session).tree()
    forked, of_fork = History(fork).latest(), History(grandchild).latest()
    assert (root.snapshot, [node.snapshot for node in root.children]) == (first, [second, branched, forked])
    assert [node.snapshot for node in root.children[0].children] == [recovery]
    assert [node.snapshot for node in root.children[2].children] == [of_fork]
    assert [node.snapshot for node in History(fork).tree()] == [forked]


def test_a_tree_closes_the_gaps_that_removals_left(history):
    """A snapshot whose parent was let go hangs on the one before it."""
    first, second, third = history.take(), history.take(), history.take()
    history.delete(second)
    (root,) = history.tree()
    assert (root.snapshot, [node.snapshot for node in root.children]) == (first, [third])


def test_a_tree_may_be_thousands_long(tmp_path):
    """A line of snapshots longer than Python nests calls is drawn all the same."""
    from haytham.history.fork import build_forest
    from haytham.history.snapshot import Snapshot

    facts = dict.fromkeys(("user", "phase", "label", "approval", "workflow"))
    facts |= {"kind": "manual", "project": "p", "session": "s", "status": "x", "step": 0, "time": "", "raw": 0}
    ids = [None, *(str(number) for number in range(5000))]
    line = [Snapshot(id=ids[at + 1], number=at + 1, parent=ids[at], added=0, **facts) for at in range(5000)]
    (node,), depth = build_forest([line]), 1
    while node.children:
        (node,), depth = node.children, depth + 1
    assert depth == 5000


# Steps.


@pytest.fixture
def counting(tmp_path):
    return worked_session(tmp_path / "projects", "{frequency: 3, interval_minutes: 30}")


def test_steps_count_across_objects_and_processes(counting):
    """Each third step takes a routine snapshot, whoever counts."""

    def step(number):
        write(again(counting), 2, f"text {number}")
        taken = past(counting).step()
        return None if taken is None else (taken.number, taken.kind, taken.step)

    told = [step(number) if number % 2 else apart(partial(step, number)) for number in range(1, 8)]
    assert told == [None, None, (1, "routine", 3), None, None, (2, "routine", 6), None]


def test_two_processes_that_count_lose_no_step(counting):
    """Forty steps from two sides are forty steps."""
    together(*[partial(several, 20, lambda: past(counting).step())] * 2)
    assert past(counting).take().step == 40


def several(count, act):
    """Do something some times."""
    return [act() is None for _ in range(count)]


def test_a_step_where_nothing_changed_takes_nothing(counting):
    """The steps go on counting, and the first one after a change takes the snapshot that is due."""
    history = past(counting)
    history.take()
    assert [history.step() for _ in range(5)] == [None] * 5
    write(counting, 2, "changed")
    assert history.step().step == 6
    assert history.step() is None


def test_a_step_takes_a_snapshot_once_the_interval_is_over(counting):
    """However few steps were made: half an hour after the last snapshot the next step takes one."""
    moment = datetime(2024, 11, 24, 10, tzinfo=UTC)
    with clock.override(lambda: moment):
        past(counting).take()
        write(counting, 2, "changed")
    told = []
    for minutes in (29, 30, 31, 32):
        with clock.override(lambda minutes=minutes: moment + timedelta(minutes=minutes)):
            taken = past(counting).step()
            told.append(None if taken is None else taken.number)
    assert told == [None, 2, None, None]


def test_the_interval_counts_from_the_start_of_a_session_without_snapshots(tmp_path):
    """Half an hour after the session started the first step takes one, and then each half hour: four in 2 h 01."""
    moment, taken = datetime(2024, 11, 24, 10, tzinfo=UTC), []
    with clock.override(lambda: moment):
        session = worked_session(tmp_path / "projects", "{auto: every, frequency: 1000, interval_minutes: 30}")
    for minutes in range(1, 122):
        with clock.override(lambda minutes=minutes: moment + timedelta(minutes=minutes)):
            write(session, 2, f"text {minutes}")
            if past(session).step() is not None:
                taken.append(minutes)
    assert taken == [30, 60, 90, 120]
    assert {snapshot.kind for snapshot in past(session).list()} == {"routine"}


def test_steps_are_not_counted_anew_after_any_snapshot(counting):
    """A snapshot taken by hand is one that the frequency counts from."""
    history = past(counting)
    assert [history.step(), history.step()] == [None, None]
    assert history.take().step == 2
    write(counting, 2, "changed")
    assert [history.step(), history.step()] == [None, None]
    assert (history.step().step, history.take().step) == (5, 5)


def test_a_damaged_record_stops_no_loop(counting):
    """Where the newest record cannot be read, steps are counted and the next due snapshot is taken all the same."""
    history = past(counting)
    first, second = history.take(), history.take()
    file = record_file(counting, second)
    file.write_bytes(file.read_bytes() + b"x")
    assert past(counting).latest() == first
    write(counting, 2, "changed")
    taken = [past(counting).step() for _ in range(3)][-1]
    assert (taken.number, taken.step) == (3, 3)
    assert past(counting).read(taken, PATHS[2]) == (place(counting) / PATHS[2]).read_bytes()


# Two at once.


@pytest.mark.soak
def test_two_processes_that_freeze_one_session_lose_none(session):
    """All snapshots of both are there, each with a number of its own and sound."""
    count = rounds(100)

    def take(side):
        return [past(session).take(metadata={"side": side, "at": at}).number for at in range(count)]

    first, second = together(partial(take, 1), partial(take, 2))
    assert sorted(first + second) == list(range(1, 2 * count + 1))
    told = [(one.metadata["side"], one.metadata["at"]) for one in reversed(past(session).list())]
    assert sorted(told) == [(side, at) for side in (1, 2) for at in range(count)]
    assert is_sound(session)


@pytest.mark.soak
def test_prune_beside_take_leaves_no_record_without_its_bytes(tmp_path):
    """One session takes what another lets go at that moment: every record of both still has all its bytes."""
    left = worked_session(tmp_path, "{retention: {routine: {keep_last: 1}}}", name="left")
    right = worked_session(tmp_path, "{retention: {routine: {keep_last: 1}}}", name="right")
    for number in range(rounds(50)):
        texts = [f"text {number} {at}" for at in range(4)]
        taking = partial(take_each, left, texts)
        pruning = partial(prune_each, right, texts)
        together(taking, pruning)
        assert past(left).verify() == past(right).verify() == []
    assert len(past(left).list()) == 4 * number + 4
    assert numbers(past(right).list()) == [4 * number + 4]


def take_each(session, contents):
    """Freeze one text after the other."""
    for content in contents:
        put(session, "shared.txt", content)
        past(session).take("manual")


def prune_each(session, contents):
    """Freeze one text after the other, and let it go."""
    for content in contents:
        put(session, "shared.txt", content)
        past(session).take("routine")
        past(session).prune()


def test_threads_that_freeze_and_look_do_not_meet(session):
    """Several threads of one process, with one store between them: no snapshot is lost, and no look fails."""
    history = History(session)

    def work_on(_):
        return [(history.take().number, len(history.list()), history.latest().kind) for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        told = [number for answers in pool.map(work_on, range(4)) for number, _, _ in answers]
    assert sorted(told) == list(range(1, 41))
    assert is_sound(session)


# Comparing.


def test_compared_with_itself_nothing_differs(session, history):
    """A snapshot, the present, and another session of the same documents."""
    taken = history.take()
    assert history.compare(taken, taken).is_empty
    assert history.compare(taken).is_empty
    assert history.compare(session).is_empty
    assert history.compare("s", "1").is_empty


def test_a_snapshot_is_compared_with_another_and_with_the_present(session, history):
    """Documents that came and went, fields and texts, from the first named side to the second."""
    first = history.take()
    write(session, 1, "changed")
    put(session, "notes.txt", "a note\n")
    second = history.take()
    (place(session) / "evidence.md").unlink()
    there, back = history.compare(first, second), history.compare("2", "1")
    assert (there.added, there.removed, back.added, back.removed) == (("notes.txt",), (), (), ("notes.txt",))
    assert "+changed" in there.texts[PATHS[1]]
    now = history.compare(first)
    assert (now.added, now.removed) == (("notes.txt",), ("evidence.md",))
    assert history.compare(second).removed == ("evidence.md",)


def test_two_sessions_are_compared(session, history):
    """By their names, themselves, and their snapshots; one of another project is refused."""
    fork = history.fork(name="f")
    write(fork, 2, "other")
    for sides in (("s", "f"), (session, fork), (History(fork).latest(), fork)):
        assert "+other" in history.compare(*sides).texts[PATHS[2]]
    assert history.compare(fork, session).changed_fields["manifest.session_id"].new == "s"
    other = new_session(session.store.base, project="q")
    with pytest.raises(InvalidArgument, match="one of project p"):
        history.compare(other)


# Operations.


def test_an_operation_that_goes_well_leaves_no_snapshot(session, history):
    """What it did is there, and the snapshot before it is gone with the bytes that only it had."""
    history.take()
    with history.operation("rewrite") as before:
        assert (before.kind, before.metadata) == ("pre_operation", {"operation": "rewrite"})
        write(session, 2, "rewritten")
    assert numbers(history.list()) == [1]
    assert (text_of(session, 2), past(session).verify()) == ("rewritten", [])


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_operation_that_fails_leaves_two_snapshots(session, history, error):
    """One of before and one of how far it came; the error goes on, and the session stays as it is."""
    with pytest.raises(error, match="no"):
        rewrite(session, "half", error("no"))
    recovery, before = past(session).list()
    assert (before.kind, recovery.kind, text_of(session, 2)) == ("pre_operation", "recovery", "half")
    assert recovery.metadata == {"operation": "rewrite", "before": before.id}
    assert b"\ntwo\n" in past(session).read(before, PATHS[2])
    assert b"\nhalf\n" in past(session).read(recovery, PATHS[2])


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_operation_with_rollback_brings_back_what_was(session, history, error, tmp_path):
    """All documents are as before, the error goes on, and what it had done can be had again."""
    copy = copy_of(place(session), tmp_path / "copy")
    with pytest.raises(error, match="no"):
        rewrite(session, "half", error("no"), rollback=True)
    assert tree(place(session)) == tree(copy)
    recovery, before = past(session).list()
    assert past(session).take().parent == before.id
    past(session).restore(recovery)
    assert text_of(session, 2) == "half"


def rewrite(session, text, error, **given):
    """Write something, and fail."""
    with past(session).operation("rewrite", **given):
        write(session, 2, text)
        raise error


def test_what_is_held_outlives_its_operation(session, history):
    """A snapshot that was forked or pinned in an operation that went well is not taken away with it."""
    with history.operation("fork") as before:
        history.fork(before, name="f")
    with history.operation("pin") as pinned:
        history.pin(pinned)
    assert [one.id for one in past(session).list()] == [pinned.id, before.id]
    assert History(SessionDocuments(session.store, "p", "f")).verify() == []


def test_what_was_is_never_changed(session, history):
    """Whatever is done afterwards: the record and the bytes of a snapshot are those that were written."""
    taken = history.take()
    files = {path: path.read_bytes() for path in (record_file(session, taken), *blobs(session))}
    upset(session)
    history.restore(history.take())
    approve(history.fork(taken, name="f"), 1)
    history.restore(taken)
    history.take()
    assert {path: path.read_bytes() for path in files} == files


# After a merge of two clones.


@pytest.fixture
def merged(session, tmp_path):
    """A session of which two clones took a snapshot with the number 2, merged."""
    past(session).take()
    other = copied(session, tmp_path / "other")
    mine, his = past(session).take(label="mine"), past(other).take(label="his")
    [theirs] = records(other).rglob("000002.*.md")
    shutil.copy(theirs, records(session) / "0000")
    return session, mine, his


def test_two_snapshots_with_one_number_both_stay(merged):
    """Both are listed, read, verified and restored by their ids; the next one gets a number of its own."""
    session, mine, his = merged
    assert [one.id for one in past(session).list()][:2] == sorted([mine.id, his.id], reverse=True)
    assert past(session).verify() == []
    assert (past(session).get(his.id), past(session).get(mine.id)) == (his, mine)
    assert past(session).latest() == his
    assert past(session).restore(mine).number == 3


def test_a_number_that_two_snapshots_have_is_refused_with_both_ids(merged):
    """A number that does not say which snapshot is meant is an error that lists the ids."""
    session, mine, his = merged
    with pytest.raises(InvalidArgument, match="its id, as 2 have this number") as caught:
        past(session).get(2)
    assert mine.id in str(caught.value)
    assert his.id in str(caught.value)


def test_what_two_clones_remember_is_joined(session):
    """Lines that git joined are read as one: the highest numbers count, and the last restore."""
    two = [
        {"shelf": 0, "last": 7, "head": "a", "head_after": 2, "step": 4},
        {"shelf": 1, "last": 3, "head": "b", "head_after": 5, "step": 9},
    ]
    branch_file(session).parent.mkdir(parents=True, exist_ok=True)
    branch_file(session).write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in two))
    branch = BranchHeadFile(session.store, session.project_id, session.session_id)
    assert branch.read() == BranchHead(shelf=1, last=7, head="b", head_after=5, step=9)
    branch.change(step=10)
    assert branch_file(session).read_bytes().count(b"\n") == 1


def test_the_index_of_snapshots_is_a_cache(session):
    """What makes lists quick is kept on this machine only, outside of the project, and goes with the session's past."""
    fork = past(session).fork(name="f")
    for _ in range(20):
        past(fork).take()
    assert len(past(fork).list()) == 21
    assert index_file(fork).exists()
    assert not list((session.store.base / session.project_id).rglob("index.jsonl"))
    past(fork).discard()
    assert not index_file(fork).exists()
