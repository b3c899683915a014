"""Decide whether a value is plain JSON, and whether it satisfies a JSON Schema.

A schema is compiled once into one function. jsonschema is loaded only for the faults of a value that the function
refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidArgument, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsonschema import Draft202012Validator

Check = Callable[[Any], bool]

_LINE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]*\Z")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\Z", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_MONEY = re.compile(r"\d{1,12}(?:\.\d{1,6})?\Z", re.ASCII)
_ANNOTATIONS = frozenset({"$schema", "title", "description"})
_MAX_NODES = 100_000
_MAX_DEPTH = 64
_MAX_BITS = 1300  # about 400 digits
_MAX_ITEMS = 1000  # a longer list is counted node by node
PLAIN_DICT = (
    "a dict of text, finite numbers, true, false, None, lists and dicts of them,"
    f" at most {_MAX_DEPTH} within each other"
)


# What JSON can hold


def require_text(what: str, value: Any) -> str:
    """Return text that can be stored; raise InvalidArgument for anything else."""
    if not isinstance(value, str) or not is_unicode(value):
        raise InvalidArgument(what, value, "text in valid Unicode, no lone surrogate")
    return value


def plain_dict(what: str, values: Any) -> dict[str, Any]:
    """Return a copy of a dict of plain JSON values; raise InvalidArgument for anything else."""
    if not isinstance(values, Mapping) or not is_plain_json(dict(values)):
        raise InvalidArgument(what, values, PLAIN_DICT)
    copy: dict[str, Any] = json.loads(json.dumps(dict(values)))
    return copy


def is_plain_json(value: Any) -> bool:
    """Return whether a value comes back from JSON as it went in."""
    return next(non_json_values(value), None) is None


def non_json_values(value: Any) -> Iterator[str]:
    """Describe each part of a value that no document can hold."""
    waiting, count = [(value, 0)], 0
    while waiting:
        (node, depth), count = waiting.pop(), count + 1
        if count > _MAX_NODES or depth > _MAX_DEPTH:
            yield f"found more than {_MAX_NODES} values, or {_MAX_DEPTH} within each other; allowed: fewer"
            return
        if isinstance(node, dict):
            waiting += [(inner, depth + 1) for inner in (*node, *node.values())]
            yield from (f"found {short_repr(key)} as a name; allowed: text" for key in node if not isinstance(key, str))
        elif isinstance(node, list):
            waiting += [(inner, depth + 1) for inner in node]
        elif isinstance(node, str) and not is_unicode(node):
            yield f"found {short_repr(node)}; allowed: valid Unicode, no lone surrogate"
        elif isinstance(node, int) and node.bit_length() > _MAX_BITS:
            yield f"found {short_repr(node)}; allowed: a number of at most 400 digits"
        elif isinstance(node, float) and not isfinite(node):
            yield f"found {node}; allowed: a finite number"
        elif not isinstance(node, str | int | float | None):
            yield f"found {short_repr(node)}; allowed: text, numbers, true, false, lists and maps of them"


def is_unicode(text: str) -> bool:
    """Return whether a text can be stored as UTF-8: it has no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# One function a schema


def compile_validator(schema: Mapping[str, Any]) -> Check:
    """Return a function that says whether a value is plain JSON and surely satisfies a schema.

    The function may refuse a value that only a full JSON Schema validator can decide, never the other way round.
    """
    keywords = {key: rule for key, rule in schema.items() if key not in _ANNOTATIONS and not key.startswith("x-")}
    types = keywords.pop("type", list(_COMPILERS))
    unknown = keywords.keys() - _KEYWORDS
    if unknown:
        raise ValueError(f"found the keywords {sorted(unknown)} in a schema; allowed: {sorted(_KEYWORDS)}")
    if not keywords and "type" not in schema:
        return is_plain_json
    names = [types] if isinstance(types, str) else [name for name in types if name != "null"]
    checks = [_COMPILERS[name](keywords) for name in names]
    check = checks[0] if len(checks) == 1 else lambda value: any(check(value) for check in checks)
    if "null" in types and not keywords.keys() & {"enum", "const"}:
        return lambda value: value is None or check(value)
    return check


def _compile_string(rules: Mapping[str, Any]) -> Check:
    if "enum" in rules or "const" in rules:
        allowed = frozenset(value for value in rules.get("enum", [rules.get("const")]) if isinstance(value, str))
        return lambda value: isinstance(value, str) and value in allowed
    least, most = rules.get("minLength", 0), rules.get("maxLength")
    tests: list[Callable[[str], object]] = [_FORMATS[rules["format"]]] if "format" in rules else []
    if "pattern" in rules:
        tests.append(re.compile(rules["pattern"]).search)
    if most is not None:
        tests.append(lambda text: len(text) <= most)

    def check(value: Any) -> bool:
        if not isinstance(value, str) or len(value) < least or not (value.isascii() or is_unicode(value)):
            return False
        return all(test(value) for test in tests) if tests else True

    return check


