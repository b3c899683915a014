"""What people's tools do to a file: every structured field keeps its value, or the file is reported, never misread."""

from __future__ import annotations

from pathlib import Path

import mdformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham.markdown.parser import parse
from haytham.markdown.renderer import render
from haytham.markdown.schema import load_schema
from support.hostile_inputs import KINDS, shown_values, values

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*/*.md"), key=str)
CONVERTIBLE = [path for path in GOLDEN if b"newlines: kept" not in path.read_bytes()]
PROSE = ("prose", "verbatim", "code")


def formatted(text):
    """The text as the real mdformat leaves it."""
    return mdformat.text(text, extensions={"gfm", "frontmatter"})


def structured(kind, value):
    """A value without its prose, which a formatter may reformat."""
    return {name: content for name, content in value.items() if kind.field_by_name[name].form not in PROSE}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_mdformat_keeps_every_structured_field(path):
    """The real mdformat over a golden file changes no structured field, shown or not, and leaves nothing to report."""
    kind = load_schema(path.parent.name)
    before = parse(kind, path.read_bytes())
    after = parse(kind, formatted(path.read_text(encoding="utf-8")).encode())
    assert after.problems == ()
    assert structured(kind, after.value) == structured(kind, before.value)
    assert after.derived == before.derived


@pytest.mark.parametrize("path", CONVERTIBLE, ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: "\ufeff" + text.replace("\n", "\r\n"),
    ],
    ids=["crlf", "bom", "both"],
)
def test_line_ends_and_a_bom_change_no_value(path, change):
    """CRLF line ends and a BOM change no value at all, content included."""
    kind = load_schema(path.parent.name)
    text = path.read_bytes().decode()
    before, after = parse(kind, text.encode()), parse(kind, change(text).encode())
    assert (after.value, after.derived, after.problems) == (before.value, before.derived, ())


@pytest.mark.parametrize("kind_name", [name for name in KINDS if name != "agent_output"])
def test_bullets_and_tables_may_look_otherwise(kind_name):
    """Stars for bullets, wide tables and blank lines under headings are as good as ours."""
    kind = load_schema(kind_name)
    for path in (path for path in GOLDEN if path.parent.name == kind_name):
        text = path.read_text(encoding="utf-8")
        head, rest = text.split("\n## ", 1)
        rest = rest.replace("\n- ", "\n\n*   ").replace(" | ", "   |   ").replace("\n## ", "\n\n\n## ")
        after = parse(kind, f"{head}\n## {rest}".encode())
        assert after.problems == ()
        assert structured(kind, after.value) == structured(kind, parse(kind, text.encode()).value)


@pytest.mark.parametrize("kind_name", KINDS)
@pytest.mark.soak
@settings(max_examples=rounds(250))
@given(data=st.data())
def test_a_formatted_file_is_never_misread(kind_name, data):
    """Whatever hostile text a file holds, formatting it keeps each structured field or makes the file unreadable."""
    kind = load_schema(kind_name)
    value = data.draw(values(kind_name))
    after = parse(kind, formatted(render(kind, value, data.draw(shown_values(kind_name)))).encode())
    if not after.faults:
        assert structured(kind, after.value) == structured(kind, value)


@pytest.mark.parametrize("kind_name", KINDS)
@pytest.mark.soak
@settings(max_examples=rounds(250))
@given(data=st.data())
def test_formatting_hostile_scalars_loses_none(kind_name, data):
    """Where the prose is tame, hostile text in bullets, lists, maps and tables survives the formatter."""
    kind = load_schema(kind_name)
    value = data.draw(values(kind_name))
    value = {name: "Tame." if kind.field_by_name[name].form in PROSE else content for name, content in value.items()}
    after = parse(kind, formatted(render(kind, value, data.draw(shown_values(kind_name)))).encode())
    assert after.problems == ()
    assert after.value == value
