"""What resume does, on real files: named cases first, then any order of edits, decisions, kills and resumes."""

from __future__ import annotations

import pytest

from haytham.errors import InvalidArgument, InvalidDocument
from haytham.session.summary import summarize
from support import fake_agents
from support.fake_agents import WORKFLOW, Crash, Desk, Dying, called

DONE = ("completed", None)


@pytest.fixture(autouse=True)
def _anew():
    fake_agents.forget()


@pytest.fixture
def desk(tmp_path):
    """A session of four phases, nothing done yet."""
    return Desk(tmp_path)


@pytest.fixture
def finished(desk):
    """A session that ran through, every gate approved; the call log is empty."""
    assert desk.resume(approve_as="ann") == DONE
    assert called() == ["a", "b", "c", "d", "e", "f"]
    return desk


def attempt(desk, number, which, name):
    return (desk.folder(number) / "attempts" / str(which) / name).read_text(encoding="utf-8")


def attempts(desk, number):
    folder = desk.folder(number) / "attempts"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


# The gate.


def test_presented_copies_are_rewritten_only_when_they_change(desk):
    """A gate that is opened, approved or opened again over the same text touches no copy; another text is copied."""
    desk.resume()
    copy = desk.folder(1) / "presented" / "a.md"
    before = copy.read_bytes(), copy.stat().st_mtime_ns
    output = desk.folder(1) / "a.md"
    output.write_bytes(output.read_bytes().replace(b"\n", b"\r\n"))
    desk.resume()
    desk.approve(1)
    desk.resume()
    desk.approve(1, comments="Go on.")
    assert (copy.read_bytes(), copy.stat().st_mtime_ns) == before
    output.write_bytes(output.read_bytes().replace(b"\r\n", b"\n"))
    desk.edit(1, "a", "Mine.")
    desk.approve(1)
    assert b"Mine." in copy.read_bytes()


def test_a_run_stops_at_each_gate_and_goes_on_when_it_is_answered(desk):
    """A gate stops the run, calls nobody again while it waits, and lets the next phase run once it is approved."""
    assert desk.resume() == desk.resume() == ("waiting", 1)
    desk.approve(1)
    assert desk.resume() == desk.resume() == ("waiting", 2)
    assert called() == ["a", "b", "c"]
    assert summarize(desk.session.read()).status == "waiting"


def test_an_edit_at_the_open_gate_is_approved_with_it(desk):
    """Approved in the editor on an edited text: the record says how much was changed, and the edit is what counts."""
    desk.resume()
    desk.edit(1, "a", desk.text(1, "a") + "\nOne line.\nAnother.")
    desk.edit_feedback(1, approved="true")
    assert desk.resume() == ("waiting", 2)
    feedback = desk.feedback(1)
    assert (feedback["revised"], feedback["reviewed"], feedback["action"], feedback["by"]) == (
        "+2 -0",
        True,
        "approved",
        "ann",
    )
    (event,) = desk.events("decision")
    assert (event["decision"], event["added"], event["removed"]) == ("approved", 2, 0)
    assert [event["agent"] for event in desk.events("revised")] == ["a"]
    assert "Another." in desk.task(2, "b")


def test_changes_wanted_and_an_edit_in_one_sitting_reach_the_next_attempt(desk):
    """The next task has the comments, the changes, the draft as the person left it, and what they changed in it."""
    desk.resume()
    desk.edit(1, "a", "# a\n\nMy own words.")
    desk.edit_feedback(1, action="retry_with_changes", comments="Too broad.", changes=["Name one city"])
    assert desk.resume() == ("waiting", 1)
    task = desk.task(1, "a")
    for part in ("Too broad.", "- Name one city", "\n# a\n\nMy own words.\n", "+My own words.", "-The end of a."):
        assert part in task
    assert called() == ["a", "a"]
    assert "My own words." in attempt(desk, 1, 1, "a.md")
    assert "Too broad." in attempt(desk, 1, 1, "user_feedback.md")
    assert desk.feedback(1)["attempt"] == 2


