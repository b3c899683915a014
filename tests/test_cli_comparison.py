"""A comparison as people see it: texts word by word, then what else moved, counts of lines, facts for JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haytham import clock
from haytham.checkpoint.checkpoint_manager import CheckpointManager
from haytham.cli.comparison import comparison_to_json, diff_summary, render_diff
from haytham.history.compare import Change, CompareSide, compare
from haytham.session.paths import NEVER_FROZEN
from support.hostile_inputs import texts

IDS = ("p", "s")
AGENT = {"agent_name": "concept_expansion", "status": "completed", "cost": 0.0375}


@pytest.fixture
def pair(tmp_path):
    """A session after its first phase, and once that was revised and approved and the second one has failed."""
    with clock.override(lambda: datetime(2024, 11, 24, 10, tzinfo=UTC)):
        manager = CheckpointManager(base_dir=tmp_path)
        folder = manager.create_session(*IDS, user_id="u")
        given_tokens = {"input_tokens": 12000, "output_tokens": 3000}
        manager.save_agent_output(*IDS, 1, "concept_expansion", "# Idea\n\nLend barrels.", model="m", **given_tokens)
        manager.save_checkpoint(*IDS, 1, "completed", [AGENT])
        (folder / "evidence.md").write_bytes(b"Rain falls.\n")
        (folder / "photo.png").write_bytes(b"\xff\xd8\xff")
        before = side(manager, folder)
        manager.save_agent_output(*IDS, 1, "concept_expansion", "# Idea\n\nLend tools.", model="n", **given_tokens)
        manager.save_user_feedback(*IDS, 1, reviewed=True, approved=True, comments="Go on.")
        manager.save_checkpoint(*IDS, 2, "failed", [{"agent_name": "market", "status": "failed", "tokens": 5}])
        (folder / "evidence.md").unlink()
        (folder / "photo.png").write_bytes(b"\xff\xd8\xff\xe0")
        return compare(before, side(manager, folder))


def side(manager, folder):
    """The session as it is now, as a snapshot would hold it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in NEVER_FROZEN)
    documents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    return CompareSide(documents, manager.load_session(*IDS)["status"])


def texts_of(before, after, path="notes.txt"):
    """A comparison of two texts of a person."""
    return compare(CompareSide({path: before}, "waiting"), CompareSide({path: after}, "waiting"))


TEXTS = """\
evidence.md  [-snapshot 1-] {+s+}
@@ -1,1 +0,0 @@
[-Rain falls.-]

phase_1_concept/concept_expansion.md  [-snapshot 1-] {+s+}
@@ -1,3 +1,3 @@
# Idea

Lend [-barrels-]{+tools+}.
"""
SUMMARY = """
status: in_progress -> failed
output.1.concept_expansion.agent_digest: sha256:c41cffeeaf74… -> sha256:f8feb3aeff41…
output.1.concept_expansion.model: m -> n
feedback.1.approved: - -> true
feedback.1.action: - -> approved
checkpoint.2.status: - -> failed
added: phase_1_concept/user_feedback.md
added: phase_2_market_research/checkpoint.md
removed: evidence.md
tokens: 15000 -> 15005
photo.png: binary, 3 bytes -> 4 bytes"""
STAT = """\
evidence.md                            +0 -1  removed
phase_1_concept/concept_expansion.md   +1 -1
phase_1_concept/user_feedback.md       +0 -0  added
phase_2_market_research/checkpoint.md  +0 -0  added
photo.png                              +0 -0  binary, 3 bytes -> 4 bytes
5 documents, +1 -2; 5 fields"""


def test_texts_come_first_then_what_else_moved(pair):
    """Words that differ stand in their lines, with both sides named; fields, documents and totals follow."""
    assert render_diff(pair, ("snapshot 1", "s"), colour=False) == TEXTS + SUMMARY


def test_deleted_words_are_red_and_inserted_ones_green(pair):
    """In colours there are no brackets; the words and all other lines are the same."""
    painted = render_diff(pair, ("snapshot 1", "s"), colour=True)
    assert "\nLend \x1b[31mbarrels\x1b[0m\x1b[32mtools\x1b[0m.\n" in painted
    assert "\n\x1b[36m@@ -1,3 +1,3 @@\x1b[0m\n# Idea\n" in painted
    for code in ("\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[0m"):
        painted = painted.replace(code, "")
    plain = TEXTS + SUMMARY
    for mark in ("[-", "-]", "{+", "+}"):
        plain = plain.replace(mark, "")
    assert painted == plain


