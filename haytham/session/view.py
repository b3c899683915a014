"""A session as its files say it is: typed access to its documents, and the summary computed of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from haytham.config.workflow import FILE, Workflow, WorkflowFiles, parse_workflow, read_text, shipped_workflow
from haytham.errors import InvalidArgument, InvalidDocument, NotFound, Problem, conflict_problems, short_repr
from haytham.session import paths
from haytham.session.derived import (
    ConflictingDecision,
    ReviewDecision,
    complete_row,
    derived_checkpoint,
    parse_decision,
)
from haytham.session.documents import check_location, time_of
from haytham.session.drift_log import pause_by_drift
from haytham.session.listing import FileListing, file_digest
from haytham.session.models import (
    AgentOutput,
    MergeBase,
    PhaseCheckpoint,
    Project,
    ReviewedRow,
    SessionManifest,
    SessionState,
    TaskRecord,
    UserFeedback,
)
from haytham.session.settings import read_settings
from haytham.session.spend_log import BudgetDenial, SpendLog, SpendSummary
from haytham.text import conflict_lines, text_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from haytham.config.policy import BudgetLimits
    from haytham.config.settings import Settings
    from haytham.config.workflow import Phase
    from haytham.session.derived import Decision
    from haytham.session.documents import D, DocumentRepository, StoredDocument
    from haytham.session.models import Document, OutputHeader


@dataclass(frozen=True)
class ArchivedAttempt:
    """An earlier attempt: its texts as a person left them and as they were presented, and the feedback on them.

    `revised` names the agents whose text a person changed.
    """

    texts: dict[str, str]
    presented: dict[str, str]
    feedback: UserFeedback | None
    revised: frozenset[str]


@dataclass(frozen=True)
class OutputFacts:
    """What a plan needs of an output: its status, the digests of its text and of what the agent wrote, its task."""

    status: str
    text: str
    agent_digest: str
    task: str | None
    executed: str


class SessionView:
    """A session's documents, each read once, on first use; each call makes a new view."""

    def __init__(self, shelf: DocumentRepository, project_id: str, session_id: str, prefix: str) -> None:
        self.prefix, self.flags = prefix, frozenset[str]()
        self._shelf = shelf
        self._found: dict[str, StoredDocument[Any] | None] = {}
        self._heads: dict[str, StoredDocument[OutputHeader] | None] = {}
        self._content: dict[int, dict[str, OutputFacts]] = {}
        self.files = FileListing(shelf.store, prefix)
        self._project = prefix.partition("/")[0]
        what = f"session {session_id!r} of project {project_id!r}"
        self.manifest = shelf.read(SessionManifest, self.prefix + paths.MANIFEST, what)
        check_location(self.manifest, "project_id", project_id)
        check_location(self.manifest, "session_id", session_id)

    @cached_property
    def workflow(self) -> Workflow:
        """Return the workflow of the session: its own copy, else the shipped one if that is identical."""
        key = self._workflow_prefix + FILE
        try:
            workflow = parse_workflow(self._shelf.store.read(key), file=key)
        except FileNotFoundError:
            workflow = self._shipped_copy().workflow
        if workflow.digest != self.manifest.value.phases:
            message = f"{key} does not say what it said when this session was started; undo the change there"
            raise InvalidDocument([self.manifest.problem(message, "phases")])
        return workflow

    def workflow_files(self) -> WorkflowFiles:
        """Return all files of the workflow the session runs on, agents included."""
        keys = self._shelf.store.keys(self._workflow_prefix)
        files = {key.removeprefix(self._workflow_prefix): self._shelf.store.read(key) for key in keys}
        source = WorkflowFiles(self.manifest.value.origin, files) if files else self._shipped_copy()
        if source.digest != self.manifest.value.workflow:
            message = f"{self._workflow_prefix} does not hold what this session was started with; undo the change there"
            raise InvalidDocument([self.manifest.problem(message, "workflow")])
        return source

    def workflow_versions(self) -> dict[str, object | None]:
        """Return the change tokens of the files of the session's own copy of its workflow."""
        return self._shelf.store.versions(self._workflow_prefix)

    def _shipped_copy(self) -> WorkflowFiles:
        shipped = shipped_workflow(self.manifest.value.workflow_type)
        if shipped.digest != self.manifest.value.workflow:
            raise NotFound("the session's copy of its workflow", self._workflow_prefix + FILE)
        return shipped

    @property
    def _workflow_prefix(self) -> str:
        return paths.workflow_prefix(self._project, self.manifest.value.workflow)

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """Return the phases of the session's mode."""
        try:
            return self.workflow.mode_phases(self.manifest.value.execution_mode)
        except InvalidArgument as error:
            raise InvalidDocument([self.manifest.problem(str(error), "execution_mode")]) from None

    def phase(self, number: Any) -> Phase:
        """Return a phase of the mode by its number; InvalidArgument for anything else."""
        match = next((phase for phase in self.phases if type(number) is int and phase.number == number), None)
        if match is None:
            numbers = ", ".join(str(phase.number) for phase in self.phases)
            mode = self.manifest.value.execution_mode
            raise InvalidArgument("phase", number, f"{numbers}, the phases of a session in mode {mode}")
        return match

    def require_phase(self, number: Any) -> Phase:
        """Return a phase of the mode that has its folder."""
        phase = self.phase(number)
        if not self._shelf.store.has_folder(self.phase_prefix(phase)):
            raise NotFound(
                f"phase {number}", self.phase_prefix(phase), "create_session or haytham resume makes its folder"
            )
        return phase

    def cache(self, document: StoredDocument[Document]) -> None:
        """Use a document that was just written."""
        self._drop(document.key)
        self._found[document.key] = document
        self.files.add(document.key)

    def forget(self, key: str) -> None:
        """Read a file again when it is asked for: it was written or deleted."""
        self._drop(key)
        self.files.forget(key)

    def _drop(self, key: str) -> None:
        self._found.pop(key, None)
        self._heads.pop(key, None)
        self._content.clear()

    def phase_files(self, phase: Phase) -> dict[str, object | None]:
        """Return the change tokens of all files of a phase, by path in its folder; None for one that is unknown."""
        return self.files.files(self.phase_prefix(phase))

    def file_digest(self, key: str, token: object | None, model: type[Document] | None) -> str | None:
        """Return the digest of a file, which stays these bytes if it is read as its model; None if it is unknown."""
        if token is not None and key not in self._found:
            return file_digest(self._shelf.store, key, token)
        document = self._found.get(key) if model is None else self._find(model, key)
        return None if document is None else document.digest

    def _find(self, model: type[D], key: str) -> StoredDocument[D] | None:
        if key not in self._found:
            self._found[key] = self._shelf.find(model, key)
        return self._found[key]

    def phase_prefix(self, phase: Phase) -> str:
        """Return the prefix of a phase's documents."""
        return f"{self.prefix}{paths.phase_folder(phase)}/"

    def checkpoint(self, phase: Phase) -> StoredDocument[PhaseCheckpoint] | None:
        """Return the checkpoint of a phase, or None."""
        document = self._find(PhaseCheckpoint, self.phase_prefix(phase) + paths.CHECKPOINT)
        if document is not None and not document.faults:
            check_location(document, "phase", phase.number)
        return document

    def output(self, phase: Phase, agent_name: str) -> StoredDocument[AgentOutput] | None:
        """Return an agent's output with its text, or None."""
        document = self._find(AgentOutput, self.phase_prefix(phase) + paths.output_file(agent_name))
        if document is not None and not document.faults:
            check_location(document, "agent", agent_name)
            check_location(document, "phase_number", phase.number)
        return document

    def output_header(self, phase: Phase, agent_name: str) -> OutputHeader | None:
        """Return an agent's output without its text; None if it is missing or cannot be read."""
        header = self._head(phase, agent_name)
        return None if header is None or header.faults else header.value

    def _head(self, phase: Phase, agent_name: str) -> StoredDocument[OutputHeader] | None:
        key = self.phase_prefix(phase) + paths.output_file(agent_name)
        if key in self._found:
            return self._found[key]
        if key not in self._heads:
            self._heads[key] = self._shelf.find_header(key)
        return self._heads[key]

    def outputs(self, phase: Phase) -> dict[str, StoredDocument[AgentOutput]]:
        """Return the outputs of a phase by agent; one that cannot be read raises when its value is used."""
        documents = {agent: self.output(phase, agent) for agent in self.output_agents(phase)}
        return {agent: document for agent, document in documents.items() if document is not None}

    def texts(self, phase: Phase) -> dict[str, str]:
        """Return the texts of a phase by agent; InvalidDocument if one cannot be read."""
        return {agent: document.value.text for agent, document in self.outputs(phase).items()}

    def output_facts(self, phase: Phase) -> dict[str, OutputFacts]:
        """Return what a plan needs of the outputs of a phase; a text is read again only if its file changed."""
        if phase.number not in self._content:
            facts = {agent: self._output_facts(phase, agent) for agent in self.output_agents(phase)}
            self._content[phase.number] = {agent: fact for agent, fact in facts.items() if fact is not None}
        return self._content[phase.number]

    def reviewed_content(self, phase: Phase) -> tuple[ReviewedRow, ...]:
        """Return the outputs of a phase with the digests of their texts and tasks, as a review is bound to them."""
        return tuple(
            ReviewedRow(document=paths.output_file(agent), digest=facts.text, task=facts.task)
            for agent, facts in self.output_facts(phase).items()
        )

    def _output_facts(self, phase: Phase, agent: str) -> OutputFacts | None:
        def read() -> OutputFacts | None:
            document = self.output(phase, agent)
            if document is None:
                return None
            value = document.value
            text, executed = text_digest(value.text), value.executed
            return OutputFacts(value.status, text, value.agent_digest, value.task, executed)

        name = paths.output_file(agent)
        return self._shelf.output_facts(self.phase_prefix(phase) + name, self.phase_files(phase).get(name), read)

    def task_agents(self, phase: Phase) -> list[str]:
        """Return the agents of a phase with a recorded task; none where a program saved the phase."""
        return self.output_agents(phase, paths.TASKS)

    def lost_outputs(self, phase: Phase) -> tuple[str, ...]:
        """Return the agents whose outputs were asked for, presented or reviewed and whose files are missing."""
        presented = self.output_agents(phase, paths.PRESENTED)
        feedback = self.feedback(phase) if self.is_current(phase) else None
        rows = () if feedback is None else feedback.value.reviewed_content
        recorded = {*self.task_agents(phase), *presented, *(row.document.removesuffix(".md") for row in rows)}
        return tuple(sorted(recorded - set(self.output_agents(phase))))

    def output_agents(self, phase: Phase, folder: str = "") -> list[str]:
        """Return the agents with a file in a phase's folder, or in a folder within it."""
        names = (path[len(folder) :] for path in self.phase_files(phase) if path.startswith(folder))
        return paths.output_agents(sorted(name for name in names if "/" not in name))

    def attempt(self, phase: Phase) -> int:
        """Return the number of the present attempt: one above the highest archived one."""
        files = self.phase_files(phase)
        return (
            max((paths.attempt_number(f"/{path}") or 0 for path in files if path.startswith(paths.ATTEMPTS)), default=0)
            + 1
        )

    def is_current(self, phase: Phase) -> bool:
        """Return whether the feedback names the present attempt: only then it counts."""
        feedback = self.feedback(phase)
        return feedback is not None and feedback.value.attempt == self.attempt(phase)

    def reviewed_copies(self, phase: Phase) -> dict[str, StoredDocument[AgentOutput]]:
        """Return the outputs of a phase as they were presented to a person, by agent."""
        return self._outputs_in(phase, paths.PRESENTED)

    def merge_base(self, phase: Phase, agent: str, session_id: str) -> StoredDocument[MergeBase] | None:
        """Return the record of another session's text that was last merged into a phase, or None."""
        return self._find(MergeBase, paths.merge_base_key(self.phase_prefix(phase), session_id, agent))

    def task_parts(self, phase: Phase, agent: str) -> dict[str, str]:
        """Return the parts of the task that is on record for an agent: digests by name."""
        record = self._find(TaskRecord, self.phase_prefix(phase) + paths.TASKS + paths.output_file(agent))
        return {} if record is None else {row.part: row.digest for row in record.value.parts}

    def archived_attempt(self, phase: Phase, attempt: int) -> ArchivedAttempt:
        """Return an earlier attempt at a phase."""
        folder = paths.attempt_prefix("", attempt)
        outputs = {agent: document.value for agent, document in self._outputs_in(phase, folder).items()}
        return ArchivedAttempt(
            texts={agent: value.text for agent, value in outputs.items()},
            presented=self._texts_in(phase, folder + paths.PRESENTED),
            feedback=self.earlier_feedback(phase, attempt),
            revised=frozenset(
                agent for agent, value in outputs.items() if value.agent_digest != text_digest(value.text)
            ),
        )

    def earlier_feedback(self, phase: Phase, attempt: int) -> UserFeedback | None:
        """Return the feedback on an earlier attempt at a phase, or None."""
        key = paths.attempt_prefix(self.phase_prefix(phase), attempt) + paths.FEEDBACK
        feedback = self._find(UserFeedback, key)
        return None if feedback is None else feedback.value

    def shown_texts(self, phase: Phase, *, attempt: int | None, tasks: bool) -> dict[str, str]:
        """Return the texts, or the tasks, of a phase in the present attempt or an earlier one."""
        is_present = attempt is None or attempt == self.attempt(phase)
        folder = "" if is_present or attempt is None else paths.attempt_prefix("", attempt)
        if not tasks:
            return self._texts_in(phase, folder)
        prefix = self.phase_prefix(phase) + folder + paths.TASKS
        agents = self.output_agents(phase, folder + paths.TASKS)
        records = {agent: self._find(TaskRecord, prefix + paths.output_file(agent)) for agent in agents}
        return {agent: document.value.prompt for agent, document in records.items() if document is not None}

    def unknown_phase_folders(self) -> list[str]:
        """Return folders that look like a phase's and belong to no phase of the session."""
        owned, store = {paths.phase_folder(phase) for phase in self.phases}, self._shelf.store
        unknown = [name for name in store.folders(self.prefix) if name.startswith("phase_") and name not in owned]
        return [folder for folder in unknown if store.keys(f"{self.prefix}{folder}/", depth=1)]

    def _texts_in(self, phase: Phase, folder: str) -> dict[str, str]:
        return {agent: document.value.text for agent, document in self._outputs_in(phase, folder).items()}

    def _outputs_in(self, phase: Phase, folder: str) -> dict[str, StoredDocument[AgentOutput]]:
        """Return the outputs in a folder within a phase's folder, by agent."""
        prefix, agents = self.phase_prefix(phase) + folder, self.output_agents(phase, folder)
        outputs = ((agent, self._find(AgentOutput, prefix + paths.output_file(agent))) for agent in agents)
        return {agent: document for agent, document in outputs if document is not None}

    @cached_property
    def settings(self) -> Settings:
        """Return what holds for the session, whoever says so."""
        return read_settings(self._shelf.store, self.workflow, self.manifest.value, flags=self.flags)

    @property
    def limits(self) -> BudgetLimits:
        """Return what the session may spend."""
        return self.settings.limits

    def spending(self) -> SpendSummary:
        """Return what the session has spent."""
        return SpendLog(self._shelf.store, self.prefix).read()

    def pause_reason(self) -> str | None:
        """Return why the session is paused (a call was refused, and the limits are the same), or None."""
        return None if (denial := self.budget_denial()) is None else denial.reason

    def budget_denial(self) -> BudgetDenial | None:
        """Return the first call that the budget refused in the last run, if the limits are still the same."""
        limits, refused = (self.limits.max_cost, self.limits.max_tokens), self.spending().refused
        return next((denial for denial in refused if (denial.max_cost, denial.max_tokens) == limits), None)

    def drift_pause(self) -> str | None:
        """Return why `action: pause` of `drift:` stopped a run; None where it did not, or a run began since."""
        return pause_by_drift(self.settings.drift, self._shelf.store, self.prefix)

    @cached_property
    def idea(self) -> str:
        """Return the idea of the project that the session belongs to; empty for a session without a project."""
        return "" if self._project_value is None else self._project_value.startup_idea

    @property
    def preferences(self) -> Mapping[str, Any]:
        """Return the preferences that are stored with the project."""
        return {} if self._project_value is None else self._project_value.user_preferences

    @cached_property
    def _project_value(self) -> Project | None:
        project = self._shelf.find(Project, paths.project_key(self._project))
        if project is not None and (project.faults or project.content_conflicts()):
            raise InvalidDocument(project.faults or project.content_conflicts())
        return None if project is None else project.value

    @cached_property
    def evidence(self) -> str:
        """Return what a person knows, as they wrote it; empty if absent."""
        return self._own_words(self.prefix + paths.EVIDENCE)

    def request(self, phase: Phase) -> str:
        """Return the words of a person for the present attempt at a phase; empty if there are none."""
        return self._own_words(self.phase_prefix(phase) + paths.REQUEST)

    def _own_words(self, key: str) -> str:
        try:
            text = read_text(self._shelf.store.read(key), key)
        except FileNotFoundError:
            return ""
        conflicts = conflict_problems(conflict_lines(text), file=key)
        if conflicts:
            raise InvalidDocument(conflicts)
        return text

    def has_conflicts(self, phase: Phase) -> bool:
        """Return whether a text of the phase holds a git conflict."""
        return any(output.conflicts for output in self.outputs(phase).values())

    def state(self) -> StoredDocument[SessionState] | None:
        """Return the document of the caller's values; None before they were first changed."""
        return self._find(SessionState, self.prefix + paths.STATE)

    def feedback(self, phase: Phase) -> StoredDocument[UserFeedback] | None:
        """Return the feedback on a phase, or None."""
        document = self._find(UserFeedback, self.phase_prefix(phase) + paths.FEEDBACK)
        if document is not None and not document.faults:
            check_location(document, "phase_number", phase.number)
            unknown = [name for name in document.value.agents or () if name not in phase.agents]
            if unknown:
                message = f"found {short_repr(unknown[0])}; allowed: {', '.join(phase.agents)}"
                raise InvalidDocument([document.problem(message, "agents")])
        return document

    def decision(self, phase: Phase) -> Decision | None:
        """Return what the feedback on a phase decides, or None."""
        feedback = self.feedback(phase)
        try:
            return None if feedback is None else parse_decision(feedback.value)
        except ConflictingDecision as error:
            problems = [feedback.problem(str(error), name) for name in ("approved", "action")] if feedback else []
            raise InvalidDocument(problems) from None

    def review(self, phase: Phase) -> ReviewDecision | None:
        """Return a person's decision on the phase; None without feedback."""
        feedback, decision = self.feedback(phase), self.decision(phase)
        if feedback is None:
            return None
        rows = feedback.value.reviewed_content
        outdated = decision == "approved" and _texts(rows) != _texts(self.reviewed_content(phase))
        return ReviewDecision(decision, outdated)

    def save_counter(self) -> int:
        """Return the highest save counter so far, also of checkpoints that cannot be read otherwise."""
        keys = [self.phase_prefix(phase) + paths.CHECKPOINT for phase in self.phases]
        checkpoints = (self._find(PhaseCheckpoint, key) for key in keys)
        counts = (document.parsed.value.get("save_counter") for document in checkpoints if document is not None)
        return max((count for count in counts if isinstance(count, int)), default=0)

    def times(self) -> Iterator[str]:
        """Return when outputs were written, reviews were given and the state was saved, as far as files still say."""
        for phase in self.phases:
            yield from self.phase_times(phase)
        yield from self.state_times()

    def phase_times(self, phase: Phase) -> Iterator[str]:
        """Yield when the outputs of a phase were written and its review was given."""
        yield from time_of(self.feedback(phase), "timestamp")
        for agent in self.output_agents(phase):
            yield from self._written(phase, agent)

    def state_times(self) -> tuple[str, ...]:
        """Return when the state was saved."""
        return time_of(self.state(), "saved_at")

    def _written(self, phase: Phase, agent: str) -> tuple[str, ...]:
        key = self.phase_prefix(phase) + paths.output_file(agent)
        return self._shelf.written(key, lambda: time_of(self._head(phase, agent), "executed"))

    def checkpoint_problems(self, phase: Phase) -> list[Problem]:
        """Return all problems of a phase's checkpoint: unreadable parts, lost outputs, outdated derived copies."""
        checkpoint = self.checkpoint(phase)
        if checkpoint is None:
            raise NotFound(f"the checkpoint of phase {phase.number}", self.phase_prefix(phase) + paths.CHECKPOINT)
        if checkpoint.faults:
            return list(checkpoint.problems)
        rows = checkpoint.value.ledger
        completed = [complete_row(row, self.output_header(phase, row.agent_name)) for row in rows]
        behind = [
            checkpoint.problem(
                f"shows {row.to_value()}, and its file says {completed_row.to_value()}; the next save draws it anew",
                "ledger",
                derived_values=True,
            )
            for row, completed_row in zip(rows, completed, strict=True)
            if row != completed_row
        ]
        derived_values = checkpoint.derived_mismatches(derived_checkpoint(checkpoint.value, self.phases))
        return [*checkpoint.problems, *self._lost_problems(phase, checkpoint), *behind, *derived_values]

    def _lost_problems(self, phase: Phase, checkpoint: StoredDocument[PhaseCheckpoint]) -> list[Problem]:
        """Report the outputs of a completed phase that are on record while their files are missing."""
        if checkpoint.value.status != "completed":
            return []
        message = "is missing, and the phase is completed; haytham resume runs its agent again, haytham restore has it"
        files = [self.phase_prefix(phase) + paths.output_file(agent) for agent in self.lost_outputs(phase)]
        return [Problem(message, file=file) for file in files]


def _texts(rows: Iterable[ReviewedRow]) -> dict[str, str]:
    return {row.document: row.digest for row in rows}
