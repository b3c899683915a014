"""Agents on the command line: who would answer, what exactly is asked, what is seen while they work, and whose code."""

from __future__ import annotations

import json
import re
import shutil
import sys
from io import StringIO

import pexpect
import pytest

from support import paid_agents
from support.cli_runner import IDEA, command, edit, environment, haytham, process, session_folder, workflow

AGENTS = """
import asyncio
from haytham.agents.base import Reply
from haytham.errors import AgentError

def write(task):
    return f"{task.agent}, attempt {task.attempt}"

async def tell(task):
    words = ("The ", "first \\x1b[31mline", "\\nthe second ", ":tada: [red]line\\n", "and an end")
    for word in words:
        task.on_text(word)
        await asyncio.sleep(0.3)
    return Reply("".join(words), input_tokens=3, output_tokens=4, cost=0.5)

def fail(task):
    raise AgentError("the line is busy.\\nAnd more about that")
"""
CONTRACT = "haytham: {retries: 0, repairs: 1, contract: seven}"
SECTION = {"type": "string", "minLength": 40, "x-ask": "What is there to say?", "x-test": "ask somebody"}


@pytest.fixture
def here(tmp_path):
    """A folder with agents of its own, and a workflow of two phases, the second one sequential."""
    paid_agents.forget()
    (tmp_path / "told.py").write_text(AGENTS, encoding="utf-8")
    workflow(
        tmp_path, ["one", "two", "three"], phases=[(1, "One", "one", ["one"]), (2, "Two", "two", ["two", "three"])]
    )
    edit(tmp_path / "mine" / "workflow.yaml", "needs: [1]}", "needs: [1], run: sequential}")
    return tmp_path


def agent(here, name, *front):
    """Write the file of an agent."""
    text = "\n".join(["---", f"name: {name}", *front, "---", f"Write {name} about {{{{ phase }}}}.", ""])
    (here / "mine" / "agents" / f"{name}.md").write_text(text, encoding="utf-8")


def terminal(here, *words):
    """The command in a terminal."""
    first, *rest = command(*words)
    given = {"cwd": str(here), "env": environment(here), "encoding": "utf-8", "timeout": 30}
    child = pexpect.spawn(first, rest, dimensions=(60, 120), **given)
    child.logfile_read = StringIO()
    return child


def drawn(child):
    """What a terminal shows in the end: lines that were erased are gone."""
    child.expect(pexpect.EOF)
    lines, row = [""], 0
    for piece in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\n|[^\x1b\r\n]+", child.logfile_read.getvalue()):
        if piece == "\n":
            row += 1
            lines += [""] if row == len(lines) else []
        elif piece == "\x1b[1A":
            row -= 1
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif not piece.startswith("\x1b"):
            lines[row] += piece
    return "\n".join(lines)


def asked_before(here, number, name):
    """What an agent was asked, by the record of its task."""
    return haytham("show", number, name, "--task", "--json", cwd=here).json["texts"][name]


def asked_now(here, number, name):
    """What `prompt` says an agent would be asked."""
    (found,) = haytham("prompt", number, name, "--json", cwd=here).json["prompts"]
    return found


def files(folder):
    """Every file and folder with its bytes and the time of its last change."""
    found = sorted(folder.rglob("*"))
    return [(path, path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None) for path in found]


def test_the_agents_of_the_built_in_workflow_are_listed_without_a_session(tmp_path):
    """Phase, description, model, contract and file of each agent; nothing is made."""
    out = haytham("agents", cwd=tmp_path).out
    assert out.startswith("workflow idea_validation\n\nphase 1, Concept Expansion\n  concept_expansion: ")
    assert "\n    model     worksheet (the default)\n    contract  concept_expansion\n" in out
    assert "\n    file      built in: idea_validation/agents/concept_expansion.md\n" in out
    assert list(tmp_path.iterdir()) == []
    assert "model     openai:gpt-5 (the default)" in haytham("agents", cwd=tmp_path, HAYTHAM_MODEL="openai:gpt-5").out


