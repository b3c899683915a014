"""The two managers from outside: their calls, and the files they leave, down to headings, labels and order.

These are promises to callers and readers. Nothing of the inside is imported here; files are read as plain text.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import haytham
from haytham import CheckpointManager, ProjectManager

ROOT = Path(__file__).parent.parent
IDS = {"project_id": "gardens", "session_id": "spring"}
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
PHASES = {
    1: ("Concept Expansion", "phase_1_concept"),
    2: ("Market Research", "phase_2_market_research"),
    3: ("Niche Selection", "phase_3_niche_selection"),
    4: ("Product Strategy", "phase_4_product_strategy"),
    5: ("Business Planning", "phase_5_business_planning"),
    6: ("Validation", "phase_6_validation"),
    7: ("Final Synthesis", "phase_7_synthesis"),
}
MODES = {"mvp": [1, 2, 3, 6, 7], "full": [1, 2, 3, 4, 5, 6, 7]}
AGENT = {
    "agent_name": "concept_expansion",
    "status": "completed",
    "output_file": "concept_expansion.md",
    "tokens": 900,
    "cost": 0.045,
    "duration": 120.5,
}


@pytest.fixture
def manager(tmp_path):
    return CheckpointManager(base_dir=tmp_path / "projects")


@pytest.fixture
def session(manager):
    """The folder of a session whose first phase is done, written and approved, and whose second one has begun."""
    folder = manager.create_session(**IDS, user_id="ann", execution_mode="mvp")
    times = {"started": "2025-03-01T08:00:00Z", "completed": "2025-03-01T08:02:00Z", "duration": 120.5}
    manager.save_checkpoint(**IDS, phase_num=1, status="completed", agents=[AGENT], **times, execution_mode="single")
    manager.save_agent_output(
        **IDS,
        phase_num=1,
        agent_name="concept_expansion",
        output_content="Gardens without mains water lose crops.",
        status="completed",
        duration=120.5,
        model="provider.model-v1:0",
        input_tokens=700,
        output_tokens=200,
        tools_used=["file_write", "web_search"],
    )
    manager.save_user_feedback(
        **IDS, phase_num=1, reviewed=True, approved=True, comments="Name one city.", action="approved"
    )
    manager.save_checkpoint(
        **IDS, phase_num=2, status="in_progress", agents=[], started="2025-03-01T09:00:00Z", execution_mode="parallel"
    )
    return folder


def body(path):
    """The lines of a document below its front matter."""
    text = path.read_text(encoding="utf-8")
    return text.split("\n---\n", 1)[1].strip("\n").split("\n")


def headings(path):
    return [line for line in body(path) if line.startswith("#")]


def section(path, title):
    """The lines of a section that hold something."""
    lines = body(path)
    start = lines.index(f"## {title}") + 1
    end = next((at for at in range(start, len(lines)) if lines[at].startswith("## ")), len(lines))
    return [line for line in lines[start:end] if line]


def labels(path, title):
    return [line.removeprefix("- ").partition(":")[0] for line in section(path, title)]


def in_order(wanted, found):
    """Whether some lines are among others, in the same order."""
    rest = iter(found)
    return all(line in rest for line in wanted)


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


# Where they are, and how they are called.


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("haytham.checkpoint.checkpoint_manager", "CheckpointManager"),
        ("haytham.project.project_manager", "ProjectManager"),
    ],
)
def test_a_manager_is_found_in_its_module_and_in_the_package(module, name):
    """Each manager can be imported from its own module and from the package, and is the same class."""
    assert getattr(importlib.import_module(module), name) is getattr(haytham, name)


REQUIRED = inspect.Parameter.empty
SIGNATURES = [
    (CheckpointManager, "__init__", {"base_dir": "projects"}),
    (
        CheckpointManager,
        "create_session",
        {
            "project_id": REQUIRED,
            "session_id": REQUIRED,
            "user_id": REQUIRED,
            "workflow_type": "idea_validation",
            "execution_mode": "mvp",
        },
    ),
    (
        CheckpointManager,
        "save_checkpoint",
        {
            "project_id": REQUIRED,
            "session_id": REQUIRED,
            "phase_num": REQUIRED,
            "status": REQUIRED,
            "agents": REQUIRED,
            "started": None,
            "completed": None,
            "duration": None,
            "retry_count": 0,
            "execution_mode": "single",
            "errors": None,
        },
    ),
    (
        CheckpointManager,
        "save_agent_output",
        {
            "project_id": REQUIRED,
            "session_id": REQUIRED,
            "phase_num": REQUIRED,
            "agent_name": REQUIRED,
            "output_content": REQUIRED,
            "status": "completed",
            "duration": None,
            "model": None,
            "input_tokens": None,
            "output_tokens": None,
            "tools_used": None,
            "error_type": None,
            "error_message": None,
            "stack_trace": None,
        },
    ),
    (
        CheckpointManager,
        "save_user_feedback",
        {
            "project_id": REQUIRED,
            "session_id": REQUIRED,
            "phase_num": REQUIRED,
            "reviewed": REQUIRED,
            "approved": REQUIRED,
            "comments": "",
            "requested_changes": None,
            "action": None,
            "retry_count": 0,
        },
    ),
    (CheckpointManager, "load_session", {"project_id": REQUIRED, "session_id": REQUIRED}),
    (
        CheckpointManager,
        "get_phase_outputs",
        {"project_id": REQUIRED, "session_id": REQUIRED, "phase_nums": None},
    ),
    (CheckpointManager, "get_approved_phases", {"project_id": REQUIRED, "session_id": REQUIRED}),
    (
        CheckpointManager,
        "validate_checkpoint",
        {"project_id": REQUIRED, "session_id": REQUIRED, "phase_num": REQUIRED},
    ),
    (ProjectManager, "__init__", {"base_dir": "projects"}),
    (
        ProjectManager,
        "create_project",
        {"user_id": REQUIRED, "startup_idea": REQUIRED, "project_name": None, "execution_mode": "mvp"},
    ),
    (ProjectManager, "start_session", {"project_id": REQUIRED, "workflow_type": "idea_validation"}),
    (
        ProjectManager,
        "complete_session",
        {"project_id": REQUIRED, "session_id": REQUIRED, "requirements_content": REQUIRED, "metrics": None},
    ),
    (ProjectManager, "list_user_projects", {"user_id": REQUIRED, "status": None}),
    (ProjectManager, "get_project_status", {"project_id": REQUIRED}),
    (ProjectManager, "get_user_preferences", {"project_id": REQUIRED}),
    (ProjectManager, "update_user_preferences", {"project_id": REQUIRED, "preferences": REQUIRED}),
    (ProjectManager, "archive_project", {"project_id": REQUIRED}),
    (ProjectManager, "delete_project", {"project_id": REQUIRED}),
]


@pytest.mark.parametrize(("owner", "name", "wanted"), SIGNATURES, ids=lambda value: str(getattr(value, "__name__", "")))
def test_a_call_takes_its_arguments_in_order_and_by_name(owner, name, wanted):
    """Names, order and defaults of arguments stay; new ones may follow, and have defaults."""
    _, *found = inspect.signature(getattr(owner, name)).parameters.values()
    assert {one.name: one.default for one in found[: len(wanted)]} == wanted
    assert [one.name for one in found[: len(wanted)]] == list(wanted)
    assert all(one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for one in found[: len(wanted)])
    assert all(one.default is not REQUIRED for one in found[len(wanted) :])


# The tree of files.


def test_a_session_lies_in_its_project_below_the_base_folder(manager):
    """create_session returns the folder projects/{project}/sessions/{session}, which then exists."""
    folder = Path(manager.create_session("gardens", "spring", "ann"))
    assert folder == Path(manager.base_dir) / "gardens" / "sessions" / "spring"
    assert folder.is_dir()


def test_the_base_folder_is_found_from_where_one_works(tmp_path, monkeypatch):
    """A relative base folder is below the working folder, and need not be there before."""
    monkeypatch.chdir(tmp_path)
    CheckpointManager(base_dir="projects").create_session("gardens", "spring", "ann")
    assert (tmp_path / "projects/gardens/sessions/spring/session_manifest.md").is_file()


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_makes_the_folders_of_its_phases(manager, mode):
    """A new session holds its manifest and one empty folder for each phase of its mode, and nothing else."""
    folder = manager.create_session("gardens", mode, "ann", execution_mode=mode)
    folders = [PHASES[number][1] for number in MODES[mode]]
    assert sorted(os.listdir(folder)) == [*folders, "session_manifest.md"]
    assert not any(os.listdir(folder / name) for name in folders)


def test_a_phase_holds_its_checkpoint_its_outputs_and_its_review(manager, session):
    """A phase's folder has checkpoint.md, {agent}.md for every agent, and user_feedback.md."""
    for agent in ("market_intelligence", "competitor_analysis"):
        manager.save_agent_output(**IDS, phase_num=2, agent_name=agent, output_content="Text.")
    manager.save_user_feedback(**IDS, phase_num=2, reviewed=False, approved=False)
    assert files(session / "phase_1_concept") == ["checkpoint.md", "concept_expansion.md", "user_feedback.md"]
    assert files(session / "phase_2_market_research") == [
        "checkpoint.md",
        "competitor_analysis.md",
        "market_intelligence.md",
        "user_feedback.md",
    ]


