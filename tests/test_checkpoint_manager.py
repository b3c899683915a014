"""The checkpoint manager, as its callers know it."""

from __future__ import annotations

import os
import re
import shutil
from datetime import UTC, datetime

import pytest

from haytham import clock
from haytham.checkpoint.checkpoint_manager import CheckpointManager
from haytham.markdown.parser import parse
from haytham.markdown.schema import load_schema
from haytham.project.project_manager import ProjectManager

IDS = ("project-123", "session-456")
FULL = [
    "phase_1_concept",
    "phase_2_market_research",
    "phase_3_niche_selection",
    "phase_4_product_strategy",
    "phase_5_business_planning",
    "phase_6_validation",
    "phase_7_synthesis",
]
MVP = [*FULL[:3], *FULL[5:]]
AGENT = {
    "agent_name": "concept_expansion",
    "status": "completed",
    "output_file": "concept_expansion.md",
    "tokens": 15000,
    "cost": 0.0375,
    "duration": 120.5,
}


@pytest.fixture
def manager(tmp_path):
    return CheckpointManager(base_dir=tmp_path / "projects")


@pytest.fixture
def session(manager):
    return manager.create_session(*IDS, user_id="user-789", execution_mode="mvp")


def complete(manager, phase, text="text", **changes):
    """A phase done, its output saved."""
    manager.save_agent_output(*IDS, phase, "agent", text)
    manager.save_checkpoint(*IDS, phase, "completed", [{"agent_name": "agent", "status": "completed"}], **changes)


def approve(manager, phase):
    """A phase approved."""
    manager.save_user_feedback(*IDS, phase, reviewed=True, approved=True)


def test_the_calls_people_know_work_one_after_the_other(tmp_path, monkeypatch):
    """From an empty folder: a session, a phase with output and review, a second phase, and all of it loaded again."""
    monkeypatch.chdir(tmp_path)
    checkpoints = CheckpointManager(base_dir="projects")
    ids = {"project_id": "project-123", "session_id": "session-456"}
    checkpoints.create_session(**ids, user_id="user-789", execution_mode="mvp")
    times = {"started": "2024-11-24T10:00:00Z", "completed": "2024-11-24T10:02:00Z", "duration": 120.5}
    checkpoints.save_checkpoint(
        **ids, phase_num=1, status="completed", agents=[AGENT], **times, execution_mode="single"
    )
    facts = {"status": "completed", "duration": 120.5, "input_tokens": 12000, "output_tokens": 3000}
    names = {"phase_num": 1, "agent_name": "concept_expansion", "output_content": "A concept."}
    checkpoints.save_agent_output(**ids, **names, **facts, model="a.b-v1:0", tools_used=["file_write"])
    review = {"reviewed": True, "approved": True, "comments": "Looks great!", "action": "approved"}
    checkpoints.save_user_feedback(**ids, phase_num=1, **review)
    for agent in ("market_intelligence", "competitor_analysis"):
        checkpoints.save_agent_output(**ids, phase_num=2, agent_name=agent, output_content=f"From {agent}.")
    state = checkpoints.load_session(**ids)
    assert (state["current_phase"], state["completed_phases"], state["status"]) == (1, [1], "in_progress")
    outputs = checkpoints.get_phase_outputs(**ids, phase_nums=[1, 2])
    assert outputs[1]["concept_expansion"] == "A concept."
    assert outputs[2]["market_intelligence"] == "From market_intelligence."
    assert checkpoints.validate_checkpoint(**ids, phase_num=1) == (True, [])
    project = ProjectManager(base_dir="projects").create_project(user_id="user-123", startup_idea="My startup idea")
    started = ProjectManager(base_dir="projects").start_session(project["project_id"])
    again = {"project_id": project["project_id"], "session_id": started["session_id"], "user_id": "user-123"}
    assert checkpoints.create_session(**again, execution_mode="mvp").is_dir()


# Sessions


def test_a_fresh_session_holds_its_manifest_and_folders_and_nothing_else(manager):
    """A new session is its manifest and the folders of its mode's phases."""
    for mode, folders in (("mvp", MVP), ("full", FULL)):
        path = manager.create_session("p", mode, "u", execution_mode=mode)
        assert sorted(os.listdir(path)) == sorted([*folders, "session_manifest.md"])
        assert all(os.listdir(path / folder) == [] for folder in folders)


def test_the_path_of_a_session_is_below_the_base_folder(manager, session):
    """create_session returns where the session lies."""
    assert session == manager.base_dir / "project-123" / "sessions" / "session-456"


