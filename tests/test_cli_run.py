"""`run`, `resume`, `retry` and the decisions between them, up to signals and a second runner."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pexpect
import pytest

from support.cli_runner import IDEA, command, environment, frozen, haytham, process, session_folder, workflow

FREE = "spent: 0 tokens, $0.00"

AGENTS = """
import asyncio
from pathlib import Path

def write(task):
    return f"{task.agent}, attempt {task.attempt}\\n"

async def slow(task):
    Path("asked").write_text(task.agent)
    await asyncio.sleep(30 if not Path("hurry").exists() else 0)
    return "slow\\n"

def break_once(task):
    with Path("calls").open("a") as calls:
        calls.write(task.agent + "\\n")
    if task.agent == "two" and not Path("mended").exists():
        raise ValueError("no such market")
    return "fine\\n"
"""


@pytest.fixture
def here(tmp_path):
    """A folder with agents of its own."""
    (tmp_path / "agents_of_mine.py").write_text(AGENTS, encoding="utf-8")
    return tmp_path


@pytest.fixture
def running(here):
    """A run that is at work on its first phase, for half a minute unless it is stopped."""
    workflow(here, ["one", "two"], model="python:agents_of_mine:slow")
    words = command("run", IDEA, "--workflow", "mine", "--no-input")
    process = subprocess.Popen(
        words, cwd=here, env=environment(here), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )
    until((here / "asked").exists)
    yield process
    process.kill()
    process.communicate()


def until(holds):
    """Wait until something holds."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_five_approvals_finish_a_session(here):
    """A run stops at each gate with exit 3 and one line; five approvals finish an mvp session as completed."""
    answer = process("run", IDEA, "--no-input", cwd=here)
    for number in (1, 2, 3, 6, 7):
        assert answer.code == 3
        last = answer.out.splitlines()[-1]
        assert last.startswith(f"phase {number}, ")
        assert last.endswith(" waits for review: haytham review, or haytham approve && haytham resume")
        assert process("approve", cwd=here).code == 0
        answer = process("resume", cwd=here)
    over = "session lend_rain_barrels_to_gardens/<session> is completed; read its last page with: haytham show\n"
    assert (answer.code, frozen(answer.out)) == (0, over)


def test_yes_does_it_in_one_go_and_the_record_says_so(here):
    """`--yes` approves every phase in the name of who asked."""
    answer = process("run", IDEA, "--yes", "--user", "bob", "--mode", "full", cwd=here)
    assert answer.code == 0
    found = sorted(session_folder(here).glob("phase_*/user_feedback.md"))
    assert len(found) == 7
    assert all("\nby: bob\n" in path.read_text(encoding="utf-8") for path in found)


def test_an_idea_is_text_a_file_or_standard_input(here):
    """The idea may be said, lie in a file, or be piped in; an empty one is a mistake."""
    (here / "idea.md").write_bytes("\ufeffA file's idea\n".encode())
    for words, stdin in ((["A said idea"], ""), (["idea.md"], ""), (["-"], "A piped idea\n")):
        assert process("run", *words, cwd=here, stdin=stdin).code == 3
    ideas = sorted(
        path.read_text(encoding="utf-8").split("## Startup Idea")[1].strip()
        for path in here.glob("projects/*/project.md")
    )
    assert ideas == ["A file's idea", "A piped idea", "A said idea"]
    assert process("run", "-", cwd=here, stdin=" \n").code == 2
    (here / "bytes.md").write_bytes(b"\xff\xfe")
    assert process("run", "bytes.md", cwd=here).err == "haytham: bytes.md is not UTF-8 text; save the idea as UTF-8\n"


def test_a_project_takes_another_session(here):
    """`run --project` starts another session of the same idea."""
    process("run", IDEA, "--name", "Rain barrels", cwd=here)
    assert process("run", "--project", "rain_barrels", cwd=here).code == 3
    assert len(list(here.glob("projects/rain_barrels/sessions/*"))) == 2


def test_one_agent_is_asked_for_changes(here):
    """`request-changes --agent` runs that agent alone; one that the phase does not have is exit 2 with the names."""
    process("run", IDEA, "--no-input", cwd=here)
    process("approve", cwd=here)
    process("resume", cwd=here)
    market = session_folder(here) / "phase_2_market_research"
    kept = (market / "competitor_analysis.md").read_bytes()
    answer = process("request-changes", "--agent", "nobody", "--change", "Say who pays", cwd=here)
    assert (answer.code, answer.err) == (
        2,
        "haytham: agent: found 'nobody'; allowed: market_intelligence, competitor_analysis, the agents of phase 2\n",
    )
    words = ["request-changes", "--agent", "market_intelligence", "--change", "Say who pays"]
    assert process(*words, "--json", cwd=here).json["agents"] == ["market_intelligence"]
    assert "  2  Market Research    changes requested of market_intelligence\n" in process("status", cwd=here).out
    answer = process("resume", cwd=here)
    assert (answer.code, "competitor_analysis" in answer.err) == (3, False)
    assert (market / "competitor_analysis.md").read_bytes() == kept
    assert (market / "attempts" / "1" / "competitor_analysis.md").read_bytes() == kept
    assert process("validate", cwd=here).code == 0


