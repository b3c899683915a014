"""Digests, diffs, table rows and git conflicts of texts as people read them; digests of bytes belong to the store."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_CELL_END = re.compile(r"(?<!\\)\|")
OURS, DIVIDER, THEIRS = "<<<<<<< ", "=======", ">>>>>>> "  # what git writes around a conflict, at line starts


def text_digest(text: str) -> str:
    """Return the digest of a text; line endings do not count."""
    plain = text.replace("\r\n", "\n") if "\r" in text else text
    return "sha256:" + hashlib.sha256(plain.encode()).hexdigest()


def unified_diff(before: str, after: str, name: str = "text") -> str:
    """Return what changed between two texts as a unified diff; empty if nothing did."""
    from difflib import unified_diff  # noqa: PLC0415 - only where two texts differ

    if before == after:
        return ""
    ended = all(text.endswith("\n") for text in (before, after) if text)  # a last line end begins no line
    old, new = ((text[:-1] if ended else text).split("\n") if text else [] for text in (before, after))
    return "\n".join(unified_diff(old, new, f"{name} before", f"{name} now", lineterm=""))


def closest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known word that is most like another, or None."""
    from difflib import get_close_matches  # noqa: PLC0415 - only where a word is unknown

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def natural_sort_key(path: str) -> str:
    """Return the sort key of a path: phase 2 before phase 10."""
    return re.sub(r"\d+", lambda number: number[0].zfill(12), path)


def diff_stat(diff: str) -> tuple[int, int]:
    """Return how many lines a unified diff adds and removes."""
    lines = diff.split("\n")[2:]
    return sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)


def conflict_lines(text: str) -> list[int]:
    """Return the first line of each git conflict: its three markers are at line starts, in order."""
    if OURS not in text:
        return []
    starts, start, is_divided = [], 0, False
    for number, line in enumerate(text.split("\n"), start=1):
        if not start:
            start = number if line.startswith(OURS) else 0
        elif not is_divided:
            is_divided = line.rstrip() == DIVIDER
        elif line.startswith(THEIRS):
            starts.append(start)
            start, is_divided = 0, False
    return starts


def table_cells(line: str) -> tuple[str, ...] | None:
    """Return the cells of a row of a Markdown table, which begins with a bar; None for any other line."""
    row = line.strip()
    if not row.startswith("|"):
        return None
    cells = _CELL_END.split(row[1:])
    return tuple(cell.strip() for cell in (cells if cells[-1].strip() else cells[:-1]))
