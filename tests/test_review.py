"""The gate: what a decision says of the texts, what it makes of a mended page, and who is asked for changes."""

from __future__ import annotations

import pytest

from haytham.checkpoint.checkpoint_manager import CheckpointManager
from haytham.errors import InvalidArgument, InvalidDocument
from haytham.session.review import BoundDecision, ReviewGate, save_request
from haytham.session.summary import summarize
from haytham.session.validate import validate_tree
from support import fake_agents
from support.cli_runner import edit
from support.fake_agents import Crash, Desk, Dying, called

PAID = b"---\nmodel: python:support.paid_agents:cheap\nhaytham: {retries: 0}\n---\nWrite.\n"


@pytest.fixture(autouse=True)
def _anew():
    fake_agents.forget()


@pytest.fixture
def desk(tmp_path):
    """A session of four phases that waits in the first."""
    made = Desk(tmp_path)
    assert made.resume() == ("waiting", 1)
    return made


def output(desk, number, agent):
    return desk.session.read().outputs(desk.phase(number))[agent].value.to_value()


def checkpoint(desk, number):
    return desk.session.read().checkpoint(desk.phase(number)).value.to_value()


# What was changed by hand.


@pytest.mark.parametrize("looked", [False, True], ids=["at once", "gate opened in between"])
def test_a_page_restored_to_the_agents_words_is_approved_without_changes(desk, looked):
    """What counts is the text that is approved: the agent's exact words are no change, whatever stood there before."""
    words = desk.text(1, "a")
    desk.edit(1, "a", words + "\nA line of mine.")
    assert desk.approve(1) == BoundDecision(1, "approved", "ann", added=1)
    desk.edit(1, "a", words)
    if looked:
        desk.resume()
    assert desk.approve(1) == BoundDecision(1, "approved", "ann")
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
    assert desk.request_changes(1, "Shorter.") == BoundDecision(1, "changes", "ann", added=1)
    desk.edit(1, "a", words)
    assert desk.approve(1) == BoundDecision(1, "approved", "ann")
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
    assert desk.approve(2) == BoundDecision(2, "approved", "ann", added=1)


# A page that was mended.


@pytest.fixture
def mended(tmp_path):
    """A session whose first agent failed, and whose page a person wrote then."""
    fake_agents.failing.add("a")
    made = Desk(tmp_path)
    assert made.resume() == ("failed", 1)
    assert "stack_trace" in output(made, 1, "a")
    made.edit(1, "a", "# a\n\nRepaired.")
    called()
    return made


def approve(desk):
    desk.approve(1)


def approve_in_the_editor(desk):
    desk.gate.open_review(1)
    desk.edit_feedback(1, approved="true")
    desk.gate.bind_editor_decisions("ann")


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
    assert validate_tree(mended.session.store).problems == ()
    fake_agents.failing.clear()
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
    fake_agents.failing.update("bc")
    assert desk.resume() == ("failed", 2)
    desk.edit(2, "b", "# b\n\nRepaired.")
    desk.gate.open_review(2)
    desk.edit_feedback(2, approved="true")
    desk.gate.bind_editor_decisions("ann")
    assert checkpoint(desk, 2)["status"] == "failed"
    fake_agents.failing.clear()
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


# Changes that one agent is asked for.


@pytest.fixture
def second(desk):
    """A session that waits in its second phase, where two agents wrote side by side; the call log is empty."""
    desk.approve(1)
    assert desk.resume() == ("waiting", 2)
    called()
    return desk


@pytest.fixture
def third(second):
    """A session that waits in its third phase, where one agent wrote after the other."""
    second.approve(2)
    assert second.resume() == ("waiting", 3)
    called()
    return second


def files(desk, number, *names):
    return {name: (desk.folder(number) / name).read_bytes() for name in names}


def name(desk, number, agent):
    """Let a person name an agent in the feedback."""
    edit(
        desk.folder(number) / "user_feedback.md", "\n## Changes Meant For\n-\n", f"\n## Changes Meant For\n- {agent}\n"
    )


