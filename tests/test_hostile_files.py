"""A folder from elsewhere, or a person's slip, can at worst fail validation: it hangs, kills and hides nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from itertools import pairwise

import pytest

from haytham import CheckpointManager, FileStore, ProjectManager
from haytham.config.workflow import WorkflowFiles
from haytham.markdown.parser import parse
from haytham.markdown.renderer import render
from haytham.markdown.schema import load_schema
from haytham.session import SessionDocuments
from haytham.session.validate import validate_tree
from support.cli_runner import command, environment, process
from support.make_golden import drawn

IDS = ("p", "s")
PHASE = "phase_1_concept"


@pytest.fixture
def manager(tmp_path):
    made = CheckpointManager(tmp_path)
    made.create_session(*IDS, "u")
    return made


@pytest.fixture
def folder(tmp_path, manager):
    return tmp_path / "p" / "sessions" / "s"


def bomb(key):
    """Front matter that unfolds to a billion words, the last of them under a key."""
    names = "abcdefghi"
    laughs = (f"{name}: &{name} [{', '.join(['*' + last] * 10)}]" for last, name in pairwise(names))
    return "\n".join(["a: &a [x, x, x, x, x, x, x, x, x, x]", *laughs, f"{key}: *i"])


@pytest.mark.parametrize(
    "front",
    [
        "x: " + "[" * 50_000,
        "x: " + "[" * 15_000,
        "x: " + "- " * 7_000,
        bomb("haytham"),
        "haytham: checkpoint/1\n" + bomb("newlines"),
        "haytham: checkpoint/1\n" + bomb("save_counter"),
        "haytham: checkpoint/" + "9" * 5_000,
        "haytham: checkpoint/\u0661",
        "haytham: checkpoint/1\nsaved: 100.0",
        "haytham: checkpoint/1\n" + "".join(f"k{n}: 1\n" for n in range(1_500)),
        "- haytham",
        "",
    ],
    ids=lambda front: front[:24],
)
def test_hostile_front_matter_is_reported(front):
    """Front matter that is deep, endless, huge or not ours is a problem, not a crash and not a wait."""
    text = drawn("checkpoint", "completed")
    assert parse(load_schema("checkpoint"), f"---\n{front}\n{text[text.index('---', 3) :]}").faults


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n## Metadata", "\n" + "<!--" * 1_000_000 + "\n\n## Metadata"),
        ("## Next Phase", "## Next Phase\n" * 300_000),
        ("- Status: completed", "- Status: " + "\\" * 5_000_000),
        ("- Phase Number: 1", "- Phase Number: " + "1" * 5_000_000),
        ("| 15000 |", "|" * 2_000_000),
    ],
    ids=["comments", "headings", "backslashes", "digits", "pipes"],
)
def test_five_megabytes_of_nonsense_are_reported(old, new):
    """Megabytes of what looks like structure are read in one go, and reported."""
    assert parse(load_schema("checkpoint"), drawn("checkpoint", "completed").replace(old, new, 1)).problems


@pytest.mark.parametrize(
    "text",
    ["## Action Taken" + " " * 2_000_000 + "x", "#" * 2_000_000, "[" * 2_000_000, "```\n" * 500_001, "\\" * 2_000_000],
    ids=["blanks", "hashes", "brackets", "fences", "backslashes"],
)
def test_megabytes_of_comments_come_back(manager, text):
    """What a person or an agent may write is stored and read in one go, however much it looks like structure."""
    manager.save_user_feedback(*IDS, 1, reviewed=True, approved=False, comments=text)
    kind = load_schema("user_feedback")
    path = manager.base_dir / "p" / "sessions" / "s" / PHASE / "user_feedback.md"
    assert parse(kind, path.read_bytes()).value["comments"] == text


def test_many_tools_are_read_in_one_go():
    """A list of eighty thousand tools comes back."""
    kind = load_schema("agent_output")
    value = dict(parse(kind, drawn("agent_output", "completed")).value) | {"tools_used": ["a, b", "tool"] * 40_000}
    assert parse(kind, render(kind, value)).value == value


@pytest.mark.parametrize("heading", ["", "### Errors\n", "## errors\n", "## Errors:\n"])
def test_a_lost_heading_loses_no_errors(manager, folder, heading):
    """Errors whose heading was damaged are missed, by the front matter, and no save draws over them."""
    manager.save_agent_output(*IDS, 1, "a", "t", input_tokens=1, output_tokens=2)
    agents = [{"agent_name": "a", "status": "failed"}]
    manager.save_checkpoint(*IDS, 1, "failed", agents, errors=["disk full"])
    path = folder / PHASE / "checkpoint.md"
    path.write_text(path.read_text(encoding="utf-8").replace("## Errors\n", heading), encoding="utf-8")
    with pytest.raises(ValueError, match="Errors: the section is missing"):
        manager.load_session(*IDS)
    manager.save_agent_output(*IDS, 1, "a", "t", input_tokens=7, output_tokens=9)
    assert "disk full" in path.read_text(encoding="utf-8")


def test_a_persons_note_is_never_drawn_over(manager, folder, caplog):
    """Text that has no seat in a manifest stays where it is, the log says so, and the session goes on."""
    path = folder / "session_manifest.md"
    noted = path.read_text(encoding="utf-8").replace("## Current Phase", "A note of mine\n\n## Current Phase")
    path.write_text(noted, encoding="utf-8")
    manager.save_checkpoint(*IDS, 1, "completed", [])
    assert path.read_text(encoding="utf-8") == noted
    assert "A note of mine" in caplog.text
    assert manager.load_session(*IDS)["completed_phases"] == [1]


def test_a_change_to_what_is_shown_is_reported_before_it_is_drawn_anew(manager, folder, caplog):
    """What a person changed in a shown part is named, with what is so, when it is drawn anew."""
    manager.save_checkpoint(*IDS, 1, "completed", [])
    for path, old, new in (
        (folder / "session_manifest.md", "- Can Resume: true", "- Can Resume: false"),
        (folder / PHASE / "checkpoint.md", "# Phase Checkpoint: Concept Expansion", "# Phase Checkpoint: Lunch"),
    ):
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), "utf-8")
        manager.save_checkpoint(*IDS, 1, "completed", [])
        assert old in path.read_text(encoding="utf-8")
    assert "Current Phase / Can Resume: shows False, and is True" in caplog.text
    assert "title: shows 'Lunch', and is 'Concept Expansion'" in caplog.text
    caplog.clear()
    manager.save_agent_output(*IDS, 1, "a", "t")
    manager.save_checkpoint(*IDS, 1, "failed", [])
    assert caplog.text == ""


def _fifo(path):
    path.unlink()
    os.mkfifo(path)


def _loop(path):
    path.unlink()
    path.symlink_to(path)


def _swap(old, new):
    return lambda path: path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")


DEEP = "## User Preferences\n- a: `" + "[" * 900 + "]" * 900 + "`"
HARM = {
    "fifo": _fifo,
    "loop": _loop,
    "link": lambda path: (path.unlink(), path.symlink_to("/etc/hostname")),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "other id": _swap("- Project ID: bad", "- Project ID: ../x"),
    "version": _swap("project/1", "project/" + "9" * 5000),
    "sessions link": lambda path: (path.parent / "sessions").symlink_to("/etc"),
    "bytes": lambda path: path.write_bytes(b"\xff\xfe"),
    "deep": _swap("## User Preferences\n-", DEEP),
    "backslash": lambda path: path.parent.rename(path.parent.parent / "a\\b"),
    "newline": lambda path: path.parent.rename(path.parent.parent / "a\nb"),
}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_one_bad_project_hides_no_other(tmp_path, harm, caplog):
    """Whatever lies in one project's folder, the others are listed and the log names the bad one."""
    projects = ProjectManager(tmp_path)
    for name in ("good", "bad"):
        projects.create_project("u", "idea", project_name=name)
    harm(tmp_path / "bad" / "project.md")
    assert [project["project_id"] for project in projects.list_user_projects("u")] == ["good"]
    assert "a project cannot be read" in caplog.text or not (tmp_path / "bad" / "project.md").is_file()


