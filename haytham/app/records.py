"""Sessions that a program drives itself: it saves outputs, checkpoints and feedback, and reads what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.config.workflow import shipped_workflow
from haytham.errors import HaythamError, InvalidArgument
from haytham.session.plan import summarize
from haytham.session.session import SessionDocuments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from haytham.session.derived import Summary
    from haytham.session.view import SessionView
    from haytham.storage.base import SessionStore


class SessionRecords:
    """The sessions of a store, by project and session id. Opens each once, so that its folders are swept once."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._sessions: dict[tuple[str, str], SessionDocuments] = {}

    def documents(self, project_id: str, session_id: str) -> SessionDocuments:
        """Return the documents of a session, whether it exists or not."""
        key = (project_id, session_id)
        try:
            return self._sessions[key]
        except (KeyError, TypeError):
            session = SessionDocuments(self._store, project_id, session_id)
            return self._sessions.setdefault(key, session)

    def create(self, project_id: str, session_id: str, *, user: str, workflow: str, mode: str) -> SessionDocuments:
        """Create a session: its manifest and the folders of its mode's phases. The same call again changes nothing."""
        documents = self.documents(project_id, session_id)
        documents.create(user_id=user, source=shipped_workflow(workflow), mode=mode)
        return documents

    def save_checkpoint(
        self, project_id: str, session_id: str, phase: int, facts: dict[str, Any], agents: list[dict[str, Any]]
    ) -> None:
        """Save how a phase stands, and what its agents did; `errors` of the facts is a list of strings, or None."""
        errors = facts.pop("errors", None)
        if errors is not None and _strings("errors", errors):
            facts["errors"] = list(errors)
        self.documents(project_id, session_id).save_checkpoint(phase, facts, agents)

    def save_output(  # noqa: PLR0913, PLR0917 - whose output, of which phase
        self, project_id: str, session_id: str, phase: int, agent: str, text: str, facts: dict[str, Any]
    ) -> None:
        """Save an agent's text, byte for byte, and how it was made; facts of an error that are None are left out."""
        tools = facts.get("tools_used")
        facts["tools_used"] = None if tools is None else _strings("tools used", tools)
        error = {name: facts.pop(name) for name in ("error_type", "error_message", "stack_trace")}
        if any(value is not None for value in error.values()):
            facts |= {"error_type": error["error_type"], "error_message": error["error_message"]}
        if error["stack_trace"] is not None:
            facts["stack_trace"] = error["stack_trace"]
        self.documents(project_id, session_id).save_output(phase, agent, facts, text)

    def save_feedback(
        self, project_id: str, session_id: str, phase: int, facts: dict[str, Any], *, agent: str | None
    ) -> None:
        """Save a person's review of a phase, bound to the outputs that are there now.

        Without `action`, approved and requested changes decide it; `agent` is the one that changes are requested of.
        """
        requested = facts["requested_changes"]
        changes = _strings("requested changes", [] if requested is None else requested)
        action = _action(facts["approved"], changes) if facts["action"] is None else facts["action"]
        facts |= {"requested_changes": changes, "action": action, "timestamp": clock.now()}
        facts |= {} if agent is None else {"agents": [agent]}
        self.documents(project_id, session_id).save_feedback(phase, facts)

    def summary(self, project_id: str, session_id: str) -> Summary:
        """Return where a session stands, all of it from one moment."""
        return self.documents(project_id, session_id).read_consistently(summarize)

    def texts(self, project_id: str, session_id: str, phases: Sequence[int] | None) -> Mapping[int, Mapping[str, str]]:
        """Return the texts of phases by phase and agent: of those that are named, else of the completed ones."""
        if not isinstance(phases, list | tuple | None):
            raise InvalidArgument("phases", phases, "a list of numbers, or None for the completed ones")

        def compute(view: SessionView) -> dict[int, dict[str, str]]:
            numbers = summarize(view).completed_phases if phases is None else phases
            texts = {number: view.texts(view.require_phase(number)) for number in numbers}
            return {number: text for number, text in texts.items() if text}

        return self.documents(project_id, session_id).read_consistently(compute)

    def checkpoint_problems(self, project_id: str, session_id: str, phase: int) -> list[str]:
        """Return every problem of a phase's checkpoint; a derived copy that is behind is none."""
        view = self.documents(project_id, session_id).read()
        chosen = view.require_phase(phase)
        try:
            return [str(problem) for problem in view.checkpoint_problems(chosen) if not problem.derived]
        except HaythamError as error:
            return str(error).split("\n")


def _strings(what: str, values: Any) -> list[str]:
    """Return a list of strings; one string is not taken for a list of letters."""
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise InvalidArgument(what, values, "a list of strings")
    return list(values)


def _action(approved: bool, changes: list[str]) -> str:  # noqa: FBT001 - a value, not a switch
    if approved:
        return "approved"
    return "retry_with_changes" if changes else "pending"