def test_reject_ends_the_session(here):
    """`reject` itself is done with exit 0; `resume` of a rejected session exits 4."""
    process("run", IDEA, cwd=here)
    answer = process("reject", "-m", "Nobody would pay", cwd=here)
    assert (answer.code, answer.out) == (0, "phase 1, Concept Expansion: rejected by ann\n")
    assert process("resume", cwd=here).code == 4
    assert "rejected" in process("list", cwd=here).out
    answer = process("approve", cwd=here)
    assert (answer.code, "was rejected in phase 1" in answer.err) == (2, True)


def test_changes_are_requested_and_seen(here):
    """A request for changes starts the next attempt with them in its task; the earlier attempt can still be shown."""
    process("run", IDEA, cwd=here)
    process("request-changes", "-m", "Too broad", "--change", "Name one city", cwd=here)
    assert process("resume", cwd=here).code == 3
    asked = process("show", "1", "concept_expansion", "--task", cwd=here).out
    assert "Too broad" in asked
    assert "Name one city" in asked
    assert "Too broad" not in process("show", "1", "--attempt", "1", cwd=here).out
    assert "Too broad" in process("show", "1", "--attempt", "2", cwd=here).out


def test_a_skipped_phase_is_told_and_taken_up_again(here):
    """`skip` leaves a phase out before it ran; `retry` lifts that."""
    workflow(here, ["one", "two", "three"])
    process("run", IDEA, "--workflow", "mine", cwd=here)
    process("approve", cwd=here)
    assert process("skip", cwd=here).out == "phase 2, Two: skipped by ann\n"
    assert process("resume", "--json", cwd=here).json["phase"] == 3
    assert "phase 2" in process("show", "3", "--task", cwd=here).out.lower()
    assert process("retry", "2", "--json", cwd=here).json["phase"] == 2


def test_a_failed_agent_is_named_and_runs_again_alone(here):
    """One agent of two fails: exit 1 names it, its error, file, line and traceback; only it is asked again."""
    phases = [(1, "Both", "both", ["one", "two"])]
    workflow(here, ["one", "two"], phases=phases, model="python:agents_of_mine:break_once")
    answer = process("run", IDEA, "--workflow", "mine", cwd=here)
    assert answer.code == 1
    trace = (session_folder(here) / "phase_1_both" / "two.md").relative_to(here)
    line = AGENTS.split("\n").index('        raise ValueError("no such market")') + 1
    error = f"two: ValueError in agents_of_mine.py, line {line}: no such market"
    assert f"\nphase 1, Both, failed: {error} (traceback: {trace}); try again with: haytham retry 1" in answer.out
    assert f"  {error}\n" in answer.err
    assert "Traceback (most recent call last)" in (here / trace).read_text(encoding="utf-8")
    assert "failed: two" in process("status", cwd=here).out
    (here / "mended").touch()
    assert process("retry", "1", cwd=here).code == 3
    assert sorted((here / "calls").read_text(encoding="utf-8").split()) == ["one", "two", "two"]


def test_the_model_of_a_run_holds_until_it_is_changed(here):
    """What was given with `run --model` holds for `resume`, and `resume --model` changes it."""
    workflow(here, ["one", "two", "three"])
    process("run", IDEA, "--workflow", "mine", "--model", "python:agents_of_mine:write", cwd=here)
    process("approve", cwd=here)
    process("resume", cwd=here)
    assert process("show", "2", "two", cwd=here).out == "two, attempt 1\n"
    process("approve", cwd=here)
    process("resume", "--model", "worksheet", cwd=here)
    assert process("show", "3", "three", cwd=here).out.startswith("# Three")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_a_run_that_can_be_resumed(here, running, number, code):
    """Ctrl-C and SIGTERM stop cleanly with 130 and 143; resume goes on."""
    running.send_signal(number)
    _, err = running.communicate(timeout=20)
    assert (running.returncode, "go on with: haytham resume" in err) == (code, True)
    (here / "hurry").touch()
    assert process("resume", cwd=here).code == 3


def test_a_second_runner_is_refused(here, running):
    """While a run is at work another one, `retry` and `doctor` are refused with who runs it; looking works."""
    for words in (("resume",), ("retry", "1"), ("doctor",)):
        answer = process(*words, cwd=here)
        assert (answer.code, answer.out) == (7, "")
        assert f"locked by process {running.pid} on host " in answer.err
    answer = process("status", cwd=here)
    assert (answer.code, f"it runs now: process {running.pid} on host" in answer.out) == (0, True)
    assert process("skip", "2", cwd=here).out == "phase 2, Two: skipped by ann\n"


