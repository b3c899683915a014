"""`status`, `list` and `show`: look at sessions. They write nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import INVALID, Here, harmless
from haytham.errors import HaythamError, InvalidDocument

if TYPE_CHECKING:
    from haytham.session.reading import Reading
    from haytham.standing import Place, Standing


@click.command("list")
@click.pass_obj
def list_(here: Here) -> None:
    """List all sessions, the one saved last first."""
    found = sorted(here.sessions(), key=lambda one: (one.last_updated, one.session_id), reverse=True)
    rows = [
        {"project": one.project_id, "session": one.session_id, "status": one.status, "last_updated": one.last_updated}
        for one in found
    ]
    lines = [f"{row['project']}/{row['session']}  {row['status']}  {row['last_updated']}" for row in rows]
    here.answer("sessions", {"sessions": rows}, "\n".join(lines) or "no sessions yet; start one with: haytham run IDEA")
    for one in found:
        if one.error is not None:
            click.echo(f"haytham: {one.error}", err=True)


@click.command
@click.argument("session_name", metavar="[SESSION]", required=False)
@click.pass_obj
def status(here: Here, /, session_name: str | None) -> None:
    """Show where a session stands: its phases, who approved, what is stale, and what to do next."""
    from haytham.standing import Standing  # noqa: PLC0415

    session = here.choose(session_name)
    reading = session.read()
    try:
        standing = Standing(reading)
    except InvalidDocument as error:
        click.echo(f"session {session.project_id}/{session.session_id}: {_readable(reading)}")
        click.echo(f"haytham: {error}", err=True)
        raise click.exceptions.Exit(INVALID) from None
    summary = reading.summary()
    rows = [_row(reading, place) for place in standing.places]
    lines = [f"session {session.project_id}/{session.session_id}  {summary.status}", ""]
    lines += [f"  {row['phase']}  {row['name']:<20}{row['state']}" for row in rows]
    facts = {"project": session.project_id, "session": session.session_id, "status": summary.status, "phases": rows}
    here.answer("status", facts, "\n".join([*lines, "", _next_step(standing, summary.status)]))


def _readable(reading: Reading) -> str:
    """The phases that can be read, where some cannot."""
    said = []
    for phase in reading.phases:
        try:
            checkpoint = reading.checkpoint(phase)
            said.append(f"{phase.number} {checkpoint.value['status'] if checkpoint else 'pending'}")
        except HaythamError:
            said.append(f"{phase.number} unreadable")
    return ", ".join(said)


def _row(reading: Reading, place: Place) -> dict[str, Any]:
    phase, verdict = place.facts.phase, place.verdict
    feedback = reading.feedback(phase)
    state = {
        "approved": "approved",
        "nothing": f"left out: {verdict.why}",
        "rejected": "rejected",
        "gate": f"waits: {verdict.why}",
        "next attempt": "changes requested",
        "run again": f"stale: {verdict.why}",
        "run": "pending" if place.facts.status == "pending" else place.facts.status,
    }[verdict.step]
    if verdict.step == "approved" and feedback is not None:
        value = feedback.value
        state += f" by {value.get('by', 'somebody')} at {value['timestamp'] or '-'}"
        state += f", with changes {value['revised']}" if "revised" in value else ""
    return {
        "phase": phase.number,
        "name": phase.name,
        "status": place.facts.status,
        "attempt": place.facts.attempt,
        "step": verdict.step,
        "stale": list(place.stale),
        "state": harmless(state),
    }


def _next_step(standing: Standing, state: str) -> str:
    place = standing.next
    if place is None or state in ("completed", "rejected"):
        return f"the session is {state}"
    number = place.facts.phase.number
    if place.verdict.step == "gate":
        return f"next: haytham review, or haytham approve {number} && haytham resume"
    return "next: haytham resume"


@click.command
@click.argument("phase", type=int, required=False)
@click.argument("agent", required=False)
@click.option("-s", "--session", "session_name", help="Which session, by any unique part of its id.")
@click.option("--attempt", type=int, help="An earlier attempt.")
@click.option("--task", is_flag=True, help="What the agents were asked, instead of what they wrote.")
@click.pass_obj
def show(here: Here, /, phase: int | None, agent: str | None, **given: Any) -> None:
    r"""Show what agents wrote in a phase; without PHASE, in the one saved last.

    \b
    Examples:
      haytham show
      haytham show 2 market_intelligence --attempt 1
      haytham show 3 --task
    """
    reading = here.choose(given["session_name"]).read()
    chosen = reading.phase(phase if phase is not None else reading.summary().current_phase or reading.phases[0].number)
    texts = reading.shown_texts(chosen, attempt=given["attempt"], tasks=given["task"])
    if agent is not None:
        texts = {name: text for name, text in texts.items() if name == agent}
    if not texts:
        raise click.UsageError(f"phase {chosen.number} has nothing to show here")
    body = "\n".join(f"--- {name}\n{harmless(text)}" for name, text in texts.items())
    here.answer("texts", {"phase": chosen.number, "texts": texts}, body)
