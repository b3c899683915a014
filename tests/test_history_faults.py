"""Whatever is killed or fails, and whenever: each snapshot that is listed is whole, and so is the session."""

from __future__ import annotations

import itertools
import random
from functools import partial

import pytest

from conftest import SOAK, rounds
from haytham import History
from haytham.session import SessionDocuments
from haytham.session.plan import SessionPlan
from haytham.session.summary import summarize
from support.history_workers import (
    again,
    approve,
    copied,
    fails,
    is_sound,
    is_stray,
    kill_while,
    new_session,
    past,
    place,
    put,
    records,
    source,
    text_of,
    tree,
    whole,
    work,
    write,
)
from support.subprocess_workers import fail_at, runs_to_its_end

KEPT = "{retention: {routine: {keep_last: 1}}}"


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A session with three snapshots, each of other documents and folders than the one before, and changes since."""
    session = new_session(tmp_path_factory.mktemp("origin"))
    History(session).take("routine")
    write(session, 1, "one")
    put(session, "gone/below/x.md", "soon gone")
    put(session, "swap", "a file")
    (place(session) / "empty").mkdir()
    History(session).take("routine")
    write(session, 1, "one, again")
    (place(session) / "gone" / "below" / "x.md").unlink()
    (place(session) / "swap").unlink()
    put(session, "swap/z.md", "a folder")
    History(session).take("routine")
    put(session, "new/y.md", "new")
    return session


@pytest.fixture
def session(origin, tmp_path):
    return copied(origin, tmp_path / "projects")


@pytest.fixture
def kept(session):
    """The session, now that its workflow keeps one routine snapshot."""
    session.switch_workflow(source(KEPT))
    return again(session)


@pytest.fixture(scope="module")
def forked(origin, tmp_path_factory):
    """The session with a fork that has worked on."""
    session = copied(origin, tmp_path_factory.mktemp("forked") / "projects")
    work(session, 1, "one\n\nand all")
    approve(session, 1)
    work(session, 2, "two")
    fork = History(session).fork(name="f")
    write(session, 1, "one of mine\n\nand all")
    write(fork, 1, "one\n\nand all of his")
    write(fork, 2, "his")
    work(fork, 3, "his three")
    return session


def take(session):
    past(session).take("routine")


def restore(session):
    past(session).restore("2")


def fork(session):
    past(session).fork("2", name="f")


def prune(session):
    past(session).prune()


def merge(session):
    past(session).merge("f", [1, 2, 3])


def discard(session):
    History(SessionDocuments(session.store, "p", "f")).discard()


def steps():
    """The steps that a process is killed at, one after the other: all in a soak, else some."""
    return itertools.count() if SOAK else itertools.count(0, 4)


def killed(origin, tmp_path, act):
    """Copies of a session in which something was killed, each at another step of it; at last one in which it ended."""
    for step in steps():
        trial = copied(origin, tmp_path / f"step_{step}")
        if runs_to_its_end(partial(act, trial), step):
            break
        yield trial
    assert step > 4


def failed(origin, tmp_path, patch, act, call):
    """Copies of a session in which something failed, each at another call of a function of the system."""
    for nth in itertools.count(0, 3 if call == "fsync" and not SOAK else 1):
        trial = copied(origin, tmp_path / f"nth_{nth}")
        with patch.context() as inner:
            calls = fail_at(inner, call, nth)
            has_failed = fails(partial(act, trial))
        if len(calls) <= nth:
            break
        yield trial, has_failed
    assert nth > 0


def documents(session):
    """All documents and folders of a session, once it was opened."""
    summarize(again(session).read())
    return tree(place(session))


# Each act, killed or failed at any step.


def check_take(trial, before):
    """Nothing changed but that there is a snapshot more, or not; the next one is taken, and is the last."""
    there = len(past(trial).list())
    assert there in (3, 4)
    assert documents(trial) == before
    taken = past(trial).take("manual")
    assert taken.number > there
    assert (past(trial).latest(), is_sound(trial)) == (taken, True)


def check_take_by_rules(trial, before):
    """The snapshot is there or not, the oldest that are too many gone or not; the next one leaves itself alone."""
    assert is_sound(trial)
    assert [one.number for one in past(trial).list()] in ([3, 2, 1], [4, 3, 2, 1], [4, 3, 2], [4, 3], [4])
    assert documents(trial) == before
    put(trial, "notes.txt", "more")
    taken = past(trial).take("routine")
    assert (past(trial).list(), is_sound(trial)) == ([taken], True)


def check_restore(trial, before, after):
    """All documents are the old ones or all are the new ones; the next restore brings the new ones."""
    assert documents(trial) in (before, after)
    assert not (place(trial) / "restoring").exists()
    assert is_sound(trial)
    recoveries = past(trial).list("recovery")
    past(trial).restore("2")
    assert documents(trial) == after
    for recovery in recoveries[:1]:
        past(trial).restore(recovery)
        assert documents(trial) == before


def check_fork(trial, parent):
    """The parent is as it was; the fork is there, whole and with its past, or can be made under the same name."""
    assert (whole(place(trial)), whole(records(trial))) == parent
    made = SessionDocuments(trial.store, "p", "f")
    if not place(made).exists():
        assert text_of(past(trial).fork("2", name="f"), 1) == "one"
    assert (is_sound(made), text_of(made, 1)) == (True, "one")
    assert [one.kind for one in past(made).list()] == ["fork"]


def check_prune(trial, before):
    """No record is there without its bytes, and none is gone that had to stay; the next one ends what was begun."""
    assert is_sound(trial)
    there = [one.number for one in past(trial).list()]
    assert there[0] == 3
    assert there == sorted(there, reverse=True)
    past(trial).prune()
    assert [one.number for one in past(trial).list()] == [3]
    assert documents(trial) == before
    assert is_sound(trial)


def pages(session):
    """The texts of all phases, once the session was opened; None where there is none."""
    view = again(session).read()
    return [dict(view.texts(phase)) for phase in view.phases]


def check_merge(trial, before, after):
    """Each page is the old or the merged one; the next merge makes all of them the merged ones, with open gates."""
    found = pages(trial)
    assert all(page in (old, new) for page, old, new in zip(found, before, after, strict=True))
    assert is_sound(trial)
    past(trial).merge("f", [1, 2, 3])
    plan = SessionPlan(again(trial).read())
    assert pages(trial) == after == [{"a": "one of mine\n\nand all of his"}, {"b": "his"}, {"c": "his three"}]
    assert [entry.next_action.action for entry in plan.phases] == ["gate", "gate", "gate"]
    assert (past(trial).merge("f", [1, 2, 3]).pages, is_sound(trial)) == ((), True)


def check_discard(trial, parent):
    """The parent is as it was; the fork is there and can be discarded again, or is gone and its name is free."""
    assert (whole(place(trial)), whole(records(trial))) == parent
    fork = SessionDocuments(trial.store, "p", "f")
    if place(fork).exists():
        summarize(again(fork).read())
        past(fork).discard()
    assert not place(fork).exists()
    assert is_sound(trial)
    assert is_sound(past(trial).fork(name="f"))


@pytest.mark.soak
def test_a_kill_at_any_step_of_a_take_leaves_the_session_and_its_past_whole(session, tmp_path):
    """A snapshot is there with all its bytes or not at all, and the number of the next one is its own."""
    before = documents(session)
    for trial in killed(session, tmp_path, take):
        check_take(trial, before)


@pytest.mark.soak
def test_a_kill_at_any_step_of_a_take_deletes_what_the_rules_say_or_nothing(kept, tmp_path):
    """What is listed verifies, and the next snapshot that is taken deletes what a killed one did not."""
    before = documents(kept)
    for trial in killed(kept, tmp_path, take):
        check_take_by_rules(trial, before)


@pytest.mark.soak
def test_a_kill_at_any_step_of_a_restore_leaves_the_old_or_the_new(session, tmp_path):
    """Nothing is half restored once the session is opened, and the way back is there."""
    after = copied(session, tmp_path / "after")
    restore(after)
    for trial in killed(session, tmp_path, restore):
        check_restore(trial, documents(session), documents(after))


@pytest.mark.soak
def test_a_kill_at_any_step_of_a_fork_leaves_all_or_none_of_it(session, tmp_path):
    """A killed fork is there with its first snapshot, or the same name can be forked again."""
    parent = whole(place(session)), whole(records(session))
    for trial in killed(session, tmp_path, fork):
        check_fork(trial, parent)


@pytest.mark.soak
def test_a_kill_at_any_step_of_a_prune_leaves_no_record_without_its_bytes(kept, tmp_path):
    """What is listed verifies, and what had to stay is there."""
    before = documents(kept)
    for trial in killed(kept, tmp_path, prune):
        check_prune(trial, before)


@pytest.mark.soak
def test_a_kill_at_any_step_of_a_merge_leaves_the_old_or_the_new(forked, tmp_path):
    """A page is the old or the merged one, never half, and the same merge ends what was begun."""
    after = copied(forked, tmp_path / "after")
    merge(after)
    for trial in killed(forked, tmp_path, merge):
        check_merge(trial, pages(forked), pages(after))


@pytest.mark.soak
def test_a_kill_at_any_step_of_a_discard_can_be_made_good(forked, tmp_path):
    """What is left of a fork can be discarded again, and its parent never notices."""
    parent = whole(place(forked)), whole(records(forked))
    for trial in killed(forked, tmp_path, discard):
        check_discard(trial, parent)


@pytest.mark.soak
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_call_that_fails_in_a_take_by_rules_leaves_no_record_without_its_bytes(kept, tmp_path, monkeypatch, call):
    """Whichever fsync or replacement fails: what is listed verifies, and the next snapshot deletes what is too much."""
    before = documents(kept)
    for trial, _ in failed(kept, tmp_path, monkeypatch, take, call):
        check_take_by_rules(trial, before)


CALLS = pytest.mark.parametrize("call", ["fsync", "replace", "rename"])


@pytest.mark.soak
@pytest.mark.parametrize("call", ["fsync", "replace"])  # it renames nothing
def test_a_call_that_fails_in_a_take_leaves_the_session_and_its_past_whole(session, tmp_path, monkeypatch, call):
    """Whichever fsync, replacement or renaming fails: a snapshot is there whole or not at all, the next is taken."""
    before = documents(session)
    for trial, has_failed in failed(session, tmp_path, monkeypatch, take, call):
        assert has_failed
        check_take(trial, before)


@pytest.mark.soak
@CALLS
def test_a_call_that_fails_in_a_restore_leaves_the_old_or_the_new(session, tmp_path, monkeypatch, call):
    """Once the session is opened again all documents are the old ones or all are the new ones."""
    after = copied(session, tmp_path / "after")
    restore(after)
    for trial, has_failed in failed(session, tmp_path, monkeypatch, restore, call):
        assert has_failed or documents(trial) == documents(after)
        check_restore(trial, documents(session), documents(after))


@pytest.mark.soak
@CALLS
def test_a_call_that_fails_in_a_fork_leaves_all_or_none_of_it(session, tmp_path, monkeypatch, call):
    """A fork whose making failed is there whole, or can be made again; nothing but that is left."""
    parent = whole(place(session)), whole(records(session))
    for trial, _ in failed(session, tmp_path, monkeypatch, fork, call):
        check_fork(trial, parent)
        assert not [path for path in (place(trial).parent).rglob("*") if is_stray(path)]


@pytest.mark.soak
@pytest.mark.parametrize("call", ["fsync", "replace"])  # it renames nothing
def test_a_call_that_fails_in_a_merge_leaves_the_old_or_the_new(forked, tmp_path, monkeypatch, call):
    """A merge that failed can be tried again."""
    after = copied(forked, tmp_path / "after")
    merge(after)
    for trial, _ in failed(forked, tmp_path, monkeypatch, merge, call):
        check_merge(trial, pages(forked), pages(after))


# Whole loops, killed at random.


def take_on(session, number):
    put(session, "notes.txt", f"note {number} " * 50)
    past(session).take("routine")


def restore_on(session, number):
    past(session).restore(("2", "3")[number % 2])


def fork_on(session, number):
    there = len(session.store.folders("p/sessions/"))
    past(past(session).fork(("2", None)[number % 2], name=f"f{there}")).take()


def prune_on(session, number):
    session.switch_workflow(source(KEPT))
    put(session, "notes.txt", f"note {number} " * 50)
    past(session).take("routine")
    past(session).prune()


@pytest.mark.soak
@pytest.mark.parametrize("act", [take_on, restore_on, fork_on, prune_on], ids=lambda act: act.__name__)
def test_what_is_listed_is_sound_after_a_kill_at_any_moment(session, act):
    """Kill -9 again and again over one history: every snapshot of every session verifies, and every session loads."""
    moments = random.Random(act.__name__)  # noqa: S311 - to be the same in each run
    for _ in range(rounds(50)):
        kill_while(partial(act, session), moments.uniform(0, 0.15))
        names = session.store.folders("p/sessions/")
        assert all(is_sound(SessionDocuments(session.store, "p", name)) for name in names)
        assert all(past(SessionDocuments(session.store, "p", name)).list() for name in names)
    assert (past(session).take(), is_sound(session)) == (past(session).latest(), True)
