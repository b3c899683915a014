"""Two moments of a session compared: fields by path, texts as differences, and no document that can break it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham import clock
from haytham.config.workflow import shipped_workflow
from haytham.history.compare import Change, CompareSide, TextChange, _differences, compare
from haytham.markdown.renderer import render
from haytham.markdown.schema import load_schema
from haytham.session import SessionDocuments
from haytham.session.summary import summarize
from haytham.session.swap import snapshot_paths
from haytham.storage import MemoryStore
from support.hostile_inputs import FRAGMENTS, shown_values, values

CONCEPT, MARKET = "phase_1_concept", "phase_2_market_research"
OUTPUT = {"duration": None, "status": "completed", "model": "m", "input_tokens": 1, "output_tokens": 2}
OUTPUT |= {"tools_used": None}
PHASE = {"status": "completed", "started": None, "completed": None, "duration": None, "retry_count": 0}
PHASE |= {"execution_mode": "single"}
FEEDBACK = {"reviewed": True, "approved": None, "timestamp": None, "comments": "", "requested_changes": []}
FEEDBACK |= {"action": "pending", "retry_count": 0}
DIGESTS = ["sha256:" + digit * 64 for digit in "0123"]


@pytest.fixture
def session():
    with clock.override(lambda: datetime(2024, 11, 24, 10, tzinfo=UTC)):
        made = SessionDocuments(MemoryStore(), "p", "s")
        made.create(user_id="u", source=shipped_workflow("idea_validation"), mode="mvp")
        made.save_output(1, "concept_expansion", OUTPUT, "A concept.\n\nIn two parts.")
        made.save_checkpoint(1, PHASE, [{"agent_name": "concept_expansion", "status": "completed", "cost": 0.1}])
        made.save_feedback(1, FEEDBACK)
        yield made


def side(session):
    """The session as it is now, as a snapshot would hold it."""
    paths = snapshot_paths(session.store, session.prefix)
    status = summarize(session.read()).status
    return CompareSide({path: session.store.read(session.prefix + path) for path in paths}, status)


def one(path, data, status="waiting"):
    """A session with one document."""
    return CompareSide({} if data is None else {path: data}, status)


def document(kind, **value):
    """The bytes of a document."""
    return render(load_schema(kind), value, {"phase_name": "x", "agent_title": "x"}).encode()


def a_feedback(**changes):
    content = {"phase_number": 2, "attempt": 1, "reviewed_content": [], **FEEDBACK}
    return document("user_feedback", **{**content, **changes})


def an_output(**changes):
    content = {
        "phase_number": 2,
        "attempt": 1,
        "agent_digest": DIGESTS[0],
        "agent": "a",
        "executed": "2024-11-24T10:00:00Z",
    }
    return document("agent_output", **{**content, **OUTPUT, "text": "text", **changes})


def a_task(**changes):
    content = {"agent": "a", "phase": 2, "attempt": 1, "parts": [], "prompt": "Write."}
    return document("task", **{**content, **changes})


def pairs(comparison):
    """The fields that changed, each as a pair."""
    return {path: (change.old, change.new) for path, change in comparison.changed_fields.items()}


def test_a_session_is_as_it_is(session):
    """Compared with itself nothing differs, and not even the ledgers are read for totals."""
    comparison = compare(side(session), side(session))
    assert comparison.is_empty
    assert (comparison.old_status, comparison.new_status, comparison.tokens.new) == ("waiting", "waiting", None)


def test_what_is_only_shown_takes_no_part(session):
    """A manifest that was drawn anew a day later, its table and its time other ones, says the same as before."""
    before = side(session)
    path = "session_manifest.md"
    shown = before.documents[path].replace(b"10:00:00", b"11:00:00").replace(b"- Total Tokens: 3", b"- Total Tokens: 4")
    created = shown.replace(b"- Created: 2024-11-24T11", b"- Created: 2024-11-24T10")
    after = CompareSide({**before.documents, path: created}, before.status)
    assert created != before.documents[path]
    assert compare(before, after).is_empty


def test_fields_are_named_by_what_holds_them(session):
    """A checkpoint's, a review's, an output's fields are found by phase and agent, rows of a ledger by their agent."""
    before = side(session)
    session.save_output(1, "concept_expansion", {**OUTPUT, "model": "n"}, "A concept.\n\nIn two parts.")
    rows = [{"agent_name": "concept_expansion", "status": "completed", "cost": 0.25}]
    session.save_checkpoint(1, {**PHASE, "errors": ["late"]}, rows)
    session.save_feedback(1, {**FEEDBACK, "approved": True, "comments": "Go on"})
    comparison = compare(before, side(session))
    assert pairs(comparison) == {
        "status": ("waiting", "in_progress"),
        "checkpoint.1.save_counter": (1, 2),
        "checkpoint.1.ledger.concept_expansion.cost": (0.1, 0.25),
        "checkpoint.1.errors.1": (None, "late"),
        "output.1.concept_expansion.model": ("m", "n"),
        "feedback.1.approved": (None, True),
        "feedback.1.comments": ("", "Go on"),
        "feedback.1.bound_decision": (None, "approved"),
    }
    assert (comparison.old_status, comparison.new_status) == ("waiting", "in_progress")
    assert (comparison.texts, comparison.cost) == ({}, Change(0.1, 0.25))


