"""A session for its callers: run it, decide on its phases, look at it, restore, fork and merge it.

Each call that changes something stores it with its event, and a snapshot if the policy asks for one, and returns a
typed value.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from haytham.app import decisions, forks, labels, repair, review, statistics, status, trust, workflows
from haytham.app.agents import AgentList, list_agents, preview_prompts
from haytham.app.decisions import Answer
from haytham.app.handlers import Hooks
from haytham.app.history import SessionHistory
from haytham.app.log import EventFilter, EventLog
from haytham.app.loop import AgentLoop
from haytham.app.memory import session_memory
from haytham.app.recovery import Recovery
from haytham.app.running import run_here
from haytham.app.settings import RunSettings, check_settings, current_user
from haytham.errors import InvalidRequest, NotAFork
from haytham.events import EventSource
from haytham.handlers import Handlers
from haytham.session.plan import SessionPlan
from haytham.session.summary import summarize
from haytham.session.validate import validate_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from haytham.app.agents import PromptPreview
    from haytham.app.results import (
        AgentFailure,
        CostReport,
        DecisionResult,
        EditorDecisions,
        InputResult,
        MergeResult,
        Output,
        RepairReport,
        RestoreResult,
        ReviewGuard,
        SessionStatus,
    )
    from haytham.app.review import ReviewView, UpcomingWork
    from haytham.app.statistics import SessionStatistics
    from haytham.app.workflows import WorkflowSource, WorkflowUpdate
    from haytham.app.workspace import Workspace
    from haytham.config.workflow import Phase, WorkflowFiles
    from haytham.engine.runner import RunResult
    from haytham.events import Events
    from haytham.history.compare import Comparison
    from haytham.history.fork import DeletionReport
    from haytham.history.history import Which
    from haytham.history.snapshot import Snapshot
    from haytham.memory.session_memory import SessionMemory
    from haytham.session.models import SessionManifest
    from haytham.session.session import SessionDocuments
    from haytham.session.validate import ValidationReport
    from haytham.text_merge import Side

_NO_SETTINGS = RunSettings()


class Session(EventSource):
    """One run through a workflow. Get one from a Workspace; each call reads what is on disk then."""

    def __init__(self, workspace: Workspace, documents: SessionDocuments, source: WorkflowFiles | None = None) -> None:
        self.workspace, self.documents, self._source = workspace, documents, source
        self._hooks = Hooks(documents, lambda: self._own_source is not None or workspace.may_run_code(documents))
        self.handlers = Handlers(workspace.handlers, self._hooks)
        documents.events = documents.new_events(self.handlers)
        self.project_id, self.session_id = documents.project_id, documents.session_id

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    @property
    def id(self) -> str:
        """Return project and session id in one text, as Workspace.session takes them."""
        return f"{self.project_id}/{self.session_id}"

    @property
    def folder(self) -> Path:
        """Return the folder of the session's documents."""
        return self.workspace.folder / self.documents.prefix

    @property
    def history(self) -> SessionHistory:
        """Return the session's snapshots; a store of its workflow's own is opened only if that is trusted."""
        return SessionHistory(self, may_run_code=self.workspace.may_run_code(self.documents))

    @property
    def user(self) -> str:
        """Return the user that started the session."""
        return self.manifest.user_id

    @property
    def name(self) -> str | None:
        """Return the session's display name, if it has one."""
        return self.manifest.display_name

    def set_name(self, name: str | None) -> None:
        """Give the session a display name, which may name it from then on; None takes it away. The id stays."""
        labels.set_name(self, name)

    def archive(self, *, undo: bool = False) -> None:
        """Put the session out of sight: it is chosen only by its id or name. Nothing of it changes."""
        labels.archive(self, undo=undo)

    @property
    def manifest(self) -> SessionManifest:
        """Return what the session's manifest says."""
        return self.documents.read().manifest.value

    @property
    def state(self) -> dict[str, Any]:
        """Return the values that callers store with the session."""
        return self.documents.state()

    def update_state(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Merge changes into those values, by the rules of JSON merge patch; return all of them."""
        return decisions.update_state(self.documents, self.history, changes)

    def acting_user(self, user: str | None = None) -> str:
        """Return who is acting on the session: as given, else by the environment, the manifest or this machine."""
        return current_user(user, self.documents)

    def new_events(self) -> Events:
        """Return events for one run, to give to `run`: handlers added to them are called beside the session's."""
        return self.documents.new_events(Handlers(self.handlers))

    # Running.

    def run(self, **options: Any) -> RunResult:
        """Go on from where the files are until the session is done, failed, or waits for a person.

        Takes the options of `run_async`.
        """
        return run_here(lambda: self.run_async(**options), instead="session.run_async()")

    async def run_async(  # noqa: PLR0913 - who runs what, how, and who is told
        self,
        *,
        by: str | None = None,
        approve_all: bool = False,
        settings: RunSettings = _NO_SETTINGS,
        events: Events | None = None,
        retry: int | None = None,
        anyway: bool = False,
        only_if: str | None = None,
        is_prepared: bool = False,
    ) -> RunResult:
        """Do what `run` does, in a running loop.

        `approve_all` approves every gate in the name of `by`, and the record says so. `settings` are stored first.
        `only_if` is a status: SessionNotReady, and nothing is run, if the session has another one.
        WorkflowChanged if the workflow was edited in its folder; see `prepare`, which `is_prepared` leaves out.
        """
        from haytham.engine.runner import Runner  # noqa: PLC0415 - brings asyncio

        if not is_prepared:
            self.prepare(settings=settings)
        name, memory = current_user(by, self.documents), self._memory
        callables = getattr(self._own_source, "callables", {})
        memory.check()
        runner = Runner(
            self.documents,
            self.new_events() if events is None else events,
            approve_as=name if approve_all else None,
            may_run_code=self.workspace.may_run_code(self.documents, strict=True),
            options=replace(settings.run_options(self.documents), callables=callables, memory=memory),
        )
        return await runner.run(by=name, retry=retry, anyway=anyway, only_if=only_if)

    @property
    def _memory(self) -> SessionMemory:
        """Return the memory of the session's user; a store of its workflow's own is opened only if that is trusted."""
        return session_memory(self.documents, may_run_code=self.workspace.may_run_code(self.documents))

    @property
    def _own_source(self) -> WorkflowFiles | None:
        """Return the workflow that the caller built, if it is the session's."""
        is_own = self._source is not None and self._source.digest == self.manifest.workflow
        return self._source if is_own else None

    def resume(self, snapshot: Which | None = None, input: str | None = None, **options: Any) -> RunResult:  # noqa: A002
        """Go on, from a snapshot if one is given, and with `input` for the next phase that runs.

        Without both, the same as `run`, whose options it takes.
        """
        if snapshot is not None:
            if input is not None:
                self.at(snapshot).require_runnable_phase()
            self.restore(snapshot)
        self.prepare(settings=options.get("settings", _NO_SETTINGS))
        if input is not None:
            self.give_input(input, by=options.get("by"))
        return self.run(**options, is_prepared=True)

    def retry(self, phase: int, *, anyway: bool = False, **options: Any) -> RunResult:
        """Run a phase again, and go on. WorkLeft while a phase that it needs has work left, unless `anyway`."""
        return self.run(retry=phase, anyway=anyway, **options)

    def prepare(
        self,
        *,
        accept_workflow: bool = False,
        keep_workflow: bool = False,
        settings: RunSettings = _NO_SETTINGS,
        trust_code: bool = False,
    ) -> WorkflowUpdate:
        """Store what holds from now on: a changed workflow or the kept one, settings, trust in the session's code."""
        if accept_workflow and keep_workflow:
            raise InvalidRequest("say which workflow counts: --accept-workflow or --keep-workflow, not both")
        with self.documents.events.held():  # hooks may be trusted or replaced by this
            update = workflows.update_session(self.documents, self._source, accept=accept_workflow, keep=keep_workflow)
            settings.save(self.documents)
            check_settings(self.documents.read().settings)
            if trust_code:
                trust.trust(self.documents)
            if trust_code or update.accepted:
                self._hooks.reload()
        return update

    def give_input(self, text: str, *, by: str | None = None) -> InputResult:
        """Store a person's words for the next phase that will run; NoPhaseToRun if there is none."""
        return decisions.give_input(self.documents, self.history, text, by=self.acting_user(by), memory=self._memory)

    def require_runnable_phase(self) -> None:
        """Raise NoPhaseToRun if no phase will run that could be given input."""
        decisions.next_to_run(SessionPlan(self.documents.read()))

    def failures(self, result: RunResult) -> tuple[AgentFailure, ...]:
        """Return what the agents said that failed in a run, by their own files."""
        return status.failures(self.documents, result)

    # Deciding.

    def approve(
        self,
        phase: int | None = None,
        *,
        comment: str = "",
        by: str | None = None,
        anyway: bool = False,
        guard: ReviewGuard | None = None,
    ) -> DecisionResult:
        """Approve a phase as its texts are now; without `phase`, the first that waits.

        StaleNeeds for a phase that needs a stale one, unless `anyway`, which is recorded.
        """
        return self._decide(Answer("approved", comment, anyway=anyway), phase, by, guard)

    def request_changes(  # noqa: PLR0913 - a decision, who made it, and what they said
        self,
        phase: int | None = None,
        *,
        comment: str = "",
        changes: Sequence[str] = (),
        agents: Sequence[str] = (),
        by: str | None = None,
        guard: ReviewGuard | None = None,
    ) -> DecisionResult:
        """Ask for another attempt at a phase: of all its agents, or of those that are named."""
        requested = (changes,) if isinstance(changes, str) else tuple(changes)
        return self._decide(Answer("changes", comment, requested, tuple(agents)), phase, by, guard)

    def reject(
        self,
        phase: int | None = None,
        *,
        comment: str = "",
        by: str | None = None,
        guard: ReviewGuard | None = None,
    ) -> DecisionResult:
        """End the session: the idea does not go on."""
        return self._decide(Answer("rejected", comment), phase, by, guard)

    def skip(
        self,
        phase: int | None = None,
        *,
        comment: str = "",
        by: str | None = None,
        guard: ReviewGuard | None = None,
    ) -> DecisionResult:
        """Skip a phase; without `phase`, the first that is not settled. Later phases see that it was skipped."""
        return self._decide(Answer("skip", comment), phase, by, guard)

    def _decide(self, answer: Answer, phase: int | None, by: str | None, guard: ReviewGuard | None) -> DecisionResult:
        number = guard.phase if phase is None and guard is not None else phase
        about: dict[str, Any] = {"phase": number, "by": self.acting_user(by), "guard": guard, "memory": self._memory}
        return decisions.decide(self.documents, self.history, answer, **about)

    def bind_editor_decisions(self, *, by: str | None = None) -> EditorDecisions:
        """Bind decisions typed into feedback files to the texts, each with its event and snapshot."""
        return decisions.bind_editor_decisions(self.documents, self.history, self.acting_user(by), memory=self._memory)

    def review(self, phase: int | None = None) -> ReviewView:
        """Return a phase as a reviewer sees it; without `phase`, the first that waits."""
        return review.review(self.documents, self.waiting_phase() if phase is None else phase)

    def waiting_phase(self, *, to_write: bool = False) -> int:
        """Return the first phase that waits for review; one with a file that cannot be read comes first.

        With `to_write`, also one with a page that a person has to write.
        """
        return review.waiting_phase(self.documents, to_write=to_write)

    def unwritten_pages(self, phase: int) -> tuple[str, ...]:
        """Return the agents of a phase whose pages a person has yet to write; none if it waits for something else."""
        action = SessionPlan(self.documents.read()).phase(self.phase(phase).number).next_action
        return action.agents if action.action == "write" else ()

    def upcoming_work(self, phase: int) -> UpcomingWork:
        """Return what `run` would do once a phase is approved as it is now: which agents, and what they may cost."""
        return review.upcoming_work(self.documents, phase)

    def edit(self, phase: int, open_editor: Callable[[Path, int], None], *, agent: str | None = None) -> None:
        """Let a person edit the outputs and the feedback of a phase, or one output, until all of it can be read.

        `open_editor` is called with one file at a time, and the line of its content. InvalidDocument if they leave a
        file as it is that cannot be read.
        """
        review.edit(self.documents, self.workspace.folder, phase, open_editor, agent=agent)

    def comment(self, phase: int, text: str) -> None:
        """Store a comment on a phase that waits for review; it goes with the decision, whatever that is."""
        decisions.comment(self.documents, phase, text)

    def undo(self, *, by: str | None = None) -> DecisionResult:
        """Withdraw the last decision of a person; NothingToUndo if there is none, or if something was built on it."""
        return decisions.undo(self.documents, by=self.acting_user(by), memory=self._memory)

    def save_output(self, text: str, *, phase: int, agent: str, expect: str | None = None) -> Output:
        """Replace the text of an output as a person does in an editor.

        `expect` is the digest of the text that the person saw; WriteConflict if the output has another one now.
        """
        decisions.save_output(self.documents, self.history, phase, agent, text, expect=expect)
        return self.output(agent, phase)

    # Looking.

    def status(self) -> SessionStatus:
        """Return the state of the session; a file that cannot be read hides no other."""
        return status.session_status(self.documents)

    def outputs(self, phase: int | None = None) -> tuple[Output, ...]:
        """Return the outputs of the present attempts, of all phases or of one."""
        return status.outputs(self.documents, phase)

    def output(self, agent: str, phase: int | None = None) -> Output:
        """Return an agent's output; AmbiguousOutput if several phases have one and none is named."""
        return status.output(self.documents, agent, phase)

    def texts(self, phase: int, *, attempt: int | None = None, tasks: bool = False) -> dict[str, str]:
        """Return what agents wrote in a phase, or were asked: in the present attempt or an earlier one."""
        return status.texts(self.documents, phase, attempt=attempt, tasks=tasks)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Return the phases of the session's mode."""
        return self.documents.read().phases

    def phase(self, number: int) -> Phase:
        """Return a phase by its number; InvalidArgument if the session has none with it."""
        return self.documents.read().phase(number)

    def attempt(self, phase: int) -> int:
        """Return the number of the present attempt at a phase."""
        view = self.documents.read()
        return view.attempt(view.phase(phase))

    def current_phase(self) -> int:
        """Return the phase that was saved last; the first one before any."""
        view = self.documents.read()
        return summarize(view).current_phase or view.phases[0].number

    def preview_prompts(self, phase: int, agent: str | None = None) -> list[PromptPreview]:
        """Return the exact prompts that the agents of a phase, or one of them, would get now."""
        chosen = self.documents.read().phase(phase)
        if agent is not None and agent not in chosen.agents:
            names = ", ".join(chosen.agents)
            raise InvalidRequest(f"phase {phase}, {chosen.name}, has no agent {agent!r}; name one of {names}")
        agents = chosen.agents if agent is None else (agent,)
        folder = str(self.workspace.folder)
        return preview_prompts(self.documents, phase, agents, folder=folder, recall=self._memory.recall)

    def agents(self) -> AgentList:
        """Return the agents of the session, and which model would answer for each."""
        view = self.documents.read()
        manifest, source = view.manifest.value, view.workflow_files()
        trusted = self.workspace.may_run_code(self.documents, strict=True)
        agents = list_agents(view.phases, source, view.settings.model, trusted=trusted)
        return AgentList(manifest.workflow_type, manifest.origin, agents)

    def cost(self) -> CostReport:
        """Return what the session has spent and may spend."""
        return status.cost_report(self.documents)

    def statistics(self) -> SessionStatistics:
        """Return the figures of the session: snapshots, tokens and cost, time, waits, errors, drift."""
        return statistics.session_statistics(self.documents, self.history)

    def log(self, kinds: Sequence[str] = (), since: str | None = None) -> EventLog:
        """Return the stored events of some names, or of all, since an age ago (`2h`) or a time."""
        return EventLog(self.new_events(), EventFilter.parse(kinds, since))

    def validate(self) -> ValidationReport:
        """Return all problems of all documents of the session."""
        return validate_tree(self.documents.store, self.documents.prefix)

    def change_token(self) -> str:
        """Return a token that is different whenever a document of the session may have changed."""
        return self.workspace.token_below(self.documents.prefix)

    # Snapshots, forks and repair.

    def snapshots(self) -> list[Snapshot]:
        """Return the session's snapshots, newest first."""
        return self.history.list()

    def snapshot(self, label: str | None = None) -> Snapshot:
        """Take a snapshot of the session as it is."""
        return self.history.take("manual", label)

    def at(self, which: Which) -> Session:
        """Return the session as it was in a snapshot, in memory; changes to it are not stored."""
        history = self.history
        documents = repair.documents_at(self.documents, history, history.find(which))
        return Session(self.workspace, documents)

    def restore(self, which: Which) -> RestoreResult:
        """Make the session what it was in a snapshot, all documents or none; the result says how to undo that."""
        history = self.history
        return repair.restore(self.documents, history, history.find(which))

    @property
    def recovery(self) -> Recovery:
        """Return the recovery points of the session: list them, go back to one, delete them."""
        return Recovery(self)

    def loop(self, *, on_refresh: Callable[[Session], object] | None = None) -> AgentLoop:
        """Return a loop of your own around the session: each cycle is counted, and watched for drift."""
        return AgentLoop(self, on_refresh=on_refresh)

    def fork(
        self,
        which: Which | None = None,
        *,
        name: str,
        purpose: str | None = None,
        model: str | None = None,
        workflow: WorkflowSource | None = None,
    ) -> Session:
        """Start a session of its own from a snapshot or the present, on another model or workflow if one is given."""
        return forks.fork(self, which, name=name, purpose=purpose, model=model, workflow=workflow)

    quarantined: tuple[str, ...] = ()  # folders that a fork's own workflow has no phase for

    @property
    def parent(self) -> Session:
        """Return the session that this fork comes from; NotAFork if it is none."""
        if (parent := self.manifest.forked_from) is None:
            raise NotAFork(self.session_id)
        return self.workspace.session(f"{self.project_id}/{parent}")

    @property
    def is_fork(self) -> bool:
        """Return whether the session was forked from another one."""
        return self.manifest.forked_from is not None

    def merge(
        self,
        other: Session | str,
        phases: Sequence[int],
        *,
        prefer: Side | None = None,
        open_editor: Callable[[Path, int], None] | None = None,
        by: str | None = None,
    ) -> MergeResult:
        """Merge the texts of phases of another session of the project into this one; their gates open.

        MergeConflict if both changed the same, unless `prefer` decides or a person does, in the editor.
        """
        source = self.workspace.session(other) if isinstance(other, str) else other
        return forks.merge(self, source, phases, prefer=prefer, open_editor=open_editor, by=by)

    def delete(self, *, dry_run: bool = False) -> DeletionReport:
        """Delete this session with its snapshots, but for those that forks come from; return what that is."""
        return self.history.discard(dry_run=dry_run)

    def diff(self, old: Which | Session, new: Which | Session | None = None) -> Comparison:
        """Return what differs between two snapshots or sessions; without `new`, from `old` to the present."""
        return self.history.compare(old, new)

    def repair(self, *, user: str | None = None, mode: str | None = None, workflow: str | None = None) -> RepairReport:
        """Rebuild what is derived, a lost manifest included; UnknownFact for what no file says and nobody gave."""
        return repair.repair_session(self.documents, self.workspace.folder, user=user, mode=mode, workflow=workflow)
