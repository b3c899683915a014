"""A workspace in git: clones go on where the origin stood, and two that diverged are merged into one that is sound."""

from __future__ import annotations

import re
import shutil
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from haytham import CheckpointManager, clock
from haytham.errors import InvalidDocument
from haytham.markdown.parser import parse
from haytham.markdown.schema import load_schema
from haytham.session import SessionDocuments, paths
from haytham.session.validate import validate_tree
from haytham.storage import FileStore
from support import fake_agents
from support.cli_runner import IDEA, edit, haytham, session_folder
from support.git_clones import clone, commit, git, merge
from support.hostile_inputs import CONFLICT

CONCEPT = "phase_1_concept/concept_expansion.md"


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A repository with a session whose first phase is approved, and whose second one has not run."""
    folder = tmp_path_factory.mktemp("origin")
    haytham("run", IDEA, "--name", "Rain barrels", "--no-input", cwd=folder)
    assert haytham("approve", cwd=folder).code == 0
    commit(folder)
    return folder


@pytest.fixture
def copy(origin, tmp_path):
    """A clone of that repository."""
    return clone(origin, tmp_path / "copy")


# After a clone.


def test_a_session_resumes_after_git_clone(copy):
    """Folders of phases that git did not keep, since they were empty, are made when they are needed."""
    assert haytham("validate", cwd=copy).code == 0
    assert haytham("resume", "--no-input", "--json", cwd=copy).json["phase"] == 2
    assert haytham("validate", cwd=copy).code == 0


def test_doctor_makes_the_folders_that_git_did_not_keep(copy):
    """It names each of them, and finds nothing to do when it is called again."""
    said = haytham("doctor", cwd=copy).out
    missing = ["phase_2_market_research/", "phase_3_niche_selection/", "phase_6_validation/", "phase_7_synthesis/"]
    assert re.findall(r": made (.*)", said) == missing
    assert all((session_folder(copy) / folder).is_dir() for folder in missing)
    assert haytham("doctor", cwd=copy).out == "no repairs were needed\n"


@pytest.mark.parametrize("words", [("skip", "3"), ("resume", "--no-input", "--input", "Name rivals"), ("retry", "2")])
def test_every_command_that_acts_on_a_phase_makes_its_folder(copy, words):
    """A phase can be skipped, asked for something and run in a clone in which nothing else was done yet."""
    assert haytham(*words, cwd=copy).code in (0, 3)
    assert haytham("validate", cwd=copy).code == 0


def test_saves_of_the_manager_still_need_the_folder(copy):
    """A phase whose folder is missing is FileNotFoundError for the calls of CheckpointManager, until it is made."""
    manager, ids = CheckpointManager(copy / "projects"), ("rain_barrels", session_folder(copy).name)
    with pytest.raises(FileNotFoundError, match="phase 2"):
        manager.save_checkpoint(*ids, 2, "completed", [])
    manager.create_session(*ids, "ann")
    manager.save_checkpoint(*ids, 2, "completed", [])


def test_a_file_in_the_place_of_a_phase_is_never_replaced(copy):
    """Where a file has the name of a phase's folder, it is named and stays."""
    file = session_folder(copy) / "phase_2_market_research"
    file.write_text("mine\n", encoding="utf-8")
    assert haytham("resume", "--no-input", cwd=copy).code == 1
    assert file.read_text(encoding="utf-8") == "mine\n"


def test_line_ends_that_git_converts_change_nothing(origin, tmp_path):
    """In a clone whose text files have CRLF all documents validate, snapshots verify, and the session goes on."""
    copy = clone(origin, tmp_path / "copy", "core.autocrlf=true")
    assert haytham("validate", cwd=copy).code == haytham("verify", cwd=copy).code == 0
    assert haytham("resume", "--no-input", cwd=copy).code == 3
    assert haytham("restore", "1", cwd=copy).code == 0


