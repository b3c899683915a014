"""Markdown to value: damage is reported with line, section and label, and never read into something nobody wrote."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham.markdown.parser import parse
from haytham.markdown.renderer import render
from haytham.markdown.schema import load_schema
from haytham.text import conflict_lines
from support.hostile_inputs import CONFLICT, KINDS, texts, values
from support.make_golden import GOLDEN, drawn

NAMES = sorted(GOLDEN)


def read(kind, text):
    """What a document of a kind says."""
    return parse(load_schema(kind), text.encode())


def content_start(kind_name, text):
    """Where the content of a last section begins; the end of the text for a kind that has none."""
    kind = load_schema(kind_name)
    if kind.trailing_field is None:
        return len(text)
    return kind.heading.search(text, text.rindex(f"## {kind.sections[-1].name}")).end() + 1


@pytest.mark.parametrize(("kind", "name"), [pair for pair in NAMES if pair[1] != "hostile"])
def test_a_cut_anywhere_before_the_content_is_reported(kind, name):
    """A file cut off at any byte before its last content is reported; what is still read of it is as it was."""
    text = drawn(kind, name)
    whole = read(kind, text).value
    for end in range(content_start(kind, text)):
        cut = read(kind, text[:end])
        assert cut.problems, f"cut at {end}: {text[max(0, end - 40) : end]!r}"
        if not cut.faults:
            assert cut.value == whole


@pytest.mark.parametrize("kind", KINDS)
def test_a_section_twice_is_reported(kind):
    """A heading of the kind that stands twice is reported with both lines."""
    name = next(name for other, name in NAMES if other == kind)
    text = drawn(kind, name)
    section = load_schema(kind).sections[0].name
    body = text[text.index(f"## {section}") : text.index("\n## ", text.index(f"## {section}") + 1) + 1]
    first = text[: text.index(body)].count("\n") + 1
    found = read(kind, text.replace(body, body + body, 1)).faults
    assert [(problem.section, problem.message) for problem in found] == [
        (section, f"found the section twice, first in line {first}; allowed: once")
    ]


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_every_label_is_missed(kind, name):
    """A bullet taken away is reported with its section and label."""
    text = drawn(kind, name)
    head = text[: content_start(kind, text)]
    for field in load_schema(kind).fields:
        line = re.search(rf"^- {re.escape(field.label or '?')}: .*\n", head, re.MULTILINE)
        if field.label is None or line is None or field.section == "---":
            continue
        start = head.index(f"## {field.section}")
        line = re.compile(rf"^- {re.escape(field.label)}: .*\n", re.MULTILINE).search(head, start)
        found = read(kind, text[: line.start()] + text[line.end() :]).problems
        assert (field.section, field.label) in [(problem.section, problem.label) for problem in found]
        assert all(problem.derived for problem in found) == field.derived


def test_a_wrong_value_is_reported_with_what_is_allowed():
    """`Status: banana` names the file's line, the section, the label, what was found and what is allowed."""
    text = drawn("checkpoint", "completed").replace("- Status: completed", "- Status: banana")
    (problem,) = read("checkpoint", text).problems
    assert str(problem.with_file("checkpoint.md")) == (
        "checkpoint.md:12: Metadata / Status: found 'banana'; "
        "allowed: pending, in_progress, completed, failed, skipped, requires_retry"
    )


@pytest.mark.parametrize(
    ("before", "after", "place", "message"),
    [
        ("- Duration: 120.5s", "- Duration: 120.5", ("Metadata", "Duration"), "a number of seconds, like 120.5s"),
        ("- Duration: 120.5s", "- Duration: nans", ("Metadata", "Duration"), "a number of seconds"),
        ("- Duration: 120.5s", "- Duration: -1s", ("Metadata", "Duration"), "0 or more"),
        ("- Duration: 120.5s", "- Duration:", ("Metadata", "Duration"), "found no value"),
        ("- Retry Count: 0", "- Retry Count: many", ("Metadata", "Retry Count"), "a whole number"),
        ("- Retry Count: 0", "- Retry Count: -", ("Metadata", "Retry Count"), "found nothing"),
        ("- Started: 2024-11-24T10:00:00Z", "- Started: noon", ("Metadata", "Started"), "ISO 8601"),
        ("- Retry Count: 0", "- Retry Count: 0\nhello", ("Metadata", None), "found 'hello'"),
        ("- Retry Count: 0", "- Retry Count: 0\n- Retry Count: 1", ("Metadata", "Retry Count"), "twice"),
        ("- Retry Count: 0", "- Retry Count: 0\n### Notes", ("Metadata", None), "found '### Notes'"),
        ("## Agents in Phase", "## Agents In Phase", ("Agents in Phase", None), "the section is missing"),
        (
            "| concept_expansion |",
            "| concept_expansion | x |",
            ("Agent Ledger", None),
            "found '| concept_expansion | x |",
        ),
        ("| 15000 |", "| many |", ("Agent Ledger", None), "Tokens: found 'many'"),
        ("| Tokens |", "| Token |", ("Agent Ledger", None), "allowed: a table | Agent |"),
        ("# Phase Checkpoint", "# Checkpoint", (None, None), "allowed: the title # Phase Checkpoint:"),
        ("save_counter: 1", "save_counter: one", (None, "save_counter"), "allowed: a whole number"),
        ("save_counter: 1", 'save_counter: 1\n"save_counter": 2', (None, None), "has the key save_counter twice"),
        ("save_counter: 1", "save_counter: 1\ntags: [a]", (None, "tags"), "is no key of this kind"),
        ("save_counter: 1", "save_counter: [", (None, None), "is not valid YAML"),
        ("haytham: checkpoint/1", "haytham: checkpoint/2", (None, "haytham"), "newer than checkpoint/1"),
        ("haytham: checkpoint/1", "haytham: project/1", (None, "haytham"), "allowed: checkpoint/1"),
        ("haytham: checkpoint/1\n", "", (None, "haytham"), "allowed: checkpoint/1"),
    ],
)
def test_damage_is_reported_where_it_stands(before, after, place, message):
    """Each kind of damage has its own sentence, with section and label, and makes the value unfit."""
    text = drawn("checkpoint", "completed")
    assert before in text
    found = read("checkpoint", text.replace(before, after, 1)).problems
    assert any((problem.section, problem.label) == place and message in problem.message for problem in found), found


