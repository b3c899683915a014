"""Three-way merges: lines as git merges them, rows of tables by their first cell, and no line is ever lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham.text import conflict_lines, table_cells
from haytham.text_merge import TextMerge, merge_texts

LINES = st.sampled_from(
    ["a", "b", "c", "", "## One", "## Two", "```", "| k |", "|---|", "| x | 1 |", "| x | 2 |", "| y | 1 |"]
)
ROWS = st.dictionaries(st.sampled_from("uvwxyz"), st.sampled_from(["1", "2", "3"]), max_size=6)
TABLES = ROWS.map(lambda rows: ["| key | n |", "|---|---|", *(f"| {key} | {n} |" for key, n in rows.items())])
TEXTS = st.lists(st.lists(LINES, max_size=6) | TABLES, max_size=3).map(
    lambda parts: "\n".join(line for part in parts for line in part)
)


@settings(max_examples=rounds(3000))
@given(base=TEXTS, other=TEXTS)
def test_what_one_side_changed_is_the_merge(base, other):
    """Whichever side changed the text, and where both changed it alike, the merge is the changed text."""
    versions = [(base, other), (other, base), (other, other)]
    assert [merge_texts(base, *pair) for pair in versions] == [TextMerge(other)] * 3


@settings(max_examples=rounds(3000))
@given(base=st.none() | TEXTS, ours=TEXTS, theirs=TEXTS)
def test_no_line_is_lost(base, ours, theirs):
    """Every line that a side has and the base has not is in the merge, and so are its marked conflicts."""
    merge = merge_texts(base, ours, theirs)
    new = {*ours.split("\n"), *theirs.split("\n")} - set((base or "").split("\n"))
    assert new <= set(merge.text.split("\n"))
    assert len(conflict_lines(merge.text)) == merge.conflicts


@settings(max_examples=rounds(3000))
@given(base=st.none() | TEXTS, ours=TEXTS, theirs=TEXTS)
def test_conflicts_are_the_same_from_both_sides(base, ours, theirs):
    """Whoever merges finds as many conflicts, and preferring a side leaves none."""
    assert merge_texts(base, ours, theirs).conflicts == merge_texts(base, theirs, ours).conflicts
    assert all(merge_texts(base, ours, theirs, prefer=side).conflicts == 0 for side in ("ours", "theirs"))


@settings(max_examples=rounds(1000))
@given(base=ROWS, ours=ROWS, theirs=ROWS)
def test_rows_are_merged_one_by_one(base, ours, theirs):
    """A table has each row that a side changed or added once, and those it deleted are gone: like three maps."""
    texts = [
        "\n".join(["| key | n |", "|---|---|", *(f"| {k} | {n} |" for k, n in rows.items())])
        for rows in (base, ours, theirs)
    ]
    conflicts = {key for key in {**base, **ours, **theirs} if len({base.get(key), ours.get(key), theirs.get(key)}) == 3}
    conflicts |= {
        key
        for key in {**ours, **theirs}
        if key not in base and None not in (ours.get(key), theirs.get(key)) and ours[key] != theirs[key]
    }
    changed = {
        key: theirs.get(key) if ours.get(key) == base.get(key) else ours.get(key) for key in {**base, **ours, **theirs}
    }
    merge = merge_texts(*texts)
    assert merge.conflicts == len(conflicts)
    rows = dict(table_cells(line) for line in merge_texts(*texts, prefer="ours").text.split("\n")[2:])
    expected = {key: n for key, n in changed.items() if key not in conflicts} | {
        key: ours.get(key) for key in conflicts
    }
    assert rows == {key: n for key, n in expected.items() if n is not None}


TABLE = """# Market

| City | Gardens | Share |
|---|---|---|
| Leeds | 14,000 | 3% |
| York | 9,000 | 2% |

