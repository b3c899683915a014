"""A phase as its reviewer sees it: texts, what changed in them, claims, faults, and what an approval starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from haytham.agents.registry import DEFAULT_MODEL, find_adapter, resolve_models, runs_code
from haytham.app.agents import copy_in_memory
from haytham.app.results import ContractFault, ReviewGuard, review_guard
from haytham.app.settings import REPLAY
from haytham.contracts.check import claims
from haytham.errors import HaythamError, InvalidDocument, InvalidRequest
from haytham.session.editing import ReviewFiles
from haytham.session.inputs import TaskInputs
from haytham.session.paths import output_file
from haytham.session.plan import SessionPlan
from haytham.session.review import ReviewGate
from haytham.usage import Usage, sum_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from haytham.config.agent_spec import AgentSpec
    from haytham.config.workflow import Phase
    from haytham.session.derived import Decision
    from haytham.session.plan import Action
    from haytham.session.session import SessionDocuments
    from haytham.session.view import SessionView
    from haytham.usage import UsageTotal

Since = Literal["decision", "presented"]
_RUNS = ("run", "run again")


@dataclass(frozen=True)
class ClaimCount:
    """How many claims of a page have a source, and how many are marked as assumptions."""

    sourced: int = 0
    assumed: int = 0


@dataclass(frozen=True)
class UpcomingCall:
    """An agent that an approval starts: the model that is asked first, and what a call may take."""

    agent: str
    model: str
    estimate: Usage


@dataclass(frozen=True)
class UpcomingWork:
    """What follows an approval: the next phase, what happens to it, and its calls; no phase if the session is over."""

    phase: int | None = None
    name: str = ""
    action: Action | None = None
    calls: tuple[UpcomingCall, ...] = ()

    @property
    def estimate(self) -> UsageTotal:
        """Return what all calls may take together."""
        return sum_usage(call.estimate for call in self.calls)


@dataclass(frozen=True)
class ReviewView:
    """A phase as a reviewer sees it.

    `earlier_texts` are what a difference is shown against: the texts of the last decision on the phase, else those
    that were presented, if a person edited one; `since` says which. `files` are the keys of the outputs. `redacted`
    counts secrets that were removed from an agent's reply. `requested` are the changes asked for in the attempt before;
    `reviewers` may decide, if not everybody.
    """

    phase: int
    name: str
    attempt: int
    agents: tuple[str, ...]
    reviewers: tuple[str, ...]
    texts: Mapping[str, str]
    earlier_texts: Mapping[str, str]
    since: Since | None
    files: Mapping[str, str]
    decision: Decision | None
    comments: str
    changes: tuple[str, ...]
    requested: tuple[str, ...]
    by: str | None
    claims: Mapping[str, ClaimCount]
    faults: tuple[ContractFault, ...]
    redacted: Mapping[str, int]
    guard: ReviewGuard

    @property
    def claim_count(self) -> ClaimCount:
        """Return the claims of all pages together."""
        counts = self.claims.values()
        return ClaimCount(sum(count.sourced for count in counts), sum(count.assumed for count in counts))


def review(documents: SessionDocuments, number: int) -> ReviewView:
    """Return a phase as a reviewer sees it, all of it from one moment."""

    def compute(view: SessionView) -> ReviewView:
        phase = view.phase(number)
        attempt, feedback = view.attempt(phase), view.feedback(phase)
        value = None if feedback is None else feedback.value
        texts, prefix = view.texts(phase), view.phase_prefix(phase)
        since, earlier = _earlier_texts(view, phase, texts)
        before = None if attempt == 1 else view.earlier_feedback(phase, attempt - 1)
        return ReviewView(
            phase=number,
            name=phase.name,
            attempt=attempt,
            agents=phase.agents,
            reviewers=phase.reviewers,
            texts=_in_order(phase, texts),
            earlier_texts=earlier,
            since=since,
            files=_in_order(phase, {agent: prefix + output_file(agent) for agent in view.output_agents(phase)}),
            decision=view.decision(phase),
            comments="" if value is None else value.comments,
            changes=() if value is None else value.requested_changes,
            requested=() if before is None else before.requested_changes,
            by=None if value is None else value.by,
            claims={agent: count_claims(text) for agent, text in texts.items()},
            faults=contract_faults(view, phase),
            redacted=redacted(view, phase),
            guard=review_guard(view, number),
        )

    return documents.read_consistently(compute)


def _in_order(phase: Phase, texts: Mapping[str, str]) -> dict[str, str]:
    """Return texts or files in the order in which the agents build on each other; those of other agents come last."""
    own = [agent for agent in phase.agents if agent in texts]
    return {agent: texts[agent] for agent in (*own, *(agent for agent in texts if agent not in phase.agents))}


def _earlier_texts(view: SessionView, phase: Phase, texts: Mapping[str, str]) -> tuple[Since | None, Mapping[str, str]]:
    """Return the texts of the last decision on a phase, else those that were presented if a person edited one."""
    presented = {agent: document.value.text for agent, document in view.reviewed_copies(phase).items()}
    if view.decision(phase) is not None:
        return ("decision", presented) if _differ(presented, texts) else (None, {})
    for attempt in range(view.attempt(phase), 0, -1):
        archived = view.archived_attempt(phase, attempt)
        if archived.feedback is not None and archived.feedback.bound_decision is not None and archived.texts:
            return "decision", archived.texts
    return ("presented", presented) if _differ(presented, texts) else (None, {})


def _differ(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    return any(before[agent] != text for agent, text in now.items() if agent in before)


def count_claims(text: str) -> ClaimCount:
    """Return how many claims of a text have a source, and how many are assumptions."""
    assumed = [claim.is_assumption for claim in claims(text)]
    return ClaimCount(assumed.count(False), assumed.count(True))


def contract_faults(view: SessionView, phase: Phase) -> tuple[ContractFault, ...]:
    """Return what breaks the contract in the texts of a phase; one fault without an agent if it cannot be checked."""
    try:
        faults = TaskInputs(view).contract_faults(phase)
    except HaythamError as error:
        return (ContractFault("", None, None, f"the contract cannot be checked: {error}"),)
    return tuple(
        ContractFault(agent, problem.section, problem.label, problem.message, problem.line)
        for agent, problems in faults.items()
        for problem in problems
    )


def redacted(view: SessionView, phase: Phase) -> dict[str, int]:
    """Return how many secrets were removed from each agent's reply."""
    counts = {agent: output.value.redacted for agent, output in view.outputs(phase).items()}
    return {agent: count for agent, count in counts.items() if count}


