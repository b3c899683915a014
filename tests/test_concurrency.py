"""Several processes at one session or project: nobody's save is lost, and nobody reads half of one."""

from __future__ import annotations

from functools import partial

import pytest

from conftest import rounds
from haytham import CheckpointManager, FileStore, ProjectManager
from haytham.markdown.parser import parse
from haytham.markdown.schema import load_schema
from haytham.session.documents import DocumentRepository
from haytham.session.models import PhaseCheckpoint
from support.subprocess_workers import running, together

SESSION = ("idea", "run")
FOLDER = "idea/sessions/run"
AGENTS = {1: "concept_expansion", 2: "market_intelligence"}
CHECKPOINTS = {1: f"{FOLDER}/phase_1_concept/checkpoint.md", 2: f"{FOLDER}/phase_2_market_research/checkpoint.md"}


@pytest.fixture
def manager(tmp_path):
    """A manager with a session of seven phases."""
    manager = CheckpointManager(tmp_path)
    manager.create_session(*SESSION, "user", execution_mode="full")
    return manager


# One session.


@pytest.mark.soak
def test_two_processes_that_save_different_phases_lose_nothing(manager):
    """Each save of either counts one further, both last ones are there, and the manifest shows what they say."""
    base, count = manager.base_dir, rounds(200)
    first, second = together(*(partial(save_phase, base, phase, count) for phase in (1, 2)))
    assert sorted(first + second) == list(range(1, 2 * count + 1))
    checkpoints = {phase: read_checkpoint(base, phase) for phase in (1, 2)}
    assert [value["save_counter"] for value in checkpoints.values()] == [first[-1], second[-1]]
    assert [value["retry_count"] for value in checkpoints.values()] == [count - 1, count - 1]
    assert manager.get_phase_outputs(*SESSION, [1, 2]) == {n: {AGENTS[n]: text_of(count - 1)} for n in (1, 2)}
    assert [manager.validate_checkpoint(*SESSION, phase) for phase in (1, 2)] == [(True, [])] * 2
    rows = shown_phases(base)
    assert {row["phase"]: row["status"] for row in rows} == manager.load_session(*SESSION)["phase_statuses"]
    assert [row["duration"] for row in rows] == [count - 1, count - 1, None, None, None, None, None]


def test_two_processes_that_save_the_same_phase_take_turns(manager):
    """No save of either fails, each counts one further, and what is there in the end is what was saved last."""
    base, count = manager.base_dir, 20
    first, second = together(*(partial(save_phase, base, 1, count) for _ in range(2)))
    assert max(first + second) == read_checkpoint(base, 1)["save_counter"] == 2 * count
    assert read_checkpoint(base, 1)["retry_count"] == count - 1
    assert manager.validate_checkpoint(*SESSION, 1) == (True, [])


@pytest.mark.soak
def test_a_reader_beside_a_writer_sees_whole_sessions(manager):
    """Whenever a session is loaded it loads, complete, and what was completed before still is."""
    loads, completed = 0, set()
    with running(save_on_and_on, manager.base_dir) as writer:
        while loads < rounds(4000) or len(completed) < 7:
            loaded = manager.load_session(*SESSION)
            assert None not in loaded.values()
            assert list(loaded["phase_statuses"]) == [1, 2, 3, 4, 5, 6, 7]
            assert completed <= set(loaded["completed_phases"])
            loads, completed = loads + 1, set(loaded["completed_phases"])
        assert writer.is_alive()


def test_two_processes_that_create_the_same_session_both_have_it(tmp_path):
    """Creating a session twice at once is creating it once."""
    for number in range(20):
        session = ("idea", f"run_{number}")
        create = partial(CheckpointManager(tmp_path).create_session, *session, "user")
        assert together(create, create) == [tmp_path / "idea" / "sessions" / session[1]] * 2
        manifests = [key for key in FileStore(tmp_path).keys("idea/sessions/") if f"{session[1]}/" in key]
        assert manifests == [f"idea/sessions/{session[1]}/session_manifest.md"]
        assert CheckpointManager(tmp_path).load_session(*session)["status"] == "in_progress"


