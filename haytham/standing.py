"""Where each phase of a session stands: the facts in its documents, the task each agent would get, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from haytham.agent_file import read_agent
from haytham.errors import InvalidDocument, Problem
from haytham.progress import Feedback, Output, PhaseFacts, Verdict, is_stale, judge
from haytham.prompt import prompt
from haytham.session.tasks import Tasks
from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.agent import Task
    from haytham.agent_file import AgentSpec
    from haytham.session.reading import Reading
    from haytham.workflow import Phase


@dataclass(frozen=True)
class Place:
    """One phase: its facts, the verdict on it, and the outputs whose ground has moved."""

    facts: PhaseFacts
    verdict: Verdict
    stale: tuple[str, ...]

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
        feedback, why = self._feedback(phase), self._tasks.left_out.get(phase.number)
        outputs = {} if why is not None else self._outputs(phase)
        facts = PhaseFacts(phase, status, self.reading.attempt(phase), outputs, feedback, why)
        current = feedback if feedback is not None and feedback.attempt == facts.attempt else None
        moved = any(place.stale for place in self.places if place.facts.phase.number in phase.needs)
        stale = tuple(agent for agent, output in outputs.items() if moved or is_stale(agent, output, current))
        return Place(facts, judge(facts), stale)

    def _outputs(self, phase: Phase) -> dict[str, Output]:
        return {agent: self._output(phase, agent, found.value) for agent, found in self.reading.outputs(phase).items()}

    def _output(self, phase: Phase, agent: str, value: Mapping[str, Any]) -> Output:
        text, task = text_digest(value["text"]), value.get("task")
        if task is None or agent not in phase.agents:
            return Output(value["status"], text, value["wrote"], task, task or "")
        due = self.task(phase, agent)
        return Output(value["status"], text, value["wrote"], task, due.digest, self._changed(phase, due, task))

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
        )
