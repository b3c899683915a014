"""Recovery points: listed newest first, verified, restored with what they bring back, and deleted."""

from __future__ import annotations

import pytest

from haytham import Phase, Workflow, Workspace
from haytham.app.recovery import StatePart
from haytham.errors import InvalidDocument, InvalidRequest, SnapshotNotFound
from haytham.session.state import EMPTY
from support.cli_runner import haytham

STATE = {
    "task": {"current": "write about csv", "status": "in_progress", "progress": 40},
    "mailbox": {"last_processed": "m7", "pending": ["m8"]},
    "context": {"goals": ["a handbook", "in time"], "constraints": ["no network"], "decisions": ["one chapter a day"]},
    "memory": {"short_term": {"turn": 3}, "session": {"city": "Leeds"}},
}


def fail(task):
    """Answer nothing."""
    error = ValueError("no such market")
    error.retry = False
    raise error


@pytest.fixture
def session(tmp_path):
    """A session with a state."""
    workflow = Workflow("some", phases=[Phase("One", agents=["worksheet"], review="none"), Phase("Two", agents=[fail])])
    session = Workspace(tmp_path / "projects").start("An idea.", workflow=workflow, user="ann")
    session.update_state(STATE)
    return session


def events(session):
    return [event.facts for event in session.log(["recovered"]).read()]


def test_an_exception_in_an_agent_leaves_a_point_to_go_back_to(session):
    """The checkpoint is failed with the error, a recovery snapshot is there, and the session can go on."""
    assert session.run().status == "failed"
    status = session.status()
    assert (status.status, status.next.number, status.next.action) == ("failed", 2, "run")
    [point] = session.recovery.points()
    assert (point.kind, point.metadata["operation"]) == ("recovery", "fail failed: ValueError")
    page = (session.folder / "phase_2_two" / "checkpoint.md").read_text(encoding="utf-8")
    assert "- Status: failed" in page
    assert "no such market" in page
    assert session.run().status == "failed"  # it was tried again


def test_points_are_those_of_errors_and_operations_newest_first(session):
    """Snapshots of other kinds are none."""
    for kind in ("recovery", "manual", "pre_operation"):
        session.history.take(kind)
    assert [(point.number, point.kind) for point in session.recovery.points()] == [
        (3, "pre_operation"),
        (1, "recovery"),
    ]


def test_recovering_brings_back_the_state_and_says_so(session):
    """Task, mailbox, context, memory and goals are what they were; those that were others are named in the event."""
    point = session.history.take("recovery")
    session.update_state({"task": {"current": "lost", "progress": 0}, "context": {"goals": []}, "memory": None})
    result = session.recovery.recover()
    assert session.state == {**EMPTY, **STATE}
    assert [(part.name, part.is_changed) for part in result.parts] == [
        ("task", True),
        ("mailbox", False),
        ("context", False),
        ("memory", True),
        ("goals", True),
    ]
    assert result.parts[4] == StatePart("goals", {"goals": ["a handbook", "in time"]}, {"goals": []})
    recovery = result.restored.recovery.id
    facts = {"snapshot": point.id, "number": point.number, "recovery": recovery, "parts": ["task", "memory", "goals"]}
    assert events(session) == [facts]


def test_the_point_that_recovering_takes_undoes_it(session):
    """The newest point is now the one before the recovery."""
    session.history.take("recovery")
    session.update_state({"summary": "later", "task": {"current": "later"}})
    session.recovery.recover()
    session.recovery.recover()
    assert (session.state["task"]["current"], len(events(session))) == ("later", 2)


def test_a_damaged_point_is_refused_and_nothing_changes(session):
    """It is verified before anything is restored."""
    point = session.history.take("recovery")
    session.update_state({"task": {"current": "later"}})
    for blob in session.workspace.folder.glob("*/history/blobs/**/*.gz"):
        blob.write_bytes(b"nothing")
    with pytest.raises(InvalidDocument):
        session.recovery.recover(str(point.number))
    assert (session.state["task"]["current"], events(session)) == ("later", [])
    assert session.snapshots() == [point]


def test_only_a_recovery_point_can_be_recovered(session):
    """Another snapshot, an unknown one and none at all are refused, with what to do."""
    with pytest.raises(InvalidRequest, match="there is nothing to recover"):
        session.recovery.recover()
    manual = session.snapshot("mine")
    session.history.take("recovery")
    with pytest.raises(InvalidRequest, match=f"restore it with: haytham restore {manual.id}"):
        session.recovery.recover("1")
    with pytest.raises(SnapshotNotFound):
        session.recovery.recover("9")


def test_clearing_deletes_all_points_but_those_that_are_held(session):
    """A pin and a fork hold one; other snapshots stay."""
    points = [session.history.take(kind) for kind in ("recovery", "pre_operation", "recovery", "recovery")]
    manual = session.snapshot("mine")
    session.history.pin(points[0])
    session.fork(points[2], name="other")
    result = session.recovery.clear()
    assert result.deleted == (points[3].id, points[1].id)
    assert [snapshot.id for snapshot, _ in result.kept] == [points[2].id, points[0].id]
    assert [snapshot.id for snapshot in session.snapshots()] == [manual.id, points[2].id, points[0].id]


def test_a_session_whose_state_cannot_be_read_is_recovered(session):
    """The state before counts as nothing, and the point brings all of it back."""
    session.history.take("recovery")
    (session.folder / "state.md").write_text("nothing\n", encoding="utf-8")
    assert [part.is_changed for part in session.recovery.recover().parts] == [True] * 5
    assert session.state["memory"] == STATE["memory"]


def test_the_command_says_what_came_back(session, tmp_path):
    """A line for each part of the state, with its values; those that were so before say that."""
    session.history.take("recovery")
    session.update_state({"task": {"current": "lost"}, "mailbox": None})
    answer = haytham("recover", "--latest", cwd=tmp_path)
    assert answer.code == 0
    assert "task: current write about csv; status in_progress; progress 40\n" in answer.out
    assert "mailbox: last processed m7; pending m8\n" in answer.out
    assert "context: constraints no network; decisions one chapter a day (as before)\n" in answer.out
    assert "memory: short term turn=3; session city=Leeds (as before)\n" in answer.out
    assert "goals: a handbook, in time (as before)\n" in answer.out


def test_list_never_asks(session, tmp_path):
    """With --list the points are printed and nothing else is said."""
    session.history.take("recovery", metadata={"operation": "drift: age"})
    answer = haytham("recover", "--list", cwd=tmp_path)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("1  ")
    assert answer.out.endswith("  when drift: age\n")
