"""What an agent is: it turns a Task into a Reply."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from haytham.config.wording import CURRENCY, SUBJECT
from haytham.errors import AgentError, InvalidArgument
from haytham.text import text_digest
from haytham.validation import is_plain_json, is_unicode

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from haytham.config.agent_spec import AgentSpec

Snapshot = Any  # a frozen session; what that is, rooms above this one know

IDEA = "idea"  # the part of a task, whatever the workflow calls it
_MAX_COUNT = 10**15
_END_TIMEOUT = 5.0


@dataclass(frozen=True)
class PhaseInput:
    """An input of a task: an output of a phase that it needs."""

    phase: int
    name: str
    agent: str
    text: str


@dataclass(frozen=True)
class SkippedPhase:
    """A phase that a task needs and that was skipped, and why."""

    phase: int
    name: str
    reason: str


@dataclass(frozen=True)
class PreviousAttempt:
    """The attempt before: its texts as a person left them, and the changes requested.

    `manual_diff` is what the person edited; `diff` what changed since the review before that; `revised` names the
    agents whose text a person edited, in this attempt or in one that it was made from.
    """

    attempt: int
    texts: Mapping[str, str]
    comments: str
    changes: tuple[str, ...]
    manual_diff: str
    diff: str
    revised: frozenset[str] = frozenset()

    def revised_text(self, agent: str) -> str:
        """Return an agent's text if a person edited it, else an empty text."""
        return self.texts.get(agent, "") if agent in self.revised else ""


@dataclass(frozen=True)
class Task:
    """What an agent is asked. Its digest covers all parts, but no time, model, memory notes, preferences or state.

    `comments` are those of the approvals of needed phases; `other_comments` those of other decisions, by phase and
    occasion. `request` is the `--input` for this run; `subject` what the workflow calls an idea; `state` the caller's
    values as they are now; `preferences` those of the project; `memory` a few notes of the user that fit; `on_text`
    shows a piece of the answer as it is written.
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
    subject: str = SUBJECT
    currency: str = CURRENCY
    state: Mapping[str, Any] = field(default_factory=dict)
    preferences: Mapping[str, Any] = field(default_factory=dict)
    memory: str = ""
    prompt: str = ""
    history: TaskSnapshots | None = field(default=None, compare=False, repr=False)
    on_text: Callable[[str], None] | None = field(default=None, compare=False, repr=False)
    contract: Any = field(default=None, compare=False, repr=False)

    def snapshot(self, label: str) -> Snapshot:
        """Take a snapshot of the session, with a label."""
        return self._require_history("take a snapshot").snapshot(label)

    def operation(self, name: str) -> AbstractContextManager[Snapshot]:
        """Guard a risky step: a snapshot is taken before it, and deleted when it succeeds."""
        return self._require_history("begin an operation").operation(name)

    def _require_history(self, action: str) -> TaskSnapshots:
        if self.history is None:
            raise AgentError(f"cannot {action}: this task has no history")
        return self.history

    @cached_property
    def parts(self) -> dict[str, str]:
        """Return the digest of each part of the task, by name."""
        texts = {IDEA: self.idea, "agent file": self.agent_file}
        texts |= {f"phase {given.phase}: {given.agent}": given.text for given in self.inputs}
        comments = {**(self.comments or {}), **(self.other_comments or {})}
        texts |= {f"comments on {name}": text for name, text in comments.items()}
        texts |= {f"phase {out.phase} left out": out.reason for out in self.skipped_phases}
        texts |= {f"before it: {agent}": text for agent, text in (self.earlier_outputs or {}).items()}
        if self.previous is not None:
            texts |= {f"attempt {self.previous.attempt}: {agent}": text for agent, text in self.previous.texts.items()}
            if self.previous.comments.strip() or self.previous.changes:
                requested = json.dumps([self.previous.comments, *self.previous.changes])
                texts[f"changes wanted after attempt {self.previous.attempt}"] = requested
        if self.evidence:
            texts["evidence"] = self.evidence
        if self.request:
            texts["input"] = self.request
        return {name: text_digest(text) for name, text in texts.items()}

    def part_title(self, name: str) -> str:
        """Return the name of a part as people read it, in the words of the workflow."""
        return self.subject if name == IDEA else name

    @cached_property
    def digest(self) -> str:
        """One digest over all parts."""
        return text_digest("\n".join(f"{name}\t{digest}" for name, digest in sorted(self.parts.items())))


@dataclass(frozen=True)
class Reply:
    """An agent's answer: its text and how it was made; `state` is what it changes in the session's state."""

    text: str
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    tools_used: tuple[str, ...] = ()
    state: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuse values that no document can store, while the agent can still be blamed."""
        if not isinstance(self.text, str) or not is_unicode(self.text):
            raise InvalidArgument("reply: text", self.text, "Unicode text")
        if self.model is not None and not _is_line(self.model):
            raise InvalidArgument("reply: model", self.model, "one line of text")
        if not all(_is_line(tool) for tool in self.tools_used):
            raise InvalidArgument("reply: tools used", self.tools_used, "one line of text each")
        for name in ("input_tokens", "output_tokens"):
            count = getattr(self, name)
            if count is not None and (type(count) is not int or not 0 <= count <= _MAX_COUNT):
                raise InvalidArgument(f"reply: {name}", count, "a whole number, 0 or more")
        if self.cost is not None and not _is_amount(self.cost):
            raise InvalidArgument("reply: cost", self.cost, "dollars, 0 or more")
        if self.state is not None and not (isinstance(self.state, Mapping) and is_plain_json(dict(self.state))):
            raise InvalidArgument("reply: state", self.state, "a map of text, finite numbers, lists and maps of them")


def _is_amount(cost: Any) -> bool:
    return isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost <= _MAX_COUNT


def _is_line(text: object) -> bool:
    return isinstance(text, str) and bool(text) and text.isprintable()


class TaskSnapshots(Protocol):
    """The part of a session's history that an agent can use."""

    def snapshot(self, label: str) -> Snapshot:
        """Take a snapshot of the session, with a label."""

    def operation(self, name: str) -> AbstractContextManager[Snapshot]:
        """Guard a risky step with a snapshot."""


class Agent(Protocol):
    """Turns a task into a reply."""

    async def __call__(self, task: Task, spec: AgentSpec) -> Reply:
        """Answer a task."""


async def call_agent(agent: Agent, task: Task, spec: AgentSpec) -> Reply:
    """Call an agent once; AgentError if it does not answer in time, or is cancelled from within."""
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
        await asyncio.wait({running}, timeout=_END_TIMEOUT)  # what it started is ended before it is asked again
