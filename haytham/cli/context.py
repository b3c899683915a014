"""What commands share: where the projects are, which session is meant, who is asking, and how answers are given."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haytham.errors import AmbiguousSnapshot, HaythamError, InvalidArgument, NotFound
from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from haytham.history.catalog import HistoryStore
    from haytham.history.history import History
    from haytham.history.snapshot import Snapshot
    from haytham.history.workspace import AllHistories
    from haytham.session import Session
    from haytham.session.derived import Summary
    from haytham.storage.files import FileStore

ERROR, USAGE, WAITING, REJECTED, BUDGET, INVALID, LOCKED = 1, 2, 3, 4, 5, 6, 7
STOPPED = 130
UNFINISHED = ("in_progress", "waiting", "paused", "failed")
UNREADABLE = "unreadable"
TO_GO_BACK = (*UNFINISHED, UNREADABLE)

_NUMBER = re.compile(r"#[0-9]+|[0-9]{1,5}")  # of a snapshot; more digits are a part of an id
_ODD = r"\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"  # control, direction, ends of lines
_CONTROL = re.compile(rf"[\x00-\x08\x0b-\x1f{_ODD}]")
_HALF = re.compile(r"[\ud800-\udfff]")  # of a name that is no text
_ODD_IN_JSON = re.compile(rf"[{_ODD}\ud800-\udfff]")


@dataclass
class Options:
    """The options that may stand before a command or after it."""

    as_json: bool = False
    no_input: bool = False
    quiet: bool = False
    debug: bool = False


class UsageError(click.UsageError):
    """A command was given what it cannot use; the sentence says what to give instead."""


class SnapshotNotFound(UsageError):
    """There is no such snapshot."""


class _PhaseNumber(click.ParamType):  # type: ignore[type-arg]  # older releases of click take none
    """The number of a phase."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ARG002
        """A whole number, else a sentence."""
        try:
            return int(value)
        except ValueError:
            raise UsageError(f"{value!r} is no number of a phase; haytham status shows them") from None


PHASE = _PhaseNumber()


@dataclass(frozen=True)
class SessionListing:
    """A session there is: its ids and where it stands; `summary` is None where it cannot be read."""

    project_id: str
    session_id: str
    summary: Summary | None
    error: Exception | None = None

    @property
    def status(self) -> str:
        """Its status, or that it has none that can be read."""
        return UNREADABLE if self.summary is None else self.summary.status

    @property
    def name(self) -> str:
        """Its ids as they are printed."""
        return in_a_line(f"{self.project_id}/{self.session_id}")

    @property
    def last_updated(self) -> str:
        """When it was saved last."""
        return "" if self.summary is None else self.summary.last_updated


