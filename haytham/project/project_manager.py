"""The project manager: ideas of users, and the sessions that work on them. Found by their folders, never by a list."""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.config.workflow import shipped_workflow
from haytham.errors import HaythamError, InvalidArgument, NotFound, WriteConflict
from haytham.history.catalog import HistoryStore
from haytham.markdown.check import require_text
from haytham.session import Session, paths
from haytham.session.documents import DocumentRepository
from haytham.session.git import write_attributes
from haytham.session.paths import check_id, slug
from haytham.session.plan import summarize
from haytham.session.view import check_location
from haytham.storage.base import ABSENT, bytes_digest
from haytham.storage.files import FileStore

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from haytham.session.documents import StoredDocument

log = logging.getLogger(__name__)

_DEFAULT_WORKFLOW = "idea_validation"
_NAME_LENGTH = 60


class ProjectManager:
    """Creates projects, starts and completes their sessions, and tells what there is."""

    def __init__(self, base_dir: str | os.PathLike[str] = "projects") -> None:
        self._store = FileStore(base_dir)
        self.base_dir = Path(base_dir).absolute()
        self._shelf = DocumentRepository(self._store)

    def create_project(
        self, user_id: str, startup_idea: str, project_name: str | None = None, execution_mode: str = "mvp"
    ) -> dict[str, Any]:
        """Make a project for an idea; its id is a slug of its name, else one that sorts by time."""
        check_id("user id", user_id)
        require_text("startup idea", startup_idea)
        shipped_workflow(_DEFAULT_WORKFLOW).workflow.mode_phases(execution_mode)
        moment = clock.now()
        facts = {
            "project_name": default_name(startup_idea) if project_name is None else project_name,
            "user_id": user_id,
            "execution_mode": execution_mode,
            "status": "active",
            "created_at": moment,
            "updated_at": moment,
            "user_preferences": {},
            "startup_idea": startup_idea,
        }
        return self._facts(self._write_new(facts, slug(require_text("project name", project_name or ""))))

    def start_session(self, project_id: str, workflow_type: str = _DEFAULT_WORKFLOW) -> dict[str, Any]:
        """Start a session of a project: its manifest and folders."""
        session = Session(self._store, project_id, clock.new_id())
        source = shipped_workflow(workflow_type)
        with self._store.lock(project_id):  # who deletes the project waits, or was first
            project = self._project(project_id).value
            session.create(user_id=project["user_id"], source=source, mode=project["execution_mode"])
        summary = summarize(session.read())
        names = ("session_id", "project_id", "user_id", "workflow_type", "execution_mode", "created")
        phases = [phase.number for phase in summary.phases]
        path = str(self.base_dir / session.prefix)
        return {
            **{name: summary.manifest[name] for name in names},
            "status": summary.status,
            "phases": phases,
            "path": path,
        }

    def complete_session(
        self, project_id: str, session_id: str, requirements_content: str, metrics: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """End a session with the requirements it came to, as the project's next version; twice is harmless."""
        data = require_text("requirements content", requirements_content).encode()
        _check_plain("metrics", {} if metrics is None else metrics)
        self._project(project_id)
        session = Session(self._store, project_id, session_id)
        with self._store.lock(project_id):
            summary = summarize(session.read())
            manifest = summary.manifest
            if summary.status == "rejected":
                raise InvalidArgument(f"session {session_id}", "rejected", "a session that was not")
            if "closed" not in manifest:
                manifest = self._close(session, data, metrics)
            elif manifest["requirements"] != bytes_digest(data):
                raise InvalidArgument(
                    "requirements content", requirements_content, "what the session was completed with"
                )
        return {
            "session_id": session_id,
            "project_id": project_id,
            "status": "completed",
            "version": manifest["version"],
            "output_path": str(self.base_dir / paths.requirements_key(project_id, manifest["version"])),
            "completed_at": manifest["closed"],
            "metrics": json.loads(manifest.get("metrics", "{}")),
        }

    def list_user_projects(self, user_id: str, status: str | None = None) -> list[dict[str, Any]]:
        """A user's projects; one that cannot be read is named in the log and hides no other."""
        if status not in (None, "active", "archived"):
            raise InvalidArgument("project status", status, "active, archived")
        keys = [key for key in self._store.keys(depth=2) if key.endswith(f"/{paths.PROJECT}")]
        found = [facts for facts in map(self._readable, keys) if facts is not None and facts["user_id"] == user_id]
        return [facts for facts in found if status in (None, facts["status"])]

    def _readable(self, key: str) -> dict[str, Any] | None:
        """A project by the key of its document; None, with a word in the log, where it cannot be read."""
        try:
            return self._facts(self._project(key.rpartition("/")[0]))
        except (HaythamError, OSError) as error:
            log.warning("a project cannot be read: %s: %s", key, error)
            return None

    def get_project_status(self, project_id: str) -> dict[str, Any]:
        """A project with the count of its sessions, all and completed."""
        facts = self._facts(self._project(project_id))
        statuses = [self._session_status(project_id, session_id) for session_id in facts["sessions"]]
        return {**facts, "total_sessions": len(statuses), "completed_sessions": statuses.count("completed")}

    def get_user_preferences(self, project_id: str) -> dict[str, Any]:
        """The preferences kept with a project."""
        return deepcopy(self._project(project_id).value["user_preferences"])

    def update_user_preferences(self, project_id: str, preferences: dict[str, Any]) -> dict[str, Any]:
        """Add preferences to those kept with a project, or change them; all of them as they are then."""
        _check_plain("preferences", preferences)
        self._project(project_id)
        with self._store.lock(project_id):
            document = self._project(project_id)
            kept = {**document.value["user_preferences"], **preferences}
            written = self._rewrite(document, {"user_preferences": kept})
        return deepcopy(written.value["user_preferences"])

    def archive_project(self, project_id: str) -> dict[str, Any]:
        """Put a project aside: nothing of it is lost."""
        self._project(project_id)
        with self._store.lock(project_id):
            return self._facts(self._rewrite(self._project(project_id), {"status": "archived"}))

    def delete_project(self, project_id: str) -> None:
        """Remove a project and all its sessions, for good."""
        key = paths.project_key(check_id("project id", project_id))
        if self._shelf.find("project", key) is None:
            raise NotFound(f"project {project_id!r}", key)
        with ExitStack() as locks:
            locks.enter_context(self._store.lock(project_id))
            for _, session_id in paths.session_folders(self._store.keys(f"{project_id}/", depth=4)):
                locks.enter_context(self._store.lock(paths.session_lock(project_id, session_id)))
            self._delete_histories(project_id)
            self._store.ensure_folder("")
            self._store.delete(f"{project_id}/")
            self._store.cache.delete(f"{project_id}/")

    def _delete_histories(self, project_id: str) -> None:
        """Remove what the project keeps of its past outside of its folder; one that cannot be opened is named."""
        for session_id in self._store.folders(paths.sessions_prefix(project_id)):
            try:
                history = HistoryStore(
                    Session(self._store, project_id, session_id), store=None, may_run_code=False
                ).store
                if history is not self._store:
                    history.delete(f"{project_id}/history/")
            except (HaythamError, OSError) as error:
                log.warning("the history of session %s stays where it rests: %s", session_id, error)

    def _write_new(self, facts: dict[str, Any], wanted: str) -> StoredDocument:
        """Write a project under the first id that is free."""
        self._store.ensure_folder("")
        write_attributes(self._store)
        tries = 0
        while True:
            project_id = f"{wanted}_{tries}" if wanted and tries else wanted or clock.new_id()
            tries += 1
            if self._store.has_folder(f"{project_id}/"):
                continue
            value = {"project_id": project_id, **facts}
            try:
                return self._shelf.write("project", paths.project_key(project_id), value, shown={}, over=None)
            except (WriteConflict, NotADirectoryError) as error:
                log.debug("project id %s was taken in between: %s", project_id, error)

    def _rewrite(self, document: StoredDocument, changes: dict[str, Any]) -> StoredDocument:
        value = {**document.value, **changes, "updated_at": clock.now()}
        self._store.ensure_folder(f"{value['project_id']}/")
        return self._shelf.write("project", document.key, value, shown={}, over=document)

    def _project(self, project_id: str) -> StoredDocument:
        key = paths.project_key(check_id("project id", project_id))
        found = self._shelf.read("project", key, f"project {project_id!r}")
        check_location(found, "project_id", project_id)
        return found

    def _facts(self, document: StoredDocument) -> dict[str, Any]:
        project_id = document.value["project_id"]
        sessions = self._store.keys(paths.sessions_prefix(project_id), depth=2)
        versions = self._versions(project_id)
        return {
            **deepcopy(document.value),
            "sessions": [key.split("/")[-2] for key in sessions if key.endswith(f"/{paths.MANIFEST}")],
            "current_version": max(versions, default=0),
        }

    def _versions(self, project_id: str) -> list[int]:
        keys = self._store.keys(paths.outputs_prefix(project_id), depth=1)
        return [version for version in map(paths.requirements_version, keys) if version is not None]

    def _session_status(self, project_id: str, session_id: str) -> str:
        try:
            return Session(self._store, project_id, session_id).read_consistently(summarize).status
        except (HaythamError, OSError) as error:
            log.warning("session %s of project %s cannot be read: %s", session_id, project_id, error)
            return "unreadable"

    def _close(self, session: Session, data: bytes, metrics: dict[str, Any] | None) -> Mapping[str, Any]:
        """Claim a version, write the requirements, close: after a crash the same call goes on from there."""
        manifest = session.read().manifest.value
        digest, version = bytes_digest(data), int(manifest.get("version", 0))
        if manifest.get("requirements") != digest or not self._may_hold(session.project_id, version, digest):
            version = max(self._versions(session.project_id), default=0) + 1
            session.update_manifest({"version": version, "requirements": digest})
        self._store.ensure_folder(paths.outputs_prefix(session.project_id))
        if self._requirements_digest(session.project_id, version) is None:
            self._store.write(paths.requirements_key(session.project_id, version), data, expect=ABSENT)
        given = {} if metrics is None else {"metrics": json.dumps(metrics)}
        return session.update_manifest({"closed": clock.now(), **given})

    def _may_hold(self, project_id: str, version: int, digest: str) -> bool:
        """Whether a version is free for these requirements, or holds them already."""
        return version > 0 and self._requirements_digest(project_id, version) in (None, digest)

    def _requirements_digest(self, project_id: str, version: int) -> str | None:
        try:
            return bytes_digest(self._store.read(paths.requirements_key(project_id, version)))
        except FileNotFoundError:
            return None


def default_name(idea: str) -> str:
    """A name for a project that was given none: the first words of its idea."""
    words = " ".join(idea.split()[:12])
    printable = "".join(letter if letter.isprintable() else " " for letter in words)
    return " ".join(printable[:_NAME_LENGTH].split()) or "Untitled"


def _check_plain(what: str, values: Any) -> None:
    """Refuse what is not a dict of plain values, which come back from a file as they went in."""
    try:
        plain = isinstance(values, dict) and json.loads(json.dumps(values, allow_nan=False)) == values
    except (TypeError, ValueError, RecursionError):
        plain = False
    if not plain:
        raise InvalidArgument(
            what, values, "a dict of text, finite numbers, true, false, None, lists and dicts of them"
        )
