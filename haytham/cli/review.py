"""`review`: open the outputs and the feedback of a waiting phase in a person's editor, and take what they saved."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING

import click

from haytham.cli.context import Here, who
from haytham.errors import InvalidDocument

if TYPE_CHECKING:
    from pathlib import Path

    from haytham.session import Session


@click.command
@click.argument("phase", type=int, required=False)
@click.option("-s", "--session", "session_name", help="Which session, by any unique part of its id.")
@click.option("--user", help="Who reviews.")
@click.pass_obj
def review(here: Here, /, phase: int | None, session_name: str | None, user: str | None) -> None:
    """Open a waiting phase in $VISUAL or $EDITOR; an unchanged file is no decision."""
    from haytham.standing import Standing  # noqa: PLC0415

    session = here.choose(session_name, among=("waiting",))
    if phase is None:
        place = Standing(session.read()).next
        if place is None or place.verdict.step != "gate":
            raise click.UsageError("no phase waits for review")
        phase = place.facts.phase.number
    edit(here, session, phase)
    told = tell_decision(session, user)
    here.answer("review", {"phase": phase, "decided": bool(told)}, told or f"phase {phase}: nothing decided")


def edit(here: Here, session: Session, number: int) -> None:
    """Let a person edit a phase, and again until all of it can be read."""
    reading = session.read()
    folder = here.base / reading.folder(reading.phase(number))
    files = sorted(path for path in folder.glob("*.md") if path.name != "checkpoint.md")
    while True:
        _open_editor(files)
        error = _fault(session, number)
        if error is None:
            return
        click.echo(f"haytham: {error}", err=True)
        if here.options.no_input or not click.confirm("open it again?", default=True):
            raise error


def tell_decision(session: Session, user: str | None) -> str:
    """Bind what was decided in the editor to the texts, and say what it was."""
    from haytham.session.gate import Gate  # noqa: PLC0415

    by = who(user)
    return "\n".join(f"phase {number}: {said} by {by}" for number, said in Gate(session).stamp(by))


def _open_editor(files: list[Path]) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    command = [*shlex.split(editor), *(str(path) for path in files)]
    try:
        subprocess.run(command, check=True)  # noqa: S603 - the person's own editor
    except FileNotFoundError:
        raise click.UsageError(f"the editor {command[0]!r} is not there; set VISUAL or EDITOR") from None
    except subprocess.CalledProcessError as error:
        raise click.ClickException(f"the editor ended with exit code {error.returncode}; nothing was decided") from None


def _fault(session: Session, number: int) -> InvalidDocument | None:
    reading = session.read()
    phase = reading.phase(number)
    try:
        reading.texts(phase)
        reading.review(phase)
    except InvalidDocument as error:
        return error
    return None