OF_A_WORKFLOW = """\
workflow mine

phase 1, One
  one: Thinks of one.
    model     openai:gpt-5, else worksheet (the default)
    tools     web_search, Read
    file      mine/agents/one.md

phase 2, Two
  two
    model     human
    contract  validation
    file      mine/agents/two.md
  three
    model     worksheet (the default)
    file      mine/agents/three.md
"""


def test_the_agents_of_a_workflow_are_listed(here):
    """Models stand in the order they are tried, with the default where an agent has none; in JSON, too."""
    agent(here, "one", "description: Thinks of one.", "model: [openai:gpt-5, sonnet]", "tools: web_search, Read")
    agent(here, "two", "model: human", "haytham: {contract: validation}")
    assert haytham("agents", "--workflow", "mine", cwd=here).out == OF_A_WORKFLOW
    facts = haytham("agents", "--workflow", "mine", "--json", cwd=here).json
    first, second, _ = facts["agents"]
    assert (facts["kind"], facts["version"], facts["session"]) == ("agents", 1, None)
    assert (first["models"], first["inherits"]) == (["openai:gpt-5", "worksheet"], [False, True])
    assert (second["phase"], second["contract"], second["tools"]) == (2, "validation", [])


def test_the_agents_of_a_session_are_those_that_would_answer_now(here):
    """The default of a session, and a replay, which answers for all, are told; of a workflow one or the other."""
    agent(here, "one", "model: python:support.paid_agents:cheap")
    haytham("run", IDEA, "--workflow", "mine", "--model", "command:cat", "--record", "said", cwd=here)
    out = haytham("agents", cwd=here).out
    assert "  one\n    model     python:support.paid_agents:cheap\n" in out
    assert "  two\n    model     command:cat (the default)\n" in out
    haytham("resume", "--model", "replay:said", cwd=here)
    assert haytham("agents", cwd=here).out.count("model     replay:said, which answers for all\n") == 3
    answer = haytham("agents", session_folder(here).name, "--workflow", "mine", cwd=here)
    assert (answer.code, answer.err.startswith("haytham: say whose agents are meant")) == (2, True)


def test_an_agent_whose_code_is_not_trusted_is_marked(here):
    """A session from elsewhere: which agents run code here, and how to let them."""
    agent(here, "one", "model: python:support.paid_agents:cheap")
    haytham("run", IDEA, "--workflow", "mine", cwd=here)
    shutil.rmtree(here / ".state")
    out = haytham("agents", cwd=here).out
    said = "model     python:support.paid_agents:cheap; it runs code, and is not trusted here: haytham resume --trust\n"
    assert (said in out, out.count("not trusted")) == (True, 1)


def want_changes(here):
    haytham("request-changes", "1", "-m", "Too broad", "--change", "Name one city", cwd=here)


def want_changes_in_an_editor(here):
    feedback = session_folder(here) / "phase_1_one" / "user_feedback.md"
    edit(feedback, "Approved: -", "Approved: false")
    edit(feedback, "## User Comments\n", "## User Comments\n\nToo broad\n")
    edit(session_folder(here) / "phase_1_one" / "one.md", "Write", "Wrote")


def give_evidence(here):
    want_changes(here)
    (session_folder(here) / "evidence.md").write_text("Ten calls, nine yes.\n", encoding="utf-8")


@pytest.mark.parametrize("happens", [want_changes, want_changes_in_an_editor, give_evidence])
def test_a_prompt_is_the_very_text_of_the_next_attempt(here, happens):
    """Whatever a person has decided: what `prompt` shows is what the agent is asked next, to the letter."""
    haytham("run", IDEA, "--workflow", "mine", cwd=here)
    happens(here)
    now = asked_now(here, 1, "one")
    assert "Too broad" in now["prompt"]
    assert haytham("resume", cwd=here).code == 3
    assert asked_before(here, 1, "one") == now["prompt"]


