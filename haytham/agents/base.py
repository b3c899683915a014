"""What an agent is: whatever turns a Task into a Reply. The task it is given, and how it is found by name."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, Protocol

from haytham.errors import AgentError, InvalidArgument
from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from importlib.machinery import ModuleSpec
    from importlib.metadata import EntryPoint

    from haytham.config.agent_spec import AgentSpec

Snapshot = Any  # a frozen session; what that is, rooms above this one know

DEFAULT_MODEL = "worksheet"
ENTRY_POINTS = "haytham.agents"
_ADAPTERS = {
    "worksheet": "haytham.agents.worksheet",
    "human": "haytham.agents.human",
    "python": "haytham.agents.function",
    "command": "haytham.agents.command",
    "replay": "haytham.agents.replay",
}
_PROVIDERS = "haytham.agents.llm"
_MOST = 10**15
_PATIENCE = 5.0


@dataclass(frozen=True)
class PhaseInput:
    """A text that a task builds on: an output of a phase it needs."""

    phase: int
    name: str
    agent: str
    text: str


@dataclass(frozen=True)
class SkippedPhase:
    """A phase that a task would build on, and why it does not."""

    phase: int
    name: str
    reason: str


@dataclass(frozen=True)
class PreviousAttempt:
    """The attempt before: its texts as a person left them, what they want changed, and what changed in it.

    `by_hand` is what they changed in it themselves; `difference` what is new in it since their review before that;
    `revised` names the agents whose text a person changed, in this attempt or in one that it was made from.
    """

    attempt: int
    texts: Mapping[str, str]
    comments: str
    changes: tuple[str, ...]
    manual_diff: str
    diff: str
    revised: frozenset[str] = frozenset()

    def revised_text(self, agent: str) -> str:
        """Return an agent's text if it holds words of a person, else nothing."""
        return self.texts.get(agent, "") if agent in self.revised else ""


@dataclass(frozen=True)
class Task:
    """What an agent is asked. Its digest covers all that it is made of, and no time, model, memory or state.

    `comments` are those that needed phases were approved with; `other_comments` those of other decisions, by phase and
    occasion. `request` is what a person asks for this time; `state` what the caller keeps with the session, as it is
    now; to `tell` is to show a piece of the answer while it is being written.
    """

    agent: str
    agent_file: str
    phase: int
    phase_name: str
    attempt: int
    idea: str
    inputs: tuple[PhaseInput, ...] = ()
    comments: Mapping[str, str] | None = None
    other_comments: Mapping[str, str] | None = None
    skipped_phases: tuple[SkippedPhase, ...] = ()
    earlier_outputs: Mapping[str, str] | None = None
    previous: PreviousAttempt | None = None
    evidence: str = ""
    request: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)
    prompt: str = ""
    history: TaskSnapshots | None = field(default=None, compare=False, repr=False)
    on_text: Callable[[str], None] | None = field(default=None, compare=False, repr=False)
    contract: Any = field(default=None, compare=False, repr=False)

    def snapshot(self, label: str) -> Snapshot:
        """Freeze the session as it is, under a label."""
        return self._kept("take a snapshot").snapshot(label)

    def operation(self, name: str) -> AbstractContextManager[Snapshot]:
        """Do something that may go wrong: how the session was before is kept until it went well."""
        return self._kept("begin an operation").operation(name)

    def _kept(self, wanted: str) -> TaskSnapshots:
        if self.history is None:
            raise AgentError(f"cannot {wanted}: this task was given by nobody who keeps a history")
        return self.history

    @cached_property
    def parts(self) -> dict[str, str]:
        """What the task is made of: the digest of each part by its name."""
        texts = {"idea": self.idea, "agent file": self.agent_file}
        texts |= {f"phase {given.phase}: {given.agent}": given.text for given in self.inputs}
        comments = {**(self.comments or {}), **(self.other_comments or {})}
        texts |= {f"comments on {name}": text for name, text in comments.items()}
        texts |= {f"phase {out.phase} left out": out.reason for out in self.skipped_phases}
        texts |= {f"before it: {agent}": text for agent, text in (self.earlier_outputs or {}).items()}
        if self.previous is not None:
            texts |= {f"attempt {self.previous.attempt}: {agent}": text for agent, text in self.previous.texts.items()}
            if self.previous.comments.strip() or self.previous.changes:
                wanted = json.dumps([self.previous.comments, *self.previous.changes])
                texts[f"changes wanted after attempt {self.previous.attempt}"] = wanted
        if self.evidence:
            texts["evidence"] = self.evidence
        if self.request:
            texts["input"] = self.request
        return {name: text_digest(text) for name, text in texts.items()}

    @cached_property
    def digest(self) -> str:
        """One digest over all parts."""
        return text_digest("\n".join(f"{name}\t{digest}" for name, digest in sorted(self.parts.items())))


@dataclass(frozen=True)
class Reply:
    """What an agent answers: its text, and how it came to be; `state` is what it changes in the session's state."""

    text: str
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    tools_used: tuple[str, ...] = ()
    state: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuse what no document could hold, while it is still the agent's own fault."""
        if not isinstance(self.text, str) or not _is_unicode(self.text):
            raise InvalidArgument("reply: text", self.text, "Unicode text")
        if self.model is not None and not _is_line(self.model):
            raise InvalidArgument("reply: model", self.model, "one line of text")
        if not all(_is_line(tool) for tool in self.tools_used):
            raise InvalidArgument("reply: tools used", self.tools_used, "one line of text each")
        for name in ("input_tokens", "output_tokens"):
            count = getattr(self, name)
            if count is not None and (type(count) is not int or not 0 <= count <= _MOST):
                raise InvalidArgument(f"reply: {name}", count, "a whole number, 0 or more")
        if self.cost is not None and not _is_amount(self.cost):
            raise InvalidArgument("reply: cost", self.cost, "dollars, 0 or more")
        if self.state is not None and not _is_plain_map(self.state):
            raise InvalidArgument("reply: state", self.state, "a map of text, finite numbers, lists and maps of them")


