"""The command line as a whole: help, options before and after a command, mistakes, and which session is meant."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click import Context

from haytham import __version__
from haytham.cli.app import root
from support.cli_runner import IDEA, command, environment, frozen, haytham, process, session_folder

COMMANDS = ["run", "resume", "status", "list", "show", "review", "approve", "request-changes", "reject", "skip"]
COMMANDS += ["retry", "validate", "doctor", "init", "checkpoints", "snapshot", "restore", "recover", "fork", "diff"]
COMMANDS += ["merge", "session", "pin", "unpin", "delete", "prune", "verify", "cost", "config", "agents", "prompt"]
COMMANDS += ["work", "undo", "stats", "log"]


@pytest.fixture(scope="module")
def waiting(tmp_path_factory):
    """A folder with a session that waits in phase 1."""
    folder = tmp_path_factory.mktemp("waiting")
    assert haytham("run", IDEA, "--name", "Rain barrels", "--no-input", cwd=folder).code == 3
    return folder


@pytest.fixture
def here(waiting, tmp_path):
    """A copy of that folder."""
    return Path(shutil.copytree(waiting, tmp_path / "here"))


def another(here, name):
    """Another session beside the first, made as a person would, by copying it."""
    first = session_folder(here) if len(list(here.glob("projects/*/sessions/*"))) == 1 else None
    assert first is not None
    copy = Path(shutil.copytree(first, first.parent / name))
    manifest = copy / "session_manifest.md"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace(first.name, name), encoding="utf-8")
    return first.name


def test_the_version_is_told_before_click_is_imported(tmp_path):
    """`--version` tells the version, and imports nothing that it does not need."""
    assert process("--version", cwd=tmp_path).out == f"haytham {__version__}\n"
    program = (
        "import sys; sys.argv[1:] = ['--version']; from haytham.cli import main; main(); print('click' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.endswith("False\n")


def test_help_loads_nothing_that_draws_or_judges():
    """Neither rich nor jsonschema nor Jinja is imported for help."""
    program = "import sys; sys.argv[1:] = ['--help']\nfrom haytham.cli import main\ntry:\n    main()\nfinally:\n"
    program += "    print([name for name in ('rich', 'jsonschema', 'jinja2', 'asyncio') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.endswith("[]\n")


def test_help_says_what_there_is(tmp_path):
    """Help names every command, has examples in lines of their own, the exit codes, and how to complete words."""
    for arguments in (("--help",), ()):
        answer = process(*arguments, cwd=tmp_path)
        said = answer.out + answer.err
        assert [name for name in COMMANDS if f"\n  {name} " not in said] == []
        assert '\n    haytham run "Lend rain barrels to gardens" --name "Rain barrels"\n' in said
        assert "5 budget reached, 6 a file does not validate, 7 locked" in said
        assert "_HAYTHAM_COMPLETE=bash_source haytham" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name):
    """Each command explains itself in lines that click leaves alone, with an example."""
    found = root.get_command(Context(root), name)
    said = found.get_help(Context(found, info_name=f"haytham {name}", help_option_names=["-h", "--help"]))
    assert re.search(rf"\n  Examples?:\n    .*haytham {name}", said)
    assert "--json" in said


def test_words_are_completed(here):
    """The shell's completion knows commands, and the ids of sessions."""
    asked = {"_HAYTHAM_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    assert "plain,status" in process(cwd=here, COMP_WORDS="haytham st", **asked).out
    asked["COMP_CWORD"] = "2"
    assert session_folder(here).name in process(cwd=here, COMP_WORDS="haytham resume ", **asked).out


def test_options_stand_before_a_command_or_after_it(here):
    """`--json`, `--quiet` and `-C` mean the same on both sides of a command."""
    before, after = haytham("--json", "status", cwd=here), haytham("status", "--json", cwd=here)
    assert before == after
    assert (after.json["kind"], after.json["version"], after.json["status"]) == ("status", 1, "waiting")
    assert haytham("-C", here, "list", cwd=here.parent) == haytham("list", "-C", here, cwd=here.parent)


def test_a_mistake_is_one_object_with_json(here):
    """With `--json` a mistake is one object on standard output, too, with its exit code."""
    answer = haytham("approve", "9", "--json", cwd=here)
    assert (answer.code, answer.json["kind"], answer.json["exit_code"]) == (2, "error", 2)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("statu", "there is no command 'statu'; did you mean status?"),
        ("frobnicate", "there is no command 'frobnicate'"),
        ("approve one", "'one' is no number of a phase"),
        ("approve 9", "phase: found 9; allowed: 1, 2, 3, 6, 7"),
        ("approve 2", "phase 2 has nothing to decide on: it has not run to its end"),
        ("request-changes", "say what is to change: -m COMMENTS or --change TEXT"),
        ("show 1 nobody", "phase 1, Concept Expansion, has no output of 'nobody'; name one of concept_expansion"),
        ("show 2", "phase 2, Market Research, has no output yet"),
        ("show 1 --attempt 7", "phase 1 has no attempt 7; name one of 1 to 1"),
        ("status nothing", "no session matches 'nothing'"),
        ("run", "there is no idea; say it in a sentence"),
        ("run idae.md", "there is no file idae.md"),
        ("run projects", "projects is a folder"),
        ("run x --mode fast", "execution mode: found 'fast'; allowed: mvp, full"),
        ("run x --model gpt", "model: found 'gpt'; allowed: human, worksheet"),
        ("run x --workflow nowhere", "workflow type: found 'nowhere'"),
        ("run x --project nowhere", "there is no project 'nowhere'"),
        ("run x --project rain_barrels", "project rain_barrels has another idea"),
        ("-C nowhere status", "Invalid value for '-C': Directory 'nowhere' does not exist"),
        ("status --frobnicate", "No such option '--frobnicate'; more: haytham status --help"),
        ("init projects", "projects is there already and not an empty folder"),
        ("validate nowhere", "nowhere is not there"),
    ],
)
def test_a_mistake_gets_one_sentence(waiting, words, sentence):
    """Whatever is mistyped: exit 2, one sentence that says what to do, no traceback, and nothing is made."""
    before = sorted(waiting.rglob("*"))
    answer = haytham(*words.split(), cwd=waiting)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"haytham: {sentence}")
    assert sorted(waiting.rglob("*")) == before