def test_git_sees_no_file_of_this_machine_only(origin):
    """Locks, caches and temporary files are never committed; what git has to know is."""
    tracked = git("ls-files", "projects", cwd=origin).split()
    assert [name for name in tracked if "/." in name] == ["projects/.gitattributes"]
    assert git("status", "--porcelain", cwd=origin) == ""


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("rain_barrels/history/blobs/0123", "binary: set"),
        ("checkpoints/rain_barrels/history/blobs/0123", "binary: set"),
        ("rain_barrels/history/snapshots/s/0000/000001.md", "text: unset"),
        ("rain_barrels/history/branches/s.jsonl", "merge: union"),
        (f"rain_barrels/sessions/s/{paths.EVENTS}", "merge: union"),
        (f"rain_barrels/sessions/s/{paths.SPEND}", "merge: union"),
        (f"rain_barrels/sessions/s/{paths.MANIFEST}", "merge: union"),
        ("rain_barrels/sessions/s/phase_1_concept/checkpoint.md", ""),
    ],
)
def test_git_is_told_how_to_merge(origin, path, said):
    """What only grows and what is only shown is joined, bytes are never converted, and all else is merged as usual."""
    told = git("check-attr", "-a", f"projects/{path}", cwd=origin)
    assert said in told if said else told == ""


# Two clones that diverged.


def both(origin, tmp_path):
    """Two clones of a repository."""
    return clone(origin, tmp_path / "mine"), clone(origin, tmp_path / "his")


def a_minute_later():
    """Let what one clone does be at another time than what the other one did."""
    return clock.override(lambda: datetime.now(UTC) + timedelta(minutes=1))


def test_two_clones_that_worked_on_different_phases_are_merged(origin, tmp_path):
    """The merge needs no hand: what both show is a note, both histories stay, and the session goes on."""
    mine, his = both(origin, tmp_path)
    assert haytham("resume", "--no-input", cwd=mine).code == 3
    edit(session_folder(his) / CONCEPT, "## Output\n", "## Output\n\nIn Lyon.\n")
    with a_minute_later():
        haytham("approve", "1", "-m", "Only Lyon", cwd=his)
    commit(mine)
    commit(his)
    merge(mine, his)
    manifest = session_folder(mine) / "session_manifest.md"
    assert manifest.read_text(encoding="utf-8").count("\nderived_digest: ") == 2
    answer = haytham("validate", cwd=mine)
    notes = answer.out.splitlines()
    assert (answer.code, len(notes) > 1) == (0, True)
    assert all(note.startswith("note: ") and manifest.name in note for note in notes)
    assert haytham("verify", cwd=mine).code == 0
    assert haytham("resume", "--no-input", "--json", cwd=mine).json["phase"] == 2
    assert manifest.read_text(encoding="utf-8").count("\nderived_digest: ") == 1
    assert haytham("validate", cwd=mine).code == 0
    assert "In Lyon." in haytham("show", "2", "--task", cwd=mine).out


def test_a_number_that_two_clones_gave_lists_both_snapshots(origin, tmp_path):
    """Both snapshots stay after the merge; a command that is given their number says both ids, exit 2."""
    mine, his = both(origin, tmp_path)
    for copy in (mine, his):
        haytham("snapshot", "-m", copy.name, cwd=copy)
        commit(copy)
    merge(mine, his)
    rows = haytham("checkpoints", "--json", cwd=mine).json["snapshots"]
    ids = [row["id"] for row in rows if row["number"] == 3]
    assert len(ids) == 2
    for words in (
        ("restore", "3"),
        ("show", "--at", "3"),
        ("diff", "1", "3"),
        ("fork", "3", "--name", "f"),
        ("pin", "3"),
    ):
        answer = haytham(*words, cwd=mine)
        assert (answer.code, [snapshot for snapshot in ids if snapshot in answer.err]) == (2, ids)
    assert haytham("restore", ids[0], cwd=mine).code == haytham("verify", cwd=mine).code == 0


def saved(folder, *numbers):
    """A workspace in which phases were saved by a program."""
    manager = CheckpointManager(folder / "projects")
    manager.create_session("p", "s", "ann")
    for number in numbers:
        manager.save_checkpoint("p", "s", number, "completed", [], duration=number * 60.0)
    return folder / "projects/p/sessions/s/session_manifest.md"


