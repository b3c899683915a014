"""One truth: status, staleness and what may be decided all follow from the plan that resume uses."""

from __future__ import annotations

import asyncio
import json
import shutil

import pytest

from haytham import CheckpointManager
from haytham.engine.runner import Runner
from haytham.errors import StaleNeeds, WorkLeft
from haytham.events import Events
from haytham.session.summary import summarize
from haytham.session.validate import validate_tree
from haytham.storage import FileStore
from support import fake_agents
from support.cli_runner import IDEA, edit, haytham, session_folder
from support.fake_agents import AT_ONCE, WORKFLOW, Crash, Desk, Dying, called

CONCEPT = "phase_1_concept/concept_expansion.md"
DONE = ("completed", None)
IDS = ("p", "s")


@pytest.fixture(autouse=True)
def _anew():
    fake_agents.forget()


@pytest.fixture
def finished(tmp_path):
    """A session that ran through, every gate approved; the call log is empty."""
    desk = Desk(tmp_path)
    assert desk.resume(approve_as="ann") == DONE
    called()
    return desk


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A finished session of the shipped workflow, all seven phases."""
    folder = tmp_path_factory.mktemp("shipped")
    assert haytham("run", IDEA, "--mode", "full", "--name", "Rain barrels", "--yes", cwd=folder).code == 0
    return folder


def status(desk):
    return summarize(desk.session.read()).status


def statuses(desk):
    """What everyone who tells the status says: the summary, the manager, and the manifest once it is drawn."""
    desk.session.refresh_derived_if_needed()
    shown = (desk.base / "p" / "sessions" / "s" / "session_manifest.md").read_text(encoding="utf-8")
    line = next(line for line in shown.splitlines() if line.startswith("- Status: "))
    return {status(desk), CheckpointManager(desk.base).load_session(*IDS)["status"], line.removeprefix("- Status: ")}


# The status of a session.


def test_a_session_with_stale_phases_is_not_completed(finished):
    """A finished session whose first phase was edited and approved has work left, whoever tells its status."""
    finished.edit(1, "a", "# a\n\nMine.")
    assert statuses(finished) == {"waiting"}
    finished.approve(1)
    assert statuses(finished) == {"in_progress"}
    assert finished.resume(approve_as="ann") == DONE
    assert statuses(finished) == {"completed"}


def test_a_phase_whose_gate_was_never_opened_waits(tmp_path):
    """Killed between saving the last phase and opening its gate, the session waits and is not completed."""
    workflow = "name: one\nphases:\n  - {number: 1, name: One, slug: one, agents: [a]}\nmodes: {all: [1]}\n"
    seen = []
    for step in range(1, 40):
        base = tmp_path / str(step)
        desk = Desk(base, workflow)
        try:
            desk.resume(desk.over(Dying(base, step)))
        except Crash:
            record = desk.session.read().checkpoint(desk.phase(1))
            if record is not None and record.value.status == "completed":
                seen.append((status(desk), desk.feedback(1) is None))
        else:
            break
    assert ("waiting", True) in seen
    assert {said for said, _ in seen} == {"waiting"}


def test_a_bare_resume_goes_on_with_the_session_that_has_work_left(tmp_path):
    """`list` and `resume` without a name agree: the edited session is unfinished, the other one is completed."""
    for name in ("One", "Two"):
        assert haytham("run", IDEA, "--name", name, "--yes", cwd=tmp_path).code == 0
    (page,) = tmp_path.glob(f"projects/one/sessions/*/{CONCEPT}")
    edit(page, "rain barrels", "rain butts")
    assert haytham("approve", "1", "-s", "one/", cwd=tmp_path).code == 0
    rows = {row["project"]: row["status"] for row in haytham("list", "--json", cwd=tmp_path).json["sessions"]}
    assert rows == {"one": "in_progress", "two": "completed"}
    assert haytham("resume", "--json", cwd=tmp_path).json["project"] == "one"


def test_an_output_that_does_not_parse_makes_the_session_unreadable(finished):
    """A broken page makes the status `unreadable`; other phases are still saved, and the manifest says so."""
    path = finished.folder(3) / "d.md"
    path.write_bytes(path.read_bytes().replace(b"- Agent: d", b"- Agent d"))
    assert status(finished) == "unreadable"
    finished.session.save_checkpoint(
        1, dict(finished.session.read().checkpoint(finished.phase(1)).value.to_value()), []
    )
    assert statuses(finished) == {"unreadable"}


# One definition of stale.


def test_what_status_tells_and_what_it_lists_as_stale_agree(shipped, tmp_path):
    """After an edit of phase 1 the lines and the `stale` lists of status name the same phases."""
    here = shutil.copytree(shipped, tmp_path / "here")
    edit(session_folder(here) / CONCEPT, "rain barrels", "rain butts")
    rows = haytham("status", "--json", cwd=here).json["phases"]
    listed = {row["phase"] for row in rows if row["stale"]}
    told = {row["phase"] for row in rows if row["state"].startswith("stale")}
    assert listed == told == {2, 3, 4, 5, 6, 7}
    lines = haytham("status", cwd=here).out
    assert "  6  Validation         stale: what it builds on has changed (phase" in lines


def test_a_phase_that_needs_a_stale_phase_is_not_approved(shipped, tmp_path):
    """`approve 6` exits 2 while phases it needs are stale, and changes nothing; --anyway approves it on the record."""
    here = shutil.copytree(shipped, tmp_path / "here")
    session = session_folder(here)
    edit(session / CONCEPT, "rain barrels", "rain butts")
    before = (session / "phase_6_validation" / "user_feedback.md").read_bytes()
    refused = haytham("approve", "6", cwd=here)
    assert (refused.code, refused.out) == (2, "")
    assert "phase 6 cannot be approved: it needs phases 2, 3, 4 and 5, which are stale" in refused.err
    assert (session / "phase_6_validation" / "user_feedback.md").read_bytes() == before
    assert haytham("approve", "6", "--anyway", "-m", "All the same", cwd=here).code == 0
    assert "anyway: phases 2, 3, 4 and 5 stale" in (session / "phase_6_validation" / "user_feedback.md").read_text()


def test_a_phase_whose_own_output_alone_is_stale_is_approved(finished):
    """A stale page may be approved where the phases it needs are not stale themselves."""
    finished.edit(1, "a", "# a\n\nMine.")
    finished.approve(1)
    finished.edit(2, "b", "# b\n\nMine.")
    finished.edit(2, "c", "# c\n\nMine.")
    assert finished.steps()[1] == "gate"
    finished.approve(2)
    assert finished.steps()[:2] == ["approved", "approved"]


def test_a_decision_in_an_editor_that_a_rule_refuses_stays_unbound(finished):
    """Typed into the file, such an approval is reported, counts for nothing, and is bound once the rule allows it."""
    finished.edit(1, "a", "# a\n\nMine.")
    finished.approve(1)
    finished.edit(3, "d", "# d\n\nMine.")
    assert finished.gate.open_review(3) is None
    finished.edit_feedback(3, approved="true")
    place = finished.standing().phase(3)
    assert isinstance(place.refused, StaleNeeds)
    assert (place.refused.phase, place.refused.needs) == (3, (2,))
    assert finished.gate.bind_editor_decisions("ann") == []
    assert 3 not in CheckpointManager(finished.base).get_approved_phases(*IDS)
    assert finished.resume()[1] == 2
    (told,) = finished.events("decision_refused")
    assert (told["phase"], "cannot be approved: it needs phase 2" in told["why"]) == (3, True)


def test_feedback_that_a_rule_refuses_is_stored_and_not_bound(finished):
    """`save_user_feedback` stores what it is given; an approval on stale needs does not count as one."""
    manager = CheckpointManager(finished.base)
    finished.edit(1, "a", "# a\n\nMine.")
    finished.approve(1)
    manager.save_user_feedback(*IDS, 3, reviewed=True, approved=True, comments="Fine.")
    assert (finished.feedback(3)["approved"], finished.feedback(3)["comments"]) == (True, "Fine.")
    assert "bound_decision" not in finished.feedback(3)
    assert 3 not in manager.get_approved_phases(*IDS)


# Outputs that are gone, and copies that are behind.


def test_a_phase_whose_output_was_deleted_is_not_completed(finished):
    """A completed phase of the runner without one of its outputs is not completed, and not valid, for anyone."""
    manager = CheckpointManager(finished.base)
    (finished.folder(2) / "b.md").unlink()
    state = manager.load_session(*IDS)
    assert (state["completed_phases"], state["phase_statuses"][2]) == ([1, 3, 4], "requires_retry")
    valid, errors = manager.validate_checkpoint(*IDS, 2)
    assert (valid, len(errors)) == (False, 1)
    assert errors[0].startswith("p/sessions/s/phase_2_two/b.md: is missing, and the phase is completed; haytham resume")
    assert [problem.file for problem in validate_tree(FileStore(finished.base)).problems if not problem.derived] == [
        "p/sessions/s/phase_2_two/b.md"
    ]
    assert status(finished) == "in_progress"
    finished.resume(approve_as="ann")
    assert called() == ["b"]
    assert manager.validate_checkpoint(*IDS, 2) == (True, [])


def test_a_phase_that_a_program_saved_without_outputs_is_completed(tmp_path):
    """Without recorded tasks the checkpoint is taken at its word, by the managers and by resume."""
    desk = Desk(tmp_path)
    manager = CheckpointManager(tmp_path)
    manager.save_checkpoint(*IDS, 1, "completed", [])
    assert manager.load_session(*IDS)["completed_phases"] == [1]
    assert manager.validate_checkpoint(*IDS, 1) == (True, [])
    assert desk.resume() == ("waiting", 2)
    assert called() == ["b", "c"]


def test_a_legal_edit_and_a_kill_leave_notes_only(shipped, tmp_path):
    """`validate` exits 0 after an edit of a page and with a manifest that a kill left behind; both are notes."""
    here = shutil.copytree(shipped, tmp_path / "here")
    edit(session_folder(here) / CONCEPT, "rain barrels", "rain butts")
    answer = haytham("validate", cwd=here)
    assert (answer.code, answer.err) == (0, answer.err.split(",")[0] + ", 0 problems, 2 notes\n")
    assert all(line.startswith("note: ") for line in answer.out.splitlines())
    assert "Metadata / Status: shows 'completed', and is 'waiting'" in answer.out


def test_a_derived_copy_that_is_behind_does_not_make_a_checkpoint_invalid(finished):
    """`validate_checkpoint` leaves derived copies out of its list."""
    path = finished.folder(2) / "checkpoint.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("- b: completed", "- b: failed"), encoding="utf-8")
    assert CheckpointManager(finished.base).validate_checkpoint(*IDS, 2) == (True, [])


# Running a phase again.


def retry(desk, number, **given):
    """`retry` with the runner's own exceptions; status and phase of how it ended."""
    session = desk.session
    events = Events(session.store, session.prefix + "events.jsonl")
    outcome = asyncio.run(
        Runner(session, events, may_run_code=True, options=AT_ONCE).run(by="ann", retry=number, **given)
    )
    return outcome.status, outcome.phase


