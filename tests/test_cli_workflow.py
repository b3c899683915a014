"""A workflow that changed between stop and resume, and workflows that would run code from elsewhere."""

from __future__ import annotations

import shutil

import pytest

from support.cli_runner import IDEA, haytham, process, session_folder, workflow

AGENTS = ["one", "two", "three"]
PHASES = [(1, "One", "one", ["one"]), (2, "Two", "two", ["two"]), (3, "Three", "three", ["three"])]
CHANGES = {
    "renamed": ([PHASES[0], (2, "Second", "two", ["two"]), PHASES[2]], "phase 2, Two: name Two before, Second now"),
    "removed": ([PHASES[0], PHASES[2]], "phase 2, Two, is gone"),
    "inserted": (
        [*PHASES[:2], (3, "Extra", "extra", ["two"]), (4, "Three", "three", ["three"])],
        "phase 4, Three, is new",
    ),
    "renumbered": ([PHASES[0], (5, "Two", "two", ["two"]), (6, "Three", "three", ["three"])], "phase 5, Two, is new"),
    "other slug": ([PHASES[0], (2, "Two", "zwei", ["two"]), PHASES[2]], "slug two before, zwei now"),
    "other agents": ([PHASES[0], (2, "Two", "two", ["one", "two"]), PHASES[2]], "agents two before, one, two now"),
}


@pytest.fixture(scope="module")
def second_gate(tmp_path_factory):
    """A session that waits in phase 2 of a workflow in a folder of its own."""
    folder = tmp_path_factory.mktemp("second_gate")
    workflow(folder, AGENTS)
    haytham("run", IDEA, "--workflow", "mine", cwd=folder)
    haytham("approve", cwd=folder)
    assert haytham("resume", cwd=folder).code == 3
    return folder


@pytest.fixture
def here(second_gate, tmp_path):
    """A copy of that folder, with the workflow where the session was copied from."""
    folder = tmp_path / "here"
    shutil.copytree(second_gate, folder)
    manifest = session_folder(folder) / "session_manifest.md"
    text = manifest.read_text(encoding="utf-8").replace(str(second_gate), str(folder))
    manifest.write_text(text, encoding="utf-8")
    return folder


def texts(here):
    """What agents wrote, wherever it lies now."""
    return sorted(path.read_bytes() for path in session_folder(here).rglob("*.md") if path.stem in AGENTS)


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_workflow_is_refused_with_what_changed(here, name):
    """Resume says what changed and the two ways out, exit 1; nothing is written."""
    phases, said = CHANGES[name]
    workflow(here, AGENTS, phases=phases)
    before = texts(here)
    answer = haytham("resume", cwd=here)
    assert (answer.code, said in answer.err) == (1, True), answer.err
    assert "--accept-workflow" in answer.err
    assert "--keep-workflow" in answer.err
    assert texts(here) == before


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_workflow_is_accepted_and_nothing_is_lost(here, name):
    """`--accept-workflow` keeps phases that are unchanged with their approvals, and loses no text that was written."""
    phases, _ = CHANGES[name]
    before = texts(here)
    workflow(here, AGENTS, phases=phases)
    answer = haytham("resume", "--accept-workflow", cwd=here)
    assert answer.code == 3, answer
    assert "approved by ann" in haytham("status", cwd=here).out.split("\n")[2]
    assert [text for text in before if text not in texts(here)] == []
    assert haytham("validate", cwd=here).out == ""
    answer = haytham("resume", "--yes", cwd=here)
    assert (answer.code, answer.out.endswith(" is completed; read its last page with: haytham show\n")) == (0, True), (
        answer
    )


def test_a_changed_workflow_can_be_left_alone(here):
    """`--keep-workflow` goes on with the session's own copy, once for that change."""
    workflow(here, AGENTS, phases=CHANGES["removed"][0])
    assert haytham("resume", "--keep-workflow", cwd=here).code == 3
    assert haytham("resume", "--yes", cwd=here).code == 0
    assert "  2  Two " in haytham("status", cwd=here).out


def test_a_changed_prompt_makes_its_phase_stale(here):
    """An agent's file that changed is named; accepted, the phase of that agent runs again."""
    (here / "mine" / "agents" / "two.md").write_text("Write better.\n", encoding="utf-8")
    answer = haytham("resume", cwd=here)
    assert (answer.code, "the file of agent two" in answer.err) == (1, True)
    assert haytham("resume", "--accept-workflow", cwd=here).code == 3
    assert "Write better." in haytham("show", "2", "--task", cwd=here).out


def test_what_is_set_aside_twice_is_there_twice(here):
    """A phase that goes, comes back and goes again leaves both texts."""
    for phases in (CHANGES["removed"][0], PHASES, CHANGES["removed"][0]):
        workflow(here, AGENTS, phases=phases)
        assert haytham("resume", "--accept-workflow", "--yes", cwd=here).code == 0
    assert len(list(session_folder(here).glob("set_aside/*/phase_2_two/two.md"))) == 2


