"""What events add up to: times of phases, waits for people, failures; and that only new events are read."""

from __future__ import annotations

import json

import pytest

from haytham import FileStore, logs
from haytham.session.event_totals import EventTotals, WaitTotals, read_event_totals

KEY = "p/sessions/s/events.jsonl"


def line(minute, name, **facts):
    """An event of a minute."""
    return {"time": f"2024-11-24T10:{minute:02d}:00Z", "event": name, **facts}


def totals(*lines):
    """What some events add up to."""
    found = EventTotals()
    for event in lines:
        found.add(event)
    return found


@pytest.mark.parametrize("end", ["phase_completed", "phase_failed", "phase_waiting", "run_ended"])
def test_a_phase_is_at_work_until_it_ends(end):
    """Seconds count from phase_started to its end, and those of several attempts are added."""
    once = [line(0, "phase_started", phase=1), line(2, end, phase=1)]
    again = [line(5, "attempt_started", phase=1, attempt=2), line(5, "phase_started", phase=1), line(8, end, phase=1)]
    found = totals(*once, *again)
    assert (found.seconds, found.attempts, found.running) == ({1: 300.0}, {1: 2}, None)


def test_a_killed_run_was_at_work_until_its_last_event():
    """The time between a kill and the next run is not work."""
    killed = [line(0, "phase_started", phase=1), line(3, "agent_started", phase=1, agent="a", model="m")]
    found = totals(*killed, line(50, "phase_started", phase=1), line(51, "phase_completed", phase=1))
    assert found.seconds == {1: 240.0}


@pytest.mark.parametrize("end", ["decision", "phase_started"])
def test_people_take_from_the_opening_of_a_review_to_its_end(end):
    """A wait ends with a decision, or when the phase runs again; a review that is opened twice waits from the first."""
    opened = [line(1, "review_opened", phase=1, why="new"), line(4, "review_opened", phase=1, why="edited")]
    assert totals(*opened).open_reviews == {1: "2024-11-24T10:01:00Z"}
    found = totals(*opened, line(11, end, phase=1), line(20, "review_opened", phase=1), line(25, end, phase=1))
    assert (found.waits, found.open_reviews) == ({1: WaitTotals(2, 900.0, 600.0)}, {})


def test_failures_and_drift_are_counted_by_agent_and_signal():
    """Each failed call counts for its agent, each signal for itself, and each event for its name."""
    failed = line(0, "agent_failed", phase=2, agent="a", error="no", tries_left=1)
    found = totals(failed, failed, line(1, "drift_detected", signals=["age", "cycles"], action="warn"))
    assert (found.failures, found.signals) == ({(2, "a"): 2}, {"age": 1, "cycles": 1})
    assert found.counts == {"agent_failed": 2, "drift_detected": 1}


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"event": 7},
        {"event": "phase_completed", "phase": "1", "time": "lately"},
        {"event": "decision", "phase": True, "time": None},
        {"event": "drift_detected", "signals": 3},
        {"event": "review_opened", "phase": 1, "time": 5},
    ],
)
def test_an_odd_line_harms_no_other(odd):
    """A line without a name, a phase or a time counts as far as it can."""
    work = [line(0, "phase_started", phase=2), line(1, "phase_completed", phase=2)]
    assert totals(odd, *work).seconds == {2: 60.0}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / KEY
    path.parent.mkdir(parents=True)
    return path


def write(file, *lines):
    with file.open("ab") as stream:
        stream.write(b"".join(json.dumps(event).encode() + b"\n" for event in lines))


def test_another_process_goes_on_from_the_index(tmp_path, file, monkeypatch):
    """The index in the local cache has all totals; only events after it are read."""
    monkeypatch.setattr(logs, "_WORTH_SAVING", 1)
    failed = line(2, "agent_failed", phase=1, agent="a", error="no", tries_left=1)
    drift = line(2, "drift_detected", signals=["age"], action="warn")
    write(file, line(0, "phase_started", phase=1), failed, drift, line(3, "phase_completed", phase=1))
    write(file, line(3, "review_opened", phase=1, why="new"), line(4, "decision", phase=1, decision="approved"))
    write(file, line(5, "review_opened", phase=2, why="new"), line(6, "phase_started", phase=3))
    before = read_event_totals(FileStore(tmp_path), KEY)
    assert [*(tmp_path / ".haytham" / "cache").rglob("statistics-1.json")]
    folded, add = [], EventTotals.add
    monkeypatch.setattr(EventTotals, "add", lambda self, event: folded.append(event) or add(self, event))
    assert read_event_totals(FileStore(tmp_path), KEY) == before
    assert folded == []
    write(file, line(7, "run_ended", status="failed", phase=3))
    assert read_event_totals(FileStore(tmp_path), KEY).seconds == {1: 180.0, 3: 60.0}
    assert len(folded) == 1


def test_an_index_that_does_not_fit_is_made_again(tmp_path, file, monkeypatch):
    """An index of another log, or one that is damaged, is not believed."""
    monkeypatch.setattr(logs, "_WORTH_SAVING", 1)
    write(file, *[line(0, "merged")] * 3)
    read_event_totals(FileStore(tmp_path), KEY)
    file.write_bytes(b"")
    write(file, *[line(1, "revised")] * 9)
    assert read_event_totals(FileStore(tmp_path), KEY).counts == {"revised": 9}
    for path in (tmp_path / ".haytham" / "cache").rglob("statistics-1.json"):
        path.write_bytes(b'{"state": 3')
    assert read_event_totals(FileStore(tmp_path), KEY).counts == {"revised": 9}


def test_a_line_that_is_not_complete_is_left_out(tmp_path, file):
    """What a crash cut off counts for nothing, and all before it counts."""
    write(file, line(0, "merged"))
    file.write_bytes(file.read_bytes() + b'{"time": "2024')
    assert read_event_totals(FileStore(tmp_path), KEY).counts == {"merged": 1}
