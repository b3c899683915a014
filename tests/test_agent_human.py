"""A person as an agent: the page they start from, and the run that waits until they have written on it."""

from __future__ import annotations

import asyncio
import json
import pickle

import pytest

from haytham.agents.base import PreviousAttempt, Task
from haytham.agents.human import AwaitingHuman, page_template
from haytham.agents.registry import load_agent
from haytham.config.agent_spec import AgentSpec
from haytham.contracts import parse_contract
from haytham.engine.runner import Runner
from haytham.errors import InvalidArgument
from haytham.events import Events
from support import fake_agents
from support.fake_agents import Crash, Desk, Dying, called

SECTIONS = {"city": {"type": "string", "x-location": "The City"}, "payer": {"type": "string", "x-location": "Who Pays"}}
CONTRACT = parse_contract("cities", json.dumps({"type": "object", "properties": SECTIONS}).encode())
WORKFLOW = """
name: small
phases:
  - {number: 1, name: One, slug: one, agents: [a]}
  - {number: 2, name: Two, slug: two, agents: [h], needs: [1]}
  - {number: 3, name: Three, slug: three, agents: [b], needs: [2]}
modes:
  all: [1, 2, 3]
"""
HUMAN = {"agents/h.md": b"---\nmodel: human\n---\nName three cities.\n"}
PAGE = "<!--\nName three cities.\n-->\n"
SPEC = AgentSpec("a", body="Name three cities.\n")


@pytest.fixture(autouse=True)
def _anew():
    fake_agents.forget()


@pytest.fixture
def desk(tmp_path):
    """A session whose second phase waits for a person."""
    made = Desk(tmp_path, WORKFLOW, HUMAN)
    assert made.resume() == ("waiting", 1)
    made.approve(1)
    assert made.resume() == ("waiting", 2)
    assert called() == ["a"]
    return made


def output(desk, number=2, agent="h"):
    return desk.session.read().outputs(desk.phase(number))[agent].value.to_value()


def checkpoint(desk, number=2):
    return desk.session.read().checkpoint(desk.phase(number)).value.to_value()


def documents(desk):
    """All files of the session but its events."""
    folder = desk.base / "p" / "sessions" / "s"
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".jsonl"}


def task(**more):
    return Task(agent="a", agent_file="", phase=1, phase_name="One", attempt=1, idea="An idea", **more)


def previous(texts, comments="Too broad.", changes=("Name one city", "Say who pays")):
    return PreviousAttempt(1, texts, comments, changes, manual_diff="", diff="")


def test_a_person_is_no_reply_and_no_failure():
    """Whoever asks a person is told that they have yet to write, and what they start from."""
    with pytest.raises(AwaitingHuman, match=r"^a waits for a person to write it$") as waits:
        asyncio.run(load_agent("human")(task(), SPEC))
    assert waits.value.outline == page_template(task(), SPEC)
    assert pickle.loads(pickle.dumps(waits.value)).outline == waits.value.outline  # noqa: S301 - our own


def test_a_person_takes_no_further_words():
    """`human:` with anything behind it is a mistake."""
    with pytest.raises(InvalidArgument, match="'human:ann'"):
        load_agent("human:ann")


def test_without_a_contract_the_page_has_the_instructions_in_a_comment():
    """They are to be read, not to be answered with."""
    assert page_template(task(), SPEC) == "<!--\nName three cities.\n-->\n"


def test_nothing_in_the_instructions_ends_the_comment():
    """An agent's file that holds a comment of its own is still one comment."""
    page = page_template(task(), AgentSpec("a", body="<!-- a -->\nWrite --> this.\n-->"))
    assert page.count("-->") == 1
    assert page.endswith("\n-->\n")


def test_with_a_contract_the_page_has_its_headings():
    """What a reply must hold is laid out to be filled in."""
    page = page_template(task(contract=CONTRACT), SPEC)
    assert page == CONTRACT.template()
    assert [line for line in page.split("\n") if line.startswith("#")] == ["## The City", "## Who Pays"]


def test_the_next_attempt_starts_from_what_the_person_wrote():
    """Where changes are wanted, the page is the text as it was left, and what is to change stands above it."""
    page = page_template(task(previous=previous({"a": "# Mine\n", "b": "theirs"}), contract=CONTRACT), SPEC)
    wanted = "Changes wanted after attempt 1\n\nToo broad.\n\n- Name one city\n- Say who pays"
    assert page == f"<!--\n{wanted}\n-->\n\n# Mine\n"


def test_what_was_never_written_is_laid_out_anew():
    """An attempt before without a text of this agent leaves nothing to start from."""
    assert page_template(task(previous=previous({"b": "theirs"})), SPEC) == page_template(task(), SPEC)


def test_changes_wanted_without_words_are_still_told():
    """Comments alone, or changes alone, or neither: the comment above the text says what there is."""
    page = page_template(task(previous=previous({"a": "mine"}, "", ())), SPEC)
    assert page == "<!--\nChanges wanted after attempt 1\n-->\n\nmine"