def test_a_workflow_that_cannot_be_read_any_more_can_be_left_alone(here):
    """A broken workflow folder is exit 6 with file and line; `--keep-workflow` goes on without it."""
    (here / "mine" / "workflow.yaml").write_text("name: mine\nphasen: []\n", encoding="utf-8")
    answer = haytham("resume", cwd=here)
    assert (answer.code, "workflow.yaml:2: phasen: unknown key; did you mean phases?" in answer.err) == (6, True)
    assert haytham("resume", "--keep-workflow", cwd=here).code == 3


def test_both_ways_at_once_are_a_mistake(here):
    """Who says both did not choose."""
    assert haytham("resume", "--accept-workflow", "--keep-workflow", cwd=here).code == 2


CODE = "from pathlib import Path\ndef write(task):\n    Path('ran').touch()\n    return 'written by code\\n'\n"


@pytest.fixture
def with_code(tmp_path):
    """A folder with a session whose workflow names a function, stopped before its first phase ran again."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "code_of_theirs.py").write_text(CODE, encoding="utf-8")
    workflow(folder, ["one", "two"], model="python:code_of_theirs:write")
    assert process("run", IDEA, "--workflow", "mine", cwd=folder).code == 3
    process("approve", cwd=folder)
    (folder / "ran").unlink()
    return folder


def test_naming_a_workflow_trusts_it(with_code):
    """`run --workflow FOLDER` puts the workflow on this user's list: resume runs its code."""
    assert process("resume", cwd=with_code).code == 3
    assert (with_code / "ran").exists()


def test_code_from_elsewhere_runs_only_with_trust(with_code, tmp_path):
    """A session folder from another machine: nothing runs, exit 1 says what would; `--trust` lets it."""
    here = tmp_path / "ours"
    here.mkdir()
    shutil.copytree(with_code / "projects", here / "projects")
    shutil.copy(with_code / "code_of_theirs.py", here)
    for words in (("resume",), ("resume", "--yes"), ("retry", "1")):
        answer = process(*words, cwd=here)
        assert (answer.code, "python:code_of_theirs:write" in answer.err) == (1, True), answer
    assert not (here / "ran").exists()
    assert process("resume", "--trust", cwd=here).code == 3
    assert (here / "ran").exists()


def test_a_model_written_into_the_manifest_does_not_run(tmp_path):
    """A manifest whose model was edited to name code runs nothing without `--trust`."""
    (tmp_path / "code_of_theirs.py").write_text(CODE, encoding="utf-8")
    process("run", IDEA, cwd=tmp_path)
    process("approve", cwd=tmp_path)
    manifest = session_folder(tmp_path) / "session_manifest.md"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace("\norigin:", "\nmodel: python:code_of_theirs:write\norigin:"), encoding="utf-8")
    answer = process("resume", cwd=tmp_path)
    assert (answer.code, "not trusted here" in answer.err) == (1, True), answer
    assert not (tmp_path / "ran").exists()


def test_a_workflow_copy_edited_by_hand_is_refused(with_code):
    """The copy a session runs on is what its manifest names; an edited one is exit 6, whoever trusted it before."""
    (copy,) = with_code.glob("projects/*/workflows/*/agents/two.md")
    copy.write_text(copy.read_text(encoding="utf-8") + "More.\n", encoding="utf-8")
    assert process("resume", cwd=with_code).code == 6
    assert not (with_code / "ran").exists()


def test_a_digest_that_the_files_do_not_have_is_not_trusted(here, monkeypatch, tmp_path):
    """A session that names a workflow which is trusted here, and holds another one, runs no code and writes nowhere."""
    from haytham import FileStore
    from haytham.app.trust import may_run_code, trust
    from haytham.config.workflow import WorkflowFiles, parse_workflow
    from haytham.session import SessionDocuments

    yaml = b"name: w\nphases:\n- {number: 1, name: One, slug: one, agents: [a]}\nmodes: {all: [1]}\n"
    files = {"workflow.yaml": yaml, "agents/a.md": b"---\nmodel: python:os:getcwd\n---\nWrite.\n"}
    session = SessionDocuments(FileStore(tmp_path / "projects"), "p", "s")
    session.create(user_id="u", source=WorkflowFiles("w", files), mode="all")
    trust(session)
    assert may_run_code(session)
    worse = yaml + b"checkpointing: {storage_path: /nowhere}\n"
    (path,) = (tmp_path / "projects").glob("p/workflows/*/workflow.yaml")
    path.write_bytes(worse)
    manifest = tmp_path / "projects/p/sessions/s/session_manifest.md"
    old, new = parse_workflow(yaml, file="w").digest, parse_workflow(worse, file="w").digest
    manifest.write_text(manifest.read_text("utf-8").replace(old, new), "utf-8")
    with pytest.raises(ValueError, match="does not hold what this session was started with"):
        may_run_code(session)