def _is_amount(cost: Any) -> bool:
    return isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost <= _MOST


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text) if not text.isascii() else True


def _is_plain_map(values: Any) -> bool:
    """Whether values by name come back from JSON as they went in."""
    try:
        text = json.dumps(dict(values), allow_nan=False, ensure_ascii=False)
        return _is_unicode(text) and bool(json.loads(text) == values)
    except (TypeError, ValueError, RecursionError):
        return False


def _is_line(text: object) -> bool:
    return isinstance(text, str) and bool(text) and text.isprintable()


class TaskSnapshots(Protocol):
    """What an agent reaches of its session's history."""

    def snapshot(self, label: str) -> Snapshot:
        """Freeze the session as it is, under a label."""

    def operation(self, name: str) -> AbstractContextManager[Snapshot]:
        """Keep how the session was until something went well."""


class Agent(Protocol):
    """Turns a task into a reply."""

    async def __call__(self, task: Task, spec: AgentSpec) -> Reply:
        """Do the work."""


@dataclass(frozen=True)
class Adapter:
    """Opens the agents of one kind, and declares what calls of them are.

    `is_free`: a call costs nothing and is not counted. `reserves`: what a call may take is reserved before it is made;
    without that only what the reply reports counts. `runs_code`: an agent is code of this machine, and needs trust.
    """

    open: Callable[[str], Agent]
    is_free: bool = False
    reserves: bool = True
    runs_code: bool = True

    def __call__(self, rest: str) -> Agent:
        """Open the agent that the words after the colon name."""
        return self.open(rest)


def adapter(
    *, is_free: bool = False, reserves: bool = True, runs_code: bool = True
) -> Callable[[Callable[[str], Agent]], Adapter]:
    """Declare what the agents are that a function opens."""
    return lambda opener: Adapter(opener, is_free=is_free, reserves=reserves, runs_code=runs_code)


def find_adapter(model: str) -> Adapter:
    """Return the adapter for a model string, imported when it is asked for; one that declares nothing is not free."""
    kind = model.partition(":")[0]
    entry_point = None if kind in _ADAPTERS else _entry_point(kind)
    found = _own_adapter(kind) if entry_point is None else entry_point.load()
    return found if isinstance(found, Adapter) else Adapter(found)


def load_agent(model: str) -> Agent:
    """The agent that a model string names; imported when it is named."""
    kind, colon, rest = model.partition(":")
    is_named = kind in _ADAPTERS or _entry_point(kind) is not None
    if not is_named and not (colon and kind and rest):
        raise InvalidArgument("model", model, "worksheet, human, python:…, command:…, replay:DIR, or provider:model")
    return find_adapter(model)(rest if is_named else model)


def _own_adapter(kind: str) -> Adapter:
    """Return the adapter of a kind of ours; every other kind is a provider of language models."""
    found: Adapter = import_module(_ADAPTERS.get(kind, _PROVIDERS)).open_agent
    return found


def _entry_point(kind: str) -> EntryPoint | None:
    """Return what another package registers for a kind of agent, without importing it."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - only where no kind of ours is named

    return next(iter(entry_points(group=ENTRY_POINTS, name=kind)), None)


def model_kind(model: str) -> str:
    """Who answers for a model: one of ours by its name, `installed` of another package, else `llm`. Loads nothing."""
    kind = model.partition(":")[0]
    if kind in _ADAPTERS:
        return kind
    from importlib.metadata import entry_points  # noqa: PLC0415 - only where no kind of ours is named

    return "installed" if entry_points(group=ENTRY_POINTS, name=kind) else "llm"


def find_modules(module: str, *, then: Sequence[str] = ()) -> list[ModuleSpec]:
    """Find the packages around a module and the module itself, as far as they are there, without importing any.

    `then` are folders to look in where Python itself finds nothing.
    """
    specs: list[ModuleSpec] = []
    for name in module.split("."):
        folders = specs[-1].submodule_search_locations if specs else ()
        if not name.isidentifier() or folders is None:
            break
        spec = PathFinder.find_spec(name, list(folders)) if specs else _find_top_module(name, then)
        if spec is None:
            break
        specs.append(spec)
    return specs


def _find_top_module(name: str, then: Sequence[str]) -> ModuleSpec | None:
    finders = (finder.find_spec for finder in sys.meta_path if hasattr(finder, "find_spec"))
    found = next((spec for find in finders if (spec := find(name, None)) is not None), None)
    return found or PathFinder.find_spec(name, then)


def runs_code(model: str) -> bool:
    """Whether a model string names code of this machine, which a session from elsewhere must not start.

    What another package registers is such code by itself: it is not imported to find that out.
    """
    kind = model.partition(":")[0]
    return _own_adapter(kind).runs_code if kind in _ADAPTERS else _entry_point(kind) is not None


async def call_agent(agent: Agent, task: Task, spec: AgentSpec) -> Reply:
    """Ask an agent once: AgentError where it does not answer in time, or ends itself instead of answering."""
    import asyncio  # noqa: PLC0415 - who only looks at tasks need not load it

    running = asyncio.ensure_future(agent(task, spec))
    try:
        done, _ = await asyncio.wait({running}, timeout=spec.timeout)
        if not done:
            raise AgentError(f"no answer within {spec.timeout:g} s")
        if running.cancelled():
            raise AgentError("it was cancelled from within")
        return running.result()
    finally:
        running.cancel()
        await asyncio.wait({running}, timeout=_PATIENCE)  # what it started is ended before it is asked again
