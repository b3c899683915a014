"""Read documents in exactly the form that the renderer writes, by a plan compiled once for each kind.

Any other text, a person's or a damaged one, gives None here and is left to the parser, which reads what people may
write and reports what is wrong. Whatever is read here, the parser reads in the same way, to the letter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from haytham.markdown.codec import NOTHING, decode_text, decoder, split_key, unescape_prose, unfence
from haytham.markdown.frontmatter import front_matter_reader
from haytham.markdown.schema import TITLE
from haytham.markdown.sections import SectionLines
from haytham.text import OURS

if TYPE_CHECKING:
    from haytham.markdown.schema import DocumentSchema, Field, Section

# Reads a body from a line on: its value, the line it begins in and the first line behind it, both counted from 0.
BodyReader = Callable[[list[str], int], tuple[Any, int, int]]
# Reads a section below its heading into values and line numbers; returns the first line behind it.
SectionReader = Callable[[list[str], int, "CanonicalDocument"], int]
Reader = Callable[[str, bool], "CanonicalDocument | None"]


class CanonicalDocument(NamedTuple):
    """The parts of a document as they were read: values, derived values, lines of fields, digest of the latter."""

    value: dict[str, Any]
    derived: dict[str, Any]
    lines: dict[str, int]
    rendered_digest: str | None


class NotCanonical(Exception):
    """Raised on a text that is not in the form the renderer writes."""


_ROWS = 4096  # rows of tables that are remembered, for each kind of table


@lru_cache(maxsize=64)
def canonical_reader(kind: DocumentSchema) -> Reader:
    """Return a function that reads a text of a kind, or its head alone; None if it is not in canonical form."""
    trailing, last = kind.trailing_field, f"\n## {kind.sections[-1].name}\n"
    read_lines = _lines_reader(kind)

    def read(text: str, head: bool) -> CanonicalDocument | None:  # noqa: FBT001 - called in one place
        if "\r" in text or OURS in text:
            return None
        end = len(text) if trailing is None else text.find(last)
        lines = text[: max(end, 0)].split("\n")
        try:
            document = read_lines(text, lines)
        except (NotCanonical, ValueError, IndexError):
            return None
        if trailing is not None:
            document.lines[trailing.name] = len(lines) + 3
            if not head:
                start = end + len(last)
                start += text.startswith("\n", start)
                document.value[trailing.name] = text[start : len(text) - (len(text) > start and text.endswith("\n"))]
        return document

    return read


def _lines_reader(kind: DocumentSchema) -> Callable[[str, list[str]], CanonicalDocument]:
    """Return a function that reads the lines of a document up to its trailing content."""
    read_front = front_matter_reader(kind)
    sections = [
        (["", f"## {section.name}"], section, _section_reader(kind, section))
        for section in kind.sections
        if section.body is None or section.body is not kind.trailing_field
    ]

    def read(text: str, lines: list[str]) -> CanonicalDocument:
        front = read_front(text, lines)
        if front is None:
            raise NotCanonical
        document = CanonicalDocument(front.values, {}, front.lines, front.shown)
        at = _read_title(kind, lines, front.end, document)
        for start, section, read_section in sections:
            if lines[at : at + 2] == start:
                at = read_section(lines, at + 2, document)
            elif section.required or section.name in front.optional:
                raise NotCanonical
        if at != len(lines) - 1 or lines[at]:
            raise NotCanonical
        return document

    return read


def _read_title(kind: DocumentSchema, lines: list[str], at: int, document: CanonicalDocument) -> int:
    """Read the title and skip the note below it; return the line behind them."""
    words, name = kind.title_parts
    prefix, line = f"# {words}", lines[at + 1]
    if lines[at] or not line.startswith(prefix) or (name is None and line != prefix):
        raise NotCanonical
    if name is not None:
        document.lines[TITLE] = at + 2
        document.derived[TITLE] = decode_text(line[len(prefix) :].strip())
    at += 2
    if lines[at : at + 2] == ["", "<!--"]:
        at += 2
        while lines[at] != "-->":
            if "-->" in lines[at] or lines[at].startswith("## "):
                raise NotCanonical
            at += 1
        at += 1
    return at


def _section_reader(kind: DocumentSchema, section: Section) -> SectionReader:
    if section.body is None:
        return _bullets_reader(section)
    field, read_body = section.body, _BODIES.get(section.body.form, _code_reader)(kind, section.body)

    def read(lines: list[str], at: int, document: CanonicalDocument) -> int:
        content, start, end = read_body(lines, at)
        (document.derived if field.derived else document.value)[field.name] = content
        document.lines[field.name] = start + 1
        return end

    return read


def _bullets_reader(section: Section) -> SectionReader:
    bullets = [
        (f"- {field.label}:", len(f"- {field.label}:"), field.name, field.derived, decoder(field))
        for field in section.fields
    ]

    def read(lines: list[str], at: int, document: CanonicalDocument) -> int:
        value, derived, numbers, _ = document
        for prefix, length, name, is_derived, decode in bullets:
            line = lines[at]
            if not line.startswith(prefix):
                raise NotCanonical
            (derived if is_derived else value)[name] = decode(line[length:])
            at += 1
            numbers[name] = at
        return at

    return read


def _items(lines: list[str], at: int) -> tuple[list[str], int]:
    """Return the texts of bullets from a line on, and the line behind them."""
    end = lines.index("", at)
    if end - at == 1 and lines[at] == NOTHING:
        return [], end
    items = [line[2:].strip() for line in lines[at:end] if line.startswith("- ")]
    if not items or len(items) != end - at or not all(items):
        raise NotCanonical
    return items, end


def _list_reader(_kind: DocumentSchema, field: Field) -> BodyReader:
    decode = decoder(field)

    def read(lines: list[str], at: int) -> tuple[Any, int, int]:
        items, end = _items(lines, at)
        return [decode(item) for item in items], at, end

    return read


def _numbered_reader(_kind: DocumentSchema, field: Field) -> BodyReader:
    decode, noun = decoder(field), field.noun

    def read(lines: list[str], at: int) -> tuple[Any, int, int]:
        items, end = _items(lines, at)
        prefixes = [f"{noun} {number}:" for number in range(1, len(items) + 1)]
        pairs = list(zip(items, prefixes, strict=True))
        if not all(item.startswith(prefix) for item, prefix in pairs):
            raise NotCanonical
        return [decode(item[len(prefix) :]) for item, prefix in pairs], at, end

    return read


def _map_reader(_kind: DocumentSchema, field: Field) -> BodyReader:
    decode = decoder(field)

    def read(lines: list[str], at: int) -> tuple[Any, int, int]:
        items, end = _items(lines, at)
        pairs = [split_key(item) for item in items]
        values = {key: decode(text) for key, text in pairs}
        if len(values) != len(pairs):
            raise NotCanonical
        return values, at, end

    return read


def _table_reader(_kind: DocumentSchema, field: Field) -> BodyReader:
    columns = [(column.name, decoder(column)) for column in field.columns]
    top = table_top(field)

    @lru_cache(maxsize=_ROWS)  # the next version of a document has most rows of the one before
    def row(line: str) -> dict[str, Any]:
        cells = line.split("|")
        if len(cells) != len(columns) + 2 or cells[0] or cells[-1] or "\\|" in line:
            raise NotCanonical
        return {name: decode(cell) for (name, decode), cell in zip(columns, cells[1:], strict=False)}

    def read(lines: list[str], at: int) -> tuple[Any, int, int]:
        if lines[at] or lines[at + 1 : at + 3] != top:
            raise NotCanonical
        end = lines.index("", at + 3)
        return [dict(row(line)) for line in lines[at + 3 : end]], at + 1, end

    return read


def table_top(field: Field) -> list[str]:
    """Return the first two lines of a table: the names of its columns, and the rule below them."""
    names = [str(column.label) for column in field.columns]
    return ["| " + " | ".join(names) + " |", "|" + "|".join("-" * (len(name) + 2) for name in names) + "|"]


def _prose_reader(kind: DocumentSchema, _field: Field) -> BodyReader:
    def read(lines: list[str], at: int) -> tuple[Any, int, int]:
        body, end = _lines_to_heading(kind, lines, at)
        return unescape_prose(kind, body.lines), body.start, end

    return read


def _code_reader(kind: DocumentSchema, _field: Field) -> BodyReader:
    def read(lines: list[str], at: int) -> tuple[Any, int, int]:
        body, end = _lines_to_heading(kind, lines, at)
        if not body.lines:
            raise NotCanonical
        return unfence(kind, body.lines), body.start, end

    return read


def _lines_to_heading(kind: DocumentSchema, lines: list[str], at: int) -> tuple[SectionLines, int]:
    """Return the lines up to the next heading of the kind, trimmed, and the blank line in front of that heading."""
    end = at
    while end < len(lines) and not (lines[end].startswith("## ") and kind.heading.match(lines[end])):
        end += 1
    if lines[end - 1]:
        raise NotCanonical
    return SectionLines(lines[at:end], at).trimmed(), end - 1


_BODIES: dict[str, Callable[[DocumentSchema, Field], BodyReader]] = {
    "list": _list_reader,
    "numbered": _numbered_reader,
    "map": _map_reader,
    "table": _table_reader,
    "prose": _prose_reader,
    "code": _code_reader,
}