def test_a_lost_workflow_copy_is_the_shipped_one_only_where_that_is_the_same(manager, session):
    """Without its copy a session goes on with the shipped workflow, unless that is another one."""
    folder = next((session.parent.parent / "workflows").iterdir())
    shutil.rmtree(folder)
    assert list(manager.load_session(*IDS)["phase_statuses"]) == [1, 2, 3, 6, 7]
    path = session / "session_manifest.md"
    other = re.sub(r"^workflow: .*$", "workflow: sha256:" + "0" * 64, path.read_text("utf-8"), flags=re.MULTILINE)
    path.write_text(other, "utf-8")
    with pytest.raises(FileNotFoundError, match="the session's copy of its workflow"):
        manager.load_session(*IDS)


def test_a_session_is_created_once(manager, session):
    """The same call again changes no byte; saved phases stay."""
    complete(manager, 1)
    before = {path: path.read_bytes() for path in session.rglob("*.md")}
    assert manager.create_session(*IDS, user_id="user-789", execution_mode="mvp") == session
    assert {path: path.read_bytes() for path in session.rglob("*.md")} == before


@pytest.mark.parametrize("change", [{"user_id": "other"}, {"execution_mode": "full"}])
def test_another_session_under_the_same_id_is_refused(manager, session, change):
    """The same ids with another user or mode are a ValueError that names both."""
    with pytest.raises(ValueError, match="is there already with another"):
        manager.create_session(*IDS, **{"user_id": "user-789", "execution_mode": "mvp", **change})


def test_a_lost_phase_folder_is_told_and_made_again(manager, session):
    """A phase whose folder is gone is a FileNotFoundError that says what to do, and doing it helps."""
    (session / MVP[1]).rmdir()
    with pytest.raises(FileNotFoundError, match="create_session"):
        manager.save_checkpoint(*IDS, 2, "completed", [])
    manager.create_session(*IDS, user_id="user-789", execution_mode="mvp")
    manager.save_checkpoint(*IDS, 2, "completed", [])


def test_a_session_on_an_older_workflow_goes_on_with_its_own_copy(manager, session, monkeypatch):
    """Its phases are those it was started with, whatever is shipped today; line ends and comments are no change."""
    copy = next((session.parent.parent / "workflows").glob("*/workflow.yaml"))
    monkeypatch.setattr("haytham.session.view.shipped_workflow", lambda _: pytest.fail("asked for the shipped one"))
    assert list(manager.load_session(*IDS)["phase_statuses"]) == [1, 2, 3, 6, 7]
    before = copy.read_bytes()
    copy.write_bytes(b"\xef\xbb\xbf" + before.replace(b"\n", b"\r\n") + b"# a comment\r\n")
    assert list(manager.load_session(*IDS)["phase_statuses"]) == [1, 2, 3, 6, 7]
    copy.write_bytes(before.replace(b"name: Validation", b"name: Something else"))
    with pytest.raises(ValueError, match="does not say what it said when this session was started; undo"):
        manager.load_session(*IDS)


# Checkpoints, outputs, feedback


def test_a_saved_phase_is_in_every_place_that_shows_it(manager, session):
    """A checkpoint shows its agents, sums and next phase; the manifest shows the phase, the current one and totals."""
    times = {"started": "2024-11-24T10:00:00Z", "completed": "2024-11-24T10:02:00Z"}
    manager.save_checkpoint(*IDS, 1, "completed", [AGENT], **times, duration=120.5)
    checkpoint = (session / MVP[0] / "checkpoint.md").read_text(encoding="utf-8")
    manifest = (session / "session_manifest.md").read_text(encoding="utf-8")
    assert "- concept_expansion: completed\n" in checkpoint
    assert "- Total Tokens: 15000\n" in checkpoint
    assert "- Cost: $0.0375\n" in checkpoint
    assert "## Next Phase\n- Phase: 2\n- Name: Market Research\n" in checkpoint
    assert "| 1 | Concept Expansion | completed | 2024-11-24T10:00:00Z | 2024-11-24T10:02:00Z | 120s |" in manifest
    assert "## Current Phase\n- Phase: 1\n- Name: Concept Expansion\n- Status: completed\n" in manifest
    assert "- Total Duration: 120.5s\n- Total Tokens: 15000\n- Total Cost: $0.0375\n" in manifest


