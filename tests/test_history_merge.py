"""Merging texts of another session: three-way, as a revision, and again from where the last merge ended."""

from __future__ import annotations

import json

import pytest

from haytham import History
from haytham.config.workflow import FILE, WorkflowFiles
from haytham.errors import AlreadyRunning, InvalidArgument, InvalidDocument, MergeConflict, NotFound
from haytham.session import SessionDocuments
from haytham.session.paths import session_lock
from haytham.session.plan import SessionPlan
from haytham.session.review import ReviewGate
from haytham.session.summary import summarize
from haytham.storage import FileStore
from support.history_workers import (
    AGENT_FILE,
    FOLDERS,
    PATHS,
    again,
    all_of,
    approve,
    copied,
    new_session,
    past,
    place,
    put,
    text_of,
    tree,
    work,
    worked_session,
    write,
)

PAGE = "# Market\n\n| City | Gardens |\n|---|---|\n| Leeds | 14,000 |\n| York | 9,000 |\n\nGo.\n"


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A session with a snapshot, number 1, and a page in phase 2 that was written since."""
    session = worked_session(tmp_path_factory.mktemp("origin"))
    History(session).take()
    work(session, 2, PAGE)
    return session


@pytest.fixture
def session(origin, tmp_path):
    return copied(origin, tmp_path / "projects")


@pytest.fixture
def fork(session):
    return past(session).fork(name="f")


def merge(session, other, numbers=(2,), **options):
    """Merge phases of another session; the phases that changed."""
    return past(session).merge(getattr(other, "session_id", other), list(numbers), **options).phases


def revise(session, number, old, new):
    """Edit the page of a phase as a person does."""
    path = place(session) / PATHS[number]
    data = path.read_bytes()
    assert old.encode() in data
    path.write_bytes(data.replace(old.encode(), new.encode()))


def action(session, number):
    """What resume would do with a phase."""
    return SessionPlan(again(session).read()).phase(number).next_action.action


def events(session, name):
    """The events of a name that are stored."""
    lines = map(json.loads, (place(session) / "events.jsonl").read_bytes().splitlines())
    return [line for line in lines if line["event"] == name]


# What is merged.


def test_only_the_text_of_an_output_is_merged(session, fork):
    """The header of the page, checkpoint and attempts stay this session's; the other session is not touched."""
    write(fork, 2, PAGE.replace("Go.", "His."))
    approve(fork, 2)
    put(fork, f"{FOLDERS[2]}/attempts/1/b.md", "an attempt")
    theirs, head = all_of(fork), (place(session) / PATHS[2]).read_text().split("## Output")[0]
    assert merge(session, fork, [1, 2, 3]) == (2,)
    assert (text_of(session, 2), all_of(fork)) == (PAGE.replace("Go.", "His."), theirs)
    assert (place(session) / PATHS[2]).read_text().startswith(head)
    assert not (place(session) / FOLDERS[2] / "attempts").exists()
    assert past(session).verify() == []


def test_a_merge_is_a_revision_and_opens_the_gate(session, fork):
    """An approval was of another text: it is archived; events say what was revised, and which session was merged."""
    approve(session, 2)
    write(fork, 2, PAGE.replace("Go.", "His."))
    assert (merge(session, fork), action(session, 2)) == ((2,), "gate")
    view = again(session).read()
    assert (view.attempt(view.phase(2)), view.decision(view.phase(2))) == (2, None)
    assert view.archived_attempt(view.phase(2), 1).texts == {"b": PAGE}
    output = view.output(view.phase(2), "b").value
    (revised,), (merged,) = events(session, "revised"), events(session, "merged")
    assert (revised["phase"], revised["agent"], output.agent_digest) != (2, "b", revised["text"])
    assert (merged["session"], merged["phases"]) == ("f", [2])


def test_both_sessions_may_change_different_lines_and_rows(session, fork):
    """A row that each has changed, and a line, are all in the merge."""
    revise(session, 2, "14,000", "14,500")
    revise(fork, 2, "9,000", "9,100")
    revise(fork, 2, "Go.", "Go on.")
    assert merge(session, fork) == (2,)
    expected = PAGE.replace("14,000", "14,500").replace("9,000", "9,100").replace("Go.", "Go on.")
    assert text_of(session, 2) == expected


def test_what_only_this_session_has_changed_is_kept(session, fork):
    """A text that the other left as it was stays as it is here, without a snapshot or a reopened gate."""
    write(session, 2, "mine")
    write(fork, 1, "his one")
    assert merge(session, fork, [1, 2]) == (1,)
    assert (text_of(session, 1), text_of(session, 2)) == ("his one", "mine")
    before = tree(place(session))
    assert (merge(session, fork, [2, 3]), tree(place(session))) == ((), before)


