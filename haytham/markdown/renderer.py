"""Value to Markdown: a Jinja template gives the look, `finalize` does all encoding, and what was drawn is read back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from haytham.errors import InvalidDocument, Problem
from haytham.markdown import frontmatter
from haytham.markdown.check import validate
from haytham.markdown.codec import NOTHING, encode, encode_key, encode_text, escape_prose, fence
from haytham.markdown.parser import ParseResult, parse
from haytham.resources import resource_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jinja2 import Template

    from haytham.markdown.schema import DocumentSchema, Field


class Markdown(str):
    """Text that is Markdown already; all other values are encoded where a template puts them."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class BoundField:
    """A field's value on its way into a template; `finalize` makes it Markdown."""

    kind: DocumentSchema
    field: Field
    value: Any


@dataclass(frozen=True, slots=True)
class RenderedSection:
    """A section as a template sees it: its name, and its seats, which `finalize` makes Markdown."""

    name: Markdown
    fields: list[BoundField]


def render(kind: DocumentSchema, value: Mapping[str, Any], shown: Mapping[str, Any] | None = None) -> str:
    """Draw a document; raise InvalidDocument where the value does not satisfy its kind."""
    return render_verified(kind, value, shown)[0]


def render_verified(
    kind: DocumentSchema, value: Mapping[str, Any], shown: Mapping[str, Any] | None = None, *, check: bool = True
) -> tuple[str, ParseResult]:
    """Draw a document and read it back: what does not come back as it went in is refused.

    Without `check` the value is taken to satisfy its kind: for who has just seen to that.
    """
    if check:
        check_value(kind, value)
    text = _draw(kind, value, {**(shown or {}), **value})
    back = parse(kind, text, check=False)
    if back.problems:
        raise InvalidDocument([problem.with_file(f"{kind.name} as drawn") for problem in back.problems])
    if dict(back.value) != dict(value):
        wrong = sorted(name for name in value.keys() | back.value.keys() if value.get(name) != back.value.get(name))
        raise InvalidDocument(
            [Problem(f"{', '.join(wrong)} would not read back as given", file=f"{kind.name} as drawn")]
        )
    if back.rendered_digest is None:
        return text, back
    line = f"\n{frontmatter.SHOWN}: {{}}\n"
    sealed = text.replace(line.format(frontmatter.UNKNOWN), line.format(back.derived_digest), 1)
    return sealed, replace(back, rendered_digest=back.derived_digest)


def check_value(kind: DocumentSchema, value: Mapping[str, Any]) -> None:
    """Raise InvalidDocument where a value does not satisfy its kind."""
    faults = [_problem(kind, name, message) for name, message in validate(kind, value)]
    if faults:
        raise InvalidDocument(faults)


def _problem(kind: DocumentSchema, name: str, message: str) -> Problem:
    field = kind.field_by_name.get(name)
    section, label = field.place if field is not None else (None, name)
    return Problem(message, section=section, label=label, file=kind.name)


def _draw(kind: DocumentSchema, value: Mapping[str, Any], drawn: Mapping[str, Any]) -> str:
    seats = {field.name: BoundField(kind, field, drawn.get(field.name)) for field in kind.fields}
    sections = [
        RenderedSection(Markdown(section.name), [seats[field.name] for field in section.fields])
        for section in kind.sections
        if section.required or section.has_value(value)
    ]
    front = frontmatter.render_front_matter(kind, value, keep_newlines=_holds_cr(kind, value))
    title = _title(kind, drawn)
    return _template(kind.name).render(seats, header=Markdown(front), title=title, sections=sections, value=value)


def _title(kind: DocumentSchema, drawn: Mapping[str, Any]) -> Markdown:
    words, name = kind.title_parts
    if name is None:
        return Markdown(words)
    value = drawn.get(name)
    return Markdown(f"{words} {NOTHING if value is None else encode_text(str(value))}")


def _holds_cr(kind: DocumentSchema, value: Mapping[str, Any]) -> bool:
    """Whether content as it will stand in the file holds a CR, which a change of line endings would lose."""
    forms = ("prose", "verbatim", "code")
    return any("\r" in value[field.name] for field in kind.fields if field.form in forms and field.name in value)


def _finalize(value: Any) -> str:
    """What Jinja calls on every value a template puts out."""
    if isinstance(value, Markdown):
        return value
    if isinstance(value, RenderedSection):
        return _section(value.fields)
    if isinstance(value, BoundField):
        return _BODIES[value.field.form](value)
    return NOTHING if value is None else encode_text(str(value))


def _section(seats: list[BoundField]) -> str:
    """All under a heading, line ends included: bullets, or the one field that fills the section.

    A blank line goes before tables, code and content that stands last; prose that is empty takes no line.
    """
    if seats[0].field.label is not None:
        return "".join(f"- {seat.field.label}: {_BODIES[seat.field.form](seat)}\n" for seat in seats)
    form, body = seats[0].field.form, _BODIES[seats[0].field.form](seats[0])
    if form == "prose" and not body:
        return ""
    return f"\n{body}\n" if form in ("table", "code", "verbatim") else f"{body}\n"


def _prose(seat: BoundField) -> str:
    return escape_prose(seat.kind, seat.value or "")


def _list(seat: BoundField) -> str:
    return "\n".join(f"- {encode(seat.field, item)}" for item in seat.value or ()) or NOTHING


def _numbered(seat: BoundField) -> str:
    items = enumerate(seat.value or (), start=1)
    return "\n".join(f"- {seat.field.noun} {at}: {encode(seat.field, item)}" for at, item in items) or NOTHING


def _map(seat: BoundField) -> str:
    items = (seat.value or {}).items()
    return "\n".join(f"- {encode_key(key)}: {encode(seat.field, item)}" for key, item in items) or NOTHING


def _table(seat: BoundField) -> str:
    names = [str(column.label) for column in seat.field.columns]
    head = "| " + " | ".join(names) + " |"
    rule = "|" + "|".join("-" * (len(name) + 2) for name in names) + "|"
    rows = (" | ".join(encode(column, row[column.name]) for column in seat.field.columns) for row in seat.value or ())
    return "\n".join([head, rule, *(f"| {row} |" for row in rows)])


_BODIES: dict[str, Callable[[BoundField], str]] = {
    "scalar": lambda seat: encode(seat.field, seat.value),
    "inline": lambda seat: encode(seat.field, seat.value),
    "prose": _prose,
    "verbatim": lambda seat: str(seat.value),
    "code": lambda seat: fence(seat.kind, seat.value or ""),
    "list": _list,
    "numbered": _numbered,
    "map": _map,
    "table": _table,
}


@lru_cache(maxsize=1)
def _environment() -> Environment:
    """One environment for all kinds; a value is never a template, and none of them is escaped for HTML."""
    return Environment(  # noqa: S701 - Markdown files, not pages
        loader=FileSystemLoader(resource_path("templates")),
        finalize=_finalize,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@lru_cache(maxsize=64)
def _template(kind: str) -> Template:
    return _environment().select_template([f"{kind}.md.j2", "document.md.j2"])