def test_the_text_of_an_output_is_a_difference_under_its_document(session):
    """What an agent wrote is compared line by line, and what follows from it stands among the fields."""
    before = side(session)
    session.save_output(1, "concept_expansion", OUTPUT, "A concept.\n\nIn three parts.")
    comparison = compare(before, side(session))
    path = f"{CONCEPT}/concept_expansion.md"
    lines = ["@@ -1,3 +1,3 @@", " A concept.", " ", "-In two parts.", "+In three parts."]
    assert comparison.texts == {path: "\n".join([f"--- {path} before", f"+++ {path} now", *lines])}
    assert list(comparison.changed_fields) == ["output.1.concept_expansion.agent_digest"]


def test_what_came_is_named_and_says_how_it_stands(session):
    """Of a document that is on one side only its status or decision is told, and of an output its text."""
    before = side(session)
    session.save_output(2, "a", OUTPUT, "text")
    session.save_checkpoint(2, PHASE, [{"agent_name": "a", "status": "completed"}])
    comparison = compare(before, side(session))
    assert comparison.added == (f"{MARKET}/a.md", f"{MARKET}/checkpoint.md")
    assert comparison.removed == ()
    assert pairs(comparison) == {"output.2.a.status": (None, "completed"), "checkpoint.2.status": (None, "completed")}
    assert [text.split("\n")[-1] for text in comparison.texts.values()] == ["+text"]


def test_totals_are_those_a_manifest_shows(session):
    """Tokens and cost are added up over the ledgers of all phases, equal ones included."""
    before = side(session)
    session.save_checkpoint(2, PHASE, [{"agent_name": "a", "status": "completed", "tokens": 5, "cost": 0.2}])
    after = side(session)
    comparison = compare(before, after)
    assert (comparison.tokens, comparison.cost) == (Change(3, 8), Change(0.1, 0.3))
    assert b"- Total Tokens: 8\n- Total Cost: $0.3\n" in after.documents["session_manifest.md"]


def test_totals_are_not_known_where_a_checkpoint_is_not_readable(session):
    """A sum with a part missing is not told."""
    before = side(session)
    broken = CompareSide({**before.documents, f"{CONCEPT}/checkpoint.md": b"broken"}, "unreadable")
    comparison = compare(before, broken)
    assert (comparison.tokens, comparison.cost) == (Change(3, None), Change(0.1, None))


def test_long_values_are_texts_and_flood_no_list():
    """A field of several lines, or of more than 200 characters, is compared as a text behind the document's path."""
    path = f"{MARKET}/user_feedback.md"
    before = one(path, a_feedback(comments="One.\nTwo.", requested_changes=["short", "x" * 201]))
    after = one(path, a_feedback(comments="One.\nThree.", requested_changes=["brief", "y" * 201]))
    comparison = compare(before, after)
    assert pairs(comparison) == {"feedback.2.requested_changes.1": ("short", "brief")}
    assert list(comparison.texts) == [f"{path}#comments", f"{path}#requested_changes.2"]
    assert comparison.texts[f"{path}#comments"].endswith("\n One.\n-Two.\n+Three.")


