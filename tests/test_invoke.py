"""Asking agents: retries, fallbacks, repairs, and money that is never spent twice nor lost."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest

from haytham import History
from haytham.agents.base import Reply
from haytham.agents.registry import runs_code
from haytham.engine.invoke import RunOptions
from haytham.engine.runner import Runner
from haytham.errors import AgentError, HaythamError
from haytham.events import Events
from haytham.session.spend_log import CallRecord, SpendLog, SpendSummary
from haytham.session.summary import summarize
from haytham.storage import FileStore, MemoryStore
from haytham.usage import Usage, UsageTotal, estimated_tokens, sum_usage
from support import paid_agents
from support.fake_agents import AT_ONCE, Crash, Desk, Dying
from test_agent_llm import hello, serving

ONE = "name: one\nphases:\n  - {number: 1, name: One, slug: one, agents: [a]}\nmodes: {all: [1]}\n"
FOUR = ONE.replace("agents: [a]", "agents: [a, b, c, d]")
IN_TURN = ONE.replace("agents: [a]", "agents: [a, b, c, d], run: sequential")


@pytest.fixture(autouse=True)
def _anew():
    paid_agents.forget()


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder with the package of adapters that `paid` installs, where Python finds it."""
    folder = paid_agents.install(tmp_path / "site")
    monkeypatch.syspath_prepend(folder)
    return folder


def desk_of(base, function, workflow=ONE, *, models=None, **ours):
    """A session whose agents are a function of `paid`, or models in order."""
    model = json.dumps(models or f"python:support.paid_agents:{function}")
    rules = "".join(f"  {key}: {value}\n" for key, value in {"retries": 0, **ours}.items())
    text = f"---\nmodel: {model}\nhaytham:\n{rules}---\nWrite.\n"
    return Desk(base, workflow, {f"agents/{name}.md": text.encode() for name in "abcd"})


def account(desk):
    return SpendLog(desk.session.store, desk.session.prefix).read()


def lines(desk):
    return [json.loads(line) for line in (desk.base / desk.session.prefix / "spend.jsonl").read_bytes().splitlines()]


def output(desk, agent="a"):
    return desk.session.read().outputs(desk.phase(1))[agent].value.to_value()


# Spending.


@pytest.mark.usefixtures("site")
def test_a_call_is_reserved_before_it_is_made_and_settled_after(tmp_path):
    """Two lines a call: what it may take, then what it took, by whom, in which attempt, how long, how it came out."""
    desk = desk_of(tmp_path, "", models="fare:cheap", max_output_tokens=50)
    assert desk.resume() == ("waiting", 1)
    reserved, settled = lines(desk)
    assert [reserved[name] for name in ("event", "agent", "phase", "attempt", "model", "cost")] == [
        "reserved", "a", 1, 1, "fare:cheap", None
    ]  # fmt: skip
    assert reserved["tokens"] > 50
    assert [settled[name] for name in ("event", "input_tokens", "output_tokens", "tokens", "cost", "outcome")] == [
        "settled", 3, 4, 7, 0.25, "completed"
    ]  # fmt: skip
    assert reserved["call"] == settled["call"]


@pytest.mark.usefixtures("site")
def test_a_first_call_goes_on_record_together_with_its_task(tmp_path):
    """One commit has the task, the reservation, and the events that the phase and the call start."""
    desk, batches = desk_of(tmp_path, "", models="fare:cheap"), []

    class Noting(FileStore):
        def commit(self, batch):
            batches.append(batch)
            return super().commit(batch)

    desk.resume(desk.over(Noting(tmp_path)))
    (batch,) = (one for one in batches if any(b'"agent_started"' in change.lines for change in one.appends))
    assert [change.key.rpartition("/")[2] for change in batch.writes] == ["a.md"]
    words = b"".join(change.lines for change in batch.appends)
    assert [words.count(name) for name in (b'"phase_started"', b'"reserved"', b'"agent_started"')] == [1, 1, 1]


