"""`fork`, `diff` and `merge`: continue a session in several ways, compare them and merge them."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import click

from haytham.app.history import is_in_session
from haytham.cli.comparison import ONLY_RECORDS, comparison_to_json, diff_summary, render_diff
from haytham.cli.context import CONFLICT, PHASE, UNFINISHED, AppContext, UsageError, sanitize
from haytham.cli.editor import open_editor
from haytham.cli.options import complete_both, complete_sessions, complete_snapshots, session_option
from haytham.cli.output import editor_lines, snapshot_title
from haytham.errors import NotFound, SnapshotNotFound
from haytham.history.snapshot import Snapshot

if TYPE_CHECKING:
    from haytham.app.results import MergeResult
    from haytham.app.session import Session
    from haytham.history.compare import Comparison

_WHAT_THERE_IS = "haytham list and haytham checkpoints --all tell what there is"


@click.command
@click.argument("which", metavar="[ID]", required=False, shell_complete=complete_snapshots)
@click.option("--name", required=True, help="The id of the new session.")
@click.option("--purpose", help="What it is for, in a line.")
@click.option("--model", help="The model for agents that name none of their own.")
@click.option("--workflow", help="Go on with another workflow: a name, a folder or a workflow.yaml.")
@session_option(argument=False)
@click.pass_obj
def fork(context: AppContext, /, which: str | None, session_name: str | None, **given: str | None) -> None:
    r"""Begin a session of its own from a snapshot.

    ID is the number of a snapshot, or any unique part of its id; without it, from the session as it is. The session
    that is forked is not touched.

    \b
    Examples:
      haytham fork 3 --name cheaper --purpose "the same for half the price"
      haytham fork --name other_model --model python:mine:agent
    """
    session, point = _fork_point(context, which, session_name)
    child = session.fork(
        point,
        name=given["name"] or "",
        purpose=given["purpose"],
        model=given["model"],
        workflow=given["workflow"],
    )
    for line in child.quarantined:
        context.info(line)
    ids = {"project": child.project_id, "session": child.session_id, "forked_from": session.session_id}
    fork_point = child.manifest.fork_point
    title = "" if fork_point is None else snapshot_title(session.history.find(fork_point))
    of = f"as it was in {title}" if title else "as it is"
    lines = [f"session {child.id} is a fork of {session.session_id} {of}"]
    lines += [] if context.options.quiet else [f"to go on with it: haytham resume {child.session_id}"]
    facts = {**ids, "fork_point": fork_point, "purpose": given["purpose"]}
    context.output("fork", facts, "\n".join(map(sanitize, lines)))


def _fork_point(context: AppContext, which: str | None, session_name: str | None) -> tuple[Session, Snapshot | None]:
    if which is None:
        return context.workspace.session(session_name, among=UNFINISHED), None
    return context.workspace.snapshot(which, session_name, among=UNFINISHED)


@click.command
@click.argument("old", metavar="A", shell_complete=complete_both)
@click.argument("new", metavar="[B]", required=False, shell_complete=complete_both)
@click.option("--stat", "only_counts", is_flag=True, help="Only how many lines each document gained and lost.")
@click.option(
    "--all", "everything", is_flag=True, help="Also times, digests, tasks, and copies that were presented or merged."
)
@session_option(argument=False)
@click.pass_obj
def diff(  # noqa: PLR0913 - click's arguments
    context: AppContext,
    /,
    old: str,
    new: str | None,
    session_name: str | None,
    *,
    only_counts: bool,
    everything: bool,
) -> None:
    r"""Show what differs between two snapshots or sessions.

    Pages first, word by word: red words are only in A, green ones only in B; without colour [-words of A-] and
    {+words of B+}. Then statuses and other fields. A and B are snapshots, by number or any unique part of their ids,
    or sessions of the project. Without B, what differs from A to the session as it is.

    \b
    Examples:
      haytham diff 3
      haytham diff 3 5 --stat
      haytham diff 9f3ac1 cheaper --json
    """
    session, first, second = _sides(context, old, new, session_name)
    whole = session.diff(first, second)
    comparison = whole if everything else whole.without_records
    context.info(f"from: {_side_words(first)}\nto:   {_side_words(second)}\n")
    draws = not context.options.as_json
    text = _diff_text(comparison, (first, second), only_counts=only_counts) if draws else ""
    if comparison.is_empty and not whole.is_empty:
        text = ONLY_RECORDS
    facts = {"old": _side_facts(first), "new": _side_facts(second), **comparison_to_json(comparison)}
    context.output("diff", facts, text, has_colours=not only_counts)


def _diff_text(found: Comparison, sides: tuple[Session | Snapshot, Session | Snapshot], *, only_counts: bool) -> str:
    if only_counts:
        return diff_summary(found)
    names = (_side_name(sides[0]), _side_name(sides[1]))
    return render_diff(found, names, colour=_has_colours())


def _side_name(side: Session | Snapshot) -> str:
    return f"snapshot {side.number}" if isinstance(side, Snapshot) else side.session_id


def _has_colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _sides(
    context: AppContext, old: str, new: str | None, session_name: str | None
) -> tuple[Session, Session | Snapshot, Session | Snapshot]:
    """Return what is compared: as named, else the session as it is."""
    base = _base(context, old, session_name)
    first = _side(context, base, old)
    if new is not None:
        return base, first, _side(context, base, new)
    if getattr(first, "session_id", None) == base.session_id:
        raise UsageError(f"say what to compare session {base.session_id} with: haytham diff {old} B")
    return base, first, base


def _base(context: AppContext, which: str, session_name: str | None) -> Session:
    """Return the session that is meant: as named, else that of the snapshot A, else the last of A's project."""
    workspace = context.workspace
    if session_name is not None:
        return workspace.session(session_name)
    pairs = [pair for pair in workspace.folders(which) if pair[1] == which]
    if not pairs:
        try:
            return workspace.snapshot(which)[0]
        except SnapshotNotFound:
            if is_in_session(which):
                raise
            pairs = workspace.folders(which)
    if not pairs:
        raise UsageError(f"no session and no snapshot matches {which!r}; {_WHAT_THERE_IS}")
    last = workspace.session()
    return last if last.project_id == pairs[0][0] else workspace.open(*pairs[0])


