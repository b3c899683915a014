"""The runner: agents that fail, hang or end themselves, several at once, two runners, and kill -9."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import socket
import time
from dataclasses import replace

import pytest

from conftest import rounds
from haytham.agents.base import Task
from haytham.agents.prompt import build_prompt
from haytham.agents.registry import declared_models, load_agent
from haytham.config.agent_spec import AgentSpec, read_agent
from haytham.engine.invoke import RunOptions
from haytham.engine.runner import Runner
from haytham.errors import AlreadyRunning, InvalidArgument, InvalidDocument, SessionMoved, UntrustedCode
from haytham.events import Events
from haytham.session.summary import summarize
from haytham.storage import FileStore
from haytham.storage.locks import is_held
from support import bad_agents, fake_agents
from support.bad_agents import FOLDER, SEEN, wait_for
from support.fake_agents import WORKFLOW, Desk, called
from support.subprocess_workers import running, start

ONE = "name: one\nphases:\n  - {number: 1, name: One, slug: one, agents: [a]}\nmodes: {all: [1]}\n"
TWO = ONE.replace("agents: [a]", "agents: [b, c]")
LOCK = "p/sessions/s"


@pytest.fixture(autouse=True)
def _anew():
    fake_agents.forget()
    SEEN.clear()


def desk_with(base, function, workflow=ONE, **ours):
    """A session whose agents are a function of this module."""
    haytham = "".join(f"  {key}: {value}\n" for key, value in ours.items())
    text = (
        f"---\nmodel: python:support.bad_agents:{function}\n"
        + (f"haytham:\n{haytham}" if ours else "")
        + "---\nWrite.\n"
    )
    return Desk(base, workflow, {f"agents/{name}.md": text.encode() for name in ("a" if workflow == ONE else "bc")})


def output(desk, number=1, agent="a"):
    return desk.session.read().outputs(desk.phase(number))[agent].value.to_value()


# Failing.


@pytest.mark.parametrize("function", ["hang", "block"])
def test_an_agent_that_takes_too_long_fails(tmp_path, function):
    """After its time-out an agent is asked again as often as its file allows, and has failed then."""
    desk = desk_with(tmp_path, function, timeout=0.05, retries=1)
    assert desk.resume() == ("failed", 1)
    assert SEEN == ["a", "a"]
    assert output(desk)["error_message"] == "no answer within 0.05 s"
    assert [event["tries_left"] for event in desk.events("agent_failed")] == [1, 0]


def test_an_agent_is_asked_again_until_it_answers(tmp_path):
    """A failure that passes leaves no trace but its events; what the reply says stands in the output."""
    desk = desk_with(tmp_path, "twice_in_vain", retries=2)
    assert desk.resume() == ("waiting", 1)
    assert SEEN == ["a"] * 3
    value = output(desk)
    assert [value[name] for name in ("text", "model", "input_tokens", "output_tokens", "tools_used", "status")] == [
        "At last.", "m", 3, 4, ["search"], "completed"
    ]  # fmt: skip
    said = [re.sub(r"line \d+", "line N", event["error"]) for event in desk.events("agent_failed")]
    assert said == [f"OSError in {os.path.relpath(bad_agents.__file__)}, line N: the line is busy"] * 2


def test_what_an_agent_cost_stands_in_the_ledger_and_stays(tmp_path):
    """The cost of a reply is in the phase's ledger and the manifest's total, also after the phase is saved again."""
    desk = desk_with(tmp_path, "twice_in_vain", retries=2)
    desk.resume()
    checkpoint = desk.folder(1) / "checkpoint.md"
    assert "| a | completed | a.md | 7 | 3 | 4 | $0.25 |" in checkpoint.read_text(encoding="utf-8")
    checkpoint.write_text(checkpoint.read_text("utf-8").replace("- Status: completed", "- Status: failed", 1), "utf-8")
    assert desk.resume() == ("waiting", 1)
    assert "- Total Cost: $0.25\n" in (desk.folder(1).parent / "session_manifest.md").read_text(encoding="utf-8")


def test_backoff_doubles_and_is_the_callers_to_choose(tmp_path, monkeypatch):
    """Between two tries the runner waits, each time twice as long."""
    waits, sleep = [], asyncio.sleep

    async def note(seconds, *rest):
        waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    session = desk_with(tmp_path, "twice_in_vain", retries=2).session
    asyncio.run(Runner(session, Events(), may_run_code=True, options=RunOptions(backoff=8)).run())
    assert waits == [8, 16]


def test_a_failure_says_what_and_where(tmp_path):
    """Error Details have type, file, line, message and stack of the last failure; the phase names its agent."""
    fake_agents.failing.add("a")
    desk = Desk(tmp_path, ONE)
    assert desk.resume() == ("failed", 1)
    value = output(desk)
    assert (value["error_type"], value["text"]) == ("RuntimeError", "")
    said = re.sub(r"line \d+", "line N", value["error_message"])
    assert said == f"RuntimeError in {os.path.relpath(fake_agents.__file__)}, line N: a cannot"
    assert "in write" in value["stack_trace"]
    assert desk.session.read().checkpoint(desk.phase(1)).value.errors == (f"a: {value['error_message']}",)
    assert "\n## Error Details\n" in (desk.folder(1) / "a.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("cancelled", "cancelled from within"),
        ("group_cancelled", "cancelled from within"),
        ("leave", "it ended itself with SystemExit: 3"),
        ("no_text", "found 7; allowed: a Reply or text"),
        ("broken_text", "Unicode text"),
        ("impossible_tokens", "input_tokens"),
        ("broken_error", "half a pair: ?"),
        ("nowhere", "that can be imported"),
    ],
)
def test_whatever_an_agent_does_is_its_own_failure(tmp_path, function, said):
    """Cancelling itself, leaving, or an answer that no file could hold: the agent failed, and the run ends orderly."""
    desk = desk_with(tmp_path, function, retries=0)
    assert desk.resume() == ("failed", 1)
    assert said in output(desk)["error_message"]


def test_a_run_that_is_stopped_can_be_resumed(tmp_path):
    """Cancelling a run stops its agents, stores nothing half, and lets the lock go."""
    desk = desk_with(tmp_path, "hang", TWO)

    async def stop():
        session = desk.session
        events = Events(session.store, session.prefix + "events.jsonl")
        run = asyncio.ensure_future(Runner(session, events, may_run_code=True).run())
        assert await asyncio.to_thread(wait_for, lambda: len(SEEN) == 2)
        run.cancel()
        await run

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(stop())
    assert desk.events("run_ended")[-1]["status"] == "stopped"
    assert desk.session.read().outputs(desk.phase(1)) == {}
    with desk.session.store.run_lock(LOCK):
        assert desk.steps() == ["run"]


def test_code_runs_only_where_it_is_trusted(tmp_path):
    """Without leave to run code the run ends before anything is called, and is no agent's failure."""
    session = Desk(tmp_path, WORKFLOW).session
    with pytest.raises(UntrustedCode, match="agent a runs code"):
        asyncio.run(Runner(session, Events()).run())
    assert called() == []
    assert session.read().outputs(session.read().phase(1)) == {}


