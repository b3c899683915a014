"""The example of a loop around an agent: what it leaves in two hours and a minute, and what an exception leaves."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from haytham import Workspace, clock

PATH = Path(__file__).parent.parent / "examples" / "agent_loop.py"


@pytest.fixture
def example():
    """The module of the example."""
    spec = importlib.util.spec_from_file_location("agent_loop", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def time(example):
    """The clock that the example lives by."""
    now = example.Clock()
    with clock.override(now):
        yield now


def kinds(session):
    return [(snapshot.kind, snapshot.time[11:16]) for snapshot in reversed(session.snapshots())]


def test_two_hours_and_a_minute_are_four_routine_snapshots_and_one_recovery(example, time, tmp_path, monkeypatch):
    """A routine snapshot each half an hour, a recovery snapshot and a refresh at 2:00, and nothing more at 2:01."""
    taken = []
    monkeypatch.setattr(example, "tell", lambda cycle: taken.extend((cycle.snapshot, cycle.recovery)))
    session = example.main(tmp_path, time)
    assert [(one.kind, one.time[11:16]) for one in taken if one is not None] == [
        ("routine", "10:30"),
        ("routine", "11:00"),
        ("routine", "11:30"),
        ("routine", "12:00"),
        ("recovery", "12:00"),
    ]
    assert kinds(session) == [("routine", "11:00"), ("routine", "11:30"), ("routine", "12:00"), ("recovery", "12:00")]
    assert time.minutes == 122
    assert [event.facts["by"] for event in session.log(["drift_cleared"]).read()] == ["refresh"]
    assert (session.state["task"]["progress"], len(session.state["mailbox"]["pending"])) == (14, 1)


def test_any_callable_can_be_looped_and_may_fail(example, time, tmp_path, capsys):
    """An exception is told with its recovery snapshot, and the loop goes on."""
    session = Workspace(tmp_path).start("Anything.", workflow=example.WORKFLOW, user="ann")
    calls = []

    def work(_session):
        calls.append(time.minutes)
        if len(calls) == 2:
            raise ConnectionError("the line is dead")

    example.run_loop(session, work, is_active=lambda: len(calls) < 3, wait=time.wait)
    assert calls == [0, 10, 20]
    said = capsys.readouterr().out
    assert said == (
        "2024-11-24T10:10:00Z  error: the line is dead\n"
        "2024-11-24T10:10:00Z  recovery snapshot 1: a step failed: ConnectionError\n"
    )