def test_a_call_that_cannot_be_made_is_not_on_record(tmp_path):
    """An agent that cannot be opened was not started, and nothing is reserved for it."""
    desk = desk_of(tmp_path, "", models="python:support.paid_agents:missing")
    with suppress(HaythamError):
        desk.resume()
    assert desk.events("agent_started") == []
    assert account(desk).calls == ()


@pytest.mark.parametrize("reply", ["", " \n\t\n"])
def test_an_empty_reply_is_a_failure(tmp_path, monkeypatch, reply):
    """Nothing but blanks is no answer: it is asked again as often as the file says, paid for, and then failed."""
    monkeypatch.setattr(
        paid_agents, "empty", lambda _task: Reply(reply, input_tokens=3, output_tokens=0), raising=False
    )
    desk = desk_of(tmp_path, "empty", retries=1)
    assert desk.resume() == ("failed", 1)
    value = output(desk)
    assert (value["status"], value["error_message"]) == ("failed", "the reply is empty")
    assert (account(desk).total.tokens, account(desk).total.calls, value["input_tokens"]) == (6, 2, 6)


def test_an_empty_reply_leaves_the_word_to_the_next_model(tmp_path, monkeypatch):
    """A model that says nothing is followed by the next one of the list."""
    monkeypatch.setattr(paid_agents, "empty", lambda _task: "", raising=False)
    desk = desk_of(tmp_path, "", models=["python:support.paid_agents:empty", "python:support.paid_agents:cheap"])
    assert desk.resume() == ("waiting", 1)
    assert output(desk)["status"] == "completed"


def test_a_failed_call_is_settled_with_what_it_took(tmp_path):
    """What a failed agent says it took counts, each try of it; its last words and all its tokens are stored."""
    desk = desk_of(tmp_path, "broken", retries=1)
    assert desk.resume() == ("failed", 1)
    assert account(desk).total == UsageTotal(tokens=6, cost=0.25, calls=2)
    assert [call.outcome for call in account(desk).calls] == ["failed", "failed"]
    value = output(desk)
    assert (value["text"], value["input_tokens"], value["output_tokens"]) == ("half an ans", 4, 2)


def test_an_agent_that_tells_nothing_is_counted_by_its_texts(tmp_path):
    """Tokens nobody tells are estimated and count against the limit; the record says that they are unknown."""
    desk = desk_of(tmp_path, "silent")
    desk.resume()
    (call,) = account(desk).calls
    assert (call.input_tokens, call.output_tokens, call.amount.cost) == (None, None, None)
    assert call.amount.tokens > estimated_tokens("x" * 30)


def test_the_worksheet_spends_nothing(tmp_path):
    """A free agent leaves no line, and is asked at a limit of nothing."""
    desk = desk_of(tmp_path, "", models="worksheet")
    desk.session.update_manifest({"max_cost": "0", "max_tokens": 0})
    assert desk.resume() == ("waiting", 1)
    assert account(desk) == SpendSummary()


@pytest.mark.parametrize("model", ["python:support.paid_agents:scripted", "command:false"])
def test_a_failed_call_of_own_code_takes_nothing(tmp_path, model):
    """A function or a program reserves nothing: a call of it that fails takes nothing off a limit."""
    paid_agents.ANSWERS.append(RuntimeError("it broke"))
    desk = desk_of(tmp_path, "", models=model, retries=2)
    desk.session.update_manifest({"max_tokens": 10})
    assert desk.resume() == ("failed", 1)
    assert account(desk).total == UsageTotal(tokens=0, cost=0.0, unknown=3, calls=3)
    assert [(line["tokens"], line["cost"]) for line in lines(desk)] == [(0, None)] * 6


