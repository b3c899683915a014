"""The past of a session at the command line: listed, taken, looked at, restored, recovered, kept, let go, verified."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pexpect
import pytest
from click import Context

from haytham import clock
from haytham.app.workspace import Workspace
from haytham.cli.app import root
from haytham.cli.output import SnapshotTreeView, format_size, render_table
from haytham.history.fork import build_forest
from haytham.history.snapshot import Snapshot
from haytham.storage.files import FileStore
from support.cli_runner import IDEA, command, edit, environment, frozen, haytham, process, session_folder

CONCEPT = "phase_1_concept/concept_expansion.md"
ROW = ["id", "number", "kind", "phase", "step", "status", "label", "time", "raw", "added", "parent"]
ROW += ["session", "project", "user", "metadata"]


@pytest.fixture(scope="module")
def second_gate(tmp_path_factory):
    """A folder with a session that waits in phase 2, has two snapshots, and takes none by itself."""
    folder = tmp_path_factory.mktemp("past")
    haytham("init", "mine", cwd=folder)
    with (folder / "mine" / "workflow.yaml").open("a", encoding="utf-8") as file:
        file.write("checkpointing: {auto: 'off'}\n")
    words = ("run", IDEA, "--name", "Rain barrels", "--workflow", "mine")
    assert haytham(*words, cwd=folder).code == 3
    assert haytham("snapshot", "-m", "first gate", cwd=folder).code == 0
    haytham("approve", "-m", "Go on", cwd=folder)
    assert haytham("resume", cwd=folder).code == 3
    assert haytham("snapshot", cwd=folder).code == 0
    return folder


def rows(here, *words):
    """The snapshots as JSON tells them."""
    return haytham("checkpoints", *words, "--json", cwd=here).json["snapshots"]


def documents(here):
    """Every document of the session with its bytes; events only grow, and are none."""
    session = session_folder(here)
    found = [path for path in session.rglob("*") if path.is_file() and path.name != "events.jsonl"]
    return {path.relative_to(session).as_posix(): path.read_bytes() for path in found}


def terminal(here, *words):
    """The command in a terminal."""
    first, *rest = command(*words)
    return pexpect.spawn(first, rest, cwd=str(here), env=environment(here), encoding="utf-8", timeout=20)


def damage(here):
    """Cut the bytes of all snapshots short, as a failing disk does; how many there were."""
    blobs = list(here.glob("projects/*/history/blobs/*.gz"))
    for blob in blobs:
        blob.write_bytes(blob.read_bytes()[:-9])
    return len(blobs)


# The table.


def snapshot(number, session="one", parent=None, **facts):
    """A snapshot whose id says whose it is."""
    usual = {"kind": "phase", "status": "waiting", "phase": 1, "label": None, "time": "2024-11-24T10:00:00Z"}
    usual |= {"project": "p", "user": "ann", "step": 0, "approval": None, "workflow": None, "raw": 6515, "added": 0}
    return Snapshot(id=f"{session}-{number}", number=number, parent=parent, session=session, **{**usual, **facts})


FAMILY = [
    [
        snapshot(1, phase=None, status="in_progress", added=975),
        snapshot(2, parent="one-1", kind="manual", label="before\nit all", raw=17_051_000),
        snapshot(10, parent="one-1", kind="pre_operation"),
    ],
    [snapshot(1, "cheap", "one-1", kind="fork"), snapshot(2, "cheap", "cheap-1")],
    [snapshot(1, "deep", "cheap-1", kind="fork")],
    [snapshot(1, "lost", "gone-9", kind="fork")],
]
TABLE = """\
#      id       kind           phase  status       time                      raw  added          label
10     one-10   pre_operation      1  waiting      2024-11-24T10:00:00Z   6.5 kB    0 B
2      one-2    manual             1  waiting      2024-11-24T10:00:00Z  17.1 MB    0 B          before it all
1      one-1    phase              -  in_progress  2024-11-24T10:00:00Z   6.5 kB  975 B
  fork cheap: half the price
  2    cheap-2  phase              1  waiting      2024-11-24T10:00:00Z   6.5 kB    0 B  pinned
  1    cheap-1  fork               1  waiting      2024-11-24T10:00:00Z   6.5 kB    0 B
    fork deep
    1  deep-1   fork               1  waiting      2024-11-24T10:00:00Z   6.5 kB    0 B
  fork lost
  1    lost-1   fork               1  waiting      2024-11-24T10:00:00Z   6.5 kB    0 B"""


def tree(limit=None, matches=lambda _one: True):
    words = {"cheap": "fork cheap: half the price", "deep": "fork deep", "lost": "fork lost"}
    return SnapshotTreeView(build_forest(FAMILY), "one").lines(limit=limit, matches=matches, words=words)


def test_forks_stand_below_what_they_were_forked_from():
    """A session's own line is flat, newest first; forks stand to the right, those whose snapshot is gone last."""
    assert render_table(tree(), {"cheap-2"}) == TABLE


