"""The documentation is complete and true: its tables are compared with the code, and its examples run."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from haytham import CheckpointManager, History, ProjectManager, Session, Workspace
from haytham.agents.base import Reply, Task
from haytham.cli import context
from haytham.cli.app import command_names
from haytham.config import agent_spec
from haytham.config.settings import setting_keys, variable_name, workspace_layer
from haytham.contracts import lint
from haytham.events import EVENT_TYPES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def page(name):
    """The text of a page."""
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def section(text, heading):
    """The part of a page below a heading, up to the next heading of the same level."""
    level = heading.split(" ")[0]
    body = text.split(f"\n{heading}\n", 1)[1]
    return re.split(rf"^{level} ", body, maxsplit=1, flags=re.MULTILINE)[0]


def first_column(text):
    """The names in code spans in the first column of a part's tables."""
    cells = re.findall(r"^\| (`[^|]*`(?:, `[^|]*`)*) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def schema_keys(schema, prefix=""):
    """The dotted keys that a JSON schema allows, those of lists without their numbers."""
    for name, about in schema.get("properties", {}).items():
        inner = about.get("items", about)
        path = f"{prefix}{name}"
        if "properties" not in inner:
            yield path
        elif name == "retention":
            yield path
            yield from (f"{path}.<kind>.{rule}" for rule in inner["properties"]["routine"]["properties"])
        else:
            if about is not inner:
                yield path
            yield from schema_keys(inner, f"{path}.")


def test_every_command_is_in_the_table_of_commands():
    """The table lists each command once, and nothing else."""
    assert sorted(first_column(section(page("commands"), "## List of commands"))) == sorted(command_names())


def test_every_exit_code_is_explained():
    """The table has each exit code of the command line."""
    codes = {
        int(code) for code in re.findall(r"^\| (\d+) \|", section(page("commands"), "## Exit codes"), re.MULTILINE)
    }
    known = {getattr(context, name) for name in dir(context) if name.isupper() and type(getattr(context, name)) is int}
    assert known | {0, 143} == codes


def json_answers():
    """The JSON objects that commands answer with in the golden files."""
    for path in sorted((ROOT / "tests" / "golden" / "effects").glob("*.txt")):
        found = re.search(r"^--- standard output\n(\{.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        if found is not None:
            answer = json.loads(found[1])
            yield answer["kind"], answer


def test_every_json_answer_is_described():
    """Each kind of answer has a row, and each of its keys is named there."""
    table = section(page("commands"), "## JSON")
    rows = {
        kind: set(re.findall(r"`(\w+)`", keys))
        for kind, keys in re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)
    }
    answers = list(json_answers())
    assert {kind for kind, _ in answers} == set(rows)
    missing = {(kind, key) for kind, answer in answers for key in answer if key not in rows[kind] | {"kind", "version"}}
    assert missing == set()


def test_every_key_of_a_workflow_is_explained():
    """The table of keys is the schema of workflow.yaml."""
    schema = json.loads((ROOT / "schemas" / "workflow.json").read_text(encoding="utf-8"))
    keys = {key for key in schema_keys(schema) if "checkpoint" not in key}  # the aliases are in a sentence
    assert sorted(first_column(section(page("workflow"), "## Keys"))) == sorted(keys)


def test_every_variable_of_a_setting_is_explained():
    """The table has the variable of each setting, those of retention once for all kinds."""
    rows = dict(re.findall(r"^\| `(HAYTHAM_[^`]*)` \| `([^`]+)` \|$", page("settings"), re.MULTILINE))
    kinds = re.compile(r"(retention\.)[a-z_]+\.")
    keys = {kinds.sub(r"\1<kind>.", key) for key in setting_keys()}
    assert rows == {variable_name(key): key for key in keys}


def test_every_key_of_haytham_toml_is_explained():
    """The table has each key and table that haytham.toml may have."""
    keys = {key.partition(".")[0] for key in setting_keys()}
    assert sorted(first_column(section(page("settings"), "## haytham.toml"))) == sorted(keys)


def test_the_example_of_haytham_toml_is_allowed():
    """Each line of the example sets what it says."""
    (example,) = re.findall(r"^```toml\n(.*?)^```$", page("settings"), re.MULTILINE | re.DOTALL)
    values = workspace_layer(example.encode()).values
    assert (values["snapshots.auto"], values["snapshots.retention.routine.keep_last"]) == ("every", 50)


def test_every_key_of_an_agent_file_is_explained():
    """The table has each key that an agent's file may have."""
    table = page("agents").split("## Models")[0]
    ours = [f"haytham.{key}" for key in agent_spec._OURS if key != "runtime"]
    runtime = [f"haytham.runtime.{key}" for key in agent_spec._RUNTIME]
    top = [key for key in agent_spec._TOP if key != "haytham"]
    assert sorted(first_column(table)) == sorted([*top, *ours, *runtime])


@pytest.mark.parametrize("kind", [Task, Reply])
def test_every_field_that_an_agent_sees_is_explained(kind):
    """Each field of Task and Reply is in the tables."""
    names = first_column(section(page("agents"), "## Task and Reply"))
    assert [field.name for field in dataclasses.fields(kind) if field.name not in names] == []


def test_every_keyword_of_a_contract_is_explained():
    """The table of keywords is what the check of contracts allows."""
    tables = (lint._TOP, lint._PROSE, lint._ARRAY, lint._CELL, lint._BULLET, lint._ITEMS)
    assert sorted(first_column(section(page("contracts"), "## Keywords"))) == sorted(
        {key for table in tables for key in table}
    )


@pytest.mark.parametrize("path", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda path: path.stem)
def test_every_link_leads_to_a_file(path):
    """Each relative link of a page names a file that exists."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_every_path_of_the_architecture_exists():
    """Each file and folder of the code that the page names is there."""
    names = re.findall(r"`((?:haytham|schemas|templates|tests)/[\w/.]*)`", page("architecture"))
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_every_make_target_is_explained():
    """Each target of the Makefile is in CONTRIBUTING.md or in the README."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8") + (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1].split()
    assert [target for target in targets if f"make {target}" not in text] == []


