"""The state of a session: values that the caller owns, merged, kept and given to agents, and never interpreted."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from types import MappingProxyType

import pytest
from hypothesis import given, settings

from conftest import rounds
from haytham import validation
from haytham.agents.base import Reply
from haytham.errors import InvalidArgument, InvalidDocument, NotFound
from haytham.markdown.parser import parse
from haytham.markdown.renderer import render
from haytham.markdown.schema import load_schema
from haytham.session import SessionDocuments
from haytham.session.state import EMPTY, flatten, is_same, merge_patch, unflatten
from haytham.session.validate import validate_tree
from haytham.storage import FileStore
from support import fake_agents
from support.fake_agents import Crash, Desk, Dying, called
from support.hostile_inputs import values

KIND = load_schema("state")
ONE = "name: one\nphases:\n  - {number: 1, name: One, slug: one, agents: [a]}\nmodes: {all: [1]}\n"
TWO = ONE.replace("agents: [a]", "agents: [b, c], run: sequential")
states = values("state").map(unflatten)


@pytest.fixture(autouse=True)
def _anew():
    fake_agents.forget()


@pytest.fixture
def desk(tmp_path):
    """A session nobody has kept anything with yet."""
    return Desk(tmp_path, ONE)


def file_of(desk):
    return desk.base / "p" / "sessions" / "s" / "state.md"


# As a value.


def test_the_empty_state_has_every_field_of_its_document():
    """The state before anything was saved has just the fields of its kind, and can be drawn."""
    assert list(flatten(EMPTY)) == KIND.schema["required"]
    assert parse(KIND, render(KIND, flatten(EMPTY))).value == flatten(EMPTY)


@pytest.mark.soak
@settings(max_examples=rounds(1000))
@given(values("state"))
def test_a_document_and_its_state_say_the_same(value):
    """What a document holds comes back from the state made of it, every path a name within a name; no time is in it."""
    state = unflatten(value)
    assert flatten(state) == {path: content for path, content in value.items() if path != "saved_at"}
    assert state["memory"]["short_term"] == value["memory.short_term"]


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": "foo"}, {"a": {"b": "bar"}}, {"a": {"b": "bar"}}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": 1}, {"a": [None, {"b": None}]}, {"a": [None, {"b": None}]}),
    ],
)
def test_maps_merge_as_a_merge_patch_says(before, change, after):
    """Maps merge by key at any depth, null takes a key out, and all else replaces what was there."""
    state = merge_patch(EMPTY, {"memory": {"session": {"kept": {"x": 1}}}})
    state["memory"]["session"] |= before
    found = merge_patch(state, {"memory": {"session": change}})
    assert found["memory"]["session"] == {"kept": {"x": 1}, **after}
    assert found["memory"]["short_term"] == {}


FULL = unflatten(
    {
        "agent.type": "a",
        "task.current": "t",
        "task.status": "s",
        "task.progress": {"done": 1},
        "mailbox.last_processed": 7,
        "mailbox.pending": [8],
        "context.goals": ["g"],
        "context.constraints": ["c"],
        "context.decisions": ["d"],
        "memory.short_term": {"a": 1},
        "memory.session": {"b": 2},
        "fields.collected": {"c": 3},
        "fields.required": ["r"],
        "summary": "so far",
    }
)


@pytest.mark.parametrize("path", KIND.schema["required"])
def test_null_empties_a_field(path):
    """Null makes a field what it was before anything was saved, and leaves the others alone."""
    group, _, name = path.partition(".")
    found = flatten(merge_patch(FULL, {group: {name: None}} if name else {group: None}))
    assert found == {**flatten(FULL), path: flatten(EMPTY)[path]}


def test_null_empties_all_fields_that_belong_together():
    """Null in the place of a map of fields empties each of them."""
    assert merge_patch(FULL, dict.fromkeys(EMPTY)) == EMPTY
    assert merge_patch(FULL, {"task": None}) == {**FULL, "task": EMPTY["task"]}


def test_what_is_no_map_replaces():
    """Lists are replaced whole, and so is whatever a field of any value held; a map merges into a map there, too."""
    found = merge_patch(FULL, {"context": {"goals": ["h"]}, "task": {"progress": {"of": 4}}, "summary": "Anew."})
    assert (found["context"]["goals"], found["task"]["progress"], found["summary"]) == (
        ["h"], {"done": 1, "of": 4}, "Anew."
    )  # fmt: skip
    assert merge_patch(found, {"task": {"progress": 0.5}})["task"]["progress"] == 0.5


@pytest.mark.soak
@settings(max_examples=rounds(500))
@given(states, states)
def test_changes_may_come_twice_and_change_nothing_that_was_given(state, changes):
    """The same changes again change nothing more; what comes of them can be stored; what was given is left alone."""
    given_state, given_changes = deepcopy(state), deepcopy(changes)
    after = merge_patch(state, changes)
    assert is_same(merge_patch(after, changes), after)
    assert parse(KIND, render(KIND, flatten(after)).encode()).value == flatten(after)
    assert (state, changes) == (given_state, given_changes)


DEEP = {}
for _ in range(70):
    DEEP = {"a": DEEP}
WRONG = [
    (None, "state: found None; allowed: a map of changes"),
    ([("task", 1)], "state: found [('task', 1)]; allowed: a map of changes"),
    ({"tasks": {}}, "state: found 'tasks'; allowed: agent, task, mailbox, context, memory, fields, summary"),
    ({1: {}}, "state: found 1; allowed: agent, task, mailbox"),
    ({"task": {"name": "x"}}, "state: task: found 'name'; allowed: current, status, progress"),
    ({"task.current": "x"}, "state: found 'task.current'; allowed: agent, task"),
    ({"task": "x"}, "state: task: found 'x'; allowed: a map with any of current, status, progress"),
    ({"task": {"current": 7}}, "state: task.current: found 7; allowed: text"),
    ({"mailbox": {"pending": "x"}}, "state: mailbox.pending: found 'x'; allowed: a list"),
    ({"memory": {"session": [1]}}, "state: memory.session: found [1]; allowed: a map"),
    ({"fields": {"required": {"a": 1}}}, "state: fields.required: found {'a': 1}; allowed: a list"),
    ({"summary": ["x"]}, "state: summary: found ['x']; allowed: text"),
    ({"memory": {"session": {"a": float("nan")}}}, "state: memory: found nan; allowed: a finite number"),
    ({"memory": {"session": {"a": {1, 2}}}}, "state: memory: found {1, 2}; allowed: text, numbers"),
    ({"memory": {"session": {"a": (1, 2)}}}, "state: memory: found (1, 2); allowed: text, numbers"),
    ({"memory": {"session": {1: 2}}}, "state: memory: found 1 as a name; allowed: text"),
    ({"summary": "\ud800"}, "allowed: valid Unicode, no lone surrogate"),
    ({"memory": {"session": DEEP}}, "or 64 within each other; allowed: fewer"),
]


@pytest.mark.parametrize(("changes", "said"), WRONG)
def test_changes_that_make_no_state_are_refused(changes, said):
    """A field that is none, a value of the wrong type, or one that no file could hold is named with what is allowed."""
    state = deepcopy(FULL)
    with pytest.raises(InvalidArgument) as refused:
        merge_patch(state, changes)
    assert said in str(refused.value)
    assert state == FULL


# With a session.


def test_a_state_is_kept_with_its_session(desk):
    """Nothing lies in the folder before the first change; from then on every reader sees it, each its own copy."""
    assert desk.session.state() == EMPTY
    assert not file_of(desk).exists()
    after = desk.session.update_state({"task": {"current": "Compare"}, "memory": {"session": {"a": [1]}}})
    assert (
        after == desk.session.state() == merge_patch(EMPTY, {"task": {"current": "Compare"}, "memory": after["memory"]})
    )
    after["memory"]["session"]["a"].append(2)
    desk.session.state()["memory"]["session"]["a"].append(2)
    assert desk.session.state()["memory"]["session"] == {"a": [1]}
    assert "- Task: Compare\n" in file_of(desk).read_text(encoding="utf-8")


def test_nothing_is_written_where_nothing_changes(desk):
    """The same again writes no byte, and an empty state no file; true in the place of 1 is a change."""
    desk.session.update_state({"task": None, "memory": {"session": {"gone": None}}})
    assert not file_of(desk).exists()
    desk.session.update_state({"task": {"progress": 1}})
    before = file_of(desk).stat().st_ino, file_of(desk).read_bytes()
    assert desk.session.update_state({"task": {"progress": 1}})["task"]["progress"] == 1
    assert (file_of(desk).stat().st_ino, file_of(desk).read_bytes()) == before
    assert desk.session.update_state({"task": {"progress": True}})["task"]["progress"] is True
    assert "- Progress: `true`\n" in file_of(desk).read_text(encoding="utf-8")


def test_a_refused_change_leaves_the_file_as_it_is(desk):
    """One wrong field among sound ones, and none of them is stored."""
    desk.session.update_state({"task": {"current": "Compare"}})
    before = file_of(desk).read_bytes()
    with pytest.raises(InvalidArgument, match="summary"):
        desk.session.update_state({"task": {"current": "Another"}, "summary": 7})
    assert file_of(desk).read_bytes() == before


def test_what_a_person_writes_there_counts(desk):
    """An edit in the file is the state from then on."""
    desk.session.update_state({"context": {"goals": ["One"]}})
    text = file_of(desk).read_text(encoding="utf-8").replace("- One\n", "- One\n* Two, *soon*\n")
    file_of(desk).write_text(text, encoding="utf-8")
    assert desk.session.state()["context"]["goals"] == ["One", "Two, *soon*"]
    assert desk.session.update_state({"summary": "s"})["context"]["goals"] == ["One", "Two, *soon*"]


def test_a_state_that_cannot_be_read_is_never_taken_for_empty(desk):
    """A broken file is an error with file, line and section, for readers, writers and validate, and stays as it is."""
    desk.session.update_state({"task": {"current": "Compare"}})
    assert validate_tree(FileStore(desk.base), "p/").problems == ()
    broken = file_of(desk).read_bytes().replace(b"## Goals\n-", b"## Goals\nlost")
    file_of(desk).write_bytes(broken)
    said = r"p/sessions/s/state\.md:23: Goals: found 'lost'"
    for act in (desk.session.state, lambda: desk.session.update_state({"summary": "s"})):
        with pytest.raises(InvalidDocument, match=said):
            act()
    assert [str(problem).split(";")[0] for problem in validate_tree(FileStore(desk.base), "p/").problems] == [
        "p/sessions/s/state.md:23: Goals: found 'lost'"
    ]
    assert file_of(desk).read_bytes() == broken


def test_a_session_that_is_not_there_has_no_state(tmp_path):
    """To ask for, or change, the state of no session is an error, and makes none."""
    session = SessionDocuments(FileStore(tmp_path), "p", "s")
    for act in (session.state, lambda: session.update_state({"summary": "s"})):
        with pytest.raises(NotFound, match="session 's' of project 'p'"):
            act()
    assert list(tmp_path.rglob("*.md")) == []


def test_changes_made_at_once_are_all_kept(desk):
    """Several writers at a time: no change of any of them is lost."""

    def work(writer):
        for at in range(5):
            desk.session.update_state({"memory": {"session": {f"{writer}.{at}": at}}})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert desk.session.state()["memory"]["session"] == {f"{w}.{at}": at for w in range(4) for at in range(5)}


# With agents.


async def remember(task):
    """Answer with the state as it was given, and change it as the agent's file says."""
    fake_agents.calls.append((task.agent, task.digest))
    return Reply(json.dumps(task.state), state=json.loads(task.agent_file.rpartition("---\n")[2]))


