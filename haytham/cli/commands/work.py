"""The command that runs whatever session can go on."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.commands.run import describe_result
from haytham.cli.context import ERROR, AppContext, Stopped, echo, sanitize, until_signalled

if TYPE_CHECKING:
    from haytham.app.session import Session
    from haytham.app.work import WorkResult


@click.command
@click.option("--once", is_flag=True, help="End when no session can go on.")
@click.option("--user", help="Who you are, for decisions made in an editor.")
@click.pass_obj
def work(context: AppContext, /, *, once: bool, user: str | None) -> None:
    r"""Run any session that can go on, one after the other.

    That is a trusted one that does not wait for a person, has not failed and is not paused. Several workers on one
    folder divide the sessions: two never run one at once, and that of a worker that died is taken over. Without --once
    it waits for sessions until Ctrl-C. With --json the answer is an object for each run, one a line.

    \b
    Examples:
      haytham work --once
      haytham work & haytham work &
    """
    start, finish = partial(_tell_start, context), partial(_tell_result, context)
    workspace = context.workspace
    try:
        results = until_signalled(lambda: workspace.work_async(once=once, by=user, on_start=start, on_result=finish))
    except Stopped as stopped:
        name = signal.Signals(stopped.number).name
        echo(f"haytham: stopped by {name}; what was run can go on: haytham work", err=True)
        raise click.exceptions.Exit(128 + stopped.number) from None
    if not results:
        context.info("no session can go on")
    if any(one.error is not None or (one.result is not None and one.result.status == "failed") for one in results):
        raise click.exceptions.Exit(ERROR)


def _tell_start(context: AppContext, session: Session) -> None:
    context.info(f"session {session.id}")


def _tell_result(context: AppContext, work: WorkResult) -> None:
    """Print how a run ended, at once."""
    if work.result is not None:
        facts, sentence = describe_result(context, work.session, work.result)
        context.output("run", facts, sentence)
        return
    said = sanitize(str(work.error))
    ids: dict[str, Any] = {"project": work.session.project_id, "session": work.session.session_id}
    context.output("run", {**ids, "status": "error", "why": said}, f"session {work.session.id}: {said}")
