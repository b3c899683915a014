"""Events: their types in one table, lines in `events.jsonl`, and handlers.

A handler never stops the work: what it raises is logged, and the next handler is called.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from haytham import clock
from haytham.errors import InvalidArgument
from haytham.logs import LogKind, log_size, parse_line, read_from, read_log

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Mapping

    from haytham.logs import Line
    from haytham.storage.base import SessionStore

    Handler = Callable[["Event"], object]

log = logging.getLogger(__name__)

EVERY = "*"
_PATIENCE = 5.0


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
    EventType(
        "session_forked",
        "a session was created from another one",
        {"session": _MAYBE_TEXT, "snapshot": _MAYBE_TEXT, "purpose": _MAYBE_TEXT, **_ORIGIN, "model": _MAYBE_TEXT},
    ),
    EventType(
        "settings_changed", "model, limits or recording of a session were changed", _SETTINGS, frozenset(_SETTINGS)
    ),
    EventType(
        "run_ended", "a run ended, with its status and the phase it ended at", {"status": _TEXT, "phase": _MAYBE_NUMBER}
    ),
    EventType(
        "phase_started", "agents of a phase are about to run", {"phase": _NUMBER, "name": _TEXT, "agents": _LIST}
    ),
    EventType("phase_completed", "all agents of a phase have answered", {"phase": _NUMBER}),
    EventType("phase_failed", "an agent of a phase has failed", {"phase": _NUMBER}),
    EventType("phase_waiting", "a person has to write an output of a phase", {"phase": _NUMBER}),
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
        "snapshot_saved",
        "a snapshot was saved; its record is the history's",
        {"session": _TEXT, "snapshot": _TEXT, "number": _NUMBER, "kind": _TEXT},
        is_persisted=False,
    ),
    EventType("snapshot_restored", "a session was restored", {"snapshot": _TEXT, "number": _NUMBER, "recovery": _TEXT}),
    EventType("snapshots_deleted", "snapshots were deleted by retention", {"snapshots": _LIST}),
    EventType("snapshot_failed", "a snapshot could not be saved", {"error": _TEXT}),
    EventType("step_failed", "a step could not be counted", {"error": _TEXT}),
    EventType("prune_failed", "snapshots could not be deleted", {"error": _TEXT}),
    EventType("merged", "phases of another session were merged", {"session": _TEXT, "phases": _LIST}),
)
EVENT_TYPES: dict[str, EventType] = {event.name: event for event in _TYPES}


@dataclass(frozen=True)
class Event:
    """What happened, when, and the facts of it, as its type says."""

    name: str
    time: str
    facts: dict[str, Any] = field(default_factory=dict)

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


class Events:
    """Where events go: to the session's file, and to handlers.

    Handlers are called at once, in the order they were registered. What an async handler returns is awaited in that
    same order, one after the other: in the loop of the run while one is under way, else in the running loop (`drain`
    waits for that), else before `emit` returns.
    """

    def __init__(self, store: SessionStore | None = None, key: str = "") -> None:
        self._store, self._key = store, key
        self._handlers: list[tuple[str, Callable[[Event], object]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queues: dict[asyncio.AbstractEventLoop, _Queue] = {}

    @overload
    def on(self, name: str, handler: Handler) -> Handler: ...

    @overload
    def on(self, name: str) -> Callable[[Handler], Handler]: ...

    def on(self, name: str, handler: Handler | None = None) -> Handler | Callable[[Handler], Handler]:
        """Call a handler, sync or async, for events of a name, or for every one (`*`); also a decorator."""
        if name != EVERY and name not in EVENT_TYPES:
            raise InvalidArgument("event", name, ", ".join([EVERY, *EVENT_TYPES]))
        if handler is None:
            return partial(self.on, name)
        self._handlers.append((name, handler))
        return handler

    def relocate(self, key: str) -> None:
        """Append to another file from now on: the session's folder was renamed."""
        self._key = key

    def emit(self, name: str, /, *, persist: bool = True, **facts: Any) -> None:
        """Store an event, unless its type or `persist` say otherwise or the folder is gone, and call the handlers."""
        event = Event.new(name, **facts)
        is_stored = persist and event.type.is_persisted
        if is_stored and self._store is not None and self._store.has_folder(self._key.rpartition("/")[0] + "/"):
            self._store.append(self._key, event.line())
        self.dispatch(event)

    def dispatch(self, event: Event) -> None:
        """Call the handlers of an event."""
        calls = [_Call(handler, event) for name, handler in self._handlers if name in (event.name, EVERY)]
        unfinished = [call for call in calls if call.start()]
        if unfinished:
            self._finish(unfinished)

    def _finish(self, calls: list[_Call]) -> None:
        """Have calls of async handlers awaited: in the loop that runs here, in that of the run, or right now."""
        import asyncio  # noqa: PLC0415 - only where a handler is async

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if self._loop is None:
                asyncio.run(self._finish_now(calls))
            else:
                self._loop.call_soon_threadsafe(self._enqueue, calls)
        else:
            self._enqueue(calls)

    async def _finish_now(self, calls: list[_Call]) -> None:
        self._enqueue(calls)
        await self.drain()

    def _enqueue(self, calls: list[_Call]) -> None:
        """Add calls to the queue of the running loop."""
        import asyncio  # noqa: PLC0415

        loop = asyncio.get_running_loop()
        queue = self._queues.get(loop)
        if queue is None:
            queue = self._queues[loop] = _Queue(lambda: self._queues.pop(loop, None))
        queue.add(calls)

    async def drain(self) -> None:
        """Wait until the async handlers called from the running loop are done; in one of them this does nothing."""
        import asyncio  # noqa: PLC0415

        loop = asyncio.get_running_loop()
        while (queue := self._queues.get(loop)) is not None and not queue.is_current:
            await queue.wait()

    @asynccontextmanager
    async def finished_in_loop(self) -> AsyncIterator[None]:
        """Await async handlers in the running loop, whichever thread emits; all are done at the end.

        Where the caller is cancelled they have some seconds left.
        """
        import asyncio  # noqa: PLC0415

        before, self._loop = self._loop, asyncio.get_running_loop()
        try:
            try:
                yield
            except Exception:
                await self.drain()
                raise
            await self.drain()
        except asyncio.CancelledError:
            await self._stop()
            raise
        finally:
            self._loop = before

    async def _stop(self) -> None:
        """Give async handlers some seconds, then cancel those that are not done."""
        import asyncio  # noqa: PLC0415

        queue = self._queues.get(asyncio.get_running_loop())
        if queue is not None:
            await queue.wait(_PATIENCE)
            await queue.cancel()

    def emit_revised_once(self, **facts: Any) -> None:
        """Emit `revised`, unless the session's file has one with just these facts."""
        if _fact_key({"event": "revised", **facts}) not in self._recorded():
            self.emit("revised", **facts)

    def _recorded(self) -> set[str]:
        """Return the events that are emitted once, as far as the session's file has them."""
        state = set() if self._store is None else read_log(self._store, self._key, _ONCE)
        if state is None:  # a line that a crash cut off, or a person's
            state = set()
            _fold_once(state, read_from(self._store, self._key, 0).split(b"\n") if self._store is not None else [])
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
        return [_read_event(line) for line in lines if isinstance(line.get("event"), str)], position + len(whole)


