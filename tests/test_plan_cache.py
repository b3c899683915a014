"""Entries of plans are found again by the content of the files they follow from, and by nothing else."""

from __future__ import annotations

import os

import pytest

from haytham.errors import InvalidDocument
from haytham.session.plan import SessionPlan
from haytham.session.summary import summarize
from haytham.storage import FileStore
from support import fake_agents
from support.fake_agents import Desk, planned_anew

DONE = ("completed", None)


class Counting(FileStore):
    """A store that notes the keys that are read."""

    def __init__(self, base):
        super().__init__(base)
        self.keys_read = []

    def read(self, key, *, limit=None):
        self.keys_read.append(key.rpartition("/")[2])
        return super().read(key, limit=limit)


@pytest.fixture
def desk(tmp_path):
    """A session that ran through, every gate approved, whose files changed some time ago."""
    fake_agents.forget()
    desk = Desk(tmp_path)
    assert desk.resume(approve_as="ann") == DONE
    age(tmp_path)
    return desk


def age(folder):
    """Let all files be older than a tick of the disk's clock, as far as their times say."""
    for path in folder.rglob("*.*"):
        about = path.stat()
        os.utime(path, (about.st_atime, about.st_mtime - 60))


def is_as_planned_anew(desk):
    return SessionPlan(desk.session.read()).phases == planned_anew(desk.session).phases


def test_a_plan_of_unchanged_files_reads_none_of_them(desk, monkeypatch):
    """Once planned, a session is planned again without reading the documents of its phases."""
    monkeypatch.setattr("haytham.storage.atomic._FRESH", 0)
    store = Counting(desk.base)
    summarize(desk.over(store).read())
    store.keys_read.clear()
    assert summarize(desk.over(store).read()).status == "completed"
    assert "a.md" not in store.keys_read
    assert "checkpoint.md" not in store.keys_read


@pytest.mark.parametrize("path", ["a.md", "user_feedback.md", "checkpoint.md", "tasks/a.md"])
def test_a_file_that_changed_a_moment_ago_is_known_by_its_content(desk, monkeypatch, path):
    """A change within one tick of the disk's clock, which leaves size and times as they were, is seen."""
    monkeypatch.setattr("haytham.storage.atomic._FRESH", 10**12)
    file = desk.folder(1) / path
    assert is_as_planned_anew(desk)
    before, about = file.read_bytes(), file.stat()
    file.write_bytes(before.translate(bytes.maketrans(b"0123456789", b"1234567890")))
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert plan_or_fault(desk.standing) == plan_or_fault(lambda: planned_anew(desk.session))


def plan_or_fault(plan):
    try:
        return plan().phases
    except InvalidDocument as error:
        return str(error)


def test_what_a_task_is_made_of_changes_the_plan(desk):
    """The idea, the evidence, a text that is needed and the words of an earlier review each make outputs stale."""
    folder = desk.base / "p" / "sessions" / "s"
    assert is_as_planned_anew(desk)
    (folder / "evidence.md").write_text("We know better.", encoding="utf-8")
    assert desk.standing().phases[0].stale == ("a",)
    assert is_as_planned_anew(desk)
    (folder / "evidence.md").unlink()
    assert desk.standing().phases[0].stale == ()
    desk.edit(1, "a", "Another text.")
    assert any(entry.stale for entry in desk.standing().phases[1:])
    assert is_as_planned_anew(desk)


def test_a_file_of_the_workflow_that_changed_is_refused(desk):
    """A known plan hides no change in the session's copy of its workflow."""
    SessionPlan(desk.session.read())
    (agent,) = (desk.base / "p" / "workflows").glob("*/agents/a.md")
    agent.write_bytes(agent.read_bytes() + b"\nMore.\n")
    with pytest.raises(InvalidDocument, match="does not hold"):
        SessionPlan(desk.session.read())
