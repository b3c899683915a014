"""A session from Python: run, decide with a guard, edit, look, restore, fork. The same acts as the command line's."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path

import pytest

from haytham import MemoryStore, Phase, Reply, Task, Workflow, Workspace
from haytham.app.settings import RunSettings
from haytham.errors import (
    AmbiguousOutput,
    CallableNotImportable,
    InvalidArgument,
    InvalidIdea,
    InvalidProject,
    InvalidRequest,
    MergeConflict,
    NoPhaseToRun,
    NoSession,
    NotFound,
    NothingToDecide,
    PhaseRunning,
    ReviewChanged,
    SessionNotFound,
    SnapshotNotFound,
    WorkflowChanged,
    WriteConflict,
)
from haytham.session.review import ReviewGate
from support.cli_runner import edit, haytham, own_modules
from support.cli_runner import workflow as workflow_folder
from support.history_workers import tree

IDEA = "Lend rain barrels"


@pytest.fixture(autouse=True)
def _ann(tmp_path, monkeypatch):
    """Work as ann, in a folder of one's own, with a trust list and modules of one's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAYTHAM_USER", "ann")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".state"))
    with own_modules(tmp_path):
        yield


async def research(task: Task) -> str:
    """Find a number, asynchronously."""
    return f"# Market\n\n{task.idea}: 14,000 gardens."


def count(task: Task) -> Reply:
    """Count, and say what it cost."""
    return Reply(f"Attempt {task.attempt}: {task.request or 'no request'}.", cost=0.25, input_tokens=3, output_tokens=4)


def offer(*agents, **options):
    """A workflow of two phases: a worksheet without review, then the agents."""
    phases = [
        Phase("Concept", agents=["worksheet"], review="none"),
        Phase("Market", agents=list(agents or [research]), needs=["Concept"]),
    ]
    return Workflow("offer", phases=phases, **options)


@pytest.fixture
def session():
    """A session that waits at the gate of its second phase."""
    session = Workspace("projects").start(IDEA, workflow=offer(count, research))
    assert session.run().status == "waiting"
    return session