def test_changes_can_be_wanted_twice(desk):
    """Attempts 2 and 3 see the comments and the difference; all three attempts stay readable."""
    desk.resume()
    desk.edit(1, "a", "# a\n\nFirst, by hand.")
    desk.request_changes(1, "First comments.")
    desk.resume()
    second = desk.text(1, "a")
    desk.request_changes(1, "Second comments.", ["Shorter"])
    assert desk.resume() == ("waiting", 1)
    assert "First comments." in desk.task(1, "a", attempt=2)
    assert "+First, by hand." in desk.task(1, "a", attempt=2)
    task = desk.task(1, "a")
    assert "Second comments." in task
    assert "- Shorter" in task
    assert "-First, by hand." in task
    assert "First comments." not in task
    reading = desk.session.read()
    shown = [reading.shown_texts(desk.phase(1), attempt=k, tasks=False)["a"] for k in (1, 2, 3)]
    assert shown == ["# a\n\nFirst, by hand.", second, desk.text(1, "a")]
    assert called() == ["a"] * 3


def test_comments_on_an_approval_reach_the_phases_that_build_on_it(desk):
    """Comments stand in the tasks of phases that need the approved one, and in no other."""
    desk.resume()
    desk.approve(1, "Think of small towns.")
    desk.resume(approve_as="ann")
    assert all("Think of small towns." in desk.task(n, agent) for n, agent in ((2, "b"), (2, "c"), (3, "d")))
    assert "Think of small towns." not in desk.task(4, "f")


def test_comments_of_an_approval_stay_until_another_comment_replaces_them(desk):
    """An edit, another approval or another attempt without comments leave them in the tasks of dependents."""
    desk.resume()
    desk.approve(1, "Only Lyon.")
    desk.resume()
    assert "Only Lyon." in desk.task(2, "b")
    desk.edit(1, "a", "# a\n\nMine.")
    assert "comments on phase 1" in desk.standing().task(desk.phase(2), "b").parts
    desk.approve(1)
    desk.resume()
    assert "Only Lyon." in desk.task(2, "b")
    desk.gate.retry(1)
    desk.resume()
    desk.approve(1)
    desk.resume()
    assert "Only Lyon." in desk.task(2, "b")
    desk.approve(1, "Only Ghent.")
    desk.resume()
    assert ("Only Lyon." in desk.task(2, "b"), "Only Ghent." in desk.task(2, "b")) == (False, True)


def test_comments_of_change_requests_reach_later_phases(desk):
    """Each is in the tasks of phases that build on the text, marked with the attempt that it was asked for in."""
    desk.resume()
    desk.request_changes(1, "Too broad.", ["Name one city"])
    desk.resume()
    desk.request_changes(1, changes=["Shorter"])
    desk.resume()
    desk.request_changes(1, "Use euros.")
    desk.resume()
    desk.approve(1, "Go on.")
    desk.resume(approve_as="ann")
    for number, agent in ((2, "b"), (2, "c"), (3, "d")):
        task = desk.task(number, agent)
        assert "# Phase 1 was approved with these comments\n\n```text\nGo on.\n```\n" in task
        assert "# Comments on phase 1, asked for in attempt 1\n\n```text\nToo broad.\n```\n" in task
        assert "# Comments on phase 1, asked for in attempt 3\n\n```text\nUse euros.\n```\n" in task
        assert "attempt 2" not in task
        assert "Name one city" not in task
    assert "Too broad." not in desk.task(4, "f")
    called()
    assert (desk.resume(), called()) == (DONE, [])


def test_a_comment_on_a_skip_reaches_the_phases_that_are_told_of_it(desk):
    """Those that build on a skipped phase read why, until it is there after all."""
    desk.gate.decide(1, "skip", by="ann", comments="We know all that.", changes=[])
    desk.resume(approve_as="ann")
    assert "# Comments on phase 1, which was skipped\n\n```text\nWe know all that.\n```\n" in desk.task(2, "b")
    desk.gate.retry(1)
    desk.resume(approve_as="ann")
    assert "We know all that." not in desk.task(2, "b")