def test_other_files_of_a_phase_are_not_merged(session, fork):
    """What the other session has beside outputs, or has deleted, changes nothing here."""
    put(fork, f"{FOLDERS[3]}/notes.md", "his")
    (place(fork) / PATHS[2]).unlink()
    before = tree(place(session))
    assert (merge(session, fork, [2, 3]), tree(place(session))) == ((), before)


def test_a_phase_that_has_not_run_here_is_taken_over(session, fork):
    """Its page is a person's text here, without tokens, and the phase is completed and waits for review."""
    work(fork, 3, "his three")
    assert (merge(session, fork, [3]), text_of(session, 3), action(session, 3)) == ((3,), "his three", "gate")
    view = again(session).read()
    output = view.output(view.phase(3), "c").value
    assert (output.model, output.input_tokens, output.attempt, output.task is None) == ("m", None, 1, False)
    assert 3 in summarize(view).completed_phases
    approve(session, 3)
    assert action(session, 3) == "approved"


def test_a_page_that_failed_here_is_replaced(session, fork):
    """What an agent left that failed is no text to merge with: the phase is completed with the other's."""
    failed = {"duration": None, "status": "failed", "model": "m", "input_tokens": None, "output_tokens": None}
    session.save_output(3, "c", {**failed, "tools_used": None, "error_type": "E", "error_message": "no"}, "")
    work(fork, 3, "his three")
    assert (merge(session, fork, [3]), text_of(session, 3)) == ((3,), "his three")
    view = again(session).read()
    output = view.output(view.phase(3), "c").value
    assert (output.status, output.error_message, 3 in summarize(view).completed_phases) == ("completed", None, True)


def test_a_phase_that_lacks_a_page_has_no_gate_yet(tmp_path):
    """What the other has written of it is taken over, and resume runs the agents that are missing."""
    text = "name: two\nphases: [{number: 1, name: One, slug: one, agents: [a, b]}]\nmodes: {all: [1]}\n"
    files = {FILE: text.encode(), "agents/a.md": AGENT_FILE, "agents/b.md": AGENT_FILE}
    session = SessionDocuments(FileStore(tmp_path), "p", "s")
    session.create(user_id="u", source=WorkflowFiles("here", files), mode="all")
    fork = past(session).fork(name="f")
    write(fork, 1, "his")
    report = past(session).merge(fork, [1])
    next_action = SessionPlan(again(session).read()).phase(1).next_action
    assert (report.phases, report.opened, next_action.action, next_action.agents) == ((1,), (), "run", ("b",))


# Conflicts.


def test_what_both_have_changed_stops_a_merge(session, fork):
    """The documents are told with their conflicts, and nothing is merged, of other phases neither."""
    write(fork, 1, "his one")
    revise(session, 2, "14,000", "14,500")
    revise(fork, 2, "14,000", "13,000")
    before = all_of(session)
    with pytest.raises(MergeConflict, match=r"phase_2_two/b\.md: 1 conflict") as caught:
        merge(session, fork, [1, 2])
    assert (caught.value.conflicts, all_of(session)) == ({PATHS[2]: 1}, before)


@pytest.mark.parametrize(("prefer", "number"), [("ours", "14,500"), ("theirs", "13,000")])
def test_a_preferred_side_decides_conflicts(session, fork, prefer, number):
    """What only the other has changed is merged in any case."""
    revise(session, 2, "14,000", "14,500")
    revise(fork, 2, "14,000", "13,000")
    revise(fork, 2, "9,000", "9,100")
    assert merge(session, fork, prefer=prefer) == (2,)
    assert text_of(session, 2) == PAGE.replace("14,000", number).replace("9,000", "9,100")


def test_marked_conflicts_have_both_names_and_keep_a_phase_from_being_approved(session, fork):
    """The page holds both versions until a person has chosen; a merge into or from such a page is refused, too."""
    approve(session, 2)
    revise(session, 2, "14,000", "14,500")
    revise(fork, 2, "14,000", "13,000")
    (page,) = past(session).merge("f", [2], mark_conflicts=True).pages
    assert (page.path, page.conflicts) == (PATHS[2], 1)
    rows = "<<<<<<< s\n| Leeds | 14,500 |\n=======\n| Leeds | 13,000 |\n>>>>>>> f\n"
    assert rows in (place(session) / PATHS[2]).read_text()
    for refused in (lambda: merge(session, fork), lambda: merge(fork, session), lambda: action(session, 2)):
        with pytest.raises(InvalidDocument, match="markers of a git conflict"):
            refused()
    revise(session, 2, rows, "| Leeds | 13,500 |\n")
    assert (action(session, 2), merge(session, fork)) == ("gate", ())


def test_what_both_have_changed_alike_is_no_conflict(session, fork):
    """The same words on both sides need no merge."""
    revise(session, 2, "Go.", "Go on.")
    revise(fork, 2, "Go.", "Go on.")
    assert merge(session, fork) == ()


# Again, and in other directions.


