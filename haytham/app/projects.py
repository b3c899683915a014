"""Projects of a workspace, and sessions that a program drives itself: both for the two managers."""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.config.workflow import shipped_workflow
from haytham.engine.autosnapshot import AutoSnapshotter
from haytham.errors import HaythamError, InvalidArgument, NotFound, WriteConflict
from haytham.history.catalog import HistoryStore
from haytham.history.history import History
from haytham.session import paths
from haytham.session.documents import DocumentRepository, check_location
from haytham.session.milestones import report_completed
from haytham.session.models import Project
from haytham.session.paths import check_id, check_project_name, slug
from haytham.session.session import SessionDocuments, write_attributes
from haytham.session.summary import summarize
from haytham.storage.base import ABSENT, bytes_digest, cache_of
from haytham.storage.factory import OURS
from haytham.validation import plain_dict, require_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from haytham.handlers import Handlers
    from haytham.session.derived import Summary
    from haytham.session.documents import StoredDocument
    from haytham.session.models import SessionManifest
    from haytham.session.view import SessionView
    from haytham.storage.base import SessionStore

log = logging.getLogger(__name__)

DEFAULT_WORKFLOW = "idea_validation"
_NAME_LENGTH = 60
_STATUSES = ("active", "archived")


class Projects:
    """The projects of a workspace, as plain dicts of their facts."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._documents = DocumentRepository(store)

    def create(self, user_id: str, idea: str, name: str | None = None, mode: str = "mvp") -> dict[str, Any]:
        """Create a project for an idea; its id is a slug of its name, else one that sorts by time."""
        check_id("user id", user_id)
        require_text("startup idea", idea)
        check_project_name("project name", require_text("project name", name or ""))
        shipped_workflow(DEFAULT_WORKFLOW).workflow.mode_phases(mode)
        time = clock.now()
        facts = {
            "project_name": default_name(idea) if name is None else name,
            "user_id": user_id,
            "execution_mode": mode,
            "status": "active",
            "created_at": time,
            "updated_at": time,
            "user_preferences": {},
            "startup_idea": idea,
        }
        return self._facts(self._write_new(facts, slug(name or "")))

    def start_session(self, project_id: str, workflow_type: str = DEFAULT_WORKFLOW) -> Summary:
        """Start a session of a project with a workflow that comes with the package."""
        session = SessionDocuments(self._store, project_id, clock.new_id())
        source = shipped_workflow(workflow_type)
        with self._store.lock(project_id):  # whoever deletes the project waits, or was first
            project = self._read(project_id).value
            session.create(user_id=project.user_id, source=source, mode=project.execution_mode)
        return summarize(session.read())

    def complete_session(
        self, project_id: str, session_id: str, requirements: str, metrics: dict[str, Any] | None = None
    ) -> SessionManifest:
        """Close a session with the requirements it came to, as the project's next version; return its manifest.

        The same call again changes nothing.
        """
        data = require_text("requirements content", requirements).encode()
        plain_dict("metrics", {} if metrics is None else metrics)
        self._read(project_id)
        session, is_closed = SessionDocuments(self._store, project_id, session_id), False
        with self._store.lock(project_id):
            summary = summarize(session.read())
            manifest = summary.manifest
            if summary.status == "rejected":
                raise InvalidArgument(f"session {session_id}", "rejected", "a session that was not")
            if manifest.closed is None:
                manifest, is_closed = self._close(session, data, metrics), True
            elif manifest.requirements != bytes_digest(data):
                raise InvalidArgument("requirements content", requirements, "what the session was completed with")
        if is_closed:
            report_completed(session.events, None, version=manifest.version)
        return manifest

    def list(self, user_id: str, status: str | None = None) -> list[dict[str, Any]]:
        """Return a user's projects; one that cannot be read is logged and hides no other."""
        if status not in (None, *_STATUSES):
            raise InvalidArgument("project status", status, ", ".join(_STATUSES))
        keys = [key for key in self._store.keys(depth=2) if key.endswith(f"/{paths.PROJECT}")]
        projects = [facts for facts in map(self._readable, keys) if facts is not None and facts["user_id"] == user_id]
        return [facts for facts in projects if status in (None, facts["status"])]

    def status(self, project_id: str) -> dict[str, Any]:
        """Return a project with the count of its sessions, all and completed."""
        facts = self._facts(self._read(project_id))
        statuses = [self._session_status(project_id, session_id) for session_id in facts["sessions"]]
        return {**facts, "total_sessions": len(statuses), "completed_sessions": statuses.count("completed")}

    def preferences(self, project_id: str) -> dict[str, Any]:
        """Return the preferences stored with a project."""
        return deepcopy(dict(self._read(project_id).value.user_preferences))

    def update_preferences(self, project_id: str, preferences: dict[str, Any]) -> dict[str, Any]:
        """Add or change preferences of a project; return all of them."""
        plain_dict("preferences", preferences)
        self._read(project_id)
        with self._store.lock(project_id):
            document = self._read(project_id)
            merged = {**document.value.user_preferences, **preferences}
            self._rewrite(replace(document.value, user_preferences=merged), document)
        return deepcopy(merged)

    def archive(self, project_id: str) -> dict[str, Any]:
        """Mark a project as archived; nothing of it is lost."""
        self._read(project_id)
        with self._store.lock(project_id):
            document = self._read(project_id)
            return self._facts(self._rewrite(replace(document.value, status="archived"), document))

    def delete(self, project_id: str) -> None:
        """Delete a project and all its sessions, for good."""
        key = paths.project_key(check_id("project id", project_id))
        if self._documents.find(Project, key) is None:
            raise NotFound(f"project {project_id!r}", key)
        with ExitStack() as locks:
            locks.enter_context(self._store.lock(project_id))
            for _, session_id in paths.session_folders(self._store.keys(f"{project_id}/", depth=4)):
                locks.enter_context(self._store.lock(paths.session_lock(project_id, session_id)))
            self._delete_histories(project_id)
            self._store.ensure_folder("")
            self._store.delete(f"{project_id}/")
            cache_of(self._store).delete(f"{project_id}/")

    def _delete_histories(self, project_id: str) -> None:
        """Delete snapshots that the project stores outside of its folder; one that cannot be opened is logged."""
        for session_id in self._store.folders(paths.sessions_prefix(project_id)):
            try:
                session = SessionDocuments(self._store, project_id, session_id)
                history = HistoryStore(session, store=None, may_run_code=False).store
                if history is not self._store:
                    history.delete(f"{project_id}/history/")
            except (HaythamError, OSError) as error:
                log.warning("the history of session %s stays where it rests: %s", session_id, error)

    def _readable(self, key: str) -> dict[str, Any] | None:
        """Return a project by the key of its document; None, and a warning, if it cannot be read."""
        try:
            return self._facts(self._read(key.rpartition("/")[0]))
        except (HaythamError, OSError) as error:
            log.warning("a project cannot be read: %s: %s", key, error)
            return None

    def _write_new(self, facts: dict[str, Any], name: str) -> StoredDocument[Project]:
        """Write a project under the first id that is free."""
        self._store.ensure_folder("")
        write_attributes(self._store)
        tries = 0
        while True:
            project_id = f"{name}_{tries}" if name and tries else name or clock.new_id()
            tries += 1
            if self._store.has_folder(f"{project_id}/"):
                continue
            value = {"project_id": project_id, **facts}
            try:
                return self._documents.write(
                    Project, paths.project_key(project_id), value, derived_values={}, previous=None
                )
            except (WriteConflict, NotADirectoryError) as error:
                log.debug("project id %s was taken in between: %s", project_id, error)

    def _rewrite(self, project: Project, previous: StoredDocument[Project]) -> StoredDocument[Project]:
        self._store.ensure_folder(f"{project.project_id}/")
        updated = replace(project, updated_at=clock.now())
        return self._documents.write(Project, previous.key, updated, derived_values={}, previous=previous)

    def _read(self, project_id: str) -> StoredDocument[Project]:
        key = paths.project_key(check_id("project id", project_id))
        document = self._documents.read(Project, key, f"project {project_id!r}")
        check_location(document, "project_id", project_id)
        return document

    def _facts(self, document: StoredDocument[Project]) -> dict[str, Any]:
        project_id = document.value.project_id
        sessions = self._store.keys(paths.sessions_prefix(project_id), depth=2)
        return {
            **deepcopy(dict(document.value.to_value())),
            "sessions": [key.split("/")[-2] for key in sessions if key.endswith(f"/{paths.MANIFEST}")],
            "current_version": max(self._versions(project_id), default=0),
        }

    def _versions(self, project_id: str) -> tuple[int, ...]:
        keys = self._store.keys(paths.outputs_prefix(project_id), depth=1)
        return tuple(version for version in map(paths.requirements_version, keys) if version is not None)

    def _session_status(self, project_id: str, session_id: str) -> str:
        try:
            return SessionDocuments(self._store, project_id, session_id).read_consistently(summarize).status
        except (HaythamError, OSError) as error:
            log.warning("session %s of project %s cannot be read: %s", session_id, project_id, error)
            return "unreadable"

    def _close(self, session: SessionDocuments, data: bytes, metrics: dict[str, Any] | None) -> SessionManifest:
        """Claim a version, write the requirements, close: after a crash the same call goes on from there."""
        manifest = session.read().manifest.value
        digest, version = bytes_digest(data), manifest.version or 0
        if manifest.requirements != digest or not self._may_hold(session.project_id, version, digest):
            version = max(self._versions(session.project_id), default=0) + 1
            session.update_manifest({"version": version, "requirements": digest})
        self._store.ensure_folder(paths.outputs_prefix(session.project_id))
        if self._requirements_digest(session.project_id, version) is None:
            self._store.write(paths.requirements_key(session.project_id, version), data, expect=ABSENT)
        given = {} if metrics is None else {"metrics": json.dumps(metrics)}
        return session.update_manifest({"closed": clock.now(), **given})

    def _may_hold(self, project_id: str, version: int, digest: str) -> bool:
        """Return whether a version is free for these requirements, or holds them already."""
        return version > 0 and self._requirements_digest(project_id, version) in (None, digest)

    def _requirements_digest(self, project_id: str, version: int) -> str | None:
        try:
            return bytes_digest(self._store.read(paths.requirements_key(project_id, version)))
        except FileNotFoundError:
            return None