def events(session, name):
    """The events of a name that the session's file has."""
    lines = (session.folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


# The example of the architecture.


def test_the_python_example_works():
    """A workflow built in Python, with a callable as an agent, is run, approved and completed."""
    session = Workspace("projects").start(IDEA, workflow=offer(), user="ann")
    result = session.run()
    assert (result.status, result.phase) == ("waiting", 2)
    assert session.output("research").text == "# Market\n\nLend rain barrels: 14,000 gardens."
    decision = session.approve(comment="Go on.")
    assert (decision.phase, decision.decision, decision.by) == (2, "approved", "ann")
    assert [event["by"] for event in events(session, "decision")] == ["ann"]
    assert session.snapshots()[0].approval == "phase 2, attempt 1"
    assert session.run().status == "completed"


def test_a_session_runs_inside_a_loop():
    """`run_async` does in a running loop what `run` does outside of one."""

    async def work():
        return await Workspace("projects").start(IDEA, workflow=offer()).run_async()

    assert asyncio.run(work()).status == "waiting"


def test_a_session_with_callables_is_reopened_with_its_workflow(session):
    """Callables are passed again with the workflow; another workflow is a changed one, and none asks for trust."""
    session.request_changes(comment="Shorter")
    workspace = Workspace("projects")
    assert workspace.session("lend", workflow=offer(count, research)).run().status == "waiting"
    with pytest.raises(WorkflowChanged):
        workspace.session("lend", workflow=offer(count)).run()
    changed = workspace.session("lend", workflow=offer(count))
    changed.prepare(accept_workflow=True)
    assert changed.run().status == "waiting"


def test_the_command_line_refuses_a_callable_that_cannot_be_imported(tmp_path):
    """A local function runs only from the program that has it; the command line says so before the run."""

    def local(task):
        return task.idea

    session = Workspace("projects").start(IDEA, workflow=offer(local))
    with pytest.raises(CallableNotImportable):
        Workspace("projects").session().run()
    answer = haytham("resume", cwd=tmp_path)
    assert answer.code == 1
    assert "local is a Python callable that cannot be imported" in answer.err
    assert not events(session, "phase_started")


# Decisions.


def test_every_decision_has_its_event_and_an_approval_its_snapshot(session):
    """A decision from Python is what the command makes of it: feedback, event, and a snapshot of an approval."""
    before = len(session.snapshots())
    asked = session.request_changes(comment="Too broad", changes=["Name a city"], agents=["count"])
    assert (asked.decision, asked.attempt, asked.agents, asked.asked) == ("changes", 1, ("count",), ("count",))
    assert len(session.snapshots()) == before
    session.run()
    approved = session.approve(comment="Go on")
    assert (approved.decision, approved.attempt) == ("approved", 2)
    assert session.snapshots()[0].approval == "phase 2, attempt 2"
    assert [event["decision"] for event in events(session, "decision")] == ["changes", "approved"]


def test_a_request_for_changes_says_something(session):
    """Neither comments nor changes is a mistake, and nothing is stored."""
    with pytest.raises(InvalidRequest, match="say what is to change"):
        session.request_changes(changes=[" "])
    assert not events(session, "decision")


def test_lines_that_a_person_edited_are_counted(session):
    """The result of an approval has the lines that the person added and removed."""
    output = session.output("count")
    session.save_output(f"{output.text}\nAnd one of mine.", phase=2, agent="count", expect=output.digest)
    approved = session.approve()
    assert (approved.added, approved.removed) == (1, 0)


@pytest.mark.parametrize("decide", ["approve", "reject", "skip", "request_changes"])
@pytest.mark.parametrize("change", ["text", "feedback", "attempt"])
def test_a_decision_on_what_has_changed_is_refused(session, decide, change):
    """A guard holds the digests of texts and feedback, and the attempt: what differs is named, nothing is decided."""
    guard = session.review().guard
    if change == "text":
        edit(session.folder / "phase_2_market/count.md", "no request", "one request")
    elif change == "feedback":
        edit(session.folder / "phase_2_market/user_feedback.md", "\n## Requested", "\nHm.\n\n## Requested")
    else:
        session.request_changes(comment="Again")
        session.run()
    before = len(events(session, "decision"))
    with pytest.raises(ReviewChanged) as refused:
        getattr(session, decide)(2, comment="Too broad", guard=guard)
    named = {"text": ("count",), "feedback": ("feedback",), "attempt": ("attempt", "count", "feedback")}
    assert refused.value.changed == named[change]
    assert len(events(session, "decision")) == before


def test_a_decision_on_what_was_seen_is_taken(session):
    """A guard that still fits lets the decision pass, also one of another phase than is waited at."""
    guard = session.review(2).guard
    assert session.approve(guard=guard).phase == 2


def test_a_typed_decision_that_the_reviewer_saw_does_not_stop_theirs(session):
    """A decision typed into the file is bound first, in the same transaction, and the guard is compared before."""
    edit(session.folder / "phase_2_market/user_feedback.md", "- Action: pending", "- Action: rejected")
    guard = session.review(2).guard
    assert session.approve(2, guard=guard).decision == "approved"
    assert [event["decision"] for event in events(session, "decision")] == ["rejected", "approved"]


@pytest.mark.parametrize("decide", ["approve", "reject", "skip"])
def test_no_decision_is_taken_on_a_phase_that_runs(decide):
    """While agents of a phase work, deciding on it is refused; on another phase it is not."""
    started, go_on = threading.Event(), threading.Event()

    def slow(task):
        started.set()
        go_on.wait(20)
        return "At last."

    phases = [Phase("One", agents=[slow]), Phase("Two", agents=["worksheet"], needs=["One"])]
    session = Workspace("projects").start(IDEA, workflow=Workflow("slow", phases=phases))
    results = []
    thread = threading.Thread(target=lambda: results.append(session.run()))
    thread.start()
    try:
        assert started.wait(20)
        with pytest.raises((PhaseRunning, NothingToDecide)) as refused:
            getattr(Workspace("projects").session(), decide)(1)
        other = Workspace("projects").session().skip(2)
    finally:
        go_on.set()
        thread.join(20)
    assert decide != "skip" or isinstance(refused.value, PhaseRunning)
    assert (other.phase, other.decision) == (2, "skip")
    assert [result.status for result in results] == ["waiting"]
    assert getattr(session, decide)(1).phase == 1


def test_the_command_line_refuses_to_skip_a_phase_that_runs(tmp_path):
    """`haytham skip` during a run of the phase is exit 2, with who runs it."""
    answers = []

    def curious(task):
        answers.append(haytham("skip", cwd=tmp_path))
        return "Ten gardens."

    phases = [Phase("One", agents=[curious])]
    session = Workspace("projects").start(IDEA, workflow=Workflow("curious", phases=phases))
    assert session.run().status == "waiting"
    assert answers[0].code == 2
    assert "phase 1 is running: process" in answers[0].err


def test_nothing_to_decide_says_why(session):
    """The reason is a value: all phases are settled, one is to run first, the session was rejected."""
    session.request_changes(comment="Again")
    reasons = [refused_reason(session)]
    session.run()
    session.approve()
    reasons.append(refused_reason(session))
    session.reject(2)
    assert [*reasons, refused_reason(session)] == [("to_run", 2), ("settled", None), ("rejected", 2)]


def refused_reason(session):
    """Why an approval without a phase is refused, and which phase that is about."""
    with pytest.raises(NothingToDecide) as refused:
        session.approve()
    return refused.value.reason, refused.value.phase


# Texts.


def test_an_output_is_replaced_only_over_what_was_seen(session):
    """`expect` is the digest of the text that a person saw: another text there is a conflict, and stays."""
    seen = session.output("count")
    saved = session.save_output("Mine.\n", phase=2, agent="count", expect=seen.digest)
    assert (saved.text, saved.revised) == ("Mine.\n", True)
    with pytest.raises(WriteConflict):
        session.save_output("Another one.\n", phase=2, agent="count", expect=seen.digest)
    assert session.output("count").text == "Mine.\n"
    assert [event["agent"] for event in events(session, "revised")] == ["count"]
    session.save_output("Without a look.\n", phase=2, agent="count")
    assert session.output("count").text == "Without a look.\n"


def test_an_output_of_no_agent_is_not_saved(session):
    """A text is saved over an output that exists, and nothing is made of another name."""
    with pytest.raises(NotFound):
        session.save_output("Mine.", phase=2, agent="nobody")


def test_an_output_of_several_phases_is_ambiguous():
    """An agent with outputs in two phases is named with its phase; without it, the phases are named."""
    phases = [
        Phase("One", agents=["worksheet"], review="none"),
        Phase("Two", agents=["worksheet"], needs=["One"], review="none"),
    ]
    session = Workspace("projects").start(IDEA, workflow=Workflow("twice", phases=phases))
    session.run()
    with pytest.raises(AmbiguousOutput) as refused:
        session.output("worksheet")
    assert refused.value.phases == (1, 2)
    assert session.output("worksheet", 2).phase == 2
    assert [output.phase for output in session.outputs()] == [1, 2]
    with pytest.raises(NotFound):
        session.output("nobody")


def test_a_review_shows_texts_earlier_texts_and_the_last_decision(session):
    """A page of a phase needs no other call: texts, those before, who decided what, and the guard of all that."""
    first = session.review()
    assert (first.phase, first.attempt, first.decision, first.earlier_texts) == (2, 1, None, {})
    session.request_changes(comment="Shorter", agents=["count"])
    decided = session.review(2)
    assert (decided.decision, decided.comments, decided.by) == ("changes", "Shorter", "ann")
    session.run()
    second = session.review()
    assert (second.attempt, second.decision) == (2, None)
    assert second.earlier_texts["count"] == first.texts["count"] != second.texts["count"]


# Running.


def test_input_reaches_the_next_phase_that_runs(session):
    """`resume(input=…)` gives a person's words to the next phase; where none will run, that is an error."""
    session.request_changes(comment="Again")
    assert session.resume(input="Name a city").status == "waiting"
    assert session.output("count").text == "Attempt 2: Name a city."
    session.approve()
    session.run()
    with pytest.raises(NoPhaseToRun):
        session.resume(input="More")


def test_a_session_goes_on_from_a_snapshot(session):
    """`resume(snapshot)` restores it first; without one it is the same as `run`."""
    point = session.snapshots()[0]
    session.approve()
    assert session.run().status == "completed"
    assert session.resume(point).status == "waiting"
    assert session.resume().status == "waiting"
    with pytest.raises(SnapshotNotFound):
        session.resume("999")


def test_a_phase_is_run_again(session):
    """`retry` makes a new attempt at a phase."""
    assert session.retry(2).phase == 2
    assert session.output("count").attempt == 2


def test_limits_pause_a_run_and_are_raised(session):
    """Limits are stored with the session, stop a run before the next call, and hold until they are changed."""
    priced = Workspace("projects").start("Lend ladders", workflow=offer(count), max_cost=0.0, max_tokens=0)
    assert (priced.cost().spending.limits.max_cost, priced.manifest.max_tokens) == (0.0, 0)
    raised = RunSettings.of(max_cost=5, max_tokens=9000)
    priced.run(settings=raised)
    assert priced.cost().spending.limits.max_cost == 5.0
    assert [event["max_cost"] for event in events(priced, "settings_changed")] == [5]


@pytest.mark.parametrize("limits", [{"max_cost": -1}, {"max_cost": "much"}, {"max_tokens": 1.5}, {"max_tokens": True}])
def test_limits_are_numbers(limits):
    """A limit that is none is refused before anything is written."""
    with pytest.raises(InvalidArgument):
        Workspace("projects").start(IDEA, workflow=offer(), **limits)
    assert not Path("projects").exists()


def test_handlers_hear_a_run(session):
    """Events to which handlers are added are given to a run; what they raise stops nothing."""
    heard, log = [], session.new_events()
    log.on("*", lambda event: heard.append(event.name))
    session.approve()
    session.run(events=log)
    assert heard[-1] == "run_ended"


# Sessions of a workspace.


def test_a_session_is_found_by_a_part_of_its_id(session):
    """By any unique part; none and several are errors with those to choose from."""
    workspace = Workspace("projects")
    other = workspace.start("Lend ladders", user="bob", name="Ladders")
    assert workspace.session("ladd").id == other.id
    assert workspace.session(session.id).id == session.id
    with pytest.raises(SessionNotFound) as several:
        workspace.session(["lend_rain_barrels", ""][0][:0] or "2")
    assert several.value.matches == 2
    with pytest.raises(SessionNotFound) as none:
        workspace.session("nothing")
    assert {name for name, _ in none.value.candidates} == {session.id, other.id}


def test_sessions_are_listed_by_status_user_and_project(session):
    """Filters leave those that they name; one that cannot be read is listed with its error."""
    workspace = Workspace("projects")
    other = workspace.start("Lend ladders", user="bob", name="Ladders")
    assert [one.id for one in workspace.list(user="bob")] == [other.id]
    assert [one.id for one in workspace.list(status="waiting")] == [session.id]
    assert [one.id for one in workspace.list(project="ladders")] == [other.id]
    (other.folder / "session_manifest.md").write_text("mine\n", encoding="utf-8")
    assert [(one.id, one.error is None) for one in workspace.list(status="unreadable")] == [(other.id, False)]


def test_a_workspace_without_sessions_says_so():
    """There is nothing to choose from before the first session."""
    with pytest.raises(NoSession, match="there is no session in projects"):
        Workspace("projects").session()


def test_a_start_is_checked_before_anything_is_written():
    """No idea, an empty one, an unknown project, model or workflow leave no file."""
    workspace = Workspace("projects")
    for error, idea, options in [
        (InvalidIdea, None, {}),
        (InvalidIdea, " ", {}),
        (InvalidProject, None, {"project": "nothing"}),
        (InvalidRequest, IDEA, {"model": "gpt"}),
        (InvalidArgument, IDEA, {"workflow": "nothing"}),
        (InvalidArgument, IDEA, {"mode": "nothing"}),
    ]:
        with pytest.raises(error):
            workspace.start(idea, **options)
    assert not Path("projects").exists()


def test_a_workflow_is_named_by_folder_path_or_files(tmp_path):
    """A path, its text and the name of a shipped workflow start a session alike."""
    folder = workflow_folder(tmp_path, ["a"])
    workspace = Workspace("projects")
    digests = {workspace.start(IDEA, workflow=one).manifest.workflow for one in (folder, str(folder))}
    assert len(digests) == 1
    assert workspace.start(IDEA, workflow="idea_validation").manifest.workflow_type == "idea_validation"


def tokens(session):
    """The tokens of a session and its workspace, once files that were just written have a change token."""
    time.sleep(0.1)
    return session.change_token(), session.workspace.change_token()


def test_a_change_changes_the_token(session):
    """The token of a session and of its workspace is the same until a document changes, by whoever."""
    before = tokens(session)
    assert tokens(session) == before
    edit(session.folder / "phase_2_market/count.md", "no request", "one request")
    after = tokens(session)
    assert after[0] != before[0]
    assert after[1] != before[1]
    Workspace("projects").start("Lend ladders", name="Ladders")
    assert tokens(session)[0] == after[0]
    assert tokens(session)[1] != after[1]


def test_a_workspace_rests_in_any_store():
    """A session starts, and is found, in a store that is no folder."""
    workspace = Workspace(store=MemoryStore())
    session = workspace.start(IDEA, workflow=offer())
    assert session.run().status == "waiting"
    assert workspace.session().approve().decision == "approved"


# Snapshots and forks.


def test_the_history_of_a_session_has_every_method_of_history(session):
    """take, step, operation, pin, prune, verify and the others are there, and a fork is a session like this one."""
    history = session.history
    taken = history.take(label="before")
    history.pin(taken)
    assert taken.id in history.pins()
    with history.operation("rewrite"):
        session.update_state({"memory": {"session": {"city": "Leeds"}}})
    assert history.verify() == []
    child = history.fork(taken, name="other")
    assert type(child) is type(session)
    assert (child.parent.id, child.is_fork, session.is_fork) == (session.id, True, False)
    assert "manifest.forked_from" in history.compare(taken, child).changed_fields
    assert Workspace("projects").history().list(user="ann", limit=1)


def test_a_restore_says_what_it_changed(session):
    """Documents by path, settings that changed, and the snapshot that undoes it."""
    point = session.snapshots()[0]
    session.run(settings=RunSettings.of(max_tokens=9000))
    edit(session.folder / "phase_2_market/count.md", "no request", "one request")
    result = session.restore(point)
    assert "phase_2_market/count.md" in result.changed
    assert [(change.name, change.before, change.after) for change in result.settings] == [("max_tokens", 9000, None)]
    session.restore(result.recovery)
    assert "one request" in session.output("count").text


def test_a_session_at_a_snapshot_is_read_and_not_changed(session):
    """What is done to a session as it was is not stored."""
    point = session.snapshots()[0]
    session.approve()
    before = tokens(session)
    was = session.at(point)
    assert was.status().next.action == "gate"
    was.update_state({"memory": {"session": {"city": "Leeds"}}})
    assert tokens(session) == before


def test_a_fork_is_merged_back(session):
    """Texts of a fork that changed are merged, their gate opens, and a snapshot undoes that; others stay."""
    child = session.fork(name="cheaper", purpose="half the price")
    edit(child.folder / "phase_2_market/count.md", "no request", "half the price")
    result = session.merge(child, [1, 2])
    assert (result.merged, result.unchanged) == ((2,), (1,))
    assert "half the price" in session.output("count").text
    assert (result.opened, result.problems, [page.agent for page in result.pages]) == ((2,), (), ["count"])
    session.restore(result.recovery)
    assert "half the price" not in session.output("count").text


def test_conflicts_of_a_merge_are_resolved_in_an_editor(session):
    """The editor gets each page with both versions; without one MergeConflict is raised, and nothing changes."""
    child = session.fork(name="cheaper")
    for one, words in ((session, "my words"), (child, "his words")):
        edit(one.folder / "phase_2_market/count.md", "no request", words)
    with pytest.raises(MergeConflict):
        session.merge(child, [2])

    def choose(page, line):
        text = page.read_text(encoding="utf-8")
        assert text.split("\n")[line - 1].startswith("<<<<<<< ")
        start, end = text.index("<<<<<<< "), text.index(">>>>>>> cheaper\n") + len(">>>>>>> cheaper\n")
        page.write_text(text[:start] + "both words\n" + text[end:], encoding="utf-8")

    result = session.merge(child, [2], open_editor=choose)
    assert (result.problems, "both words" in session.output("count").text) == ((), True)


def test_a_decision_that_was_typed_is_bound_before_a_merge(session):
    """It was made on the text before: the merged text waits for review, whatever stands in the file."""
    child = session.fork(name="cheaper")
    edit(child.folder / "phase_2_market/count.md", "no request", "half the price")
    edit(session.folder / "phase_2_market/user_feedback.md", "- Approved: -", "- Approved: true")
    result = session.merge(child, [2])
    assert [decision.decision for decision in result.editor.bound] == ["approved"]
    assert session.review(2).decision is None


def test_a_session_is_named_archived_and_deleted(session):
    """The name finds it; archived it is chosen only by name; deleted it is gone, and a dry run deletes nothing."""
    workspace, child = Workspace("projects"), session.fork(name="cheaper")
    child.set_name("Half the price")
    assert (workspace.session("Half the price").id, child.name) == (child.id, "Half the price")
    child.archive()
    assert [one.id for one in workspace.list(archived=True)] == [child.id]
    assert workspace.session().id == session.id
    child.archive(undo=True)
    assert workspace.list(archived=True) == []
    assert child.delete(dry_run=True) == child.delete()
    assert [one.id for one in workspace.list()] == [session.id]


def test_a_lost_manifest_is_rebuilt(session):
    """`repair` does what `haytham doctor` does, and `validate` finds nothing then."""
    (session.folder / "session_manifest.md").unlink()
    report = session.repair()
    assert report.done[0].startswith("rebuilt session_manifest.md")
    assert not [problem for problem in session.validate().problems if not problem.derived]


# What a decision and a run are checked for before anything changes.


def test_a_guard_notices_that_the_phase_became_stale(session):
    """A reviewer who read a page before what it builds on was edited is refused, and the page can be renewed."""
    guard = session.review().guard
    edit(session.folder / "phase_1_concept" / "worksheet.md", IDEA, "Lend water butts")
    with pytest.raises(ReviewChanged, match="what count builds on, what research builds on"):
        session.approve(guard=guard)
    assert events(session, "decision") == []


def test_a_guard_is_of_the_phase_that_is_decided_on(session):
    """The guard of one phase approves no other one."""
    with pytest.raises(InvalidArgument, match="guard: found 'of phase 1'; allowed: the guard of phase 2"):
        session.approve(2, guard=session.review(1).guard)
    assert events(session, "decision") == []


def test_a_decision_that_comes_second_is_refused(session, monkeypatch):
    """Of two who decide at the same moment one is told that nothing waits any more; their decision is not stored."""
    decide = ReviewGate.decide

    def after_somebody_else(gate, *args, **given):
        monkeypatch.setattr(ReviewGate, "decide", decide)
        session.request_changes(comment="Too broad")
        return decide(gate, *args, **given)

    monkeypatch.setattr(ReviewGate, "decide", after_somebody_else)
    with pytest.raises(NothingToDecide):
        session.approve()
    assert [event["decision"] for event in events(session, "decision")] == ["changes"]


def test_a_retry_of_untrusted_code_changes_nothing(tmp_path):
    """A phase whose code may not run keeps its output and its approval."""
    (tmp_path / "mine.py").write_text("def answer(task):\n    return 'One.'\n", encoding="utf-8")
    workflow_folder(tmp_path, ["one"], model="python:mine:answer")
    assert haytham("run", IDEA, "--workflow", "mine", "--yes", cwd=tmp_path).code == 0
    (tmp_path / "mine.py").write_text("def answer(task):\n    return 'Two.'\n", encoding="utf-8")
    before = tree(tmp_path / "projects")
    answer = haytham("retry", "1", cwd=tmp_path)
    assert (answer.code, "is not trusted here" in answer.err) == (1, True)
    assert tree(tmp_path / "projects") == before
    assert Workspace("projects").session().status().status == "completed"


def test_a_callable_that_is_not_called_again_need_not_be_imported(tmp_path):
    """The command line goes on with a session of such a workflow as far as nobody has to call it."""
    session = Workspace("projects").start(IDEA, workflow=offer(lambda task: f"{task.idea}: fine."))
    assert session.run().status == "waiting"
    assert haytham("resume", "--no-input", cwd=tmp_path).code == 3
    session.approve()
    assert haytham("resume", "--no-input", cwd=tmp_path).code == 0
    answer = haytham("retry", "2", cwd=tmp_path)
    assert (answer.code, "cannot be imported" in answer.err) == (1, True)


def test_run_inside_a_loop_names_the_call_to_use(session):
    """`run` in a running loop is one clear sentence, and runs nothing."""

    async def work():
        session.run()

    with pytest.raises(InvalidRequest, match=r"await session\.run_async"):
        asyncio.run(work())


def test_one_change_may_be_given_as_text(session):
    """A text is one requested change, not a list of letters."""
    session.request_changes(changes="Name one city")
    assert session.review(2).changes == ("Name one city",)


def test_a_module_that_exits_when_imported_fails_its_agent(tmp_path):
    """`sys.exit` at the top of a module is a failure of the agent, never the end of the program."""
    (tmp_path / "mine.py").write_text(
        "import sys\n\n\ndef answer(task):\n    return task.idea\n\n\nsys.exit(9)\n", encoding="utf-8"
    )
    workflow_folder(tmp_path, ["one"], model="python:mine:answer")
    answer = haytham("run", IDEA, "--workflow", "mine", cwd=tmp_path)
    assert (answer.code, "SystemExit" in answer.out) == (1, True)