class AppContext:
    """The projects in the folder one is in, and how to speak with who asked."""

    base = Path("projects")

    def __init__(self) -> None:
        self.options = Options()

    @cached_property
    def store(self) -> FileStore:
        """The store of the projects."""
        from haytham.storage.files import FileStore  # noqa: PLC0415

        return FileStore(self.base)

    def session(self, project_id: str, session_id: str) -> Session:
        """A session by its ids."""
        from haytham.session import Session  # noqa: PLC0415

        return Session(self.store, project_id, session_id)

    def folders(self, name: str | None) -> list[tuple[str, str]]:
        """Project and session of every session folder, with or without a manifest; of those a name is part of."""
        pairs = [(project, inner) for project in self.store.folders() for inner in self._session_folders(project)]
        return [pair for pair in pairs if (name is None or name in "/".join(pair)) and self._has_documents(*pair)]

    def _session_folders(self, project_id: str) -> list[str]:
        """The folders of a project's sessions; a folder whose name no project can have has none."""
        from haytham.session.paths import sessions_prefix  # noqa: PLC0415

        try:
            return self.store.folders(sessions_prefix(project_id))
        except InvalidArgument:
            return []

    def _has_documents(self, project_id: str, session_id: str) -> bool:
        """Whether a folder holds anything of a session, which one that was just being made does not.

        One whose name no session can have counts, so that it is told of.
        """
        from haytham.session.paths import MANIFEST, session_prefix  # noqa: PLC0415

        prefix = session_prefix(project_id, session_id)
        try:
            if self.store.is_regular(prefix + MANIFEST):
                return True
            from haytham.session.validate import is_history  # noqa: PLC0415

            return any(not is_history(key, self._histories) for key in self.store.keys(prefix, depth=2))
        except InvalidArgument:
            return True

    @cached_property
    def _histories(self) -> list[str]:
        """The folders among the projects that hold histories, and no sessions."""
        from haytham.session.validate import history_folders  # noqa: PLC0415

        return history_folders(self.store)

    def sessions(self) -> list[SessionListing]:
        """All sessions there are; one that cannot be read hides no other."""
        return [self._found(*pair) for pair in self.folders(None)]

    def _found(self, project_id: str, session_id: str) -> SessionListing:
        from haytham.session.plan import summarize  # noqa: PLC0415

        try:
            summary = self.session(project_id, session_id).read_consistently(summarize)
            return SessionListing(project_id, session_id, summary, summary.error)
        except (HaythamError, OSError) as error:
            return SessionListing(project_id, session_id, None, error)

    def resolve_session(self, name: str | None, *, among: tuple[str, ...] | None = None) -> Session:
        """The session that is meant.

        By any unique part of its id; else, to look (`among` is None), the one saved last, and to act the only one there
        is, or the only one in one of the statuses.
        """
        found = self.sessions()
        if not found:
            raise UsageError(f"there is no session in {self.base}; start one with: haytham run IDEA")
        if name is not None:
            return self._by_name(name, found)
        if among is None:
            return self._open(max(found, key=lambda one: (one.last_updated, one.session_id)))
        matching = found if len(found) == 1 else [one for one in found if one.status in among]
        if len(matching) != 1:
            raise UsageError(
                f"say which session is meant, by any unique part of its id:\n{_listing(matching or found)}"
            )
        return self._open(matching[0])

    def _by_name(self, name: str, found: list[SessionListing]) -> Session:
        exact = [one for one in found if name in (one.session_id, f"{one.project_id}/{one.session_id}")]
        matching = exact or [one for one in found if name in f"{one.project_id}/{one.session_id}"]
        if len(matching) == 1:
            return self._open(matching[0])
        said = f"{len(matching)} sessions match" if matching else "no session matches"
        raise UsageError(
            f"{said} {name!r}; name one of these by a unique part of its id:\n{_listing(matching or found)}"
        )

    def _open(self, one: SessionListing) -> Session:
        return self.session(one.project_id, one.session_id)

    def history(self, session: Session) -> History:
        """The past of a session; where its workflow is trusted, that may rest in a store of the person's own."""
        from haytham.history.history import History  # noqa: PLC0415

        return History(session, may_run_code=_may_run_code(session))

    def histories(self) -> AllHistories:
        """The pasts of all sessions."""
        from haytham.history.workspace import AllHistories  # noqa: PLC0415

        return AllHistories(self.store, may_run_code=_may_run_code)

    def archive(self, session: Session) -> HistoryStore:
        """Where that past rests."""
        from haytham.history.catalog import HistoryStore  # noqa: PLC0415

        return HistoryStore(session, store=None, may_run_code=_may_run_code(session))

    def snapshot(
        self, which: str, session_name: str | None, *, among: tuple[str, ...] | None = None
    ) -> tuple[History, Snapshot]:
        """The snapshot that is meant, and the past it is of.

        By a part of its id that no other snapshot has; by its number in the session that is named, else in the one
        that `choose` finds without a name.
        """
        by_session = session_name is not None or is_number(which)
        session = self.resolve_session(session_name, among=among) if by_session else self._session_of(which)
        history = self.history(session)
        return history, resolve_snapshot(history, which)

    def _session_of(self, which: str) -> Session:
        """The session that has the only snapshot with this part in its id."""
        if not which.strip():
            raise UsageError("say which snapshot is meant, by its number or any unique part of its id")
        found = [(session, name) for session, name in self._snapshot_ids() if which in name]
        found = [one for one in found if one[1] == which] or found
        if len(found) == 1:
            return found[0][0]
        if not found:
            raise SnapshotNotFound(f"no snapshot matches {which!r}; haytham checkpoints --all lists them")
        listing = "\n".join(in_a_line(f"  {one.project_id}/{one.session_id}  {name}") for one, name in found)
        raise UsageError(
            f"{len(found)} snapshots match {which!r}; name one of these by a unique part of its id:\n{listing}"
        )

    def _snapshot_ids(self) -> Iterator[tuple[Session, str]]:
        """The ids of all snapshots there are; a past that cannot be opened is told, and hides no other."""
        for pair in self.folders(None):
            try:
                session = self.session(*pair)
                names = self.archive(session).records.refs()
            except (HaythamError, OSError) as error:
                echo(f"haytham: {error}", err=True)
                continue
            yield from ((session, name.id) for name in names)

    def session_hint(self, session: Session, option: str = "") -> str:
        """What to add to a command so that it means this session: nothing where it is the only one."""
        if len(self.folders(None)) == 1:
            return ""
        return f" {option} {session.session_id}" if option else f" {session.session_id}"

    def can_ask(self) -> bool:
        """Whether there is a person at a terminal who did not ask to be left alone."""
        return not (self.options.no_input or self.options.as_json) and sys.stdin.isatty() and sys.stdout.isatty()

    def info(self, text: str = "") -> None:
        """Tell a person something, unless they asked for quiet or for JSON."""
        if not self.options.quiet and not self.options.as_json:
            echo(text)

    def output(self, kind: str, facts: dict[str, Any], text: str, *, has_colours: bool = False) -> None:
        """Give the answer of a command: text, or one object with its kind and version.

        A text with colours of our own is printed as it is: whoever coloured it made it harmless before.
        """
        if self.options.as_json:
            echo(as_json({"kind": kind, "version": 1, **facts}))
        elif text and has_colours:
            click.echo(text)
        elif text:
            echo(text)


