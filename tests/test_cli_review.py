"""Reviews: in an editor, and at the prompt of a real terminal, where silence is never an answer."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pexpect
import pytest

from support.cli_runner import IDEA, command, environment, haytham, process, session_folder, workflow

EDITOR = """
import sys
from pathlib import Path
seen = Path("seen")
seen.mkdir(exist_ok=True)
turn = len(list(seen.iterdir()))
files = [Path(word) for word in sys.argv if word.endswith(".md")]
(seen / str(turn)).write_text("\\n".join(path.name for path in files) + "\\n" + files[-1].read_text())
for name, old, new in TURNS[min(turn, len(TURNS) - 1)]:
    (path,) = [path for path in files if path.name == name]
    path.write_text(path.read_text().replace(old, new))
"""
FEEDBACK = "user_feedback.md"


@pytest.fixture(scope="module")
def waiting(tmp_path_factory):
    """A folder with a session that waits in phase 1."""
    folder = tmp_path_factory.mktemp("waiting")
    assert haytham("run", IDEA, "--name", "Rain barrels", cwd=folder).code == 3
    return folder


@pytest.fixture
def here(waiting, tmp_path):
    """A copy of that folder."""
    return Path(shutil.copytree(waiting, tmp_path / "here"))


def editor(here, *turns):
    """An editor that replaces text in files, turn by turn, with words of its own like `code --wait`."""
    (here / "editor.py").write_text(f"TURNS = {turns!r}\n{EDITOR}", encoding="utf-8")
    return f"{sys.executable} editor.py --wait"


def feedback(here):
    return (session_folder(here) / "phase_1_concept" / FEEDBACK).read_text(encoding="utf-8")


def terminal(here, *words, **changes):
    """The command in a terminal."""
    first, *rest = command(*words)
    return pexpect.spawn(
        first,
        rest,
        cwd=str(here),
        env=environment(here, **changes),
        encoding="utf-8",
        timeout=20,
        dimensions=(300, 120),
    )


def ended(child):
    """Everything said until the end, and the exit code."""
    child.expect(pexpect.EOF)
    child.wait()
    return child.before, child.exitstatus


def test_a_decision_in_the_editor_counts(here):
    """`review` opens outputs first and the feedback last; what is set there is stamped with who, on the edited text."""
    turn = [
        (FEEDBACK, "Approved: -", "Approved: true"),
        ("concept_expansion.md", "\n## Problem\n", "\n## The problem\n"),
    ]
    answer = haytham("review", cwd=here, EDITOR=editor(here, turn))
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "phase 1: approved (you edited: +1 -1) by ann\n"
    assert (here / "seen" / "0").read_text(encoding="utf-8").startswith("concept_expansion.md\nuser_feedback.md\n")
    assert "\nby: ann\n" in feedback(here)


def test_an_unchanged_file_is_no_decision(here):
    """An editor that saves nothing decides nothing; $VISUAL goes before $EDITOR."""
    before = feedback(here)
    answer = haytham("review", cwd=here, VISUAL=editor(here, []), EDITOR="false")
    assert (answer.code, answer.out.startswith("phase 1: nothing is decided")) == (0, True)
    assert feedback(here) == before


def test_what_does_not_parse_is_opened_again_with_the_error_in_place(here):
    """A fault stands under the title with its line when the file is opened again, and is gone when it is mended."""
    broken = [(FEEDBACK, "Approved: -", "Approved: maybe")]
    mended = [(FEEDBACK, "Approved: maybe", "Approved: true")]
    answer = haytham("review", cwd=here, EDITOR=editor(here, broken, mended))
    assert answer.out == "phase 1: approved by ann\n"
    seen = (here / "seen" / "1").read_text(encoding="utf-8").split("\n")[2:]
    told = next(line for line in seen if "Review Status / Approved: found 'maybe'" in line)
    number = int(told.split("line ")[1].split(":")[0])
    assert seen[number - 1] == "- Approved: maybe"
    assert "cannot read" not in feedback(here)


def test_who_leaves_a_fault_as_it_is_gives_up(here):
    """A fault that is opened again and left is exit 6, with the file as the person left it."""
    broken = [(FEEDBACK, "Action: pending", "Action: rejected"), (FEEDBACK, "Approved: -", "Approved: true")]
    answer = haytham("review", cwd=here, EDITOR=editor(here, broken, []))
    assert (answer.code, "found Approved: true and Action: rejected" in answer.err) == (6, True)
    assert "Action: rejected" in feedback(here)
    assert "cannot read" not in feedback(here)


def test_a_file_that_was_broken_before_is_opened_with_its_error(here):
    """`review` is also the way to mend: it opens a file that cannot be read, with the error in place."""
    path = session_folder(here) / "phase_1_concept" / FEEDBACK
    path.write_text(feedback(here).replace("Approved: -", "Approved: so so"), encoding="utf-8")
    turn = [(FEEDBACK, "Approved: so so", "Approved: true")]
    assert haytham("review", cwd=here, EDITOR=editor(here, turn)).out == "phase 1: approved by ann\n"
    assert "found 'so so'" in (here / "seen" / "0").read_text(encoding="utf-8")


@pytest.mark.parametrize(("said", "code"), [("no-such-editor", 2), ("false", 1)])
def test_an_editor_that_fails_decides_nothing(here, said, code):
    """An editor that is not there or fails is told in a sentence."""
    before = feedback(here)
    answer = haytham("review", cwd=here, EDITOR=said)
    assert (answer.code, answer.err.startswith("haytham: the editor ")) == (code, True)
    assert feedback(here) == before


def test_feedback_deleted_by_hand_is_there_again_to_answer_in(here):
    """`review` presents a phase that waits without a file to answer in."""
    (session_folder(here) / "phase_1_concept" / FEEDBACK).unlink()
    turn = [(FEEDBACK, "Approved: -", "Approved: true")]
    assert haytham("review", cwd=here, EDITOR=editor(here, turn)).out == "phase 1: approved by ann\n"


def test_the_prompt_shows_and_takes_answers(here):
    """Each output is shown, then answered: a slip is asked again, changes start an attempt, quit pauses."""
    child = terminal(here, "resume")
    child.expect("--- concept_expansion")
    child.expect(r"\[a\]pprove, request \[c\]hanges, \[e\]dit, \[r\]eject, \[q\]uit")
    child.sendline("x")
    child.expect("'x' is none of them")
    child.sendline("c")
    child.expect("what is to change")
    child.sendline("Name one city")
    child.expect("what changed since the last review")
    child.expect(r"\r\n\+[^\r]*Name one city")
    child.expect("phase 1:")
    child.sendline("a")
    child.expect(r"phase 2:.*\[q\]uit")
    child.sendline("q")
    said, code = ended(child)
    assert (code, "paused; nothing was decided" in said) == (3, True)


def test_the_prompt_asks_which_agent_is_to_change(here):
    """Where several agents wrote, one may be named; a slip is asked again, and Enter means all."""
    haytham("approve", cwd=here)
    child = terminal(here, "resume")
    for name, words in (("competitor_analysis", "changes requested of competitor_analysis"), ("", "changes requested")):
        child.expect(r"\[q\]uit")
        child.sendline("c")
        child.expect("what is to change")
        child.sendline("Name one city")
        child.expect(r"which agent, of market_intelligence, competitor_analysis \(Enter: all\)")
        if name:
            child.sendline("nobody")
            child.expect("'nobody' is none of market_intelligence, competitor_analysis")
        child.sendline(name)
        child.expect(rf"phase 2: {words}\r\n")
    child.expect(r"\[q\]uit")
    child.sendline("q")
    assert ended(child)[1] == 3


@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_ctrl_c_and_ctrl_d_pause(here, key):
    """At the prompt Ctrl-C and Ctrl-D pause: exit 3, and nothing is decided."""
    before = feedback(here)
    child = terminal(here, "resume")
    child.expect(r"\[q\]uit")
    child.send(key)
    said, code = ended(child)
    assert (code, "paused; nothing was decided" in said) == (3, True)
    assert feedback(here) == before


def test_reject_at_the_prompt_ends_the_session(here):
    """A rejection at the prompt ends the run with exit 4."""
    child = terminal(here, "resume")
    child.expect(r"\[q\]uit")
    child.sendline("reject")
    assert ended(child)[1] == 4


def test_edit_at_the_prompt_decides_or_asks_again(here):
    """The editor at the prompt: nothing decided there asks again, a failing editor is told, a decision goes on."""
    turns = editor(
        here,
        [("concept_expansion.md", "\n## Problem\n", "\n## The problem\n")],
        [(FEEDBACK, "Approved: -", "Approved: true")],
    )
    child = terminal(here, "resume", EDITOR=turns)
    for _ in range(2):
        child.expect(r"\[q\]uit")
        child.sendline("e")
    child.expect(r"approved \(you edited: \+1 -1\) by ann")
    child.expect(r"phase 2:.*\[q\]uit")
    child.sendline("q")
    assert ended(child)[1] == 3


def test_long_and_hostile_outputs_are_shown_short_and_harmless(here):
    """The prompt shows the first 200 lines, without control characters, and says how to see the rest."""
    path = session_folder(here) / "phase_1_concept" / "concept_expansion.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(text + "\x1b]0;owned\x07\n" + "".join(f"row {n}\n" for n in range(300)), encoding="utf-8")
    child = terminal(here, "resume")
    child.expect(r"\[q\]uit")
    assert "\x1b]0;" not in child.before
    assert "]0;owned" in child.before
    assert ("row 100\r\n" in child.before, "row 299" in child.before) == (True, False)
    assert "more lines: haytham show 1 concept_expansion" in child.before
    child.sendline("q")
    assert ended(child)[1] == 3


SHORT = "concept_expansion: Problem: found 19 characters; allowed: text of at least 40 characters"


def answer_briefly(here):
    """Answer the first question of the page in fewer characters than its contract asks for."""
    path = session_folder(here) / "phase_1_concept" / "concept_expansion.md"
    text = path.read_text(encoding="utf-8")
    line = next(line for line in text.split("\n") if line.startswith("Not known yet."))
    path.write_text(text.replace(line, "Anna lost 60 euros.", 1), encoding="utf-8")
    return path


def test_the_gate_says_that_an_answer_is_short(here):
    """Status, the end of a run and an approval name section, length and minimum; the answer stays through attempts."""
    path = answer_briefly(here)
    for _ in range(2):
        haytham("request-changes", "--change", "Go on", cwd=here)
        answer = haytham("resume", cwd=here)
        assert (answer.code, f"haytham: {SHORT}" in answer.err) == (3, True)
        assert "\nAnna lost 60 euros.\n" in path.read_text(encoding="utf-8")
    assert f"\nnote: phase 1: {SHORT}" in haytham("status", cwd=here).out
    (fault,) = haytham("status", "--json", cwd=here).json["phases"][0]["faults"]
    assert fault.startswith(SHORT)
    approved = haytham("approve", cwd=here)
    assert approved.out.startswith("phase 1, Concept Expansion: approved by ann\nnote: " + SHORT)
    assert approved.code == 0
    haytham("resume", cwd=here)
    following = session_folder(here) / "phase_2_market_research" / "market_intelligence.md"
    assert "- Problem (phase 1): Anna lost 60 euros.\n" in following.read_text(encoding="utf-8")
    assert "note:" not in haytham("status", cwd=here).out


def test_the_prompt_at_the_gate_says_that_an_answer_is_short(here):
    """Below the text, and again after an edit that decided nothing."""
    answer_briefly(here)
    child = terminal(here, "resume", EDITOR=editor(here, []))
    child.expect(SHORT)
    child.expect(r"\[q\]uit")
    child.sendline("e")
    child.expect("nothing is decided yet")
    child.expect(SHORT)
    child.expect(r"\[q\]uit")
    child.sendline("a")
    child.expect("phase 1: approved")
    child.expect(r"phase 2:.*\[q\]uit")
    child.sendline("q")
    assert ended(child)[1] == 3


SLOW = """
import asyncio
from pathlib import Path
async def write(task):
    Path("started").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.05)
    return "An answer."
