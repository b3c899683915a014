"""Asking an agent: within the budget, as often as its file allows, until its reply keeps its contract.

Whatever an agent raises is its failure, and comes back as a value with all that was spent on it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.agents.base import Reply, call_agent
from haytham.agents.human import AwaitingHuman
from haytham.agents.prompt import build_repair_prompt
from haytham.agents.python import function_agent
from haytham.agents.registry import find_adapter, load_agent, resolve_models, runs_code
from haytham.config.agent_spec import is_importable, read_agent
from haytham.config.policy import BudgetLimits
from haytham.engine.budget import budget_warning, check_budget
from haytham.errors import (
    AgentError,
    BudgetExceeded,
    CallableNotImportable,
    ContractViolation,
    HaythamError,
    InvalidDocument,
    UntrustedCode,
    describe_error,
)
from haytham.memory.session_memory import NO_MEMORY
from haytham.redact import redact
from haytham.session.paths import EVENTS, SPEND
from haytham.session.spend_log import BudgetDenial, CallRecord, SpendLog, reserved_entry
from haytham.session.state import EMPTY, merge_patch
from haytham.storage.memory import MemoryStore
from haytham.usage import Usage, UsageTotal, estimated_tokens, sum_usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.agents.base import Agent, Task
    from haytham.agents.registry import Adapter
    from haytham.agents.replay import Recorder
    from haytham.config.agent_spec import AgentFunction, AgentSpec
    from haytham.events import Events
    from haytham.memory.session_memory import SessionMemory
    from haytham.session.changes import Transaction
    from haytham.session.plan import SessionPlan
    from haytham.session.session import SessionDocuments

log = logging.getLogger(__name__)

_PYTHON = "python:"
RUNS = ("run", "run again", "next attempt")  # the actions of a plan that call agents
_NO_FAILURE = (UntrustedCode, BudgetExceeded, AwaitingHuman)


@dataclass(frozen=True)
class RunOptions:
    """How a run asks its agents, beyond what their files say.

    `model` answers for every agent (a replay does); `recorder` keeps every reply; `secrets` are never told; `backoff`
    is how many seconds pass before the first retry, twice as many before the next. `callables` are agents that the
    caller passed, by name: they are called directly and need no trust. `memory` is the memory of the session's user.
    """

    model: str | None = None
    recorder: Recorder | None = None
    max_output_tokens: int | None = None
    secrets: tuple[str, ...] = ()
    backoff: float = 0.5
    callables: Mapping[str, AgentFunction] = field(default_factory=dict)
    memory: SessionMemory = NO_MEMORY


@dataclass(frozen=True)
class Draft:
    """A reply that was paid for, what its contract finds wrong with it, and how often it was sent back for that."""

    reply: Reply
    complaints: list[str]
    repairs: int = 0


@dataclass(frozen=True)
class _Target:
    """A model as it is called: its name, what its adapter declares, and the agent that answers."""

    model: str
    adapter: Adapter
    agent: Agent


@dataclass(frozen=True)
class _StartedCall:
    """A call that is on record and not made yet."""

    target: _Target
    record: CallRecord


@dataclass
class CallResult:
    """What came of asking an agent: a reply or an error, and what all calls for it took together.

    `draft` is the newest reply, kept while it is being repaired; `is_free` whether the model asked last costs nothing.
    """

    reply: Reply | None = None
    error: Exception | None = None
    model: str | None = None
    calls: list[CallRecord] = field(default_factory=list)
    draft: Draft | None = None
    is_free: bool = False

    def tokens(self, name: str) -> int | None:
        """Return input or output tokens of all calls; None if no call reports them."""
        known = [count for call in self.calls if (count := getattr(call, name)) is not None]
        return sum(known) if known else None

    @property
    def cost(self) -> float | None:
        """Return the cost of all calls, as far as known; None if none is known."""
        return sum_usage(call.amount for call in self.calls).known_cost


class AgentInvoker:
    """Asks the agents of one session during one run."""

    def __init__(self, session: SessionDocuments, events: Events, *, may_run_code: bool, options: RunOptions) -> None:
        self._session, self._events = session, events
        self._may_run_code = may_run_code
        self._options = options
        self._limits, self._before = BudgetLimits(), UsageTotal()
        self._taken: dict[str, Usage] = {}
        self._started: dict[tuple[int, str], _StartedCall] = {}
        self.default_model: str | None = None

    def follow(self) -> bool:
        """Follow a session's folder that was renamed; return whether it exists."""
        if not self._session.follow():
            return False
        self._events.relocate(self._session.prefix + EVENTS)
        return True

    @property
    def _spend(self) -> SpendLog:
        """Return the spend log of the session, wherever the session is now; one that was deleted records nothing."""
        return SpendLog(self._session.store if self.follow() else MemoryStore(), self._session.prefix)

    def load_budget(self) -> None:
        """Read the limits and what was spent; call it when a run starts."""
        lost = self._spend.problems()
        if lost:
            raise InvalidDocument(lost)
        self._spend.start_run()
        view = self._session.read()
        self._limits, self.default_model = view.limits, view.settings.model
        self._before, self._taken = self._spend.read().total, {}

    @property
    def spent(self) -> UsageTotal:
        """Return what the session has spent, reservations included."""
        return self._before + sum_usage(self._taken.values())

    async def invoke(self, task: Task, spec: AgentSpec) -> CallResult:
        """Ask an agent, model after model; what is no failure of it is raised, all else is in the answer."""
        answer, spec = CallResult(), self._limited(spec)
        for model in self._models(spec):
            answer.model = model
            try:
                answer.reply, answer.error = await self._ask_model(model, task, spec, answer), None
            except _NO_FAILURE:
                raise
            except ContractViolation as error:
                answer.error = error
                break
            except Exception as error:  # noqa: BLE001 - the one place: whatever an agent raises is its failure, kept with it
                answer.error = error
            else:
                break
        if answer.draft is not None and answer.error is not None and not isinstance(answer.error, ContractViolation):
            answer.error = _not_repaired(answer.draft, answer.error)
        return answer

    def start(self, task: Task, spec: AgentSpec, changes: Transaction) -> None:
        """Put the first call for a task on record in a transaction; `invoke` makes it.

        One that cannot be made, or would exceed a limit, is left to `invoke`.
        """
        spec, model = self._limited(spec), self._models(spec)[0]
        try:
            target = _Target(model, find_adapter(model), self._open(task.agent, model))
            estimate = target.adapter.estimate(model, task.prompt, spec.max_output_tokens)
        except Exception as error:  # noqa: BLE001 - which is the agent's failure once it is called
            log.debug("the call of %s cannot be started: %s", task.agent, error)
            return
        if check_budget(self._limits, self.spent, estimate) is None:
            record = self._take(target, task, estimate)
            if not target.adapter.is_free:
                changes.store.append(self._session.prefix + SPEND, reserved_entry(record))
            changes.emit("agent_started", phase=task.phase, agent=task.agent, model=model)
            self._started[task.phase, task.agent] = _StartedCall(target, record)

    def _limited(self, spec: AgentSpec) -> AgentSpec:
        most = self._options.max_output_tokens
        return spec if most is None else replace(spec, max_output_tokens=most)

    def _models(self, spec: AgentSpec) -> list[str]:
        if self._options.model is not None and "human" not in spec.models:  # what a person has to write, nobody replays
            return [self._options.model]
        return resolve_models(spec, self.default_model)

    def check_trusted(self, spec: AgentSpec) -> None:
        """Refuse code that is not trusted here, before anybody of its phase is asked."""
        for model in self._models(spec):
            self._check_trusted(spec.name, model)

    def _check_trusted(self, agent: str, model: str) -> None:
        if runs_code(model) and not self._may_run_code and self._callable(agent, model) is None:
            raise UntrustedCode(agent, model)

    def _callable(self, agent: str, model: str) -> AgentFunction | None:
        """Return the callable that the caller passed for an agent, if the model names it."""
        return self._options.callables.get(agent) if model.startswith(_PYTHON) else None

    def _open(self, agent: str, model: str) -> Agent:
        function = self._callable(agent, model)
        return load_agent(model) if function is None else function_agent(function, model)

    def check_code(self, plan: SessionPlan, retry: int | None) -> None:
        """Refuse a callable of a phase that will run and cannot be imported, and untrusted code of a phase to retry."""
        self.default_model = plan.view.settings.model
        for entry in plan.phases:
            is_retried = entry.state.phase.number == retry
            if is_retried or entry.next_action.action in RUNS:
                for name in entry.next_action.agents or entry.state.phase.agents:
                    spec = read_agent(name, plan.agent_file(name))
                    self._check_importable(spec)
                    if is_retried:
                        self.check_trusted(spec)

    def _check_importable(self, spec: AgentSpec) -> None:
        """Refuse a Python callable that was not passed and cannot be imported."""
        for model in self._models(spec):
            is_local = model.startswith(_PYTHON) and not is_importable(model.removeprefix(_PYTHON))
            if is_local and spec.name not in self._options.callables:
                raise CallableNotImportable(spec.name, model)

    async def _ask_model(self, model: str, task: Task, spec: AgentSpec, answer: CallResult) -> Reply:
        """Ask one model, again where that may help; a call that is tried again is the one that failed."""
        self._check_trusted(task.agent, model)
        started = self._started.get((task.phase, task.agent))
        if started is None:
            target = _Target(model, find_adapter(model), self._open(task.agent, model))
        else:
            target = started.target
        answer.is_free = target.adapter.is_free
        for left in range(spec.retries, -1, -1):
            try:
                return await self._kept(target, task, spec, answer)
            except _NO_FAILURE:
                raise
            except Exception as error:
                tries = left if getattr(error, "retry", True) else 0
                message = redact(describe_error(error), self._options.secrets)
                self._events.emit("agent_failed", phase=task.phase, agent=task.agent, error=message, tries_left=tries)
                if not tries:
                    raise
                await asyncio.sleep(self._options.backoff * 2 ** (spec.retries - left))
        raise AssertionError("an agent is asked at least once")

    async def _kept(self, target: _Target, task: Task, spec: AgentSpec, answer: CallResult) -> Reply:
        """Return a reply that keeps its contract: what it misses goes back with the exact complaints.

        A draft that was paid for already, by this model or the one before it, is repaired and not asked for again.
        """
        if answer.draft is None:
            answer.draft = await self._checked(target, task, spec, answer)
        while answer.draft.complaints:
            draft = answer.draft
            if draft.repairs >= spec.repairs:
                raise ContractViolation(draft.complaints, draft.reply.text)
            self._events.emit("repair_asked", phase=task.phase, agent=task.agent, complaints=draft.complaints)
            again = replace(task, prompt=build_repair_prompt(task, draft.reply.text, draft.complaints))
            try:
                repaired = await self._checked(target, again, spec, answer)
            except BudgetExceeded as reached:  # what was paid for is kept: a person may mend it
                broken = ContractViolation([f"it was not sent back: {reached}", *draft.complaints], draft.reply.text)
                broken.by_budget = True
                raise broken from None
            answer.draft = replace(repaired, repairs=draft.repairs + 1)
        return answer.draft.reply

    async def _checked(self, target: _Target, task: Task, spec: AgentSpec, answer: CallResult) -> Draft:
        """Return a reply with the faults that its contract finds; a reply that was cut off has one fault more.

        Faults that a person left on the page before are theirs: nobody is sent back to mend them.
        """
        cut: list[str] = []
        try:
            reply = await self._call(target, task, spec, answer)
        except AgentError as error:
            if not error.cut_off or task.contract is None:
                raise
            reply, cut = Reply(error.text, model=target.model), [str(error)]
        if not reply.text.strip() and not cut:
            raise AgentError("the reply is empty")
        accepted = "" if task.previous is None else task.previous.revised_text(task.agent)
        problems = [] if task.contract is None else task.contract.validate(reply.text, accepted=accepted)
        return Draft(reply, cut + [str(problem) for problem in problems])

    async def _call(self, target: _Target, task: Task, spec: AgentSpec, answer: CallResult) -> Reply:
        """Make one call: reserve it before, settle it after. A killed call stays reserved, in full."""
        started = self._started.pop((task.phase, task.agent), None)
        call = self._start_now(target, task, spec) if started is None else started.record
        begun = clock.monotonic()
        try:
            reply = await call_agent(target.agent, task, spec)
        except AwaitingHuman:
            raise
        except Exception as error:
            facts = _of_failure(error, call, is_free=target.adapter.is_free)
            settled = _settled(facts, call, clock.monotonic() - begun, "failed")
            answer.calls.append(self._settle(target, settled))
            self._record(task, error)
            raise
        facts = _of_reply(reply, task.prompt, call, is_free=target.adapter.is_free)
        answer.calls.append(self._settle(target, _settled(facts, call, clock.monotonic() - begun, "completed")))
        self._record(task, reply)
        merge_patch(EMPTY, reply.state or {})
        return reply

    def _record(self, task: Task, outcome: Reply | Exception) -> None:
        """Record an answer that was paid for; report a failure to record it, and go on with the answer."""
        recorder = self._options.recorder
        try:
            if recorder is not None and isinstance(outcome, Reply):
                recorder.record(task, outcome)
            elif recorder is not None and isinstance(outcome, Exception):
                recorder.record_failure(task, outcome)
        except (HaythamError, OSError) as error:
            log.warning("an answer was not recorded: %s", error)

    def _start_now(self, target: _Target, task: Task, spec: AgentSpec) -> CallRecord:
        """Put a call on record: BudgetExceeded if it would exceed a limit."""
        estimate = target.adapter.estimate(target.model, task.prompt, spec.max_output_tokens)
        why = check_budget(self._limits, self.spent, estimate)
        if why is not None:
            limits = self._limits
            self._spend.refuse(task.phase, task.agent, BudgetDenial(why, estimate, limits.max_cost, limits.max_tokens))
            raise BudgetExceeded(why)
        record = self._take(target, task, estimate)
        if not target.adapter.is_free:
            self._spend.reserve(record)
        self._events.emit("agent_started", phase=task.phase, agent=task.agent, model=target.model)
        return record

    def _take(self, target: _Target, task: Task, estimate: Usage) -> CallRecord:
        record = CallRecord(clock.new_id(), task.phase, task.agent, task.attempt, target.model, estimate)
        self._taken[record.id] = estimate
        return record

    def _settle(self, target: _Target, settled: CallRecord) -> CallRecord:
        before = self.spent
        if not target.adapter.is_free:
            self._spend.settle(settled)
        self._taken[settled.id] = settled.amount
        warning = budget_warning(self._limits, before, self.spent)
        if warning is not None:
            self._events.emit("budget_warning", why=warning)
        return settled


