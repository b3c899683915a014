"""The whole workflow is checked before the first call, by `run` as by `validate`; nothing of it is run for that."""

from __future__ import annotations

import pytest

from haytham.config.workflow import FILE, WorkflowFiles, shipped_workflow
from haytham.engine.preflight import check_workflow
from support.cli_runner import IDEA, edit, haytham, session_folder, workflow

YAML = "phases[1].when: "
AGENT = "agents/two.md:"


def agent(folder, front="", body="Write.\n"):
    """Write the file of agent two."""
    (folder / "agents" / "two.md").write_text(f"---\nname: two\n{front}\n---\n{body}", encoding="utf-8")


def condition(folder, when):
    """Give phase 2 a condition."""
    edit(folder / "workflow.yaml", "agents: [two],", f'agents: [two], when: "{when}",')


def setting(folder, line):
    """Add a line to the workflow."""
    with (folder / "workflow.yaml").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def edit_name(folder):
    """Give agent two another name than its file."""
    edit(folder / "agents" / "two.md", "name: two", "name: three")


FAULTS = {
    "missing contract": (
        lambda at: agent(at, "haytham: {contract: nowhere}"),
        f"{AGENT}3: haytham.contract: contract nowhere",
    ),
    "Jinja syntax": (
        lambda at: agent(at, body="one\n{% if %}\n"),
        f"{AGENT}6: TemplateSyntaxError: Expected an expression",
    ),
    "unknown variable": (
        lambda at: agent(at, body="{{ ideea }}"),
        f"{AGENT}5: unknown name ideea; did you mean idea?",
    ),
    "unknown part of the task": (
        lambda at: agent(at, body="{{ task.ideas }}"),
        f"{AGENT}5: task has no ideas; did you mean idea?",
    ),
    "unknown filter": (lambda at: agent(at, body="{{ idea|uper }}"), f"{AGENT}5: unknown filter uper"),
    "include": (
        lambda at: agent(at, body="{% include 'a' %}"),
        f"{AGENT}5: TemplateSyntaxError: include cannot be used here",
    ),
    "later phase in when": (lambda at: condition(at, "phases.two.approved"), "phases has no two; known: one"),
    "unknown word in when": (
        lambda at: condition(at, "phases.one.state == 1"),
        f"{YAML}phases.one has no state; did you mean status?",
    ),
    "unknown name in when": (
        lambda at: condition(at, "phase.one"),
        f"{YAML}unknown name phase; did you mean phases?",
    ),
    "powers in when": (lambda at: condition(at, "9**(9**(9**9)) > 1"), f"{YAML}TemplateSyntaxError: ** cannot be used"),
    "missing module": (
        lambda at: agent(at, "model: python:no_such_module:write"),
        "module no_such_module not found",
    ),
    "missing submodule": (
        lambda at: agent(at, "model: python:json.nothing:write"),
        "module json.nothing not found",
    ),
    "missing function": (lambda at: agent(at, "model: python:mine_code:wrote"), "module mine_code has no wrote"),
    "missing program": (
        lambda at: agent(at, "model: command:no-such-program -p"),
        "program 'no-such-program' not found",
    ),
    "missing script": (lambda at: agent(at, "model: command:./agent.sh"), "program './agent.sh' not found"),
    "no model of several": (
        lambda at: agent(at, "model: [command:no-such-program, python:no_such_module:write]"),
        "module no_such_module not found",
    ),
    "a near key": (lambda at: agent(at, "modle: human"), f"{AGENT}3: modle: unknown key; did you mean model?"),
    "another near key": (
        lambda at: agent(at, "haythm: {contract: x}"),
        f"{AGENT}3: haythm: unknown key; did you mean haytham?",
    ),
    "another name": (edit_name, f"{AGENT}2: name: found 'three'; allowed: two, as the file is called"),
    "unknown store": (
        lambda at: setting(at, "checkpointing: {storage_type: nonsense}"),
        "workflow.yaml:6: checkpointing.storage_type",
    ),
    "missing store": (
        lambda at: setting(at, "checkpointing: {storage_type: 'no_such_module:Store'}"),
        "module no_such_module not found",
    ),
}


