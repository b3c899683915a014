"""Driving a session from the terminal: until it is done, a person is needed, or a signal stops it."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import click

from haytham.cli.context import Here, echo, who
from haytham.cli.ending import tell_end, tell_hints

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from haytham.cli.progress_view import View
    from haytham.cli.ways import Asking
    from haytham.runner import Outcome
    from haytham.session import Session


def drive(  # noqa: PLR0913 - what is run, for whom, and how it is asked
    here: Here,
    session: Session,
    asking: Asking,
    *,
    yes: bool,
    user: str | None,
    retry: int | None = None,
    anyway: bool = False,
) -> None:
    """Run a session, ask at its gates where a person is there to answer, and exit with what came of it."""
    from haytham.cli.progress_view import View  # noqa: PLC0415
    from haytham.cli.prompt import ask_at_gate  # noqa: PLC0415

    by, view = who(user, session), View(here.options)
    while True:
        outcome = _run(here, session, asking, view, by=by, yes=yes, retry=retry, anyway=anyway)
        retry = None
        if outcome.status != "waiting" or outcome.agents or not here.can_ask():
            break
        if not ask_at_gate(here, session, outcome, by, seen=view.seen):
            break
    code = tell_end(here, session, outcome)
    tell_hints(here, session, outcome, view.models)
    raise click.exceptions.Exit(code)


def _run(  # noqa: PLR0913 - who runs what, how, and who looks on
    here: Here, session: Session, asking: Asking, view: View, *, by: str, yes: bool, retry: int | None, anyway: bool
) -> Outcome:
    from haytham.cli.trust import may_run_code, see_own_modules  # noqa: PLC0415
    from haytham.event import Events  # noqa: PLC0415
    from haytham.runner import Runner  # noqa: PLC0415
    from haytham.session.layout import EVENTS  # noqa: PLC0415

    events = Events(session.store, session.prefix + EVENTS)
    trusted = may_run_code(session)
    if trusted:
        see_own_modules()
    approve_as, ways = by if yes else None, asking.ways(session)
    runner = Runner(session, events, approve_as=approve_as, may_run_code=trusted, ways=ways)
    try:
        with view.following(events):
            return _until_signalled(lambda: runner.run(by=by, retry=retry, anyway=anyway))
    except _Stopped as stopped:  # told below the live view, which is gone by now
        _tell_stopped(here, session, stopped.number)
        raise click.exceptions.Exit(128 + stopped.number) from None


class _Stopped(Exception):
    """A signal stopped the run."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


def _until_signalled(run: Callable[[], Awaitable[Outcome]]) -> Outcome:
    """Run until an outcome; Ctrl-C and SIGTERM stop between two writes, and the session can be resumed."""
    got: list[int] = []

    async def work() -> Outcome:
        task = asyncio.ensure_future(run())
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            got.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        return await task

    try:
        return asyncio.run(work())
    except asyncio.CancelledError:
        raise _Stopped(got[0] if got else signal.SIGINT) from None


def _tell_stopped(here: Here, session: Session, number: int) -> None:
    name = signal.Signals(number).name
    ids = {"project": session.project_id, "session": session.session_id}
    facts = {**ids, "status": "stopped", "signal": name}
    if here.options.as_json:
        here.answer("run", facts, "")
    echo(f"haytham: stopped by {name}; go on with: haytham resume{here.named(session)}", err=True)
