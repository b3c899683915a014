"""Money on the command line: limits, pauses, where it went; recordings, and what the environment says of a run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from haytham import CheckpointManager, ProjectManager
from haytham.usage import estimated_tokens
from support import paid_agents
from support.cli_runner import IDEA, edit, frozen, haytham, process, session_folder, workflow
from test_agent_llm import hello, serving

TESTS = Path(__file__).parent
TWO = [(1, "One", "one", ["one"]), (2, "Both", "both", ["left", "right"])]


@pytest.fixture
def here(tmp_path):
    """A folder with a workflow of agents that cost a quarter of a dollar each."""
    paid_agents.forget()
    workflow(tmp_path, ["one", "left", "right"], phases=TWO, model="python:support.paid_agents:cheap")
    return tmp_path


@pytest.fixture
def site(here, monkeypatch):
    """A folder with the package of adapters that `paid` installs, where Python finds it."""
    folder = paid_agents.install(here / "site")
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def spent(here):
    """A folder with a session that has spent three quarters of a dollar, of three dollars, and is completed."""
    assert haytham("run", IDEA, "--workflow", "mine", "--yes", "--max-cost", "3", cwd=here).code == 0
    return here


def manifest(here):
    return (session_folder(here) / "session_manifest.md").read_text(encoding="utf-8")


def ledger(here):
    """The lines of the only session's spend file."""
    text = (session_folder(here) / "spend.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_limits_hold_until_they_are_changed(here):
    """What `--max-cost` and `--max-tokens` say stands in the manifest; resume and retry change it, and only that."""
    haytham("run", IDEA, "--workflow", "mine", "--max-cost", "$1.50", "--max-tokens", "200,000", cwd=here)
    assert "\nmax_cost: '1.5'\nmax_tokens: 200000\n" in manifest(here)
    assert haytham("resume", "--max-cost", "2", cwd=here).code == 3
    assert haytham("resume", cwd=here).code == 3
    assert "\nmax_cost: '2'\nmax_tokens: 200000\n" in manifest(here)
    assert haytham("retry", "1", "--max-tokens", "0", cwd=here).code == 5
    assert "\nmax_cost: '2'\nmax_tokens: 0\n" in manifest(here)
    events = (session_folder(here) / "events.jsonl").read_text(encoding="utf-8").splitlines()
    changes = [event for event in map(json.loads, events) if event["event"] == "settings_changed"]
    assert [change.get("max_cost", change.get("max_tokens")) for change in changes] == [2.0, 0]


@pytest.mark.parametrize(("cost", "kept"), [("999999999999", "999999999999"), ("-0", "0"), ("0.0000001", "0")])
def test_every_limit_that_the_option_takes_the_manifest_holds(here, cost, kept):
    """The largest and the smallest limit of money are stored and read again."""
    workflow(here, ["one"])
    assert haytham("run", IDEA, "--workflow", "mine", "--max-cost", cost, cwd=here).code == 3
    assert f"\nmax_cost: '{kept}'\n" in manifest(here)
    assert haytham("validate", cwd=here).code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--max-cost abc", "--max-cost: found 'abc'; allowed: dollars, 0 or more, like 1.50"),
        ("--max-cost -1", "--max-cost: found '-1'; allowed: dollars, 0 or more, like 1.50"),
        ("--max-cost nan", "--max-cost: found 'nan'; allowed: dollars"),
        ("--max-cost inf", "--max-cost: found 'inf'; allowed: dollars"),
        ("--max-cost 1e15", "--max-cost: found '1e15'; allowed: dollars, 0 or more, like 1.50, up to 999,999,999,999"),
        ("--max-cost 1000000000000", "--max-cost: found '1000000000000'; allowed: dollars"),
        (f"--max-tokens {10**15 + 1}", f"--max-tokens: found '{10**15 + 1}'; allowed: a whole number"),
        (f"--max-tokens {'9' * 5000}", "--max-tokens: found '999"),
        ("--max-tokens 1.5", "--max-tokens: found '1.5'; allowed: a whole number, 0 or more, like 200000"),
        ("--max-tokens -1", "--max-tokens: found '-1'; allowed: a whole number"),
        ("--record mine/workflow.yaml", "--record: mine/workflow.yaml is a file; name a folder"),
        ("--model replay:nowhere", "the folder of recordings 'nowhere' was not found"),
        ("--model command:", "the command is empty"),
    ],
)
def test_a_value_that_cannot_be_used_gets_one_sentence(here, words, sentence):
    """Whatever is wrong with an option: exit 2, one sentence, and nothing is made."""
    answer = haytham("run", IDEA, *words.split(), cwd=here)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"haytham: {sentence}")
    assert not (here / "projects").exists()