def default_name(idea: str) -> str:
    """Return a name for a project that was given none: the first words of its idea."""
    words = " ".join(idea.split()[:12])
    printable = "".join(letter if letter.isprintable() else " " for letter in words)
    return " ".join(printable[:_NAME_LENGTH].split()) or "Untitled"


class SessionRecords:
    """The sessions of a store, by project and session id. Opens each once, so that its folders are swept once."""

    def __init__(self, store: SessionStore, handlers: Handlers | None = None) -> None:
        self._store, self._handlers = store, handlers
        self._sessions: dict[tuple[str, str], SessionDocuments] = {}

    def documents(self, project_id: str, session_id: str) -> SessionDocuments:
        """Return the documents of a session, whether it exists or not."""
        key = (project_id, session_id)
        try:
            return self._sessions[key]
        except (KeyError, TypeError):
            session = SessionDocuments(self._store, project_id, session_id)
            session.events = session.new_events(self._handlers)
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
        documents = self.documents(project_id, session_id)
        completes = facts["status"] == "completed" and not _is_completed(documents, phase)
        documents.save_checkpoint(phase, facts, agents)
        _snapshotter(documents).after_save(completed=phase if completes else None)

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
        documents = self.documents(project_id, session_id)
        documents.save_output(phase, agent, facts, text)
        _snapshotter(documents).after_save()

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
        documents = self.documents(project_id, session_id)
        documents.save_feedback(phase, facts)
        _snapshotter(documents).after_save(approved=phase if action == "approved" else None)

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


