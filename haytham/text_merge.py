"""Three-way merges of texts: what two people made of one text, put together.

Lines are merged as git does. In a table each row is a unit of its own, known by its first cell: two people may change
different rows of it, add rows, and align it anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from haytham.text import DIVIDER, OURS, THEIRS, table_cells

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Side = Literal["ours", "theirs"]

_DASHES = re.compile(r":?-+:?")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}(\s|$)")
_LEAST_LINES = 2  # of a table: its header and the row of dashes


@dataclass(frozen=True)
class TextMerge:
    """A merged text, and how many conflicts are marked in it."""

    text: str
    conflicts: int = 0


def merge_texts(
    base: str | None,
    ours: str,
    theirs: str,
    *,
    names: tuple[str, str] = ("ours", "theirs"),
    prefer: Side | None = None,
) -> TextMerge:
    """Merge two texts that come from one; without that one, whatever differs is a conflict.

    Conflicts are marked as git does, with the names of both sides, or decided for the side that is preferred. Line
    ends become LF.
    """
    origin, own, other = None if base is None else _with_lf(base), _with_lf(ours), _with_lf(theirs)
    if other in (own, origin):
        return TextMerge(own)
    if own == origin:
        return TextMerge(other)
    writer = _Writer(names, prefer)
    if origin is None:
        _compare(writer, own.split("\n"), other.split("\n"))
    else:
        _merge_units(writer, _units(origin), _units(own), _units(other))
    return TextMerge("\n".join(writer.lines), writer.conflicts)


def _with_lf(text: str) -> str:
    return text.replace("\r\n", "\n")


class _Writer:
    """The lines of a merge, with its conflicts."""

    def __init__(self, names: tuple[str, str], prefer: Side | None) -> None:
        self._names, self._prefer = names, prefer
        self.lines: list[str] = []
        self.conflicts = 0

    def write(self, lines: Sequence[str]) -> None:
        """Add lines that are agreed."""
        self.lines += lines

    def conflict(self, ours: Sequence[str], theirs: Sequence[str]) -> None:
        """Add lines that are not agreed, without those that both begin and end with."""
        start = _common_start(ours, theirs)
        end = _common_start(ours[start:][::-1], theirs[start:][::-1])
        self.write(ours[:start])
        self._choose(ours[start : len(ours) - end], theirs[start : len(theirs) - end])
        self.write(ours[len(ours) - end :])

    def _choose(self, ours: Sequence[str], theirs: Sequence[str]) -> None:
        if self._prefer is not None or list(ours) == list(theirs):
            self.write(theirs if self._prefer == "theirs" else ours)
            return
        self.conflicts += 1
        self.lines += [OURS + self._names[0], *ours, DIVIDER, *theirs, THEIRS + self._names[1]]


def _common_start(ours: Sequence[str], theirs: Sequence[str]) -> int:
    both = zip(ours, theirs, strict=False)
    return next((at for at, (own, other) in enumerate(both) if own != other), min(len(ours), len(theirs)))


def _compare(writer: _Writer, ours: list[str], theirs: list[str]) -> None:
    """Merge two texts of which nobody knows where they come from."""
    first, second = sorted([ours, theirs])  # so that both sides find the same conflicts
    for tag, *ends in SequenceMatcher(None, first, second).get_opcodes():
        start, end, other_start, other_end = ends if first is ours else (*ends[2:], *ends[:2])
        if tag == "equal":
            writer.write(ours[start:end])
        else:
            writer.conflict(ours[start:end], theirs[other_start:other_end])


# Units: lines, and whole tables.


@dataclass(frozen=True)
class _Unit:
    """A line, or a table with all of its lines; `token` is the same for versions of one table."""

    token: object
    lines: tuple[str, ...]
    is_table: bool = False

    @cached_property
    def rows(self) -> dict[str, str]:
        """Return the lines of a table's body by their first cells, in order."""
        return {_first_cell(line): line for line in self.lines[2:]}


Units = list[_Unit]


def _units(text: str) -> Units:
    """Return the lines of a text, with each table as one unit if its rows have different first cells."""
    lines, units = text.split("\n"), []
    heading, fence, at = "", "", 0
    while at < len(lines):
        line = lines[at]
        fence = _fence_after(fence, line)
        heading = line if not fence and _HEADING.match(line) else heading
        end = at + 1 if fence else _table_end(lines, at)
        table = tuple(lines[at:end])
        if len(table) < _LEAST_LINES or not _has_unique_rows(table):
            units += [_Unit(row, (row,)) for row in table]
        else:
            units.append(_Unit((heading, table_cells(line)), table, is_table=True))
        at = end
    return units


def _fence_after(fence: str, line: str) -> str:
    """Return the fence of the code block that a line belongs to, or that goes on below it; empty outside of one."""
    mark = _FENCE.match(line)
    if mark is None:
        return fence
    if not fence:
        return mark[1]
    return "" if mark[1].startswith(fence) and not line.strip().strip(fence[0]) else fence