def test_a_limit_that_is_reached_pauses_the_session(here):
    """Exit 5 and one sentence with the numbers and the command that goes on; which then does."""
    answer = haytham("run", IDEA, "--workflow", "mine", "--yes", "--max-cost", "0.25", "--name", "rain", cwd=here)
    assert answer.code == 5
    why = "$0.25 are spent, which is the limit of $0.25"
    said = f"session rain/<session> is paused in phase 2, Both: {why}; go on with: haytham resume --max-cost 0.5\n"
    assert frozen(answer.out).endswith(said)
    command = answer.out.strip().rpartition("go on with: haytham ")[2]
    assert haytham(*shlex.split(command), "--yes", cwd=here).code == 0
    assert paid_agents.SEEN == ["one", "left", "right"]


@pytest.mark.usefixtures("site")
def test_the_command_that_goes_on_has_room_for_the_next_call(here):
    """Where twice the limit would not do for the next call, more is named; and it is a round number."""
    workflow(here, ["one", "left", "right"], phases=TWO, model="fare:cheap")
    answer = haytham("run", IDEA, "--workflow", "mine", "--max-tokens", "100", "--json", cwd=here)
    assert (answer.code, answer.json["status"], answer.json["agents"]) == (5, "paused", ["one"])
    (found,) = re.findall(r"^haytham resume --max-tokens (\d+)$", answer.json["next"])
    needed = int(re.search(r"may take ([\d,]+),", answer.json["why"])[1].replace(",", ""))
    assert needed < int(found) < 2 * needed
    assert found.endswith("00")
    assert haytham("resume", "--max-tokens", found, cwd=here).code == 3


@pytest.mark.parametrize(
    ("limits", "option"),
    [
        ("--max-tokens 7 --max-cost 9", "--max-tokens 14"),
        ("--max-tokens 900 --max-cost 0.25", "--max-cost 0.5"),
        ("--max-tokens 0", "--max-tokens 10000"),
        ("--max-cost 0", "--max-cost 1"),
    ],
)
def test_the_limit_that_is_reached_is_the_one_to_raise(here, limits, option):
    """Of two limits the command that goes on raises the one that was reached, and to more than it was."""
    answer = haytham("run", IDEA, "--workflow", "mine", "--yes", *limits.split(), "--json", cwd=here)
    assert (answer.code, answer.json["next"]) == (5, f"haytham resume {option}")
    before = len(paid_agents.SEEN)
    haytham("resume", *option.split(), "--yes", cwd=here)
    assert len(paid_agents.SEEN) > before


def test_a_pause_is_one_object_with_json(here):
    """With `--json` a pause says why, what is spent, the limits, what is left, and the command that goes on."""
    answer = haytham("run", IDEA, "--workflow", "mine", "--yes", "--max-cost", "0.25", "--json", cwd=here)
    facts = answer.json
    assert (answer.code, facts["kind"], facts["status"], facts["phase"]) == (5, "run", "paused", 2)
    assert facts["spent"] == {"calls": 1, "tokens": 7, "cost": 0.25, "unknown_costs": 0}
    assert facts["limits"] == {"max_cost": 0.25, "max_tokens": None}
    assert facts["left"] == {"cost": 0.0, "tokens": None}
    assert facts["why"] == facts["paused"] == "$0.25 are spent, which is the limit of $0.25"
    assert facts["next"] == "haytham resume --max-cost 0.5"