def test_what_is_saved_returns_nothing(manager):
    """The calls that save answer with None: what they did is in the files."""
    manager.create_session(**IDS, user_id="ann")
    assert manager.save_checkpoint(**IDS, phase_num=1, status="pending", agents=[]) is None
    assert manager.save_agent_output(**IDS, phase_num=1, agent_name="a", output_content="") is None
    assert manager.save_user_feedback(**IDS, phase_num=1, reviewed=True, approved=True) is None


def test_the_same_session_may_be_created_again(manager, session):
    """The same call again returns the same folder and changes no file."""
    before = {name: (session / name).read_bytes() for name in files(session)}
    assert manager.create_session(**IDS, user_id="ann", execution_mode="mvp") == session
    assert {name: (session / name).read_bytes() for name in files(session)} == before


# The manifest of a session.


def test_a_manifest_has_its_headings_in_order(session):
    """The manifest has its title, then metadata, then the status of phases; more may follow."""
    wanted = ["# Session Manifest", "## Metadata", "## Phase Status"]
    assert headings(session / "session_manifest.md")[:3] == wanted


def test_a_manifest_tells_whose_session_it_is(session):
    """The metadata of a manifest are eight labelled lines in order; times are ISO 8601."""
    lines = section(session / "session_manifest.md", "Metadata")
    assert lines[:5] == [
        "- Session ID: spring",
        "- Project ID: gardens",
        "- User ID: ann",
        "- Workflow Type: idea_validation",
        "- Execution Mode: mvp",
    ]
    assert re.fullmatch(f"- Created: {TIME}", lines[5])
    assert re.fullmatch(f"- Last Updated: {TIME}", lines[6])
    assert lines[7:] == ["- Status: in_progress"]


