"""One session in a store: create it, read it, save its documents.

Each save is one transaction (`changes`) under the session's write lock.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from haytham import clock
from haytham.agents.registry import require_agents
from haytham.errors import HaythamError, InvalidArgument, InvalidDocument, NotFound
from haytham.events import Events
from haytham.session import derived, paths
from haytham.session.changes import ReadTracker, Transaction
from haytham.session.derived import (
    Summary,
    derived_feedback,
    derived_manifest,
    has_conditions,
    parse_decision,
    reviewer_problem,
)
from haytham.session.documents import DocumentRepository
from haytham.session.listing import measure_bytes
from haytham.session.models import SessionManifest, UserFeedback
from haytham.session.pages import complete_phase
from haytham.session.paths import check_agent_name, check_agents, check_id, check_project_name
from haytham.session.plan import SessionPlan, approval_problem
from haytham.session.quarantine import orphaned_files, quarantine
from haytham.session.state import change_state, read_state
from haytham.session.summary import summarize, summarize_plan
from haytham.session.swap import complete_pending, has_pending
from haytham.session.view import SessionView
from haytham.validation import require_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from haytham.agents.base import Task
    from haytham.config.workflow import Phase, WorkflowFiles
    from haytham.handlers import Handlers
    from haytham.session.derived import Decision, Value
    from haytham.storage.base import SessionStore

log = logging.getLogger(__name__)

T = TypeVar("T")
_TRIES = 8
_DERIVED_INTERVAL = 1.0  # seconds between two renderings of the manifest during a run
_GIT_ATTRIBUTES = b"""\
# Written once by haytham; yours to edit.
*.jsonl merge=union
session_manifest.md merge=union
**/history/snapshots/** -text
**/history/blobs/** binary
"""


class SessionDocuments:
    """One session in a store. Each call reads the files as they are then."""

    def __init__(self, store: SessionStore, project_id: str, session_id: str) -> None:
        self.project_id = check_id("project id", project_id)
        self.session_id = check_id("session id", session_id)
        self.prefix = paths.session_prefix(project_id, session_id)
        self.store = store
        self.events = self.new_events()
        self.is_manifest_behind = False
        self.flags: frozenset[str] = frozenset()  # settings that a flag of this process stored in the manifest
        self._documents = DocumentRepository(store)
        self._is_swept = False
        self._run: _RunState | None = None

    def new_events(self, handlers: Handlers | None = None) -> Events:
        """Return events that go to the session's file and to handlers."""
        key = self.prefix + paths.EVENTS
        return Events(self.store, key, project=self.project_id, session=self.session_id, handlers=handlers)

    # Creating and finding.

    def create(
        self, *, user_id: str, source: WorkflowFiles, mode: str, model: str | None = None, rebuild: bool = False
    ) -> None:
        """Create the session, its folders first and its manifest last; the same call again changes nothing."""
        check_id("user id", user_id)
        check_project_name("project id", self.project_id)
        phases = source.workflow.mode_phases(mode)
        facts = {"user_id": user_id, "workflow_type": source.workflow.name, "execution_mode": mode}
        if not self.exists():  # before the session's lock: the project's is always taken first
            write_attributes(self.store)
            self._copy_workflow(source)
        with self._locked():
            manifest = self._documents.find(SessionManifest, self.prefix + paths.MANIFEST)
            if manifest is None:
                if not rebuild:
                    self._refuse_leftovers()
                self._prepare(phases)
                chosen = {} if model is None else {"model": model}
                self._write_first_manifest(source, phases, {**facts, **chosen})
            else:
                self._check_same(manifest.value, facts)
                self._prepare(self.read().phases)

    def make_folders(self) -> list[str]:
        """Create the folders of phases that are missing, since git keeps no empty ones; return their names."""
        view = self.read()
        folders = [view.phase_prefix(phase) for phase in view.phases]
        present = {f"{self.prefix}{name}/" for name in self.store.folders(self.prefix)}
        absent = [folder for folder in folders if folder not in present and not self.store.is_regular(folder[:-1])]
        if absent:
            with self._locked():
                for folder in absent:
                    self.store.ensure_folder(folder)
        return [folder.removeprefix(self.prefix) for folder in absent]

    def exists(self) -> bool:
        """Return whether the session has a manifest."""
        return self._documents.find(SessionManifest, self.prefix + paths.MANIFEST) is not None

    @property
    def is_in_place(self) -> bool:
        """Return whether the session's folder is where its ids say."""
        place = paths.session_prefix(self.project_id, self.session_id)
        return self.prefix == place and self.store.has_folder(place)

    def follow(self) -> bool:
        """Find the session's folder by its id if it was renamed, and use that; return whether there is one."""
        if self.store.is_regular(self.prefix + paths.MANIFEST):
            return True
        self.prefix = find_renamed(self._documents, self.project_id, self.session_id) or self.prefix
        return self.store.has_folder(self.prefix)

    # Reading.

    def read(self) -> SessionView:
        """Return the session as its files are now; FileNotFoundError or InvalidDocument if they do not say."""
        self.complete_pending_restore()
        return self.view(self._documents)

    def view(self, documents: DocumentRepository) -> SessionView:
        """Return a view of the session over a repository of documents."""
        view = SessionView(documents, self.project_id, self.session_id, self.prefix)
        view.flags = self.flags
        return view

    def read_consistently(self, compute: Callable[[SessionView], T]) -> T:
        """Return what `compute` makes of documents that all existed at one moment.

        They are read again if one has changed meanwhile; after some tries the write lock keeps writers away.
        """
        for _ in range(_TRIES):
            self.complete_pending_restore()
            tracker = ReadTracker(self.store)
            try:
                result = compute(self.view(DocumentRepository(cast("SessionStore", tracker))))
            except (HaythamError, OSError):
                if not tracker.has_changed():
                    raise
                continue
            if not tracker.has_changed() and not has_pending(self.store, self.prefix):
                return result
        with self._locked():
            return compute(self.read())

    def state(self) -> dict[str, Any]:
        """Return the values that the caller keeps with the session."""
        return read_state(self.read())

    # Saving.

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Collect changes under the write lock, commit them at the end, then call the handlers of their events."""
        with self._locked():
            self.complete_pending_restore()
            changes = Transaction(self, derive=self._run is None or self._run.is_due())
            self._sweep_once(changes.view)
            yield changes
            changes.commit()
        changes.dispatch()

    def save_checkpoint(self, number: Any, facts: Mapping[str, Any], agents: Any, *, report: bool = True) -> None:
        """Save the status of a phase, and what its agents did as far as their own files do not say.

        What the agents took is reported as spent, unless the caller counts its calls itself.
        """
        rows = derived.parse_rows(agents)
        with self.transaction() as changes:
            changes.save_checkpoint(changes.view.require_phase(number), facts, rows, report=report)

    def save_output(self, number: Any, agent_name: str, facts: Mapping[str, Any], text: str) -> None:
        """Save an agent's text, byte for byte, and how it was made."""
        check_agent_name(agent_name)
        require_text("output content", text)
        with self.transaction() as changes:
            changes.save_output(changes.view.require_phase(number), agent_name, facts, text)

    def save_task(self, number: Any, task: Task) -> None:
        """Save what an agent is asked, to the letter."""
        with self.transaction() as changes:
            changes.save_task(changes.view.require_phase(number), task)

    def save_feedback(self, number: Any, facts: Mapping[str, Any]) -> None:
        """Save a person's review of a phase, bound to the present texts.

        A decision that a rule refuses, or on a text with a git conflict, is stored unbound; the next command says so.
        """
        with self.transaction() as changes:
            view = changes.view
            phase = view.require_phase(number)
            is_bound = not view.has_conflicts(phase)
            rows = [row.to_value() for row in view.reviewed_content(phase)] if is_bound else []
            place = {"phase_number": phase.number, "attempt": view.attempt(phase)}
            value = {**place, **facts, "reviewed_content": rows}
            check_agents(phase, facts.get("agents", ()))
            self._documents.check("user_feedback", value)
            feedback = UserFeedback.from_value(value)
            decision = parse_decision(feedback)
            if decision is not None and is_bound and not _is_refused(view, phase, decision):
                feedback = replace(feedback, bound_decision=decision)
            key, previous = view.phase_prefix(phase) + paths.FEEDBACK, view.feedback(phase)
            if decision in ("approved", "changes") and is_bound:
                complete_phase(changes, phase)
            changes.write(UserFeedback, key, feedback, derived_values=derived_feedback(phase), previous=previous)

    def update_manifest(self, facts: Mapping[str, Any]) -> SessionManifest:
        """Change facts that the manifest is the home of; return all of them."""
        with self.transaction() as changes:
            changes.change_manifest(facts)
        return self.read().manifest.value

    def update_state(self, patch: Mapping[str, Any]) -> dict[str, Any]:
        """Merge a patch into the caller's values, by the rules of JSON merge patch; return all of them."""
        with self.transaction() as changes:
            return change_state(changes, patch)

    def switch_workflow(self, source: WorkflowFiles) -> list[str]:
        """Go on with another workflow; documents of phases and agents that it does not have are set aside."""
        self._copy_workflow(source)
        with self.transaction() as changes:
            view = changes.view
            phases = source.workflow.mode_phases(view.manifest.value.execution_mode)
            moved = quarantine(changes, orphaned_files(view, phases, self.store.keys(self.prefix)))
            self._prepare(phases)
            own = view.manifest.value
            value = replace(own, workflow=source.digest, phases=source.workflow.digest, origin=source.origin)
            derived_values = derived_manifest(Summary(value, phases, {}, {}))
            changes.write(
                SessionManifest, view.manifest.key, value, derived_values=derived_values, previous=view.manifest
            )
            changes.keep_manifest()
        self.regenerate_derived()
        return moved

    # Derived documents.

    def refresh_derived_if_needed(self) -> None:
        """Render derived parts again if a crash left one behind; write nothing otherwise."""
        view = self.read()
        records = (phase for phase in view.phases if view.checkpoint(phase) is not None)
        if _is_manifest_behind(view) or any(view.checkpoint_problems(phase) for phase in records):
            self.regenerate_derived()

    def regenerate_derived(self) -> list[str]:
        """Render every derived part again; return which were out of date."""
        with self.transaction() as changes:
            done = []
            for phase in changes.view.phases:
                record = changes.view.checkpoint(phase)
                if record is not None and not record.faults and changes.view.checkpoint_problems(phase):
                    changes.write_checkpoint(phase, record.value)
                    done.append(f"drew {record.key.removeprefix(self.prefix)} anew")
            if _is_manifest_behind(changes.view):
                done.append(f"drew {paths.MANIFEST} anew")
            changes.refresh_manifest()
        return done

    def summarize(self, view: SessionView, manifest: SessionManifest | None = None) -> Summary:
        """Return what follows from the documents; in a run, only the phases that its last step changed are read."""
        plan = None if self._run is None else self._run.plan
        if plan is None or plan.next is None or has_conditions(view):
            return summarize(view, manifest)
        return summarize_plan(SessionPlan(view, previous=plan, numbers=plan.changed_by_step()), manifest)

    def use_plan(self, plan: SessionPlan) -> None:
        """Remember the plan of the next step of a run."""
        if self._run is not None:
            self._run.plan = plan

    @contextmanager
    def running(self) -> Iterator[None]:
        """Render the manifest at most once a second until the end, and then once more if it is behind."""
        before, self._run = self._run, _RunState()
        try:
            yield
        finally:
            self._run = before
            self.flush_derived()

    def flush_derived(self) -> None:
        """Render the manifest if saves of a run left it behind."""
        if self.is_manifest_behind and self.is_in_place:
            with suppress(HaythamError, OSError), self.transaction() as changes:
                changes.refresh_manifest()
            self.is_manifest_behind = False

    def next_save_counter(self, view: SessionView) -> int:
        """Return the number of the next save; during a run the checkpoints are read for it only once."""
        if self._run is None:
            return view.save_counter() + 1
        self._run.save_counter = (self._run.save_counter or view.save_counter()) + 1
        return self._run.save_counter

    def remember_output(self, view: SessionView, phase: Phase, agent: str) -> None:
        """Cache what a plan needs of an output that was just written, so that its text is not read for that."""
        key = view.phase_prefix(phase) + paths.output_file(agent)
        token, output = self.store.change_token(key), view.output(phase, agent)
        if token is not None and output is not None:
            facts = view.output_facts(phase).get(agent)
            self._documents.output_facts(key, token, lambda: facts)
            measure_bytes(self.store, key, token, output.data)

    # Internals.

    def complete_pending_restore(self) -> None:
        """Finish what a killed restore or merge left half done; every opening of a session does this."""
        if has_pending(self.store, self.prefix):
            with self._locked():
                for path in complete_pending(self.store, self.prefix):
                    log.warning(
                        "%s%s: was written while a restore lay unfinished, and is kept there", self.prefix, path
                    )

    def _locked(self) -> AbstractContextManager[None]:
        return self.store.lock(paths.session_lock(self.project_id, self.session_id))

    def _sweep_once(self, view: SessionView) -> None:
        """Remove what a crash left in the session's folders, before the first save."""
        if not self._is_swept:
            present = set(self.store.folders(self.prefix))
            self._prepare(phase for phase in view.phases if paths.phase_folder(phase) in present)

    def _prepare(self, phases: Iterable[Phase]) -> None:
        for folder in ("", *(f"{paths.phase_folder(phase)}/" for phase in phases)):
            self.store.ensure_folder(self.prefix + folder)
        self._is_swept = True

    def _copy_workflow(self, source: WorkflowFiles) -> None:
        """Copy the workflow to the project, so that a session goes on with the one it began with."""
        require_agents(source)
        folder = paths.workflow_prefix(self.project_id, source.digest)
        present = self.store.keys(folder)
        absent = [name for name in source.files if folder + name not in present]
        if not absent:
            return
        with self.store.lock(self.project_id):
            for above in sorted({f"{folder}{name}".rpartition("/")[0] for name in absent}):
                self.store.ensure_folder(f"{above}/")
            for name in absent:
                self.store.write(folder + name, source.files[name])

    def _write_first_manifest(self, source: WorkflowFiles, phases: tuple[Phase, ...], facts: Value) -> None:
        value = SessionManifest(
            workflow=source.digest,
            phases=source.workflow.digest,
            origin=source.origin,
            session_id=self.session_id,
            project_id=self.project_id,
            created=clock.now(),
            **facts,
        )
        derived_values = derived_manifest(Summary(value, phases, {}, {}))
        self._documents.write(
            SessionManifest, self.prefix + paths.MANIFEST, value, derived_values=derived_values, previous=None
        )

    def _refuse_leftovers(self) -> None:
        """Refuse to create a session where documents of one lie whose manifest is lost."""
        if self.store.keys(self.prefix):
            key = self.prefix + paths.MANIFEST
            raise NotFound("the manifest of the session that lies here", key, "haytham doctor rebuilds it")

    def _check_same(self, manifest: SessionManifest, facts: Value) -> None:
        for name, value in facts.items():
            if getattr(manifest, name) != value:
                what = f"session {self.session_id!r} is there already with another {name.replace('_', ' ')}"
                raise InvalidArgument(what, value, repr(getattr(manifest, name)))


class _RunState:
    """What a session remembers during a run: when its manifest was rendered last, and its save counter."""

    def __init__(self) -> None:
        self.save_counter: int | None = None
        self.plan: SessionPlan | None = None
        self._rendered_at = clock.monotonic()

    def is_due(self) -> bool:
        """Return whether the manifest may be rendered again; it counts as rendered from now on."""
        if clock.monotonic() - self._rendered_at < _DERIVED_INTERVAL:
            return False
        self._rendered_at = clock.monotonic()
        return True


def _is_manifest_behind(view: SessionView) -> bool:
    return bool(view.manifest.problems) or not view.manifest.shows(derived_manifest(summarize(view)))


def _is_refused(view: SessionView, phase: Phase, decision: Decision) -> bool:
    """Return whether a rule refuses a decision that nobody signed, or a document cannot be read that would tell."""
    if reviewer_problem(phase, decision) is not None:
        return True
    try:
        return approval_problem(SessionPlan(view).phase(phase.number).state, decision) is not None
    except InvalidDocument:
        return True


def write_attributes(store: object) -> None:
    """Write `.gitattributes` of a workspace, if its store is a folder that has none."""
    write_setting = getattr(store, "write_setting", None)
    if write_setting is not None:
        write_setting("gitattributes", _GIT_ATTRIBUTES)


def find_renamed(documents: DocumentRepository, project_id: str, session_id: str) -> str | None:
    """Return the only session folder whose manifest has these ids, whatever its name; None if there is no such one."""
    ids = (project_id, session_id)
    prefixes = [prefix for prefix in _session_prefixes(documents.store) if _ids(documents, prefix) == ids]
    return prefixes[0] if len(prefixes) == 1 else None


def _session_prefixes(store: SessionStore) -> Iterator[str]:
    """Yield the folders of all sessions of all projects, without names that no key can have."""
    for project in store.folders():
        with suppress(InvalidArgument):
            yield from (paths.session_prefix(project, name) for name in store.folders(paths.sessions_prefix(project)))


def _ids(documents: DocumentRepository, prefix: str) -> tuple[str, str] | None:
    """Return the ids of project and session that a manifest says; None if it cannot be read."""
    try:
        manifest = documents.read(SessionManifest, prefix + paths.MANIFEST).value
    except (HaythamError, OSError):
        return None
    return manifest.project_id, manifest.session_id
