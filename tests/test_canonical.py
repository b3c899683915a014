"""The compiled reader: what it reads, the lenient parser reads in the same way, to the letter."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham.markdown.canonical import canonical_reader
from haytham.markdown.parser import parse, parse_leniently
from haytham.markdown.renderer import render
from haytham.markdown.schema import load_schema
from support.hostile_inputs import FRAGMENTS, KINDS, shown_values, values
from support.make_golden import GOLDEN, drawn

EDITS = {
    "delete": lambda line, _: [],
    "double": lambda line, _: [line, line],
    "insert before": lambda line, text: [text, line],
    "append": lambda line, text: [line + text],
    "prepend": lambda line, text: [text + line],
    "shorten": lambda line, _: [line[:-1]],
    "replace": lambda _, text: [text],
    "replace value": lambda line, text: [f"{line.partition(':')[0]}: {text}"],
    "indent": lambda line, _: [f" {line}"],
    "end in CR": lambda line, _: [f"{line}\r"],
}


def head_of(kind, text):
    """Return a document up to the content that stands last, as the repository reads it."""
    return text[: text.index(f"\n## {kind.sections[-1].name}\n") + len(kind.sections[-1].name) + len("\n## \n")]


def is_canonical(kind, text):
    """Return whether the compiled reader reads a text."""
    return canonical_reader(kind)(text, False) is not None


def assert_same(kind, text, **options):
    """Assert that a text reads alike both ways: values and their order, types, problems, lines and digest."""
    fast, lenient = parse(kind, text, **options), parse_leniently(kind, text, **options)
    assert fast == lenient
    assert (repr(fast.value), repr(fast.derived)) == (repr(lenient.value), repr(lenient.derived))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.soak
@settings(max_examples=rounds(500))
@given(data=st.data())
def test_whatever_is_rendered_reads_alike_both_ways(name, data):
    """Every rendered document, whatever it holds, and its head read alike both ways."""
    kind = load_schema(name)
    text = render(kind, data.draw(values(name)), data.draw(shown_values(name)))
    assert_same(kind, text)
    if kind.trailing_field is not None:
        assert_same(kind, head_of(kind, text), head=True)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.soak
@settings(max_examples=rounds(1500))
@given(data=st.data())
def test_an_edit_of_any_line_reads_alike_both_ways(name, data):
    """A rendered document with any one line changed gives the same values, problems and lines both ways."""
    kind = load_schema(name)
    lines = render(kind, data.draw(values(name)), data.draw(shown_values(name))).split("\n")
    at = data.draw(st.integers(0, len(lines) - 1))
    edit, text = data.draw(st.sampled_from(sorted(EDITS))), data.draw(st.sampled_from(FRAGMENTS))
    edited = "\n".join([*lines[:at], *EDITS[edit](lines[at], text), *lines[at + 1 :]])
    assert_same(kind, edited, check=data.draw(st.booleans()))


@pytest.mark.parametrize(("name", "example"), GOLDEN)
def test_every_edit_of_a_golden_file_reads_alike_both_ways(name, example):
    """Each edit of each line of a golden file, and two lines swapped, give the same both ways."""
    kind = load_schema(name)
    lines = drawn(name, example).split("\n")
    for at in range(len(lines)):
        for edit in EDITS.values():
            assert_same(kind, "\n".join([*lines[:at], *edit(lines[at], "## Metadata"), *lines[at + 1 :]]))
        swapped = [*lines[:at], *reversed(lines[at : at + 2]), *lines[at + 2 :]]
        assert_same(kind, "\n".join(swapped))


@pytest.mark.parametrize(("name", "example"), [key for key in GOLDEN if key[1] != "carriage_returns"])
def test_the_compiled_reader_reads_what_the_renderer_writes(name, example):
    """Golden files are read without the lenient parser, unless they hold a CR."""
    assert is_canonical(load_schema(name), drawn(name, example))


@pytest.mark.parametrize(
    "facts",
    [
        "optional_sections:\nattempt: 1\n- Stack Trace",
        "optional_sections:",
        "attempt: 1\nattempt: 1",
        "attempt: 01",
        "attempt: yes",
        "attempt: 2024-11-24",
        "derived_digest: 5",
        "newlines: kept",
        "other: 1",
        "task: '2024-11-24T10:00:00Z'",
        "task: Ann Smith",
        "optional_sections:\n- Stack Trace\n- Stack Trace",
        "redacted: " + "9" * 15,
        "task: " + "a" * 20_000,
    ],
)
def test_odd_front_matter_reads_alike_both_ways(facts):
    """Front matter that only looks like ours gives the same values and problems both ways."""
    kind = load_schema("agent_output")
    text = drawn("agent_output", "completed")
    envelope = "haytham: agent_output/1\n"
    assert_same(kind, text.replace(envelope, f"{envelope}{facts}\n"))
    assert_same(kind, text.replace("attempt: 1", facts, 1))