def test_a_manifest_tells_how_each_phase_stands(session):
    """The status of phases is a table with a row for each phase of the mode; what is not known is a dash."""
    assert section(session / "session_manifest.md", "Phase Status") == [
        "| Phase | Name | Status | Started | Completed | Duration |",
        "|-------|------|--------|---------|-----------|----------|",
        "| 1 | Concept Expansion | completed | 2025-03-01T08:00:00Z | 2025-03-01T08:02:00Z | 120s |",
        "| 2 | Market Research | in_progress | 2025-03-01T09:00:00Z | - | - |",
        "| 3 | Niche Selection | pending | - | - | - |",
        "| 6 | Validation | pending | - | - | - |",
        "| 7 | Final Synthesis | pending | - | - | - |",
    ]


def test_phases_have_the_names_that_people_know(manager):
    """In mode full the manifest names the seven phases."""
    folder = manager.create_session("gardens", "all", "ann", execution_mode="full")
    rows = section(folder / "session_manifest.md", "Phase Status")[2:]
    assert [row.split(" | ")[:2] for row in rows] == [[f"| {number}", name] for number, (name, _) in PHASES.items()]


# The checkpoint of a phase.


def test_a_checkpoint_has_its_headings_in_order(session):
    """A checkpoint's title names its phase; metadata, agents and metrics follow in this order."""
    found = headings(session / "phase_1_concept" / "checkpoint.md")
    assert found[0] == "# Phase Checkpoint: Concept Expansion"
    assert in_order(["## Metadata", "## Agents in Phase", "## Metrics"], found)


