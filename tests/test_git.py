"""A workspace in git: clones go on where the origin stood, and two that diverged are merged into one that is sound."""

from __future__ import annotations

import re

import pytest

from clones import clone, commit, git
from command import IDEA, haytham, session_folder
from haytham import CheckpointManager

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
    assert haytham("doctor", cwd=copy).out == "nothing was to mend\n"


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