# Several at once.


def test_agents_of_a_parallel_phase_run_side_by_side(tmp_path):
    """Both have started before either ends, also where they are plain functions that block."""
    desk = desk_with(tmp_path, "meet", TWO, retries=0)
    assert desk.resume() == ("waiting", 1)
    assert [output(desk, agent=name)["text"] for name in "bc"] == ["b met", "c met"]


def test_each_output_is_stored_the_moment_it_is_there(tmp_path):
    """An agent that still works sees the finished one's file already."""
    desk = desk_with(tmp_path, "one_then_other", TWO, retries=0)
    FOLDER[:] = [desk.folder(1)]
    assert desk.resume() == ("waiting", 1)
    assert SEEN == [True]


# A folder that is renamed or removed while agents are at work.


def move_during_run(desk, old, new):
    """Run a session of which an agent moves a folder; return the error that ends the run."""
    FOLDER[:] = [old, new]
    with pytest.raises(SessionMoved) as error:
        desk.resume()
    assert sorted(SEEN) == ["b", "c"]
    assert not old.exists()
    return str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "place"), [("p/sessions/s", "p/sessions/t", "p/sessions/t"), ("p", "q", "q/sessions/s")]
)
def test_a_reply_is_stored_in_a_renamed_folder(tmp_path, old, new, place):
    """Where a session or its project is renamed, replies, money and events go there, and no ghost folder is left."""
    desk, old, new = desk_with(tmp_path, "move_folder", TWO, retries=0), tmp_path / old, tmp_path / new
    assert f"p/sessions/s/ was renamed to {place}/ during the run" in move_during_run(desk, old, new)
    place = tmp_path / place
    assert "b answers." in (place / "phase_1_one/b.md").read_text(encoding="utf-8")
    assert (place / "spend.jsonl").read_text(encoding="utf-8").count('"event": "settled"') == 2
    assert '"event": "run_ended"' in (place / "events.jsonl").read_text(encoding="utf-8").splitlines()[-1]
    new.rename(old)
    assert desk.resume() == ("waiting", 1)
    assert (desk.text(1, "b"), desk.text(1, "c"), len(SEEN)) == ("b answers.", "c answers.", 2)


