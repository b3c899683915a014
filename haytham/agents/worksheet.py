"""The worksheet: no imitation of a model, but a page to fill in. Deterministic, offline and free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.agent import Reply
from haytham.errors import InvalidValue

if TYPE_CHECKING:
    from haytham.agent import Agent, AgentSpec, Task

NOTHING_YET = "_Nothing yet._"


def open_agent(rest: str) -> Agent:
    """The worksheet takes no further words."""
    if rest:
        raise InvalidValue("model", f"worksheet:{rest}", "worksheet")
    return fill


async def fill(task: Task, spec: AgentSpec) -> Reply:
    """Lay out what is known and ask for what is not, under the headings of the agent's file."""
    lines = [
        f"# {task.phase_name}: {spec.name.replace('_', ' ')}",
        "",
        "## The idea",
        "",
        task.idea.strip() or NOTHING_YET,
    ]
    lines += _built_on(task)
    lines += _wanted(task)
    for heading, asked in spec.sections.items():
        lines += ["", f"## {heading}", "", f"> {asked}" if asked else NOTHING_YET, "", "- ASSUMPTION:"]
    return Reply("\n".join(lines) + "\n", model="worksheet", input_tokens=0, output_tokens=0, cost=0.0)


def _built_on(task: Task) -> list[str]:
    lines = [f"- Phase {given.phase}, {given.name}: {_first_line(given.text)}" for given in task.inputs]
    lines += [f"- Before it, {agent}: {_first_line(text)}" for agent, text in (task.before or {}).items()]
    lines += [f"- Phase {out.phase}, {out.name}, is left out: {out.why}." for out in task.left_out]
    comments = [f"- {name} was approved with: {text.strip()}" for name, text in (task.comments or {}).items()]
    return ["", "## What it builds on", "", *(lines + comments or [NOTHING_YET])]


def _wanted(task: Task) -> list[str]:
    if task.previous is None:
        return []
    wanted = [text for text in (task.previous.comments.strip(),) if text] + [f"- {c}" for c in task.previous.changes]
    return ["", f"## Changes wanted after attempt {task.previous.attempt}", "", *(wanted or [NOTHING_YET])]


def _first_line(text: str) -> str:
    lines = (line.strip("#> ").strip() for line in text.split("\n"))
    return next((line for line in lines if line), "an empty text")[:100]
