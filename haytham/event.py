"""Something that happened: a line in `events.jsonl`, and a call to whoever listens."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haytham import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham.store.protocol import Store

EVERY = "*"


@dataclass(frozen=True)
class Event:
    """What happened, when, and the facts of it."""

    name: str
    time: str
    facts: dict[str, Any] = field(default_factory=dict)

    def line(self) -> bytes:
        """The event as a line of JSON."""
        return json.dumps({"time": self.time, "event": self.name, **self.facts}, ensure_ascii=True).encode() + b"\n"


class Events:
    """Where events go: to the session's file, and to handlers in the order they came."""

    def __init__(self, store: Store | None = None, key: str = "") -> None:
        self._store, self._key = store, key
        self._handlers: list[tuple[str, Callable[[Event], None]]] = []

    def on(self, name: str, handler: Callable[[Event], None]) -> None:
        """Listen to events of a name, or to every one (`*`)."""
        self._handlers.append((name, handler))

    def emit(self, name: str, /, *, keep: bool = True, **facts: Any) -> None:
        """Tell that something happened; without `keep`, only those who listen now."""
        event = Event(name, clock.now(), facts)
        if keep and self._store is not None:
            self._store.append(self._key, event.line())
        for wanted, handler in self._handlers:
            if wanted in (name, EVERY):
                handler(event)

    def emit_once(self, name: str, /, **facts: Any) -> None:
        """Tell that something happened, unless the session's file says just that already."""
        if not any(event.get("event") == name and facts.items() <= event.items() for event in self._kept()):
            self.emit(name, **facts)

    def _kept(self) -> list[dict[str, Any]]:
        """The events of the session's file, those that can be read."""
        if self._store is None:
            return []
        try:
            lines = self._store.read(self._key).split(b"\n")
        except FileNotFoundError:
            return []
        return [event for line in lines if isinstance(event := _read(line), dict)]


def _read(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):  # a line that a crash cut off
        return None