def _is_completed(documents: SessionDocuments, phase: int) -> bool:
    """Return whether a phase is on record as completed; one that cannot be read is not."""
    try:
        view = documents.read()
        checkpoint = view.checkpoint(view.require_phase(phase))
    except (HaythamError, OSError):  # told by the save
        return False
    return checkpoint is not None and checkpoint.value.status == "completed"


def _snapshotter(documents: SessionDocuments) -> AutoSnapshotter:
    return AutoSnapshotter(History(documents, events=documents.events, may_run_code=_may_run_code(documents)))


def _may_run_code(documents: SessionDocuments) -> bool:
    """Return whether history in a place of its own may be opened; whoever takes a snapshot tells what is wrong."""
    try:
        policy = documents.read().settings.policy
        if policy.storage_path is None and policy.storage_type in OURS:
            return False
        from haytham.app import trust  # noqa: PLC0415 - brings what few programs use

        return trust.may_run_code(documents)
    except (HaythamError, OSError):
        return False


def _strings(what: str, values: Any) -> list[str]:
    """Return a list of strings; one string is not taken for a list of letters."""
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise InvalidArgument(what, values, "a list of strings")
    return list(values)


def _action(approved: bool, changes: list[str]) -> str:  # noqa: FBT001 - a value, not a switch
    if approved:
        return "approved"
    return "retry_with_changes" if changes else "pending"
