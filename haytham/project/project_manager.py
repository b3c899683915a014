"""The project manager: projects and their sessions in plain calls and dicts. A thin wrapper over app."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haytham.app.projects import DEFAULT_WORKFLOW, Projects
from haytham.session import paths
from haytham.storage.files import FileStore

if TYPE_CHECKING:
    import os

_OF_A_SESSION = ("session_id", "project_id", "user_id", "workflow_type", "execution_mode", "created")


class ProjectManager:
    """Creates projects, starts and completes their sessions, and lists them."""

    def __init__(self, base_dir: str | os.PathLike[str] = "projects") -> None:
        self._projects = Projects(FileStore(base_dir))
        self.base_dir = Path(base_dir).absolute()

    def create_project(
        self, user_id: str, startup_idea: str, project_name: str | None = None, execution_mode: str = "mvp"
    ) -> dict[str, Any]:
        """Create a project for an idea; its id is a slug of its name, else one that sorts by time."""
        return self._projects.create(user_id, startup_idea, project_name, execution_mode)

    def start_session(self, project_id: str, workflow_type: str = DEFAULT_WORKFLOW) -> dict[str, Any]:
        """Start a session of a project: its manifest and folders."""
        summary = self._projects.start_session(project_id, workflow_type)
        return {
            **{name: getattr(summary.manifest, name) for name in _OF_A_SESSION},
            "status": summary.status,
            "phases": [phase.number for phase in summary.phases],
            "path": str(self.base_dir / paths.session_prefix(project_id, summary.manifest.session_id)),
        }

    def complete_session(
        self, project_id: str, session_id: str, requirements_content: str, metrics: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Close a session with the requirements it came to, as the project's next version; twice is harmless."""
        manifest = self._projects.complete_session(project_id, session_id, requirements_content, metrics)
        return {
            "session_id": session_id,
            "project_id": project_id,
            "status": "completed",
            "version": manifest.version,
            "output_path": str(self.base_dir / paths.requirements_key(project_id, manifest.version or 0)),
            "completed_at": manifest.closed,
            "metrics": json.loads(manifest.metrics or "{}"),
        }

    def list_user_projects(self, user_id: str, status: str | None = None) -> list[dict[str, Any]]:
        """Return a user's projects; one that cannot be read is logged and hides no other."""
        return self._projects.list(user_id, status)

    def get_project_status(self, project_id: str) -> dict[str, Any]:
        """Return a project with the count of its sessions, all and completed."""
        return self._projects.status(project_id)

    def get_user_preferences(self, project_id: str) -> dict[str, Any]:
        """Return the preferences stored with a project."""
        return self._projects.preferences(project_id)

    def update_user_preferences(self, project_id: str, preferences: dict[str, Any]) -> dict[str, Any]:
        """Add or change preferences of a project; return all of them."""
        return self._projects.update_preferences(project_id, preferences)

    def archive_project(self, project_id: str) -> dict[str, Any]:
        """Mark a project as archived; nothing of it is lost."""
        return self._projects.archive(project_id)

    def delete_project(self, project_id: str) -> None:
        """Delete a project and all its sessions, for good."""
        self._projects.delete(project_id)