def test_columns_that_would_be_empty_are_left_out():
    """Without labels and pins the table has no columns for them; a limit counts the session's own snapshots."""
    told = render_table(tree(limit=1), ())
    assert told.split("\n")[0].endswith("raw  added")
    assert [line.snapshot.id for line in tree(limit=2)] == ["one-10", "one-2"]


def test_a_filter_leaves_forks_where_they_belong():
    """A fork is shown by its wanted snapshots even if the one it was forked from is not wanted, else not at all."""
    kept = tree(matches=lambda one: one.kind == "fork")
    assert [line.words or line.snapshot.id for line in kept] == [
        "fork cheap: half the price",
        "cheap-1",
        "fork deep",
        "deep-1",
        "fork lost",
        "lost-1",
    ]


def test_a_line_of_thousands_is_drawn():
    """However long the line of snapshots, it is drawn."""
    line = [replace(snapshot(number), parent=f"one-{number - 1}") for number in range(1, 5001)]
    family = SnapshotTreeView(build_forest([line]), "one")
    assert len(family.lines(limit=None, matches=lambda _one: True, words={})) == 5000


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (5 * 10**18, "5000000.0 TB"),
    ],
)
def test_sizes_are_said_as_people_say_them(count, said):
    """Bytes below a thousand, then the unit that leaves at most three digits before the point, as far as units go."""
    assert format_size(count) == said


def test_checkpoints_answers_to_three_names(here):
    """`checkpoints`, `snapshots` and `list-checkpoints` are one command; the last one listed was taken first."""
    told = haytham("checkpoints", cwd=here)
    assert told.code == 0
    assert frozen(told.out).startswith("session rain_barrels/<session>\n\n#  id")
    assert [line.split()[0] for line in told.out.splitlines()[3:]] == ["2", "1"]
    assert told == haytham("snapshots", cwd=here) == haytham("list-checkpoints", cwd=here)
    assert "list-checkpoints" in root.get_command(Context(root), "checkpoints").help


def test_json_tells_every_snapshot_newest_first(here):
    """With `--json`: kind, version, and the rows with all that is known, newest first."""
    answer = haytham("checkpoints", "--json", cwd=here).json
    assert (answer["kind"], answer["version"], list(answer)) == ("snapshots", 1, ["kind", "version", "snapshots"])
    second, first = answer["snapshots"]
    assert list(first) == [*ROW, "pinned", "agent_type", "collected_fields", "required_fields", "context_summary"]
    assert (first["number"], first["kind"], first["phase"], first["label"]) == (1, "manual", 1, "first gate")
    assert (second["number"], second["status"], second["parent"]) == (2, "waiting", first["id"])
    assert second["raw"] > second["added"] > 0


def test_snapshots_are_chosen_by_kind_status_and_number(here):
    """`--kind`, `--status` and `--limit` choose; where nothing is left, a sentence says so."""
    haytham("snapshot", "--kind", "phase", cwd=here)
    assert [row["number"] for row in rows(here, "--kind", "manual")] == [2, 1]
    assert [row["number"] for row in rows(here, "--status", "waiting", "--limit", "1")] == [3]
    assert rows(here, "--status", "completed") == []
    assert "no snapshot is like that" in haytham("checkpoints", "--status", "completed", cwd=here).out


def test_without_a_snapshot_it_is_said_how_to_take_one(tmp_path):
    """An empty history is no error, and says how to begin; one that is switched off says so."""
    haytham("init", "mine", cwd=tmp_path)
    with (tmp_path / "mine" / "workflow.yaml").open("a", encoding="utf-8") as file:
        file.write("checkpointing: {auto: 'off'}\n")
    haytham("run", IDEA, "--workflow", "mine", cwd=tmp_path)
    said = haytham("checkpoints", cwd=tmp_path)
    assert (said.code, said.out) == (0, "there is no snapshot yet; take one with: haytham snapshot -m LABEL\n")
    edit(tmp_path / "mine" / "workflow.yaml", "auto: 'off'", "enabled: false")
    haytham("resume", "--accept-workflow", cwd=tmp_path)
    assert "snapshots of this session are off" in haytham("checkpoints", cwd=tmp_path).out
    refused = haytham("snapshot", cwd=tmp_path)
    assert (refused.code, "cannot take a snapshot" in refused.err) == (1, True)


