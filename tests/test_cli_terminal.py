"""Nothing that is printed contains control or bidirectional characters, whoever wrote what is printed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import unicodedata

import pexpect
import pytest

from haytham.cli.context import sanitize
from support.cli_runner import command, environment, haytham, process, session_folder, workflow

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
EVIL = "\x1b[2J\x1b]0;owned\x07\x9b2J\x85\r\x7f\b" + BIDI
LINE = "\x9b2J" + BIDI  # what a line of a document may hold
SHOWN = BIDI  # what a name in a workflow may hold


def unsafe(text, allowed="\n\t"):
    """The characters of a text that could change what a terminal shows."""
    odd = {char for char in text if unicodedata.category(char) == "Cc" and char not in allowed}
    return sorted(odd | set(BIDI) & set(text) | {char for char in text if "\ud800" <= char <= "\udfff"})


def test_what_is_taken_out_is_control_and_direction_and_nothing_else():
    """Of all characters, those that could change what a terminal shows go; a half of one is shown as unreadable."""
    text = "".join(map(chr, range(0x110000)))
    shown = sanitize(text)
    assert unsafe(shown) == []
    kinds = {unicodedata.category(char) for char in set(text) - set(shown) - set(BIDI)}
    assert kinds <= {"Cc", "Cs", "Zl", "Zp"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A folder in which everybody who writes something writes what is hostile to a terminal."""
    folder = tmp_path_factory.mktemp("hostile")
    source = workflow(folder, ["one", "two", "three"], model=f'"command:{sys.executable} agent.py"', name="mine\u202e")
    text = (source / "workflow.yaml").read_text(encoding="utf-8")
    for name in ("One", "Two", "Three"):
        text = text.replace(f"name: {name},", f'name: "MARK {name} {SHOWN}",')
    (source / "workflow.yaml").write_text(text, encoding="utf-8")
    for path in source.glob("agents/*.md"):
        path.write_text(
            path.read_text("utf-8").replace("---\nname", f'---\ndescription: "MARK {SHOWN}"\nname'), "utf-8"
        )
    agent = f"import sys\nfails = 'three' in sys.stdin.read().lower()\nsaid = {'# MARK' + EVIL!r}\n"
    (folder / "agent.py").write_text(f"{agent}sys.exit(said) if fails else print(said)\n", encoding="utf-8")
    words = ("run", f"MARK {EVIL} idea", "--workflow", source, "--name", "rain", "--user", "ann")
    assert haytham(*words, cwd=folder).code == 3
    assert haytham("approve", "-m", f"MARK {EVIL}", cwd=folder).code == 0
    assert haytham("resume", "--input", f"MARK {EVIL}", cwd=folder).code == 3
    assert haytham("request-changes", "-m", f"MARK{EVIL}", "--change", f"MARK {BIDI}", cwd=folder).code == 0
    assert haytham("resume", cwd=folder).code == 3
    return folder


def commands():
    """Commands that look, decide, run, fail, fork and go back; each with words that are hostile where it takes any."""
    evil = f"MARK {EVIL}"
    yield from (["status"], ["list"], ["show", "1"], ["show", "2", "--task"], ["show", "2", "--attempt", "1"], ["cost"])
    yield from (["cost", "--all"], ["agents"], ["agents", "--workflow", "mine\u202e"], ["prompt", "2"], ["validate"])
    yield from (["graph", "mine\u202e"], ["graph", "--mermaid"], ["graph", evil])
    yield from (
        ["status", evil],
        ["show", evil],
        ["show", "1", evil],
        ["resume", evil],
        ["diff", evil],
        ["restore", evil],
    )
    yield from ([evil], ["approve", evil], ["run", "x", "--mode", evil], ["run", "x", "--workflow", evil], ["-C", evil])
    yield from (["run", f"{evil}.md".replace(" ", "")], ["run", "x", "--model", evil], ["run", "x", "--project", evil])
    yield from (
        ["snapshot", "-m", f"MARK {BIDI}"],
        ["checkpoints"],
        ["checkpoints", "--all"],
        ["diff", "1"],
        ["diff", "1", "2"],
    )
    yield from (["show", "--at", "1"], ["show", "--at", "1", "--path", evil], ["diff", "1", "--stat"], ["verify"])
    yield from (["pin", "1"], ["unpin", "1"], ["fork", "--name", f"f{SHOWN}", "--purpose", f"MARK {BIDI}"], ["list"])
    yield from (["fork", "--name", "plain", "--purpose", f"MARK {BIDI}"], ["merge", "plain", "--phase", "1"])
    yield from (["discard", "plain"], ["discard", "plain", "--yes"], ["approve", "-m", evil], ["resume"], ["resume"])
    yield from (["status"], ["retry", "3"], ["cost"], ["recover"], ["restore", "1"], ["resume", "--max-tokens", evil])
    yield from (["skip", "3", "-m", evil], ["approve", "--user", f"MARK{BIDI}"], ["resume"], ["doctor"], ["prune"])
    yield from (["reject", "1", "-m", evil], ["status"], ["validate", evil], ["init", evil.replace("/", "")])


