"""Does a value satisfy its kind? The JSON Schema decides; what it cannot say (one line, finite, Unicode) is here."""

from __future__ import annotations

from functools import lru_cache, partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidArgument, short_repr
from haytham.markdown.codec import describe
from haytham.validation import matches_format, quick_validate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jsonschema import Draft202012Validator

    from haytham.markdown.schema import DocumentSchema, Field

_FORMAT_WORDS = {
    "line": "one line of text, no control characters",
    "time": "a time in ISO 8601, like 2024-11-24T10:00:00Z",
    "digest": "a digest, sha256: and 64 hexadecimal digits",
    "json": "JSON",
    "money": "dollars with at most six digits behind the point, like 1.5",
}
_TYPE_WORDS = {
    "array": "a list",
    "object": "a map",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true, false",
    "null": "nothing",
}
_MOST_NODES = 100_000
_DEEPEST = 64
_LONGEST = 1300  # bits, about 400 digits


def require_text(what: str, value: Any) -> str:
    """Refuse what is not text, or not text that can be stored."""
    if not isinstance(value, str) or not _is_unicode(value):
        raise InvalidArgument(what, value, "text in valid Unicode, no lone surrogate")
    return value


def validate(
    kind: DocumentSchema, value: Mapping[str, Any], *, without: str | None = None
) -> Iterator[tuple[str, str]]:
    """What is wrong with a value: the name of the field and a sentence, for each fault."""
    faults = [(name, fault) for name, content in value.items() for fault in non_json_values(content)]
    if faults:
        yield from faults
        return
    if quick_validate(_schema(kind, without), value):
        return
    whole, parts = _validators(kind)
    shape = dict.fromkeys(pair for error in whole.iter_errors(dict(value)) for pair in _shape_sentences(error))
    yield from (pair for pair in shape if pair[0] != without)
    for name, content in value.items():
        if name in parts:
            field = kind.field_by_name[name]
            yield from ((name, _sentence(field, error)) for error in parts[name].iter_errors(content))


@lru_cache(maxsize=128)
def _schema(kind: DocumentSchema, without: str | None) -> Mapping[str, Any]:
    return {**kind.schema, "required": [name for name in kind.schema["required"] if name != without]}


@lru_cache(maxsize=128)
def _validators(kind: DocumentSchema) -> tuple[Draft202012Validator, dict[str, Draft202012Validator]]:
    """The schema as one validator for which fields there are, and one a field, whose errors need no path to it."""
    fields = kind.schema["properties"]
    whole = {**kind.schema, "properties": dict.fromkeys(fields, True)}
    return _compiled(whole), {name: _compiled(schema) for name, schema in fields.items()}


def _compiled(schema: Any) -> Draft202012Validator:
    from jsonschema import Draft202012Validator, FormatChecker, validators  # noqa: PLC0415 - only where a value is wrong

    formats = FormatChecker(formats=())
    for name in _FORMAT_WORDS:
        formats.checks(name)(partial(matches_format, name))
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_whole)  # 1.0 is no whole number in a file
    made: Any = validators.extend(Draft202012Validator, type_checker=types)  # type: ignore[no-untyped-call]
    validator: Draft202012Validator = made(schema, format_checker=formats)
    return validator


def _is_whole(_checker: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def non_json_values(content: Any) -> Iterator[str]:
    """What no document can hold, wherever it stands in a value."""
    waiting, seen = [(content, 0)], 0
    while waiting:
        (node, depth), seen = waiting.pop(), seen + 1
        if seen > _MOST_NODES or depth > _DEEPEST:
            yield f"found more than {_MOST_NODES} values, or {_DEEPEST} within each other; allowed: fewer"
            return
        if isinstance(node, dict):
            waiting += [(inner, depth + 1) for inner in (*node, *node.values())]
            yield from (f"found {short_repr(key)} as a name; allowed: text" for key in node if not isinstance(key, str))
        elif isinstance(node, list):
            waiting += [(inner, depth + 1) for inner in node]
        elif isinstance(node, str) and not _is_unicode(node):
            yield f"found {short_repr(node)}; allowed: valid Unicode, no lone surrogate"
        elif isinstance(node, int) and node.bit_length() > _LONGEST:
            yield f"found {short_repr(node)}; allowed: a number of at most 400 digits"
        elif isinstance(node, float) and not isfinite(node):
            yield f"found {node}; allowed: a finite number"
        elif not isinstance(node, str | int | float | None):
            yield f"found {short_repr(node)}; allowed: text, numbers, true, false, lists and maps of them"


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shape_sentences(error: Any) -> Iterator[tuple[str, str]]:
    """Which fields are missing, and which are none."""
    if error.validator == "required":
        yield from ((key, "is missing") for key in error.validator_value if key not in error.instance)
    elif error.validator == "additionalProperties":
        known = error.schema["properties"]
        yield from ((key, "is not a field of this kind") for key in error.instance if key not in known)
    else:
        yield "", error.message


def _sentence(field: Field, error: Any) -> str:
    """What the schema's error says, in the words of a document."""
    limit = error.validator_value
    inner = _innermost(field, list(error.path))
    words: dict[str, Callable[[], str]] = {
        "enum": lambda: ", ".join(limit),
        "format": lambda: _FORMAT_WORDS.get(limit, limit),
        "minimum": lambda: f"{limit} or more",
        "maximum": lambda: f"{limit} or less",
        "minItems": lambda: f"at least {limit}",
        "minLength": lambda: f"at least {limit} character",
        "type": lambda: _type_words(inner, limit),
    }
    place = "".join(f"{part}: " for part in error.path)
    allowed = words.get(error.validator)
    said = str(error.message) if allowed is None else f"found {short_repr(error.instance)}; allowed: {allowed()}"
    return place + said


def _innermost(field: Field, path: list[Any]) -> Field | None:
    """The column of a table that the path of an error leads to, else the field itself."""
    if not field.columns or len(path) < 2:  # noqa: PLR2004 - row, column
        return field
    return next((column for column in field.columns if column.name == path[1]), None)


def _type_words(field: Field | None, types: str | list[str]) -> str:
    names = [types] if isinstance(types, str) else types
    if field is not None and not field.columns and not {"array", "object"} & set(names):
        return describe(field)
    return " or ".join(_TYPE_WORDS[name] for name in names)