def a_state(**changes):
    content = dict.fromkeys(("agent.type", "task.current", "task.status", "task.progress", "mailbox.last_processed"))
    lists = ("mailbox.pending", "context.goals", "context.constraints", "context.decisions", "fields.required")
    content |= {name: [] for name in lists}
    content |= {name: {} for name in ("memory.short_term", "memory.session", "fields.collected")}
    return document(
        "state", **{**content, "summary": "", **{name.replace("__", "."): changes[name] for name in changes}}
    )


def test_values_of_the_caller_are_found_by_their_keys():
    """State is compared key by key, whatever the keys and however deep; its summary is a field and a text."""
    before = a_state(memory__session={"x": {"y": 1}, "a.b": True}, context__goals=["one"], summary="Short.")
    after = a_state(memory__session={"x": {"y": 2}, "a.b": 1}, context__goals=["one", {"n": 2}], summary="Brief.")
    comparison = compare(one("state.md", before), one("state.md", after))
    assert pairs(comparison) == {
        "state.context.goals.2.n": (None, 2),
        "state.memory.session.x.y": (1, 2),
        'state.memory.session."a.b"': (True, 1),
        "state.summary": ("Short.", "Brief."),
    }
    assert comparison.texts["state.md"].endswith("-Short.\n+Brief.")


def test_the_fields_of_an_agent_are_changed_fields_however_long():
    """Agent type, collected and required fields are fields even if a value is long, and then a text besides."""
    long = "x" * 300
    before = a_state(agent__type="Seller", fields__collected={"name": "ann"}, fields__required=["name"])
    after = a_state(agent__type="Buyer", fields__collected={"name": long}, fields__required=["name", "city"])
    comparison = compare(one("state.md", before), one("state.md", after))
    assert pairs(comparison) == {
        "state.agent.type": ("Seller", "Buyer"),
        "state.fields.collected.name": ("ann", long),
        "state.fields.required.2": (None, "city"),
    }
    assert list(comparison.texts) == ["state.md#fields.collected.name"]


def test_a_state_that_came_tells_all_it_holds():
    """Values of the caller are told where there were none before, and empty places are not."""
    comparison = compare(one("state.md", None), one("state.md", a_state(fields__collected={"name": "ann"})))
    assert pairs(comparison) == {"state.fields.collected.name": (None, "ann")}


def test_the_prompt_of_a_task_is_a_text_and_its_parts_are_rows_by_name():
    """A task tells which part of it changed, and how the prompt did."""
    path = f"{MARKET}/tasks/a.md"
    parts = [{"part": part, "digest": digest} for part, digest in zip(("idea", "evidence"), DIGESTS, strict=False)]
    now = [{**parts[0], "digest": DIGESTS[2]}, {"part": "a.b", "digest": DIGESTS[3]}]
    comparison = compare(one(path, a_task(parts=parts)), one(path, a_task(parts=now, prompt="Write more.")))
    assert pairs(comparison) == {
        "task.2.a.parts.idea.digest": (DIGESTS[0], DIGESTS[2]),
        "task.2.a.parts.evidence.digest": (DIGESTS[1], None),
        'task.2.a.parts."a.b".digest': (None, DIGESTS[3]),
    }
    assert comparison.texts[path].endswith("-Write.\n+Write more.")


def test_rows_of_reviewed_content_are_named_by_their_document():
    """The digests a review is bound to are found by the document's name, in whatever order they stand."""
    path = f"{MARKET}/user_feedback.md"
    rows = [{"document": f"{name}.md", "digest": DIGESTS[0], "task": None} for name in "ab"]
    other = [rows[1], {**rows[0], "digest": DIGESTS[1]}]
    comparison = compare(one(path, a_feedback(reviewed_content=rows)), one(path, a_feedback(reviewed_content=other)))
    assert pairs(comparison) == {"feedback.2.reviewed_content.a.digest": (DIGESTS[0], DIGESTS[1])}


