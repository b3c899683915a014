"""The run loop: plans, does the next step, stores it, and plans again, until a person is needed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.agents.human import AwaitingHuman
from haytham.agents.registry import DEFAULT_MODEL
from haytham.engine.autosnapshot import AutoSnapshotter, SessionTaskSnapshots
from haytham.engine.drift_monitor import DriftMonitor, progress_facts
from haytham.engine.invoke import RUNS, AgentInvoker, RunOptions
from haytham.engine.result import (
    AgentOutcome,
    PhaseRun,
    RunResult,
    checkpoint_facts,
    completed_facts,
    count_retries,
    failed_facts,
    is_mendable,
    is_readable,
    ledger_costs,
    ledger_rows,
    plain_text,
    without_secrets,
)
from haytham.engine.run_plan import PlanReporter, RunPlanner
from haytham.errors import (
    AgentError,
    BudgetExceeded,
    ContractViolation,
    HaythamError,
    InvalidDocument,
    SessionMoved,
    SessionNotReady,
    WorkLeft,
)
from haytham.history.history import History
from haytham.redact import redact
from haytham.session.derived import parse_rows
from haytham.session.pages import UNWRITTEN, accept_written, output_paths
from haytham.session.paths import session_lock, session_prefix
from haytham.session.plan import SessionPlan
from haytham.session.quarantine import quarantine_reply
from haytham.session.review import ReviewGate
from haytham.session.session import SessionDocuments
from haytham.session.state import InvalidState, read_state
from haytham.session.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from haytham.agents.base import Task
    from haytham.config.agent_spec import AgentSpec
    from haytham.config.workflow import Phase
    from haytham.engine.invoke import CallResult
    from haytham.events import Events
    from haytham.session.changes import Transaction
    from haytham.session.plan import PhasePlan

__all__ = ["RunResult", "Runner"]

_DEFAULT_OPTIONS = RunOptions()
_PHASE_EVENTS = {"completed": "phase_completed", "failed": "phase_failed", "in_progress": "phase_waiting"}


class Runner:
    """Drives one session. `approve_as` approves every gate in that name, and the record says so."""

    def __init__(
        self,
        session: SessionDocuments,
        events: Events,
        *,
        approve_as: str | None = None,
        may_run_code: bool = False,
        options: RunOptions = _DEFAULT_OPTIONS,
    ) -> None:
        self._events, self._options, self._may_run_code = events, options, may_run_code
        self._approve_as = approve_as
        self._secrets, self._memory = options.secrets, options.memory
        self._ran: tuple[Phase, bool] | None = None
        self._costs: dict[tuple[int, str], float | None] = {}
        self._reporter = PlanReporter(events)
        self._build(session)
        self._phase_run: PhaseRun
        self._kept_aside: list[str] = []
        self._unstored: list[Exception] = []

    def _build(self, session: SessionDocuments) -> None:
        """Build all that has read documents, so that the run goes on from what is on disk."""
        events, may_run_code = self._events, self._may_run_code
        self._session, self._planner = session, RunPlanner(session, self._approve_as)
        self._gate = ReviewGate(session)
        self._invoker = AgentInvoker(session, events, may_run_code=may_run_code, options=self._options)
        self._history = History(session, events=events, may_run_code=may_run_code)
        self._snapshotter = AutoSnapshotter(self._history)
        self._drift = DriftMonitor(session, events, self._snapshotter)

    async def run(
        self, *, by: str | None = None, retry: int | None = None, anyway: bool = False, only_if: str | None = None
    ) -> RunResult:
        """Go on until the session is completed, rejected, failed, or waits for a person.

        `retry` first runs a phase again: WorkLeft where a phase that it needs has work left, unless `anyway` is given.
        `only_if` is the status that the session must have: SessionNotReady for another one.
        """
        with self._session.store.run_lock(session_lock(self._session.project_id, self._session.session_id)):
            if only_if is not None and (status := summarize(self._session.read()).status) != only_if:
                raise SessionNotReady(self._session.session_id, status)
            self._check(retry, anyway=anyway)
            self._history.check_store()
            session, before = self._session, self._session.events
            session.events = self._events
            try:
                async with self._events.finished_in_loop():
                    return await self._run(by, retry)
            finally:
                session.events = before

    def _check(self, retry: int | None, *, anyway: bool) -> None:
        """Refuse a run, before anything changes, that could not do what it is asked for."""
        try:
            plan = SessionPlan(self._session.read())
        except InvalidDocument:  # which the run itself reports
            return
        if retry is not None and not anyway and (left := plan.unfinished_needs(retry)):
            raise WorkLeft(retry, left)
        self._invoker.check_code(plan, retry)

    async def _run(self, by: str | None, retry: int | None) -> RunResult:
        """Run, and tell how it ended."""
        self._kept_aside, self._unstored = [], []
        try:
            while (outcome := await self._loop(by, retry)) is None:
                retry = None
                self._drift.clear("refresh")
                fresh = SessionDocuments(self._session.store, self._session.project_id, self._session.session_id)
                fresh.events = self._events
                self._build(fresh)
        except asyncio.CancelledError:
            self._events.emit("run_ended", status="stopped", phase=None)
            raise
        except Exception as error:
            moved = self._moved()
            if moved is None:
                self._snapshotter.after_error(f"the run ended: {type(error).__name__}")
            self._events.emit("run_ended", status="error", phase=None)
            if moved is not None and not isinstance(error, SessionMoved):
                raise moved from error
            raise
        self._events.emit("run_ended", status=outcome.status, phase=outcome.phase)
        return outcome

    async def _loop(self, by: str | None, retry: int | None) -> RunResult | None:
        """Run from what is on disk until something ends that; None where drift asks to go on from disk anew."""
        self._session.make_folders()
        self._gate.complete_pending_move()
        if retry is not None:
            self._snapshotter.before_rerun(self._session.read().phase(retry), "retry")
            self._gate.retry(retry, by)
        self._session.refresh_derived_if_needed()
        self._snapshotter.prune_on_start()
        self._invoker.load_budget()
        plan = self._refresh_plan(by)
        self._drift.start()
        self._reporter.report_resumed(plan, retry, approves=self._approve_as is not None)
        self._snapshotter.backfill_approvals()
        with self._session.running():
            if retry is not None:
                outcome = await self._run_again(plan, retry)
                if outcome is not None:
                    return outcome
                plan = self._refresh_plan(by)
            while True:
                if self._drift.stop is not None and plan.next is not None and plan.next.next_action.action in RUNS:
                    self._snapshot_phase()
                    stop, number = self._drift.stop, plan.next.number
                    return RunResult("paused", number, self._drift.why) if stop == "pause" else None
                outcome = await self._do_next_step(plan)
                await self._events.drain()
                if outcome is not None:
                    return outcome
                plan = self._refresh_plan(by, plan)

    async def _run_again(self, plan: SessionPlan, number: int) -> RunResult | None:
        """Run one phase, whatever is left in phases before it, and stop at its gate."""
        entry = plan.phase(number)
        if entry.next_action.action not in ("run", "run again"):
            return None
        outcome = await self._run_phase(plan, entry)
        entry = SessionPlan(self._session.read()).phase(number)
        is_stale = entry.state.stale_needs and entry.state.phase.review == "required"
        is_open = entry.next_action.action == "gate" or is_stale
        return self._stop_at_gate(entry) if outcome is None and is_open else outcome

    def _refresh_plan(self, by: str | None, previous: SessionPlan | None = None) -> SessionPlan:
        """Return the plan, once decisions made in an editor are bound to their texts."""
        plan = self._planner.plan(previous)
        self._reporter.report_revisions(plan)
        if any(entry.may_bind(by) for entry in plan.phases):
            for bound in self._gate.bind_editor_decisions(by):
                self._snapshotter.after_decision(bound.phase, bound.decision)
                self._memory.learn([bound.phase])
            plan = self._planner.plan(None)
        self._reporter.report_refused(plan)
        self._reporter.report_stale(plan)
        self._session.use_plan(plan)
        self._invoker.default_model = plan.view.settings.model
        return plan

    async def _do_next_step(self, plan: SessionPlan) -> RunResult | None:
        """Do the next thing; an outcome where that ends the run."""
        entry = plan.next
        if entry is None or entry.next_action.action != "gate":
            self._snapshot_phase()
        if entry is None:
            self._reporter.report_completed(plan)
            self._snapshotter.on_completed()
            return RunResult("completed")
        step, phase = entry.next_action.action, entry.state.phase
        if step == "rejected":
            return RunResult("rejected", phase.number)
        if step == "write":
            why = f"{entry.next_action.reason}: {output_paths(plan.view, phase, entry.next_action.agents)}"
            return RunResult("waiting", phase.number, why, entry.next_action.agents)
        if step in ("next attempt", "run again"):
            self._snapshotter.before_rerun(phase, entry.next_action.reason or step)
        if step == "next attempt":
            self._gate.start_attempt(phase.number)
            return None
        if step in ("run", "run again"):
            return await self._run_phase(plan, entry)
        return self._stop_at_gate(entry)

    def _stop_at_gate(self, entry: PhasePlan) -> RunResult | None:
        phase = entry.state.phase
        if not entry.is_presented:
            self._gate.open_review(phase.number, entry.next_action.reason)
        self._snapshot_phase()
        if not phase.may_review(self._approve_as):
            return RunResult("waiting", phase.number, entry.next_action.reason)
        bound = self._gate.decide(phase.number, "approved", by=self._approve_as, changes=[])
        self._snapshotter.after_decision(phase.number, bound.decision)
        self._memory.learn([phase.number])
        return None

    def _snapshot_phase(self) -> None:
        """Take the snapshot of a phase that has run: once its gate is open, where it has one."""
        if self._ran is not None:
            phase, done = self._ran
            self._ran = None
            self._snapshotter.after_phase(phase, done=done)

    async def _run_phase(self, plan: SessionPlan, entry: PhasePlan) -> RunResult | None:
        """Run agents of a phase, and those that failed again, as often as the policy allows."""
        policy, number = self._history.policy, entry.number
        limit = policy.max_retries if policy.enabled and policy.auto_resume_on_failure else 0
        outcome = await self._run_agents(plan, entry, count_retries(self._session.read(), entry.state.phase))
        for count in range(limit):
            if outcome is None or outcome.status != "failed" or not self._phase_run.is_mendable:
                break
            await asyncio.sleep(self._options.backoff * 2**count)
            plan = SessionPlan(self._session.read())
            entry = plan.phase(number)
            if entry.next_action.action not in ("run", "run again"):  # a person wrote what was missing
                return None
            outcome = await self._run_agents(plan, entry, self._phase_run.retries + 1)
        if outcome is not None and outcome.status == "failed":
            self._snapshot_phase()
        return outcome

    async def _run_agents(self, plan: SessionPlan, entry: PhasePlan, retries: int) -> RunResult | None:
        """Run agents of a phase once, in parallel or in order, and save its checkpoint."""
        phase, agents = entry.state.phase, entry.next_action.agents
        run = self._phase_run = PhaseRun(phase, clock.now(), clock.monotonic(), set(agents), retries)
        first = agents[:1] if phase.run == "sequential" else agents
        asked = self._ask(plan, phase, first, agents)
        if phase.run == "sequential":
            await self._run_in_order(plan, phase, agents, asked)
        else:
            await self._run_together(asked)
        self._check_stored()
        if run.named("refused"):
            return RunResult("paused", phase.number, self._session.read().pause_reason() or "", run.named("refused"))
        if run.status is None:
            with self._session.transaction() as changes:
                self._save_phase(changes, run)
        self._drift.check()
        failed = run.named("failed")
        self._ran = phase, run.status == "completed"
        if failed:
            return RunResult("failed", phase.number, f"{', '.join(failed)} failed", failed)
        return None

    def _ask(
        self, plan: SessionPlan, phase: Phase, agents: tuple[str, ...], started: tuple[str, ...] | None = None
    ) -> list[tuple[Task, AgentSpec]]:
        """Return what agents are asked; put it on record, where they have written nothing yet, with their first calls.

        `started` are the agents of a phase that starts with this.
        """
        facts: dict[str, Any] = {"phase": phase.number, "name": phase.name, "agents": list(started or ())}
        try:
            asked = [self._request(plan, phase, name) for name in agents]
        except HaythamError:
            if started is not None:
                self._events.emit("phase_started", **facts)
            raise
        with self._session.transaction() as changes:
            if started is not None:
                changes.emit("phase_started", **facts)
            for task, spec in asked:
                if task.agent not in plan.phase(phase.number).state.outputs:
                    changes.save_task(changes.view.require_phase(phase.number), task)
                self._invoker.start(task, spec, changes)
        return asked

    def _request(self, plan: SessionPlan, phase: Phase, name: str) -> tuple[Task, AgentSpec]:
        task, spec = plan.build_request(phase, name, read_state(plan.view), self._memory.recall)
        self._invoker.check_trusted(spec)
        tell = partial(self._events.emit, "agent_text", phase=phase.number, agent=name)  # not kept before it is whole
        history = SessionTaskSnapshots(self._history)
        return replace(task, history=history, on_text=lambda text: tell(text=text)), spec

    async def _run_in_order(
        self, plan: SessionPlan, phase: Phase, agents: tuple[str, ...], asked: list[tuple[Task, AgentSpec]]
    ) -> None:
        """Run agents in order, each seeing earlier outputs; stop at the first that is not done."""
        run = self._phase_run
        for name in agents:
            if name not in plan.phase(phase.number).next_action.agents:
                run.waiting.discard(name)
                continue
            [(task, spec)] = asked or self._ask(plan, phase, (name,))
            asked = []
            outcome = await self._run_agent(task, spec)
            run.end(name, outcome)
            if outcome != "done" or self._unstored or not self._session.is_in_place:
                break
            if run.waiting:
                plan = SessionPlan(self._session.read(), previous=plan, numbers={phase.number})

    async def _run_together(self, asked: list[tuple[Task, AgentSpec]]) -> None:
        """Run agents in parallel. An error that ends the run ends all of them."""
        run = self._phase_run

        async def run_agent(task: Task, spec: AgentSpec) -> None:
            run.end(task.agent, await self._run_agent(task, spec))

        try:
            async with asyncio.TaskGroup() as group:
                for task, spec in asked:
                    group.create_task(run_agent(task, spec))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def _save_phase(self, changes: Transaction, run: PhaseRun) -> None:
        """Save the checkpoint of a phase whose agents have run."""
        phase, failed = changes.view.require_phase(run.phase.number), run.named("failed")
        unwritten = accept_written(changes, phase)
        status = "failed" if failed else "in_progress" if unwritten else "completed"
        view = changes.view
        outputs = {name: document.value for name, document in view.outputs(phase).items()}
        rows = ledger_rows(phase, outputs, ledger_costs(view, phase, self._costs))
        errors = {name: outputs[name].error_message for name in failed}
        facts = checkpoint_facts(run, status, view.attempt(phase), errors)
        changes.save_checkpoint(phase, facts, parse_rows(rows), report=False)
        changes.emit(_PHASE_EVENTS[status], phase=phase.number)
        if phase.review == "none" and self._snapshotter.takes(phase):
            changes.refresh_manifest()  # a snapshot follows
        run.status = status

    async def _run_agent(self, task: Task, spec: AgentSpec) -> AgentOutcome:
        """Ask an agent, and store what it answers the moment it is there; how that came out."""
        begun = clock.monotonic()
        try:
            answer = await self._invoker.invoke(task, spec)
        except BudgetExceeded as reached:
            self._events.emit("budget_exceeded", phase=task.phase, agent=task.agent, why=str(reached))
            return "refused"
        except AwaitingHuman as waits:
            self._events.emit("person_asked", phase=task.phase, agent=task.agent)
            stored = self._store(task, UNWRITTEN, waits.outline, clock.monotonic() - begun)
            return "unwritten" if stored else "done"
        seconds = clock.monotonic() - begun
        if answer.reply is None or answer.error is not None:
            return self._fail(task, answer, seconds)
        reply, redacted = answer.reply, 0
        if answer.model != DEFAULT_MODEL:  # which only repeats what people wrote
            reply, redacted = without_secrets(answer.reply, self._secrets)
        facts = completed_facts(answer, reply) | ({"redacted": redacted} if redacted else {})
        cost = answer.reply.cost if answer.is_free else answer.cost
        declared, similarity = spec.runtime.get("snapshot"), self._drift.similarity(task, reply.text)

        def then(changes: Transaction) -> None:
            if redacted:
                changes.emit("reply_redacted", phase=task.phase, agent=task.agent, places=redacted)
            used = {"tokens": [answer.tokens("input_tokens"), answer.tokens("output_tokens")], "cost": answer.cost}
            more = {**similarity, **progress_facts(changes.view)}
            changes.emit("agent_completed", phase=task.phase, agent=task.agent, **used, **more)
            self._costs[task.phase, task.agent] = cost
            is_last = self._phase_run.is_last(task.agent) and not self._snapshotter.takes_after_agent(declared)
            if is_last and is_readable(changes.view, self._phase_run.phase):
                self._save_phase(changes, self._phase_run)

        try:
            stored = self._store(task, facts, reply.text, seconds, state=reply.state, then=then)
        except InvalidState as error:  # sound by itself, and too much for the state as it is now
            return self._fail(task, replace(answer, error=error), seconds)
        if stored and self._session.is_in_place:
            self._snapshotter.after_agent(task.phase, task.agent, declared=declared)
        return "done"

    def _fail(self, task: Task, answer: CallResult, seconds: float) -> AgentOutcome:
        """Store that an agent failed, with its last words, and how far the session came."""
        error = answer.error or AgentError("it did not answer")
        said = str(getattr(error, "text", ""))
        stored = self._store(
            task, failed_facts(answer, error, self._secrets), redact(plain_text(said), self._secrets), seconds
        )
        self._costs[task.phase, task.agent] = answer.cost
        self._phase_run.is_mendable &= is_mendable(error)
        if self._session.is_in_place:
            self._snapshotter.after_error(f"{task.agent} failed: {type(error).__name__}")
        if isinstance(error, ContractViolation) and error.by_budget:
            return "refused"
        return "failed" if stored else "done"

    def _store(  # noqa: PLR0913 - a reply, and what follows from it
        self,
        task: Task,
        facts: dict[str, Any],
        text: str,
        duration: float,
        *,
        state: Mapping[str, Any] | None = None,
        then: Callable[[Transaction], None] | None = None,
    ) -> bool:
        """Store how an agent came out; return whether that was done.

        A person may have written in its place, or its place may be gone: then the text is kept aside. An error ends
        the run once all agents of the phase have answered.
        """
        facts = {"task": task.digest, "duration": round(duration, 3), **facts}
        self._invoker.follow()
        why = "a person has written there"
        try:
            stored = self._gate.save_reply(task, facts, text, state, then=then)
        except InvalidState:
            raise
        except InvalidDocument:  # told when the phase is saved, once all others have answered
            stored = False
        except (HaythamError, OSError) as error:
            stored, why = False, str(error)
            self._unstored.append(error)
        if not stored and text:
            kept = quarantine_reply(self._session, task.phase, task.agent, text)
            self._kept_aside.append(kept)
            why = f"{why}; it is kept in {kept}"
            self._events.emit("reply_not_stored", phase=task.phase, agent=task.agent, why=why)
        return stored

    def _check_stored(self) -> None:
        """End the run where the session is no longer in its place, or a reply could not be stored."""
        if (moved := self._moved()) is not None:
            raise moved
        if self._unstored:
            raise self._unstored[0]

    def _moved(self) -> SessionMoved | None:
        """Return what to raise where the session's folder was renamed or removed; None while it is in its place."""
        if self._session.is_in_place:
            return None
        entry = session_prefix(self._session.project_id, self._session.session_id)
        return SessionMoved(entry, self._session.prefix if self._invoker.follow() else None, self._kept_aside)
