r"""Encode values in a line of Markdown and decode them: the only place where anything is escaped.

A scalar is one line by construction: plain where no formatter can touch it, else a JSON string in a code span;
`-` is nothing. Prose keeps its lines; a line that could be taken for structure gets one backslash in front.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache, partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from haytham.errors import short_repr
from haytham.markdown.schema import describe
from haytham.text import DIVIDER, OURS, THEIRS

if TYPE_CHECKING:
    from haytham.markdown.schema import DocumentSchema, Field

Encoder = Callable[[Any], str]
Decoder = Callable[[str], Any]

NOTHING = "-"
_SHORT = 80
_EXACT = 2**53  # below it a whole float and the integer of the same digits are equal

# Letters and digits of any script, single spaces, and punctuation that means nothing to Markdown within a line.
_PLAIN = re.compile(r"(?:[^\W_]|[$(+](?=\w))(?:[^\W_]|_(?=[^\W_])|[.,:;/+()%$@='!?#-]| (?=[^\s_]))*(?<!#)")
_WORDS = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_.:/-][A-Za-z0-9]+)*")  # most values are; told at a glance
_ORDERED_ITEM = re.compile(r"\d+[.)](?: |\Z)")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_SPAN = re.compile(r'`"(?:[^`]*)"`|`(?:[^`"][^`]*)`')
_LIST = re.compile(r"\\?\[(.*?)\\?\]\Z")
_ITEM = re.compile(r"\s*((?:`[^`]*`)?[^,]*)(,\s*)?")
_AUTOLINK = re.compile(r"<([^<>\s]+[:@][^<>\s]+)>\Z")
_LEAD = re.compile(r"[\\\s]*")
_FENCE = re.compile(r"`{3,}|~{3,}")
_TARGET = re.compile(r"\[[^\]]*\]:")
_INTEGER = re.compile(r"-?\d{1,400}\Z", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,400}\.\d{1,400}\Z", re.ASCII)
# Inside a code span: backticks would end it, pipes would end a table's cell, the rest is not visible as itself.
_HIDDEN = re.compile(
    r"[`|\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff0-\uffff]"
)


_TO_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class DecodeError(ValueError):
    """Text that its field cannot hold; the message says what was found and what is allowed."""


def is_plain(text: str) -> bool:
    """Return whether a text needs no escaping: no reader, formatter or person would change or misread it."""
    return _short_is_plain(text) if len(text) <= _SHORT else _is_plain(text)


def _is_plain(text: str) -> bool:
    if _WORDS.fullmatch(text) is not None:
        return True
    return _PLAIN.fullmatch(text) is not None and _ORDERED_ITEM.match(text) is None


_short_is_plain = lru_cache(maxsize=4096)(_is_plain)  # names, statuses and times recur in every document


def code_span(value: object) -> str:
    """Return a JSON value in a code span that no table or formatter changes."""
    text = _TO_JSON(value)
    return "`" + _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "`"


def encode_text(text: str) -> str:
    """Return a string as it is written in a bullet, a cell or a title."""
    text = str.__str__(text)  # of an enum the value, not the name
    return text if is_plain(text) else code_span(text)


def decode_text(text: str) -> str:
    """Return the string of a bullet, a cell or a title, as a person or a formatter may have written it."""
    if text.startswith('`"') and text.endswith('"`') and len(text) > 3:  # noqa: PLR2004 - the shortest is `""`
        value = _load(text[1:-1], text)
        if not isinstance(value, str):
            raise DecodeError(f"found {short_repr(text)}; allowed: a JSON string in a code span, or plain text")
        return value
    link = _AUTOLINK.match(text) if text.startswith("<") else None
    if link is not None:  # Markdown shows an address in angle brackets without them
        return link[1]
    return text if "\\" not in text or "`" in text else _ESCAPE.sub(r"\1", text)


def encode_key(text: str) -> str:
    """Return a string as it is written before a colon."""
    return text if is_plain(text) and ":" not in text else code_span(text)


def split_key(text: str) -> tuple[str, str]:
    """Return the key and the rest of `key: rest`."""
    span = _SPAN.match(text)
    if span and text[span.end() :].lstrip().startswith(":"):
        rest = text[span.end() :].lstrip()
        return decode_text(span[0]), rest[1:].strip()
    key, colon, rest = text.partition(":")
    if not colon:
        raise DecodeError(f"found {short_repr(text)}; allowed: a name, a colon and a value")
    return decode_text(key.strip()), rest.strip()


def encoder(field: Field) -> Encoder:
    """Return a function that writes a value of a field for a bullet or a cell."""
    encode = _encode_inline if field.form == "inline" else _ENCODERS[field.type]
    unit = field.unit
    if unit == "$":
        return lambda value: NOTHING if value is None else "$" + encode(value)
    if unit:
        return lambda value: NOTHING if value is None else encode(value) + unit
    return lambda value: NOTHING if value is None else encode(value)


def decoder(field: Field) -> Decoder:
    """Return a function that reads a bullet or a cell of a field; DecodeError where it holds no value of it."""
    allowed, nullable = field.allowed, field.nullable
    decode_value = _decode_inline if field.form == "inline" else partial(_DECODERS[field.type], field)

    def decode(text: str) -> Any:
        text = text.strip()
        if text in allowed:
            return text
        if text == NOTHING or not text:
            if text and nullable:
                return None
            raise DecodeError(_missing(field, text))
        value = decode_value(text)
        if allowed and value not in allowed:
            raise DecodeError(f"found {short_repr(text)}; allowed: {describe(field)}")
        return value

    return decode


def _missing(field: Field, text: str) -> str:
    if text:
        return f"found nothing ({NOTHING}); allowed: {describe(field)}"
    return f"found no value; allowed: {describe(field)}" + (f", or {NOTHING}" if field.nullable else "")


def _encode_inline(items: list[str]) -> str:
    return "[" + ", ".join([_encode_item(item) for item in items]) + "]"


def _encode_item(item: str) -> str:
    return item if is_plain(item) and "," not in item else code_span(item)


def _decode_inline(text: str) -> list[str]:
    match = _LIST.match(text)
    if match is None:
        raise DecodeError(f"found {short_repr(text)}; allowed: a list like [first, second]")
    inner, at, items = match[1].strip(), 0, []
    while at < len(inner):
        item = _ITEM.match(inner, at)
        if item is None or not item[1].strip() or (item[2] and item.end() == len(inner)):
            raise DecodeError(f"found {short_repr(text)}; allowed: a list like [first, second], no item empty")
        items.append(decode_text(item[1].strip()))
        at = item.end()
    return items


def _encode_number(value: float) -> str:
    """Return the shortest digits that read back as the same number, never with an exponent."""
    if isinstance(value, int):
        return int.__repr__(value)
    if value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    shortest = float.__repr__(value)
    if "e" not in shortest:
        return shortest
    digits = format(Decimal(shortest), "f")
    return digits if "." in digits else f"{digits}.0"


def _encode_any(value: Any) -> str:
    return encode_text(value) if isinstance(value, str) else code_span(value)


def _decode_string(_field: Field, text: str) -> str:
    return decode_text(text)


def _decode_number(field: Field, text: str) -> int | float:
    digits = text.removeprefix("\\").removeprefix("$") if field.unit == "$" else text.removesuffix(field.unit)
    if field.unit and digits == text:
        raise DecodeError(f"found {short_repr(text)}; allowed: {describe(field)}")
    if _INTEGER.match(digits):
        return int(digits)
    if field.type == "number" and _NUMBER.match(digits) and isfinite(float(digits)):
        return float(digits)
    raise DecodeError(f"found {short_repr(text)}; allowed: {describe(field)}")


def _decode_boolean(field: Field, text: str) -> bool:
    if text not in ("true", "false"):
        raise DecodeError(f"found {short_repr(text)}; allowed: {describe(field)}")
    return text == "true"


def _decode_any(_field: Field, text: str) -> Any:
    if text.startswith("`") and text.endswith("`") and "`" not in text[1:-1]:
        return _load(text[1:-1], text)
    return decode_text(text)


def _load(json_text: str, shown: str) -> Any:
    try:
        value = json.loads(json_text, parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"found {short_repr(shown)}; allowed: valid JSON in a code span ({error})") from None
    return value


def _refuse_constant(name: str) -> None:
    raise DecodeError(f"{name} is not a finite number")


_ENCODERS: dict[str, Callable[[Any], str]] = {
    "string": encode_text,
    "integer": _encode_number,
    "number": _encode_number,
    "boolean": lambda value: "true" if value else "false",
    "any": _encode_any,
}
_DECODERS: dict[str, Callable[[Field, str], Any]] = {
    "string": _decode_string,
    "integer": _decode_number,
    "number": _decode_number,
    "boolean": _decode_boolean,
    "any": _decode_any,
}


def escape_prose(kind: DocumentSchema, text: str) -> str:
    r"""Return prose for the middle of a document: a line that could be taken for structure gets a backslash."""
    lines = text.split("\n")
    open_fence = _open_fence(lines)
    return "\n".join(
        "\\" + line if _must_quote(kind, lines, at) or at == open_fence or _is_quoted(line) else line
        for at, line in enumerate(lines)
    )


def unescape_prose(kind: DocumentSchema, lines: list[str]) -> str:
    """Return the prose that `escape_prose` wrote as these lines."""
    return "\n".join(
        line[1:] if line.startswith("\\") and (_must_quote(kind, lines, at) or _is_quoted(line)) else line
        for at, line in enumerate(lines)
    )


def _must_quote(kind: DocumentSchema, lines: list[str], at: int) -> bool:
    """Return whether a line is always quoted: blank at an edge, a heading or its underline, a link's target.

    Backslashes in front change nothing: one more is added, and one is taken away.
    """
    core = lines[at][_LEAD.match(lines[at]).end() :].rstrip()  # type: ignore[union-attr] # it matches anything
    if not core:
        return at in (0, len(lines) - 1) and len(lines) + len(lines[at]) > 1
    if core[0] not in "-=#[":
        return False
    return not core.strip("-") or not core.strip("=") or _is_heading(kind, core) or _TARGET.match(core) is not None


def _is_heading(kind: DocumentSchema, core: str) -> bool:
    """Return whether some Markdown tool could take, or turn, a line into one of the kind's own headings."""
    if not core.startswith("#"):
        return False
    title = core.lstrip("#").rstrip("#")
    if "&" in title:
        from html import unescape  # noqa: PLC0415 - a table of 2,000 names, and few headings have one

        title = unescape(title)
    return " ".join(title.replace("\\", "").split()) in kind.names


