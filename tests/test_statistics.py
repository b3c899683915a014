"""Statistics: the figures of a session, of its project, and of the workspace are those of its documents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from haytham import CheckpointManager, Phase, ProjectManager, Reply, Workflow, Workspace, clock
from haytham.errors import InvalidDocument, SessionNotFound
from haytham.session.event_totals import WaitTotals

IDEA = "Lend rain barrels"
START = datetime(2024, 11, 24, 10, tzinfo=UTC)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.moment = START

    def __call__(self):
        return self.moment

    def move(self, **ahead):
        self.moment += timedelta(**ahead)


@pytest.fixture
def time():
    moment = Clock()
    with clock.override(moment):
        yield moment


@pytest.fixture(autouse=True)
def _ann(tmp_path, monkeypatch):
    monkeypatch.setenv("HAYTHAM_USER", "ann")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".state"))


def started(tmp_path, *agents, review="required", **about):
    """A session with a phase an agent."""
    phases = [Phase(agent.__name__.title(), agents=[agent], review=review) for agent in agents]
    return Workspace(tmp_path).start(IDEA, workflow=Workflow("offer", phases=phases), **about)


def cheap(task):
    """Answer for a quarter of a dollar."""
    return Reply(f"Attempt {task.attempt}.", model="m", input_tokens=3, output_tokens=4, cost=0.25)


def dear(_task):
    """Answer for a dollar."""
    return Reply("Gold.", model="large", input_tokens=30, output_tokens=40, cost=1.0)


def test_tokens_and_cost_are_told_by_phase_agent_and_model(tmp_path):
    """The sums of the calls are those that the session spent."""
    session = started(tmp_path, cheap, dear, review="none")
    session.run()
    rows = [
        (row.phase, row.agent, row.model.split(":")[0], row.totals.usage.tokens) for row in session.statistics().usage
    ]
    assert rows == [(1, "cheap", "python", 7), (2, "dear", "python", 70)]
    found = Workspace(tmp_path).statistics()
    assert {by: [group.usage.cost for group in found.usage(by).values()] for by in ("phase", "agent", "model")} == {
        "phase": [0.25, 1.0],
        "agent": [1.0, 0.25],
        "model": [1.0, 0.25],
    }
    assert found.spent.usage == session.cost().spending.summary.total
    assert (found.spent.input_tokens, found.spent.output_tokens) == (33, 44)


def test_time_attempts_and_waits_are_those_of_the_clock(tmp_path, time):
    """A phase took as long as its agents, a person from the opening of the review to the decision."""

    def slow(task):
        time.move(minutes=task.attempt)
        return "Done."

    session = started(tmp_path, slow)
    session.run()
    time.move(hours=2)
    session.request_changes(changes=["Shorter"])
    session.run()
    time.move(hours=1)
    (phase,) = session.statistics().phases
    assert (phase.attempts, phase.seconds) == (2, 180.0)
    assert (phase.waits, phase.waiting) == (WaitTotals(1, 7200.0, 7200.0), 3600.0)
    session.approve()
    (phase,) = session.statistics().phases
    assert (phase.waits, phase.waiting) == (WaitTotals(2, 10800.0, 7200.0), None)


def test_snapshots_are_told_by_kind_with_their_sizes(tmp_path):
    """As plain copies, compressed, and as they lie on disk."""
    session = started(tmp_path, cheap)
    session.run()
    session.snapshot("one"), session.snapshot("two")
    found = Workspace(tmp_path).statistics()
    assert [(kind.kind, kind.count) for kind in found.snapshots] == [("phase", 1), ("manual", 2)]
    listed, every = session.snapshots(), found.all_snapshots
    assert every.raw == sum(one.raw for one in listed)
    assert every.stored == sum(session.history.stored_size(one) for one in listed)
    assert every.added == sum(one.added for one in listed)
    assert every.added < every.stored < every.raw


def test_forks_are_told_with_their_depth(tmp_path):
    """What a fork inherited is told apart: it was spent, and worked, by the session it comes from."""
    session = started(tmp_path, cheap, review="none")
    session.run()
    child = session.fork(name="child")
    grandchild = child.fork(name="grandchild")
    facts = {
        one.session_id: (one.depth, one.forks, one.forked_from) for one in Workspace(tmp_path).statistics().sessions
    }
    assert facts == {
        session.session_id: (0, 1, None),
        "child": (1, 1, session.session_id),
        "grandchild": (2, 0, "child"),
    }
    found = Workspace(tmp_path).statistics()
    assert (found.forks, found.depth, found.spent.usage.cost) == (2, 2, 0.25)
    assert [phase.attempts for phase in found.phases] == [1]
    assert grandchild.statistics().inherited.cost == 0.25


def test_failures_and_drift_are_told(tmp_path):
    """Each failed call of an agent, and each signal of drift."""

    def broken(_task):
        raise ValueError("no such market")

    session = started(tmp_path, broken)
    session.run()
    events = session.new_events()
    events.emit("drift_detected", signals=["age"], action="warn", why="it is old", recovery=None)
    found = Workspace(tmp_path).statistics()
    assert (dict(found.failures), dict(found.drift)) == ({"broken": found.events["agent_failed"]}, {"age": 1})
    assert found.spent.failed == found.events["agent_failed"]
    assert found.events["phase_failed"] == 1


def test_what_a_program_saved_is_told_too(tmp_path, time):
    """Of a session without events, time and attempts are those of its checkpoints, models those of its outputs."""
    checkpoints, project = CheckpointManager(tmp_path), ProjectManager(tmp_path).create_project("ann", IDEA)
    ids = project["project_id"], "s"
    checkpoints.create_session(*ids, "ann")
    checkpoints.save_agent_output(*ids, 1, "concept_expansion", "Text.", model="gpt", input_tokens=3, output_tokens=4)
    agents = [{"agent_name": "concept_expansion", "status": "completed", "tokens": 7, "cost": 0.5}]
    checkpoints.save_checkpoint(*ids, 1, "completed", agents, duration=12.5)
    found = Workspace(tmp_path).session("s").statistics()
    assert [(phase.number, phase.attempts, phase.seconds) for phase in found.phases][:2] == [(1, 1, 12.5), (2, 0, 0.0)]
    assert [(row.agent, row.model, row.totals.usage.cost) for row in found.usage] == [("concept_expansion", "gpt", 0.5)]
    time.move(seconds=5)
    fork = Workspace(tmp_path).session("s").fork(name="fork")
    assert [phase.attempts for phase in fork.statistics().phases][:2] == [0, 0]
    time.move(seconds=5)
    checkpoints.save_checkpoint(ids[0], "fork", 2, "completed", [], duration=3.0)
    assert [phase.seconds for phase in fork.statistics().phases][:2] == [0.0, 3.0]


def test_a_project_and_a_session_are_named(tmp_path):
    """A project by its id, a session by any unique part of its id; anything else is refused."""
    first, second = started(tmp_path, cheap, name="Rain"), started(tmp_path, cheap, name="Ladders")
    started(tmp_path, cheap, project="rain", name=None)
    workspace = Workspace(tmp_path)
    counts = {name: len(workspace.statistics(name).sessions) for name in (None, "rain", second.session_id)}
    assert counts == {None: 3, "rain": 2, second.session_id: 1}
    assert workspace.statistics(first.id).sessions[0].session_id == first.session_id
    with pytest.raises(SessionNotFound):
        workspace.statistics("nothing")


def test_a_session_that_cannot_be_read_hides_no_other(tmp_path):
    """It is among the faults, and the figures are those of the others."""
    sound, broken = started(tmp_path, cheap), started(tmp_path, cheap)
    sound.run()
    (broken.folder / "session_manifest.md").write_text("mine\n", encoding="utf-8")
    found = Workspace(tmp_path).statistics()
    assert [one.session_id for one in found.sessions] == [sound.session_id]
    assert [type(error) for error in found.faults] == [InvalidDocument]