def _side(context: AppContext, base: Session, which: str) -> Session | Snapshot:
    """Return a session by its whole id, else a snapshot of the project, else a session by a unique part of its id."""
    project = base.project_id
    names = [session_id for project_id, session_id in context.workspace.folders() if project_id == project]
    if which in names:
        return context.workspace.open(project, which)
    if is_in_session(which):
        return base.history.find(which)
    try:
        return base.history.find_in_project(which)
    except NotFound:
        matching = [name for name in names if which in name]
    if len(matching) == 1:
        return context.workspace.open(project, matching[0])
    count = f"{len(matching)} sessions match" if matching else "no snapshot and no session matches"
    raise UsageError(f"{count} {which!r} in project {project}; {_WHAT_THERE_IS}")


def _side_words(side: Session | Snapshot) -> str:
    if isinstance(side, Snapshot):
        return sanitize(f"{snapshot_title(side)}, of session {side.session}")
    return sanitize(f"session {side.session_id} as it is")


def _side_facts(side: Session | Snapshot) -> dict[str, Any]:
    if isinstance(side, Snapshot):
        return {"session": side.session, "snapshot": side.id}
    return {"session": side.session_id, "snapshot": None}


@click.command
@click.argument("other", metavar="SESSION", shell_complete=complete_sessions)
@click.option(
    "--phase", "phases", type=PHASE, multiple=True, required=True, help="A phase; may be given several times."
)
@click.option("--ours", "prefer", flag_value="ours", help="Where both changed the same, keep it as it is here.")
@click.option("--theirs", "prefer", flag_value="theirs", help="Where both changed the same, take it from SESSION.")
@session_option(argument=False)
@click.pass_obj
def merge(
    context: AppContext,
    /,
    other: str,
    phases: tuple[int, ...],
    session_name: str | None,
    prefer: Literal["ours", "theirs"] | None,
) -> None:
    r"""Merge the texts of another session's phases.

    Into the session that -s names, else into the one that SESSION was forked from. Only the text under Output is
    merged, from what both were when they parted or were merged last; rows of tables by their first cell. The result is
    your revision, and the gate of the phase opens. Where both changed the same, your editor opens with both versions
    between conflict markers; without a terminal nothing is merged (exit 8).

    \b
    Examples:
      haytham merge cheaper --phase 2
      haytham merge cheaper --phase 2 --phase 3 -s 9f3ac1 --theirs
    """
    source = context.workspace.session(other)
    session = source.parent if session_name is None else context.workspace.session(session_name)
    editor = partial(open_editor, otherwise=_CONFLICTS_STAY) if context.can_ask() else None
    result = session.merge(source, phases, prefer=prefer, open_editor=editor)
    ids = {"project": session.project_id, "session": session.session_id, "from": source.session_id}
    facts: dict[str, Any] = {**ids, "phases": list(result.merged), "unchanged": list(result.unchanged)}
    facts |= {"documents": [page.path for page in result.pages], "problems": list(result.problems)}
    facts |= {"recovery": None if result.recovery is None else result.recovery.id}
    context.output("merge", facts, "\n".join(_merge_lines(context, session, result)))
    if result.problems:
        raise click.exceptions.Exit(CONFLICT)


_CONFLICTS_STAY = "the conflicts stay marked in the page, which cannot be approved with them"


def _merge_lines(context: AppContext, session: Session, result: MergeResult) -> list[str]:
    """Return what became of each phase, what is left to resolve, and what to do next."""
    names = {phase.number: phase.name for phase in session.phases}
    lines = editor_lines(result.editor)
    waits = dict.fromkeys(result.opened, ", waits for review")
    lines += [f"phase {n}, {names[n]}: merged with {result.source}{waits.get(n, '')}" for n in result.merged]
    lines += [f"phase {n}, {names[n]}: nothing new in {result.source}" for n in result.unchanged]
    lines += result.problems
    if result.recovery is not None and not context.options.quiet:
        hint = context.session_hint(session, "-s")
        lines.append(f"to see what changed: haytham diff {result.recovery.id}{hint}")
        lines.append(f"to undo the merge: haytham restore {result.recovery.id}")
        lines += [f"to go on: haytham review {number}{hint}" for number in result.opened[:1]]
    return [sanitize(line) for line in lines]