def test_preferences_within_each_other_have_an_end(tmp_path):
    """Preferences too deep to come back are refused, and nothing is written."""
    projects = ProjectManager(tmp_path)
    projects.create_project("u", "idea", project_name="p")
    deep = 1
    for _ in range(900):
        deep = [deep]
    with pytest.raises(ValueError, match="within each other"):
        projects.update_user_preferences("p", {"a": deep})
    assert projects.get_user_preferences("p") == {}


@pytest.mark.parametrize("number", [10**16, 10**399, 10**5000, 1e300], ids=["16", "399", "5000", "float"])
def test_a_number_beyond_sense_is_refused(manager, number):
    """A number that no sum could hold is a ValueError, and the session goes on."""
    with pytest.raises(ValueError, match=r"allowed: (1000000000000000 or less|a number of at most 400 digits)"):
        manager.save_checkpoint(*IDS, 1, "completed", [], duration=number)
    manager.save_checkpoint(*IDS, 2, "completed", [], duration=1.5)


def test_a_copied_or_renamed_project_is_noticed(tmp_path, caplog):
    """A project folder that was copied by hand is named, not taken for the other one."""
    projects = ProjectManager(tmp_path)
    projects.create_project("u", "idea", project_name="p")
    shutil.copytree(tmp_path / "p", tmp_path / "copy")
    with pytest.raises(ValueError, match="found 'p'; allowed: 'copy', by the place of the file"):
        projects.get_project_status("copy")
    assert [project["project_id"] for project in projects.list_user_projects("u")] == ["p"]