def test_own_code_is_settled_with_what_its_reply_reports(tmp_path):
    """A function takes the tokens and dollars that its Reply says, however long its prompt and its answer are."""
    desk = desk_of(tmp_path, "cheap", IN_TURN)
    desk.session.update_manifest({"max_tokens": 28})
    assert desk.resume() == ("waiting", 1)
    assert account(desk).total == UsageTotal(tokens=28, cost=1.0, calls=4)


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ({"max_tokens": 14}, "14 tokens are spent, which is the limit of 14"),
        ({"max_tokens": 10}, "14 tokens are spent, which is past the limit of 10"),
        ({"max_cost": "0.5"}, "$0.50 are spent, which is the limit of $0.50"),
        ({"max_cost": "0.3"}, "$0.50 are spent, which is past the limit of $0.30"),
    ],
)
def test_a_limit_that_is_reached_stops_the_next_call_of_own_code(tmp_path, limit, why):
    """What reserves nothing is still not called once a limit is reached."""
    desk = desk_of(tmp_path, "cheap", IN_TURN)
    desk.session.update_manifest(limit)
    assert desk.resume() == ("paused", 1)
    assert paid_agents.SEEN == ["a", "b"]
    assert [event["why"] for event in desk.events("budget_exceeded")] == [why]


@pytest.mark.usefixtures("site")
def test_an_adapter_that_declares_itself_free_reserves_nothing(tmp_path):
    """Whatever its reply or its failure says: it leaves no line, and is asked at a limit of nothing."""
    desk = desk_of(tmp_path, "", FOUR, models="gift:cheap")
    desk.session.update_manifest({"max_cost": "0", "max_tokens": 0})
    assert desk.resume() == ("waiting", 1)
    assert (len(paid_agents.SEEN), account(desk)) == (4, SpendSummary())
    desk = desk_of(tmp_path / "failing", "", models=["gift:broken", "fare:cheap"])
    desk.session.update_manifest({"max_cost": "0.1"})
    assert desk.resume() == ("waiting", 1)
    assert account(desk).total == UsageTotal(tokens=7, cost=0.25, calls=1)


@pytest.mark.usefixtures("site")
def test_code_of_another_package_is_not_imported_to_find_out_that_it_is_code(tmp_path, monkeypatch):
    """Whether an installed adapter needs trust is told by its registration alone."""
    monkeypatch.delitem(sys.modules, "support.paid_agents")
    assert (runs_code("fare:cheap"), runs_code("gift:cheap"), runs_code("openai:gpt-4o")) == (True, True, False)
    assert "support.paid_agents" not in sys.modules


# The budget.


@pytest.mark.usefixtures("site")
def test_of_four_at_once_two_are_called_and_two_wait_for_a_higher_limit(tmp_path):
    """Reservations hold across parallel agents; when the limit is raised only those that were not called run."""
    desk = desk_of(tmp_path, "", FOUR, models="fare:cheap", max_output_tokens=1000)
    one = Spending(desk).estimate
    desk.session.update_manifest({"max_tokens": 2 * one})
    assert desk.resume() == ("paused", 1)
    assert sorted(paid_agents.SEEN) == ["a", "b"]
    assert summarize(desk.session.read()).status == "paused"
    paid_agents.forget()
    desk.session.update_manifest({"max_tokens": 9 * one})
    assert desk.resume() == ("waiting", 1)
    assert sorted(paid_agents.SEEN) == ["c", "d"]
    assert summarize(desk.session.read()).status == "waiting"


class Spending:
    """What a call of a desk's agent is estimated at."""

    def __init__(self, desk):
        scratch = desk_of(desk.base / "scratch", "", FOUR, models="fare:cheap", max_output_tokens=1000)
        scratch.resume()
        self.estimate = account(scratch).calls[0].reserved.tokens
        paid_agents.forget()


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(("more", "status"), [(-1, "paused"), (0, "waiting"), (1, "waiting")])
def test_the_limit_itself_is_allowed(tmp_path, more, status):
    """One below what a call may take pauses; just that, and one above, go through."""
    desk = desk_of(tmp_path, "", models="fare:cheap", max_output_tokens=1000)
    one = Spending(desk).estimate
    desk.session.update_manifest({"max_tokens": one + more})
    assert desk.resume()[0] == status


