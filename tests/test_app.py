"""The use cases: what a command does can be done from Python, with the same files, events and snapshots."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import pytest

from support.app_calls import CALLS, app_effects
from support.effect_scenarios import COMMANDS, SCENARIOS
from support.effects import Workspaces

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS if scenario.words and scenario.words[0] in CALLS}


@pytest.fixture(scope="module")
def workspaces():
    """A folder in which scenarios are run one after the other."""
    with TemporaryDirectory() as folder:
        yield Workspaces(folder)


def left(text):
    """Return the part of a golden file that is about files, events and snapshots."""
    return text.partition("\n=== ")[2]


@pytest.mark.parametrize("name", BY_NAME)
def test_a_call_has_the_effects_of_its_command(workspaces, name):
    """What a command leaves behind, the same call of haytham.app leaves behind, to the byte."""
    scenario = BY_NAME[name]
    found = app_effects(workspaces, scenario).text(scenario)
    assert left(found) == left(scenario.golden.read_bytes().decode())


def test_every_command_has_a_call():
    """Each command of the command table, and each other name of one, has a call of haytham.app."""
    assert {*COMMANDS, "snapshots", "list-checkpoints", "discard"} == set(CALLS)
