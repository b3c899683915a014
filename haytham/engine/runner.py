"""The only loop: asks where a session stands, does the next thing, stores it, and asks again, until a person is needed.

Nothing lives in memory between two turns: a crash, an edit and a colleague are all just the next read.
"""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from haytham import clock
from haytham.agents.base import DEFAULT_MODEL
from haytham.agents.human import AwaitingHuman
from haytham.engine.autosnapshot import AutoSnapshotter, SessionTaskSnapshots
from haytham.engine.invoke import AgentInvoker, RunOptions
from haytham.errors import (
    AgentError,
    BudgetExceeded,
    ContractViolation,
    HaythamError,
    InvalidDocument,
    SessionMoved,
    WorkLeft,
    describe_error,
)
from haytham.history.history import History
from haytham.redact import redact, redact_values_in
from haytham.session.outputs import UNWRITTEN, accept_written, output_paths
from haytham.session.paths import session_lock, session_prefix
from haytham.session.plan import SessionPlan
from haytham.session.quarantine import quarantine_reply
from haytham.session.review import ReviewGate
from haytham.session.state import InvalidState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.agents.base import Reply, Task
    from haytham.config.agent_spec import AgentSpec
    from haytham.config.workflow import Phase
    from haytham.engine.invoke import CallResult
    from haytham.events import Events
    from haytham.session.plan import PhasePlan
    from haytham.session.session import Session
    from haytham.session.view import SessionView

Status = Literal["completed", "waiting", "rejected", "failed", "paused"]
AgentOutcome = Literal["done", "failed", "refused", "unwritten"]
_AS_USUAL = RunOptions()


@dataclass(frozen=True)
class RunResult:
    """How a run ended: completed, or at which phase it waits, was rejected, failed or paused, and at which agents."""

    status: Status
    phase: Phase | None = None
    reason: str = ""
    agents: tuple[str, ...] = ()