@pytest.mark.parametrize("style", ["merge", "diff3"])
@pytest.mark.parametrize("numbers", [(1, 2), (6, 7), (2, 7)])
def test_derived_lines_that_a_union_merge_repeated_are_a_note(tmp_path, numbers, style):
    """However git joins two manifests, whole sections too, all problems are notes, and the next save mends them."""
    (tmp_path / "origin").mkdir()
    saved(tmp_path / "origin")
    commit(tmp_path / "origin")
    mine, his = both(tmp_path / "origin", tmp_path)
    for copy, number in zip((mine, his), numbers, strict=True):
        saved(copy, number)
        commit(copy)
    git("config", "merge.conflictStyle", style, cwd=mine)
    merge(mine, his)
    manifest = mine / "projects/p/sessions/s/session_manifest.md"
    parsed = parse(load_schema("session_manifest"), manifest.read_bytes())
    assert len(parsed.problems) > 1
    assert all(problem.derived and not problem.unknown_text for problem in parsed.problems)
    saved(mine, 3)
    assert validate_tree(FileStore(mine / "projects")).problems == ()
    assert manifest.read_bytes() == saved(fresh(mine, tmp_path)).read_bytes()


def fresh(folder, tmp_path):
    """A copy of a workspace whose manifest was lost and rebuilt: nothing in it is left of what was merged."""
    copy = Path(shutil.copytree(folder, tmp_path / "fresh"))
    manifest = copy / "projects/p/sessions/s/session_manifest.md"
    created = re.search(r"- Created: (.*)", manifest.read_text(encoding="utf-8"))[1]
    manifest.unlink()
    haytham("doctor", "--user", "ann", "--mode", "mvp", cwd=copy)
    SessionDocuments(FileStore(copy / "projects"), "p", "s").update_manifest({"created": created})
    return copy


def test_a_repeated_home_field_stays_an_error(origin, tmp_path):
    """Where both clones changed what the manifest is the home of, the line is named, exit 6, and nothing is guessed."""
    mine, his = both(origin, tmp_path)
    for copy, limit in ((mine, "5"), (his, "8")):
        haytham("resume", "--no-input", "--max-cost", limit, cwd=copy)
        git("checkout", "-q", "--", "projects/*/sessions/*/phase_*", cwd=copy, check=False)
        git("clean", "-fdqx", "projects/rain_barrels/sessions", cwd=copy)
        commit(copy)
    merge(mine, his)
    answer = haytham("resume", "--no-input", cwd=mine)
    assert (answer.code, "has the key max_cost twice" in answer.err) == (6, True)


# Conflicts.


@pytest.fixture
def conflict(origin, tmp_path):
    """A clone in which git could not merge the page of phase 1, as both clones changed the same line."""
    mine, his = both(origin, tmp_path)
    for copy in (mine, his):
        edit(session_folder(copy) / CONCEPT, "## Output\n\n#", f"## Output\n\nThe idea of {copy.name}.\n\n#")
        commit(copy)
    assert "CONFLICT" in merge(mine, his, check=False)
    return mine


def test_a_page_with_conflict_markers_is_reported_and_not_approved(conflict):
    """`validate` names file and line; approve, resume and request-changes are refused, exit 6; no prompt has them."""
    page = session_folder(conflict) / CONCEPT
    line = page.read_text(encoding="utf-8").split("\n").index("<<<<<<< HEAD") + 1
    said = f"{page.relative_to(conflict)}:{line}: Output: found the markers of a git conflict"
    answer = haytham("validate", cwd=conflict)
    assert (answer.code, answer.out.startswith(said), answer.out.count("\n")) == (6, True, 1)
    for words in (("approve", "1"), ("resume", "--no-input"), ("request-changes", "1", "-m", "x"), ("retry", "1")):
        answer = haytham(*words, cwd=conflict)
        assert (answer.code, f"{CONCEPT}:{line}: Output: found the markers" in answer.err) == (6, True)
    assert "unreadable" in haytham("list", cwd=conflict).out
    assert not (session_folder(conflict) / "phase_2_market_research" / "tasks").exists()


