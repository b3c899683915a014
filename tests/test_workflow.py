"""Workflows: the shipped one, and what makes one invalid."""

from __future__ import annotations

import json
import time
from dataclasses import fields
from itertools import pairwise

import pytest
from jsonschema import Draft202012Validator

from haytham.agents.registry import require_agents
from haytham.config.policy import KINDS, BudgetLimits, DriftPolicy, SnapshotPolicy
from haytham.config.workflow import FILE, Phase, WorkflowFiles, editable_copy, parse_workflow, shipped_workflow
from haytham.config.workflow_check import workflow_schema
from haytham.errors import InvalidDocument

YAML = """
name: small
phases:
  - {number: 1, name: One, slug: one, agents: [a]}
  - {number: 2, name: Two, slug: two, agents: [b, c], needs: [1]}
modes:
  all: [1, 2]
"""


def test_an_editor_finds_the_schema_of_a_workflow():
    """The first line of the copy that `init` makes names the schema beside it, which is that of the parser."""
    files = editable_copy("idea_validation")
    assert files[FILE].split(b"\n")[0] == b"# yaml-language-server: $schema=workflow.schema.json"
    assert json.loads(files["workflow.schema.json"]) == workflow_schema()
    Draft202012Validator.check_schema(workflow_schema())


def test_the_schema_has_every_key_that_is_read():
    """Phases, policies and limits have the same keys in the schema and in Python; an alias has the same rules."""
    schema = workflow_schema()["properties"]
    phase = schema["phases"]["items"]["properties"]
    read = {field.name for field in fields(Phase) if field.init} - {"when_line"}
    assert phase.keys() - {"checkpoint"} == read
    policy = {field.name for field in fields(SnapshotPolicy)} | {"cleanup_after_days"}
    assert schema["snapshots"]["properties"].keys() == policy
    assert schema["snapshots"]["properties"]["retention"]["properties"].keys() == set(KINDS)
    assert schema["budget"]["properties"].keys() == {field.name for field in fields(BudgetLimits)}
    assert schema["drift"]["properties"].keys() == {field.name for field in fields(DriftPolicy)}
    assert schema["checkpointing"]["properties"] == schema["snapshots"]["properties"]
    rules = [{**node, "description": ""} for node in (phase["snapshot"], phase["checkpoint"], schema["snapshot"])]
    assert rules == [{"description": "", "type": "boolean"}] * 3
    assert all("description" in node for node in [*schema.values(), *phase.values()])


@pytest.mark.parametrize("keys", [("snapshots", "snapshot"), ("checkpointing", "checkpoint")])
def test_snapshots_go_by_two_names(keys):
    """`checkpointing:` and `checkpoint:` are aliases of `snapshots:` and `snapshot:`, also of a phase."""
    group, switch = keys
    text = YAML.replace("agents: [a]", f"agents: [a], {switch}: false") + f"{group}: {{auto: every}}\n{switch}: true\n"
    workflow = parse_workflow(text.encode(), file="w.yaml")
    assert (workflow.policy.auto, workflow.policy.enabled, workflow.phases[0].snapshot) == ("every", True, False)
    plain = text.replace(group, "snapshots").replace(f"{switch}:", "snapshot:")
    assert workflow.digest == parse_workflow(plain.encode(), file="w.yaml").digest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("snapshots: {auto: often}", "w.yaml:8: snapshots.auto: found 'often'; allowed: phase, every, off"),
        ("snapshots: {}\ncheckpointing: {}", "w.yaml:9: checkpointing: found checkpointing and snapshots, which mean"),
        ("snapshot: true\nsnapshots: {enabled: false}", "w.yaml:8: snapshot: found True, and snapshots.enabled: False"),
    ],
)
def test_two_names_of_one_key_do_not_stand_together(text, said):
    """Faults name the key as it is written; both names at once are one."""
    with pytest.raises(InvalidDocument) as refused:
        parse_workflow(f"{YAML}{text}\n".encode(), file="w.yaml")
    assert said in str(refused.value)


