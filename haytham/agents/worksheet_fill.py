"""What earlier texts say that a page asks for: rows, items and answers, found by the headings they stand under.

It needs no contract of those texts: a person or a model may have written them, in whatever order.

What a section says before a person has answered: what earlier texts give, what the contract begins with, questions.

Whatever is given, the result keeps the contract: a text that a cell cannot hold does not get into it.
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
    """A text that a page builds on, and the place it is from."""

    place: str
    text: str


def strip_assumption(text: str) -> str:
    """What a text says before the mark of an assumption; nothing where nobody knows it, or it is a label of a page."""
    marked = split_assumption(text)
    said = text if marked is None else marked[0]
    return "" if is_blank(said) or is_unknown(said) or said.strip() in (STOOD_HERE, NEW_ROWS) else said.strip()


class CollectedText:
    """The texts a page builds on, cut where its contract asks."""

    def __init__(self, contract: Contract, idea: str, given: Iterable[SourceText]) -> None:
        origins = [origin for field in contract.field_by_name.values() for origin in field.origins]
        names = {origin.section for origin in (*origins, *contract.recall)}
        self._idea = idea
        self._given = list(given)
        self._pages = [(one.place, ReplyDocument(one.text, names)) for one in self._given]

    def rows(self, field: ContractField) -> list[Row]:
        """The rows that a table can begin with, each by the text of its first column once."""
        found: dict[str, Row] = {}
        for origin in field.origins:
            for place, passage in self._passages(origin):
                for row in _rows(field, origin, place, passage):
                    first = normalize_title(strip_assumption(row.get(field.columns[0].name, ""))[:100])
                    if first:
                        known = {name: text for name, text in found.get(first, {}).items() if strip_assumption(text)}
                        found[first] = {**row, **known}
        return list(found.values())

    def texts(self, origins: Iterable[PrefillSource]) -> list[tuple[str, str, str]]:
        """What was answered: where from, under which heading or label, and the text; each answer once."""
        found: dict[tuple[str, str], tuple[str, str, str]] = {}
        for origin in origins:
            title = origin.label or origin.section
            for place, text in self._answers(origin):
                found.setdefault((title, text), (place, title, text))
        return list(found.values())

    def _answers(self, origin: PrefillSource) -> Iterator[tuple[str, str]]:
        if origin.section == IDEA:
            yield IDEA, self._idea
        elif origin.section == ASSUMPTIONS:
            yield from ((one.place, said) for one in self._given for said in _open(one))
        else:
            for place, passage in self._passages(origin):
                yield from ((place, said) for text in _said(origin, passage, place) if (said := strip_assumption(text)))

    def _passages(self, origin: PrefillSource) -> Iterator[tuple[str, ReplySection]]:
        for place, page in self._pages:
            name = page.names.get(normalize_title(origin.section))
            yield from ((place, passage) for passage in page.sections.get(name or "", ()))


def _rows(field: ContractField, origin: PrefillSource, place: str, passage: ReplySection) -> Iterator[Row]:
    """The rows of a passage as those of another table; what is no table gives its items to the first column."""
    drawn = list(_cells(origin, passage, place))
    take = dict(origin.take)
    for cells in drawn:
        yield {column.name: _taken(take.get(column.name, f"{{{column.label}}}"), cells) for column in field.columns}
    if not drawn and not tables(passage):
        first = field.columns[0].name
        texts = [piece.text for piece in items(passage)] or [piece.text for piece in blocks(passage)[:1]]
        made = {name: _taken(pattern, {PLACE: place}) for name, pattern in take.items()}
        yield from ({**made, first: _sentence(strip_assumption(text))} for text in texts)


def _sentence(text: str) -> str:
    """The first sentence of a text, without its full stop."""
    return text.partition(". ")[0].rstrip(".")


def _cells(origin: PrefillSource, passage: ReplySection, place: str) -> Iterator[dict[str, str]]:
    """The cells of each row that counts, by the titles of their columns."""
    for table in tables(passage):
        titles = [normalize_column(title) for title in table.head]
        for _, cells in table.rows:
            row = {**dict(zip(titles, cells, strict=False)), PLACE: place}
            if all(
                normalize_title(row.get(normalize_column(title), "")) in map(normalize_title, values)
                for title, values in origin.where
            ):
                yield row


def _taken(pattern: str, cells: Mapping[str, str]) -> str:
    """A text made of cells; nothing where one says nothing. Only a cell alone keeps its mark, else its test counts."""
    slots = _SLOT.findall(pattern)
    told = {slot: cells.get(normalize_column(slot), "") for slot in slots or [pattern]}
    if not slots or pattern == f"{{{slots[0]}}}":
        (cell,) = told.values()
        return cell if strip_assumption(cell) or split_assumption(cell) is not None else ""
    texts = {slot: strip_assumption(cell) or (split_assumption(cell) or ("", ""))[1] for slot, cell in told.items()}
    return _SLOT.sub(lambda slot: texts[slot[1]], pattern) if all(texts.values()) else ""


def _said(origin: PrefillSource, passage: ReplySection, place: str) -> Iterator[str]:
    if origin.take:
        yield from (_taken(origin.take[0][1], cells) for cells in _cells(origin, passage, place))
    elif origin.label is not None:
        yield from (text for _, _, text in labelled_values(passage, [origin.label]))
    else:
        yield from (piece.text for piece in blocks(passage))


def _open(given: SourceText) -> Iterator[str]:
    """What a text assumes, a line a section: what is marked there, the first few by name."""
    grouped: dict[str, list[str]] = {}
    for claim in claims(given.text):
        if claim.is_assumption:
            grouped.setdefault(claim.section, []).append(claim.text)
    place = given.place[:1].upper() + given.place[1:]
    for section, texts in grouped.items():
        named = [text for text in dict.fromkeys(texts) if text]
        more = len(texts) - min(len(named), _MOST_NAMED)
        told = [*named[:_MOST_NAMED], *([f"{more} more" if named else f"{more} open"] if more else [])]
        yield f"{place}, {section}: {'; '.join(told)}"


NOT_KNOWN = "Not known yet."
FOUNDER = "In the founder's own words, which are no evidence."
_TEST = "ask five people who should know, and write down who and when"
_LONGEST_CELL = 300
_LONGEST_REMARK = 40
_MOST_ROWS = 200
_MOST_LINES = 60
Decided = dict[str, tuple[str, str]]  # value and reason, by field


def blockquote(text: str, most: int = _MOST_LINES) -> str:
    """A text as a quote, in which nothing is taken for structure; of a very long one the beginning."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").strip().split("\n")
    more = [f"… and {len(lines) - most} more lines"] if len(lines) > most else []
    return "\n".join(f"> {line}".rstrip() for line in lines[:most] + more)