def remembering(base, workflow=ONE, *, retries=0, **changes):
    """A session whose agents change its state, each as told."""
    front = f"---\nmodel: python:test_state:remember\nhaytham: {{retries: {retries}}}\n---\n"
    return Desk(base, workflow, {f"agents/{name}.md": (front + json.dumps(c)).encode() for name, c in changes.items()})


def test_what_a_reply_changes_is_stored_with_it_and_given_to_the_next_agent(tmp_path):
    """An agent is given the state as those before it left it, and what it changes is there with its output."""
    first, second = {"task": {"current": "Compare"}}, {"task": {"status": "done"}, "mailbox": {"pending": ["m"]}}
    desk = remembering(tmp_path, TWO, b=first, c=second)
    assert desk.resume() == ("waiting", 1)
    assert json.loads(desk.text(1, "b")) == EMPTY
    assert json.loads(desk.text(1, "c")) == merge_patch(EMPTY, first)
    assert desk.session.state() == merge_patch(merge_patch(EMPTY, first), second)


def test_an_agent_file_may_ask_for_the_state(tmp_path):
    """Instructions can show what is kept, and the task on record has it to the letter."""
    text = "---\nmodel: python:support.fake_agents:write\n---\nNow: {{ task.state.task.current }}.\n"
    desk = Desk(tmp_path, ONE, {"agents/a.md": text.encode()})
    desk.session.update_state({"task": {"current": "{{ 7*7 }}"}})
    desk.resume()
    assert desk.task(1, "a").startswith("Now: {{ 7*7 }}.\n")


