"""`validate`: every file of sessions and projects, judged by place, all problems at once; never hangs or leaks."""

from __future__ import annotations

import os
import re
import shutil

import pytest

from haytham import CheckpointManager
from support.cli_runner import IDEA, edit, haytham, session_folder

CONCEPT = "phase_1_concept"


@pytest.fixture(scope="module")
def second_gate(tmp_path_factory):
    """A folder with a session that waits in phase 2, after two attempts at phase 1."""
    folder = tmp_path_factory.mktemp("second_gate")
    haytham("run", IDEA, "--name", "Rain barrels", cwd=folder)
    haytham("request-changes", "-m", "Name one city", cwd=folder)
    haytham("resume", cwd=folder)
    haytham("approve", cwd=folder)
    assert haytham("resume", cwd=folder).code == 3
    return folder


def problems(here, *words):
    """What `validate` says, a line each, after exit 6."""
    answer = haytham("validate", *words, cwd=here)
    assert answer.code == 6, answer
    lines = answer.out.splitlines()
    notes = [line for line in lines if line.startswith("note: ")]
    counted = {0: "", 1: ", 1 note"}.get(len(notes), f", {len(notes)} notes")
    assert re.fullmatch(rf"\d+ documents, {len(lines) - len(notes)} problems{counted}\n", answer.err)
    return answer.out


def test_sound_documents_validate(second_gate):
    """Whatever part of a sound session is named, it has no problems, exit 0."""
    session = session_folder(second_gate)
    for path in (
        "projects",
        ".",
        "projects/rain_barrels",
        session,
        session / CONCEPT,
        session / CONCEPT / "checkpoint.md",
    ):
        answer = haytham("validate", path, cwd=second_gate)
        assert (answer.code, answer.out) == (0, "")
        assert not answer.err.startswith("0 ")


def test_a_phase_is_validated_from_within(second_gate):
    """`cd phase_1_concept && haytham validate .` works, and names files as they are seen from there."""
    folder = session_folder(second_gate) / CONCEPT
    answer = haytham("validate", ".", cwd=folder, XDG_STATE_HOME=str(second_gate))
    assert (answer.code, answer.out, answer.err) == (0, "", "9 documents, 0 problems\n")


def test_every_problem_is_told_at_once(here):
    """All problems of all files are told with file, line, section and label, exit 6."""
    session = session_folder(here)
    edit(session / CONCEPT / "checkpoint.md", "- Status: completed", "- Status: banana")
    edit(session / CONCEPT / "concept_expansion.md", "## Output", "## Outpud")
    edit(session / CONCEPT / "attempts" / "1" / "user_feedback.md", "- Reviewed: true", "- Reviewed: perhaps")
    (session / "phase_2_market_research" / "notes.md").write_text("mine\n", encoding="utf-8")
    said = problems(here)
    assert re.search(
        r"^projects/rain_barrels/sessions/.*checkpoint\.md:\d+: Metadata / Status: found 'banana'", said, re.MULTILINE
    )
    assert re.search(r"concept_expansion\.md:\d+: Output: the section is missing; the file may be cut off", said)
    assert re.search(r"attempts/1/user_feedback\.md:\d+: Review Status / Reviewed: found 'perhaps'", said)
    assert "notes.md:1: found no front matter" in said


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        (
            f"{CONCEPT}/user_feedback.md",
            "- Action: approved",
            "- Action: rejected",
            "found Approved: true and Action: rejected",
        ),
        (f"{CONCEPT}/user_feedback.md", "phase_number: 1", "phase_number: 2", "by the place of the file"),
        (f"{CONCEPT}/concept_expansion.md", "- Agent: concept_expansion", "- Agent: other", "by the place of the file"),
    ],
)
def test_what_documents_say_of_each_other_must_agree(here, file, old, new, said):
    """Contradictory feedback, and documents of another place are problems."""
    edit(session_folder(here) / file, old, new)
    found = problems(here)
    assert said in found
    assert f"{file}:" in found


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        (
            "session_manifest.md",
            "- Status: waiting",
            "- Status: completed",
            "Status: shows 'completed', and is 'waiting'",
        ),
        (
            f"{CONCEPT}/checkpoint.md",
            "- concept_expansion: completed",
            "- concept_expansion: failed",
            "Agents in Phase",
        ),
        (f"{CONCEPT}/concept_expansion.md", "- Phase: 1 - Concept", "- Phase: 1 - Context", "Metadata / Phase: shows"),
    ],
)
def test_a_derived_copy_that_disagrees_is_a_note(here, file, old, new, said):
    """What a document only shows and is not so is a note with file and line, exit 0."""
    edit(session_folder(here) / file, old, new)
    answer = haytham("validate", cwd=here)
    (line,) = answer.out.splitlines()
    assert (answer.code, line.startswith("note: projects/"), said in line, f"{file}:" in line) == (0, True, True, True)
    assert answer.err.endswith(" documents, 0 problems, 1 note\n")
    (note,) = haytham("validate", "--json", cwd=here).json["notes"]
    assert line == f"note: {note}"


def test_what_lies_where_it_does_not_belong_is_told(here):
    """A folder of no phase, a document in the wrong folder, and a lost manifest are problems."""
    session = session_folder(here)
    (session / CONCEPT).rename(session / "phase_1_konzept")
    shutil.copy(session / "phase_2_market_research" / "checkpoint.md", session / "checkpoint.md")
    shutil.copytree(session, session.parent / "lost")
    (session.parent / "lost" / "session_manifest.md").unlink()
    said = problems(here)
    assert f"{session.name}/phase_1_konzept: is a folder of no phase" in said
    assert f"{session.name}/checkpoint.md: is a document where none belongs" in said
    assert "lost/session_manifest.md: is not there; haytham doctor rebuilds it" in said


