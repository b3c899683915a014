"""`checkpoints`, `snapshot` and `restore`: list snapshots, take them and restore them.

`recover`: what was kept before something was done, or when it went wrong, listed and brought back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import (
    INVALID,
    TO_GO_BACK,
    UNFINISHED,
    UNREADABLE,
    AppContext,
    UsageError,
    as_json,
    ask,
    in_a_line,
    sanitize,
)
from haytham.cli.options import complete_snapshots, session_option
from haytham.cli.output import (
    SnapshotTreeView,
    TreeRow,
    format_size,
    one_line,
    pluralize,
    render_table,
    restore_words,
    restored_names,
    setting_lines,
    snapshot_title,
    snapshot_to_json,
)
from haytham.config.policy import KINDS
from haytham.errors import HaythamError
from haytham.history.lookup import SnapshotQuery, parse_since
from haytham.history.snapshot_fields import SnapshotFields

if TYPE_CHECKING:
    from haytham.app.history import SessionHistory
    from haytham.app.recovery import ClearResult, StatePart
    from haytham.app.results import RestoreResult
    from haytham.app.session import Session
    from haytham.config.policy import SnapshotKind
    from haytham.history.snapshot import Snapshot

_STATUSES = (*UNFINISHED, "completed", "rejected", UNREADABLE)
_IN_MEMORY = "this session keeps its snapshots in memory, as its workflow says: they end with each command"
_TAKE_ONE = "take one with: haytham snapshot -m LABEL"


@click.command
@session_option(argument=True)
@click.option("--kind", type=click.Choice(KINDS), help="Only those of a kind.")
@click.option("--status", type=click.Choice(_STATUSES), help="Only those of a session that stood so.")
@click.option("--since", metavar="TIME", help="Only those since a date, a time, or an age like 7d.")
@click.option("--limit", type=click.IntRange(min=1), help="No more than so many, the newest.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Skip so many of the newest.")
@click.option("--all", "everywhere", is_flag=True, help="Those of all sessions of all projects.")
@click.option("--user", help="Those of all sessions of a user.")
@click.pass_obj
def checkpoints(
    context: AppContext, /, session_name: str | None, *, everywhere: bool, user: str | None, **asked: Any
) -> None:
    r"""List the snapshots of a session, newest first.

    Those of its forks stand below the snapshot they were forked from. `raw` is the size of all documents, `added` what
    a snapshot takes that none before it took. Also called: snapshots, list-checkpoints.

    \b
    Examples:
      haytham checkpoints
      haytham checkpoints --kind manual --limit 5
      haytham checkpoints --user ann --since 7d --limit 50 --offset 50 --json
    """
    if everywhere and session_name is not None:
        raise UsageError("say which snapshots are meant: those of a session or --all, not both")
    if user is not None and session_name is not None:
        raise UsageError("say which snapshots are meant: those of a session or --user, not both")
    if everywhere or user is not None:
        _list_all(context, user, asked)
    else:
        _list_one(context, context.workspace.session(session_name), asked)


def _list_one(context: AppContext, session: Session, filters: dict[str, Any]) -> None:
    """List the snapshots of a session; if some cannot be read, exit with code 6."""
    history = session.history
    if context.options.as_json:
        snapshots, pins = history.list(), history.pins()
        rows = [_listed_row(history, snapshot, pins) for snapshot in history.list(**filters)]
        context.output("snapshots", {"snapshots": rows}, "")
    else:
        family = SnapshotTreeView(history.tree(), session.session_id)
        snapshots = family.own
        context.output("snapshots", {}, _table(context, session, family, filters))
    if len(snapshots) < len(history.ids()):
        raise click.exceptions.Exit(INVALID)


def _list_all(context: AppContext, user: str | None, filters: dict[str, Any]) -> None:
    workspace = context.workspace
    snapshots = workspace.history().list(user, **filters)
    pasts = {
        (snapshot.project, snapshot.session): workspace.open(snapshot.project, snapshot.session).history
        for snapshot in snapshots
    }
    pins = {pinned for past in pasts.values() for pinned in past.pins()}
    draws = not context.options.as_json
    rows = (
        []
        if draws
        else [_listed_row(pasts[snapshot.project, snapshot.session], snapshot, pins) for snapshot in snapshots]
    )
    table = (
        render_table([TreeRow(0, snapshot) for snapshot in snapshots], pins, with_session=True)
        if snapshots
        else _nothing(filters, user)
    )
    context.output("snapshots", {"snapshots": rows}, table)


def _listed_row(history: SessionHistory, snapshot: Snapshot, pins: set[str]) -> dict[str, Any]:
    """Return a snapshot with the fields of its state for JSON; those are null if the state cannot be read."""
    row = snapshot_to_json(snapshot, pinned=snapshot.id in pins)
    try:
        return {**row, **asdict(history.fields(snapshot))}
    except (HaythamError, OSError):
        return {**row, **dict.fromkeys(item.name for item in fields(SnapshotFields))}


def _table(context: AppContext, session: Session, family: SnapshotTreeView, filters: dict[str, Any]) -> str:
    """Return the snapshots of a session and its forks below a line of whose they are, or a sentence if none."""
    sessions = {name: context.workspace.open(session.project_id, name) for name in family.sessions}
    words = {name: _fork_words(member) for name, member in sessions.items()}
    query = SnapshotQuery(filters["kind"], filters["status"], since=parse_since(filters["since"]))
    lines = family.lines(limit=filters["limit"], offset=filters["offset"], matches=query.matches, words=words)
    if not lines:
        return _off(session.history) or _nothing(filters, None)
    head = f"session {session.project_id}/{session.session_id}{_lineage(session)}"
    return (
        f"{head}\n\n{render_table(lines, {pinned for member in sessions.values() for pinned in member.history.pins()})}"
    )


def _nothing(filters: dict[str, Any], user: str | None) -> str:
    if user is None and not any(filters.values()):
        return f"there is no snapshot yet; {_TAKE_ONE}"
    return "no snapshot is like that; haytham checkpoints lists all of a session"


def _off(history: SessionHistory) -> str:
    """Return a sentence if the workflow switches snapshots off, or keeps them in memory; else nothing."""
    if not history.policy.enabled:
        return "snapshots of this session are off: its workflow says snapshots.enabled: false"
    return _IN_MEMORY if history.policy.storage_type == "memory" else ""


def _lineage(session: Session) -> str:
    """Return which session this one was forked from, in words; nothing if it is no fork."""
    try:
        value = session.manifest
    except (HaythamError, OSError):
        return ""
    if value.forked_from is None:
        return ""
    point = f", snapshot {value.fork_point}" if value.fork_point else ""
    return sanitize(f", forked from {value.forked_from}{point}")


def _fork_words(session: Session) -> str:
    """Return the name of a fork, and its purpose if it has one."""
    try:
        purpose = session.manifest.purpose
    except (HaythamError, OSError):
        purpose = None
    return f"fork {session.session_id}" + (f": {purpose}" if purpose else "")


@click.command
@click.option("-m", "--message", "label", metavar="LABEL", help="A label; a labelled snapshot is deleted only by hand.")
@click.option("--kind", type=click.Choice(KINDS), default="manual", show_default=True, help="What it is taken for.")
@session_option(argument=True)
@click.pass_obj
def snapshot(context: AppContext, /, session_name: str | None, label: str | None, kind: SnapshotKind) -> None:
    r"""Freeze a session as it is.

    It can be looked at, restored, compared and forked later. Works during a run, and on files that cannot be read.

    \b
    Examples:
      haytham snapshot -m "before the rewrite"
      haytham snapshot --kind routine
    """
    history = context.workspace.session(session_name, among=TO_GO_BACK).history
    before = history.list(limit=1)
    taken = history.take(kind, label)
    is_new = taken.id not in [snapshot.id for snapshot in before]
    row = snapshot_to_json(taken, pinned=taken.id in history.pins())
    sizes = f"{format_size(taken.raw)} of documents, {format_size(taken.added)} added to the history"
    text = (
        f"{snapshot_title(taken)}: {sizes}"
        if is_new
        else f"nothing has changed since {snapshot_title(taken)}: none was taken"
    )
    context.output("snapshot", {"snapshot": row, "taken": is_new}, text)
    if history.policy.storage_type == "memory":
        context.info(_IN_MEMORY)


@click.command
@click.argument("which", metavar="ID", shell_complete=complete_snapshots)
@session_option(argument=True)
@click.pass_obj
def restore(context: AppContext, /, which: str, session_name: str | None) -> None:
    r"""Make a session what it was in a snapshot.

    ID is the number of a snapshot, any unique part of its id, or `latest`. What was there before is kept as a snapshot
    of its own, which undoes that again.

    \b
    Examples:
      haytham restore 3
      haytham restore 9f3ac1
      haytham restore latest
    """
    _restore(context, *context.workspace.snapshot(which, session_name, among=TO_GO_BACK))


def _restore(context: AppContext, session: Session, chosen: Snapshot) -> None:
    """Restore a snapshot; print what changed, and how to undo it."""
    result = session.restore(chosen)
    facts, lines = _restored(context, session, result)
    context.output("restore", facts, "\n".join([*lines, *_hints(context, session, result)]))


def _restored(context: AppContext, session: Session, result: RestoreResult) -> tuple[dict[str, Any], list[str]]:
    """Return what a restore did, for JSON and in words."""
    for line in setting_lines(result):
        context.info(line)
    chosen = result.snapshot
    ids = {"project": session.project_id, "session": session.session_id, "recovery": result.recovery.id}
    row = snapshot_to_json(chosen, pinned=chosen.id in session.history.pins())
    paths = {"changed": list(result.changed), "added": list(result.added), "removed": list(result.removed)}
    lines = [f"restored {snapshot_title(chosen)}: {restore_words(result)}"]
    return {**ids, "snapshot": row, **paths}, lines


def _hints(context: AppContext, session: Session, result: RestoreResult) -> list[str]:
    if context.options.quiet:
        return []
    undo = f"to undo that: haytham restore {result.recovery.id}"
    return [undo, f"to go on: haytham resume{context.session_hint(session)}"]


_NOTHING = "there is nothing to recover: nothing was restored, and nothing went wrong"


@click.command
@session_option(argument=True)
@click.option("--list", "only_list", is_flag=True, help="List them, and ask for nothing.")
@click.option("--at", "which", metavar="ID", help="Restore this one.", shell_complete=complete_snapshots)
@click.option("--latest", is_flag=True, help="Restore the newest one.")
@click.option("--clear", is_flag=True, help="Delete all of them.")
@click.pass_obj
def recover(  # noqa: PLR0913 - click's switches
    context: AppContext,
    /,
    session_name: str | None,
    *,
    only_list: bool,
    which: str | None,
    latest: bool,
    clear: bool,
) -> None:
    r"""Bring back what was there before something went wrong.

    Lists what was kept before a restore, at an error or at drift, newest first; in a terminal asks which one to
    restore. It is verified first. Says what that brought back of the session's state.

    \b
    Examples:
      haytham recover
      haytham recover --latest
      haytham recover --at 7 --json
      haytham recover --clear
    """
    if (which is not None) + only_list + latest + clear > 1:
        raise UsageError("say one of --list, --at, --latest and --clear, not several")
    session = context.workspace.session(session_name, among=TO_GO_BACK)
    recovery = session.recovery
    if clear:
        _clear(context, recovery.clear())
        return
    named = which is not None or latest
    chosen = recovery.find(which) if named else _asked(context, recovery.points(), asks=not only_list)
    if chosen is not None:
        _recover(context, session, chosen)


def _recover(context: AppContext, session: Session, chosen: Snapshot) -> None:
    """Restore a recovery point; print what that brought back, documents and state."""
    result = session.recovery.recover(chosen)
    facts, lines = _restored(context, session, result.restored)
    parts = {part.name: {"value": part.value, "changed": part.is_changed} for part in result.parts}
    lines += [*restored_names(result.restored), *_part_lines(result.parts)]
    text = "\n".join([*lines, *_hints(context, session, result.restored)])
    context.output("recover", {**facts, "state": parts}, text)


def _part_lines(parts: Iterable[StatePart]) -> list[str]:
    """Return the parts of the state that were brought back, a line each; those that are empty now and before in one."""
    empty = [part.name for part in parts if not part.is_changed and not _filled(part)]
    lines = [_part_line(part) for part in parts if part.name not in empty]
    return lines + ([f"{', '.join(empty)}: nothing (as before)"] if empty else [])


def _filled(part: StatePart) -> dict[str, Any]:
    return {name: value for name, value in part.value.items() if value not in (None, [], {}, "")}


def _part_line(part: StatePart) -> str:
    """Return a part of the state in one line: its values, and whether they are others than before."""
    filled = _filled(part)
    values = "; ".join(f"{name.replace('_', ' ')} {_value_words(value)}" for name, value in filled.items())
    if part.name == "goals":
        values = _value_words(part.value["goals"]) if filled else ""
    return in_a_line(f"{part.name}: {values or 'nothing'}{'' if part.is_changed else ' (as before)'}")


def _value_words(value: Any) -> str:
    """Return a value of the state as text: a list as its items, a map as its keys and values."""
    if isinstance(value, list):
        return ", ".join(map(_value_words, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_value_words(inner)}" for name, inner in value.items())
    return one_line(value) if isinstance(value, str) else as_json(value)


def _asked(context: AppContext, points: list[Snapshot], *, asks: bool) -> Snapshot | None:
    """List what can be recovered and, in a terminal, ask which one to restore; None where none is chosen."""
    rows = [
        {**snapshot_to_json(snapshot, pinned=False), "circumstance": _circumstance(snapshot)} for snapshot in points
    ]
    context.output("recovery", {"snapshots": rows}, "\n".join(_point_lines(points)) or _NOTHING)
    if not points or not asks:
        return None
    if not context.can_ask():
        context.info("\nto restore one: haytham recover --at ID")
        return None
    words = "restore which one, by its number (Enter: none)"
    chosen: Snapshot | None = ask(words, default="", show_default=False, value_proc=partial(_by_number, points))
    return chosen


def _by_number(points: list[Snapshot], typed: str) -> Snapshot | None:
    """Return the recovery point with a number or an id; None if nothing was typed."""
    if not typed.strip():
        return None
    matching = [snapshot for snapshot in points if typed.strip() in (str(snapshot.number), snapshot.id)]
    if len(matching) > 1:
        raise click.BadParameter(f"{typed!r} is the number of {len(matching)} of them; name one by its id")
    if not matching:
        raise click.BadParameter(f"{typed!r} is none of them")
    return matching[0]


def _point_lines(points: list[Snapshot]) -> list[str]:
    width = max((len(str(snapshot.number)) for snapshot in points), default=0)
    return [
        sanitize(f"{snapshot.number:>{width}}  {snapshot.id}  {snapshot.time}  {_circumstance(snapshot)}")
        for snapshot in points
    ]


def _circumstance(point: Snapshot) -> str:
    """Return what a session was about to do when a snapshot was taken, or had just done."""
    operation = str(point.metadata.get("operation") or "")
    if not operation:
        return f"a snapshot of kind {point.kind}"
    if "before" in point.metadata:
        return f"when {operation} broke off"
    is_before = point.kind == "pre_operation" or operation.startswith("restore ")
    return f"before {operation}" if is_before else f"when {operation}"


def _clear(context: AppContext, result: ClearResult) -> None:
    """Print which recovery points were deleted, and why others stay."""
    kept = [f"{snapshot_title(one)}, stays: {error}" for one, error in result.kept]
    told = [f"{pluralize(len(result.deleted), 'recovery point')} removed", *map(sanitize, kept)]
    context.output("recovery_cleared", {"removed": list(result.deleted), "kept": kept}, "\n".join(told))