def test_a_resolved_conflict_is_approved(conflict):
    """Once the markers are gone the gate is open for the text that a person made of both."""
    page = session_folder(conflict) / CONCEPT
    text = re.sub(r"(?m)^(<<<<<<< .*|=======|>>>>>>> .*)\n", "", page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")
    assert haytham("approve", "1", cwd=conflict).code == haytham("validate", cwd=conflict).code == 0
    assert haytham("resume", "--no-input", "--json", cwd=conflict).json["phase"] == 2


def test_conflict_markers_in_feedback_and_checkpoint_are_reported(origin, tmp_path):
    """Two clones that ran the same phase leave conflicts in its documents: each is named with its line, exit 6."""
    mine, his = both(origin, tmp_path)
    for copy, words, time in ((mine, "Only Lyon", nullcontext()), (his, "Only Paris", a_minute_later())):
        with time:
            haytham("resume", "--no-input", cwd=copy)
            haytham("request-changes", "2", "-m", words, cwd=copy)
        commit(copy)
    merge(mine, his, check=False)
    said = haytham("validate", cwd=mine).out
    files = set(re.findall(r"(\w+\.md):\d+: (?:\w+: )?found the markers of a git conflict", said))
    assert {"checkpoint.md", "user_feedback.md", "market_intelligence.md"} <= files
    assert haytham("resume", "--no-input", cwd=mine).code == 6


@pytest.mark.parametrize("name", ["evidence.md", "phase_2_market_research/request.md", "../../project.md"])
def test_conflict_markers_in_a_persons_own_words_are_reported(copy, name):
    """Evidence, a request and the idea reach prompts as they are: with markers they stop the run, exit 6."""
    haytham("doctor", cwd=copy)
    path = session_folder(copy) / name
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(before + CONFLICT, encoding="utf-8")
    line = before.count("\n") + 1
    for words in (("validate",), ("resume", "--no-input")):
        answer = haytham(*words, cwd=copy)
        assert (answer.code, f"{path.name}:{line}: " in answer.out + answer.err) == (6, True)


def test_conflict_markers_are_refused_where_words_are_given(copy):
    """An idea and a request with markers are refused before anything is made of them."""
    (copy / "idea.md").write_text(f"Lend barrels\n{CONFLICT}", encoding="utf-8")
    answer = haytham("run", "idea.md", "--no-input", cwd=copy)
    assert (answer.code, "the idea:2: found the markers" in answer.err) == (6, True)
    assert len(list((copy / "projects").glob("*/project.md"))) == 1
    assert haytham("resume", "--no-input", "--input", CONFLICT, cwd=copy).code == 2


def test_a_decision_on_a_page_with_markers_is_stored_unbound(copy):
    """`save_user_feedback` stores it; the next command reports the page; once that is resolved the decision counts."""
    manager, ids = CheckpointManager(copy / "projects"), ("rain_barrels", session_folder(copy).name)
    page = session_folder(copy) / CONCEPT
    edit(page, "## Output\n", f"## Output\n\n{CONFLICT}")
    manager.save_user_feedback(*ids, 1, reviewed=True, approved=True, comments="Only Lyon")
    feedback = (session_folder(copy) / "phase_1_concept/user_feedback.md").read_text(encoding="utf-8")
    assert ("Only Lyon" in feedback, "bound_decision: approved" in feedback) == (True, False)
    assert haytham("resume", "--no-input", cwd=copy).code == 6
    edit(page, CONFLICT, "In Lyon.\n")
    assert haytham("resume", "--no-input", "--json", cwd=copy).json["phase"] == 2


def test_an_agents_own_text_with_markers_is_never_refused(tmp_path, monkeypatch):
    """What an agent wrote about git goes through the gate and into the next prompt; a person's edit of it does not."""
    fake_agents.forget()
    monkeypatch.setattr(fake_agents, "answer", lambda agent, _: f"# {agent}\n\n{CONFLICT}")
    desk = fake_agents.Desk(tmp_path)
    assert desk.resume() == ("waiting", 1)
    assert validate_tree(FileStore(tmp_path)).problems == ()
    desk.approve(1)
    assert desk.resume() == ("waiting", 2)
    assert CONFLICT.strip() in desk.task(2, "b")
    desk.edit(1, "a", f"Mine.\n{CONFLICT}")
    with pytest.raises(InvalidDocument, match="found the markers of a git conflict"):
        desk.approve(1)
