"""The bodies of sections: bullets, lists, maps, tables and prose, read line by line with their places."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from haytham.errors import Problem, short_repr
from haytham.markdown.codec import NOTHING, DecodeError, decoder, split_key, unescape_prose, unfence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mistune import BlockParser

    from haytham.markdown.schema import DocumentSchema, Field, Section

    Keep = Callable[[str, Any, int], None]

REPEATED = "repeats lines that are only shown, as a merge of git may; the next save draws them anew"
_RULE = re.compile(r"\|(?:[ \t]*:?-+:?[ \t]*\|)+\Z")
_BULLET = re.compile(r" {0,3}[-*+](?:[ \t]+(.*))?\Z", re.DOTALL)


@dataclass(frozen=True)
class SectionLines:
    """The lines of a section below its heading, and the number of the first."""

    lines: list[str]
    start: int

    def filled(self) -> Iterator[tuple[int, str]]:
        """Return number and text of the lines that are not blank."""
        for offset, line in enumerate(self.lines):
            if line.strip():
                yield self.start + offset, line.rstrip()

    def trimmed(self) -> SectionLines:
        """Return the same lines without blank ones at either end."""
        filled = [offset for offset, line in enumerate(self.lines) if line.strip()]
        if not filled:
            return SectionLines([], self.start)
        return SectionLines(self.lines[filled[0] : filled[-1] + 1], self.start + filled[0])


def read_bullets(kind: DocumentSchema, section: Section, body: SectionLines, keep: Keep) -> list[Problem]:
    """Read a section of `- Label: value` bullets: every label once, and nothing else."""
    fields = {str(field.label): field for field in section.fields}
    seen: dict[str, int] = {}
    problems: list[Problem] = []
    for number, line in body.filled():
        label, _, text = (_item(line) or "").partition(":")
        if label in seen:
            message = f"found the label twice, first in line {seen[label]}; allowed: once"
            problems.append(Problem(message, number, section.name, label, derived=fields[label].derived))
        elif label in fields:
            seen[label] = number
            problems += _read_scalar(fields[label], text, number, keep)
        elif section.derived and is_derived_line(kind, line):
            problems.append(Problem(REPEATED, number, section.name, derived=True))
        else:
            waiting = [other for other in fields if other not in seen]
            message = f"found {short_repr(line)}; allowed: {_expected(waiting)}"
            problems.append(Problem(message, number, section.name, derived=section.derived, unknown_text=True))
    for label, field in fields.items():
        if label not in seen:
            problems.append(Problem("the label is missing", body.start - 1, section.name, label, derived=field.derived))
    return problems


def is_derived_line(kind: DocumentSchema, line: str) -> bool:
    """Return whether a line looks like one rendered for a derived field: its bullet, or a row of its table.

    Git may repeat such lines, where it joins those of two clones; nobody's words are lost with them.
    """
    label = (_item(line) or "").partition(":")[0]
    cells = line.count("|") - 1 if line.lstrip().startswith("|") else 0
    derived = [field for field in kind.fields if field.derived]
    return any(label == field.label if field.label else cells == len(field.columns) > 0 for field in derived)


def read_field(kind: DocumentSchema, field: Field, body: SectionLines, keep: Keep) -> list[Problem]:
    """Read a section that one field fills."""
    body = body.trimmed()
    try:
        keep(field.name, _READERS[field.form](kind, field, body), body.start)
    except DecodeError as error:
        line = getattr(error, "line", body.start)
        foreign = field.form == "table" and any("|" not in line for _, line in body.filled())
        unclaimed = foreign or getattr(error, "unclaimed", False)
        return [Problem(str(error), line, field.section, derived=field.derived, unknown_text=unclaimed)]
    return []


class LineDecodeError(DecodeError):
    """A value that cannot be decoded: its line, and whether it holds unknown text."""

    def __init__(self, message: str, line: int, *, unclaimed: bool = False) -> None:
        super().__init__(message)
        self.line, self.unclaimed = line, unclaimed


def _read_scalar(field: Field, text: str, number: int, keep: Keep) -> list[Problem]:
    try:
        keep(field.name, decoder(field)(text), number)
    except DecodeError as error:
        return [Problem(str(error), number, field.section, field.label, derived=field.derived)]
    return []


def _expected(waiting: list[str]) -> str:
    return ", ".join(f"- {label}: …" for label in waiting) or "no further line in this section"


def _item(line: str) -> str | None:
    """Return the text of a bullet; None for another line."""
    match = _BULLET.match(line)
    return None if match is None else (match[1] or "").strip()


def _items(body: SectionLines, form: str) -> Iterator[tuple[int, str]]:
    """Return number and text of each bullet; none for a single empty one."""
    lines = [(number, _item(line), line) for number, line in body.filled()]
    if not lines:
        raise LineDecodeError(f"found nothing; allowed: {form}, or {NOTHING} for none", body.start)
    if len(lines) == 1 and lines[0][1] == "":
        return
    for number, item, line in lines:
        if not item:
            raise LineDecodeError(f"found {short_repr(line)}; allowed: {form}", number, unclaimed=True)
        yield number, item


def _read_list(_kind: DocumentSchema, field: Field, body: SectionLines) -> Any:
    return [_decoded(field, item, number) for number, item in _items(body, "- …")]


def _read_numbered(_kind: DocumentSchema, field: Field, body: SectionLines) -> Any:
    label = re.compile(rf"{re.escape(field.noun)} \d+:(.*)\Z", re.DOTALL)
    form = f"- {field.noun} 1: …"
    values = []
    for number, item in _items(body, form):
        match = label.match(item)
        if match is None:
            raise LineDecodeError(f"found {short_repr(item)}; allowed: {form}", number, unclaimed=True)
        values.append(_decoded(field, match[1], number))
    return values


def _read_map(_kind: DocumentSchema, field: Field, body: SectionLines) -> Any:
    values: dict[str, Any] = {}
    for number, item in _items(body, "- name: value"):
        try:
            key, text = split_key(item)
        except DecodeError as error:
            raise LineDecodeError(str(error), number, unclaimed=True) from None
        if key in values:
            raise LineDecodeError(f"found {short_repr(key)} twice; allowed: once", number)
        values[key] = _decoded(field, text, number)
    return values


def _decoded(field: Field, text: str, number: int) -> Any:
    try:
        return decoder(field)(text)
    except DecodeError as error:
        raise LineDecodeError(str(error), number) from None


def _read_prose(kind: DocumentSchema, _field: Field, body: SectionLines) -> Any:
    return unescape_prose(kind, body.lines)


def _read_code(kind: DocumentSchema, _field: Field, body: SectionLines) -> Any:
    if not body.lines:
        raise LineDecodeError("found nothing; allowed: a fenced block, ```text to ```", body.start)
    return unfence(kind, body.lines)


def _read_table(_kind: DocumentSchema, field: Field, body: SectionLines) -> Any:
    names = [str(column.label) for column in field.columns]
    rows = _table_cells(body, names)
    if rows is None or [cell.strip() for cell in rows[0]] != names:
        line, odd = _odd_line(body, len(names))
        raise LineDecodeError(f"found {short_repr(odd)}; allowed: a table | {' | '.join(names)} |", line)
    return [_read_row(field, row, body.start + 2 + at) for at, row in enumerate(rows[1:])]


def _read_row(field: Field, cells: list[str], number: int) -> dict[str, Any]:
    values = {}
    for column, cell in zip(field.columns, cells, strict=True):
        try:
            values[column.name] = decoder(column)(cell)
        except DecodeError as error:
            raise LineDecodeError(f"{column.label}: {error}", number) from None
    return values


def _table_cells(body: SectionLines, names: list[str]) -> list[list[str]] | None:
    """Return the cells of a table, head first; None if the lines are not one table."""
    lines = [line.strip() for line in body.lines]
    return _even_cells(lines, len(names)) or _parsed_cells(lines)


def _even_cells(lines: list[str], columns: int) -> list[list[str]] | None:
    """Return the cells of a table whose lines all have the same number of pipes, which needs no parser."""
    if len(lines) < 2 or not _RULE.match(lines[1]):  # noqa: PLR2004 - a head and a rule
        return None
    rows = [line.split("|") for line in lines]
    if any(len(row) != columns + 2 or row[0] or row[-1] for row in rows) or any("\\|" in line for line in lines):
        return None
    return [[cell.strip() for cell in row[1:-1]] for at, row in enumerate(rows) if at != 1]


def _parsed_cells(lines: list[str]) -> list[list[str]] | None:
    """Return the cells of a table as Mistune reads them."""
    parser = _block_parser()
    state = parser.state_cls()
    state.process("\n".join(lines) + "\n")
    parser.parse(state)
    tokens = [token for token in state.tokens if token["type"] != "blank_line"]
    if len(tokens) != 1 or tokens[0]["type"] != "table":
        return None
    parts = tokens[0]["children"]
    rows = [parts[0], *(row for part in parts[1:] for row in part["children"])]
    return [[cell["text"] for cell in row["children"]] for row in rows]


@lru_cache(maxsize=1)
def _block_parser() -> BlockParser:
    """Return mistune's block parser with tables; it never sees content."""
    from mistune import create_markdown  # noqa: PLC0415 - only documents with a table need it

    return create_markdown(renderer=None, plugins=["table"]).block


def _odd_line(body: SectionLines, columns: int) -> tuple[int, str]:
    """Return the first line with another number of cells than the table has columns, else the first line."""
    lines = list(body.filled())
    odd = (pair for pair in lines if pair[1].strip().strip("|").count("|") != columns - 1)
    return next(odd, lines[0] if lines else (body.start, "nothing"))


_READERS: dict[str, Callable[[DocumentSchema, Field, SectionLines], Any]] = {
    "list": _read_list,
    "numbered": _read_numbered,
    "map": _read_map,
    "prose": _read_prose,
    "code": _read_code,
    "table": _read_table,
}
