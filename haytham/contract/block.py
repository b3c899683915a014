"""What stands in a passage: tables, items of lists, values behind labels, paragraphs; with the line of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from haytham.contract.page import QUOTE, TEXT, key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from haytham.contract.page import Passage

_PIPE = re.compile(r"(?<!\\)\|")
_BARE_PIPE = re.compile(r"(?<!\\)\\*\|")
_ITEM = re.compile(r"([ \t]*)(?:[-*+]|\d{1,9}[.)])(?:[ \t]+(.*))?\Z")
_BOX = re.compile(r"\[[ xX]\][ \t]+")
_LONGEST_LABEL = 80


@dataclass(frozen=True)
class Table:
    """A table: the titles of its columns, and number and cells of each row."""

    number: int
    head: list[str]
    rows: list[tuple[int, list[str]]]


@dataclass
class Piece:
    """A paragraph or an item of a list: the number of its first line, and its text in one."""

    number: int
    text: str
    is_item: bool


def column_key(title: str) -> str:
    """The title of a column as it is compared: a unit in brackets behind it does not count."""
    return key(title.partition("(")[0]) or key(title)


def cell_text(text: str) -> str:
    r"""A text as it stands in a cell, an item or behind a label: one line, in which no pipe ends the cell.

    A reply is content, which the documents keep as it is; this is the one place where content itself is escaped.
    """
    line = " ".join(text.split())
    return _BARE_PIPE.sub(r"\\|", line).replace("<!--", "\\<!--")


def plain_text(text: str) -> str:
    """The text of a cell, an item or behind a label."""
    return text.replace("\\|", "|").replace("\\<!--", "<!--").strip()


def tables(passage: Passage) -> list[Table]:
    """The tables of a passage: rows with or without pipes around them, the rule under the head where there is one."""
    return [table for group in _groups(passage) if (table := _table(group)) is not None]


def _groups(passage: Passage) -> Iterator[list[tuple[int, str]]]:
    group: list[tuple[int, str]] = []
    for number, line, sort in passage.lines():
        if sort == TEXT and "|" in line:
            group.append((number, line.strip()))
        elif group:
            yield group
            group = []
    if group:
        yield group


def _table(group: list[tuple[int, str]]) -> Table | None:
    rule = next((at for at, (_, line) in enumerate(group) if at and _is_rule(line)), None)
    if rule is None and not group[0][1].startswith("|"):
        return None
    head = 0 if rule is None else rule - 1
    rows = group[1 if rule is None else rule + 1 :]
    return Table(group[head][0], _cells(group[head][1]), [(number, _cells(line)) for number, line in rows])


def _is_rule(line: str) -> bool:
    return "-" in line and not line.strip("|:- \t")


def _cells(line: str) -> list[str]:
    cells = _PIPE.split(line)
    if line.startswith("|"):
        cells = cells[1:]
    if len(cells) > 1 and not cells[-1]:
        cells = cells[:-1]
    return [plain_text(cell) for cell in cells]


def items(passage: Passage) -> list[Piece]:
    """The items of the lists of a passage that say something; what is nested in one is part of it."""
    return [piece for piece in pieces(passage) if piece.is_item and piece.text]


def pieces(passage: Passage) -> list[Piece]:
    """Paragraphs and items of a passage, in order; no tables, code or quotes."""
    found: list[tuple[int, list[str], bool]] = []
    margin: int | None = None
    is_open = False
    for number, line, sort in passage.lines():
        if sort != TEXT or not line.strip() or line.lstrip().startswith("|"):
            is_open = is_open and sort != TEXT
            continue
        item = _ITEM.match(line)
        if item is not None and (margin is None or len(item[1]) <= margin + 1):
            margin = len(item[1]) if margin is None else margin
            found.append((number, [_BOX.sub("", item[2] or "", count=1)], True))
        elif found and (is_open or (found[-1][2] and line[0].isspace())):
            found[-1][1].append(line.strip())
        else:
            found.append((number, [line.strip()], False))
            margin = None
        is_open = True
    return [Piece(number, plain_text(" ".join(lines)), is_item) for number, lines, is_item in found]


def labels(passage: Passage, wanted: Collection[str]) -> list[tuple[str, int, str]]:
    """Label, line and value of each `- Label: value`, in bold or without a bullet as well; more lines may follow it."""
    names = {key(label): label for label in wanted}
    found: list[tuple[str, int, list[str]]] = []
    is_open = False
    for number, line, sort in passage.lines():
        if sort != TEXT or not line.strip():
            is_open = False
            continue
        item = _ITEM.match(line)
        head, colon, rest = ((item[2] or "") if item is not None else line).partition(":")
        name = names.get(key(head)) if colon and len(head) <= _LONGEST_LABEL else None
        if name is not None:
            found.append((name, number, [rest.strip().removeprefix("**").removeprefix("__")]))
        elif is_open and item is None:
            found[-1][2].append(line.strip())
        is_open = name is not None or (is_open and item is None)
    return [(name, number, plain_text(" ".join(lines))) for name, number, lines in found]


def prose(passage: Passage, asked: str) -> tuple[str, str]:
    """The text of a passage without the quote that asks for it: all of it, and what is said in no quote or code."""
    said: list[str] = []
    own: list[str] = []
    quoted: list[str] = []
    for _, line, sort in passage.lines():
        if sort == QUOTE:
            quoted.append(line)
            continue
        said += [*_unasked(quoted, asked), line]
        own += [line] if sort == TEXT else []
        quoted = []
    said += _unasked(quoted, asked)
    return "\n".join(said).strip(), "\n".join(own).strip()


def _unasked(quoted: list[str], asked: str) -> list[str]:
    """The lines of a quote, but for one that begins with what is asked."""
    words = " ".join(line.lstrip(" \t>") for line in quoted[: asked.count(" ") + 1])
    return [] if asked and flat(words).startswith(flat(asked)) else quoted


def flat(text: str) -> str:
    """A text as it is compared: in one line, without case."""
    return " ".join(text.split()).casefold()