def test_all_lists_every_session_of_every_project(here):
    """`--all` lists the snapshots of all sessions with their names, and with `--user` those of one user."""
    haytham("run", "Lend ladders", "--user", "bob", cwd=here)
    assert {row["project"] for row in rows(here, "--all")} == {"rain_barrels", "lend_ladders"}
    assert {row["project"] for row in rows(here, "--all", "--user", "bob")} == {"lend_ladders"}
    assert rows(here, "--user", "bob") == rows(here, "--all", "--user", "bob")
    assert [row["number"] for row in rows(here, "--all", "--user", "ann", "--limit", "1")] == [2]
    told = haytham("checkpoints", "--all", cwd=here).out
    assert told.startswith("session ")
    assert "lend_ladders/" in told


@pytest.mark.parametrize("whose", [(), ("--user", "ann"), ("--all",)])
def test_a_listing_is_narrowed_by_time_and_read_in_parts(here, whose):
    """`--since` takes a date or an age; `--offset` skips the newest, in JSON and in the table."""
    assert [row["number"] for row in rows(here, *whose, "--since", "2000-01-01")] == [2, 1]
    assert [row["number"] for row in rows(here, *whose, "--since", "3000w")] == [2, 1]
    assert rows(here, *whose, "--since", "9000-01-01T00:00:00Z") == []
    assert [row["number"] for row in rows(here, *whose, "--limit", "1", "--offset", "1")] == [1]
    assert [row["number"] for row in rows(here, *whose, "--offset", "2")] == []
    table = haytham("checkpoints", *whose, "--offset", "1", cwd=here).out
    assert ("first gate" in table, "  manual  " in table, table.count("manual")) == (True, True, 1)


def test_a_snapshot_in_json_has_user_step_and_metadata(here):
    """What a snapshot records of its maker is in the listing."""
    haytham("restore", "1", cwd=here)
    recovery, *_, first = rows(here)
    assert (first["user"], first["step"], first["status"], first["metadata"]) == ("ann", 0, "waiting", {})
    assert recovery["metadata"] == {"operation": f"restore {first['id']}"}


def test_a_listing_in_json_has_the_fields_of_the_state(here):
    """Agent type, collected and required fields and summary stand with each snapshot; null if the state is damaged."""
    session = Workspace(here / "projects").session()
    session.update_state({"agent": {"type": "Seller"}, "fields": {"collected": {"a": 1}, "required": ["a"]}})
    session.update_state({"summary": "Half done."})
    haytham("snapshot", cwd=here)
    edit(session_folder(here) / "state.md", "- Type: Seller", "- Tpye: Seller")
    haytham("snapshot", cwd=here)
    names = ("agent_type", "collected_fields", "required_fields", "context_summary")
    values = [[row[name] for name in names] for row in rows(here)]
    assert values[:3] == [[None] * 4, ["Seller", {"a": 1}, ["a"], "Half done."], [None, {}, [], ""]]
    assert haytham("diff", "2", "3", cwd=here).out.count("summary") == 0


def test_the_latest_snapshot_needs_no_number(here):
    """`latest` is the newest snapshot of a session, for restore, show, diff, fork and pin."""
    before = documents(here)
    edit(session_folder(here) / CONCEPT, "## Output", "## Output\n\nMore.")
    assert haytham("diff", "latest", "--json", cwd=here).json["old"]["snapshot"] == rows(here)[0]["id"]
    assert haytham("show", "1", "--at", "latest", cwd=here).code == 0
    assert haytham("restore", "latest", cwd=here).code == 0
    assert documents(here)[CONCEPT] == before[CONCEPT]
    assert haytham("pin", "latest", "--json", cwd=here).json["snapshot"]["number"] == 3
    assert haytham("fork", "latest", "--name", "other", cwd=here).code == 0


def test_the_latest_of_a_session_without_snapshots_is_not_found(here):
    """`latest` never means a snapshot of another session."""
    haytham("prune", "--user", "ann", "--all", "--yes", cwd=here)
    answer = haytham("restore", "latest", cwd=here)
    assert (answer.code, "has no snapshot 'latest'" in answer.err) == (2, True)