def test_only_the_agent_that_is_meant_runs_again(second):
    """The others' outputs and tasks move to the new attempt unchanged, and the one that is left is kept whole."""
    before = files(second, 2, "b.md", "c.md", "tasks/b.md", "tasks/c.md")
    assert second.request_changes(2, "Shorter.", agents=["b"]).agents == ("b",)
    assert second.resume() == ("waiting", 2)
    assert called() == ["b"]
    assert files(second, 2, "c.md", "tasks/c.md") == {name: before[name] for name in ("c.md", "tasks/c.md")}
    assert files(second, 2, *(f"attempts/1/{name}" for name in before)) == {
        f"attempts/1/{name}": data for name, data in before.items()
    }
    assert ("Shorter." in second.task(2, "b"), "Shorter." in second.task(2, "c")) == (True, False)
    assert (second.feedback(2)["attempt"], second.feedback(2)["action"]) == (2, "pending")
    assert [row["document"] for row in second.feedback(2)["reviewed_content"]] == ["b.md", "c.md"]
    second.approve(2)
    assert second.resume() == ("waiting", 3)
    assert called() == ["d", "e"]
    assert validate_tree(second.session.store).problems == ()


def test_each_agent_keeps_the_last_request_that_was_meant_for_it(second):
    """A later request for one agent leaves the task of the other as it was, with the request before."""
    for agents, asked in (((), "To both."), (["b"], "To b."), (["c"], "To c."), (["b"], "To b again.")):
        second.request_changes(2, asked, agents=agents)
        assert second.resume() == ("waiting", 2)
        assert called() == list(agents or ["b", "c"])
    tasks = second.task(2, "b"), second.task(2, "c")
    assert ["To b again." in task for task in tasks] == [True, False]
    assert ["To c." in task for task in tasks] == [False, True]


def test_what_others_cost_stays_and_is_not_spent_again(tmp_path):
    """An output that moves to the new attempt keeps its cost in the ledger, and its agent is called no more."""
    desk = Desk(tmp_path, files={f"agents/{name}.md": PAID for name in "bc"})
    desk.resume()
    desk.approve(1)
    desk.resume()
    before = {row["agent_name"]: row for row in checkpoint(desk, 2)["ledger"]}
    assert before["c"]["cost"] == 0.25
    desk.request_changes(2, "Shorter.", agents=["b"])
    desk.resume()
    after = {row["agent_name"]: row for row in checkpoint(desk, 2)["ledger"]}
    assert (after["c"], after["b"]["cost"]) == (before["c"], 0.25)
    calls = [(call.agent, call.attempt) for call in desk.session.read().spending().calls if call.phase == 2]
    assert calls == [("b", 1), ("c", 1), ("b", 2)]


def test_in_a_sequential_phase_later_agents_run_if_their_task_changed(third):
    """Another text of the agent that is meant makes those after it run; the same text does not; those before stay."""
    third.request_changes(3, "Shorter.", agents=["d"])
    assert third.resume() == ("waiting", 3)
    assert called() == ["d", "e"]
    third.request_changes(3, "Shorter.", agents=["e"])
    assert third.resume() == ("waiting", 3)
    assert called() == ["e"]
    fake_agents.constant.add("d")
    third.request_changes(3, "Shorter.", agents=["d"])
    assert third.resume() == ("waiting", 3)
    assert called() == ["d", "e"]
    third.request_changes(3, "Shorter still.", agents=["d"])
    assert third.resume() == ("waiting", 3)
    assert called() == ["d"]


def test_what_a_person_wrote_in_another_output_moves_with_it(second):
    """A text that a person revised stays as they left it when another agent is asked for changes."""
    second.edit(2, "c", "# c\n\nMine.")
    mine = files(second, 2, "c.md")
    second.request_changes(2, "Shorter.", agents=["b"])
    assert second.resume() == ("waiting", 2)
    assert (called(), files(second, 2, "c.md")) == (["b"], mine)


def test_an_output_that_moved_on_and_is_lost_is_written_again(second):
    """A page that was not meant and is deleted later is asked for again, as any other that is lost."""
    second.request_changes(2, "Shorter.", agents=["b"])
    second.resume()
    (second.folder(2) / "c.md").unlink()
    called()
    assert second.resume() == ("waiting", 2)
    assert called() == ["c"]


