"""What commands share: the workspace, exit codes, signals, and the only functions that print and ask."""

from __future__ import annotations

import json
import re
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from haytham.app.session import Session
    from haytham.app.workspace import Workspace

T = TypeVar("T")
ERROR, USAGE, WAITING, REJECTED, BUDGET, INVALID, LOCKED, CONFLICT = 1, 2, 3, 4, 5, 6, 7, 8
STOPPED = 130
UNFINISHED = ("in_progress", "waiting", "paused", "failed")
UNREADABLE = "unreadable"
TO_GO_BACK = (*UNFINISHED, UNREADABLE)

_ODD = r"\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"  # control, direction, ends of lines
_CONTROL = re.compile(rf"[\x00-\x08\x0b-\x1f{_ODD}]")
_HALF = re.compile(r"[\ud800-\udfff]")  # of a name that is no text
_ODD_IN_JSON = re.compile(rf"[{_ODD}\ud800-\udfff]")


@dataclass
class Options:
    """The options that are allowed before a command or after it."""

    as_json: bool = False
    no_input: bool = False
    quiet: bool = False
    debug: bool = False


class UsageError(click.UsageError):
    """A command was given what it cannot use; the sentence says what to give instead."""


class _PhaseNumber(click.ParamType):  # type: ignore[type-arg]  # older releases of click take none
    """The number of a phase."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ARG002
        """Return a whole number; raise UsageError for anything else."""
        try:
            return int(value)
        except ValueError:
            raise UsageError(f"{value!r} is no number of a phase; haytham status shows them") from None


PHASE = _PhaseNumber()


class AppContext:
    """The workspace in the working folder, and the functions that print and ask."""

    base = Path("projects")

    def __init__(self) -> None:
        self.options = Options()

    @cached_property
    def workspace(self) -> Workspace:
        """Return the workspace in the working folder."""
        from haytham.app.workspace import Workspace  # noqa: PLC0415 - not for --help

        return Workspace(self.base)

    def session_hint(self, session: Session, option: str = "") -> str:
        """Return what to add to a command so that it means this session: nothing if it is the only one."""
        if len(self.workspace.folders()) == 1:
            return ""
        return f" {option} {session.session_id}" if option else f" {session.session_id}"

    def can_ask(self) -> bool:
        """Return whether a person is at the terminal and may be asked."""
        return not (self.options.no_input or self.options.as_json) and sys.stdin.isatty() and sys.stdout.isatty()

    def info(self, text: str = "") -> None:
        """Print a text for a person, unless they asked for quiet or for JSON."""
        if not self.options.quiet and not self.options.as_json:
            echo(text)

    def output(self, kind: str, facts: dict[str, Any], text: str, *, has_colours: bool = False) -> None:
        """Give the answer of a command: text, or one object with its kind and version.

        A text with colours of our own is printed as it is: whoever coloured it made it harmless before.
        """
        if self.options.as_json:
            echo(as_json({"kind": kind, "version": 1, **facts}))
        elif text and has_colours:
            echo_coloured(text)
        elif text:
            echo(text)


def discard_typed_ahead() -> None:
    """Discard what was typed before a prompt is shown. Input that is not a terminal's is left alone."""
    import termios  # noqa: PLC0415 - only where there is a terminal

    if sys.stdin.isatty():
        with suppress(termios.error):  # the terminal is gone: the prompt finds its end
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def sanitize(text: str) -> str:
    """Return a text without control characters and direction marks, safe to print in a terminal."""
    return _HALF.sub("\ufffd", _CONTROL.sub("", text))


def in_a_line(text: str) -> str:
    """Return a harmless text in one line, like a name in a table."""
    return sanitize(text.replace("\n", " ").replace("\t", " "))


def as_json(value: Any) -> str:
    """Return a value as JSON in one line, with all that a terminal or a reader of lines acts on escaped."""
    return _ODD_IN_JSON.sub(lambda odd: f"\\u{ord(odd[0]):04x}", json.dumps(value, ensure_ascii=False))


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text, harmless."""
    click.echo(sanitize(text), err=err, nl=nl)


def echo_coloured(text: str) -> None:
    """Print a text with colours of our own: whoever coloured it made it harmless before."""
    click.echo(text)


def ask(question: str, **options: Any) -> Any:
    """Ask for a line, in words that are harmless; what was typed before is no answer."""
    discard_typed_ahead()
    return click.prompt(sanitize(question), **options)


def confirm(question: str) -> bool:
    """Ask whether to go on, in words that are harmless; what was typed before is no answer."""
    discard_typed_ahead()
    return click.confirm(sanitize(question))


# Signals.


class Stopped(Exception):
    """A signal stopped a run."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


def until_signalled(run: Callable[[], Awaitable[T]]) -> T:
    """Run until an outcome; Ctrl-C and SIGTERM stop between two writes, and the session can be resumed."""
    import asyncio  # noqa: PLC0415 - only where something runs

    got: list[int] = []

    async def work() -> T:
        task = asyncio.ensure_future(run())
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            got.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        return await task

    try:
        return asyncio.run(work())
    except asyncio.CancelledError:
        raise Stopped(got[0] if got else signal.SIGINT) from None
