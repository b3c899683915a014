"""The live view of a terminal: agents at work below, and what they write as it comes; what is over scrolls by above."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.cli.context import harmless
from haytham.masking import without_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from haytham.event import Event, Events

_MOST_LINES = 400
_LONGEST_TAIL = 60
_KEPT = 1_000  # characters of a line that has not ended
_OVER = ("agent_ended", "agent_failed", "person_asked", "budget_reached")


@contextmanager
def live(
    events: Events, line: Callable[[Event], str | None], seen: dict[str, str], secrets: tuple[str, ...] = ()
) -> Iterator[None]:
    """Draw the agents at work a few times a second; `seen` takes the texts that have scrolled by, whole."""
    from rich.console import Console  # noqa: PLC0415 - only where something is drawn
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415 - what agents write is no markup

    board = _Board(seen, secrets)
    console = Console(stderr=True, highlight=False)

    def take(event: Event) -> None:
        told = [*board.take(event), line(event)]
        lines = [one for one in told if one is not None]
        if lines:
            console.print(Text(harmless("\n".join(lines))))

    with Live(board, console=console, refresh_per_second=8, transient=True):
        events.on("*", take)
        yield


@dataclass
class _Work:
    """An agent at work: on which model, since when, whether its text flows by whole, and the line it is writing."""

    model: str
    since: float
    flows: bool
    secrets: tuple[str, ...] = ()
    shown: list[str] = field(default_factory=list)
    rest: str = ""

    def hear(self, piece: str) -> list[str]:
        """Take a piece of text; the lines that are whole now and are to be shown."""
        *lines, rest = (self.rest + harmless(piece)).split("\n")
        if self.flows:
            self.rest = rest
            return self._show(lines)
        last = next((line for line in reversed(lines) if line.strip()), "")
        self.rest = (rest if rest.strip() or not last else f"{last}\n")[-_KEPT:]
        return []

    def end(self) -> list[str]:
        """The line that was never ended."""
        rest, self.rest = self.rest, ""
        return self._show([rest]) if self.flows and rest else []

    def _show(self, lines: list[str]) -> list[str]:
        """Lines to be shown, as long as there is room for them."""
        lines = [without_values(line, self.secrets)[0] for line in lines]
        room = _MOST_LINES - len(self.shown)
        self.flows = self.flows and len(lines) <= room
        self.shown += lines[:room]
        return lines[:room] if self.flows else [*lines[:room], "… the rest is not shown while it comes"]

    @property
    def tail(self) -> str:
        """The last of what it writes: the line as far as it has come, or no more than the end of it."""
        rest = without_values(self.rest, self.secrets)[0]
        if self.flows:
            return rest[-_KEPT:]
        line = " ".join(rest.split())
        return line if len(line) <= _LONGEST_TAIL else f"…{line[-_LONGEST_TAIL:]}"


class _Board:
    """Which phase and which agents are at work, since when, with what was used so far."""

    def __init__(self, seen: dict[str, str], secrets: tuple[str, ...] = ()) -> None:
        self._seen, self._secrets = seen, secrets
        self._working: dict[str, _Work] = {}
        self._tokens, self._cost, self._unknown = 0, 0.0, False
        self._phase, self._begun = "", clock.ticks()

    def take(self, event: Event) -> list[str]:
        """Note what an event says; the lines of text that it brings."""
        agent = str(event.facts.get("agent", ""))
        if event.name == "phase_started":
            self._phase = f"phase {event.facts['phase']}, {event.facts['name']}"
        elif event.name == "agent_started":
            self._begin(agent, str(event.facts["model"]))
        elif agent in self._working and event.name == "agent_text":
            return self._hear(agent, str(event.facts["text"]))
        elif agent in self._working and event.name in (*_OVER, "repair_asked"):
            return self._end(agent, event)
        return []

    def _begin(self, agent: str, model: str) -> None:
        """Only an agent that works alone is shown whole; of several, each has a line."""
        self._seen.pop(agent, None)
        others = [work for name, work in self._working.items() if name != agent]
        for work in others:
            work.flows = False
        self._working[agent] = _Work(model, clock.ticks(), flows=not others, secrets=self._secrets)

    def _hear(self, agent: str, piece: str) -> list[str]:
        work = self._working[agent]
        is_first = not work.shown
        lines = work.hear(piece)
        return [f"--- {agent}", *lines] if is_first and lines else lines

    def _end(self, agent: str, event: Event) -> list[str]:
        """Have done with an answer: it is stored, failed, or is to be mended and comes once more."""
        work = self._working[agent]
        lines = work.end()
        if event.name == "repair_asked":
            work.shown.clear()
        else:
            del self._working[agent]
        if event.name == "agent_ended":
            self._tokens += sum(count or 0 for count in event.facts.get("tokens", ()))
            self._cost += event.facts.get("cost") or 0.0
            self._unknown |= None in (*event.facts.get("tokens", ()), event.facts.get("cost"))
            if work.flows and work.shown:
                self._seen[agent] = "\n".join(work.shown)
        return lines

    def __rich__(self) -> Any:
        from rich.console import Group  # noqa: PLC0415

        now = clock.ticks()
        rows = [row for agent, work in list(self._working.items()) for row in _rows(agent, work, now)]
        used = f"{self._tokens:,} tokens, ${self._cost:g}" + (", some unknown" if self._unknown else "")
        return Group(*rows, _line(f"{self._phase}  {used}  {now - self._begun:.0f}s"))


def _rows(agent: str, work: _Work, now: float) -> Iterator[Any]:
    """An agent at work: the line it is writing, where its text flows by above; and how long it has been at it."""
    from rich.text import Text  # noqa: PLC0415

    if work.flows and work.tail:
        yield Text(work.tail)
    yield _line(f"  {agent}  {work.model}  {now - work.since:.0f}s")
    if not work.flows and work.tail:
        yield _line(f"    {work.tail}")


def _line(text: str) -> Any:
    from rich.text import Text  # noqa: PLC0415

    return Text(harmless(text), no_wrap=True, overflow="ellipsis")
