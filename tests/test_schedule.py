"""When retention acts: as soon as a snapshot is taken and something is due, and over the project when a run starts."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham import History, MemoryStore, Workspace, clock
from haytham.config.policy import KINDS, RETENTION, RetentionRule
from haytham.events import Events
from haytham.history.schedule import make_schedule, read_schedule
from haytham.session import SessionDocuments
from support.fake_agents import Desk
from support.history_workers import blobs, lenient, new_session, past, put, source

PLAIN = "name: one\nphases:\n  - {number: 1, name: One, slug: one, agents: [a], review: none}\nmodes: {all: [1]}\n"
NOTES = itertools.count()
START = datetime(2024, 11, 24, 10, tzinfo=UTC)


def at(days):
    """Set the clock to so many days after the start."""
    return clock.override(lambda: START + timedelta(days=days))


def take(session, kind="routine", day=0, history=None, **given):
    """Take a snapshot of something new on a day; the numbers that are left, oldest first."""
    with at(day):
        put(session, "notes.txt", f"note {next(NOTES)} of {session.session_id}")
        (history or past(session)).take(kind, **given)
    return [snapshot.number for snapshot in past(session).list()][::-1]


@pytest.mark.parametrize(("count", "left"), [(19, 19), (20, 20), (21, 20), (30, 20)])
def test_taking_a_snapshot_deletes_what_is_one_too_many(tmp_path, count, left):
    """Twenty routine ones are kept by default: at the limit none goes, past it the oldest does at once."""
    session = new_session(tmp_path)
    for _ in range(count):
        numbers = take(session)
    assert numbers == list(range(count - left + 1, count + 1))


@pytest.mark.parametrize(("day", "left"), [(7, [1, 2]), (7.001, [2])])
def test_taking_a_snapshot_deletes_what_is_too_old(tmp_path, day, left):
    """A recovery snapshot is seven days old, then older; the next snapshot of any kind deletes it."""
    session = new_session(tmp_path)
    take(session, "recovery")
    assert take(session, "manual", day) == left


def deletions(session):
    """The facts of the events that say what was deleted of a session's history."""
    events = Events(session.store, f"{session.prefix}events.jsonl").read()[0]
    return [event.facts for event in events if event.name == "snapshot_deleted"]


def test_what_taking_a_snapshot_deletes_is_an_event(tmp_path):
    """`snapshot_deleted` names the snapshot, and says that a rule deleted it."""
    session = new_session(tmp_path, "{retention: {routine: {keep_last: 1}}}")
    take(session)
    first = past(session).get("1").id
    take(session)
    assert [(facts["snapshot"], facts["why"]) for facts in deletions(session)] == [(first, "retention")]


def test_blobs_are_deleted_by_prune_and_every_hundred_snapshots(tmp_path):
    """Taking a snapshot deletes records; their bytes stay until then, so that no other record need be read."""
    session = new_session(tmp_path, "{retention: {routine: {keep_last: 1}}}")
    for _ in range(3):
        take(session)
    assert len(blobs(session)) == 4  # three notes and the manifest
    assert past(session).prune() == []
    assert len(blobs(session)) == 2
    for _ in range(97):
        take(session)
    assert len(blobs(session)) == 2


def test_a_run_applies_rules_and_limits_to_the_whole_project(tmp_path):
    """When a run starts, expired snapshots of each session of the project go, and blobs that nothing names."""
    desk = Desk(tmp_path, PLAIN)
    other = SessionDocuments(desk.session.store, desk.session.project_id, "other")
    other.create(user_id="u", source=source("{retention: {routine: {keep_last: 1}}}"), mode="all")
    for _ in range(3):
        take(other, history=lenient(other))
    desk.resume()
    assert [snapshot.number for snapshot in past(other).list()] == [3]
    assert past(other).verify() == []
    assert [(facts["number"], facts["why"]) for facts in deletions(other)] == [(1, "retention"), (2, "retention")]