PAUSED = """\
session rain/<session>: paused

  1  One   approved by ann at <time>
  2  Both  pending

spent: 7 tokens, $0.25
limit: $0.25, $0.00 left; 90,000 tokens, 89,993 left
paused: $0.25 are spent, which is the limit of $0.25
next: haytham resume --max-cost 0.5
"""


def test_status_says_what_is_spent_and_why_it_is_paused(here):
    """Spent, limit, why it is paused and how to go on; in JSON, too."""
    limits = ("--max-cost", "0.25", "--max-tokens", "90000")
    haytham("run", IDEA, "--workflow", "mine", "--yes", *limits, "--name", "rain", cwd=here)
    assert frozen(haytham("status", cwd=here).out) == PAUSED
    facts = haytham("status", "--json", cwd=here).json
    assert (facts["status"], facts["spent"]["cost"], facts["left"]["tokens"]) == ("paused", 0.25, 89_993)
    assert facts["next"] == "haytham resume --max-cost 0.5"
    assert "paused" in haytham("list", cwd=here).out


def test_a_price_that_nobody_knows_is_said_to_be_unknown(here):
    """Of an agent that tells no cost, `status` says that tokens count and the cost does not; a limit of cost warns."""
    workflow(here, ["one"], model="python:support.paid_agents:silent")
    answer = haytham("run", IDEA, "--workflow", "mine", "--max-cost", "1", cwd=here)
    said = "nobody knows the price of 1 call: tokens are counted, and --max-tokens limits them; the cost is not counted"
    assert answer.err.splitlines()[-1] == f"haytham: {said}"
    status = haytham("status", cwd=here).out
    assert f"\nspent: {ledger(here)[1]['tokens']} tokens, cost unknown\nlimit: $1.00, $1.00 left\n" in status
    assert f"\n{said}\n" in status
    assert haytham("resume", "--max-tokens", "50000", cwd=here).code == 3
    assert "1 call: tokens are counted and limited, the cost is not\n" in haytham("status", cwd=here).out
    assert haytham("cost", "--json", cwd=here).json["spent"]["cost"] is None


def test_a_price_that_a_proxy_does_not_tell_is_counted_as_reserved(tmp_path, monkeypatch):
    """Behind an address that nobody has prices for, `status`, `cost` and the end of a run say what counts instead."""
    workflow(tmp_path, ["one", "two", "three"], model="openai-chat:gpt-4o")
    with serving(hello, monkeypatch) as server:
        answer = haytham("run", IDEA, "--workflow", "mine", "--yes", "--max-cost", "0.1", cwd=tmp_path)
    assert (answer.code, len(server.bodies)) == (5, 2)
    counted = haytham("cost", "--json", cwd=tmp_path).json["own"]["counted_as_reserved"]
    said = f"the price of 2 calls is unknown: counted as reserved, ${counted['cost']}"
    assert answer.err.splitlines()[-1] == f"haytham: {said}"
    assert 0.08 < counted["cost"] <= 0.1
    for command in ("status", "cost"):
        out = haytham(command, cwd=tmp_path).out
        assert (f"\n{said}\n" in out, "nobody knows" in out, f"28 tokens, ${counted['cost']}\n" in out) == (
            True, False, True
        )  # fmt: skip


TABLE = """\
session rain/<session>: 21 tokens, $0.75

           calls  failed  tokens in  tokens out  tokens   cost  seconds
1  One         1       0          3           4       7  $0.25      0.0
    one        1       0          3           4       7  $0.25      0.0
2  Both        2       0          6           8      14  $0.50      0.0
    left       1       0          3           4       7  $0.25      0.0
    right      1       0          3           4       7  $0.25      0.0
in all         3       0          9          12      21  $0.75      0.0

limit: $3.00, $2.25 left
"""


