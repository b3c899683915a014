"""`replay:DIR`: answers each task as it was answered when it was recorded, offline and free of charge.

Of several answers to a task those to the very same prompt come first, and of these the last reply: tries that failed
before it, and a reply that a later one replaced, are passed over. Where no try succeeded, the last failure is raised.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from haytham.agent import Reply, adapter
from haytham.errors import AgentFailed, InvalidDocument, quote
from haytham.recording import Recordings
from haytham.text import difference

if TYPE_CHECKING:
    from haytham.agent import Agent, Task
    from haytham.agent_file import AgentSpec
    from haytham.recording import Recording

_MOST_LINES = 20
_LONGEST_LINE = 200


@adapter(is_free=True, runs_code=False)
def open_agent(rest: str) -> Agent:
    """Find the folder of recordings."""
    if not rest.strip():
        raise AgentFailed("no folder of recordings is named; it is said as replay:DIR", retry=False)
    if not Path(rest).is_dir():
        raise AgentFailed(f"the folder of recordings {quote(rest)} is not there", retry=False)
    recordings = Recordings(Path(rest))

    async def agent(task: Task, spec: AgentSpec) -> Reply:  # noqa: ARG001 - an agent's signature
        try:
            found = recordings.of(task.agent, task.digest)
            outcome = chosen(found, task.prompt) if found else _missing(task, recordings.of(task.agent))
        except InvalidDocument as error:
            raise AgentFailed(str(error), retry=False) from None
        if isinstance(outcome, AgentFailed):
            raise outcome
        return outcome

    return agent


def chosen(found: list[Recording], prompt: str) -> Reply | AgentFailed:
    """What is answered, of all answers to a task, in the order they were recorded."""
    order = sorted(found, key=lambda one: (isinstance(one.outcome, Reply), one.prompt == prompt))
    return order[-1].outcome


def _missing(task: Task, others: list[Recording]) -> AgentFailed:
    """Why a task has no answer: how it differs from the nearest one that has."""
    if not others:
        return AgentFailed(f"nothing was recorded of agent {task.agent}", retry=False)
    nearest = min(reversed(others), key=lambda one: len(_changed(task, one)))
    differs = ", ".join(_changed(task, nearest))
    said = f"agent {task.agent} was recorded with another task; the nearest one differs in: {differs}"
    failure = AgentFailed(said, retry=False)
    failure.add_note(f"How the prompt differs from the recorded one:\n{_bounded(nearest.prompt, task.prompt)}")
    return failure


def _changed(task: Task, recorded: Recording) -> list[str]:
    """The parts of a task that are not as they were."""
    names = {**task.parts, **recorded.parts}
    return [name for name in names if task.parts.get(name) != recorded.parts.get(name)]


def _bounded(before: str, after: str) -> str:
    lines = difference(before, after, "prompt").split("\n")
    more = [f"… {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []
    return "\n".join([line[:_LONGEST_LINE] for line in lines[:_MOST_LINES]] + more)