def test_an_unfinished_operation_keeps_its_snapshot(tmp_path):
    """However old: a killed process left it; one that failed has a recovery snapshot, and gets too old."""
    session = new_session(tmp_path)
    take(session, "pre_operation", metadata={"operation": "merge x"})
    take(session, "pre_operation", metadata={"operation": "merge y"})
    failed = past(session).get("2").id
    take(session, "recovery", metadata={"operation": "merge y", "before": failed})
    assert take(session, "manual", day=1000) == [1, 4]
    past(session).delete("1")
    assert take(session, "manual", day=1001) == [4, 5]


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"rules": "x"}', b'{"rules": "", "numbers": [1], "time": null}'])
def test_a_note_that_is_lost_or_damaged_counts_as_due(tmp_path, damage):
    """The note is derived: without it snapshots are listed, and the same ones go."""
    session = new_session(tmp_path, "{retention: {routine: {keep_last: 1}}}")
    take(session)
    (note,) = (tmp_path / ".haytham").rglob("due.json")
    note.write_bytes(damage)
    assert read_schedule(past(session)._archive) is None
    assert take(session) == [2]


def test_other_rules_are_due_at_once(tmp_path):
    """A workflow whose rules changed applies them to the next snapshot that is taken."""
    session = new_session(tmp_path)
    for _ in range(5):
        take(session)
    session.switch_workflow(source("{retention: {routine: {keep_last: 2}}}"))
    assert take(session) == [5, 6]


def test_the_schedule_says_when_something_is_due():
    """By kind the number that is one too many, and the moment at which one that is taken now gets too old."""
    with at(0):
        schedule = make_schedule([], RETENTION)
        assert dict(schedule.numbers) == {"routine": 21}
        assert schedule.time == "2024-12-01T10:00:00+00:00"
        assert (schedule.is_due(RETENTION), schedule.is_due({})) == (False, True)
    with at(6.99):
        assert not schedule.is_due(RETENTION)
    with at(7):
        assert schedule.is_due(RETENTION)
    unlimited = make_schedule([], {"manual": RetentionRule()})
    assert (dict(unlimited.numbers), unlimited.time) == ({}, None)


RULES = st.dictionaries(
    st.sampled_from(KINDS),
    st.builds(RetentionRule, st.none() | st.integers(1, 3), st.none() | st.sampled_from([0, 1, 5])),
    max_size=3,
)
TAKEN = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([0, 0.5, 1, 4])), min_size=1, max_size=12)


@pytest.mark.soak
@settings(max_examples=rounds(300))
@given(RULES, TAKEN)
def test_taking_snapshots_leaves_nothing_to_prune(rules, taken):
    """For any rules and any line of snapshots: after each one `prune` finds nothing more at that moment."""
    session = SessionDocuments(MemoryStore(), "p", "s")
    facts = {
        kind: {key: value for key, value in vars(rule).items() if value is not None} for kind, rule in rules.items()
    }
    session.create(user_id="u", source=source(f"{{retention: {facts}}}".replace("'", "")), mode="all")
    day = 0
    for number, (kind, days) in enumerate(taken):
        day += days
        with at(day):
            session.store.write(f"{session.prefix}notes.txt", f"note {number}".encode())
            History(session).take(kind)
            assert History(session).prune(dry_run=True) == []


def test_a_user_has_at_most_so_many_snapshots_when_a_run_starts(tmp_path):
    """A limit that was lowered acts at the start of a run, without a snapshot being taken."""
    session = new_session(tmp_path)
    for _ in range(4):
        take(session)
    session.switch_workflow(source("{max_snapshots: 2}"))
    past(session).prune_project()
    assert [snapshot.number for snapshot in past(session).list()] == [4, 3]
    session.switch_workflow(source("{max_per_user: 1}"))
    past(session).prune_project()
    assert [snapshot.number for snapshot in Workspace(tmp_path).history().list("u")] == [4]