def test_an_agent_may_have_the_name_of_a_document(tmp_path):
    """Agents called project or session_manifest, and a session called phase_1_x, are judged by their place."""
    manager = CheckpointManager(tmp_path / "projects")
    manager.create_session("p", "phase_1_x", "u")
    for agent in ("project", "session_manifest"):
        manager.save_agent_output("p", "phase_1_x", 1, agent, "text")
    manager.save_checkpoint("p", "phase_1_x", 1, "completed", [])
    assert haytham("validate", cwd=tmp_path).err == "4 documents, 0 problems\n"
    folder = tmp_path / "projects" / "p" / "sessions" / "phase_1_x" / CONCEPT
    assert haytham("validate", "project.md", cwd=folder).err == "1 documents, 0 problems\n"


def test_a_pipe_does_not_hang_and_a_link_does_not_leak(here):
    """A named pipe and links that lead out of the projects are problems, and nothing of their content is told."""
    session = session_folder(here)
    (here / "secret").write_text("---\nhaytham: token-of-mine\n---\n", encoding="utf-8")
    os.mkfifo(session / "phase_2_market_research" / "pipe.md")
    (session / "phase_2_market_research" / "link.md").symlink_to(here / "secret")
    (session / "phase_9_elsewhere").symlink_to(here)
    said = problems(here)
    assert "pipe.md: " in said
    assert "a file; this is a folder, a pipe or a device" in said
    assert "no link that leads out of" in said
    assert "phase_9_elsewhere" in said
    assert "token-of-mine" not in said


def _link_events(session, good):
    (session / "events.jsonl").unlink()
    (session / "events.jsonl").symlink_to(good / "project.md")


def _link_phase(session, good):
    shutil.rmtree(session / "phase_2_market_research")
    (session / "phase_2_market_research").symlink_to(good)


def _link_output(session, good):
    (session / "phase_2_market_research" / "market_intelligence.md").unlink()
    (session / "phase_2_market_research" / "market_intelligence.md").symlink_to(good / "project.md")


@pytest.mark.parametrize("link", [_link_events, _link_phase, _link_output])
def test_a_link_to_another_project_is_reported_and_never_written_through(here, link):
    """A link in a session stops the commands that would write through it, exit 6, and the other project stays."""
    session = session_folder(here)
    haytham("run", IDEA, "--name", "Good", cwd=here)
    good = here / "projects" / "good"
    before = {path: path.read_bytes() for path in good.rglob("*") if path.is_file()}
    link(session, good)
    assert "allowed: no symbolic link" in problems(here)
    for words in (
        ["resume", session.name, "--no-input"],
        ["approve", "-s", session.name],
        ["resume", session.name, "--input", "x"],
    ):
        answer = haytham(*words, cwd=here)
        assert answer.code == 6, words
        assert "symbolic link" in answer.err
    assert {path: path.read_bytes() for path in good.rglob("*") if path.is_file()} == before


def test_a_project_that_is_a_link_is_reported(here):
    """A link among the projects is no project, and validate says so."""
    (here / "projects" / "linked").symlink_to(here / "projects" / "rain_barrels")
    assert "projects/linked: key: found 'linked'; allowed: no symbolic link" in problems(here)


def test_a_workflow_is_validated_with_its_agents(tmp_path):
    """A folder with a workflow.yaml is judged as one: keys with their lines, and every agent's file."""
    haytham("init", "mine", cwd=tmp_path)
    edit(tmp_path / "mine" / "workflow.yaml", "run: sequential", "runs: sequential")
    (tmp_path / "mine" / "agents" / "validation.md").write_text("---\nmodel: [1]\n---\n", encoding="utf-8")
    said = problems(tmp_path, "mine")
    assert re.search(r"workflow\.yaml:\d+: phases\[2\]\.runs: unknown key; did you mean run\?", said)
    assert "agents/validation.md" in said


def test_what_is_no_document_is_told(tmp_path):
    """A file that is no document by name and place is a problem; a folder with nothing in it is not."""
    (tmp_path / "notes.md").write_text("mine\n", encoding="utf-8")
    assert "notes.md: is no document of haytham by its name and place" in problems(tmp_path, "notes.md")
    assert haytham("validate", cwd=tmp_path).code == 2
    assert haytham("validate", ".", cwd=tmp_path).err == "0 documents, 0 problems\n"


@pytest.mark.parametrize("path", ["./checkpoints", "deep/er", "other/sessions"])
def test_a_folder_for_histories_among_the_projects_is_no_project(tmp_path, path):
    """Where a workflow keeps its history in a folder among the projects, validate, list and doctor pass that by."""
    haytham("init", "mine", cwd=tmp_path)
    with (tmp_path / "mine" / "workflow.yaml").open("a", encoding="utf-8") as file:
        file.write(f"workflow:\n  checkpointing: {{storage_path: {path}}}\n")
    assert haytham("run", IDEA, "--workflow", "mine", "--name", "sessions", cwd=tmp_path).code == 3
    assert list((tmp_path / "projects" / path).glob("sessions/history/snapshots/**/*.md"))
    answer = haytham("validate", cwd=tmp_path)
    assert (answer.code, answer.out) == (0, "")
    assert [row["project"] for row in haytham("list", "--json", cwd=tmp_path).json["sessions"]] == ["sessions"]
    assert haytham("doctor", cwd=tmp_path).code == 0
    assert haytham("resume", cwd=tmp_path).code == 3
    stray = tmp_path / "projects" / path / "project.md"
    stray.write_text("---\nhaytham: project/1\n---\n", encoding="utf-8")
    assert "project.md" in problems(tmp_path)
