"""The events of a session: the last ones, or each new one as it is stored."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from haytham.errors import InvalidArgument
from haytham.events import ALIASES, EVENT_TYPES
from haytham.history.lookup import parse_since
from haytham.history.schedule import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from haytham.events import Event, Events

_FIRST_WINDOW = 64 * 1024  # bytes at the end of the file that are read first
_GROWTH = 4  # how many times as much is read while events are missing
_POLL = 0.5  # seconds between two looks for new events


@dataclass(frozen=True)
class EventFilter:
    """Which events are wanted: those of some names, and those since a time; by default all of them."""

    names: frozenset[str] = frozenset()
    since: datetime | None = None

    @classmethod
    def parse(cls, names: Iterable[str] = (), since: str | None = None) -> EventFilter:
        """Return a filter as a person writes it; InvalidArgument for a name that is never stored, or no time."""
        stored = [kind.name for kind in EVENT_TYPES.values() if kind.is_persisted]
        kinds = frozenset(ALIASES.get(name, name) for name in names)
        for name in sorted(kinds - set(stored)):
            raise InvalidArgument("kind of event", name, ", ".join(stored))
        return cls(kinds, None if since is None else parse_since(since))

    def matches(self, event: Event) -> bool:
        """Return whether an event is wanted; one without a readable time is not since any time."""
        if self.names and event.name not in self.names:
            return False
        if self.since is None:
            return True
        try:
            return parse_time(event.time) >= self.since
        except ValueError:
            return False


class EventLog:
    """The stored events of a session that a filter wants."""

    def __init__(self, events: Events, filter_: EventFilter) -> None:
        self._events, self._wanted = events, filter_
        self._position = 0

    def read(self, limit: int | None = None) -> list[Event]:
        """Return all wanted events, or the last of them, oldest first; `follow` goes on after them.

        For a limit the file is read from its end, as far back as needed.
        """
        size, window = self._events.size(), _FIRST_WINDOW
        while True:
            start = 0 if limit is None else max(size - window, 0)  # a line that begins before it is skipped
            events = self._read_from(start)
            if limit is None:
                return events
            has_line_end = self._position > start  # else `follow` would go on inside a line
            if start == 0 or (has_line_end and len(events) >= limit):
                return events[max(len(events) - limit, 0) :]
            window *= _GROWTH

    def follow(self) -> Iterator[list[Event]]:
        """Yield wanted events as they are stored, those of each look together; without end."""
        while True:
            events = self._read_from(self._position)
            if events:
                yield events
            time.sleep(_POLL)

    def _read_from(self, start: int) -> list[Event]:
        events, self._position = self._events.read(start)
        return [event for event in events if self._wanted.matches(event)]