def test_the_history_of_a_user_is_cleared(here):
    """`prune --user --all` lists with --dry-run, needs --yes without a terminal, and leaves other users alone."""
    haytham("run", "Lend ladders", "--user", "bob", cwd=here)
    words = ("prune", "--user", "ann", "--all")
    assert [row["number"] for row in haytham(*words, "--dry-run", "--json", cwd=here).json["snapshots"]] == [1, 2]
    assert haytham(*words, cwd=here).code == 2
    assert len(rows(here, "--user", "ann")) == 2
    gone = haytham(*words, "--yes", cwd=here)
    assert (gone.code, "2 snapshots removed" in gone.out) == (0, True)
    assert rows(here, "--user", "ann") == []
    assert rows(here, "--user", "bob") != []


STORE = """
from haytham.storage.files import FileStore

class Mine(FileStore):
    def __init__(self, path, **_options):
        super().__init__(path)
"""


@pytest.mark.parametrize(
    "settings", ["storage_type: 'store_of_mine:Mine', storage_path: past", "storage_path: ../past"]
)
def test_a_past_in_a_place_of_ones_own_needs_trust(tmp_path, settings):
    """A store that is code, or leads elsewhere, is opened where the workflow is trusted, and refused elsewhere."""
    (tmp_path / "store_of_mine.py").write_text(STORE, encoding="utf-8")
    haytham("init", "mine", cwd=tmp_path)
    with (tmp_path / "mine" / "workflow.yaml").open("a", encoding="utf-8") as file:
        file.write(f"checkpointing: {{{settings}}}\n")
    assert process("run", IDEA, "--workflow", "mine", cwd=tmp_path).code == 3
    assert process("snapshot", "-m", "mine", cwd=tmp_path).code == 0
    assert "mine" in process("checkpoints", cwd=tmp_path).out
    assert not list(tmp_path.glob("projects/lend*/history"))
    for words in ("checkpoints", "snapshot", "verify"):
        refused = process(words, cwd=tmp_path, XDG_STATE_HOME=str(tmp_path / "another"))
        assert (refused.code != 0, "trusted" in refused.out + refused.err) == (True, True), words


# Taking one.


def test_a_snapshot_says_what_it_took(here):
    """Number, id, label, and both sizes are told; a snapshot never changes a document."""
    before = documents(here)
    said = haytham("snapshot", "-m", "before the rewrite", cwd=here).out
    told = r'snapshot 3, <session> "before the rewrite": [\d.]+ kB of documents, 0 B added to the history\n'
    assert re.fullmatch(told, frozen(said))
    assert documents(here) == before


def test_a_routine_snapshot_is_left_out_where_nothing_changed(here):
    """`--kind routine` takes none of what the last one holds already, and says so; after a change it takes one."""
    said = haytham("snapshot", "--kind", "routine", cwd=here)
    assert frozen(said.out) == "nothing has changed since snapshot 2, <session>: none was taken\n"
    answer = haytham("snapshot", "--kind", "routine", "--json", cwd=here).json
    assert (answer["kind"], answer["taken"], answer["snapshot"]["number"]) == ("snapshot", False, 2)
    (session_folder(here) / "evidence.md").write_text("It rains.\n", encoding="utf-8")
    assert haytham("snapshot", "--kind", "routine", "--json", cwd=here).json["taken"] is True


# Looking.


def test_texts_are_shown_as_they_were(here):
    """`show --at` shows outputs and tasks of a snapshot, by number or id, whatever was changed since."""
    edit(session_folder(here) / CONCEPT, "\n## Problem\n", "\n## The problem\n")
    first = rows(here)[-1]
    for which in ("1", "#1", first["id"], first["id"][-6:]):
        assert "\n## Problem\n" in haytham("show", "1", "concept_expansion", "--at", which, cwd=here).out
    assert "\n## The problem\n" in haytham("show", "1", "concept_expansion", cwd=here).out
    assert "--- concept_expansion" in haytham("show", "1", "--at", "1", "--task", cwd=here).out
    answer = haytham("show", "--at", "1", "--attempt", "1", "--json", cwd=here).json
    assert (answer["phase"], answer["snapshot"]) == (1, first["id"])


def test_any_document_is_shown_as_it_was(here):
    """`show --at ID --path` prints a document to the letter; one that is not in the snapshot is told what is."""
    now = (session_folder(here) / "session_manifest.md").read_text(encoding="utf-8")
    assert haytham("show", "--at", "2", "--path", "session_manifest.md", cwd=here).out == now
    answer = haytham("show", "--at", "1", "--path", "session_manifest.md", "--json", cwd=here).json
    assert (answer["kind"], answer["text"] != now) == ("document", True)
    refused = haytham("show", "--at", "1", "--path", "nothing.md", cwd=here)
    assert refused.code == 2
    assert f"snapshot 1 holds no document 'nothing.md'; it holds:\n  {CONCEPT[:15]}" in refused.err


