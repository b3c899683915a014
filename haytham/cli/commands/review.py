"""`approve`, `request-changes`, `reject` and `skip`: a person's answer at a gate.

The prompt at a gate of an interactive run. Ctrl-C, Ctrl-D and quit pause: silence is never an answer.

`review`: open the outputs and the feedback of a waiting phase in a person's editor, and take what they saved.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.commands.run import redacted_words
from haytham.cli.context import (
    PHASE,
    AppContext,
    UsageError,
    ask,
    current_user,
    discard_typed_ahead,
    echo,
    sanitize,
)
from haytham.cli.options import session_option
from haytham.cli.output import fault_lines
from haytham.errors import HaythamError, InvalidDocument
from haytham.text import unified_diff

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from haytham.engine.runner import RunResult
    from haytham.session import Session
    from haytham.session.derived import Decision
    from haytham.session.plan import PhasePlan, SessionPlan


def _answers(command: Callable[..., None]) -> Callable[..., None]:
    """The arguments that every answer takes."""
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
def approve(here: AppContext, /, phase: int | None, **given: Any) -> None:
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
def request_changes(here: AppContext, /, phase: int | None, changes: tuple[str, ...], **given: Any) -> None:
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
        raise UsageError("say what is to change: -m COMMENTS or --change TEXT")
    _decide(here, phase, "changes", wanted, given)


@click.command
@_answers
def reject(here: AppContext, /, phase: int | None, **given: Any) -> None:
    r"""End the session: the idea does not go on.

    \b
    Example:
      haytham reject -m "Nobody would pay for this"
    """
    _decide(here, phase, "rejected", [], given)


@click.command
@_answers
def skip(here: AppContext, /, phase: int | None, **given: Any) -> None:
    r"""Leave a phase out; those that build on it are told.

    Without PHASE, the first that is not settled.

    \b
    Example:
      haytham skip 3 && haytham resume
    """
    _decide(here, phase, "skip", [], given)


def answer(session: Session, number: int, decision: Decision, *, by: str, **said: Any) -> str:
    """Give a person's answer on a phase, and keep that it happened; what was decided, in words."""
    from haytham.session.review import ReviewGate  # noqa: PLC0415

    words = ReviewGate(session).decide(number, decision, by=by, **{"changes": [], **said})
    _keep(session, number, words, by)
    return words


def stamp(session: Session, by: str) -> list[str]:
    """Bind decisions made in an editor to the texts they were made on; what they are, or why not, a line each."""
    from haytham.session.plan import SessionPlan  # noqa: PLC0415
    from haytham.session.review import ReviewGate  # noqa: PLC0415

    found = ReviewGate(session).bind_editor_decisions(by)
    for number, words in found:
        _keep(session, number, words, by)
    refused = [str(place.refused) for place in SessionPlan(session.read()).places if place.refused is not None]
    return [*(f"phase {number}: {words} by {by}" for number, words in found), *refused]


def _keep(session: Session, number: int, words: str, by: str) -> None:
    """Keep that a decision was made: as an event and, of an approval, as a snapshot by policy."""
    from haytham.cli.trust import may_run_code  # noqa: PLC0415
    from haytham.engine.autosnapshot import AutoSnapshotter  # noqa: PLC0415
    from haytham.events import Events  # noqa: PLC0415
    from haytham.history.history import History  # noqa: PLC0415
    from haytham.session.paths import EVENTS  # noqa: PLC0415

    events = Events(session.store, session.prefix + EVENTS)
    events.emit("decision", phase=number, decision=words, by=by)
    AutoSnapshotter(History(session, events=events, may_run_code=may_run_code(session))).after_decision(number, words)


def _decide(here: AppContext, phase: int | None, decision: Decision, changes: list[str], given: dict[str, Any]) -> None:
    from haytham.session.plan import SessionPlan  # noqa: PLC0415

    session = here.resolve_session(given["session_name"], among=("waiting",))
    by = current_user(given["user"], session)
    for line in stamp(session, by):
        here.info(line)
    standing = SessionPlan(session.read())
    place = _first_open(here, session, standing, decision) if phase is None else _named(standing, phase, decision)
    number = place.state.phase.number
    said = {"comments": given["message"], "changes": changes, "anyway": given.get("anyway", False)}
    said |= {"agents": given.get("agents", ())}
    words = answer(session, number, decision, by=by, **said)
    facts = {"project": session.project_id, "session": session.session_id, "phase": number, "decision": decision}
    facts |= {"agents": _asked(session, number)} if decision == "changes" else {}
    faults = fault_lines(standing.reading, place.state.phase) if decision == "approved" else []
    told = [f"phase {number}, {place.state.phase.name}: {words} by {by}", *(f"note: {fault}" for fault in faults)]
    here.output("decision", {**facts, "by": by, "faults": faults}, "\n".join(told))