def test_known_costs_pause_the_next_call(tmp_path):
    """Where prices are not known beforehand, what was paid counts before the next call."""
    desk = desk_of(tmp_path, "cheap", IN_TURN)
    desk.session.update_manifest({"max_cost": "0.5"})
    assert desk.resume() == ("paused", 1)
    assert paid_agents.SEEN == ["a", "b"]
    (why,) = {event["why"] for event in desk.events("budget_exceeded")}
    assert why == "$0.50 are spent, which is the limit of $0.50"


def test_the_workflow_may_set_the_limits(tmp_path):
    """`budget:` in workflow.yaml holds until the session's own limit is set; a warning is told on the way."""
    desk = desk_of(tmp_path, "cheap", IN_TURN + "budget: {max_cost: 0.5, warn_at: 0.4}\n")
    assert desk.resume() == ("paused", 1)
    assert [event["why"] for event in desk.events("budget_warning")] == ["50% of the budget of $0.50 is spent"]


def test_an_unknown_settlement_counts_as_reserved(tmp_path, monkeypatch):
    """A call whose price the server does not tell is settled as unknown, and counts at the price it was reserved at."""
    with serving(hello, monkeypatch) as server:
        desk = desk_of(tmp_path, "", IN_TURN, models="openai-chat:gpt-4o", max_output_tokens=4000)
        desk.session.update_manifest({"max_cost": "0.1"})
        assert desk.resume() == ("paused", 1)
    assert len(server.bodies) == 2
    found = account(desk)
    assert [line["cost"] for line in lines(desk) if line["event"] == "settled"] == [None, None]
    assert [call.amount for call in found.calls] == [Usage(14, call.reserved.cost) for call in found.calls]
    assert 0.08 < found.total.cost <= 0.1
    assert (found.total.unknown, found.counted_as_reserved.calls) == (0, 2)


def test_a_failed_call_of_unknown_price_counts_as_reserved_too(tmp_path, monkeypatch):
    """An answer that was cut off behind a proxy is settled with its tokens, and counts at the reserved price."""

    def cut_off(handler):
        handler.begin()
        handler.say("Hello", end="length", usage=(11, 3, 14))

    with serving(cut_off, monkeypatch):
        desk = desk_of(tmp_path, "", models="openai-chat:gpt-4o")
        assert desk.resume() == ("failed", 1)
    found = account(desk)
    assert [call.amount for call in found.calls] == [Usage(14, call.reserved.cost) for call in found.calls]
    assert (lines(desk)[1]["cost"], found.counted_as_reserved.calls) == (None, 1)


def test_tokens_that_a_server_does_not_count_are_those_reserved(tmp_path, monkeypatch):
    """Who reserves and then does not tell its tokens has taken all that was reserved."""

    def count_nothing(handler):
        handler.begin()
        handler.say("Hello.")

    with serving(count_nothing, monkeypatch):
        desk = desk_of(tmp_path, "", models="openai-chat:gpt-4o")
        assert desk.resume() == ("waiting", 1)
    (call,) = account(desk).calls
    assert (call.input_tokens, call.amount) == (None, call.reserved)
    assert call.reserved.tokens > 4000


@pytest.mark.parametrize("unknown", [{}, {"tokens": None, "cost": None}, {"tokens": -1, "cost": "x"}])
def test_a_settlement_that_says_nothing_counts_as_reserved(unknown):
    """A settled line without a number of tokens or dollars leaves the reservation as it is."""
    store, call = MemoryStore(), CallRecord("1", 1, "a", 1, "m", Usage(5, 0.5))
    SpendLog(store, "s/").reserve(call)
    store.append("s/spend.jsonl", json.dumps({"event": "settled", "call": "1", **unknown}).encode() + b"\n")
    assert SpendLog(store, "s/").read().total == UsageTotal(tokens=5, cost=0.5, calls=1)


