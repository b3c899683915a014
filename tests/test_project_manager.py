"""The project manager, as its callers know it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from conftest import rounds
from haytham.checkpoint.checkpoint_manager import CheckpointManager
from haytham.project.project_manager import ProjectManager
from support.hostile_inputs import texts


@pytest.fixture
def manager(tmp_path):
    return ProjectManager(base_dir=tmp_path / "projects")


@pytest.fixture
def project(manager):
    return manager.create_project("user-123", "A marketplace for rooftop gardens.", project_name="Roof Gardens")


def test_a_project_is_told_whole(manager, project):
    """create_project returns the project as it is then."""
    assert project.pop("created_at") == project.pop("updated_at")
    assert project == {
        "project_id": "roof_gardens",
        "user_id": "user-123",
        "project_name": "Roof Gardens",
        "startup_idea": "A marketplace for rooftop gardens.",
        "execution_mode": "mvp",
        "status": "active",
        "sessions": [],
        "current_version": 0,
        "user_preferences": {},
    }


def test_a_taken_id_gets_a_number(manager, project):
    """A second project of the same name has its number behind the slug."""
    ids = [manager.create_project("u", "idea", project_name=name)["project_id"] for name in ("Roof gardens!",) * 2]
    assert ids == ["roof_gardens_1", "roof_gardens_2"]


def test_a_folder_without_a_project_is_not_taken_over(manager):
    """A project never moves into a folder where sessions without a project lie."""
    CheckpointManager(manager.base_dir).create_session("taken", "s", "u")
    assert manager.create_project("u", "idea", project_name="taken")["project_id"] == "taken_1"


@pytest.mark.parametrize("name", [None, "日本", "!!!"])
def test_a_name_without_plain_letters_gets_an_id_that_sorts_by_time(manager, name):
    """Without letters for a slug the id is the time, and ids sort as they were made."""
    first, second = (manager.create_project("u", "My idea", project_name=name) for _ in range(2))
    assert first["project_id"][:8].isdigit()
    assert first["project_id"].rpartition("-")[0] <= second["project_id"].rpartition("-")[0]
    assert first["project_name"] == (name or "My idea")


@pytest.mark.soak
@settings(max_examples=rounds(600), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(idea=texts)
def test_an_idea_may_hold_any_text(manager, idea):
    """Whatever an idea holds, it comes back as it was."""
    project = manager.create_project("u", idea)
    assert manager.get_project_status(project["project_id"])["startup_idea"] == idea


def test_a_started_session_is_the_one_create_session_makes(manager, project):
    """start_session makes manifest and folders, and create_session after it changes nothing."""
    session = manager.start_session("roof_gardens")
    assert session["project_id"] == "roof_gardens"
    assert (session["user_id"], session["execution_mode"], session["status"]) == ("user-123", "mvp", "in_progress")
    checkpoints = CheckpointManager(manager.base_dir)
    path = checkpoints.create_session("roof_gardens", session["session_id"], "user-123", execution_mode="mvp")
    assert path == Path(session["path"])
    assert len(os.listdir(path)) == 6
    assert checkpoints.load_session("roof_gardens", session["session_id"])["status"] == "in_progress"


def test_sessions_are_found_by_their_folders(manager, project):
    """A session that another process or a person put there is counted; a folder without a manifest is none."""
    manager.start_session("roof_gardens")
    CheckpointManager(manager.base_dir).create_session("roof_gardens", "by-hand", "user-123")
    (manager.base_dir / "roof_gardens" / "sessions" / "empty").mkdir()
    status = manager.get_project_status("roof_gardens")
    assert status["total_sessions"] == len(status["sessions"]) == 2
    assert "by-hand" in status["sessions"]


def test_completing_a_session_writes_the_next_version(manager, project):
    """Each completed session adds a version of the requirements, byte for byte, and is completed from then on."""
    for version, content in ((1, "first\r\n\x00"), (2, "first\r\n\x00")):
        session = manager.start_session("roof_gardens")
        metrics = {"tokens": 1, "a": [0.1]}
        done = manager.complete_session("roof_gardens", session["session_id"], content, metrics=metrics)
        assert (done["version"], done["metrics"]) == (version, metrics)
        assert Path(done["output_path"]).read_bytes() == content.encode()
        assert Path(done["output_path"]).name == f"requirements_v{version}.md"
        loaded = CheckpointManager(manager.base_dir).load_session("roof_gardens", session["session_id"])
        assert loaded["status"] == "completed"
    status = manager.get_project_status("roof_gardens")
    assert (status["completed_sessions"], status["current_version"]) == (2, 2)


def test_completing_twice_is_harmless(manager, project):
    """The same call again gives the same answer and writes nothing; with other content it is refused."""
    session = manager.start_session("roof_gardens")["session_id"]
    first = manager.complete_session("roof_gardens", session, "content", metrics={"a": 1})
    assert manager.complete_session("roof_gardens", session, "content") == first
    with pytest.raises(ValueError, match="what the session was completed with"):
        manager.complete_session("roof_gardens", session, "other")
    assert os.listdir(manager.base_dir / "roof_gardens" / "outputs") == ["requirements_v1.md"]


def test_a_rejected_session_is_not_completed(manager, project):
    """A session that a person rejected cannot be completed, and nothing is written."""
    session = manager.start_session("roof_gardens")["session_id"]
    checkpoints = CheckpointManager(manager.base_dir)
    checkpoints.save_user_feedback("roof_gardens", session, 1, reviewed=True, approved=False, action="rejected")
    with pytest.raises(ValueError, match="found 'rejected'"):
        manager.complete_session("roof_gardens", session, "content")
    assert not (manager.base_dir / "roof_gardens" / "outputs").exists()


@pytest.mark.parametrize("left", ["claim", "file"])
def test_a_completion_that_a_crash_cut_short_goes_on(manager, project, monkeypatch, left):
    """A session killed after claiming its version, or after writing it, is completed by the same call with no gap."""
    session, other = (manager.start_session("roof_gardens")["session_id"] for _ in range(2))
    real = manager._projects._store.commit
    cut = {"claim": "requirements_v1.md", "file": "session_manifest.md"}[left]
    seen = []

    def dying(batch):
        keys = batch.changed_keys()
        seen.extend(keys)
        if any(key.endswith(cut) for key in keys) and (left == "claim" or any("outputs/" in key for key in seen)):
            raise KeyboardInterrupt
        return real(batch)

    monkeypatch.setattr(manager._projects._store, "commit", dying)
    with pytest.raises(KeyboardInterrupt):
        manager.complete_session("roof_gardens", session, "A")
    monkeypatch.undo()
    versions = [manager.complete_session("roof_gardens", *call)["version"] for call in ((other, "B"), (session, "A"))]
    assert sorted(versions) == [1, 2]
    files = sorted(os.listdir(manager.base_dir / "roof_gardens" / "outputs"))
    assert files == ["requirements_v1.md", "requirements_v2.md"]


def test_a_broken_session_stops_no_other(manager, project, caplog):
    """One unreadable session is named in the log; others are counted and completed."""
    broken, good = (manager.start_session("roof_gardens")["session_id"] for _ in range(2))
    (manager.base_dir / "roof_gardens" / "sessions" / broken / "session_manifest.md").write_bytes(b"broken")
    manager.complete_session("roof_gardens", good, "content")
    status = manager.get_project_status("roof_gardens")
    assert (status["total_sessions"], status["completed_sessions"]) == (2, 1)
    assert broken in caplog.text


def test_a_users_projects_are_listed(manager, project):
    """A user's projects are listed, by status where asked."""
    manager.create_project("user-123", "Another", project_name="Another")
    manager.create_project("somebody", "Else", project_name="Else")
    manager.archive_project("another")
    for status, ids in ((None, ["another", "roof_gardens"]), ("active", ["roof_gardens"]), ("archived", ["another"])):
        assert [found["project_id"] for found in manager.list_user_projects("user-123", status)] == ids
    assert ProjectManager(manager.base_dir / "nowhere").list_user_projects("user-123") == []