def test_rows_of_one_name_are_told_by_their_place():
    """Where a name stands twice, rows are counted from 1, as documents count."""
    path = f"{MARKET}/user_feedback.md"
    rows = [{"document": "a.md", "digest": digest, "task": None} for digest in DIGESTS[:2]]
    other = [rows[0], {**rows[1], "digest": DIGESTS[2]}]
    comparison = compare(one(path, a_feedback(reviewed_content=rows)), one(path, a_feedback(reviewed_content=other)))
    assert pairs(comparison) == {"feedback.2.reviewed_content.2.digest": (DIGESTS[1], DIGESTS[2])}


@pytest.mark.parametrize(
    ("name", "data", "other", "field"),
    [
        ("a.md", an_output(), an_output(model="n"), "output.a.model"),
        ("v1.2.md", an_output(), an_output(model="n"), 'output."v1.2".model'),
        ("user_feedback.md", a_feedback(), a_feedback(retry_count=1), "feedback.retry_count"),
        ("tasks/a.md", a_task(), a_task(attempt=2), "task.a.attempt"),
    ],
)
def test_fields_of_an_earlier_attempt_have_paths_of_their_own(name, data, other, field):
    """They begin with the phase and the number of the attempt."""
    path = f"{MARKET}/attempts/1/{name}"
    assert list(compare(one(path, data), one(path, other)).changed_fields) == [f"attempt.2.1.{field}"]


def test_an_attempt_that_was_put_aside_tells_only_its_decision():
    """What was at hand before is no news where it lies now."""
    folder = f"{MARKET}/attempts/1/"
    documents = {f"{folder}a.md": an_output(), f"{folder}tasks/a.md": a_task()}
    documents[f"{folder}user_feedback.md"] = a_feedback(action="retry_with_changes")
    comparison = compare(CompareSide({}, "waiting"), CompareSide(documents, "waiting"))
    assert pairs(comparison) == {"attempt.2.1.feedback.action": (None, "retry_with_changes")}
    assert (set(comparison.added), comparison.texts) == (documents.keys(), {})


def test_texts_are_there_in_whole_to_be_compared_by_words():
    """Each text that is compared line by line has both its versions, with LF; notes have none."""
    comparison = compare(one("notes.txt", b"a\r\nb"), one("notes.txt", b"a\nc"))
    assert comparison.contents == {"notes.txt": TextChange("a\nb", "a\nc")}
    assert compare(one("photo.png", b"\xff"), one("photo.png", b"a")).contents == {}


@pytest.mark.parametrize("folder", [MARKET, f"{MARKET}/attempts/1"])
def test_presented_copies_come_and_go_and_nothing_more_is_said_of_them(folder):
    """They repeat what outputs say."""
    path = f"{folder}/presented/a.md"
    assert compare(one(path, an_output()), one(path, an_output(text="other"))).is_empty
    comparison = compare(one(path, an_output()), one(path, None))
    assert (comparison.removed, comparison.texts, pairs(comparison)) == ((path,), {}, {})


def test_without_records_times_digests_and_tasks_are_left_out():
    """What a person reads stays: texts, statuses, decisions; a time that the caller stores is a value like others."""
    folder = f"{MARKET}/attempts/1/"
    old = {f"{MARKET}/a.md": an_output(), f"{MARKET}/tasks/a.md": a_task(), "state.md": a_state()}
    new = {f"{MARKET}/a.md": an_output(agent_digest=DIGESTS[1], executed="2024-11-25T10:00:00Z", model="n", text="new")}
    new |= {f"{MARKET}/tasks/a.md": a_task(prompt="Write more."), f"{MARKET}/presented/a.md": an_output()}
    new |= {f"{folder}tasks/a.md": a_task(), f"{folder}a.md": an_output()}
    new |= {"state.md": a_state(fields__collected={"date": "2024-11-24T10:00:00Z"})}
    comparison = compare(CompareSide(old, "waiting"), CompareSide(new, "waiting"))
    shown = comparison.without_records
    names = {"state.fields.collected.date", "output.2.a.model"}
    assert (pairs(shown).keys(), shown.added, list(shown.texts)) == (names, (f"{folder}a.md",), [f"{MARKET}/a.md"])
    assert shown.contents == {f"{MARKET}/a.md": TextChange("text", "new")}
    assert {"output.2.a.agent_digest", "output.2.a.executed"} <= pairs(comparison).keys()
    assert set(comparison.added) - set(shown.added) == {f"{folder}tasks/a.md", f"{MARKET}/presented/a.md"}