def files(base):
    return {path: path.read_bytes() for path in base.rglob("*") if path.is_file() and "locks" not in path.parts}


def test_retry_is_refused_while_a_phase_that_is_needed_has_work_left(finished):
    """`retry 3` on stale needs changes nothing and says which phases have work left, also through other phases."""
    finished.edit(1, "a", "# a\n\nMine.")
    before = {path: data for path, data in files(finished.base).items() if ".haytham" not in path.parts}
    for number, left in ((2, (1,)), (3, (1, 2)), (4, (1, 2, 3))):
        with pytest.raises(WorkLeft) as refused:
            retry(finished, number)
        assert (refused.value.phase, refused.value.needs) == (number, left)
    assert {path: data for path, data in files(finished.base).items() if ".haytham" not in path.parts} == before
    assert called() == []


def test_retry_anyway_runs_the_phase_on_what_is_there(finished):
    """With `anyway` just that phase runs, whatever is left before it, and its gate opens."""
    finished.edit(1, "a", "# a\n\nMine.")
    assert retry(finished, 3, anyway=True) == ("waiting", 3)
    assert called() == ["d", "e"]
    assert (finished.folder(3) / "d.md").is_file()
    assert finished.feedback(3)["action"] == "pending"


def test_retry_runs_its_phase_before_an_earlier_one_that_it_does_not_need(tmp_path):
    """Work left in a phase that is not needed does not hold a retry up, and is not done first."""
    desk = Desk(tmp_path, WORKFLOW.replace("needs: [1, 2]", "needs: [1]"))
    desk.resume(approve_as="ann")
    called()
    desk.request_changes(2, changes=["more"])
    assert retry(desk, 3) == ("waiting", 3)
    assert called() == ["d", "e"]


def test_retry_on_the_command_line_tells_what_is_left(shipped, tmp_path):
    """Evidence that makes all phases stale: `retry 6` exits 2 and archives nothing; --anyway leaves phase 6 a page."""
    here = shutil.copytree(shipped, tmp_path / "here")
    session = session_folder(here)
    (session / "evidence.md").write_text("Twelve gardens were asked.\n", encoding="utf-8")
    refused = haytham("retry", "6", cwd=here)
    assert refused.code == 2
    assert "phase 6 was not run again: phases 1, 2, 3, 4 and 5, which it needs, have work left" in refused.err
    assert not (session / "phase_6_validation" / "attempts").exists()
    answer = haytham("retry", "6", "--anyway", "--json", cwd=here)
    assert (answer.code, json.loads(answer.out)["phase"]) == (3, 6)
    assert json.loads(answer.out)["next"].startswith("haytham review 6, or haytham approve 6 --anyway; haytham resume")
    assert list((session / "phase_6_validation").glob("[!cu]*.md"))