@pytest.mark.parametrize("lines", [{"comments": "Hm."}, {"approved": "false"}, {"reviewed": "true"}])
def test_what_decides_nothing_leaves_the_gate_open(desk, lines):
    """Comments alone, or a no without words, decide nothing, and stay as they were written."""
    desk.resume()
    desk.edit_feedback(1, **lines)
    before = (desk.folder(1) / "user_feedback.md").read_bytes()
    assert desk.resume() == ("waiting", 1)
    assert (desk.folder(1) / "user_feedback.md").read_bytes() == before


def test_a_no_with_words_asks_for_changes(desk):
    """`Approved: false` with comments starts the next attempt; it never rejects."""
    desk.resume()
    desk.edit_feedback(1, approved="false", comments="Shorter.")
    assert desk.resume() == ("waiting", 1)
    assert "Shorter." in desk.task(1, "a")


def test_two_lines_that_disagree_stop_the_run(desk):
    """Both lines set and unlike: an error that names both, and nothing is decided or called."""
    desk.resume()
    desk.edit_feedback(1, approved="true", action="rejected")
    with pytest.raises(InvalidDocument, match=r"(?s)Review Status / Approved.*Action Taken / Action"):
        desk.resume(approve_as="ann")
    assert called() == ["a"]


def test_a_rejection_ends_the_session(desk):
    """After a rejection nothing runs, however often it is resumed."""
    desk.resume()
    desk.gate.decide(1, "rejected", by="ann", changes=[])
    assert desk.resume() == desk.resume(approve_as="ann") == ("rejected", 1)
    assert summarize(desk.session.read()).status == "rejected"
    assert called() == ["a"]


def test_what_was_decided_is_never_replaced_in_place(finished):
    """Changes wanted after an approval: the approval, with its comments, moves to its attempt."""
    finished.approve(1, "Fine.")
    finished.request_changes(1, "No: shorter.")
    assert "Fine." in attempt(finished, 1, 2, "user_feedback.md")
    assert finished.feedback(1)["attempt"] == 3
    assert finished.resume() == ("waiting", 1)
    assert "No: shorter." in finished.task(1, "a")
    assert "Fine." not in finished.task(1, "a")


def test_comments_that_are_there_are_kept_by_an_answer(desk):
    """An answer adds its comments to those a person left in the file."""
    desk.resume()
    desk.edit_feedback(1, comments="From the editor.")
    desk.approve(1, "From the terminal.")
    assert desk.feedback(1)["comments"] == "From the editor.\n\nFrom the terminal."


def test_what_is_not_there_cannot_be_approved(desk):
    """Approving a phase that has not run, or has failed, is refused; skipping it is not."""
    fake_agents.failing.add("a")
    assert desk.resume() == ("failed", 1)
    for number in (1, 2):
        with pytest.raises(InvalidArgument, match="a phase that has run"):
            desk.approve(number)
    desk.skip(1)


def test_without_review_a_phase_counts_as_approved(desk):
    """`review: none` opens no gate; what builds on it goes on, also on a text that a person edited."""
    base = desk.base / "unasked"
    desk = Desk(base, WORKFLOW.replace("agents: [a]}", "agents: [a], review: none}"))
    assert desk.resume() == ("waiting", 2)
    desk.edit(1, "a", "# a\n\nMine.")
    called()
    assert desk.resume() == ("waiting", 2)
    assert called() == ["b", "c"]
    assert "Mine." in desk.task(2, "b")
    assert desk.feedback(1) is None


# Phases that are passed over.


