"""Where each phase of a session stands: the facts in its documents, the task each agent would get, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from haytham.agent_file import read_agent
from haytham.errors import HaythamError, InvalidDocument, Problem, RefusedDecision, StaleNeeds
from haytham.prompt import prompt
from haytham.session.progress import Feedback, Output, PhaseFacts, Verdict, judge
from haytham.session.summary import Review, Summary, asked_agents
from haytham.session.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.agent import Task
    from haytham.agent_file import AgentSpec
    from haytham.session.reading import OutputFacts, Reading
    from haytham.session.summary import Decision
    from haytham.workflow import Phase


_UNDECIDED = Review(None, outdated=False)


@dataclass(frozen=True)
class Place:
    """One phase: its facts, the verdict on it, and the decision in its file that a rule refuses, if there is one."""

    facts: PhaseFacts
    verdict: Verdict
    refused: RefusedDecision | None = None

    @property
    def status(self) -> str:
        """The status of the phase: what its checkpoint says, and skipped where it is passed over."""
        return self.facts.status if self.facts.left_out is None else "skipped"

    @property
    def stale(self) -> tuple[str, ...]:
        """The agents whose outputs are stale."""
        return self.facts.stale

    @property
    def settled(self) -> bool:
        """Whether resume has nothing to do here."""
        return self.verdict.step in ("approved", "nothing")


class Standing:
    """All phases of a session's mode, in order, as its documents are now."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._tasks = Tasks(reading)
        foreign = reading.foreign_folders()
        if foreign:
            message = "is a folder of no phase; rename it back, or move it out of the session"
            raise InvalidDocument([Problem(message, file=reading.prefix + folder) for folder in foreign])
        self.places: list[Place] = []
        for phase in reading.phases:
            self.places.append(self._place(phase))

    @property
    def next(self) -> Place | None:
        """The first phase that resume has something to do with."""
        return next((place for place in self.places if not place.settled), None)

    def place(self, number: int) -> Place:
        """A phase by its number."""
        return next(place for place in self.places if place.facts.phase.number == number)

    def needed(self, phase: Phase) -> list[Place]:
        """Return the phases that a phase needs, directly or through others."""
        numbers = set(phase.needs)
        for place in reversed(self.places):
            if place.facts.phase.number in numbers:
                numbers |= set(place.facts.phase.needs)
        return [place for place in self.places if place.facts.phase.number in numbers]

    def task(self, phase: Phase, agent: str) -> Task:
        """The task that an agent would get now."""
        return self._tasks.task(phase, agent)

    def asked(self, phase: Phase, agent: str, state: Mapping[str, Any]) -> tuple[Task, AgentSpec]:
        """What an agent is asked now, to the letter, and by which of its rules."""
        spec = read_agent(agent, self.agent_file(agent))
        task = replace(self.task(phase, agent), state=state, contract=self._tasks.contract(spec))
        return replace(task, prompt=prompt(task, spec)), spec

    def agent_file(self, agent: str) -> str:
        """The text of an agent's file."""
        return self._tasks.agent_files[agent]

    def _place(self, phase: Phase) -> Place:
        checkpoint = self.reading.checkpoint(phase)
        status = "pending" if checkpoint is None else checkpoint.value["status"]
        why = self._tasks.left_out.get(phase.number)
        lost = () if why is not None else self.reading.lost_outputs(phase)
        facts = PhaseFacts(
            phase,
            "requires_retry" if status == "completed" and set(lost) & set(phase.agents) else status,
            self.reading.attempt(phase),
            {} if why is not None else self._outputs(phase),
            self._feedback(phase),
            left_out=why,
            stale_needs=tuple(place.facts.phase.number for place in self.places if _is_needed(place, phase)),
            by_program=not self.reading.task_agents(phase),
            lost=lost,
        )
        refused = self._refused(facts)
        if refused is not None and facts.feedback is not None:
            facts = replace(facts, feedback=replace(facts.feedback, decision=None))
        return Place(facts, judge(facts), refused)

    def _refused(self, facts: PhaseFacts) -> RefusedDecision | None:
        """Why a decision that nothing has bound yet does not count."""
        document, feedback = self.reading.feedback(facts.phase), facts.current_feedback
        if document is None or feedback is None or document.value.get("decided") == feedback.decision:
            return None
        return refusal(facts, feedback.decision)

    def _outputs(self, phase: Phase) -> dict[str, Output]:
        return {agent: self._output(phase, agent, facts) for agent, facts in self.reading.output_facts(phase).items()}

    def _output(self, phase: Phase, agent: str, facts: OutputFacts) -> Output:
        known = Output(facts.status, facts.text, facts.wrote, facts.task, facts.task or "")
        if facts.task is None or agent not in phase.agents:
            return known
        due = self.task(phase, agent)
        return replace(known, due=due.digest, changed=self._changed(phase, due, facts.task))

    def _changed(self, phase: Phase, due: Task, task: str) -> tuple[str, ...]:
        """The parts of a task that are not as they were when it was answered."""
        if due.digest == task:
            return ()
        before = self.reading.task_parts(phase, due.agent)
        return tuple(name for name in {**before, **due.parts} if before.get(name) != due.parts.get(name))

    def _feedback(self, phase: Phase) -> Feedback | None:
        document, review = self.reading.feedback(phase), self.reading.review(phase)
        if document is None or review is None:
            return None
        rows = document.value["reviewed_content"]
        names = [row["document"].removesuffix(".md") for row in rows]
        return Feedback(
            decision=review.decision,
            attempt=document.value["attempt"],
            texts=dict(zip(names, (row["digest"] for row in rows), strict=True)),
            tasks=dict(zip(names, (row["task"] for row in rows), strict=True)),
            agents=asked_agents(document.value, phase.agents),
        )


