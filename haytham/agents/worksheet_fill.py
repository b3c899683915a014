"""Find what earlier texts already answer, and fill the sections of a worksheet with it.

Answers are found by their headings, so people and models may have written the texts in any order. The result always
keeps the contract: a text that a cell does not allow is not put into it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from haytham.contracts import definition
from haytham.contracts.check import claims
from haytham.contracts.markdown import (
    ReplyDocument,
    blocks,
    escape_cell,
    is_fence,
    items,
    labelled_values,
    normalize_column,
    normalize_title,
    tables,
    unescape_cell,
)
from haytham.contracts.values import MARK, UNKNOWN, InvalidCell, is_blank, is_unknown, parse_value, split_assumption

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from haytham.contracts.definition import Contract, ContractField, ContractSection, PrefillSource
    from haytham.contracts.markdown import ReplySection

IDEA = "idea"
STOOD_HERE = "Before, this stood here:"
NEW_ROWS = "New from the phases before:"
ASSUMPTIONS = "assumptions"
PLACE = "place"
_SLOT = re.compile(r"\{([^{}]+)\}")
_MOST_NAMED = 4

Row = dict[str, str]


@dataclass(frozen=True)
class SourceText:
    """An input of a page, and where it is from."""

    place: str
    text: str


def strip_assumption(text: str) -> str:
    """Return the text before the mark of an assumption; empty if it is unknown or a label of a page."""
    marked = split_assumption(text)
    claim = text if marked is None else marked[0]
    return "" if is_blank(claim) or is_unknown(claim) or claim.strip() in (STOOD_HERE, NEW_ROWS) else claim.strip()


class CollectedText:
    """The inputs of a page, split into the sections that its contract asks for."""

    def __init__(self, contract: Contract, idea: str, given: Iterable[SourceText]) -> None:
        origins = [origin for field in contract.field_by_name.values() for origin in field.origins]
        names = {origin.section for origin in (*origins, *contract.recall)}
        self.wording = contract.wording
        self._idea = idea
        self._given = list(given)
        self._pages = [(source.place, ReplyDocument(source.text, names)) for source in self._given]

    def rows(self, field: ContractField) -> list[Row]:
        """Return the rows that a table starts with, unique by their first column."""
        unique: dict[str, Row] = {}
        for origin in field.origins:
            for place, passage in self._passages(origin):
                for row in _rows(field, origin, place, passage):
                    first = normalize_title(strip_assumption(row.get(field.columns[0].name, ""))[:100])
                    if first:
                        known = {name: text for name, text in unique.get(first, {}).items() if strip_assumption(text)}
                        unique[first] = {**row, **known}
        return list(unique.values())

    def texts(self, origins: Iterable[PrefillSource]) -> list[tuple[str, str, str]]:
        """Return the answers, each once: where it is from, its heading or label, and the text."""
        unique: dict[tuple[str, str], tuple[str, str, str]] = {}
        for origin in origins:
            title = self.wording.subject if origin.section == IDEA else origin.label or origin.section
            for place, text in self._answers(origin):
                unique.setdefault((title, text), (place, title, text))
        return list(unique.values())

    def _answers(self, origin: PrefillSource) -> Iterator[tuple[str, str]]:
        if origin.section == IDEA:
            yield self.wording.subject, self._idea
        elif origin.section == ASSUMPTIONS:
            yield from ((source.place, line) for source in self._given for line in _assumption_lines(source))
        else:
            for place, passage in self._passages(origin):
                yield from (
                    (place, line) for text in _answers_in(origin, passage, place) if (line := strip_assumption(text))
                )

    def _passages(self, origin: PrefillSource) -> Iterator[tuple[str, ReplySection]]:
        for place, page in self._pages:
            name = page.names.get(normalize_title(origin.section))
            yield from ((place, passage) for passage in page.sections.get(name or "", ()))


def _rows(field: ContractField, origin: PrefillSource, place: str, passage: ReplySection) -> Iterator[Row]:
    """Yield the rows of a section for another table; without a table, its items fill the first column."""
    drawn = list(_cells(origin, passage, place))
    take = dict(origin.take)
    for cells in drawn:
        yield {
            column.name: _fill_pattern(take.get(column.name, f"{{{column.label}}}"), cells) for column in field.columns
        }
    if not drawn and not tables(passage):
        first = field.columns[0].name
        texts = [piece.text for piece in items(passage)] or [piece.text for piece in blocks(passage)[:1]]
        made = {name: _fill_pattern(pattern, {PLACE: place}) for name, pattern in take.items()}
        yield from ({**made, first: _sentence(strip_assumption(text))} for text in texts)


def _sentence(text: str) -> str:
    """Return the first sentence of a text, without its full stop."""
    return text.partition(". ")[0].rstrip(".")


def _cells(origin: PrefillSource, passage: ReplySection, place: str) -> Iterator[dict[str, str]]:
    """Yield the cells of each row that matches, by column title."""
    for table in tables(passage):
        titles = [normalize_column(title) for title in table.head]
        for _, cells in table.rows:
            row = {**dict(zip(titles, cells, strict=False)), PLACE: place}
            if all(
                normalize_title(row.get(normalize_column(title), "")) in map(normalize_title, values)
                for title, values in origin.where
            ):
                yield row


def _fill_pattern(pattern: str, cells: Mapping[str, str]) -> str:
    """Return a text made from cells by a pattern; empty if a cell is empty. Only a lone cell keeps its mark."""
    slots = _SLOT.findall(pattern)
    values = {slot: cells.get(normalize_column(slot), "") for slot in slots or [pattern]}
    if not slots or pattern == f"{{{slots[0]}}}":
        (cell,) = values.values()
        return cell if strip_assumption(cell) or split_assumption(cell) is not None else ""
    texts = {slot: strip_assumption(cell) or (split_assumption(cell) or ("", ""))[1] for slot, cell in values.items()}
    return _SLOT.sub(lambda slot: texts[slot[1]], pattern) if all(texts.values()) else ""


def _answers_in(origin: PrefillSource, passage: ReplySection, place: str) -> Iterator[str]:
    if origin.take:
        yield from (_fill_pattern(origin.take[0][1], cells) for cells in _cells(origin, passage, place))
    elif origin.label is not None:
        yield from (text for _, _, text in labelled_values(passage, [origin.label]))
    else:
        yield from (piece.text for piece in blocks(passage))


def _assumption_lines(source: SourceText) -> Iterator[str]:
    """Return the assumptions of a text, one line for each section, with the first few by name."""
    grouped: dict[str, list[str]] = {}
    for claim in claims(source.text):
        if claim.is_assumption:
            grouped.setdefault(claim.section, []).append(claim.text)
    place = source.place[:1].upper() + source.place[1:]
    for section, texts in grouped.items():
        named = [text for text in dict.fromkeys(texts) if text]
        more = len(texts) - min(len(named), _MOST_NAMED)
        parts = [*named[:_MOST_NAMED], *([f"{more} more" if named else f"{more} open"] if more else [])]
        yield f"{place}, {section}: {'; '.join(parts)}"


NOT_KNOWN = "Not known yet."
_TEST = "ask five people who should know, and write down who and when"
_LONGEST_CELL = 300
_LONGEST_REMARK = 40
_MOST_ROWS = 200
_MOST_LINES = 60
Decided = dict[str, tuple[str, str]]  # value and reason, by field


def blockquote(text: str, most: int = _MOST_LINES) -> str:
    """Return a text as a quote in which nothing is structure; only the start of a very long one."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").strip().split("\n")
    more = [f"… and {len(lines) - most} more lines"] if len(lines) > most else []
    return "\n".join(f"> {line}".rstrip() for line in lines[:most] + more)