def test_a_review_copied_to_another_phase_approves_nothing(manager, folder):
    """Output and feedback that were copied from another phase are named, and approve nothing."""
    manager.save_agent_output(*IDS, 1, "a", "t")
    manager.save_user_feedback(*IDS, 1, reviewed=True, approved=True)
    for name in ("a.md", "user_feedback.md"):
        shutil.copy(folder / PHASE / name, folder / "phase_3_niche_selection" / name)
    with pytest.raises(ValueError, match="by the place of the file"):
        manager.get_approved_phases(*IDS)


def test_the_agents_own_file_is_the_home_of_what_it_says(manager, folder):
    """Whatever a caller's row or an earlier output said, the ledger shows what the agent's file says now."""
    manager.save_agent_output(*IDS, 1, "a", "t", status="failed", input_tokens=10, output_tokens=20, duration=5)
    row = {"agent_name": "a", "status": "completed", "tokens": 99, "cost": 0.5}
    manager.save_checkpoint(*IDS, 1, "failed", [row])
    checkpoint = folder / PHASE / "checkpoint.md"
    assert "| a | failed | a.md | 30 | 10 | 20 | $0.5 | 5s |" in checkpoint.read_text(encoding="utf-8")
    manager.save_agent_output(*IDS, 1, "a", "t2", input_tokens=1000)
    assert "| a | completed | a.md | - | 1000 | - | $0.5 | - |" in checkpoint.read_text(encoding="utf-8")
    output = folder / PHASE / "a.md"
    output.write_text(output.read_text("utf-8").replace("- Input Tokens: 1000", "- Input Tokens: 7"), "utf-8")
    assert manager.validate_checkpoint(*IDS, 1) == (True, [])
    notes = [str(problem) for problem in validate_tree(FileStore(manager.base_dir)).problems if problem.derived]
    assert any("Agent Ledger: shows" in note for note in notes)


def test_a_trace_that_looks_like_the_output_hides_no_tokens(manager, folder):
    """A line of a stack trace that begins like the heading of the output is not taken for it."""
    trace = "x\n## Output of the tool\ny"
    error = {"status": "failed", "error_type": "E", "stack_trace": trace}
    manager.save_agent_output(*IDS, 1, "a", "t", input_tokens=10, output_tokens=20, **error)
    manager.save_checkpoint(*IDS, 1, "failed", [{"agent_name": "a", "status": "failed"}])
    assert "| a | failed | a.md | 30 |" in (folder / PHASE / "checkpoint.md").read_text(encoding="utf-8")