def test_a_skip_is_told_to_dependents_and_lifted_by_retry(desk):
    """Skip, then retry: those that build on the phase are told, and run again when it is there after all."""
    desk.skip(1)
    assert desk.resume(approve_as="ann") == DONE
    assert summarize(desk.session.read()).status == "completed"
    assert "Phase 1, One, is left out: it was skipped" in desk.task(2, "b")
    assert called() == ["b", "c", "d", "e", "f"]
    desk.gate.retry(1)
    assert summarize(desk.session.read()).status == "in_progress"
    assert desk.resume(approve_as="ann") == DONE
    assert called() == ["a", "b", "c", "d", "e", "f"]
    assert "is left out" not in desk.task(2, "b")


def test_skipping_after_it_ran_keeps_its_text(finished):
    """A phase that is skipped later is left out from then on; its text stays, and counts again after a retry."""
    text = finished.text(2, "b")
    finished.skip(2)
    assert finished.resume(approve_as="ann") == DONE
    assert called() == ["d", "e", "f"]
    assert text not in finished.task(3, "d")
    finished.gate.retry(2)
    assert finished.resume(approve_as="ann") == DONE
    assert text in finished.task(3, "d")


def test_a_condition_is_computed_at_each_read(tmp_path):
    """`when:` false: the phase is passed over and dependents are told; true later: it runs, and they run again."""
    workflow = WORKFLOW.replace("agents: [b, c],", "agents: [b, c], when: \"phases.one.status == 'skipped'\",")
    desk = Desk(tmp_path, workflow)
    assert desk.resume(approve_as="ann") == DONE
    assert called() == ["a", "d", "e", "f"]
    assert "Phase 2, Two, is left out: its condition is not met: phases.one.status == 'skipped'" in desk.task(3, "d")
    assert summarize(desk.session.read()).status == "completed"
    desk.skip(1)
    assert desk.steps()[:3] == ["nothing", "run", "run again"]
    assert desk.resume(approve_as="ann") == DONE
    assert called() == ["b", "c", "d", "e", "f"]


@pytest.mark.parametrize("when", ["phases.one.approvd", "phases.three.status == 'x'", "1 +", "().__class__.__mro__[9]"])
def test_a_condition_that_cannot_be_computed_is_named(tmp_path, when):
    """An expression that is wrong, looks ahead or reaches out of its sandbox stops the run with its phase and text."""
    desk = Desk(tmp_path, WORKFLOW.replace("agents: [b, c],", f'agents: [b, c], when: "{when}",'))
    with pytest.raises(InvalidDocument, match="phase 2: when: "):
        desk.resume()


# Texts that change after they were approved.


def test_an_edit_after_the_run_opens_the_gate_and_then_runs_its_dependents(finished):
    """An approval is of a text: edited, it is open again; approved, exactly its dependents run, on the edited text."""
    old = finished.text(2, "b")
    finished.edit(2, "b", "# b\n\nMine.")
    assert finished.steps() == ["approved", "gate", "run again", "run again"]
    assert finished.resume() == ("waiting", 2)
    assert called() == []
    assert old in attempt(finished, 2, 1, "b.md")
    finished.approve(2)
    assert finished.resume(approve_as="ann") == DONE
    assert called() == ["d", "e", "f"]
    assert "# b\n\nMine." in finished.task(3, "d")
    assert finished.text(2, "b") == "# b\n\nMine."


def test_equal_text_leaves_approvals_and_dependents_alone(tmp_path):
    """A stale agent that writes the same again: its header names the new task, and nothing else happens."""
    fake_agents.constant.update("bc")
    desk = Desk(tmp_path, WORKFLOW.replace("needs: [1, 2]", "needs: [2]"))
    desk.resume(approve_as="ann")
    approved = (desk.folder(2) / "user_feedback.md").read_bytes()
    desk.edit(1, "a", "# a\n\nMine.")
    desk.approve(1)
    called()
    assert desk.resume() == DONE
    assert called() == ["b", "c"]
    assert (desk.folder(2) / "user_feedback.md").read_bytes() == approved
    assert attempts(desk, 2) == []
    header = desk.session.read().outputs(desk.phase(2))["b"].value.to_value()
    assert header["task"] == desk.standing().task(desk.phase(2), "b").digest
    assert "# a\n\nMine." in desk.task(2, "b")


