"""Build the exact text that an agent is given: its instructions, and all parts of the task.

Values are never templates, and what people and agents wrote is fenced, so that none of it is a heading of the prompt.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from haytham.config.wording import Wording
from haytham.errors import InvalidDocument, Problem
from haytham.resources import resource_path

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

    from haytham.agents.base import Task
    from haytham.config.agent_spec import AgentSpec

_TAG = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)
_FENCE_RUN = re.compile("`+")
_STRUCTURE = re.compile(r"\s*(?:(?:>|[-+*]|\d{1,9}[.)])\s*)*(?:#|`{3}|~{3}|<|(?:=+|-+)\s*\Z)")  # no mere line of text


def fenced(text: str) -> str:
    """Return a text between fences that are longer than any run of backticks in it."""
    longest = max((len(run) for run in _FENCE_RUN.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}text\n{text}{end}{fence}"


def build_prompt(task: Task, spec: AgentSpec) -> str:
    """Return the prompt; the contract's text is where the agent's file puts it, else after the instructions."""
    asked = "" if task.contract is None else task.contract.prompt_text()
    instructions = _instructions(task, spec, asked)
    shown = "" if asked and asked.strip() in instructions else asked
    changes = "" if task.previous is None else "\n".join(f"- {change}" for change in task.previous.changes)
    values = {
        "task": task,
        "changes": changes,
        "preferences": "" if _is_named("preferences", spec) else _preferences(task),
        "memory": "" if _is_named("memory", spec) else task.memory,
    }
    return _render("prompt.md.j2", values, instructions=instructions, contract=shown)


def _is_named(name: str, spec: AgentSpec) -> bool:
    """Return whether an agent's file puts a value where it wants it, by its name or as one of the task."""
    return any(re.search(rf"(?<![\w.])(?:task\.)?{name}\b", tag) for tag in _TAG.findall(spec.body))


def _preferences(task: Task) -> str:
    """Return the preferences of the project, a line each; empty if there are none."""
    shown = {name: value if isinstance(value, str) else json.dumps(value) for name, value in task.preferences.items()}
    return "\n".join(f"- {name}: {value}" for name, value in shown.items())


def build_repair_prompt(task: Task, text: str, complaints: list[str]) -> str:
    """Return the prompt after a broken contract: the same task, the reply, and its problems."""
    return _render("repair.md.j2", {"text": text, "complaints": complaints}, prompt=task.prompt)


def _render(template: str, values: dict[str, Any], **trusted: str) -> str:
    """Render one of our templates; `trusted` texts are part of the prompt itself."""
    environment = _environment()
    safe = environment.filters["safe"]
    own = {name: safe(text) for name, text in trusted.items()}
    return environment.get_template(template).render({**values, **own})


def _instructions(task: Task, spec: AgentSpec, contract: str) -> str:
    """Return the rendered body of an agent's file; a foreign file that is no template stays as it is."""
    from haytham.sandbox import TemplateFault, render  # noqa: PLC0415 - only where something is asked

    own = _environment().filters["safe"](contract)
    values = {"task": task, "idea": task.idea, "phase": task.phase_name, "contract": own}
    values |= {"memory": task.memory, "preferences": _preferences(task)}
    values |= {"subject": task.subject, "currency": task.currency}
    body = Wording(task.subject, task.currency).space(spec.body)
    try:
        return render(body, values, show=_inline).strip()
    except TemplateFault as fault:
        if spec.is_foreign and not fault.is_template:
            return spec.body.strip()
        problem = Problem(str(fault), spec.body_line + fault.line - 1, file=f"agents/{spec.name}.md")
        raise InvalidDocument([problem]) from None


@lru_cache(maxsize=1)
def _environment() -> SandboxedEnvironment:
    from jinja2 import FileSystemLoader, StrictUndefined, pass_context  # noqa: PLC0415
    from jinja2.filters import do_mark_safe  # noqa: PLC0415
    from jinja2.sandbox import SandboxedEnvironment  # noqa: PLC0415

    @pass_context  # so that constants, too, come by here when a template is rendered, and nothing is escaped for HTML
    def finalize(_context: object, value: object) -> str:
        return do_mark_safe(str(value) if hasattr(value, "__html__") else _inline(str(value)))

    environment = SandboxedEnvironment(
        loader=FileSystemLoader(resource_path("templates")),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,  # what a macro or a block made is marked, and what comes from a value is not
        finalize=finalize,
    )
    environment.filters |= {"fenced": lambda text: do_mark_safe(fenced(text)), "line": _one_line}
    return environment


def _inline(value: str) -> str:
    """Return a value for use in a line; fenced if it has several lines or would be Markdown structure."""
    has_lines = len(value.strip("\n").splitlines()) > 1
    return f"\n\n{fenced(value)}\n\n" if has_lines or _STRUCTURE.match(value) else value


def _one_line(text: str) -> str:
    return " ".join(text.split())
