"""Handlers of events: in which order they are called, how long one may take, and what follows when one fails.

A handler never stops the work. One that raises, or takes longer than its timeout, is reported, and the next is called.
"""

from __future__ import annotations

import inspect
import threading
from collections import deque
from collections.abc import Awaitable
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from haytham.errors import InvalidArgument, Veto

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Iterator

    Report = Callable[["Call", BaseException], object]
    Load = Callable[["Handlers"], list[tuple[str, Exception]]]

EVERY = "*"
DEFAULT_TIMEOUT = 5.0  # seconds
_MOST_TIMEOUTS = 3  # in a row, before a handler is not called any more
_LONGEST = 24 * 3600.0
_PATIENCE = 5.0
_COUNTER = count()


class HandlerTimeout(TimeoutError):
    """A handler did not finish within its timeout; what a handler raises itself is another TimeoutError."""


class HandlerDropped(RuntimeError):
    """A handler was not finished when its run was stopped."""


class Named(Protocol):
    """Something that handlers are called with: an event."""

    @property
    def name(self) -> str:
        """The name of the event."""


E = TypeVar("E", bound=Named)


@dataclass(eq=False)
class Handler:
    """A function with the events it is for; `timeouts` counts those in a row, `hung` the calls that did not return."""

    events: frozenset[str]
    function: Callable[[Any], object]
    priority: float = 0
    timeout: float | None = DEFAULT_TIMEOUT
    name: str = ""
    number: int = field(default_factory=lambda: next(_COUNTER))
    timeouts: int = 0
    hung: int = 0

    def __post_init__(self) -> None:
        self.name = self.name or getattr(self.function, "__qualname__", None) or repr(self.function)

    @property
    def is_async(self) -> bool:
        """Return whether a call returns at once, with something to await."""
        return inspect.iscoroutinefunction(self.function)

    def is_for(self, name: str) -> bool:
        """Return whether the handler is called for an event: not while a call hangs, nor after timeouts in a row."""
        return bool(self.events & {name, EVERY}) and not self.hung and self.timeouts < _MOST_TIMEOUTS


class Handlers:
    """Handlers of a session or a workspace; `others`, of the workspace and of packages, are called with them.

    `load` is called once, before the first event, to add more; it returns those that it could not add, by name.
    """

    def __init__(self, *others: Handlers, load: Load | None = None) -> None:
        self._others, self._load = others, load
        self._own: list[Handler] = []
        self.faults: list[tuple[str, Exception]] = []

    def add(self, handler: Handler) -> None:
        """Add a handler; InvalidArgument for a priority or timeout that cannot be used."""
        if isinstance(handler.priority, bool) or not isinstance(handler.priority, int | float):
            raise InvalidArgument("priority", handler.priority, "a number")
        limit = handler.timeout
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float)):
            raise InvalidArgument("timeout", limit, "a number of seconds, or None")
        if limit is not None and not 0 < limit <= _LONGEST:
            raise InvalidArgument("timeout", limit, f"more than 0 and at most {_LONGEST:g} seconds, or None")
        self._own.append(handler)

    def clear(self, *, load: Load) -> None:
        """Delete the handlers; load others before the next event."""
        self._own, self._load = [], load

    def matching(self, name: str) -> list[Handler]:
        """Return the handlers of an event: the higher priority first, else in the order they were added."""
        handlers = [handler for group in self.all() for handler in group.loaded() if handler.is_for(name)]
        return sorted(handlers, key=lambda handler: (-handler.priority, handler.number))

    def loaded(self) -> list[Handler]:
        """Return its own handlers, loaded now if they were not."""
        if self._load is not None:
            load, self._load = self._load, None
            self.faults += load(self)
        return self._own

    def take_faults(self) -> list[tuple[str, Exception]]:
        """Return the handlers that could not be loaded, each once, with the error."""
        faults: list[tuple[str, Exception]] = []
        for handlers in self.all():
            faults += handlers.faults
            handlers.faults.clear()
        return faults

    def all(self) -> list[Handlers]:
        """Return these, and all that are called with them."""
        return [self, *(inner for other in self._others for inner in other.all())]


