"""The values that use cases return: frozen, typed, without sentences. Front ends make the sentences."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from haytham.engine.budget import check_budget
from haytham.session.inputs import TaskInputs
from haytham.storage.base import bytes_digest
from haytham.text import text_digest
from haytham.usage import UsageTotal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.config.policy import BudgetLimits
    from haytham.config.settings import Setting
    from haytham.errors import RefusedDecision
    from haytham.history.merge import MergedPage
    from haytham.history.snapshot import Snapshot
    from haytham.session.derived import Decision, NextStep, Summary
    from haytham.session.plan import Action, Cause
    from haytham.session.spend_log import BudgetDenial, SpendSummary
    from haytham.session.view import SessionView

UNREADABLE = "unreadable"


# A workspace.


@dataclass(frozen=True)
class SettingsReport:
    """What is set for a session, or in a workspace without one: each setting with its source and place."""

    project_id: str | None
    session_id: str | None
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class SessionListing:
    """A session of a workspace: its ids and its state; `summary` is None if it cannot be read."""

    project_id: str
    session_id: str
    summary: Summary | None
    error: Exception | None = None

    @property
    def id(self) -> str:
        """Return project and session id in one text."""
        return f"{self.project_id}/{self.session_id}"

    @property
    def status(self) -> str:
        """Return its status; `unreadable` if it has none that can be read."""
        return UNREADABLE if self.summary is None else self.summary.status

    @property
    def user(self) -> str | None:
        """Return the user that started it, if that can be read."""
        return None if self.summary is None else self.summary.manifest.user_id

    @property
    def name(self) -> str | None:
        """Return its display name, if it has one that can be read."""
        return None if self.summary is None else self.summary.manifest.display_name

    @property
    def next(self) -> NextStep | None:
        """Return what it waits for; None if nothing is left to do, or if nobody can tell."""
        return None if self.summary is None else self.summary.next

    @property
    def spent(self) -> UsageTotal:
        """Return what it has spent, as far as that can be read."""
        return UsageTotal() if self.summary is None else self.summary.spent

    @property
    def is_archived(self) -> bool:
        """Return whether it is archived, as far as that can be read."""
        return self.summary is not None and self.summary.manifest.archived is not None

    @property
    def last_updated(self) -> str:
        """Return when it was saved last; empty if that cannot be read."""
        return "" if self.summary is None else self.summary.last_updated


# Decisions.


@dataclass(frozen=True)
class ContractFault:
    """Something that breaks the contract in an agent's text; the text may be approved all the same."""

    agent: str
    section: str | None
    label: str | None
    message: str
    line: int | None = None


@dataclass(frozen=True)
class DecisionResult:
    """A decision as it was stored: on which attempt, whom it asks for changes, and lines that the person edited.

    `agents` is empty if all agents of the phase are asked for changes; `asked` names them in any case.
    """

    phase: int
    name: str
    decision: Decision
    attempt: int
    by: str | None
    agents: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0
    faults: tuple[ContractFault, ...] = ()


@dataclass(frozen=True)
class EditorDecisions:
    """Decisions typed into feedback files: those that were bound to the texts, and why others do not count."""

    bound: tuple[DecisionResult, ...] = ()
    refused: tuple[RefusedDecision, ...] = ()


@dataclass(frozen=True)
class InputResult:
    """Which phase was given a person's input, and the editor's decisions that were bound before."""

    phase: int
    name: str
    attempt: int
    editor: EditorDecisions = field(default_factory=EditorDecisions)


@dataclass(frozen=True)
class ReviewGuard:
    """What a reviewer has seen of a phase: its attempt, and digests of its texts, of their tasks and of its feedback.

    `tasks` are those that the outputs would get now: another digest means that what an output builds on has changed.
    """

    phase: int
    attempt: int
    texts: Mapping[str, str]
    tasks: Mapping[str, str]
    feedback: str | None

    def changes(self, now: ReviewGuard) -> tuple[str, ...]:
        """Return what is different now: the attempt, texts by agent, what they build on, the feedback."""
        attempt = ("attempt",) if self.attempt != now.attempt else ()
        moved = () if attempt else _differing(self.tasks, now.tasks)  # another attempt has other tasks anyway
        feedback = ("feedback",) if self.feedback != now.feedback else ()
        texts = _differing(self.texts, now.texts)
        return (*attempt, *texts, *(f"what {agent} builds on" for agent in moved), *feedback)