@pytest.mark.parametrize(("mode", "following"), [("mvp", 6), ("full", 4)])
def test_the_next_phase_follows_the_mode(manager, mode, following):
    """After phase 3 comes 6 in mode mvp and 4 in mode full; after 7 nothing."""
    path = manager.create_session("p", mode, "u", execution_mode=mode)
    manager.save_checkpoint("p", mode, 3, "completed", [])
    manager.save_checkpoint("p", mode, 7, "completed", [])
    third = (path / "phase_3_niche_selection" / "checkpoint.md").read_text(encoding="utf-8")
    assert f"## Next Phase\n- Phase: {following}\n" in third
    assert "## Inputs\n- Phase 1: Concept Expansion\n- Phase 2: Market Research\n" in third
    assert "## Next Phase\n- Phase: -\n- Name: -\n" in (path / "phase_7_synthesis" / "checkpoint.md").read_text("utf-8")


def test_sums_are_exact_and_unknown_stays_unknown(manager, session):
    """Costs add up as people add them; what nobody knows is `-`, not 0."""
    costs = {"a": 0.1, "b": 0.2, "c": None}
    agents = [{"agent_name": name, "status": "completed", "cost": cost} for name, cost in costs.items()]
    manager.save_checkpoint(*IDS, 1, "completed", agents)
    text = (session / MVP[0] / "checkpoint.md").read_text(encoding="utf-8")
    assert "- Total Tokens: -\n- Input Tokens: -\n- Output Tokens: -\n- Cost: $0.3\n" in text


def test_what_an_agent_file_knows_completes_the_ledger(manager, session):
    """Tokens that only the agent's file knows are in the checkpoint, whichever is saved first."""
    agents = [{"agent_name": "a", "status": "completed"}, {"agent_name": "b", "status": "completed"}]
    manager.save_agent_output(*IDS, 1, "a", "text", input_tokens=10, output_tokens=5, duration=2)
    manager.save_checkpoint(*IDS, 1, "completed", agents)
    manager.save_agent_output(*IDS, 1, "b", "text", input_tokens=20, output_tokens=5)
    text = (session / MVP[0] / "checkpoint.md").read_text(encoding="utf-8")
    assert "| a | completed | a.md | 15 | 10 | 5 | - | 2s |" in text
    assert "- Total Tokens: 40\n- Input Tokens: 30\n- Output Tokens: 10\n" in text
    assert manager.validate_checkpoint(*IDS, 1) == (True, [])


@pytest.mark.parametrize("status", ["pending", "in_progress", "completed", "failed", "skipped", "requires_retry"])
@pytest.mark.parametrize("mode", ["single", "parallel", "sequential_interactive"])
def test_every_status_and_mode_can_be_saved(manager, session, status, mode):
    """Each status of a phase and each way of running it is saved and loaded."""
    manager.save_checkpoint(*IDS, 1, status, [], execution_mode=mode, errors=["boom\n## Metrics"], retry_count=3)
    assert manager.load_session(*IDS)["phase_statuses"][1] == status
    assert manager.validate_checkpoint(*IDS, 1) == (True, [])


def test_a_failed_agent_keeps_its_error(manager, session):
    """An error's type, message and trace stand in front of the output, whatever they hold."""
    error = {"error_type": "TimeoutError", "error_message": "no answer\n## Output", "stack_trace": "```\n## Output\n"}
    manager.save_agent_output(*IDS, 1, "a", "partial", status="failed", **error)
    text = (session / MVP[0] / "a.md").read_text(encoding="utf-8")
    assert text.index("## Error Details\n- Error Type: TimeoutError\n") < text.index("\n## Output\n")
    assert manager.get_phase_outputs(*IDS, [1]) == {1: {"a": "partial"}}


def test_content_comes_back_byte_for_byte(manager, session):
    """What an agent wrote is what is loaded, be it 5 MB, empty, or an attack on the format."""
    for text in ("", " ", "\n", "a\r\nb", "---\n## Output\n\x00\u2028{{ x }}", "x" * 5_000_000):
        manager.save_agent_output(*IDS, 1, "a", text)
        assert manager.get_phase_outputs(*IDS, [1]) == {1: {"a": text}}


