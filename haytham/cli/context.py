"""What commands share: where the projects are, which session is meant, who is asking, and how answers are given."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from haytham.errors import HaythamError

if TYPE_CHECKING:
    from pathlib import Path

    from haytham.session import Session
    from haytham.session.summary import Summary
    from haytham.store.files import FileStore

ERROR, USAGE, WAITING, REJECTED, BUDGET, INVALID, LOCKED = 1, 2, 3, 4, 5, 6, 7

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass
class Options:
    """The options that stand before a command."""

    folder: Path
    as_json: bool
    no_input: bool
    quiet: bool


class Choice(click.UsageError):
    """Several sessions could be meant, or none."""


@dataclass(frozen=True)
class Found:
    """A session there is: its ids and where it stands; `summary` is None where it cannot be read."""

    project_id: str
    session_id: str
    summary: Summary | None
    error: HaythamError | None = None

    @property
    def status(self) -> str:
        """Its status, or that it has none that can be read."""
        return "unreadable" if self.summary is None else self.summary.status

    @property
    def last_updated(self) -> str:
        """When it was saved last."""
        return "" if self.summary is None else str(self.summary.manifest["last_updated"])


class Here:
    """The projects below a folder, and how to speak with who asked."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.base = options.folder / "projects"

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
        from haytham.session.layout import MANIFEST  # noqa: PLC0415

        keys = [key.split("/") for key in self.store.keys(depth=4)]
        ids = [(key[0], key[2]) for key in keys if len(key) == 4 and key[1] == "sessions" and key[3] == MANIFEST]  # noqa: PLR2004
        return [self._found(*pair) for pair in ids]

    def _found(self, project_id: str, session_id: str) -> Found:
        try:
            return Found(project_id, session_id, self.session(project_id, session_id).read().summary())
        except HaythamError as error:
            return Found(project_id, session_id, None, error)

    def choose(self, name: str | None, *, among: tuple[str, ...] | None = None) -> Session:
        """The session that is meant.

        By any unique part of its id; else, to look (`among` is None), the one saved last, and to act the only one there
        is, or the only one in one of the statuses.
        """
        found = self.sessions()
        if not found:
            raise Choice(f"there is no session in {self.base}; start one with: haytham run IDEA")
        if name is not None:
            return self._by_name(name, found)
        if among is None:
            return self._open(max(found, key=lambda one: (one.last_updated, one.session_id)))
        matching = found if len(found) == 1 else [one for one in found if one.status in among]
        if len(matching) != 1:
            raise Choice(f"which session? name one of:\n{_listing(matching or found)}")
        return self._open(matching[0])

    def _by_name(self, name: str, found: list[Found]) -> Session:
        exact = [one for one in found if name in (one.session_id, f"{one.project_id}/{one.session_id}")]
        matching = exact or [one for one in found if name in f"{one.project_id}/{one.session_id}"]
        if len(matching) == 1:
            return self._open(matching[0])
        said = f"{len(matching)} sessions match" if matching else "no session matches"
        raise Choice(f"{said} {name!r}; there are:\n{_listing(matching or found)}")

    def _open(self, one: Found) -> Session:
        return self.session(one.project_id, one.session_id)

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


def harmless(text: str) -> str:
    """Text that a terminal shows as it is: control characters and direction marks are taken out."""
    return _CONTROL.sub("", text)


def who(user: str | None) -> str:
    """Who is asking: as said, else HAYTHAM_USER, git's user.email, the login name."""
    return user or os.environ.get("HAYTHAM_USER") or _git_email() or getpass.getuser()


def _git_email() -> str:
    try:
        done = subprocess.run(["git", "config", "user.email"], capture_output=True, encoding="utf-8", check=False)  # noqa: S607
    except OSError:
        return ""
    return done.stdout.strip()


def _listing(found: list[Found]) -> str:
    return "\n".join(f"  {one.project_id}/{one.session_id}  {one.status}" for one in found)
