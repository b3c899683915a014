"""`approve`, `request-changes`, `reject` and `skip`: a person's answer at a gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import PHASE, Here, Usage, session_names, who
from haytham.cli.faults import fault_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham.session import Session
    from haytham.session.standing import Place, Standing
    from haytham.session.summary import Decision


def _answers(command: Callable[..., None]) -> Callable[..., None]:
    """The arguments that every answer takes."""
    for decorate in (
        click.pass_obj,
        session_names(argument=False),
        click.option(
            "--user", help="Who decides; else HAYTHAM_USER, who started the session, git's user.email, the login."
        ),
        click.option("-m", "--message", default="", help="Comments; they reach the phases that build on this one."),
        click.argument("phase", type=PHASE, required=False),
    ):
        command = decorate(command)
    return command


@click.command
@click.option("--anyway", is_flag=True, help="Also while phases that it needs are stale; the record says so.")
@_answers
def approve(here: Here, /, phase: int | None, **given: Any) -> None:
    r"""Approve a phase as its texts are now.

    Without PHASE, the first that waits. A phase that needs a stale phase is approved with --anyway only.

    \b
    Examples:
      haytham approve && haytham resume
      haytham approve 2 -m "Go on, but name one city"
    """
    _decide(here, phase, "approved", [], given)


@click.command("request-changes")
@click.option(
    "--agent",
    "agents",
    metavar="NAME",
    multiple=True,
    help="The agent that is to change its output; the others keep theirs. May be given several times.",
)
@click.option("--change", "changes", multiple=True, help="One change that is wanted; may be given several times.")
@_answers
def request_changes(here: Here, /, phase: int | None, changes: tuple[str, ...], **given: Any) -> None:
    r"""Ask for another attempt at a phase.

    With comments, or changes wanted. Without PHASE, at the first that waits. With --agent only that agent runs again;
    in a sequential phase those after it run, too, if its text changes.

    \b
    Examples:
      haytham request-changes 2 -m "Too broad" --change "Name one city" --change "Say who pays"
      haytham request-changes 2 --agent market_intelligence --change "Say where each number is from"
    """
    wanted = [change for change in changes if change.strip()]
    if not wanted and not given["message"].strip():
        raise Usage("say what is to change: -m COMMENTS or --change TEXT")
    _decide(here, phase, "changes", wanted, given)


@click.command
@_answers
def reject(here: Here, /, phase: int | None, **given: Any) -> None:
    r"""End the session: the idea does not go on.

    \b
    Example:
      haytham reject -m "Nobody would pay for this"
    """
    _decide(here, phase, "rejected", [], given)


@click.command
@_answers
def skip(here: Here, /, phase: int | None, **given: Any) -> None:
    r"""Leave a phase out; those that build on it are told.

    Without PHASE, the first that is not settled.

    \b
    Example:
      haytham skip 3 && haytham resume
    """
    _decide(here, phase, "skip", [], given)


def answer(session: Session, number: int, decision: Decision, *, by: str, **said: Any) -> str:
    """Give a person's answer on a phase, and keep that it happened; what was decided, in words."""
    from haytham.session.gate import Gate  # noqa: PLC0415

    words = Gate(session).answer(number, decision, by=by, **{"changes": [], **said})
    _keep(session, number, words, by)
    return words


def stamp(session: Session, by: str) -> list[str]:
    """Bind decisions made in an editor to the texts they were made on; what they are, or why not, a line each."""
    from haytham.session.gate import Gate  # noqa: PLC0415
    from haytham.session.standing import Standing  # noqa: PLC0415

    found = Gate(session).stamp(by)
    for number, words in found:
        _keep(session, number, words, by)
    refused = [str(place.refused) for place in Standing(session.read()).places if place.refused is not None]
    return [*(f"phase {number}: {words} by {by}" for number, words in found), *refused]


def _keep(session: Session, number: int, words: str, by: str) -> None:
    """Keep that a decision was made: as an event and, of an approval, as a snapshot by policy."""
    from haytham.cli.trust import may_run_code  # noqa: PLC0415
    from haytham.event import Events  # noqa: PLC0415
    from haytham.keeping import Keeper  # noqa: PLC0415
    from haytham.session.layout import EVENTS  # noqa: PLC0415
    from haytham.snapshot.history import History  # noqa: PLC0415

    events = Events(session.store, session.prefix + EVENTS)
    events.emit("decision", phase=number, decision=words, by=by)
    Keeper(History(session, events=events, may_run_code=may_run_code(session))).after_decision(number, words)


def _decide(here: Here, phase: int | None, decision: Decision, changes: list[str], given: dict[str, Any]) -> None:
    from haytham.session.standing import Standing  # noqa: PLC0415

    session = here.choose(given["session_name"], among=("waiting",))
    by = who(given["user"], session)
    for line in stamp(session, by):
        here.say(line)
    standing = Standing(session.read())
    place = _first_open(here, session, standing, decision) if phase is None else _named(standing, phase, decision)
    number = place.facts.phase.number
    said = {"comments": given["message"], "changes": changes, "anyway": given.get("anyway", False)}
    said |= {"agents": given.get("agents", ())}
    words = answer(session, number, decision, by=by, **said)
    facts = {"project": session.project_id, "session": session.session_id, "phase": number, "decision": decision}
    facts |= {"agents": _asked(session, number)} if decision == "changes" else {}
    faults = fault_lines(standing.reading, place.facts.phase) if decision == "approved" else []
    told = [f"phase {number}, {place.facts.phase.name}: {words} by {by}", *(f"note: {fault}" for fault in faults)]
    here.answer("decision", {**facts, "by": by, "faults": faults}, "\n".join(told))


def _asked(session: Session, number: int) -> list[str]:
    """Return the agents of a phase that are asked for changes."""
    from haytham.session.summary import asked_agents  # noqa: PLC0415

    reading = session.read()
    phase = reading.phase(number)
    feedback = reading.feedback(phase)
    return [] if feedback is None else list(asked_agents(feedback.value, phase.agents))


def _first_open(here: Here, session: Session, standing: Standing, decision: Decision) -> Place:
    """The first phase that waits for an answer; to skip, the first that is not settled."""
    place = standing.next
    if place is None:
        raise Usage("no phase waits for an answer: all are settled; name the phase to decide on it anew")
    if _has_all(place) or (decision == "skip" and place.verdict.step != "rejected"):
        return place
    if place.verdict.step == "rejected":
        raise Usage(f"no phase waits for an answer: the session was rejected in phase {place.facts.phase.number}")
    ways = f"go on with: haytham resume{here.named(session)}"
    raise Usage(f"no phase waits for an answer: phase {place.facts.phase.number} is to run first; {ways}")


def _named(standing: Standing, number: int, decision: Decision) -> Place:
    """The phase with this number, which has something to decide on, unless it is to be skipped."""
    place = standing.place(standing.reading.phase(number).number)
    if place.verdict.step in ("run", "nothing") and decision != "skip" and not _has_all(place):
        why = place.verdict.why or "it has not run to its end"
        raise Usage(f"phase {number} has nothing to decide on: {why}; haytham status shows where the session stands")
    return place


def _has_all(place: Place) -> bool:
    """Whether a phase waits for an answer, or would once it is taken up: what failed in it was mended by hand."""
    return place.verdict.step == "gate" or (place.verdict.step == "run" and not place.verdict.agents)