def test_line_ends_of_a_whole_file_end_no_approval(manager, folder):
    """An output that holds CRLF itself keeps its approval when all line ends of its file are converted."""
    manager.save_agent_output(*IDS, 1, "a", "x\r\ny")
    manager.save_user_feedback(*IDS, 1, reviewed=True, approved=True)
    path = folder / PHASE / "a.md"
    path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))
    assert manager.get_phase_outputs(*IDS, [1]) == {1: {"a": "x\r\ny"}}
    assert manager.get_approved_phases(*IDS) == [1]


def test_a_lost_manifest_is_not_reinvented(manager, folder):
    """Where documents of a session lie, create_session does not make another one over them."""
    manager.save_checkpoint(*IDS, 1, "completed", [])
    (folder / "session_manifest.md").unlink()
    with pytest.raises(FileNotFoundError, match="haytham doctor rebuilds it"):
        manager.create_session(*IDS, "mallory")
    assert not (folder / "session_manifest.md").exists()


@pytest.mark.parametrize(
    "comments",
    [
        "```python\nfoo()",
        "~~~",
        "see [foo]\n\n[foo]: http://x.example",
        "##  Action  Taken",
        "## Action\tTaken",
        "## &#65;ction Taken",
    ],
)
def test_a_formatter_over_odd_comments_breaks_no_review(manager, folder, comments):
    """Comments with an open fence, a link's target or a disguised heading survive the real mdformat with the rest."""
    import mdformat

    manager.save_user_feedback(*IDS, 1, reviewed=True, approved=False, comments=comments)
    path = folder / PHASE / "user_feedback.md"
    before = parse(load_schema("user_feedback"), path.read_bytes()).value
    after = parse(
        load_schema("user_feedback"), mdformat.text(path.read_text("utf-8"), extensions={"gfm", "frontmatter"})
    )
    assert after.problems == ()
    assert {**after.value, "comments": comments} == before


def test_an_address_in_angle_brackets_is_the_address():
    """A linter that puts an address in angle brackets changes no value."""
    text = drawn("project", "plain").replace("- User ID: user-123", "- User ID: <jane@example.com>")
    assert parse(load_schema("project"), text).value["user_id"] == "jane@example.com"


@pytest.mark.parametrize("change", [("version: 2\n", ""), ("metrics: '{", "metrics: '!")])
def test_a_closed_session_says_all_of_it(change):
    """A manifest that says it is closed and not with what, or with what is no JSON, is reported."""
    assert parse(load_schema("session_manifest"), drawn("session_manifest", "closed").replace(*change)).faults


@pytest.mark.parametrize("base", [None, 3, "a\0b", b"x"])
def test_a_base_folder_is_a_path(base):
    """What is no path of a folder is a ValueError."""
    with pytest.raises(ValueError, match="base folder"):
        CheckpointManager(base)


def test_a_base_folder_is_no_file(tmp_path):
    """A base folder that is a file is a ValueError."""
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(ValueError, match="this is a file"):
        ProjectManager(tmp_path / "file")


def test_a_file_in_the_way_of_a_project_is_stepped_around(tmp_path):
    """A project whose slug is the name of a plain file gets the next id."""
    (tmp_path / "readme").write_text("x", encoding="utf-8")
    assert ProjectManager(tmp_path).create_project("u", "i", project_name="readme")["project_id"] == "readme_1"


def test_paths_outlive_a_change_of_folder(tmp_path, monkeypatch):
    """What create_session returns is there after the process went elsewhere."""
    monkeypatch.chdir(tmp_path)
    path = CheckpointManager("projects").create_session(*IDS, "u")
    monkeypatch.chdir("/")
    assert path.is_dir()


# Workflows from elsewhere, beside a session of one's own.

SMALL = "name: evil\nphases:\n- {number: 1, name: One, slug: one, agents: [a]WHEN}\nmodes: {all: [1]}\n"
LOOPS = (
    "---\nhaytham: {retries: 0}\n---\n{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}\n"
)
EVIL = {
    "a tower of powers": ({"WHEN": ', when: "9**(9**(9**9)) > 1"'}, "Write.\n", "workflow.yaml:3: phase 1: when: "),
    "a long condition": ({"WHEN": ", when: \"'a' * 10**11 == 'b'\""}, "Write.\n", "workflow.yaml:3: phase 1: when: "),
    "loops": ({"WHEN": ""}, LOOPS, "agents/a.md:4: the limit of 100,000 steps is exceeded"),
    "a long text": ({"WHEN": ""}, '---\n---\n{{ "a" * 10**11 }}', "agents/a.md:3: the limit of 10,000,000 characters"),
    "a macro that calls itself": (
        {"WHEN": ""},
        "{% macro m() %}{{ m() }}{% endmacro %}\n{{ m() }}",
        "agents/a.md:1: calls are nested more than 30 deep",
    ),
}