# The run that waits.


def test_the_run_waits_and_names_the_file(desk):
    """The page lies in the phase's folder; nothing is to be reviewed yet, and no model was asked."""
    session = desk.session
    outcome = asyncio.run(Runner(session, Events(), may_run_code=True).run())
    assert (outcome.status, outcome.phase, outcome.agents) == ("waiting", 2, ("h",))
    assert outcome.reason == "a person has to write it: p/sessions/s/phase_2_two/h.md"
    assert (output(desk)["text"], output(desk)["status"], output(desk)["model"]) == (PAGE, "pending", "human")
    assert checkpoint(desk)["status"] == "in_progress"
    assert desk.feedback(2) is None
    assert desk.steps()[1] == "write"


def test_an_unchanged_page_waits_again_and_nothing_is_written(desk):
    """Resumed, also with every gate approved in advance: no new page, no new attempt, not a byte changed."""
    before = documents(desk)
    assert desk.resume() == ("waiting", 2)
    assert desk.resume(approve_as="ann") == ("waiting", 2)
    assert documents(desk) == before
    assert len(desk.events("person_asked")) == 1
    with pytest.raises(InvalidArgument, match="h has not"):
        desk.approve(2)


def test_what_a_person_wrote_is_completed_and_reviewed(desk):
    """A changed page counts: the gate opens with the very text, and the next phase builds on it."""
    desk.edit(2, "h", "Lyon, Ghent, Porto\r\n\x00 ")
    assert desk.resume() == ("waiting", 2)
    assert (output(desk)["text"], output(desk)["status"]) == ("Lyon, Ghent, Porto\r\n\x00 ", "completed")
    assert checkpoint(desk)["status"] == "completed"
    assert [row["status"] for row in checkpoint(desk)["ledger"]] == ["completed"]
    assert desk.feedback(2)["action"] == "pending"
    assert [event["agent"] for event in desk.events("revised")] == ["h"]
    desk.approve(2)
    assert desk.resume() == ("waiting", 3)
    assert "Lyon, Ghent, Porto" in desk.task(3, "b")


def test_a_person_may_approve_what_they_wrote_at_once(desk):
    """Written and approved without a run in between: the next run goes on."""
    desk.edit(2, "h", "Lyon")
    desk.approve(2)
    assert desk.resume() == ("waiting", 3)
    assert (output(desk)["text"], output(desk)["status"]) == ("Lyon", "completed")


def test_what_a_person_wrote_is_never_run_over(desk):
    """Where its ground changes later the gate opens; where it changes before, what was written stays, too."""
    desk.edit(2, "h", "Lyon")
    desk.edit(1, "a", "Another ground.")
    desk.approve(1)
    assert desk.resume() == ("waiting", 2)
    desk.approve(2)
    assert desk.resume() == ("waiting", 3)
    desk.edit(1, "a", "Yet another ground.")
    desk.approve(1)
    assert desk.resume() == ("waiting", 2)
    assert (output(desk)["text"], output(desk)["attempt"]) == ("Lyon", 1)
    assert len(desk.events("person_asked")) == 1


def test_an_unwritten_page_is_laid_out_anew_on_new_ground(desk):
    """Where what it builds on has changed, the task on record is the one of now."""
    desk.edit(1, "a", "Another ground.")
    desk.approve(1)
    assert desk.resume() == ("waiting", 2)
    assert "Another ground." in desk.task(2, "h")
    assert output(desk)["text"] == PAGE
    before = documents(desk)
    assert desk.resume() == ("waiting", 2)
    assert documents(desk) == before


def test_changes_wanted_start_from_what_was_written(desk):
    """The next attempt is the person's again: their text with what is to change, and the first one is kept."""
    desk.edit(2, "h", "Lyon")
    desk.resume()
    desk.request_changes(2, "Too few.", ["Name two more"])
    assert desk.resume() == ("waiting", 2)
    assert output(desk)["text"] == "<!--\nChanges wanted after attempt 1\n\nToo few.\n\n- Name two more\n-->\n\nLyon"
    assert (output(desk)["status"], output(desk)["attempt"], desk.steps()[1]) == ("pending", 2, "write")
    assert desk.session.read().archived_attempt(desk.phase(2), 1).texts == {"h": "Lyon"}
    desk.edit(2, "h", "Lyon, Ghent, Porto")
    assert desk.resume() == ("waiting", 2)
    assert output(desk)["status"] == "completed"


