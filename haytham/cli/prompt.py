"""The prompt at a gate of an interactive run. Ctrl-C, Ctrl-D and quit pause: silence is never an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from haytham.cli.context import harmless
from haytham.session.gate import Gate
from haytham.text import difference

if TYPE_CHECKING:
    from haytham.cli.context import Here
    from haytham.runner import Outcome
    from haytham.session import Session

_MOST_LINES = 200
_CHOICES = {"a": "approve", "c": "request changes", "e": "edit", "r": "reject", "q": "quit"}


def ask_at_gate(here: Here, session: Session, outcome: Outcome, by: str) -> bool:
    """Show what waits and take an answer; whether there was one."""
    if outcome.phase is None:
        return False
    number = outcome.phase.number
    _show(session, number)
    try:
        return _take_answer(here, session, number, by)
    except (click.Abort, EOFError, KeyboardInterrupt):
        click.echo("\npaused; nothing was decided")
        return False


def _take_answer(here: Here, session: Session, number: int, by: str) -> bool:
    from haytham.cli.review import edit, tell_decision  # noqa: PLC0415

    words = ", ".join(f"[{letter}]{word[1:] if word[0] == letter else ' ' + word}" for letter, word in _CHOICES.items())
    while True:
        letter = click.prompt(f"phase {number}: {words}", type=click.Choice(list(_CHOICES)), show_choices=False)
        gate = Gate(session)
        if letter == "q":
            return False
        if letter == "e":
            edit(here, session, number)
            told = tell_decision(session, by)
            click.echo(told or "nothing decided")
            if told:
                return True
        elif letter == "c":
            wanted = click.prompt("what is to change")
            gate.answer(number, "changes", by=by, comments=wanted, changes=[])
            return True
        else:
            gate.answer(number, "approved" if letter == "a" else "rejected", by=by, changes=[])
            return True


def _show(session: Session, number: int) -> None:
    reading = session.read()
    phase = reading.phase(number)
    attempt = reading.attempt(phase)
    before = reading.put_aside(phase, attempt - 1).texts if attempt > 1 else {}
    for agent, text in reading.texts(phase).items():
        lines = harmless(text).split("\n")
        click.echo(f"\n--- {agent}")
        click.echo("\n".join(lines[:_MOST_LINES]))
        if len(lines) > _MOST_LINES:
            click.echo(f"… {len(lines) - _MOST_LINES} more lines: haytham show {number} {agent}")
        if agent in before and before[agent] != text:
            click.echo(f"\n--- what changed since the last review\n{harmless(difference(before[agent], text, agent))}")