@pytest.mark.parametrize(("gone", "kept"), [("p/sessions/s", "p/set_aside"), ("p", "set_aside")])
def test_a_reply_to_a_session_that_is_gone_is_kept_aside(tmp_path, gone, kept):
    """Where a session's folder cannot be found, each reply is kept in a file that the error names; no ghost is left."""
    desk = desk_with(tmp_path / "projects", "move_folder", TWO, retries=0)
    said = move_during_run(desk, tmp_path / "projects" / gone, tmp_path / "away")
    files = sorted((tmp_path / "projects" / kept).rglob("*.md"))
    assert sorted(path.read_text(encoding="utf-8") for path in files) == ["b answers.", "c answers."]
    assert all(str(path.relative_to(tmp_path / "projects")) in said for path in files)
    assert "p/sessions/s/ was moved away or deleted during the run" in said


@pytest.mark.parametrize("gone", ["session_manifest.md", "phase_1_one"])
def test_a_reply_that_has_no_place_is_kept_in_the_session(tmp_path, gone):
    """Where a session has lost its manifest or a phase its folder, all replies are kept before the run ends."""
    desk = desk_with(tmp_path / "projects", "move_folder", TWO, retries=0)
    folder = desk.folder(1).parent
    FOLDER[:] = [folder / gone, tmp_path / "away"]
    with pytest.raises(FileNotFoundError, match=gone):
        desk.resume()
    texts = [path.read_text(encoding="utf-8") for path in (folder / "set_aside").rglob("*.md")]
    assert sorted(texts) == ["b answers.", "c answers."]
    (tmp_path / "away").rename(folder / gone)
    whys = [event["why"] for event in desk.events("reply_not_stored")]
    assert len([why for why in whys if "it is kept in p/sessions/s/set_aside/" in why]) == 2


def test_a_session_that_is_renamed_between_two_phases_ends_the_run(tmp_path):
    """The run ends with where the session is now, and leaves nothing in its old place."""
    desk = Desk(tmp_path)
    folder = desk.folder(1).parent
    events = Events(desk.session.store, desk.session.prefix + "events.jsonl")
    events.on("decision", lambda _: folder.rename(folder.with_name("t")))
    with pytest.raises(SessionMoved, match="was renamed to p/sessions/t/ during the run"):
        asyncio.run(Runner(desk.session, events, may_run_code=True, approve_as="ann").run())
    assert (called(), folder.exists()) == (["a"], False)


# Two runners.