def test_every_slow_test_exists():
    """Each line of tests/slow_tests.txt names a test, so that a renamed one is not forgotten there."""
    for line in (ROOT / "tests" / "slow_tests.txt").read_text(encoding="utf-8").split():
        file, _, name = line.partition("::")
        assert (f"def {name}(" if name else "") in (ROOT / "tests" / file).read_text(encoding="utf-8"), line


def test_every_event_is_explained():
    """The table of events has each event with its facts, and nothing else."""
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", page("events"), re.MULTILINE)
    table = {name: (re.findall(r"`(\w+)`", facts), when) for name, facts, when in rows}
    assert table == {name: (list(kind.facts), kind.when) for name, kind in EVENT_TYPES.items()}


# The examples of the pages.


def blocks(language, name="python"):
    """The code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["python", "events"])
def test_the_examples_print_what_stands_below_them(tmp_path, monkeypatch, capsys, name):
    """The Python of a page runs in order, and prints what the page says."""
    monkeypatch.chdir(tmp_path)
    code = [block for block in blocks("python", name) if "class Test" not in block]
    exec(compile("".join(code), f"{name}.md", "exec"), {"__name__": "page"})  # noqa: S102 - our own text
    assert capsys.readouterr().out == "".join(blocks("text", name))


@pytest.mark.parametrize("block", [0, 1])
def test_the_stores_of_the_page_pass_their_suites(tmp_path, block):
    """The tests of stores on the page run, and pass."""
    suites = [text for text in blocks("python") if "class Test" in text]
    (tmp_path / "test_mine.py").write_text(suites[block], encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert re.search(r"\d\d passed", done.stdout), done.stdout


def test_every_public_call_is_named():
    """No public call of the managers, of history, of Workspace and of Session is left out of the page."""
    for public in (CheckpointManager, History, ProjectManager, Session, Workspace):
        names = [name for name in vars(public) if not name.startswith("_")]
        assert [name for name in names if f"`{name}" not in page("python")] == [], public
