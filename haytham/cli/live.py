"""Events of a run as they happen: a live view in a terminal, plain lines elsewhere, JSON lines where asked for.

The live view of a terminal: agents at work below, and what they write as it comes; what is over scrolls by above.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.cli.context import as_json, echo, sanitize
from haytham.cli.output import decision_text, one_line, pluralize
from haytham.redact import environment_secrets, redact_values
from haytham.usage import format_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from haytham.cli.context import Options
    from haytham.events import Event, Events

_WORDS = {
    "phase_started": "phase {phase}: {name}",
    "agent_started": "  {agent}: asked {model}",
    "agent_fell_back": "  {agent}: falls back to {model}",
    "agent_failed": "  {agent}: {error}{tries}",
    "repair_asked": "  {agent}: {complaints}; it is asked to mend that",
    "agent_completed": "  {agent}: done{used}",
    "reply_redacted": "  {agent}: its reply held a secret of your environment, which is stored as ***",
    "person_asked": "  {agent}: left to a person",
    "reply_not_stored": "  {agent}: its reply is not stored: {why}",
    "budget_warning": "budget: {why}",
    "budget_exceeded": "  {agent}: held back: {why}",
    "drift_detected": "{why}",
    "drift_cleared": "drift is over: {signals}",
    "phase_stale": "phase {phase} is stale: {why}",
    "snapshot_skipped": "no {kind} snapshot was taken: {why}",
    "attempt_started": "phase {phase}: attempt {attempt}",
    "review_opened": "phase {phase}: {why}",
    "decision": "phase {phase}: {decided} by {by}",
    "decision_refused": "{why}",
}
_TEXT = "agent_text"


class ProgressView:
    """How a run looks from the terminal; `models` were asked, and the text of `seen` agents has scrolled by, whole."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.models: set[str] = set()
        self.seen: dict[str, str] = {}

    @contextmanager
    def following(self, events: Events) -> Iterator[None]:
        """Show events while a run goes on, the way that fits where they are shown."""
        events.on("agent_started", lambda event: self.models.add(str(event.facts["model"])), timeout=None)
        if self._options.as_json:
            events.on("*", _tell_json, timeout=None)
            yield
        elif self._options.quiet:
            yield
        elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            with live_panel(events, EventFormatter(on_board=True).line, self.seen, environment_secrets(os.environ)):
                yield
        else:
            teller = EventFormatter()
            events.on("*", lambda event: _tell_line(teller.line(event)), timeout=None)
            yield


def _tell_json(event: Event) -> None:
    if event.name != _TEXT:
        echo(as_json({"time": event.time, "event": event.name, **event.facts}), err=True)


def _tell_line(line: str | None) -> None:
    if line is not None:
        echo(line, err=True)


class EventFormatter:
    """Formats events as lines; the start of an agent may be shown on a panel instead, unless its model changed."""

    def __init__(self, *, on_board: bool = False) -> None:
        self._on_board = on_board
        self._asked: dict[str, str] = {}

    def line(self, event: Event) -> str | None:
        """Return an event as a line; None for one that is not shown."""
        name, facts = event.name, event.facts
        if name == "agent_started":
            before = self._asked.get(facts["agent"], facts["model"])
            self._asked[facts["agent"]] = facts["model"]
            name = "agent_fell_back" if before != facts["model"] else "" if self._on_board else name
        elif name == "agent_completed":
            self._asked.pop(facts["agent"], None)
        return sanitize(_WORDS[name].format_map(_readable(facts))) if name in _WORDS else None


