"""The examples of several days, of time travel and of memory print what their folders say that they made."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from haytham import Workspace

ROOT = Path(__file__).parent.parent


def run(name, folder):
    """What an example prints, run in a folder by a process of its own."""
    command = [sys.executable, "-W", "error", ROOT / "examples" / f"{name}.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def section(text, heading):
    """The lines that an example prints below a heading."""
    return re.search(rf"^== {heading}.*\n((?:(?!== ).*\n)*)", text, re.MULTILINE)[1]


# Three days.


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    folder = tmp_path_factory.mktemp("days")
    return run("multi_day_project", folder), Workspace(folder / "projects")


@pytest.fixture(scope="module")
def main(days):
    (one,) = [one for one in days[1].list() if one.session_id != "experiment"]
    return days[1].session(one.id)


def test_each_day_starts_from_what_the_last_one_left(days):
    """A day is another process: what is done so far it has from the folder."""
    told = re.findall(r"^done so far: (.*)$", days[0], re.MULTILINE)
    second = "architecture, environment, data, logic, tests"
    assert told == ["nothing", "architecture, environment", second, second]


def test_snapshots_are_taken_by_step_phase_and_hand(main):
    """A routine one after three steps, one a phase and an approval, and one by hand at the end of each day."""
    kinds = [(one.kind, one.label) for one in main.history.list()[::-1] if one.kind != "phase"]
    manual = [("manual", f"end of day {day}") for day in (1, 2, 3)]
    assert kinds == [manual[0], ("routine", None), manual[1], ("routine", None), manual[2]]
    assert all(one.step % 3 in (0, 2) for one in main.history.list("routine"))
    assert main.history.verify() == []


def test_the_budget_warns_pauses_and_is_raised(days, main):
    """At 80 % of the limit there is a warning, at the limit a pause, and the run goes on with a higher one."""
    assert "83% of the budget of $1.50 is spent" in section(days[0], "Day 2 of the project")
    for heading in ("Day 3 of the experiment", "Day 3 of the project"):
        assert "paused: $1.50 are spent, which is the limit of $1.50" in section(days[0], heading)
        assert "\nwaiting, $2.00 spent\n" in section(days[0], heading)
    assert main.status().spending.limits.max_cost == 3.0


def test_the_experiment_is_independent(days, main):
    """The fork has days 1 and 2, a login of its own, and leaves the project as it was."""
    child = days[1].session("experiment")
    assert (child.manifest.forked_from, child.manifest.purpose) == (main.session_id, "A login without passwords")
    assert child.output("data").text == main.output("data").text
    assert "as asked: a link by e-mail" in child.output("login").text
    assert "as asked" not in main.output("login").text


def test_the_statistics_are_those_of_the_workspace(days, main):
    """Nothing is added up by hand: the figures are those of Workspace.statistics()."""
    shown, found = section(days[0], "Statistics"), days[1].statistics()
    kinds = ", ".join(f"{kind.count} {kind.kind}" for kind in found.snapshots)
    assert f"snapshots: {found.all_snapshots.count}, of them {kinds}\n" in shown
    assert f"main: 8 tasks, {len(main.snapshots())} snapshots\nexperiment: 3 tasks, " in shown
    assert "forks: 1, 1 deep\ncost: $2.75 for 13,200 tokens in 11 calls\n" in shown
    assert "Day 1: 2 h of work, 22 h until approved\nDay 2: 3 h of work, 21 h until approved\nDay 3: 6 h" in shown


def test_snapshots_take_less_than_half(days):
    """Compression alone saves more than half, as the example says."""
    saved = int(re.search(r"^compression: (\d+)%", days[0], re.MULTILINE)[1])
    every = days[1].statistics().all_snapshots
    assert saved == round(100 * (1 - every.stored / every.raw)) > 50


# Time travel.


@pytest.fixture(scope="module")
def travel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("travel")
    return run("time_travel", folder), Workspace(folder / "projects")


def test_a_step_that_says_so_is_followed_by_a_snapshot(travel):
    """`checkpoint: true` takes one after the step, `checkpoint: false` none; the risky step is guarded."""
    said = section(travel[0], "A run with a mistake")
    assert said.splitlines()[:3] == ["  saved: 1, phase", "  saved: 2, phase", "  saved: 3, pre_operation"]
    assert "waiting: A barrel costs 300 euros a season.\n" in said


def test_snapshots_of_a_user_are_listed(travel):
    """Newest first, each with its status; the one before an operation that succeeded is gone."""
    said = section(travel[0], "The snapshots of a user").strip().splitlines()
    assert [re.sub(r" of \S+:", ":", line) for line in said] == [
        "phase 2: in_progress in phase 2",
        "phase 1: in_progress in phase 1",
    ]


def test_a_restore_undoes_the_mistake_and_the_retry_is_right(travel):
    """The state is that of the snapshot, the event is heard, and the agent gets the new words."""
    said = section(travel[0], "Restore to the moment")
    assert "  restored: 1\n" in said
    assert "collected then: {'gardens': '14,000'}\n" in said
    assert said.strip().endswith("waiting: A barrel costs 30 euros a season.")


def test_a_comparison_names_fields_and_texts(travel):
    """Old and new values of the state's fields, both statuses, and the texts that differ."""
    said = section(travel[0], "Compare")
    assert "status: waiting -> waiting\n" in said
    assert "state.fields.collected.price: 300 euros -> 30 euros\n" in said
    assert "phase_2_price/price.md" in said


def test_a_session_runs_from_an_id_and_the_other_is_untouched(travel):
    """A fork of the snapshot goes its own way."""
    said = section(travel[0], "Run another session").splitlines()
    assert said[-3:-1] == [
        "waiting: A barrel costs 20 euros a season.",
        "the session itself: A barrel costs 30 euros a season.",
    ]
    prices = {one.session_id: travel[1].session(one.id).output("price").text for one in travel[1].list()}
    assert prices.pop("cheaper") == "A barrel costs 20 euros a season."
    assert list(prices.values()) == ["A barrel costs 30 euros a season."]


def test_a_users_snapshots_are_cleared(travel):
    """All but the one that the fork comes from."""
    deleted, left = re.search(r"of user_123: (\d+) deleted, (\d+) left", travel[0]).groups()
    assert (int(deleted) > 0, left) == (True, "1")
    (one,) = travel[1].history().list("user_123")
    assert one.id == travel[1].session("cheaper").manifest.fork_point


# Resume and memory.


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    return run("resume_and_memory", folder), Workspace(folder / "projects")


def test_a_run_goes_on_by_itself_after_a_failure(memory):
    """The agent fails, a recovery checkpoint is taken, and the same run completes."""
    said = section(memory[0], "The draft").splitlines()
    assert said[0] == "completed"
    assert sum(": recovery, " in line for line in said) == 1


def test_a_session_resumes_from_an_id_with_other_words(memory):
    """The next task has the words that were given with the id."""
    assert "Only barrels of wood, please.\n" in section(memory[0], "Going on from a checkpoint")


def test_a_later_session_of_the_user_remembers_and_no_other(memory):
    """Session 1 learns; session 2, in a new process, finds it in its prompt; a second user does not."""
    learned = "Newsletters of mine are never longer than a page."
    assert section(memory[0], "Session 1 of ann").strip().endswith("nothing")
    assert learned in section(memory[0], "Session 2 of ann")
    assert section(memory[0], "A session of ben").strip() == "nothing"
    assert [note.text.splitlines()[-1].strip() for note in memory[1].memory("ann").list()] == [learned]
    assert memory[1].memory("ben").list() == []
