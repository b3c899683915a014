"""What a reply says to a contract: the values found, and every complaint, exact enough to mend it by."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from haytham.contract.block import column_key, items, labels, prose, tables
from haytham.contract.cell import MARK, UNKNOWN, Unfit, describe, is_blank, read_cell, split_mark
from haytham.contract.page import Page, key
from haytham.errors import Problem, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from haytham.contract.block import Table
    from haytham.contract.field import Field, Section
    from haytham.contract.page import Passage

FILE = "reply"
_MOST_COMPLAINTS = 8  # of one section: more say nothing new
_MOST_COUNTED = 1000  # then the rest of the section is not read
_TESTED = f"{MARK}: and the cheapest way to test it"


@dataclass
class Found:
    """The values of a reply by field, where each stands, and what is wrong."""

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_reply(sections: tuple[Section, ...], text: str, *, rules: bool = True) -> Found:
    """Read a reply, without its rules where `rules` is false: nothing in it makes this raise."""
    page = Page(text, [section.name for section in sections])
    found = Found()
    for section in sections:
        passages = page.passages.get(section.name)
        if passages is not None:
            found.problems += _few(read_section(section, passages, found), section.name)
        elif section.required:
            found.problems.append(_problem(f"the section is missing; {_hint(page, section)}", None, section.name))
    if rules:
        found.problems += _broken_rules(sections, found)
    return found


def read_section(section: Section, passages: list[Passage], found: Found) -> Iterator[Problem]:
    """Read the passages of a section into what was found; what is wrong with them."""
    if section.body is None:
        return _read_bullets(section, passages, found)
    found.lines[section.body.name] = passages[0].number
    return _READERS[section.body.form](section.body, passages, found)


def wanted(body: Field) -> str:
    """What a section must hold, in a person's words."""
    least = f"at least {body.least} " if body.least else ""
    plural = "" if body.least == 1 and body.most is None else "s"
    most = f", at most {body.most}" if body.most is not None else ""
    if body.form == "prose":
        return f"text of {least}character{plural}" if least else "text"
    if body.form == "list":
        return f"a list (- …) of {least or 'any number of '}item{plural}{most}"
    head = " | ".join(column.title for column in body.columns if column.required)
    return f"a table | {head} | of {least or 'any number of '}row{plural}{most}"


def _read_prose(body: Field, passages: list[Passage], found: Found) -> Iterator[Problem]:
    said = [prose(passage, body.ask) for passage in passages]
    whole, own = ("\n\n".join(part for part in parts if part) for parts in zip(*said, strict=True))
    found.values[body.name] = whole
    marked, number = split_mark(own), passages[0].number
    if marked is not None and not any(marked):
        yield _problem(f"found {MARK} without a test; allowed: {_TESTED}", number, body.section)
    elif marked is None and len(whole) < max(body.least, 1) and (whole or body.required):
        had = f"{len(whole)} character{'' if len(whole) == 1 else 's'}" if whole else "nothing"
        yield _problem(f"found {had}; allowed: {wanted(body)}, or {_TESTED}", number, body.section)


def _read_list(body: Field, passages: list[Passage], found: Found) -> Iterator[Problem]:
    said = [piece.text for passage in passages for piece in items(passage) if not is_blank(piece.text)]
    found.values[body.name] = said
    yield from _count(body, len(said), "item", passages[0].number)


def _read_table(body: Field, passages: list[Passage], found: Found) -> Iterator[Problem]:
    rows = found.values[body.name] = []
    needed = [column for column in body.columns if column.required]
    drawn = [table for passage in passages for table in tables(passage)]
    lacking = [_lacking(table, needed) for table in drawn]
    fitting = [table for table, missing in zip(drawn, lacking, strict=True) if not missing]
    for table in fitting:
        yield from _read_rows(body, table, rows)
    if fitting:
        yield from _count(body, len(rows), "row", fitting[0].number)
    elif drawn:
        missing, at = min((missing, at) for at, missing in enumerate(lacking))
        said = f"found the columns {quote(' | '.join(drawn[at].head))} without {', '.join(missing)}"
        yield _problem(f"{said}; allowed: {wanted(body)}", drawn[at].number, body.section)
    elif body.least and body.required:
        yield _problem(f"found no table; allowed: {wanted(body)}", passages[0].number, body.section)


def _lacking(table: Table, needed: list[Field]) -> list[str]:
    there = {column_key(title) for title in table.head}
    return [column.title for column in needed if column_key(str(column.label)) not in there]


def _read_rows(body: Field, table: Table, rows: list[dict[str, Any]]) -> Iterator[Problem]:
    """Read the rows of a table that has all columns; one in which nothing stands is none."""
    places = {column_key(title): at for at, title in reversed(list(enumerate(table.head)))}
    seated = [(column, places.get(column_key(str(column.label)))) for column in body.columns]
    for number, cells in table.rows:
        texts = {column: cells[at] if at < len(cells) else "" for column, at in seated if at is not None}
        if not all(is_blank(text) for text in texts.values()):
            row: dict[str, Any] = {}
            rows.append(row)
            yield from _read_cells(texts, row, number)


