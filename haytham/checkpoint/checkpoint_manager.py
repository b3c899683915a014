"""The checkpoint manager: sessions by project and session id, in plain calls and dicts. A thin wrapper over app."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from haytham.app.handlers import INSTALLED
from haytham.app.projects import SessionRecords
from haytham.events import EventSource
from haytham.handlers import Handlers
from haytham.storage.files import FileStore

if TYPE_CHECKING:
    import os

_OF_A_SESSION = ("session_id", "project_id", "user_id", "workflow_type", "execution_mode", "created")


class CheckpointManager(EventSource):
    """Creates sessions, saves what happens in their phases, and returns their state.

    `on` adds handlers of the events of its sessions.
    """

    def __init__(self, base_dir: str | os.PathLike[str] = "projects") -> None:
        self._store = FileStore(base_dir)
        self.handlers = Handlers(INSTALLED)
        self._records = SessionRecords(self._store, self.handlers)
        self.base_dir = Path(base_dir).absolute()

    def create_session(
        self,
        project_id: str,
        session_id: str,
        user_id: str,
        workflow_type: str = "idea_validation",
        execution_mode: str = "mvp",
    ) -> Path:
        """Create a session: its manifest and the folders of its mode's phases. The same call again changes nothing."""
        about = {"user": user_id, "workflow": workflow_type, "mode": execution_mode}
        return self.base_dir / self._records.create(project_id, session_id, **about).prefix

    def save_checkpoint(  # noqa: PLR0913, PLR0917 - the columns of a checkpoint
        self,
        project_id: str,
        session_id: str,
        phase_num: int,
        status: str,
        agents: list[dict[str, Any]],
        started: str | None = None,
        completed: str | None = None,
        duration: float | None = None,
        retry_count: int = 0,
        execution_mode: str = "single",
        errors: list[str] | None = None,
    ) -> None:
        """Save the state of a phase, and what its agents did."""
        facts: dict[str, Any] = {
            "status": status,
            "started": started,
            "completed": completed,
            "duration": duration,
            "retry_count": retry_count,
            "execution_mode": execution_mode,
            "errors": errors,
        }
        self._records.save_checkpoint(project_id, session_id, phase_num, facts, agents)

    def save_agent_output(  # noqa: PLR0913, PLR0917 - the columns of an agent output
        self,
        project_id: str,
        session_id: str,
        phase_num: int,
        agent_name: str,
        output_content: str,
        status: str = "completed",
        duration: float | None = None,
        model: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        tools_used: list[str] | None = None,
        error_type: str | None = None,
        error_message: str | None = None,
        stack_trace: str | None = None,
    ) -> None:
        """Save what an agent wrote in a phase, byte for byte, and how it came to be."""
        facts = {
            "duration": duration,
            "status": status,
            "model": model,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "tools_used": tools_used,
            "error_type": error_type,
            "error_message": error_message,
            "stack_trace": stack_trace,
        }
        self._records.save_output(project_id, session_id, phase_num, agent_name, output_content, facts)

    def save_user_feedback(  # noqa: PLR0913, PLR0917 - the columns of feedback
        self,
        project_id: str,
        session_id: str,
        phase_num: int,
        reviewed: bool,  # noqa: FBT001 - the order of arguments is a promise
        approved: bool,  # noqa: FBT001
        comments: str = "",
        requested_changes: list[str] | None = None,
        action: str | None = None,
        retry_count: int = 0,
        agent: str | None = None,
    ) -> None:
        """Save a person's review of a phase, bound to its present outputs.

        `agent` names the one that changes are requested of; without it they are requested of all.
        """
        facts: dict[str, Any] = {
            "reviewed": reviewed,
            "approved": approved,
            "comments": comments,
            "requested_changes": requested_changes,
            "action": action,
            "retry_count": retry_count,
        }
        self._records.save_feedback(project_id, session_id, phase_num, facts, agent=agent)

    def load_session(self, project_id: str, session_id: str) -> dict[str, Any]:
        """Return the state of a session: facts of its manifest, and what follows from its checkpoints."""
        summary = self._records.summary(project_id, session_id)
        return {
            **{name: getattr(summary.manifest, name) for name in _OF_A_SESSION},
            "last_updated": summary.last_updated,
            "status": summary.status,
            "current_phase": summary.current_phase,
            "completed_phases": summary.completed_phases,
            "phase_statuses": summary.statuses,
        }

    def get_phase_outputs(
        self, project_id: str, session_id: str, phase_nums: list[int] | None = None
    ) -> dict[int, dict[str, str]]:
        """Return the texts of phases, by phase and agent: of those asked for, else of the completed ones."""
        texts = self._records.texts(project_id, session_id, phase_nums)
        return {number: dict(outputs) for number, outputs in texts.items()}

    def get_approved_phases(self, project_id: str, session_id: str) -> list[int]:
        """Return the phases that a person approved, on the present texts."""
        return self._records.summary(project_id, session_id).approved_phases

    def validate_checkpoint(self, project_id: str, session_id: str, phase_num: int) -> tuple[bool, list[str]]:
        """Return whether a phase's checkpoint can be read and its outputs exist, and every problem with its place.

        A derived copy that is behind is no problem: the next save renders it again.
        """
        problems = self._records.checkpoint_problems(project_id, session_id, phase_num)
        return not problems, problems