def test_a_dead_runner_is_taken_over(here, running):
    """A kill leaves nothing that has to be cleared by hand: the next resume goes on."""
    running.kill()
    running.communicate()
    assert "it runs now" not in process("status", cwd=here).out
    (here / "hurry").touch()
    assert process("resume", cwd=here).code == 3


def on_another_host(*words):
    """The words that start a command under another host name."""
    return ["unshare", "--user", "--map-root-user", "--uts", "sh", "-c", 'hostname c1 && exec "$0" "$@"', *words]


def can_rename_the_host():
    try:
        return subprocess.run(on_another_host("true"), capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not can_rename_the_host(), reason="nobody may have another host name here")
def test_a_run_killed_under_another_host_name_locks_nothing(here):
    """A run in a container names its host while it lives; once it is killed `status`, `doctor` and `resume` go on."""
    workflow(here, ["one"], model="python:agents_of_mine:slow")
    words = on_another_host(*command("run", IDEA, "--workflow", "mine", "--no-input"))
    run = subprocess.Popen(words, cwd=here, env=environment(here), stderr=subprocess.DEVNULL)
    until((here / "asked").exists)
    assert "on host c1 since" in process("status", cwd=here).out
    assert process("doctor", cwd=here).code == 7
    run.kill()
    run.communicate()
    assert "it runs now" not in process("status", cwd=here).out
    assert process("doctor", cwd=here).code == 0
    (here / "hurry").touch()
    assert process("resume", cwd=here).code == 3


def test_progress_is_told_beside_the_answer(here):
    """Progress goes to standard error, as plain lines or lines of JSON; the answer with `--json` is one object."""
    answer = process("run", IDEA, "--json", cwd=here)
    events = [json.loads(line)["event"] for line in answer.err.splitlines()]
    assert events[:3] == ["phase_started", "agent_started", "agent_completed"]
    assert (answer.json["kind"], answer.json["version"], answer.json["phase"]) == ("run", 1, 1)
    process("approve", cwd=here)
    assert process("resume", cwd=here).err.startswith("phase 2: Market Research\n  market_intelligence: ")


def test_a_run_goes_on_where_nobody_reads_its_progress(here):
    """A run whose standard error was closed (`2>&1 | head`) still ends at its gate."""
    run = subprocess.Popen(
        command("run", IDEA, "--no-input"),
        cwd=here,
        env=environment(here),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    run.stderr.close()
    run.stderr = None
    assert b"waits for review: haytham review" in run.communicate()[0]


def test_the_console_script_finds_agents_in_the_folder(here):
    """python:module:function may lie in the folder one works in, however the command is started."""
    script = Path(command()[0]).with_name("haytham")
    if not script.exists():
        pytest.skip("not installed as a script")
    workflow(here, ["one"])
    words = [script, "run", IDEA, "--workflow", "mine", "--model", "python:agents_of_mine:write", "--no-input"]
    done = subprocess.run(words, cwd=here, env=environment(here), capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 3, done.stderr


def test_the_idea_is_asked_for_in_a_terminal(here):
    """`run` alone asks for the idea, in the workflow's word; without a terminal that is a usage error."""
    (here / "small").mkdir()
    lines = "name: small\nsubject: proposal\nphases: [{number: 1, name: One, slug: one, agents: [worksheet]}]\n"
    (here / "small" / "workflow.yaml").write_text(f"{lines}modes: {{all: [1]}}\n", encoding="utf-8")
    assert haytham("run", "--workflow", "small", cwd=here).err.startswith("haytham: there is no proposal; say it in")
    first, *rest = command("run", "--workflow", "small")
    child = pexpect.spawn(first, rest, cwd=str(here), env=environment(here), encoding="utf-8", timeout=20)
    child.expect_exact("your proposal, in a sentence: ")
    child.sendline("Move to Postgres")
    child.expect_exact("session move_to_postgres/")
    child.expect_exact("phase 1 [a,")
    child.sendline("q")
    child.expect(pexpect.EOF)
    child.wait()
    assert child.exitstatus == 3


def test_the_end_of_a_run_says_what_it_cost(here):
    """The cost of the run, of the whole session if that is more, and what to do next; nothing if nobody was asked."""
    said = haytham("run", IDEA, cwd=here).out.split("\n")
    assert (said[1], said[2].endswith("haytham review, or haytham approve && haytham resume")) == (FREE, True)
    assert "spent" not in haytham("resume", cwd=here).out
    haytham("approve", cwd=here)
    said = haytham("resume", "--model", f"command:{sys.executable} -c print(1)", cwd=here)
    assert re.match(r"spent: [\d,]+ tokens, cost unknown\n", said.out)
    answer = haytham("retry", "2", "--json", cwd=here).json
    assert 0 < answer["cost"]["tokens"] < answer["spent"]["tokens"]