def test_a_state_makes_nothing_stale(tmp_path):
    """What changes in a state is no part of a task: nobody is asked again."""
    desk = Desk(tmp_path)
    assert desk.resume(approve_as="ann") == ("completed", None)
    called()
    desk.session.update_state(FULL)
    assert desk.resume() == ("completed", None)
    assert called() == []


def test_a_reply_that_is_not_stored_changes_no_state(tmp_path):
    """Where a person wrote in the agent's place meanwhile, neither its text nor its changes are taken."""
    desk = remembering(tmp_path, b={"summary": "mine"}, a={"summary": "mine"})
    desk.resume()
    desk.session.update_state({"summary": ""})
    task = desk.standing().task(desk.phase(1), "a")
    desk.edit(1, "a", "My own words.")
    assert desk.gate.save_reply(task, {}, "Other words.", {"summary": "again"}) is False
    assert (desk.text(1, "a"), desk.session.state()["summary"]) == ("My own words.", "")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task": {"current": "x"}, "tasks": {}}, "state: found 'tasks'; allowed: agent, task, mailbox"),
        ({"summary": 7}, "state: summary: found 7; allowed: text"),
        ({"memory": {"session": {"a": float("nan")}}}, "reply: state: found"),
    ],
)
def test_a_change_that_makes_no_state_is_the_agents_failure(tmp_path, changes, said):
    """An agent that changes what a state has not is asked again as its file allows, and has failed then, whole."""
    desk = remembering(tmp_path, retries=1, a=changes)
    assert desk.resume() == ("failed", 1)
    assert called() == ["a", "a"]
    value = desk.session.read().outputs(desk.phase(1))["a"].value.to_value()
    assert said in value["error_message"]
    assert (value["status"], value["text"], desk.session.state()) == ("failed", "", EMPTY)


