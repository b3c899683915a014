"""`status`: where a session stands, at a glance. It writes nothing, and one file that cannot be read hides no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import INVALID, AppContext, echo, sanitize
from haytham.cli.options import session_option
from haytham.cli.output import (
    assumed_words,
    fault_lines,
    limit_words,
    spent_facts,
    spent_words,
    suggest_limit,
    unknown_words,
)
from haytham.errors import HaythamError, InvalidDocument
from haytham.redact import HIDDEN
from haytham.session.outputs import output_paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.config.workflow import Phase
    from haytham.session import Session
    from haytham.session.plan import PhasePlan, SessionPlan
    from haytham.session.view import SessionView

Row = dict[str, Any]


@click.command
@session_option(argument=True)
@click.pass_obj
def status(here: AppContext, /, session_name: str | None) -> None:
    r"""Show where a session stands.

    Its phases, who approved them when, what is stale and why, what was spent, and what to do next. Writes nothing.

    \b
    Examples:
      haytham status
      haytham status 9f3ac1 --json
    """
    from haytham.session.paths import session_lock  # noqa: PLC0415
    from haytham.session.plan import SessionPlan, summarize  # noqa: PLC0415

    def look(reading: SessionView) -> tuple[SessionPlan, list[Row], str]:
        standing = SessionPlan(reading)
        return standing, [_row(standing, place) for place in standing.places], summarize(reading).status

    session = here.resolve_session(session_name)
    try:
        standing, rows, state = session.read_consistently(look)
    except HaythamError as error:
        _tell_the_rest(here, session, error)
        raise click.exceptions.Exit(INVALID) from None
    reading = standing.reading
    owner = here.store.lock_owner(session_lock(session.project_id, session.session_id))
    runner = "" if owner is None else str(owner)
    following = None if runner else _next_step(here, session, standing, state)
    facts = {"status": state, "running": runner or None, "next": following, "phases": rows, "problems": []}
    over = f"it runs now: {runner}" if runner else f"the session is {state}"
    last = f"next: {following}" if following else over
    notes = [f"note: phase {row['phase']}: {fault}" for row in rows for fault in row["faults"]]
    _answer(here, session, {**facts, **spent_facts(reading)}, [*notes, *_money(reading, state), last])


def _answer(here: AppContext, session: Session, facts: Row, last: list[str]) -> None:
    """Draw the rows as a table between a line of where and lines of what was spent and what is next."""
    width = max((len(row["name"]) for row in facts["phases"]), default=0) + 2
    lines = [f"  {row['phase']}  {sanitize(row['name']):<{width}}{row['state']}" for row in facts["phases"]]
    head = f"session {session.project_id}/{session.session_id}: {facts['status']}"
    ids = {"project": session.project_id, "session": session.session_id}
    here.output("status", {**ids, **facts}, "\n".join([head, "", *lines, "", *last] if lines else [head, "", *last]))


def _money(reading: SessionView, state: str) -> list[str]:
    """What was spent and may be, and why the session is paused; nothing where there is nothing to say."""
    account, limits = reading.spending(), reading.limits
    total = account.total
    said = [f"spent: {spent_words(total)}"] if total.calls else []
    limit = limit_words(limits, total)
    said += [f"limit: {limit}"] if limit else []
    said += [words for words in (unknown_words(total, limits), assumed_words(account)) if words]
    return [*said, f"paused: {reading.pause_reason()}"] if state == "paused" else said


def _row(standing: SessionPlan, place: PhasePlan) -> Row:
    phase, reading = place.state.phase, standing.reading
    feedback = reading.feedback(phase)
    value = feedback.value if feedback is not None and place.next_action.action in ("approved", "rejected") else {}
    redacted = _redacted(reading, phase) if place.next_action.action == "gate" else []
    hidden = f"; secrets in {', '.join(redacted)} are stored as {HIDDEN}" if redacted else ""
    return {
        "phase": phase.number,
        "name": phase.name,
        "status": place.state.status,
        "attempt": place.state.attempt,
        "step": place.next_action.action,
        "by": value.get("by"),
        "at": value.get("timestamp"),
        "stale": list(place.stale),
        "faults": fault_lines(reading, phase) if place.next_action.action == "gate" else [],
        "redacted": redacted,
        "state": sanitize(_state(place, value) + hidden + _refused(place) + _unsettled_needs(standing, place)),
    }


def _redacted(reading: SessionView, phase: Phase) -> list[str]:
    """The agents whose replies held secrets of the environment, and are stored without them."""
    return [agent for agent, output in reading.outputs(phase).items() if output.value.get("redacted")]


def _state(place: PhasePlan, value: Mapping[str, Any]) -> str:
    """How a phase stands, in words."""
    step, why = place.next_action.action, place.next_action.reason
    attempt = f", attempt {place.state.attempt}" if place.state.attempt > 1 else ""
    if step in ("approved", "rejected"):
        return step + (_signed(value) if value else f": {why}" if why else "")
    if step == "gate":
        reason = "" if why == "it waits for review" else f": {why}"
        return f"waits for review{attempt}{reason}"
    if step == "write":
        return f"to be written by a person: {', '.join(place.next_action.agents)}{attempt}"
    if step == "run again":
        return f"stale: {why}"
    if step == "nothing":
        return f"left out: {why}"
    return (_requested(place) if step == "next attempt" else _not_done(place)) + attempt


def _refused(place: PhasePlan) -> str:
    """Why a decision in the phase's file does not count."""
    return f"; {place.refused}" if place.refused is not None else ""


