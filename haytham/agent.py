"""What an agent is: whatever turns a Task into a Reply. Its file, the task it is given, and how it is found by name."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from haytham.errors import AgentFailed, InvalidDocument, InvalidValue, Problem
from haytham.text import text_digest
from haytham.yaml_text import InvalidYaml, load_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_MODEL = "worksheet"
_FRONT = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
_OURS = ("timeout", "retries", "sections")
_MOST = 10**15
Lines = dict[tuple[str | int, ...], int]


@dataclass(frozen=True)
class Input:
    """A text that a task builds on: an output of a phase it needs."""

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
    """The attempt before: its texts as a person left them, what they want changed, and what changed in it.

    `by_hand` is what they changed in it themselves; `difference` what is new in it since their review before that.
    """

    attempt: int
    texts: Mapping[str, str]
    comments: str
    changes: tuple[str, ...]
    by_hand: str
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
        texts |= {f"comments on {name}": text for name, text in (self.comments or {}).items()}
        texts |= {f"phase {out.phase} left out": out.why for out in self.left_out}
        texts |= {f"before it: {agent}": text for agent, text in (self.before or {}).items()}
        if self.previous is not None:
            texts |= {f"attempt {self.previous.attempt}: {agent}": text for agent, text in self.previous.texts.items()}
            wanted = json.dumps([self.previous.comments, *self.previous.changes])
            texts[f"changes wanted after attempt {self.previous.attempt}"] = wanted
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

    def __post_init__(self) -> None:
        """Refuse what no document could hold, while it is still the agent's own fault."""
        if not isinstance(self.text, str) or not _is_unicode(self.text):
            raise InvalidValue("reply: text", self.text, "Unicode text")
        if self.model is not None and not _is_line(self.model):
            raise InvalidValue("reply: model", self.model, "one line of text")
        if not all(_is_line(tool) for tool in self.tools_used):
            raise InvalidValue("reply: tools used", self.tools_used, "one line of text each")
        for name in ("input_tokens", "output_tokens"):
            count = getattr(self, name)
            if count is not None and (type(count) is not int or not 0 <= count <= _MOST):
                raise InvalidValue(f"reply: {name}", count, "a whole number, 0 or more")


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text) if not text.isascii() else True


def _is_line(text: object) -> bool:
    return isinstance(text, str) and bool(text) and text.isprintable()


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
    facts, lines = _front_matter(name, found[1] if found else "")
    ours = _ours(name, facts, lines)
    at = {key: lines.get(("haytham", key), 1) for key in _OURS}
    return AgentSpec(
        name=name,
        description=str(facts.get("description") or ""),
        model=_model(name, facts.get("model"), lines.get(("model",), 1)),
        timeout=_seconds(name, ours.get("timeout", 600), at["timeout"]),
        retries=_count(name, ours.get("retries", 2), at["retries"]),
        sections=_sections(name, ours.get("sections"), at["sections"]),
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


async def ask(agent: Agent, task: Task, spec: AgentSpec) -> Reply:
    """Ask an agent once: AgentFailed where it does not answer in time, or ends itself instead of answering."""
    import asyncio  # noqa: PLC0415 - who only looks at tasks need not load it

    running = asyncio.ensure_future(agent(task, spec))
    try:
        done, _ = await asyncio.wait({running}, timeout=spec.timeout)
        if not done:
            raise AgentFailed(f"no answer within {spec.timeout:g} s")
        if running.cancelled():
            raise AgentFailed("it was cancelled from within")
        return running.result()
    finally:
        running.cancel()


def _front_matter(name: str, text: str) -> tuple[dict[str, Any], Lines]:
    """The values of the front matter, and the line of each in the file."""
    try:
        facts, lines = load_yaml(text)
    except InvalidYaml as error:
        raise InvalidDocument([_problem(name, f"the front matter {error}", error.line + 1)]) from None
    if not isinstance(facts, dict | None):
        raise InvalidDocument([_problem(name, "the front matter is no map of keys and values")])
    return facts or {}, {path: line + 1 for path, line in lines.items()}


def _ours(name: str, facts: Mapping[str, Any], lines: Lines) -> dict[str, Any]:
    """What stands under `haytham:`: known keys only."""
    ours = facts.get("haytham")
    if not isinstance(ours, dict | None):
        raise InvalidDocument([_problem(name, "haytham: is no map of keys and values", lines.get(("haytham",), 1))])
    unknown = [key for key in ours or {} if key not in _OURS]
    if unknown:
        raise InvalidDocument([_unknown(name, str(key), lines.get(("haytham", str(key)), 1)) for key in unknown])
    return ours or {}


def _unknown(name: str, key: str, line: int) -> Problem:
    near = difflib.get_close_matches(key, _OURS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(_OURS)}"
    return _problem(name, f"haytham.{key}: is no key here; {hint}", line)


def _sections(name: str, found: Any, line: int) -> dict[str, str]:
    if not isinstance(found, dict | None):
        raise InvalidDocument([_problem(name, f"haytham: sections: found {found!r}; allowed: headings: asked", line)])
    return {str(heading): str(asked or "") for heading, asked in (found or {}).items()}


def _model(name: str, value: Any, line: int) -> str | None:
    if value in (None, "inherit"):
        return None
    if not isinstance(value, str):
        raise InvalidDocument([_problem(name, f"model: found {value!r}; allowed: text", line)])
    return value


def _seconds(name: str, value: Any, line: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise InvalidDocument([_problem(name, f"haytham: timeout: found {value!r}; allowed: seconds, above 0", line)])
    return float(value)


def _count(name: str, value: Any, line: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidDocument([_problem(name, f"haytham: retries: found {value!r}; allowed: 0, 1, 2 …", line)])
    return value


def _problem(name: str, message: str, line: int = 1) -> Problem:
    return Problem(message, line, file=f"agents/{name}.md")