def resolve_snapshot(history: History, which: str) -> Snapshot:
    """A snapshot of a session, by number or a unique part of its id; a number is never taken for a part."""
    name = history.session.session_id
    nothing = SnapshotNotFound(f"session {name} has no snapshot {which!r}; haytham checkpoints {name} lists them")
    number = which.removeprefix("#") if is_number(which) else None
    try:
        found = history.get(which)
    except AmbiguousSnapshot:
        raise
    except (NotFound, InvalidArgument) as error:
        raise nothing if number is not None or isinstance(error, NotFound) else error from None
    if number is not None and found.number != int(number):
        raise nothing
    return found


def is_number(which: str) -> bool:
    """Whether a snapshot is named by its number."""
    return _NUMBER.fullmatch(which) is not None


def discard_typed_ahead() -> None:
    """Discard what was typed before a prompt is shown. Input that is not a terminal's is left alone."""
    import termios  # noqa: PLC0415 - only where there is a terminal

    if sys.stdin.isatty():
        with suppress(termios.error):  # the terminal is gone: the prompt finds its end
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def sanitize(text: str) -> str:
    """Text that a terminal shows as it is: control characters and direction marks are taken out."""
    return _HALF.sub("\ufffd", _CONTROL.sub("", text))


def in_a_line(text: str) -> str:
    """Return a harmless text without ends of lines, like a name that stands in a table."""
    return sanitize(text.replace("\n", " ").replace("\t", " "))


def as_json(value: Any) -> str:
    """Return a value as JSON in one line, with all that a terminal or a reader of lines acts on escaped."""
    return _ODD_IN_JSON.sub(lambda odd: f"\\u{ord(odd[0]):04x}", json.dumps(value, ensure_ascii=False))


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text, harmless."""
    click.echo(sanitize(text), err=err, nl=nl)


def ask(question: str, **options: Any) -> Any:
    """Ask for a line, in words that are harmless; what was typed before is no answer."""
    discard_typed_ahead()
    return click.prompt(sanitize(question), **options)


def confirm(question: str) -> bool:
    """Ask whether to go on, in words that are harmless; what was typed before is no answer."""
    discard_typed_ahead()
    return click.confirm(sanitize(question))


def current_user(user: str | None, session: Session | None = None) -> str:
    """Return who is asking: --user, HAYTHAM_USER, who started the session with --user, git's user.email, the login."""
    found = user or os.environ.get("HAYTHAM_USER") or _known_user(session) or _local_name()
    if not found:
        raise UsageError("nothing says who you are; say it with --user NAME or HAYTHAM_USER")
    return found


def local_identity() -> str:
    """Return the digest of what this machine calls the person: a manifest tells by it who is the session's user."""
    return text_digest(_local_name())


def _known_user(session: Session | None) -> str:
    """Return the user that `run --user` named, if this machine calls the person what it called them then."""
    manifest = {} if session is None else session.read().manifest.value
    return str(manifest["user_id"]) if manifest.get("identity") == local_identity() else ""


def _local_name() -> str:
    return _git_email() or _login_name()


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


def _may_run_code(session: Session) -> bool:
    """Whether a session's workflow is trusted, and then may find modules here; one that cannot be read is not."""
    from haytham.cli.trust import add_cwd_to_path, may_run_code  # noqa: PLC0415

    try:
        trusted = may_run_code(session)
    except (HaythamError, OSError):
        return False
    if trusted:
        add_cwd_to_path()
    return trusted


def _listing(found: list[SessionListing]) -> str:
    return "\n".join(f"  {one.name}  {one.status}" for one in found)
