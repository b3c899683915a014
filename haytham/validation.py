"""A quick look at a value: whether it surely satisfies its schema. Only a yes counts; else the JSON Schema is asked.

Nearly every document that is read is sound, and to load and ask the validator for each of them is what takes longest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

_LINE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]*\Z")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\Z", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_MONEY = re.compile(r"\d{1,12}(?:\.\d{1,6})?\Z", re.ASCII)
_SILENT = frozenset({"$schema", "title", "description"})
_MOST_FOUND = 4096


def quick_validate(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value satisfies a schema beyond doubt: every keyword is known here, and says yes."""
    looks = _looks(schema)
    return looks is not None and all(look(rule, value, schema) for look, rule in looks)


def _looks(schema: Mapping[str, Any]) -> list[tuple[Look, Any]] | None:
    """How to look at a value for each keyword of a schema, found once; None where a keyword is not known here."""
    known = _FOUND.get(id(schema))
    if known is None or known[0] is not schema:
        spoken = [keyword for keyword in schema if keyword not in _SILENT and not keyword.startswith("x-")]
        is_known = all(keyword in _LOOKS for keyword in spoken)
        found = [(_LOOKS[keyword], schema[keyword]) for keyword in spoken] if is_known else None
        if len(_FOUND) >= _MOST_FOUND:
            _FOUND.clear()
        known = _FOUND[id(schema)] = schema, found
    return known[1]


def matches_format(name: str, value: object) -> bool:
    """Whether a text has one of our formats; what is no text has them all."""
    return not isinstance(value, str) or name not in _FORMATS or _FORMATS[name](value)


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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_type(rule: Any, value: Any, _schema: Mapping[str, Any]) -> bool:
    return _TYPES[rule](value) if isinstance(rule, str) else any(_TYPES[name](value) for name in rule)


def _has_known_keys(rule: Any, value: Any, schema: Mapping[str, Any]) -> bool:
    if not isinstance(value, dict):
        return True
    others = [content for key, content in value.items() if key not in schema.get("properties", ())]
    return not others if rule is False else all(quick_validate(rule, content) for content in others)


def _has_sound_fields(rule: Any, value: Any, _schema: Mapping[str, Any]) -> bool:
    return not isinstance(value, dict) or all(quick_validate(rule[key], value[key]) for key in value if key in rule)


def _are_distinct(values: list[Any]) -> bool:
    """Whether values are surely distinct: numbers or texts, none like another."""
    return all(isinstance(value, str | int) for value in values) and len(set(values)) == len(values)


def _holds_together(rule: Any, value: Any, _schema: Mapping[str, Any]) -> bool:
    return all(set(needed) <= value.keys() for key, needed in rule.items() if key in value)


_FORMATS: dict[str, Callable[[str], bool]] = {
    "line": lambda text: _LINE.match(text) is not None,
    "digest": lambda text: _DIGEST.match(text) is not None,
    "time": _is_time,
    "json": _is_json,
    "money": lambda text: _MONEY.match(text) is not None,
}
_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
Look = Callable[[Any, Any, Mapping[str, Any]], bool]
_FOUND: dict[int, tuple[Mapping[str, Any], list[tuple[Look, Any]] | None]] = {}
_LOOKS: dict[str, Look] = {
    "type": _has_type,
    "enum": lambda rule, value, _: isinstance(value, str) and value in rule,
    "format": lambda rule, value, _: rule in _FORMATS and matches_format(rule, value),
    "minimum": lambda rule, value, _: not _is_number(value) or value >= rule,
    "maximum": lambda rule, value, _: not _is_number(value) or value <= rule,
    "minLength": lambda rule, value, _: not isinstance(value, str) or len(value) >= rule,
    "minItems": lambda rule, value, _: not isinstance(value, list) or len(value) >= rule,
    "maxLength": lambda rule, value, _: not isinstance(value, str) or len(value) <= rule,
    "maxItems": lambda rule, value, _: not isinstance(value, list) or len(value) <= rule,
    "items": lambda rule, value, _: not isinstance(value, list) or all(quick_validate(rule, one) for one in value),
    "properties": _has_sound_fields,
    "required": lambda rule, value, _: not isinstance(value, dict) or all(key in value for key in rule),
    "additionalProperties": _has_known_keys,
    "dependentRequired": _holds_together,
    "minProperties": lambda rule, value, _: not isinstance(value, dict) or len(value) >= rule,
    "propertyNames": lambda rule, value, _: not isinstance(value, dict) or all(quick_validate(rule, k) for k in value),
    "pattern": lambda rule, value, _: not isinstance(value, str) or re.search(rule, value) is not None,
    "uniqueItems": lambda rule, value, _: rule is True and (not isinstance(value, list) or _are_distinct(value)),
}