def truncate_cell(text: str, longest: int = _LONGEST_CELL) -> str:
    """Return a text for a cell, an item or after a label: one line, cut if long."""
    line = " ".join(text[: 4 * longest].split())
    line = escape_cell(line if len(line) <= longest else line[: longest - 1].rstrip() + "…")
    return f"\\{line}" if is_fence(line) else line


class PrefilledSections:
    """Fills the bodies of sections with collected texts.

    Bullets get what the rules decide, what was answered before (`answered`, by field), and what the page itself has.
    """

    def __init__(
        self,
        gathered: CollectedText,
        own: CollectedText | None = None,
        decided: Decided | None = None,
        answered: Mapping[str, Any] | None = None,
    ) -> None:
        self._gathered, self._own, self._decided, self._answered = (
            gathered,
            own or gathered,
            decided or {},
            answered or {},
        )

    def body(self, section: ContractSection) -> str:
        """Return the text below the heading and the question of a section."""
        body = section.body
        if body is None:
            return definition.bullets(section, {field.name: self._value(field) for field in section.fields})
        if body.form == "table":
            return definition.table(body, [dict(row) for row in self.rows(body)] or [{}])
        return self._items(body) if body.form == "list" else self._prose(body)

    def rows(self, body: ContractField) -> list[Row]:
        """Return the rows of a table: those collected, else its defaults; as many as it needs."""
        rows = [_fit_row(body, row) for row in self._gathered.rows(body)[: body.most or _MOST_ROWS]]
        defaults = [_fit_row(body, row) for row in body.default or ()]
        rows = rows or defaults
        known = {normalize_title(_first(body, row)) for row in rows}
        spare = [row for row in defaults if normalize_title(_first(body, row)) not in known]
        rows += spare[: max(0, body.least - len(rows))]
        rows += [_fit_row(body, {}) for _ in range(body.least - len(rows))]
        return sorted(rows, key=lambda row: [_rank(body.column_by_name[name], row[name]) for name in body.sort])

    def new_rows(self, body: ContractField, known: list[str]) -> list[Row]:
        """Return the collected rows that are not known by their first column."""
        titles = {normalize_title(first) for first in known}
        rows = (_fit_row(body, row) for row in self._gathered.rows(body))
        return [row for row in rows if normalize_title(_first(body, row)) not in titles]

    def _items(self, body: ContractField) -> str:
        gathered = [truncate_cell(text) for _, _, text in self._gathered.texts(body.origins)]
        texts = [text for text in gathered if not is_blank(text)] or [
            truncate_cell(text) for text in body.default or ()
        ]
        texts = [text for text in texts if not is_blank(text)]
        texts = texts[: body.most or _MOST_ROWS] + [UNKNOWN] * (body.least - len(texts))
        return "\n".join(f"- {text}" for text in texts) or "-"

    def _prose(self, body: ContractField) -> str:
        answers = self._gathered.texts(body.origins)
        if not answers:
            return f"{NOT_KNOWN} {MARK}: {truncate_cell(body.test or _TEST)}"
        wording = self._gathered.wording
        places = {wording.subject: f"In the {wording.author}'s own words, which are no evidence."}
        parts = [f"{blockquote(text)}\n\n{places.get(place, f'From {place}.')}" for place, _, text in answers]
        return "\n\n".join(parts) + f" {MARK}: {truncate_cell(body.test or _TEST)}"

    def _value(self, field: ContractField) -> str:
        """Return the text of a bullet: by its rule, its reason, an answer, its default, or unknown."""
        value, _ = self._decided.get(field.name, ("", ""))
        _, because = self._decided.get(field.because or "", ("", ""))
        before = self._answered.get(field.name)
        before = {True: "yes", False: "no"}[before] if isinstance(before, bool) else before
        texts = [value, because, before, *(text for _, _, text in self._own.texts(field.origins)), field.default]
        candidates = (str(text) for text in texts if text is not None and text != "")
        return next((line for text in candidates if (line := _fit_text(field, text))), _placeholder(field))


