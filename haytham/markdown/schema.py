"""What a document kind is: its JSON Schema, read as sections and the seats of fields in them.

A seat (`x-location`) is where a field is visible: `Metadata / Session ID` is a bullet, `Output` a whole section,
`---` the front matter. `x-form`, `x-noun` and `x-unit` say how it looks there, `x-derived` that it is only drawn.
`x-note` is a comment for people below the title.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from haytham.errors import short_repr
from haytham.resources import resource_path
from haytham.validation import Check, compile_validator, full_validator, non_json_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jsonschema import Draft202012Validator

Form = Literal["scalar", "inline", "prose", "verbatim", "code", "list", "numbered", "map", "table"]
HEADER = "---"
TITLE = "#"  # the name of the title among the fields of a document
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


@dataclass(frozen=True)
class Field:
    """One field of a kind: its type, its location and its format."""

    name: str
    section: str
    label: str | None
    form: Form
    type: str
    nullable: bool
    required: bool
    derived: bool
    unit: str
    noun: str
    allowed: tuple[str, ...]
    columns: tuple[Field, ...]

    @property
    def place(self) -> tuple[str | None, str | None]:
        """Return section and label as a report names them; the name alone for a field of the header."""
        return (None, self.name) if self.section == HEADER else (self.section, self.label)


@dataclass(frozen=True)
class Section:
    """A `## ` section of a kind and its fields: bullets, or one field that fills it."""

    name: str
    fields: tuple[Field, ...]

    @cached_property
    def body(self) -> Field | None:
        """Return the field that fills the section, or None."""
        return self.fields[0] if self.fields[0].label is None else None

    @cached_property
    def required(self) -> bool:
        """Return whether the section is required."""
        return any(field.required for field in self.fields)

    @cached_property
    def is_optional(self) -> bool:
        """Return whether the section holds values and may be absent."""
        return not self.required and not self.derived

    def has_value(self, value: Mapping[str, Any]) -> bool:
        """Return whether a value has a field of this section."""
        return any(field.name in value for field in self.fields)

    @cached_property
    def derived(self) -> bool:
        """Return whether all of the section is derived."""
        return all(field.derived for field in self.fields)


@dataclass(frozen=True)
class TitleComment:
    """A comment below the title, for people: the values it is shown for, and its lines, some only if a field is set."""

    when: Mapping[str, Any]
    lines: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, eq=False)
class DocumentSchema:
    """A document kind: name, format version, title, note, fields by location, and the schema a value satisfies."""

    name: str
    version: int
    title: str
    note: TitleComment | None
    header: tuple[Field, ...]
    sections: tuple[Section, ...]
    schema: Mapping[str, Any]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Return all fields, in the order of the schema."""
        return self.header + tuple(field for section in self.sections for field in section.fields)

    @cached_property
    def field_by_name(self) -> dict[str, Field]:
        """Return the fields by name."""
        return {field.name: field for field in self.fields}

    @cached_property
    def trailing_field(self) -> Field | None:
        """Return the field whose content runs to the end of the file, or None."""
        body = self.sections[-1].body
        return body if body is not None and body.form == "verbatim" else None

    @cached_property
    def title_parts(self) -> tuple[str, str | None]:
        """Return the fixed words of the title, and the name of the field after them."""
        words, brace, rest = self.title.partition("{")
        return words.rstrip(), rest.rstrip("}") if brace else None

    @cached_property
    def heading(self) -> re.Pattern[str]:
        """Return the pattern of a line that is one of this kind's own headings."""
        names = "|".join(re.escape(section.name) for section in self.sections)
        return re.compile(rf"^## ({names})[ \t]*\r?$", re.MULTILINE)

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the names of its sections."""
        return frozenset(section.name for section in self.sections)


@lru_cache(maxsize=64)
def load_schema(name: str) -> DocumentSchema:
    """Read a shipped kind by its name."""
    return parse_schema(json.loads(resource_path("schemas", f"{name}.json").read_text(encoding="utf-8")))


def parse_schema(schema: Mapping[str, Any]) -> DocumentSchema:
    """Read a kind from its schema; what is only shown takes no part in the schema of values."""
    name, version = schema["x-kind"].split("/")
    required = frozenset(schema.get("required", ()))
    properties = list(schema["properties"].items())
    last = next(key for key, about in reversed(properties) if about["x-location"] != HEADER)
    fields = [_field(key, about, required=key in required, last=key == last) for key, about in properties]
    grouped: dict[str, list[Field]] = {}
    for field in fields:
        grouped.setdefault(field.section, []).append(field)
    return DocumentSchema(
        name=name,
        version=int(version),
        title=schema["x-title"],
        note=_note(schema["x-note"]) if "x-note" in schema else None,
        header=tuple(grouped.pop(HEADER, ())),
        sections=tuple(Section(section, tuple(seated)) for section, seated in grouped.items()),
        schema=_value_schema(schema, fields),
    )


def _note(about: Mapping[str, Any]) -> TitleComment:
    lines = [(line, None) if isinstance(line, str) else (line["text"], line["field"]) for line in about["lines"]]
    return TitleComment(when=about["when"], lines=tuple(lines))


def _value_schema(schema: Mapping[str, Any], fields: list[Field]) -> dict[str, Any]:
    shown = {field.name for field in fields if field.derived}
    return {
        **schema,
        "properties": {key: about for key, about in schema["properties"].items() if key not in shown},
        "required": [key for key in schema.get("required", ()) if key not in shown],
    }


def _field(name: str, about: Mapping[str, Any], *, required: bool, last: bool) -> Field:
    section, _, label = about["x-location"].partition(" / ")
    types = about.get("type", "any")
    types = [types] if isinstance(types, str) else list(types)
    main = next(kind for kind in types if kind != "null")
    return Field(
        name=name,
        section=section,
        label=label or None,
        form=_form(about, main, bullet=bool(label) or section == HEADER, last=last),
        type=_scalar_type(about, main),
        nullable="null" in types or _scalar_type(about, main) == "any" or bool(about.get("x-derived")),
        required=required,
        derived=bool(about.get("x-derived", False)),
        unit=about.get("x-unit", ""),
        noun=about.get("x-noun", ""),
        allowed=tuple(str(value) for value in about.get("enum", ()) if value is not None),
        columns=_columns(about, main),
    )


def _form(about: Mapping[str, Any], main: str, *, bullet: bool, last: bool) -> Form:
    if "x-form" in about:
        form: Form = about["x-form"]
        return form
    if bullet:
        return "inline" if main == "array" else "scalar"
    if main == "array":
        return "table" if about["items"].get("type") == "object" else "list"
    if main == "object":
        return "map"
    return "verbatim" if last else "prose"


def _scalar_type(about: Mapping[str, Any], main: str) -> str:
    """Return the type of the field itself, or of each item of a list or map."""
    if main == "array":
        return str(about["items"].get("type", "any"))
    if main == "object" and about["x-location"] != HEADER:
        return str(about.get("additionalProperties", {}).get("type", "any"))
    return main


def _columns(about: Mapping[str, Any], main: str) -> tuple[Field, ...]:
    if main != "array" or about["items"].get("type") != "object":
        return ()
    items = about["items"]["properties"].items()
    seated = ((name, {**cell, "x-location": f"{about['x-location']} / {cell['x-location']}"}) for name, cell in items)
    return tuple(_field(name, cell, required=True, last=False) for name, cell in seated)


def document_faults(
    kind: DocumentSchema, value: Mapping[str, Any], *, without: str | None = None
) -> Iterator[tuple[str, str]]:
    """Return what is wrong with a value of a kind: the name of the field and a sentence, for each fault."""
    if _document_check(kind, without)(value):
        return
    faults = [(name, fault) for name, content in value.items() for fault in non_json_values(content)]
    if faults:
        yield from faults
        return
    whole, parts = document_validators(kind)
    shape = dict.fromkeys(pair for error in whole.iter_errors(dict(value)) for pair in _shape_sentences(error))
    yield from (pair for pair in shape if pair[0] != without)
    for name, content in value.items():
        if name in parts:
            field = kind.field_by_name[name]
            yield from ((name, _sentence(field, error)) for error in parts[name].iter_errors(content))


def is_valid_document(kind: DocumentSchema, value: Mapping[str, Any], *, without: str | None = None) -> bool:
    """Return whether a value surely satisfies its kind, but for one field that may be missing."""
    return _document_check(kind, without)(value)


@lru_cache(maxsize=128)
def _document_check(kind: DocumentSchema, without: str | None) -> Check:
    required = [name for name in kind.schema["required"] if name != without]
    return compile_validator({**kind.schema, "required": required})


@lru_cache(maxsize=128)
def document_validators(kind: DocumentSchema) -> tuple[Draft202012Validator, dict[str, Draft202012Validator]]:
    """Return a JSON Schema validator for which fields there are, and one for each field."""
    fields = kind.schema["properties"]
    whole = {**kind.schema, "properties": dict.fromkeys(fields, True)}
    return full_validator(whole), {name: full_validator(schema) for name, schema in fields.items()}


def _shape_sentences(error: Any) -> Iterator[tuple[str, str]]:
    """Return which fields are missing, and which the kind does not have."""
    if error.validator == "required":
        yield from ((key, "is missing") for key in error.validator_value if key not in error.instance)
    elif error.validator == "additionalProperties":
        known = error.schema["properties"]
        yield from ((key, "is not a field of this kind") for key in error.instance if key not in known)
    else:
        yield "", error.message


def _sentence(field: Field, error: Any) -> str:
    """Word an error of the JSON Schema as people read a document."""
    limit = error.validator_value
    column = _column(field, list(error.path))
    words: dict[str, Callable[[], str]] = {
        "enum": lambda: ", ".join(limit),
        "format": lambda: _FORMAT_WORDS.get(limit, limit),
        "minimum": lambda: f"{limit} or more",
        "maximum": lambda: f"{limit} or less",
        "minItems": lambda: f"at least {limit}",
        "minLength": lambda: f"at least {limit} character",
        "type": lambda: _type_words(column, limit),
    }
    place = "".join(f"{part}: " for part in error.path)
    allowed = words.get(error.validator)
    fault = str(error.message) if allowed is None else f"found {short_repr(error.instance)}; allowed: {allowed()}"
    return place + fault


def _column(field: Field, path: list[Any]) -> Field | None:
    """Return the column of a table that the path of an error leads to, else the field itself."""
    if not field.columns or len(path) < 2:  # noqa: PLR2004 - row, column
        return field
    return next((column for column in field.columns if column.name == path[1]), None)


def _type_words(field: Field | None, types: str | list[str]) -> str:
    names = [types] if isinstance(types, str) else types
    if field is not None and not field.columns and not {"array", "object"} & set(names):
        return describe(field)
    return " or ".join(_TYPE_WORDS[name] for name in names)


def describe(field: Field) -> str:
    """Return what a field may hold, in a person's words."""
    if field.allowed:
        return ", ".join(field.allowed)
    unit = {"s": " of seconds, like 120.5s", "$": " of dollars, like $0.0375"}
    scalars = {"string", "integer", "number", "boolean"}
    return (_TYPE_WORDS[field.type] if field.type in scalars else "a value") + unit.get(field.unit, "")
