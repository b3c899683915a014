"""Hooks of a workflow: commands that are run for events, what they are given, and what keeps them from running."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from haytham import Phase, Workflow, Workspace
from haytham.config.hooks import Hook, file_name
from haytham.config.workflow_check import workflow_schema
from haytham.engine.hooks import find_fault, interpreter
from haytham.errors import InvalidDocument, WorkflowChanged
from haytham.events import ALIASES, EVENT_TYPES
from haytham.storage import MemoryStore
from support.cli_runner import haytham

WORKFLOW = """
name: small
phases:
  - {number: 1, name: One, slug: one, agents: [worksheet]}
modes: {mvp: [1]}
"""
NOTE = f"""#!{sys.executable} -I
import os, sys
with open(os.path.join({{folder!r}}, "heard.jsonl"), "a") as file:
    file.write(sys.stdin.read())
print("not shown")
"""


@pytest.fixture(autouse=True)
def own_list_of_trust(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def workflow(folder, hooks, **scripts):
    """Write a workflow with hooks; its folder."""
    path = folder / "small"
    path.mkdir(exist_ok=True)
    (path / "workflow.yaml").write_text(f"{WORKFLOW}hooks: {hooks}\n", encoding="utf-8")
    for name, text in scripts.items():
        (path / f"{name}.py").write_text(text, encoding="utf-8")
    return path


def note(folder):
    """A script that writes what it is given to a file."""
    return NOTE.format(folder=str(folder))


def start(folder, hooks, **scripts):
    """Start a session of a workflow with hooks."""
    return Workspace(folder / "projects").start("Barrels", user="ann", workflow=str(workflow(folder, hooks, **scripts)))


def heard(folder):
    """What the script was given, each line an event."""
    path = folder / "heard.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def failures(session):
    """What is recorded of hooks that failed: hook, event and error."""
    return [tuple(event.facts.values()) for event in session.log(["handler_failed"]).read()]


def test_a_hook_is_given_the_event_as_json(tmp_path):
    """Time, name, ids of project and session, and the facts, on standard input."""
    session = start(tmp_path, "[{on: snapshot_saved, run: [./note.py]}]", note=note(tmp_path))
    taken = session.snapshot("mine")
    (event,) = heard(tmp_path)
    assert event == {
        "time": event["time"],
        "event": "snapshot_saved",
        "project": session.project_id,
        "session": session.session_id,
        "facts": {"snapshot": taken.id, "number": 1, "kind": "manual", "raw": taken.raw, "added": taken.added},
    }
    assert failures(session) == []


def test_hooks_hear_starts_runs_decisions_and_restores(tmp_path):
    """From the first event of a session on, whether a run or a command is at work; pieces of text are none."""
    session = start(tmp_path, "[{on: '*', run: [./note.py]}]", note=note(tmp_path))
    session.run()
    session.approve()
    session.restore(1)
    names = [event["event"] for event in heard(tmp_path)]
    stored = [event.name for event in session.log().read()]
    assert sorted(names) == sorted(stored)
    assert {"session_started", "review_opened", "decision", "snapshot_restored", "run_ended"} <= {*names}
    assert "agent_text" not in names


def test_a_command_of_the_terminal_runs_hooks(tmp_path):
    """A decision made by a command is heard, in a process of its own."""
    workflow(
        tmp_path, "[{on: decision, run: [./note.py]}, {on: checkpoint_saved, run: [./note.py]}]", note=note(tmp_path)
    )
    assert haytham("run", "Barrels", "--workflow", "small", "--no-input", cwd=tmp_path).code == 3
    assert haytham("approve", cwd=tmp_path).code == 0
    assert [event["event"] for event in heard(tmp_path)] == ["snapshot_saved", "decision", "snapshot_saved"]


def test_the_words_of_a_command_reach_no_shell(tmp_path):
    """Quotes, dollars and semicolons are words like others."""
    path = str(tmp_path / "words")
    show = f"#!{sys.executable} -I\nimport sys\nopen({path!r}, 'w').write(repr(sys.argv[1:]))\n"
    session = start(tmp_path, "[{on: decision, run: [./show.py, '$HOME; x', \"it's\", '*']}]", show=show)
    session.run()
    session.approve()
    assert (tmp_path / "words").read_text(encoding="utf-8") == repr(["$HOME; x", "it's", "*"])


def test_a_script_may_be_given_to_a_program(tmp_path):
    """A word that names a file of the workflow's folder is its path in the session's copy."""
    session = start(tmp_path, f"[{{on: snapshot_saved, run: [{sys.executable}, note.py]}}]", note=note(tmp_path))
    session.snapshot()
    assert len(heard(tmp_path)) == 1


# What fails.


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("import sys; sys.exit('no network')", "the command ended with exit code 1: no network"),
        ("import os; os.kill(os.getpid(), 9)", "the command was ended by SIGKILL"),
    ],
)
def test_a_hook_that_fails_is_recorded_and_ends_nothing(tmp_path, script, error):
    """The run is what it would be, and the file says which hook failed at which event, and how."""
    session = start(tmp_path, "[{on: review_opened, run: [./bad.py]}]", bad=f"#!{sys.executable} -I\n{script}\n")
    assert session.run().status == "waiting"
    assert failures(session) == [("hook ./bad.py", "review_opened", error)]


def test_a_hook_that_takes_too_long_is_ended_with_all_it_started(tmp_path):
    """After its timeout the whole process group is killed."""
    script = f"#!/bin/sh\nsleep 3600 &\necho $! > {tmp_path}/child\nwait\n"
    session = start(tmp_path, "[{on: snapshot_saved, run: [./slow.py], timeout: 1}]", slow=script)
    session.snapshot()
    assert failures(session) == [
        ("hook ./slow.py", "snapshot_saved", "the command did not finish within 1 s and was ended")
    ]
    pid = int((tmp_path / "child").read_text(encoding="utf-8"))
    for _ in range(500):
        if not is_alive(pid):
            return
        time.sleep(0.01)
    raise AssertionError("the child of the hook is still there")


def is_alive(pid):
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_hook_that_reads_nothing_is_no_failure(tmp_path):
    """A command may end before it has read the event."""
    session = start(tmp_path, "[{on: snapshot_saved, run: ['true']}]")
    session.snapshot()
    assert failures(session) == []


def test_a_hook_cannot_veto(tmp_path):
    """A failing hook of snapshot_taking is recorded, and the snapshot is taken."""
    session = start(tmp_path, "[{on: snapshot_taking, run: ['false']}]")
    assert session.snapshot() == session.history.latest()
    assert failures(session) == [("hook false", "snapshot_taking", "the command ended with exit code 1")]


# Trust.


def test_untrusted_hooks_are_not_run(tmp_path, monkeypatch):
    """A workspace from elsewhere runs no hook until it is trusted; that is recorded, and ends nothing."""
    session = start(tmp_path, "[{on: '*', run: [./note.py]}]", note=note(tmp_path))
    (tmp_path / "heard.jsonl").unlink()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody_else"))
    session = Workspace(tmp_path / "projects").session()
    assert session.run().status == "waiting"
    assert heard(tmp_path) == []
    ((name, event, error),) = failures(session)
    assert (name, event) == ("hooks", "*")
    assert "are not trusted here" in error
    assert haytham("resume", "--trust", "--no-input", cwd=tmp_path).code == 3
    assert heard(tmp_path)[-1]["event"] == "run_ended"


def test_a_script_that_was_changed_is_a_changed_workflow(tmp_path):
    """The session keeps its copy of the script until the new one is accepted."""
    session = start(tmp_path, "[{on: decision, run: [./note.py]}]", note=note(tmp_path))
    session.run()
    (tmp_path / "small" / "note.py").write_text(f"#!{sys.executable} -I\nraise SystemExit(3)\n", encoding="utf-8")
    with pytest.raises(WorkflowChanged, match=r"the file note\.py"):
        session.run()
    session.approve()
    assert [event["event"] for event in heard(tmp_path)] == ["decision"]


def test_a_copy_that_was_changed_is_not_trusted(tmp_path):
    """Nobody can put another script at the place of the one that was trusted."""
    session = start(tmp_path, "[{on: snapshot_saved, run: [./note.py]}]", note=note(tmp_path))
    (copy,) = (tmp_path / "projects").glob("*/workflows/*/note.py")
    copy.write_text(f"#!{sys.executable} -I\nopen('evil', 'w')\n", encoding="utf-8")
    session = Workspace(tmp_path / "projects").session()
    session.snapshot()
    assert not (tmp_path / "evil").exists()
    assert heard(tmp_path) == []
    assert failures(session)[0][0] == "hooks"


def test_a_script_elsewhere_is_trusted_by_its_content(tmp_path):
    """Another one at its place asks again."""
    script = tmp_path / "elsewhere.sh"
    script.write_text(f"#!/bin/sh\ncat >> {tmp_path}/heard.jsonl\n", encoding="utf-8")
    script.chmod(0o755)
    session = start(tmp_path, f"[{{on: snapshot_saved, run: [{script}]}}]")
    session.snapshot()
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/evil\n", encoding="utf-8")
    Workspace(tmp_path / "projects").session().snapshot()
    assert len(heard(tmp_path)) == 1
    assert not (tmp_path / "evil").exists()


def test_a_session_goes_on_without_the_folder_of_its_workflow(tmp_path):
    """Scripts are run from the session's copy, wherever the workspace is moved to."""
    start(tmp_path, "[{on: snapshot_saved, run: [./note.py]}]", note=note(tmp_path))
    shutil.rmtree(tmp_path / "small")
    (tmp_path / "projects").rename(tmp_path / "moved")
    Workspace(tmp_path / "moved").session().snapshot()
    assert len(heard(tmp_path)) == 1


