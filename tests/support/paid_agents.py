"""Agents that cost something, keep or break contracts, and can be told to die: for the tests of calls and budgets."""

from __future__ import annotations

import os
import signal
import time

from haytham.agents.base import Reply
from haytham.agents.registry import adapter
from haytham.errors import AgentError

SEEN = []
ANSWERS = []


def forget():
    """Begin anew."""
    SEEN.clear()
    ANSWERS.clear()


def install(site):
    """Make a package in a folder that registers two adapters: `fare:…`, which declares nothing, and `gift:…`, free."""
    folder = site / "fares-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Name: fares\nVersion: 1.0\n", encoding="utf-8")
    points = "[haytham.agents]\nfare = support.paid_agents:open_fare\ngift = support.paid_agents:open_gift\n"
    (folder / "entry_points.txt").write_text(points, encoding="utf-8")
    return site


def open_fare(rest):
    """Open the agent that calls a function of this module."""

    async def agent(task, spec):
        return globals()[rest](task)

    return agent


open_gift = adapter(is_free=True)(open_fare)


def cheap(task):
    """Three tokens in, four out, a quarter of a dollar."""
    SEEN.append(task.agent)
    return Reply(f"From {task.agent}.", model="m", input_tokens=3, output_tokens=4, cost=0.25)


def silent(task):
    """Tells nothing of what it took."""
    SEEN.append(task.agent)
    return "x" * 30


def scripted(task):
    """Answers with what lies ready, in order, the last one for ever."""
    SEEN.append(task.prompt)
    answer = ANSWERS.pop(0) if len(ANSWERS) > 1 else ANSWERS[0]
    if isinstance(answer, Exception):
        raise answer
    if isinstance(answer, float):
        time.sleep(answer)
        return "Too late."
    return Reply(answer, model="m", input_tokens=10, output_tokens=5, cost=0.01)


def given(task):
    """Answers with the very reply that lies ready."""
    return ANSWERS.pop(0)


def broken(task):
    """Fails after it took something."""
    SEEN.append(task.agent)
    raise AgentError("the line broke", text="half an ans", input_tokens=2, output_tokens=1, cost=0.125)


def telling(task):
    """Has a key, and tells it."""
    raise RuntimeError(f"401 for Authorization: Bearer {os.environ['FAKE_API_KEY']}")


def die(task):
    """Is killed in the middle of a call."""
    os.kill(os.getpid(), signal.SIGKILL)


def wrong_state(task):
    """Wants to change what no state has."""
    return Reply("text", model="m", input_tokens=3, output_tokens=4, cost=3.0, state={"nothing": 1})
