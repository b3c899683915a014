"""Typed documents: each class has the fields of its schema, with their types, and keeps every value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham.session import models
from haytham.session.models import MODELS, AgentOutput, OutputHeader, PhaseCheckpoint
from support.hostile_inputs import KINDS, values
from support.make_golden import GOLDEN

SCHEMAS = Path(__file__).parent.parent / "schemas"
SCALARS = {"string": str, "integer": int, "number": float, "boolean": bool, "null": type(None)}


def python_type(about, row):
    """Return the type that a field of a schema has in Python."""
    if "type" not in about:
        return Any
    names = [about["type"]] if isinstance(about["type"], str) else about["type"]
    union = None
    for name in names:
        kind = Literal[tuple(about["enum"])] if "enum" in about and name == "string" else SCALARS.get(name)
        if name == "array":
            kind = tuple[row or python_type(about["items"], None), ...]
        elif name == "object":
            kind = Mapping[str, Any]
        union = kind if union is None else union | kind
    return union


def assert_same_fields(model, schema):
    """Assert that a class has the fields of an object's schema, derived ones aside, and their types."""
    hints, required = get_type_hints(model, {**vars(models), "Mapping": Mapping}), set(schema["required"])
    about = {name: field for name, field in schema["properties"].items() if not field.get("x-derived")}
    by_name = {field.metadata.get("name", field.name): field for field in fields(model)}
    assert set(by_name) == set(about)
    for name, field in by_name.items():
        expected = python_type(about[name], model.ROWS.get(name))
        is_optional = name not in required
        assert hints[field.name] == (expected | None if is_optional else expected), name
        assert (field.default is None) == is_optional, name
        if name in model.ROWS:
            assert_same_fields(model.ROWS[name], about[name]["items"])


@pytest.mark.parametrize("kind", MODELS)
def test_a_class_has_the_fields_of_its_schema(kind):
    """Names, types, and which fields may be missing are those of the JSON Schema, also of rows."""
    assert_same_fields(MODELS[kind], json.loads((SCHEMAS / f"{kind}.json").read_text(encoding="utf-8")))


def test_every_kind_of_a_session_has_a_class():
    """Every document kind has a typed class; the records of snapshots are the history's own."""
    assert {*MODELS, "snapshot"} == set(KINDS)


def test_an_output_header_is_an_output_without_its_text():
    """The head of an output has all fields but the text."""
    names = {field.name for field in fields(AgentOutput)}
    assert names - {field.name for field in fields(OutputHeader)} == {"text"}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.soak
@settings(max_examples=rounds(300))
@given(data=st.data())
def test_a_typed_document_keeps_its_value(kind, data):
    """A value comes back from its typed document as it went in, also from a copy that was made of fields alone."""
    value = data.draw(values(kind))
    document = MODELS[kind].from_value(value)
    assert document.to_value() == value
    plain = replace(document).to_value()
    assert {name: content for name, content in value.items() if content is not None}.items() <= plain.items()
    assert all(content is None for name, content in value.items() if name not in plain)


@pytest.mark.parametrize(("kind", "name"), [key for key in GOLDEN if key[0] in MODELS])
def test_a_copy_has_the_same_value(kind, name):
    """A copy of a document that is made of its fields alone has the same value, missing fields included."""
    value = GOLDEN[kind, name][0]
    assert replace(MODELS[kind].from_value(value)).to_value() == value


def test_a_change_of_one_field_changes_the_value():
    """A copy with another field has that field in its value, and all others as they were; None leaves it out."""
    value = GOLDEN["checkpoint", "failed"][0]
    document = PhaseCheckpoint.from_value(value)
    row = replace(document.ledger[0], status="skipped")
    changed = replace(document, status="completed", errors=None, ledger=(row,)).to_value()
    rest = {name: content for name, content in value.items() if name != "errors"}
    assert changed == {**rest, "status": "completed", "ledger": [{**value["ledger"][0], "status": "skipped"}]}
