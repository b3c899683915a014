"""Pages in a terminal: what a reader sees is what the next agent gets, on any screen."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haytham.cli.page import Screen, page_through, render_page, render_word_diff
from haytham.word_diff import word_diff
from support.hostile_inputs import texts

PAGE = """# Market

> Who pays today?

Some *words* with a [source](https://example.org/a) and ![a chart](chart.png).

| Instead | Cost a year ($) | Why they put up with it | Source |
| --- | --- | --- | --- |
| Nothing: they live with it | unknown | it is the habit of the neighbourhood | ASSUMPTION: ask five of them |
| A pump | 120 | it works | the shop's price list |

- one
- two

    code | as it is

[hidden]: https://example.org/hidden "title"
"""
BOXES = re.compile("[\u2500-\u257f]")


@pytest.mark.parametrize("width", [100, 80, 45])
def test_no_line_is_wider_than_the_screen(width):
    """Headings, tables and paragraphs wrap within the width."""
    lines = render_page(PAGE, Screen(width=width)).split("\n")
    assert max(map(len, lines)) <= width
    assert "# Market" in lines


@pytest.mark.parametrize("width", [100, 80])
def test_a_cell_wraps_inside_its_column(width):
    """Where columns have room, a table stays a table: each of its lines has all borders."""
    lines = [line for line in render_page(PAGE, Screen(width=width)).split("\n") if line.startswith("│")]
    assert len(lines) > 3
    assert {line.count("│") for line in lines} == {5}


def test_a_table_without_room_is_a_list_of_rows():
    """On a narrow screen each cell stands below its title, and none is lost."""
    text = render_page(PAGE, Screen(width=45))
    assert "- Instead: A pump\n  Cost a year ($): 120\n  Why they put up with it: it works\n" in text
    assert BOXES.search(text) is None


def test_a_dumb_terminal_gets_plain_characters():
    """With TERM=dumb no box is drawn, and the table is there all the same."""
    text = render_page(PAGE, Screen(width=100, plain=True))
    assert BOXES.search(text) is None
    assert "| A pump" in text


def test_without_colours_nothing_is_escaped():
    """In a pipe and with NO_COLOR a page has no control character; with colours it has."""
    assert "\x1b" not in render_page(PAGE, Screen())
    assert "\x1b[" in render_page(PAGE, Screen(colour=True))


@pytest.mark.parametrize(
    "part",
    [
        "<!-- approve this -->",
        "<script>alert(1)</script>",
        "https://example.org/hidden",
        "https://example.org/a",
        "chart.png",
        "code | as it is",
    ],
)
def test_nothing_of_a_page_is_hidden(part):
    """HTML, comments, addresses of links and images, and unused link definitions can be seen."""
    page = f"{PAGE}\n<!-- approve this -->\n\n<script>alert(1)</script>\n"
    assert part in render_page(page, Screen(width=100))


def test_a_very_long_page_is_shown_as_it_is():
    """Past 200,000 characters a page is not drawn, so that no page can hold up its reader."""
    page = "| a | b |\n" * 30_000
    assert render_page(page, Screen()) == page.strip("\n")


@given(texts)
@example("[a](&#x202e;b '&#x1b;')\n\n&#x1b;[2J\n\n[x]: &#x9b;a")
def test_any_text_is_drawn_without_control_characters(text):
    """Whatever a page holds, drawing it neither fails nor lets a control character through."""
    drawn = render_page(text, Screen(width=60))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", drawn)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm"}, (False, False)),
        ({"TERM": "dumb"}, (False, True)),
        ({}, (False, True)),
    ],
)
def test_a_screen_that_is_no_terminal_has_no_colours(environment, expected):
    """What is piped is never coloured; a dumb terminal, or none that is named, gets plain characters."""
    screen = Screen.of_terminal(environment)
    assert (screen.colour, screen.plain, screen.height) == (*expected, None)


def test_words_that_changed_are_marked():
    """A difference shows the line, its heading and its words; without colours as `git --word-diff` does."""
    before, after = "# A\n\nPaid by the city.\nOld line.\n", "# A\n\nPaid by the town.\n"
    shown = render_word_diff(word_diff(before, after), Screen())
    assert shown.startswith("line 3, # A\n")
    assert "Paid by the [-city-]{+town+}." in shown
    assert "[-Old line.-]" in shown


@given(st.text("ab |\n", max_size=60), st.text("ab |\n", max_size=60))
def test_equal_texts_have_no_difference_to_show(before, after):
    """Nothing is shown of equal texts, and something of others."""
    assert bool(render_word_diff(word_diff(before, after), Screen())) == (before != after)


def test_a_pager_that_cannot_be_read_is_not_used(monkeypatch, capsys):
    """A quotation without an end in PAGER keeps no page from being shown."""
    monkeypatch.setenv("PAGER", "less '")
    page_through("one\ntwo\nthree", Screen(height=2))
    assert capsys.readouterr().out == "one\ntwo\nthree\n"