def test_the_shipped_workflow_has_its_phases_and_modes():
    """Idea validation has seven phases, each with its needs, and two modes."""
    workflow = shipped_workflow("idea_validation").workflow
    assert {phase.number: phase.needs for phase in workflow.phases} == {
        1: (),
        2: (1,),
        3: (1, 2),
        4: (3,),
        5: (2, 3, 4),
        6: (2, 3, 4, 5),
        7: (1, 2, 3, 4, 5, 6),
    }
    assert {mode: [phase.number for phase in workflow.mode_phases(mode)] for mode in workflow.modes} == {
        "mvp": [1, 2, 3, 6, 7],
        "full": [1, 2, 3, 4, 5, 6, 7],
    }


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("slug: two", "slug: one", "found the slugs"),
        ("number: 2", "number: 1", "found the numbers [1, 1]"),
        ("needs: [1]", "needs: [2]", "phases[1].needs: phase 2 needs [2]; allowed: earlier phases"),
        ("needs: [1]", "needs: [7]", "phase 2 needs [7]"),
        ("all: [1, 2]", "all: [1, 3]", "modes.all: found phases [3]"),
        ("slug: two", "slug: ../two", "does not match"),
        ("slug: two", "slag: two", "w.yaml:5: phases[1].slag: unknown key; did you mean slug?"),
        ("agents: [a]", "agents: []", "agents"),
        ("name: small", "name: [", "is not valid YAML"),
        ("name: small", "name: small\nzzz: x", "w.yaml:3: zzz: unknown key; allowed: name, phases, modes"),
        ("agents: [b, c]", "agents: [b, b]", "phases[1].agents: found ['b', 'b']; allowed: each once"),
        ("slug: two", 'slug: "two\\n"', "does not match"),
    ],
)
def test_a_wrong_workflow_is_refused(old, new, said):
    """What contradicts itself or the schema is named, with the file."""
    with pytest.raises(InvalidDocument, match=r"w\.yaml:\d+") as refused:
        parse_workflow(YAML.replace(old, new).encode(), file="w.yaml")
    assert said in str(refused.value)


def test_the_digest_covers_what_the_files_say():
    """Another word in any file is another workflow; line ends, comments and the order of files are none."""
    files = {FILE: YAML.encode(), **{f"agents/{name}.md": b"Do it.\n" for name in "abc"}}
    same = {**dict(reversed(files.items())), FILE: b"# mine\r\n" + YAML.replace("\n", "\r\n").encode()}
    assert WorkflowFiles("x", files).digest == WorkflowFiles("y", same).digest
    others = [{**files, "agents/a.md": b"Do that.\n"}, {**files, FILE: YAML.replace("One", "Won").encode()}]
    assert len({WorkflowFiles("x", other).digest for other in [files, *others]}) == 3


def test_every_agent_has_a_file():
    """An agent that a phase names, that has no file and is no adapter, is named."""
    files = {FILE: YAML.encode(), "agents/a.md": b"", "agents/b.md": b""}
    with pytest.raises(InvalidDocument, match=r"agent c: no file agents/c\.md"):
        require_agents(WorkflowFiles("x", files))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("number: 1", "number: 1.0", "w.yaml:4: phases[0].number: found 1.0; allowed: a whole number"),
        ("number: 1", "number: true", "phases[0].number: found True; allowed: a whole number"),
        ("number: 1", "number: " + "9" * 300, "w.yaml:4: has a number of 300 characters; allowed: 100"),
        ("number: 2", "number: 10000", "phases[1].number: found 10000; allowed: 9999 or less"),
        ("needs: [1]", "needs: [1.0]", "phases[1].needs[0]: found 1.0; allowed: a whole number"),
        ("all: [1, 2]", "all: [1, 2.0]", "modes.all[1]: found 2.0; allowed: a whole number"),
    ],
)
def test_numbers_of_phases_are_whole_and_short(old, new, said):
    """A phase's number is a whole number up to 9999, wherever it stands: 1.0 makes no folder."""
    with pytest.raises(InvalidDocument) as refused:
        parse_workflow(YAML.replace(old, new).encode(), file="w.yaml")
    assert said in str(refused.value)


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf", "1.0e+300", "-1", "true", "'1'", "9" * 90])
@pytest.mark.parametrize(
    "key",
    [
        "checkpointing: {interval_minutes: VALUE}",
        "checkpointing: {frequency: VALUE}",
        "checkpointing: {max_snapshots: VALUE}",
        "checkpointing: {max_per_user: VALUE}",
        "checkpointing: {cleanup_after_days: VALUE}",
        "checkpointing: {retention: {phase: {cleanup_after_days: VALUE}}}",
        "checkpointing: {retention: {phase: {keep_last: VALUE}}}",
        "budget: {max_cost: VALUE}",
        "budget: {max_tokens: VALUE}",
        "budget: {warn_at: VALUE}",
    ],
)
def test_every_number_of_a_workflow_is_finite_and_within_bounds(key, value):
    """What no calendar, clock or account can hold is refused with its line; not a number is none."""
    with pytest.raises(InvalidDocument, match=r"w\.yaml:8: "):
        parse_workflow(f"{YAML}{key.replace('VALUE', value)}\n".encode(), file="w.yaml")


