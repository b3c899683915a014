"""Workers: which sessions they run, and that several of them, killed at random, lose nothing and repeat nothing."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import time
from collections import defaultdict
from contextlib import contextmanager

import pytest

from haytham import Phase, Workflow, Workspace
from haytham.app.work import Worker
from haytham.errors import InvalidRequest, SessionNotReady
from haytham.session.paths import session_lock
from support.cli_runner import command, environment, haytham, own_modules, process
from support.effects import contents
from support.subprocess_workers import FORK, running

PLAIN = [Phase("One", agents=["worksheet"], review="none"), Phase("Two", agents=["worksheet"], review="none")]
AGENTS = '''
import json
import os
import time


def write(task):
    """Say who calls, and answer after a moment."""
    line = json.dumps([os.getpid(), task.idea, task.agent])
    with open("calls.txt", "a") as calls:
        calls.write(line + "\\n")
    time.sleep(0.05)
    return f"# {task.agent}\\n\\nFor {task.idea}.\\n"


def meet(task):
    """Answer once two processes have called an agent."""
    answer = write(task)
    for _ in range(600):
        with open("calls.txt") as calls:
            if len({json.loads(line)[0] for line in calls}) > 1:
                break
        time.sleep(0.05)
    return answer
'''
WORKFLOW = """
name: small
phases:
  - {number: 1, name: One, slug: one, agents: [one], review: none}
  - {number: 2, name: Two, slug: two, agents: [two], needs: [1], review: none}