@pytest.mark.parametrize("option", [[], ["--json"]], ids=str)
def test_no_command_prints_what_a_terminal_acts_on(hostile, tmp_path, option):
    """Whatever is printed, as text or as JSON, in answers, progress and errors: it is harmless."""
    here = shutil.copytree(hostile, tmp_path / "here")
    printed = ""
    for words in commands():
        answer = haytham(*words, *option, cwd=here)
        assert unsafe(answer.out + answer.err) == [], words
        printed += answer.out + answer.err
        if option and answer.out:
            assert isinstance(json.loads(answer.out), dict), words
    assert printed.count("MARK") > 50


def test_json_escapes_what_it_does_not_change(hostile):
    """Control, direction and half characters come back from JSON as they are in the files."""
    answer = haytham("show", "1", "one", "--json", cwd=hostile)
    assert answer.json["texts"]["one"].startswith("# MARK" + EVIL)
    assert unsafe(answer.out, allowed="\n") == []
    assert "\\u202e" in answer.out
    assert "\\u009b" in answer.out
    assert "\\u007f" in answer.out


NAMES = {
    "escape": b"ev\x1b[2Jil",
    "direction": "ev\u202eil".encode(),
    "line": b"ev\nil/x  completed",
    "bytes": b"ev\xffil",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_the_name_of_a_folder_is_printed_harmless(hostile, tmp_path, name):
    """A session or project folder with a name from elsewhere and an empty manifest is listed in a line of its own."""
    here = shutil.copytree(hostile, tmp_path / "here")
    name = name.replace(b"/", b" ")
    for place in (f"rain/sessions/{os.fsdecode(name)}", f"{os.fsdecode(name)}/sessions/s"):
        (here / "projects" / place).mkdir(parents=True)
        (here / "projects" / place / "session_manifest.md").touch()
    for words in (
        ["list"],
        ["validate"],
        ["doctor"],
        ["status", "ev"],
        ["status"],
        ["resume"],
        ["checkpoints", "--all"],
        ["cost", "--all"],
    ):
        for option in ([], ["--json"]):
            answer = haytham(*words, *option, cwd=here)
            assert unsafe(answer.out + answer.err) == [], words
            assert "\nil x" not in answer.out + answer.err, words
    listed = haytham("list", "--json", cwd=here).json["sessions"]
    assert haytham("list", cwd=here).out.count("\n") - 1 == len(listed) >= 2  # below a line of titles
    assert os.fsdecode(name) in [row["session"] for row in listed]


def test_a_traceback_is_printed_harmless(hostile):
    """`--debug` shows where an error comes from, and nothing that a terminal acts on."""
    words = command("status", f"MARK {EVIL}".replace("\0", ""), "--debug")
    done = subprocess.run(
        words, cwd=hostile, env=environment(hostile), capture_output=True, encoding="utf-8", check=False
    )
    assert ("Traceback" in done.stderr, "MARK" in done.stderr, unsafe(done.stderr)) == (True, True, [])


def test_words_are_completed_with_harmless_names_only(hostile, tmp_path):
    """A name that a terminal would act on is not offered."""
    here = shutil.copytree(hostile, tmp_path / "here")
    (here / "projects/rain/sessions" / "ev\x1b[2Jil\u202e").mkdir()
    answer = process(cwd=here, _HAYTHAM_COMPLETE="bash_complete", COMP_WORDS="haytham status ", COMP_CWORD="2")
    assert (session_folder(hostile).name in answer.out, unsafe(answer.out)) == (True, [])


def test_the_live_view_and_the_prompt_are_harmless(hostile, tmp_path):
    """At a terminal, too: what agents, people and workflows say reaches the screen without what it acts on."""
    here = shutil.copytree(hostile, tmp_path / "here")
    first, *rest = command("retry", "2")
    child = pexpect.spawn(
        first, rest, cwd=str(here), env=environment(here), encoding="utf-8", timeout=40, dimensions=(200, 100)
    )
    child.expect(r"\[a,e,r,m,d,v,o,s,x,q,\?\]")
    said = child.before
    child.sendline("q")
    child.expect(pexpect.EOF)
    said += child.before
    own = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # what draws the live view
    assert unsafe(own.sub("", said), allowed="\n\t\r") == []
    assert "\x1b[2J" not in said
    assert "]0;owned" in said


def test_a_warning_of_any_library_is_printed_harmless(tmp_path):
    """What other packages log is a sentence like our own."""
    code = "import logging, sys; from haytham.cli.app import root; sys.argv = ['haytham', 'list']\n"
    code += "try: root(['list'])\nexcept SystemExit: pass\nlogging.getLogger('other').warning('MARK \\x1b[2J \\u202e')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, encoding="utf-8", check=True)
    assert ("MARK" in done.stderr, unsafe(done.stderr)) == (True, [])