def laughs():
    """A list that unfolds to a billion words."""
    lists = (f"{name}: &{name} [{', '.join(['*' + last] * 10)}]" for last, name in pairwise("abcdefghi"))
    return "\n".join(["a: &a [x, x, x, x, x, x, x, x, x, x]", *lists])


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        (f"{YAML}{laughs()}\n", "w.yaml:9: has the alias *a; allowed: no aliases, write the value out"),
        (YAML.replace("[a]", "&a [a]").replace("[b, c]", "*a"), "w.yaml:5: has the alias *a"),
        ("x: " + "[" * 100_000, "w.yaml:1: is nested more than 50 deep"),
        ("- " * 100_000, "w.yaml:1: is nested more than 50 deep"),
        (YAML + "# " + "x" * 300_000, "characters; allowed: 262,144"),
        ("\n".join(f"a{at}: 1" for at in range(15_000)), "has more than 20,000 keys and values"),
        ("a: 1" + ":1" * 100_000, "w.yaml:1: has a number of 200,001 characters"),
        ("? 1" + ":1" * 100_000, "w.yaml:1: has a number of 200,001 characters"),
        (YAML.replace("[a]", str([{"a": at} for at in range(3_000)])), "phases[0].agents[0]: found {'a': 0}"),
        ("\n".join(f"phasez{at}: 1" for at in range(9_000)), "phasez0: unknown key; did you mean phases?"),
        ("!" * 200_000, "is not valid YAML"),
    ],
    ids=["bomb", "alias", "brackets", "dashes", "long", "many", "digits", "key", "maps", "keys", "tag"],
)
def test_a_workflow_that_would_take_long_to_read_is_refused_at_once(yaml, said):
    """Aliases, deep nesting, long texts and endless lists are refused with file and line, in a short sentence."""
    begun = time.process_time()
    with pytest.raises(InvalidDocument) as refused:
        parse_workflow(yaml.encode(), file="w.yaml")
    assert said in str(refused.value)
    assert len(str(refused.value)) < 20_000
    assert time.process_time() - begun < 4


SEED = """
workflow:
  checkpointing:
    enabled: true
    storage_type: file         # or "memory"
    storage_path: ./checkpoints
    cleanup_after_days: 30
    auto_resume_on_failure: false
"""


def test_settings_may_stand_under_the_word_workflow():
    """What stands under `workflow:` is read as if it stood at the top, as other systems write it."""
    policy = parse_workflow(f"{SEED}{YAML}".encode(), file="w.yaml").policy
    assert (policy.storage_path, policy.retention["phase"].cleanup_after_days) == ("./checkpoints", 30)
    whole = "workflow:\n" + "\n".join(f"  {line}" for line in YAML.strip().split("\n")) + "\n"
    assert parse_workflow(whole.encode(), file="w.yaml").digest == parse_workflow(YAML.encode(), file="w.yaml").digest


@pytest.mark.parametrize(
    ("line", "enabled"),
    [
        ("workflow: {checkpoint: true}", True),
        ("workflow: {checkpoint: false}", False),
        ("checkpoint: false", False),
        ("checkpoint: true\ncheckpointing: {auto: every}", True),
    ],
)
def test_a_workflow_says_in_a_word_whether_it_keeps_a_history(line, enabled):
    """`checkpoint: true` or `false` for the whole workflow switches its history on or off."""
    assert parse_workflow(f"{YAML}{line}\n".encode(), file="w.yaml").policy.enabled is enabled


@pytest.mark.parametrize("word", ["off", "'off'", "false", "no"])
def test_snapshots_are_switched_off_without_quotes(word):
    """`auto: off` is off, although YAML reads it as false."""
    assert parse_workflow(f"{YAML}checkpointing: {{auto: {word}}}\n".encode(), file="w.yaml").policy.auto == "off"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps: [{name: a, agent: b}]", "w.yaml:8: steps: unknown key; a step is a phase: list it under phases"),
        ("workflow: {steps: []}", "w.yaml:8: steps: unknown key; a step is a phase"),
        ("workflow: {name: other}", "w.yaml:8: workflow: found name here and at the top; allowed: once"),
        ("workflow: {checkpointing: {auto: 7}}", "w.yaml:8: checkpointing.auto: found 7; allowed: phase, every, off"),
        ("checkpointing: {auto: on}", "checkpointing.auto: found True; allowed: phase, every, off"),
        ("checkpointing: {auto_resume_on_failure: maybe}", "_on_failure: found 'maybe'; allowed: true, false"),
        ("checkpointing: {max_retries: -1}", "checkpointing.max_retries: found -1; allowed: 0 or more"),
        ("drift: {cycle: 3}", "w.yaml:8: drift.cycle: unknown key"),
        ("drift: {window: 9}", "w.yaml:8: drift.window: found 9; allowed: 10 or more"),
        ("drift: {error_rate: 2}", "w.yaml:8: drift.error_rate: found 2; allowed: "),
        ("drift: {action: stop}", "w.yaml:8: drift.action: found 'stop'; allowed: warn, pause, refresh"),
        (
            "checkpoint: true\ncheckpointing: {enabled: false}",
            "w.yaml:8: checkpoint: found True, and checkpointing.ena",
        ),
        ("workflow: 7", "w.yaml:8: workflow: unknown key"),
    ],
)
def test_words_of_other_systems_that_mean_nothing_here_are_refused_with_a_sentence(text, said):
    """`steps:` and what contradicts itself are named with their line."""
    with pytest.raises(InvalidDocument) as refused:
        parse_workflow(f"{YAML}{text}\n".encode(), file="w.yaml")
    assert said in str(refused.value)