def test_input_that_the_others_were_given_stays_theirs(second):
    """What a person asked of a phase is still asked in an attempt that keeps answers to it."""
    second.request_changes(2, "Shorter.")
    save_request(second.session, 2, "Only Lyon.", by="ann")
    second.resume()
    called()
    second.request_changes(2, "Shorter still.", agents=["b"])
    assert second.resume() == ("waiting", 2)
    assert (called(), "Only Lyon." in second.task(2, "b")) == (["b"], True)
    assert (second.folder(2) / "attempts" / "2" / "request.md").read_text(encoding="utf-8") == "Only Lyon."


def test_requests_before_a_run_add_up(second):
    """Whoever was asked is asked, also where another is asked afterwards; a request to all is one to all."""
    second.request_changes(2, "Shorter.", agents=["b"])
    assert second.request_changes(2, "Longer.", agents=["c"]).agents == ("b", "c")
    assert second.feedback(2)["agents"] == ["b", "c"]
    assert second.request_changes(2, "Both.").agents == ()
    assert second.request_changes(2, "And c.", agents=["c"]).agents == ()
    assert "agents" not in second.feedback(2)
    assert second.resume() == ("waiting", 2)
    assert called() == ["b", "c"]


def test_an_agent_is_named_in_the_file(second):
    """An open gate of several agents has a place for the name; a decision made there counts as any other."""
    name(second, 2, "c")
    second.edit_feedback(2, action="retry_with_changes", comments="Shorter.")
    assert second.resume() == ("waiting", 2)
    assert called() == ["c"]
    assert second.events("decision")[-1]["agents"] == ["c"]


def test_a_gate_of_one_agent_has_no_place_for_a_name(desk):
    """Where one agent writes there is nothing to choose, and the file stays as short as it was."""
    assert "Meant For" not in (desk.folder(1) / "user_feedback.md").read_text(encoding="utf-8")
    assert desk.request_changes(1, "Shorter.", agents=["a"]).agents == ("a",)
    assert desk.resume() == ("waiting", 1)


def test_a_program_names_an_agent(second):
    """`save_user_feedback` takes the agent that the changes are meant for."""
    manager = CheckpointManager(second.base)
    manager.save_user_feedback("p", "s", 2, True, False, "", ["Shorter"], agent="b")
    assert second.resume() == ("waiting", 2)
    assert called() == ["b"]


def test_an_agent_that_the_phase_does_not_have_is_refused(second):
    """The allowed names are told, nothing is stored, and a name typed into the file stops the run with its line."""
    before = files(second, 2, "user_feedback.md")
    with pytest.raises(InvalidArgument, match="found 'd'; allowed: b, c"):
        second.request_changes(2, "Shorter.", agents=["d"])
    with pytest.raises(InvalidArgument, match="found 'd'; allowed: b, c"):
        CheckpointManager(second.base).save_user_feedback("p", "s", 2, True, False, "", ["Shorter"], agent="d")
    assert files(second, 2, "user_feedback.md") == before
    name(second, 2, "d")
    with pytest.raises(InvalidDocument, match=r"user_feedback\.md:\d+: Changes Meant For: found 'd'; allowed: b, c"):
        second.resume()


def test_an_approval_forgets_who_was_asked(second):
    """Who approves after all asks nobody for anything."""
    second.request_changes(2, "Shorter.", agents=["b"])
    second.approve(2)
    assert "agents" not in second.feedback(2)
    assert second.resume() == ("waiting", 3)


@pytest.mark.parametrize("done", [False, True])
def test_a_kill_while_outputs_move_to_the_next_attempt_repeats_nothing(tmp_path, done):
    """Killed at any write of the move: only the agent that is meant runs, and nothing is lost."""
    for at in range(1, 14):
        desk = Desk(tmp_path / str(at))
        desk.resume()
        desk.approve(1)
        desk.resume()
        text = desk.text(2, "c")
        desk.request_changes(2, "Shorter.", agents=["b"])
        with pytest.raises(Crash):
            ReviewGate(desk.over(Dying(desk.base, at, done=done))).start_attempt(2)
        called()
        assert desk.resume() == ("waiting", 2)
        assert (called(), desk.text(2, "c")) == (["b"], text)
        assert "Shorter." in desk.task(2, "b")
        assert (desk.folder(2) / "attempts" / "1" / "c.md").exists()