def _is_quoted(line: str) -> bool:
    """Return whether a line is a fence with backslashes in front, which one more keeps apart from a quoted fence."""
    return line.startswith("\\") and _FENCE.match(line[_LEAD.match(line).end() :]) is not None  # type: ignore[union-attr]


def _open_fence(lines: list[str]) -> int | None:
    """Return the line of a code fence that is never closed, or None."""
    opened: tuple[int, str] | None = None
    for at, line in enumerate(lines):
        fence = _FENCE.match(line.lstrip(" "))
        if fence is None:
            continue
        if opened is None:
            opened = (at, fence[0])
        elif fence[0].startswith(opened[1]) and not line.strip().strip(fence[0][0]):
            opened = None
    return None if opened is None else opened[0]


def fence(kind: DocumentSchema, text: str) -> str:
    """Return a text in a fenced code block that no line of the text can end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    lines = ["\\" + line if _is_structure(kind, line) else line for line in text.split("\n")]
    return "\n".join([marks + "text", *lines, marks])


def unfence(kind: DocumentSchema, lines: list[str]) -> str:
    """Return the text in a fenced code block."""
    opening, closing = lines[0].rstrip(), lines[-1].strip()
    marks = opening.removesuffix("text").rstrip()
    if len(lines) < 3 or closing != marks or not re.fullmatch("`{3,}", marks):  # noqa: PLR2004 - fence, line, fence
        raise DecodeError("found text outside a code block; allowed: one fenced block, ```text to ```")
    inner = lines[1:-1]
    return "\n".join(line[1:] if line.startswith("\\") and _is_structure(kind, line) else line for line in inner)


def _is_structure(kind: DocumentSchema, line: str) -> bool:
    r"""Return whether a line is a heading of the kind or a git conflict marker, after any number of backslashes."""
    core = line.lstrip("\\")
    return kind.heading.match(core) is not None or core.startswith((OURS, THEIRS)) or core.rstrip() == DIVIDER