def _differing(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return sorted(agent for agent in {**before, **now} if before.get(agent) != now.get(agent))


def review_guard(view: SessionView, number: int) -> ReviewGuard:
    """Return the guard of a phase as it is in a view."""
    phase = view.phase(number)
    feedback = view.feedback(phase)
    texts = {agent: text_digest(text) for agent, text in view.texts(phase).items()}
    tasks = TaskInputs(view).current_digests(phase)
    digest = None if feedback is None else bytes_digest(feedback.data)
    return ReviewGuard(number, view.attempt(phase), texts, tasks, digest)


@dataclass(frozen=True)
class Output:
    """An agent's output of the present attempt; `digest` is of its text, `revised` whether a person changed it."""

    agent: str
    phase: int
    attempt: int
    status: str
    text: str
    digest: str
    revised: bool
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    error_type: str | None = None
    error_message: str | None = None


# Runs.


@dataclass(frozen=True)
class AgentFailure:
    """An agent that failed: the type and the text of its error, and the file that holds its output."""

    agent: str
    error_type: str
    message: str
    key: str


# Status.


@dataclass(frozen=True)
class Spending:
    """What a session has spent, what it may spend, and the call that was refused for it, if one was."""

    summary: SpendSummary
    limits: BudgetLimits
    denial: BudgetDenial | None

    @property
    def paused(self) -> str | None:
        """Return why the session is paused, or None."""
        return None if self.denial is None else self.denial.reason

    @property
    def is_denied_by_tokens(self) -> bool:
        """Return whether the refused call would go past the limit of tokens."""
        if self.denial is None:
            return False
        return check_budget(replace(self.limits, max_cost=None), self.summary.total, self.denial.estimate) is not None


@dataclass(frozen=True)
class PhaseStatus:
    """The state of a phase: its action in the plan of `resume`, with agents and reason; None if it cannot be read.

    `failed` and `lost` are agents whose outputs failed or are gone; `open_needs` phases that an approved phase builds
    on and that are not settled; `refused` why a decision typed into its file does not count.
    """

    number: int
    name: str
    status: str
    reviewers: tuple[str, ...] = ()
    attempt: int = 1
    action: Action | None = None
    reason: str = ""
    cause: Cause | None = None
    agents: tuple[str, ...] = ()
    all_agents: tuple[str, ...] = ()
    decision: Decision | None = None
    has_feedback: bool = False
    by: str | None = None
    at: str | None = None
    revised: str | None = None
    anyway: str | None = None
    stale: tuple[str, ...] = ()
    faults: tuple[ContractFault, ...] = ()
    redacted: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    open_needs: tuple[int, ...] = ()
    refused: RefusedDecision | None = None
    output_keys: str = ""

    @property
    def is_done(self) -> bool:
        """Return whether `resume` has nothing to do here."""
        return self.action in ("approved", "nothing")


@dataclass(frozen=True)
class SessionStatus:
    """The state of a session. If it cannot be read, `problems` says why, and phases have what can be read of them.

    `paused` is why it is paused, by its budget or by drift.
    """

    project_id: str
    session_id: str
    status: str
    running: str | None
    phases: tuple[PhaseStatus, ...]
    spending: Spending | None
    problems: tuple[str, ...] = ()
    paused: str | None = None
    name: str | None = None

    @property
    def next(self) -> PhaseStatus | None:
        """Return the first phase that `resume` has something to do with."""
        return next((phase for phase in self.phases if not phase.is_done), None)


@dataclass(frozen=True)
class CostReport:
    """What one session has spent, with the names of its phases and the session it was forked from."""

    project_id: str
    session_id: str
    spending: Spending
    phases: Mapping[int, str]
    forked_from: str | None


# Snapshots.


@dataclass(frozen=True)
class SettingChange:
    """A setting of a session that a restore changed."""

    name: str
    before: object
    after: object


@dataclass(frozen=True)
class RestoreResult:
    """What a restore did: the snapshot that undoes it, documents by path, and settings that changed with it."""

    snapshot: Snapshot
    recovery: Snapshot
    changed: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    settings: tuple[SettingChange, ...] = ()


@dataclass(frozen=True)
class MergeResult:
    """The phases that a merge changed, those in which nothing was new, and those whose gates it opened.

    `pages` are the outputs that it changed, `problems` the conflicts that are still marked in them; `recovery` is the
    snapshot that undoes it. `editor` are decisions that were typed into files and bound before.
    """

    source: str
    merged: tuple[int, ...]
    unchanged: tuple[int, ...]
    opened: tuple[int, ...] = ()
    pages: tuple[MergedPage, ...] = ()
    problems: tuple[str, ...] = ()
    recovery: Snapshot | None = None
    editor: EditorDecisions = field(default_factory=EditorDecisions)


@dataclass(frozen=True)
class RepairReport:
    """What a repair did, a line each, and how many temporary files of killed writers it removed."""

    done: tuple[str, ...]
    swept: int
