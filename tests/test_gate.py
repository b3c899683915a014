"""The gate: what a decision says of the texts, what it makes of a mended page, and who is asked for changes."""

from __future__ import annotations

import pytest

import scripted
from haytham.checkpoint.checkpoint_manager import CheckpointManager
from haytham.session.problems import inspect
from haytham.session.standing import summarize
from scripted import Desk, called


@pytest.fixture(autouse=True)
def _anew():
    scripted.forget()


@pytest.fixture
def desk(tmp_path):
    """A session of four phases that waits in the first."""
    made = Desk(tmp_path)
    assert made.resume() == ("waiting", 1)
    return made


def output(desk, number, agent):
    return desk.session.read().outputs(desk.phase(number))[agent].value


def checkpoint(desk, number):
    return desk.session.read().checkpoint(desk.phase(number)).value


# What was changed by hand.


@pytest.mark.parametrize("looked", [False, True], ids=["at once", "gate opened in between"])
def test_a_page_restored_to_the_agents_words_is_approved_without_changes(desk, looked):
    """What counts is the text that is approved: the agent's exact words are no change, whatever stood there before."""
    words = desk.text(1, "a")
    desk.edit(1, "a", words + "\nA line of mine.")
    assert desk.approve(1) == "approved with changes, +1 -0"
    desk.edit(1, "a", words)
    if looked:
        desk.resume()
    assert desk.approve(1) == "approved"
    assert "revised" not in desk.feedback(1)


def test_a_page_restored_in_an_editor_is_approved_without_changes(desk):
    """The same holds for a decision that is made in the file."""
    words = desk.text(1, "a")
    desk.edit(1, "a", "Mine.")
    desk.approve(1)
    desk.resume()
    desk.edit(1, "a", words)
    desk.resume()
    desk.edit_feedback(1, approved="true")
    desk.resume()
    assert "revised" not in desk.feedback(1)
    assert desk.events("decision")[-1]["decision"] == "approved"


def test_changes_that_were_taken_back_are_not_counted(desk):
    """An edit that was requested with changes and taken back before the approval leaves no trace in it."""
    words = desk.text(1, "a")
    desk.edit(1, "a", words + "\nA line of mine.")
    assert desk.request_changes(1, "Shorter.") == "changes requested with changes, +1 -0"
    desk.edit(1, "a", words)
    assert desk.approve(1) == "approved"
    assert "revised" not in desk.feedback(1)


def test_only_pages_that_are_not_the_agents_count_as_changed(desk):
    """Of two pages, one restored and one still edited, the edited one alone is counted."""
    desk.approve(1)
    desk.resume()
    words = desk.text(2, "b")
    desk.edit(2, "b", "Mine.\nTwo lines.")
    desk.approve(2)
    desk.edit(2, "b", words)
    desk.edit(2, "c", desk.text(2, "c") + "\nA line of mine.")
    assert desk.approve(2) == "approved with changes, +1 -0"


# A page that was mended.


@pytest.fixture
def mended(tmp_path):
    """A session whose first agent failed, and whose page a person wrote then."""
    scripted.failing.add("a")
    made = Desk(tmp_path)
    assert made.resume() == ("failed", 1)
    assert "stack_trace" in output(made, 1, "a")
    made.edit(1, "a", "# a\n\nRepaired.")
    called()
    return made


def approve(desk):
    desk.approve(1)


def approve_in_the_editor(desk):
    desk.gate.open(1)
    desk.edit_feedback(1, approved="true")
    desk.gate.stamp("ann")


def approve_from_python(desk):
    CheckpointManager(desk.base).save_user_feedback("p", "s", 1, reviewed=True, approved=True)


def request_changes(desk):
    desk.request_changes(1, "Shorter.")


@pytest.mark.parametrize("decide", [approve, approve_in_the_editor, approve_from_python, request_changes])
def test_a_decision_on_a_mended_page_completes_the_phase(mended, decide):
    """Once a mended page is decided on nothing says that it failed: not the session, the phase, the page or a trace."""
    decide(mended)
    summary = summarize(mended.session.read())
    assert (summary.status, summary.statuses[1]) == ("in_progress", "completed")
    page, record = output(mended, 1, "a"), checkpoint(mended, 1)
    assert (page["status"], page["text"]) == ("completed", "# a\n\nRepaired.")
    assert not {"error_type", "error_message", "stack_trace"} & page.keys()
    assert ("errors" in record, record["completed"] is None) == (False, False)
    assert [(row["agent_name"], row["status"]) for row in record["ledger"]] == [("a", "completed")]
    assert inspect(mended.session.store).problems == ()
    scripted.failing.clear()
    assert mended.resume() == (("waiting", 1) if decide is request_changes else ("waiting", 2))
    assert called() == (["a"] if decide is request_changes else ["b", "c"])


def test_a_mended_page_that_a_run_takes_up_keeps_no_trace(mended):
    """A run that opens the gate on a mended page takes it as completed, too."""
    assert mended.resume() == ("waiting", 1)
    assert output(mended, 1, "a")["status"] == "completed"
    assert not {"error_type", "error_message", "stack_trace"} & output(mended, 1, "a").keys()


def test_a_page_that_a_person_wrote_is_completed_when_it_is_approved(tmp_path):
    """A page laid out for a person, written and approved: the phase is completed before the next run."""
    desk = Desk(tmp_path, files={"agents/a.md": b"---\nmodel: human\n---\nName three cities.\n"})
    assert desk.resume() == ("waiting", 1)
    desk.edit(1, "a", "Lyon")
    desk.approve(1)
    assert (output(desk, 1, "a")["status"], checkpoint(desk, 1)["status"]) == ("completed", "completed")


def test_a_decision_leaves_a_phase_that_did_not_run_to_its_end_as_it_is(desk):
    """One mended page beside one that still failed: the phase stays failed, and only the other agent runs."""
    desk.approve(1)
    scripted.failing.update("bc")
    assert desk.resume() == ("failed", 2)
    desk.edit(2, "b", "# b\n\nRepaired.")
    desk.gate.open(2)
    desk.edit_feedback(2, approved="true")
    desk.gate.stamp("ann")
    assert checkpoint(desk, 2)["status"] == "failed"
    scripted.failing.clear()
    called()
    desk.resume()
    assert called() == ["c"]
    assert {output(desk, 2, agent)["status"] for agent in "bc"} == {"completed"}


def test_a_phase_that_a_program_saved_as_failed_stays_failed(tmp_path):
    """What a program says of a phase is taken at its word, also where it is approved."""
    manager = CheckpointManager(tmp_path)
    manager.create_session("p", "s", user_id="u")
    manager.save_agent_output("p", "s", 1, "concept_expansion", "Text.")
    manager.save_checkpoint("p", "s", 1, "failed", [], errors=["It broke."])
    manager.save_user_feedback("p", "s", 1, reviewed=True, approved=True)
    assert manager.load_session("p", "s")["phase_statuses"][1] == "failed"