def test_a_lone_surrogate_is_refused_and_nothing_is_written(manager, session):
    """Text that is not valid Unicode is a ValueError, and every file stays as it was."""
    complete(manager, 1)
    before = {path: path.read_bytes() for path in session.rglob("*.md")}
    with pytest.raises(ValueError, match="lone surrogate"):
        manager.save_agent_output(*IDS, 1, "agent", "a\ud800")
    with pytest.raises(ValueError, match="lone surrogate"):
        manager.save_user_feedback(*IDS, 1, reviewed=True, approved=True, comments="\udfff")
    assert {path: path.read_bytes() for path in session.rglob("*.md")} == before


@pytest.mark.parametrize(
    ("given", "action"),
    [
        ({"approved": True}, "approved"),
        ({"approved": False}, "pending"),
        ({"approved": False, "requested_changes": ["a"]}, "retry_with_changes"),
        ({"approved": False, "action": "rejected"}, "rejected"),
        ({"approved": False, "action": "skip_phase"}, "skip_phase"),
    ],
)
def test_the_action_follows_from_the_review(manager, session, given, action):
    """No action means approved if approved, retry_with_changes if changes are given, else pending."""
    manager.save_user_feedback(*IDS, 1, reviewed=True, **given)
    text = (session / MVP[0] / "user_feedback.md").read_text(encoding="utf-8")
    assert f"- Action: {action}\n" in text


def test_a_review_that_says_two_things_is_refused(manager, session):
    """Approved and an action that is not approval together are a ValueError that names both."""
    with pytest.raises(ValueError, match="Approved: true and Action: rejected"):
        manager.save_user_feedback(*IDS, 1, reviewed=True, approved=True, action="rejected")
    with pytest.raises(ValueError, match="Approved: false and Action: approved"):
        manager.save_user_feedback(*IDS, 1, reviewed=True, approved=False, action="approved")
    assert not (session / MVP[0] / "user_feedback.md").exists()


# What is computed


def test_load_session_tells_where_a_session_stands(manager):
    """load_session gives what the manifest is the home of, and what follows from the checkpoints."""
    moments = iter(range(60))
    with clock.override(lambda: datetime(2024, 11, 24, 10, 0, next(moments), tzinfo=UTC)):
        manager.create_session(*IDS, user_id="user-789")
        assert manager.load_session(*IDS) == {
            "session_id": "session-456",
            "project_id": "project-123",
            "user_id": "user-789",
            "workflow_type": "idea_validation",
            "execution_mode": "mvp",
            "created": "2024-11-24T10:00:00Z",
            "last_updated": "2024-11-24T10:00:00Z",
            "status": "in_progress",
            "current_phase": 0,
            "completed_phases": [],
            "phase_statuses": {1: "pending", 2: "pending", 3: "pending", 6: "pending", 7: "pending"},
        }
        complete(manager, 1)
        manager.save_checkpoint(*IDS, 2, "in_progress", [])
    state = manager.load_session(*IDS)
    assert (state["current_phase"], state["completed_phases"], state["status"]) == (2, [1], "in_progress")
    assert state["last_updated"] > state["created"]


def test_the_current_phase_is_the_one_saved_last(manager, session):
    """Saving an earlier phase again makes it the current one."""
    for phase in (1, 2, 3, 1):
        manager.save_checkpoint(*IDS, phase, "in_progress", [])
    assert manager.load_session(*IDS)["current_phase"] == 1


@pytest.mark.parametrize(
    ("act", "status"),
    [
        (lambda m: None, "in_progress"),
        (lambda m: [complete(m, phase) for phase in (1, 2, 3, 6, 7)], "completed"),
        (lambda m: [m.save_checkpoint(*IDS, n, "skipped", []) for n in (1, 2, 3, 6, 7)], "completed"),
        (lambda m: m.save_checkpoint(*IDS, 1, "failed", []), "failed"),
        (lambda m: (m.save_checkpoint(*IDS, 1, "failed", []), complete(m, 2)), "in_progress"),
        (lambda m: m.save_user_feedback(*IDS, 1, reviewed=False, approved=False), "in_progress"),
        (lambda m: (complete(m, 1), m.save_user_feedback(*IDS, 1, reviewed=False, approved=False)), "waiting"),
        (lambda m: m.save_user_feedback(*IDS, 1, reviewed=True, approved=False, action="rejected"), "rejected"),
        (
            lambda m: (
                [complete(m, phase) for phase in (1, 2, 3, 6, 7)],
                m.save_user_feedback(*IDS, 7, reviewed=True, approved=False, comments="not yet"),
            ),
            "in_progress",
        ),
        (
            lambda m: (
                [complete(m, phase) for phase in (1, 2, 3, 6, 7)],
                approve(m, 1),
                m.save_agent_output(*IDS, 1, "agent", "other"),
            ),
            "waiting",
        ),
    ],
)
def test_the_status_of_a_session_is_computed(manager, session, act, status):
    """The status follows from checkpoints and reviews, and the manifest shows it."""
    act(manager)
    assert manager.load_session(*IDS)["status"] == status
    shown = parse(load_schema("session_manifest"), (session / "session_manifest.md").read_bytes()).derived
    assert (shown["status"], shown["can_resume"]) == (status, status not in ("completed", "rejected"))