def _readable(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of an event as they can be printed in a line."""
    shown = {name: _first_line(value) if isinstance(value, str) else value for name, value in facts.items()}
    left = facts.get("tries_left")
    shown["tries"] = f"; it is asked again, {left} more at most" if left else ""
    shown["decided"] = decision_text(facts) if facts.get("decision") else ""
    shown["signals"] = ", ".join(facts.get("signals") or ()).replace("_", " ")
    shown["complaints"] = _complaints(facts.get("complaints") or ())
    return {**shown, "used": format_usage(facts)}


def _first_line(text: str) -> str:
    return one_line(text.strip().partition("\n")[0]).rstrip(":")


def _complaints(complaints: Any) -> str:
    """Return the first complaint about a reply, and how many more there are."""
    more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
    return f"{_first_line(str(complaints[0]))}{more}" if complaints else "its reply breaks its contract"


def format_usage(facts: Mapping[str, Any]) -> str:
    """Return what an agent's answer took, as far as reported; empty if nothing."""
    tokens, cost = sum(count or 0 for count in facts.get("tokens") or ()), facts.get("cost")
    amounts = [pluralize(tokens, "token")] if tokens else []
    amounts += [format_usd(cost)] if cost else []
    return "".join(f", {amount}" for amount in amounts)


_MOST_LINES = 400
_LONGEST_TAIL = 60
_KEPT = 1_000  # characters of a line that has not ended
_OVER = ("agent_completed", "agent_failed", "person_asked", "budget_exceeded")


@contextmanager
def live_panel(
    events: Events, line: Callable[[Event], str | None], seen: dict[str, str], secrets: tuple[str, ...] = ()
) -> Iterator[None]:
    """Draw the agents at work a few times a second; `seen` takes the texts that have scrolled by, whole."""
    from rich.console import Console  # noqa: PLC0415 - only where something is drawn
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415 - what agents write is no markup

    board = LivePanel(seen, secrets)
    console = Console(stderr=True, highlight=False)

    def take(event: Event) -> None:
        candidates = [*board.take(event), line(event)]
        lines = [text for text in candidates if text is not None]
        if lines:
            console.print(Text(sanitize("\n".join(lines))))

    with Live(board, console=console, refresh_per_second=8, transient=True):
        events.on("*", take, timeout=None)
        yield


@dataclass
class AgentPanel:
    """An agent at work: on which model, since when, whether its text flows by whole, and the line it is writing."""

    model: str
    since: float
    flows: bool
    secrets: tuple[str, ...] = ()
    shown: list[str] = field(default_factory=list)
    rest: str = ""

    def hear(self, piece: str) -> list[str]:
        """Take a piece of text; the lines that are whole now and are to be shown."""
        *lines, rest = (self.rest + sanitize(piece)).split("\n")
        if self.flows:
            self.rest = rest
            return self._show(lines)
        last = next((line for line in reversed(lines) if line.strip()), "")
        self.rest = (rest if rest.strip() or not last else f"{last}\n")[-_KEPT:]
        return []

    def end(self) -> list[str]:
        """Return the last line, which has no end yet."""
        rest, self.rest = self.rest, ""
        return self._show([rest]) if self.flows and rest else []

    def _show(self, lines: list[str]) -> list[str]:
        """Return the lines to show, as many as there is room for."""
        lines = [redact_values(line, self.secrets)[0] for line in lines]
        room = _MOST_LINES - len(self.shown)
        self.flows = self.flows and len(lines) <= room
        self.shown += lines[:room]
        return lines[:room] if self.flows else [*lines[:room], "… the rest is not shown while it comes"]

    @property
    def tail(self) -> str:
        """Return the end of what the agent writes: its last line so far, cut to the width."""
        rest = redact_values(self.rest, self.secrets)[0]
        if self.flows:
            return rest[-_KEPT:]
        line = " ".join(rest.split())
        return line if len(line) <= _LONGEST_TAIL else f"…{line[-_LONGEST_TAIL:]}"


class LivePanel:
    """Which phase and which agents are at work, since when, with what was used so far."""

    def __init__(self, seen: dict[str, str], secrets: tuple[str, ...] = ()) -> None:
        self._seen, self._secrets = seen, secrets
        self._working: dict[str, AgentPanel] = {}
        self._tokens, self._cost, self._unknown = 0, 0.0, False
        self._phase, self._begun = "", clock.monotonic()

    def take(self, event: Event) -> list[str]:
        """Update the panel with an event; return the lines of text to print above it."""
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
        """Show the text of an agent that works alone; of several, show one line each."""
        self._seen.pop(agent, None)
        others = [work for name, work in self._working.items() if name != agent]
        for work in others:
            work.flows = False
        self._working[agent] = AgentPanel(model, clock.monotonic(), flows=not others, secrets=self._secrets)

    def _hear(self, agent: str, piece: str) -> list[str]:
        work = self._working[agent]
        is_first = not work.shown
        lines = work.hear(piece)
        return [f"--- {agent}", *lines] if is_first and lines else lines

    def _end(self, agent: str, event: Event) -> list[str]:
        """Remove an answer from the display: it was stored, it failed, or it is asked for again."""
        work = self._working[agent]
        lines = work.end()
        if event.name == "repair_asked":
            work.shown.clear()
        else:
            del self._working[agent]
        if event.name == "agent_completed":
            self._tokens += sum(count or 0 for count in event.facts.get("tokens", ()))
            self._cost += event.facts.get("cost") or 0.0
            self._unknown |= None in (*event.facts.get("tokens", ()), event.facts.get("cost"))
            if work.flows and work.shown:
                self._seen[agent] = "\n".join(work.shown)
        return lines

    def __rich__(self) -> Any:
        from rich.console import Group  # noqa: PLC0415

        now = clock.monotonic()
        rows = [row for agent, work in list(self._working.items()) for row in _rows(agent, work, now)]
        used = f"{self._tokens:,} tokens, ${self._cost:g}" + (", some unknown" if self._unknown else "")
        return Group(*rows, _line(f"{self._phase}  {used}  {now - self._begun:.0f}s"))


def _rows(agent: str, work: AgentPanel, now: float) -> Iterator[Any]:
    """Return the panel row of a running agent: the line it is writing, and for how long it has been running."""
    from rich.text import Text  # noqa: PLC0415

    if work.flows and work.tail:
        yield Text(work.tail)
    yield _line(f"  {agent}  {work.model}  {now - work.since:.0f}s")
    if not work.flows and work.tail:
        yield _line(f"    {work.tail}")


def _line(text: str) -> Any:
    from rich.text import Text  # noqa: PLC0415

    return Text(sanitize(text), no_wrap=True, overflow="ellipsis")