def _asked(session: Session, number: int) -> list[str]:
    """Return the agents of a phase that are asked for changes."""
    from haytham.session.derived import asked_agents  # noqa: PLC0415

    reading = session.read()
    phase = reading.phase(number)
    feedback = reading.feedback(phase)
    return [] if feedback is None else list(asked_agents(feedback.value, phase.agents))


def _first_open(here: AppContext, session: Session, standing: SessionPlan, decision: Decision) -> PhasePlan:
    """The first phase that waits for an answer; to skip, the first that is not settled."""
    place = standing.next
    if place is None:
        raise UsageError("no phase waits for an answer: all are settled; name the phase to decide on it anew")
    if _has_all(place) or (decision == "skip" and place.next_action.action != "rejected"):
        return place
    if place.next_action.action == "rejected":
        raise UsageError(f"no phase waits for an answer: the session was rejected in phase {place.state.phase.number}")
    ways = f"go on with: haytham resume{here.session_hint(session)}"
    raise UsageError(f"no phase waits for an answer: phase {place.state.phase.number} is to run first; {ways}")


def _named(standing: SessionPlan, number: int, decision: Decision) -> PhasePlan:
    """The phase with this number, which has something to decide on, unless it is to be skipped."""
    place = standing.phase(standing.reading.phase(number).number)
    if place.next_action.action in ("run", "nothing") and decision != "skip" and not _has_all(place):
        why = place.next_action.reason or "it has not run to its end"
        raise UsageError(
            f"phase {number} has nothing to decide on: {why}; haytham status shows where the session stands"
        )
    return place


def _has_all(place: PhasePlan) -> bool:
    """Whether a phase waits for an answer, or would once it is taken up: what failed in it was mended by hand."""
    return place.next_action.action == "gate" or (place.next_action.action == "run" and not place.next_action.agents)


_MOST_LINES = 200
_CHOICES = {"a": "approve", "c": "changes", "e": "edit", "r": "reject", "q": "quit"}
_WORDS = "[a]pprove, request [c]hanges, [e]dit, [r]eject, [q]uit"


def prompt_for_decision(
    here: AppContext, session: Session, outcome: RunResult, by: str, *, seen: Mapping[str, str]
) -> bool:
    """Show what waits, but for texts that were just seen while they came, and take an answer; whether there was one."""
    if outcome.phase is None:
        return False
    number = outcome.phase.number
    _show(session, number, seen)
    try:
        return _take_answer(here, session, number, by)
    except (click.Abort, EOFError, KeyboardInterrupt):
        echo("\npaused; nothing was decided")
        return False


def _take_answer(here: AppContext, session: Session, number: int, by: str) -> bool:

    while True:
        letter = ask(f"\nphase {number}: {_WORDS}", value_proc=_letter)
        if letter == "q":
            echo("paused; nothing was decided")
            return False
        if letter == "e":
            if _edit(here, session, number, by):
                return True
        elif letter == "c":
            wanted = ask("what is to change")
            words = answer(session, number, "changes", by=by, comments=wanted, agents=_ask_which(session, number))
            echo(f"phase {number}: {words}")
            return True
        else:
            words = answer(session, number, "approved" if letter == "a" else "rejected", by=by)
            echo(f"phase {number}: {words}")
            return True


def _ask_which(session: Session, number: int) -> list[str]:
    """Ask which agent is to change its output, if there are several; an empty list stands for all."""
    agents = session.read().phase(number).agents
    if len(agents) == 1:
        return []

    def read(said: str) -> list[str]:
        if said.strip() not in ("", *agents):
            raise click.BadParameter(f"{said!r} is none of {', '.join(agents)}")
        return [said.strip()] if said.strip() else []

    words = f"which agent, of {', '.join(agents)} (Enter: all)"
    named: list[str] = ask(words, default="", show_default=False, value_proc=read)
    return named


def _letter(said: str) -> str:
    """The choice that a letter or the start of a word means."""
    word = said.strip().lower()
    found = [letter for letter, choice in _CHOICES.items() if word and choice.startswith(word)]
    if not found:
        discard_typed_ahead()
        raise click.BadParameter(f"{said!r} is none of them")
    return found[0]


