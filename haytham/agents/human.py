"""`human`: a person writes the output. The page is laid out for them, and the run waits until they have changed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.agents.base import adapter
from haytham.errors import HaythamError, InvalidArgument

if TYPE_CHECKING:
    from haytham.agents.base import Agent, PreviousAttempt, Reply, Task
    from haytham.config.agent_spec import AgentSpec


class AwaitingHuman(HaythamError):
    """No reply and no failure: a person has yet to write, and `outline` is the page that they start from."""

    def __init__(self, agent: str, outline: str) -> None:
        self.outline = outline
        super().__init__(f"{agent} waits for a person to write it")


@adapter(is_free=True, runs_code=False)
def open_agent(rest: str) -> Agent:
    """A person takes no further words."""
    if rest:
        raise InvalidArgument("model", f"human:{rest}", "human")
    return await_human


async def await_human(task: Task, spec: AgentSpec) -> Reply:
    """Lay out the page, and leave it to a person."""
    raise AwaitingHuman(task.agent, page_template(task, spec))


def page_template(task: Task, spec: AgentSpec) -> str:
    """The page a person starts from: what they wrote before and is to change, else the headings of the contract.

    Without either it is blank, but for the agent's instructions.
    """
    written = "" if task.previous is None else task.previous.texts.get(task.agent, "")
    if task.previous is not None and written.strip():
        return f"{_comment(_wanted(task.previous))}\n\n{written}"
    if task.contract is not None:
        return str(task.contract.template())
    asked = task.prompt.partition("\n# The idea\n")[0]  # the instructions as they were drawn
    return f"{_comment(asked or spec.body)}\n"


def _wanted(previous: PreviousAttempt) -> str:
    """What is to change, in the words of whoever asked for it."""
    said = [previous.comments.strip()] if previous.comments.strip() else []
    changes = "\n".join(f"- {change}" for change in previous.changes)
    return "\n\n".join([f"Changes wanted after attempt {previous.attempt}", *said, *([changes] if changes else [])])


def _comment(text: str) -> str:
    """A text as a comment that no page shows; nothing in it ends it early."""
    return f"<!--\n{text.strip().replace('-->', '-- >')}\n-->"
