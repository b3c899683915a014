"""`fork`, `diff`, `merge` and `discard`: other ways to go on from the same ground, compared and brought together."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import (
    ERROR,
    PHASE,
    UNFINISHED,
    AppContext,
    SnapshotNotFound,
    UsageError,
    confirm,
    is_number,
    resolve_snapshot,
    sanitize,
)
from haytham.cli.options import complete_both, complete_sessions, complete_snapshots, session_option
from haytham.cli.output import pluralize, snapshot_title
from haytham.errors import HaythamError, NotFound

if TYPE_CHECKING:
    from haytham.config.workflow import WorkflowFiles
    from haytham.history.history import History
    from haytham.history.snapshot import Snapshot
    from haytham.session import Session

_WHAT_THERE_IS = "haytham list and haytham checkpoints --all tell what there is"


@click.command
@click.argument("which", metavar="[ID]", required=False, shell_complete=complete_snapshots)
@click.option("--name", required=True, help="The id of the new session.")
@click.option("--purpose", help="What it is for, in a line.")
@click.option("--model", help="The model for agents that name none of their own.")
@click.option("--workflow", help="Go on with another workflow: a name, a folder or a workflow.yaml.")
@session_option(argument=False)
@click.pass_obj
def fork(here: AppContext, /, which: str | None, session_name: str | None, **given: str | None) -> None:
    r"""Begin a session of its own from a snapshot.

    ID is the number of a snapshot, or any unique part of its id; without it, from the session as it is. The session
    that is forked is not touched.

    \b
    Examples:
      haytham fork 3 --name cheaper --purpose "the same for half the price"
      haytham fork --name other_model --model python:mine:agent
    """
    from haytham.cli.options import check_model  # noqa: PLC0415

    history, point = _fork_point(here, which, session_name)
    model, source = check_model(given["model"]), _workflow(history.session, given["workflow"])
    child = history.fork(point, name=given["name"] or "", purpose=given["purpose"])
    _equip(here, child, model, source)
    ids = {"project": child.project_id, "session": child.session_id, "forked_from": history.session.session_id}
    fork_point = child.read().manifest.value.get("fork_point")
    of = "as it is" if fork_point is None else f"as it was in {snapshot_title(resolve_snapshot(history, fork_point))}"
    told = [f"session {child.project_id}/{child.session_id} is a fork of {history.session.session_id} {of}"]
    told += [] if here.options.quiet else [f"to go on with it: haytham resume {child.session_id}"]
    facts = {**ids, "fork_point": fork_point, "purpose": given["purpose"]}
    here.output("fork", facts, "\n".join(map(sanitize, told)))


def _fork_point(here: AppContext, which: str | None, session_name: str | None) -> tuple[History, Snapshot | None]:
    if which is None:
        return here.history(here.resolve_session(session_name, among=UNFINISHED)), None
    return here.snapshot(which, session_name, among=UNFINISHED)


def _workflow(session: Session, name: str | None) -> WorkflowFiles | None:
    """The workflow that is named, refused before anything is made where the session could not go on with it."""
    from haytham.cli.options import REPLAY  # noqa: PLC0415
    from haytham.cli.start import check  # noqa: PLC0415
    from haytham.config.workflow import load_workflow  # noqa: PLC0415

    if name is None:
        return None
    found, manifest = load_workflow(name, Path()), session.read().manifest.value
    check(found, replayed=str(manifest.get("model", "")).startswith(REPLAY))
    found.workflow.mode_phases(manifest["execution_mode"])
    return found


def _equip(here: AppContext, child: Session, model: str | None, source: WorkflowFiles | None) -> None:
    """Give a fork its own workflow and model; who names them trusts them."""
    from haytham.cli.options import set_model  # noqa: PLC0415
    from haytham.cli.trust import trust  # noqa: PLC0415

    for line in child.switch_workflow(source) if source is not None else ():
        here.info(line)
    if source is not None:
        trust(child)
    if model is not None:
        set_model(child, model)


@click.command
@click.argument("old", metavar="A", shell_complete=complete_both)
@click.argument("new", metavar="[B]", required=False, shell_complete=complete_both)
@click.option("--stat", "only_counts", is_flag=True, help="Only how many lines each document gained and lost.")
@session_option(argument=False)
@click.pass_obj
def diff(here: AppContext, /, old: str, new: str | None, session_name: str | None, *, only_counts: bool) -> None:
    r"""Show what differs between two snapshots or sessions.

    A and B are snapshots, by number or any unique part of their ids, or sessions of the project. Without B, what
    differs from A to the session as it is.

    \b
    Examples:
      haytham diff 3
      haytham diff 3 5 --stat
      haytham diff 9f3ac1 cheaper --json
    """
    from haytham.cli import diff_output  # noqa: PLC0415

    history, first, second = _sides(here, old, new, session_name)
    found = history.compare(first, second)
    here.info(f"from: {_side_words(first)}\nto:   {_side_words(second)}\n")
    draws = not here.options.as_json
    text = (
        diff_output.stat(found)
        if only_counts
        else diff_output.render_diff(found, colour=_has_colours())
        if draws
        else ""
    )
    facts = {"old": _side_facts(first), "new": _side_facts(second), **diff_output.to_json(found)}
    here.output("diff", facts, text, has_colours=not only_counts)


def _has_colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _sides(
    here: AppContext, old: str, new: str | None, session_name: str | None
) -> tuple[History, Session | Snapshot, Session | Snapshot]:
    """What is to be compared: as named, else the session that is meant as it is."""
    base = _base(here, old, session_name)
    history = here.history(base)
    first = _side(here, history, old)
    if new is not None:
        return history, first, _side(here, history, new)
    if getattr(first, "session_id", None) == base.session_id:
        raise UsageError(f"say what to compare session {base.session_id} with: haytham diff {old} B")
    return history, first, base


def _base(here: AppContext, which: str, session_name: str | None) -> Session:
    """The session that is meant: as named, else that of the snapshot A, else the one saved last in A's project."""
    if session_name is not None:
        return here.resolve_session(session_name)
    named_so = [pair for pair in here.folders(which) if pair[1] == which]
    if not named_so:
        try:
            return here.snapshot(which, None)[0].session
        except SnapshotNotFound:
            if is_number(which):
                raise
            named_so = here.folders(which)
    if not named_so:
        raise UsageError(f"no session and no snapshot matches {which!r}; {_WHAT_THERE_IS}")
    last = here.resolve_session(None)
    return last if last.project_id == named_so[0][0] else here.session(*named_so[0])


