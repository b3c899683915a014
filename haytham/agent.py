"""What an agent is: whatever turns a Task into a Reply. Its file, the task it is given, and how it is found by name."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from haytham.errors import InvalidDocument, InvalidValue, Problem
from haytham.text import text_digest
from haytham.yaml_text import InvalidYaml, load_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_MODEL = "worksheet"
_FRONT = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
_OURS = ("timeout", "retries", "sections")


@dataclass(frozen=True)
class Input:
    """A text that a task builds on: an output of a phase it needs, with the comments it was approved with."""

    phase: int
    name: str
    agent: str
    text: str


@dataclass(frozen=True)
class LeftOut:
    """A phase that a task would build on, and why it does not."""

    phase: int
    name: str
    why: str


@dataclass(frozen=True)
class Previous:
    """The attempt before: its texts as a person left them, and what they want changed."""

    attempt: int
    texts: Mapping[str, str]
    comments: str
    changes: tuple[str, ...]
    difference: str


@dataclass(frozen=True)
class Task:
    """What an agent is asked. Its digest covers all that it is made of, and no time, model or memory."""

    agent: str
    agent_file: str
    phase: int
    phase_name: str
    attempt: int
    idea: str
    inputs: tuple[Input, ...] = ()
    comments: Mapping[str, str] | None = None
    left_out: tuple[LeftOut, ...] = ()
    before: Mapping[str, str] | None = None
    previous: Previous | None = None
    evidence: str = ""
    prompt: str = ""

    @cached_property
    def parts(self) -> dict[str, str]:
        """What the task is made of: the digest of each part by its name."""
        texts = {"idea": self.idea, "agent file": self.agent_file}
        texts |= {f"phase {given.phase}: {given.agent}": given.text for given in self.inputs}
        texts |= {f"{name}: comments": text for name, text in (self.comments or {}).items()}
        texts |= {f"phase {out.phase}": out.why for out in self.left_out}
        texts |= {f"before it: {agent}": text for agent, text in (self.before or {}).items()}
        if self.previous is not None:
            texts |= {f"attempt {self.previous.attempt}: {agent}": text for agent, text in self.previous.texts.items()}
            wanted = "\n".join([self.previous.comments, *self.previous.changes])
            texts[f"attempt {self.previous.attempt}: changes wanted"] = wanted
        if self.evidence:
            texts["evidence"] = self.evidence
        return {name: text_digest(text) for name, text in texts.items()}

    @cached_property
    def digest(self) -> str:
        """One digest over all parts."""
        return text_digest("\n".join(f"{name}\t{digest}" for name, digest in sorted(self.parts.items())))


@dataclass(frozen=True)
class Reply:
    """What an agent answers: its text, and how it came to be."""

    text: str
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    tools_used: tuple[str, ...] = ()


class Agent(Protocol):
    """Turns a task into a reply."""

    async def __call__(self, task: Task, spec: AgentSpec) -> Reply:
        """Do the work."""


@dataclass(frozen=True)
class AgentSpec:
    """What an agent's file says: which model, how long, how often, which sections are wanted; and its instructions."""

    name: str
    description: str
    model: str | None
    timeout: float
    retries: int
    sections: Mapping[str, str]
    body: str


def read_agent(name: str, text: str) -> AgentSpec:
    """Read an agent's file: front matter, of which ours stands under `haytham:`, and instructions."""
    found = _FRONT.match(text)
    facts = _front_matter(name, found[1] if found else "")
    ours = facts.get("haytham") or {}
    unknown = sorted(set(ours) - set(_OURS)) if isinstance(ours, dict) else ["haytham"]
    if unknown:
        raise InvalidDocument([_problem(name, f"haytham: found {', '.join(unknown)}; allowed: {', '.join(_OURS)}")])
    return AgentSpec(
        name=name,
        description=str(facts.get("description", "")),
        model=_model(name, facts.get("model")),
        timeout=_positive(name, "timeout", ours.get("timeout", 600)),
        retries=int(_positive(name, "retries", ours.get("retries", 2), least=0)),
        sections={str(heading): str(asked or "") for heading, asked in (ours.get("sections") or {}).items()},
        body=text[found.end() :] if found else text,
    )


def find_agent(model: str) -> Agent:
    """The agent that a model string names; imported when it is named."""
    kind, _, rest = model.partition(":")
    adapters = {"worksheet": "haytham.agents.worksheet", "python": "haytham.agents.function"}
    if kind not in adapters:
        raise InvalidValue("model", model, "worksheet, python:module:function")
    agent: Agent = import_module(adapters[kind]).open_agent(rest)
    return agent


def runs_code(model: str) -> bool:
    """Whether a model string names code of this machine, which a session from elsewhere must not start."""
    return model.partition(":")[0] != "worksheet"


async def call(function: Any, *arguments: Any) -> Any:
    """Call a function or a coroutine function."""
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result


def _front_matter(name: str, text: str) -> dict[str, Any]:
    try:
        facts, _ = load_yaml(text)
    except InvalidYaml as error:
        raise InvalidDocument([_problem(name, f"the front matter {error}", error.line)]) from None
    if not isinstance(facts, dict | None):
        raise InvalidDocument([_problem(name, "the front matter is no map of keys and values")])
    return facts or {}


def _model(name: str, value: Any) -> str | None:
    if value in (None, "inherit"):
        return None
    if not isinstance(value, str):
        raise InvalidDocument([_problem(name, f"model: found {value!r}; allowed: text")])
    return value


def _positive(name: str, key: str, value: Any, *, least: float = 0.001) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < float("inf"):
        raise InvalidDocument([_problem(name, f"haytham: {key}: found {value!r}; allowed: a number")])
    return float(value)


def _problem(name: str, message: str, line: int = 1) -> Problem:
    return Problem(message, line, file=f"agents/{name}.md")