class Dispatcher(Generic[E]):
    """Calls handlers at once, in order, each for at most its timeout.

    A sync handler runs in a thread of its own, which is left behind if it hangs; without a timeout it is called
    directly. What an async handler returns is awaited in the same order, one after the other: in the loop of the run
    while one is under way, else in the running loop (`drain` waits for that), else before `dispatch` returns.
    """

    def __init__(self, handlers: Handlers, report: Report) -> None:
        self.handlers = handlers
        self._report = report
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queues: dict[asyncio.AbstractEventLoop, _Queue] = {}
        self._held: list[tuple[E, Handler | None]] | None = None

    def dispatch(self, event: E, *, without: Handler | None = None) -> None:
        """Call the handlers of an event, now or at the end of `held`; all, or all but one."""
        if self._held is not None:
            self._held.append((event, without))
            return
        self._call(event, [handler for handler in self.handlers.matching(event.name) if handler is not without])

    def ask(self, event: E) -> tuple[str, Veto] | None:
        """Call the handlers of just this event to their end; return the first that vetoes it, by name, and the veto.

        Handlers of every event are called as ever, and veto nothing.
        """
        handlers = self.handlers.matching(event.name)
        for handler in (handler for handler in handlers if event.name in handler.events):
            call = Call(handler, event, self._report)
            call.complete()
            if call.veto is not None:
                return handler.name, call.veto
            call.report_failure()
        self._call(event, [handler for handler in handlers if event.name not in handler.events])
        return None

    def _call(self, event: E, handlers: list[Handler]) -> None:
        calls = [Call(handler, event, self._report) for handler in handlers]
        unfinished = [call for call in calls if call.start()]
        for call in calls:
            call.report_failure()
        if unfinished:
            self._finish(unfinished)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Call handlers once this ends: the caller holds a lock that they might wait for."""
        if self._held is not None:
            yield
            return
        self._held = []
        try:
            yield
        finally:
            events, self._held = self._held, None
            for event, without in events:
                self.dispatch(event, without=without)

    def _finish(self, calls: list[Call]) -> None:
        """Have calls of async handlers awaited: in the loop that runs here, in that of the run, or right now."""
        import asyncio  # noqa: PLC0415 - only where a handler is async

        if is_loop_running():
            self._enqueue(calls)
        elif self._loop is None:
            asyncio.run(self._finish_now(calls))
        else:
            self._loop.call_soon_threadsafe(self._enqueue, calls)

    async def _finish_now(self, calls: list[Call]) -> None:
        self._enqueue(calls)
        await self.drain()

    def _enqueue(self, calls: list[Call]) -> None:
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


class Call:
    """One call of a handler: started at once, and awaited later where the handler is async."""

    def __init__(self, handler: Handler, event: Named, report: Report) -> None:
        self.handler, self.event = handler, event
        self._report = report
        self._awaitable: Awaitable[object] | None = None
        self._failure: BaseException | None = None
        self.task: asyncio.Future[object] | None = None

    def start(self) -> bool:
        """Call the handler; return whether something is left to await."""
        result = self._run(lambda: self.handler.function(self.event), is_start=True)
        if isinstance(result, Awaitable):
            self._awaitable = result
        return self._awaitable is not None

    def complete(self) -> None:
        """Call the handler to its end, in a loop of its own if it is async."""
        self._run(lambda: _run_to_end(self.handler.function(self.event)))

    @property
    def veto(self) -> Veto | None:
        """Return the veto that the handler raised, if it did."""
        return self._failure if isinstance(self._failure, Veto) else None

    def report_failure(self) -> None:
        """Report what the handler raised, if it did."""
        failure, self._failure = self._failure, None
        if failure is not None:
            self._report(self, failure)

    def _run(self, function: Callable[[], object], *, is_start: bool = False) -> object:
        """Return what a function returns, called for at most the timeout; None if it fails.

        To start an async handler takes no time.
        """
        try:
            if self.handler.timeout is None or (is_start and self.handler.is_async):
                return function()
            result = _run_in_thread(self.handler, function, self.handler.timeout)
        except HandlerTimeout as error:
            self._note_timeout(error)
        except Exception as error:  # noqa: BLE001 - around event handlers: the work goes on
            self._failure = error
        else:
            if not isinstance(result, Awaitable):
                self.handler.timeouts = 0
            return result
        return None

    def _note_timeout(self, error: HandlerTimeout) -> None:
        self.handler.timeouts += 1
        is_last = self.handler.timeouts == _MOST_TIMEOUTS
        more = f", {_MOST_TIMEOUTS} times in a row; it is not called again" if is_last else ""
        self._failure = HandlerTimeout(f"{error}{more}")

    async def finish(self) -> None:
        """Await what the handler returned, for at most its timeout; one that cancels itself has failed."""
        import asyncio  # noqa: PLC0415

        if self._awaitable is None:
            return
        self.task = task = asyncio.ensure_future(_as_coroutine(self._awaitable))
        try:
            await asyncio.wait({task}, timeout=self.handler.timeout)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.done():
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
            task.cancel()
            self._note_timeout(_too_long(self.handler.timeout))
        elif task.cancelled():
            self._failure = asyncio.CancelledError()
        else:
            self._failure, self.handler.timeouts = task.exception(), 0
        self.report_failure()

    def drop(self) -> None:
        """Close what was never awaited, and report that."""
        close = getattr(self._awaitable, "close", None)
        if close is not None and self.task is None:
            close()
        self._report(self, HandlerDropped("it was not finished when the run was stopped"))


class _Queue:
    """Awaits the calls of async handlers in one loop, one after the other."""

    def __init__(self, on_done: Callable[[], object]) -> None:
        self._calls: deque[Call] = deque()
        self._on_done = on_done
        self._task: asyncio.Task[None] | None = None

    def add(self, calls: list[Call]) -> None:
        """Add calls, in order."""
        import asyncio  # noqa: PLC0415

        self._calls.extend(calls)
        if self._task is None:
            self._task = asyncio.ensure_future(self._work())

    @property
    def is_current(self) -> bool:
        """Whether the caller is one of the handlers."""
        import asyncio  # noqa: PLC0415

        own = {self._task, self._calls[0].task if self._calls else None}
        return asyncio.current_task() in own

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


def _run_in_thread(handler: Handler, function: Callable[[], object], timeout: float) -> object:
    """Return what a function returns; raise if it takes too long, and leave its thread behind."""
    outcome: list[tuple[object, BaseException | None]] = []
    ended, context, lock = threading.Event(), copy_context(), threading.Lock()
    is_late = False

    def work() -> None:
        try:
            result: tuple[object, BaseException | None] = (context.run(function), None)
        except BaseException as error:  # noqa: BLE001 - raised again where the call is waited for
            result = (None, error)
        with lock:
            outcome.append(result)
            handler.hung -= is_late
        ended.set()

    threading.Thread(target=work, name=f"handler-{handler.name}", daemon=True).start()
    ended.wait(timeout)
    with lock:
        if not outcome:
            is_late = True
            handler.hung += 1
            raise _too_long(timeout)
    result, error = outcome[0]
    if error is not None:
        raise error if isinstance(error, Exception) else RuntimeError(f"it ended itself with {type(error).__name__}")
    return result


def _too_long(seconds: float | None) -> HandlerTimeout:
    return HandlerTimeout(f"it did not finish within {seconds:g} s")


def _run_to_end(result: object) -> object:
    """Return a result, awaited in a loop of its own if it is awaitable."""
    import asyncio  # noqa: PLC0415

    return asyncio.run(_as_coroutine(result)) if isinstance(result, Awaitable) else result


async def _as_coroutine(awaitable: Awaitable[object]) -> object:
    return await awaitable


def is_loop_running() -> bool:
    """Return whether an event loop runs in this thread."""
    import asyncio  # noqa: PLC0415

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
