"""`python:package.module:function`: a function or coroutine, Task in, Reply or text out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from haytham.agent import Reply, call
from haytham.errors import InvalidValue

if TYPE_CHECKING:
    from haytham.agent import Agent, AgentSpec, Task


def open_agent(rest: str) -> Agent:
    """Find the function that `module:function` names."""
    module, _, name = rest.partition(":")
    model = f"python:{rest}"
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidValue(
            "model", model, f"python:module:function of a module that can be imported ({error})"
        ) from None

    async def agent(task: Task, spec: AgentSpec) -> Reply:  # noqa: ARG001 - an agent's signature
        answer = await call(function, task)
        if isinstance(answer, str):
            return Reply(answer, model=model)
        if not isinstance(answer, Reply):
            raise InvalidValue(f"{model}: answer", answer, "a Reply or text")
        return answer

    return agent