class Runner:
    """Drives one session. `approve_as` approves every gate in that name, and the record says so."""

    def __init__(
        self,
        session: Session,
        events: Events,
        *,
        approve_as: str | None = None,
        may_run_code: bool = False,
        ways: RunOptions = _AS_USUAL,
    ) -> None:
        self._session = session
        self._gate = ReviewGate(session)
        self._events = events
        self._approve_as = approve_as
        self._secrets = ways.secrets
        self._caller = AgentInvoker(session, events, may_run_code=may_run_code, ways=ways)
        self._history = History(session, events=events, may_run_code=may_run_code)
        self._keeper = AutoSnapshotter(self._history)
        self._ran: tuple[Phase, bool] | None = None
        self._costs: dict[tuple[int, str], float | None] = {}
        self._refused: set[tuple[int, str]] = set()
        self._kept_aside: list[str] = []
        self._unstored: list[Exception] = []

    async def run(self, *, by: str | None = None, retry: int | None = None, anyway: bool = False) -> RunResult:
        """Go on until the session is completed, rejected, failed, or waits for a person.

        `retry` first runs a phase again: WorkLeft where a phase that it needs has work left, unless `anyway` is given.
        """
        with self._session.store.run_lock(session_lock(self._session.project_id, self._session.session_id)):
            if retry is not None and not anyway:
                self._check_needs(retry)
            self._history.check_store()
            async with self._events.finished_in_loop():
                return await self._run(by, retry)

    async def _run(self, by: str | None, retry: int | None) -> RunResult:
        """Run, and tell how it ended."""
        self._kept_aside, self._unstored = [], []
        try:
            outcome = await self._loop(by, retry)
        except asyncio.CancelledError:
            self._events.emit("run_ended", status="stopped", phase=None)
            raise
        except Exception as error:
            moved = self._moved()
            if moved is None:
                self._keeper.after_error(f"the run ended: {type(error).__name__}")
            self._events.emit("run_ended", status="error", phase=None)
            if moved is not None and not isinstance(error, SessionMoved):
                raise moved from error
            raise
        self._events.emit("run_ended", status=outcome.status, phase=outcome.phase and outcome.phase.number)
        return outcome

    async def _loop(self, by: str | None, retry: int | None) -> RunResult:
        self._session.make_folders()
        self._gate.complete_pending_move()
        if retry is not None:
            self._keeper.before_rerun(self._session.read().phase(retry), "retry")
            self._gate.retry(retry, by)
        self._session.refresh_derived_if_needed()
        self._keeper.prune_on_start()
        self._caller.load_budget()
        standing = self._look(by)
        self._keeper.backfill_approvals()
        if retry is not None:
            outcome = await self._run_again(standing, retry)
            if outcome is not None:
                return outcome
            standing = self._look(by)
        while True:
            outcome = await self._turn(standing)
            await self._events.drain()
            if outcome is not None:
                return outcome
            standing = self._look(by)

    def _check_needs(self, number: int) -> None:
        """Refuse to run a phase again while a phase that it needs, directly or not, has work left."""
        standing = SessionPlan(self._session.read())
        phase = standing.reading.phase(number)
        left = [place.state.phase.number for place in standing.needed(phase) if not place.is_done]
        if left:
            raise WorkLeft(number, left)

    async def _run_again(self, standing: SessionPlan, number: int) -> RunResult | None:
        """Run one phase, whatever is left in phases before it, and stop at its gate."""
        place = standing.phase(number)
        if place.next_action.action not in ("run", "run again"):
            return None
        outcome = await self._run_phase(standing, place)
        place = SessionPlan(self._session.read()).phase(number)
        is_open = place.next_action.action == "gate" or (
            place.state.stale_needs and place.state.phase.review == "required"
        )
        return self._stop_at_gate(place) if outcome is None and is_open else outcome

    def _look(self, by: str | None) -> SessionPlan:
        """Where the session stands, once decisions made in an editor are bound to their texts."""
        standing = SessionPlan(self._session.read())
        self._tell_revisions(standing)
        stamped = self._gate.bind_editor_decisions(by)
        for number, said in stamped:
            self._events.emit("decision", phase=number, decision=said, by=by)
            self._keeper.after_decision(number, said)
        standing = SessionPlan(self._session.read()) if stamped else standing
        self._report_refused(standing)
        return standing

    def _report_refused(self, standing: SessionPlan) -> None:
        """Emit, once a run, that a decision in a file does not count, and why."""
        for place in standing.places:
            number, why = place.state.phase.number, str(place.refused)
            if place.refused is not None and (number, why) not in self._refused:
                self._refused.add((number, why))
                self._events.emit("decision_refused", phase=number, why=why)

    def _tell_revisions(self, standing: SessionPlan) -> None:
        """Record that a person revised a text, once, before the review of it is."""
        for place in standing.places:
            phase, feedback = place.state.phase.number, place.state.feedback
            for agent, output in place.state.outputs.items():
                known = (
                    feedback is not None and feedback.decision is not None and feedback.texts.get(agent) == output.text
                )
                if output.revised and not known:
                    self._events.emit_once("revised", phase=phase, agent=agent, text=output.text)

    async def _turn(self, standing: SessionPlan) -> RunResult | None:
        """Do the next thing; an outcome where that ends the run."""
        place = standing.next
        if place is None or place.next_action.action != "gate":
            self._keep_phase()
        if place is None:
            self._keeper.on_completed()
            return RunResult("completed")
        step, phase = place.next_action.action, place.state.phase
        if step == "rejected":
            return RunResult("rejected", phase)
        if step == "write":
            why = f"{place.next_action.reason}: {output_paths(standing.reading, phase, place.next_action.agents)}"
            return RunResult("waiting", phase, why, place.next_action.agents)
        if step in ("next attempt", "run again"):
            self._keeper.before_rerun(phase, place.next_action.reason or step)
        if step == "next attempt":
            self._gate.start_attempt(phase.number)
            self._events.emit("attempt_started", phase=phase.number, attempt=place.state.attempt + 1)
            return None
        if step in ("run", "run again"):
            return await self._run_phase(standing, place)
        return self._stop_at_gate(place)

    def _stop_at_gate(self, place: PhasePlan) -> RunResult | None:
        phase = place.state.phase
        if not _is_presented(place):
            self._gate.open_review(phase.number)
            self._events.emit("gate_opened", phase=phase.number, why=place.next_action.reason)
        self._keep_phase()
        if self._approve_as is None:
            return RunResult("waiting", phase, place.next_action.reason)
        said = self._gate.decide(phase.number, "approved", by=self._approve_as, changes=[])
        self._events.emit("decision", phase=phase.number, decision=said, by=self._approve_as)
        self._keeper.after_decision(phase.number, said)
        return None

    def _keep_phase(self) -> None:
        """Take the snapshot of a phase that has run: once its gate is open, where it has one."""
        if self._ran is not None:
            phase, done = self._ran
            self._ran = None
            self._keeper.after_phase(phase, done=done)

    async def _run_phase(self, standing: SessionPlan, place: PhasePlan) -> RunResult | None:
        """Run agents of a phase, side by side or one after the other, and save how the phase stands then."""
        phase, started, begun = place.state.phase, clock.now(), clock.monotonic()
        self._events.emit("phase_started", phase=phase.number, name=phase.name, agents=list(place.next_action.agents))
        if phase.run == "sequential":
            came = await self._one_by_one(standing, phase, place.next_action.agents)
        else:
            came = await self._side_by_side(standing, phase, place.next_action.agents)
        self._check_stored()
        refused = tuple(name for name, how in came.items() if how == "refused")
        failed = tuple(name for name, how in came.items() if how == "failed")
        if refused:
            return RunResult("paused", phase, self._session.read().pause_reason() or "", refused)
        unwritten = accept_written(self._session, phase.number)
        status = "failed" if failed else "in_progress" if unwritten else "completed"
        self._save_phase(phase, status, failed, started, clock.monotonic() - begun)
        self._ran = phase, status == "completed"
        if failed:
            self._keep_phase()
            return RunResult("failed", phase, f"{', '.join(failed)} failed", failed)
        return None

    async def _one_by_one(
        self, standing: SessionPlan, phase: Phase, agents: tuple[str, ...]
    ) -> dict[str, AgentOutcome]:
        """Run agents one after the other, each on what those before it wrote; how each came out, until one does not."""
        came: dict[str, AgentOutcome] = {}
        for name in agents:
            if name not in standing.phase(phase.number).next_action.agents:
                continue
            came[name] = await self._run_agent(*self._asked(standing, phase, name))
            if came[name] != "done" or self._unstored or not self._session.is_in_place:
                break
            standing = SessionPlan(self._session.read())
        return came

    async def _side_by_side(
        self, standing: SessionPlan, phase: Phase, agents: tuple[str, ...]
    ) -> dict[str, AgentOutcome]:
        """Run agents at the same time; how each came out. What ends the run ends all of them."""
        asked = [self._asked(standing, phase, name) for name in agents]
        try:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(self._run_agent(task, spec)) for task, spec in asked]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return {name: done.result() for name, done in zip(agents, running, strict=True)}

    def _save_phase(self, phase: Phase, status: str, failed: tuple[str, ...], started: str, duration: float) -> None:
        reading = self._session.read()
        outputs = {name: document.value for name, document in reading.outputs(phase).items()}
        costs = self._ledger_costs(reading, phase)
        rows = [
            {"agent_name": name, "status": outputs[name]["status"], "cost": costs.get(name)}
            for name in phase.agents
            if name in outputs
        ]
        modes = {"parallel": "parallel" if len(phase.agents) > 1 else "single", "sequential": "sequential_interactive"}
        facts: dict[str, Any] = {
            "status": status,
            "started": started,
            "completed": clock.now() if status == "completed" else None,
            "duration": round(duration, 3),
            "retry_count": reading.attempt(phase) - 1,
            "execution_mode": modes[phase.run],
        }
        if failed:
            facts["errors"] = [f"{name}: {outputs[name].get('error_message') or 'failed'}" for name in failed]
        self._session.save_checkpoint(phase.number, facts, rows, report=False)
        self._events.emit("phase_ended", phase=phase.number, status=status)

    def _ledger_costs(self, reading: SessionView, phase: Phase) -> dict[str, float | None]:
        """What each agent of a phase has cost in this attempt: as the spend file says, else as it was told."""
        before, attempt = reading.checkpoint(phase), reading.attempt(phase)
        known = {} if before is None else {row["agent_name"]: row["cost"] for row in before.value["ledger"]}
        known |= {name: cost for (number, name), cost in self._costs.items() if number == phase.number}
        return known | reading.spending().costs(phase.number, attempt)

    def _asked(self, standing: SessionPlan, phase: Phase, name: str) -> tuple[Task, AgentSpec]:
        """What an agent is asked, and by which of its rules; on record from now on where it has written nothing yet."""
        task, spec = standing.build_request(phase, name, self._session.state())
        self._caller.check_trusted(spec)
        task = replace(
            task, history=SessionTaskSnapshots(self._history), on_text=partial(self._tell, phase.number, name)
        )
        if name not in standing.phase(phase.number).state.outputs:
            self._session.save_task(phase.number, task)
        return task, spec

    def _tell(self, phase: int, agent: str, text: str) -> None:
        """Show a piece of an answer while it is being written; it is not kept before it is whole."""
        self._events.emit("agent_text", keep=False, phase=phase, agent=agent, text=text)

    async def _run_agent(self, task: Task, spec: AgentSpec) -> AgentOutcome:
        """Ask an agent, and store what it answers the moment it is there; how that came out."""
        begun = clock.monotonic()
        try:
            answer = await self._caller.invoke(task, spec)
        except BudgetExceeded as reached:
            self._events.emit("budget_reached", phase=task.phase, agent=task.agent, why=str(reached))
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
            reply, redacted = _without_secrets(answer.reply, self._secrets)
        facts = _completed(answer, reply) | ({"redacted": redacted} if redacted else {})
        try:
            stored = self._store(task, facts, reply.text, seconds, state=reply.state)
        except InvalidState as error:  # sound by itself, and too much for the state as it is now
            return self._fail(task, replace(answer, error=error), seconds)
        if stored and redacted:
            self._events.emit("reply_redacted", phase=task.phase, agent=task.agent, places=redacted)
        if stored:
            self._costs[task.phase, task.agent] = answer.reply.cost if answer.is_free else answer.cost
            tokens = [answer.tokens("input_tokens"), answer.tokens("output_tokens")]
            self._events.emit("agent_ended", phase=task.phase, agent=task.agent, tokens=tokens, cost=answer.cost)
            if self._session.is_in_place:
                self._keeper.after_agent(task.phase, task.agent, wanted=spec.runtime.get("checkpoint"))
        return "done"

    def _fail(self, task: Task, answer: CallResult, seconds: float) -> AgentOutcome:
        """Store that an agent failed, with its last words, and how far the session came."""
        error = answer.error or AgentError("it did not answer")
        said = str(getattr(error, "text", ""))
        stored = self._store(task, _failed(answer, error, self._secrets), redact(_plain(said), self._secrets), seconds)
        self._costs[task.phase, task.agent] = answer.cost
        if self._session.is_in_place:
            self._keeper.after_error(f"{task.agent} failed: {type(error).__name__}")
        if isinstance(error, ContractViolation) and error.by_budget:
            return "refused"
        return "failed" if stored else "done"

    def _store(
        self, task: Task, facts: dict[str, Any], text: str, duration: float, *, state: Mapping[str, Any] | None = None
    ) -> bool:
        """Store how an agent came out; return whether that was done.

        A person may have written in its place, or its place may be gone: then the text is kept aside. An error ends
        the run once all agents of the phase have answered.
        """
        facts = {"task": task.digest, "duration": round(duration, 3), **facts}
        self._caller.follow()
        why = "a person has written there"
        try:
            stored = self._gate.save_reply(task, facts, text, state)
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
            self._events.emit(
                "reply_not_stored", phase=task.phase, agent=task.agent, why=f"{why}; it is kept in {kept}"
            )
        return stored

    def _check_stored(self) -> None:
        """End the run where the session is no longer in its place, or a reply could not be stored."""
        moved = self._moved()
        if moved is not None:
            raise moved
        if self._unstored:
            raise self._unstored[0]

    def _moved(self) -> SessionMoved | None:
        """Return what to raise where the session's folder was renamed or removed; None while it is in its place."""
        if self._session.is_in_place:
            return None
        place = session_prefix(self._session.project_id, self._session.session_id)
        return SessionMoved(place, self._session.prefix if self._caller.follow() else None, self._kept_aside)