@pytest.mark.parametrize("text", ["", "\n", "---\n", "---\n---\n", "# Phase Checkpoint: x\n", "---\n- a\n---\n"])
def test_what_is_no_document_is_reported(text):
    """A file without our front matter is reported, not read."""
    assert read("checkpoint", text).faults


def test_bytes_that_are_not_utf8_are_reported_with_their_line():
    """A byte that is not UTF-8 is named with its line."""
    data = drawn("checkpoint", "completed").encode().replace(b"- Status: completed", b"- Status: \xff")
    (problem,) = parse(load_schema("checkpoint"), data).faults
    assert (problem.line, "not UTF-8" in problem.message) == (12, True)


def test_text_under_the_title_is_reported_and_comments_are_not():
    """Under the title an HTML comment may stand, and nothing else."""
    text = drawn("checkpoint", "completed")
    noted = text.replace("\n## Metadata", "\n<!-- a note\nof two lines -->\n\n## Metadata", 1)
    assert read("checkpoint", noted).problems == ()
    (problem,) = read("checkpoint", text.replace("\n## Metadata", "\nhello\n\n## Metadata", 1)).faults
    assert "found 'hello' under the title" in problem.message


def test_damage_to_what_is_only_shown_leaves_the_value_readable():
    """Shown parts stale, garbled or cut off are reported as shown, and the value is read all the same."""
    text = drawn("session_manifest", "in_progress")
    whole = read("session_manifest", text)
    for damaged in (
        text.replace("- Status: in_progress", "- Status: banana"),
        text.replace("| 120s |", "| soon |"),
        text[: text.index("## Phase Status")],
        text[: text.index("- Status: in_progress")],
        text.replace("- Can Resume: true\n", ""),
    ):
        found = read("session_manifest", damaged)
        assert found.problems
        assert found.faults == ()
        assert found.value == whole.value


def test_a_billion_laughs_are_cut_short():
    """Front matter made of nested aliases is refused, and not unfolded."""
    names = "abcdefghi"
    laughs = (f"{name}: &{name} [{', '.join(['*' + last] * 9)}]\n" for last, name in pairwise(names))
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(laughs)
    text = drawn("checkpoint", "completed")
    assert read("checkpoint", text.replace("save_counter: 1\n", f"save_counter: 1\n{bomb}")).faults
    assert read("checkpoint", text.replace("save_counter: 1\n", bomb.replace("i: &i", "save_counter: &i"))).faults


def test_the_head_of_an_output_is_read_without_its_content():
    """With `head`, what an output says of itself is read from its beginning alone."""
    text = drawn("agent_output", "completed")
    end = content_start("agent_output", text)
    found = parse(load_schema("agent_output"), text[:end], head=True)
    whole = read("agent_output", text).value
    assert (found.problems, found.value) == ((), {name: whole[name] for name in whole if name != "text"})


@pytest.mark.parametrize(
    ("ending", "text"),
    [("## Output\n\nfoo", "foo"), ("## Output\nfoo\n", "foo"), ("## Output\n", ""), ("## Output\n\nfoo\n\n", "foo\n")],
)
def test_content_is_read_with_and_without_the_line_ends_around_it(ending, text):
    """An editor that adds or drops the blank line before, or the line end after, changes no more than that."""
    head = drawn("agent_output", "completed").split("## Output")[0]
    assert read("agent_output", head + ending).value["text"] == text


