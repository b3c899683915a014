"""What agents answered to which tasks: a folder of plain JSON, one file an answer, from which `replay:DIR` answers.

The name of a file says agent, task and order: `<agent>-<start of the task's digest>-<number>.json`.

`replay:DIR`: answers each task as it was answered when it was recorded, offline and free of charge.

Of several answers to a task those to the very same prompt come first, and of these the last reply: tries that failed
before it, and a reply that a later one replaced, are passed over. Where no try succeeded, the last failure is raised.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haytham.agents.base import Reply, adapter
from haytham.errors import AgentError, InvalidArgument, InvalidDocument, Problem, WriteConflict, short_repr
from haytham.redact import redact, redact_values_in
from haytham.storage import ABSENT, FileStore
from haytham.text import unified_diff

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from haytham.agents.base import Agent, Task
    from haytham.config.agent_spec import AgentSpec

FORMAT = "recording/1"
_NAME = re.compile(r"(?P<agent>.+)-(?P<task>[0-9a-f]{16})-(?P<number>[1-9]\d{0,8})\.json")
_TEXTS = ("agent", "task", "prompt")
_LEFT = ("text", "input_tokens", "output_tokens", "cost")  # what a failed call leaves behind


@dataclass(frozen=True)
class Recording:
    """One answer: the task it was given to, by agent, digest, parts and prompt; and the reply, or why there is none."""

    agent: str
    task: str
    parts: Mapping[str, str]
    prompt: str
    outcome: Reply | AgentError


class Recorder:
    """Keeps what agents answer, in order; the very same answer twice in a row is kept once.

    `secrets` are never written; with a failure, which may quote what was sent, nothing that looks like one is.
    """

    def __init__(self, folder: Path, *, secrets: Iterable[str] = ()) -> None:
        self._store = FileStore(folder)
        self._secrets = tuple(secrets)

    def record(self, task: Task, reply: Reply) -> None:
        """Keep a reply with the task it answers."""
        facts = {field.name: getattr(reply, field.name) for field in fields(reply)}
        facts |= {"tools_used": list(reply.tools_used), "state": None if reply.state is None else dict(reply.state)}
        self._keep(task, "reply", redact_values_in(facts, self._secrets)[0])

    def record_failure(self, task: Task, error: Exception) -> None:
        """Keep that an agent did not answer, and what came of it all the same."""
        told = error if isinstance(error, AgentError) else AgentError(str(error))
        facts = {name: getattr(told, name) for name in _LEFT}
        texts = {"message": str(error) or type(error).__name__, "text": told.text}
        hidden = {name: redact(text, self._secrets) for name, text in texts.items()}
        self._keep(task, "failure", {"type": type(error).__name__, **facts, **hidden})

    def _keep(self, task: Task, name: str, outcome: Mapping[str, Any]) -> None:
        about = {"agent": task.agent, "phase": task.phase, "attempt": task.attempt, "task": task.digest}
        facts = {"haytham": FORMAT, **about, "parts": task.parts, "prompt": task.prompt, name: outcome}
        data = (json.dumps(facts, ensure_ascii=False, indent=2, default=dict) + "\n").encode("utf-8", "replace")
        there = _keys(self._store, task.agent, task.digest)
        if there and self._store.read(there[-1]) == data:
            return
        number = _number(there[-1]) + 1 if there else 1
        while not self._put(f"{task.agent}-{_short(task.digest)}-{number}.json", data):
            number += 1

    def _put(self, key: str, data: bytes) -> bool:
        """Write a file that is not there yet; whether it was not."""
        try:
            self._store.write(key, data, expect=ABSENT)
        except WriteConflict:
            return False
        return True


class Recordings:
    """The answers in a folder, each read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._store = FileStore(folder)

    def find(self, agent: str, task: str | None = None) -> list[Recording]:
        """The answers of an agent, to one task or to all, in order; InvalidDocument where one cannot be read."""
        found = [self._read(key) for key in _keys(self._store, agent, task)]
        return [one for one in found if one.agent == agent and task in (None, one.task)]

    def _read(self, key: str) -> Recording:
        try:
            return _recording(json.loads(self._store.read(key), parse_constant=_refuse))
        except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or not what a recording says
            raise InvalidDocument([Problem(f"is no sound recording: {error}", file=key)]) from None


def _keys(store: FileStore, agent: str, task: str | None) -> list[str]:
    """The files of an agent, of one task or of all, in order."""
    found = [match for key in store.keys(depth=1) if (match := _NAME.fullmatch(key)) and match["agent"] == agent]
    wanted = [match for match in found if task is None or match["task"] == _short(task)]
    return [match[0] for match in sorted(wanted, key=lambda match: (match["task"], int(match["number"])))]