def test_a_checkpoint_tells_how_its_phase_ran(session):
    """The metadata of a checkpoint begin with six labelled lines in order."""
    assert section(session / "phase_1_concept" / "checkpoint.md", "Metadata")[:6] == [
        "- Phase Number: 1",
        "- Phase Name: Concept Expansion",
        "- Status: completed",
        "- Started: 2025-03-01T08:00:00Z",
        "- Completed: 2025-03-01T08:02:00Z",
        "- Duration: 120.5s",
    ]


def test_a_checkpoint_tells_its_agents_and_what_they_took(session):
    """Each agent stands with its status; tokens and cost are summed under four labels in order."""
    path = session / "phase_1_concept" / "checkpoint.md"
    assert section(path, "Agents in Phase") == ["- concept_expansion: completed"]
    assert section(path, "Metrics")[:4] == [
        "- Total Tokens: 900",
        "- Input Tokens: 700",
        "- Output Tokens: 200",
        "- Cost: $0.045",
    ]


def test_a_checkpoint_that_has_only_begun_has_dashes(session):
    """What a phase does not have yet is a dash, under the same labels."""
    path = session / "phase_2_market_research" / "checkpoint.md"
    assert labels(path, "Metadata")[:6] == [
        "Phase Number",
        "Phase Name",
        "Status",
        "Started",
        "Completed",
        "Duration",
    ]
    assert section(path, "Metadata")[2:6] == [
        "- Status: in_progress",
        "- Started: 2025-03-01T09:00:00Z",
        "- Completed: -",
        "- Duration: -",
    ]


# The output of an agent.


def test_an_output_has_its_headings_in_order(session):
    """An output has its title, metadata, execution details and the text itself, and no other heading."""
    assert headings(session / "phase_1_concept" / "concept_expansion.md") == [
        "# Agent Output: Concept Expansion",
        "## Metadata",
        "## Execution Details",
        "## Output",
    ]


def test_an_output_tells_who_wrote_it_when_and_how(session):
    """Metadata and execution details of an output are labelled lines in order."""
    path = session / "phase_1_concept" / "concept_expansion.md"
    agent, phase, executed, *rest = section(path, "Metadata")
    assert (agent, phase) == ("- Agent: concept_expansion", "- Phase: 1 - Concept Expansion")
    assert re.fullmatch(f"- Executed: {TIME}", executed)
    assert rest == ["- Duration: 120.5s", "- Status: completed"]
    assert section(path, "Execution Details") == [
        "- Model: provider.model-v1:0",
        "- Input Tokens: 700",
        "- Output Tokens: 200",
        "- Tools Used: [file_write, web_search]",
    ]


def test_the_text_of_an_output_is_the_rest_of_its_file(manager, session):
    """What an agent wrote stands as it is below the last heading, whatever headings it has itself."""
    text = "# Mine\n\n## Output\n\n- Status: failed\n"
    manager.save_agent_output(**IDS, phase_num=2, agent_name="market_intelligence", output_content=text)
    written = (session / "phase_2_market_research" / "market_intelligence.md").read_text(encoding="utf-8")
    assert written.partition("\n## Output\n\n")[2].startswith(text)
    assert manager.get_phase_outputs(**IDS, phase_nums=[2]) == {2: {"market_intelligence": text}}


# The review of a phase.


def test_a_review_has_its_headings_in_order(session):
    """A review has status, comments, requested changes and the action taken, in this order."""
    found = headings(session / "phase_1_concept" / "user_feedback.md")
    assert found[0] == "# User Feedback: Concept Expansion"
    assert in_order(["## Review Status", "## User Comments", "## Requested Changes", "## Action Taken"], found)
    assert set(found[1:]) - {"## Reviewed Content"} == {
        "## Review Status",
        "## User Comments",
        "## Requested Changes",
        "## Action Taken",
    }