def test_a_prompt_is_the_very_text_of_a_phase_to_come(here):
    """With what was approved before, and its comments; also that of an agent which has one before it."""
    haytham("run", IDEA, "--workflow", "mine", cwd=here)
    haytham("approve", "-m", "Name one city", cwd=here)
    now = asked_now(here, 2, "two")
    assert "Name one city" in now["prompt"]
    assert haytham("resume", cwd=here).code == 3
    assert asked_before(here, 2, "two") == now["prompt"]
    assert asked_before(here, 2, "three") == asked_now(here, 2, "three")["prompt"]


def test_a_prompt_tells_where_each_part_comes_from(here):
    """Each part has a file that is there, and the digest that stands in the record of the task; the text is alone."""
    haytham("run", IDEA, "--workflow", "mine", cwd=here)
    haytham("approve", "-m", "Name one city", cwd=here)
    haytham("resume", cwd=here)
    answer = haytham("prompt", "2", "three", cwd=here)
    assert answer.out == asked_before(here, 2, "three")
    now = asked_now(here, 2, "three")
    parts = {part["part"]: part for part in now["parts"]}
    names = ["frame", "idea", "agent file", "phase 1: one", "comments on phase 1", "before it: two"]
    assert list(parts) == names
    assert [part["file"] for part in now["parts"][1:] if not (here / part["file"]).is_file()] == []
    record = (session_folder(here) / "phase_2_two" / "tasks" / "three.md").read_text(encoding="utf-8")
    for name in names[1:]:
        assert f"| {name} | {parts[name]['digest']} |" in record
        short = parts[name]["digest"].removeprefix("sha256:")[:12]
        assert re.search(rf"\n  {re.escape(name)} +{short}  {re.escape(parts[name]['file'])}\n", answer.err + "\n")


def test_a_part_of_an_attempt_that_is_about_to_move_has_its_present_file(here):
    """What would be put aside first is named by where it lies now."""
    haytham("run", IDEA, "--workflow", "mine", cwd=here)
    want_changes(here)
    found = {part["part"]: part["file"] for part in asked_now(here, 1, "one")["parts"]}
    assert found["attempt 1: one"].endswith("/phase_1_one/one.md")
    assert found["changes wanted after attempt 1"].endswith("/phase_1_one/user_feedback.md")


def test_a_prompt_says_in_how_far_it_may_change(here):
    """A phase that it builds on and is open, an agent that writes before it, a contract: each is told."""
    agent(here, "three", "haytham: {contract: validation}")
    haytham("run", IDEA, "--workflow", "mine", cwd=here)
    answer = haytham("prompt", "2", "three", cwd=here)
    assert "\n  phase 1, One, is open: what it comes to may be another text\n" in answer.err
    assert "\n  two will write before it: that text is not in here yet\n" in answer.err
    assert re.search(r"\n  contract +[0-9a-f]{12}  built in: contracts/validation.json\n", answer.err)
    both = haytham("prompt", "2", "-q", cwd=here)
    assert (re.findall(r"^--- (\w+)$", both.out, re.MULTILINE), both.err) == (["two", "three"], "")


def test_looking_at_agents_and_prompts_writes_nothing(here):
    """`agents` and `prompt` leave every file, folder and time as it is, also where changes are wanted."""
    haytham("run", IDEA, "--workflow", "mine", cwd=here)
    want_changes_in_an_editor(here)
    before = files(here / "projects")
    assert haytham("agents", cwd=here).code == haytham("prompt", "1", cwd=here).code == 0
    assert files(here / "projects") == before


