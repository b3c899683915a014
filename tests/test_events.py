"""Events: who hears of them, in which order, and that no handler stops the work."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from haytham import handlers as handlers_module
from haytham.engine.runner import Runner
from haytham.errors import InvalidArgument
from haytham.events import EVENT_TYPES, Events, EventType
from haytham.storage import MemoryStore
from support import fake_agents
from support.fake_agents import AT_ONCE, Desk, called
from support.history_workers import past, worked_session

ONE = """
name: small
phases:
  - {number: 1, name: One, slug: one, agents: [a]}
modes:
  all: [1]
"""


@pytest.fixture(autouse=True)
def anew():
    fake_agents.forget()


@pytest.fixture
def events(monkeypatch):
    """Events of the table, and some that only these tests emit."""
    for name in ("a", "b", "c", "call", "done", "echo"):
        monkeypatch.setitem(EVENT_TYPES, name, EventType(name, "in a test", {}))
    return Events()


def fail(event):
    raise KeyError(event.name)


async def fail_later(event):
    await asyncio.sleep(0)
    raise KeyError(event.name)


def slow_first(heard):
    """An async handler that takes the longer the earlier it is called, and what it heard."""

    async def hear(event):
        await asyncio.sleep(0.02 if not heard else 0)
        heard.append(event.name)

    return hear


def run(desk, events):
    """Run a session until its first gate, with these events."""
    return asyncio.run(Runner(desk.session, events, may_run_code=True, options=AT_ONCE).run()).status


# Whoever emits.


@pytest.mark.parametrize("handler", [fail, fail_later])
def test_a_handler_that_raises_is_logged_and_the_next_one_is_called(events, handler, caplog):
    """What a handler raises reaches the log with its name and traceback, not the caller nor other handlers."""
    heard = []
    events.on("*", handler)
    events.on("*", lambda event: heard.append(event.name))
    events.emit("done")
    assert heard == ["done", "handler_failed"]
    (record,) = caplog.records
    assert record.getMessage() == f"the handler {handler.__name__} of event done failed: KeyError: 'done'"
    assert (record.levelno, record.exc_info[0]) == (logging.ERROR, KeyError)


def test_an_async_handler_is_done_when_emit_returns_where_no_loop_runs(events):
    """A caller without a loop goes on once all handlers are done, in the order they were registered."""
    heard = []
    events.on("*", slow_first(heard))
    events.on("*", slow_first(heard))
    for name in "abc":
        events.emit(name)
        assert heard[-2:] == [name, name]


def test_what_an_async_handler_emits_is_heard_by_async_handlers(events):
    """An event that a handler emits is handled after its own, before the first emit returns."""
    heard = []

    async def echo(event):
        if event.name == "call":
            events.emit("echo")
        heard.append(event.name)

    events.on("*", echo)
    events.emit("call")
    assert heard == ["call", "echo"]


def test_a_handler_may_register_another_one(events):
    """A handler that is registered while an event is handled hears the next one."""
    heard = []
    events.on("*", lambda event: events.on("*", lambda event: heard.append(event.name)) if event.name == "a" else None)
    events.emit("a")
    events.emit("b")
    assert heard == ["b"]


def test_in_a_running_loop_drain_waits_for_async_handlers(events):
    """A caller within a loop is not held up; `drain` waits until each event was handled, in order."""
    heard = []
    events.on("*", slow_first(heard))

    async def work():
        for name in "abc":
            events.emit(name)
        before = list(heard)
        await events.drain()
        return before

    assert (asyncio.run(work()), heard) == ([], ["a", "b", "c"])


def test_an_async_handler_that_cancels_itself_has_failed(events, caplog):
    """A handler that ends in a cancellation of its own is logged, and those after it are awaited."""
    heard = []

    async def give_up(event):
        raise asyncio.CancelledError

    events.on("*", give_up)
    events.on("*", slow_first(heard))
    events.emit("a")
    assert heard == ["a", "handler_failed"]
    assert "give_up of event a failed: CancelledError" in caplog.text


# A session's history.


def test_a_snapshot_is_taken_whatever_a_handler_does(tmp_path, caplog):
    """`take` returns the snapshot although a handler raises, and async handlers are done by then."""
    history, heard = past(worked_session(tmp_path)), []
    history.events.on("snapshot_saved", fail)
    history.events.on("snapshot_saved", slow_first(heard))
    taken = history.take(label="x")
    assert history.latest() == taken
    assert heard == ["snapshot_saved"]
    assert "fail of event snapshot_saved failed" in caplog.text


# A run.


@pytest.mark.parametrize("handler", [fail, fail_later])
def test_a_run_goes_on_whatever_a_handler_does(tmp_path, handler, caplog):
    """A run with a handler that raises on every event ends as one without, and each failure is logged."""
    desk, events = Desk(tmp_path, ONE), Events()
    events.on("*", handler)
    assert run(desk, events) == "waiting"
    assert called() == ["a"]
    assert f"{handler.__name__} of event agent_completed failed: KeyError" in caplog.text


def test_async_handlers_of_a_run_are_awaited_in_order_in_its_loop(tmp_path):
    """Each event is handled once, in the order of the run, in the run's own loop, before the run returns."""
    desk, events, heard, loops = Desk(tmp_path, ONE), Events(), [], set()
    emitted = []
    handler = slow_first(heard)

    async def hear(event):
        loops.add(asyncio.get_running_loop())
        await handler(event)

    events.on("*", hear)
    events.on("*", lambda event: emitted.append(event.name))

    async def work():
        outcome = await Runner(desk.session, events, may_run_code=True, options=AT_ONCE).run()
        return outcome.status, list(heard), asyncio.get_running_loop()

    status, heard_by_then, loop = asyncio.run(work())
    assert status == "waiting"
    assert heard_by_then == emitted
    assert emitted[-1] == "run_ended"
    assert loops == {loop}


