"""A contract for whom it asks: an outline for a person to fill in, and a description for a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.contract.cell import MARK, SOURCE_WORDS, UNKNOWN, describe
from haytham.contract.reading import wanted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from haytham.contract.field import Field, Section

_RULES = (
    f"A cell that nobody can fill is {UNKNOWN}. A number is one number, never a range. A source is {SOURCE_WORDS}. The "
    "founder's words are no source, and neither are yours. In prose, too, what is not shown is followed by "
    f"{MARK}: and the cheapest test."
)


def outline(sections: tuple[Section, ...]) -> str:
    """The page before anybody has answered: headings, what is asked in quotes, heads of tables and empty rows."""
    parts = [part for section in sections for part in (f"## {section.name}", asked(section), _empty(section)) if part]
    return "\n\n".join(parts) + "\n"


def asked(section: Section) -> str:
    """What a section asks, as a quote, and what its cells may hold where that is not plain."""
    body = section.body
    cells = section.fields if body is None else body.columns
    legend = [f"> - {words}" for cell in cells if (words := _words(cell))]
    lines = [f"> {body.ask}"] if body is not None and body.ask else []
    return "\n".join([*lines, *([">"] if lines and legend else []), *legend])


def _words(cell: Field) -> str:
    """What a column or a bullet asks for and may hold, in short; nothing where its title says it all."""
    allowed = ", ".join(cell.allowed)
    if cell.minimum is not None and cell.maximum is not None:
        allowed = f"{cell.minimum:g} to {cell.maximum:g}"
    name = f"{cell.label} ({allowed})" if allowed else str(cell.label)
    said = [cell.ask] if cell.ask else []
    said += [f"The rule: {cell.rule.words}."] if cell.rule is not None else []
    return f"{name}: {' '.join(said)}" if said else name if allowed else ""


def table(body: Field, rows: Sequence[Mapping[str, str]]) -> str:
    """A table: its head and the texts of its cells by column."""
    lines = [" | ".join(column.title for column in body.columns), " | ".join("---" for _ in body.columns)]
    lines += [" | ".join(row.get(column.name, "") for column in body.columns) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def bullets(section: Section, values: Mapping[str, str]) -> str:
    """The bullets of a section."""
    return "\n".join(f"- {field.title}: {values.get(field.name, '')}".rstrip() for field in section.fields)


def _empty(section: Section) -> str:
    body = section.body
    if body is None:
        return bullets(section, {})
    if body.form == "table":
        return table(body, [{}])
    return "\n".join("-" for _ in range(max(body.least, 1))) if body.form == "list" else ""


def description(sections: tuple[Section, ...]) -> str:
    """What a reply must hold, for whom or what writes it."""
    head = "Write Markdown with these sections under these very headings; other text is welcome around them."
    return "\n\n".join([head, *(_described(section) for section in sections), _RULES]) + "\n"


def _described(section: Section) -> str:
    """A section: its heading, its form, its question, and what its cells may hold where their titles do not say it."""
    body = section.body
    optional = "" if section.required else ", or leave it out"
    if body is None:
        lines = [f"One line each{optional}:", *(f"- {_bullet(field)}" for field in section.fields)]
        return "\n".join([f"## {section.name}", *lines])
    form = wanted(body)
    lines = [f"{form[0].upper()}{form[1:]}{optional}. {body.ask}".rstrip()]
    lines += [f"- {words}" for column in body.columns if (words := _column(column))]
    return "\n".join([f"## {section.name}", *lines])


def _column(column: Field) -> str:
    types = {"integer": "a whole number", "boolean": "yes or no", "number": "a number"}
    words = _words(column) or (f"{column.title}: {types[column.type]}" if column.type in types else "")
    return words + (f"; {' and '.join(column.proven)} only with a source that shows it" if column.proven else "")


def _bullet(field: Field) -> str:
    words = _words(field) or f"{field.title}: {'the source' if field.source else describe(field)}"
    return words if field.required else f"{words} (may be left out)"
