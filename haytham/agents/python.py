"""`python:package.module:function`: a function or coroutine function that takes a Task and returns a Reply or text."""

from __future__ import annotations

import asyncio
import inspect
import threading
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any

from haytham.agents.base import Reply
from haytham.agents.registry import adapter, import_fault
from haytham.config.agent_spec import is_importable
from haytham.errors import AgentError, InvalidArgument, describe_error

if TYPE_CHECKING:
    from haytham.agents.base import Agent, Task
    from haytham.config.agent_spec import AgentFunction, AgentSpec

_LOCAL = "it is defined in a script or inside a function, so it cannot be imported; run the session from Python"


def _find_fault(reference: str) -> str | None:
    return import_fault(reference) if is_importable(reference) else _LOCAL


@adapter(reserves=False, find_fault=_find_fault)
def open_agent(rest: str) -> Agent:
    """Import the function that `module:function` names."""
    module, _, name = rest.partition(":")
    model = f"python:{rest}"
    try:
        function = reduce(getattr, name.split("."), import_module(module))
    except (ImportError, AttributeError, TypeError, ValueError, SystemExit) as error:
        raise InvalidArgument(
            "model", model, f"python:module:function of a module that can be imported ({describe_error(error)})"
        ) from None
    return function_agent(function, model)  # type: ignore[arg-type]  # checked when it is called


def function_agent(function: AgentFunction, model: str) -> Agent:
    """Return the agent that calls a function."""

    async def agent(task: Task, spec: AgentSpec) -> Reply:  # noqa: ARG001 - an agent's signature
        answer = await _call(function, task)
        if isinstance(answer, str):
            return Reply(answer, model=model)
        if not isinstance(answer, Reply):
            raise InvalidArgument(f"{model}: answer", answer, "a Reply or text")
        return answer

    return agent


async def _call(function: AgentFunction, task: Task) -> Any:
    """Call a function; one that is not a coroutine function runs in a thread, beside other agents."""
    try:
        answer = function(task) if inspect.iscoroutinefunction(function) else await _call_in_thread(function, task)
        return await answer if inspect.isawaitable(answer) else answer
    except (SystemExit, KeyboardInterrupt) as error:
        raise AgentError(f"it ended itself with {type(error).__name__}: {error}") from error


async def _call_in_thread(function: AgentFunction, task: Task) -> Any:
    """Call a function in a thread of its own, which is abandoned when the caller stops waiting."""
    loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def finish(setter: Any, value: Any) -> None:
        if not done.done():
            setter(value)

    def work() -> None:
        try:
            outcome = done.set_result, function(task)
        except BaseException as error:  # noqa: BLE001 - raised again where the call is awaited
            outcome = done.set_exception, error
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, *outcome)

    threading.Thread(target=work, name=f"agent-{task.agent}", daemon=True).start()
    return await done