def test_a_call_that_is_killed_stays_reserved_in_full(tmp_path, site):
    """A crash between reservation and reply neither frees nor doubles money; the next run counts it once."""
    desk = desk_of(tmp_path, "", models="fare:die", max_output_tokens=100)
    program = (
        "import sys; sys.path[:0] = ['tests', sys.argv[2]]\n"
        "from pathlib import Path; from test_invoke import again\n"
        "again(Path(sys.argv[1]))\n"
    )
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), str(site)], check=False, capture_output=True
        )
        assert done.returncode == -9, done.stderr
    found = account(desk)
    assert [call.outcome for call in found.calls] == ["unsettled"] * 2
    assert found.total.tokens == 2 * found.calls[0].reserved.tokens > 200


def again(base):
    """Run the session of a desk in a process of its own."""
    from haytham import FileStore
    from haytham.session import SessionDocuments

    session = SessionDocuments(FileStore(base), "p", "s")
    asyncio.run(Runner(session, Events(), may_run_code=True, options=AT_ONCE).run())


def test_a_restore_refunds_nothing_and_a_fork_inherits(tmp_path):
    """What was spent stays spent after a restore; a fork begins with it, and adds only its own."""
    desk = desk_of(tmp_path, "cheap")
    history = History(desk.session)
    before = history.take()
    desk.resume()
    child = history.fork(name="child")
    history.restore(before)
    assert account(desk).total == UsageTotal(tokens=7, cost=0.25, calls=1)
    found = SpendLog(child.store, child.prefix).read()
    assert (found.calls, found.total) == ((), UsageTotal(tokens=7, cost=0.25, calls=1))
    grandchild = History(child).fork(name="grandchild")
    assert SpendLog(grandchild.store, grandchild.prefix).read().total == found.total


@pytest.mark.parametrize(
    "junk",
    [b"", b"{", b"[]\n", b"\xff\n", b'{"event": "settled", "call": "x"}\n', b'{"event": "reserved", "cost": -1}\n'],
)
def test_a_line_that_makes_no_sense_counts_for_nothing(junk):
    """A line that was cut off, or says nothing, hides no other and breaks nothing."""
    store, call = MemoryStore(), CallRecord("1", 1, "a", 1, "m", Usage(5, 0.5))
    SpendLog(store, "s/").reserve(call)
    store.write("s/spend.jsonl", store.read("s/spend.jsonl") + junk)
    total = SpendLog(store, "s/").read().total
    assert (total.tokens, total.cost) == (5, 0.5)


# Models in order, and secrets.


def test_models_are_tried_in_order(tmp_path):
    """Where a model fails for good, the next one of the list is asked; all calls are counted."""
    desk = desk_of(tmp_path, "", models=["python:support.paid_agents:broken", "python:support.paid_agents:cheap"])
    assert desk.resume() == ("waiting", 1)
    value = output(desk)
    assert (value["text"], value["model"], value["input_tokens"]) == ("From a.", "m", 5)
    assert [call.model for call in account(desk).calls] == [
        "python:support.paid_agents:broken",
        "python:support.paid_agents:cheap",
    ]


def test_what_cannot_get_better_is_not_tried_again(tmp_path):
    """An error that says so is final, however many retries the file allows."""
    paid_agents.ANSWERS.append(AgentError("no such model", retry=False, input_tokens=0, output_tokens=0, cost=0.0))
    desk = desk_of(tmp_path, "scripted", retries=5)
    assert desk.resume() == ("failed", 1)
    assert len(paid_agents.SEEN) == 1
    assert account(desk).total == UsageTotal(calls=1)


def test_a_replay_answers_for_every_agent(tmp_path):
    """The model of a run's own options stands before what agents' files say."""
    desk = desk_of(tmp_path, "cheap")
    assert desk.resume(options=replace(AT_ONCE, model="worksheet")) == ("waiting", 1)
    assert output(desk)["model"] == "worksheet"


def test_no_secret_reaches_a_file(tmp_path, monkeypatch):
    """A key that an agent tells in its error is in no file of the session, nor in what listeners hear."""
    monkeypatch.setenv("FAKE_API_KEY", "zq-FAKE-SECRET-123456")
    desk = desk_of(tmp_path, "telling")
    options = RunOptions(backoff=0, secrets=(os.environ["FAKE_API_KEY"],))
    assert desk.resume(options=options) == ("failed", 1)
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert b"FAKE-SECRET" not in path.read_bytes(), path
    assert "401 for Authorization" in output(desk)["error_message"]