@pytest.fixture
def here(tmp_path):
    """A folder with a workflow of two phases, and a module beside it."""
    workflow(tmp_path, ["one", "two"])
    code = "from pathlib import Path\nPath('ran').touch()\ndef write(task):\n    return 'x'\n"
    (tmp_path / "mine_code.py").write_text(code, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_anywhere_in_a_workflow_is_told_before_the_first_call(here, name):
    """`run` and `validate` find the same fault with file and line, exit 6; nobody is asked and nothing is made."""
    make, said = FAULTS[name]
    make(here / "mine")
    checked = haytham("validate", "mine", cwd=here)
    assert (checked.code, said in checked.out) == (6, True), checked
    refused = haytham("run", IDEA, "--workflow", "mine", cwd=here)
    assert (refused.code, refused.err.removeprefix("haytham: ")) == (6, checked.out)
    assert not (here / "projects").exists()
    assert not (here / "ran").exists()


LEGAL = {
    "keys of other tools": lambda at: agent(
        at, "description: d\ncolor: red\nmode: subagent\npermissionMode: plan\nhooks: {}"
    ),
    "a name with dashes": lambda at: edit(at / "agents" / "two.md", "name: two", "name: two "),
    "a module that is there": lambda at: agent(at, "model: python:mine_code:write"),
    "one model of several": lambda at: agent(at, "model: [command:no-such-program, inherit]"),
    "a program that is there": lambda at: agent(at, "model: command:cat"),
    "a model of a provider": lambda at: agent(at, "model: anthropic:claude-sonnet-4-5"),
    "a body that is no template of another tool": lambda at: agent(at, "description: d", "Write {{ x.y }} {% if"),
    "a condition": lambda at: condition(at, "phases.one.status == 'completed' and phases['one'].approved"),
    "an agent that no phase names": lambda at: (at / "agents" / "spare.md").write_text("{{ x }}", encoding="utf-8"),
    "a store in memory": lambda at: setting(at, "checkpointing: {storage_type: memory}"),
}


@pytest.mark.parametrize("name", LEGAL)
def test_what_is_legal_passes_the_check(here, name):
    """Keys of other tools, fallbacks, files of other tools that are no templates: a workflow may hold them."""
    LEGAL[name](here / "mine")
    checked = haytham("validate", "mine", cwd=here)
    assert (checked.code, checked.out) == (0, "")
    assert not (here / "ran").exists()


def test_a_dash_in_a_name_is_an_underscore():
    """A file code_reviewer.md that calls itself code-reviewer is the same agent."""
    yaml = b"name: w\nphases:\n- {number: 1, name: One, slug: one, agents: [code_reviewer]}\nmodes: {all: [1]}\n"
    check_workflow(
        WorkflowFiles("w", {FILE: yaml, "agents/code_reviewer.md": b"---\nname: code-reviewer\n---\nLook.\n"})
    )


def test_a_need_outside_of_the_mode_counts_as_skipped(here):
    """A phase may need one that its mode leaves out; one that does not exist is a fault."""
    edit(here / "mine" / "workflow.yaml", "modes: {mvp: [1, 2]}", "modes: {mvp: [2]}")
    assert haytham("run", IDEA, "--workflow", "mine", cwd=here).code == 3
    assert "Phase 1, One, is left out" in haytham("show", "2", "--task", cwd=here).out
    edit(here / "mine" / "workflow.yaml", "needs: [1]", "needs: [7]")
    assert "phase 2 needs [7]; allowed: earlier phases" in haytham("validate", "mine", cwd=here).out


def test_a_replay_needs_no_module_and_no_program(here):
    """Where recorded replies answer for all agents, their own models are not looked for."""
    agent(here / "mine", "model: command:cat")
    assert haytham("run", IDEA, "--workflow", "mine", "--yes", "--record", "said", cwd=here).code == 0
    agent(here / "mine", "model: command:no-such-program")
    refused = haytham("run", IDEA, "--workflow", "mine", cwd=here)
    assert refused.code == 6
    replayed = haytham("run", IDEA, "--workflow", "mine", "--name", "again", "--model", "replay:said", cwd=here)
    assert replayed.code == 3, replayed


def test_a_workflow_that_is_accepted_or_forked_to_is_checked(here):
    """`resume --accept-workflow` and `fork --workflow` refuse what `run` refuses, and the session stays as it is."""
    assert haytham("run", IDEA, "--workflow", "mine", cwd=here).code == 3
    before = (session_folder(here) / "session_manifest.md").read_bytes()
    agent(here / "mine", body="{{ nobody }}")
    for words in (("resume", "--accept-workflow"), ("fork", "--name", "f", "--workflow", "mine")):
        refused = haytham(*words, cwd=here)
        assert (refused.code, "unknown name nobody" in refused.err) == (6, True), refused
    assert (session_folder(here) / "session_manifest.md").read_bytes() == before


def test_the_shipped_workflow_passes_the_check():
    """What comes with the package can be run as it is."""
    check_workflow(shipped_workflow("idea_validation"))
