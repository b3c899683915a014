"""The page of the seeds' features is true: its commands, its Python names and its tests exist."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import click
import pytest

from haytham.cli.app import root

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")
ROWS = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in PAGE.splitlines() if re.match(r"\| \d", line)]
SHARED = {"--json", "--no-input", "--quiet", "-q", "--debug", "-C"}


def spans(column):
    """The code spans of a column, each once."""
    return sorted({span for row in ROWS for span in re.findall(r"`([^`]+)`", row[column])})


def test_every_feature_has_a_row():
    """There are 58, in order, each with a command, a call and a test; one of them is planned."""
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, 59)]
    assert all(len(row) == 5 and all("`" in cell for cell in row[2:]) for row in ROWS)
    assert [row[0] for row in ROWS if "planned" in row[1]] == ["25"]


@pytest.mark.parametrize("line", spans(2))
def test_every_command_exists(line):
    """The command, and each of its options; an example, a test or a target of make that is named instead."""
    words = shlex.split(line)
    if words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
    elif words[0] in ("python", "pytest"):
        assert (ROOT / words[1]).is_file()
    else:
        assert words[0] == "haytham"
        known = command_options(words[1:])
        assert {word for word in words if word.startswith("-")} <= known


def command_options(words):
    """The options of a command, or of a command of a group."""
    command = root.get_command(click.Context(root), words[0])
    assert command is not None, words[0]
    if isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words[1])
        assert command is not None, words[1]
    return {option for parameter in command.params for option in parameter.opts} | SHARED


@pytest.mark.parametrize("name", spans(3))
def test_every_python_name_resolves(name):
    """A module, and attributes of it; a field of a dataclass counts as one."""
    parts = name.split(".")
    length, value = next((n, module) for n in range(len(parts), 0, -1) if (module := find_module(parts[:n])))
    for part in parts[length:]:
        fields = getattr(value, "__dataclass_fields__", {})
        assert hasattr(value, part) or part in fields, part
        value = getattr(value, part, None)


def find_module(parts):
    """A module by the parts of its name, or None."""
    try:
        return import_module(".".join(parts))
    except ModuleNotFoundError:
        return None


@pytest.mark.parametrize("name", spans(4))
def test_every_test_exists(name):
    """A file of tests and a function in it."""
    file, _, function = name.partition("::")
    assert re.search(rf"^(async )?def {function}\(", (ROOT / "tests" / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_example_is_named():
    """Each script in examples/ that shows a seed is on the page, and each that is named exists."""
    named = set(re.findall(r"`examples/(\w+\.py)`", PAGE))
    assert named <= {path.name for path in (ROOT / "examples").glob("*.py")}
    assert named >= {"checkpoint_manager_example.py", "multi_day_project.py", "time_travel.py", "resume_and_memory.py"}
