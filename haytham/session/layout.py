"""Where a project's and a session's documents rest: the only place that knows the names of folders and files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haytham.workflow import Phase

MANIFEST = "session_manifest.md"
CHECKPOINT = "checkpoint.md"
FEEDBACK = "user_feedback.md"
PROJECT = "project.md"

_VERSION = re.compile(r"requirements_v(\d+)\.md\Z", re.ASCII)


def project_key(project_id: str) -> str:
    """The key of a project's own document."""
    return f"{project_id}/{PROJECT}"


def sessions_prefix(project_id: str) -> str:
    """The folder of a project's sessions."""
    return f"{project_id}/sessions/"


def session_prefix(project_id: str, session_id: str) -> str:
    """The folder of a session."""
    return f"{project_id}/sessions/{session_id}/"


def session_lock(project_id: str, session_id: str) -> str:
    """The name of a session's write lock."""
    return f"{project_id}/sessions/{session_id}"


def phase_folder(phase: Phase) -> str:
    """The name of a phase's folder."""
    return f"phase_{phase.number}_{phase.slug}"


def output_file(agent_name: str) -> str:
    """The file of an agent's output, within the phase's folder."""
    return f"{agent_name}.md"


def output_agents(keys: list[str]) -> list[str]:
    """The agents whose outputs are among the files of a phase's folder."""
    names = (key.rpartition("/")[2] for key in keys)
    return [name[: -len(".md")] for name in names if name.endswith(".md") and name not in (CHECKPOINT, FEEDBACK)]


def workflow_prefix(project_id: str, digest: str) -> str:
    """The folder of a project's copy of a workflow."""
    return f"{project_id}/workflows/{digest.removeprefix('sha256:')[:16]}/"


def outputs_prefix(project_id: str) -> str:
    """The folder of what a project's sessions ended with."""
    return f"{project_id}/outputs/"


def requirements_key(project_id: str, version: int) -> str:
    """The key of one version of a project's requirements."""
    return f"{project_id}/outputs/requirements_v{version}.md"


def requirements_version(key: str) -> int | None:
    """The version that a file of a project's requirements is."""
    found = _VERSION.search(key)
    return int(found[1]) if found else None


def kind_of(path: str) -> str | None:
    """The kind of document that a path is, by its name and place; None for what is no document."""
    folder, _, name = path.rpartition("/")
    known = {MANIFEST: "session_manifest", CHECKPOINT: "checkpoint", FEEDBACK: "user_feedback", PROJECT: "project"}
    in_phase = re.search(r"(?:\A|/)phase_\d+_[^/]+\Z", folder) is not None
    return known.get(name) or ("agent_output" if in_phase and name.endswith(".md") else None)