# Contracts.

ASKS = b"""{"x-contract": "short/1", "title": "short", "type": "object", "properties":
  {"answer": {"type": "string", "minLength": 3, "x-location": "Answer", "x-ask": "What?"}}, "required": ["answer"]}"""


def bound(base, model="python:support.paid_agents:scripted", **ours):
    """A desk whose agent has a contract of the workflow's own."""
    rules = "".join(f"  {key}: {value}\n" for key, value in {"retries": 0, "contract": "short", **ours}.items())
    text = f"---\nmodel: {model}\nhaytham:\n{rules}---\nWrite.\n"
    return Desk(base, ONE, {"agents/a.md": text.encode(), "contracts/short.json": ASKS})


def test_what_a_reply_misses_goes_back_with_the_exact_complaints(tmp_path):
    """A reply that breaks its contract is asked for again, with itself and its faults; the tokens of both count."""
    paid_agents.ANSWERS.extend(["No heading.", "## Answer\n\nIt is so.\n"])
    desk = bound(tmp_path)
    assert desk.resume() == ("waiting", 1)
    assert "No heading." in paid_agents.SEEN[1]
    assert "Answer: " in paid_agents.SEEN[1].partition("# What is wrong with it")[2]
    value = output(desk)
    assert (value["text"], value["input_tokens"]) == ("## Answer\n\nIt is so.\n", 20)


def test_a_reply_that_stays_broken_is_the_agents_failure_and_can_be_mended(tmp_path):
    """After the repairs that are allowed it fails with the complaints and its last words, which a person may mend."""
    paid_agents.ANSWERS.append("No heading.")
    desk = bound(tmp_path, repairs=1)
    assert desk.resume() == ("failed", 1)
    assert len(paid_agents.SEEN) == 2
    value = output(desk)
    assert (value["text"], value["error_type"], value["input_tokens"]) == ("No heading.", "ContractViolation", 20)
    path = desk.folder(1) / "a.md"
    path.write_text(path.read_text("utf-8").replace("No heading.", "## Answer\n\nBy hand.\n"), "utf-8")
    assert desk.resume() == ("waiting", 1)
    assert len(paid_agents.SEEN) == 2


def test_what_a_person_left_short_is_not_sent_back(tmp_path):
    """An agent that keeps a person's short answer is not asked to pad it; one that shortens another's is."""
    paid_agents.ANSWERS.append("## Answer\n\nIt is so.\n")
    desk = bound(tmp_path, repairs=0)
    assert desk.resume() == ("waiting", 1)
    desk.edit(1, "a", "## Answer\n\nNo\n")
    for _ in range(2):
        paid_agents.ANSWERS[:] = ["## Answer\n\nNo\n\n## More\n\nOn top.\n"]
        desk.request_changes(1, "More.")
        assert desk.resume() == ("waiting", 1)
    desk.request_changes(1, "Shorter.")
    paid_agents.ANSWERS[:] = ["## Answer\n\nN\n"]
    assert desk.resume() == ("failed", 1)


def test_an_answer_that_was_cut_off_is_sent_back_too(tmp_path):
    """That it was stopped at the most it may write is one complaint more, so that the next one is shorter."""
    cut = AgentError("was cut off at its 10 output tokens", text="## Ans", input_tokens=1, output_tokens=10, cost=0.0)
    cut.cut_off = True
    paid_agents.ANSWERS.extend([cut, "## Answer\n\nIt is so.\n"])
    desk = bound(tmp_path)
    assert desk.resume() == ("waiting", 1)
    assert "was cut off at its 10 output tokens" in paid_agents.SEEN[1]


