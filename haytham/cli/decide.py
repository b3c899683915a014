"""`approve`, `request-changes`, `reject` and `skip`: a person's answer at a gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import Here, who

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham.session import Session
    from haytham.session.summary import Decision


def _answers(command: Callable[..., None]) -> Callable[..., None]:
    """The arguments that every answer takes."""
    for decorate in (
        click.pass_obj,
        click.option("-s", "--session", "session_name", help="Which session, by any unique part of its id."),
        click.option("--user", help="Who decides; else HAYTHAM_USER, git's user.email, the login name."),
        click.option("-m", "--message", default="", help="Comments; they reach the phases that build on this one."),
        click.argument("phase", type=int, required=False),
    ):
        command = decorate(command)
    return command


@click.command
@_answers
def approve(here: Here, /, phase: int | None, **given: Any) -> None:
    r"""Approve a phase as its texts are now; without PHASE, the first that waits.

    \b
    Example:
      haytham approve -m "Go on, but name one city" && haytham resume
    """
    _decide(here, phase, "approved", [], given)


@click.command("request-changes")
@click.option("--change", "changes", multiple=True, help="One change that is wanted; may be given several times.")
@_answers
def request_changes(here: Here, /, phase: int | None, changes: tuple[str, ...], **given: Any) -> None:
    r"""Ask for another attempt, with comments and changes wanted.

    \b
    Example:
      haytham request-changes 2 -m "Too broad" --change "Name one city" --change "Say who pays"
    """
    if not changes and not given["message"].strip():
        raise click.UsageError("say what is to change: -m COMMENTS or --change TEXT")
    _decide(here, phase, "changes", list(changes), given)


@click.command
@_answers
def reject(here: Here, /, phase: int | None, **given: Any) -> None:
    """End the session here: the idea does not go on."""
    _decide(here, phase, "rejected", [], given)


@click.command
@_answers
def skip(here: Here, /, phase: int | None, **given: Any) -> None:
    """Leave a phase out; those that build on it are told."""
    _decide(here, phase, "skip", [], given)


def _decide(here: Here, phase: int | None, decision: Decision, changes: list[str], given: dict[str, Any]) -> None:
    from haytham.event import Events  # noqa: PLC0415
    from haytham.session.gate import Gate  # noqa: PLC0415
    from haytham.session.layout import EVENTS  # noqa: PLC0415

    session = here.choose(given["session_name"], among=("waiting",))
    number = _open_gate(session, decision) if phase is None else phase
    by = who(given["user"])
    said = Gate(session).answer(number, decision, by=by, comments=given["message"], changes=changes)
    Events(session.store, session.prefix + EVENTS).emit("decision", phase=number, decision=said, by=by)
    facts = {"project": session.project_id, "session": session.session_id, "phase": number, "decision": decision}
    here.answer("decision", {**facts, "by": by}, f"phase {number}: {said} by {by}")


def _open_gate(session: Session, decision: Decision) -> int:
    """The first phase that waits for an answer; to skip, the first that is not settled."""
    from haytham.standing import Standing  # noqa: PLC0415

    place = Standing(session.read()).next
    if place is None:
        raise click.UsageError("no phase waits for an answer")
    if place.verdict.step != "gate" and decision != "skip":
        number = place.facts.phase.number
        raise click.UsageError(f"no phase waits for an answer; phase {number} has not run yet: haytham resume")
    return place.facts.phase.number