def waiting_phase(documents: SessionDocuments, *, to_write: bool = False) -> int:
    """Return the first phase that waits for review; one with a file that cannot be read comes first.

    With `to_write`, also one with a page that a person has to write.
    """
    view = documents.read()
    try:
        entry = SessionPlan(view).next
    except InvalidDocument as error:
        for phase in view.phases:
            if any(problem.file.startswith(view.phase_prefix(phase)) for problem in error.problems):
                return phase.number
        raise
    waits = ("gate", "write") if to_write else ("gate",)
    if entry is None or entry.next_action.action not in waits:
        raise InvalidRequest("no phase waits for review; haytham status shows where the session stands")
    return entry.state.phase.number


# What an approval starts.


def upcoming_work(documents: SessionDocuments, number: int) -> UpcomingWork:
    """Return what `resume` would do once a phase is approved as it is now, worked out on a copy in memory."""
    copy = copy_in_memory(documents)
    gate = ReviewGate(copy)
    gate.complete_pending_move()
    gate.decide(number, "approved", by=None, changes=[], anyway=True)
    plan = SessionPlan(copy.read())
    entry = plan.next
    if entry is None:
        return UpcomingWork()
    action, phase = entry.next_action, entry.state.phase
    calls = _calls(plan, phase, action.agents, copy.state()) if action.action in _RUNS else ()
    return UpcomingWork(phase.number, phase.name, action.action, tuple(calls))


def _calls(
    plan: SessionPlan, phase: Phase, agents: tuple[str, ...], state: Mapping[str, object]
) -> Iterator[UpcomingCall]:
    model = plan.view.settings.model
    for agent in agents:
        task, spec = plan.build_request(phase, agent, state)
        name = _first_model(spec, model)
        yield UpcomingCall(agent, name, _estimate(name, task.prompt, spec.max_output_tokens))


def _first_model(spec: AgentSpec, model: str | None) -> str:
    """Return the model that is asked first; a replay answers for every agent but a person."""
    default = model or DEFAULT_MODEL
    if default.startswith(REPLAY) and "human" not in spec.models:
        return default
    return resolve_models(spec, default)[0]


def _estimate(model: str, prompt: str, max_output_tokens: int) -> Usage:
    """Return what a call may take at most; the cost of code is unknown."""
    return Usage(cost=None) if runs_code(model) else find_adapter(model).estimate(model, prompt, max_output_tokens)


# Editing.


def edit(
    documents: SessionDocuments,
    folder: Path,
    number: int,
    open_editor: Callable[[Path, int], None],
    *,
    agent: str | None = None,
) -> None:
    """Let a person edit a phase's outputs, then its feedback, one file at a time, again until all can be read.

    With `agent`, its output alone. `open_editor` is called with a file and the line of its content. InvalidDocument if
    they leave a file as it is that cannot be read; `folder` is the workspace.
    """
    files = ReviewFiles(documents, number)
    files.open_review()
    files.note_faults()
    keys = files.files() if agent is None else files.output_keys(agent)
    while True:
        before = files.content()
        try:
            for key in keys:
                open_editor(folder / key, files.content_line(key))
        finally:
            is_unchanged = files.content() == before
            files.remove_notes()
        faults = files.faults()
        if not faults:
            return
        if is_unchanged:
            raise InvalidDocument(faults)
        files.note_faults()
        keys = [key for key in files.files() if any(fault.file == key for fault in faults)]
