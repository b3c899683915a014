"""Hooks: commands of a workflow that are run for events, without a shell, in process sessions of their own.

A hook is a handler like others: one that fails is recorded, and ends nothing. A script of the workflow's folder is run
from the session's copy of the workflow, whose digest trust is in, by the interpreter that its first line names.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING

from haytham.agents.command import StderrTail, ended_badly, start_program
from haytham.errors import AgentError
from haytham.events import event_name
from haytham.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from haytham.config.hooks import Hook
    from haytham.events import Event

_GRACE = 5.0  # seconds for ending a command that took too long


def hook_handler(hook: Hook, words: list[str]) -> Handler:
    """Return the handler that runs the words of a hook's command."""

    async def run(event: Event) -> None:
        if event.type.is_persisted:  # not each piece of an answer
            await run_command(words, _input(event), timeout=hook.timeout)

    return Handler(frozenset({event_name(hook.on)}), run, timeout=hook.timeout + _GRACE, name=f"hook {hook.run[0]}")


def _input(event: Event) -> bytes:
    """Return what a command reads: the event with the ids of its project and session."""
    ids = {"project": event.project, "session": event.session}
    return json.dumps({"time": event.time, "event": event.name, **ids, "facts": event.facts}).encode() + b"\n"


async def run_command(words: list[str], data: bytes, *, timeout: float) -> None:  # noqa: ASYNC109 - the hook's own
    """Run a command to its end; AgentError if it fails or takes too long. Whatever it started is ended with it."""
    program, stderr = start_program(words), StderrTail()
    try:
        async with asyncio.timeout(timeout):
            await program.communicate(data, lambda _piece: None, stderr.take)
    except TimeoutError:
        raise AgentError(f"the command did not finish within {timeout:g} s and was ended") from None
    finally:
        await program.end(0.0)
    if program.code:
        raise ended_badly(program.code, stderr.last_line, "")


def hook_words(hook: Hook, files: Mapping[str, bytes], folder: Path) -> list[str]:
    """Return the words of a hook's command, those that name files of the workflow as paths in a folder of them."""
    own = hook.files(files)
    words = [str(folder / own[word]) if word in own else word for word in hook.run]
    return [*interpreter(files[own[hook.run[0]]]), *words] if hook.is_in_folder and hook.run[0] in own else words


def interpreter(script: bytes) -> list[str]:
    """Return the program that the first line of a script names, with its argument; nothing if it names none."""
    first = script.partition(b"\n")[0].decode("utf-8", "replace").strip()
    return first.removeprefix("#!").split(None, 1) if first.startswith("#!") else []


def find_fault(hook: Hook, files: Mapping[str, bytes]) -> str | None:
    """Return why a hook cannot be run; None if it can."""
    if not hook.is_in_folder:
        return None if shutil.which(hook.run[0]) else f"program {hook.run[0]!r} not found"
    name = hook.files(files).get(hook.run[0])
    if name is None:
        return f"{hook.run[0]!r} not found in the workflow's folder"
    if not interpreter(files[name]):
        return f"{name} is no script: its first line names no program, as #!/bin/sh does"
    return None
