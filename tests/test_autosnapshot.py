"""Snapshots that are taken by themselves when callers save through the managers, a session or its state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from haytham import CheckpointManager, History, Phase, Task, Workflow, Workspace, clock
from haytham.events import Events
from support.history_workers import new_session, past

START = datetime(2024, 11, 24, 10, tzinfo=UTC)
NAMES = ("p", "s", 1)


def at(minutes):
    """Set the clock to so many minutes after the start."""
    return clock.override(lambda: START + timedelta(minutes=minutes))


def session_at_start(base, policy):
    with at(0):
        return new_session(base, policy)


def kinds(session):
    """Return the kinds of the session's snapshots, oldest first."""
    return [snapshot.kind for snapshot in past(session).list()][::-1]


def save_all(base):
    """Save an output, a checkpoint, feedback and a state, each through its own caller."""
    manager = CheckpointManager(base)
    manager.save_agent_output(*NAMES, "a", "Text.")
    manager.save_checkpoint(*NAMES, "completed", [{"agent_name": "a", "status": "completed"}])
    manager.save_user_feedback(*NAMES, reviewed=True, approved=True)
    session = Workspace(base).session("p/s")
    session.update_state({"task": {"current": "write"}})
    session.save_output("Text, revised.", phase=1, agent="a")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("{auto: every, frequency: 1}", ["routine", "phase", "phase", "routine", "routine"]),
        ("{auto: every, frequency: 2}", ["phase", "phase", "routine"]),
        ("{auto: phase}", ["phase", "phase"]),
        ("{auto: off}", []),
        ("{auto: no}", []),
        ("{auto: false}", []),
        ("{auto: every, frequency: 1, enabled: false}", []),
    ],
)
def test_callers_that_save_get_the_snapshots_of_the_policy(tmp_path, policy, expected):
    """A completed phase and its approval give phase snapshots, other saves count as steps, `off` gives none."""
    session = session_at_start(tmp_path, policy)
    with at(1):
        save_all(tmp_path)
    assert kinds(session) == expected


def test_the_snapshot_of_an_approval_through_the_manager_is_marked(tmp_path):
    """The last snapshot of each approval is always kept, whoever saved it."""
    session = session_at_start(tmp_path, "{auto: phase}")
    with at(1):
        save_all(tmp_path)
    assert [snapshot.approval for snapshot in past(session).list()] == ["phase 1, attempt 1", None]


@pytest.mark.parametrize("auto", ["every", "phase"])
def test_saves_through_the_manager_take_a_snapshot_each_interval(tmp_path, auto):
    """Saves from 0 to 2 h 01, just before, at and after each half hour, give four routine ones; retention holds."""
    policy = f"{{auto: {auto}, frequency: 1000, interval_minutes: 30, retention: {{routine: {{keep_last: 2}}}}}}"
    session = session_at_start(tmp_path, policy)
    manager, taken = CheckpointManager(tmp_path), []
    for minutes in (1, 29, 30, 31, 59, 60, 61, 89, 90, 91, 119, 120, 121):
        with at(minutes):
            manager.save_agent_output(*NAMES, "a", f"Text {minutes}.")
        newest = past(session).latest()
        if newest is not None and newest.number > len(taken):
            taken.append((minutes, newest.kind))
    assert taken == [(30, "routine"), (60, "routine"), (90, "routine"), (120, "routine")]
    with at(122):
        past(session).prune()
    assert kinds(session) == ["routine", "routine"]


@pytest.mark.parametrize(("minutes", "expected"), [(29, 0), (30, 1), (31, 1)])
def test_a_run_takes_a_routine_snapshot_when_the_interval_is_over(tmp_path, minutes, expected):
    """With `auto: phase` too: an agent that answers after the interval is followed by a routine snapshot."""

    def write(task: Task) -> str:
        return f"# {task.phase_name}"

    phase = Phase("Concept", agents=[write], review="none")
    with at(0):
        session = Workspace(tmp_path).start("Lend barrels", workflow=Workflow("offer", phases=[phase]), user="ann")
    with at(minutes):
        session.run()
    assert len(session.history.list("routine")) == expected


def test_decisions_and_input_through_a_session_count_as_steps(tmp_path):
    """With `auto: every` a request for changes, and words for the next phase, are each followed by a snapshot."""
    session = session_at_start(tmp_path, "{auto: every, frequency: 1}")
    with at(1):
        CheckpointManager(tmp_path).save_agent_output(*NAMES, "a", "Text.")
        CheckpointManager(tmp_path).save_checkpoint(*NAMES, "completed", [{"agent_name": "a", "status": "completed"}])
        public = Workspace(tmp_path).session("p/s")
        public.request_changes(1, comment="Shorter.", by="ann")
        public.give_input("Name a city.", by="ann")
    assert kinds(session) == ["routine", "phase", "routine", "pre_operation", "routine"]


@pytest.mark.parametrize("storage", ["storage_type: 'broken:Store'", "storage_path: /nowhere/else"])
def test_a_snapshot_that_cannot_be_taken_costs_no_save(tmp_path, caplog, storage):
    """The save returns and holds, the log says why there is no snapshot, and so does an event."""
    session = session_at_start(tmp_path, f"{{auto: every, frequency: 1, {storage}}}")
    CheckpointManager(tmp_path).save_agent_output(*NAMES, "a", "Text.")
    assert CheckpointManager(tmp_path).get_phase_outputs("p", "s", [1]) == {1: {"a": "Text."}}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert [event.name for event in Events(session.store, f"{session.prefix}events.jsonl").read()[0]] == ["step_failed"]


def test_what_a_store_of_another_package_raises_costs_no_save(tmp_path, monkeypatch, caplog):
    """An error of any class is logged; the next save takes the snapshot that is due."""
    session = session_at_start(tmp_path, "{auto: every, frequency: 1}")
    with monkeypatch.context() as patch:
        patch.setattr(History, "take", lambda *_, **__: 1 / 0)
        CheckpointManager(tmp_path).save_agent_output(*NAMES, "a", "Text.")
    assert ("no step: division by zero" in caplog.text, kinds(session)) == (True, [])
    CheckpointManager(tmp_path).save_agent_output(*NAMES, "a", "Text, again.")
    assert kinds(session) == ["routine"]


def test_only_a_phase_that_becomes_completed_takes_a_snapshot(tmp_path):
    """With `auto: phase` a completed phase that is saved again, and one that fails, take none."""
    session = session_at_start(tmp_path, "{auto: phase}")
    with at(1):
        for status in ("in_progress", "completed", "completed", "failed", "completed"):
            CheckpointManager(tmp_path).save_checkpoint(*NAMES, status, [])
    assert kinds(session) == ["phase", "phase"]


def test_what_a_handler_of_a_snapshot_saves_takes_no_snapshot(tmp_path):
    """A handler that saves its count at each snapshot is called once a save, and not for ever."""
    session_at_start(tmp_path, "{auto: every, frequency: 1}")
    public, counts = Workspace(tmp_path).session("p/s"), []

    def count(_event):
        counts.append(1)
        public.update_state({"task": {"current": f"counted {len(counts)}"}})

    public.documents.events.on("snapshot_saved", count)
    with at(1):
        public.update_state({"summary": "one"})
        public.update_state({"summary": "two"})
    assert (len(counts), public.state["task"]["current"]) == (2, "counted 2")
