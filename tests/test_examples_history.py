"""The two examples of history print what the folder says that they made."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import haytham
from haytham import FileStore, History
from haytham.session import SessionDocuments
from haytham.session.plan import summarize

ROOT = Path(__file__).parent.parent
FACTS = "phase_1_facts/facts.md"
GOOD, BAD = b"14,000 gardens", b"140 gardens"


def told(name, folder):
    """What an example prints, run in a folder by a process of its own."""
    command = [sys.executable, "-W", "error", ROOT / "examples" / f"{name}.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def past(folder, project, session):
    """The history of a session that an example made."""
    return History(SessionDocuments(FileStore(folder / "projects"), project, session))


def section(text, heading):
    """The lines that an example prints below a heading."""
    return re.search(rf"^== {heading}.*\n((?:(?!== ).*\n)*)", text, re.MULTILINE)[1]


# Three days.


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    folder = tmp_path_factory.mktemp("days")
    return folder, told("multi_day_project", folder)


@pytest.fixture(scope="module")
def branches(days):
    return {name: past(days[0], "handbook", name) for name in ("main", "experiment")}


def snapshots(branches):
    """All snapshots, as the example lists them."""
    return [one for history in branches.values() for one in history.list()[::-1]]


def test_three_days_are_seven_snapshots(branches):
    """Two days of main by hand and a final one, two routine ones by themselves; a fork, and a day of its own."""
    found = {
        name: [(one.kind, one.label, one.step) for one in history.list()[::-1]] for name, history in branches.items()
    }
    day_1, day_2, day_3 = ("manual", "day 1", 2), ("manual", "day 2", 5), ("final", "day 3", 8)
    assert found["main"] == [day_1, ("routine", None, 5), day_2, ("routine", None, 8), day_3]
    assert found["experiment"] == [("fork", None, 5), ("manual", "day 3", 7)]


def test_what_three_days_print_of_snapshots_is_so(days, branches):
    """Each snapshot is told as it is taken, and again among the statistics: number, kind, label and sizes."""
    shown = re.findall(r"^  snapshot .*$", days[1], re.MULTILINE)
    so = [
        f"  snapshot {one.number} of {one.session}, {one.kind}{f' ({one.label})' if one.label else ''}: "
        f"{one.raw:,} bytes, {one.added:,} added"
        for one in snapshots(branches)
    ]
    assert shown[7:] == so
    assert sorted(shown[:7]) == sorted(so)
    assert "total snapshots: 7\n" in days[1]


def test_each_day_starts_from_what_the_last_one_left(days):
    """A day is another process: what it says was done so far, it has from the folder."""
    said = re.findall(r"^so far: (.*)$", days[1], re.MULTILINE)
    second = "day 2 is over, and tempfile was the last chapter"
    assert said == ["nothing", "day 1 is over, and shutil was the last chapter", second, second]
    assert len(re.findall(r"^\d of \d: wrote about", days[1], re.MULTILINE)) == 10


def test_days_tasks_and_cost_are_those_of_the_documents(days, branches):
    """As many tasks as pages, and no cost: so say the documents, and so does the example."""
    folders = {name: days[0] / "projects" / history.session.prefix for name, history in branches.items()}
    pages = {
        name: len([*folder.glob("phase_*/*.md")]) - len([*folder.glob("*/checkpoint.md")])
        for name, folder in folders.items()
    }
    assert pages == {"main": 8, "experiment": 7}
    assert all(
        "- Total Cost: $0\n" in (folder / "session_manifest.md").read_text("utf-8") for folder in folders.values()
    )
    own = "2 of them its own, since main was forked"
    assert "main: 3 days, 8 tasks (day 1: 2, day 2: 3, day 3: 3)\n  cost $0.00\n" in days[1]
    assert f"experiment: 3 days, 7 tasks (day 1: 2, day 2: 3, day 3: 2), {own}\n  cost $0.00\n" in days[1]


def test_snapshots_take_less_than_half(days, branches):
    """On average a snapshot is compressed by more than half, counted here by the files that hold it."""
    folder = days[0] / "projects" / "handbook" / "history" / "blobs"
    sizes = {path.name.removesuffix(".gz"): path.stat().st_size for path in folder.rglob("*.gz")}
    saved = []
    for one in snapshots(branches):
        texts = {branches[one.session].read(one, path) for path in branches[one.session].documents(one)}
        stored = sum(sizes[hashlib.sha256(text).hexdigest()] for text in texts)
        saved.append(1 - stored / one.raw)
    assert sum(saved) / len(saved) > 0.5
    assert f"average compression: {sum(saved) / len(saved):.1%}\n" in days[1]


def test_what_the_history_takes_on_disk_is_so(days, branches):
    """The bytes of its files, beside those of plain copies, and gzip's own word for each."""
    folder = days[0] / "projects" / "handbook" / "history"
    files = [path for path in folder.rglob("*") if path.is_file()]
    disk, plain = sum(path.stat().st_size for path in files), sum(one.raw for one in snapshots(branches))
    assert f"history on disk: {disk:,} bytes; plain copies would take {plain:,}\n" in days[1]
    assert disk < plain / 2
    count = sum(path.suffix == ".gz" for path in files)
    assert (f"gzip -t: all {count} files are sound\n" in days[1]) == (shutil.which("gzip") is not None)


