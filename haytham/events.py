"""Events: their types in one table, and lines in `events.jsonl`. How handlers are called is in `handlers`."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, overload

from haytham import clock
from haytham.errors import HaythamError, InvalidArgument, Veto, describe_error
from haytham.handlers import DEFAULT_TIMEOUT, EVERY, Dispatcher, Handler, HandlerDropped, Handlers, HandlerTimeout
from haytham.logs import log_size, parse_line, read_from, read_log
from haytham.redact import redact
from haytham.storage.base import Append, Batch, commit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from haytham.handlers import Call
    from haytham.logs import Line, LogKind
    from haytham.storage.base import SessionStore

log = logging.getLogger(__name__)

S = TypeVar("S")
F = TypeVar("F", bound="Callable[[Event], object]")

ALIASES = {"checkpoint_saved": "snapshot_saved", "checkpoint_restored": "snapshot_restored"}
_FAILURE = "handler_failed"


@dataclass(frozen=True)
class EventType:
    """The definition of an event: when it is emitted, its facts and their types, and whether it is stored."""

    name: str
    when: str
    facts: Mapping[str, tuple[type, ...]]
    optional: frozenset[str] = frozenset()
    is_persisted: bool = True

    def check(self, facts: Mapping[str, Any]) -> None:
        """Raise InvalidArgument if facts are missing, unknown or of another type."""
        missing = [name for name in self.facts if name not in facts and name not in self.optional]
        if missing or not facts.keys() <= self.facts.keys():
            names = ", ".join(self.facts)
            raise InvalidArgument(f"facts of event {self.name}", sorted(facts), names or "none")
        for name, value in facts.items():
            if not isinstance(value, self.facts[name]):
                allowed = " or ".join(kind.__name__ for kind in self.facts[name])
                raise InvalidArgument(f"{name} of event {self.name}", value, allowed)


_TEXT, _NUMBER, _LIST = (str,), (int,), (list,)
_MAYBE_TEXT, _MAYBE_NUMBER = (str, type(None)), (int, type(None))
_AMOUNT = (int, float, type(None))
_SNAPSHOT = {"snapshot": _TEXT, "number": _NUMBER, "kind": _TEXT}
_AGENT = {"phase": _NUMBER, "agent": _TEXT}
_SETTINGS: dict[str, tuple[type, ...]] = {
    "model": _MAYBE_TEXT,
    "max_cost": (str, int, float, type(None)),
    "max_tokens": _MAYBE_NUMBER,
    "record": _MAYBE_TEXT,
    "recording": _MAYBE_TEXT,
}
_ORIGIN: dict[str, tuple[type, ...]] = {
    "user": _MAYBE_TEXT,
    "mode": _MAYBE_TEXT,
    "workflow": _MAYBE_TEXT,
    "origin": _MAYBE_TEXT,
}
_PROGRESS: dict[str, tuple[type, ...]] = {"task": _MAYBE_TEXT, "progress": (int, float, type(None))}
_TYPES = (
    EventType(
        "session_started",
        "a session was created",
        {**_ORIGIN, **_SETTINGS, "identity": _MAYBE_TEXT},
        frozenset({*_SETTINGS, "identity"}),
    ),
    EventType("session_resumed", "a run goes on with work that an earlier one began", {"phase": _NUMBER}),
    EventType(
        "session_completed",
        "nothing is left to do, or the session was closed with a version of the requirements",
        {"version": _MAYBE_NUMBER},
    ),
    EventType(
        "settings_changed", "model, limits or recording of a session were changed", _SETTINGS, frozenset(_SETTINGS)
    ),
    EventType("session_renamed", "a session got a display name, or lost it", {"name": _MAYBE_TEXT}),
    EventType("session_archived", "a session was archived, or brought back", {"archived": (bool,)}),
    EventType(
        "run_ended", "a run ended, with its status and the phase it ended at", {"status": _TEXT, "phase": _MAYBE_NUMBER}
    ),
    EventType(
        "phase_started", "agents of a phase are about to run", {"phase": _NUMBER, "name": _TEXT, "agents": _LIST}
    ),
    EventType("phase_completed", "all agents of a phase have answered", {"phase": _NUMBER}),
    EventType("phase_failed", "an agent of a phase has failed", {"phase": _NUMBER}),
    EventType("phase_waiting", "a person has to write an output of a phase", {"phase": _NUMBER}),
    EventType(
        "phase_stale",
        "outputs of a phase have become stale, and why",
        {"phase": _NUMBER, "agents": _LIST, "why": _TEXT},
    ),
    EventType("attempt_started", "the next attempt at a phase starts", {"phase": _NUMBER, "attempt": _NUMBER}),
    EventType("agent_started", "an agent is called", {**_AGENT, "model": _TEXT}),
    EventType("agent_text", "an agent writes a piece of its answer", {**_AGENT, "text": _TEXT}, is_persisted=False),
    EventType(
        "agent_completed",
        "an agent's answer was stored",
        {**_AGENT, "tokens": _LIST, "cost": _AMOUNT, "similarity": (int, float), **_PROGRESS},
        frozenset({"similarity", *_PROGRESS}),
    ),
    EventType("agent_failed", "a call of an agent failed", {**_AGENT, "error": _TEXT, "tries_left": _NUMBER}),
    EventType("person_asked", "an output was left to a person", _AGENT),
    EventType("repair_asked", "a reply was sent back, as it breaks its contract", {**_AGENT, "complaints": _LIST}),
    EventType("reply_redacted", "secrets were removed from a reply", {**_AGENT, "places": _NUMBER}),
    EventType("reply_not_stored", "a reply was stored elsewhere, and why", {**_AGENT, "why": _TEXT}),
    EventType("budget_warning", "a share of a limit is spent", {"why": _TEXT}),
    EventType("budget_exceeded", "a call was not made, as it would exceed a limit", {**_AGENT, "why": _TEXT}),
    EventType(
        "cycle_completed",
        "a step of a caller's loop was counted",
        {"process": _TEXT, "similarity": (int, float), **_PROGRESS},
        frozenset({"similarity"}),
    ),
    EventType("cycle_failed", "a step of a caller's loop failed", {"process": _TEXT, "error": _TEXT, **_PROGRESS}),
    EventType(
        "drift_detected",
        "a session drifts: which signals came on, what follows, and the recovery snapshot",
        {"signals": _LIST, "action": _TEXT, "why": _TEXT, "recovery": _MAYBE_TEXT},
    ),
    EventType(
        "drift_cleared",
        "signals of drift went off by themselves, or a refresh or a resumed run began all counts anew",
        {"signals": _LIST, "by": _TEXT},
    ),
    EventType(
        "recovered",
        "a session was restored to a recovery point, which brought back these parts of its state",
        {"snapshot": _TEXT, "number": _NUMBER, "recovery": _TEXT, "parts": _LIST},
    ),
    EventType("review_opened", "the gate of a phase was opened, and why", {"phase": _NUMBER, "why": _TEXT}),
    EventType(
        "decision",
        "a person decided on a phase",
        {"phase": _NUMBER, "decision": _TEXT, "by": _MAYBE_TEXT, "agents": _LIST, "added": _NUMBER, "removed": _NUMBER},
        frozenset({"agents", "added", "removed"}),
    ),
    EventType(
        "decision_withdrawn",
        "a person withdrew a decision",
        {"phase": _NUMBER, "decision": _TEXT, "by": _TEXT},
    ),
    EventType("memory_added", "a decision became a note of the user", {"phase": _NUMBER, "user": _TEXT, "note": _TEXT}),
    EventType("decision_refused", "a decision in a file does not count, and why", {"phase": _NUMBER, "why": _TEXT}),
    EventType("revised", "a person revised a text, by its digest", {**_AGENT, "text": _TEXT}),
    EventType(
        "snapshot_taking",
        "a snapshot is about to be taken; a handler may veto it",
        {"kind": _TEXT, "label": _MAYBE_TEXT},
    ),
    EventType(
        "snapshot_saved",
        "a snapshot was saved, with the bytes of its documents, and those added after compression",
        {**_SNAPSHOT, "raw": _NUMBER, "added": _NUMBER},
    ),
    EventType(
        "snapshot_skipped", "a handler vetoed a snapshot, and why", {"kind": _TEXT, "handler": _TEXT, "why": _TEXT}
    ),
    EventType("snapshot_restored", "a session was restored", {**_SNAPSHOT, "recovery": _TEXT}),
    EventType(
        "snapshot_forked",
        "a session was created from another one, whose handlers are called, too",
        {
            "session": _MAYBE_TEXT,
            "snapshot": _MAYBE_TEXT,
            "fork": _TEXT,
            "purpose": _MAYBE_TEXT,
            **_ORIGIN,
            "model": _MAYBE_TEXT,
        },
    ),
    EventType(
        "snapshot_deleted",
        "a snapshot was deleted: by `retention`, a `limit`, a `request`, or the end of its `operation`",
        {"snapshot": _TEXT, "number": _MAYBE_NUMBER, "kind": _MAYBE_TEXT, "why": _TEXT},
    ),
    EventType("snapshot_failed", "a snapshot could not be saved", {"error": _TEXT}),
    EventType("step_failed", "a step could not be counted", {"error": _TEXT}),
    EventType("prune_failed", "snapshots could not be deleted", {"error": _TEXT}),
    EventType(
        "handler_failed",
        "a handler or hook of an event raised, or took too long",
        {"handler": _TEXT, "on": _TEXT, "error": _TEXT},
    ),
    EventType("merged", "phases of another session were merged", {"session": _TEXT, "phases": _LIST}),
)
EVENT_TYPES: dict[str, EventType] = {event.name: event for event in _TYPES}


@dataclass(frozen=True)
class Event:
    """What happened, when, the facts of it, as its type says, and the ids of the project and session."""

    name: str
    time: str
    facts: dict[str, Any] = field(default_factory=dict)
    project: str = ""
    session: str = ""

    @property
    def type(self) -> EventType:
        """Return the definition of the event."""
        return EVENT_TYPES[self.name]

    @classmethod
    def new(cls, name: str, /, **facts: Any) -> Event:
        """Return an event that happens now; InvalidArgument if it is not one of the table."""
        if name not in EVENT_TYPES:
            raise InvalidArgument("event", name, ", ".join(EVENT_TYPES))
        EVENT_TYPES[name].check(facts)
        return cls(name, clock.now(), facts)

    def line(self) -> bytes:
        """Return the event as a line of JSON."""
        return json.dumps({"time": self.time, "event": self.name, **self.facts}, ensure_ascii=True).encode() + b"\n"


class EventSource:
    """Something with handlers that others may add to: a workspace, a session, its history, its events."""

    handlers: Handlers

    @overload
    def on(self, name: str, handler: F, *, priority: float = 0, timeout: float | None = DEFAULT_TIMEOUT) -> F: ...

    @overload
    def on(self, name: str, *, priority: float = 0, timeout: float | None = DEFAULT_TIMEOUT) -> Callable[[F], F]: ...

    def on(
        self, name: str, handler: F | None = None, *, priority: float = 0, timeout: float | None = DEFAULT_TIMEOUT
    ) -> F | Callable[[F], F]:
        """Call a handler, sync or async, for events of a name, or for every one (`*`); also a decorator.

        The higher priority is called first. `timeout` is in seconds; without one, a sync handler is called directly.
        """
        events = frozenset({event_name(name)})

        def add(function: F) -> F:
            self.handlers.add(Handler(events, function, priority, timeout))
            return function

        return add if handler is None else add(handler)


class Events(Dispatcher["Event"], EventSource):
    """Where the events of a session go: to its file, and to handlers.

    `project` and `session` are the ids that handlers find in each event. That a handler failed is an event itself, for
    all the others: for an event that is not stored only once, and never for `handler_failed`.
    """

    def __init__(
        self,
        store: SessionStore | None = None,
        key: str = "",
        *,
        project: str = "",
        session: str = "",
        handlers: Handlers | None = None,
    ) -> None:
        super().__init__(Handlers() if handlers is None else handlers, self._record_failure)
        self._store, self._key = store, key
        self._project, self._session = project, session
        self._failed: set[tuple[str, str]] = set()

    def relocate(self, key: str) -> None:
        """Append to another file from now on: the session's folder was renamed."""
        self._key = key

    def emit(self, name: str, /, *, persist: bool = True, **facts: Any) -> None:
        """Store an event, unless its type or `persist` say otherwise or the folder is gone, and call the handlers."""
        event = Event.new(name, **facts)
        if persist:
            self._store_lines([event])
        self.dispatch(event)

    def emit_all(self, events: Sequence[Event], *, after: Sequence[Event] = ()) -> None:
        """Store events together, after those whose handlers were called already, and call their handlers."""
        self._store_lines([*after, *events])
        for event in events:
            self.dispatch(event)

    def ask(self, event: Event) -> tuple[str, Veto] | None:
        """Call the handlers of an event to their end; return the first that vetoes it, by name, and the veto."""
        return super().ask(self._named(event))

    def lines(self, events: Sequence[Event]) -> tuple[Append, ...]:
        """Return what storing events appends: nothing if none is stored, or the session's folder is gone."""
        lines = b"".join(event.line() for event in events if event.type.is_persisted)
        has_place = self._store is not None and self._store.has_folder(self._key.rpartition("/")[0] + "/")
        return (Append(self._key, lines),) if lines and has_place else ()

    def _store_lines(self, events: Sequence[Event]) -> None:
        appends = self.lines(events)
        if appends and self._store is not None:
            commit(self._store, Batch(appends=appends))

    def dispatch(self, event: Event, *, without: Handler | None = None) -> None:
        """Call the handlers of an event."""
        super().dispatch(self._named(event), without=without)
        for name, error in self.handlers.take_faults():
            log.error("the handler %s could not be loaded: %s", name, error)
            self.emit("handler_failed", handler=name, on=EVERY, error=redact(describe_error(error)))

    def _named(self, event: Event) -> Event:
        return replace(event, project=self._project, session=self._session)

    def _record_failure(self, call: Call, error: BaseException) -> None:
        """Log that a handler failed, and record it."""
        name, handler = call.event.name, call.handler.name
        facts: dict[str, Any] = {"handler": handler, "on": name, "error": redact(_description(error))}
        if isinstance(error, HandlerDropped):
            log.warning("the handler %s of event %s was not finished", handler, name)
            self._store_lines([Event.new(_FAILURE, **facts)])
            return
        log.error("the handler %s of event %s failed: %s", handler, name, _sentence(error), exc_info=error)
        is_again = (handler, name) in self._failed
        self._failed.add((handler, name))
        if name != _FAILURE and (EVENT_TYPES[name].is_persisted or not is_again):
            failure = Event.new(_FAILURE, **facts)
            self._store_lines([failure])
            self.dispatch(failure, without=call.handler)

    def fold(self, kind: LogKind[S]) -> S:
        """Return what the lines of the session's file come to; a line that cannot be read is skipped."""
        state = kind.empty() if self._store is None else read_log(self._store, self._key, kind)
        if state is None:  # a line that a crash cut off, or a person's
            state = kind.empty()
            kind.fold(state, read_from(self._store, self._key, 0).split(b"\n") if self._store is not None else [])
        return state

    def size(self) -> int:
        """Return how many bytes the session's file has."""
        return 0 if self._store is None else log_size(self._store, self._key)

    def read(self, position: int = 0) -> tuple[list[Event], int]:
        """Return the events of the session's file from a position on, and the position after them.

        Lines that cannot be read are skipped; one that is not complete yet is left for the next call.
        """
        data = b"" if self._store is None else read_from(self._store, self._key, position)
        whole = data[: data.rfind(b"\n") + 1]
        lines = [line for line in map(parse_line, whole.split(b"\n")) if line is not None]
        events = [_read_event(line) for line in lines if isinstance(line.get("event"), str)]
        return [self._named(event) for event in events], position + len(whole)


def _read_event(line: Line) -> Event:
    facts = {name: value for name, value in line.items() if name not in ("time", "event")}
    return Event(line["event"], str(line.get("time", "")), facts)


def _description(error: BaseException) -> str:
    """Return what is recorded of an error of a handler."""
    if isinstance(error, Veto):
        return f"it vetoed what cannot be vetoed: {error.reason}"
    return str(error) if isinstance(error, HandlerTimeout) else describe_error(error)


def _sentence(error: BaseException) -> str:
    return str(error) if isinstance(error, HandlerTimeout | HaythamError) else f"{type(error).__name__}: {error}"


def event_name(name: str) -> str:
    """Return the name of an event that may be given by an alias, or `*`; InvalidArgument for any other."""
    name = ALIASES.get(name, name)
    if name != EVERY and name not in EVENT_TYPES:
        raise InvalidArgument("event", name, ", ".join([EVERY, *EVENT_TYPES]))
    return name
