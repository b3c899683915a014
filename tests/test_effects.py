"""The effects of every command, as golden files: what a person sees and finds is a difference to review.

`make golden` draws them anew, all of them or those that are named.
"""

from __future__ import annotations

import re
from tempfile import TemporaryDirectory

import pytest

from support.effect_scenarios import ALL, COMMANDS, SCENARIOS
from support.effects import GOLDEN, Scenario, Workspaces, effects, record

TWICE = ["run_yes", "run_recorded", "merge", "resume_trusting"]
BY_NAME = {scenario.name: scenario for scenario in ALL}


@pytest.fixture(scope="module")
def workspaces():
    """A folder in which scenarios are run one after the other."""
    with TemporaryDirectory() as folder:
        yield Workspaces(folder)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_command_has_the_agreed_effects(workspaces, name):
    """A command answers, and changes files, events and snapshots, to the byte as its golden file says."""
    scenario = BY_NAME[name]
    assert effects(workspaces, scenario).text(scenario) == scenario.golden.read_bytes().decode()


@pytest.mark.parametrize("name", TWICE)
def test_effects_are_the_same_in_every_folder(workspaces, tmp_path, name):
    """The text of a scenario depends neither on the folder it is run in nor on what was run before."""
    scenario = BY_NAME[name]
    elsewhere = Workspaces(tmp_path / "elsewhere")
    assert effects(elsewhere, scenario) == effects(workspaces, scenario)


def test_every_command_has_a_scenario():
    """Each command of the command table, and each other name of one, is tried in a scenario that does its work."""
    tried = {scenario.words[0] for scenario in SCENARIOS if scenario.words}
    assert {*COMMANDS, "snapshots", "list-checkpoints", "discard"} <= tried


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_tried_with_json(name):
    """Each command has a scenario that answers with JSON."""
    assert [one for one in SCENARIOS if one.words[:1] == [name] and "--json" in one.words]


def test_every_scenario_has_a_name_of_its_own():
    """No two scenarios share a golden file, and no golden file is without its scenario."""
    assert len(BY_NAME) == len(ALL)
    assert {path.stem for path in GOLDEN.iterdir()} == set(BY_NAME)


def test_a_call_of_python_is_recorded_like_a_command(workspaces):
    """What is done without a command has files, events and snapshots to compare, and no output."""
    folder = workspaces.prepare(())

    def call():
        (folder / "notes.md").write_text("mine\n", encoding="utf-8")

    found = record(folder, call)
    assert (found.output, found.snapshots, found.events) == ("", "", "")
    assert found.files == "added notes.md\n+mine\n"


def test_what_differs_between_machines_is_replaced_by_tokens(workspaces):
    """Digests, ids and paths have numbers in the order they appear; the same thing has the same number."""
    found = effects(workspaces, Scenario("x", "list", ("run ladders --no-input",)))
    assert re.search(r"\nladders/<id 1>  waiting  review 1 \(ann\)  ann +\S+ +2024-11-24T10:00:00Z\n", found.output)