def test_cost_says_where_the_money_went(here):
    """A table by phase and agent with sums, and what is left of the limits; in JSON, too. It writes nothing."""
    haytham("run", IDEA, "--workflow", "mine", "--yes", "--max-cost", "3", "--name", "rain", cwd=here)
    before = sorted((path, path.stat().st_mtime_ns) for path in here.rglob("*"))
    assert re.sub(r"\d\.\d$", "0.0", frozen(haytham("cost", cwd=here).out), flags=re.MULTILINE) == TABLE
    facts = haytham("cost", "--json", cwd=here).json
    assert (facts["kind"], facts["version"], facts["inherited"], facts["paused"]) == ("cost", 1, None, None)
    assert [(row["phase"], row["calls"], row["cost"]) for row in facts["phases"]] == [(1, 1, 0.25), (2, 2, 0.5)]
    assert [row["agent"] for row in facts["agents"]] == ["one", "left", "right"]
    assert facts["own"]["models"] == ["python:support.paid_agents:cheap"]
    assert (facts["spent"]["cost"], facts["left"]["cost"]) == (0.75, 2.25)
    assert sorted((path, path.stat().st_mtime_ns) for path in here.rglob("*")) == before


def test_failed_calls_are_counted_with_what_they_took(here):
    """A call that fails is paid for: it stands in its column, and so does its cost."""
    workflow(here, ["one"], model="python:support.paid_agents:broken")
    haytham("run", IDEA, "--workflow", "mine", cwd=here)
    (row,) = haytham("cost", "--json", cwd=here).json["agents"]
    assert (row["calls"], row["failed"], row["tokens"], row["cost"]) == (1, 1, 3, 0.125)


def test_tokens_that_were_not_told_are_marked(here):
    """What an agent does not tell is estimated, and marked with ~."""
    workflow(here, ["one"], model="python:support.paid_agents:silent")
    haytham("run", IDEA, "--workflow", "mine", cwd=here)
    out = haytham("cost", cwd=here).out
    tokens = ledger(here)[1]["tokens"]
    assert tokens > estimated_tokens("x" * 30)
    assert re.search(rf"\n    one +1 +0 +~{tokens} +unknown ", out)
    assert "tokens in" not in out


def test_a_fork_shows_what_it_inherited_and_all_counts_that_once(spent):
    """What was spent before a fork stands on a line of its own; `--all` counts it with the session that spent it."""
    first = session_folder(spent).name
    haytham("fork", "--name", "other", "-s", first, cwd=spent)
    assert haytham("retry", "1", "other", cwd=spent).code == 3
    out = haytham("cost", "other", cwd=spent).out
    assert re.search(rf"\nbefore the fork from {first} +3 +- +- +- +21 +\$0.75 +-\n", out)
    assert re.search(r"\nin all +4 +0 +3 +4 +28 +\$1.00 ", out)
    facts = haytham("cost", "--all", "--json", cwd=spent).json
    assert (facts["spent"]["calls"], facts["spent"]["cost"], facts["gone"]) == (4, 1.0, [])
    assert re.search(r"\nin all +4 +0 +12 +16 +28 +\$1.00 ", haytham("cost", "--all", cwd=spent).out)


def test_what_a_session_spent_that_is_gone_is_not_forgotten(spent):
    """`--all` counts what forks brought with them from a session that was deleted, once."""
    first = session_folder(spent)
    for name in ("other", "third"):
        haytham("fork", "--name", name, "-s", first.name, cwd=spent)
    shutil.rmtree(first)
    facts = haytham("cost", "--all", "--json", cwd=spent).json
    assert (facts["spent"]["calls"], facts["spent"]["cost"]) == (3, 0.75)
    assert [row["session"] for row in facts["gone"]] == [first.name]
    assert f"/{first.name}, which is gone" in haytham("cost", "--all", cwd=spent).out


