"""A contract: read from its JSON, and rendered for people and prompts.

`x-location` states where a field is in a reply: `Problem` is a whole section (prose for a string, a list for strings, a
table for objects), `Verdict / Decision` is the bullet *Decision* under *Verdict*.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from haytham.config.wording import CURRENCY, USUAL, Wording
from haytham.contracts import check
from haytham.contracts.check import DecisionRule, describe_expected, parse_reply, parse_rule
from haytham.contracts.lint import Form, field_form, validate_definition
from haytham.contracts.markdown import ReplyDocument
from haytham.contracts.values import MARK, SOURCE_WORDS, UNKNOWN, describe_field
from haytham.errors import InvalidArgument, InvalidDocument, NotFound, Problem, short_repr
from haytham.resources import resource_path
from haytham.yaml_loader import InvalidYaml, load_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from haytham.contracts.check import Claim
    from haytham.contracts.lint import Path


@dataclass(frozen=True)
class PrefillSource:
    """Where a worksheet looks in earlier texts: a section, which of its rows, and what to copy from them.

    `take` maps a column to a column by name, or to a pattern like `ASSUMPTION: {Cheapest test}`; columns with equal
    titles need no entry. The sections `idea` and `assumptions` stand for the idea, and for everything marked.
    """

    section: str
    label: str | None
    where: tuple[tuple[str, tuple[str, ...]], ...]
    take: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class ContractField:
    """A field: its location, form and type, its limits, and what the page asks before it is answered.

    `least` and `most` count characters of text, items of a list or rows of a table. `source` marks the column with the
    source of the numbers beside it, `chosen` a number that is decided and needs no source, `proven` the values that
    need a source.
    """

    name: str
    section: str
    label: str | None
    form: Form
    type: str
    required: bool
    ask: str
    test: str
    allowed: tuple[str, ...]
    unit: str
    currency: str
    least: int
    most: int | None
    minimum: float | None
    maximum: float | None
    source: bool
    chosen: bool
    proven: tuple[str, ...]
    default: Any
    sort: tuple[str, ...]
    because: str | None
    rule: DecisionRule | None
    origins: tuple[PrefillSource, ...]
    columns: tuple[ContractField, ...]

    @cached_property
    def title(self) -> str:
        """Return the title of the column or the label of the bullet, with the unit if it does not name one."""
        name = self.label or self.section
        return f"{name} ({self.unit})" if self.unit and "(" not in name else name

    @property
    def is_money(self) -> bool:
        """Whether the number is an amount of money."""
        return self.unit in (CURRENCY, self.currency)

    @cached_property
    def column_by_name(self) -> dict[str, ContractField]:
        """Return the columns of a table by name."""
        return {column.name: column for column in self.columns}


@dataclass(frozen=True, eq=False)
class ContractSection:
    """A section of a reply and its fields: bullets, or one field that fills it."""

    name: str
    fields: tuple[ContractField, ...]

    @property
    def body(self) -> ContractField | None:
        """Return the field that fills the section, or None."""
        return self.fields[0] if self.fields[0].label is None else None

    @property
    def required(self) -> bool:
        """Return whether the section is required."""
        return any(field.required for field in self.fields)


def parse_sections(schema: Mapping[str, Any], currency: str) -> tuple[ContractSection, ...]:
    """Return the sections of a contract, in the order of its schema."""
    required = schema.get("required", ())
    grouped: dict[str, list[ContractField]] = {}
    for name, about in schema["properties"].items():
        rule = parse_rule(about["x-rule"], schema["properties"]) if "x-rule" in about else None
        known: dict[str, Any] = {"required": name in required, "currency": currency}
        field = _field(name, about, about["x-location"], **known, rule=rule)
        grouped.setdefault(field.section, []).append(field)
    return tuple(ContractSection(name, tuple(fields)) for name, fields in grouped.items())


def parse_origin(said: Any) -> PrefillSource:
    """Parse an `x-from`: a location, or a map of a location, the rows to use and what to copy from them."""
    about = {"from": said} if isinstance(said, str) else said
    section, _, label = about["from"].partition(" / ")
    where = ((title, (value,) if isinstance(value, str) else tuple(value)) for title, value in _pairs(about, "where"))
    return PrefillSource(section, label or None, tuple(where), tuple(_pairs(about, "take")))


def _pairs(about: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    mapping = about.get(name, {})
    return list({"": mapping}.items() if isinstance(mapping, str) else mapping.items())


def _field(  # noqa: PLR0913 - what is known of a field
    name: str,
    about: Mapping[str, Any],
    location: str,
    *,
    required: bool,
    currency: str,
    rule: DecisionRule | None = None,
) -> ContractField:
    section, _, label = location.partition(" / ")
    items = about.get("items", {})
    origins = about.get("x-from", [])
    return ContractField(
        name=name,
        section=section,
        label=label or None,
        form=field_form(about, is_bullet=bool(label)),
        type=items.get("type", about["type"]),
        required=required,
        ask=about.get("x-ask", ""),
        test=about.get("x-test", ""),
        allowed=tuple(about.get("enum", ())),
        unit=about.get("x-unit", ""),
        currency=currency,
        least=about.get("minItems", about.get("minLength", 0)),
        most=about.get("maxItems"),
        minimum=about.get("minimum"),
        maximum=about.get("maximum"),
        source=about.get("x-source", False),
        chosen=about.get("x-choice", False),
        proven=tuple(about.get("x-proven", ())),
        default=about.get("default"),
        sort=tuple(about.get("x-sort", ())),
        because=about.get("x-because"),
        rule=rule,
        origins=tuple(parse_origin(origin) for origin in (origins if isinstance(origins, list) else [origins])),
        columns=_columns(section, items, currency),
    )


def _columns(section: str, items: Mapping[str, Any], currency: str) -> tuple[ContractField, ...]:
    required = items.get("required", ())
    cells = items.get("properties", {}).items()
    return tuple(
        _field(key, cell, f"{section} / {cell['x-location']}", required=key in required, currency=currency)
        for key, cell in cells
    )


def _rules(wording: Wording) -> str:
    """Return what holds for every cell, source and claim."""
    return (
        f"A cell that nobody can fill is {UNKNOWN}. A number is one number, never a range. A source is {SOURCE_WORDS}. "
        f"The {wording.author}'s words are no source, and neither are yours. In prose, too, what is not shown is "
        f"followed by {MARK}: and the cheapest test."
    )


def template(sections: tuple[ContractSection, ...]) -> str:
    """Return the page before it is filled in: headings, questions as quotes, table heads and empty rows."""
    parts = [
        part
        for section in sections
        for part in (f"## {section.name}", render_questions(section), _empty(section))
        if part
    ]
    return "\n\n".join(parts) + "\n"


def render_questions(section: ContractSection) -> str:
    """Return the questions of a section as a quote, with the allowed values that are not obvious."""
    body = section.body
    cells = section.fields if body is None else body.columns
    legend = [f"> - {words}" for cell in cells if (words := _words(cell))]
    lines = [f"> {body.ask}"] if body is not None and body.ask else []
    return "\n".join([*lines, *([">"] if lines and legend else []), *legend])


def _words(cell: ContractField) -> str:
    """Return what a column or a bullet asks for and allows; empty if its title says it all."""
    allowed = ", ".join(cell.allowed)
    if cell.minimum is not None and cell.maximum is not None:
        allowed = f"{cell.minimum:g} to {cell.maximum:g}"
    name = f"{cell.label} ({allowed})" if allowed else str(cell.label)
    sentences = [cell.ask] if cell.ask else []
    sentences += [f"The rule: {cell.rule.words}."] if cell.rule is not None else []
    return f"{name}: {' '.join(sentences)}" if sentences else name if allowed else ""


def table(body: ContractField, rows: Sequence[Mapping[str, str]]) -> str:
    """Return a Markdown table: the head, and the texts of each row by column."""
    lines = [" | ".join(column.title for column in body.columns), " | ".join("---" for _ in body.columns)]
    lines += [" | ".join(row.get(column.name, "") for column in body.columns) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def bullets(section: ContractSection, values: Mapping[str, str]) -> str:
    """Return the bullets of a section."""
    return "\n".join(f"- {field.title}: {values.get(field.name, '')}".rstrip() for field in section.fields)


def _empty(section: ContractSection) -> str:
    body = section.body
    if body is None:
        return bullets(section, {})
    if body.form == "table":
        return table(body, [{}])
    return "\n".join("-" for _ in range(max(body.least, 1))) if body.form == "list" else ""


def prompt_text(sections: tuple[ContractSection, ...], wording: Wording) -> str:
    """Return what a reply must have, for a prompt."""
    head = "Write Markdown with these sections under these very headings; other text is welcome around them."
    return "\n\n".join([head, *(_described(section) for section in sections), _rules(wording)]) + "\n"


def _described(section: ContractSection) -> str:
    """Return a section for a prompt: heading, form, question, and the allowed values of its cells."""
    body = section.body
    optional = "" if section.required else ", or leave it out"
    if body is None:
        lines = [f"One line each{optional}:", *(f"- {_bullet(field)}" for field in section.fields)]
        return "\n".join([f"## {section.name}", *lines])
    form = describe_expected(body)
    lines = [f"{form[0].upper()}{form[1:]}{optional}. {body.ask}".rstrip()]
    lines += [f"- {words}" for column in body.columns if (words := _column(column))]
    return "\n".join([f"## {section.name}", *lines])


def _column(column: ContractField) -> str:
    types = {"integer": "a whole number", "boolean": "yes or no", "number": "a number"}
    words = _words(column) or (f"{column.title}: {types[column.type]}" if column.type in types else "")
    return words + (f"; {' and '.join(column.proven)} only with a source that shows it" if column.proven else "")


def _bullet(field: ContractField) -> str:
    words = _words(field) or f"{field.title}: {'the source' if field.source else describe_field(field)}"
    return words if field.required else f"{words} (may be left out)"


FOLDER = "contracts"
VERSION = 1
_MOST_BYTES = 256 * 1024
_MOST_FAULTS = 50
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, eq=False)
class Contract:
    """What a reply must have: sections with fields. `recall`: what a worksheet repeats from earlier texts."""

    name: str
    about: str
    sections: tuple[ContractSection, ...]
    recall: tuple[PrefillSource, ...]
    wording: Wording

    @cached_property
    def field_by_name(self) -> dict[str, ContractField]:
        """Return the fields by name."""
        return {field.name: field for section in self.sections for field in section.fields}

    def validate(self, text: str, *, accepted: str = "") -> list[Problem]:
        """Return the problems of a reply: section, label and line, what was found and what is allowed.

        Problems that the `accepted` text also has are skipped, since a person wrote them; broken rules are not.
        """
        problems = parse_reply(self.sections, text).problems
        if not problems or not accepted:
            return problems
        written = ReplyDocument(accepted, [section.name for section in self.sections]).sections
        sections = tuple(section for section in self.sections if section.name in written)
        accepted_faults = {_fault(problem) for problem in parse_reply(sections, accepted, rules=False).problems}
        return [problem for problem in problems if _fault(problem) not in accepted_faults]

    def parse(self, text: str) -> dict[str, Any]:
        """Return the values of a reply by field, as far as they could be read; None for unknown."""
        return parse_reply(self.sections, text).values

    def claims(self, text: str) -> list[Claim]:
        """Return the claims of a reply, each with its source, or with the cheapest test of an assumption."""
        cells = (cell for section in self.sections for field in section.fields for cell in (field, *field.columns))
        return check.claims(text, {check.SOURCE, *(str(cell.label) for cell in cells if cell.source)})

    def template(self) -> str:
        """Return the page before it is filled in."""
        return template(self.sections)

    def prompt_text(self) -> str:
        """Return what a reply must have, for a prompt."""
        return prompt_text(self.sections, self.wording)


def _fault(problem: Problem) -> tuple[str | None, str | None, str]:
    return problem.section, problem.label, problem.message


def load_contract(name: str, own: Mapping[str, bytes] | None = None, wording: Wording = USUAL) -> Contract:
    """Return a contract by name, in the words of its workflow: from the workflow's files, else the shipped one."""
    if _NAME.fullmatch(name) is None:
        raise InvalidArgument("contract", name, "a name in small letters, digits, - and _")
    data = (own or {}).get(contract_file(name))
    return _shipped(name, wording) if data is None else parse_contract(name, data, wording)