def test_a_stale_text_that_a_person_revised_is_never_run_over(finished):
    """One revised and one stale output: the stale one runs, the gate opens; approve keeps the revised text there."""
    finished.edit(2, "b", "# b\n\nMine.")
    finished.approve(2)
    finished.resume(approve_as="ann")
    called()
    finished.edit(1, "a", "# a\n\nNew ground.")
    finished.resume()
    finished.approve(1)
    assert finished.resume() == ("waiting", 2)
    assert called() == ["c"]
    assert finished.text(2, "b") == "# b\n\nMine."
    assert "phase 1: a" in finished.events("review_opened")[-1]["why"]
    finished.approve(2)
    assert finished.resume(approve_as="ann") == DONE
    assert called() == ["d", "e", "f"]
    assert finished.text(2, "b") == "# b\n\nMine."


def test_retry_runs_a_revised_text_again_and_keeps_it_aside(finished):
    """Only `retry` runs an agent over a person's text, and that text is kept with its attempt, byte for byte."""
    finished.edit(2, "b", "# b\n\nMine.")
    mine = (finished.folder(2) / "b.md").read_text(encoding="utf-8")
    finished.gate.retry(2)
    assert finished.resume() == ("waiting", 2)
    assert called() == ["b", "c"]
    assert attempt(finished, 2, 1, "b.md") == mine
    assert "Mine." not in finished.text(2, "b")


def test_retry_starts_from_the_text_that_a_person_revised(finished):
    """Their text is in the next task, whatever was decided on it, also once the gate was opened again on it."""
    finished.edit(1, "a", "# a\n\nFirst words.")
    finished.approve(1)
    finished.gate.retry(1)
    assert finished.resume() == ("waiting", 1)
    assert "\n# a\n\nFirst words.\n" in finished.task(1, "a")
    finished.edit(1, "a", "# a\n\nSecond words.")
    finished.gate.retry(1)
    assert finished.resume() == ("waiting", 1)
    assert "\n# a\n\nSecond words.\n" in finished.task(1, "a")
    finished.approve(1)
    finished.gate.retry(1)
    assert finished.resume() == ("waiting", 1)
    assert "\n# a\n\nSecond words.\n" in finished.task(1, "a")
    finished.approve(1)
    called()
    assert finished.resume(approve_as="ann") == DONE
    assert "a" not in called()


def test_a_copy_of_an_attempt_is_nothing_to_start_from(finished):
    """An approved text that is edited and approved again is not stale: only an attempt that was run again counts."""
    for words in ("First words.", "Second words."):
        finished.edit(1, "a", f"# a\n\n{words}")
        assert finished.resume() == ("waiting", 1)
        finished.approve(1)
    called()
    assert finished.resume(approve_as="ann") == DONE
    assert "a" not in called()
    assert finished.standing().task(finished.phase(1), "a").previous is None


def test_an_agent_whose_text_nobody_touched_is_retried_with_the_same_task(finished):
    """Of two agents side by side only the one with a revised text starts from it."""
    task = finished.task(2, "c")
    finished.edit(2, "b", "# b\n\nMine.")
    finished.gate.retry(2)
    finished.resume()
    assert (finished.task(2, "c"), "Mine." in finished.task(2, "b")) == (task, True)


def test_words_without_a_decision_reach_the_next_attempt(desk):
    """Comments that a person left at an open gate are in the task of a retry."""
    desk.resume()
    desk.edit_feedback(1, comments="Think of small towns.")
    desk.gate.retry(1)
    desk.resume()
    assert "# Comments on attempt 1\n\n```text\nThink of small towns.\n```\n" in desk.task(1, "a")