def test_a_page_can_be_left_to_a_model_after_all(tmp_path):
    """Retried, a page that nobody has written on is asked for again, of whatever model answers now."""
    desk = Desk(tmp_path, phase_with(["b", "h"]), agents("b") | {"agents/h.md": b"Name three cities.\n"})
    desk.session.update_manifest({"model": "human"})
    assert desk.resume() == ("waiting", 1)
    desk.session.update_manifest({"model": "python:support.fake_agents:write"})
    assert (desk.resume(), desk.steps(), called()) == (("waiting", 1), ["write"], ["b"])
    desk.gate.retry(1)
    assert (desk.resume(), desk.steps(), called()) == (("waiting", 1), ["gate"], ["h"])
    assert desk.session.read().attempt(desk.phase(1)) == 1


def test_retry_keeps_what_was_written_on_a_page(desk):
    """A text of a person is there after a retry, too."""
    desk.edit(2, "h", "Lyon")
    desk.gate.retry(2)
    assert desk.resume() == ("waiting", 2)
    assert (desk.text(2, "h"), desk.steps()[1]) == ("Lyon", "gate")


def test_a_pending_output_that_nobody_laid_out_is_run(tmp_path):
    """An output that a caller stored as pending is no page for a person, and neither is one of an unknown agent."""
    desk = Desk(tmp_path, phase_with(["b"]), agents("b"))
    facts = dict.fromkeys(("duration", "model", "input_tokens", "output_tokens", "tools_used"))
    for name in ("b", "z"):
        desk.session.save_output(1, name, {"status": "pending", **facts}, "to come")
    assert (desk.resume(), called(), desk.steps()) == (("waiting", 1), ["b"], ["gate"])


def test_a_person_may_skip_what_they_were_to_write(desk):
    """A skipped phase waits for nobody."""
    desk.skip(2)
    assert desk.resume() == ("waiting", 3)


def phase_with(agents, **more):
    facts = {"number": 1, "name": "One", "slug": "one", "agents": agents, **more}
    return f"name: one\nphases: [{json.dumps(facts)}]\nmodes: {{all: [1]}}\n"


def agents(*names):
    return {f"agents/{name}.md": fake_agents.AGENT_FILE.encode() for name in names} | HUMAN


def test_others_do_not_wait_for_a_person(tmp_path):
    """In a parallel phase all others run; one that fails is asked again while the page waits."""
    fake_agents.failing.add("c")
    desk = Desk(tmp_path, phase_with(["b", "h", "c"]), agents("b", "c"))
    assert desk.resume() == ("failed", 1)
    assert sorted(called()) == ["b", "c"]
    fake_agents.failing.clear()
    assert desk.resume() == ("waiting", 1)
    assert (called(), desk.steps(), checkpoint(desk, 1)["status"]) == (["c"], ["write"], "in_progress")
    desk.edit(1, "h", "Lyon")
    assert desk.resume() == ("waiting", 1)
    assert (called(), desk.steps(), checkpoint(desk, 1)["status"]) == ([], ["gate"], "completed")


def test_who_comes_after_a_person_waits_for_them(tmp_path):
    """In a sequential phase the agents behind the page run once it is written, and read it."""
    desk = Desk(tmp_path, phase_with(["b", "h", "c"], run="sequential"), agents("b", "c"))
    assert desk.resume() == ("waiting", 1)
    assert (called(), desk.steps()) == (["b"], ["write"])
    assert desk.resume() == ("waiting", 1)
    assert called() == []
    desk.edit(1, "h", "Lyon")
    assert desk.resume() == ("waiting", 1)
    assert (called(), desk.steps()) == (["c"], ["gate"])
    assert "Lyon" in desk.task(1, "c")


def test_a_phase_without_review_goes_on_once_it_is_written(tmp_path):
    """With `review: none` the text itself is the answer."""
    desk = Desk(tmp_path, phase_with(["h"], review="none"), HUMAN)
    assert desk.resume() == ("waiting", 1)
    desk.edit(1, "h", "Lyon")
    assert desk.resume() == ("completed", None)


@pytest.mark.parametrize("done", [False, True])
def test_a_crash_at_any_write_leaves_the_page_and_the_text(tmp_path, done):
    """Killed anywhere while the page is laid out, or while what was written is taken up: resumed, it is as if not."""
    at = 0
    while True:
        at += 1
        desk = Desk(tmp_path / str(at), phase_with(["h"]), HUMAN)
        laid_out = not crash(desk, at, done=done)
        assert desk.resume() == ("waiting", 1)
        assert (output(desk, 1)["text"], desk.steps()) == (PAGE, ["write"])
        desk.edit(1, "h", "Lyon")
        taken_up = not crash(desk, at, done=done)
        assert desk.text(1, "h") == "Lyon"
        assert desk.resume() == ("waiting", 1)
        assert (desk.text(1, "h"), output(desk, 1)["status"], desk.steps()) == ("Lyon", "completed", ["gate"])
        if laid_out and taken_up:
            break
    assert at > 5


def crash(desk, at, *, done):
    """Resume until the process dies at a write; whether it did."""
    try:
        desk.resume(session=desk.over(Dying(desk.base, at, done=done)))
    except Crash:
        return True
    return False