def snapshot_in_thread(task):
    """Take a snapshot from the thread of a plain function."""
    task.snapshot("from a thread")
    return "done"


def test_an_agents_thread_has_async_handlers_awaited_in_the_runs_loop(tmp_path):
    """What a plain function emits from its own thread is handled by async handlers in the loop of the run."""
    agent = b"---\nmodel: python:test_events:snapshot_in_thread\nhaytham: {retries: 0}\n---\nWrite.\n"
    desk, events, threads = Desk(tmp_path, ONE, {"agents/a.md": agent}), Events(), []

    async def hear(event):
        await asyncio.sleep(0)
        threads.append(threading.current_thread())

    events.on("snapshot_saved", hear)
    assert run(desk, events) == "waiting"
    assert len(threads) >= 2
    assert set(threads) == {threading.main_thread()}


def test_a_cancelled_run_does_not_wait_for_a_handler_for_ever(tmp_path, monkeypatch, caplog):
    """A run that is stopped gives async handlers some seconds, cancels them, and logs which were not finished."""
    monkeypatch.setattr(handlers_module, "_PATIENCE", 0.05)
    desk, events, heard = Desk(tmp_path, ONE), Events(), asyncio.Event()

    async def hang(event):
        heard.set()
        await asyncio.sleep(3600)

    events.on("agent_completed", hang)

    async def stop():
        running = asyncio.ensure_future(Runner(desk.session, events, may_run_code=True, options=AT_ONCE).run())
        await heard.wait()
        running.cancel()
        await running

    begun = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(stop())
    assert time.monotonic() - begun < 20
    assert "hang of event agent_completed was not finished" in caplog.text
    assert desk.resume() == ("waiting", 1)


# The table, and reading.


@pytest.mark.parametrize(
    ("name", "facts"),
    [("unheard_of", {}), ("person_asked", {"phase": 1}), ("person_asked", {"phase": "1", "agent": "a"})],
    ids=["unknown", "missing", "another type"],
)
def test_an_event_that_is_not_of_the_table_is_refused(name, facts):
    """Whoever emits an unknown event, or facts that its type does not have, learns of it at once."""
    with pytest.raises(InvalidArgument):
        Events().emit(name, **facts)


def test_events_are_read_from_a_position():
    """A reader goes on where it stopped; a line that is not complete is left for the next time."""
    store = MemoryStore()
    events = Events(store, "s/events.jsonl")
    store.ensure_folder("s/")
    events.emit("person_asked", phase=1, agent="a")
    first, position = events.read()
    events.emit("person_asked", phase=1, agent="b")
    second, end = events.read(position)
    assert [event.facts["agent"] for event in (*first, *second)] == ["a", "b"]
    assert events.read(end) == ([], end)


def test_a_handler_is_registered_by_a_decorator():
    """`on` without a handler decorates one."""
    events, heard = Events(), []

    @events.on("person_asked")
    def hear(event):
        heard.append(event.name)

    events.emit("person_asked", phase=1, agent="a")
    assert heard == ["person_asked"]
