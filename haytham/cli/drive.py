"""Driving a session from the terminal: until it is done, a person is needed, or a signal stops it."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import click

from haytham.cli.context import BUDGET, ERROR, REJECTED, WAITING, Here, harmless, who

if TYPE_CHECKING:
    from haytham.runner import Outcome, Runner
    from haytham.session import Session


def drive(here: Here, session: Session, *, yes: bool, user: str | None) -> None:
    """Run a session, ask at its gates where a person is there to answer, and exit with what came of it."""
    from haytham.cli.prompt import ask_at_gate  # noqa: PLC0415

    by = who(user)
    while True:
        outcome = _run(here, session, by, yes=yes)
        if outcome.status != "waiting" or not here.can_ask() or not ask_at_gate(here, session, outcome, by):
            break
    _finish(here, session, outcome)


def _run(here: Here, session: Session, by: str, *, yes: bool) -> Outcome:
    from haytham.cli.progress_view import following  # noqa: PLC0415
    from haytham.cli.trust import may_run_code, see_own_modules  # noqa: PLC0415
    from haytham.event import Events  # noqa: PLC0415
    from haytham.runner import Runner  # noqa: PLC0415
    from haytham.session.layout import EVENTS  # noqa: PLC0415

    events = Events(session.store, session.prefix + EVENTS)
    trusted = may_run_code(session)
    if trusted:
        see_own_modules()
    runner = Runner(session, events, approve_as=by if yes else None, may_run_code=trusted)
    try:
        with following(events, here.options):
            return _until_signalled(runner, by)
    except _Stopped as stopped:  # told below the live view, which is gone by now
        _tell_stopped(here, session, stopped.number)
        raise click.exceptions.Exit(128 + stopped.number) from None


class _Stopped(Exception):
    """A signal stopped the run."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


def _until_signalled(runner: Runner, by: str) -> Outcome:
    """Run until an outcome; Ctrl-C and SIGTERM stop between two writes, and the session can be resumed."""
    got: list[int] = []

    async def work() -> Outcome:
        task = asyncio.ensure_future(runner.run(by=by))
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
    facts = {**_ids(session), "status": "stopped", "signal": name}
    if here.options.as_json:
        here.answer("run", facts, "")
    click.echo(f"haytham: stopped by {name}; go on with: haytham resume{here.named(session)}", err=True)


def _finish(here: Here, session: Session, outcome: Outcome) -> None:
    """Say in one line how the run ended and how to go on, and exit with the code of that."""
    number = outcome.phase.number if outcome.phase is not None else None
    code = {"completed": 0, "waiting": WAITING, "rejected": REJECTED, "paused": BUDGET}.get(outcome.status, ERROR)
    facts = {**_ids(session), "status": outcome.status, "phase": number, "agents": list(outcome.agents)}
    errors = _errors(session, outcome)
    sentence = harmless(_sentence(here, session, outcome, errors))
    here.answer("run", {**facts, "why": outcome.why, "errors": errors}, sentence)
    raise click.exceptions.Exit(code)


def _sentence(here: Here, session: Session, outcome: Outcome, errors: list[str]) -> str:
    phase, name = outcome.phase, f"{session.project_id}/{session.session_id}"
    which, option = here.named(session), here.named(session, "-s")
    if phase is None:
        return f"session {name} is {outcome.status}"
    if outcome.status == "waiting":
        ways = f"haytham review{option}, or haytham approve{option} && haytham resume{which}"
        return f"phase {phase.number}, {phase.name}, waits for review: {ways}"
    if outcome.status == "failed":
        said = "; ".join(errors) or outcome.why
        return (
            f"phase {phase.number}, {phase.name}, failed: {said}; try again with: haytham retry {phase.number}{which}"
        )
    why = f": {outcome.why}" if outcome.why else ""
    return f"session {name} is {outcome.status} in phase {phase.number}, {phase.name}{why}"


def _errors(session: Session, outcome: Outcome) -> list[str]:
    """What the agents that failed said."""
    if outcome.status != "failed" or outcome.phase is None:
        return []
    checkpoint = session.read().checkpoint(outcome.phase)
    return [] if checkpoint is None else list(checkpoint.value.get("errors") or [])


def _ids(session: Session) -> dict[str, str]:
    return {"project": session.project_id, "session": session.session_id}
