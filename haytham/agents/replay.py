"""Record agents' answers in a folder of JSON files, and answer from them: `replay:DIR`, offline and free.

The name of a file has agent, task and order: `<agent>-<start of the task's digest>-<number>.json`. Of several answers
to a task those to the same prompt come first, and of these the last reply. If there is no reply, the last failure is
raised.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haytham.agents.base import Reply
from haytham.agents.registry import adapter
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
_REMAINS = ("text", "input_tokens", "output_tokens", "cost")  # what a failed call leaves behind


@dataclass(frozen=True)
class Recording:
    """One answer: its task by agent, digest, parts and prompt, and the reply or the failure."""

    agent: str
    task: str
    parts: Mapping[str, str]
    prompt: str
    outcome: Reply | AgentError


class Recorder:
    """Records answers in order; an answer equal to the last one is recorded once.

    `secrets` are never written; in a failure, which may quote what was sent, everything that looks like one is hidden.
    """

    def __init__(self, folder: Path, *, secrets: Iterable[str] = ()) -> None:
        self._store = FileStore(folder)
        self._secrets = tuple(secrets)

    def record(self, task: Task, reply: Reply) -> None:
        """Record a reply with its task."""
        facts = {field.name: getattr(reply, field.name) for field in fields(reply)}
        facts |= {"tools_used": list(reply.tools_used), "state": None if reply.state is None else dict(reply.state)}
        self._write(task, "reply", redact_values_in(facts, self._secrets)[0])

    def record_failure(self, task: Task, error: Exception) -> None:
        """Record a failure with its task, and what it left behind."""
        failure = error if isinstance(error, AgentError) else AgentError(str(error))
        facts = {name: getattr(failure, name) for name in _REMAINS}
        texts = {"message": str(error) or type(error).__name__, "text": failure.text}
        hidden = {name: redact(text, self._secrets) for name, text in texts.items()}
        self._write(task, "failure", {"type": type(error).__name__, **facts, **hidden})

    def _write(self, task: Task, name: str, outcome: Mapping[str, Any]) -> None:
        about = {"agent": task.agent, "phase": task.phase, "attempt": task.attempt, "task": task.digest}
        facts = {"haytham": FORMAT, **about, "parts": task.parts, "prompt": task.prompt, name: outcome}
        data = (json.dumps(facts, ensure_ascii=False, indent=2, default=dict) + "\n").encode("utf-8", "replace")
        existing = _find_keys(self._store, task.agent, task.digest)
        if existing and self._store.read(existing[-1]) == data:
            return
        number = _number(existing[-1]) + 1 if existing else 1
        while not self._write_new(f"{task.agent}-{_short(task.digest)}-{number}.json", data):
            number += 1

    def _write_new(self, key: str, data: bytes) -> bool:
        """Write a new file; return whether it is new."""
        try:
            self._store.write(key, data, expect=ABSENT)
        except WriteConflict:
            return False
        return True


class Recordings:
    """The answers in a folder, read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._store = FileStore(folder)

    def find(self, agent: str, task: str | None = None) -> list[Recording]:
        """Return the answers of an agent to one task or to all, in order; InvalidDocument if one cannot be read."""
        recordings = [self._read(key) for key in _find_keys(self._store, agent, task)]
        return [recording for recording in recordings if recording.agent == agent and task in (None, recording.task)]

    def _read(self, key: str) -> Recording:
        try:
            return _parse_recording(json.loads(self._store.read(key), parse_constant=_refuse))
        except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or not what a recording says
            raise InvalidDocument([Problem(f"is not a valid recording: {error}", file=key)]) from None


def _find_keys(store: FileStore, agent: str, task: str | None) -> list[str]:
    """Return the files of an agent for one task or for all, in order."""
    matches = [match for key in store.keys(depth=1) if (match := _NAME.fullmatch(key)) and match["agent"] == agent]
    chosen = [match for match in matches if task is None or match["task"] == _short(task)]
    return [match[0] for match in sorted(chosen, key=lambda match: (match["task"], int(match["number"])))]


def _number(key: str) -> int:
    return int(key.rpartition("-")[2].removesuffix(".json"))


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:16]


def _refuse(constant: str) -> None:
    raise InvalidArgument("number", constant, "a finite one")


