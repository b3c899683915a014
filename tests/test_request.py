"""A request: what a person asks for this time, word for word, with the attempt that it was given to."""

from __future__ import annotations

import pytest

from haytham.agents.base import PhaseInput, PreviousAttempt, SkippedPhase, Task
from haytham.agents.prompt import build_prompt, fenced
from haytham.config.agent_spec import read_agent
from haytham.errors import InvalidArgument, InvalidDocument
from haytham.session.editing import ReviewFiles
from haytham.session.paths import check_agent_name, output_agents
from haytham.session.review import save_request
from haytham.session.validate import schema_for_path, validate_tree
from haytham.storage import FileStore
from haytham.text import text_digest
from support import fake_agents
from support.fake_agents import WORKFLOW, Crash, Desk, Dying, called

HEADING = "\n# What is asked for this time\n\n"
ONE = "name: one\nphases:\n  - {number: 1, name: One, slug: one, agents: [a]}\nmodes: {all: [1]}\n"
WORDS = "Name one city, *please*:\n\n## Output\n---\n{{ 7*7 }}\u2028\ttwo\r\nend \n\n"
TASK = {
    "agent": "x",
    "agent_file": "Write about {{ phase }}.\n",
    "phase": 2,
    "phase_name": "Two",
    "attempt": 2,
    "idea": "Rain barrels.",
    "inputs": (PhaseInput(1, "One", "a", "Text of a."),),
    "comments": {"phase 1": "Fine."},
    "skipped_phases": (SkippedPhase(3, "Three", "it was skipped"),),
    "earlier_outputs": {"b": "Text of b."},
    "previous": PreviousAttempt(1, {"x": "Old."}, "Shorter.", ("Name one city",), "+by hand", "-new"),
    "evidence": "Known.",
}


@pytest.fixture(autouse=True)
def _anew():
    fake_agents.forget()


@pytest.fixture
def desk(tmp_path):
    """A session of four phases, nothing done yet."""
    return Desk(tmp_path)


@pytest.fixture
def waiting(desk):
    """A session that waits at its first gate; the call log is empty."""
    assert desk.resume() == ("waiting", 1)
    called()
    return desk


def request_file(desk, number=1, attempt=None):
    folder = desk.folder(number)
    return (folder if attempt is None else folder / "attempts" / str(attempt)) / "request.md"


def parts(desk, number=1, agent="a"):
    """What the task on record for an agent was made of."""
    return desk.session.read().task_parts(desk.phase(number), agent)


def ask_for(desk, text, number=1):
    save_request(desk.session, number, text, by="ann")


# The words.


def test_a_request_is_kept_word_for_word(desk):
    """The file holds what was given and nothing else, and reads back as that; where there is none it is empty."""
    assert desk.session.read().request(desk.phase(1)) == ""
    ask_for(desk, WORDS)
    assert request_file(desk).read_bytes() == WORDS.encode()
    assert desk.session.read().request(desk.phase(1)) == WORDS
    assert desk.session.read().request(desk.phase(2)) == ""


@pytest.mark.parametrize(
    ("number", "text", "said"),
    [
        (1, "", "words that ask for something"),
        (1, " \n", "words that ask for something"),
        (1, None, "text in valid Unicode"),
        (1, "\ud800", "text in valid Unicode"),
        (9, "x", "the phases of a session in mode all"),
    ],
)
def test_what_is_no_request_is_refused(desk, number, text, said):
    """Nothing at all, what is no text, and a phase that is not there: a ValueError, and nothing is written."""
    with pytest.raises(InvalidArgument, match=said):
        ask_for(desk, text, number)
    assert list(desk.base.rglob("request.md")) == []


# In the task.


def test_a_task_without_a_request_is_what_it_was():
    """Where nothing is asked for, digest and prompt are those of a task that knows no requests."""
    task = Task(**TASK)
    assert task.digest == "sha256:f304d85d035de055fda8b64e3271bd610b4d3fd8337898d9eeabcf4bd16e9e98"
    told = build_prompt(task, read_agent("x", task.agent_file))
    assert text_digest(told) == "sha256:2b564b28fda9c1092730fa430d402c1f7282b1eead556c69266492fc7d8f497d"


def test_a_task_shows_its_request_last_and_is_another_one_with_it():
    """The words stand under a heading of their own at the end, are never a template, and count as `input`."""
    plain, task = Task(**TASK), Task(**TASK, request=WORDS)
    spec = read_agent("x", task.agent_file)
    assert build_prompt(task, spec) == build_prompt(plain, spec) + HEADING + fenced(WORDS) + "\n"
    assert task.parts == {**plain.parts, "input": text_digest(WORDS)}
    assert len({plain.digest, task.digest, Task(**TASK, request="Another.").digest}) == 3


def test_a_state_is_no_part_of_a_task():
    """Whatever the caller keeps with a session, the task has the same digest."""
    assert Task(**TASK, state={"summary": "s"}).digest == Task(**TASK).digest