def _signed(value: Mapping[str, Any]) -> str:
    said = f" by {value['by']}" if value.get("by") else ""
    said += f" at {value['timestamp']}" if value.get("timestamp") else ""
    said += f", with changes {value['revised']}" if "revised" in value else ""
    return said + (f", although {value['anyway']}" if "anyway" in value else "")


def _requested(place: PhasePlan) -> str:
    """Return that changes are requested, and of whom, if not of all."""
    asked = place.next_action.agents
    return "changes requested" + ("" if asked == place.state.phase.agents else f" of {', '.join(asked)}")


def _not_done(place: PhasePlan) -> str:
    if place.state.lost and place.state.status == "requires_retry":
        return f"to run again: no output of {', '.join(place.next_action.agents)}"
    failed = [agent for agent, output in place.state.outputs.items() if output.status == "failed"]
    if failed and not place.next_action.agents:
        return f"mended by hand: {', '.join(failed)}"
    return f"{place.state.status}: {', '.join(failed)}" if failed else str(place.state.status)


def _unsettled_needs(standing: SessionPlan, place: PhasePlan) -> str:
    """What an approved phase builds on and is not settled itself: it may become stale."""
    if place.next_action.action != "approved":
        return ""
    numbers = [one.state.phase.number for one in standing.places if not one.is_done]
    needs = [str(need) for need in place.state.phase.needs if need in numbers]
    return f"; builds on phase {', '.join(needs)}, which is open" if needs else ""


def _next_step(here: AppContext, session: Session, standing: SessionPlan, state: str) -> str | None:
    """The command that answers the open gate, or goes on; None where the session is over."""
    place = standing.next
    if place is None or place.next_action.action == "rejected" or state == "rejected":
        return None
    which, option = here.session_hint(session), here.session_hint(session, "-s")
    number = place.state.phase.number
    if place.next_action.action == "gate":
        return f"haytham review {number}{option}, or haytham approve {number}{option} && haytham resume{which}"
    if place.next_action.action == "write":
        keys = output_paths(standing.reading, place.state.phase, place.next_action.agents)
        where = keys.replace(session.prefix, f"{here.base}/{session.prefix}")
        return f"write {where}, then: haytham resume{which}"
    if state == "paused":
        return f"haytham resume{which}{suggest_limit(standing.reading)}"
    failed = place.state.status == "failed" and bool(place.next_action.agents)
    return f"haytham retry {number}{which}" if failed else f"haytham resume{which}"


def _tell_the_rest(here: AppContext, session: Session, error: HaythamError) -> None:
    """Show what can be read, where something cannot."""
    try:
        reading = session.read()
        rows = [_readable(reading, phase) for phase in reading.phases]
    except HaythamError:
        rows = _folders(session)
    problems = [str(problem) for problem in error.problems] if isinstance(error, InvalidDocument) else [str(error)]
    last = "next: mend the file that is named, with haytham review, or see all that is wrong: haytham validate"
    facts = {"status": "unreadable", "running": None, "next": "haytham validate", "phases": rows, "problems": problems}
    _answer(here, session, facts, [last])
    for problem in problems if not here.options.as_json else ():
        echo(f"haytham: {problem}", err=True)


def _readable(reading: SessionView, phase: Phase) -> Row:
    """A phase by its own documents alone."""
    try:
        checkpoint, feedback, review = reading.checkpoint(phase), reading.feedback(phase), reading.review(phase)
        stands = "pending" if checkpoint is None else checkpoint.value["status"]
        state = stands if feedback is None or review is None else f"{stands}, {review.decision or 'waits for review'}"
        state += _signed(feedback.value) if feedback is not None and review and review.decision else ""
        reading.texts(phase)
    except HaythamError:
        stands = state = "unreadable"
    return {"phase": phase.number, "name": phase.name, "status": stands, "state": sanitize(state)}


def _folders(session: Session) -> list[Row]:
    """The folders of phases, where not even the manifest says which there are."""
    keys = session.store.keys(session.prefix, depth=2)
    names = {key.removeprefix(session.prefix).split("/")[0] for key in keys if "/phase_" in key}
    return [
        {"phase": name.split("_")[1], "name": name, "status": "unknown", "state": "is there"} for name in sorted(names)
    ]