def hold(base, told):
    with FileStore(base).run_lock(LOCK):
        told.set()
        time.sleep(60)


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the run lock."""
    import multiprocessing

    told = multiprocessing.get_context("fork").Event()
    with running(hold, tmp_path, told) as process:
        assert told.wait(20)
        yield process


def test_a_second_runner_is_refused(tmp_path, holder):
    """Who runs the session is named: process, host and time; nothing is called."""
    said = rf"locked by process {holder.pid} on host {socket.gethostname()} since \d{{4}}-\d\d-\d\dT[\d:]+Z"
    with pytest.raises(AlreadyRunning, match=said):
        Desk(tmp_path).resume()
    assert called() == []


def test_a_dead_owners_lock_is_taken_over(tmp_path, holder):
    """A runner that was killed holds nobody up."""
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    assert Desk(tmp_path).resume() == ("waiting", 1)


def rename_host(base):
    """Let the note beside a run lock name another host."""
    (note,) = base.rglob(".runner")
    process, _, *rest = note.read_text(encoding="utf-8").split("\n")
    note.write_text("\n".join([process, "elsewhere", *rest]), encoding="utf-8")


def test_a_dead_owner_under_another_host_name_holds_nobody_up(tmp_path, holder):
    """A note that a killed run left under another host name locks nothing: the lock itself is free."""
    rename_host(tmp_path)
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    assert FileStore(tmp_path).lock_owner(LOCK) is None
    assert Desk(tmp_path).resume() == ("waiting", 1)


def test_a_living_owner_under_another_host_name_is_named(tmp_path, holder):
    """A lock that is held is respected, whatever host its note names."""
    rename_host(tmp_path)
    assert FileStore(tmp_path).lock_owner(LOCK).host == "elsewhere"
    with pytest.raises(AlreadyRunning, match=f"locked by process {holder.pid} on host elsewhere since "):
        Desk(tmp_path).resume()


def test_whoever_asks_who_runs_keeps_no_runner_away(tmp_path):
    """While one process asks again and again who holds the lock, another one still gets it each time."""
    store = FileStore(tmp_path)
    with store.run_lock(LOCK):
        (lock_file,) = tmp_path.rglob(".run")
    with running(ask_on_and_on, lock_file) as asking:
        for _ in range(200):
            with store.run_lock(LOCK):
                assert is_held(lock_file)
        assert asking.is_alive()


def ask_on_and_on(lock_file):
    """Ask whether a lock is held, as long as this process lives."""
    while True:
        is_held(lock_file)


# kill -9.


def run_on(base, log):
    """Run a session through, in a process of its own; calls are appended to a file."""
    fake_agents.watching.append(lambda task: note_call(log, task))
    Desk(base).resume(approve_as="ann")


def note_call(log, task):
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{task.agent} {task.digest}\n")


TIMES = (
    "- Executed: ",
    "saved_at: ",
    "- Duration: ",
    "- Started: ",
    "- Completed: ",
    "- Last Updated: ",
    "- Created: ",
    "derived_digest: ",
)
TIMES += ("- Timestamp: ", "- Total Duration: ")
SPENT = ("- Total Tokens: ", "- Total Cost: ")  # of the manifest: a call that is killed after it was made is paid for


def plain(base):
    """What all documents of a session say, but for times, how long things took and what was spent."""
    desk, folder = Desk(base), base / "p" / "sessions" / "s"
    said = {}
    for path in sorted(folder.rglob("*.md")):
        times = (*TIMES, "| ") if path.name in ("session_manifest.md", "checkpoint.md") else TIMES
        times += SPENT if path.name == "session_manifest.md" else ()
        lines = path.read_text(encoding="utf-8").split("\n")
        said[path.relative_to(folder).as_posix()] = [line for line in lines if not line.startswith(times)]
    return said, desk.steps(), summarize(desk.session.read()).statuses


@pytest.mark.soak
def test_a_run_that_is_killed_again_and_again_ends_as_if_nothing_had_been(tmp_path):
    """Killed at random moments, resumed each time: the same session but for times, and nothing stored asked again."""
    begun = time.monotonic()
    run_on(tmp_path / "calm", tmp_path / "calm.log")
    whole, wanted, chance = time.monotonic() - begun, plain(tmp_path / "calm"), random.Random(3)  # noqa: S311 - moments, no secrets
    kills, at = 0, 0
    while kills < rounds(100):
        at += 1
        base, log = tmp_path / str(at), tmp_path / f"{at}.log"
        while kill_once(base, log, chance.uniform(0, 1.2 * whole)):
            kills += 1
            assert_valid_events(base)
        assert plain(base) == wanted
        assert_valid_events(base)


def kill_once(base, log, seconds):
    """Run for some time, then kill; whether it was killed. No agent is asked whose answer is there."""
    there = stored(base)
    before = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    process = start(run_on, base, log)
    process.join(seconds)
    was_killed = process.exitcode is None
    process.kill()
    process.join()
    assert was_killed or process.exitcode == 0
    calls = log.read_text(encoding="utf-8").splitlines()[len(before) :] if log.exists() else []
    assert not set(calls) & there
    return was_killed


def stored(base):
    """Agent and task of every output that is there."""
    if not (base / "p" / "sessions" / "s" / "session_manifest.md").exists():
        return set()
    reading = Desk(base).session.read()
    values = [found.value.to_value() for phase in reading.phases for found in reading.outputs(phase).values()]
    return {f"{value['agent']} {value['task']}" for value in values}


def assert_valid_events(base):
    path = base / "p" / "sessions" / "s" / "events.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    assert all({"time", "event"} <= json.loads(line).keys() for line in lines)


def test_every_event_has_its_line(tmp_path):
    """What listeners hear is what the file says: each event a line, a snapshot's two together once it is saved."""
    desk, heard = Desk(tmp_path, ONE), []
    session = desk.session
    events = Events(session.store, session.prefix + "events.jsonl")
    events.on("*", lambda event: heard.append(event.line()))
    asyncio.run(Runner(session, events, may_run_code=True, approve_as="ann").run())
    assert session.store.read(session.prefix + "events.jsonl") == b"".join(heard)
    names = [
        "phase_started",
        "agent_started",
        "agent_completed",
        "phase_completed",
        "review_opened",
        "snapshot_taking",
        "snapshot_saved",
        "decision",
        "snapshot_taking",
        "snapshot_saved",
        "session_completed",
        "snapshot_taking",
        "snapshot_saved",
        "run_ended",
    ]
    assert [json.loads(line)["event"] for line in heard] == names