modes: {all: [1, 2]}
"""


def started(workspace, idea="An idea.", phases=PLAIN, **given):
    """Start a session and do not run it."""
    return workspace.start(idea, workflow=Workflow("some", phases=phases, **given), mode="all", user="ann")


def statuses(results):
    return [(one.session.id, one.result.status if one.result else type(one.error).__name__) for one in results]


@pytest.fixture(autouse=True)
def _own_trust(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".state"))
    monkeypatch.setenv("HAYTHAM_USER", "ann")
    with own_modules(tmp_path):
        yield


@pytest.fixture
def workspace(tmp_path):
    """A workspace without sessions."""
    return Workspace(tmp_path / "projects")


def test_all_sessions_that_can_go_on_are_run_to_their_stop(workspace):
    """One ends, the other waits for a person; both are told, and a second look finds nothing to do."""
    first = started(workspace, "First.")
    second = started(workspace, "Second.", [PLAIN[0], Phase("Two", agents=["worksheet"])])
    begun, ended = [], []
    results = workspace.work(once=True, on_start=lambda session: begun.append(session.id), on_result=ended.append)
    assert statuses(results) == [(first.id, "completed"), (second.id, "waiting")]
    assert (begun, list(results)) == ([first.id, second.id], ended)
    assert workspace.work(once=True) == ()


def test_a_session_is_run_again_once_somebody_has_answered(workspace):
    """An approval is a change of its documents."""
    session = started(workspace, phases=[Phase("One", agents=["worksheet"]), PLAIN[1]])
    workspace.work(once=True)
    session.approve()
    assert statuses(workspace.work(once=True)) == [(session.id, "completed")]


def test_what_has_failed_or_is_paused_is_left_alone(workspace):
    """A failed session, and one that drift paused, wait for a person as well."""

    def fail(task):
        raise ValueError("no")

    failed = started(workspace, "First.", [Phase("One", agents=[fail])])
    failed.run()
    paused = started(workspace, "Second.", drift={"cycles": 0, "action": "pause"})
    assert paused.run().status == "paused"
    assert workspace.work(once=True) == ()


def test_a_session_that_is_not_trusted_is_not_run(workspace, tmp_path, monkeypatch):
    """Its code came from elsewhere; on another machine, whose list does not name it, nothing of it runs."""
    (tmp_path / "mine.py").write_text("def write(task):\n    return 'x'\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    session = started(workspace)
    session.prepare()
    session.documents.update_manifest({"model": "python:mine:write"})
    assert workspace.work(once=True) == ()
    session.prepare(trust_code=True)
    assert statuses(workspace.work(once=True)) == [(session.id, "completed")]


def test_a_session_that_cannot_be_read_hides_no_other(workspace):
    """It is passed over; haytham validate says what is wrong with it."""
    broken, sound = started(workspace, "A."), started(workspace, "B.")
    (broken.folder / "session_manifest.md").write_text("nothing", encoding="utf-8")
    assert statuses(workspace.work(once=True)) == [(sound.id, "completed")]


def test_an_error_ends_a_run_and_not_the_worker(workspace):
    """It is told with its session, which is run again once its documents have changed, and not before."""
    broken, sound = started(workspace, "A."), started(workspace, "B.")
    evidence, worker = broken.folder / "evidence.md", Worker(workspace)
    evidence.write_text("<<<<<<< a\n=======\n>>>>>>> b\n", encoding="utf-8")
    results = asyncio.run(worker.work(once=True))
    assert statuses(results) == [(broken.id, "InvalidDocument"), (sound.id, "completed")]
    assert asyncio.run(worker.work(once=True)) == ()
    evidence.unlink()
    assert statuses(asyncio.run(worker.work(once=True))) == [(broken.id, "completed")]


def hold(folder, session_id, ready):
    """Hold the run lock of a session until this process is killed."""
    session = Workspace(folder).session(session_id)
    with session.documents.store.run_lock(session_lock(session.project_id, session.session_id)):
        ready.set()
        time.sleep(60)


@contextmanager
def held(session):
    """Have another process hold the run lock of a session."""
    ready = FORK.Event()
    with running(hold, session.workspace.folder, session.id, ready):
        ready.wait(10)
        yield


def test_a_session_that_another_process_runs_is_passed_over_and_taken_over_when_that_dies(workspace):
    """The same worker that passed it over runs it at its next look, though no document has changed."""
    session, worker = started(workspace), Worker(workspace)
    with held(session):
        assert asyncio.run(worker.work(once=True)) == ()
    assert statuses(asyncio.run(worker.work(once=True))) == [(session.id, "completed")]


def test_a_session_is_not_run_in_another_status_than_the_one_asked_for(workspace):
    """What another worker finished between the look and the run is left as it is."""
    session = started(workspace)
    session.run()
    before = contents(session.folder)
    with pytest.raises(SessionNotReady, match="is completed now; nothing was run"):
        session.run(only_if="in_progress")
    assert contents(session.folder) == before


def test_in_a_running_loop_the_async_call_is_named(workspace):
    """`work` inside a loop says what to await."""

    async def inside():
        workspace.work(once=True)

    with pytest.raises(InvalidRequest, match=r"await workspace\.work_async"):
        asyncio.run(inside())


# The command.


def small(cwd, function):
    """A folder with the small workflow and the functions that answer for its agents."""
    folder = cwd / "small"
    (folder / "agents").mkdir(parents=True)
    (folder / "workflow.yaml").write_text(WORKFLOW, encoding="utf-8")
    for name in ("one", "two"):
        text = f"---\nname: {name}\nmodel: python:mine:{function}\n---\nWrite.\n"
        (folder / "agents" / f"{name}.md").write_text(text, encoding="utf-8")
    (cwd / "mine.py").write_text(AGENTS, encoding="utf-8")


def start_many(cwd, count, monkeypatch, function="write"):
    """Start so many sessions on the small workflow."""
    small(cwd, function)
    monkeypatch.chdir(cwd)
    workspace = Workspace("projects")
    return [workspace.start(f"Idea {number}", workflow="small", user="ann") for number in range(count)]


def calls(cwd):
    """The processes that called an agent, by session and agent, in order."""
    found = defaultdict(list)
    path = cwd / "calls.txt"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        number, idea, agent = json.loads(line)
        found[idea, agent].append(number)
    return found


def worker(cwd):
    """Start a worker in a process of its own."""
    return subprocess.Popen(
        command("work", "--once"), cwd=cwd, env=environment(cwd), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def test_three_workers_killed_at_random_lose_nothing_and_repeat_nothing_else(tmp_path, monkeypatch):
    """Each phase has one output; a call repeats only if its worker died during it; all documents are sound."""
    sessions, chance = start_many(tmp_path, 30, monkeypatch), random.Random(7)  # noqa: S311 - to be the same each time
    workers, killed = [worker(tmp_path) for _ in range(3)], []
    for _ in range(9):
        time.sleep(chance.uniform(0.3, 0.6))
        at = chance.randrange(3)
        workers[at].kill()
        workers[at].communicate()
        killed += [workers[at].pid] if workers[at].returncode else []
        workers[at] = worker(tmp_path)
    endings = [(one.communicate()[0].decode(), one.returncode) for one in workers]
    assert [code for _, code in endings] == [0, 0, 0], endings
    assert worker(tmp_path).communicate()[0] == b"no session can go on\n"

    for session in sessions:
        assert session.status().status == "completed"
        idea = session.workspace.projects.status(session.project_id)["startup_idea"]
        told = [(output.phase, output.agent, output.text) for output in session.outputs()]
        assert told == [(at, name, f"# {name}\n\nFor {idea}.\n") for at, name in ((1, "one"), (2, "two"))]
    made = calls(tmp_path)
    assert set(made) == {(f"Idea {number}", agent) for number in range(30) for agent in ("one", "two")}
    repeated = [number for numbers in made.values() for number in numbers[:-1]]
    assert set(repeated) <= set(killed)
    assert len(repeated) == len(set(repeated))  # a worker dies in one call
    assert len(killed) >= 3
    assert process("validate", cwd=tmp_path).code == 0


def test_two_workers_divide_the_sessions(tmp_path, monkeypatch):
    """No call is made twice, and each of them makes some."""
    start_many(tmp_path, 6, monkeypatch, function="meet")
    for one in [worker(tmp_path), worker(tmp_path)]:
        one.communicate()
    made = calls(tmp_path)
    assert len(made) == 12
    assert all(len(numbers) == 1 for numbers in made.values())
    assert len({number for numbers in made.values() for number in numbers}) == 2


@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_stops_a_worker_that_waits(tmp_path, monkeypatch, number, code):
    """It looks for sessions until it is stopped, takes one that is started meanwhile, and ends with one sentence."""
    [session] = start_many(tmp_path, 1, monkeypatch)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    waiting = subprocess.Popen(command("work"), cwd=tmp_path, env=environment(tmp_path), **pipes)
    later = None
    for _ in range(600):
        if later is None and session.status().status == "completed":
            later = session.workspace.start("Later.", workflow="small", user="ann")
        if later is not None and later.status().status == "completed":
            break
        time.sleep(0.05)
    waiting.send_signal(getattr(signal, number))
    out, err = waiting.communicate(timeout=20)
    assert (waiting.returncode, later.status().status) == (code, "completed")
    assert f"session {later.id} is completed" in out.decode()
    assert err.decode() == f"haytham: stopped by {number}; what was run can go on: haytham work\n"


def test_the_command_tells_each_run_in_one_line(tmp_path, monkeypatch):
    """With --json each is an object of kind `run`; an error is one, too, and the code is 1."""
    sessions = start_many(tmp_path, 2, monkeypatch)
    (tmp_path / "small" / "workflow.yaml").write_text(WORKFLOW.replace("Two", "Zwei"), encoding="utf-8")
    answer = haytham("work", "--once", "--json", cwd=tmp_path)
    rows = [json.loads(line) for line in answer.out.splitlines()]
    assert [(row["kind"], row["session"], row["status"]) for row in rows] == [
        ("run", session.session_id, "error") for session in sessions
    ]
    assert "small has changed" in rows[0]["why"]
    assert answer.code == 1


@pytest.mark.parametrize("words", [["work", "--once"], ["snapshot"]])
@pytest.mark.parametrize(("variable", "toml", "code"), [("0", "", 2), ("", "[snapshots]\nfrequency = 0\n", 6)])
def test_a_setting_that_is_wrong_for_all_sessions_is_told(tmp_path, words, variable, toml, code):
    """No session can be read then: that is an error of the setting, not work that is done or a choice to make."""
    for idea in ("One", "Two"):
        haytham("run", idea, "--no-input", cwd=tmp_path)
    (tmp_path / "projects" / "haytham.toml").write_text(toml)
    answer = haytham(*words, cwd=tmp_path, HAYTHAM_SNAPSHOTS_FREQUENCY=variable)
    assert (answer.code, "found '0'" in answer.err or "found 0" in answer.err) == (code, True), answer