def test_debug_shows_where_a_mistake_comes_from(here):
    """With `--debug` the traceback is there, and the sentence."""
    done = subprocess.run(
        command("approve", "9", "--debug"),
        cwd=here,
        env=environment(here),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert "Traceback" in done.stderr
    assert "haytham: phase: found 9" in done.stderr


def test_the_only_session_is_meant_else_the_only_one_that_waits(here):
    """Commands that act take the only session, else the only one that waits; else exit 2 with the list."""
    first = another(here, "second")
    answer = haytham("approve", cwd=here)
    assert answer.code == 2
    assert f"  rain_barrels/{first}  waiting\n  rain_barrels/second  waiting" in answer.err
    assert haytham("approve", "-s", "second", cwd=here).out == "phase 1, Concept Expansion: approved by ann\n"
    answer = haytham("approve", cwd=here)
    assert (answer.code, first in haytham("list", cwd=here).out) == (0, True)
    assert haytham("resume", cwd=here).code == 2


def test_a_folder_with_nothing_in_it_is_no_session(here):
    """What a start that was killed left behind, folders without a document, is neither listed nor chosen."""
    (session_folder(here).parent / "begun" / "phase_1_concept").mkdir(parents=True)
    assert "begun" not in haytham("list", cwd=here).out
    assert haytham("approve", cwd=here).code == 0


def test_a_folder_of_a_strange_name_hides_no_session(here):
    """A name that no project can have is passed over, one that no session can have is told; the others are there."""
    (here / "projects" / "we\\ird").mkdir()
    first, strange = session_folder(here), session_folder(here).parent / "o\\dd"
    strange.mkdir()
    answer = haytham("list", cwd=here)
    assert (answer.code, answer.out.splitlines()[-1].split()[:2]) == (6, ["rain_barrels/o\\dd", "unreadable"])
    assert haytham("status", cwd=here).code == 0
    assert haytham("checkpoints", first.name, cwd=here).code == 0


def test_a_session_is_named_by_any_unique_part_of_its_id(here):
    """A part of an id will do where it fits one session, as an argument or with -s; a whole id always does."""
    another(here, "second")
    assert haytham("status", "econ", "--json", cwd=here).json["session"] == "second"
    assert haytham("status", "-s", "econ", "--json", cwd=here).json["session"] == "second"
    answer = haytham("status", "rain", cwd=here)
    assert (answer.code, "2 sessions match 'rain'" in answer.err) == (2, True)


def test_with_several_sessions_the_command_to_go_on_names_the_one(here):
    """What to do next can be typed as it is printed: with more than one session it names the session."""
    first = another(here, "second")
    said = haytham("status", first, cwd=here).out
    assert f"haytham approve 1 -s {first} && haytham resume {first}" in said


def test_who_decides_is_said_else_found(here):
    """`--user`, else HAYTHAM_USER, else git's user.email is recorded as who."""
    first = another(here, "second")
    (here / "gitconfig").write_text("[user]\nemail = eve@example.org\n", encoding="utf-8")
    found = {"HAYTHAM_USER": "", "GIT_CONFIG_GLOBAL": str(here / "gitconfig")}
    said = {first: haytham("approve", "-s", first, "--user", "bob", cwd=here)}
    said["second"] = haytham("approve", "-s", "second", cwd=here, **found)
    for name, by in ((first, "bob"), ("second", "eve@example.org")):
        assert said[name].out == f"phase 1, Concept Expansion: approved by {by}\n"
        feedback = here / f"projects/rain_barrels/sessions/{name}/phase_1_concept/user_feedback.md"
        assert f"\nby: {by}\n" in feedback.read_text(encoding="utf-8")


def git_user(here, name):
    """An environment in which nobody is named but by git."""
    path = here / f"{name}.gitconfig"
    path.write_text(f"[user]\nemail = {name}@example.org\n", encoding="utf-8")
    return {"HAYTHAM_USER": "", "GIT_CONFIG_GLOBAL": str(path)}


def test_who_started_the_session_with_user_signs_later(tmp_path):
    """`run --user ann` signs later decisions of whoever git takes for the same person, and of nobody else."""
    ann, bob = git_user(tmp_path, "ann"), git_user(tmp_path, "bob")
    haytham("run", IDEA, "--user", "Ann", "--no-input", cwd=tmp_path, **ann)
    assert haytham("approve", cwd=tmp_path, **ann).out == "phase 1, Concept Expansion: approved by Ann\n"
    assert haytham("approve", "1", "-m", "I agree.", cwd=tmp_path, **bob).out.endswith("approved by bob@example.org\n")
    named = {**ann, "HAYTHAM_USER": "ann_from_the_shell"}
    assert haytham("approve", "1", "-m", "Yes.", cwd=tmp_path, **named).out.endswith("approved by ann_from_the_shell\n")
    assert "ann@example.org" not in (session_folder(tmp_path) / "session_manifest.md").read_text(encoding="utf-8")


def test_every_command_that_signs_remembers_who_started_the_session(tmp_path):
    """`resume`, `retry`, `--yes`, `resume --input` and a rebuilt manifest name who `run --user` named."""
    ann = git_user(tmp_path, "ann")
    haytham("run", IDEA, "--user", "Ann", "--no-input", cwd=tmp_path, **ann)
    session = session_folder(tmp_path)
    for words in ("resume --no-input", "retry 1 --no-input", "resume --no-input --input Lyon"):
        for feedback in session.glob("phase_*/user_feedback.md"):
            text = feedback.read_text(encoding="utf-8")
            feedback.write_text(text.replace("- Approved: -", "- Approved: true"), encoding="utf-8")
        haytham(*words.split(), cwd=tmp_path, **ann)
    (session / "session_manifest.md").unlink()
    assert haytham("doctor", cwd=tmp_path, **ann).code == 0
    assert haytham("resume", "--yes", "--no-input", cwd=tmp_path, **ann).code == 0
    signed = [line for path in session.rglob("user_feedback.md") for line in path.read_text().split("\n")]
    assert {line for line in signed if line.startswith("by: ")} == {"by: Ann"}


def test_init_copies_the_workflow_for_editing(tmp_path):
    """`init` copies the built-in workflow; what it made validates, and runs."""
    answer = haytham("init", "mine", cwd=tmp_path)
    assert answer.out == "edit mine/workflow.yaml and mine/agents/, then: haytham run IDEA --workflow mine\n"
    assert haytham("validate", "mine", cwd=tmp_path).err == "19 documents, 0 problems\n"
    answer = haytham("run", IDEA, "--workflow", "mine/workflow.yaml", "--json", cwd=tmp_path)
    assert (answer.code, answer.json["status"], answer.json["phase"]) == (3, "waiting", 1)
    assert json.loads(answer.err.split("\n")[0])["event"] == "phase_started"


def test_quiet_says_only_what_was_asked_for(here):
    """`--quiet` leaves out progress; the answer of the command stays."""
    haytham("approve", cwd=here)
    answer = haytham("resume", "-q", cwd=here)
    assert (answer.code, answer.err) == (3, "")
    said = "phase 2, Market Research, waits for review: haytham review, or haytham approve && haytham resume\n"
    assert frozen(answer.out) == said