def test_one_unreadable_session_hides_no_cost(spent):
    """`cost --all` tells what the others spent, names the file that cannot be read, and exits 6."""
    first = session_folder(spent)
    shutil.copytree(first, first.parent / "copy")
    answer = haytham("cost", "--all", cwd=spent)
    assert (answer.code, "$0.75" in answer.out, "copy/session_manifest.md" in answer.err) == (6, True, True)


def test_a_call_that_was_killed_is_shown_as_not_settled(here, site):
    """A process that dies in a call leaves a reservation: it counts in full, and `cost` says so."""
    workflow(here, ["one"], model="fare:die")
    assert process("run", IDEA, "--workflow", "mine", cwd=here, PYTHONPATH=f"{TESTS}:{site}").code == -9
    (reserved,) = ledger(here)
    assert reserved["tokens"] > 4000
    out = haytham("cost", cwd=here).out
    said = f"1 call begun and not settled: up to {reserved['tokens']:,} tokens, unknown, counted in full"
    assert f"\n{said}\n" in out
    assert haytham("cost", "--json", cwd=here).json["own"]["unsettled"]["tokens"] == reserved["tokens"]


def program(here):
    """A session that a program saves, and its manager with the ids filled in."""
    project = ProjectManager(here / "projects").create_project("ann", IDEA)["project_id"]
    ids = project, ProjectManager(here / "projects").start_session(project)["session_id"]
    return CheckpointManager(here / "projects"), ids


def row(agent, **given):
    return {"agent_name": agent, "status": "completed", **given}


def told(here):
    """Tokens and cost as `cost`, `status` and the manifest tell them; all the same."""
    spent = haytham("cost", "--json", cwd=here).json["spent"]
    assert haytham("status", "--json", cwd=here).json["spent"] == spent
    tokens, cost = re.search(r"\n- Total Tokens: (.*)\n- Total Cost: (.*)\n", manifest(here)).groups()
    assert (tokens, cost) == (str(spent["tokens"]), f"${spent['cost']:g}")
    assert haytham("validate", cwd=here).code == 0
    return spent["tokens"], spent["cost"]


def test_costs_given_to_save_checkpoint_are_told_everywhere(tmp_path):
    """What a program says its agents cost is a line each in the spend file; cost, status and the manifest agree."""
    manager, ids = program(tmp_path)
    rows = [row("a", tokens=15000, cost=0.0375), row("b", input_tokens=10, output_tokens=5, cost=0.01), row("c")]
    manager.save_checkpoint(*ids, 1, "completed", rows)
    assert [(line["event"], line["agent"], line["attempt"], line["cost"]) for line in ledger(tmp_path)] == [
        ("reported", "a", 1, 0.0375),
        ("reported", "b", 1, 0.01),
    ]
    assert told(tmp_path) == (15015, 0.0475)
    agents = haytham("cost", "--json", cwd=tmp_path).json["agents"]
    assert [(one["agent"], one["tokens"], one["cost"], one["models"]) for one in agents] == [
        ("a", 15000, 0.0375, []),
        ("b", 15, 0.01, []),
    ]
    assert "~" not in haytham("cost", cwd=tmp_path).out


def test_of_reports_on_one_phase_agent_and_attempt_the_last_counts(tmp_path):
    """A phase that is saved again says what its agents cost by then; another attempt, phase or agent adds to that."""
    manager, ids = program(tmp_path)
    for cost in (0.1, 0.2, 0.2):
        manager.save_checkpoint(*ids, 1, "in_progress", [row("a", cost=cost, tokens=5)])
    assert ([line["cost"] for line in ledger(tmp_path)], told(tmp_path)) == ([0.1, 0.2], (5, 0.2))
    manager.save_checkpoint(*ids, 1, "completed", [row("a")])
    assert told(tmp_path) == (5, 0.2)
    manager.save_checkpoint(*ids, 1, "completed", [row("a", cost=0.3)], retry_count=1)
    manager.save_checkpoint(*ids, 2, "completed", [row("a", cost=0.4, tokens=1), row("b", cost=0.0)])
    assert told(tmp_path) == (6, 0.9)