def test_a_review_tells_what_was_decided(session):
    """An approval is told with its time, its comments, no changes, and the action."""
    path = session / "phase_1_concept" / "user_feedback.md"
    *decision, moment = section(path, "Review Status")
    assert decision == ["- Reviewed: true", "- Approved: true"]
    assert re.fullmatch(f"- Timestamp: {TIME}", moment)
    assert section(path, "User Comments") == ["Name one city."]
    assert section(path, "Action Taken") == ["- Action: approved", "- Retry Count: 0"]


def test_a_review_numbers_the_changes_it_wants(manager, session):
    """Requested changes are numbered from 1; the retry count is the one that was given."""
    wanted = ["Name one city", "Say who pays"]
    review = {"reviewed": True, "approved": False, "requested_changes": wanted, "action": "retry_with_changes"}
    manager.save_user_feedback(**IDS, phase_num=2, **review, retry_count=1)
    path = session / "phase_2_market_research" / "user_feedback.md"
    assert section(path, "Review Status")[:2] == ["- Reviewed: true", "- Approved: false"]
    assert section(path, "Requested Changes") == ["- Change 1: Name one city", "- Change 2: Say who pays"]
    assert section(path, "Action Taken") == ["- Action: retry_with_changes", "- Retry Count: 1"]


@pytest.mark.parametrize(
    "path",
    [
        "session_manifest.md",
        "phase_1_concept/checkpoint.md",
        "phase_1_concept/concept_expansion.md",
        "phase_1_concept/user_feedback.md",
    ],
)
def test_a_document_says_its_kind_and_version_before_its_title(session, path):
    """Front matter with the kind and the version of the format stands before the title of every document."""
    kind = {"concept_expansion": "agent_output"}.get(Path(path).stem, Path(path).stem)
    text = (session / path).read_text(encoding="utf-8")
    assert text.startswith(f"---\nhaytham: {kind}/1\n")
    assert body(session / path)[0].startswith("# ")


# Going on with a session.


def test_a_session_is_loaded_with_all_that_is_known_of_it(manager, session):
    """load_session tells ids, user, mode, times, status, the current phase, completed ones, and all by number."""
    state = manager.load_session(**IDS)
    assert list(state) == [
        "session_id",
        "project_id",
        "user_id",
        "workflow_type",
        "execution_mode",
        "created",
        "last_updated",
        "status",
        "current_phase",
        "completed_phases",
        "phase_statuses",
    ]
    assert (state["current_phase"], state["completed_phases"], state["status"]) == (2, [1], "in_progress")
    assert state["phase_statuses"] == {1: "completed", 2: "in_progress", 3: "pending", 6: "pending", 7: "pending"}
    assert re.fullmatch(TIME, state["created"])


def test_a_new_session_has_no_current_phase(manager):
    """Before anything is saved the current phase is 0, and no phase is completed."""
    manager.create_session(**IDS, user_id="ann")
    state = manager.load_session(**IDS)
    assert (state["current_phase"], state["completed_phases"], state["status"]) == (0, [], "in_progress")


def test_another_manager_goes_on_from_the_files(manager, session):
    """What one manager saved another one loads: nothing is kept but the files."""
    other = CheckpointManager(base_dir=manager.base_dir)
    assert other.load_session(**IDS) == manager.load_session(**IDS)
    other.save_checkpoint(**IDS, phase_num=2, status="completed", agents=[])
    assert manager.load_session(**IDS)["completed_phases"] == [1, 2]


def test_outputs_are_loaded_by_phase_and_agent(manager, session):
    """Without numbers the completed phases are meant; with them those phases, also if they are not completed."""
    first = {1: {"concept_expansion": "Gardens without mains water lose crops."}}
    manager.save_agent_output(**IDS, phase_num=2, agent_name="market_intelligence", output_content="Ten gardens.")
    assert manager.get_phase_outputs(**IDS) == manager.get_phase_outputs(**IDS, phase_nums=None) == first
    assert manager.get_phase_outputs(**IDS, phase_nums=[1, 2]) == {**first, 2: {"market_intelligence": "Ten gardens."}}


def test_a_phase_without_outputs_is_left_out(manager, session):
    """A phase in which nobody wrote has no entry."""
    assert manager.get_phase_outputs(**IDS, phase_nums=[3]) == {}


