"""A workspace: a folder of projects. Starts sessions, finds them by a part of their id, and lists them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.agents.registry import require_agents
from haytham.app import labels, trust, workflows
from haytham.app.agents import AgentList, list_agents
from haytham.app.graph import WorkflowGraph
from haytham.app.handlers import INSTALLED
from haytham.app.history import is_in_session
from haytham.app.memory import open_notebook
from haytham.app.projects import Projects, default_name
from haytham.app.repair import validate_path
from haytham.app.results import SessionListing, SettingsReport
from haytham.app.running import run_here
from haytham.app.session import Session
from haytham.app.settings import (
    REPLAY,
    RunSettings,
    check_settings,
    current_user,
    is_traced,
    list_settings,
    local_identity,
)
from haytham.app.statistics import collect_statistics
from haytham.app.status import cost_report
from haytham.app.work import Worker, WorkResult
from haytham.app.workflows import BUILT_IN, BUILT_IN_TEMPLATE, USUAL_MODE, choose_mode, resolve_workflow
from haytham.config.workflow import shipped_workflow
from haytham.errors import (
    HaythamError,
    InvalidArgument,
    InvalidDocument,
    InvalidIdea,
    InvalidProject,
    InvalidRequest,
    NoSession,
    NotFound,
    SessionNotFound,
    SnapshotNotFound,
    conflict_problems,
)
from haytham.events import EventSource
from haytham.handlers import Handlers
from haytham.history.history import AllHistories
from haytham.otel import instrument
from haytham.session import paths
from haytham.session.repair import STARTED
from haytham.session.session import SessionDocuments
from haytham.session.settings import read_settings
from haytham.session.summary import summarize
from haytham.session.validate import history_folders, is_history, validate_tree
from haytham.storage.base import bytes_digest
from haytham.storage.files import FileStore
from haytham.text import conflict_lines, text_digest

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from haytham.app.results import CostReport
    from haytham.app.statistics import Statistics
    from haytham.app.workflows import WorkflowSource
    from haytham.config.workflow import WorkflowFiles
    from haytham.history.snapshot import Snapshot
    from haytham.memory.notebook import Notebook
    from haytham.session.validate import ValidationReport
    from haytham.storage.base import SessionStore

log = logging.getLogger(__name__)

UNFINISHED = ("in_progress", "waiting", "paused", "failed")
Listings = list[SessionListing]  # `list` is a method of Workspace
Pairs = list[tuple[str, str]]
Names = list[str]


class Workspace(EventSource):
    """A folder of projects, or another store of them.

    `trust_code` lets workflows of the workspace run code on this machine, whatever the trust list says.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] = "projects",
        *,
        trust_code: bool = False,
        store: SessionStore | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.store: SessionStore = FileStore(folder) if store is None else store
        self._trust_code = trust_code
        self.handlers = Handlers(INSTALLED)
        if is_traced():
            instrument(self)

    def __repr__(self) -> str:
        return f"Workspace({str(self.folder)!r})"

    @property
    def projects(self) -> Projects:
        """Return the projects of the workspace."""
        return Projects(self.store)

    def memory(self, user: str | None = None) -> Notebook:
        """Return the notes of a user, else of who is acting: in the store that the environment names, or in files."""
        return open_notebook(self.store, current_user(user))

    # Starting.

    def start(  # noqa: PLR0913 - what a session is started with
        self,
        idea: str | None = None,
        *,
        workflow: WorkflowSource | None = None,
        mode: str | None = None,
        name: str | None = None,
        project: str | None = None,
        user: str | None = None,
        model: str | None = None,
        max_cost: float | None = None,
        max_tokens: int | None = None,
        record: str | os.PathLike[str] | None = None,
        settings: RunSettings | None = None,
    ) -> Session:
        """Start a session of a new project, or of `project`, whose idea need not be given again.

        Everything is checked before anything is written. Whoever names a workflow or a model trusts its code.
        `settings` replaces model, limits and recording.
        """
        if settings is None:
            settings = RunSettings.of(model=model, max_cost=max_cost, max_tokens=max_tokens, record=record)
        source = resolve_workflow(workflow)
        subject = source.workflow.wording.subject
        _check_idea(idea, project, subject)
        owner, usual = current_user(user), read_settings(self.store)
        if settings.model is None:
            check_settings(usual)
        if workflow is not None:
            workflows.check(source, replayed=(settings.model or usual.model or "").startswith(REPLAY))
        chosen = choose_mode(source, mode)
        if project is not None:
            project_id = self._known_project(idea, project, subject)
        else:
            project_id = self._new_project(idea or "", owner, mode=mode, name=name)
        documents = self.documents(project_id, clock.new_id())
        session = Session(self, documents, source if source.callables else None)
        documents.create(user_id=owner, source=source, mode=chosen, model=settings.model)
        identity = {"identity": local_identity()} if user else {}
        with documents.events.held():  # until hooks are trusted
            _emit_start(documents, source, settings, user=owner, mode=chosen, identity=identity)
            if identity:
                documents.update_manifest(identity)
            settings.store(documents)
            if (workflow is not None and not source.callables) or settings.model:
                trust.trust(documents)
        return session

    @staticmethod
    def subject(source: WorkflowSource | Session | None = None) -> str:
        """Return the word of a workflow, or of a session's, for what a session is about."""
        if isinstance(source, Session):
            return source.documents.read().workflow.wording.subject
        return resolve_workflow(source).workflow.wording.subject

    def _new_project(self, idea: str, user: str, *, mode: str | None, name: str | None) -> str:
        """Create a project; return its id."""
        known_mode = mode if mode in shipped_workflow(BUILT_IN).workflow.modes else USUAL_MODE
        project = self.projects.create(user, idea, name or default_name(idea), known_mode or USUAL_MODE)
        return str(project["project_id"])

    def _known_project(self, idea: str | None, project: str, subject: str) -> str:
        try:
            facts = self.projects.status(project)
        except NotFound:
            raise InvalidProject(project, exists=False) from None
        if idea is not None and facts["startup_idea"].strip() != idea.strip():
            raise InvalidProject(project, exists=True, subject=subject)
        return str(facts["project_id"])

    # Finding.

    def documents(self, project_id: str, session_id: str) -> SessionDocuments:
        """Return the documents of a session by its ids, whether it exists or not."""
        return SessionDocuments(self.store, project_id, session_id)

    def open(self, project_id: str, session_id: str) -> Session:
        """Return a session by its whole ids, whether it exists or not."""
        return Session(self, self.documents(project_id, session_id))

    def session(
        self,
        id: str | None = None,  # noqa: A002 - what it is
        *,
        workflow: WorkflowSource | None = None,
        among: tuple[str, ...] | None = None,
    ) -> Session:
        """Return the session that is meant; SessionNotFound, with those to choose from, if none or several are.

        By its id or display name, or any unique part of `project/session`. Without it: the one saved last; with
        `among`, the only one that exists, else the only one with one of these statuses, but for archived ones.
        `workflow` passes callables of a workflow built in Python;
        if it is not the session's, `run` raises WorkflowChanged.
        """
        session = self._find_session(id, among)
        return session if workflow is None else Session(self, session.documents, resolve_workflow(workflow))

    def _find_session(self, id: str | None, among: tuple[str, ...] | None) -> Session:  # noqa: A002
        pairs = self.folders()
        if not pairs:
            raise NoSession(str(self.folder))
        if id is not None:
            return self._by_name(id, pairs)
        if len(pairs) == 1:
            return self.open(*pairs[0])
        listings = self.list(archived=False) or self.list()
        if among is None:
            last = max(listings, key=lambda listing: (listing.last_updated, listing.session_id))
            return self.open(last.project_id, last.session_id)
        read_settings(self.store)  # what is wrong for all of them is told, not that none can be read
        matching = [listing for listing in listings if listing.status in among]
        if len(matching) != 1:
            raise SessionNotFound(None, _candidates(matching or listings))
        return self.open(matching[0].project_id, matching[0].session_id)

    def _by_name(self, name: str, pairs: Pairs) -> Session:
        exact = [pair for pair in pairs if name in (pair[1], "/".join(pair))]
        matching = exact or labels.find_by_name(self, name, pairs) or [pair for pair in pairs if name in "/".join(pair)]
        if len(matching) == 1:
            return self.open(*matching[0])
        listings = [self._listing(*pair) for pair in matching or pairs]
        raise SessionNotFound(name, _candidates(listings), matches=len(matching))

    def list(  # noqa: PLR0913 - what a listing can be narrowed by
        self,
        *,
        status: str | None = None,
        user: str | None = None,
        project: str | None = None,
        archived: bool | None = None,
        waiting: bool = False,
        waiting_for: str | None = None,
    ) -> Listings:
        """Return all sessions, or those that the filters name; one that cannot be read hides no other.

        With `waiting` those in which a page waits to be reviewed or written, with `waiting_for` by that user.
        """
        listings = [self._listing(*pair) for pair in self.folders() if project in (None, pair[0])]
        listings = [listing for listing in listings if archived in (None, listing.is_archived)]
        if waiting or waiting_for is not None:
            listings = [listing for listing in listings if _waits(listing, waiting_for)]
        return [listing for listing in listings if status in (None, listing.status) and user in (None, listing.user)]

    def _listing(self, project_id: str, session_id: str) -> SessionListing:
        try:
            summary = self.documents(project_id, session_id).read_consistently(summarize)
        except (HaythamError, OSError) as error:
            return SessionListing(project_id, session_id, None, error)
        return SessionListing(project_id, session_id, summary, summary.error)

    def folders(self, part: str | None = None) -> Pairs:
        """Return project and session of every session folder, with or without a manifest, that has `part` in its id."""
        pairs = [(project, inner) for project in self.store.folders() for inner in self._session_folders(project)]
        return [pair for pair in pairs if (part is None or part in "/".join(pair)) and self._has_documents(*pair)]

    def _session_folders(self, project_id: str) -> Names:
        """Return the folders of a project's sessions; a folder whose name no project can have has none."""
        try:
            return self.store.folders(paths.sessions_prefix(project_id))
        except InvalidArgument:
            return []

    def _has_documents(self, project_id: str, session_id: str) -> bool:
        """Return whether a folder holds anything of a session; one that is just being created does not.

        One whose name no session can have counts, so that it is reported.
        """
        prefix = paths.session_prefix(project_id, session_id)
        try:
            if self.store.is_regular(prefix + paths.MANIFEST):
                return True
            histories = history_folders(self.store)
            return any(not is_history(key, histories) for key in self.store.keys(prefix, depth=2))
        except InvalidArgument:
            return True

    def snapshot(
        self, which: str, session: str | None = None, *, among: tuple[str, ...] | None = None
    ) -> tuple[Session, Snapshot]:
        """Return a snapshot and its session.

        By a part of its id that no other snapshot has; by its number in the session that is named, else in the one
        that `session` finds without a name.
        """
        by_session = session is not None or is_in_session(which)
        holder = self.session(session, among=among) if by_session else self._session_of(which)
        return holder, holder.history.find(which)

    def _session_of(self, which: str) -> Session:
        """Return the session that has the only snapshot with this part in its id."""
        if not which.strip():
            raise InvalidRequest("say which snapshot is meant, by its number or any unique part of its id")
        matching = [(session, name) for session, name in self._snapshot_ids() if which in name]
        matching = [pair for pair in matching if pair[1] == which] or matching
        if len(matching) == 1:
            return matching[0][0]
        if not matching:
            raise SnapshotNotFound(which)
        listing = "\n".join(f"  {session.id}  {name}" for session, name in matching)
        raise InvalidRequest(
            f"{len(matching)} snapshots match {which!r}; name one of these by a unique part of its id:\n{listing}"
        )

    def _snapshot_ids(self) -> Iterator[tuple[Session, str]]:
        """Yield the ids of all snapshots; a history that cannot be opened is logged and hides no other."""
        for pair in self.folders():
            try:
                session = self.open(*pair)
                names = session.history.ids()
            except (HaythamError, OSError) as error:
                log.warning("%s", error)
                continue
            yield from ((session, name) for name in names)

    def work(self, *, once: bool = False, **options: Any) -> tuple[WorkResult, ...]:
        """Run any trusted session that can go on, one after the other; with `once`, until no session can.

        Takes the options of `work_async`. Several processes divide the sessions: two never run one at once.
        """
        return run_here(lambda: self.work_async(once=once, **options), instead="workspace.work_async()")

    async def work_async(
        self,
        *,
        once: bool = False,
        by: str | None = None,
        on_start: Callable[[Session], object] | None = None,
        on_result: Callable[[WorkResult], object] | None = None,
    ) -> tuple[WorkResult, ...]:
        """Do what `work` does, in a running loop; `on_start` and `on_result` are told of each session.

        Without `once` it goes on until it is cancelled, and looks for changes about once a second.
        """
        read_settings(self.store)  # else each session would be one that cannot be read
        return await Worker(self, by=by, on_start=on_start, on_result=on_result).work(once=once)

    def is_trusted(self, documents: SessionDocuments) -> bool:
        """Return whether a session needs no trust to run, or has it."""
        return self._trust_code or trust.is_trusted(documents)

    # All sessions.

    def history(self) -> AllHistories:
        """Return the snapshots of all sessions."""
        return AllHistories(self.store, may_run_code=self.may_run_code, documents=self._listening)

    def _listening(self, project_id: str, session_id: str) -> SessionDocuments:
        """Return the documents of a session, whose events go to its handlers."""
        return self.open(project_id, session_id).documents

    def settings(self, key: str | None = None, *, session: str | None = None) -> SettingsReport:
        """Return what is set, and where: all, a group or one; for a session, by default the one saved last.

        Without any session, what holds for the next one. InvalidArgument for a setting that there is not.
        """
        if session is None and not self.folders():
            return SettingsReport(None, None, list_settings(read_settings(self.store), key))
        documents = self.session(session).documents
        found = list_settings(documents.read().settings, key)
        return SettingsReport(documents.project_id, documents.session_id, found)

    def costs(self) -> tuple[tuple[CostReport, ...], tuple[HaythamError | OSError, ...]]:
        """Return what each session has spent, and what is wrong with those that cannot be read."""
        reports, faults = [], []
        for pair in self.folders():
            try:
                reports.append(cost_report(self.documents(*pair)))
            except (HaythamError, OSError) as error:
                faults.append(error)
        return tuple(reports), tuple(faults)

    def statistics(self, which: str | None = None) -> Statistics:
        """Return the figures of all sessions, of those of a project, or of the session that `session` finds."""
        pairs = self.folders()
        if which is None or which in self.store.folders():
            sessions = [self.open(*pair) for pair in pairs if which in (None, pair[0])]
        else:
            sessions = [self.session(which)]
        return collect_statistics(self.store, sessions)

    def agents(self, workflow: WorkflowSource | None = None, *, model: str | None = None) -> AgentList:
        """Return the agents of a workflow, and which model would answer for each in a new session."""
        source = resolve_workflow(workflow)
        require_agents(source)
        usual = read_settings(self.store).model if model is None else model
        agents = list_agents(source.workflow.phases, source, usual, trusted=True)
        return AgentList(source.workflow.name, source.origin, agents)

    def validate(self) -> ValidationReport:
        """Return all problems of all documents of the workspace."""
        return validate_tree(self.store)

    @staticmethod
    def validate_path(path: Path, readable: Callable[[Path, str], str]) -> ValidationReport:
        """Return all problems of what a path names: a document, a session, a project, a workspace or a workflow.

        `readable` makes a path for people of a workspace and a key in it.
        """
        return validate_path(path, readable)

    @staticmethod
    def graph(source: WorkflowSource | Session | None = None) -> WorkflowGraph:
        """Return the phases of a workflow, or of a session's, and what each needs."""
        if not isinstance(source, Session):
            return WorkflowGraph(resolve_workflow(source).workflow)
        view, statuses = source.documents.read(), source.status().phases
        return WorkflowGraph(
            view.workflow, view.manifest.value.execution_mode, {status.number: status for status in statuses}
        )

    @staticmethod
    def copy_workflow(
        folder: Path, *, template: str = BUILT_IN_TEMPLATE, reviewers: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Copy a shipped workflow to a new or empty folder, for a person to edit; return the names of its files.

        Some phases of `rfc` are for `reviewers` to decide on; for whoever copies it if none is named.
        """
        return workflows.copy_template(folder, template, reviewers)

    def change_token(self) -> str:
        """Return a token that is different whenever a document of a session or project may have changed."""
        return self.token_below("")

    def token_below(self, prefix: str) -> str:
        """Return a token of all documents below a folder; only those that changed a moment ago are read for it.

        It may differ once more, a moment after a change, without another change.
        """
        tokens = sorted(self.store.versions(prefix).items())
        return text_digest("\n".join(f"{key}\t{token or self._digest(key)}" for key, token in tokens))

    def _digest(self, key: str) -> str:
        try:
            return bytes_digest(self.store.read(key))
        except (HaythamError, OSError):
            return "unreadable"

    def may_run_code(self, documents: SessionDocuments, *, strict: bool = False) -> bool:
        """Return whether a session's workflow and model may run code, and let modules lie in the working folder then.

        One that cannot be read may not; if `strict`, that is an error.
        """
        try:
            trusted = self._trust_code or trust.may_run_code(documents)
        except (HaythamError, OSError):
            if strict:
                raise
            return False
        if trusted:
            trust.add_cwd_to_path()
        return trusted


def _check_idea(idea: str | None, project: str | None, subject: str) -> None:
    if idea is None and project is None:
        raise InvalidIdea(empty=False, subject=subject)
    if idea is not None and not idea.strip():
        raise InvalidIdea(empty=True, subject=subject)
    if idea is not None and conflict_lines(idea):
        raise InvalidDocument(conflict_problems(conflict_lines(idea), file=f"the {subject}"))


def _emit_start(documents: SessionDocuments, source: WorkflowFiles, settings: RunSettings, **facts: Any) -> None:
    """Record, as an event, what the manifest is the home of: it can be rebuilt from that."""
    identity = facts.pop("identity")
    facts |= {"workflow": source.digest, "origin": source.origin, "model": settings.model}
    facts |= {**settings.limits, **settings.recording, **identity}
    documents.events.emit(STARTED, **facts)


def _candidates(listings: Listings) -> list[tuple[str, str]]:
    return [(listing.id, listing.status) for listing in listings]


def _waits(listing: SessionListing, user: str | None) -> bool:
    """Return whether a page of a session waits for a person, or for one user."""
    step = listing.next
    return step is not None and step.is_for_person and (user is None or user in step.users)
