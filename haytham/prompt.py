"""The exact text an agent is given: its instructions, and all that the task is made of. Values are never templates."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from haytham.errors import InvalidDocument, Problem
from haytham.resource import resource

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

    from haytham.agent import Task
    from haytham.agent_file import AgentSpec


def prompt(task: Task, spec: AgentSpec) -> str:
    """What an agent reads; what its contract asks for stands where its file puts it, else behind the instructions."""
    asked = "" if task.contract is None else task.contract.description()
    instructions = _instructions(task, spec, asked)
    shown = "" if asked and asked.strip() in instructions else asked
    return _environment().get_template("prompt.md.j2").render(task=task, instructions=instructions, contract=shown)


def repair_prompt(task: Task, text: str, complaints: list[str]) -> str:
    """What an agent reads whose reply broke its contract: the same task, its reply, and what is wrong with it."""
    return _environment().get_template("repair.md.j2").render(prompt=task.prompt, text=text, complaints=complaints)


def _instructions(task: Task, spec: AgentSpec, contract: str) -> str:
    """The body of an agent's file, drawn. One of another tool that is no template stands as it is."""
    from jinja2 import TemplateError  # noqa: PLC0415 - only where something is asked

    values = {"task": task, "idea": task.idea, "phase": task.phase_name, "contract": contract}
    try:
        return _environment().from_string(spec.body).render(values).strip()
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        if spec.is_foreign and isinstance(error, TemplateError):
            return spec.body.strip()
        said = f"{type(error).__name__}: {error}"
        problem = Problem(said, spec.body_line + _line_in(error) - 1, file=f"agents/{spec.name}.md")
        raise InvalidDocument([problem]) from None


def _line_in(error: Exception) -> int:
    """The line of a template that an error comes from."""
    frame, line = error.__traceback__, getattr(error, "lineno", None) or 1
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "<template>":
            line = frame.tb_lineno
        frame = frame.tb_next
    return line


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
