"""`review`: open the outputs and the feedback of a waiting phase in a person's editor, and take what they saved."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING

import click

from haytham.cli.context import PHASE, Here, Usage, session_names, who
from haytham.cli.faults import fault_lines
from haytham.errors import InvalidDocument

if TYPE_CHECKING:
    from haytham.session import Session


@click.command
@click.argument("phase", type=PHASE, required=False)
@session_names(argument=False)
@click.option("--user", help="Who reviews; else HAYTHAM_USER, who started the session, git's user.email, the login.")
@click.pass_obj
def review(here: Here, /, phase: int | None, session_name: str | None, user: str | None) -> None:
    r"""Open a phase in your editor.

    Its outputs and its feedback, in $VISUAL or $EDITOR; an unchanged file is no decision. Without PHASE, the first
    phase that waits. What cannot be read then is opened again, with the fault noted in it.

    \b
    Examples:
      haytham review
      EDITOR="code --wait" haytham review 2
    """
    if here.options.no_input:
        raise Usage("a review needs an editor, and --no-input forbids one; decide with: haytham approve")
    session = here.choose(session_name, among=("waiting",))
    number = _waiting_phase(session) if phase is None else session.read().phase(phase).number
    by = who(user, session)
    edit(here, session, number)
    told = tell_decision(session, by)
    facts = {"project": session.project_id, "session": session.session_id, "phase": number}
    nothing = f"phase {number}: nothing is decided; set Approved or Action in user_feedback.md, or: haytham approve"
    reading = session.read()
    faults = fault_lines(reading, reading.phase(number))
    notes = [nothing, *(f"note: {fault}" for fault in faults)]
    here.answer("review", {**facts, "decisions": told, "faults": faults}, "\n".join(told or notes))


def tell_decision(session: Session, by: str) -> list[str]:
    """Bind what was decided in the editor to the texts; what it was, a line each."""
    from haytham.cli.decide import stamp  # noqa: PLC0415

    return stamp(session, by)


def edit(here: Here, session: Session, number: int) -> None:
    """Let a person edit a phase, and again until all of it can be read or they leave it as it is."""
    from haytham.session.draft import Draft  # noqa: PLC0415

    draft = Draft(session, number)
    draft.open_gate()
    draft.note_faults()
    while True:
        before = draft.content()
        try:
            _open_editor([str(here.base / key) for key in draft.files()])
        finally:
            given_up = draft.content() == before
            draft.take_out_notes()
        faults = draft.faults()
        if not faults:
            return
        if given_up:
            raise InvalidDocument(faults)
        draft.note_faults()


def _waiting_phase(session: Session) -> int:
    """The first phase that waits; one with a file that cannot be read comes first, since nothing goes on before."""
    from haytham.session.standing import Standing  # noqa: PLC0415

    reading = session.read()
    try:
        place = Standing(reading).next
    except InvalidDocument as error:
        for phase in reading.phases:
            if any(problem.file.startswith(reading.folder(phase)) for problem in error.problems):
                return phase.number
        raise
    if place is None or place.verdict.step != "gate":
        raise Usage("no phase waits for review; haytham status shows where the session stands")
    return place.facts.phase.number


def _open_editor(files: list[str]) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    command = [*shlex.split(editor), *files]
    try:
        done = subprocess.run(command, check=False)  # noqa: S603 - the person's own editor
    except (FileNotFoundError, PermissionError):
        raise Usage(f"the editor {command[0]!r} cannot be started; set VISUAL or EDITOR") from None
    if done.returncode:
        raise click.ClickException(f"the editor ended with exit code {done.returncode}; nothing was decided")