def test_a_workflow_built_in_python_has_hooks_of_programs(tmp_path):
    """What the caller builds needs no trust; a file needs a folder."""

    async def write(task):
        return f"# {task.idea}"

    phases = [Phase("One", agents=[write])]
    built = Workflow(
        "offer", phases=phases, hooks=[{"on": "snapshot_saved", "run": ["tee", str(tmp_path / "heard.jsonl")]}]
    )
    session = Workspace(tmp_path / "projects").start("Barrels", user="ann", workflow=built)
    session.snapshot()
    assert [event["event"] for event in heard(tmp_path)] == ["snapshot_saved"]
    lost = Workflow("offer", phases=phases, hooks=[{"on": "decision", "run": ["./notify.sh"]}])
    with pytest.raises(InvalidDocument, match=r"hooks\[0\]\.run: './notify.sh' not found in the workflow's folder"):
        Workspace(tmp_path / "projects").start("Barrels", user="ann", workflow=lost)


def test_a_workspace_in_memory_runs_no_files(tmp_path):
    """The script is no file there: that is recorded, and ends nothing."""
    folder = workflow(tmp_path, "[{on: snapshot_saved, run: [./note.py]}]", note=note(tmp_path))
    session = Workspace(tmp_path / "projects", store=MemoryStore()).start("Barrels", user="ann", workflow=str(folder))
    session.snapshot()
    assert failures(session) == [("hooks", "*", "hook ./note.py is a file, and the workspace is no folder")]


