"""Write values as Markdown by a plan compiled once for each kind, and read back what was written before it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidDocument, Problem
from haytham.markdown import frontmatter
from haytham.markdown.canonical import table_top
from haytham.markdown.codec import NOTHING, encode_key, encode_text, encoder, escape_prose, fence
from haytham.markdown.parser import ParseResult, parse
from haytham.markdown.schema import document_faults

if TYPE_CHECKING:
    from haytham.markdown.schema import DocumentSchema, Field, Section

# Writes a document from its value, and its value together with what it shows.
Writer = Callable[[Mapping[str, Any], Mapping[str, Any]], str]
BodyWriter = Callable[[Any], str]


def render(kind: DocumentSchema, value: Mapping[str, Any], shown: Mapping[str, Any] | None = None) -> str:
    """Return a document as text; raise InvalidDocument where the value does not satisfy its kind."""
    return render_verified(kind, value, shown)[0]


def render_verified(
    kind: DocumentSchema, value: Mapping[str, Any], shown: Mapping[str, Any] | None = None, *, check: bool = True
) -> tuple[str, ParseResult]:
    """Return a document as text, and as it reads back; raise InvalidDocument where that is not what went in.

    Without `check` the value is taken to satisfy its kind: for a caller that has checked it.
    """
    if check:
        check_value(kind, value)
    text = _writer(kind)(value, {**(shown or {}), **value})
    back = parse(kind, text, check=False)
    if back.problems:
        raise InvalidDocument([problem.with_file(f"{kind.name} as drawn") for problem in back.problems])
    if back.value != value:
        wrong = sorted(name for name in value.keys() | back.value.keys() if value.get(name) != back.value.get(name))
        raise InvalidDocument(
            [Problem(f"{', '.join(wrong)} would not read back as given", file=f"{kind.name} as drawn")]
        )
    if back.rendered_digest is None:
        return text, back
    line = f"\n{frontmatter.SHOWN}: {{}}\n"
    sealed = text.replace(line.format(frontmatter.UNKNOWN), line.format(back.derived_digest), 1)
    return sealed, ParseResult(back.value, back.derived, (), back.lines, back.derived_digest)


def check_value(kind: DocumentSchema, value: Mapping[str, Any]) -> None:
    """Raise InvalidDocument where a value does not satisfy its kind."""
    faults = [_problem(kind, name, message) for name, message in document_faults(kind, value)]
    if faults:
        raise InvalidDocument(faults)


def _problem(kind: DocumentSchema, name: str, message: str) -> Problem:
    field = kind.field_by_name.get(name)
    section, label = field.place if field is not None else (None, name)
    return Problem(message, section=section, label=label, file=kind.name)


@lru_cache(maxsize=64)
def _writer(kind: DocumentSchema) -> Writer:
    """Return a function that writes a document: front matter, title, note and sections."""
    front_matter = frontmatter.front_matter_writer(kind)
    words, title = kind.title_parts
    content = [field.name for field in kind.fields if field.form in ("prose", "verbatim", "code")]
    sections = [(section, f"\n## {section.name}\n", _section_writer(kind, section)) for section in kind.sections]

    def write(value: Mapping[str, Any], drawn: Mapping[str, Any]) -> str:
        holds_cr = any("\r" in value[name] for name in content if name in value)  # a change of line ends would lose it
        parts = [front_matter(value, holds_cr), f"\n\n# {words}"]
        if title is not None:
            shown = drawn.get(title)
            parts.append(f" {NOTHING if shown is None else encode_text(str(shown))}")
        parts += ["\n", _note(kind, value)]
        for section, heading, write_section in sections:
            if section.required or section.has_value(value):
                parts += [heading, write_section(drawn)]
        return "".join(parts)

    return write


def _note(kind: DocumentSchema, value: Mapping[str, Any]) -> str:
    note = kind.note
    if note is None or any(value.get(name) != content for name, content in note.when.items()):
        return ""
    lines = [text for text, field in note.lines if field is None or field in value]
    return "\n".join(["", "<!--", *lines, "-->", ""])


def _section_writer(kind: DocumentSchema, section: Section) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that writes all below a heading, line ends included: bullets, or the field that fills it.

    A blank line goes before tables, code and the content that stands last; empty prose takes no line.
    """
    body = section.body
    if body is None:
        bullets = [(f"- {field.label}: ", field.name, encoder(field)) for field in section.fields]
        return lambda drawn: "".join([f"{label}{encode(drawn.get(name))}\n" for label, name, encode in bullets])
    name, write_body = body.name, _BODIES[body.form](kind, body)
    if body.form == "prose":
        return lambda drawn: f"{text}\n" if (text := write_body(drawn.get(name))) else ""
    start = "\n" if body.form in ("table", "code", "verbatim") else ""
    return lambda drawn: f"{start}{write_body(drawn.get(name))}\n"


def _list_writer(_kind: DocumentSchema, field: Field) -> BodyWriter:
    encode = encoder(field)
    return lambda items: "\n".join([f"- {encode(item)}" for item in items or ()]) or NOTHING


def _numbered_writer(_kind: DocumentSchema, field: Field) -> BodyWriter:
    encode, noun = encoder(field), field.noun
    return lambda items: (
        "\n".join([f"- {noun} {at}: {encode(item)}" for at, item in enumerate(items or (), start=1)]) or NOTHING
    )


def _map_writer(_kind: DocumentSchema, field: Field) -> BodyWriter:
    encode = encoder(field)
    return lambda items: (
        "\n".join([f"- {encode_key(key)}: {encode(item)}" for key, item in (items or {}).items()]) or NOTHING
    )


def _table_writer(_kind: DocumentSchema, field: Field) -> BodyWriter:
    top = table_top(field)
    names, encoders = [column.name for column in field.columns], [encoder(column) for column in field.columns]

    @lru_cache(maxsize=4096, typed=True)  # the next version of a document has most rows of the one before
    def row(*cells: Any) -> str:
        return "| " + " | ".join([encode(cell) for encode, cell in zip(encoders, cells, strict=True)]) + " |"

    return lambda rows: "\n".join([*top, *(row(*[cells[name] for name in names]) for cells in rows or ())])


_BODIES: dict[str, Callable[[DocumentSchema, Field], BodyWriter]] = {
    "prose": lambda kind, _field: lambda text: escape_prose(kind, text or ""),
    "code": lambda kind, _field: lambda text: fence(kind, text or ""),
    "verbatim": lambda _kind, _field: str,
    "list": _list_writer,
    "numbered": _numbered_writer,
    "map": _map_writer,
    "table": _table_writer,
}
