"""`python:package.module:function`: a function or coroutine, Task in, Reply or text out."""

from __future__ import annotations

import asyncio
import inspect
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

from haytham.agents.base import Reply, adapter
from haytham.errors import AgentError, InvalidArgument, describe_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham.agents.base import Agent, Task
    from haytham.config.agent_spec import AgentSpec


@adapter(reserves=False)
def open_agent(rest: str) -> Agent:
    """Find the function that `module:function` names."""
    module, _, name = rest.partition(":")
    model = f"python:{rest}"
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InvalidArgument(
            "model", model, f"python:module:function of a module that can be imported ({describe_error(error)})"
        ) from None

    async def agent(task: Task, spec: AgentSpec) -> Reply:  # noqa: ARG001 - an agent's signature
        answer = await _call(function, task)
        if isinstance(answer, str):
            return Reply(answer, model=model)
        if not isinstance(answer, Reply):
            raise InvalidArgument(f"{model}: answer", answer, "a Reply or text")
        return answer

    return agent


async def _call(function: Callable[[Task], Any], task: Task) -> Any:
    """What a function answers: one that does not await has a thread of its own, so that others go on beside it."""
    try:
        answer = function(task) if inspect.iscoroutinefunction(function) else await _in_thread(function, task)
        return await answer if inspect.isawaitable(answer) else answer
    except (SystemExit, KeyboardInterrupt) as error:
        raise AgentError(f"it ended itself with {type(error).__name__}: {error}") from error


async def _in_thread(function: Callable[[Task], Any], task: Task) -> Any:
    """Call a function in a thread that nobody waits for once it is too late."""
    loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def tell(setter: Callable[[Any], None], value: Any) -> None:
        if not done.done():
            setter(value)

    def work() -> None:
        try:
            told = done.set_result, function(task)
        except BaseException as error:  # noqa: BLE001 - carried over to who waits for it
            told = done.set_exception, error
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, *told)

    threading.Thread(target=work, name=f"agent-{task.agent}", daemon=True).start()
    return await done