# One project.


def test_sessions_that_two_processes_start_all_count(tmp_path):
    """Eighty starts from two sides are eighty sessions, and all of them load."""
    manager, project_id = new_project(tmp_path)
    start_some = partial(several, 40, lambda _: manager.start_session(project_id)["session_id"])
    first, second = together(start_some, start_some)
    status = manager.get_project_status(project_id)
    assert status["total_sessions"] == 80
    assert status["sessions"] == sorted(first + second)
    load = CheckpointManager(tmp_path).load_session
    assert {load(project_id, session)["status"] for session in status["sessions"]} == {"in_progress"}


def test_projects_that_two_processes_give_the_same_name_are_different_ones(tmp_path):
    """Each project has an id of its own, whoever takes the name at the same moment."""
    manager = ProjectManager(tmp_path)
    create = partial(several, 20, lambda _: manager.create_project("user", "An idea", "Idea")["project_id"])
    first, second = together(create, create)
    assert len(set(first + second)) == 40
    assert {project["project_id"] for project in manager.list_user_projects("user")} == set(first + second)


def test_sessions_that_two_processes_complete_get_a_version_each(tmp_path):
    """Versions are 1, 2, 3 and so on, each of one session, also where requirements are the same."""
    manager, project_id = new_project(tmp_path)
    sessions = [manager.start_session(project_id)["session_id"] for _ in range(20)]

    def complete(number, *, half):
        return manager.complete_session(project_id, sessions[2 * number + half], f"Requirements {number}\n")["version"]

    first, second = together(*(partial(several, 10, partial(complete, half=half)) for half in (0, 1)))
    assert sorted(first + second) == list(range(1, 21))
    status = manager.get_project_status(project_id)
    assert (status["current_version"], status["completed_sessions"]) == (20, 20)


def test_preferences_that_two_processes_set_are_all_kept(tmp_path):
    """A preference set by one process does not undo that of another."""
    manager, project_id = new_project(tmp_path)

    def prefer(number, *, side):
        manager.update_user_preferences(project_id, {f"{side} {number}": number})

    together(*(partial(several, 20, partial(prefer, side=side)) for side in ("left", "right")))
    expected = {f"{side} {number}": number for side in ("left", "right") for number in range(20)}
    assert manager.get_user_preferences(project_id) == expected


# What the processes do, and what is looked at.


def several(count, act):
    """Do something some times; what came of it."""
    return [act(number) for number in range(count)]


def save_phase(base, phase, count):
    """Save a phase's output and checkpoint again and again; what each checkpoint counted."""
    manager, counted = CheckpointManager(base), []
    for number in range(count):
        agents = [{"agent_name": AGENTS[phase], "status": "completed"}]
        manager.save_agent_output(*SESSION, phase, AGENTS[phase], text_of(number))
        status = "completed" if number % 2 else "requires_retry"
        manager.save_checkpoint(*SESSION, phase, status, agents, duration=number, retry_count=number)
        counted.append(read_checkpoint(base, phase)["save_counter"])
    return counted


def save_on_and_on(base):
    """Complete and approve one phase after the other, again and again."""
    manager, number = CheckpointManager(base), 0
    while True:
        for phase in range(1, 8):
            number += 1
            manager.save_agent_output(*SESSION, phase, "agent", text_of(number))
            manager.save_checkpoint(*SESSION, phase, "completed", [], retry_count=number)
            manager.save_user_feedback(*SESSION, phase, True, True, retry_count=number)


def text_of(number):
    return f"The text of save {number}.\n" * (number % 100)


def read_checkpoint(base, phase):
    return DocumentRepository(FileStore(base)).read(PhaseCheckpoint, CHECKPOINTS[phase]).value.to_value()


def shown_phases(base):
    """The table of phases that the manifest shows."""
    data = (base / FOLDER / "session_manifest.md").read_bytes()
    return parse(load_schema("session_manifest"), data).derived["phase_status"]


def new_project(base):
    manager = ProjectManager(base)
    return manager, manager.create_project("user", "An idea", "idea")["project_id"]