def test_the_experiment_is_the_one_fork(days, branches):
    """It comes of the snapshot of day 2, says what it is for, and both pasts are sound."""
    manifest = branches["experiment"].session.read().manifest.value
    assert (manifest.forked_from, manifest.purpose) == ("main", "Would a line an entry do?")
    assert manifest.fork_point == branches["main"].get("3").id == branches["experiment"].get("1").parent
    assert branches["experiment"].get("1").metadata == {"decide": "after day 3"}
    assert "total forks: 1\n" in days[1]
    assert "problems found: 0\n" in days[1]
    assert [history.verify() for history in branches.values()] == [[], []]


def test_neither_branch_has_the_texts_of_the_other(days, branches):
    """Days 1 and 2 are shared to the byte; of day 3 nothing is."""
    prefixes = {name: days[0] / "projects" / history.session.prefix for name, history in branches.items()}
    shared = [path.relative_to(prefixes["main"]) for path in prefixes["main"].glob("phase_[12]_*/*.md")]
    assert all(
        (prefixes["main"] / path).read_bytes() == (prefixes["experiment"] / path).read_bytes() for path in shared
    )
    assert not [*prefixes["main"].glob("phase_4_*/*"), *prefixes["experiment"].glob("phase_3_*/*")]
    assert "only in main: values/heapq, values/json, values/random\n" in days[1]
    assert "only in experiment: trial/heapq, trial/json\n" in days[1]