def test_looking_at_the_past_writes_nothing(here):
    """`checkpoints` and `show --at` leave every file, folder and time as it is."""
    found = sorted((here / "projects").rglob("*"))
    before = [(path, path.stat().st_mtime_ns) for path in found]
    for words in ("checkpoints", "checkpoints --all", "show --at 1", "show --at 1 --path session_manifest.md"):
        assert haytham(*words.split(), cwd=here).code == 0
    assert [(path, path.stat().st_mtime_ns) for path in sorted((here / "projects").rglob("*"))] == before


# Going back.


def test_a_restore_says_what_it_did_and_how_to_undo_it(here):
    """All documents are what they were; the command that undoes it, typed as it is printed, does."""
    before = documents(here)
    said = haytham("restore", "1", cwd=here)
    assert said.code == 0
    first, undo, go_on = said.out.splitlines()
    assert re.fullmatch(r'restored snapshot 1, \S+ "first gate": 2 documents changed, 0 added, \d+ removed', first)
    assert go_on == "to go on: haytham resume"
    assert haytham("status", "--json", cwd=here).json["phases"][0]["step"] == "gate"
    assert haytham(*undo.removeprefix("to undo that: haytham ").split(), cwd=here).code == 0
    assert documents(here) == before


def test_a_restore_tells_all_of_it_as_json(here):
    """With `--json`: which snapshot, the recovery snapshot, and the documents by what became of them."""
    (session_folder(here) / "evidence.md").write_text("It rains.\n", encoding="utf-8")
    answer = haytham("restore", "2", "--json", cwd=here).json
    assert (answer["kind"], answer["version"], answer["snapshot"]["number"]) == ("restore", 1, 2)
    assert (answer["changed"], answer["added"], answer["removed"]) == ([], [], ["evidence.md"])
    assert answer["recovery"] == rows(here)[0]["id"]


def test_what_cannot_be_read_is_frozen_and_brought_back(here):
    """A session with a garbled manifest can be frozen as it is, and made what it was."""
    manifest = session_folder(here) / "session_manifest.md"
    manifest.write_text("mine\n", encoding="utf-8")
    assert haytham("snapshot", "--json", cwd=here).json["snapshot"]["status"] == "unreadable"
    assert haytham("restore", "2", cwd=here).code == 0
    assert haytham("status", cwd=here).code == 0


def test_an_id_names_its_session_and_a_number_does_not(here):
    """With several sessions an id will do, since no other snapshot has it; a number asks which session is meant."""
    haytham("run", "Lend ladders", cwd=here)
    mine = next(row for row in rows(here, "--all") if row["label"] == "first gate")
    refused = haytham("restore", "1", cwd=here)
    assert (refused.code, "say which session is meant" in refused.err) == (2, True)
    assert haytham("restore", mine["id"][-10:], "--json", cwd=here).json["project"] == "rain_barrels"
    assert haytham("restore", "1", mine["session"], "--json", cwd=here).json["snapshot"]["id"] == mine["id"]


def test_a_number_is_never_taken_for_a_part_of_an_id(here):
    """The number of a snapshot that is gone names nothing, though it stands in the id of another one."""
    haytham("delete", "1", cwd=here)
    before = documents(here)
    for words in ("restore 1", "delete 1", "pin 0", "show --at 1", "diff 1"):
        refused = haytham(*words.split(), cwd=here)
        assert (refused.code, "has no snapshot" in refused.err) == (2, True), words
    assert (documents(here), len(rows(here))) == (before, 1)


def test_nothing_is_replaced_during_a_run(here):
    """While a runner is at work, restore and recover are refused with exit 7, and looking works."""
    haytham("restore", "1", cwd=here)
    session = session_folder(here)
    with FileStore(here / "projects").run_lock(f"rain_barrels/sessions/{session.name}"):
        for words in ("restore 1", "recover --latest", "resume --input more", f"resume {rows(here)[-1]['id']}"):
            assert haytham(*words.split(), cwd=here).code == 7, words
        assert haytham("checkpoints", cwd=here).code == haytham("snapshot", cwd=here).code == 0


def test_what_is_damaged_is_not_restored(here):
    """A snapshot of which a byte is lost is refused with exit 6 before anything is touched."""
    damage(here)
    before = documents(here)
    refused = haytham("restore", "1", cwd=here)
    assert (refused.code, "is damaged" in refused.err) == (6, True)
    assert documents(here) == before


