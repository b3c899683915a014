"""Word diffs: which words were deleted and inserted, with lines paired by their words and rows by their first cell."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham.word_diff import word_diff


def marked(before, after):
    """The lines that differ, with deleted and inserted words in the brackets of git."""
    marks = {"same": "{}", "deleted": "[-{}-]", "inserted": "{{+{}+}}"}
    lines = [line for line in word_diff(before, after).lines if line.kind != "same"]
    return ["".join(marks[span.kind].format(span.text) for span in line.spans) for line in lines]


WORDS = st.sampled_from(
    ["Leeds", "York", "has", "14,000", "gardens", "| a |", "|", "a", "##", "-", "\t", "é", "\r", "."]
)
LINES = st.lists(WORDS, max_size=5).map(" ".join) | st.text(max_size=8)
TEXTS = st.lists(LINES, max_size=8).map("\n".join)


@settings(max_examples=rounds(2000))
@given(before=TEXTS, after=TEXTS)
def test_both_texts_are_in_a_diff(before, after):
    """Without the inserted words it is the old text, without the deleted ones the new text."""
    diff = word_diff(before, after)
    assert (diff.old, diff.new) == (before, after)
    assert (diff.stat == (0, 0)) == (before == after) == (diff.hunks() == [])


@settings(max_examples=rounds(500))
@given(before=TEXTS, after=TEXTS)
def test_lines_have_the_numbers_they_have_in_their_texts(before, after):
    """Both texts are numbered from 1 without gaps, and every line that changed is in exactly one hunk."""
    diff = word_diff(before, after)
    for numbers in ([line.before for line in diff.lines], [line.after for line in diff.lines]):
        known = [number for number in numbers if number is not None]
        assert known == list(range(1, len(known) + 1))
    shown = [line for hunk in diff.hunks(1) for line in hunk.lines if line.kind != "same"]
    assert shown == [line for line in diff.lines if line.kind != "same"]


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("It costs 14,000 a year.", "It costs 15,500 a year.", ["It costs [-14,000-]{+15,500+} a year."]),
        ("Lend rain barrels", "Lend big rain barrels", ["Lend{+ big+} rain barrels"]),
        (
            "We ask ten gardeners now",
            "We visit two shops now",
            ["[-We ask ten gardeners now-]", "{+We visit two shops now+}"],
        ),
        ("We ask ten of them here", "We visit two of them here", ["We [-ask ten-]{+visit two+} of them here"]),
        ("one", "one\ntwo", ["{+two+}"]),
        ("", "one", ["{+one+}"]),
    ],
)
def test_words_are_marked_as_git_marks_them(before, after, lines):
    """A number is one word, replaced words stand together, and lines with little in common are two lines."""
    assert marked(before, after) == lines


def test_rows_are_paired_by_their_first_cell():
    """A row of another first cell is another row, however alike the others are."""
    before = "| City | Gardens |\n|---|---|\n| Leeds | 14,000 |\n| York | 9,000 |"
    after = "| City | Gardens |\n|---|---|\n| Hull | 14,000 |\n| York | 9,500 |"
    assert marked(before, after) == ["[-| Leeds | 14,000 |-]", "{+| Hull | 14,000 |+}", "| York | [-9,000-]{+9,500+} |"]


def test_a_hunk_names_the_heading_above_it():
    """Unchanged lines around a change are shown, and the last heading before them is known."""
    before = "\n".join(["# Market", "", "## Size", *"abcdefgh"])
    (hunk,) = word_diff(before, before.replace("h", "i")).hunks()
    assert (hunk.heading, hunk.old_range, hunk.new_range) == ("## Size", (8, 4), (8, 4))


def test_a_large_block_is_not_paired():
    """Where too many lines changed at once they are deleted and inserted lines, in time that does not explode."""
    before, after = ("\n".join(f"{word} {number} of all" for number in range(150)) for word in ("one", "two"))
    assert {line.kind for line in word_diff(before, after).lines} == {"deleted", "inserted"}
