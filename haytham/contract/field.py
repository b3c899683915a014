"""The fields of a contract: where each is seated in a reply, what it may hold, and what is asked.

As in document kinds, `x-seat` is where a field is visible: `Problem` a whole section (prose for a string, a list for
strings, a table for objects), `Verdict / Decision` the bullet *Decision* under *Verdict*.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from haytham.contract.rule import Rule, read_rule

if TYPE_CHECKING:
    from collections.abc import Mapping

Form = Literal["prose", "list", "table", "scalar"]


@dataclass(frozen=True)
class Origin:
    """Where a page finds what earlier texts say: a section, the rows of it that count, and what becomes of them.

    `take` gives a column's text by its name, or by a pattern like `ASSUMPTION: {Cheapest test}`; columns with the same
    title need no word. `idea` and `assumptions` name no section but the idea, and all that is marked.
    """

    section: str
    label: str | None
    where: tuple[tuple[str, tuple[str, ...]], ...]
    take: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Field:
    """One field: its seat, its form and type, its limits, and what a page says of it before anybody has answered.

    `least` and `most` count characters of text, and items of a list or rows of a table. `source` marks the column that
    says where the numbers beside it are from, `chosen` a number that is decided and needs none, `proven` the values
    that only a source can give.
    """

    name: str
    section: str
    label: str | None
    form: Form
    type: str
    required: bool
    ask: str
    test: str
    allowed: tuple[str, ...]
    unit: str
    least: int
    most: int | None
    minimum: float | None
    maximum: float | None
    source: bool
    chosen: bool
    proven: tuple[str, ...]
    default: Any
    sort: tuple[str, ...]
    because: str | None
    rule: Rule | None
    origins: tuple[Origin, ...]
    columns: tuple[Field, ...]

    @cached_property
    def title(self) -> str:
        """What stands over the column or before the colon: a unit that the words do not name stands behind them."""
        name = self.label or self.section
        return f"{name} ({self.unit})" if self.unit and "(" not in name else name

    @cached_property
    def column_by_name(self) -> dict[str, Field]:
        """The columns of a table by name."""
        return {column.name: column for column in self.columns}


@dataclass(frozen=True, eq=False)
class Section:
    """A section of a reply and the fields seated in it: bullets, or one field that fills it."""

    name: str
    fields: tuple[Field, ...]

    @property
    def body(self) -> Field | None:
        """The field that fills the section, where one does."""
        return self.fields[0] if self.fields[0].label is None else None

    @property
    def required(self) -> bool:
        """Whether the section must be there."""
        return any(field.required for field in self.fields)


def read_sections(schema: Mapping[str, Any]) -> tuple[Section, ...]:
    """The sections of a contract, in the order of its schema."""
    required = schema.get("required", ())
    grouped: dict[str, list[Field]] = {}
    for name, about in schema["properties"].items():
        rule = read_rule(about["x-rule"], schema["properties"]) if "x-rule" in about else None
        field = _field(name, about, about["x-seat"], required=name in required, rule=rule)
        grouped.setdefault(field.section, []).append(field)
    return tuple(Section(name, tuple(fields)) for name, fields in grouped.items())


def read_origin(said: Any) -> Origin:
    """Where something is found: a seat, or a map of a seat, the rows that count, and what is taken of them."""
    about = {"from": said} if isinstance(said, str) else said
    section, _, label = about["from"].partition(" / ")
    where = ((title, (value,) if isinstance(value, str) else tuple(value)) for title, value in _pairs(about, "where"))
    return Origin(section, label or None, tuple(where), tuple(_pairs(about, "take")))


def _pairs(about: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    found = about.get(name, {})
    return list({"": found}.items() if isinstance(found, str) else found.items())


def _field(name: str, about: Mapping[str, Any], seat: str, *, required: bool, rule: Rule | None = None) -> Field:
    section, _, label = seat.partition(" / ")
    items = about.get("items", {})
    origins = about.get("x-from", [])
    return Field(
        name=name,
        section=section,
        label=label or None,
        form=form_of(about, is_bullet=bool(label)),
        type=items.get("type", about["type"]),
        required=required,
        ask=about.get("x-ask", ""),
        test=about.get("x-test", ""),
        allowed=tuple(about.get("enum", ())),
        unit=about.get("x-unit", ""),
        least=about.get("minItems", about.get("minLength", 0)),
        most=about.get("maxItems"),
        minimum=about.get("minimum"),
        maximum=about.get("maximum"),
        source=about.get("x-source", False),
        chosen=about.get("x-choice", False),
        proven=tuple(about.get("x-proven", ())),
        default=about.get("default"),
        sort=tuple(about.get("x-sort", ())),
        because=about.get("x-because"),
        rule=rule,
        origins=tuple(read_origin(origin) for origin in (origins if isinstance(origins, list) else [origins])),
        columns=_columns(section, items),
    )


def _columns(section: str, items: Mapping[str, Any]) -> tuple[Field, ...]:
    required = items.get("required", ())
    cells = items.get("properties", {}).items()
    return tuple(_field(key, cell, f"{section} / {cell['x-seat']}", required=key in required) for key, cell in cells)


def form_of(about: Mapping[str, Any], *, is_bullet: bool) -> Form:
    """How a field is seated: as its type says, and as a bullet or a section."""
    if is_bullet:
        return "scalar"
    if about["type"] == "array":
        return "table" if about["items"]["type"] == "object" else "list"
    return "prose"