def contract_file(name: str) -> str:
    """Return the path of a contract's file in a workflow's folder."""
    return f"{FOLDER}/{name}.json"


@lru_cache(maxsize=64)
def _shipped(name: str, wording: Wording) -> Contract:
    path = resource_path("schemas", FOLDER, f"{name}.json")
    if not path.is_file():
        raise NotFound(
            f"contract {name}", f"{contract_file(name)} in the workflow's folder, nor among the shipped ones"
        )
    return parse_contract(name, path.read_bytes(), wording)


@lru_cache(maxsize=64)
def parse_contract(name: str, data: bytes, wording: Wording = USUAL) -> Contract:
    """Read a contract from its JSON; InvalidDocument with every fault, its line and key."""
    text, schema = _load(name, data, wording)
    faults = list(islice(validate_definition(schema), _MOST_FAULTS)) or _version_faults(name, schema)
    if faults:
        lines = _lines(text)
        raise InvalidDocument([_problem(name, message, _line(lines, path), path) for path, message in faults])
    recall = schema.get("x-recall", [])
    origins = tuple(parse_origin(origin) for origin in (recall if isinstance(recall, list) else [recall]))
    return Contract(name, schema.get("description", ""), parse_sections(schema, wording.currency), origins, wording)


def _version_faults(name: str, schema: Mapping[str, Any]) -> list[tuple[Path, str]]:
    """Return faults of the name and format version."""
    stated, own = schema.get("x-contract"), f"{name}/{VERSION}"
    return [] if stated in (None, own) else [(("x-contract",), f"found {short_repr(stated)}; allowed: {own}")]


