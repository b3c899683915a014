"""The prompt at a gate of an interactive run. Ctrl-C, Ctrl-D and quit pause: silence is never an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from haytham.cli.context import ask, discard_typed_ahead, echo, harmless
from haytham.cli.ending import redacted_words
from haytham.cli.faults import fault_lines
from haytham.errors import HaythamError
from haytham.text import difference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.cli.context import Here
    from haytham.runner import Outcome
    from haytham.session import Session

_MOST_LINES = 200
_CHOICES = {"a": "approve", "c": "changes", "e": "edit", "r": "reject", "q": "quit"}
_WORDS = "[a]pprove, request [c]hanges, [e]dit, [r]eject, [q]uit"


def ask_at_gate(here: Here, session: Session, outcome: Outcome, by: str, *, seen: Mapping[str, str]) -> bool:
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


def _take_answer(here: Here, session: Session, number: int, by: str) -> bool:
    from haytham.cli.decide import answer  # noqa: PLC0415

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


def _edit(here: Here, session: Session, number: int, by: str) -> bool:
    """Open the editor; whether something was decided in it."""
    from haytham.cli.review import edit, tell_decision  # noqa: PLC0415

    try:
        edit(here, session, number)
        told = tell_decision(session, by)
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
    before = reading.put_aside(phase, attempt - 1).texts if attempt > 1 else {}
    for agent, text in reading.texts(phase).items():
        if harmless(text).strip() == seen.get(agent, "").strip() != "":
            echo(f"\n--- {agent}: as it came above")
        else:
            _show_text(number, agent, harmless(text))
        if agent in before and before[agent] != text:
            echo(f"\n--- {agent}: what changed since the last review\n")
            echo(difference(before[agent], text, agent))
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