def test_the_ways_to_end_the_experiment_work(days, tmp_path):
    """The commands that the example names last do what it says they do."""
    shutil.copytree(days[0], tmp_path / "copy")
    commands = [line.split("haytham ")[1].split() for line in days[1].splitlines()[-2:]]
    for command in (commands[0], [*commands[1], "--yes"]):
        words = [sys.executable, "-m", "haytham", *command]
        done = subprocess.run(words, cwd=tmp_path / "copy", capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 0, done.stderr
    main = past(tmp_path / "copy", "handbook", "main")
    assert set(main.session.read().texts(main.session.read().phase(4))) == {"heapq", "json"}
    assert not past(tmp_path / "copy", "handbook", "experiment").session.exists()
    assert main.verify() == []


def test_three_days_can_be_lived_again(days, tmp_path):
    """In a folder where they were lived before, they are another project."""
    shutil.copytree(days[0], tmp_path / "copy")
    again = told("multi_day_project", tmp_path / "copy")
    assert "total snapshots: 7\n" in again
    assert len(haytham.Workspace(tmp_path / "copy" / "projects").history().list(limit=None)) == 14


# Time travel.


@pytest.fixture(scope="module")
def travel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("travel")
    return folder, told("time_travel", folder), past(folder, "time_travel", "main")


def test_the_runner_takes_the_snapshots(travel):
    """After a phase, at an approval, by an agent, at the end: and who listens hears of it."""
    _, text, history = travel
    assert section(text, "Two phases").count("snapshot_saved: ") == 3
    kinds = {one.number: one.kind for one in history.list()}
    heard = re.findall(r"snapshot_saved: (\d+), (\w+)", section(text, "Going on"))
    assert [(int(number), kind) for number, kind in heard if kinds[int(number)] == kind] == [*kinds.items()][:6][::-1]
    assert history.latest().kind == "final"
    assert [one.label for one in history.list("manual")] == ["before the price is set"]


def test_what_was_is_listed_and_read(travel):
    """The newest snapshots of a user, by their ids, and a text as it was."""
    _, text, history = travel
    shown = re.findall(r"^(\S+): time_travel/main was \w+ in phase (\d)", text, re.MULTILINE)
    first = [history.get(number) for number in ("3", "2", "1")]
    assert shown == [(one.id, str(one.phase)) for one in first]
    assert [one.user for one in first] == ["ann"] * 3
    assert "In the county 14,000 gardens have no mains water." in section(text, "What there is")
    assert GOOD in history.read("1", FACTS)


def test_a_mishap_shows_in_a_comparison(travel):
    """What was built on a wrong number differs: fields with old and new values, texts, status."""
    said = section(travel[1], "A mishap")
    assert "status: waiting -> waiting\n" in said
    assert re.search(r"^changed fields: \d\d, of the state: 1\n", said, re.MULTILINE)
    assert re.search(r"state\.fields\.collected\.offer: .* 14,000 gardens .* -> .* 140 gardens ", said)
    assert "  -In the county 14,000 gardens" in said
    assert "  +In the county 140 gardens" in said


def test_a_restore_ends_the_mishap(travel):
    """The newest good snapshot is brought back and its phase runs again: no text differs then."""
    _, text, history = travel
    said = section(text, "Back to before")
    restored, undo = re.search(r"restored (\d+); snapshot (\d+) would undo that", said).groups()
    assert f"  snapshot_restored: {restored}\n" in said
    assert int(undo) not in {one.number for one in history.list()}  # cleaned up since
    assert "changed texts: none\n" in said
    assert [one.number for one in history.list() if BAD in history.read(one, FACTS)] == [6, 4]


def test_a_fork_goes_its_own_way(travel):
    """It is completed with texts of its own, while the session it comes from waits."""
    folder, text, history = travel
    said = section(text, "Another way")
    assert "completed\nstatus: waiting -> completed\n" in said
    assert "  +In our own town 90 gardens" in said
    child = past(folder, "time_travel", "one_town")
    assert child.session.read().manifest.value.fork_point == history.get("3").id
    assert (child.latest().kind, child.latest().status, child.verify()) == ("final", "completed", [])
    assert b"town" not in history.read(history.latest(), FACTS)


def test_what_fails_is_rolled_back(travel):
    """Before and when it failed are kept; the document that was lost is there again."""
    _, text, history = travel
    said = section(text, "Something risky")
    before, failed = re.search(r"saved: (\d+), pre_operation\n  snapshot_saved: (\d+), recovery\n", said).groups()
    assert f"snapshot_restored: {before}\nit failed, and facts.md is there again\n" in said
    assert history.get(before).metadata["operation"] == "tidy up"
    assert FACTS in history.documents(before)
    assert int(failed) == int(before) + 1


def test_cleaning_up_does_what_it_said_it_would(travel):
    """What retention lets go is named first, and then it is what went; the rest is sound."""
    said = section(travel[1], "Cleaning up")
    would, went = re.search(r"would go: (.*)\nwent: (.*), older than a month: nothing\n", said).groups()
    assert would == went
    assert would not in re.search(r"left: (.*), problems: 0\n", said)[1].split(", ")
    assert travel[2].verify() == []


def test_a_session_goes_on_from_an_id(travel):
    """Restored by its id and driven to its end, with the good number in all that was built on it."""
    _, text, history = travel
    assert f"== Going on from {history.get('3').id}\n" in text
    assert section(text, "Going on").endswith("completed\ncollected: facts, offer, price\n\n")
    assert summarize(history.session.read()).status == "completed"
    assert all(GOOD in history.read(history.latest(), path) for path in (FACTS, "phase_3_price/price.md"))


def test_a_history_rests_where_the_workflow_says(travel):
    """In files, in memory or in a database, and all of a user's is cleared at once."""
    folder, text, _ = travel
    said = section(text, "Three places")
    for kind in ("file", "memory", "sqlite"):
        assert f"{{storage_type: {kind}}}: 1 snapshot, problems: 0\n" in said
    assert said.endswith("cleared of guest: 3\n")
    assert (folder / "projects" / "history.db").is_file()
    assert haytham.Workspace(folder / "projects").history().list(user="guest") == []


def test_one_can_travel_again(travel, tmp_path):
    """In a folder where one did before, it is another project, and the same happens."""
    shutil.copytree(travel[0], tmp_path / "copy")
    again = told("time_travel", tmp_path / "copy")
    names = r"\d{8}-\d{9}-[0-9a-f]{6}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|time_travel(_\d)?/"
    other = re.compile(rf"{names}|changed fields: \d+")  # times and durations are fields, too
    assert other.sub("", again) == other.sub("", travel[1])