def test_a_prompt_that_there_is_not_gets_one_sentence(here):
    """An agent or a phase that is not there is a mistake; control characters are told, and left out of a terminal."""
    haytham("run", IDEA, "--workflow", "mine", cwd=here)
    answer = haytham("prompt", "2", "one", cwd=here)
    assert answer.err == "haytham: phase 2, Two, has no agent 'one'; name one of two, three\n"
    assert haytham("prompt", "9", cwd=here).code == 2
    (session_folder(here) / "evidence.md").write_text("A \x1b[31mred one\n", encoding="utf-8")
    answer = haytham("prompt", "1", cwd=here)
    assert ("\nA [31mred one\n" in answer.out, "  1 control characters are left out here" in answer.err) == (True, True)
    assert "\x1b[31m" in asked_now(here, 1, "one")["prompt"]


def test_progress_tells_of_tries_fallbacks_and_warnings(here):
    """A line each: a failure with the tries left, the model that is asked instead, a word on the budget."""
    agent(
        here,
        "one",
        "model: [python:support.paid_agents:broken, python:support.paid_agents:cheap]",
        "haytham: {retries: 1}",
    )
    lines = haytham("run", IDEA, "--workflow", "mine", "--max-cost", "0.4", cwd=here).err.split("\n")
    assert lines[:8] == [
        "phase 1: One",
        "  one: asked python:support.paid_agents:broken",
        "  one: the line broke; it is asked again, 1 more at most",
        "  one: asked python:support.paid_agents:broken",
        "  one: the line broke",
        "  one: falls back to python:support.paid_agents:cheap",
        "budget: 125% of the budget of $0.40 is spent",
        "  one: done, 13 tokens, $0.50",
    ]


def test_progress_tells_of_repairs_and_refusals(here):
    """What a reply is short of, and that it is not sent back as the budget is reached: it was paid for, and is kept."""
    bind(here)
    answer = haytham("run", IDEA, "--workflow", "mine", "--max-cost", "0.01", cwd=here)
    assert re.search(r"\n  one: .+Part 1.+ \(and 6 more\); it is asked to mend that\n", answer.err)
    assert (answer.code, "is paused in phase 1, One: $0.01 are spent" in answer.out) == (5, True)
    assert "it was not sent back: $0.01 are spent" in (session_folder(here) / "phase_1_one/one.md").read_text("utf-8")


def test_what_an_agent_tells_does_not_flood_a_pipe(here):
    """Text that comes piece by piece is for terminals: neither plain lines nor lines of JSON have it."""
    agent(here, "one", "model: python:told:tell")
    for words in ((), ("--json",), ("-q",)):
        answer = process("run", IDEA, "--workflow", "mine", *words, cwd=here)
        assert (answer.code, "second" in answer.out + answer.err) == (3, False)
        assert "agent_text" not in answer.err


def test_in_a_terminal_the_text_of_one_agent_flows_by(here):
    """Whole lines as they come, without control characters; at the gate it is not shown once more."""
    agent(here, "one", "model: python:told:tell")
    child = terminal(here, "run", IDEA, "--workflow", "mine")
    child.expect(r"first \[31mline\r\n")
    child.expect(r"the second :tada: \[red\]line\r\n")
    child.expect("=== one: as it came above")
    child.expect(r"\[a,e,r,m,d,v,o,s,x,q,\?\]")
    assert "The first" not in child.before
    child.sendline("q")
    assert "phase 1, One, waits for review" in drawn(child)


def test_in_a_terminal_agents_side_by_side_have_a_line_each(here):
    """Of several at once a short end of each text is drawn, and gone when they are done; the gate shows them whole."""
    edit(here / "mine" / "workflow.yaml", "run: sequential", "run: parallel")
    for name in ("two", "three"):
        agent(here, name, "model: python:told:tell")
    haytham("run", IDEA, "--workflow", "mine", cwd=here)
    haytham("approve", cwd=here)
    child = terminal(here, "resume", "--no-input")
    child.expect(r"  two  python:told:tell  0s\r\n    The\b.*\r\n  three  python:told:tell  0s\r\n    The\b")
    said = drawn(child)
    assert "The first" not in said
    assert "  two: done, 7 tokens, $0.50" in said


