"""Check that a JSON document is a contract: known keys with valid values that fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from haytham.contracts.markdown import LONGEST_TITLE, normalize_column, normalize_title
from haytham.errors import short_repr
from haytham.text import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Form = Literal["prose", "list", "table", "scalar"]
Path = tuple[str | int, ...]
Fault = tuple[Path, str]

_LARGEST = 1e15
_MOST = 1000  # characters, items or rows that a section can be asked for
_TEXT = (lambda value: isinstance(value, str) and value.isprintable(), "one line of text")
_TRUE = (lambda value: isinstance(value, bool), "true, false")
_COUNT = (lambda value: type(value) is int and 0 <= value <= _MOST, f"0 to {_MOST}")
_NUMBER = (lambda value: type(value) in (int, float) and abs(value) < _LARGEST, "a number")
_MAP = (lambda value: isinstance(value, dict) and bool(value), "a map")
_TEXTS = (lambda value: isinstance(value, list) and all(_TEXT[0](item) for item in value), "a list of texts")
_CHOICES = (
    lambda value: (
        _TEXTS[0](value)
        and all(map(normalize_title, value))
        and len(set(map(normalize_title, value))) == len(value) > 0
    ),
    "words",
)
_ORIGIN = (lambda value: all(_is_origin(item) for item in (value if isinstance(value, list) else [value])), "locations")
_ANY: tuple[Callable[[Any], bool], str] = (lambda _: True, "anything")
_RULE = (lambda value: _is_rule(value), "of and cases, or of, highest and take")  # noqa: PLW0108 - defined below

_COMMON = {"description": _TEXT, "x-location": _TEXT, "x-ask": _TEXT, "x-test": _TEXT}
_TOP = {"$schema": _TEXT, "title": _TEXT, "description": _TEXT, "x-contract": _TEXT}
_TOP |= {"type": _TEXT, "properties": _MAP, "required": _TEXTS, "x-recall": _ORIGIN}
_PROSE = {**_COMMON, "type": _TEXT, "minLength": _COUNT, "x-from": _ORIGIN}
_ARRAY = {**_COMMON, "type": _TEXT, "items": _MAP, "minItems": _COUNT, "maxItems": _COUNT}
_ARRAY |= {"x-from": _ORIGIN, "x-sort": _TEXTS, "default": _ANY}
_CELL = {**_COMMON, "type": _TEXT, "minLength": _COUNT, "minimum": _NUMBER, "maximum": _NUMBER, "enum": _CHOICES}
_CELL |= {"x-unit": _TEXT, "x-source": _TRUE, "x-choice": _TRUE, "x-proven": _TEXTS, "default": _ANY}
_BULLET = {**_CELL, "x-from": _ORIGIN, "x-rule": _RULE, "x-because": _TEXT}
_ITEMS = {"type": _TEXT, "properties": _MAP, "required": _TEXTS}
_SCALARS = ("string", "integer", "number", "boolean")
_NUMBERS = ("integer", "number")


def field_form(about: Mapping[str, Any], *, is_bullet: bool) -> Form:
    """Return the form of a field, by its type and whether it is a bullet."""
    if is_bullet:
        return "scalar"
    if about["type"] == "array":
        return "table" if about["items"]["type"] == "object" else "list"
    return "prose"


def validate_definition(schema: Any) -> Iterator[Fault]:
    """Yield the faults of a contract: the path to each, and a sentence."""
    if not isinstance(schema, dict):
        yield (), f"found {short_repr(schema)}; allowed: a map, with type object and properties"
        return
    shape = [*_keys((), schema, _TOP, ("type", "properties"))]
    if not shape:
        shape = [fault for name in schema["properties"] for fault in _field((name,), schema["properties"][name])]
        shape = [(("properties", *path), message) for path, message in shape]
    yield from shape or _contradictions(schema)


def _keys(path: Path, about: Any, known: Mapping[str, Any], needed: tuple[str, ...]) -> Iterator[Fault]:
    """Yield the faults of a map: missing and unknown keys, invalid values."""
    if not isinstance(about, dict):
        yield path, f"found {short_repr(about)}; allowed: a map"
        return
    yield from ((path, f"the key {name} is missing") for name in needed if name not in about)
    for name, value in about.items():
        fits, words = known.get(name, (None, ""))
        if fits is None:
            near = closest(name, known)
            hint = f"did you mean {near}?" if near else f"allowed: {', '.join(known)}"
            yield (*path, name), f"unknown key; {hint}"
        elif not fits(value):
            yield (*path, name), f"found {short_repr(value)}; allowed: {words}"


def _field(path: Path, about: Any) -> Iterator[Fault]:
    """Yield the faults of a field."""
    if not isinstance(about, dict) or not isinstance(about.get("x-location"), str):
        yield path, f"found {short_repr(about)}; allowed: a map with type and x-location"
        return
    section, _, label = about["x-location"].partition(" / ")
    if not _is_title(section) or (" / " in about["x-location"] and (not _is_title(label) or ":" in label)):
        yield (*path, "x-location"), f"found {short_repr(about['x-location'])}; allowed: Section, or Section / Label"
    elif label:
        yield from _scalar(path, about, _BULLET)
    elif about.get("type") == "array":
        yield from _array(path, about)
    elif about.get("type") == "string":
        yield from _keys(path, about, _PROSE, ())
    else:
        yield (*path, "type"), f"found {short_repr(about.get('type'))}; allowed: string, array (others with a label)"


def _array(path: Path, about: Mapping[str, Any]) -> Iterator[Fault]:
    shape = list(_keys(path, about, _ARRAY, ("items",)))
    if not shape and about.get("minItems", 0) > about.get("maxItems", _MOST):
        shape = [
            ((*path, "minItems"), f"found {about['minItems']}, more than maxItems {about['maxItems']}; allowed: fewer")
        ]
    items = about.get("items")
    kind = items.get("type") if isinstance(items, dict) else None
    if shape:
        yield from shape
    elif kind == "string":
        yield from _keys((*path, "items"), items, {"type": _TEXT, "minLength": _COUNT}, ())
        if "default" in about and not _TEXTS[0](about["default"]):
            yield (*path, "default"), f"found {short_repr(about['default'])}; allowed: a list of texts"
    elif kind == "object":
        shape = list(_keys((*path, "items"), items, _ITEMS, ("properties",)))
        shape = shape or list(_columns((*path, "items"), about["items"]["properties"]))
        yield from shape or _table(path, about, about["items"]["properties"])
    else:
        yield (*path, "items"), f"found {short_repr(items)}; allowed: items of type string or object"


def _columns(path: Path, columns: Mapping[str, Any]) -> Iterator[Fault]:
    for name, cell in columns.items():
        where = (*path, "properties", name)
        if not isinstance(cell, dict) or not _is_title(cell.get("x-location")):
            yield where, f"found {short_repr(cell)}; allowed: a map with type and x-location, the title of the column"
        else:
            yield from _scalar(where, cell, _CELL)


def _table(path: Path, about: Mapping[str, Any], columns: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the faults of what a table says about its columns."""
    unknown = [name for name in about["items"].get("required", ()) if name not in columns]
    if unknown:
        yield (*path, "items", "required"), f"found {short_repr(unknown)}; allowed: {', '.join(columns)}"
    loose = [name for name in about.get("x-sort", ()) if "enum" not in columns.get(name, ())]
    if loose:
        yield (*path, "x-sort"), f"found {short_repr(loose[0])}; allowed: columns with enum"
    rows = about.get("default", [])
    if not isinstance(rows, list) or not all(_is_row(row, columns) for row in rows):
        yield (*path, "default"), f"found {short_repr(rows)}; allowed: a list of maps of {', '.join(columns)}"
    titles = [normalize_column(cell["x-location"]) for cell in columns.values()]
    if len(set(titles)) != len(titles):
        yield (*path, "items"), f"found the titles {short_repr(titles)}; allowed: each once"
    yield from _without_source((*path, "items"), list(columns.values()))