def test_tokens_of_an_output_that_a_program_saves_are_told_too(tmp_path):
    """The tokens in an agent's own file complete what was reported of it, whichever is saved first."""
    manager, ids = program(tmp_path)
    manager.save_agent_output(*ids, 1, "a", "text", input_tokens=10, output_tokens=5)
    manager.save_checkpoint(*ids, 1, "completed", [row("a", cost=0.1), row("b", cost=0.2)])
    manager.save_agent_output(*ids, 1, "b", "text", input_tokens=20, output_tokens=5)
    assert told(tmp_path) == (40, 0.3)
    manager.save_agent_output(*ids, 1, "b", "once more", input_tokens=20, output_tokens=6)
    assert told(tmp_path) == (41, 0.3)


def test_what_a_run_counted_itself_is_not_reported_once_more(spent):
    """A program that saves a phase which a run paid for adds nothing; what it reported before a run is added to."""
    folder = session_folder(spent)
    manager, ids = CheckpointManager(spent / "projects"), (folder.parts[-3], folder.name)
    before = told(spent)
    assert before == (21, 0.75)
    manager.save_checkpoint(*ids, 1, "completed", [row("one", cost=0.25, tokens=7)])
    assert told(spent) == before
    manager.save_checkpoint(*ids, 2, "completed", [row("left", cost=0.25), row("other", cost=0.5)])
    assert told(spent) == (21, 1.25)
    assert haytham("retry", "2", "--max-cost", "1.25", cwd=spent).code == 5


def test_what_was_spent_in_earlier_attempts_is_in_the_manifest(spent):
    """A phase that runs again costs again: the manifest tells all that was spent, as `cost` does."""
    assert haytham("retry", "1", cwd=spent).code == 3
    assert told(spent) == (28, 1.0)


def test_a_replay_has_spent_nothing_in_the_manifest_either(here):
    """What recorded calls cost when they were recorded is not spent again."""
    haytham("run", IDEA, "--workflow", "mine", "--yes", "--record", "said", cwd=here)
    shutil.rmtree(here / "projects")
    assert haytham("run", IDEA, "--workflow", "mine", "--yes", "--model", "replay:said", cwd=here).code == 0
    assert told(here) == (0, 0.0)


def test_nothing_is_spent_without_a_model(tmp_path):
    """A session of worksheets has spent nothing, and `status` does not speak of money."""
    haytham("run", IDEA, "--name", "rain", cwd=tmp_path)
    assert frozen(haytham("cost", cwd=tmp_path).out) == "session rain/<session>: nothing was spent\n"
    assert haytham("cost", "--all", cwd=tmp_path).out == "nothing was spent\n"
    assert "spent" not in haytham("status", cwd=tmp_path).out
    assert haytham("cost", "rain", "--all", cwd=tmp_path).code == 2


def test_what_was_recorded_answers_again_without_a_call(here):
    """`--record` keeps every reply; `--model replay:DIR` answers for all agents from it, now and after a resume."""
    haytham("run", IDEA, "--workflow", "mine", "--yes", "--record", "said", cwd=here)
    assert len(list((here / "said").glob("*.json"))) == 3
    first, before = haytham("show", "2", "--json", cwd=here).json["texts"], list(paid_agents.SEEN)
    shutil.rmtree(here / "projects")
    assert haytham("run", IDEA, "--workflow", "mine", "--model", "replay:said", cwd=here).code == 3
    haytham("approve", cwd=here)
    assert haytham("resume", "--yes", cwd=here).code == 0
    assert haytham("show", "2", "--json", cwd=here).json["texts"] == first
    assert before == paid_agents.SEEN == ["one", "left", "right"]
    assert haytham("cost", cwd=here).out.endswith("nothing was spent\n")


