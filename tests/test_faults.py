"""Whatever fails, and whenever: each document is the old one or the new one, and the session loads."""

from __future__ import annotations

import errno
import itertools
import os
import random
import resource
import shutil
import signal
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import pytest

from conftest import rounds
from haytham import CheckpointManager, FileStore, History, ProjectManager, clock
from haytham.session import SessionDocuments
from haytham.session.documents import DocumentRepository
from haytham.session.models import MODELS, SessionManifest
from haytham.session.validate import schema_for_path
from support.subprocess_workers import FORK, apart, fail_at, running, runs_to_its_end

SESSION = ("idea", "run")
FOLDER = "idea/sessions/run"
MANIFEST = f"{FOLDER}/session_manifest.md"
AGENT = "concept_expansion"


# Three saves. Each leaves its number in one document, the home of what it saves.


def save_output(manager, number):
    manager.save_agent_output(*SESSION, 1, AGENT, text_of(number), duration=number)


def save_checkpoint(manager, number):
    status = "completed" if number > 1 else "in_progress"
    agents = [{"agent_name": AGENT, "status": status}]
    manager.save_checkpoint(*SESSION, 1, status, agents, retry_count=number)


def save_feedback(manager, number):
    manager.save_user_feedback(*SESSION, 1, number > 1, number > 1, retry_count=number)


SAVES = (save_output, save_checkpoint, save_feedback)
HOMES = {
    save_output: (f"{FOLDER}/phase_1_concept/{AGENT}.md", "duration"),
    save_checkpoint: (f"{FOLDER}/phase_1_concept/checkpoint.md", "retry_count"),
    save_feedback: (f"{FOLDER}/phase_1_concept/user_feedback.md", "retry_count"),
}
each_save = pytest.mark.parametrize("save", SAVES, ids=lambda save: save.__name__)


@pytest.fixture(autouse=True)
def _still_clock():
    """Hold time still, so that the same save writes the same bytes."""
    with clock.override(lambda: datetime(2024, 11, 24, 10, tzinfo=UTC)):
        yield


@pytest.fixture
def base(tmp_path):
    """A folder with a session in which each document was saved once, with the number 1."""
    manager = CheckpointManager(tmp_path / "projects")
    manager.create_session(*SESSION, "user", execution_mode="full")
    for save in SAVES:
        save(manager, 1)
    return manager.base_dir


# Kills.


@pytest.mark.soak
def test_what_was_saved_survives_a_kill_at_any_moment(base):
    """Kill -9 while saving: each document is whole, and no older than the last save of it that returned."""
    moments = random.Random(1)  # noqa: S311 - to be the same in each run
    for _ in range(rounds(300)):
        left = session_strays(base)
        returned = kill_while_saving(base, after=moments.uniform(0, 0.06))
        now = numbers(base)
        assert problems(base) == []
        assert all(now[save] >= number for save, number in returned.items())
        assert CheckpointManager(base).get_phase_outputs(*SESSION, [1]) == {1: {AGENT: text_of(now[save_output])}}
        assert CheckpointManager(base).load_session(*SESSION)["current_phase"] == 1
        assert not any(name.startswith(".") for key in state(base) for name in key.split("/"))
        assert not returned or not left & session_strays(base)
        assert history(base).verify() == []


@each_save
def test_a_kill_at_any_step_of_a_save_leaves_the_old_or_the_new(base, tmp_path, save):
    """Kill -9 in each call that changes the disk: files and session are as before or after, and the next save works."""
    before, after = base, copy_of(base, tmp_path / "after")
    save(CheckpointManager(after), 2)
    for step in itertools.count():
        trial = copy_of(base, tmp_path / f"step_{step}")
        if runs_to_its_end(partial(save, CheckpointManager(trial), 2), step):
            break
        check_old_or_new(trial, before, after)
        save(CheckpointManager(trial), 3)
        assert (numbers(trial)[save], problems(trial), session_strays(trial)) == (3, [], set())
    assert step > 0
    assert (documents(trial), kinds(trial)) == (documents(after), kinds(after))


def test_the_first_save_sweeps_what_killed_writers_left(base):
    """Files and folders with a temporary name are gone from a session's folders after the first save of a manager."""
    (base / FOLDER / ".haytham-0123").write_text("half a docu", encoding="utf-8")
    (base / FOLDER / "phase_1_concept" / ".haytham-4567").write_text("", encoding="utf-8")
    (base / FOLDER / "phase_7_synthesis" / ".haytham-89ab").mkdir()
    assert len(strays(base)) == 3
    CheckpointManager(base).save_checkpoint(*SESSION, 2, "in_progress", [])
    assert strays(base) == set()


