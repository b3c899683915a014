"""Something that happened: a line in `events.jsonl`, and a call to whoever listens.

A handler never stops the work: what it raises is logged, and the next handler is called.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haytham import clock

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable

    from haytham.storage.base import SessionStore

log = logging.getLogger(__name__)

EVERY = "*"
_PATIENCE = 5.0


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

    def on(self, name: str, handler: Callable[[Event], object]) -> None:
        """Listen to events of a name, or to every one (`*`); the handler is a function or an async one."""
        self._handlers.append((name, handler))

    def relocate(self, key: str) -> None:
        """Append to another file from now on: the session's folder was renamed."""
        self._key = key

    def emit(self, name: str, /, *, keep: bool = True, **facts: Any) -> None:
        """Tell that something happened; without `keep`, or once the session's folder is gone, only those who listen."""
        event = Event(name, clock.now(), facts)
        if keep and self._store is not None and self._store.has_folder(self._key.rpartition("/")[0] + "/"):
            self._store.append(self._key, event.line())
        calls = [_Call(handler, event) for wanted, handler in self._handlers if wanted in (name, EVERY)]
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


def _read(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):  # a line that a crash cut off
        return None