def _scalar(path: Path, about: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[Fault]:
    shape = list(_keys(path, about, known, ("type",)))
    yield from shape
    if about.get("type") not in _SCALARS:
        yield (*path, "type"), f"found {short_repr(about.get('type'))}; allowed: {', '.join(_SCALARS)}"
    allowed = about.get("enum", ()) if not shape else ()
    for name in ("x-proven", "default"):
        given = about.get(name, [])
        wrong = [value for value in (given if isinstance(given, list) else [given]) if allowed and value not in allowed]
        if wrong:
            yield (*path, name), f"found {short_repr(wrong[0])}; allowed: {', '.join(map(str, allowed))}"


def _without_source(path: Path, cells: list[Any]) -> Iterator[Fault]:
    """Yield a fault if numbers have no source column beside them and are not marked as chosen."""
    claimed = [cell["x-location"] for cell in cells if cell.get("type") in _NUMBERS and not cell.get("x-choice")]
    if claimed and not any(cell.get("x-source") for cell in cells):
        yield (
            path,
            f"{claimed[0]} is a number with no x-source beside it; allowed: one, or x-choice where it is decided",
        )


def _contradictions(schema: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield faults between keys: a location used twice, unknown fields, rules about tables that do not exist."""
    fields = schema["properties"]
    unknown = [name for name in schema.get("required", ()) if name not in fields]
    if unknown:
        yield ("required",), f"found {short_repr(unknown)}; allowed: {', '.join(fields)}"
    locations: dict[tuple[str, str], str] = {}
    for name, about in fields.items():
        section, _, label = about["x-location"].partition(" / ")
        same = (
            locations[seat]
            for seat in locations
            if seat[0] == normalize_title(section) and (seat[1] in ("", normalize_title(label)) or not label)
        )
        other = next(same, None)
        if other is not None:
            yield (
                ("properties", name, "x-location"),
                f"found {short_repr(about['x-location'])}, the location of {other}; allowed: once",
            )
        locations[normalize_title(section), normalize_title(label)] = name
        yield from ((("properties", name, *path), message) for path, message in _references(about, fields))
    for path, cells in _bullets(fields):
        yield from _without_source(path, cells)


def _references(about: Mapping[str, Any], fields: Mapping[str, Any]) -> Iterator[Fault]:
    if "x-because" in about and "x-rule" not in fields.get(about["x-because"], ()):
        yield ("x-because",), f"found {short_repr(about['x-because'])}; allowed: a field with x-rule"
    if "x-rule" not in about:
        return
    rule = about["x-rule"]
    table = fields.get(rule["of"], {})
    if not table or field_form(table, is_bullet=" / " in table["x-location"]) != "table":
        yield ("x-rule", "of"), f"found {short_repr(rule['of'])}; allowed: a field that is a table"
        return
    columns = table["items"]["properties"]
    used = {*rule.get("highest", ()), *([rule["take"]] if "take" in rule else [])}
    used |= {name for case in rule.get("cases", ()) for name in case.get("any", {})}
    unknown = sorted(used - columns.keys())
    if unknown:
        yield ("x-rule",), f"found {short_repr(unknown)}; allowed: {', '.join(columns)}"
    values = [case["then"] for case in rule.get("cases", ())]
    strange = [value for value in values if value not in about.get("enum", values)]
    if strange or (not values and not rule.get("highest")):
        yield ("x-rule", "cases"), f"found {short_repr(strange)}; allowed: {', '.join(about.get('enum', ['a case']))}"
    words = [name for name in rule.get("highest", ()) if columns.get(name, {}).get("type") not in _NUMBERS]
    if words:
        yield ("x-rule", "highest"), f"found {short_repr(words)}; allowed: columns of numbers"


def _bullets(fields: Mapping[str, Any]) -> Iterator[tuple[Path, list[Any]]]:
    """Return the bullets of each section, with the path to the first."""
    grouped: dict[str, dict[str, Any]] = {}
    for name, about in fields.items():
        section, _, label = about["x-location"].partition(" / ")
        if label:
            grouped.setdefault(normalize_title(section), {})[name] = about
    yield from ((("properties", next(iter(group))), list(group.values())) for group in grouped.values())


def _is_title(title: Any) -> bool:
    if not isinstance(title, str) or not title.isprintable() or len(title) > LONGEST_TITLE:
        return False
    return bool(normalize_column(title)) and not set(title) & set("|<>`*_#[]\\") and title == " ".join(title.split())


def _is_row(row: Any, columns: Mapping[str, Any]) -> bool:
    return isinstance(row, dict) and row.keys() <= columns.keys() and all(_TEXT[0](text) for text in row.values())


def _is_origin(origin: Any) -> bool:
    about = {"from": origin} if isinstance(origin, str) else origin
    if not isinstance(about, dict) or not about.keys() <= {"from", "where", "take"}:
        return False
    take, where = about.get("take", {}), about.get("where", {})
    texts = [about.get("from"), *([take] if isinstance(take, str) else _values(take))]
    texts += [text for value in _values(where) for text in (value if isinstance(value, list) else [value])]
    return all(isinstance(text, str) for text in texts)


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else [value]


def _is_rule(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("of"), str):
        return False
    if value.keys() == {"of", "highest", "take"}:
        return bool(value["highest"]) and bool(_TEXTS[0](value["highest"])) and isinstance(value["take"], str)
    cases = value.get("cases")
    return value.keys() == {"of", "cases"} and isinstance(cases, list) and all(_is_case(case) for case in cases)


def _is_case(case: Any) -> bool:
    if not isinstance(case, dict) or not isinstance(case.get("then"), str) or not case.keys() <= {"then", "any"}:
        return False
    conditions = case.get("any", {})
    flat = [text for value in _values(conditions) for text in (value if isinstance(value, list) else [value])]
    return isinstance(conditions, dict) and all(isinstance(text, str) for text in flat)
