"""Loops of a caller's own: steps that are counted, snapshots that are due, and drift, from nothing but the files."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from haytham import MemoryStore, Phase, Workflow, Workspace, clock
from haytham.engine.loop import take_step
from haytham.errors import SessionPaused
from haytham.history.history import History
from haytham.session import SessionDocuments
from support.subprocess_workers import apart

START = datetime(2024, 11, 24, 10, tzinfo=UTC)


class Time:
    """A clock that stands still until it is told to go on."""

    def __init__(self):
        self.minutes = 0

    def __call__(self):
        return START + timedelta(minutes=self.minutes)


@pytest.fixture
def time():
    """The time of the test."""
    now = Time()
    with clock.override(now):
        yield now


def started(tmp_path, drift=None, **snapshots):
    """Return a session whose workflow has these policies."""
    snapshots = {"auto": "every", "frequency": 1000, **snapshots}
    workflow = Workflow("loop", phases=[Phase("Work", agents=["worksheet"])], snapshots=snapshots, drift=drift or {})
    return Workspace(tmp_path).start("A loop.", workflow=workflow, user="ann")


def again(session):
    """Return the session as another process opens it."""
    return Workspace(session.workspace.folder).session(session.id)


def kinds(session):
    """Return how many snapshots of each kind there are."""
    found = [snapshot.kind for snapshot in session.snapshots()]
    return {kind: found.count(kind) for kind in found}


def events(session, *names):
    return [(event.name, event.facts) for event in session.log(names).read()]


@pytest.mark.parametrize("action", ["warn", "refresh"])
def test_two_hours_of_steps_are_four_routine_snapshots_and_one_recovery(tmp_path, time, action):
    """From 0 to 2 h 01, a step each ten minutes: the second check in the episode takes no second snapshot."""
    session = started(tmp_path, {"action": action})
    for minute in (*range(0, 121, 10), 121):
        time.minutes = minute
        session.update_state({"memory": {"short_term": {"minute": minute}}})
        again(session).history.step()
    assert kinds(session) == {"routine": 4, "recovery": 1}
    [(_, facts)] = events(session, "drift_detected")
    assert (facts["signals"], facts["action"], facts["why"]) == (
        ["age"],
        action,
        "drift: 120 minutes since the last refresh",
    )
    assert session.history.get(facts["recovery"]).time == "2024-11-24T12:00:00Z"


def test_retention_holds_in_a_loop(tmp_path, time):
    """Of four routine snapshots the newest three are kept, as the workflow says; the recovery point stays."""
    session = started(tmp_path, retention={"routine": {"keep_last": 3}})
    for minute in (*range(0, 121, 10), 121):
        time.minutes = minute
        session.update_state({"memory": {"short_term": {"minute": minute}}})
        session.history.step()
    session.history.prune()
    assert kinds(session) == {"routine": 3, "recovery": 1}


def test_steps_of_many_processes_count_together(tmp_path):
    """Each step in a process of its own, by the log alone: the fourth is past the limit of three."""
    session = started(tmp_path, {"cycles": 3})
    for _ in range(4):
        apart(lambda: again(session).history.step() and None)
    assert [facts["signals"] for _, facts in events(session, "drift_detected")] == [["cycles"]]


def test_pause_raises_and_the_next_step_goes_on(tmp_path):
    """The step that is past the limit is counted and raises; then all counts begin anew."""
    session = started(tmp_path, {"cycles": 1, "action": "pause"})
    session.history.step()
    with pytest.raises(SessionPaused, match="drift: 2 cycles since the last refresh"):
        session.history.step()
    assert session.status().status == "paused"
    again(session).history.step()
    assert session.status().status == "in_progress"
    assert [name for name, _ in events(session, "drift_detected", "drift_cleared")] == [
        "drift_detected",
        "drift_cleared",
    ]


def test_a_step_tells_of_task_progress_and_text(tmp_path):
    """The log has the task and its number, and how alike the text is to the one before it of the same task."""
    session = started(tmp_path)
    for task, text in (("a", "one two"), ("b", "three"), ("a", "one two"), ("a", "one six")):
        session.update_state({"task": {"current": task, "progress": 3}})
        again(session).history.step(text=text)
    told = [
        (facts["task"], facts["progress"], facts.get("similarity")) for _, facts in events(session, "cycle_completed")
    ]
    assert told == [("a", 3.0, None), ("b", 3.0, None), ("a", 3.0, 1.0), ("a", 3.0, 0.5)]


def test_four_alike_texts_of_a_task_are_drift(tmp_path):
    """The fourth is past the limit."""
    session = started(tmp_path)
    for _ in range(4):
        assert events(session, "drift_detected") == []
        again(session).history.step(text="The same again.")
    assert events(session, "drift_detected")[0][1]["signals"] == ["repeats"]


def test_progress_that_stands_still_is_drift_until_it_goes_on(tmp_path):
    """The tenth step without a higher number begins the episode, and a higher one ends it."""
    session = started(tmp_path)
    session.update_state({"task": {"current": "a", "progress": 3}})
    for _ in range(10):
        session.history.step()
    session.update_state({"task": {"progress": 4}})
    session.history.step()
    found = events(session, "drift_detected", "drift_cleared")
    assert [(name, facts["signals"]) for name, facts in found] == [
        ("drift_detected", ["no_progress"]),
        ("drift_cleared", ["no_progress"]),
    ]


def test_a_step_on_a_damaged_session_is_counted(tmp_path, caplog):
    """What cannot be judged is a warning, and the routine snapshot is taken all the same."""
    session = started(tmp_path, frequency=1)
    (session.folder / "session_manifest.md").write_text("nothing", encoding="utf-8")
    assert session.history.step().kind == "routine"
    assert "whether the session drifts is not known" in caplog.text


def test_a_loop_in_memory_remembers_texts_too(tmp_path):
    """A store without a cache on disk keeps the last text in memory."""
    source = started(tmp_path).documents.read().workflow_files()
    documents = SessionDocuments(MemoryStore(), "p", "s")
    documents.create(user_id="ann", source=source, mode=next(iter(source.workflow.modes)))
    history = History(documents)
    for _ in range(2):
        take_step(history, text="one two")
    stored, _ = documents.events.read()
    assert [event.facts.get("similarity") for event in stored if event.name == "cycle_completed"] == [None, 1.0]


def test_a_cycle_returns_what_the_work_did(tmp_path):
    """The result of the work, the routine snapshot that was due, and the judgement."""
    session = started(tmp_path, frequency=1)
    cycle = session.loop().cycle(lambda session: session.update_state({"summary": "done"})["summary"])
    assert (cycle.result, cycle.error, cycle.snapshot.kind, cycle.recovery) == ("done", None, "routine", None)
    assert (cycle.drift.cycles, cycle.drift.signals) == (1, ())


def test_an_exception_in_a_cycle_leaves_a_recovery_snapshot(tmp_path, monkeypatch):
    """It is in the result and in the log, without secrets of the environment, and the loop may go on."""
    monkeypatch.setenv("API_KEY", "correct-horse-battery")
    session = started(tmp_path)
    loop = session.loop()

    def fail(_session):
        raise ValueError("correct-horse-battery is refused")

    cycle = loop.cycle(fail)
    assert (type(cycle.error), cycle.recovery.metadata["operation"]) == (ValueError, "a step failed: ValueError")
    [(_, facts)] = events(session, "cycle_failed")
    assert "is refused" in facts["error"]
    assert "correct-horse" not in facts["error"]
    assert loop.cycle(lambda _session: "fine").error is None


def test_a_refresh_opens_the_session_anew(tmp_path, time):
    """After two hours the loop goes on with objects that remember nothing, and the caller is told once."""
    session, fresh = started(tmp_path, {"action": "refresh"}), []
    loop = session.loop(on_refresh=fresh.append)
    for minute in (*range(0, 121, 10), 121):
        time.minutes = minute
        cycle = loop.cycle(lambda session: session.update_state({"task": {"current": "t"}}) and None)
        assert cycle.is_refreshed == (minute == 120)
    assert fresh == [loop.session]
    assert loop.session is not session
    assert [facts["by"] for _, facts in events(session, "drift_cleared")] == ["refresh"]


def test_a_loop_that_pauses_says_why(tmp_path):
    """SessionPaused ends the loop of the caller."""
    loop = started(tmp_path, {"cycles": 0, "action": "pause"}).loop()
    with pytest.raises(SessionPaused, match="drift: 1 cycle since"):
        loop.cycle(lambda _session: None)


def test_an_async_callable_is_awaited(tmp_path):
    """Its result and its exception are those of the cycle."""
    loop = started(tmp_path).loop()

    async def work(session):
        await asyncio.sleep(0)
        return session.state["summary"] or 1 / 0

    assert type(loop.cycle(work).error) is ZeroDivisionError
    loop.session.update_state({"summary": "done"})
    assert loop.cycle(work).result == "done"


def test_ctrl_c_in_a_cycle_is_not_swallowed(tmp_path):
    """Only exceptions are results; what ends a process goes on."""
    session = started(tmp_path)
    for stop in (KeyboardInterrupt, asyncio.CancelledError):
        with pytest.raises(stop):
            session.loop().cycle(lambda _session, stop=stop: (_ for _ in ()).throw(stop()))
