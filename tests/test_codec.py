"""How a value stands in a line and comes back, and what a person may write there."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from conftest import rounds
from haytham.markdown.codec import (
    DecodeError,
    decode_text,
    encode_key,
    encode_text,
    escape_prose,
    fence,
    is_plain,
    split_key,
    unescape_prose,
    unfence,
)
from haytham.markdown.schema import load_schema
from support.hostile_inputs import texts

FEEDBACK = load_schema("user_feedback")


@pytest.mark.soak
@settings(max_examples=rounds(5000))
@given(texts)
def test_any_text_is_one_line_and_comes_back(text):
    """A scalar is one line without pipes, whatever it holds, and reads back as it was."""
    line = encode_text(text)
    assert not {"\n", "\r", "|", "\u2028", "\x85", "\x00"} & set(line)
    assert line == line.strip()
    assert decode_text(line) == text


@pytest.mark.soak
@settings(max_examples=rounds(5000))
@given(texts, texts)
def test_any_key_comes_back_from_in_front_of_its_colon(key, rest):
    """A key in front of a colon reads back, whatever it and the value hold."""
    assert split_key(f"{encode_key(key)}: {encode_text(rest)}") == (key, encode_text(rest))


@pytest.mark.soak
@settings(max_examples=rounds(5000))
@given(texts)
def test_prose_in_the_middle_comes_back_and_holds_no_heading(text):
    """Quoted prose has no line that is one of the kind's headings, and reads back as it was."""
    quoted = escape_prose(FEEDBACK, text)
    assert FEEDBACK.heading.search(quoted) is None
    assert unescape_prose(FEEDBACK, quoted.split("\n")) == text


@pytest.mark.soak
@settings(max_examples=rounds(5000))
@given(texts)
def test_text_in_a_code_block_comes_back(text):
    """Text in a fenced block reads back as it was and never ends the block."""
    fenced = fence(FEEDBACK, text)
    assert FEEDBACK.heading.search(fenced) is None
    assert unfence(FEEDBACK, fenced.split("\n")) == text


@pytest.mark.parametrize(
    "text",
    [
        "completed",
        "concept_expansion",
        "2024-11-24T10:00:00Z",
        "anthropic.claude-3-sonnet-20240229-v1:0",
        "ollama:llama3.1:8b-instruct-q8_0",
        "1 - Concept Expansion",
        "founder@example.org",
        "https://example.org/a_b?c=d",
        "Looks great, isn't it? (Yes!)",
        "Café für Alle",
        "日本の庭",
    ],
)
def test_common_text_stands_for_itself(text):
    """What people and programs usually write is not wrapped in anything."""
    assert encode_text(text) == text


@pytest.mark.parametrize(
    "text", ["-", "", " a", "a ", "a  b", "*a*", "a|b", "`a`", "1. a", "#", "a\\b", "<b>", "a&amp;b", "_a"]
)
def test_text_that_a_tool_would_change_is_wrapped(text):
    """What Markdown gives a meaning, or an eye would lose, stands in a code span."""
    assert not is_plain(text)
    assert encode_text(text).startswith('`"')


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("use \\*args\\*", "use *args*"),
        ("`foo()` is wrong", "`foo()` is wrong"),
        ("`foo()`", "`foo()`"),
        ('say "yes"', 'say "yes"'),
        ("C:\\temp", "C:\\temp"),
        ('`"a\\nb"`', "a\nb"),
    ],
)
def test_what_a_person_writes_is_taken_as_markdown_shows_it(written, read):
    """Plain text in a person's own hand reads as they see it: escapes undone, code spans left."""
    assert decode_text(written) == read


@pytest.mark.parametrize("text", ['`"a" or "b"`', '`"\\q"`', '`"\\ud800"`'])
def test_a_broken_code_span_is_not_guessed_at(text):
    """What begins and ends like a wrapped text and is none is refused."""
    with pytest.raises(DecodeError, match="valid JSON in a code span"):
        decode_text(text)
