"""Failed agents that run again by themselves: when, how often, and what is on record of it."""

from __future__ import annotations

import pytest

from haytham.errors import AgentError
from haytham.history.history import History
from haytham.session.summary import summarize
from support import fake_agents
from support.fake_agents import Desk, called

PLAIN = "name: one\nphases:\n  - {number: 1, name: One, slug: one, agents: [a], review: none}\nmodes: {all: [1]}\n"
TWO = PLAIN.replace("agents: [a]", "agents: [b, c]")
ORDER = TWO.replace("review: none", "review: none, run: sequential")


@pytest.fixture(autouse=True)
def _anew():
    fake_agents.forget()


def resuming(workflow, retries=1):
    """Return a workflow whose failed agents run again."""
    return f"{workflow}snapshots: {{auto_resume_on_failure: true, max_retries: {retries}}}\n"


def fail_once(agent, times=1):
    """Let an agent fail so many times, and answer then."""
    left = [times]

    def watch(task):
        if task.agent == agent:
            (fake_agents.failing.add if left[0] else fake_agents.failing.discard)(agent)
            left[0] -= 1

    fake_agents.watching.append(watch)


def recoveries(desk):
    return History(desk.session).list("recovery")


def checkpoint(desk):
    return desk.session.read().checkpoint(desk.phase(1)).value


def test_an_agent_that_fails_once_runs_again_by_itself(tmp_path):
    """With auto_resume_on_failure the session is completed; one recovery snapshot and Retry Count 1 tell of it."""
    desk = Desk(tmp_path, resuming(PLAIN))
    fail_once("a")
    assert desk.resume() == ("completed", None)
    assert (called(), len(recoveries(desk)), checkpoint(desk).retry_count) == (["a", "a"], 1, 1)
    assert (checkpoint(desk).status, checkpoint(desk).errors) == ("completed", None)
    assert [len(desk.events(kind)) for kind in ("phase_started", "phase_failed", "phase_completed")] == [2, 1, 1]


def test_without_auto_resume_a_failure_ends_the_run_and_can_be_resumed(tmp_path):
    """An exception leaves a recovery snapshot and a failed checkpoint with the error; the next run goes on."""
    desk = Desk(tmp_path, PLAIN)
    fail_once("a")
    assert desk.resume() == ("failed", 1)
    [recovery] = recoveries(desk)
    assert recovery.metadata["operation"] == "a failed: RuntimeError"
    assert (checkpoint(desk).status, checkpoint(desk).retry_count) == ("failed", 0)
    assert checkpoint(desk).errors[0].endswith("a cannot")
    assert summarize(desk.session.read()).status == "failed"
    assert desk.resume() == ("completed", None)
    assert (called(), checkpoint(desk).errors) == (["a", "a"], None)


@pytest.mark.parametrize(("retries", "status"), [(1, "failed"), (2, "completed"), (3, "completed"), (0, "failed")])
def test_failed_agents_run_again_at_most_max_retries_times(tmp_path, retries, status):
    """An agent that fails twice needs two retries; a recovery snapshot is taken at each failure."""
    desk = Desk(tmp_path, resuming(PLAIN, retries))
    fail_once("a", 2)
    assert desk.resume()[0] == status
    ran = min(retries, 2)
    assert (len(called()), checkpoint(desk).retry_count) == (ran + 1, ran)
    assert len(recoveries(desk)) == min(ran + 1, 2)


def test_only_the_failed_agent_of_a_phase_runs_again(tmp_path):
    """Outputs of the other agents stay as they are."""
    desk = Desk(tmp_path, resuming(TWO))
    fail_once("b")
    assert desk.resume() == ("completed", None)
    assert sorted(called()) == ["b", "b", "c"]


def test_a_sequential_phase_goes_on_from_the_failed_agent(tmp_path):
    """Agents before it are not asked again, and those after it see its answer."""
    desk = Desk(tmp_path, resuming(ORDER))
    fail_once("c")
    assert desk.resume() == ("completed", None)
    assert called() == ["b", "c", "c"]


def test_retry_count_adds_earlier_attempts_and_earlier_runs(tmp_path):
    """Retry Count is the earlier attempts and the runs after a failure, also when a later run finishes the phase."""
    desk = Desk(tmp_path, resuming(PLAIN.replace(", review: none", "")))
    assert desk.resume() == ("waiting", 1)
    desk.request_changes(1, "Shorter.")
    fail_once("a", 2)
    assert desk.resume() == ("failed", 1)
    assert checkpoint(desk).retry_count == 2
    assert desk.resume() == ("waiting", 1)
    assert checkpoint(desk).retry_count == 2


def test_the_retries_of_an_agent_come_first(tmp_path):
    """An agent's own `retries` are used up in each run; what they mend makes no recovery snapshot."""
    text = fake_agents.AGENT_FILE.replace("retries: 0", "retries: 1").encode()
    desk = Desk(tmp_path, resuming(PLAIN), {"agents/a.md": text})
    fail_once("a", 2)
    assert desk.resume() == ("completed", None)
    assert (len(called()), len(recoveries(desk)), checkpoint(desk).retry_count) == (3, 1, 1)


def test_an_error_that_stays_the_same_is_not_retried(tmp_path):
    """After an error that says that asking again is no use, no failed agent of the phase runs again."""
    desk = Desk(tmp_path, resuming(TWO, 3))

    def refuse(task):
        if task.agent == "b":
            raise AgentError("the key is refused", retry=False)
        raise OSError("the line is busy")

    fake_agents.watching.append(refuse)
    assert desk.resume() == ("failed", 1)
    assert len(desk.events("agent_started")) == 2


def test_nothing_runs_again_without_snapshots(tmp_path):
    """`enabled: false` switches off all that is set under `snapshots:`."""
    desk = Desk(tmp_path, resuming(PLAIN).replace("snapshots: {", "snapshots: {enabled: false, "))
    fail_once("a")
    assert desk.resume() == ("failed", 1)
    assert called() == ["a"]