def test_an_edit_of_an_output_is_loaded_and_ends_its_approval(manager, session):
    """A person's text is what is loaded; the approval was for another one."""
    assert manager.get_approved_phases(**IDS) == [1]
    path = session / "phase_1_concept" / "concept_expansion.md"
    path.write_text(path.read_text(encoding="utf-8").replace("lose crops", "lose a third"), encoding="utf-8")
    assert manager.get_phase_outputs(**IDS)[1]["concept_expansion"].startswith("Gardens without mains water lose a")
    assert manager.get_approved_phases(**IDS) == []


def test_a_session_is_completed_with_its_last_phase(manager, session):
    """When all phases of the mode are completed, so is the session, and the manifest says it."""
    for number in (2, 3, 6, 7):
        manager.save_checkpoint(**IDS, phase_num=number, status="completed", agents=[])
    assert manager.load_session(**IDS)["status"] == "completed"
    assert section(session / "session_manifest.md", "Metadata")[-1] == "- Status: completed"


# Whether a checkpoint can be relied on.


def test_a_sound_checkpoint_is_valid(manager, session):
    """validate_checkpoint answers with True and no errors for what was saved."""
    assert manager.validate_checkpoint(**IDS, phase_num=1) == (True, [])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("## Metadata\n", "", "Metadata"),
        ("- Phase Number: 1\n", "", "Phase Number"),
        ("- Status: completed\n", "", "Status"),
        ("- Status: completed\n", "- Status: nearly\n", "Status"),
        ("# Phase Checkpoint", "# Checkpoint", "Phase Checkpoint"),
    ],
)
def test_a_broken_checkpoint_is_not_valid_and_its_errors_say_why(manager, session, old, new, said):
    """A missing section or field, or a value that is not allowed, is among the errors, each with its file."""
    path = session / "phase_1_concept" / "checkpoint.md"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    valid, errors = manager.validate_checkpoint(**IDS, phase_num=1)
    assert valid is False
    assert all("phase_1_concept/checkpoint.md" in error for error in errors)
    assert any(said in error for error in errors)


def test_a_phase_that_was_never_saved_is_not_valid(manager, session):
    """A phase without a checkpoint is not valid, and the error names the file."""
    valid, errors = manager.validate_checkpoint(**IDS, phase_num=3)
    assert (valid, len(errors)) == (False, 1)
    assert "phase_3_niche_selection/checkpoint.md" in errors[0]


# Mistakes.


@pytest.mark.parametrize("number", [0, 8, -1, 4, "1", None])
def test_a_phase_that_the_session_does_not_have_is_a_value_error(manager, session, number):
    """A number that is no phase of the session's mode is a ValueError for every call that takes one."""
    before = files(session)
    for call in (
        lambda: manager.save_checkpoint(**IDS, phase_num=number, status="completed", agents=[]),
        lambda: manager.save_agent_output(**IDS, phase_num=number, agent_name="a", output_content="x"),
        lambda: manager.save_user_feedback(**IDS, phase_num=number, reviewed=True, approved=True),
        lambda: manager.validate_checkpoint(**IDS, phase_num=number),
        lambda: manager.get_phase_outputs(**IDS, phase_nums=[number]),
    ):
        with pytest.raises(ValueError, match="phase"):
            call()
    assert files(session) == before


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("save_checkpoint", {"status": "done", "agents": []}),
        ("save_checkpoint", {"status": "completed", "agents": [], "execution_mode": "quick"}),
        ("save_checkpoint", {"status": "completed", "agents": [{"agent_name": "a", "status": "done"}]}),
        ("save_agent_output", {"agent_name": "a", "output_content": "x", "status": "done"}),
        ("save_user_feedback", {"reviewed": True, "approved": False, "action": "maybe"}),
    ],
)
def test_a_value_that_is_not_allowed_is_a_value_error(manager, session, call, given):
    """A status, way of running or action that there is not is a ValueError that names it, and nothing is written."""
    before = {name: (session / name).read_bytes() for name in files(session)}
    with pytest.raises(ValueError, match=r"done|quick|maybe"):
        getattr(manager, call)(**IDS, phase_num=2, **given)
    assert {name: (session / name).read_bytes() for name in files(session)} == before