The end.
"""


def test_two_people_may_change_different_rows():
    """Changed, added and deleted rows of both sides are there, beside a changed sentence."""
    ours = TABLE.replace("14,000", "14,500").replace("The end.", "The very end.")
    theirs = TABLE.replace("| York | 9,000 | 2% |\n", "| York | 9,100 | 2% |\n| Hull | 8,000 | 1% |\n")
    merged = merge_texts(TABLE, ours, theirs)
    rows = ["| Leeds | 14,500 | 3% |", "| York | 9,100 | 2% |", "| Hull | 8,000 | 1% |", "", "The very end.", ""]
    assert (merged.text.split("\n")[4:], merged.conflicts) == (rows, 0)


def test_a_conflict_in_a_row_names_both_sides():
    """Only the row that both changed is marked."""
    ours, theirs = TABLE.replace("14,000", "14,500"), TABLE.replace("14,000", "13,000").replace("9,000", "9,100")
    merged = merge_texts(TABLE, ours, theirs, names=("here", "cheaper"))
    assert merged.text.split("\n")[4:10] == [
        "<<<<<<< here",
        "| Leeds | 14,500 | 3% |",
        "=======",
        "| Leeds | 13,000 | 3% |",
        ">>>>>>> cheaper",
        "| York | 9,100 | 2% |",
    ]


@pytest.mark.parametrize(
    ("prefer", "row"), [("ours", "| Leeds | 14,500 | 3% |"), ("theirs", "| Leeds | 13,000 | 3% |")]
)
def test_a_preferred_side_decides_conflicts_only(prefer, row):
    """What the other side alone changed is merged all the same."""
    ours, theirs = TABLE.replace("14,000", "14,500"), TABLE.replace("14,000", "13,000").replace("9,000", "9,100")
    merged = merge_texts(TABLE, ours, theirs, prefer=prefer)
    assert (merged.text.split("\n")[4:6], merged.conflicts) == ([row, "| York | 9,100 | 2% |"], 0)


def test_a_table_that_was_only_aligned_is_no_conflict():
    """What a formatter did to a table does not hide what the other side changed in it."""
    ours = TABLE.replace("| Leeds | 14,000 | 3% |", "| Leeds | 14,000  | 3%    |").replace(
        "|---|---|---|", "| --- | --- | --- |"
    )
    merged = merge_texts(TABLE, ours, TABLE.replace("14,000", "13,000"))
    assert ("| --- | --- | --- |\n| Leeds | 13,000 | 3% |" in merged.text, merged.conflicts) == (True, 0)


def test_a_deleted_row_that_the_other_side_changed_is_a_conflict():
    """Neither the deletion nor the change is taken without asking."""
    merged = merge_texts(TABLE, TABLE.replace("| York | 9,000 | 2% |\n", ""), TABLE.replace("9,000", "9,100"))
    assert "<<<<<<< ours\n=======\n| York | 9,100 | 2% |\n>>>>>>> theirs\n" in merged.text


def test_without_a_common_text_all_that_differs_is_a_conflict():
    """Nobody can tell who changed what, so nothing is guessed; equal parts are not marked."""
    merged = merge_texts(None, "# Market\n\nLeeds\n", "# Market\n\nYork\n")
    assert merged == TextMerge("# Market\n\n<<<<<<< ours\nLeeds\n=======\nYork\n>>>>>>> theirs\n", 1)


def test_line_ends_are_no_change():
    """A text whose line ends an editor changed is merged as if they were LF."""
    assert merge_texts("a\nb\nc\n", "a\r\nb\r\nc\r\n", "a\nb\nd\n") == TextMerge("a\nb\nd\n")


def test_tables_in_code_blocks_are_lines():
    """Rows in a fenced block have an order of their own, and are merged as lines."""
    base = "```\n| k |\n|---|\n| a |\n| b |\n| c |\n| d |\n```"
    merged = merge_texts(base, base.replace("| a |", "| A |"), base.replace("| d |", "| D |"))
    assert (merged.text, merged.conflicts) == (base.replace("| a |", "| A |").replace("| d |", "| D |"), 0)