def test_outputs_are_those_of_completed_phases_or_of_those_asked_for(manager, session):
    """Without numbers the completed phases are meant; a phase with no output is left out."""
    complete(manager, 1, "one")
    manager.save_agent_output(*IDS, 2, "market_intelligence", "two")
    manager.save_agent_output(*IDS, 2, "competitor_analysis", "three")
    manager.save_checkpoint(*IDS, 3, "completed", [])
    assert manager.get_phase_outputs(*IDS) == {1: {"agent": "one"}}
    assert manager.get_phase_outputs(*IDS, phase_nums=[2, 3]) == {
        2: {"competitor_analysis": "three", "market_intelligence": "two"}
    }


def test_approval_binds_to_content(manager, session):
    """A phase is approved while its outputs are what was approved; an edit, a new or a lost output ends that."""
    complete(manager, 1)
    complete(manager, 2)
    approve(manager, 1)
    approve(manager, 2)
    assert manager.get_approved_phases(*IDS) == [1, 2]
    path = session / MVP[0] / "agent.md"
    before = path.read_bytes()
    for change in (lambda: path.write_bytes(before + b"more"), path.unlink):
        change()
        assert manager.get_approved_phases(*IDS) == [2]
    path.write_bytes(before)
    assert manager.get_approved_phases(*IDS) == [1, 2]
    manager.save_agent_output(*IDS, 1, "another", "x")
    assert manager.get_approved_phases(*IDS) == [2]


def test_a_formatter_or_line_ends_end_no_approval(manager, session):
    """An approval outlives a BOM and CRLF line ends, which change no text."""
    complete(manager, 1, "one\ntwo")
    approve(manager, 1)
    for path in session.rglob("*.md"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert manager.get_approved_phases(*IDS) == [1]
    assert manager.get_phase_outputs(*IDS) == {1: {"agent": "one\ntwo"}}


# Files that people or accidents changed


def test_a_checkpoint_validates_or_tells_every_problem(manager, session):
    """validate_checkpoint is true for what was saved, and names file, line, section and label of what is wrong."""
    complete(manager, 1)
    assert manager.validate_checkpoint(*IDS, 1) == (True, [])
    path = session / MVP[0] / "checkpoint.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("- Status: completed", "- Status: banana").replace("- Retry Count: 0\n", ""), "utf-8")
    valid, errors = manager.validate_checkpoint(*IDS, 1)
    assert not valid
    assert [error.partition("checkpoint.md:")[2].partition(": found")[0] for error in errors] == [
        "10: Metadata / Retry Count: the label is missing",
        "13: Metadata / Status",
    ]


def test_a_phase_without_a_checkpoint_is_not_valid(manager, session):
    """A phase that was never saved has nothing that validates."""
    valid, errors = manager.validate_checkpoint(*IDS, 2)
    assert not valid
    assert "phase_2_market_research/checkpoint.md" in errors[0]


def test_a_derived_copy_that_disagrees_is_reported_and_leaves_the_checkpoint_valid(manager, session, caplog):
    """A person's change to a derived copy is reported at the next save, with what is so; the checkpoint is valid."""
    complete(manager, 1)
    path = session / MVP[0] / "checkpoint.md"
    path.write_text(path.read_text(encoding="utf-8").replace("- Name: Market Research", "- Name: Lunch"), "utf-8")
    assert manager.validate_checkpoint(*IDS, 1) == (True, [])
    complete(manager, 1)
    assert "Next Phase / Name: shows 'Lunch', and is 'Market Research'" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("| 1 | Concept Expansion | completed |", "| 1 | Concept Expansion | failed |"),
        lambda text: text.replace("- Status: in_progress", "- Status: completed"),
        lambda text: text[: text.index("## Phase Status")],
        lambda text: text.replace("| 2 |", "| 2"),
        lambda text: text.replace("\n", "\r\n"),
    ],
)
def test_shown_parts_of_the_manifest_are_never_believed(manager, session, change):
    """Whatever the manifest shows, load_session tells the truth, from the checkpoints; the next save shows it again."""
    complete(manager, 1)
    path = session / "session_manifest.md"
    before = manager.load_session(*IDS)
    path.write_bytes(change(path.read_bytes().decode()).encode())
    assert manager.load_session(*IDS) == before
    complete(manager, 2)
    assert "| 1 | Concept Expansion | completed |" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("change", [None, lambda text: text[:200], lambda text: text.replace("- User ID:", "- User:")])