# What workflow.yaml may say.


@pytest.mark.parametrize(
    ("hooks", "said"),
    [
        ("[{on: snapshot_savd, run: ['true']}]", "hooks[0].on: found 'snapshot_savd'; allowed: *, session_started"),
        ("[{on: agent_text, run: ['true']}]", "hooks[0].on: found 'agent_text'; allowed: "),
        ("[{on: decision, run: ['true'], tiemout: 3}]", "hooks[0].tiemout: unknown key; did you mean timeout?"),
        ("[{on: decision, run: ['true'], timeout: 0}]", "hooks[0].timeout: found 0; allowed: more than 0"),
        ("[{on: decision, run: ./notify.sh}]", "hooks[0].run: found './notify.sh'; allowed: a list"),
        ("[{on: decision, run: []}]", "hooks[0].run: "),
        ("[{on: decision}]", "hooks[0]: 'run' is a required property"),
        ("[{on: decision, run: [./none.sh]}]", "hooks[0].run: './none.sh' not found in the workflow's folder"),
        ("[{on: decision, run: [../none.sh]}]", "hooks[0].run: '../none.sh' not found in the workflow's folder"),
        ("[{on: decision, run: [no-such-program]}]", "hooks[0].run: program 'no-such-program' not found"),
        ("[{on: decision, run: [./plain.py]}]", "hooks[0].run: plain.py is no script: its first line names no program"),
    ],
)
def test_a_hook_that_cannot_run_is_a_fault_with_its_line(tmp_path, hooks, said):
    """`validate` and `run` say file, line and key."""
    folder = workflow(tmp_path, hooks, plain="print('x')\n")
    line = (folder / "workflow.yaml").read_text(encoding="utf-8").splitlines().index(f"hooks: {hooks}") + 1
    for command in (("validate", "small"), ("run", "Barrels", "--workflow", "small")):
        answer = haytham(*command, cwd=tmp_path)
        assert answer.code == 6, answer
        assert f"workflow.yaml:{line}: {said}" in answer.out + answer.err
    assert not (tmp_path / "projects").exists()


