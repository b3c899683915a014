"""What earlier texts say that a page asks for: rows, items and answers, found by the headings they stand under.

It needs no contract of those texts: a person or a model may have written them, in whatever order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from haytham.contract.block import column_key, items, labels, pieces, tables
from haytham.contract.cell import is_blank, is_unknown, split_mark
from haytham.contract.claim import claims
from haytham.contract.page import Page, key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from haytham.contract.contract import Contract
    from haytham.contract.field import Field, Origin
    from haytham.contract.page import Passage

IDEA = "idea"
STOOD_HERE = "Before, this stood here:"
NEW_ROWS = "New from the phases before:"
ASSUMPTIONS = "assumptions"
PLACE = "place"
_SLOT = re.compile(r"\{([^{}]+)\}")
_MOST_NAMED = 4

Row = dict[str, str]


@dataclass(frozen=True)
class Given:
    """A text that a page builds on, and the place it is from."""

    place: str
    text: str


def answer(text: str) -> str:
    """What a text says before the mark of an assumption; nothing where nobody knows it, or it is a label of a page."""
    marked = split_mark(text)
    said = text if marked is None else marked[0]
    return "" if is_blank(said) or is_unknown(said) or said.strip() in (STOOD_HERE, NEW_ROWS) else said.strip()


class Gathered:
    """The texts a page builds on, cut where its contract asks."""

    def __init__(self, contract: Contract, idea: str, given: Iterable[Given]) -> None:
        origins = [origin for field in contract.field_by_name.values() for origin in field.origins]
        names = {origin.section for origin in (*origins, *contract.recall)}
        self._idea = idea
        self._given = list(given)
        self._pages = [(one.place, Page(one.text, names)) for one in self._given]

    def rows(self, field: Field) -> list[Row]:
        """The rows that a table can begin with, each by the text of its first column once."""
        found: dict[str, Row] = {}
        for origin in field.origins:
            for place, passage in self._passages(origin):
                for row in _rows(field, origin, place, passage):
                    first = key(answer(row.get(field.columns[0].name, ""))[:100])
                    if first:
                        known = {name: text for name, text in found.get(first, {}).items() if answer(text)}
                        found[first] = {**row, **known}
        return list(found.values())

    def texts(self, origins: Iterable[Origin]) -> list[tuple[str, str, str]]:
        """What was answered: where from, under which heading or label, and the text; each answer once."""
        found: dict[tuple[str, str], tuple[str, str, str]] = {}
        for origin in origins:
            title = origin.label or origin.section
            for place, text in self._answers(origin):
                found.setdefault((title, text), (place, title, text))
        return list(found.values())

    def _answers(self, origin: Origin) -> Iterator[tuple[str, str]]:
        if origin.section == IDEA:
            yield IDEA, self._idea
        elif origin.section == ASSUMPTIONS:
            yield from ((one.place, said) for one in self._given for said in _open(one))
        else:
            for place, passage in self._passages(origin):
                yield from ((place, said) for text in _said(origin, passage, place) if (said := answer(text)))

    def _passages(self, origin: Origin) -> Iterator[tuple[str, Passage]]:
        for place, page in self._pages:
            name = page.names.get(key(origin.section))
            yield from ((place, passage) for passage in page.passages.get(name or "", ()))


def _rows(field: Field, origin: Origin, place: str, passage: Passage) -> Iterator[Row]:
    """The rows of a passage as those of another table; what is no table gives its items to the first column."""
    drawn = list(_cells(origin, passage, place))
    take = dict(origin.take)
    for cells in drawn:
        yield {column.name: _taken(take.get(column.name, f"{{{column.label}}}"), cells) for column in field.columns}
    if not drawn and not tables(passage):
        first = field.columns[0].name
        texts = [piece.text for piece in items(passage)] or [piece.text for piece in pieces(passage)[:1]]
        made = {name: _taken(pattern, {PLACE: place}) for name, pattern in take.items()}
        yield from ({**made, first: _sentence(answer(text))} for text in texts)


def _sentence(text: str) -> str:
    """The first sentence of a text, without its full stop."""
    return text.partition(". ")[0].rstrip(".")


def _cells(origin: Origin, passage: Passage, place: str) -> Iterator[dict[str, str]]:
    """The cells of each row that counts, by the titles of their columns."""
    for table in tables(passage):
        titles = [column_key(title) for title in table.head]
        for _, cells in table.rows:
            row = {**dict(zip(titles, cells, strict=False)), PLACE: place}
            if all(key(row.get(column_key(title), "")) in map(key, values) for title, values in origin.where):
                yield row


def _taken(pattern: str, cells: Mapping[str, str]) -> str:
    """A text made of cells; nothing where one says nothing. Only a cell alone keeps its mark, else its test counts."""
    slots = _SLOT.findall(pattern)
    told = {slot: cells.get(column_key(slot), "") for slot in slots or [pattern]}
    if not slots or pattern == f"{{{slots[0]}}}":
        (cell,) = told.values()
        return cell if answer(cell) or split_mark(cell) is not None else ""
    texts = {slot: answer(cell) or (split_mark(cell) or ("", ""))[1] for slot, cell in told.items()}
    return _SLOT.sub(lambda slot: texts[slot[1]], pattern) if all(texts.values()) else ""


def _said(origin: Origin, passage: Passage, place: str) -> Iterator[str]:
    if origin.take:
        yield from (_taken(origin.take[0][1], cells) for cells in _cells(origin, passage, place))
    elif origin.label is not None:
        yield from (text for _, _, text in labels(passage, [origin.label]))
    else:
        yield from (piece.text for piece in pieces(passage))


def _open(given: Given) -> Iterator[str]:
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