def test_resume_goes_on_from_a_snapshot(here):
    """`resume` with a snapshot's id makes the session what it was, says so, and goes on from there."""
    first = rows(here)[-1]
    said = haytham("resume", first["id"], cwd=here)
    assert said.code == 3
    restored, waits = said.out.splitlines()
    assert restored.startswith(f'restored snapshot 1, {first["id"]} "first gate": ')
    assert "; to undo that: haytham restore " in restored
    assert waits.startswith("phase 1, Concept Expansion, waits for review")


def test_resume_takes_a_word_for_a_session_first(here):
    """A word that fits a session means it; with -s it means a snapshot; one that fits nothing is refused."""
    session = session_folder(here).name
    before = documents(here)
    assert haytham("resume", session[-6:], cwd=here).code == 3
    assert documents(here).keys() == before.keys()
    assert haytham("resume", "1", "-s", session, cwd=here).out.startswith("restored snapshot 1, ")
    refused = haytham("resume", "nothing", cwd=here)
    assert refused.err.startswith("haytham: no session and no snapshot matches 'nothing'; haytham list and")


# What is asked of the next phase.


def request(here, folder):
    return (session_folder(here) / folder / "request.md").read_text(encoding="utf-8")


def test_input_reaches_the_next_phase_that_runs(here):
    """`resume --input` at a gate keeps the words for the phase behind it, which is told them when it runs."""
    said = haytham("resume", "--input", "Name three rivals in Lyon", cwd=here)
    assert (said.code, said.out.splitlines()[0]) == (3, "phase 3, Niche Selection, is given your input")
    assert request(here, "phase_3_niche_selection") == "Name three rivals in Lyon"
    haytham("approve", cwd=here)
    haytham("resume", cwd=here)
    assert "Name three rivals in Lyon" in haytham("show", "3", "--task", cwd=here).out


def test_input_reaches_the_next_attempt(here):
    """Where changes are wanted, the words go to the attempt that follows, not to the one that was put aside."""
    haytham("request-changes", "-m", "Too broad", cwd=here)
    said = haytham("resume", "--input", "-", cwd=here, stdin="Name three rivals\n")
    assert (said.code, said.out.splitlines()[0]) == (3, "phase 2, Market Research, is given your input")
    assert "Name three rivals" in haytham("show", "2", "--task", cwd=here).out
    assert "Name three rivals" not in haytham("show", "2", "--task", "--attempt", "1", cwd=here).out
    events = (session_folder(here) / "events.jsonl").read_text(encoding="utf-8").splitlines()
    begun = [event for event in map(json.loads, events) if event["event"] == "attempt_started"]
    assert [(event["phase"], event["attempt"]) for event in begun] == [(2, 2)]


def test_input_that_nobody_would_get_is_refused(here):
    """Once no phase will run any more, or the session was rejected, `--input` is refused; so are empty words."""
    assert haytham("resume", "--input", " ", cwd=here).err == "haytham: the input is empty; say what you ask for\n"
    copy = Path(shutil.copytree(here, here.parent / "rejected"))
    haytham("reject", cwd=copy)
    assert "the session was rejected" in haytham("resume", "--input", "more", cwd=copy).err
    assert haytham("resume", "--yes", cwd=here).code == 0
    refused = haytham("resume", "--input", "more", cwd=here)
    assert (refused.code, "no phase will run any more" in refused.err) == (2, True)


# Recovering.


def test_recover_lists_what_can_be_brought_back(here):
    """Recovery points are listed newest first, each with what it was before; without any, that is said."""
    assert haytham("recover", cwd=here).out.startswith("there is nothing to recover: ")
    assert haytham("recover", "--latest", cwd=here).code == 2
    first = rows(here)[-1]["id"]
    haytham("restore", "1", cwd=here)
    haytham("restore", "2", cwd=here)
    newest, oldest, _, hint = haytham("recover", cwd=here).out.splitlines()
    assert (newest.split()[0], oldest.split()[0]) == ("4", "3")
    assert oldest.endswith(f"before restore {first}")
    assert hint == "to restore one: haytham recover --at ID"
    answer = haytham("recover", "--json", cwd=here).json
    assert [row["circumstance"] for row in answer["snapshots"]][1] == f"before restore {first}"


def test_recover_brings_back_and_names_the_documents(here):
    """`--latest`, or `--at` with a recovery point, restores it and names each document that moved, up to twenty."""
    before = documents(here)
    haytham("restore", "1", cwd=here)
    said = haytham("recover", "--latest", cwd=here)
    assert said.code == 0
    assert "\n  added    phase_2_market_research/market_intelligence.md\n" in said.out
    assert documents(here) == before
    assert haytham("recover", "--at", "4", cwd=here).code == 0
    for number in range(25):
        (session_folder(here) / f"note_{number}.txt").write_text("mine\n", encoding="utf-8")
    assert "\n  … and " in haytham("recover", "--latest", cwd=here).out
    refused = haytham("recover", "--at", "1", cwd=here)
    assert (refused.code, "restore it with: haytham restore" in refused.err) == (2, True)


