"""What a session has come to is an event once: when it becomes so, not at each look."""

from __future__ import annotations

import asyncio

import pytest

from haytham import Phase, ProjectManager, Workflow, Workspace
from haytham.session.milestones import Milestones, report_revised


async def write(task):
    """Answer with what follows from the idea and the needed texts."""
    return f"# {task.phase}\n\n{task.idea}. {len(task.prompt)}"


TWO = [Phase("One", agents=[write]), Phase("Two", agents=["worksheet"], needs=["One"])]
ONE = TWO[:1]


def start(folder, phases):
    """Start a session of these phases."""
    return Workspace(folder / "projects").start("Barrels", user="ann", workflow=Workflow("small", phases=phases))


def count(session, name):
    """How often an event is stored."""
    return len(session.log([name]).read())


def edit(session, old, new):
    """Let a person edit the text of the first phase."""
    (path,) = session.folder.glob("phase_1_one/write.md")
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def test_a_first_run_is_no_resumption(tmp_path):
    """What is done at one go was started, and not resumed."""
    session = start(tmp_path, TWO)
    session.run(approve_all=True)
    assert (count(session, "session_started"), count(session, "session_resumed")) == (1, 0)


def test_a_run_that_goes_on_resumes_the_session(tmp_path):
    """It says at which phase; a run that has nothing to do says nothing."""
    session = start(tmp_path, TWO)
    session.run()
    session.run()
    assert count(session, "session_resumed") == 0
    session.approve()
    session.run()
    session.retry(1)
    assert [event.facts["phase"] for event in session.log(["session_resumed"]).read()] == [2, 1]


def test_a_run_that_was_stopped_in_its_first_phase_is_resumed(tmp_path):
    """A task without an answer is work of an earlier run."""
    asked = []

    async def think(task):
        asked[-1].set()
        await asyncio.Event().wait()

    session = start(tmp_path, [Phase("One", agents=[think])])

    async def stop():
        asked.append(asyncio.Event())
        running = asyncio.ensure_future(session.run_async())
        await asked[-1].wait()
        running.cancel()
        await running

    for _ in range(2):
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(stop())
    assert count(session, "session_resumed") == 1


def test_a_session_is_completed_by_the_last_decision(tmp_path):
    """The decision says so; runs that find nothing to do do not say it again."""
    session = start(tmp_path, ONE)
    session.run()
    assert count(session, "session_completed") == 0
    session.approve()
    assert session.log().read()[-1].name == "session_completed"
    session.run()
    session.run()
    assert count(session, "session_completed") == 1


def test_a_session_that_is_opened_again_is_completed_again(tmp_path):
    """A retry starts anew, and so does what it comes to."""
    session = start(tmp_path, ONE)
    session.run(approve_all=True)
    session.retry(1)
    session.approve()
    assert count(session, "session_completed") == 2


def test_a_session_that_is_closed_is_completed_with_a_version(tmp_path):
    """`complete_session` says so once, whatever its phases are."""
    manager = ProjectManager(tmp_path / "projects")
    project = manager.create_project("ann", "Barrels", "rain")["project_id"]
    session_id = manager.start_session(project)["session_id"]
    for _ in range(2):
        manager.complete_session(project, session_id, "# Requirements\n")
    (event,) = Workspace(tmp_path / "projects").session().log(["session_completed"]).read()
    assert event.facts == {"version": 1}


def test_a_phase_becomes_stale_once(tmp_path):
    """An edit makes it stale for the next run or decision, and further looks do not repeat it."""
    session = start(tmp_path, TWO)
    session.run(approve_all=True)
    edit(session, "Barrels", "Butts")
    session.status()
    assert count(session, "phase_stale") == 0
    session.run()
    session.run()
    (event,) = session.log(["phase_stale"]).read()
    assert (event.facts["phase"], event.facts["agents"]) == (2, ["worksheet"])
    assert "what it builds on has changed" in event.facts["why"]


def test_a_phase_that_was_renewed_becomes_stale_again(tmp_path):
    """Each time it becomes so is an event."""
    session = start(tmp_path, TWO)
    session.run(approve_all=True)
    for old, new in (("Barrels", "Butts"), ("Butts", "Tanks")):
        edit(session, old, new)
        session.run(approve_all=True)
    assert count(session, "phase_stale") == 2
    assert count(session, "session_completed") == 3


def test_a_revision_is_reported_once_for_the_same_facts(tmp_path):
    """The file is asked, so that another process does not repeat it."""
    session = start(tmp_path, ONE)
    for text in ("x", "x", "y"):
        report_revised(session.new_events(), phase=1, agent="write", text=text)
    assert count(session, "revised") == 2


def test_lines_that_cannot_be_read_are_skipped(tmp_path):
    """A damaged line takes nothing away from the others."""
    session = start(tmp_path, ONE)
    session.run(approve_all=True)
    path = session.folder / "events.jsonl"
    path.write_bytes(b'{"event": "phase_stale", "phase": []}\n\xff"revised"\n' + path.read_bytes() + b'{"event": "rev')
    session.run()
    assert path.read_bytes().count(b'"session_completed"') == 1


def test_what_a_restore_replaces_is_no_longer_stale():
    """A restore or a merge brings other documents: what they come to is said anew."""
    milestones = Milestones(stale={2, 3}, is_completed=True)
    milestones.add({"event": "decision", "phase": 2})
    assert (milestones.stale, milestones.is_completed) == ({3}, True)
    milestones.add({"event": "snapshot_restored", "number": 1})
    assert (milestones.stale, milestones.is_completed) == (set(), False)
