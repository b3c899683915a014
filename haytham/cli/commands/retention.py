"""`pin`, `unpin`, `delete`, `prune` and `verify`: which snapshots stay, which go, and whether they can be relied on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import INVALID, UNFINISHED, AppContext, UsageError, echo, in_a_line, sanitize
from haytham.cli.options import complete_snapshots, session_option
from haytham.cli.output import format_size, pluralize, snapshot_title, to_json
from haytham.config.policy import KINDS
from haytham.errors import HaythamError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham.app.session import Session
    from haytham.config.policy import SnapshotKind
    from haytham.history.snapshot import Snapshot


def _one(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments of a command about one snapshot."""
    for decorate in (
        click.pass_obj,
        session_option(argument=False),
        click.argument("which", metavar="ID", shell_complete=complete_snapshots),
    ):
        command = decorate(command)
    return command


@click.command
@_one
def pin(context: AppContext, /, which: str, session_name: str | None) -> None:
    r"""Keep a snapshot, whatever the rules say.

    \b
    Example:
      haytham pin 3
    """
    session, found = context.workspace.snapshot(which, session_name, among=UNFINISHED)
    session.history.pin(found)
    context.output(
        "pin", {"snapshot": to_json(found, pinned=True)}, f"{snapshot_title(found)}, is pinned: it is never let go"
    )


@click.command
@_one
def unpin(context: AppContext, /, which: str, session_name: str | None) -> None:
    r"""Let the rules decide on a pinned snapshot again.

    \b
    Example:
      haytham unpin 3
    """
    session, found = context.workspace.snapshot(which, session_name, among=UNFINISHED)
    history = session.history
    was_pinned = found.id in history.pins()
    history.unpin(found)
    said = "is not pinned any more" if was_pinned else "was not pinned"
    context.output("unpin", {"snapshot": to_json(found, pinned=False)}, f"{snapshot_title(found)}, {said}")


@click.command
@_one
def delete(context: AppContext, /, which: str, session_name: str | None) -> None:
    r"""Remove one snapshot, of whatever kind.

    One that is pinned, or that a fork comes from, stays. Nothing of the session itself is touched.

    \b
    Example:
      haytham delete 9f3ac1
    """
    session, found = context.workspace.snapshot(which, session_name, among=UNFINISHED)
    before = _bytes_at_rest(context, found.project)
    session.history.delete(found)
    freed = _freed(before, _bytes_at_rest(context, found.project))
    row = to_json(found, pinned=False)
    context.output(
        "delete", {"snapshot": row, "bytes": freed}, f"{snapshot_title(found)}, is removed{_given_back(freed)}"
    )


@click.command
@session_option(argument=True)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--older-than", metavar="AGE", help="All that is older, like 30d (m, h, d, w), not by the rules.")
@click.option("--kind", type=click.Choice(KINDS), help="Only those of a kind.")
@click.option("--all", "everywhere", is_flag=True, help="In all sessions of all projects.")
@click.pass_obj
def prune(context: AppContext, /, session_name: str | None, *, everywhere: bool, **ways: Any) -> None:
    r"""Let go of snapshots that the rules do not keep.

    The rules are those of the workflow. The newest, those of approvals, labelled, manual, final and pinned ones, and
    those that a fork comes from always stay.

    \b
    Examples:
      haytham prune --dry-run
      haytham prune --older-than 30d --kind phase
      haytham prune --all
    """
    if everywhere and session_name is not None:
        raise UsageError("say where to prune: in a session or --all, not both")
    session = None if everywhere else context.workspace.session(session_name, among=UNFINISHED)
    project = None if session is None else session.project_id
    before = _bytes_at_rest(context, project)
    gone = _pruned(context, session, **ways)
    freed = None if ways["dry_run"] else _freed(before, _bytes_at_rest(context, project))
    rows = [to_json(one, pinned=False) for one in gone]
    told = {"dry_run": ways["dry_run"], "snapshots": rows, "bytes": freed}
    context.output("prune", told, _gone_words(gone, freed, dry_run=ways["dry_run"], everywhere=everywhere))


def _pruned(
    context: AppContext, session: Session | None, *, dry_run: bool, older_than: str | None, kind: SnapshotKind | None
) -> list[Snapshot]:
    if session is None:
        return context.workspace.history().prune(dry_run=dry_run, older_than=older_than, kind=kind)
    return session.history.prune(dry_run=dry_run, older_than=older_than, kind=kind)


def _gone_words(gone: list[Snapshot], freed: int | None, *, dry_run: bool, everywhere: bool) -> str:
    """Each snapshot that went, or would go, and how many."""
    if not gone:
        return "no snapshot is to go"
    where = [f"{one.project}/{one.session}, " if everywhere else "" for one in gone]
    about = [f"{snapshot_title(one)}, {one.kind}, {one.time}" for one in gone]
    lines = [sanitize(f"{'would remove' if dry_run else 'removed'} {a}{b}") for a, b in zip(where, about, strict=True)]
    many = pluralize(len(gone), "snapshot")
    return "\n".join([*lines, f"{many} would go" if dry_run else f"{many} removed{_given_back(freed)}"])


def _bytes_at_rest(context: AppContext, project_id: str | None) -> int | None:
    """Return how many bytes the history of a project, or of all, takes on disk; None if it rests elsewhere."""
    found = list(context.base.glob(f"{project_id or '*'}/history"))
    return sum(path.lstat().st_size for one in found for path in one.rglob("*") if path.is_file()) if found else None


def _freed(before: int | None, after: int | None) -> int | None:
    return None if before is None else max(before - (after or 0), 0)


def _given_back(freed: int | None) -> str:
    return "" if freed is None else f", {format_size(freed)} given back"


@click.command
@session_option(argument=True)
@click.option("--all", "everywhere", is_flag=True, help="The snapshots of all sessions of all projects.")
@click.pass_obj
def verify(context: AppContext, /, session_name: str | None, *, everywhere: bool) -> None:
    r"""Check that snapshots can be relied on.

    Records and bytes are read, and each snapshot is restored into memory. Exit code 6 where something is wrong.

    \b
    Examples:
      haytham verify
      haytham verify --all
    """
    if everywhere and session_name is not None:
        raise UsageError("say what to verify: a session or --all, not both")
    chosen = None if everywhere else context.workspace.session(session_name)
    pairs = context.workspace.folders() if chosen is None else [(chosen.project_id, chosen.session_id)]
    reports = [_verified(context, *pair) for pair in pairs]
    count = sum(snapshots for snapshots, _ in reports)
    lines = list(dict.fromkeys(in_a_line(str(problem)) for _, problems in reports for problem in problems))
    context.output("verification", {"snapshots": count, "problems": lines}, "\n".join(lines))
    if not context.options.as_json and not context.options.quiet:
        echo(f"{pluralize(count, 'snapshot')}, {pluralize(len(lines), 'problem')}", err=True)
    if lines:
        raise click.exceptions.Exit(INVALID)


def _verified(context: AppContext, project_id: str, session_id: str) -> tuple[int, list[Problem]]:
    """Return how many snapshots a session has, and their problems with readable paths."""
    try:
        history = context.workspace.open(project_id, session_id).history
        count, problems = len(history.ids()), history.verify()
    except (HaythamError, OSError) as error:
        return 0, [Problem(str(error), file=f"{context.base}/{project_id}/sessions/{session_id}")]
    is_here = history.is_in_workspace
    return count, [replace(one, file=f"{context.base}/{one.file}") if is_here else one for one in problems]