def apply_rules(contract: Contract, values: Mapping[str, Any]) -> Decided:
    """Return what the rules of a contract decide for the values of a page: value and reason, by field."""
    decided = {}
    for name, field in contract.field_by_name.items():
        if field.rule is not None and field.rule.table in values:
            decision = field.rule.decide(values[field.rule.table])
            decided[name] = (decision.values[0] if decision.values else UNKNOWN, decision.because)
    return decided


def _fit_row(body: ContractField, row: Mapping[str, Any]) -> Row:
    """Return a row that its columns allow; a text that one does not allow is replaced by the column's default."""
    texts = {column: str(row.get(column.name, "")) for column in body.columns}
    cells = {column.name: _fit_text(column, text) or _placeholder(column, body, text) for column, text in texts.items()}
    source = next((cells[column.name] for column in body.columns if column.source), "")
    for column in body.columns:
        if column.proven and cells[column.name] in column.proven and split_assumption(source) is not None:
            cells[column.name] = next((value for value in column.allowed if value not in column.proven), UNKNOWN)
    return cells


def _fit_text(column: ContractField, text: str) -> str:
    """Return a text as a cell, or empty if the column does not allow it; for a choice, the choice itself."""
    line = truncate_cell(text)
    try:
        value = None if is_blank(line) else parse_value(column, unescape_cell(line))
    except InvalidCell:
        return ""
    if is_blank(line):
        return ""
    return str(value) if column.allowed and value is not None else line


def _placeholder(column: ContractField, body: ContractField | None = None, unfit: str = "") -> str:
    """Return the text of a cell before it is filled in; a text that is no source is named as such."""
    if column.default is not None and (line := _fit_text(column, str(column.default))):
        return line
    if column.source:
        test = truncate_cell(column.test or (body.test if body is not None else "") or _TEST)
        remark = truncate_cell(unfit, _LONGEST_REMARK)
        return f"{MARK}: {test}" + ("" if is_blank(remark) else f" ({remark} is no source)")
    return UNKNOWN if column.required else ""


def _rank(column: ContractField, text: str) -> int:
    """Return the position of a choice among those allowed; unknown is first."""
    return column.allowed.index(text) if text in column.allowed else -1


def _first(body: ContractField, row: Row) -> str:
    return strip_assumption(row[body.columns[0].name])