def test_a_kill_at_any_step_of_creating_a_session_leaves_none_or_all_of_it(tmp_path):
    """A session whose creation was killed is not there, or loads; creating it again ends well."""
    for step in itertools.count():
        manager = CheckpointManager(tmp_path / f"step_{step}")
        if runs_to_its_end(partial(manager.create_session, *SESSION, "user"), step):
            break
        with suppress(FileNotFoundError):
            assert manager.load_session(*SESSION)["status"] == "in_progress"
        again = CheckpointManager(manager.base_dir)
        again.create_session(*SESSION, "user")
        again.save_checkpoint(*SESSION, 7, "completed", [])
        assert again.load_session(*SESSION)["completed_phases"] == [7]
        assert strays(manager.base_dir) == set()
    assert step > 0


def test_a_kill_at_any_step_of_starting_a_session_leaves_none_or_all_of_it(tmp_path):
    """Of a session whose start was killed a project counts nothing, or it loads; the next start makes one more."""
    manager, loader = ProjectManager(tmp_path), CheckpointManager(tmp_path)
    project_id = manager.create_project("user", "An idea", "idea")["project_id"]
    for step in itertools.count():
        if runs_to_its_end(partial(manager.start_session, project_id), step):
            break
        sessions = manager.get_project_status(project_id)["sessions"]
        assert all(loader.load_session(project_id, session)["current_phase"] == 0 for session in sessions)
        started = manager.start_session(project_id)["session_id"]
        assert sorted(manager.get_project_status(project_id)["sessions"]) == sorted([*sessions, started])
    assert step > 0


def test_a_kill_at_any_step_of_completing_a_session_makes_one_version_of_it(tmp_path):
    """A session whose completion was killed is open or completed; completing it again makes no second version."""
    origin, project_id, session_id = started_session(tmp_path / "origin")
    completion = (project_id, session_id, "# Requirements\n")
    for step in itertools.count():
        manager = ProjectManager(copy_of(origin, tmp_path / f"step_{step}"))
        if runs_to_its_end(partial(manager.complete_session, *completion), step):
            break
        loaded = CheckpointManager(manager.base_dir).load_session(project_id, session_id)
        assert loaded["status"] in ("in_progress", "completed")
        assert manager.complete_session(*completion)["version"] == 1
        status = manager.get_project_status(project_id)
        assert (status["current_version"], status["completed_sessions"]) == (1, 1)
    assert step > 0


def test_a_kill_at_any_step_of_deleting_a_project_leaves_all_or_none_of_it(tmp_path):
    """A project whose deletion was killed is whole or gone, and can be created again where it is gone."""
    origin, project_id, _ = started_session(tmp_path / "origin")
    for step in itertools.count():
        manager = ProjectManager(copy_of(origin, tmp_path / f"step_{step}"))
        if runs_to_its_end(partial(manager.delete_project, project_id), step):
            break
        left = state(manager.base_dir)
        assert left in (state(origin), {})
        assert [project["project_id"] for project in manager.list_user_projects("user")] == [project_id] * bool(left)
        again = manager.create_project("user", "An idea", project_id)["project_id"]
        assert (again == project_id) != bool(left)
    assert step > 0


# Disks that are full or broken.


def test_an_output_that_does_not_fit_on_the_disk_leaves_the_old_one(base):
    """A save that fails in the middle of a write raises the system's own error, and has changed nothing."""
    before = state(base)

    def save():
        limit_file_size(10_000)
        with pytest.raises(OSError, match="File too large") as caught:
            save_output(CheckpointManager(base), 10_000)
        return caught.value.errno

    assert apart(save) == errno.EFBIG
    assert (state(base), strays(base)) == (before, set())


def test_a_manifest_that_does_not_fit_on_the_disk_is_a_warning(tmp_path, caplog):
    """Where only a shown copy cannot be written the save holds, the log names the copy, and loading tells the truth."""
    manager = CheckpointManager(tmp_path)
    manager.create_session(*SESSION, "user" * 25, execution_mode="full")
    manifest = (tmp_path / MANIFEST).read_bytes()

    def save():
        limit_file_size(len(manifest) - 1)
        manager.save_checkpoint(*SESSION, 1, "completed", [])
        return [(record.levelname, record.getMessage()) for record in caplog.records]

    [(level, message)] = apart(save)
    assert level == "WARNING"
    assert MANIFEST in message
    assert (tmp_path / MANIFEST).read_bytes() == manifest
    assert manager.load_session(*SESSION)["completed_phases"] == [1]
    assert strays(tmp_path) == set()


@each_save
@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_call_that_fails_in_a_save_leaves_the_old_or_the_new(base, tmp_path, monkeypatch, save, call):
    """Whichever write, fsync or replacement fails: old or new, nothing left over, an error where the home is old."""
    before, after = base, copy_of(base, tmp_path / "after")
    save(CheckpointManager(after), 2)
    for nth in itertools.count():
        trial = copy_of(base, tmp_path / f"nth_{nth}")
        with monkeypatch.context() as patch:
            calls = fail_at(patch, call, nth)
            saved = not raises_input_output_error(partial(save, CheckpointManager(trial), 2))
        if len(calls) <= nth:
            break
        check_old_or_new(trial, before, after)
        assert numbers(trial)[save] == 2 or not saved
        assert saved or kinds(trial) == kinds(before)
        assert strays(trial) == set()
    assert nth >= 1  # the manifest is written only where it changes
    assert saved