def test_with_quiet_a_terminal_shows_no_text(here):
    """`--quiet` leaves out what flows by."""
    agent(here, "one", "model: python:told:tell")
    said = drawn(terminal(here, "run", IDEA, "--workflow", "mine", "--quiet", "--no-input"))
    assert said.strip() == "phase 1, One, waits for review: haytham review, or haytham approve && haytham resume"


HINT = "haytham: these pages came from the built-in worksheet; for a model: haytham resume --model anthropic:… "


def test_after_worksheets_alone_it_is_told_once_how_to_name_a_model(here):
    """One line on standard error, for whom no model was named, and not with `--quiet` or `--json`."""
    words = ("run", IDEA, "--workflow", "mine", "--yes")
    assert haytham("run", IDEA, "--workflow", "mine", cwd=here).err.count(HINT) == 1
    assert haytham(*words, cwd=here).err.count("for a model: haytham run IDEA --model") == 1
    for more in (("-q",), ("--json",), ("--model", "worksheet"), ("--model", "python:support.paid_agents:cheap")):
        assert "for a model" not in haytham(*words, *more, cwd=here).err
    agent(here, "two", "model: python:support.paid_agents:cheap")
    assert "for a model" not in haytham(*words, cwd=here).err


def test_a_failure_is_told_in_one_sentence(here):
    """Of what an agent says when it fails, the first line is told; its file has the rest."""
    edit(here / "mine" / "workflow.yaml", "agents: [one]", "agents: [one, two]")
    for name in ("one", "two"):
        agent(here, name, "model: python:told:fail", "haytham: {retries: 0}")
    answer = process("run", IDEA, "--workflow", "mine", cwd=here)
    said = "phase 1, One, failed: one: the line is busy; two: the line is busy; try again with: haytham retry 1\n"
    assert (answer.code, answer.out.endswith(said), "And more" in answer.err) == (1, True, False)
    assert "And more about that" in (session_folder(here) / "phase_1_one" / "one.md").read_text(encoding="utf-8")


def bind(here):
    """Have the first agent answer less than the seven sections that it is asked for."""
    agent(here, "one", "model: python:support.paid_agents:scripted", CONTRACT)
    paid_agents.ANSWERS[:] = ["Nothing of what was asked."]
    sections = {f"part_{at}": {**SECTION, "x-location": f"Part {at}"} for at in range(1, 8)}
    about = {"title": "seven", "description": "Seven parts.", "x-contract": "seven/1", "type": "object"}
    (here / "mine" / "contracts").mkdir()
    contract = json.dumps({**about, "properties": sections, "required": list(sections)})
    (here / "mine" / "contracts" / "seven.json").write_text(contract, encoding="utf-8")


@pytest.fixture
def broken(here):
    """A folder with a session whose first agent did not keep its contract; and what the command said of it."""
    bind(here)
    return here, haytham("run", IDEA, "--workflow", "mine", cwd=here)


def test_a_broken_contract_lists_what_is_missing(broken):
    """Five complaints and how many more; then how to try again, and how to mend it by hand. JSON has them all."""
    here, answer = broken
    assert answer.code == 1
    lines = answer.out.split("\n")[2:]
    assert lines[0] == "phase 1, One, failed: one: the reply breaks its contract:"
    assert all(re.match(r"  reply(:\d+)?: ", line) for line in lines[1:6])
    assert lines[6] == "  and 2 more"
    mend = "haytham review 1 && haytham approve 1 && haytham resume"
    assert lines[7] == f"try again with: haytham retry 1, or mend the text in an editor and approve it: {mend}"
    (error,) = haytham("retry", "1", "--json", cwd=here).json["errors"]
    assert len(error.split("\n")) == 1 + 7