def test_a_lost_or_unreadable_manifest_is_loud(manager, session, change):
    """Without a readable manifest, reading and saving raise and name the file, and no file is changed."""
    complete(manager, 1)
    path = session / "session_manifest.md"
    text = path.read_text(encoding="utf-8")
    path.unlink() if change is None else path.write_text(change(text), "utf-8")
    before = {path: path.read_bytes() for path in session.rglob("*.md")}
    for call in (lambda: manager.load_session(*IDS), lambda: manager.save_checkpoint(*IDS, 2, "completed", [])):
        with pytest.raises(FileNotFoundError if change is None else ValueError, match=r"session_manifest\.md"):
            call()
    assert {path: path.read_bytes() for path in session.rglob("*.md")} == before


def test_an_unreadable_file_is_loud_and_never_written_over(manager, session):
    """A document that does not parse is an error that names it, and a save does not replace it."""
    complete(manager, 1)
    approve(manager, 1)
    saves = {
        "checkpoint.md": lambda: manager.save_checkpoint(*IDS, 1, "failed", []),
        "agent.md": lambda: manager.save_agent_output(*IDS, 1, "agent", "new"),
        "user_feedback.md": lambda: approve(manager, 1),
    }
    for name, save in saves.items():
        path = session / MVP[0] / name
        before = path.read_bytes()
        path.write_bytes(broken := before.replace(b"## Metadata", b"## Meta").replace(b"## Review", b"## Re"))
        with pytest.raises(ValueError, match=name):
            save()
        assert path.read_bytes() == broken
        path.write_bytes(before)


def test_one_unreadable_phase_does_not_stop_another_from_being_saved(manager, session, caplog):
    """A save in phase 2 goes through while phase 1 cannot be read; that the manifest could not be drawn is logged."""
    complete(manager, 1)
    (session / MVP[0] / "checkpoint.md").write_bytes(b"garbage")
    manager.save_agent_output(*IDS, 2, "agent", "kept")
    manager.save_checkpoint(*IDS, 2, "completed", [])
    assert manager.get_phase_outputs(*IDS, [2]) == {2: {"agent": "kept"}}
    assert "session_manifest.md could not be rendered" in caplog.text
    with pytest.raises(ValueError, match=r"phase_1_concept/checkpoint\.md"):
        manager.load_session(*IDS)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("session_manifest.md", "session-456", "session-4"),
        ("phase_1_concept/checkpoint.md", "- Phase Number: 1", "- Phase Number: 2"),
        ("phase_1_concept/agent.md", "- Agent: agent", "- Agent: other"),
    ],
)
def test_a_document_that_says_it_belongs_elsewhere_is_refused(manager, session, name, old, new):
    """A file that was copied from another place is named, with what it says and what its place says."""
    complete(manager, 1)
    path = session / name
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), "utf-8")
    with pytest.raises(ValueError, match="by the place of the file"):
        manager.get_phase_outputs(*IDS)


def test_a_decision_made_in_an_editor_counts(manager, session):
    """Feedback that a person changes in an editor is what counts."""
    complete(manager, 1)
    manager.save_user_feedback(*IDS, 1, reviewed=False, approved=False)
    path = session / MVP[0] / "user_feedback.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("- Approved: false", "- Approved: true"), "utf-8")
    assert manager.get_approved_phases(*IDS) == [1]
    path.write_text(text.replace("- Approved: false", "- Approved: true").replace("pending", "rejected"), "utf-8")
    with pytest.raises(ValueError, match=r"md:\d+: Review Status / Approved: .*\n.*md:\d+: Action Taken / Action"):
        manager.get_approved_phases(*IDS)


# Bad arguments

BAD_PHASES = [0, 8, 4, "1", 1.0, True, None]
BAD_IDS = ["", ".", "..", ".a", "a/b", "a\\b", "../x", "a\nb", "a\x00b", "a\u2028b", "x" * 101, "é" * 99 + "日" * 50]
BAD_IDS += [None, 1, "\U0001f600" * 90, " a", "\ud800"]