def _edit(here: AppContext, session: Session, number: int, by: str) -> bool:
    """Open the editor; whether something was decided in it."""
    try:
        edit(here, session, number)
        told = decision_lines(session, by)
    except (click.ClickException, HaythamError) as error:
        said = error.format_message() if isinstance(error, click.ClickException) else str(error)
        echo(f"haytham: {said}", err=True)
        return False
    echo("\n".join(told) or "nothing is decided yet; what you wrote is kept")
    if not told:
        _show_faults(session, number)
    return bool(told)


def _show(session: Session, number: int, seen: Mapping[str, str]) -> None:
    """Each output, its beginning, and what changed in it since the last review; then what breaks its contract."""
    reading = session.read()
    phase = reading.phase(number)
    attempt = reading.attempt(phase)
    before = reading.archived_attempt(phase, attempt - 1).texts if attempt > 1 else {}
    for agent, text in reading.texts(phase).items():
        if sanitize(text).strip() == seen.get(agent, "").strip() != "":
            echo(f"\n--- {agent}: as it came above")
        else:
            _show_text(number, agent, sanitize(text))
        if agent in before and before[agent] != text:
            echo(f"\n--- {agent}: what changed since the last review\n")
            echo(unified_diff(before[agent], text, agent))
    for note in redacted_words(reading, phase):
        echo(f"\n{note}")
    _show_faults(session, number)


def _show_faults(session: Session, number: int) -> None:
    """Show what breaks the contract in the outputs of a phase; it can be approved all the same."""
    reading = session.read()
    faults = fault_lines(reading, reading.phase(number))
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
def review(here: AppContext, /, phase: int | None, session_name: str | None, user: str | None) -> None:
    r"""Open a phase in your editor.

    Its outputs and its feedback, in $VISUAL or $EDITOR; an unchanged file is no decision. Without PHASE, the first
    phase that waits. What cannot be read then is opened again, with the fault noted in it.

    \b
    Examples:
      haytham review
      EDITOR="code --wait" haytham review 2
    """
    if here.options.no_input:
        raise UsageError("a review needs an editor, and --no-input forbids one; decide with: haytham approve")
    session = here.resolve_session(session_name, among=("waiting",))
    number = _waiting_phase(session) if phase is None else session.read().phase(phase).number
    by = current_user(user, session)
    edit(here, session, number)
    told = decision_lines(session, by)
    facts = {"project": session.project_id, "session": session.session_id, "phase": number}
    nothing = f"phase {number}: nothing is decided; set Approved or Action in user_feedback.md, or: haytham approve"
    reading = session.read()
    faults = fault_lines(reading, reading.phase(number))
    notes = [nothing, *(f"note: {fault}" for fault in faults)]
    here.output("review", {**facts, "decisions": told, "faults": faults}, "\n".join(told or notes))


def decision_lines(session: Session, by: str) -> list[str]:
    """Bind what was decided in the editor to the texts; what it was, a line each."""
    return stamp(session, by)


def edit(here: AppContext, session: Session, number: int) -> None:
    """Let a person edit a phase, and again until all of it can be read or they leave it as it is."""
    from haytham.session.editing import ReviewFiles  # noqa: PLC0415

    draft = ReviewFiles(session, number)
    draft.open_review()
    draft.note_faults()
    while True:
        before = draft.content()
        try:
            _open_editor([str(here.base / key) for key in draft.files()])
        finally:
            given_up = draft.content() == before
            draft.remove_notes()
        faults = draft.faults()
        if not faults:
            return
        if given_up:
            raise InvalidDocument(faults)
        draft.note_faults()


def _waiting_phase(session: Session) -> int:
    """The first phase that waits; one with a file that cannot be read comes first, since nothing goes on before."""
    from haytham.session.plan import SessionPlan  # noqa: PLC0415

    reading = session.read()
    try:
        place = SessionPlan(reading).next
    except InvalidDocument as error:
        for phase in reading.phases:
            if any(problem.file.startswith(reading.phase_prefix(phase)) for problem in error.problems):
                return phase.number
        raise
    if place is None or place.next_action.action != "gate":
        raise UsageError("no phase waits for review; haytham status shows where the session stands")
    return place.state.phase.number


def _open_editor(files: list[str]) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    command = [*shlex.split(editor), *files]
    try:
        done = subprocess.run(command, check=False)  # noqa: S603 - the person's own editor
    except (FileNotFoundError, PermissionError):
        raise UsageError(f"the editor {command[0]!r} cannot be started; set VISUAL or EDITOR") from None
    if done.returncode:
        raise click.ClickException(f"the editor ended with exit code {done.returncode}; nothing was decided")
