"""`run`, `resume` and `retry`: drive a session until it is done or a person is needed."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import ERROR, REJECTED, WAITING, Here, who

if TYPE_CHECKING:
    from haytham.runner import Outcome, Runner
    from haytham.session import Session

_UNFINISHED = ("in_progress", "waiting", "paused", "failed")


@click.command
@click.argument("idea")
@click.option("--mode", default="mvp", show_default=True, help="Which phases: a mode of the workflow.")
@click.option("--name", help="A name for the project; else the first words of the idea.")
@click.option("--project", help="Start another session of a project that is there.")
@click.option("--user", help="Who you are; else HAYTHAM_USER, git's user.email, the login name.")
@click.option(
    "--workflow",
    "workflow_name",
    default="idea_validation",
    show_default=True,
    help="A name, a folder or a workflow.yaml.",
)
@click.option("--model", help="The model for agents that have none of their own.")
@click.option("--yes", is_flag=True, help="Approve every phase; the record says so.")
@click.pass_obj
def run(here: Here, /, idea: str, yes: bool, **given: Any) -> None:  # noqa: FBT001 - click's switch
    r"""Take an idea through the phases: IDEA is text, a file, or - for standard input.

    \b
    Examples:
      haytham run "Lend rain barrels to gardens"
      haytham run idea.md --mode full --name "Rain barrels"
      echo "Lend rain barrels" | haytham --no-input run - --yes
    """
    from haytham.cli.trust import trust  # noqa: PLC0415
    from haytham.workflow import load_workflow  # noqa: PLC0415

    source = load_workflow(given["workflow_name"], here.options.folder)
    session = _start(here, _read_idea(here, idea), source, given)
    if given["workflow_name"] != source.workflow.name or given["model"]:
        trust(session)
    here.say(f"session {session.project_id}/{session.session_id}")
    _drive(here, session, yes=yes, user=given["user"])


@click.command
@click.argument("session_name", metavar="[SESSION]", required=False)
@click.option("--user", help="Who you are, for decisions made in an editor.")
@click.option("--yes", is_flag=True, help="Approve every phase; the record says so.")
@click.option("--trust", "trusting", is_flag=True, help="Let this session's workflow run code on this machine.")
@click.option("--accept-workflow", is_flag=True, help="Go on with the workflow as it is in its folder now.")
@click.option("--keep-workflow", is_flag=True, help="Go on with the workflow as the session has it.")
@click.pass_obj
def resume(here: Here, /, session_name: str | None, *, user: str | None, yes: bool, **ways: bool) -> None:
    r"""Go on with a session from what its files say now.

    \b
    Examples:
      haytham resume
      haytham resume 9f3ac1 --yes
    """
    from haytham.cli.origin import check_origin  # noqa: PLC0415
    from haytham.cli.trust import trust  # noqa: PLC0415

    session = here.choose(session_name, among=_UNFINISHED)
    check_origin(here, session, accept=ways["accept_workflow"], keep=ways["keep_workflow"])
    if ways["trusting"]:
        trust(session)
    _drive(here, session, yes=yes, user=user)


@click.command
@click.argument("phase", type=int)
@click.argument("session_name", metavar="[SESSION]", required=False)
@click.option("--user", help="Who you are.")
@click.pass_obj
def retry(here: Here, /, phase: int, session_name: str | None, user: str | None) -> None:
    r"""Run a phase again: of a failed one the failed agents, of a skipped one all, else a new attempt.

    \b
    Example:
      haytham retry 2
    """
    from haytham.session.gate import Gate  # noqa: PLC0415
    from haytham.session.layout import session_lock  # noqa: PLC0415

    session = here.choose(session_name, among=(*_UNFINISHED, "completed"))
    with here.store.run_lock(session_lock(session.project_id, session.session_id)):
        Gate(session).retry(phase)
    _drive(here, session, yes=False, user=user)


def _read_idea(here: Here, idea: str) -> str:
    if idea == "-":
        return sys.stdin.read()
    path = here.options.folder / idea
    try:
        return path.read_text(encoding="utf-8-sig") if path.is_file() else idea
    except (OSError, ValueError):  # a text that is no name of a file
        return idea


def _start(here: Here, idea: str, source: Any, given: dict[str, Any]) -> Session:
    from haytham import clock  # noqa: PLC0415
    from haytham.event import Events  # noqa: PLC0415
    from haytham.project.project_manager import ProjectManager, name_of  # noqa: PLC0415
    from haytham.session.doctor import STARTED  # noqa: PLC0415
    from haytham.session.layout import EVENTS  # noqa: PLC0415

    if not idea.strip():
        raise click.UsageError("the idea is empty; say it in a sentence")
    source.workflow.mode_phases(given["mode"])
    projects = ProjectManager(here.base)
    user = who(given["user"])
    if given["project"]:
        project_id = projects.get_project_status(given["project"])["project_id"]
    else:
        name = given["name"] or name_of(idea)
        project_id = projects.create_project(user, idea, project_name=name, execution_mode=given["mode"])["project_id"]
    session = here.session(project_id, clock.new_id())
    session.create(user_id=user, source=source, mode=given["mode"], model=given["model"])
    facts = {"user": user, "mode": given["mode"], "workflow": source.digest, "origin": source.origin}
    Events(session.store, session.prefix + EVENTS).emit(STARTED, **facts, model=given["model"])
    return session


def _drive(here: Here, session: Session, *, yes: bool, user: str | None) -> None:
    """Run a session, ask at its gates where a person is there to answer, and exit with what came of it."""
    from haytham.cli.progress_view import following  # noqa: PLC0415
    from haytham.cli.prompt import ask_at_gate  # noqa: PLC0415
    from haytham.cli.trust import may_run_code  # noqa: PLC0415
    from haytham.event import Events  # noqa: PLC0415
    from haytham.runner import Runner  # noqa: PLC0415
    from haytham.session.layout import EVENTS  # noqa: PLC0415

    by = who(user)
    while True:
        events = Events(session.store, session.prefix + EVENTS)
        runner = Runner(session, events, approve_as=by if yes else None, may_run_code=may_run_code(session))
        with following(events, here.options):
            outcome = _until_signalled(runner, by)
        if outcome.status != "waiting" or not _can_ask(here) or not ask_at_gate(here, session, outcome, by):
            break
    _finish(here, session, outcome)


def _can_ask(here: Here) -> bool:
    return not (here.options.no_input or here.options.as_json) and sys.stdin.isatty() and sys.stdout.isatty()


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
        click.echo("haytham: stopped; go on with: haytham resume", err=True)
        sys.exit(128 + got[0] if got else ERROR)


def _finish(here: Here, session: Session, outcome: Outcome) -> None:
    number = outcome.phase.number if outcome.phase is not None else None
    name = f"{session.project_id}/{session.session_id}"
    sentence, code = {
        "completed": (f"session {name} is completed", 0),
        "waiting": (f"phase {number} waits for review: haytham review, or haytham approve && haytham resume", WAITING),
        "rejected": (f"session {name} was rejected in phase {number}", REJECTED),
        "failed": (f"phase {number}: {outcome.why}; try again with: haytham retry {number}", ERROR),
    }[outcome.status]
    facts = {"project": session.project_id, "session": session.session_id, "status": outcome.status, "phase": number}
    here.answer("run", {**facts, "agents": list(outcome.agents), "why": outcome.why}, sentence)
    sys.exit(code)