def truncate_cell(text: str, longest: int = _LONGEST_CELL) -> str:
    """A text as it stands in a cell, an item or behind a label: one line, of a long one the beginning."""
    line = " ".join(text[: 4 * longest].split())
    line = escape_cell(line if len(line) <= longest else line[: longest - 1].rstrip() + "…")
    return f"\\{line}" if is_fence(line) else line


class PrefilledSections:
    """The bodies of sections from what was gathered.

    To bullets goes what the rules decide, what was said before (`said`, by field), and what the page itself says.
    """

    def __init__(
        self,
        gathered: CollectedText,
        own: CollectedText | None = None,
        decided: Decided | None = None,
        said: Mapping[str, Any] | None = None,
    ) -> None:
        self._gathered, self._own, self._decided, self._said = gathered, own or gathered, decided or {}, said or {}

    def body(self, section: ContractSection) -> str:
        """What stands under the heading and the question of a section."""
        body = section.body
        if body is None:
            return definition.bullets(section, {field.name: self._value(field) for field in section.fields})
        if body.form == "table":
            return definition.table(body, [dict(row) for row in self.rows(body)] or [{}])
        return self._items(body) if body.form == "list" else self._prose(body)

    def rows(self, body: ContractField) -> list[Row]:
        """The rows of a table: those gathered, else those it begins with; as many as it needs."""
        made = [_fitted(body, row) for row in self._gathered.rows(body)[: body.most or _MOST_ROWS]]
        begin = [_fitted(body, row) for row in body.default or ()]
        made = made or begin
        known = {normalize_title(_first(body, row)) for row in made}
        spare = [row for row in begin if normalize_title(_first(body, row)) not in known]
        made += spare[: max(0, body.least - len(made))]
        made += [_fitted(body, {}) for _ in range(body.least - len(made))]
        return sorted(made, key=lambda row: [_rank(body.column_by_name[name], row[name]) for name in body.sort])

    def new_rows(self, body: ContractField, known: list[str]) -> list[Row]:
        """The rows gathered that are not among those known by their first column."""
        there = {normalize_title(first) for first in known}
        made = (_fitted(body, row) for row in self._gathered.rows(body))
        return [row for row in made if normalize_title(_first(body, row)) not in there]

    def _items(self, body: ContractField) -> str:
        gathered = [truncate_cell(text) for _, _, text in self._gathered.texts(body.origins)]
        texts = [text for text in gathered if not is_blank(text)] or [
            truncate_cell(text) for text in body.default or ()
        ]
        texts = [text for text in texts if not is_blank(text)]
        texts = texts[: body.most or _MOST_ROWS] + [UNKNOWN] * (body.least - len(texts))
        return "\n".join(f"- {text}" for text in texts) or "-"

    def _prose(self, body: ContractField) -> str:
        found = self._gathered.texts(body.origins)
        if not found:
            return f"{NOT_KNOWN} {MARK}: {truncate_cell(body.test or _TEST)}"
        parts = [f"{blockquote(text)}\n\n{FOUNDER if place == IDEA else f'From {place}.'}" for place, _, text in found]
        return "\n\n".join(parts) + f" {MARK}: {truncate_cell(body.test or _TEST)}"

    def _value(self, field: ContractField) -> str:
        """What a bullet says: by its rule, why it does, from elsewhere, as it begins, or that nobody knows."""
        value, _ = self._decided.get(field.name, ("", ""))
        _, because = self._decided.get(field.because or "", ("", ""))
        before = self._said.get(field.name)
        before = {True: "yes", False: "no"}[before] if isinstance(before, bool) else before
        texts = [value, because, before, *(text for _, _, text in self._own.texts(field.origins)), field.default]
        told = (str(text) for text in texts if text is not None and text != "")
        return next((line for text in told if (line := _fitting(field, text))), _unanswered(field))