@pytest.mark.parametrize(
    ("path", "before", "after", "lines"),
    [
        ("evidence.md", b"a\n", b"a\nb\n", ["@@ -1 +1,2 @@", " a", "+b"]),
        (f"{MARKET}/notes.txt", b"a", b"b", ["@@ -1 +1 @@", "-a", "+b"]),
        (f"{MARKET}/a.md", b"a", b"b", ["@@ -1 +1 @@", "-a", "+b"]),
        (f"{MARKET}/a.md", an_output(), b"gone", ["+gone"]),
        ("evidence.md", None, b"a", ["@@ -0,0 +1 @@", "+a"]),
    ],
)
def test_what_is_no_readable_document_is_compared_as_text(path, before, after, lines):
    """Files of a person, and documents that do not parse on one side or both, differ line by line."""
    comparison = compare(one(path, before), one(path, after))
    assert list(comparison.texts) == [path]
    assert comparison.texts[path].split("\n")[-len(lines) :] == lines
    assert pairs(comparison) == {}


@pytest.mark.parametrize("path", ["picture.png", f"{MARKET}/a.md", "session_manifest.md"])
def test_bytes_that_are_no_text_are_counted(path):
    """Nothing more can be said of them."""
    comparison = compare(one(path, b"\xff\x00"), one(path, b"text"))
    assert comparison.texts == {path: "binary, 2 bytes -> 4 bytes"}


@pytest.mark.parametrize("path", ["evidence.md", f"{MARKET}/a.md"])
def test_line_ends_and_a_byte_order_mark_are_no_difference(path):
    """What git or an editor does to a file on another system changes nothing in it."""
    data = an_output(text="one\ntwo") if path.endswith("a.md") else b"one\ntwo\n"
    assert compare(one(path, data), one(path, b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))).is_empty


def test_very_long_texts_are_counted():
    """Past ten thousand lines the difference would take too long, and is not drawn."""
    comparison = compare(one("log.txt", b"a\n" * 10_000), one("log.txt", b"b\n" * 10_001))
    assert comparison.texts == {"log.txt": "text, 10001 lines -> 10002 lines"}


def test_phases_stand_in_the_order_of_their_numbers():
    """Phase 2 comes before phase 10."""
    documents = {f"phase_{number}_x/notes.txt": b"" for number in (10, 2, 1)}
    assert compare(CompareSide({}, "a"), CompareSide(documents, "a")).added == tuple(
        f"phase_{n}_x/notes.txt" for n in (1, 2, 10)
    )


def test_another_status_alone_is_a_difference():
    """A session may stand otherwise though no document of it changed."""
    assert not compare(CompareSide({}, "waiting"), CompareSide({}, "unreadable")).is_empty


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, {"x.a.b": (1, 2)}),
        ({"a": 1}, {"a": True}, {"x.a": (1, True)}),
        ({"a": None}, {}, {}),
        ({"a": []}, {}, {"x.a": ([], None)}),
        ({"a": {}}, {"a": []}, {"x.a": ({}, [])}),
        ([], ["a"], {"x.1": (None, "a")}),
        (["a"], None, {"x.1": ("a", None)}),
        ("a", ["b"], {"x": ("a", None), "x.1": (None, "b")}),
        ({"1": "a"}, ["a"], {"x.1": (None, "a")}),
        ({"a.b": 1, "": 2}, {}, {'x."a.b"': (1, None), 'x.""': (2, None)}),
        ({"a\x1b": 1}, {}, {'x."a\\u001b"': (1, None)}),
        ([{"part": "a", "n": 1}], [{"part": "a", "n": 2}], {"x.a.n": (1, 2)}),
        ([{"part": "a"}], [{"part": "b"}], {"x.a": ({}, None), "x.b": (None, {})}),
        ([{"document": "a"}], [{"document": "a.md"}], {'x."a"': ({}, None), "x.a": (None, {})}),
    ],
)
def test_values_differ_by_the_names_that_lead_to_them(old, new, found):
    """Maps by key, rows by name or place; nothing and absent are the same, and no whole map is told as one value."""
    assert {path: (before, after) for path, before, after in _differences("x", old, new)} == found


