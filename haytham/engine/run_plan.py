"""The plan of a run, computed again between its steps, and the events that it leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham import clock
from haytham.session.derived import has_conditions
from haytham.session.milestones import has_begun, report_completed, report_revised, report_stale
from haytham.session.plan import SessionPlan

if TYPE_CHECKING:
    from haytham.events import Events
    from haytham.session.plan import PhasePlan
    from haytham.session.session import SessionDocuments
    from haytham.session.view import SessionView

RUNS = ("run", "run again", "next attempt")
_FULL_PLAN_INTERVAL = 1.0  # seconds after which a run looks at all phases again


class RunPlanner:
    """Plans the next step of a run that approves gates in the name of `approve_as`, if that is given."""

    def __init__(self, session: SessionDocuments, approve_as: str | None) -> None:
        self._session, self._approve_as = session, approve_as
        self._planned_at = 0.0

    def plan(self, previous: SessionPlan | None) -> SessionPlan:
        """Return the plan of all phases; between two steps only the next phase and those it needs are looked at.

        All phases are looked at when a run starts, before it stops, and at least once a second in between.
        """
        view = self._session.read()
        is_due = clock.monotonic() - self._planned_at >= _FULL_PLAN_INTERVAL
        if previous is None or previous.next is None or is_due or has_conditions(view):
            return self._plan_all(view)
        plan, numbers = previous, previous.changed_by_step()
        looked_at: set[int] = set()
        while not numbers <= looked_at:
            plan = SessionPlan(view, previous=plan, numbers=numbers - looked_at)
            looked_at |= numbers
            entry = plan.next
            if entry is None or self._ends_run(entry):
                return self._plan_all(view)
            numbers = {entry.number, *(needed.number for needed in plan.needed(entry.state.phase))}
        return plan

    def _plan_all(self, view: SessionView) -> SessionPlan:
        self._planned_at = clock.monotonic()
        return SessionPlan(view)

    def _ends_run(self, entry: PhasePlan) -> bool:
        gates = [] if entry.state.phase.may_review(self._approve_as) else ["gate"]
        return entry.next_action.action in ("rejected", "write", *gates)


class PlanReporter:
    """Emits what a plan shows, once a run."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._refused: set[tuple[int, str]] = set()
        self._revisions: set[tuple[int, str, str]] = set()
        self._stale: list[int] = []

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
                    report_revised(self._events, phase=entry.number, agent=agent, text=output.text)

    def report_stale(self, plan: SessionPlan) -> None:
        """Emit which phases have become stale."""
        stale = [entry.number for entry in plan.phases if entry.stale]
        if stale != self._stale:
            self._stale = stale
            report_stale(self._events, plan)

    def report_completed(self, plan: SessionPlan) -> None:
        """Emit, once, that nothing is left to do."""
        report_completed(self._events, plan)

    def report_resumed(self, plan: SessionPlan, retry: int | None, *, approves: bool) -> None:
        """Emit that a run goes on with earlier work: a phase runs again, or there is something to run or approve."""
        entry = plan.next
        does_work = entry is not None and (entry.next_action.action in RUNS or approves)
        if (does_work or retry is not None) and has_begun(plan):
            number = retry if retry is not None or entry is None else entry.number
            self._events.emit("session_resumed", phase=number)