def _is_presented(place: PhasePlan) -> bool:
    """Whether an open gate waits already with what is there, on the ground that is there."""
    feedback = place.state.feedback
    if feedback is None or feedback.decision is not None or feedback.attempt != place.state.attempt:
        return False
    known = {agent: output.current_task for agent, output in place.state.outputs.items() if output.task is not None}
    return all(feedback.tasks.get(agent) == due for agent, due in known.items())


def _without_secrets(reply: Reply, secrets: tuple[str, ...]) -> tuple[Reply, int]:
    """Return a reply without the values of secrets, and in how many places of it they stood."""
    told = {"text": reply.text, "state": dict(reply.state or {}), "tools": list(reply.tools_used), "model": reply.model}
    hidden, places = redact_values_in(told, secrets)
    if not places:
        return reply, 0
    state = None if reply.state is None else hidden["state"]
    tools = tuple(hidden["tools"])
    return replace(reply, text=hidden["text"], state=state, tools_used=tools, model=hidden["model"]), places


def _completed(answer: CallResult, reply: Reply) -> dict[str, Any]:
    return {
        "status": "completed",
        "model": reply.model,
        "input_tokens": answer.tokens("input_tokens"),
        "output_tokens": answer.tokens("output_tokens"),
        "tools_used": list(reply.tools_used),
    }


def _failed(answer: CallResult, error: Exception, secrets: tuple[str, ...]) -> dict[str, Any]:
    return {
        "status": "failed",
        "model": answer.model,
        "input_tokens": answer.tokens("input_tokens"),
        "output_tokens": answer.tokens("output_tokens"),
        "tools_used": None,
        "error_type": type(error).__name__,
        "error_message": redact(_plain(describe_error(error)), secrets),
        "stack_trace": redact(_plain("".join(traceback.format_exception(error))), secrets),
    }


def _plain(text: str) -> str:
    """A text as it can be stored: what is no Unicode is shown as a question mark."""
    return text.encode("utf-8", "replace").decode()
