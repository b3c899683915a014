"""The quick look at a value: what it accepts, the JSON Schema accepts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import rounds
from haytham.config.workflow_check import _validator
from haytham.markdown.schema import document_validators, load_schema
from haytham.validation import compile_validator
from support.hostile_inputs import KINDS, plain_values, texts, values

WORKFLOW = json.loads((Path(__file__).parent.parent / "schemas" / "workflow.json").read_text(encoding="utf-8"))


def accepted(kind, value):
    """Whether the JSON Schema accepts a value."""
    whole, parts = document_validators(kind)
    return whole.is_valid(value) and all(parts[name].is_valid(value[name]) for name in value if name in parts)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.soak
@settings(max_examples=rounds(1000))
@given(data=st.data())
def test_a_yes_of_the_quick_look_is_a_yes_of_the_schema(name, data):
    """Whatever is changed in a value, the quick look accepts nothing that the schema refuses, and all sound values."""
    kind = load_schema(name)
    value = data.draw(values(name))
    assert compile_validator(kind.schema)(value)
    field = data.draw(st.sampled_from(sorted([*value, "other"])))
    changed = {**value, field: data.draw(plain_values | st.integers() | texts)}
    if data.draw(st.booleans()):
        changed.pop(data.draw(st.sampled_from(sorted(changed))))
    assert accepted(kind, changed) or not compile_validator(kind.schema)(changed)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "A b"},
        {"phases": []},
        {"phases": [{"number": 1, "name": "a\nb", "slug": "a", "agents": ["a"]}]},
        {"phases": [{"number": 1.0, "name": "a", "slug": "a", "agents": ["a"]}]},
        {"phases": [{"number": 1, "name": "a", "slug": "a", "agents": ["a", "a"]}]},
        {"phases": [{"number": 1, "name": "a", "slug": "a", "agents": ["a"], "needs": [1, 1]}]},
        {"modes": {}},
        {"modes": {"A B": [1]}},
        {"modes": {"all": "1"}},
        {"more": 1},
    ],
)
def test_a_wrong_workflow_is_left_to_the_schema(change):
    """What the schema of workflows refuses, the quick look does not accept."""
    sound = {"name": "w", "phases": [{"number": 1, "name": "a", "slug": "a", "agents": ["a"]}], "modes": {"all": [1]}}
    assert compile_validator(WORKFLOW)(sound)
    assert not _validator().is_valid({**sound, **change})
    assert not compile_validator(WORKFLOW)({**sound, **change})
