"""`run`, `resume` and `retry`: drive a session until it is done or a person is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import PHASE, UNFINISHED, Here, session_names

if TYPE_CHECKING:
    from haytham.session import Session

_WHO = "Who you are; else HAYTHAM_USER, git's user.email, the login name."
_MODEL = "The model for agents that name none of their own; holds until it is changed."


@click.command
@click.argument("idea", metavar="IDEA|FILE|-", required=False)
@click.option("--mode", help="Which phases: a mode of the workflow.  [default: mvp, else its first one]")
@click.option("--name", help="A name for the project; else the first words of the idea.")
@click.option(
    "--project", help="Start another session of a project that is there, by its id; its idea need not be said again."
)
@click.option("--user", help=_WHO)
@click.option("--workflow", help="A name, a folder or a workflow.yaml.  [default: idea_validation]")
@click.option("--model", help=_MODEL)
@click.option("--yes", is_flag=True, help="Approve every phase; the record says so.")
@click.pass_obj
def run(here: Here, /, idea: str | None, yes: bool, **given: Any) -> None:  # noqa: FBT001 - click's switch
    r"""Take an idea through the phases.

    The idea is given as text, as a file, or as - for standard input.

    \b
    Examples:
      haytham run "Lend rain barrels to gardens"
      haytham run idea.md --mode full --name "Rain barrels"
      haytham run --project rain_barrels
      echo "Lend rain barrels" | haytham run - --yes --no-input
    """
    from haytham.cli.drive import drive  # noqa: PLC0415
    from haytham.cli.start import read_idea, start  # noqa: PLC0415

    session = start(here, read_idea(idea), given)
    here.say(f"session {session.project_id}/{session.session_id}")
    drive(here, session, yes=yes, user=given["user"])


@click.command
@session_names(argument=True)
@click.option("--user", help="Who you are, for decisions made in an editor.")
@click.option("--model", help=_MODEL)
@click.option("--yes", is_flag=True, help="Approve every phase; the record says so.")
@click.option("--trust", "trusting", is_flag=True, help="Let this session's workflow and model run code here.")
@click.option("--accept-workflow", is_flag=True, help="Go on with the workflow as it is in its folder now.")
@click.option("--keep-workflow", is_flag=True, help="Go on with the workflow as the session has it.")
@click.pass_obj
def resume(here: Here, /, session_name: str | None, *, user: str | None, yes: bool, **ways: Any) -> None:
    r"""Go on with a session from what its files say now.

    \b
    Examples:
      haytham resume
      haytham resume 9f3ac1 --yes
      haytham resume --accept-workflow
    """
    from haytham.cli.drive import drive  # noqa: PLC0415

    session = here.choose(session_name, among=UNFINISHED)
    _prepare(here, session, ways)
    drive(here, session, yes=yes, user=user)


@click.command
@click.argument("phase", type=PHASE)
@session_names(argument=True)
@click.option("--user", help=_WHO)
@click.pass_obj
def retry(here: Here, /, phase: int, session_name: str | None, user: str | None) -> None:
    r"""Run a phase again.

    Of a failed phase the failed agents, of a skipped one all of them; else a new attempt, whose gate opens.

    \b
    Example:
      haytham retry 2
    """
    from haytham.cli.drive import drive  # noqa: PLC0415
    from haytham.cli.origin import check_origin  # noqa: PLC0415
    from haytham.session.gate import Gate  # noqa: PLC0415
    from haytham.session.layout import session_lock  # noqa: PLC0415

    session = here.choose(session_name, among=UNFINISHED)
    check_origin(here, session, accept=False, keep=False)
    with here.store.run_lock(session_lock(session.project_id, session.session_id)):
        Gate(session).retry(phase)
    drive(here, session, yes=False, user=user)


def _prepare(here: Here, session: Session, ways: dict[str, Any]) -> None:
    """Settle what a session goes on with: which workflow, which model, and whether they may run code."""
    from haytham.cli.origin import check_origin  # noqa: PLC0415
    from haytham.cli.start import check_model  # noqa: PLC0415
    from haytham.cli.trust import trust  # noqa: PLC0415

    check_origin(here, session, accept=ways["accept_workflow"], keep=ways["keep_workflow"])
    model = check_model(ways["model"])
    if model is not None:
        session.change_manifest({"model": model})
    if ways["trusting"]:
        trust(session)
