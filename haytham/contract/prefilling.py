"""What a section says before a person has answered: what earlier texts give, what the contract begins with, questions.

Whatever is given, the result keeps the contract: a text that a cell cannot hold does not get into it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haytham.contract import drawing
from haytham.contract.block import cell_text, plain_text
from haytham.contract.cell import MARK, UNKNOWN, Unfit, is_blank, read_cell, split_mark
from haytham.contract.gathering import IDEA, answer
from haytham.contract.page import is_fence, key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.contract.contract import Contract
    from haytham.contract.field import Field, Section
    from haytham.contract.gathering import Gathered, Row

NOT_KNOWN = "Not known yet."
FOUNDER = "In the founder's own words, which are no evidence."
_TEST = "ask five people who should know, and write down who and when"
_LONGEST_CELL = 300
_LONGEST_REMARK = 40
_MOST_ROWS = 200
_MOST_LINES = 60
Decided = dict[str, tuple[str, str]]  # value and reason, by field


def quoted(text: str, most: int = _MOST_LINES) -> str:
    """A text as a quote, in which nothing is taken for structure; of a very long one the beginning."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").strip().split("\n")
    more = [f"… and {len(lines) - most} more lines"] if len(lines) > most else []
    return "\n".join(f"> {line}".rstrip() for line in lines[:most] + more)


def one_line(text: str, longest: int = _LONGEST_CELL) -> str:
    """A text as it stands in a cell, an item or behind a label: one line, of a long one the beginning."""
    line = " ".join(text[: 4 * longest].split())
    line = cell_text(line if len(line) <= longest else line[: longest - 1].rstrip() + "…")
    return f"\\{line}" if is_fence(line) else line


class Prefilled:
    """The bodies of sections from what was gathered.

    To bullets goes what the rules decide, what was said before (`said`, by field), and what the page itself says.
    """

    def __init__(
        self,
        gathered: Gathered,
        own: Gathered | None = None,
        decided: Decided | None = None,
        said: Mapping[str, Any] | None = None,
    ) -> None:
        self._gathered, self._own, self._decided, self._said = gathered, own or gathered, decided or {}, said or {}

    def body(self, section: Section) -> str:
        """What stands under the heading and the question of a section."""
        body = section.body
        if body is None:
            return drawing.bullets(section, {field.name: self._value(field) for field in section.fields})
        if body.form == "table":
            return drawing.table(body, [dict(row) for row in self.rows(body)] or [{}])
        return self._items(body) if body.form == "list" else self._prose(body)

    def rows(self, body: Field) -> list[Row]:
        """The rows of a table: those gathered, else those it begins with; as many as it needs."""
        made = [_fitted(body, row) for row in self._gathered.rows(body)[: body.most or _MOST_ROWS]]
        begin = [_fitted(body, row) for row in body.default or ()]
        made = made or begin
        known = {key(_first(body, row)) for row in made}
        spare = [row for row in begin if key(_first(body, row)) not in known]
        made += spare[: max(0, body.least - len(made))]
        made += [_fitted(body, {}) for _ in range(body.least - len(made))]
        return sorted(made, key=lambda row: [_rank(body.column_by_name[name], row[name]) for name in body.sort])

    def new_rows(self, body: Field, known: list[str]) -> list[Row]:
        """The rows gathered that are not among those known by their first column."""
        there = {key(first) for first in known}
        made = (_fitted(body, row) for row in self._gathered.rows(body))
        return [row for row in made if key(_first(body, row)) not in there]

    def _items(self, body: Field) -> str:
        gathered = [one_line(text) for _, _, text in self._gathered.texts(body.origins)]
        texts = [text for text in gathered if not is_blank(text)] or [one_line(text) for text in body.default or ()]
        texts = [text for text in texts if not is_blank(text)]
        texts = texts[: body.most or _MOST_ROWS] + [UNKNOWN] * (body.least - len(texts))
        return "\n".join(f"- {text}" for text in texts) or "-"

    def _prose(self, body: Field) -> str:
        found = self._gathered.texts(body.origins)
        if not found:
            return f"{NOT_KNOWN} {MARK}: {one_line(body.test or _TEST)}"
        parts = [f"{quoted(text)}\n\n{FOUNDER if place == IDEA else f'From {place}.'}" for place, _, text in found]
        return "\n\n".join(parts) + f" {MARK}: {one_line(body.test or _TEST)}"

    def _value(self, field: Field) -> str:
        """What a bullet says: by its rule, why it does, from elsewhere, as it begins, or that nobody knows."""
        value, _ = self._decided.get(field.name, ("", ""))
        _, because = self._decided.get(field.because or "", ("", ""))
        before = self._said.get(field.name)
        before = {True: "yes", False: "no"}[before] if isinstance(before, bool) else before
        texts = [value, because, before, *(text for _, _, text in self._own.texts(field.origins)), field.default]
        told = (str(text) for text in texts if text is not None and text != "")
        return next((line for text in told if (line := _fitting(field, text))), _unanswered(field))


def decisions(contract: Contract, values: Mapping[str, Any]) -> Decided:
    """What the rules of a contract say to the values of a page: value and reason, by field."""
    found = {}
    for name, field in contract.field_by_name.items():
        if field.rule is not None and field.rule.table in values:
            decision = field.rule.decide(values[field.rule.table])
            found[name] = (decision.values[0] if decision.values else UNKNOWN, decision.because)
    return found


def _fitted(body: Field, row: Mapping[str, Any]) -> Row:
    """A row of texts that its columns can hold; where one cannot, it says what the column begins with."""
    texts = {column: str(row.get(column.name, "")) for column in body.columns}
    made = {column.name: _fitting(column, text) or _unanswered(column, body, text) for column, text in texts.items()}
    source = next((made[column.name] for column in body.columns if column.source), "")
    for column in body.columns:
        if column.proven and made[column.name] in column.proven and split_mark(source) is not None:
            made[column.name] = next((value for value in column.allowed if value not in column.proven), UNKNOWN)
    return made


def _fitting(column: Field, text: str) -> str:
    """A text as it stands in a cell, or nothing where the column cannot hold it; of a choice, the choice itself."""
    line = one_line(text)
    try:
        value = None if is_blank(line) else read_cell(column, plain_text(line))
    except Unfit:
        return ""
    if is_blank(line):
        return ""
    return str(value) if column.allowed and value is not None else line


def _unanswered(column: Field, body: Field | None = None, unfit: str = "") -> str:
    """What a cell says before anybody has filled it in; of a source that is none, that it is none."""
    if column.default is not None and (line := _fitting(column, str(column.default))):
        return line
    if column.source:
        test = one_line(column.test or (body.test if body is not None else "") or _TEST)
        said = one_line(unfit, _LONGEST_REMARK)
        return f"{MARK}: {test}" + ("" if is_blank(said) else f" ({said} is no source)")
    return UNKNOWN if column.required else ""


def _rank(column: Field, text: str) -> int:
    """Where a choice stands among those allowed; what nobody knows comes first."""
    return column.allowed.index(text) if text in column.allowed else -1


def _first(body: Field, row: Row) -> str:
    return answer(row[body.columns[0].name])