def test_recover_verifies_first(here):
    """A recovery point that is damaged is refused with exit 6, with what is wrong, and nothing is touched."""
    haytham("restore", "1", cwd=here)
    damage(here)
    before = documents(here)
    refused = haytham("recover", "--latest", cwd=here)
    assert (refused.code, "is damaged" in refused.err, documents(here) == before) == (6, True, True)


def test_recover_asks_in_a_terminal(here):
    """In a terminal a number chooses, a wrong one is asked again, and Enter leaves all as it is."""
    before = documents(here)
    haytham("restore", "1", cwd=here)
    after = documents(here)
    child = terminal(here, "recover")
    child.expect("by its number")
    child.sendline("")
    child.expect(pexpect.EOF)
    assert documents(here) == after
    child = terminal(here, "recover")
    child.expect("by its number")
    child.sendline("1")
    child.expect("'1' is none of them")
    child.sendline("3")
    child.expect("restored snapshot 3, ")
    child.expect(pexpect.EOF)
    assert documents(here) == before


def test_recovery_points_are_cleared(here):
    """`--clear` removes them, but for those that are pinned, and says how many; other snapshots stay."""
    haytham("restore", "1", cwd=here)
    haytham("restore", "2", cwd=here)
    haytham("pin", "3", cwd=here)
    said = haytham("recover", "--clear", cwd=here).out
    assert said.startswith("1 recovery point removed\nsnapshot 3, ")
    assert "unpin it first" in said
    assert [row["number"] for row in rows(here)] == [3, 2, 1]


# Keeping and letting go.


def test_a_pin_holds_until_it_is_taken_off(here):
    """A pinned snapshot is marked and not deleted; unpinned it is."""
    assert haytham("pin", "2", cwd=here).out.endswith(", is pinned: it is never deleted\n")
    assert [row["pinned"] for row in rows(here)] == [True, False]
    assert "  pinned" in haytham("checkpoints", cwd=here).out
    refused = haytham("delete", "2", cwd=here)
    assert (refused.code, "unpin it first" in refused.err) == (2, True)
    assert haytham("unpin", "2", cwd=here).out.endswith(", is not pinned any more\n")
    assert haytham("unpin", "2", cwd=here).out.endswith(", was not pinned\n")
    said = haytham("delete", "2", cwd=here).out
    assert re.fullmatch(r"snapshot 2, <session>, is removed, [\d.]+ k?B given back\n", frozen(said))
    assert [row["number"] for row in rows(here)] == [1]


def test_prune_names_what_goes(here):
    """`--dry-run` names what would go and removes nothing; without it, that goes, and the bytes are told."""
    assert haytham("prune", cwd=here).out == "no snapshot is to go\n"
    with clock.override(lambda: datetime(2024, 11, 24, 10, tzinfo=UTC)):
        for kind in ("phase", "recovery", "phase"):
            haytham("snapshot", "--kind", kind, cwd=here)
    said = haytham("prune", "--older-than", "0m", "--dry-run", cwd=here).out
    assert frozen(said) == (
        "would remove snapshot 3, <session>, phase, <time>\n"
        "would remove snapshot 4, <session>, recovery, <time>\n"
        "2 snapshots would go\n"
    )
    answer = haytham("prune", "--older-than", "0m", "--kind", "phase", "--json", cwd=here).json
    assert (answer["dry_run"], [row["number"] for row in answer["snapshots"]]) == (False, [3])
    assert answer["bytes"] > 0
    assert "1 snapshot removed, " in haytham("prune", "--all", "--older-than", "0m", cwd=here).out
    assert [row["number"] for row in rows(here)] == [5, 2, 1]


def test_verify_says_what_is_wrong(here):
    """Sound snapshots are counted and exit 0; each damaged file is a line, and exit 6."""
    sound = haytham("verify", cwd=here)
    assert (sound.code, sound.out, sound.err) == (0, "", "2 snapshots, 0 problems\n")
    count = damage(here)
    told = haytham("verify", cwd=here)
    lines = told.out.splitlines()
    assert (told.code, told.err) == (6, f"2 snapshots, {len(lines)} problems\n")
    files = {here / line.partition(":")[0] for line in lines}
    assert (len(files), all(file.is_file() for file in files)) == (count, True)
    answer = haytham("verify", "--all", "--json", cwd=here)
    assert (answer.code, answer.json["problems"]) == (6, lines)


