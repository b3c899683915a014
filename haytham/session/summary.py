"""A session at one moment: its status, what it waits for, and what its documents say of phases, times and costs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from haytham.errors import HaythamError
from haytham.session.derived import NextStep, ReviewDecision, Summary
from haytham.session.plan import SessionPlan

if TYPE_CHECKING:
    from haytham.session.derived import NextKind
    from haytham.session.models import SessionManifest
    from haytham.session.view import SessionView

_UNDECIDED = ReviewDecision(None, outdated=False)


def summarize(view: SessionView, manifest: SessionManifest | None = None) -> Summary:
    """Return all that follows from a session's documents, with its manifest or one about to be written.

    InvalidDocument where a checkpoint or a review cannot be read. Where anything else cannot be, the status is
    `unreadable`, and what the checkpoints say is told all the same.
    """
    try:
        return summarize_plan(SessionPlan(view), manifest)
    except (HaythamError, OSError) as error:
        return _unreadable(view, manifest or view.manifest.value, error)


def _unreadable(view: SessionView, manifest: SessionManifest, error: Exception) -> Summary:
    """Return what the checkpoints of a session say that has no plan; InvalidDocument if they or reviews do not."""
    checkpoints = {phase.number: record.value for phase in view.phases if (record := view.checkpoint(phase))}
    for phase in view.phases:
        view.decision(phase)
    facts = Summary(manifest, view.phases, checkpoints, {}, status="unreadable", error=error, times=(*view.times(),))
    with suppress(HaythamError, OSError):
        facts = replace(facts, spent=view.spending().total)
    return facts


def summarize_plan(plan: SessionPlan, manifest: SessionManifest | None = None) -> Summary:
    """Return what follows from a plan, without reading the documents of its phases again."""
    view, phases, value = plan.view, plan.phases, manifest or plan.view.manifest.value
    unbound = {entry.number: _UNDECIDED for entry in phases if entry.refused is not None}
    facts = Summary(
        value,
        view.phases,
        {entry.number: entry.checkpoint for entry in phases if entry.checkpoint is not None},
        {entry.number: entry.review for entry in phases if entry.review is not None} | unbound,
        {entry.number: entry.status for entry in phases},
        spent=view.spending().total,
        times=(*(time for entry in phases for time in entry.times), *view.state_times()),
    )
    status = "completed" if value.closed is not None else _status(plan, facts)
    return replace(facts, status=status, next=_next_step(plan, status))


def _next_step(plan: SessionPlan, status: str) -> NextStep | None:
    """Return what a session of a status waits for."""
    entry, owner = plan.next, (plan.view.manifest.value.user_id,)
    if entry is None or status in ("completed", "rejected"):
        return None
    if status == "waiting":
        kind: NextKind = "review" if entry.next_action.action == "gate" else "write"
        return NextStep(kind, entry.number, entry.state.phase.reviewers or owner)
    if status == "paused" and plan.view.pause_reason() is not None:
        return NextStep("raise limit", entry.number, owner)
    return NextStep("retry" if status == "failed" else "resume", entry.number, owner)


def _status(plan: SessionPlan, facts: Summary) -> str:
    """Return the status of a session that was not closed: the first that applies."""
    if any(entry.next_action.action == "rejected" for entry in plan.phases):
        return "rejected"
    if (entry := plan.next) is None:
        return "completed"
    if plan.view.pause_reason() is not None:
        return "paused"
    last = {one.number: one for one in plan.phases}.get(facts.current_phase)
    if last and last.state.status == "failed" and last.next_action.action == "run" and last.next_action.agents:
        return "failed"
    is_waiting = entry.next_action.action in ("gate", "write")
    return "waiting" if is_waiting else "in_progress" if plan.view.drift_pause() is None else "paused"
