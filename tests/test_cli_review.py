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
(path,) = [Path(word) for word in sys.argv if word.endswith(".md")]
turn = len(list(seen.glob(f"*-{path.name}")))
(seen / f"{len(list(seen.iterdir()))}-{path.name}").write_text(path.read_text())
for name, old, new in TURNS[min(turn, len(TURNS) - 1)]:
    if path.name == name:
        path.write_text(path.read_text().replace(old, new))
"""
KEYS = r"\[a,e,r,m,d,v,o,s,x,q,\?\]: $"


def opened(here):
    """The files that the editor was given, in order."""
    return [path.name.partition("-")[2] for path in sorted((here / "seen").iterdir())]


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
    """The command in a terminal without colours."""
    first, *rest = command(*words)
    changes = {"NO_COLOR": "1", **changes}
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
    assert opened(here) == ["concept_expansion.md", FEEDBACK]
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
    assert opened(here) == ["concept_expansion.md", FEEDBACK, FEEDBACK]
    seen = (here / "seen" / f"2-{FEEDBACK}").read_text(encoding="utf-8").split("\n")
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
    assert "found 'so so'" in (here / "seen" / f"1-{FEEDBACK}").read_text(encoding="utf-8")


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


def test_the_gate_shows_the_page_and_takes_keys(here):
    """The page is shown, then answered: Enter asks again, a slip shows the keys, quit pauses."""
    child = terminal(here, "resume")
    child.expect("# Concept Expansion")
    child.expect("claims: 0 with a source, 6 assumptions")
    child.expect("file: .*concept_expansion.md")
    child.expect(r"approving starts phase 2, Market Research: market_intelligence,\s+competitor_analysis \(free\)")
    child.expect(KEYS)
    child.sendline("")
    for typed, told in (("z", "'z' is none of the keys"), ("?", "a  approve the page as it is")):
        child.expect(KEYS)
        child.sendline(typed)
        child.expect(told)
    child.sendline("a")
    child.expect(r"phase 1: approved")
    child.expect(r"phase 2, Market Research")
    child.expect(KEYS)
    child.sendline("q")
    said, code = ended(child)
    assert (code, "paused; nothing was decided" in said) == (3, True)


def request(here, text):
    """An editor that writes a request for changes at the top of the file it is given."""
    (here / "request.py").write_text(
        f"import sys\nfrom pathlib import Path\npath = Path(sys.argv[-1])\n"
        f"Path('form').write_text(path.read_text())\npath.write_text({text!r} + path.read_text())\n",
        encoding="utf-8",
    )
    return f"{sys.executable} request.py"


def test_changes_are_requested_in_an_editor(here):
    """The request is above the scissors, the numbered page below; the next attempt shows it with what changed."""
    line = request(here, "Name one city\n\n12: whose day?\n")
    child = terminal(here, "resume", EDITOR=line)
    child.expect(KEYS)
    child.sendline("r")
    child.expect("phase 1: changes requested")
    child.expect("you asked for:")
    child.expect("- Name one city")
    child.expect(r"- concept_expansion.md, line 12: whose day\? \(the line: \"## Problem\"\)")
    child.expect("what changed since the last decision")
    child.expect(KEYS)
    child.sendline("q")
    assert ended(child)[1] == 3
    form = (here / "form").read_text(encoding="utf-8")
    assert "\n  12  ## Problem\n" in form.partition(">8")[2]


def test_an_empty_request_asks_for_nothing(here):
    """A request that is saved empty starts no attempt: the gate stays open."""
    child = terminal(here, "resume", EDITOR=request(here, "\n"))
    child.expect(KEYS)
    child.sendline("r")
    child.expect("the request is empty: no changes were requested")
    child.expect(KEYS)
    child.sendline("q")
    assert ended(child)[1] == 3
    assert "- Action: pending" in feedback(here)


def test_a_request_names_the_agent_that_is_to_change(here):
    """Where several agents wrote, one may be named; a slip is told, and Enter means all."""
    haytham("approve", cwd=here)
    child = terminal(here, "resume", EDITOR=request(here, "Name one city\n"))
    for name, words in (("competitor_analysis", "changes requested of competitor_analysis"), ("", "changes requested")):
        if name:
            child.expect(KEYS)
            child.sendline("r")
            child.expect(r"which agent, of market_intelligence, competitor_analysis \(Enter: all\)")
            child.sendline("nobody")
            child.expect("'nobody' is none of market_intelligence, competitor_analysis")
        child.expect(KEYS)
        child.sendline("r")
        child.expect(r"which agent, of market_intelligence, competitor_analysis \(Enter: all\)")
        child.sendline(name)
        child.expect(rf"phase 2: {words}\r\n")
    child.expect(KEYS)
    child.sendline("q")
    assert ended(child)[1] == 3


@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_ctrl_c_and_ctrl_d_pause(here, key):
    """At the prompt Ctrl-C and Ctrl-D pause: exit 3, and nothing is decided."""
    before = feedback(here)
    child = terminal(here, "resume")
    child.expect(KEYS)
    child.send(key)
    said, code = ended(child)
    assert (code, "paused; nothing was decided" in said) == (3, True)
    assert feedback(here) == before


@pytest.mark.parametrize(
    ("key", "question", "code"), [("x", "reject the idea", 4), ("s", "skip phase 1", 3)], ids=["reject", "skip"]
)
def test_rejecting_and_skipping_ask_once_more(here, key, question, code):
    """`x` and `s` decide nothing until a second answer; no is the default."""
    child = terminal(here, "resume")
    for sure in ("", "y"):
        child.expect(KEYS)
        child.sendline(key)
        child.expect(question)
        child.sendline(sure)
    if key == "s":
        child.expect("phase 1: skipped")
        child.expect(KEYS)
        child.sendline("q")
    assert ended(child)[1] == code


def test_a_comment_is_stored_at_once_and_goes_with_the_decision(here):
    """`m` writes the comment to the feedback, where it stays if nothing is decided; an approval takes it along."""
    child = terminal(here, "resume")
    child.expect(KEYS)
    child.sendline("m")
    child.expect("comment")
    child.sendline("Mind the frost.")
    child.expect(KEYS)
    assert "Mind the frost." in feedback(here)
    child.sendline("v")
    child.expect("comment: Mind the frost.")
    child.expect(KEYS)
    child.sendline("a")
    child.expect(KEYS)
    child.sendline("q")
    assert (ended(child)[1], "Mind the frost." in feedback(here), "Approved: true" in feedback(here)) == (3, True, True)


def test_another_phase_can_be_looked_at(here):
    """`o` lists the phases and goes to the one that is named; a number that is none is told."""
    haytham("approve", cwd=here)
    haytham("resume", "--no-input", cwd=here)
    child = terminal(here, "review")
    child.expect(KEYS)
    child.sendline("o")
    child.expect("3  Niche Selection")
    child.sendline("9")
    child.expect("'9' is no phase of this session")
    child.expect(KEYS)
    child.sendline("o")
    child.sendline("1")
    child.expect("# Concept Expansion")
    child.expect(r"phase 1 \[")
    child.sendline("q")
    assert ended(child)[1] == 0


def test_edit_at_the_gate_opens_the_page_and_asks_again(here):
    """`e` opens the output alone, at its content; what a person edited is shown as words, and approved with it."""
    turns = editor(here, [("concept_expansion.md", "\n## Problem\n", "\n## The problem\n")])
    child = terminal(here, "resume", EDITOR=turns)
    child.expect(KEYS)
    child.sendline("e")
    child.expect(KEYS)
    child.sendline("d")
    child.expect(r"what changed since the page was presented")
    child.expect(r"## \{\+The \+\}\[-P-\]|The problem")
    child.expect(KEYS)
    child.sendline("a")
    child.expect(r"approved \(you edited: \+1 -1\)")
    child.expect(KEYS)
    child.sendline("q")
    assert ended(child)[1] == 3
    assert opened(here) == ["concept_expansion.md"]


def test_hostile_outputs_are_shown_harmless(here):
    """A page keeps no control character of an agent; HTML, comments and hidden links of it can be seen."""
    path = session_folder(here) / "phase_1_concept" / "concept_expansion.md"
    text = path.read_text(encoding="utf-8")
    hostile = "\x1b]0;owned\x07\n<!-- approve this -->\n<b>bold</b>\n\n[hidden]: https://evil.example 'title'\n"
    path.write_text(text + hostile, encoding="utf-8")
    child = terminal(here, "resume")
    child.expect(KEYS)
    assert "\x1b]0;" not in child.before
    for part in ("]0;owned", "<!-- approve this -->", "<b>bold</b>", "https://evil.example"):
        assert part in child.before
    child.sendline("q")
    assert ended(child)[1] == 3


def test_a_long_page_goes_through_the_pager(here):
    """A page that is longer than the screen is shown in $PAGER, and the prompt comes below it."""
    pager = f"{sys.executable} -c \"import sys; print('PAGER', len(sys.stdin.read()) > 1000)\""
    first, *rest = command("resume")
    given = {"cwd": str(here), "encoding": "utf-8", "timeout": 20, "dimensions": (24, 80)}
    child = pexpect.spawn(first, rest, env=environment(here, PAGER=pager), **given)
    child.expect("PAGER True")
    child.expect(KEYS)
    child.sendline("q")
    assert ended(child)[1] == 3


def test_a_page_that_a_person_writes_is_opened_at_the_gate(tmp_path):
    """A phase that waits for a page opens it in the editor, and the run goes on once it is written."""
    workflow(tmp_path, ["one", "two"], model="human")
    turns = editor(tmp_path, [("one.md", "## Output\n", "## Output\n\nMy own page.\n")])
    child = terminal(tmp_path, "run", IDEA, "--workflow", "mine", EDITOR=turns)
    child.expect(r"to write: .*one.md")
    child.expect(r"phase 1 \[e,v,o,s,x,q,\?\]")
    child.sendline("e")
    child.expect("phase 1: written")
    child.expect(KEYS)
    child.sendline("a")
    child.expect(r"phase 2 \[e,v,o,s,x,q,\?\]")
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
    child.expect("contract: 1 fault\r\n  concept_expansion: Problem: found 19 characters")
    child.expect(KEYS)
    child.sendline("e")
    child.expect("found 19 characters")
    child.expect(KEYS)
    child.sendline("a")
    child.expect("phase 1: approved")
    child.expect(KEYS)
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


@pytest.mark.parametrize("typed", ["a\r", "a", "z\ra\ra\r", "m\ra\r", "x\ry\r"])
def test_what_was_typed_before_the_prompt_decides_nothing(tmp_path, typed):
    """Keys typed while an agent runs are discarded: nobody approves or rejects a page that they have not seen."""
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    workflow(tmp_path, ["one", "two"], model="python:slow:write")
    child = terminal(tmp_path, "run", IDEA, "--workflow", "mine")
    until(tmp_path / "started")
    child.send(typed)
    time.sleep(0.5)  # until the terminal has it
    (tmp_path / "go").touch()
    child.expect(KEYS)
    child.sendline("q")
    said, code = ended(child)
    assert (code, "paused; nothing was decided" in said) == (3, True)
    phase = session_folder(tmp_path) / "phase_1_one"
    assert "- Action: pending" in (phase / FEEDBACK).read_text(encoding="utf-8")
    assert not (phase / "attempts").exists()


def test_lines_pasted_after_a_slip_decide_nothing(here):
    """A slip at the prompt discards what was pasted with it, before the question is asked again."""
    child = terminal(here, "resume")
    child.expect(KEYS)
    child.send("Name one city.\ra\r")
    child.expect("is none of the keys")
    child.expect(KEYS)
    child.sendline("q")
    assert (ended(child)[1], "- Action: pending" in feedback(here)) == (3, True)


def test_input_that_is_no_terminal_is_never_taken_for_an_answer(here):
    """Piped input is neither asked for nor read: the run stops at the gate, exit 3."""
    answer = process("resume", cwd=here, stdin="a\na\na\n")
    assert (answer.code, "waits for review" in answer.out, "[a,e,r" in answer.out) == (3, True, False)
    assert "- Action: pending" in feedback(here)


def test_no_input_never_asks(here):
    """`--no-input` at a terminal stops at the gate without a prompt."""
    said, code = ended(terminal(here, "resume", "--no-input"))
    assert (code, "[a,e,r" in said) == (3, False)


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
    child.expect(KEYS)
    child.sendline("q")
    said, code = ended(child)
    assert (code, "horse-battery" in said) == (3, False)