def _load(name: str, data: bytes, wording: Wording) -> tuple[str, Any]:
    if len(data) > _MOST_BYTES:
        raise InvalidDocument([_problem(name, f"has {len(data):,} bytes; allowed: {_MOST_BYTES:,}", 1)])
    try:
        text = wording.fill(data.decode("utf-8-sig"))
        return text, json.loads(text, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        raise InvalidDocument([_problem(name, f"is not valid JSON: {error.msg}", error.lineno)]) from None
    except (ValueError, RecursionError) as error:
        raise InvalidDocument([_problem(name, f"is not valid JSON: {error}", 1)]) from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique: dict[str, Any] = {}
    for key, value in pairs:
        if key in unique:
            raise ValueError(f"found the key {key[:80]} twice; allowed: once")
        unique[key] = value
    return unique


def _lines(text: str) -> dict[Path, int]:
    """Return the line of every key, read as YAML; empty if the JSON is not valid YAML."""
    try:
        return load_yaml(text)[1]
    except InvalidYaml:
        return {}


def _line(lines: Mapping[Path, int], path: Path) -> int:
    """Return the line of a key, or of the nearest map around it."""
    for end in range(len(path), -1, -1):
        if path[:end] in lines:
            return lines[path[:end]]
    return 1


def _problem(name: str, message: str, line: int, path: Path = ()) -> Problem:
    dotted = ".".join(str(part) for part in path)
    return Problem(message, line, label=dotted or None, file=contract_file(name))