@pytest.mark.parametrize("phase", BAD_PHASES)
def test_a_bad_phase_is_refused_by_every_call(manager, session, phase):
    """What is not a phase of the session's mode is a ValueError that names it and the phases there are."""
    calls = [
        lambda: manager.save_checkpoint(*IDS, phase, "completed", []),
        lambda: manager.save_agent_output(*IDS, phase, "a", ""),
        lambda: manager.save_user_feedback(*IDS, phase, reviewed=True, approved=True),
        lambda: manager.validate_checkpoint(*IDS, phase),
        lambda: manager.get_phase_outputs(*IDS, [phase]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="allowed: 1, 2, 3, 6, 7"):
            call()


@pytest.mark.parametrize("value", BAD_IDS)
def test_a_bad_id_is_refused(manager, session, value):
    """An id that could not be the name of a folder is a ValueError with the rule, and nothing is made."""
    for ids in ((value, "s", "u"), ("p", value, "u"), ("p", "s", value)):
        with pytest.raises(ValueError, match=r"id: found .*; allowed: 1 to 100 characters"):
            manager.create_session(*ids)
    with pytest.raises(ValueError, match="allowed: 1 to 100 characters"):
        manager.load_session(value, "s")
    assert sorted(name for name in os.listdir(manager.base_dir) if not name.startswith(".")) == ["project-123"]


@pytest.mark.parametrize("value", [*BAD_IDS, "checkpoint", "user_feedback", "Checkpoint"])
def test_a_bad_agent_name_is_refused(manager, session, value):
    """An agent name that could not be a file of its own is a ValueError."""
    with pytest.raises(ValueError, match="agent name"):
        manager.save_agent_output(*IDS, 1, value, "")
    with pytest.raises(ValueError, match="agent name"):
        manager.save_checkpoint(*IDS, 1, "completed", [{"agent_name": value, "status": "completed"}])


@pytest.mark.parametrize("name", ["a", "not in the workflow", "a|b: *c*", "日本", "x" * 100, "a.b", "CON"])
def test_any_other_agent_name_is_welcome(manager, session, name):
    """An agent needs no place in the workflow to be saved and loaded."""
    manager.save_agent_output(*IDS, 1, name, "text")
    manager.save_checkpoint(*IDS, 1, "completed", [{"agent_name": name, "status": "completed"}])
    assert manager.get_phase_outputs(*IDS) == {1: {name: "text"}}
    assert manager.validate_checkpoint(*IDS, 1) == (True, [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "done"}, "'done'; allowed: pending, in_progress"),
        ({"status": None}, "None; allowed: pending, in_progress"),
        ({"execution_mode": "serial"}, "'serial'; allowed: single, parallel, sequential_interactive"),
        ({"duration": -1}, "-1; allowed: 0 or more"),
        ({"duration": float("nan")}, "nan; allowed: a finite number"),
        ({"duration": float("inf")}, "inf; allowed: a finite number"),
        ({"duration": "1"}, "'1'; allowed: a number"),
        ({"retry_count": -1}, "-1; allowed: 0 or more"),
        ({"retry_count": 1.5}, "1.5; allowed: a whole number"),
        ({"started": "a\nb"}, "'a\\nb'; allowed: a time in ISO 8601"),
        ({"started": "soon"}, "'soon'; allowed: a time in ISO 8601"),
        ({"errors": "boom"}, "'boom'; allowed: a list of strings"),
        ({"errors": ""}, "''; allowed: a list of strings"),
        ({"started": "2024-99-99T99:99:99Z"}, "allowed: a time in ISO 8601"),
        ({"agents": "a"}, "'a'; allowed: a list of dicts"),
        ({"agents": [{"agent_name": "a"}]}, "a dict with agent_name, status"),
        ({"agents": [{"agent_name": "a", "status": "x"}]}, "'x'; allowed: pending"),
        ({"agents": [{"agent_name": "a", "status": "failed", "tokens": -5}]}, "-5; allowed: 0 or more"),
        ({"agents": [{"agent_name": "a", "status": "failed", "cost": float("inf")}]}, "inf; allowed: a finite number"),
        ({"agents": [{"agent_name": "a", "status": "failed", "more": 1}]}, "a dict with agent_name, status"),
        ({"agents": [{"agent_name": "a", "status": "failed"}] * 2}, "each agent once"),
    ],
)
def test_a_bad_checkpoint_is_refused(manager, session, change, said):
    """A bad argument is a ValueError with the value and what is allowed, and nothing is written."""
    with pytest.raises(ValueError, match="allowed") as refused:
        manager.save_checkpoint(*IDS, 1, **{"status": "completed", "agents": [], **change})
    assert said in str(refused.value)
    assert os.listdir(session / MVP[0]) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "ok"}, "'ok'; allowed: pending"),
        ({"model": "a\nb"}, "'a\\nb'; allowed: one line of text"),
        ({"tools_used": ["a\nb"]}, "'a\\nb'; allowed: one line of text"),
        ({"tools_used": "file_write"}, "'file_write'; allowed: a list of strings"),
        ({"input_tokens": -1}, "-1; allowed: 0 or more"),
        ({"output_tokens": True}, "True; allowed: a whole number"),
        ({"output_content": None}, "None; allowed: text"),
        ({"output_content": b"x"}, "b'x'; allowed: text"),
        ({"error_message": 3}, "3; allowed: text"),
    ],
)
def test_a_bad_output_is_refused(manager, session, change, said):
    """A bad argument of an output is a ValueError with the value and what is allowed, and nothing is written."""
    with pytest.raises(ValueError, match="allowed") as refused:
        manager.save_agent_output(*IDS, 1, "a", **{"output_content": "", **change})
    assert said in str(refused.value)
    assert os.listdir(session / MVP[0]) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"requested_changes": "shorter"}, "'shorter'; allowed: a list of strings"),
        ({"requested_changes": ""}, "''; allowed: a list of strings"),
        ({"requested_changes": False}, "False; allowed: a list of strings"),
        ({"action": "maybe"}, "'maybe'; allowed: pending, approved"),
        ({"reviewed": "yes"}, "'yes'; allowed: true, false"),
        ({"approved": 1}, "1; allowed: true, false"),
        ({"comments": None}, "None; allowed: text"),
        ({"retry_count": -1}, "-1; allowed: 0 or more"),
    ],
)
def test_bad_feedback_is_refused(manager, session, change, said):
    """A bad argument of a review is a ValueError with the value and what is allowed, and nothing is written."""
    with pytest.raises(ValueError, match="allowed") as refused:
        manager.save_user_feedback(*IDS, 1, **{"reviewed": True, "approved": True, **change})
    assert said in str(refused.value)
    assert os.listdir(session / MVP[0]) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"execution_mode": "fast"}, "'fast'; allowed: mvp, full"),
        ({"execution_mode": None}, "None; allowed: mvp, full"),
        ({"workflow_type": "cooking"}, "'cooking'; allowed: idea_validation"),
        ({"workflow_type": "../x"}, "allowed: idea_validation"),
    ],
)
def test_a_bad_session_is_refused(manager, change, said):
    """An unknown mode or workflow is a ValueError with those there are."""
    with pytest.raises(ValueError, match="allowed") as refused:
        manager.create_session(*IDS, user_id="u", **change)
    assert said in str(refused.value)