def test_without_a_contract_a_cut_is_a_failure(tmp_path):
    """Nobody would notice the missing end: so it is told, and what came is kept."""
    cut = AgentError("was cut off", text="half", retry=False)
    cut.cut_off = True
    paid_agents.ANSWERS.append(cut)
    desk = desk_of(tmp_path, "scripted")
    assert desk.resume() == ("failed", 1)
    assert output(desk)["text"] == "half"


GOOD = "## Answer\n\nIt is so.\n"


def test_a_time_out_in_a_repair_round_keeps_the_paid_answer(tmp_path):
    """The round that failed is tried again with the same prompt; what was paid for before is not asked for again."""
    paid_agents.ANSWERS.extend(["No heading.", 5.0, GOOD])
    desk = bound(tmp_path, retries=1, repairs=1, timeout=0.5)
    assert desk.resume() == ("waiting", 1)
    first, repair, again = paid_agents.SEEN
    assert (repair == again, "No heading." in repair, "No heading." in first) == (True, True, False)
    assert output(desk)["text"] == GOOD
    assert [call.outcome for call in account(desk).calls] == ["completed", "failed", "completed"]


def test_a_time_out_uses_up_no_repair(tmp_path):
    """Tries and repairs are counted apart: after a failed try all repairs that are allowed are still there."""
    paid_agents.ANSWERS.extend(["No heading.", 5.0, "Still none.", GOOD])
    desk = bound(tmp_path, retries=1, repairs=2, timeout=0.5)
    assert desk.resume() == ("waiting", 1)
    assert ["Still none." in prompt for prompt in paid_agents.SEEN] == [False, False, False, True]


def test_a_reply_that_was_sent_back_in_vain_is_kept(tmp_path):
    """Where no answer comes to a repair at all, the agent fails with the reply that was paid for; it can be mended."""
    paid_agents.ANSWERS.extend(["No heading.", AgentError("the line is dead", text="No h")])
    desk = bound(tmp_path, retries=1)
    assert desk.resume() == ("failed", 1)
    value = output(desk)
    assert (value["text"], value["error_type"]) == ("No heading.", "ContractViolation")
    first, *rest = value["error_message"].split("\n")[1:]
    assert (first.strip(), len(rest) > 0) == ("it was sent back, and no answer came: the line is dead", True)
    assert ["No heading." in prompt for prompt in paid_agents.SEEN] == [False, True, True]
    desk.edit(1, "a", GOOD)
    assert desk.resume() == ("waiting", 1)


def test_the_next_model_repairs_what_the_one_before_it_wrote(tmp_path):
    """A model that fails in a repair round leaves the reply that was paid for to the next one of the list."""
    paid_agents.ANSWERS.extend(["No heading.", AgentError("gone", retry=False), GOOD])
    desk = bound(tmp_path, model="[python:support.paid_agents:scripted, python:test_invoke:second]", repairs=1)
    assert desk.resume() == ("waiting", 1)
    assert [call.model for call in account(desk).calls] == [
        "python:support.paid_agents:scripted",
        "python:support.paid_agents:scripted",
        "python:test_invoke:second",
    ]
    assert paid_agents.SEEN[1] == paid_agents.SEEN[2]
    assert output(desk)["text"] == GOOD


def second(task):
    """Answer as `paid_agents.scripted` does, under another name."""
    return paid_agents.scripted(task)


# What went wrong once.


class Unwritable:
    """A recorder whose folder is gone."""

    def record(self, task, reply):
        raise OSError("no space left")

    record_failure = record


def test_an_answer_that_cannot_be_recorded_is_worth_no_less(tmp_path):
    """What was paid for is stored, and nobody is asked again because of it."""
    desk = desk_of(tmp_path, "cheap", retries=2)
    assert desk.resume(options=replace(AT_ONCE, recorder=Unwritable())) == ("waiting", 1)
    assert (paid_agents.SEEN, output(desk)["text"]) == (["a"], "From a.")