def _number(key: str) -> int:
    return int(key.rpartition("-")[2].removesuffix(".json"))


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:16]


def _refuse(constant: str) -> None:
    raise InvalidArgument("number", constant, "a finite one")


def _recording(facts: Any) -> Recording:
    """What a file says; ValueError where it does not say what a recording does."""
    found = facts.get("haytham") if isinstance(facts, dict) else facts
    if found != FORMAT:
        raise InvalidArgument("haytham", found, FORMAT)
    for name in _TEXTS:
        _check(name, facts.get(name), isinstance(facts.get(name), str), "text")
    parts = facts.get("parts")
    _check("parts", parts, isinstance(parts, dict) and all(isinstance(part, str) for part in parts.values()), "digests")
    return Recording(facts["agent"], facts["task"], parts, facts["prompt"], _outcome(facts))


def _outcome(facts: Mapping[str, Any]) -> Reply | AgentError:
    if "reply" in facts:
        given = _given("reply", facts["reply"], {field.name for field in fields(Reply)})
        tools = given.get("tools_used", [])
        _check("tools_used", tools, isinstance(tools, list), "a list of names")
        return Reply(**{**given, "tools_used": tuple(tools)})
    given = _given("failure", facts.get("failure"), {"type", "message", *_LEFT})
    _check("message", given.get("message"), isinstance(given.get("message"), str), "text")
    left = Reply(**{name: value for name, value in given.items() if name in _LEFT})  # which checks them
    return AgentError(given["message"], retry=False, **{name: getattr(left, name) for name in _LEFT})


def _given(name: str, found: Any, known: set[str]) -> dict[str, Any]:
    """A map with a text, a cost that can be, and no key that is not known."""
    is_map = isinstance(found, dict) and "text" in found and found.keys() <= known
    _check(name, found, is_map, f"a map with text, and any of {', '.join(sorted(known - {'text'}))}")
    given: dict[str, Any] = found
    cost = given.get("cost")
    is_number = isinstance(cost, int | float) and not isinstance(cost, bool)
    _check("cost", cost, cost is None or (is_number and 0 <= cost < math.inf), "dollars, 0 or more")
    return given


def _check(name: str, found: object, is_sound: bool, allowed: str) -> None:  # noqa: FBT001 - what is checked
    if not is_sound:
        raise InvalidArgument(name, found, allowed)


_MOST_LINES = 20
_LONGEST_LINE = 200


@adapter(is_free=True, runs_code=False)
def open_agent(rest: str) -> Agent:
    """Find the folder of recordings."""
    if not rest.strip():
        raise AgentError("no folder of recordings is named; it is said as replay:DIR", retry=False)
    if not Path(rest).is_dir():
        raise AgentError(f"the folder of recordings {short_repr(rest)} is not there", retry=False)
    recordings = Recordings(Path(rest))

    async def agent(task: Task, spec: AgentSpec) -> Reply:  # noqa: ARG001 - an agent's signature
        try:
            found = recordings.find(task.agent, task.digest)
            outcome = best_recording(found, task.prompt) if found else _missing(task, recordings.find(task.agent))
        except InvalidDocument as error:
            raise AgentError(str(error), retry=False) from None
        if isinstance(outcome, AgentError):
            raise outcome
        return outcome

    return agent


def best_recording(found: list[Recording], prompt: str) -> Reply | AgentError:
    """What is answered, of all answers to a task, in the order they were recorded."""
    order = sorted(found, key=lambda one: (isinstance(one.outcome, Reply), one.prompt == prompt))
    return order[-1].outcome


def _missing(task: Task, others: list[Recording]) -> AgentError:
    """Why a task has no answer: how it differs from the nearest one that has."""
    if not others:
        return AgentError(f"nothing was recorded of agent {task.agent}", retry=False)
    nearest = min(reversed(others), key=lambda one: len(_changed(task, one)))
    differs = ", ".join(_changed(task, nearest))
    said = f"agent {task.agent} was recorded with another task; the nearest one differs in: {differs}"
    failure = AgentError(said, retry=False)
    failure.add_note(f"How the prompt differs from the recorded one:\n{_bounded(nearest.prompt, task.prompt)}")
    return failure


def _changed(task: Task, recorded: Recording) -> list[str]:
    """The parts of a task that are not as they were."""
    names = {**task.parts, **recorded.parts}
    return [name for name in names if task.parts.get(name) != recorded.parts.get(name)]


def _bounded(before: str, after: str) -> str:
    lines = unified_diff(before, after, "prompt").split("\n")
    more = [f"… {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []
    return "\n".join([line[:_LONGEST_LINE] for line in lines[:_MOST_LINES]] + more)