def _table_end(lines: Sequence[str], at: int) -> int:
    """Return the line after the table that begins at a line; the next line if none does."""
    if table_cells(lines[at]) is None or not _is_delimiter("".join(lines[at + 1 : at + 2])):
        return at + 1
    end = at + _LEAST_LINES
    while end < len(lines) and table_cells(lines[end]) is not None:
        end += 1
    return end


def _is_delimiter(line: str) -> bool:
    """Return whether a line is the row of dashes below the header of a table."""
    return all(_DASHES.fullmatch(cell) for cell in table_cells(line) or ("",))


def _first_cell(row: str) -> str:
    return (table_cells(row) or ("",))[0]


def _has_unique_rows(table: Sequence[str]) -> bool:
    keys = [_first_cell(row) for row in table[2:]]
    return len(set(keys)) == len(keys)


def _lines_of(units: Units) -> list[str]:
    return [line for unit in units for line in unit.lines]


# Merging units.


def _merge_units(writer: _Writer, base: Units, ours: Units, theirs: Units) -> None:
    at = own_at = other_at = 0
    for start, own_start, other_start, size in _in_common(base, ours, theirs):
        _merge_block(writer, base[at:start], ours[own_at:own_start], theirs[other_at:other_start])
        for step in range(size):
            _merge_unit(writer, base[start + step], ours[own_start + step], theirs[other_start + step])
        at, own_at, other_at = start + size, own_start + size, other_start + size


def _in_common(base: Units, ours: Units, theirs: Units) -> Iterator[tuple[int, int, int, int]]:
    """Yield where the units that are in all three begin in each, and how many they are; at last the ends."""
    own_blocks, other_blocks = _blocks(base, ours), _blocks(base, theirs)
    own, other = 0, 0
    while own < len(own_blocks) and other < len(other_blocks):
        (start, own_at, size), (other_start, other_at, other_size) = own_blocks[own], other_blocks[other]
        first, end = max(start, other_start), min(start + size, other_start + other_size)
        if first < end:
            yield first, own_at + first - start, other_at + first - other_start, end - first
        if start + size < other_start + other_size:
            own += 1
        else:
            other += 1
    yield len(base), len(ours), len(theirs), 0


def _blocks(base: Units, other: Units) -> list[tuple[int, int, int]]:
    tokens, other_tokens = [unit.token for unit in base], [unit.token for unit in other]
    matcher = SequenceMatcher(None, tokens, other_tokens)
    return [(block.a, block.b, block.size) for block in matcher.get_matching_blocks() if block.size]


def _merge_block(writer: _Writer, base: Units, ours: Units, theirs: Units) -> None:
    """Merge units that are not in all three texts."""
    before, own, other = _lines_of(base), _lines_of(ours), _lines_of(theirs)
    if own in (before, other):
        writer.write(other)
    elif other == before:
        writer.write(own)
    else:
        writer.conflict(own, other)


def _merge_unit(writer: _Writer, base: _Unit, ours: _Unit, theirs: _Unit) -> None:
    """Merge versions of one line, which are equal, or of one table."""
    if ours.lines in (base.lines, theirs.lines):
        writer.write(theirs.lines)
    elif theirs.lines == base.lines:
        writer.write(ours.lines)
    else:
        writer.write(ours.lines[:2] if ours.lines[:2] != base.lines[:2] else theirs.lines[:2])
        for key in _row_order(base.rows, ours.rows, theirs.rows):
            _merge_row(writer, base.rows.get(key), ours.rows.get(key), theirs.rows.get(key))


def _row_order(base: dict[str, str], ours: dict[str, str], theirs: dict[str, str]) -> list[str]:
    """Return the keys of all rows: in our order, or in theirs if only they changed it; others after their neighbours.

    A row that one side added stands below the row that it was added below.
    """
    kept = [key for key in base if key in ours and key in theirs]
    is_ours_kept = [key for key in ours if key in kept] == kept
    first, second = (theirs, ours) if is_ours_kept else (ours, theirs)
    order, previous = list(first), None
    for key in second:
        if key not in first:
            order.insert(0 if previous is None else order.index(previous) + 1, key)
        previous = key
    return order


def _merge_row(writer: _Writer, base: str | None, ours: str | None, theirs: str | None) -> None:
    for equal in (_same_line, _same_cells):
        if equal(ours, theirs) or equal(theirs, base):
            writer.write(() if ours is None else (ours,))
            return
        if equal(ours, base):
            writer.write(() if theirs is None else (theirs,))
            return
    writer.conflict(*(() if row is None else (row,) for row in (ours, theirs)))


def _same_line(one: str | None, other: str | None) -> bool:
    return one == other


def _same_cells(one: str | None, other: str | None) -> bool:
    """Return whether two rows say the same, however they are aligned."""
    return one is not None and other is not None and table_cells(one) == table_cells(other)