def _parse_recording(facts: Any) -> Recording:
    """Parse a recording; ValueError if it is not one."""
    version = facts.get("haytham") if isinstance(facts, dict) else facts
    if version != FORMAT:
        raise InvalidArgument("haytham", version, FORMAT)
    for name in _TEXTS:
        _check(name, facts.get(name), isinstance(facts.get(name), str), "text")
    parts = facts.get("parts")
    _check("parts", parts, isinstance(parts, dict) and all(isinstance(part, str) for part in parts.values()), "digests")
    return Recording(facts["agent"], facts["task"], parts, facts["prompt"], _parse_outcome(facts))


def _parse_outcome(facts: Mapping[str, Any]) -> Reply | AgentError:
    if "reply" in facts:
        given = _check_map("reply", facts["reply"], {field.name for field in fields(Reply)})
        tools = given.get("tools_used", [])
        _check("tools_used", tools, isinstance(tools, list), "a list of names")
        return Reply(**{**given, "tools_used": tuple(tools)})
    given = _check_map("failure", facts.get("failure"), {"type", "message", *_REMAINS})
    _check("message", given.get("message"), isinstance(given.get("message"), str), "text")
    left = Reply(**{name: value for name, value in given.items() if name in _REMAINS})  # which checks them
    return AgentError(given["message"], retry=False, **{name: getattr(left, name) for name in _REMAINS})


def _check_map(name: str, value: Any, known: set[str]) -> dict[str, Any]:
    """Return a map with a text, a valid cost, and known keys only."""
    is_map = isinstance(value, dict) and "text" in value and value.keys() <= known
    _check(name, value, is_map, f"a map with text, and any of {', '.join(sorted(known - {'text'}))}")
    given: dict[str, Any] = value
    cost = given.get("cost")
    is_number = isinstance(cost, int | float) and not isinstance(cost, bool)
    _check("cost", cost, cost is None or (is_number and 0 <= cost < math.inf), "dollars, 0 or more")
    return given


def _check(name: str, value: object, is_sound: bool, allowed: str) -> None:  # noqa: FBT001 - what is checked
    if not is_sound:
        raise InvalidArgument(name, value, allowed)


_MOST_LINES = 20
_LONGEST_LINE = 200


@adapter(is_free=True, runs_code=False)
def open_agent(rest: str) -> Agent:
    """Open a folder of recordings."""
    if not rest.strip():
        raise AgentError("no folder of recordings given; write replay:DIR", retry=False)
    if not Path(rest).is_dir():
        raise AgentError(f"the folder of recordings {short_repr(rest)} was not found", retry=False)
    recordings = Recordings(Path(rest))

    async def agent(task: Task, spec: AgentSpec) -> Reply:  # noqa: ARG001 - an agent's signature
        try:
            matches = recordings.find(task.agent, task.digest)
            outcome = (
                best_recording(matches, task.prompt) if matches else _no_recording(task, recordings.find(task.agent))
            )
        except InvalidDocument as error:
            raise AgentError(str(error), retry=False) from None
        if isinstance(outcome, AgentError):
            raise outcome
        return outcome

    return agent


def best_recording(recordings: list[Recording], prompt: str) -> Reply | AgentError:
    """Return the answer to use, of all answers to a task in the order they were recorded."""
    order = sorted(recordings, key=lambda recording: (isinstance(recording.outcome, Reply), recording.prompt == prompt))
    return order[-1].outcome


def _no_recording(task: Task, others: list[Recording]) -> AgentError:
    """Return the error for a task without an answer: how it differs from the nearest one that has one."""
    if not others:
        return AgentError(f"no recording of agent {task.agent}", retry=False)
    nearest = min(reversed(others), key=lambda recording: len(_changed_parts(task, recording)))
    differs = ", ".join(_changed_parts(task, nearest))
    message = f"agent {task.agent} was recorded with another task; the nearest one differs in: {differs}"
    failure = AgentError(message, retry=False)
    failure.add_note(f"How the prompt differs from the recorded one:\n{_shortened(nearest.prompt, task.prompt)}")
    return failure


def _changed_parts(task: Task, recorded: Recording) -> list[str]:
    """Return the parts of a task that differ from a recording's."""
    names = {**task.parts, **recorded.parts}
    return [name for name in names if task.parts.get(name) != recorded.parts.get(name)]


def _shortened(before: str, after: str) -> str:
    lines = unified_diff(before, after, "prompt").split("\n")
    more = [f"… {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []
    return "\n".join([line[:_LONGEST_LINE] for line in lines[:_MOST_LINES]] + more)
