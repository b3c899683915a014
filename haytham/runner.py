"""The only loop: asks where a session stands, does the next thing, stores it, and asks again, until a person is needed.

Nothing lives in memory between two turns: a crash, an edit and a colleague are all just the next read.
"""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from haytham import clock
from haytham.agent import DEFAULT_MODEL, ask, find_agent, read_agent, runs_code
from haytham.errors import NotTrusted
from haytham.prompt import prompt
from haytham.session.gate import Gate
from haytham.session.layout import session_lock
from haytham.standing import Standing

if TYPE_CHECKING:
    from haytham.agent import AgentSpec, Reply, Task
    from haytham.event import Events
    from haytham.session.session import Session
    from haytham.standing import Place
    from haytham.workflow import Phase

Status = Literal["completed", "waiting", "rejected", "failed"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended: completed, or at which phase it waits, was rejected or failed, and which agents failed."""

    status: Status
    phase: Phase | None = None
    why: str = ""
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
        backoff: float = 0.5,
    ) -> None:
        self._session = session
        self._gate = Gate(session)
        self._events = events
        self._approve_as = approve_as
        self._may_run_code = may_run_code
        self._backoff = backoff
        self._costs: dict[tuple[int, str], float | None] = {}

    async def run(self, *, by: str | None = None) -> Outcome:
        """Go on until the session is completed, rejected, failed, or waits for a person."""
        with self._session.store.run_lock(session_lock(self._session.project_id, self._session.session_id)):
            try:
                outcome = await self._loop(by)
            except asyncio.CancelledError:
                self._events.emit("run_ended", status="stopped", phase=None)
                raise
            self._events.emit("run_ended", status=outcome.status, phase=outcome.phase and outcome.phase.number)
            return outcome

    async def _loop(self, by: str | None) -> Outcome:
        self._gate.finish()
        self._session.catch_up()
        while True:
            standing = Standing(self._session.read())
            self._tell_revisions(standing)
            stamped = self._gate.stamp(by)
            for number, said in stamped:
                self._events.emit("decision", phase=number, decision=said, by=by)
            outcome = await self._turn(Standing(self._session.read()) if stamped else standing)
            if outcome is not None:
                return outcome

    def _tell_revisions(self, standing: Standing) -> None:
        """Record that a person revised a text, once, before the review of it is."""
        for place in standing.places:
            phase, feedback = place.facts.phase.number, place.facts.feedback
            for agent, output in place.facts.outputs.items():
                known = (
                    feedback is not None and feedback.decision is not None and feedback.texts.get(agent) == output.text
                )
                if output.revised and not known:
                    self._events.emit_once("revised", phase=phase, agent=agent, text=output.text)

    async def _turn(self, standing: Standing) -> Outcome | None:
        """Do the next thing; an outcome where that ends the run."""
        place = standing.next
        if place is None:
            return Outcome("completed")
        step, phase = place.verdict.step, place.facts.phase
        if step == "rejected":
            return Outcome("rejected", phase)
        if step == "next attempt":
            self._gate.next_attempt(phase.number)
            self._events.emit("attempt_started", phase=phase.number, attempt=place.facts.attempt + 1)
            return None
        if step in ("run", "run again"):
            return await self._run_phase(standing, place)
        return self._stop_at_gate(place)

    def _stop_at_gate(self, place: Place) -> Outcome | None:
        phase = place.facts.phase
        if not _is_presented(place):
            self._gate.open(phase.number)
            self._events.emit("gate_opened", phase=phase.number, why=place.verdict.why)
        if self._approve_as is None:
            return Outcome("waiting", phase, place.verdict.why)
        said = self._gate.answer(phase.number, "approved", by=self._approve_as, changes=[])
        self._events.emit("decision", phase=phase.number, decision=said, by=self._approve_as)
        return None

    async def _run_phase(self, standing: Standing, place: Place) -> Outcome | None:
        """Run agents of a phase, side by side or one after the other, and save how the phase stands then."""
        phase, started, begun = place.facts.phase, clock.now(), clock.ticks()
        self._events.emit("phase_started", phase=phase.number, name=phase.name, agents=list(place.verdict.agents))
        if phase.run == "sequential":
            failed = await self._one_by_one(standing, phase, place.verdict.agents)
        else:
            failed = await self._side_by_side(standing, phase, place.verdict.agents)
        self._save_phase(phase, failed, started, clock.ticks() - begun)
        if failed:
            return Outcome("failed", phase, f"{', '.join(failed)} failed", failed)
        return None

    async def _one_by_one(self, standing: Standing, phase: Phase, agents: tuple[str, ...]) -> tuple[str, ...]:
        """Run agents one after the other, each on what those before it wrote; the one that failed, where one did."""
        for name in agents:
            if name not in standing.place(phase.number).verdict.agents:
                continue
            if not await self._run_agent(*self._asked(standing, phase, name)):
                return (name,)
            standing = Standing(self._session.read())
        return ()

    async def _side_by_side(self, standing: Standing, phase: Phase, agents: tuple[str, ...]) -> tuple[str, ...]:
        """Run agents at the same time; those that failed. What ends the run ends all of them."""
        asked = [self._asked(standing, phase, name) for name in agents]
        try:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(self._run_agent(task, spec)) for task, spec in asked]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return tuple(name for name, done in zip(agents, running, strict=True) if not done.result())

    def _save_phase(self, phase: Phase, failed: tuple[str, ...], started: str, duration: float) -> None:
        reading = self._session.read()
        outputs = {name: document.value for name, document in reading.outputs(phase).items()}
        before = reading.checkpoint(phase)
        costs = {} if before is None else {row["agent_name"]: row["cost"] for row in before.value["ledger"]}
        costs |= {name: cost for (number, name), cost in self._costs.items() if number == phase.number}
        rows = [
            {"agent_name": name, "status": outputs[name]["status"], "cost": costs.get(name)}
            for name in phase.agents
            if name in outputs
        ]
        modes = {"parallel": "parallel" if len(phase.agents) > 1 else "single", "sequential": "sequential_interactive"}
        facts: dict[str, Any] = {
            "status": "failed" if failed else "completed",
            "started": started,
            "completed": None if failed else clock.now(),
            "duration": round(duration, 3),
            "retry_count": reading.attempt(phase) - 1,
            "execution_mode": modes[phase.run],
        }
        if failed:
            facts["errors"] = [f"{name}: {outputs[name].get('error_message') or 'failed'}" for name in failed]
        self._session.save_checkpoint(phase.number, facts, rows)
        self._events.emit("phase_ended", phase=phase.number, status=facts["status"])

    def _asked(self, standing: Standing, phase: Phase, name: str) -> tuple[Task, AgentSpec]:
        """What an agent is asked, and by which of its rules; on record from now on where it has written nothing yet."""
        spec = read_agent(name, standing.agent_file(name))
        task = standing.task(phase, name)
        task = replace(task, prompt=prompt(task, spec))
        if name not in standing.place(phase.number).facts.outputs:
            self._session.save_task(phase.number, task)
        return task, spec

    async def _run_agent(self, task: Task, spec: AgentSpec) -> bool:
        """Ask an agent, as often as its file allows, and store what it answers the moment it is there."""
        begun = clock.ticks()
        try:
            reply = await self._ask(task, spec)
        except NotTrusted:
            raise
        except Exception as error:  # noqa: BLE001 - the one place: whatever an agent raises is its failure, kept with it
            return not self._store(task, _failed(error), "", clock.ticks() - begun)
        if self._store(task, _completed(reply), reply.text, clock.ticks() - begun):
            self._costs[task.phase, task.agent] = reply.cost
            tokens = [reply.input_tokens, reply.output_tokens]
            self._events.emit("agent_ended", phase=task.phase, agent=task.agent, tokens=tokens, cost=reply.cost)
        return True

    async def _ask(self, task: Task, spec: AgentSpec) -> Reply:
        model = spec.model or self._session.read().manifest.value.get("model") or DEFAULT_MODEL
        if runs_code(model) and not self._may_run_code:
            raise NotTrusted(task.agent, model)
        agent = find_agent(model)
        for left in range(spec.retries, -1, -1):
            self._events.emit("agent_started", phase=task.phase, agent=task.agent, model=model)
            try:
                return await ask(agent, task, spec)
            except Exception as error:
                said = str(error) or type(error).__name__
                self._events.emit("agent_failed", phase=task.phase, agent=task.agent, error=said, tries_left=left)
                if not left:
                    raise
                await asyncio.sleep(self._backoff * 2 ** (spec.retries - left))
        raise AssertionError("an agent is asked at least once")

    def _store(self, task: Task, facts: dict[str, Any], text: str, duration: float) -> bool:
        """Store how an agent came out; whether it was: a person may have written in its place meanwhile."""
        facts = {"task": task.digest, "duration": round(duration, 3), **facts}
        stored = self._gate.store_output(task, facts, text)
        if not stored:
            self._events.emit("reply_not_stored", phase=task.phase, agent=task.agent, why="a person has written there")
        return stored


def _is_presented(place: Place) -> bool:
    """Whether an open gate waits already with what is there, on the ground that is there."""
    feedback = place.facts.feedback
    if feedback is None or feedback.decision is not None or feedback.attempt != place.facts.attempt:
        return False
    known = {agent: output.due for agent, output in place.facts.outputs.items() if output.task is not None}
    return all(feedback.tasks.get(agent) == due for agent, due in known.items())


def _completed(reply: Reply) -> dict[str, Any]:
    return {
        "status": "completed",
        "model": reply.model,
        "input_tokens": reply.input_tokens,
        "output_tokens": reply.output_tokens,
        "tools_used": list(reply.tools_used),
    }


def _failed(error: Exception) -> dict[str, Any]:
    nothing = dict.fromkeys(("model", "input_tokens", "output_tokens", "tools_used"))
    return {
        "status": "failed",
        **nothing,
        "error_type": type(error).__name__,
        "error_message": _plain(str(error)) or type(error).__name__,
        "stack_trace": _plain("".join(traceback.format_exception(error))),
    }


def _plain(text: str) -> str:
    """A text as it can be stored: what is no Unicode is shown as a question mark."""
    return text.encode("utf-8", "replace").decode()
