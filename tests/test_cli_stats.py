"""`haytham stats` in a terminal: bars that fit, in characters that the terminal knows."""

from __future__ import annotations

import json

import pytest

from haytham.cli.commands.stats import _age
from support.cli_runner import IDEA, haytham, process, session_folder, workflow


@pytest.fixture(scope="module")
def second_gate(tmp_path_factory):
    """A folder with a session that waits at its second gate."""
    folder = tmp_path_factory.mktemp("stats")
    haytham("run", IDEA, "--no-input", cwd=folder)
    haytham("approve", cwd=folder)
    assert haytham("resume", "--no-input", cwd=folder).code == 3
    return folder


@pytest.mark.parametrize("columns", [30, 45, 80, 200])
def test_no_line_is_wider_than_the_terminal(here, columns):
    """Titles are wrapped, labels cut, and bars take the room that is left."""
    shown = haytham("stats", cwd=here, COLUMNS=str(columns)).out
    assert max(map(len, shown.splitlines())) <= min(columns, 100)
    assert "2 Mark" in shown
    assert "█" in shown


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_plain_terminal_is_shown_plain_characters(here, environment):
    """With NO_COLOR or TERM=dumb all is ASCII, bars and the end of a label that is cut."""
    shown = haytham("stats", cwd=here, COLUMNS="40", **environment).out
    assert shown.isascii()
    assert "####" in shown
    assert "..." in haytham("stats", cwd=here, COLUMNS="30", **environment).out


def test_an_output_that_knows_no_bars_is_shown_plain_ones(here):
    """A standard output in ASCII ends no command."""
    answer = process("stats", cwd=here, PYTHONIOENCODING="ascii")
    assert answer.code == 0, answer.err
    assert "####" in answer.out


def test_the_longest_bar_is_that_of_the_largest_value(here):
    """Bars are in proportion; what is more than nothing has at least one character."""
    events = session_folder(here) / "events.jsonl"
    failed = {"time": "2024-11-24T10:00:00Z", "event": "agent_failed", "phase": 1, "error": "no", "tries_left": 0}
    counts = {"often": 300, "half": 150, "once": 1}
    lines = [json.dumps({**failed, "agent": agent}) for agent, count in counts.items() for _ in range(count)]
    events.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    shown = haytham("stats", cwd=here).out.splitlines()
    bars = {agent: line.count("█") for agent in counts for line in shown if f"calls of {agent}" in line}
    assert bars == {"often": 30, "half": 15, "once": 1}


def test_a_name_cannot_act_on_the_terminal(here):
    """What a log says of agents is printed without control characters, in one line."""
    failed = {"time": "x", "event": "agent_failed", "phase": 1, "agent": "a\x1b[31m\nb"}
    (session_folder(here) / "events.jsonl").write_text(json.dumps(failed) + "\n", encoding="utf-8")
    shown = haytham("stats", cwd=here).out
    assert "\x1b" not in shown
    assert "calls of a[31m b  1" in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.2 s"),
        (9.96, "10.0 s"),
        (59.4, "59 s"),
        (59.6, "1 m 00 s"),
        (3599, "59 m 59 s"),
        (3600, "1 h 00 m"),
        (86399.7, "1 d 00 h"),
        (200_000, "2 d 07 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds, text):
    """Seconds, minutes, hours and days, and tenths of a second below ten."""
    assert _age(seconds) == text


AGENTS = """
from haytham import Reply


def cheap(task):
    return Reply("Done.", input_tokens=3, output_tokens=4, cost=0.25)
"""


def test_json_tells_what_each_phase_took(tmp_path):
    """Tokens and cost of the phases, of the agents and of the models are each those of the whole."""
    (tmp_path / "mine.py").write_text(AGENTS, encoding="utf-8")
    workflow(tmp_path, ["one", "two"], model="python:mine:cheap")
    haytham("run", IDEA, "--workflow", "mine", "--yes", cwd=tmp_path)
    facts = haytham("stats", "--json", cwd=tmp_path).json
    assert [(phase["phase"], phase["spent"]["tokens"], phase["spent"]["cost"]) for phase in facts["phases"]] == [
        (1, 7, 0.25),
        (2, 7, 0.25),
    ]
    assert [(row["agent"], row["calls"]) for row in facts["agents"]] == [("one", 1), ("two", 1)]
    assert [(row["model"], row["tokens"]) for row in facts["models"]] == [("python:mine:cheap", 14)]
    assert (facts["spent"]["cost"], facts["spent"]["input_tokens"], facts["spent"]["output_tokens"]) == (0.5, 6, 8)
