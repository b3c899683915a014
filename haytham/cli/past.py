"""`checkpoints`, `snapshot` and `restore`: what a session was, listed, kept and brought back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from haytham.cli.completion import complete_snapshots
from haytham.cli.context import (
    INVALID,
    TO_GO_BACK,
    UNFINISHED,
    UNREADABLE,
    Here,
    Usage,
    harmless,
    session_names,
)
from haytham.cli.snapshot_view import Family, Line, drawn, facts, named, size
from haytham.errors import HaythamError
from haytham.policy import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham.policy import Kind
    from haytham.session import Session
    from haytham.snapshot.history import History
    from haytham.snapshot.snapshot import Snapshot

_STATUSES = (*UNFINISHED, "completed", "rejected", UNREADABLE)
_IN_MEMORY = "this session keeps its snapshots in memory, as its workflow says: they end with each command"
_TAKE_ONE = "take one with: haytham snapshot -m LABEL"


@click.command
@session_names(argument=True)
@click.option("--kind", type=click.Choice(KINDS), help="Only those of a kind.")
@click.option("--status", type=click.Choice(_STATUSES), help="Only those of a session that stood so.")
@click.option("--limit", type=click.IntRange(min=1), help="No more than so many, the newest.")
@click.option("--all", "everywhere", is_flag=True, help="Those of all sessions of all projects.")
@click.option("--user", help="With --all: only those of a user's sessions.")
@click.pass_obj
def checkpoints(here: Here, /, session_name: str | None, *, everywhere: bool, user: str | None, **asked: Any) -> None:
    r"""List the snapshots of a session, newest first.

    Those of its forks stand below the snapshot they were forked from. `raw` is the size of all documents, `added` what
    a snapshot takes that none before it took. Also called: snapshots, list-checkpoints.

    \b
    Examples:
      haytham checkpoints
      haytham checkpoints --kind manual --limit 5
      haytham checkpoints --all --user ann --json
    """
    if everywhere and session_name is not None:
        raise Usage("say which snapshots are meant: those of a session or --all, not both")
    if user is not None and not everywhere:
        raise Usage("--user goes with --all: a session has one user")
    if everywhere:
        _list_all(here, user, asked)
    else:
        _list_one(here, here.history(here.choose(session_name)), asked)


def _list_one(here: Here, history: History, asked: dict[str, Any]) -> None:
    """List the snapshots of a session; those that cannot be read are told, and then exit code 6."""
    if here.options.as_json:
        found, pins = history.list(), history.pins()
        rows = [facts(one, pinned=one.id in pins) for one in filter(_wanted(asked), found)]
        here.answer("snapshots", {"snapshots": rows[: asked["limit"]]}, "")
    else:
        family = Family(history.tree(), history.session.session_id)
        found = family.own
        here.answer("snapshots", {}, _table(here, history, family, asked))
    if len(found) < len(here.archive(history.session).records.names()):
        raise click.exceptions.Exit(INVALID)


def _list_all(here: Here, user: str | None, asked: dict[str, Any]) -> None:
    found = [one for one in here.histories().list(user, limit=None) if _wanted(asked)(one)][: asked["limit"]]
    pasts = {(one.project, one.session): here.history(here.session(one.project, one.session)) for one in found}
    pins = {pinned for past in pasts.values() for pinned in past.pins()}
    rows = [facts(one, pinned=one.id in pins) for one in found]
    table = drawn([Line(0, one) for one in found], pins, with_session=True) if found else _nothing(asked, user)
    here.answer("snapshots", {"snapshots": rows}, table)


def _wanted(asked: dict[str, Any]) -> Callable[[Snapshot], bool]:
    return lambda one: asked["kind"] in (None, one.kind) and asked["status"] in (None, one.status)


def _table(here: Here, history: History, family: Family, asked: dict[str, Any]) -> str:
    """The snapshots of a session and its forks below a line of whose they are; a sentence where there are none."""
    session = history.session
    pasts = {name: here.history(here.session(session.project_id, name)) for name in family.sessions}
    words = {name: _fork_words(past.session) for name, past in pasts.items()}
    lines = family.lines(limit=asked["limit"], wanted=_wanted(asked), words=words)
    if not lines:
        return _off(history) or _nothing(asked, None)
    head = f"session {session.project_id}/{session.session_id}{_lineage(session)}"
    return f"{head}\n\n{drawn(lines, {pinned for past in pasts.values() for pinned in past.pins()})}"


def _nothing(asked: dict[str, Any], user: str | None) -> str:
    if asked["kind"] is None and asked["status"] is None and user is None:
        return f"there is no snapshot yet; {_TAKE_ONE}"
    return "no snapshot is like that; haytham checkpoints lists all of a session"


def _off(history: History) -> str:
    """That a session keeps no snapshots beyond a command, where its workflow says so."""
    if not history.policy.enabled:
        return "this session keeps no history: its workflow says checkpointing.enabled: false"
    return _IN_MEMORY if history.policy.storage_type == "memory" else ""


def _lineage(session: Session) -> str:
    """Where a session was forked from, in words; nothing for one that is no fork."""
    try:
        value = session.read().manifest.value
    except (HaythamError, OSError):
        return ""
    if "forked_from" not in value:
        return ""
    point = f", snapshot {value['fork_point']}" if value.get("fork_point") else ""
    return harmless(f", forked from {value['forked_from']}{point}")


def _fork_words(session: Session) -> str:
    """The name of a fork, and what it is for where that was said."""
    try:
        purpose = session.read().manifest.value.get("purpose")
    except (HaythamError, OSError):
        purpose = None
    return f"fork {session.session_id}" + (f": {purpose}" if purpose else "")


@click.command
@click.option("-m", "--message", "label", metavar="LABEL", help="A label; what has one is never let go by itself.")
@click.option("--kind", type=click.Choice(KINDS), default="manual", show_default=True, help="What it is taken for.")
@session_names(argument=True)
@click.pass_obj
def snapshot(here: Here, /, session_name: str | None, label: str | None, kind: Kind) -> None:
    r"""Freeze a session as it is.

    It can be looked at, restored, compared and forked later. Works during a run, and on files that cannot be read.

    \b
    Examples:
      haytham snapshot -m "before the rewrite"
      haytham snapshot --kind routine
    """
    history = here.history(here.choose(session_name, among=TO_GO_BACK))
    before = history.list(limit=1)
    taken = history.take(kind, label)
    is_new = taken.id not in [one.id for one in before]
    row = facts(taken, pinned=taken.id in history.pins())
    sizes = f"{size(taken.raw)} of documents, {size(taken.added)} added to the history"
    said = f"{named(taken)}: {sizes}" if is_new else f"nothing has changed since {named(taken)}: none was taken"
    here.answer("snapshot", {"snapshot": row, "taken": is_new}, said)
    if history.policy.storage_type == "memory":
        here.say(_IN_MEMORY)


@click.command
@click.argument("which", metavar="ID", shell_complete=complete_snapshots)
@session_names(argument=True)
@click.pass_obj
def restore(here: Here, /, which: str, session_name: str | None) -> None:
    r"""Make a session what it was in a snapshot.

    ID is the number of a snapshot, or any unique part of its id. What was there before is kept as a snapshot of its
    own, which undoes that again.

    \b
    Examples:
      haytham restore 3
      haytham restore 9f3ac1
    """
    from haytham.cli.moment import bring_back  # noqa: PLC0415

    bring_back(here, *here.snapshot(which, session_name, among=TO_GO_BACK))