def apply_rules(contract: Contract, values: Mapping[str, Any]) -> Decided:
    """What the rules of a contract say to the values of a page: value and reason, by field."""
    found = {}
    for name, field in contract.field_by_name.items():
        if field.rule is not None and field.rule.table in values:
            decision = field.rule.decide(values[field.rule.table])
            found[name] = (decision.values[0] if decision.values else UNKNOWN, decision.because)
    return found


def _fitted(body: ContractField, row: Mapping[str, Any]) -> Row:
    """A row of texts that its columns can hold; where one cannot, it says what the column begins with."""
    texts = {column: str(row.get(column.name, "")) for column in body.columns}
    made = {column.name: _fitting(column, text) or _unanswered(column, body, text) for column, text in texts.items()}
    source = next((made[column.name] for column in body.columns if column.source), "")
    for column in body.columns:
        if column.proven and made[column.name] in column.proven and split_assumption(source) is not None:
            made[column.name] = next((value for value in column.allowed if value not in column.proven), UNKNOWN)
    return made


def _fitting(column: ContractField, text: str) -> str:
    """A text as it stands in a cell, or nothing where the column cannot hold it; of a choice, the choice itself."""
    line = truncate_cell(text)
    try:
        value = None if is_blank(line) else parse_value(column, unescape_cell(line))
    except InvalidCell:
        return ""
    if is_blank(line):
        return ""
    return str(value) if column.allowed and value is not None else line


def _unanswered(column: ContractField, body: ContractField | None = None, unfit: str = "") -> str:
    """What a cell says before anybody has filled it in; of a source that is none, that it is none."""
    if column.default is not None and (line := _fitting(column, str(column.default))):
        return line
    if column.source:
        test = truncate_cell(column.test or (body.test if body is not None else "") or _TEST)
        said = truncate_cell(unfit, _LONGEST_REMARK)
        return f"{MARK}: {test}" + ("" if is_blank(said) else f" ({said} is no source)")
    return UNKNOWN if column.required else ""


def _rank(column: ContractField, text: str) -> int:
    """Where a choice stands among those allowed; what nobody knows comes first."""
    return column.allowed.index(text) if text in column.allowed else -1


def _first(body: ContractField, row: Row) -> str:
    return strip_assumption(row[body.columns[0].name])