def test_a_wrong_change_of_the_state_does_not_hide_what_was_paid(tmp_path):
    """The call is settled by what the reply says it took, before its changes are judged."""
    desk = desk_of(tmp_path, "wrong_state")
    assert desk.resume() == ("failed", 1)
    assert account(desk).total == UsageTotal(tokens=7, cost=3.0, calls=1)


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -1.0, True, "1"])
def test_a_reply_costs_a_number_of_dollars(cost):
    """What no budget could count is the agent's own fault."""
    with pytest.raises(ValueError, match="reply: cost"):
        Reply("text", cost=cost)


def test_a_free_failure_makes_an_unknown_price_no_zero():
    """A call that was refused for nothing, then one of unknown price: the cost is unknown."""
    assert sum_usage([Usage(0, 0.0), Usage(10, None)]).known_cost is None


def test_the_last_words_of_a_failed_agent_hold_no_secret(tmp_path, monkeypatch):
    """What a program printed before it failed is stored, but for keys."""
    paid_agents.ANSWERS.append(AgentError("it broke", text="my key is zq-FAKE-SECRET-123456", retry=False))
    desk = desk_of(tmp_path, "scripted")
    desk.resume(options=replace(AT_ONCE, secrets=("zq-FAKE-SECRET-123456",)))
    assert output(desk)["text"] == "my key is ***"


def test_nobody_is_asked_beside_code_that_is_not_trusted(tmp_path):
    """Trust is judged for all agents of a phase before the first call: nothing is reserved in vain."""
    desk = desk_of(tmp_path, "cheap", FOUR)
    session = desk.session
    with pytest.raises(PermissionError):
        asyncio.run(Runner(session, Events(), may_run_code=False, options=AT_ONCE).run())
    assert account(desk) == SpendSummary()


@pytest.mark.parametrize(
    "line", [b"[" * 100_000, b'{"event": "reserved", "cost": 1e400}', b'{"cost": 1%s}' % (b"0" * 400)]
)
def test_no_line_of_a_spend_file_breaks_a_session(line):
    """However hostile a line is, it counts for nothing at the worst."""
    store = MemoryStore()
    store.write("s/spend.jsonl", line + b"\n")
    assert SpendLog(store, "s/").read().total.cost == 0


def test_a_damaged_line_of_the_spend_file_stops_a_run(tmp_path):
    """What was spent must be known before more is: the line is named, by a run and by validate."""
    from haytham.session.validate import validate_tree

    desk = desk_of(tmp_path, "cheap")
    desk.resume()
    path = desk.base / desk.session.prefix / "spend.jsonl"
    path.write_bytes(path.read_bytes().replace(b"{", b"{{", 1))
    with pytest.raises(ValueError, match=r"spend\.jsonl:1: cannot be read"):
        desk.resume()
    assert ["spend.jsonl:1" in str(problem) for problem in validate_tree(desk.session.store).problems] == [True]


def test_a_line_that_a_crash_cut_off_stops_nothing(tmp_path):
    """Its call was never made, so that nothing is missing."""
    desk = desk_of(tmp_path, "cheap")
    desk.resume()
    path = desk.base / desk.session.prefix / "spend.jsonl"
    path.write_bytes(path.read_bytes() + b'{"time": "2026-01-01T00:00:00Z", "event": "reser')
    assert desk.resume() == ("waiting", 1)


@pytest.mark.parametrize("done", [False, True])
def test_a_crash_while_a_phase_is_saved_loses_no_reported_cost(tmp_path, done):
    """What a program reports is in the spend file before it is in the checkpoint, wherever the process dies."""
    facts = {"status": "completed", "started": None, "completed": None, "duration": None}
    facts |= {"retry_count": 0, "execution_mode": "single"}
    crashes = 0
    for at in range(1, 9):
        desk = Desk(tmp_path / str(at), ONE)
        session = desk.over(Dying(desk.base, at, done=done))
        with suppress(Crash):
            session.save_checkpoint(1, facts, [{"agent_name": "a", "status": "completed", "cost": 0.5}])
            continue
        crashes += 1
        if (desk.folder(1) / "checkpoint.md").exists():
            assert account(desk).total.cost == 0.5
    assert crashes > 2
