"""`human`: a person writes the output. The run lays out the page and waits until it has been edited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.agents.registry import adapter
from haytham.errors import HaythamError, InvalidArgument

if TYPE_CHECKING:
    from haytham.agents.base import Agent, PreviousAttempt, Reply, Task
    from haytham.config.agent_spec import AgentSpec


class AwaitingHuman(HaythamError):
    """A person has yet to write the output; `outline` is the page that they start from."""

    def __init__(self, agent: str, outline: str) -> None:
        self.outline = outline
        super().__init__(f"{agent} waits for a person to write it")


@adapter(is_free=True, runs_code=False, bare_name=True)
def open_agent(rest: str) -> Agent:
    """Return the agent; it takes no argument."""
    if rest:
        raise InvalidArgument("model", f"human:{rest}", "human")
    return await_human


async def await_human(task: Task, spec: AgentSpec) -> Reply:
    """Lay out the page for a person."""
    raise AwaitingHuman(task.agent, page_template(task, spec))


def page_template(task: Task, spec: AgentSpec) -> str:
    """Return the page a person starts from: their earlier text, else the contract's headings, else a blank page.

    The requested changes, or the agent's instructions, are in a comment at the top.
    """
    written = "" if task.previous is None else task.previous.texts.get(task.agent, "")
    if task.previous is not None and written.strip():
        return f"{_comment(_requested_changes(task.previous))}\n\n{written}"
    if task.contract is not None:
        return str(task.contract.template())
    asked = task.prompt.partition(f"\n# The {task.subject}\n")[0]  # the instructions as they were drawn
    return f"{_comment(asked or spec.body)}\n"


def _requested_changes(previous: PreviousAttempt) -> str:
    """Return the requested changes and comments."""
    comments = [previous.comments.strip()] if previous.comments.strip() else []
    changes = "\n".join(f"- {change}" for change in previous.changes)
    return "\n\n".join([f"Changes wanted after attempt {previous.attempt}", *comments, *([changes] if changes else [])])


def _comment(text: str) -> str:
    """Return a text as an HTML comment that nothing in it can close."""
    return f"<!--\n{text.strip().replace('-->', '-- >')}\n-->"
