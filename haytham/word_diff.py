"""Word diffs: which words of a text were deleted and which were inserted, line by line.

Lines that changed are paired by the words they share, rows of tables by their first cell. Without the inserted words
the lines are the old text, without the deleted ones the new text. How a diff looks is decided elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from haytham.text import table_cells

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SpanKind = Literal["same", "deleted", "inserted"]
LineKind = Literal["same", "changed", "deleted", "inserted"]

_WORD = re.compile(r"\s+|\w+(?:[.,:/'\u2019-]\w+)*|[^\w\s]")
_ALIKE = 0.5  # the share of their words that two lines must have in common to be one changed line
_MOST_PAIRS = 10_000  # of a block that is paired: the time that takes grows with their number
_CONTEXT = 3  # unchanged lines around those that changed


@dataclass(frozen=True)
class Span:
    """A part of a line: the same in both texts, only in the old one, or only in the new one."""

    kind: SpanKind
    text: str


@dataclass(frozen=True)
class DiffLine:
    """A line of two texts, with its numbers in both; None where it has none."""

    spans: tuple[Span, ...]
    before: int | None
    after: int | None

    @property
    def kind(self) -> LineKind:
        """Return whether the line is in one text only, the same in both, or changed."""
        if self.after is None:
            return "deleted"
        if self.before is None:
            return "inserted"
        return "same" if all(span.kind == "same" for span in self.spans) else "changed"

    @property
    def old(self) -> str:
        """Return the line without what was inserted."""
        return "".join(span.text for span in self.spans if span.kind != "inserted")

    @property
    def new(self) -> str:
        """Return the line without what was deleted."""
        return "".join(span.text for span in self.spans if span.kind != "deleted")


@dataclass(frozen=True)
class WordHunk:
    """Lines that changed with some unchanged ones around them, below the last heading before them."""

    lines: tuple[DiffLine, ...]
    heading: str

    @property
    def old_range(self) -> tuple[int, int]:
        """Return the number of the first line in the old text, and how many lines of it there are."""
        return _range([line.before for line in self.lines])

    @property
    def new_range(self) -> tuple[int, int]:
        """Return the number of the first line in the new text, and how many lines of it there are."""
        return _range([line.after for line in self.lines])


@dataclass(frozen=True)
class WordDiff:
    """Two texts compared: all lines in order."""

    lines: tuple[DiffLine, ...]

    @property
    def old(self) -> str:
        """Return the old text."""
        return "\n".join(line.old for line in self.lines if line.before is not None)

    @property
    def new(self) -> str:
        """Return the new text."""
        return "\n".join(line.new for line in self.lines if line.after is not None)

    @cached_property
    def stat(self) -> tuple[int, int]:
        """Return how many lines were inserted and how many deleted; one that changed counts as both."""
        kinds = Counter(line.kind for line in self.lines)
        return kinds["inserted"] + kinds["changed"], kinds["deleted"] + kinds["changed"]

    def hunks(self, context: int = _CONTEXT) -> list[WordHunk]:
        """Return the lines that changed with so many unchanged ones around them, in order."""
        hunks = []
        for start, end in _windows([line.kind != "same" for line in self.lines], context):
            above = (line.new for line in reversed(self.lines[:start]) if line.after is not None)
            heading = next((text for text in above if text.startswith("#")), "")
            hunks.append(WordHunk(self.lines[start:end], heading))
        return hunks


def word_diff(before: str, after: str) -> WordDiff:
    """Compare two texts by lines, and lines that changed by words. An empty text has no lines."""
    old, new = (text.split("\n") if text else [] for text in (before, after))
    lines: list[DiffLine] = []
    for tag, start, end, new_start, new_end in SequenceMatcher(None, old, new).get_opcodes():
        numbers, new_numbers = range(start, end), range(new_start, new_end)
        pairs = zip(numbers, new_numbers, strict=True) if tag == "equal" else _paired(old, new, numbers, new_numbers)
        lines += [_line(old, new, at, new_at) for at, new_at in pairs]
    return WordDiff(tuple(lines))


def _line(old: Sequence[str], new: Sequence[str], at: int | None, new_at: int | None) -> DiffLine:
    before, after = (None if at is None else at + 1), (None if new_at is None else new_at + 1)
    if at is None or new_at is None:
        span = Span("inserted", new[new_at]) if new_at is not None else Span("deleted", old[at or 0])
        return DiffLine((span,), before, after)
    return DiffLine(tuple(_spans(old[at], new[new_at])), before, after)


# Pairs of lines.


def _paired(
    old: Sequence[str], new: Sequence[str], numbers: range, new_numbers: range
) -> Iterator[tuple[int | None, int | None]]:
    """Yield the lines of a block that changed, those that are one changed line as a pair."""
    at, new_at = numbers.start, new_numbers.start
    for pair, new_pair in [*_best_pairs(old, new, numbers, new_numbers), (numbers.stop, new_numbers.stop)]:
        yield from ((number, None) for number in range(at, pair))
        yield from ((None, number) for number in range(new_at, new_pair))
        if pair < numbers.stop:
            yield pair, new_pair
        at, new_at = pair + 1, new_pair + 1


def _best_pairs(old: Sequence[str], new: Sequence[str], numbers: range, new_numbers: range) -> list[tuple[int, int]]:
    """Return the pairs, in the order of both texts, that have most in common; none of a block that is too large."""
    if len(numbers) * len(new_numbers) > _MOST_PAIRS:
        return []
    features = {text: _Features(text) for text in (*(old[at] for at in numbers), *(new[at] for at in new_numbers))}
    scores = [[_likeness(features[old[at]], features[new[new_at]]) for new_at in new_numbers] for at in numbers]
    totals = _totals(scores)
    pairs, row, column = [], 0, 0
    while row < len(numbers) and column < len(new_numbers):
        best, score = totals[row][column], scores[row][column]
        if score and best == score + totals[row + 1][column + 1]:
            pairs.append((numbers[row], new_numbers[column]))
            row, column = row + 1, column + 1
        elif best == totals[row + 1][column]:
            row += 1
        else:
            column += 1
    return pairs


def _totals(scores: list[list[float]]) -> list[list[float]]:
    """Return the highest sum of scores that pairs from each row and column on can have."""
    width = len(scores[0]) if scores else 0
    totals = [[0.0] * (width + 1) for _ in range(len(scores) + 1)]
    for row in range(len(scores) - 1, -1, -1):
        for column in range(width - 1, -1, -1):
            paired = scores[row][column] + totals[row + 1][column + 1] if scores[row][column] else 0.0
            totals[row][column] = max(paired, totals[row + 1][column], totals[row][column + 1])
    return totals


class _Features:
    """What a line is paired by: its words, and the first cell of a row."""

    def __init__(self, text: str) -> None:
        cells = table_cells(text)
        self.key = cells[0] if cells else None
        self.is_row = cells is not None
        self.words = Counter(word for word in _WORD.findall(text) if not word.isspace())


def _likeness(old: _Features, new: _Features) -> float:
    """Return how much two lines have in common; 0 if they are not one line that changed."""
    both = (old.words & new.words).total()
    share = 2 * both / ((old.words.total() + new.words.total()) or 1)
    if old.is_row or new.is_row:
        return 1 + share if old.is_row and new.is_row and old.key == new.key else 0.0
    return share if share >= _ALIKE else 0.0


# Words of a line.


def _spans(old: str, new: str) -> Iterator[Span]:
    """Yield the parts of a line that is in both texts."""
    if old == new:
        yield Span("same", old)
        return
    for before, after in _folded(_changes(old, new)):
        if before == after:
            yield Span("same", before)
            continue
        if before:
            yield Span("deleted", before)
        if after:
            yield Span("inserted", after)


def _changes(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of two lines, equal ones as pairs of the same."""
    words, new_words = _WORD.findall(old), _WORD.findall(new)
    for _, start, end, new_start, new_end in SequenceMatcher(None, words, new_words).get_opcodes():
        yield "".join(words[start:end]), "".join(new_words[new_start:new_end])


def _folded(changes: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return changes with those joined that only a space keeps apart: words that were replaced, not each by itself."""
    folded: list[tuple[str, str]] = []
    for before, after in changes:
        if _is_replaced((before, after)) and len(folded) > 1 and _is_space(folded[-1]) and _is_replaced(folded[-2]):
            (space, _), (first, new_first) = folded.pop(), folded.pop()
            folded.append((first + space + before, new_first + space + after))
        else:
            folded.append((before, after))
    return folded


def _is_replaced(change: tuple[str, str]) -> bool:
    return change[0] != change[1] and all(change)


def _is_space(change: tuple[str, str]) -> bool:
    return change[0] == change[1] and change[0].isspace()


# Hunks.


def _windows(changed: Sequence[bool], context: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of lines around those that changed; ranges that touch are one."""
    start, end = 0, 0
    for at in (at for at, is_changed in enumerate(changed) if is_changed):
        if end and at - context > end:
            yield start, end
            end = 0
        start = start if end else max(at - context, 0)
        end = min(at + context + 1, len(changed))
    if end:
        yield start, end


def _range(numbers: Sequence[int | None]) -> tuple[int, int]:
    known = [number for number in numbers if number is not None]
    return (known[0], len(known)) if known else (0, 0)