# Agent files and prompts.


def test_an_agent_file_says_how_it_is_run():
    """Front matter gives models, time-out, retries and contract; the rest are its instructions."""
    text = "---\nname: x\nmodel: worksheet\nhaytham:\n  timeout: 5\n  retries: 0\n  contract: who\n---\nDo it.\n"
    read = AgentSpec(name="x", models=("worksheet",), timeout=5.0, retries=0, contract="who", body="Do it.\n")
    assert read_agent("x", text) == replace(read, body_line=9)
    assert read_agent("x", "Do it.\n") == AgentSpec(name="x", body="Do it.\n")
    assert declared_models(read_agent("x", "---\nmodel: gpt\ntools: Read\n---\n")) == ("inherit",)


@pytest.mark.parametrize(
    ("front", "said"),
    [
        ("haytham:\n  retires: 1", "agents/x.md:3: haytham.retires: unknown key; did you mean retries?"),
        ("haytham:\n  zzz: 1", "agents/x.md:3: haytham.zzz: unknown key; allowed: timeout, retries, max_"),
        ("haytham: []", "agents/x.md:2: haytham: is not a map"),
        ("haytham: {timeout: 0}", "haytham: timeout: found 0; allowed: seconds, above 0"),
        ("haytham: {timeout: .inf}", "found inf"),
        ("haytham: {timeout: .nan}", "found nan"),
        ("haytham: {timeout: 1.0e+300}", "found 1e+300; allowed: seconds, above 0, up to 31536000"),
        ("haytham: {timeout: " + "9" * 99 + "}", "haytham: timeout: found 999"),
        ("haytham: {retries: 101}", "found 101; allowed: 0, 1, 2 … 100"),
        ("haytham: {repairs: " + "9" * 99 + "}", "haytham: repairs: found 999"),
        ("haytham: {max_output_tokens: " + "9" * 99 + "}", "haytham: max_output_tokens: found 999"),
        ("haytham: {retries: " + "9" * 300 + "}", "agents/x.md:2: the front matter has a number of 300 characters"),
        ("haytham: {a: &a [1], b: *a}", "agents/x.md:2: the front matter has the alias *a; allowed: no aliases"),
        ("haytham: {retries: 1.5}", "haytham: retries: found 1.5"),
        ("haytham: {retries: true}", "found True"),
        ("haytham: {contract: A b}", "haytham: contract: found 'A b'"),
        ("haytham: {sections: [a]}", "haytham.sections: unknown key"),
        ("model: [1]", "model: found [1]; allowed: text"),
        ("- a", "the front matter is not a map"),
        ("a: 1\na: 2", "agents/x.md:2: the front matter has the key a twice"),
        ("a: [", "the front matter is not valid YAML"),
    ],
)
def test_a_wrong_agent_file_is_refused(front, said):
    """An unknown key under `haytham:`, or a value that cannot be, is named with file and line."""
    with pytest.raises(InvalidDocument) as refused:
        read_agent("x", f"---\n{front}\n---\nDo it.\n")
    assert said in str(refused.value)