def test_one_unreadable_project_hides_no_other(manager, project, caplog):
    """A project that cannot be read is named in the log, and the others are listed."""
    manager.create_project("user-123", "Another", project_name="Another")
    (manager.base_dir / "another" / "project.md").write_bytes(b"\xff\xfe")
    assert [p["project_id"] for p in manager.list_user_projects("user-123")] == ["roof_gardens"]
    assert "another/project.md" in caplog.text


def test_preferences_are_added_to(manager, project):
    """Preferences are merged by name, come back as they went in, and are the caller's own copy."""
    manager.update_user_preferences("roof_gardens", {"tone": "plain", "limits": {"cost": 2.5}})
    merged = manager.update_user_preferences("roof_gardens", {"tone": "dry", "a: b|": None})
    assert merged == {"tone": "dry", "limits": {"cost": 2.5}, "a: b|": None}
    merged["limits"]["cost"] = 0
    assert manager.get_user_preferences("roof_gardens")["limits"] == {"cost": 2.5}


@pytest.mark.parametrize("preferences", [None, "x", [1], {1: 2}, {"a": float("nan")}, {"a": {1, 2}}, {"a": (1,)}])
def test_preferences_are_plain_values(manager, project, preferences):
    """What could not come back from a file as it went in is a ValueError."""
    with pytest.raises(ValueError, match="a dict of text, finite numbers"):
        manager.update_user_preferences("roof_gardens", preferences)


