"""Agents that fail, hang, end themselves or answer nonsense, for the tests of the runner."""

from __future__ import annotations

import asyncio
import threading
import time

from haytham.agents.base import Reply

SEEN = []
FOLDER = []  # where the outputs of the phase that runs lie


async def hang(task):
    SEEN.append(task.agent)
    await asyncio.sleep(3600)


def block(task):
    SEEN.append(task.agent)
    threading.Event().wait(3600)


def twice_in_vain(task):
    SEEN.append(task.agent)
    if len(SEEN) < 3:
        raise OSError("the line is busy")
    return Reply("At last.", model="m", input_tokens=3, output_tokens=4, cost=0.25, tools_used=("search",))


async def cancelled(task):
    raise asyncio.CancelledError


async def group_cancelled(task):
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


def leave(task):
    raise SystemExit(3)


def no_text(task):
    return 7


def broken_text(task):
    return "half a pair: \ud800"


def impossible_tokens(task):
    return Reply("text", input_tokens=-1)


def broken_error(task):
    raise RuntimeError("half a pair: \ud800\n## Output\n")


BARRIER = threading.Barrier(2, timeout=20)


def meet(task):
    """Answer only once the other one is there, too."""
    BARRIER.wait()
    return f"{task.agent} met"


def one_then_other(task):
    """`b` answers at once; `c` only once b's file is there."""
    if task.agent == "c":
        SEEN.append(wait_for((FOLDER[0] / "b.md").exists))
    return task.agent


def move_folder(task):
    """`a` and `b` move a folder to another place; the others answer once it is there."""
    old, new = FOLDER
    if task.agent in "ab":
        old.rename(new)
    wait_for(new.exists)
    SEEN.append(task.agent)
    return Reply(f"{task.agent} answers.", model="m", input_tokens=3, output_tokens=4, cost=0.25)


def wait_for(is_so, seconds=20):
    """Whether something comes true within some time."""
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.005)
    return is_so()
