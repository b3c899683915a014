"""The exact text an agent is given: its instructions, and all that the task is made of. Values are never templates."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from haytham.errors import InvalidDocument, Problem
from haytham.resource import resource

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

    from haytham.agent import AgentSpec, Task


def prompt(task: Task, spec: AgentSpec) -> str:
    """What an agent reads."""
    from jinja2 import TemplateError  # noqa: PLC0415 - only where something is asked

    try:
        instructions = _environment().from_string(spec.body).render(task=task, idea=task.idea, phase=task.phase_name)
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        said = f"{type(error).__name__}: {error}"
        problem = Problem(said, getattr(error, "lineno", None) or 1, file=f"agents/{spec.name}.md")
        raise InvalidDocument([problem]) from None
    return _environment().get_template("prompt.md.j2").render(task=task, instructions=instructions.strip())


@lru_cache(maxsize=1)
def _environment() -> SandboxedEnvironment:
    from jinja2 import FileSystemLoader, StrictUndefined  # noqa: PLC0415
    from jinja2.sandbox import SandboxedEnvironment  # noqa: PLC0415

    return SandboxedEnvironment(
        loader=FileSystemLoader(resource("templates")),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