def test_one_damaged_record_hides_no_other(here):
    """`checkpoints` lists what can be read, names the record that cannot, and exits 6."""
    record = next(here.glob("projects/*/history/snapshots/*/*/000001.*.md"))
    edit(record, "first gate", "last gate")
    told = haytham("checkpoints", cwd=here)
    assert (told.code, record.name in told.err, len(told.out.splitlines())) == (6, True, 4)
    assert haytham("checkpoints", "--json", cwd=here).code == 6
    assert haytham("verify", cwd=here).err == "2 snapshots, 1 problem\n"


# Mistakes, and the shell.


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("checkpoints --kind weekly", "Invalid value for '--kind': 'weekly' is not one of 'routine'"),
        ("checkpoints rain --user ann", "say which snapshots are meant: those of a session or --user"),
        (
            "checkpoints --since soon",
            "since: found 'soon'; allowed: an age like 90m, 12h, 30d or 2w, or a time in UTC like",
        ),
        ("checkpoints --offset -1", "Invalid value for '--offset'"),
        ("prune --user ann", "--user clears the whole history of a user: give it with --all"),
        ("prune --user ann --all --kind manual", "--user clears the whole history of a user"),
        (
            "prune --user ann --all",
            "deleted snapshots cannot be restored; confirm with: haytham prune --user ann --all",
        ),
        ("checkpoints rain --all", "say which snapshots are meant"),
        ("checkpoints --limit 0", "Invalid value for '--limit'"),
        ("snapshot -m", "Option '-m' requires an argument"),
        ("restore nothing", "no snapshot matches 'nothing'; haytham checkpoints --all lists them"),
        ("restore 7", "session "),
        ("restore -", "2 snapshots match '-'; name one of these"),
        ("restore", "Missing argument 'ID'"),
        ("show --path x", "--path is for a document of a snapshot"),
        ("show 1 --at 1 --path x", "--path is for a document of a snapshot"),
        ("show 2 --at 1", "phase 2, Market Research, had no output then"),
        ("prune --older-than soon", "age: found 'soon'; allowed: a number and m, h, d or w"),
        ("prune --all --older-than soon", "age: found 'soon'"),
        ("prune rain --all", "say where to prune"),
        ("verify rain --all", "say what to verify"),
        ("recover --latest --clear", "say one of --list, --at, --latest and --clear"),
        ("chekpoints", "there is no command 'chekpoints'; did you mean checkpoints?"),
    ],
)
def test_a_mistake_gets_one_sentence(second_gate, words, sentence):
    """Whatever is mistyped: exit 2, one sentence that says what to do, and nothing is made."""
    before = sorted(second_gate.rglob("*"))
    answer = haytham(*words.split(), cwd=second_gate)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"haytham: {sentence}")
    assert sorted(second_gate.rglob("*")) == before


def test_ids_of_snapshots_are_completed(here):
    """The shell's completion knows the ids of snapshots, and for resume those of sessions, too."""
    first = rows(here)[-1]
    asked = {"_HAYTHAM_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    assert f"plain,{first['id']}" in process(cwd=here, COMP_WORDS="haytham restore ", **asked).out
    both = process(cwd=here, COMP_WORDS="haytham resume ", **asked).out
    assert (first["id"] in both, first["session"] in both) == (True, True)


def test_input_that_nobody_will_get_restores_nothing(tmp_path):
    """`resume SNAPSHOT --input` looks first whether a phase will run; where none will, nothing has changed."""
    haytham("run", IDEA, "--yes", "--no-input", cwd=tmp_path)
    before = haytham("status", cwd=tmp_path).out
    rows = json.loads(haytham("checkpoints", "--json", cwd=tmp_path).out)["snapshots"]
    last_gate = next(row["id"] for row in rows if row["status"] == "waiting")
    answer = haytham("resume", last_gate, "--input", "again", "--no-input", cwd=tmp_path)
    assert (answer.code, "no phase will run any more" in answer.err) == (2, True)
    assert haytham("status", cwd=tmp_path).out == before


def test_a_restore_says_which_limits_hold_again(tmp_path):
    """Limits travel with the documents, and that is said: nobody spends by an old limit unknowingly."""
    haytham("run", IDEA, "--no-input", "--max-tokens", "20000", cwd=tmp_path)
    haytham("resume", "--no-input", "--max-tokens", "4000", cwd=tmp_path)
    answer = haytham("restore", "1", cwd=tmp_path)
    assert "--max-tokens is 20000 again; it was 4000\n" in answer.out