def recorded(here, folder="said"):
    return sorted(path.name.partition("-")[0] for path in (here / folder).glob("*.json"))


def test_record_holds_until_it_is_changed(here):
    """What `--record` says holds after a gate, for resume and retry; another folder or `--no-record` changes it."""
    workflow(here, ["one", "two", "three", "four"], model="python:support.paid_agents:cheap")
    assert haytham("run", IDEA, "--workflow", "mine", "--record", "said", cwd=here).code == 3
    haytham("approve", cwd=here)
    assert haytham("resume", cwd=here).code == 3
    assert recorded(here) == ["one", "two"]
    assert haytham("retry", "2", cwd=here).code == 3
    assert recorded(here) == ["one", "two", "two"]
    haytham("approve", cwd=here)
    assert haytham("resume", "--record", "other", cwd=here).code == 3
    assert (recorded(here), recorded(here, "other")) == (["one", "two", "two"], ["three"])
    haytham("approve", cwd=here)
    assert haytham("resume", "--no-record", cwd=here).code == 3
    assert haytham("retry", "4", cwd=here).code == 3
    assert (recorded(here), recorded(here, "other")) == (["one", "two", "two"], ["three"])
    events = map(json.loads, (session_folder(here) / "events.jsonl").read_text(encoding="utf-8").splitlines())
    assert [event["record"] for event in events if "record" in event] == ["said", "other", None]


def test_a_folder_for_recordings_that_a_session_brings_along_is_not_written_to(here):
    """A manifest from elsewhere makes nobody write to a folder that they did not name themselves; that is said."""
    assert haytham("run", IDEA, "--workflow", "mine", cwd=here).code == 3
    edit(session_folder(here) / "session_manifest.md", "\norigin:", "\nrecord: said\norigin:")
    haytham("approve", cwd=here)
    answer = haytham("resume", cwd=here)
    said = (
        "replies are not recorded: the session names the folder 'said', and you did not; to record there: --record said"
    )
    assert (answer.code, f"haytham: {said}\n" in answer.err, (here / "said").exists()) == (3, True, False)
    assert haytham("retry", "2", "--record", "said", cwd=here).code == 3
    assert recorded(here) == ["left", "right"]


def test_a_folder_for_recordings_that_cannot_be_remembered_is_used_all_the_same(here):
    """Where the list of this user cannot be written, a command records what it asks for, and says that it is all."""
    (here / "no_folder").touch()
    words = ("run", IDEA, "--model", "worksheet", "--record", "said")
    answer = haytham(*words, cwd=here, XDG_STATE_HOME=str(here / "no_folder"))
    assert (answer.code, "haytham: replies are recorded in said by this command alone: " in answer.err) == (3, True)
    assert recorded(here) == ["concept_expansion"]


@pytest.mark.parametrize("words", ["--record said --no-record", "--record a\nb"])
def test_a_wish_for_recording_that_cannot_be_kept_is_refused(here, words):
    """Recording and not recording, or a folder whose name no manifest could hold: exit 2, and nothing is made."""
    answer = haytham("run", IDEA, *words.split(" "), cwd=here)
    assert (answer.code, answer.err.startswith("haytham: --record")) == (2, True)
    assert not (here / "projects").exists()


def test_the_environment_names_a_model_for_new_sessions(here):
    """HAYTHAM_MODEL is stored by `run` like `--model`, which goes before it; an empty one and resume leave it alone."""
    workflow(here, ["one"])
    haytham(
        "run", IDEA, "--workflow", "mine", "--name", "a", cwd=here, HAYTHAM_MODEL="python:support.paid_agents:cheap"
    )
    assert haytham("resume", "a", cwd=here, HAYTHAM_MODEL="worksheet").code == 3
    haytham("run", IDEA, "--workflow", "mine", "--name", "b", "--model", "worksheet", cwd=here, HAYTHAM_MODEL="gpt")
    haytham("run", IDEA, "--workflow", "mine", "--name", "c", cwd=here, HAYTHAM_MODEL="")
    found = {path.parts[-4]: path.read_text(encoding="utf-8") for path in here.glob("projects/*/sessions/*/*.md")}
    models = {name: re.findall(r"^model: (.*)$", text, re.MULTILINE) for name, text in found.items()}
    assert models == {"a": ["python:support.paid_agents:cheap"], "b": ["worksheet"], "c": []}
    answer = haytham("run", IDEA, cwd=here, HAYTHAM_MODEL="gpt")
    assert (answer.code, "HAYTHAM_MODEL names what cannot be used: model: found 'gpt'" in answer.err) == (2, True)


