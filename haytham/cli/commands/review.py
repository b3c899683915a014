"""`approve`, `request-changes`, `reject`, `skip`, `undo` and `review`, and the gate of an interactive run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import PHASE, TO_GO_BACK, AppContext, UsageError
from haytham.cli.editor import open_editor
from haytham.cli.gate import Gate
from haytham.cli.options import session_option
from haytham.cli.output import decision_words, editor_lines, fault_lines
from haytham.cli.page import Screen
from haytham.errors import NothingToDecide

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from haytham.app.results import DecisionResult
    from haytham.app.session import Session
    from haytham.engine.runner import RunResult


def _answers(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments that every decision takes."""
    for decorate in (
        click.pass_obj,
        session_option(argument=False),
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
def approve(context: AppContext, /, phase: int | None, **given: Any) -> None:
    r"""Approve a phase as its texts are now.

    Without PHASE, the first that waits. A phase that needs a stale phase is approved with --anyway only.

    \b
    Examples:
      haytham approve && haytham resume
      haytham approve 2 -m "Go on, but name one city"
    """
    session, by = _session(context, given)
    _print_decision(context, session, by, lambda: session.approve(phase, anyway=given["anyway"], **_words(given, by)))


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
def request_changes(context: AppContext, /, phase: int | None, changes: tuple[str, ...], **given: Any) -> None:
    r"""Ask for another attempt at a phase.

    With comments, or changes wanted. Without PHASE, at the first that waits. With --agent only that agent runs again;
    in a sequential phase those after it run, too, if its text changes.

    \b
    Examples:
      haytham request-changes 2 -m "Too broad" --change "Name one city" --change "Say who pays"
      haytham request-changes 2 --agent market_intelligence --change "Say where each number is from"
    """
    if not any(change.strip() for change in changes) and not given["message"].strip():
        raise UsageError("say what is to change: -m COMMENTS or --change TEXT")
    session, by = _session(context, given)
    words = {**_words(given, by), "changes": changes, "agents": given["agents"]}
    _print_decision(context, session, by, lambda: session.request_changes(phase, **words))


@click.command
@_answers
def reject(context: AppContext, /, phase: int | None, **given: Any) -> None:
    r"""End the session: the idea does not go on.

    \b
    Example:
      haytham reject -m "Nobody would pay for this"
    """
    session, by = _session(context, given)
    _print_decision(context, session, by, lambda: session.reject(phase, **_words(given, by)))


@click.command
@_answers
def skip(context: AppContext, /, phase: int | None, **given: Any) -> None:
    r"""Skip a phase. Later phases see that it was skipped.

    Without PHASE, the first that is not settled.

    \b
    Example:
      haytham skip 3 && haytham resume
    """
    session, by = _session(context, given)
    _print_decision(context, session, by, lambda: session.skip(phase, **_words(given, by)))


def _session(context: AppContext, given: dict[str, Any]) -> tuple[Session, str]:
    """Return the session that is meant, and who decides."""
    session = context.workspace.session(given["session_name"], among=("waiting",))
    return session, session.acting_user(given["user"])


def _words(given: dict[str, Any], by: str) -> dict[str, Any]:
    return {"comment": given["message"], "by": by}


def _print_decision(context: AppContext, session: Session, by: str, decide: Callable[[], DecisionResult]) -> None:
    """Bind what was typed into files, decide, and print both."""
    for line in editor_lines(session.bind_editor_decisions(by=by)):
        context.info(line)
    try:
        result = decide()
    except NothingToDecide as error:
        if error.reason != "to_run":
            raise
        raise UsageError(f"{error}; go on with: haytham resume{context.session_hint(session)}") from None
    facts = {"project": session.project_id, "session": session.session_id, "phase": result.phase}
    facts |= {"decision": result.decision}
    facts |= {"agents": list(result.asked)} if result.decision == "changes" else {}
    faults = fault_lines(result.faults)
    lines = [f"phase {result.phase}, {result.name}: {decision_words(result)} by {by}"]
    lines += [f"note: {fault}" for fault in faults]
    context.output("decision", {**facts, "by": by, "faults": faults}, "\n".join(lines))


def prompt_for_decision(session: Session, outcome: RunResult, by: str, *, seen: Mapping[str, str]) -> bool:
    """Show what waits, but for texts that were just seen, and take an answer; return whether something was decided."""
    if outcome.phase is None:
        return False
    return Gate(session, outcome.phase, by, Screen.of_terminal(), seen).run()


@click.command
@click.argument("phase", type=PHASE, required=False)
@session_option(argument=False)
@click.option("--user", help="Who reviews; else HAYTHAM_USER, who started the session, git's user.email, the login.")
@click.pass_obj
def review(context: AppContext, /, phase: int | None, session_name: str | None, user: str | None) -> None:
    r"""Review a phase, and decide on it.

    Shows its page, what changed in it, what an approval starts, and a prompt: a letter decides, ? lists them.
    Without PHASE, the first that waits for review or for a page to be written. Where no terminal is at hand, its
    outputs and its feedback are opened in $VISUAL or $EDITOR, one after the other; an unchanged file is no
    decision. What cannot be read then is opened again, with the fault noted in it.

    \b
    Examples:
      haytham review
      EDITOR="code --wait" haytham review 2
    """
    if context.options.no_input:
        raise UsageError("a review needs a person, and --no-input asks nobody; decide with: haytham approve")
    session = context.workspace.session(session_name, among=("waiting",))
    number = session.waiting_phase(to_write=True) if phase is None else session.phase(phase).number
    by = session.acting_user(user)
    if context.can_ask():
        if Gate(session, number, by, Screen.of_terminal()).run():
            context.info(f"go on with: haytham resume{context.session_hint(session)}")
        return
    session.edit(number, open_editor)
    lines = editor_lines(session.bind_editor_decisions(by=by))
    facts = {"project": session.project_id, "session": session.session_id, "phase": number}
    nothing = f"phase {number}: nothing is decided; set Approved or Action in user_feedback.md, or: haytham approve"
    faults = fault_lines(session.review(number).faults)
    notes = [nothing, *(f"note: {fault}" for fault in faults)]
    context.output("review", {**facts, "decisions": lines, "faults": faults}, "\n".join(lines or notes))


@click.command
@click.option("--user", help="Whose decision; else HAYTHAM_USER, who started the session, git's user.email, the login.")
@session_option(argument=False)
@click.pass_obj
def undo(context: AppContext, /, session_name: str | None, user: str | None) -> None:
    r"""Withdraw your last decision, while nothing was built on it.

    The phase waits for review again; your comments and requested changes stay in its feedback.

    \b
    Example:
      haytham undo
    """
    session = context.workspace.session(session_name, among=TO_GO_BACK)
    by = session.acting_user(user)
    result = session.undo(by=by)
    facts = {"project": session.project_id, "session": session.session_id, "phase": result.phase, "by": by}
    sentence = f"phase {result.phase}, {result.name}: no longer {decision_words(result)}; it waits for review again"
    context.output("undo", {**facts, "decision": result.decision}, sentence)