def test_the_next_merge_starts_from_the_last_one(session, fork):
    """Only what the other changed since is merged, whatever was decided then."""
    revise(session, 2, "14,000", "14,500")
    revise(fork, 2, "14,000", "13,000")
    merge(session, fork, prefer="ours")
    revise(fork, 2, "9,000", "9,100")
    assert (merge(session, fork), merge(session, fork)) == ((2,), ())
    assert text_of(session, 2) == PAGE.replace("14,000", "14,500").replace("9,000", "9,100")


def test_a_merge_back_starts_from_the_last_merge(session, fork):
    """A conflict that was decided in one direction is decided in the other, too."""
    revise(session, 2, "14,000", "14,500")
    revise(fork, 2, "14,000", "13,000")
    merge(session, fork, prefer="ours")
    revise(fork, 2, "Go.", "Go on.")
    assert merge(fork, session) == (2,)
    assert text_of(fork, 2) == PAGE.replace("14,000", "14,500").replace("Go.", "Go on.")
    revise(fork, 2, "14,500", "14,600")
    assert (merge(session, fork), text_of(session, 2)) == ((2,), text_of(fork, 2))


def test_a_restore_takes_the_base_of_the_next_merge_back(session, fork):
    """Once a merge is undone the same text can be merged again: nothing of it counts as merged."""
    revise(fork, 2, "Go.", "Go on.")
    recovery = past(session).merge("f", [2]).recovery
    past(session).restore(recovery)
    assert (recovery.kind, text_of(session, 2)) == ("recovery", PAGE)
    assert (merge(session, fork), text_of(session, 2)) == ((2,), PAGE.replace("Go.", "Go on."))


def test_the_base_stays_when_a_phase_runs_again(session, fork):
    """It belongs to no attempt: a new attempt is merged from the same text as the one before."""
    revise(fork, 2, "14,000", "13,000")
    merge(session, fork)
    ReviewGate(session).start_attempt(2)
    work(session, 2, PAGE.replace("14,000", "12,000"))
    assert (merge(session, fork), text_of(session, 2)) == ((), PAGE.replace("14,000", "12,000"))


def test_siblings_and_grandchildren_are_merged_by_where_they_parted(session):
    """Two forks of one session, and a fork of a fork: what each has changed since they parted counts."""
    left, right = past(session).fork(name="left"), past(session).fork(name="right")
    below = History(left).fork(name="below")
    write(below, 1, "below one")
    write(right, 2, "right two")
    assert merge(right, below, [1, 2]) == (1,)
    assert (text_of(right, 1), text_of(right, 2)) == ("below one", "right two")
    assert merge(session, below, [1]) == (1,)
    write(left, 2, "left two")
    with pytest.raises(MergeConflict, match=r"phase_2_two/b\.md"):
        merge(right, left)


def test_siblings_that_parted_at_different_moments_are_not_guessed(session):
    """Where two forks began with different texts nobody can tell who changed what: all that differs is a conflict."""
    early, late = past(session).fork("1", name="early"), past(session).fork(name="late")
    with pytest.raises(MergeConflict, match=r"phase_2_two/b\.md"):
        merge(early, late)
    assert merge(early, late, [1, 3]) == ()


def test_strangers_are_not_merged(session):
    """Of two sessions that do not come from each other everything that differs counts as changed by both."""
    worked_session(session.store.base, name="stranger")
    before = all_of(session)
    with pytest.raises(MergeConflict):
        merge(session, "stranger")
    with pytest.raises(InvalidArgument, match="another one of project p"):
        merge(session, "s")
    with pytest.raises(InvalidArgument, match="another one of project p"):
        past(session).merge(new_session(session.store.base, project="q"), [1])
    with pytest.raises(NotFound, match="nobody"):
        merge(session, "nobody")
    assert all_of(session) == before


@pytest.mark.parametrize("numbers", [[9], [1, 9], ["1"], [True], [1.0]])
def test_only_phases_that_there_are_are_merged(session, fork, numbers):
    """A phase that neither has is refused, and so are the others of the same call."""
    write(fork, 1, "his one")
    with pytest.raises(InvalidArgument, match="phase"):
        merge(session, fork, numbers)
    assert text_of(session, 1) == "one"


def test_a_merge_is_refused_while_the_session_runs(session, fork):
    """Texts of this one are changed, so that nobody else may be at work on it; the other may run."""
    write(fork, 2, "his")
    with session.store.run_lock(session_lock("p", "s")), pytest.raises(AlreadyRunning):
        merge(session, fork)
    with session.store.run_lock(session_lock("p", "f")):
        assert merge(session, fork) == (2,)


def test_a_fork_whose_first_snapshot_was_deleted_is_merged_by_its_fork_point(session):
    """What the parent keeps for the fork's sake says as well what they were when they parted."""
    fork = past(session).fork("1", name="f")
    write(fork, 1, "his one")
    past(fork).take()
    past(fork).delete("1")
    assert merge(session, fork, [1, 2]) == (1,)
    assert (text_of(session, 1), text_of(session, 2)) == ("his one", PAGE)