def test_retry_of_an_approved_phase_is_a_new_attempt_whose_gate_opens(finished):
    """Retry of an approved phase: all its agents run, also to the same text, and a person is asked again."""
    text = finished.text(1, "a")
    finished.gate.retry(1)
    assert summarize(finished.session.read()).status == "in_progress"
    assert finished.resume() == ("waiting", 1)
    assert (called(), finished.text(1, "a"), attempts(finished, 1)) == (["a"], text, ["1"])
    assert "- Action: approved" in attempt(finished, 1, 1, "user_feedback.md")
    finished.approve(1)
    assert finished.resume() == DONE
    assert called() == []


def test_an_editor_approval_holds_only_for_the_ground_that_was_presented(finished):
    """A text approved in an editor after its ground moved is not taken for approved on the new ground."""
    finished.edit(2, "b", "# b\n\nMine.")
    finished.resume()
    finished.edit(1, "a", "# a\n\nNew ground.")
    finished.edit_feedback(2, approved="true")
    assert finished.resume() == ("waiting", 1)
    finished.approve(1)
    assert finished.resume() == ("waiting", 2)
    assert finished.text(2, "b") == "# b\n\nMine."


# Sequential phases.


def test_in_a_sequential_phase_the_second_agent_builds_on_the_first(finished):
    """The second agent is shown the first one's text, and runs again when a person edits it."""
    assert finished.text(3, "d") in finished.task(3, "e")
    assert finished.text(3, "e") not in finished.task(3, "d")
    finished.edit(3, "d", "# d\n\nMine.")
    assert finished.resume() == ("waiting", 3)
    assert called() == ["e"]
    assert "# d\n\nMine." in finished.task(3, "e")
    assert finished.text(3, "d") == "# d\n\nMine."


# Failures.


def test_one_of_two_fails_and_only_it_runs_again(desk):
    """The other's output is kept; the failed one alone is called on the next run."""
    fake_agents.failing.add("b")
    assert desk.resume(approve_as="ann") == ("failed", 2)
    assert (called(), summarize(desk.session.read()).status) == (["a", "b", "c"], "failed")
    kept = (desk.folder(2) / "c.md").read_bytes()
    desk.gate.retry(2)
    fake_agents.failing.clear()
    assert desk.resume() == ("waiting", 2)
    assert called() == ["b"]
    assert (desk.folder(2) / "c.md").read_bytes() == kept


def test_a_failed_output_that_a_person_repairs_counts(desk):
    """A failed output repaired by hand is taken as completed, and the gate opens on it."""
    fake_agents.failing.add("a")
    assert desk.resume() == ("failed", 1)
    called()
    desk.edit(1, "a", "# a\n\nRepaired.")
    assert desk.resume() == ("waiting", 1)
    assert called() == []
    assert summarize(desk.session.read()).statuses[1] == "completed"
    desk.approve(1)
    assert desk.resume() == ("waiting", 2)
    assert "Repaired." in desk.task(2, "b")


def test_a_stale_agent_that_fails_loses_no_approved_text(finished):
    """What was approved is kept with its attempt before a failure takes its place."""
    approved = finished.text(2, "b")
    finished.edit(1, "a", "# a\n\nMine.")
    finished.approve(1)
    fake_agents.failing.add("b")
    assert finished.resume() == ("failed", 2)
    assert approved in attempt(finished, 2, 1, "b.md")
    assert "- Action: approved" in attempt(finished, 2, 1, "user_feedback.md")
    fake_agents.failing.clear()
    assert finished.resume() == ("waiting", 2)


def test_what_a_person_writes_while_an_agent_works_stays(finished, monkeypatch):
    """A text that a person put in place during a run is not written over by the reply; the gate opens on it."""
    finished.edit(1, "a", "# a\n\nNew ground.")
    finished.approve(1)
    write = fake_agents.write

    async def slow(task):
        finished.edit(2, "b", "# b\n\nMine.") if task.agent == "b" else None
        return await write(task)

    monkeypatch.setattr(fake_agents, "write", slow)
    assert finished.resume() == ("waiting", 2)
    assert finished.text(2, "b") == "# b\n\nMine."
    assert [event["agent"] for event in finished.events("reply_not_stored")] == ["b"]