def _read_cells(texts: dict[Field, str], row: dict[str, Any], number: int) -> Iterator[Problem]:
    source = next((text for column, text in texts.items() if column.source), "")
    for column, text in texts.items():
        row[column.name] = None
        if column.required or not is_blank(text):
            try:
                row[column.name] = _read_value(column, text, source)
            except Unfit as error:
                yield _problem(str(error), number, column.section, column.title)


def _read_value(column: Field, text: str, source: str) -> Any:
    """The value of a cell or a bullet beside the source of its row or section."""
    value = read_cell(column, text)
    if value is not None and value in column.proven and split_mark(source) is not None:
        allowed = ", ".join(choice for choice in column.allowed if choice not in column.proven)
        raise Unfit(f"found {quote(value)}, and {MARK} as its source; allowed: {allowed}, or a source that shows it")
    return value


def _count(body: Field, count: int, noun: str, number: int) -> Iterator[Problem]:
    """Whether there are as many items or rows as allowed."""
    too_few = count < body.least and (count or body.required)
    if too_few or (body.most is not None and count > body.most):
        had = f"{count} {noun}{'' if count == 1 else 's'}"
        yield _problem(f"found {had}; allowed: {wanted(body)}", number, body.section)


def _read_bullets(section: Section, passages: list[Passage], found: Found) -> Iterator[Problem]:
    by_label = {str(one.label): one for one in section.fields}
    texts: dict[Field, str] = {}
    for label, number, text in (said for passage in passages for said in labels(passage, by_label)):
        bullet = by_label[label]
        if bullet in texts:
            message = f"found the label twice, first in line {found.lines[bullet.name]}; allowed: once"
            yield _problem(message, number, section.name, bullet.title)
        else:
            texts[bullet], found.lines[bullet.name] = text, number
    for bullet in section.fields:
        if bullet in texts:
            yield from _read_bullet(bullet, texts, found)
        elif bullet.required:
            message = f"the label is missing; allowed: - {bullet.title}: {describe(bullet)}"
            yield _problem(message, passages[0].number, section.name, bullet.title)


def _read_bullet(bullet: Field, texts: dict[Field, str], found: Found) -> Iterator[Problem]:
    source = next((text for other, text in texts.items() if other.source), "")
    if is_blank(texts[bullet]) and not bullet.required:
        return
    try:
        found.values[bullet.name] = _read_value(bullet, texts[bullet], source)
    except Unfit as error:
        yield _problem(str(error), found.lines[bullet.name], bullet.section, bullet.title)


def _broken_rules(sections: tuple[Section, ...], found: Found) -> Iterator[Problem]:
    """The fields that a rule decides and that say something else; where its table is wrong, that comes first."""
    fields = {one.name: one for section in sections for one in section.fields}
    faulty = {problem.section for problem in found.problems}
    for name, ruled in fields.items():
        if ruled.rule is None or name not in found.values or ruled.rule.table not in found.values:
            continue
        table = fields[ruled.rule.table]
        decision = ruled.rule.decide(found.values[table.name])
        said = str(found.values[name] or UNKNOWN)
        if table.section not in faulty and key(said) not in {key(value) for value in decision.values or (UNKNOWN,)}:
            by = " or ".join(quote(value) for value in decision.values) or UNKNOWN
            message = f"found {quote(said)}; by the rule it is {by}, as {decision.because}"
            yield _problem(message, found.lines[name], ruled.section, ruled.title)


def _few(problems: Iterator[Problem], section: str) -> list[Problem]:
    """The first problems of a section, and how many more there are."""
    kept = list(islice(problems, _MOST_COMPLAINTS))
    more = sum(1 for _ in islice(problems, _MOST_COUNTED))
    many = f"{more} or more" if more == _MOST_COUNTED else f"{more} more"
    return [*kept, _problem(f"{many} faults like these", None, section)] if more else kept


def _hint(page: Page, section: Section) -> str:
    """What to write where a section is missing: its heading, or what nearly is one."""
    if page.open_fence is not None:
        return f"the code block that begins in line {page.open_fence} is never closed"
    titles = {key(heading.title): heading for heading in page.headings if heading.name is None}
    near = difflib.get_close_matches(
        key(section.name), [title for title in islice(titles, 200) if title], n=1, cutoff=0.7
    )
    had = f", found {quote(titles[near[0]].title)} in line {titles[near[0]].at + 1}" if near else ""
    body = section.body
    what = "" if body is None else f" and {wanted(body)}"
    return f"allowed: a heading ## {section.name}{what}{had}"


def _problem(message: str, line: int | None, section: str, label: str | None = None) -> Problem:
    return Problem(message, line, section, label, file=FILE)


_READERS: dict[str, Callable[[Field, list[Passage], Found], Iterator[Problem]]] = {
    "prose": _read_prose,
    "list": _read_list,
    "table": _read_table,
}