def test_after_a_failed_save_the_next_one_works(base, monkeypatch):
    """The same manager saves on when the disk is well again, and the manifest shows it."""
    manager = CheckpointManager(base)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", partial(fail, errno.EIO))
        assert raises_input_output_error(partial(save_checkpoint, manager, 2))
    save_checkpoint(manager, 3)
    [row, *_] = DocumentRepository(FileStore(base)).read(SessionManifest, MANIFEST).parsed.derived["phase_status"]
    assert (numbers(base)[save_checkpoint], row["status"]) == (3, "completed")


# What the tests above look at.


def text_of(number):
    return f"The text of save {number}.\n" * number


def state(base):
    """The bytes of each document, by key."""
    store = FileStore(base)
    return {key: store.read(key) for key in store.keys()}  # noqa: SIM118 - a store is no dict


def documents(base):
    """The bytes of each document, without snapshots and without the log of events, which says if one failed."""
    found = state(base)
    return {key: found[key] for key in found if "/history/" not in key and not key.endswith("/events.jsonl")}


def history(base):
    """The snapshots of the session, through objects made anew."""
    return History(SessionDocuments(FileStore(base), *SESSION))


def kinds(base):
    """The kinds of the snapshots, newest first."""
    return [snapshot.kind for snapshot in history(base).list()]


def numbers(base):
    """The number that each document was saved with last, by the function that saves it."""
    shelf = DocumentRepository(FileStore(base))
    return {
        save: getattr(shelf.read(MODELS[schema_for_path(key)], key).value, field)
        for save, (key, field) in HOMES.items()
    }


def problems(base):
    """The problems of all documents."""
    found = (
        DocumentRepository(FileStore(base)).find(MODELS[schema_for_path(key)], key)
        for key in state(base)
        if schema_for_path(key)
    )
    return [problem for document in found for problem in document.problems]


def strays(base):
    """The temporary files and folders, wherever they are."""
    return {path for path in base.rglob("*") if path.name.startswith(".haytham-")}


def session_strays(base):
    """The temporary files and folders among the documents of the session."""
    return strays(base / FOLDER)


def check_old_or_new(trial, before, after):
    """Each document is as before or as after a save, and the session loads as before or as after it.

    The snapshot that follows is there, sound and of the new documents, or it is not.
    """
    check_snapshot(trial, before, after)
    found, old, new = documents(trial), documents(before), documents(after)
    assert found.keys() == old.keys() == new.keys()
    assert [key for key in found if found[key] not in (old[key], new[key])] == []
    loaded, *allowed = (CheckpointManager(folder).load_session(*SESSION) for folder in (trial, before, after))
    assert loaded in allowed


def check_snapshot(trial, before, after):
    """Snapshots are those of before, and then those that the save takes of the documents it has written."""
    assert history(trial).verify() == []
    assert kinds(trial) in (kinds(before), kinds(after))
    if kinds(trial) != kinds(before):
        found, saved = documents(trial), documents(after)
        inside = {key.removeprefix(f"{FOLDER}/"): data for key, data in found.items() if key.startswith(f"{FOLDER}/")}
        assert history(trial).contents("latest") == inside
        assert [key for key in found if found[key] != saved[key]] in ([], [MANIFEST])  # shown copies may be behind


def started_session(base):
    """A project with a session; their folder and ids."""
    manager = ProjectManager(base)
    project_id = manager.create_project("user", "An idea", "idea")["project_id"]
    return base, project_id, manager.start_session(project_id)["session_id"]


def copy_of(folder, place):
    return shutil.copytree(folder, place)


# What goes wrong in them.


def kill_while_saving(base, *, after):
    """Let a process save one thing after the other, and kill it some seconds after its start; what had returned."""
    receive, send = FORK.Pipe(duplex=False)
    with running(save_on_and_on, base, max(numbers(base).values()), send) as process:
        send.close()
        assert receive.recv() == "ready"
        time.sleep(after)
    assert process.exitcode == -signal.SIGKILL
    returned = {}
    with suppress(EOFError):
        while True:
            index, number = receive.recv()
            returned[SAVES[index]] = number
    return returned


def save_on_and_on(base, last, send):
    """Save for ever, and tell of each save that returned."""
    manager = CheckpointManager(base)
    send.send("ready")
    for number in itertools.count(last + 1):
        for index, save in enumerate(SAVES):
            save(manager, number)
            send.send((index, number))


def limit_file_size(size):
    """Make each write beyond a size fail in this process, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def fail(number, *_):
    raise OSError(number, os.strerror(number))


def raises_input_output_error(function):
    try:
        function()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return True
    return False
