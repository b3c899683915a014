"""Reading a reply by its contract: its values, what is wrong with them, and the decisions of its rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from haytham.contracts.markdown import (
    ReplyDocument,
    blocks,
    items,
    labelled_values,
    normalize_column,
    normalize_title,
    prose,
    tables,
)
from haytham.contracts.values import (
    MARK,
    UNKNOWN,
    InvalidCell,
    describe_field,
    is_blank,
    is_unknown,
    parse_value,
    split_assumption,
)
from haytham.errors import Problem, short_repr
from haytham.text import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from haytham.contracts.definition import ContractField, ContractSection
    from haytham.contracts.markdown import ReplySection, Table

Row = dict[str, Any]


@dataclass(frozen=True)
class RuleCase:
    """A value, and what a row must have for it; nothing for the last case."""

    then: str
    any: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class DecisionRule:
    """A table and how it decides: by cases, or by the highest sum of some columns."""

    table: str
    section: str
    titles: Mapping[str, str]
    cases: tuple[RuleCase, ...]
    highest: tuple[str, ...]
    take: str

    @property
    def words(self) -> str:
        """Return the rule in plain words."""
        if self.highest:
            added = " + ".join(self.titles[name] for name in self.highest)
            return (
                f"the {self.titles[self.take]} with the highest {added} in {self.section}, where all of them are known"
            )
        cases = [f"{case.then} if any row is {_words(case)}" if case.any else case.then for case in self.cases]
        return f"by {self.section}, {'; else '.join(cases)}"

    def decide(self, rows: list[Row]) -> RuleResult:
        """Return what the rule decides for the rows of its table."""
        return self._highest(rows) if self.highest else self._first_case(rows)

    def _first_case(self, rows: list[Row]) -> RuleResult:
        for case in self.cases:
            row = next((row for row in rows if _satisfies(case, row)), None)
            if row is not None:
                reasons = " and ".join(f"{self.titles[name]} is {row.get(name) or UNKNOWN}" for name, _ in case.any)
                return RuleResult((case.then,), f"{reasons}: {row.get(next(iter(self.titles))) or UNKNOWN}")
            if not case.any:
                return RuleResult((case.then,), "no other case of the rule applies")
        return RuleResult((), "no case of the rule applies")

    def _highest(self, rows: list[Row]) -> RuleResult:
        scored = [row for row in rows if row.get(self.take) and all(row.get(name) is not None for name in self.highest)]
        if not scored:
            return RuleResult((), f"no row of {self.section} has all its scores")
        sums = [sum(row[name] for name in self.highest) for row in scored]
        top = max(sums)
        best = [str(row[self.take]) for row, total in zip(scored, sums, strict=True) if total == top]
        added = ", ".join(
            f"{short_repr(row[self.take])} {total:g}" for row, total in zip(scored[:5], sums, strict=False)
        )
        return RuleResult(tuple(best), f"the sums are {added}")


@dataclass(frozen=True)
class RuleResult:
    """The values that a rule allows (none if it cannot decide yet), and why."""

    values: tuple[str, ...]
    because: str


def parse_rule(about: Mapping[str, Any], fields: Mapping[str, Any]) -> DecisionRule:
    """Parse an `x-rule`, with the column titles of its table."""
    table = fields[about["of"]]
    return DecisionRule(
        table=about["of"],
        section=table["x-location"],
        titles={name: cell["x-location"] for name, cell in table["items"]["properties"].items()},
        cases=tuple(RuleCase(case["then"], _conditions(case.get("any", {}))) for case in about.get("cases", ())),
        highest=tuple(about.get("highest", ())),
        take=about.get("take", ""),
    )


def _conditions(conditions: Mapping[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((name, (value,) if isinstance(value, str) else tuple(value)) for name, value in conditions.items())


def _satisfies(case: RuleCase, row: Row) -> bool:
    return bool(case.any) and all((row.get(name) or UNKNOWN) in values for name, values in case.any)


def _words(case: RuleCase) -> str:
    alternatives = (" or ".join(values) for _, values in case.any)
    return " and ".join(f"({words})" if " or " in words else words for words in alternatives)


FILE = "reply"
_MOST_COMPLAINTS = 8  # of one section: more say nothing new
_MOST_COUNTED = 1000  # then the rest of the section is not read
_TESTED = f"{MARK}: and the cheapest way to test it"


@dataclass
class ReplyValues:
    """The values of a reply by field, the line of each, and the problems."""

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def parse_reply(sections: tuple[ContractSection, ...], text: str, *, rules: bool = True) -> ReplyValues:
    """Read a reply, without checking decision rules if `rules` is false. No text makes this raise."""
    document = ReplyDocument(text, [section.name for section in sections])
    reply = ReplyValues()
    for section in sections:
        passages = document.sections.get(section.name)
        if passages is not None:
            reply.problems += _few(parse_section(section, passages, reply), section.name)
        elif section.required:
            reply.problems.append(_problem(f"the section is missing; {_hint(document, section)}", None, section.name))
    if rules:
        reply.problems += _broken_rules(sections, reply)
    return reply


def parse_section(section: ContractSection, passages: list[ReplySection], reply: ReplyValues) -> Iterator[Problem]:
    """Read a section into `reply`; return its problems."""
    if section.body is None:
        return _read_bullets(section, passages, reply)
    reply.lines[section.body.name] = passages[0].number
    return _READERS[section.body.form](section.body, passages, reply)


def describe_expected(body: ContractField) -> str:
    """Return what a section must have, in plain words."""
    least = f"at least {body.least} " if body.least else ""
    plural = "" if body.least == 1 and body.most is None else "s"
    most = f", at most {body.most}" if body.most is not None else ""
    if body.form == "prose":
        return f"text of {least}character{plural}" if least else "text"
    if body.form == "list":
        return f"a list (- …) of {least or 'any number of '}item{plural}{most}"
    head = " | ".join(column.title for column in body.columns if column.required)
    return f"a table | {head} | of {least or 'any number of '}row{plural}{most}"


def _read_prose(body: ContractField, passages: list[ReplySection], reply: ReplyValues) -> Iterator[Problem]:
    texts = [prose(passage, body.ask) for passage in passages]
    whole, own = ("\n\n".join(part for part in parts if part) for parts in zip(*texts, strict=True))
    reply.values[body.name] = whole
    marked, number = split_assumption(own), passages[0].number
    if marked is not None and not any(marked):
        yield _problem(f"found {MARK} without a test; allowed: {_TESTED}", number, body.section)
    elif marked is None and len(whole) < max(body.least, 1) and (whole or body.required):
        length = f"{len(whole)} character{'' if len(whole) == 1 else 's'}" if whole else "nothing"
        yield _problem(f"found {length}; allowed: {describe_expected(body)}, or {_TESTED}", number, body.section)


def _read_list(body: ContractField, passages: list[ReplySection], reply: ReplyValues) -> Iterator[Problem]:
    texts = [piece.text for passage in passages for piece in items(passage) if not is_blank(piece.text)]
    reply.values[body.name] = texts
    yield from _count(body, len(texts), "item", passages[0].number)


def _read_table(body: ContractField, passages: list[ReplySection], reply: ReplyValues) -> Iterator[Problem]:
    rows = reply.values[body.name] = []
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
        message = f"found the columns {short_repr(' | '.join(drawn[at].head))} without {', '.join(missing)}"
        yield _problem(f"{message}; allowed: {describe_expected(body)}", drawn[at].number, body.section)
    elif body.least and body.required:
        yield _problem(f"found no table; allowed: {describe_expected(body)}", passages[0].number, body.section)


def _lacking(table: Table, needed: list[ContractField]) -> list[str]:
    titles = {normalize_column(title) for title in table.head}
    return [column.title for column in needed if normalize_column(str(column.label)) not in titles]


def _read_rows(body: ContractField, table: Table, rows: list[dict[str, Any]]) -> Iterator[Problem]:
    """Read the rows of a table that has all columns; skip blank ones."""
    positions = {normalize_column(title): at for at, title in reversed(list(enumerate(table.head)))}
    seated = [(column, positions.get(normalize_column(str(column.label)))) for column in body.columns]
    for number, cells in table.rows:
        texts = {column: cells[at] if at < len(cells) else "" for column, at in seated if at is not None}
        if not all(is_blank(text) for text in texts.values()):
            row: dict[str, Any] = {}
            rows.append(row)
            yield from _read_cells(texts, row, number)


def _read_cells(texts: dict[ContractField, str], row: dict[str, Any], number: int) -> Iterator[Problem]:
    source = next((text for column, text in texts.items() if column.source), "")
    for column, text in texts.items():
        row[column.name] = None
        if column.required or not is_blank(text):
            try:
                row[column.name] = _read_value(column, text, source)
            except InvalidCell as error:
                yield _problem(str(error), number, column.section, column.title)


def _read_value(column: ContractField, text: str, source: str) -> Any:
    """Return the value of a cell or a bullet, given the source of its row or section."""
    value = parse_value(column, text)
    if value is not None and value in column.proven and split_assumption(source) is not None:
        allowed = ", ".join(choice for choice in column.allowed if choice not in column.proven)
        raise InvalidCell(
            f"found {short_repr(value)}, and {MARK} as its source; allowed: {allowed}, or a source that shows it"
        )
    return value


def _count(body: ContractField, count: int, noun: str, number: int) -> Iterator[Problem]:
    """Yield a problem if there are too few or too many items or rows."""
    too_few = count < body.least and (count or body.required)
    if too_few or (body.most is not None and count > body.most):
        counted = f"{count} {noun}{'' if count == 1 else 's'}"
        yield _problem(f"found {counted}; allowed: {describe_expected(body)}", number, body.section)


def _read_bullets(section: ContractSection, passages: list[ReplySection], reply: ReplyValues) -> Iterator[Problem]:
    by_label = {str(bullet_field.label): bullet_field for bullet_field in section.fields}
    texts: dict[ContractField, str] = {}
    for label, number, text in (row for passage in passages for row in labelled_values(passage, by_label)):
        bullet = by_label[label]
        if bullet in texts:
            message = f"found the label twice, first in line {reply.lines[bullet.name]}; allowed: once"
            yield _problem(message, number, section.name, bullet.title)
        else:
            texts[bullet], reply.lines[bullet.name] = text, number
    for bullet in section.fields:
        if bullet in texts:
            yield from _read_bullet(bullet, texts, reply)
        elif bullet.required:
            message = f"the label is missing; allowed: - {bullet.title}: {describe_field(bullet)}"
            yield _problem(message, passages[0].number, section.name, bullet.title)


def _read_bullet(bullet: ContractField, texts: dict[ContractField, str], reply: ReplyValues) -> Iterator[Problem]:
    source = next((text for other, text in texts.items() if other.source), "")
    if is_blank(texts[bullet]) and not bullet.required:
        return
    try:
        reply.values[bullet.name] = _read_value(bullet, texts[bullet], source)
    except InvalidCell as error:
        yield _problem(str(error), reply.lines[bullet.name], bullet.section, bullet.title)


def _broken_rules(sections: tuple[ContractSection, ...], reply: ReplyValues) -> Iterator[Problem]:
    """Yield a problem for each field that differs from what its rule decides; skip rules of faulty tables."""
    fields = {column.name: column for section in sections for column in section.fields}
    faulty = {problem.section for problem in reply.problems}
    for name, ruled in fields.items():
        if ruled.rule is None or name not in reply.values or ruled.rule.table not in reply.values:
            continue
        table = fields[ruled.rule.table]
        decision = ruled.rule.decide(reply.values[table.name])
        value_text = str(reply.values[name] or UNKNOWN)
        if table.section not in faulty and normalize_title(value_text) not in {
            normalize_title(value) for value in decision.values or (UNKNOWN,)
        }:
            by = " or ".join(short_repr(value) for value in decision.values) or UNKNOWN
            message = f"found {short_repr(value_text)}; by the rule it is {by}, as {decision.because}"
            yield _problem(message, reply.lines[name], ruled.section, ruled.title)


def _few(problems: Iterator[Problem], section: str) -> list[Problem]:
    """Return the first problems of a section, and how many more there are."""
    first = list(islice(problems, _MOST_COMPLAINTS))
    more = sum(1 for _ in islice(problems, _MOST_COUNTED))
    many = f"{more} or more" if more == _MOST_COUNTED else f"{more} more"
    return [*first, _problem(f"{many} faults like these", None, section)] if more else first


def _hint(document: ReplyDocument, section: ContractSection) -> str:
    """Return what to write for a missing section: its heading, and the one that nearly matches."""
    if document.open_fence is not None:
        return f"the code block that begins in line {document.open_fence} is never closed"
    titles = {normalize_title(heading.title): heading for heading in document.headings if heading.name is None}
    near = closest(normalize_title(section.name), filter(None, islice(titles, 200)), cutoff=0.7)
    near_miss = f", found {short_repr(titles[near].title)} in line {titles[near].at + 1}" if near else ""
    body = section.body
    what = "" if body is None else f" and {describe_expected(body)}"
    return f"allowed: a heading ## {section.name}{what}{near_miss}"


def _problem(message: str, line: int | None, section: str, label: str | None = None) -> Problem:
    return Problem(message, line, section, label, file=FILE)


_READERS: dict[str, Callable[[ContractField, list[ReplySection], ReplyValues], Iterator[Problem]]] = {
    "prose": _read_prose,
    "list": _read_list,
    "table": _read_table,
}


SOURCE = "Source"


@dataclass(frozen=True)
class Claim:
    """A claim: its section, line and text, and either its source or, for an assumption, the cheapest test."""

    section: str
    line: int
    text: str
    source: str | None
    test: str | None

    @property
    def is_assumption(self) -> bool:
        """Return whether it has no source yet."""
        return self.source is None


def claims(text: str, sources: Collection[str] = (SOURCE,)) -> list[Claim]:
    """Return the claims of a text: rows with a source column, and everything marked; not in quotes and code."""
    titles = {normalize_column(source) for source in sources}
    listed = [
        claim
        for passage in ReplyDocument(text).all_sections()
        for claim in (*_in_tables(passage, titles), *_in_pieces(passage, titles))
    ]
    return sorted(listed, key=lambda claim: claim.line)


def _in_tables(passage: ReplySection, titles: Collection[str]) -> Iterator[Claim]:
    for table in tables(passage):
        column = next((at for at, title in enumerate(table.head) if normalize_column(title) in titles), None)
        for number, cells in table.rows:
            source = cells[column] if column is not None and column < len(cells) else ""
            marked = next((mark for cell in (source, *cells) if (mark := split_assumption(cell)) is not None), None)
            if marked is not None:
                yield Claim(passage.heading.title, number, _claimed(cells[0], marked[0]), None, marked[1])
            elif source and not is_blank(source) and not is_blank(cells[0]):
                yield Claim(passage.heading.title, number, cells[0], source, None)


def _claimed(first: str, before: str) -> str:
    """Return what an assumption is about: the first cell of its row, or the text before the mark."""
    if split_assumption(first) is not None:
        return before
    return "" if is_blank(first) or is_unknown(first) else first


def _in_pieces(passage: ReplySection, titles: Collection[str]) -> Iterator[Claim]:
    for piece in blocks(passage):
        marked = split_assumption(piece.text)
        if marked is not None:
            is_empty = is_unknown(marked[0]) or normalize_column(marked[0]) in titles  # - Source: ASSUMPTION: …
            yield Claim(passage.heading.title, piece.number, "" if is_empty else marked[0], None, marked[1])