def test_every_agent_of_the_phase_is_given_the_request(desk):
    """Those of the phase that it was made for have it in their tasks, and those of other phases have not."""
    ask_for(desk, "For the second phase.", 2)
    desk.resume(approve_as="ann")
    given = {agent: HEADING in desk.task(n, agent) for n, agent in ((1, "a"), (2, "b"), (2, "c"), (3, "d"))}
    assert given == {"a": False, "b": True, "c": True, "d": False}
    assert desk.task(2, "c").endswith(HEADING + fenced("For the second phase.") + "\n")


# What resume makes of it.


def test_a_phase_that_ran_with_a_request_is_not_stale(desk):
    """Its request is part of the task it answered: nobody is asked again, at the gate or behind it."""
    ask_for(desk, "Name one city.")
    assert desk.resume() == desk.resume() == ("waiting", 1)
    assert parts(desk)["input"] == text_digest("Name one city.")
    desk.approve(1)
    assert desk.resume() == ("waiting", 2)
    assert called() == ["a", "b", "c"]
    assert request_file(desk).read_text(encoding="utf-8") == "Name one city."


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_request_for_what_is_there_makes_it_run_again(waiting, by_hand):
    """Added by a command or in an editor, a request makes the texts stale; the run says why, and asks with it."""
    if by_hand:
        request_file(waiting).write_text("Shorter.\n", encoding="utf-8")
    else:
        ask_for(waiting, "Shorter.\n")
    verdict = waiting.standing().phase(1).next_action
    found = (verdict.action, verdict.agents, verdict.reason)
    assert found == ("run again", ("a",), "what it builds on has changed (input)")
    assert waiting.resume() == waiting.resume() == ("waiting", 1)
    assert called() == ["a"]
    assert waiting.task(1, "a").endswith(HEADING + fenced("Shorter.\n") + "\n")


@pytest.mark.parametrize("change", [lambda path: path.write_text("Longer."), lambda path: path.unlink()])
def test_a_request_changed_or_removed_by_hand_makes_stale(desk, change):
    """Other words, or none any more, are another task."""
    ask_for(desk, "Shorter.")
    desk.resume()
    change(request_file(desk))
    assert desk.steps()[0] == "run again"
    assert desk.resume() == ("waiting", 1)
    assert called() == ["a", "a"]
    assert desk.steps()[0] == "gate"


def test_line_ends_in_a_request_make_nothing_stale(desk):
    """What git or an editor does to line ends, or a BOM, is no other request."""
    ask_for(desk, "One.\nTwo.\n")
    desk.resume()
    request_file(desk).write_bytes(b"\xef\xbb\xbfOne.\r\nTwo.\r\n")
    assert desk.steps()[0] == "gate"


def test_a_revised_text_is_not_run_over_for_a_request(waiting):
    """What a person wrote stays; the gate says that something is asked for."""
    waiting.edit(1, "a", "My own words.")
    ask_for(waiting, "Shorter.")
    assert waiting.resume() == ("waiting", 1)
    assert called() == []
    assert waiting.text(1, "a") == "My own words."
    assert "(input), and a person has revised it" in waiting.events("review_opened")[-1]["why"]


# With its attempt.


def test_a_request_moves_with_the_attempt_it_was_given_to(desk):
    """Changes wanted: the request goes to the attempt's folder, and the next attempt starts without one."""
    ask_for(desk, "Name one city.")
    desk.resume()
    desk.request_changes(1, "Too long.")
    assert desk.resume() == ("waiting", 1)
    assert request_file(desk, attempt=1).read_text(encoding="utf-8") == "Name one city."
    assert not request_file(desk).exists()
    assert "input" not in parts(desk)
    assert HEADING in desk.task(1, "a", attempt=1)
    assert HEADING not in desk.task(1, "a")


@pytest.mark.parametrize("words", ["In the north.", "Name one city."])
def test_a_request_made_where_changes_are_wanted_is_for_the_next_attempt(desk, words):
    """Also with the very same words, the next attempt is given them, and the one before keeps its own."""
    ask_for(desk, "Name one city.")
    desk.resume()
    desk.edit_feedback(1, action="retry_with_changes", comments="Too long.")
    ask_for(desk, words)
    assert desk.resume() == ("waiting", 1)
    assert request_file(desk, attempt=1).read_text(encoding="utf-8") == "Name one city."
    assert desk.task(1, "a").endswith(HEADING + fenced(words) + "\n")
    assert "Too long." in desk.task(1, "a")
    feedback = (desk.folder(1) / "attempts" / "1" / "user_feedback.md").read_text(encoding="utf-8")
    assert "\nby: ann\n" in feedback


def test_a_request_that_nobody_was_given_stays_for_the_next_task(waiting):
    """Wanted before the changes were, and never asked: the next attempt is given it, and the one before has none."""
    ask_for(waiting, "Name one city.")
    waiting.request_changes(1, "Too long.")
    assert waiting.resume() == ("waiting", 1)
    assert not request_file(waiting, attempt=1).exists()
    assert waiting.task(1, "a").endswith(HEADING + fenced("Name one city.") + "\n")


