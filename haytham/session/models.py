"""The documents of a session as typed, frozen values: one class a kind, one field a field of its schema.

A field that a document may do without is None where it is missing. Sequences are tuples, rows of tables are values.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

PhaseStatus = Literal["pending", "in_progress", "completed", "failed", "skipped", "requires_retry"]
PhaseMode = Literal["single", "parallel", "sequential_interactive"]
FeedbackAction = Literal["pending", "approved", "retry_with_changes", "skip_phase", "rejected"]
BoundDecision = Literal["approved", "changes", "skip", "rejected"]
ProjectStatus = Literal["active", "archived"]


@dataclass(frozen=True)
class Document:
    """The base of all documents and of the rows of their tables."""

    __slots__ = ("_plain",)

    KIND: ClassVar[str] = ""
    ROWS: ClassVar[Mapping[str, type[Document]]] = {}
    GROUPS: ClassVar[tuple[tuple[str, ...], ...]] = ()  # optional fields that are there together or not at all

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Self:
        """Return the document of a value that satisfies the schema; the value is shared, not copied."""
        rows, names = cls.ROWS, _names(cls)
        typed = {
            names[name]: content if type(content) is not list else _typed(content, rows.get(name))
            for name, content in value.items()
        }
        document = cls(**typed)
        object.__setattr__(document, "_plain", value)
        return document

    def to_value(self) -> Mapping[str, Any]:
        """Return the value for the schema: plain JSON, without fields that are missing."""
        plain: Mapping[str, Any] | None = getattr(self, "_plain", None)
        if plain is None:
            plain = _plain_value(self)
            object.__setattr__(self, "_plain", plain)
        return plain


def _typed(items: list[Any], row: type[Document] | None) -> tuple[Any, ...]:
    return tuple(items) if row is None else tuple([row.from_value(item) for item in items])


def _plain_value(document: Document) -> dict[str, Any]:
    kind = type(document)
    present = {
        name for group in kind.GROUPS if any(getattr(document, name) is not None for name in group) for name in group
    }
    optional = {field.name for field in fields(document) if field.default is None} - present
    return {
        name: _plain(content)
        for name, attribute in _names(kind).items()
        if (content := getattr(document, attribute)) is not None or attribute not in optional
    }


def _plain(content: Any) -> Any:
    if isinstance(content, tuple):
        return [_plain(item) for item in content]
    return dict(content.to_value()) if isinstance(content, Document) else content


_NAMES: dict[type[Document], dict[str, str]] = {}


def _names(kind: type[Document]) -> dict[str, str]:
    """Return the names of the fields by their names in the schema, which may have dots."""
    if kind not in _NAMES:
        _NAMES[kind] = {field.metadata.get("name", field.name): field.name for field in fields(kind)}
    return _NAMES[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionManifest(Document):
    """One run through a workflow: who, which workflow, which mode, and how it ended."""

    KIND = "session_manifest"
    GROUPS = (("forked_from", "fork_point", "purpose"),)

    workflow: str
    phases: str
    origin: str
    session_id: str
    project_id: str
    user_id: str
    workflow_type: str
    execution_mode: str
    created: str
    kept_workflow: str | None = None
    model: str | None = None
    record: str | None = None
    identity: str | None = None
    display_name: str | None = None
    archived: str | None = None
    max_cost: str | None = None
    max_tokens: int | None = None
    closed: str | None = None
    version: int | None = None
    requirements: str | None = None
    metrics: str | None = None
    forked_from: str | None = None
    fork_point: str | None = None
    purpose: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow(Document):
    """What one agent did in a phase, as its checkpoint records it."""

    agent_name: str
    status: PhaseStatus
    output_file: str | None
    tokens: int | None
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    duration: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCheckpoint(Document):
    """A phase's own record."""

    KIND = "checkpoint"
    ROWS: ClassVar[Mapping[str, type[Document]]] = {"ledger": LedgerRow}

    save_counter: int
    phase: int
    status: PhaseStatus
    started: str | None
    completed: str | None
    duration: float | None
    retry_count: int
    execution_mode: PhaseMode
    ledger: tuple[LedgerRow, ...]
    saved_at: str | None = None
    errors: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputHeader(Document):
    """An agent's output without its text."""

    KIND = "agent_output"
    GROUPS = (("error_type", "error_message"),)

    phase_number: int
    attempt: int
    agent_digest: str
    agent: str
    executed: str
    duration: float | None
    status: PhaseStatus
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    tools_used: tuple[str, ...] | None
    task: str | None = None
    redacted: int | None = None
    error_type: str | None = None
    error_message: str | None = None
    stack_trace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOutput(OutputHeader):
    """What one agent wrote in one phase."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBase(Document):
    """The text of another session's output when it was last merged into a phase: where the next merge starts from.

    `number` counts the merges of both sessions, in either direction: the higher one is the later one.
    """

    KIND = "merge_base"

    agent: str
    phase: int
    session: str
    number: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedRow(Document):
    """An output that a decision was made on, with the digests of its text and its task."""

    document: str
    digest: str
    task: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFeedback(Document):
    """A person's review of a phase: the decision, and what it was made on."""

    KIND = "user_feedback"
    ROWS: ClassVar[Mapping[str, type[Document]]] = {"reviewed_content": ReviewedRow}

    phase_number: int
    attempt: int
    reviewed: bool
    approved: bool | None
    timestamp: str | None
    comments: str
    requested_changes: tuple[str, ...]
    reviewed_content: tuple[ReviewedRow, ...]
    action: FeedbackAction
    retry_count: int
    by: str | None = None
    bound_decision: BoundDecision | None = None
    anyway: str | None = None
    superseded: bool | None = None
    revised: str | None = None
    agents: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPart(Document):
    """A part of a task, by name, with its digest."""

    part: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord(Document):
    """The task that an agent was given, and what it was made of."""

    KIND = "task"
    ROWS: ClassVar[Mapping[str, type[Document]]] = {"parts": TaskPart}

    agent: str
    phase: int
    attempt: int
    parts: tuple[TaskPart, ...]
    prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Project(Document):
    """One idea of one user."""

    KIND = "project"

    project_id: str
    project_name: str
    user_id: str
    execution_mode: str
    status: ProjectStatus
    created_at: str
    updated_at: str
    user_preferences: Mapping[str, Any]
    startup_idea: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState(Document):
    """Values that the caller keeps with a session."""

    KIND = "state"

    agent_type: str | None = field(metadata={"name": "agent.type"})
    task_current: str | None = field(metadata={"name": "task.current"})
    task_status: str | None = field(metadata={"name": "task.status"})
    task_progress: Any = field(metadata={"name": "task.progress"})
    mailbox_last_processed: Any = field(metadata={"name": "mailbox.last_processed"})
    mailbox_pending: tuple[Any, ...] = field(metadata={"name": "mailbox.pending"})
    context_goals: tuple[Any, ...] = field(metadata={"name": "context.goals"})
    context_constraints: tuple[Any, ...] = field(metadata={"name": "context.constraints"})
    context_decisions: tuple[Any, ...] = field(metadata={"name": "context.decisions"})
    memory_short_term: Mapping[str, Any] = field(metadata={"name": "memory.short_term"})
    memory_session: Mapping[str, Any] = field(metadata={"name": "memory.session"})
    fields_collected: Mapping[str, Any] = field(metadata={"name": "fields.collected"})
    fields_required: tuple[Any, ...] = field(metadata={"name": "fields.required"})
    summary: str
    saved_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteChange(Document):
    """An earlier text of a note, and when it was replaced."""

    changed: str
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNote(Document):
    """What is remembered of a user across sessions: one note. Its id is the name of its file."""

    KIND = "memory_note"
    ROWS: ClassVar[Mapping[str, type[Document]]] = {"history": NoteChange}

    user: str
    created: str
    session: str | None
    tags: tuple[str, ...]
    text: str
    history: tuple[NoteChange, ...] | None = None


MODELS: Mapping[str, type[Document]] = {
    model.KIND: model
    for model in (
        SessionManifest,
        PhaseCheckpoint,
        AgentOutput,
        MergeBase,
        UserFeedback,
        TaskRecord,
        Project,
        SessionState,
        MemoryNote,
    )
}
