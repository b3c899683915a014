"""What a snapshot holds of its caller's state: agent type, collected and required fields, and summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidDocument
from haytham.markdown.parser import parse
from haytham.markdown.schema import load_schema

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class SnapshotFields:
    """The agent's type, the values collected, the fields that are required, and the summary of the context."""

    agent_type: str | None = None
    collected_fields: Mapping[str, Any] = field(default_factory=dict)
    required_fields: tuple[Any, ...] = ()
    context_summary: str = ""


def parse_fields(data: bytes | None, file: str) -> SnapshotFields:
    """Return the fields in a state's document; the empty ones without it, InvalidDocument if it cannot be parsed."""
    if data is None:
        return SnapshotFields()
    parsed = parse(load_schema("state"), data)
    if parsed.faults:
        raise InvalidDocument([problem.with_file(file) for problem in parsed.faults])
    value = parsed.value
    return SnapshotFields(
        agent_type=value["agent.type"],
        collected_fields=value["fields.collected"],
        required_fields=tuple(value["fields.required"]),
        context_summary=value["summary"],
    )
