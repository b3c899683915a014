"""`doctor`: what is derived is rebuilt from its homes; it says what it did, and asks for what stands nowhere."""

from __future__ import annotations

import itertools
import shutil
from functools import partial

import pexpect
import pytest

from haytham import CheckpointManager
from support.cli_runner import IDEA, command, environment, frozen, haytham, session_folder
from support.subprocess_workers import runs_to_its_end


@pytest.fixture(scope="module")
def second_gate(tmp_path_factory):
    """A folder with a session that waits in phase 2."""
    folder = tmp_path_factory.mktemp("second_gate")
    haytham("run", IDEA, "--name", "Rain barrels", "--model", "worksheet", cwd=folder)
    haytham("approve", cwd=folder)
    assert haytham("resume", cwd=folder).code == 3
    return folder


def value(here):
    """What the manifest is the home of."""
    from haytham.markdown.parser import parse
    from haytham.markdown.schema import load_schema

    found = parse(load_schema("session_manifest"), (session_folder(here) / "session_manifest.md").read_bytes())
    assert not found.problems
    return found.value


def files(here):
    """The bytes and the time of every file and folder that is not this machine's own."""
    found = [path for path in (here / "projects").rglob("*") if ".haytham" not in path.parts]
    return {path: (path.read_bytes() if path.is_file() else None, path.stat().st_mtime_ns) for path in found}


def test_doctor_leaves_every_file_of_a_sound_workspace_alone(here):
    """What changes nothing writes nothing: bytes and times of all files are as before, also of those reformatted."""
    manifest = session_folder(here) / "session_manifest.md"
    manifest.write_bytes(b"\xef\xbb\xbf" + manifest.read_bytes().replace(b"\n- ", b"\n* ").replace(b"\n", b"\r\n"))
    before = files(here)
    assert haytham("doctor", cwd=here).out == "no repairs were needed\n"
    assert files(here) == before


def test_doctor_after_a_rebuild_has_nothing_to_mend(here):
    """What doctor rebuilt is as it would be saved: a second call finds and writes nothing."""
    (session_folder(here) / "session_manifest.md").unlink()
    haytham("doctor", cwd=here)
    before = files(here)
    assert haytham("doctor", cwd=here).out == "no repairs were needed\n"
    assert files(here) == before


def test_a_lost_manifest_is_rebuilt_as_it_was(here):
    """From folders, project and events everything the manifest was the home of comes back; the session goes on."""
    before = value(here)
    (session_folder(here) / "session_manifest.md").unlink()
    said = frozen(haytham("doctor", cwd=here).out)
    assert said == "rain_barrels/<session>: rebuilt session_manifest.md for user ann in mode mvp\n"
    assert value(here) == before
    assert haytham("validate", cwd=here).code == 0
    haytham("approve", cwd=here)
    assert haytham("resume", "--json", cwd=here).json["phase"] == 3


def test_without_events_it_is_rebuilt_from_project_and_folders(here):
    """The user stands in project.md, the mode follows from the folders."""
    session = session_folder(here)
    (session / "session_manifest.md").unlink()
    (session / "events.jsonl").unlink()
    assert haytham("doctor", cwd=here).code == 0
    assert (value(here)["user_id"], value(here)["execution_mode"]) == ("ann", "mvp")


def test_what_stands_nowhere_is_asked_for(here):
    """Without events and project the user is a question at a terminal, an option elsewhere; nothing is guessed."""
    session = session_folder(here)
    (session / "session_manifest.md").unlink()
    (session / "events.jsonl").unlink()
    (here / "projects" / "rain_barrels" / "project.md").unlink()
    answer = haytham("doctor", cwd=here)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.endswith("; say it with --user\n")
    first, *rest = command("doctor")
    child = pexpect.spawn(first, rest, cwd=str(here), env=environment(here), encoding="utf-8", timeout=20)
    child.expect("the user of session")
    child.sendline("bob")
    child.expect("rebuilt session_manifest.md for user bob in mode mvp")
    child.expect(pexpect.EOF)


def test_an_unreadable_manifest_is_never_taken_for_lost(here):
    """A manifest that does not parse is named, exit 6, and left as it is."""
    manifest = session_folder(here) / "session_manifest.md"
    manifest.write_text("mine\n", encoding="utf-8")
    answer = haytham("doctor", cwd=here)
    assert (answer.code, "session_manifest.md:1:" in answer.err) == (6, True)
    assert manifest.read_text(encoding="utf-8") == "mine\n"


def test_shown_copies_are_drawn_anew(here):
    """What is shown and not so is drawn anew, and named."""
    session = session_folder(here)
    for name, old, new in (
        ("session_manifest.md", "- Status: waiting", "- Status: completed"),
        ("phase_1_concept/checkpoint.md", "- concept_expansion: completed", "- concept_expansion: failed"),
    ):
        text = (session / name).read_text(encoding="utf-8")
        assert old in text
        (session / name).write_text(text.replace(old, new), encoding="utf-8")
    said = haytham("doctor", cwd=here).out
    assert "drew session_manifest.md anew" in said
    assert "drew phase_1_concept/checkpoint.md anew" in said
    assert haytham("validate", cwd=here).code == 0


def test_temporary_files_are_swept(here):
    """What killed writers left is swept from every folder of the session and its project; a person's files stay."""
    session = session_folder(here)
    for folder in (session, session / "phase_1_concept" / "tasks", session.parent.parent):
        (folder / ".haytham-0123456789abcdef").write_bytes(b"half")
    (session / ".notes").write_text("mine\n", encoding="utf-8")
    assert haytham("doctor", cwd=here).out.endswith(": swept 3 temporary files\n")
    assert list((here / "projects").rglob(".haytham-*")) == []
    assert (session / ".notes").exists()


def test_what_a_killed_command_left_is_swept(here):
    """Temporary files of a save that was killed are swept from the folder that all of them are written to."""
    save = partial(CheckpointManager(here / "projects").save_agent_output, "rain_barrels", session_folder(here).name, 2)
    for step in itertools.count():
        assert not runs_to_its_end(partial(save, "market_intelligence", "text"), step)
        left = len(list((here / "projects/.haytham/tmp").iterdir()))
        if left:
            break
    assert f": swept {left} temporary files\n" in haytham("doctor", cwd=here).out
    assert list((here / "projects/.haytham/tmp").iterdir()) == []


def test_one_session_that_cannot_be_mended_keeps_no_other_from_it(here):
    """Every session is looked after; the one that cannot be is told, and decides the exit code."""
    first = session_folder(here)
    shutil.copytree(first, first.parent / "copy")
    (first / ".haytham-0123456789abcdef").write_bytes(b"half")
    answer = haytham("doctor", cwd=here)
    assert (answer.code, "swept 1 temporary files" in answer.out) == (6, True)
    assert "copy/session_manifest.md" in answer.err