def _side(here: AppContext, history: History, which: str) -> Session | Snapshot:
    """A session by its whole id, else a snapshot of the project, else a session by a unique part of its id."""
    from haytham.history.lookup import resolve_anywhere  # noqa: PLC0415

    project = history.session.project_id
    names = [session_id for project_id, session_id in here.folders(None) if project_id == project]
    if which in names:
        return here.session(project, which)
    if is_number(which):
        return resolve_snapshot(history, which)
    try:
        where, name = resolve_anywhere(here.archive(history.session), which)
        return where.records.read(name).snapshot
    except NotFound:
        matching = [name for name in names if which in name]
    if len(matching) == 1:
        return here.session(project, matching[0])
    said = f"{len(matching)} sessions match" if matching else "no snapshot and no session matches"
    raise UsageError(f"{said} {which!r} in project {project}; {_WHAT_THERE_IS}")


def _side_words(side: Session | Snapshot) -> str:
    from haytham.session import Session  # noqa: PLC0415

    if isinstance(side, Session):
        return sanitize(f"session {side.session_id} as it is")
    return sanitize(f"{snapshot_title(side)}, of session {side.session}")


def _side_facts(side: Session | Snapshot) -> dict[str, Any]:
    from haytham.session import Session  # noqa: PLC0415

    if isinstance(side, Session):
        return {"session": side.session_id, "snapshot": None}
    return {"session": side.session, "snapshot": side.id}


@click.command
@click.argument("other", metavar="SESSION", shell_complete=complete_sessions)
@click.option(
    "--phase", "phases", type=PHASE, multiple=True, required=True, help="A phase; may be given several times."
)
@session_option(argument=False)
@click.pass_obj
def merge(here: AppContext, /, other: str, phases: tuple[int, ...], session_name: str | None) -> None:
    r"""Take whole phases of another session.

    Into the session that -s names, else into the one that SESSION was forked from. Refused, with the list of
    documents, where both have changed a phase since they parted.

    \b
    Examples:
      haytham merge cheaper --phase 2
      haytham merge cheaper --phase 2 --phase 3 -s 9f3ac1
    """
    source = here.resolve_session(other)
    session = here.resolve_session(session_name) if session_name is not None else _parent(here, source)
    numbers = list(dict.fromkeys(phases))
    merged = here.history(session).merge(source, numbers)
    ids = {"project": session.project_id, "session": session.session_id, "from": source.session_id}
    left = [number for number in numbers if number not in merged]
    told = [_phase_words(session, number, f"is now that of {source.session_id}") for number in merged]
    told += [_phase_words(session, number, f"stays: there is nothing new in {source.session_id}") for number in left]
    told += [] if here.options.quiet or not merged else [f"to go on: haytham resume {session.session_id}"]
    here.output("merge", {**ids, "phases": merged, "unchanged": left}, "\n".join(told))


def _parent(here: AppContext, session: Session) -> Session:
    """The session that a fork comes from."""
    value = session.read().manifest.value
    if "forked_from" not in value:
        raise UsageError(f"{session.session_id} is no fork; say with -s which session takes its phases")
    return here.resolve_session(f"{session.project_id}/{value['forked_from']}")


def _phase_words(session: Session, number: int, words: str) -> str:
    return sanitize(f"phase {number}, {session.read().phase(number).name}, {words}")


@click.command
@session_option(argument=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def discard(here: AppContext, /, session_name: str | None, *, yes: bool) -> None:
    r"""Remove a fork, and only it.

    Its documents and snapshots go for good; the session it was forked from is not touched.

    \b
    Examples:
      haytham discard cheaper
      haytham discard cheaper --yes
    """
    if session_name is None:
        raise UsageError("say which fork is to go; haytham list shows all sessions")
    session = here.resolve_session(session_name)
    name = f"{session.project_id}/{session.session_id}"
    if not yes and _is_fork(session):
        _confirm(here, session, name)
    here.history(session).discard()
    facts = {"project": session.project_id, "session": session.session_id}
    here.output("discard", facts, f"fork {name} is gone")


def _is_fork(session: Session) -> bool:
    """Whether there is something to ask about: what is no fork is refused anyway."""
    try:
        return "forked_from" in session.read().manifest.value
    except (HaythamError, OSError):
        return False


def _confirm(here: AppContext, session: Session, name: str) -> None:
    if not here.can_ask():
        raise UsageError(
            f"a fork that is discarded is gone for good; say that you mean it: haytham discard {name} --yes"
        )
    documents = pluralize(len(session.store.keys(session.prefix)), "document")
    snapshots = pluralize(len(here.archive(session).records.refs()), "snapshot")
    if not confirm(f"remove fork {name} for good, with {documents} and {snapshots}?"):
        here.info("nothing was removed")
        raise click.exceptions.Exit(ERROR)