def test_archiving_loses_nothing(manager, project):
    """An archived project is whole, and says that it is archived."""
    archived = manager.archive_project("roof_gardens")
    assert {**archived, "updated_at": None} == {**project, "status": "archived", "updated_at": None}


def test_a_deleted_project_is_gone(manager, project):
    """Deleting removes the project and nothing beside it; its name is free again."""
    manager.start_session("roof_gardens")
    other = manager.create_project("user-123", "Another", project_name="Another")
    manager.delete_project("roof_gardens")
    assert [name for name in os.listdir(manager.base_dir) if not name.startswith(".")] == [other["project_id"]]
    with pytest.raises(FileNotFoundError, match="roof_gardens"):
        manager.get_project_status("roof_gardens")
    assert manager.create_project("u", "i", project_name="Roof Gardens")["project_id"] == "roof_gardens"


@pytest.mark.parametrize("value", ["", "../x", "..", ".", "a/b", ".locks", None])
def test_a_bad_project_id_is_refused(manager, project, value):
    """A project id that is no name of a folder is a ValueError for every call, and nothing is removed."""
    for call in (
        manager.delete_project,
        manager.archive_project,
        manager.get_project_status,
        manager.get_user_preferences,
        manager.start_session,
        lambda value: manager.update_user_preferences(value, {}),
        lambda value: manager.complete_session(value, "s", ""),
    ):
        with pytest.raises(ValueError, match="project id"):
            call(value)
    assert manager.get_project_status("roof_gardens")


def test_what_is_not_there_is_file_not_found(manager, project):
    """An unknown project or session is a FileNotFoundError that names it."""
    for call in (manager.delete_project, manager.archive_project, manager.start_session, manager.get_project_status):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            call("nowhere")
    with pytest.raises(FileNotFoundError, match="unknown"):
        manager.complete_session("roof_gardens", "unknown", "content")
    assert not (manager.base_dir / "roof_gardens" / "outputs").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"user_id": ""}, "user id"),
        ({"user_id": "a\nb"}, "user id"),
        ({"startup_idea": None}, "startup idea"),
        ({"startup_idea": "\ud800"}, "startup idea"),
        ({"project_name": "a\nb"}, "Project Name"),
        ({"project_name": ""}, "Project Name"),
        ({"project_name": 3}, "project name"),
        ({"execution_mode": "fast"}, "allowed: mvp, full"),
    ],
)
def test_a_bad_project_is_refused(manager, change, said):
    """A bad argument is a ValueError that names it, and nothing is made."""
    with pytest.raises(ValueError, match="allowed") as refused:
        manager.create_project(**{"user_id": "u", "startup_idea": "i", **change})
    assert said in str(refused.value)
    assert manager.list_user_projects("u") == []


def test_a_deleted_project_leaves_no_history_elsewhere(tmp_path):
    """What a project keeps of its past in a store of its own goes with it."""
    from haytham import FileStore, History, ProjectManager, SqliteStore
    from haytham.config.workflow import WorkflowFiles
    from haytham.session import SessionDocuments

    projects = ProjectManager(tmp_path)
    project = projects.create_project("ann", "An idea.", project_name="idea")["project_id"]
    yaml = b"name: w\nphases:\n- {number: 1, name: One, slug: one, agents: [a]}\nmodes: {all: [1]}\n"
    files = {"workflow.yaml": yaml + b"checkpointing: {storage_type: sqlite}\n", "agents/a.md": b"Write.\n"}
    session = SessionDocuments(FileStore(tmp_path), project, "s")
    session.create(user_id="ann", source=WorkflowFiles("w", files), mode="all")
    History(session).take()
    assert SqliteStore(tmp_path / "history.db").keys() != []
    projects.delete_project(project)
    assert SqliteStore(tmp_path / "history.db").keys() == []