def evil_session(base, changes, agent):
    """A session of a hostile workflow, made as another machine would have made it."""
    yaml = SMALL
    for old, new in changes.items():
        yaml = yaml.replace(old, new)
    source = WorkflowFiles("evil", {"workflow.yaml": yaml.encode(), "agents/a.md": agent.encode()})
    SessionDocuments(FileStore(base), "evil", "evil").create(user_id="mallory", source=source, mode="all")


@pytest.mark.parametrize("name", EVIL)
def test_a_hostile_workflow_is_refused_with_file_and_line_and_hides_no_other_session(tmp_path, name):
    """To run it is exit 6 at once; every command goes on with the other sessions."""
    changes, agent, said = EVIL[name]
    evil_session(tmp_path / "projects", changes, agent)
    assert process("run", "Lend rain barrels", "--name", "good", cwd=tmp_path).code == 3
    refused = process("resume", "evil/evil", cwd=tmp_path)
    assert (refused.code, said in refused.err) == (6, True), refused
    assert "good/" in process("list", cwd=tmp_path).out
    assert process("status", "good", cwd=tmp_path).code == 0
    assert process("approve", "-s", "good", cwd=tmp_path).code == 0


@pytest.mark.parametrize("place", ["workflow.yaml", "agents/a.md"])
def test_an_alias_bomb_is_refused_with_file_and_line_and_hides_no_other_session(tmp_path, place):
    """A workflow or an agent's file that unfolds to a billion words is exit 6 at once, in every command."""
    evil_session(tmp_path / "projects", {"WHEN": ""}, "Write.\n")
    assert process("run", "Lend rain barrels", "--name", "good", cwd=tmp_path).code == 3
    (path,) = tmp_path.glob(f"projects/evil/workflows/*/{place}")
    front = bomb("haytham")
    path.write_text(f"---\n{front}\n---\n" if place.endswith(".md") else front, encoding="utf-8")
    for words in (("list",), ("doctor", "evil/evil"), ("validate",), ("resume", "evil/evil"), ("agents", "evil/evil")):
        answer = process(*words, cwd=tmp_path)
        reads_no_agent = words[0] in ("list", "doctor")
        assert answer.code == (0 if place.endswith(".md") and reads_no_agent else 6), (words, answer)
    (tmp_path / "mine" / "agents").mkdir(parents=True)
    (tmp_path / "mine" / "workflow.yaml").write_text(SMALL.replace("WHEN", ""), encoding="utf-8")
    (tmp_path / "mine" / "agents" / "a.md").write_text("Write.\n", encoding="utf-8")
    (tmp_path / "mine" / place).write_bytes(path.read_bytes())
    for words in (
        ("validate", "mine"),
        ("run", "Lend ladders", "--workflow", "mine"),
        ("agents", "--workflow", "mine"),
    ):
        answer = process(*words, cwd=tmp_path)
        assert (answer.code, "has the alias *a; allowed: no aliases" in answer.out + answer.err) == (6, True), answer


def test_a_template_cannot_keep_a_run_from_ctrl_c(tmp_path):
    """A signal that comes while a hostile template is rendered ends the run within seconds, if its limit has not."""
    evil_session(tmp_path / "projects", {"WHEN": ""}, LOOPS)
    words = command("resume", "evil/evil", "--no-input")
    running = subprocess.Popen(words, cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.DEVNULL)
    runner = tmp_path / "projects" / ".haytham" / "locks" / "evil" / "sessions" / "evil" / ".runner"
    try:
        while running.poll() is None and not runner.exists():  # which is written just before the template is rendered
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        assert running.wait(20) in (6, 130)
    finally:
        running.kill()
        running.wait()