def _not_repaired(draft: Draft, error: Exception) -> ContractViolation:
    """Return the failure of an agent whose reply was sent back without an answer: the reply is kept with it."""
    reason = str(error) or type(error).__name__
    broken = ContractViolation([f"it was sent back, and no answer came: {reason}", *draft.complaints], draft.reply.text)
    broken.__cause__ = error
    return broken


def _settled(facts: dict[str, Any], call: CallRecord, seconds: float, outcome: str) -> CallRecord:
    return replace(call, **facts, seconds=round(seconds, 3), outcome=outcome)


def _of_reply(reply: Reply, prompt: str, call: CallRecord, *, is_free: bool) -> dict[str, Any]:
    """Return what a reply took: as it says, else as reserved; where nothing was, as long as the texts are."""
    if is_free:
        return {"settled": Usage(), "input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
    counts = reply.input_tokens, reply.output_tokens
    counted = zip(counts, (prompt, reply.text), strict=True)
    tokens = sum(estimated_tokens(text) if count is None else count for count, text in counted)
    if None in counts and call.reserved.tokens:
        tokens = call.reserved.tokens
    return {"settled": Usage(tokens, reply.cost), "input_tokens": counts[0], "output_tokens": counts[1]}


def _of_failure(error: Exception, call: CallRecord, *, is_free: bool) -> dict[str, Any]:
    """Return what a failed call took; all that was reserved if it does not say."""
    failure = error if isinstance(error, AgentError) else AgentError("")
    counts = failure.input_tokens, failure.output_tokens
    if is_free:
        return {"settled": Usage(), "input_tokens": counts[0], "output_tokens": counts[1]}
    tokens = call.reserved.tokens if None in counts else sum(count or 0 for count in counts)
    return {"settled": Usage(tokens, failure.cost), "input_tokens": counts[0], "output_tokens": counts[1]}
