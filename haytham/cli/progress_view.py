"""Events of a run as they happen: a live view in a terminal, plain lines elsewhere, JSON lines where asked for."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from haytham.budget import money
from haytham.cli.context import as_json, echo, harmless
from haytham.cli.ending import one_line
from haytham.cli.snapshot_view import counted
from haytham.masking import environment_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from haytham.cli.context import Options
    from haytham.event import Event, Events

_WORDS = {
    "phase_started": "phase {phase}: {name}",
    "agent_started": "  {agent}: asked {model}",
    "agent_fell_back": "  {agent}: falls back to {model}",
    "agent_failed": "  {agent}: {error}{tries}",
    "repair_asked": "  {agent}: {complaints}; it is asked to mend that",
    "agent_ended": "  {agent}: done{used}",
    "reply_redacted": "  {agent}: its reply held a secret of your environment, which is stored as ***",
    "person_asked": "  {agent}: left to a person",
    "reply_not_stored": "  {agent}: its reply is not stored: {why}",
    "budget_warning": "budget: {why}",
    "budget_reached": "  {agent}: held back: {why}",
    "attempt_started": "phase {phase}: attempt {attempt}",
    "gate_opened": "phase {phase}: {why}",
    "decision": "phase {phase}: {decision} by {by}",
    "decision_refused": "{why}",
}
_TEXT = "agent_text"


class View:
    """How a run looks from the terminal; `models` were asked, and the text of `seen` agents has scrolled by, whole."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.models: set[str] = set()
        self.seen: dict[str, str] = {}

    @contextmanager
    def following(self, events: Events) -> Iterator[None]:
        """Show events while a run goes on, the way that fits where they are shown."""
        events.on("agent_started", lambda event: self.models.add(str(event.facts["model"])))
        if self._options.as_json:
            events.on("*", _tell_json)
            yield
        elif self._options.quiet:
            yield
        elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            from haytham.cli.live_view import live  # noqa: PLC0415 - only where something is drawn

            with live(events, _Teller(on_board=True).line, self.seen, environment_secrets(os.environ)):
                yield
        else:
            teller = _Teller()
            events.on("*", lambda event: _tell_line(teller.line(event)))
            yield


def _tell_json(event: Event) -> None:
    if event.name != _TEXT:
        echo(as_json({"time": event.time, "event": event.name, **event.facts}), err=True)


def _tell_line(line: str | None) -> None:
    if line is not None:
        echo(line, err=True)


class _Teller:
    """Puts events into lines; that an agent is asked may stand on a board instead, unless it is another model now."""

    def __init__(self, *, on_board: bool = False) -> None:
        self._on_board = on_board
        self._asked: dict[str, str] = {}

    def line(self, event: Event) -> str | None:
        """An event as a line; None for one that needs no word."""
        name, facts = event.name, event.facts
        if name == "agent_started":
            before = self._asked.get(facts["agent"], facts["model"])
            self._asked[facts["agent"]] = facts["model"]
            name = "agent_fell_back" if before != facts["model"] else "" if self._on_board else name
        elif name == "agent_ended":
            self._asked.pop(facts["agent"], None)
        return harmless(_WORDS[name].format_map(_readable(facts))) if name in _WORDS else None


def _readable(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts as they can stand in a line."""
    told = {name: _first_line(value) if isinstance(value, str) else value for name, value in facts.items()}
    left = facts.get("tries_left")
    told["tries"] = f"; it is asked again, {left} more at most" if left else ""
    told["complaints"] = _complaints(facts.get("complaints") or ())
    return {**told, "used": used(facts)}


def _first_line(text: str) -> str:
    return one_line(text.strip().partition("\n")[0]).rstrip(":")


def _complaints(said: Any) -> str:
    """The first complaint about a reply, and how many more there are."""
    more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
    return f"{_first_line(str(said[0]))}{more}" if said else "its reply does not keep its contract"


def used(facts: Mapping[str, Any]) -> str:
    """What an agent's answer took, as far as that is told; empty where it took nothing."""
    tokens, cost = sum(count or 0 for count in facts.get("tokens") or ()), facts.get("cost")
    said = [counted(tokens, "token")] if tokens else []
    said += [money(cost)] if cost else []
    return "".join(f", {one}" for one in said)
