"""Reviewers of a phase: a guard against mistakes, not against somebody who calls themselves another name."""

from __future__ import annotations

import pexpect
import pytest

from haytham import CheckpointManager, Phase, Workflow, Workspace
from haytham.errors import InvalidDocument, NotReviewer
from support.cli_runner import IDEA, command, edit, environment, haytham, session_folder

REFUSED = "haytham: phase 1 is for ann or bob to decide on, and you are cat; nothing was decided\n"
UNBOUND = "the decision in user_feedback.md of phase 1 does not count yet: it is for ann or bob to make"
WAITS = "phase 1, One, waits for review by ann or bob: haytham review, or haytham approve && haytham resume\n"
WORKFLOW = """
name: small
phases:
  - {number: 1, name: One, slug: one, agents: [worksheet], reviewers: [ann, bob]}
  - {number: 2, name: Two, slug: two, agents: [worksheet], needs: [1]}
modes: {all: [1, 2]}
"""


@pytest.fixture
def here(tmp_path):
    """A folder with a session that waits for ann or bob."""
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "workflow.yaml").write_text(WORKFLOW, encoding="utf-8")
    answer = haytham("run", IDEA, "--workflow", "small", cwd=tmp_path, HAYTHAM_USER="cat")
    assert (answer.code, answer.out.endswith(WAITS)) == (3, True)
    return tmp_path


def type_approval(here):
    """Approve the first phase as somebody does in an editor."""
    edit(session_folder(here) / "phase_1_one" / "user_feedback.md", "- Approved: -", "- Approved: true")


@pytest.mark.parametrize("words", [["approve"], ["reject"], ["skip", "1"], ["request-changes", "-m", "Shorter."]])
def test_a_decision_of_somebody_else_is_refused(here, words):
    """Whatever somebody else decides on a phase with reviewers is exit 2, and changes nothing."""
    feedback = session_folder(here) / "phase_1_one" / "user_feedback.md"
    before = feedback.read_bytes()
    answer = haytham(*words, cwd=here, HAYTHAM_USER="cat")
    assert (answer.code, answer.err, feedback.read_bytes()) == (2, REFUSED, before)


def test_anyway_does_not_make_a_reviewer(here):
    """`--anyway` waives stale phases, and not who may decide."""
    assert haytham("approve", "--anyway", cwd=here, HAYTHAM_USER="cat").code == 2


def test_each_reviewer_may_decide(here):
    """One of the reviewers is enough; a phase without reviewers is anybody's."""
    assert haytham("approve", cwd=here, HAYTHAM_USER="bob").out == "phase 1, One: approved by bob\n"
    assert haytham("resume", cwd=here, HAYTHAM_USER="cat").code == 3
    assert haytham("approve", cwd=here, HAYTHAM_USER="cat").out == "phase 2, Two: approved by cat\n"


def test_yes_stops_where_others_review(here):
    """`--yes` approves in the name of who runs, so it waits at a phase that is for others."""
    answer = haytham("resume", "--yes", cwd=here, HAYTHAM_USER="cat")
    assert (answer.code, answer.out) == (3, WAITS)
    assert haytham("resume", "--yes", cwd=here, HAYTHAM_USER="ann").code == 0


def test_a_typed_decision_of_somebody_else_is_told_and_binds_nothing(here):
    """A decision typed into the file stays unbound, and the next commands say so; a reviewer's command binds it."""
    type_approval(here)
    assert UNBOUND in haytham("status", cwd=here, HAYTHAM_USER="cat").out
    told = haytham("resume", cwd=here, HAYTHAM_USER="cat")
    assert (told.code, told.out) == (3, WAITS)
    assert UNBOUND in told.err
    assert haytham("approve", cwd=here, HAYTHAM_USER="cat").out == f"{UNBOUND}\n"
    assert Workspace(here / "projects").session().review(1).by is None
    assert "phase 1: approved by ann" in haytham("resume", cwd=here, HAYTHAM_USER="ann").err


def test_a_decision_that_a_program_saves_stays_unbound(here):
    """`save_user_feedback` stores what it is given; without a name it is no reviewer's, and nothing is approved."""
    folder = session_folder(here)
    manager, ids = CheckpointManager(here / "projects"), (folder.parent.parent.name, folder.name)
    manager.save_user_feedback(*ids, 1, True, True, comments="Go on.")
    assert manager.get_approved_phases(*ids) == []
    assert "Go on." in (folder / "phase_1_one" / "user_feedback.md").read_text(encoding="utf-8")
    assert UNBOUND in haytham("status", cwd=here).out


def test_reviewers_are_shown(here):
    """Status and the end of a run name the reviewers, in words and in JSON; so does the review in Python."""
    assert "1  One  waits for review by ann or bob\n" in haytham("status", cwd=here).out
    assert haytham("status", "--json", cwd=here).json["phases"][0]["reviewers"] == ["ann", "bob"]
    assert haytham("resume", "--json", cwd=here).json["reviewers"] == ["ann", "bob"]
    assert Workspace(here / "projects").session().review(1).reviewers == ("ann", "bob")


def test_reviewers_of_a_workflow_built_in_python(tmp_path):
    """`Phase(reviewers=…)` means the same, and its session keeps it."""
    workflow = Workflow("small", phases=[Phase("One", agents=["worksheet"], reviewers=["bob"])])
    session = Workspace(tmp_path / "projects").start(IDEA, workflow=workflow, user="ann")
    session.run()
    with pytest.raises(NotReviewer, match="phase 1 is for bob to decide on, and you are ann"):
        session.approve(by="ann")
    assert session.approve(by="bob").by == "bob"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"reviewers": ["ann"], "review": "none"}, "phase 1 has review: none; allowed: one of the two"),
        ({"reviewers": ["ann", "ann"]}, r"found \['ann', 'ann'\]; allowed: each once"),
        ({"reviewers": [""]}, "should be non-empty"),
        ({"reviewers": [7]}, "found 7; allowed: text"),
        ({"reviewers": "ann\nbob"}, "does not match"),
    ],
)
def test_reviewers_that_cannot_be_are_refused(given, fault):
    """Reviewers are different names of one line, of a phase that is reviewed."""
    with pytest.raises(InvalidDocument, match=fault):
        Workflow("small", phases=[Phase("One", agents=["worksheet"], **given)])


def test_who_may_not_decide_is_not_asked_in_a_terminal(here):
    """A run in a terminal asks a reviewer at the gate; for anybody else it ends there and says who decides."""
    for user, shown in (("bob", "phase 1 [a,"), ("cat", WAITS.strip())):
        first, *rest = command("resume", "--user", user)
        child = pexpect.spawn(first, rest, cwd=str(here), env=environment(here), encoding="utf-8", timeout=20)
        child.setwinsize(50, 200)
        child.expect_exact(shown)
        if user == "bob":
            child.sendline("q")
        child.expect(pexpect.EOF)
        child.wait()
        assert child.exitstatus == 3
