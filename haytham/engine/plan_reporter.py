"""Events that follow from a plan: decisions that do not count, and texts that a person revised."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haytham.events import Events
    from haytham.session.plan import SessionPlan


class PlanReporter:
    """Emits what a plan shows, once a run."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._refused: set[tuple[int, str]] = set()
        self._revisions: set[tuple[int, str, str]] = set()

    def report_refused(self, plan: SessionPlan) -> None:
        """Emit, once a run, that a decision in a file does not count, and why."""
        for entry in plan.phases:
            number, why = entry.state.phase.number, str(entry.refused)
            if entry.refused is not None and (number, why) not in self._refused:
                self._refused.add((number, why))
                self._events.emit("decision_refused", phase=number, why=why)

    def report_revisions(self, plan: SessionPlan) -> None:
        """Emit, once for each text, that a person revised it, before the review of it is."""
        for entry in plan.phases:
            feedback = entry.state.feedback
            reviewed = {} if feedback is None or feedback.decision is None else feedback.texts
            for agent, output in entry.state.outputs.items():
                revision = (entry.number, agent, output.text)
                if output.revised and reviewed.get(agent) != output.text and revision not in self._revisions:
                    self._revisions.add(revision)
                    self._events.emit_revised_once(phase=entry.number, agent=agent, text=output.text)