# By hand, in the folder.


def test_feedback_deleted_by_hand_opens_the_gate(finished):
    """No feedback on a completed phase: its gate is open for resume, and no agent is called."""
    (finished.folder(2) / "user_feedback.md").unlink()
    assert finished.resume() == ("waiting", 2)
    assert (called(), finished.feedback(2)["action"]) == ([], "pending")


def test_an_output_deleted_by_hand_is_written_again(finished):
    """Only its agent runs; the same text again is approved already, another one opens the gate."""
    (finished.folder(2) / "c.md").unlink()
    assert finished.resume() == DONE
    assert called() == ["c"]
    fake_agents.constant.add("c")
    (finished.folder(2) / "c.md").unlink()
    assert finished.resume() == ("waiting", 2)
    assert called() == ["c"]


def test_a_phase_folder_renamed_by_hand_is_named(finished):
    """A folder that no phase owns stops the run with its name, before anybody is called."""
    finished.folder(2).rename(finished.folder(2).with_name("phase_2_to"))
    with pytest.raises(InvalidDocument, match="phase_2_to: is a folder of no phase"):
        finished.resume(approve_as="ann")
    assert called() == []


@pytest.mark.parametrize("name", ["b.md", "user_feedback.md", "checkpoint.md", "tasks/b.md"])
def test_a_file_that_does_not_parse_stops_the_run(finished, name):
    """What cannot be read is never taken for absent."""
    finished.edit(1, "a", "# a\n\nMine.")
    finished.approve(1)
    (finished.folder(2) / name).write_text("mine\n", encoding="utf-8")
    with pytest.raises(InvalidDocument, match=name):
        finished.resume(approve_as="ann")
    assert (finished.folder(2) / name).read_text(encoding="utf-8") == "mine\n"
    assert called() == []


# Kills.


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("decide", ["changes", "retry"])
def test_a_move_to_an_attempt_that_was_cut_short_is_finished(tmp_path, decide, done):
    """A kill anywhere between moving an attempt and the next one's first write loses nothing and repeats nothing."""
    for at in range(1, 12):
        desk = Desk(tmp_path / str(at))
        desk.resume(approve_as="ann")
        desk.edit(2, "b", "# b\n\nMine.")
        desk.request_changes(2, "Shorter.") if decide == "changes" else None
        session = desk.over(Dying(desk.base, at, done=done))
        with pytest.raises(Crash):
            type(desk.gate)(session).start_attempt(2) if decide == "changes" else type(desk.gate)(session).retry(2)
        called()
        assert desk.resume() == ("waiting", 2)
        kept = [path for path in desk.folder(2).rglob("b.md") if b"Mine." in path.read_bytes()]
        assert kept
        assert "Mine." in desk.text(2, "b") + desk.task(2, "b")
        if decide == "changes":
            assert called() == ["b", "c"]
            assert "Shorter." in desk.task(2, "b")
            assert "# b\n\nMine." in desk.task(2, "b")
            assert "Shorter." in attempt(desk, 2, 2, "user_feedback.md")


def test_a_decision_changed_in_an_editor_is_bound_to_who_resumes_then(desk):
    """Who changes a decision that was stamped is named with the new one, and the time is the new one's."""
    desk.resume()
    desk.approve(1)
    before = desk.session.read().feedback(desk.session.read().phase(1)).value.to_value()
    desk.edit_feedback(1, approved="false", action="rejected")
    assert desk.resume(by="bob") == ("rejected", 1)
    after = desk.session.read().feedback(desk.session.read().phase(1)).value.to_value()
    assert (before["bound_decision"], after["bound_decision"], after["by"]) == ("approved", "rejected", "bob")
