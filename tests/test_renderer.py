"""Value to Markdown and back: parse(render(x)) == x, whatever x holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham.errors import InvalidDocument
from haytham.markdown.parser import parse
from haytham.markdown.renderer import render
from haytham.markdown.schema import load_schema
from support.hostile_inputs import FRAGMENTS, KINDS, shown_values, values

DIGEST = "sha256:" + "0" * 64


def an_output(**changes):
    """A value of the kind agent_output."""
    return {
        "phase_number": 1,
        "attempt": 1,
        "agent_digest": DIGEST,
        "agent": "concept_expansion",
        "executed": "2024-11-24T10:00:00Z",
        "duration": 120.5,
        "status": "completed",
        "model": None,
        "input_tokens": None,
        "output_tokens": None,
        "tools_used": None,
        "text": "",
        **changes,
    }


def a_feedback(**changes):
    """A value of the kind user_feedback."""
    return {
        "phase_number": 1,
        "attempt": 1,
        "reviewed": True,
        "approved": True,
        "timestamp": None,
        "comments": "",
        "requested_changes": [],
        "reviewed_content": [],
        "action": "approved",
        "retry_count": 0,
        **changes,
    }


@pytest.mark.parametrize("kind_name", KINDS)
@pytest.mark.soak
@settings(max_examples=rounds(2500))
@given(data=st.data())
def test_every_value_reads_back(kind_name, data):
    """Whatever a value holds, the document drawn of it reads back as that very value, with nothing to report."""
    kind = load_schema(kind_name)
    value, shown = data.draw(values(kind_name)), data.draw(shown_values(kind_name))
    back = parse(kind, render(kind, value, shown).encode())
    assert back.problems == ()
    assert back.value == value
    assert {name: shown[name] for name in back.derived if name in shown} == {
        name: content for name, content in back.derived.items() if name in shown
    }


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_content_comes_back_byte_for_byte(fragment):
    """An agent's text and a person's comments come back byte for byte, each hostile fragment at every edge."""
    for text in (fragment, f"{fragment}x", f"x{fragment}", f"a\n{fragment}\nb", f"\n{fragment}\n", fragment * 3):
        for kind, value in (("agent_output", an_output(text=text)), ("user_feedback", a_feedback(comments=text))):
            assert parse(load_schema(kind), render(load_schema(kind), value).encode()).value == value


def test_five_megabytes_come_back():
    """An output of 5 MB comes back byte for byte, headings of its own kind in it or not."""
    text = "## Output\n| a | b |\n```\n---\r\n" * 180_000
    kind = load_schema("agent_output")
    assert parse(kind, render(kind, an_output(text=text)).encode()).value["text"] == text


def test_content_never_meets_a_markdown_parser(monkeypatch):
    """Reading an output runs no Markdown parser, however much its content looks like a table."""
    import mistune

    monkeypatch.setattr(mistune.BlockParser, "parse", lambda *_: pytest.fail("content was parsed as Markdown"))
    kind = load_schema("agent_output")
    text = "## Agent Ledger\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    assert parse(kind, render(kind, an_output(text=text)).encode()).value["text"] == text


@pytest.mark.parametrize("name", ["text", "model", "error_message", "stack_trace"])
def test_a_lone_surrogate_is_refused(name):
    """Text that is not valid Unicode is a ValueError, wherever it stands."""
    value = an_output(**{"error_type": None, "error_message": None, "stack_trace": "", name: "a\ud800b"})
    with pytest.raises(ValueError, match="lone surrogate"):
        render(load_schema("agent_output"), value)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1, "1", True, [1]])
def test_a_number_is_finite_and_not_negative(number):
    """A number that is none, negative or not finite is a ValueError that names it."""
    with pytest.raises(InvalidDocument, match="Duration"):
        render(load_schema("agent_output"), an_output(duration=number))


def test_a_value_is_never_a_template():
    """Jinja in a value is text, in a bullet, in a title and in content."""
    kind = load_schema("agent_output")
    text = render(kind, an_output(text="{{ 7*7 }}{% x %}", agent="{{ 7*7 }}"), {"agent_title": "{{ 7*7 }}"})
    assert "49" not in text
    assert parse(kind, text).derived["#"] == "{{ 7*7 }}"


def test_a_missing_and_an_unknown_field_are_both_named():
    """A value with a field too few and one too many is refused with both names."""
    value = an_output(more=1)
    del value["agent"]
    with pytest.raises(InvalidDocument) as refused:
        render(load_schema("agent_output"), value)
    assert "Metadata / Agent: is missing" in str(refused.value)
    assert "more: is not a field of this kind" in str(refused.value)


def test_the_undecided_review_says_how_to_answer():
    """Feedback that waits has one comment under its title, which no reader takes for content."""
    kind = load_schema("user_feedback")
    value = a_feedback(reviewed=False, approved=None, action="pending")
    text = render(kind, value, {"phase_name": "Concept Expansion"})
    assert "<!--\nTo approve" in text
    assert parse(kind, text).value == value
    assert "<!--" not in render(kind, a_feedback())