def refusal(facts: PhaseFacts, decision: Decision | None) -> RefusedDecision | None:
    """Return the rule that refuses a decision on a phase, or None."""
    if decision == "approved" and facts.stale_needs and any(output.task for output in facts.outputs.values()):
        return StaleNeeds(facts.phase.number, facts.stale_needs)
    return None


def _is_needed(place: Place, phase: Phase) -> bool:
    """Whether a phase is stale and another one needs it."""
    return bool(place.stale) and place.facts.phase.number in phase.needs


def summarize(reading: Reading, manifest: Mapping[str, Any] | None = None) -> Summary:
    """Return all that follows from a session's documents, with the manifest that is there or about to be written.

    InvalidDocument where a checkpoint or a review cannot be read. Where anything else cannot be, the status is
    `unreadable`, and what the checkpoints say is told all the same.
    """
    checkpoints = {phase.number: record.value for phase in reading.phases if (record := reading.checkpoint(phase))}
    for phase in reading.phases:
        reading.decision(phase)
    is_closed = "closed" in (manifest or reading.manifest.value)
    facts = Summary(manifest or reading.manifest.value, reading.phases, checkpoints, {}, times=tuple(reading.times()))
    try:
        facts = replace(facts, spent=reading.account().total)
        reviews = {phase.number: review for phase in reading.phases if (review := reading.review(phase))}
        standing = Standing(reading)
    except (HaythamError, OSError) as error:
        return replace(facts, status="unreadable", error=error)
    unbound = {place.facts.phase.number: _UNDECIDED for place in standing.places if place.refused is not None}
    statuses = {place.facts.phase.number: place.status for place in standing.places}
    facts = replace(facts, reviews={**reviews, **unbound}, changed=statuses)
    return replace(facts, status="completed" if is_closed else _status(standing, facts))


def _status(standing: Standing, facts: Summary) -> str:
    """The status of a session that was not closed: the first that applies."""
    if any(place.verdict.step == "rejected" for place in standing.places):
        return "rejected"
    place = standing.next
    if place is None:
        return "completed"
    if standing.reading.pause() is not None:
        return "paused"
    last = next((one for one in standing.places if one.facts.phase.number == facts.current_phase), None)
    if last is not None and last.facts.status == "failed" and last.verdict.step == "run" and last.verdict.agents:
        return "failed"
    return "waiting" if place.verdict.step in ("gate", "write") else "in_progress"