@pytest.mark.parametrize("given", [{"execution_mode": "quick"}, {"workflow_type": "another"}])
def test_a_mode_or_workflow_that_there_is_not_is_a_value_error(manager, given):
    """A session of an unknown mode or workflow is a ValueError, and no session is made."""
    with pytest.raises(ValueError, match=r"quick|another"):
        manager.create_session(**IDS, user_id="ann", **given)
    assert not (Path(manager.base_dir) / "gardens").exists()


def test_a_session_that_is_not_there_is_file_not_found(manager):
    """Every call on a session that was never created is a FileNotFoundError, and makes nothing."""
    for call in (
        lambda: manager.save_checkpoint(**IDS, phase_num=1, status="completed", agents=[]),
        lambda: manager.save_agent_output(**IDS, phase_num=1, agent_name="a", output_content="x"),
        lambda: manager.save_user_feedback(**IDS, phase_num=1, reviewed=True, approved=True),
        lambda: manager.load_session(**IDS),
        lambda: manager.get_phase_outputs(**IDS),
        lambda: manager.get_approved_phases(**IDS),
        lambda: manager.validate_checkpoint(**IDS, phase_num=1),
    ):
        with pytest.raises(FileNotFoundError, match="spring"):
            call()
    assert not (Path(manager.base_dir) / "gardens").exists()


def test_a_phase_folder_that_is_gone_is_file_not_found(manager, session):
    """The calls that save into a phase whose folder was removed are a FileNotFoundError, and do not make it."""
    folder = session / "phase_3_niche_selection"
    folder.rmdir()
    for call in (
        lambda: manager.save_checkpoint(**IDS, phase_num=3, status="completed", agents=[]),
        lambda: manager.save_agent_output(**IDS, phase_num=3, agent_name="a", output_content="x"),
        lambda: manager.save_user_feedback(**IDS, phase_num=3, reviewed=True, approved=True),
    ):
        with pytest.raises(FileNotFoundError, match="phase_3_niche_selection"):
            call()
    assert not folder.exists()


# The two managers together.


def test_a_project_and_its_session_are_made_by_the_one_and_gone_on_with_by_the_other(tmp_path):
    """A project's id and its session's id are all that the checkpoint manager needs."""
    base = tmp_path / "projects"
    project = ProjectManager(base_dir=base).create_project(
        user_id="ann", startup_idea="Lend rain barrels to gardens.", execution_mode="mvp"
    )
    started = ProjectManager(base_dir=base).start_session(project["project_id"])
    ids = {"project_id": project["project_id"], "session_id": started["session_id"]}
    checkpoints = CheckpointManager(base_dir=base)
    folder = checkpoints.create_session(**ids, user_id="ann", execution_mode="mvp")
    assert folder == base / ids["project_id"] / "sessions" / ids["session_id"]
    checkpoints.save_checkpoint(**ids, phase_num=1, status="completed", agents=[])
    assert checkpoints.load_session(**ids)["completed_phases"] == [1]


@pytest.mark.parametrize("mode", MODES)
def test_a_started_session_has_the_mode_and_user_of_its_project(tmp_path, mode):
    """start_session tells ids, user, workflow, mode, time, status, phases and path of what it made."""
    projects = ProjectManager(base_dir=tmp_path)
    project = projects.create_project("ann", "Lend rain barrels.", project_name="Rain barrels", execution_mode=mode)
    session = projects.start_session(project["project_id"])
    assert re.fullmatch(TIME, session.pop("created"))
    assert session == {
        "session_id": session["session_id"],
        "project_id": "rain_barrels",
        "user_id": "ann",
        "workflow_type": "idea_validation",
        "execution_mode": mode,
        "status": "in_progress",
        "phases": MODES[mode],
        "path": str(tmp_path / "rain_barrels" / "sessions" / session["session_id"]),
    }


def test_a_project_is_told_with_its_idea_and_its_sessions(tmp_path):
    """A project is a dict with its id, name, user, idea, mode, status, times, preferences, sessions and version."""
    projects = ProjectManager(base_dir=tmp_path)
    project = projects.create_project("ann", "Lend rain barrels.", project_name="Rain barrels")
    session = projects.start_session("rain_barrels")["session_id"]
    status = projects.get_project_status("rain_barrels")
    assert re.fullmatch(TIME, project["created_at"])
    assert status == {**project, "sessions": [session], "total_sessions": 1, "completed_sessions": 0}
    assert {name: project[name] for name in ("user_id", "startup_idea", "status", "user_preferences")} == {
        "user_id": "ann",
        "startup_idea": "Lend rain barrels.",
        "status": "active",
        "user_preferences": {},
    }