"""


def until(path):
    """Wait until a file is there."""
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("typed", ["a\r", "a", "x\ra\ra\r", "c\ra\r", "r\r"])
def test_what_was_typed_before_the_prompt_decides_nothing(tmp_path, typed):
    """Keys typed while an agent runs are discarded: nobody approves or rejects a page that they have not seen."""
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    workflow(tmp_path, ["one", "two"], model="python:slow:write")
    child = terminal(tmp_path, "run", IDEA, "--workflow", "mine")
    until(tmp_path / "started")
    child.send(typed)
    time.sleep(0.5)  # until the terminal has it
    (tmp_path / "go").touch()
    child.expect(r"phase 1: \[a\]pprove.*\[q\]uit")
    child.sendline("q")
    said, code = ended(child)
    assert (code, "paused; nothing was decided" in said) == (3, True)
    phase = session_folder(tmp_path) / "phase_1_one"
    assert "- Action: pending" in (phase / FEEDBACK).read_text(encoding="utf-8")
    assert not (phase / "attempts").exists()


def test_lines_pasted_after_a_slip_decide_nothing(here):
    """A slip at the prompt discards what was pasted with it, before the question is asked again."""
    child = terminal(here, "resume")
    child.expect(r"\[q\]uit")
    child.send("Name one city.\ra\r")
    child.expect("is none of them")
    child.expect(r"phase 1: \[a\]pprove.*\[q\]uit")
    child.sendline("q")
    assert (ended(child)[1], "- Action: pending" in feedback(here)) == (3, True)


def test_input_that_is_no_terminal_is_never_taken_for_an_answer(here):
    """Piped input is neither asked for nor read: the run stops at the gate, exit 3."""
    answer = process("resume", cwd=here, stdin="a\na\na\n")
    assert (answer.code, "waits for review" in answer.out, "[a]pprove" in answer.out) == (3, True, False)
    assert "- Action: pending" in feedback(here)


def test_no_input_never_asks(here):
    """`--no-input` at a terminal stops at the gate without a prompt."""
    said, code = ended(terminal(here, "resume", "--no-input"))
    assert (code, "[q]uit" in said) == (3, False)


def test_ctrl_c_in_a_live_run_is_told_below_the_view(here):
    """Ctrl-C while agents work exits 130, and the way to go on is the last thing on the screen."""
    (here / "slow.py").write_text(
        "import asyncio\nasync def write(task):\n    await asyncio.sleep(30)\n", encoding="utf-8"
    )
    haytham("approve", cwd=here)
    child = terminal(here, "resume", "--model", "python:slow:write", "--trust")
    child.expect("phase 2, Market Research")
    child.sendintr()
    said, code = ended(child)
    assert (code, said.endswith("haytham: stopped by SIGINT; go on with: haytham resume\r\n")) == (130, True)


def test_no_color_is_heeded(here):
    """With NO_COLOR nothing that a terminal shows is coloured."""
    haytham("approve", cwd=here)
    said, code = ended(terminal(here, "resume", "--no-input", NO_COLOR="1"))
    assert (code, "\x1b[3" in said) == (3, False)


TELLING = """import os, sys, time
sys.stdin.read()
for piece in ("The word is ", os.environ["MY_AUTH"][:5], os.environ["MY_AUTH"][5:], " here.\\n"):
    print(piece, end="", flush=True)
    time.sleep(0.3)
"""


def test_a_secret_in_a_reply_is_not_shown_and_the_prompt_says_so(tmp_path):
    """What an agent tells of the environment scrolls by as ***, and at the gate it is said that it was there."""
    (tmp_path / "telling.py").write_text(TELLING, encoding="utf-8")
    workflow(tmp_path, ["one"], model=f'"command:{sys.executable} telling.py"')
    child = terminal(tmp_path, "run", IDEA, "--workflow", "mine", MY_AUTH="horse-battery")
    child.expect(r"The word is \*\*\* here\.")
    child.expect("one: as it came above")
    child.expect("one: the value of a secret of your environment stood in 1 place of its reply")
    child.expect(r"\[q\]uit")
    child.sendline("q")
    said, code = ended(child)
    assert (code, "horse-battery" in said) == (3, False)
