"""`status`, `list` and `show`: what a person sees at a glance, also where a file cannot be read. They write nothing."""

from __future__ import annotations

import shutil

import pytest

from support.cli_runner import IDEA, edit, frozen, haytham, session_folder


@pytest.fixture(scope="module")
def second_gate(tmp_path_factory):
    """A folder with a session that waits in phase 2."""
    folder = tmp_path_factory.mktemp("second_gate")
    haytham("run", IDEA, "--name", "Rain barrels", cwd=folder)
    haytham("approve", "-m", "Go on", cwd=folder)
    assert haytham("resume", cwd=folder).code == 3
    return folder


def state(folder):
    """Every file and folder with its bytes and the time of its last change."""
    found = sorted(folder.rglob("*"))
    return [(path, path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None) for path in found]


GLANCE = """\
session rain_barrels/<session>: waiting

  1  Concept Expansion  approved by ann at <time>
  2  Market Research    waits for review
  3  Niche Selection    pending
  6  Validation         pending
  7  Final Synthesis    pending

next: haytham review 2, or haytham approve 2 && haytham resume
"""


def test_status_says_it_at_a_glance(second_gate):
    """Phases with their status, who approved when, the open gate and the command that answers it."""
    answer = haytham("status", cwd=second_gate)
    assert (answer.code, frozen(answer.out), answer.err) == (0, GLANCE, "")


def test_looking_writes_nothing(second_gate):
    """`status`, `list`, `show` and `validate` leave every file, folder and time as it is."""
    before = state(second_gate / "projects")
    for words in ("status", "list", "show", "validate", "show 1 --task"):
        assert haytham(*words.split(), cwd=second_gate).code == 0
    assert state(second_gate / "projects") == before


def test_nothing_is_made_where_there_is_nothing(tmp_path):
    """Without a session `list` says how to start one, `status` exits 2, and no folder is made."""
    assert haytham("list", cwd=tmp_path).out == "there is no session in projects/; start one with: haytham run IDEA\n"
    assert haytham("status", cwd=tmp_path).code == 2
    assert list(tmp_path.iterdir()) == []


def test_status_says_what_is_stale_and_why(here):
    """An edited text opens its approval again; what builds on other ground is stale, with the part that changed."""
    concept = session_folder(here) / "phase_1_concept" / "concept_expansion.md"
    edit(concept, "Lend rain barrels", "Lease rain barrels")
    lines = haytham("status", cwd=here).out.split("\n")
    assert lines[2] == "  1  Concept Expansion  waits for review: the text has changed since"
    haytham("approve", cwd=here)
    lines = frozen(haytham("status", cwd=here).out).split("\n")
    assert lines[2].startswith("  1  Concept Expansion  approved by ann at <time>")
    assert lines[3].startswith("  2  Market Research    stale")
    assert "phase 1: concept_expansion" in lines[3]
    assert lines[-2] == "next: haytham resume"


def test_a_change_to_what_is_only_shown_is_told_before_it_is_drawn_anew(here):
    """Who edits the manifest's Status is told by the next command that writes; an edit of a home is no such news."""
    session = session_folder(here)
    edit(session / "phase_2_market_research" / "user_feedback.md", "- Approved: -", "- Approved: true")
    answer = haytham("resume", "-q", cwd=here)
    assert (answer.code, answer.err) == (3, "")
    edit(session / "session_manifest.md", "- Status: waiting", "- Status: completed")
    assert "session_manifest.md:" in haytham("approve", cwd=here).err


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("phase_1_concept/checkpoint.md", "- Status: completed", "- Status: banana"),
        ("phase_1_concept/user_feedback.md", "- Approved: true", "- Approved: maybe"),
        ("phase_1_concept/concept_expansion.md", "## Output", "## Outpud"),
    ],
)
def test_one_unreadable_file_hides_no_other(here, file, old, new):
    """With one file that cannot be read `status` shows the rest, names file and line, and exits 6."""
    edit(session_folder(here) / file, old, new)
    answer = haytham("status", cwd=here)
    assert answer.code == 6
    assert "  1  Concept Expansion  unreadable\n  2  Market Research    completed, waits for review\n" in answer.out
    assert f"{file}:" in answer.err
    assert haytham("status", "--json", cwd=here).json["problems"] != []


@pytest.mark.parametrize("is_lost", [True, False])
def test_not_even_the_manifest_hides_the_rest(here, is_lost):
    """With a manifest that is lost or cannot be read `status` and `list` say so, show what is there, and exit 6."""
    manifest = session_folder(here) / "session_manifest.md"
    manifest.unlink() if is_lost else manifest.write_text("mine\n", encoding="utf-8")
    for words in ("status", "list"):
        answer = haytham(words, cwd=here)
        assert (answer.code, "unreadable" in answer.out, "session_manifest.md" in answer.err) == (6, True, True)
    assert "phase_2_market_research" in haytham("status", cwd=here).out


def test_one_unreadable_session_hides_no_other(here):
    """`list` shows every session, those that cannot be read as that."""
    first = session_folder(here)
    shutil.copytree(first, first.parent / "copy")
    answer = haytham("list", cwd=here)
    assert answer.code == 6
    assert [line.split()[:2] for line in answer.out.splitlines()] == [
        ["session", "status"],
        [f"rain_barrels/{first.name}", "waiting"],
        ["rain_barrels/copy", "unreadable"],
    ]


def test_show_gives_a_text_as_it_is(second_gate):
    """One agent's text is given alone, to be piped on; those of a phase each under its name."""
    one = haytham("show", "2", "market_intelligence", cwd=second_gate).out
    assert one.startswith("# Market Research: market intelligence\n")
    both = haytham("show", cwd=second_gate).out
    assert [line for line in both.split("\n") if line.startswith("--- ")] == [
        "--- competitor_analysis",
        "--- market_intelligence",
    ]
    assert haytham("show", "2", "--json", cwd=second_gate).json["texts"]["market_intelligence"] == one


def test_control_characters_never_reach_the_terminal(here):
    """What an agent or a file says cannot move the cursor or set a title."""
    concept = session_folder(here) / "phase_1_concept" / "concept_expansion.md"
    edit(concept, "## The idea", "## The \x1b]0;owned\x07\x1b[31midea\u202e")
    said = haytham("show", "1", cwd=here).out
    assert "## The ]0;owned[31midea\n" in said