def test_the_copy_of_an_attempt_has_the_request_it_was_given(waiting):
    """Run again for a request, the old text is put aside without it; run again for another, with the one it had."""
    first = waiting.text(1, "a")
    ask_for(waiting, "Name one city.")
    waiting.resume()
    folder = waiting.folder(1) / "attempts"
    assert first in (folder / "1" / "a.md").read_text(encoding="utf-8")
    assert not request_file(waiting, attempt=1).exists()
    waiting.approve(1)
    waiting.edit(1, "a", "My own words.")
    assert waiting.resume() == ("waiting", 1)
    assert request_file(waiting, attempt=2).read_text(encoding="utf-8") == "Name one city."
    assert request_file(waiting).read_text(encoding="utf-8") == "Name one city."


def test_a_request_that_was_given_is_not_replaced_by_another(desk):
    """Its attempt is put aside with it, feedback too; not so for the same words again, or for words unread."""
    ask_for(desk, "Words unread.")
    ask_for(desk, "Name one city.")
    desk.resume()
    desk.approve(1, "Fine.")
    ask_for(desk, "Name one city.")
    assert not (desk.folder(1) / "attempts").exists()
    ask_for(desk, "In the north.")
    assert request_file(desk, attempt=1).read_text(encoding="utf-8") == "Name one city."
    assert "Fine." in (desk.folder(1) / "attempts" / "1" / "user_feedback.md").read_text(encoding="utf-8")
    assert desk.resume() == ("waiting", 1)
    assert called() == ["a", "a"]
    assert desk.session.read().attempt(desk.phase(1)) == 2
    assert desk.task(1, "a").endswith(HEADING + fenced("In the north.") + "\n")


def test_a_retry_starts_without_the_request(desk):
    """A phase that is to run again as it is asks for nothing special."""
    ask_for(desk, "Name one city.")
    desk.resume()
    desk.gate.retry(1, "ann")
    assert not request_file(desk).exists()
    assert desk.resume() == ("waiting", 1)
    assert HEADING not in desk.task(1, "a")


def test_a_crash_at_any_write_gives_a_request_to_one_attempt(tmp_path):
    """Killed at any write while an attempt moves away: its request is with it in the end, and nowhere else."""
    at, crashed = 0, True
    while crashed:
        at, crashed = at + 1, False
        for done in (False, True):
            desk = Desk(tmp_path / f"{at}{done}", ONE)
            ask_for(desk, "Name one city.")
            desk.resume()
            desk.request_changes(1, "Too long.")
            try:
                desk.resume(desk.over(Dying(desk.base, at, done=done)))
            except Crash:
                crashed = True
            assert desk.resume() == ("waiting", 1)
            assert HEADING not in desk.task(1, "a")
            assert (request_file(desk).exists(), request_file(desk, attempt=1).exists()) == (False, True)


def test_a_request_goes_with_its_phase_to_another_workflow(waiting):
    """A phase that the new workflow has, too, keeps its request; one that it has not takes it aside."""
    from haytham.config.workflow import FILE, WorkflowFiles

    ask_for(waiting, "First.")
    ask_for(waiting, "Second.", 2)
    files = waiting.session.read().workflow_files().files
    text = WORKFLOW.replace("name: Two, slug: two", "name: Zwei, slug: zwei")
    waiting.session.switch_workflow(WorkflowFiles("here", {**files, FILE: text.encode()}))
    assert request_file(waiting).read_text(encoding="utf-8") == "First."
    aside = waiting.base / "p/sessions/s/set_aside/1/phase_2_two/request.md"
    assert aside.read_text(encoding="utf-8") == "Second."


# No document, and no output.


def test_a_request_is_taken_for_nothing_else(waiting):
    """It is no output, nothing to be edited at the gate, no document to be checked; and no agent may have its name."""
    hostile = "---\nhaytham: agent_output/1\n---\n\n# Agent Output: a\n"
    ask_for(waiting, hostile)
    waiting.resume()
    ask_for(waiting, "Another.")
    waiting.resume()
    folder = "p/sessions/s/phase_1_one/"
    assert request_file(waiting, attempt=2).read_text(encoding="utf-8") == hostile
    assert list(waiting.session.read().outputs(waiting.phase(1))) == ["a"]
    assert ReviewFiles(waiting.session, 1).files() == [f"{folder}a.md", f"{folder}user_feedback.md"]
    assert (schema_for_path(f"{folder}request.md"), schema_for_path(f"{folder}attempts/1/request.md")) == (None, None)
    assert output_agents([f"{folder}request.md", f"{folder}a.md"]) == ["a"]
    assert validate_tree(FileStore(waiting.base), "p/").problems == ()
    for name in ("request", "Request"):
        with pytest.raises(InvalidArgument, match="any but checkpoint, request, user_feedback"):
            check_agent_name(name)


def test_a_request_that_is_no_text_is_reported_and_stops_the_run(waiting):
    """Bytes that are not UTF-8 are named with their file, by validate and by a run, and nobody is asked."""
    request_file(waiting).write_bytes(b"caf\xe9")
    (problem,) = validate_tree(FileStore(waiting.base), "p/").problems
    assert str(problem).startswith("p/sessions/s/phase_1_one/request.md:1: is not UTF-8")
    with pytest.raises(InvalidDocument, match="is not UTF-8"):
        waiting.resume()
    assert called() == []
