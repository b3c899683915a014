"""`list` and `show`: look at sessions and texts. They write nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import INVALID, PHASE, AppContext, UsageError, echo, in_a_line, sanitize
from haytham.cli.options import complete_snapshots, session_option

if TYPE_CHECKING:
    from haytham.app.results import SessionListing
    from haytham.app.session import Session
    from haytham.history.snapshot import Snapshot


@click.command("list")
@click.pass_obj
def list_(context: AppContext) -> None:
    r"""List all sessions, the one changed last first.

    \b
    Example:
      haytham list --json
    """
    listings = sorted(context.workspace.list(), key=lambda one: (one.last_updated, one.session_id), reverse=True)
    rows, names = [_row(one) for one in listings], [in_a_line(one.id) for one in listings]
    width = max(map(len, names), default=0)
    about = zip(names, listings, strict=True)
    lines = [f"{name:<{width}}  {one.status:<11}  {one.last_updated}".rstrip() for name, one in about]
    nothing = f"there is no session in {context.base}/; start one with: haytham run IDEA"
    context.output("sessions", {"sessions": rows}, "\n".join(lines) or nothing)
    faults = [one.error for one in listings if one.error is not None]
    for error in faults if not context.options.as_json else ():
        echo(f"haytham: {error}", err=True)
    if faults:
        raise click.exceptions.Exit(INVALID)


def _row(one: SessionListing) -> dict[str, Any]:
    ids = {"project": one.project_id, "session": one.session_id}
    problem = None if one.error is None else str(one.error)
    return {**ids, "status": one.status, "last_updated": one.last_updated, "problem": problem}


@click.command
@click.argument("phase", type=PHASE, required=False)
@click.argument("agent", required=False)
@session_option(argument=False)
@click.option("--attempt", type=int, help="An earlier attempt, by its number.")
@click.option("--task", is_flag=True, help="What the agents were asked, instead of what they wrote.")
@click.option("--at", metavar="ID", help="As it was in a snapshot, by number or id.", shell_complete=complete_snapshots)
@click.option("--path", help="With --at: any document of the session, by its path.")
@click.pass_obj
def show(context: AppContext, /, phase: int | None, agent: str | None, **given: Any) -> None:
    r"""Show what agents wrote, or were asked.

    Without PHASE, in the one saved last.

    \b
    Examples:
      haytham show
      haytham show 2 market_intelligence --attempt 1
      haytham show 3 --task
      haytham show 2 --at 9f3ac1
      haytham show --at 4 --path state.md
    """
    workspace = context.workspace
    if given["path"] is not None:
        if given["at"] is None or phase is not None:
            raise UsageError("--path is for a document of a snapshot: haytham show --at ID --path PATH")
        _show_document(context, *workspace.snapshot(given["at"], given["session_name"]), given["path"])
        return
    session, moment = _session(context, given)
    number = session.current_phase() if phase is None else session.phase(phase).number
    texts = _texts(session, number, agent, given)
    ids = {"project": session.project_id, "session": session.session_id, "phase": number}
    attempt = given["attempt"] or session.attempt(number)
    facts = {**ids, **moment, "attempt": attempt, "task": given["task"], "texts": texts}
    context.output("texts", facts, _joined(texts, agent))


def _session(context: AppContext, given: dict[str, Any]) -> tuple[Session, dict[str, str]]:
    """Return the session that is meant, as it is, or as it was in a snapshot; and which snapshot that is."""
    if given["at"] is None:
        return context.workspace.session(given["session_name"]), {}
    session, snapshot = context.workspace.snapshot(given["at"], given["session_name"])
    return session.at(snapshot), {"snapshot": snapshot.id}


def _show_document(context: AppContext, session: Session, snapshot: Snapshot, path: str) -> None:
    """Print any document of a snapshot, as it was to the letter."""
    history = session.history
    names = history.documents(snapshot)
    if path not in names:
        listing = "".join(f"\n  {name}" for name in names)
        raise UsageError(f"snapshot {snapshot.number} holds no document {path!r}; it holds:{listing}")
    text = history.read(snapshot, path).decode("utf-8", "replace")
    ids = {"project": snapshot.project, "session": snapshot.session, "snapshot": snapshot.id}
    context.output("document", {**ids, "path": path, "text": text}, sanitize(text).removesuffix("\n"))


def _joined(texts: dict[str, str], agent: str | None) -> str:
    """Return one text as it is; several, or those of a phase, each under a line with its agent."""
    if agent is not None:
        return sanitize(texts[agent]).removesuffix("\n")
    return "\n\n".join(f"--- {name}\n\n{sanitize(text).rstrip()}" for name, text in texts.items())


def _texts(session: Session, number: int, agent: str | None, given: dict[str, Any]) -> dict[str, str]:
    """Return the texts that were asked for; a mistake says which there are."""
    attempt, last, phase = given["attempt"], session.attempt(number), session.phase(number)
    if attempt is not None and not 1 <= attempt <= last:
        raise UsageError(f"phase {number} has no attempt {attempt}; name one of 1 to {last}")
    texts = session.texts(number, attempt=attempt, tasks=given["task"])
    what = "task" if given["task"] else "output"
    where = f"phase {number}, {phase.name}," + (f" attempt {attempt}," if attempt is not None else "")
    if not texts and given["at"] is not None:
        raise UsageError(f"{where} had no {what} then; haytham checkpoints lists what other snapshots there are")
    if not texts:
        raise UsageError(f"{where} has no {what} yet; haytham status shows where the session stands")
    if agent is None:
        return texts
    if agent not in texts:
        raise UsageError(f"{where} has no {what} of {agent!r}; name one of {', '.join(texts)}")
    return {agent: texts[agent]}