def test_phases_are_asked_for_in_a_list(manager, session):
    """A single number instead of a list is a ValueError."""
    with pytest.raises(ValueError, match="phases: found 1; allowed: a list of numbers"):
        manager.get_phase_outputs(*IDS, 1)


def test_the_order_of_saving_outlives_a_checkpoint_that_cannot_be_read(manager, session):
    """The phase saved last is the current one also where another checkpoint was unreadable meanwhile."""
    for phase in (1, 2, 3):
        manager.save_checkpoint(*IDS, phase, "completed", [])
    path = session / MVP[2] / "checkpoint.md"
    sound = path.read_bytes()
    path.write_bytes(sound.replace(b"- Status: completed", b"- Status: banana"))
    manager.save_checkpoint(*IDS, 1, "completed", [])
    path.write_bytes(sound)
    assert manager.load_session(*IDS)["current_phase"] == 1


def test_what_is_not_there_is_file_not_found(manager, session):
    """An unknown project or session is a FileNotFoundError that names it."""
    for ids in (("project-123", "other"), ("other", "session-456")):
        for call in (
            lambda ids=ids: manager.load_session(*ids),
            lambda ids=ids: manager.save_checkpoint(*ids, 1, "completed", []),
            lambda ids=ids: manager.get_phase_outputs(*ids),
            lambda ids=ids: manager.validate_checkpoint(*ids, 1),
        ):
            with pytest.raises(FileNotFoundError, match="other"):
                call()