def test_the_schema_lists_every_event_that_a_hook_may_have():
    """All that are stored, their aliases, and every one."""
    allowed = workflow_schema()["properties"]["hooks"]["items"]["properties"]["on"]["enum"]
    stored = [kind.name for kind in EVENT_TYPES.values() if kind.is_persisted]
    assert sorted(allowed) == sorted(["*", *stored, *ALIASES])


@pytest.mark.parametrize(
    ("word", "name"),
    [("./a.sh", "a.sh"), ("x/./a.sh", "x/a.sh"), ("/a.sh", None), ("../a.sh", None), ("x/../../a", None), (".", None)],
)
def test_a_word_names_a_file_of_the_folder_or_none(word, name):
    """A path that leads out of the folder names nothing in it."""
    assert file_name(word) == name


def test_a_link_out_of_the_folder_is_no_file_of_it(tmp_path):
    """What a link leads to outside is not copied with the workflow."""
    (tmp_path / "secret").write_text("#!/bin/sh\n", encoding="utf-8")
    folder = workflow(tmp_path, "[{on: decision, run: [./secret]}]")
    (folder / "secret").symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidDocument, match="not found in the workflow's folder"):
        Workspace(tmp_path / "projects").start("Barrels", user="ann", workflow=str(folder))


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"#!/bin/sh", ["/bin/sh"]),
        (b"#!/usr/bin/env python3\r", ["/usr/bin/env", "python3"]),
        (b"#! /bin/bash -e -u", ["/bin/bash", "-e -u"]),
        (b"#!", []),
        (b"\xff\xfe", []),
        (b"", []),
    ],
)
def test_the_first_line_of_a_script_names_its_program(first, words):
    """The program and at most one argument, as the kernel reads it."""
    assert interpreter(first + b"\nrest\n") == words


def test_a_program_is_looked_up_in_path():
    """A word without a slash is a program of PATH, whatever lies in the folder."""
    assert find_fault(Hook("decision", ("true",)), {}) is None
    assert find_fault(Hook("decision", ("note.py",)), {"note.py": b"#!/bin/sh\n"}) == "program 'note.py' not found"
    assert os.sep in shutil.which("true")