def _compile_number(rules: Mapping[str, Any], types: tuple[type, ...] = (int, float)) -> Check:
    if "enum" in rules or "const" in rules:
        return lambda _value: False
    least, most = rules.get("minimum", -(10**300)), rules.get("maximum", 10**300)
    above = rules.get("exclusiveMinimum", -(10**301))
    return lambda value: (
        isinstance(value, types) and not isinstance(value, bool) and least <= value <= most and value > above
    )


def _compile_boolean(rules: Mapping[str, Any]) -> Check:
    allowed = rules.get("enum", [rules["const"]] if "const" in rules else [False, True])
    return lambda value: isinstance(value, bool) and any(value is other for other in allowed)


def _compile_null(rules: Mapping[str, Any]) -> Check:
    return lambda value: value is None and not rules.keys() & {"enum", "const"}


def _compile_array(rules: Mapping[str, Any]) -> Check:
    item = compile_validator(rules.get("items", {}))
    least, most = rules.get("minItems", 0), min(rules.get("maxItems", _MAX_ITEMS), _MAX_ITEMS)
    unique = rules.get("uniqueItems", False)
    hopeless = rules.keys() & {"enum", "const"}

    def check(value: Any) -> bool:
        if not isinstance(value, list) or len(value) < least or hopeless:
            return False
        if len(value) > most and (len(value) > rules.get("maxItems", len(value)) or not is_plain_json(value)):
            return False
        return (is_plain_json(value) if item is is_plain_json else all(map(item, value))) and (
            not unique or _are_distinct(value)
        )

    return check


def _compile_object(rules: Mapping[str, Any]) -> Check:
    fields = {name: compile_validator(schema) for name, schema in rules.get("properties", {}).items()}
    required, needs = frozenset(rules.get("required", ())), rules.get("dependentRequired", {})
    others, names = rules.get("additionalProperties", {}), rules.get("propertyNames", {})
    other = None if others is False else compile_validator(others)
    name_check = compile_validator({"type": "string", **names}) if names else None
    least = rules.get("minProperties", 0)
    hopeless = rules.keys() & {"enum", "const"}

    def check(value: Any) -> bool:
        if not isinstance(value, dict) or not required <= value.keys() or len(value) < least or hopeless:
            return False
        if other is not None and not is_plain_json(value):
            return False
        for name, content in value.items():
            field = fields.get(name, other)
            if field is None or (not (field is other is is_plain_json) and not field(content)):
                return False
        if name_check is not None and not all(map(name_check, value)):
            return False
        return all(set(needed) <= value.keys() for name, needed in needs.items() if name in value)

    return check


def _are_distinct(values: list[Any]) -> bool:
    """Return whether values are surely distinct: numbers or texts, none like another."""
    return all(isinstance(value, str | int) for value in values) and len(set(values)) == len(values)


_COMPILERS: dict[str, Callable[[Mapping[str, Any]], Check]] = {
    "string": _compile_string,
    "integer": partial(_compile_number, types=(int,)),
    "number": _compile_number,
    "boolean": _compile_boolean,
    "null": _compile_null,
    "array": _compile_array,
    "object": _compile_object,
}
_KEYWORDS = frozenset(
    {"enum", "const", "format", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum"}
    | {"items", "minItems", "maxItems", "uniqueItems", "properties", "required", "additionalProperties"}
    | {"dependentRequired", "propertyNames", "minProperties"}
)


# Formats


def matches_format(name: str, value: object) -> bool:
    """Return whether a text has one of our formats; a value that is no text has them all."""
    return not isinstance(value, str) or name not in _FORMATS or bool(_FORMATS[name](value))


def _is_time(text: str) -> bool:
    if _TIME.match(text) is None:
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


_FORMATS: dict[str, Callable[[str], object]] = {
    "line": _LINE.match,
    "digest": _DIGEST.match,
    "time": _is_time,
    "json": _is_json,
    "money": _MONEY.match,
}


def full_validator(schema: Any) -> Draft202012Validator:
    """Return the JSON Schema validator of a schema, which words what is wrong with a value."""
    from jsonschema import Draft202012Validator, FormatChecker, validators  # noqa: PLC0415 - only if a value is wrong

    formats = FormatChecker(formats=())
    for name in _FORMATS:
        formats.checks(name)(partial(matches_format, name))
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_whole)  # 1.0 is no whole number in a file
    extended: Any = validators.extend(Draft202012Validator, type_checker=types)  # type: ignore[no-untyped-call]
    validator: Draft202012Validator = extended(schema, format_checker=formats)
    return validator


def _is_whole(_checker: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