names = st.sampled_from(["", "a", "a.b", '"a.b"', "1", "x y", "n"])
something = st.recursive(
    st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a", "a.md", "a.b", '"a"', "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


def strictly(content):
    """A value in which true is told from 1."""
    if isinstance(content, dict):
        return {name: strictly(inner) for name, inner in content.items()}
    return [strictly(inner) for inner in content] if isinstance(content, list) else repr(content)


@settings(max_examples=rounds(5000))
@given(old=something, new=something)
def test_values_that_are_others_differ(old, new):
    """No difference is overlooked, in either direction, and none is made up."""
    found = [bool(list(_differences("x", *both))) for both in ((old, new), (new, old))]
    assert found == [strictly(old) != strictly(new)] * 2


PLACES = {
    "state.md": "state",
    "session_manifest.md": "session_manifest",
    f"{CONCEPT}/checkpoint.md": "checkpoint",
    f"{CONCEPT}/user_feedback.md": "user_feedback",
    f"{CONCEPT}/a.md": "agent_output",
    f"{CONCEPT}/tasks/a.md": "task",
    f"{MARKET}/attempts/1/a.md": "agent_output",
    f"{MARKET}/presented/a.md": "agent_output",
}


@st.composite
def readable(draw, path):
    """The bytes of a document that belongs at a place, all of it under attack."""
    kind = PLACES[path]
    return render(load_schema(kind), draw(values(kind)), draw(shown_values(kind))).encode()


TRAPS = [
    b"2024-13-45",
    b"0x_",
    b"9" * 5000,
    b"!!timestamp 'x'",
    b"!!int x",
    b"!!float x",
    b"!!bool x",
    b"2024-01-01 25:61:00",
    b"&a [*a]",
    b"{" * 400,
]
traps = st.sampled_from([b"---\nhaytham: checkpoint/1\nsaved: " + trap + b"\n---\n\n# x\n" for trap in TRAPS])
rubbish = st.lists(st.sampled_from(FRAGMENTS).map(str.encode) | st.binary(max_size=8), max_size=6).map(b"".join)
contents = st.one_of(st.none(), rubbish, traps)


@st.composite
def sides(draw):
    """Sessions of any documents, readable and not."""
    paths = draw(st.lists(st.sampled_from([*PLACES, "evidence.md", "notes/a.txt"]), max_size=4, unique=True))
    found = {path: draw(contents | readable(path) if path in PLACES else contents) for path in paths}
    documents = {path: data for path, data in found.items() if data is not None}
    return CompareSide(documents, draw(st.sampled_from(["waiting", "completed"])))


@settings(max_examples=rounds(500))
@given(found=sides())
def test_whatever_it_holds_a_session_is_as_it_is(found):
    """Compared with itself, nothing differs."""
    assert compare(found, CompareSide(dict(found.documents), found.status)).is_empty


@settings(max_examples=rounds(500))
@given(old=sides(), new=sides())
def test_there_and_back_differ_alike(old, new):
    """Nothing raises; the other way round old and new change places, and empty is empty both ways."""
    there, back = compare(old, new), compare(new, old)
    assert there.is_empty == back.is_empty
    assert (there.added, there.removed) == (back.removed, back.added)
    assert (there.tokens.old, there.cost.new) == (back.tokens.new, back.cost.old)
    assert there.texts.keys() == back.texts.keys()
    assert there.changed_fields.keys() == back.changed_fields.keys()


@pytest.mark.parametrize("trap", TRAPS)
def test_front_matter_that_trips_the_loader_is_text(trap):
    """A document whose front matter cannot even be refused is compared as text all the same."""
    path = f"{CONCEPT}/checkpoint.md"
    data = b"---\nhaytham: checkpoint/1\nsaved: " + trap + b"\n---\n\n# Phase Checkpoint: x\n"
    assert list(compare(one(path, data), one(path, b"x")).texts) == [path]
