"""The checkpoint manager: sessions by project and session id, in plain calls and dicts. A thin face over Session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.config.workflow import shipped_workflow
from haytham.errors import HaythamError, InvalidArgument
from haytham.session import Session
from haytham.session.plan import summarize
from haytham.storage.files import FileStore

if TYPE_CHECKING:
    import os

    from haytham.session.view import SessionView


class CheckpointManager:
    """Creates sessions, saves what happens in their phases, and tells where they stand."""

    def __init__(self, base_dir: str | os.PathLike[str] = "projects") -> None:
        self._store = FileStore(base_dir)
        self.base_dir = Path(base_dir).absolute()
        self._sessions: dict[tuple[str, str], Session] = {}

    def create_session(
        self,
        project_id: str,
        session_id: str,
        user_id: str,
        workflow_type: str = "idea_validation",
        execution_mode: str = "mvp",
    ) -> Path:
        """Make a session: its manifest and the folders of its mode's phases. The same call again changes nothing."""
        session = self._session(project_id, session_id)
        session.create(user_id=user_id, source=shipped_workflow(workflow_type), mode=execution_mode)
        return self.base_dir / session.prefix

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
        """Save how a phase stands, and what its agents did."""
        facts: dict[str, Any] = {
            "status": status,
            "started": started,
            "completed": completed,
            "duration": duration,
            "retry_count": retry_count,
            "execution_mode": execution_mode,
        }
        if errors is not None and _strings("errors", errors):
            facts["errors"] = list(errors)
        self._session(project_id, session_id).save_checkpoint(phase_num, facts, agents)

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
            "tools_used": None if tools_used is None else _strings("tools used", tools_used),
        }
        if error_type is not None or error_message is not None or stack_trace is not None:
            facts |= {"error_type": error_type, "error_message": error_message}
        if stack_trace is not None:
            facts["stack_trace"] = stack_trace
        self._session(project_id, session_id).save_output(phase_num, agent_name, facts, output_content)

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
        """Save a person's review of a phase, bound to the outputs that are there now.

        `agent` names the one that changes are requested of; without it they are requested of all.
        """
        changes = _strings("requested changes", [] if requested_changes is None else requested_changes)
        facts: dict[str, Any] = {
            "reviewed": reviewed,
            "approved": approved,
            "timestamp": clock.now(),
            "comments": comments,
            "requested_changes": changes,
            "action": _action(approved, changes) if action is None else action,
            "retry_count": retry_count,
        }
        facts |= {} if agent is None else {"agents": [agent]}
        self._session(project_id, session_id).save_feedback(phase_num, facts)

    def load_session(self, project_id: str, session_id: str) -> dict[str, Any]:
        """Where a session stands: what its manifest is the home of, and what follows from its checkpoints."""
        summary = self._session(project_id, session_id).read_consistently(summarize)
        names = ("session_id", "project_id", "user_id", "workflow_type", "execution_mode", "created")
        return {
            **{name: summary.manifest[name] for name in names},
            "last_updated": summary.last_updated,
            "status": summary.status,
            "current_phase": summary.current_phase,
            "completed_phases": summary.completed_phases,
            "phase_statuses": summary.statuses,
        }

    def get_phase_outputs(
        self, project_id: str, session_id: str, phase_nums: list[int] | None = None
    ) -> dict[int, dict[str, str]]:
        """The texts of phases, by phase and agent: of those asked for, else of the completed ones."""
        if not isinstance(phase_nums, list | tuple | None):
            raise InvalidArgument("phases", phase_nums, "a list of numbers, or None for the completed ones")

        def outputs(reading: SessionView) -> dict[int, dict[str, str]]:
            numbers = summarize(reading).completed_phases if phase_nums is None else phase_nums
            found = {number: reading.texts(reading.require_phase(number)) for number in numbers}
            return {number: texts for number, texts in found.items() if texts}

        return self._session(project_id, session_id).read_consistently(outputs)

    def get_approved_phases(self, project_id: str, session_id: str) -> list[int]:
        """The phases a person approved, on the very texts that are there."""
        return self._session(project_id, session_id).read_consistently(summarize).approved_phases

    def validate_checkpoint(self, project_id: str, session_id: str, phase_num: int) -> tuple[bool, list[str]]:
        """Whether a phase's checkpoint can be read and its outputs are there; else every problem, with its place.

        A derived copy that is behind is none: the next save draws it again.
        """
        reading = self._session(project_id, session_id).read()
        phase = reading.require_phase(phase_num)
        try:
            problems = [str(problem) for problem in reading.checkpoint_problems(phase) if not problem.derived]
        except HaythamError as error:
            problems = str(error).split("\n")
        return not problems, problems

    def _session(self, project_id: str, session_id: str) -> Session:
        """The session, kept so that its folders are swept once."""
        key = (project_id, session_id)
        try:
            return self._sessions[key]
        except (KeyError, TypeError):
            session = Session(self._store, project_id, session_id)
            return self._sessions.setdefault(key, session)


def _strings(what: str, values: Any) -> list[str]:
    """A list of strings, and not one string taken for a list of letters."""
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise InvalidArgument(what, values, "a list of strings")
    return list(values)


def _action(approved: bool, changes: list[str]) -> str:  # noqa: FBT001 - a value, not a switch
    if approved:
        return "approved"
    return "retry_with_changes" if changes else "pending"