@pytest.mark.usefixtures("site")
def test_the_environment_says_how_long_an_answer_may_be(here):
    """HAYTHAM_MAX_OUTPUT_TOKENS holds for every agent of a run: that much less, or more, is reserved."""
    workflow(here, ["one", "two"], model="fare:cheap")
    haytham("run", IDEA, "--workflow", "mine", "--yes", cwd=here, HAYTHAM_MAX_OUTPUT_TOKENS="100")
    assert all(100 < line["tokens"] < 1000 for line in ledger(here) if line["event"] == "reserved")
    for wrong in ("few", "0", "-1", "1.5"):
        answer = haytham("resume", cwd=here, HAYTHAM_MAX_OUTPUT_TOKENS=wrong)
        said = f"haytham: HAYTHAM_MAX_OUTPUT_TOKENS: found {wrong!r}; allowed: a whole number of tokens"
        assert (answer.code, answer.err.startswith(said)) == (2, True)
    answer = haytham("resume", cwd=here, HAYTHAM_MAX_OUTPUT_TOKENS="9" * 5000)
    assert (answer.code, len(answer.err) < 300) == (2, True)


@pytest.mark.parametrize("name", ["FAKE_API_KEY", "fake_token", "MY_SECRET", "DB_PASSWORD", "AUTHORIZATION"])
def test_a_secret_of_the_environment_is_never_told(here, name):
    """The value of a variable whose name says that it is a secret reaches neither the terminal nor a file."""
    workflow(here, ["one"], model="python:support.paid_agents:telling")
    hidden = "correct-horse-battery"
    words = ("run", IDEA, "--workflow", "mine", "--record", "said")
    answer = haytham(*words, cwd=here, **{"FAKE_API_KEY": hidden, name: hidden})
    assert (answer.code, re.search(r"one: \w+ in .*paid_agents\.py, line \d+: 401 for", answer.out) is not None) == (
        1,
        True,
    )
    assert hidden not in answer.out + answer.err
    files = [path for path in here.rglob("*") if path.is_file()]
    assert [path for path in files if hidden.encode() in path.read_bytes()] == []


def test_the_path_of_a_key_is_no_secret(here):
    """A variable that leads to a file may be told: who reads the error needs it."""
    (here / "signing.pem").touch(mode=0o755)  # and yet no program
    workflow(here, ["one"], model="command:./signing.pem")
    answer = haytham("run", IDEA, "--workflow", "mine", cwd=here, SIGNING_KEY="./signing.pem")
    assert "failed: one: the command './signing.pem' is not executable" in answer.out


def test_a_model_of_a_provider_is_held_to_its_price_before_it_is_called(tmp_path):
    """A call that may cost more than the limit is not made; a provider's model needs no trust, as it runs no code."""
    pytest.importorskip("genai_prices")
    words = ("run", IDEA, "--model", "openai:gpt-4o", "--max-cost", "0.001", "--name", "rain")
    answer = haytham(*words, cwd=tmp_path)
    said = r"is paused in phase 1, Concept Expansion: \$0.00 are spent and the next call may cost \$0\.\d+, "
    said += r"which is past the limit of \$0.001; go on with: haytham resume --max-cost 0\.\d+\n$"
    assert (answer.code, re.search(said, answer.out) is not None) == (5, True), answer.out
    assert not (tmp_path / ".state").exists()