def test_values_are_never_templates():
    """What looks like a template in an idea, an output or a comment stays as it is; only the agent's file is one."""
    hostile = "{{ 7*7 }} {% for %} {{ task.__class__ }}"
    given = {"idea": hostile, "comments": {"phase 1": hostile}, "earlier_outputs": {"a": hostile}, "evidence": hostile}
    task = Task(agent="x", agent_file="", phase=2, phase_name="Two", attempt=1, **given)
    told = build_prompt(task, read_agent("x", "{{ 6*7 }} {{ phase }}: {{ idea }}"))
    assert told.startswith(f"42 Two: {hostile}\n")
    assert told.count(hostile) == 5
    assert "49" not in told


@pytest.mark.parametrize(
    "body",
    ["{{ task.__class__.__mro__ }}", "{{ nobody }}", "{% for %}", "{{ 1 // 0 }}", "{{ 'a' + 1 }}", "{{ task.x() }}"],
)
def test_an_agent_file_cannot_reach_out_of_its_sandbox(body):
    """Instructions that reach for more than the task, or are no template, are refused with the file's name."""
    task = Task(agent="x", agent_file="", phase=1, phase_name="One", attempt=1, idea="i")
    with pytest.raises(InvalidDocument, match=r"agents/x\.md:\d+"):
        build_prompt(task, read_agent("x", body))


def test_a_task_has_one_digest_for_what_it_is_made_of():
    """Another text anywhere is another digest; line ends, the attempt and the prompt are none."""
    base = {"agent": "x", "agent_file": "f", "phase": 2, "phase_name": "Two", "attempt": 1, "idea": "i\nj"}
    assert Task(**base).digest == Task(**{**base, "idea": "i\r\nj", "attempt": 2, "prompt": "p"}).digest
    others = [
        {"idea": "k"},
        {"agent_file": "g"},
        {"comments": {"phase 1": "c"}},
        {"earlier_outputs": {"a": "t"}},
        {"evidence": "e"},
    ]
    assert len({Task(**{**base, **other}).digest for other in [{}, *others]}) == 6


@pytest.mark.parametrize("model", ["gpt", "python:", "python:os", "python:os:nothing", "python:..:x", "worksheet:x"])
def test_a_model_that_is_none_is_named(model):
    """A model string that names nothing here is refused, with what is allowed."""
    with pytest.raises(InvalidArgument, match=r"model: found .*; allowed: "):
        load_agent(model)


@pytest.mark.parametrize(("body", "line"), [("one\n{{ nobody }}\n", 6), ("one\ntwo\n{% if %}\n", 7)])
def test_a_fault_of_a_template_is_named_with_its_line_in_the_file(body, line):
    """Front matter counts: the line is the one that an editor shows."""
    task = Task(agent="x", agent_file="", phase=1, phase_name="One", attempt=1, idea="i")
    with pytest.raises(InvalidDocument, match=rf"agents/x\.md:{line}: "):
        build_prompt(task, read_agent("x", f"---\nhaytham:\n  retries: 0\n---\n{body}"))


def test_an_answer_that_finds_something_else_in_its_place_is_kept(tmp_path):
    """What a person wrote there while the agent worked stays, is named once all have answered, and nothing is lost."""
    desk = Desk(tmp_path, TWO)
    fake_agents.watching.append(lambda task: task.agent == "b" and (desk.folder(1) / "b.md").write_text("my notes\n"))
    with pytest.raises(InvalidDocument, match=r"b\.md:1"):
        desk.resume()
    assert (desk.folder(1) / "b.md").read_text("utf-8") == "my notes\n"
    kept = desk.base / desk.session.prefix / "set_aside/1/phase_1_one/b.md"
    assert kept.read_text("utf-8").startswith("# b\n")
    assert (desk.folder(1) / "c.md").exists()
