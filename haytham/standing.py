"""Where each phase of a session stands: the facts in its documents, the task each agent would get, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from haytham.errors import HaythamError, InvalidDocument, Problem
from haytham.progress import Feedback, Output, PhaseFacts, Verdict, is_stale, judge
from haytham.session.tasks import Tasks, agent_texts
from haytham.text import text_digest

if TYPE_CHECKING:
    from haytham.agent import Task
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
        self._agent_files = agent_texts(reading.workflow_files().files)
        self._left_out: dict[int, str] = {}
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
        return Tasks(self.reading, self._agent_files, self._left_out).task(phase, agent)

    def agent_file(self, agent: str) -> str:
        """The text of an agent's file."""
        return self._agent_files[agent]

    def _place(self, phase: Phase) -> Place:
        checkpoint = self.reading.checkpoint(phase)
        status = "pending" if checkpoint is None else checkpoint.value["status"]
        feedback = self._feedback(phase)
        why = self._why_left_out(phase, status, feedback)
        if why is not None:
            self._left_out[phase.number] = why
        outputs = {} if why is not None else self._outputs(phase)
        facts = PhaseFacts(phase, status, self.reading.attempt(phase), outputs, feedback, why)
        current = feedback if feedback is not None and feedback.attempt == facts.attempt else None
        stale = tuple(agent for agent, output in outputs.items() if is_stale(agent, output, current))
        return Place(facts, judge(facts), stale)

    def _outputs(self, phase: Phase) -> dict[str, Output]:
        found = {}
        for agent, document in self.reading.outputs(phase).items():
            value = document.value
            task = value.get("task")
            due = self.task(phase, agent).digest if agent in phase.agents and task is not None else task or ""
            found[agent] = Output(value["status"], text_digest(value["text"]), value["wrote"], task, due)
        return found

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

    def _why_left_out(self, phase: Phase, status: str, feedback: Feedback | None) -> str | None:
        if status == "skipped" or (feedback is not None and feedback.decision == "skip"):
            return "it was skipped"
        if phase.when is not None and not self._holds(phase):
            return f"its condition is not met: {phase.when}"
        return None

    def _holds(self, phase: Phase) -> bool:
        """Whether a phase's condition holds, over how earlier phases came out."""
        from jinja2 import StrictUndefined  # noqa: PLC0415 - only where a workflow has conditions
        from jinja2.sandbox import SandboxedEnvironment  # noqa: PLC0415

        outcomes = {place.facts.phase.slug: self._outcome(place) for place in self.places}
        try:
            condition = SandboxedEnvironment(undefined=StrictUndefined).compile_expression(phase.when or "")
            return bool(condition(phases=outcomes))
        except HaythamError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever an expression of a person's raises is their expression's fault
            problem = Problem(f"phase {phase.number}: when: {phase.when}: {error}", file=self.reading.workflow.name)
            raise InvalidDocument([problem]) from None

    def _outcome(self, place: Place) -> dict[str, Any]:
        status = "skipped" if place.facts.left_out is not None else place.facts.status
        return {"status": status, "approved": place.verdict.step == "approved"}