def test_a_broken_contract_is_mended_by_hand(broken):
    """The commands that the sentence names do it: the text is edited, approved, and no agent is asked again."""
    here, _ = broken
    program = "import sys; from pathlib import Path; path = Path(sys.argv[1]); text = path.read_text()\n"
    program += "path.write_text(text.replace('Nothing of what was asked.', 'All of it.'))"
    (here / "editor.py").write_text(program, encoding="utf-8")
    assert haytham("approve", "1", cwd=here).code == 2
    asked = len(paid_agents.SEEN)
    assert haytham("review", "1", cwd=here, EDITOR=f"{sys.executable} editor.py").code == 0
    out = haytham("status", cwd=here).out
    assert ("mended by hand: one" in out, "next: haytham resume" in out) == (True, True)
    said, *notes = haytham("approve", "1", cwd=here).out.splitlines()
    assert said == "phase 1, One: approved (you edited: +1 -1) by ann"
    assert all(note.startswith("note: one: Part ") for note in notes)
    assert haytham("resume", "--json", cwd=here).json["phase"] == 2
    assert len(paid_agents.SEEN) == asked


def test_who_names_a_model_trusts_it(here):
    """`resume --model` and `retry --model` with code of one's own need no `--trust` where the workflow runs none."""
    haytham("run", IDEA, "--workflow", "mine", cwd=here)
    shutil.rmtree(here / ".state", ignore_errors=True)
    assert haytham("retry", "1", "--model", "python:support.paid_agents:cheap", cwd=here).code == 3
    assert haytham("retry", "1", "--model", "command:cat", cwd=here).code == 3
    assert haytham("resume", "--model", "openai:gpt-5", cwd=here).code == 3


@pytest.mark.parametrize("words", ["retry 1 --model worksheet", "resume --model command:cat", "fork --model worksheet"])
def test_who_names_a_model_does_not_trust_the_code_beside_it(here, words):
    """A workflow from elsewhere that runs code of its own stays untrusted, whatever model is named beside it."""
    agent(here, "two", "model: python:support.paid_agents:cheap")
    haytham("run", IDEA, "--workflow", "mine", cwd=here)
    haytham("approve", cwd=here)
    shutil.rmtree(here / ".state")
    first = session_folder(here).name
    name = ("--name", "other") if words.startswith("fork") else ()
    haytham(*words.split(), *name, *(("-s", first) if name else ()), cwd=here)
    answer = haytham("resume", "other" if name else first, "--yes", cwd=here)
    assert (answer.code, "not trusted here" in answer.err, paid_agents.SEEN) == (1, True, [])


def test_a_trusted_workflow_stays_trusted_with_another_model(here):
    """Who trusts a workflow may name another model beside it without saying so again."""
    agent(here, "two", "model: python:support.paid_agents:cheap")
    haytham("run", IDEA, "--workflow", "mine", cwd=here)
    assert haytham("resume", "--model", "openai:gpt-5", cwd=here).code == 3
    haytham("approve", cwd=here)
    answer = haytham("resume", "--model", "worksheet", cwd=here)
    assert (answer.code, paid_agents.SEEN) == (3, ["two"])


def test_a_contract_is_validated_with_the_agents_that_name_it(broken):
    """`validate` names an agent whose contract is not there, and the fault in one that cannot be read."""
    here, _ = broken
    assert haytham("validate", "mine", cwd=here).err == "5 documents, 0 problems\n"
    agent(here, "two", "haytham: {contract: nowhere}")
    (here / "mine" / "contracts" / "seven.json").write_text("{\n]", encoding="utf-8")
    answer = haytham("validate", "mine", cwd=here)
    assert (answer.code, "contracts/seven.json:2: is not valid JSON" in answer.out) == (6, True)
    assert "agents/two.md:3: haytham.contract: contract nowhere not found" in answer.out


def test_a_contract_that_changed_is_named(broken):
    """Resume of a session whose workflow has another contract now says which file that is, exit 1."""
    here, _ = broken
    edit(here / "mine" / "contracts" / "seven.json", "Seven parts.", "Seven other parts.")
    answer = haytham("resume", cwd=here)
    assert (answer.code, "\n  the file contracts/seven.json\n" in answer.err) == (1, True)
