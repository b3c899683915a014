"""`approve`, `request-changes`, `reject`, `skip` and `review`, and the prompt at a gate of an interactive run.

Ctrl-C, Ctrl-D and quit pause: nothing is ever decided without an answer.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import PHASE, AppContext, UsageError, ask, discard_typed_ahead, echo, sanitize
from haytham.cli.options import session_option
from haytham.cli.output import decision_words, editor_lines, fault_lines, redacted_lines
from haytham.errors import HaythamError, NothingToDecide
from haytham.text import unified_diff

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from haytham.app.results import DecisionResult, ReviewView
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


_MOST_LINES = 200
_CHOICES = {"a": "approve", "c": "changes", "e": "edit", "r": "reject", "q": "quit"}
_WORDS = "[a]pprove, request [c]hanges, [e]dit, [r]eject, [q]uit"


def prompt_for_decision(session: Session, outcome: RunResult, by: str, *, seen: Mapping[str, str]) -> bool:
    """Show what waits, but for texts that were just seen, and take an answer; return whether there was one."""
    if outcome.phase is None:
        return False
    _show(session.review(outcome.phase), seen)
    try:
        return _take_answer(session, outcome.phase, by)
    except (click.Abort, EOFError, KeyboardInterrupt):
        echo("\npaused; nothing was decided")
        return False


def _take_answer(session: Session, number: int, by: str) -> bool:
    while True:
        letter = ask(f"\nphase {number}: {_WORDS}", value_proc=_letter)
        if letter == "q":
            echo("paused; nothing was decided")
            return False
        if letter == "e":
            if _edit(session, number, by):
                return True
            continue
        if letter == "c":
            comment = ask("what is to change")
            agents = _ask_which(session, number)
            result = session.request_changes(number, comment=comment, agents=agents, by=by)
        elif letter == "a":
            result = session.approve(number, by=by)
        else:
            result = session.reject(number, by=by)
        echo(f"phase {number}: {decision_words(result)}")
        return True


def _ask_which(session: Session, number: int) -> list[str]:
    """Ask which agent is to change its output, if there are several; an empty list stands for all."""
    agents = session.review(number).agents
    if len(agents) == 1:
        return []

    def read(answer: str) -> list[str]:
        if answer.strip() not in ("", *agents):
            raise click.BadParameter(f"{answer!r} is none of {', '.join(agents)}")
        return [answer.strip()] if answer.strip() else []

    question = f"which agent, of {', '.join(agents)} (Enter: all)"
    named: list[str] = ask(question, default="", show_default=False, value_proc=read)
    return named


def _letter(typed: str) -> str:
    """Return the choice that a letter or the start of a word means."""
    word = typed.strip().lower()
    letters = [letter for letter, choice in _CHOICES.items() if word and choice.startswith(word)]
    if not letters:
        discard_typed_ahead()
        raise click.BadParameter(f"{typed!r} is none of them")
    return letters[0]


def _edit(session: Session, number: int, by: str) -> bool:
    """Open the editor; return whether something was decided in it."""
    try:
        session.edit(number, open_editor)
        lines = editor_lines(session.bind_editor_decisions(by=by))
    except (click.ClickException, HaythamError) as error:
        sentence = error.format_message() if isinstance(error, click.ClickException) else str(error)
        echo(f"haytham: {sentence}", err=True)
        return False
    echo("\n".join(lines) or "nothing is decided yet; what you wrote is kept")
    if not lines:
        _show_faults(session.review(number))
    return bool(lines)


def _show(review: ReviewView, seen: Mapping[str, str]) -> None:
    """Print each output, its beginning, and what changed in it since the last review; then contract faults."""
    for agent, text in review.texts.items():
        if sanitize(text).strip() == seen.get(agent, "").strip() != "":
            echo(f"\n--- {agent}: as it came above")
        else:
            _show_text(review.phase, agent, sanitize(text))
        earlier = review.earlier_texts.get(agent, text)
        if earlier != text:
            echo(f"\n--- {agent}: what changed since the last review\n")
            echo(unified_diff(earlier, text, agent))
    for note in redacted_lines(review.redacted):
        echo(f"\n{note}")
    _show_faults(review)


def _show_faults(review: ReviewView) -> None:
    """Print what breaks the contract in the outputs of a phase; it can be approved all the same."""
    faults = fault_lines(review.faults)
    if faults:
        echo("\n--- what does not keep the contract; it stays as it is, and you may approve it\n")
        echo("\n".join(faults))


def _show_text(number: int, agent: str, text: str) -> None:
    lines = text.rstrip("\n").split("\n")
    echo(f"\n--- {agent}\n")
    echo("\n".join(lines[:_MOST_LINES]))
    if len(lines) > _MOST_LINES:
        echo(f"… {len(lines) - _MOST_LINES} more lines: haytham show {number} {agent}")


@click.command
@click.argument("phase", type=PHASE, required=False)
@session_option(argument=False)
@click.option("--user", help="Who reviews; else HAYTHAM_USER, who started the session, git's user.email, the login.")
@click.pass_obj
def review(context: AppContext, /, phase: int | None, session_name: str | None, user: str | None) -> None:
    r"""Open a phase in your editor.

    Its outputs and its feedback, in $VISUAL or $EDITOR; an unchanged file is no decision. Without PHASE, the first
    phase that waits. What cannot be read then is opened again, with the fault noted in it.

    \b
    Examples:
      haytham review
      EDITOR="code --wait" haytham review 2
    """
    if context.options.no_input:
        raise UsageError("a review needs an editor, and --no-input forbids one; decide with: haytham approve")
    session = context.workspace.session(session_name, among=("waiting",))
    number = session.waiting_phase() if phase is None else session.phase(phase).number
    by = session.acting_user(user)
    session.edit(number, open_editor)
    lines = editor_lines(session.bind_editor_decisions(by=by))
    facts = {"project": session.project_id, "session": session.session_id, "phase": number}
    nothing = f"phase {number}: nothing is decided; set Approved or Action in user_feedback.md, or: haytham approve"
    faults = fault_lines(session.review(number).faults)
    notes = [nothing, *(f"note: {fault}" for fault in faults)]
    context.output("review", {**facts, "decisions": lines, "faults": faults}, "\n".join(lines or notes))


def open_editor(files: list[Path], *, otherwise: str = "nothing was decided") -> None:
    """Open files in the person's editor and wait for it; `otherwise` is what follows if it fails."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    command = [*shlex.split(editor), *map(str, files)]
    try:
        done = subprocess.run(command, check=False)  # noqa: S603 - the person's own editor
    except (FileNotFoundError, PermissionError):
        raise UsageError(f"the editor {command[0]!r} cannot be started; set VISUAL or EDITOR") from None
    if done.returncode:
        raise click.ClickException(f"the editor ended with exit code {done.returncode}; {otherwise}")