def test_a_project_has_its_headings_and_labels_in_order(tmp_path):
    """project.md has metadata, preferences, and the idea as it was said at its end."""
    projects = ProjectManager(base_dir=tmp_path)
    projects.create_project("ann", "Lend rain barrels.\n\n## To gardens", project_name="Rain barrels")
    projects.update_user_preferences("rain_barrels", {"tone": "plain"})
    path = tmp_path / "rain_barrels" / "project.md"
    assert headings(path)[:4] == ["# Project: Rain barrels", "## Metadata", "## User Preferences", "## Startup Idea"]
    assert labels(path, "Metadata") == [
        "Project ID",
        "Project Name",
        "User ID",
        "Execution Mode",
        "Status",
        "Created",
        "Updated",
    ]
    assert section(path, "User Preferences") == ["- tone: plain"]
    assert path.read_text(encoding="utf-8").endswith("\n## Startup Idea\n\nLend rain barrels.\n\n## To gardens\n")


def test_a_completed_session_leaves_its_requirements(tmp_path):
    """complete_session writes outputs/requirements_v{n}.md as it was given, and the session is completed."""
    projects = ProjectManager(base_dir=tmp_path)
    projects.create_project("ann", "Lend rain barrels.", project_name="Rain barrels")
    session = projects.start_session("rain_barrels")["session_id"]
    done = projects.complete_session("rain_barrels", session, "Ten barrels.\n", metrics={"tokens": 7})
    path = tmp_path / "rain_barrels" / "outputs" / "requirements_v1.md"
    assert path.read_bytes() == b"Ten barrels.\n"
    assert re.fullmatch(TIME, done.pop("completed_at"))
    ids = {"session_id": session, "project_id": "rain_barrels"}
    assert done == {
        **ids,
        "status": "completed",
        "version": 1,
        "output_path": str(path),
        "metrics": {"tokens": 7},
    }
    assert CheckpointManager(base_dir=tmp_path).load_session(**ids)["status"] == "completed"


def test_projects_are_listed_archived_and_deleted(tmp_path):
    """A user's projects are listed by status; an archived one stays, a deleted one is gone with its sessions."""
    projects = ProjectManager(base_dir=tmp_path)
    for user, name in (("ann", "Barrels"), ("ann", "Ladders"), ("bob", "Boats")):
        projects.create_project(user, "An idea.", project_name=name)
    assert projects.archive_project("ladders")["status"] == "archived"
    assert [one["project_id"] for one in projects.list_user_projects("ann", "active")] == ["barrels"]
    assert [one["project_id"] for one in projects.list_user_projects("ann")] == ["barrels", "ladders"]
    assert projects.delete_project("barrels") is None
    assert not (tmp_path / "barrels").exists()


def test_a_project_with_mistakes_is_refused(tmp_path):
    """An unknown mode or status is a ValueError, a project that is not there a FileNotFoundError."""
    projects = ProjectManager(base_dir=tmp_path)
    with pytest.raises(ValueError, match="quick"):
        projects.create_project("ann", "An idea.", execution_mode="quick")
    with pytest.raises(ValueError, match="lost"):
        projects.list_user_projects("ann", "lost")
    for call in (projects.start_session, projects.get_project_status, projects.delete_project):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            call("nowhere")


# What comes with them.


def test_the_example_runs_from_beginning_to_end(tmp_path):
    """The example of the managers runs by itself in a folder of its own, and leaves a session there."""
    script = ROOT / "examples" / "checkpoint_manager_example.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path / "projects"], capture_output=True, encoding="utf-8", check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(tmp_path.glob("projects/*/sessions/*/session_manifest.md"))) == 1


def test_the_tests_of_the_checkpoint_manager_are_where_they_are_said_to_be():
    """tests/test_checkpoint_manager.py can be run by its name."""
    assert (ROOT / "tests" / "test_checkpoint_manager.py").is_file()
