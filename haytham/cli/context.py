"""What commands share: where the projects are, which session is meant, who is asking, and how answers are given."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haytham.errors import HaythamError

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham.session import Session
    from haytham.session.summary import Summary
    from haytham.store.files import FileStore

ERROR, USAGE, WAITING, REJECTED, BUDGET, INVALID, LOCKED = 1, 2, 3, 4, 5, 6, 7
STOPPED = 130
UNFINISHED = ("in_progress", "waiting", "paused", "failed")

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass
class Options:
    """The options that may stand before a command or after it."""

    as_json: bool = False
    no_input: bool = False
    quiet: bool = False
    debug: bool = False


class Usage(click.UsageError):
    """A command was given what it cannot use; the sentence says what to give instead."""


class _PhaseNumber(click.ParamType):  # type: ignore[type-arg]  # older releases of click take none
    """The number of a phase."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ARG002
        """A whole number, else a sentence."""
        try:
            return int(value)
        except ValueError:
            raise Usage(f"{value!r} is no number of a phase; haytham status shows them") from None


PHASE = _PhaseNumber()


@dataclass(frozen=True)
class Found:
    """A session there is: its ids and where it stands; `summary` is None where it cannot be read."""

    project_id: str
    session_id: str
    summary: Summary | None
    error: HaythamError | OSError | None = None

    @property
    def status(self) -> str:
        """Its status, or that it has none that can be read."""
        return "unreadable" if self.summary is None else self.summary.status

    @property
    def last_updated(self) -> str:
        """When it was saved last."""
        return "" if self.summary is None else str(self.summary.manifest["last_updated"])


class Here:
    """The projects in the folder one is in, and how to speak with who asked."""

    base = Path("projects")

    def __init__(self) -> None:
        self.options = Options()

    @cached_property
    def store(self) -> FileStore:
        """The store of the projects."""
        from haytham.store.files import FileStore  # noqa: PLC0415

        return FileStore(self.base)

    def session(self, project_id: str, session_id: str) -> Session:
        """A session by its ids."""
        from haytham.session import Session  # noqa: PLC0415

        return Session(self.store, project_id, session_id)

    def folders(self, name: str | None) -> list[tuple[str, str]]:
        """Project and session of every session folder, with or without a manifest; of those a name is part of."""
        from haytham.session.layout import session_folders  # noqa: PLC0415

        found = session_folders(self.store.keys(depth=5))
        return [pair for pair in found if name is None or name in "/".join(pair)]

    def sessions(self) -> list[Found]:
        """All sessions there are; one that cannot be read hides no other."""
        return [self._found(*pair) for pair in self.folders(None)]

    def _found(self, project_id: str, session_id: str) -> Found:
        try:
            return Found(project_id, session_id, self.session(project_id, session_id).read().summary())
        except (HaythamError, OSError) as error:
            return Found(project_id, session_id, None, error)

    def choose(self, name: str | None, *, among: tuple[str, ...] | None = None) -> Session:
        """The session that is meant.

        By any unique part of its id; else, to look (`among` is None), the one saved last, and to act the only one there
        is, or the only one in one of the statuses.
        """
        found = self.sessions()
        if not found:
            raise Usage(f"there is no session in {self.base}; start one with: haytham run IDEA")
        if name is not None:
            return self._by_name(name, found)
        if among is None:
            return self._open(max(found, key=lambda one: (one.last_updated, one.session_id)))
        matching = found if len(found) == 1 else [one for one in found if one.status in among]
        if len(matching) != 1:
            raise Usage(f"say which session is meant, by any unique part of its id:\n{_listing(matching or found)}")
        return self._open(matching[0])

    def _by_name(self, name: str, found: list[Found]) -> Session:
        exact = [one for one in found if name in (one.session_id, f"{one.project_id}/{one.session_id}")]
        matching = exact or [one for one in found if name in f"{one.project_id}/{one.session_id}"]
        if len(matching) == 1:
            return self._open(matching[0])
        said = f"{len(matching)} sessions match" if matching else "no session matches"
        raise Usage(f"{said} {name!r}; name one of these by a unique part of its id:\n{_listing(matching or found)}")

    def _open(self, one: Found) -> Session:
        return self.session(one.project_id, one.session_id)

    def named(self, session: Session, option: str = "") -> str:
        """What to add to a command so that it means this session: nothing where it is the only one."""
        if len(self.folders(None)) == 1:
            return ""
        return f" {option} {session.session_id}" if option else f" {session.session_id}"

    def can_ask(self) -> bool:
        """Whether there is a person at a terminal who did not ask to be left alone."""
        return not (self.options.no_input or self.options.as_json) and sys.stdin.isatty() and sys.stdout.isatty()

    def say(self, text: str = "") -> None:
        """Tell a person something, unless they asked for quiet or for JSON."""
        if not self.options.quiet and not self.options.as_json:
            click.echo(text)

    def answer(self, kind: str, facts: dict[str, Any], text: str) -> None:
        """Give the answer of a command: text, or one object with its kind and version."""
        if self.options.as_json:
            click.echo(json.dumps({"kind": kind, "version": 1, **facts}, ensure_ascii=False))
        elif text:
            click.echo(text)


def session_names(*, argument: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The ways to name a session: an option, and for commands that take no phase an argument, too."""
    about = "Which session, by any unique part of its id."
    if not argument:
        return click.option("-s", "--session", "session_name", help=about, shell_complete=_complete)

    def keep(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        ctx.meta["haytham.session"] = value

    def take(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
        return value or ctx.meta["haytham.session"]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        known: dict[str, Any] = {"shell_complete": _complete}
        option = click.option("-s", "--session", help=about, expose_value=False, is_eager=True, callback=keep, **known)
        named = click.argument("session_name", metavar="[SESSION]", required=False, callback=take, **known)
        return named(option(command))

    return decorate


def _complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The ids of sessions, for the shell."""
    folders = sorted(Path("projects").glob("*/sessions/*/"))
    return [folder.name for folder in folders if incomplete in folder.name]


def harmless(text: str) -> str:
    """Text that a terminal shows as it is: control characters and direction marks are taken out."""
    return _CONTROL.sub("", text)


def who(user: str | None) -> str:
    """Who is asking: as said, else HAYTHAM_USER, git's user.email, the login name."""
    found = user or os.environ.get("HAYTHAM_USER") or _git_email() or _login_name()
    if not found:
        raise Usage("nothing says who you are; say it with --user NAME or HAYTHAM_USER")
    return found


def _git_email() -> str:
    try:
        done = subprocess.run(["git", "config", "user.email"], capture_output=True, encoding="utf-8", check=False)  # noqa: S607
    except (OSError, ValueError):
        return ""
    return done.stdout.strip()


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in a container
        return ""


def _listing(found: list[Found]) -> str:
    return "\n".join(f"  {one.project_id}/{one.session_id}  {one.status}" for one in found)
