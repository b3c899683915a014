"""Events of a run as they happen: a live view in a terminal, plain lines elsewhere, JSON lines where asked for."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from haytham import clock
from haytham.cli.context import harmless

if TYPE_CHECKING:
    from collections.abc import Iterator

    from haytham.cli.context import Options
    from haytham.event import Event, Events

_WORDS = {
    "phase_started": "phase {phase}: {name}",
    "agent_started": "  {agent}: asked {model}",
    "agent_failed": "  {agent}: {error}",
    "agent_ended": "  {agent}: done",
    "attempt_started": "phase {phase}: attempt {attempt}",
    "gate_opened": "phase {phase}: {why}",
    "decision": "phase {phase}: {decision} by {by}",
}


@contextmanager
def following(events: Events, options: Options) -> Iterator[None]:
    """Show events while a run goes on, the way that fits where they are shown."""
    if options.as_json:
        events.on("*", lambda event: click.echo(event.line().decode(), nl=False, err=True))
        yield
    elif options.quiet:
        yield
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _live(events):
            yield
    else:
        events.on("*", _tell)
        yield


def _tell(event: Event) -> None:
    if event.name in _WORDS:
        click.echo(harmless(_WORDS[event.name].format(**event.facts)), err=True)


@contextmanager
def _live(events: Events) -> Iterator[None]:
    """A table of agents at work, drawn anew a few times a second; done ones scroll by above it."""
    from rich.console import Console  # noqa: PLC0415 - only where something is drawn
    from rich.live import Live  # noqa: PLC0415

    board = _Board()
    console = Console(stderr=True, highlight=False)
    with Live(board, console=console, refresh_per_second=8, transient=True):
        events.on("*", board.take)
        events.on("*", lambda event: _above(console, event))
        yield


def _above(console: Any, event: Event) -> None:
    if event.name in _WORDS and event.name != "agent_started":
        console.print(harmless(_WORDS[event.name].format(**event.facts)), markup=False)


class _Board:
    """Which phase and which agents are at work, since when, with what was used so far."""

    def __init__(self) -> None:
        self._working: dict[str, tuple[float, str]] = {}
        self._tokens, self._cost = 0, 0.0
        self._phase, self._begun = "", clock.ticks()

    def take(self, event: Event) -> None:
        """Note what an event says."""
        agent = event.facts.get("agent", "")
        if event.name == "phase_started":
            self._phase = f"phase {event.facts['phase']}, {event.facts['name']}"
        if event.name == "agent_started":
            self._working[agent] = (clock.ticks(), event.facts["model"])
        elif event.name in ("agent_ended", "agent_failed"):
            self._working.pop(agent, None)
            self._tokens += sum(count or 0 for count in event.facts.get("tokens", ()))
            self._cost += event.facts.get("cost") or 0.0

    def __rich__(self) -> Any:
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415 - what agents and phases are called is no markup

        table = Table.grid(padding=(0, 2))
        for agent, (since, model) in self._working.items():
            table.add_row(*map(Text, (f"  {harmless(agent)}", harmless(model), f"{clock.ticks() - since:.0f}s")))
        used = f"{self._tokens} tokens, ${self._cost:g}"
        table.add_row(*map(Text, (harmless(self._phase), used, f"{clock.ticks() - self._begun:.0f}s")))
        return table