@pytest.mark.soak
@settings(max_examples=rounds(2000))
@given(data=st.data(), junk=texts)
def test_junk_in_a_file_never_raises(data, junk):
    """Whatever is put into a file anywhere, reading it returns: a value, or problems."""
    kind, name = data.draw(st.sampled_from(NAMES))
    text = drawn(kind, name)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    found = read(kind, text[:start] + junk + text[end:])
    assert found.problems or found.value.keys() >= set(load_schema(kind).schema["required"])


@pytest.mark.parametrize("kind_name", KINDS)
@pytest.mark.soak
@settings(max_examples=rounds(500))
@given(data=st.data())
def test_lines_tell_where_each_field_stands(kind_name, data):
    """The line kept for a bullet is the line its label stands in."""
    kind = load_schema(kind_name)
    text = render(kind, data.draw(values(kind_name)))
    lines = text.split("\n")
    for name, number in parse(kind, text).lines.items():
        label = kind.field_by_name[name].label if name in kind.field_by_name else None
        if label is not None:
            assert lines[number - 1].startswith(f"- {label}:")


TRIPS = ["2024-13-45", "0x_", "9" * 5000, "!!timestamp 'x'", "!!int x", "!!float x", "!!bool x", "2024-01-01 25:61:00"]


@pytest.mark.parametrize("value", TRIPS)
def test_front_matter_that_trips_the_loader_is_a_problem_with_a_line(value):
    """A value that YAML's own loader stumbles over is reported like any other, and nothing is raised."""
    text = drawn("checkpoint", "completed").replace("save_counter: 1\n", f"save_counter: {value}\n")
    assert f"save_counter: {value}" in text
    assert read("checkpoint", text).faults


# What git leaves.


@pytest.mark.parametrize(("kind", "name"), [pair for pair in NAMES if pair[1] != "hostile"])
def test_a_conflict_in_a_structured_part_is_reported_with_its_line(kind, name):
    """Wherever git put its markers before the content that stands last, they are named, and nothing that follows."""
    text = drawn(kind, name)
    lines = text[: content_start(kind, text) - 1].split("\n")[:-1]
    for at in range(len(lines) + 1):
        conflict = "\n".join([*lines[:at], CONFLICT.rstrip("\n"), *lines[at:]]) + "\n"
        (problem,) = read(kind, conflict + text[content_start(kind, text) - 1 :]).faults
        assert (problem.line, "markers of a git conflict" in problem.message) == (at + 1, True)


@pytest.mark.parametrize(
    "lines",
    [
        "<<<<<<< a\n>>>>>>> b\n",
        "=======\n<<<<<<< a\n>>>>>>> b\n",
        ">>>>>>> b\n=======\n<<<<<<< a\n",
        "=======\n",
        f" {CONFLICT}",
    ],
)
def test_markers_out_of_order_are_no_conflict(lines):
    """A line of equals signs, and markers in another order or not at a line's start, are a person's own words."""
    text = drawn("user_feedback", "approved").replace("## Requested Changes", f"{lines}\n## Requested Changes")
    assert not read("user_feedback", text).problems


def test_each_conflict_is_reported():
    """Two conflicts in one text are two lines; markers within a conflict are part of it."""
    assert conflict_lines(f"a\n{CONFLICT}b\n{CONFLICT.replace('his', '<<<<<<< x')}") == [2, 8]


UNION = "- Last Updated: 2024-11-24T10:03:00Z\n"


@pytest.mark.parametrize(
    ("old", "new", "is_note"),
    [
        ("- Status: in_progress\n\n## Ph", UNION + "- Status: in_progress\n\n## Ph", True),
        ("\n## Metrics", "| 7 | Final Synthesis | pending | - | - | - |\n\n## Metrics", True),
        ("\n## Metrics", "\n## Current Phase\n- Phase: 7\n- Name: x\n\n## Metrics", True),
        ("\nderived_digest: ", "\nderived_digest: sha256:" + "1" * 64 + "\nderived_digest: ", True),
        ("\n## Metrics", "\n## Current Phase\n- Phase: 7\nWhat I know.\n\n## Metrics", False),
        ("\n## Metrics", "What I know.\n\n## Metrics", False),
        ("- Execution Mode: mvp\n", "- Execution Mode: mvp\n- Execution Mode: mvp\n", False),
        ("\norigin: ", "\norigin: x\norigin: ", False),
    ],
)
def test_only_repeated_lines_of_derived_fields_are_a_note(old, new, is_note):
    """What git repeats of a derived copy is lost to nobody; a person's words and home fields are never passed over."""
    text = drawn("session_manifest", "in_progress")
    assert old in text
    found = read("session_manifest", text.replace(old, new, 1))
    assert found.problems
    assert all(problem.derived and not problem.unknown_text for problem in found.problems) is is_note
    assert not is_note or found.value == read("session_manifest", text).value