def _read_event(line: Line) -> Event:
    facts = {name: value for name, value in line.items() if name not in ("time", "event")}
    return Event(line["event"], str(line.get("time", "")), facts)


def _fact_key(line: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in line.items() if name != "time"}, sort_keys=True)


def _fold_once(state: set[str], lines: list[bytes]) -> bool:
    for line in lines:
        if b'"revised"' in line and (event := parse_line(line)) is not None and event.get("event") == "revised":
            state.add(_fact_key(event))
    return True


_ONCE: LogKind[set[str]] = LogKind("revised-1", set, _fold_once, sorted, set)


class _Call:
    """One call of a handler: started at once, and awaited later where the handler is async."""

    def __init__(self, handler: Callable[[Event], object], event: Event) -> None:
        self._handler, self._event = handler, event
        self._awaitable: Awaitable[object] | None = None

    def start(self) -> bool:
        """Call the handler; return whether something is left to await."""
        try:
            result = self._handler(self._event)
        except Exception as error:  # noqa: BLE001 - around event handlers: the work goes on
            self._report(error)
            return False
        if isinstance(result, Awaitable):
            self._awaitable = result
        return self._awaitable is not None

    async def finish(self) -> None:
        """Await what the handler returned; one that cancels itself has failed."""
        import asyncio  # noqa: PLC0415

        try:
            if self._awaitable is not None:
                await self._awaitable
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._report(error)
        except Exception as error:  # noqa: BLE001 - around event handlers: the work goes on
            self._report(error)

    def drop(self) -> None:
        """Close what was never awaited, and log that."""
        close = getattr(self._awaitable, "close", None)
        if close is not None:
            close()
        log.warning("the handler %s of event %s was not finished", self._name, self._event.name)

    def _report(self, error: BaseException) -> None:
        said = f"{type(error).__name__}: {error}"
        log.error("the handler %s of event %s failed: %s", self._name, self._event.name, said, exc_info=error)

    @property
    def _name(self) -> str:
        return getattr(self._handler, "__qualname__", None) or repr(self._handler)


class _Queue:
    """Awaits the calls of async handlers in one loop, one after the other."""

    def __init__(self, on_done: Callable[[], object]) -> None:
        self._calls: deque[_Call] = deque()
        self._on_done = on_done
        self._task: asyncio.Task[None] | None = None

    def add(self, calls: list[_Call]) -> None:
        """Add calls, in order."""
        import asyncio  # noqa: PLC0415

        self._calls.extend(calls)
        if self._task is None:
            self._task = asyncio.ensure_future(self._work())

    @property
    def is_current(self) -> bool:
        """Whether the caller is one of the handlers."""
        import asyncio  # noqa: PLC0415

        return self._task is asyncio.current_task()

    async def _work(self) -> None:
        try:
            while self._calls:
                await self._calls[0].finish()
                self._calls.popleft()
        finally:
            self._on_done()
            for call in self._calls:
                call.drop()

    async def wait(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - to stop waiting cancels nothing
        """Wait until all calls are done; to cancel this cancels none of them."""
        import asyncio  # noqa: PLC0415

        if self._task is not None:
            await asyncio.wait({self._task}, timeout=timeout)

    async def cancel(self) -> None:
        """Cancel the calls that are not done."""
        if self._task is not None and self._task.cancel():
            await self.wait(_PATIENCE)