def test_a_change_that_is_too_much_for_what_is_there_is_the_agents_failure(tmp_path, monkeypatch):
    """A change that is sound by itself, and with what is kept already more than a file may hold, is a failure, too."""
    monkeypatch.setattr(validation, "_MAX_NODES", 100)
    desk = remembering(tmp_path, a={"memory": {"session": {f"a{at}": at for at in range(30)}}})
    before = desk.session.update_state({"memory": {"session": {f"b{at}": at for at in range(30)}}})
    assert desk.resume() == ("failed", 1)
    assert "allowed: fewer" in desk.session.read().outputs(desk.phase(1))["a"].value.error_message
    assert desk.session.state() == before


def test_a_broken_state_stops_the_run(tmp_path):
    """No agent is asked, and none has failed, while the state cannot be read."""
    desk = remembering(tmp_path, a={"summary": "s"})
    file_of(desk).write_bytes(b"# State\n")
    with pytest.raises(InvalidDocument, match=r"state\.md:1"):
        desk.resume()
    assert called() == []
    assert desk.session.read().outputs(desk.phase(1)) == {}


def test_a_crash_at_any_write_leaves_the_change_made_once_the_output_is_there(tmp_path):
    """Killed before or after any write of a run, and resumed: the state holds what the stored outputs changed."""
    changes, at, crashed = {"memory": {"session": {"a": 1, "gone": None}}, "summary": "s"}, 0, True
    while crashed:
        at, crashed = at + 1, False
        for done in (False, True):
            desk = remembering(tmp_path / f"{at}{done}", a=changes)
            try:
                desk.resume(desk.over(Dying(desk.base, at, done=done)))
            except Crash:
                crashed = True
            outputs = desk.session.read().outputs(desk.phase(1))
            assert desk.session.state() == merge_patch(EMPTY, changes) or "a" not in outputs
            assert desk.resume() == ("waiting", 1)
            assert desk.session.state() == merge_patch(EMPTY, changes)


@pytest.mark.parametrize(
    "state",
    [7, "x", [], [("summary", "s")], {"a": float("inf")}, {"a": object()}, {1: 2}, {"a": (1,)}, {"a": {"b": "\ud800"}}],
)
def test_a_reply_holds_plain_values_only(state):
    """Changes that no file could hold are refused while they are still the agent's own."""
    with pytest.raises(InvalidArgument, match="reply: state: found"):
        Reply("text", state=state)


def test_a_reply_takes_any_map():
    """Changes are a map of plain values, of whatever kind of map; none is as good as an empty one."""
    assert Reply("text").state is None
    assert Reply("text", state=MappingProxyType({"task": {"progress": [1, None]}})).state["task"] == {
        "progress": [1, None]
    }