def test_a_hunk_names_the_heading_above_it():
    """A change far below its heading says where it is."""
    lines = ["# Market", *"abcdefgh"]
    shown = render_diff(texts_of("\n".join(lines).encode(), "\n".join([*lines, "i"]).encode()), colour=False)
    assert shown.split("\n")[1:] == ["@@ -7,3 +7,4 @@ # Market", "f", "g", "h", "{+i+}"]


def test_counts_stand_in_columns(pair):
    """A line a document with the lines it gained and lost, and their sum at the end."""
    assert diff_summary(pair) == STAT


def test_a_document_has_one_line():
    """The long fields of one document are counted together."""
    text = texts_of(b"a", b"b").texts["notes.txt"]
    both = {"phase_1_x/user_feedback.md#comments": text, "phase_1_x/user_feedback.md#requested_changes.1": text}
    comparison = replace(texts_of(b"", b""), texts=both)
    assert diff_summary(comparison) == "phase_1_x/user_feedback.md  +2 -2\n1 document, +2 -2; 0 fields"


def test_counts_are_aligned():
    """Numbers stand right below each other."""
    documents = [
        {"a.txt": b"\n".join(b"%d" % number for number in range(count)), "long/name.txt": b"%d" % count}
        for count in (1, 13)
    ]
    comparison = compare(*(CompareSide(found, "waiting") for found in documents))
    assert diff_summary(comparison).split("\n") == [
        "a.txt          +12 -0",
        "long/name.txt   +1 -1",
        "2 documents, +13 -1; 0 fields",
    ]


def test_facts_are_json(pair):
    """All that differs is there as JSON has it, digests whole."""
    told = json.loads(json.dumps(comparison_to_json(pair)))
    assert told["changed_fields"]["output.1.concept_expansion.model"] == {"old": "m", "new": "n"}
    assert (told["old_status"], told["new_status"]) == ("in_progress", "failed")
    assert (told["added"], told["removed"]) == (list(pair.added), ["evidence.md"])
    assert (told["tokens"], told["cost"]) == ({"old": 15000, "new": 15005}, {"old": 0.0375, "new": 0.0375})
    assert told["texts"]["photo.png"] == "binary, 3 bytes -> 4 bytes"
    assert list(told) == ["changed_fields", "added", "removed", "old_status", "new_status", "texts", "tokens", "cost"]


def test_money_is_written_out():
    """A small sum is not told in powers of ten, and one that is not known is a dash."""
    assert "\ncost: - -> $0.00001" in render_diff(costing(None, 0.00001), colour=False)
    assert "\ncost: $2 -> $2.5" in render_diff(costing(2, 2.5), colour=False)


def costing(old, new):
    """A comparison of two sums of money."""
    return replace(texts_of(b"", b"\xff"), cost=Change(old, new), old_status="waiting", new_status="completed")


def test_nothing_differs_in_words():
    """Where nothing differs, that is said."""
    same = texts_of(b"a", b"a")
    assert (render_diff(same, colour=True), diff_summary(same)) == ("nothing differs", "nothing differs")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("", "-", 'x: "" -> "-"'),
        (" a", "a -> b", 'x: " a" -> "a -> b"'),
        (None, False, "x: - -> false"),
        ([], {}, "x: [] -> {}"),
        (1, 1.5, "x: 1 -> 1.5"),
        ("\x1b[2Ja", "b\u202e", "x: [2Ja -> b"),
    ],
)
def test_values_cannot_be_mistaken(old, new, line):
    """Nothing is a dash, and text that could be taken for something else stands in quotes."""
    told = replace(texts_of(b"", b""), changed_fields={"x": Change(old, new)})
    assert render_diff(told, colour=False) == line


@given(before=texts, after=texts, path=st.sampled_from(["notes.txt", "a\x1b[31m\n.txt"]))
def test_no_text_reaches_the_terminal_with_control_characters(before, after, path):
    """Whatever documents and their names hold, a terminal shows it and does nothing else."""
    told = texts_of(before.encode(), after.encode(), path)
    shown = render_diff(told, colour=False) + diff_summary(told)
    assert not {character for character in shown if character < " " or character == "\u202e"} - {"\n", "\t"}
