"""`run`, `resume` and `retry`: drive a session until it is done or a person is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from haytham.cli.completion import complete_both
from haytham.cli.context import (
    PHASE,
    TO_GO_BACK,
    UNFINISHED,
    Here,
    NoSnapshot,
    Usage,
    is_number,
    session_names,
    who,
)
from haytham.cli.ways import asking_options, read_asking
from haytham.cli.wish import check_wish, hand_over, read_wish

if TYPE_CHECKING:
    from haytham.session import Session

_WHO = "Who you are, also at later gates; else HAYTHAM_USER, git's user.email, the login name."


@click.command
@click.argument("idea", metavar="IDEA|FILE|-", required=False)
@click.option("--mode", help="Which phases: a mode of the workflow.  [default: mvp, else its first one]")
@click.option("--name", help="A name for the project; else the first words of the idea.")
@click.option(
    "--project", help="Start another session of a project that is there, by its id; its idea need not be said again."
)
@click.option("--user", help=_WHO)
@click.option("--workflow", help="A name, a folder or a workflow.yaml.  [default: idea_validation]")
@asking_options
@click.option("--yes", is_flag=True, help="Approve every phase; the record says so.")
@click.pass_obj
def run(here: Here, /, idea: str | None, yes: bool, **given: Any) -> None:  # noqa: FBT001 - click's switch
    r"""Take an idea through the phases.

    The idea is given as text, as a file, or as - for standard input. HAYTHAM_MODEL names a model where --model does
    not. HAYTHAM_MAX_OUTPUT_TOKENS says how long an answer may be, whatever agents' files say.

    \b
    Examples:
      haytham run "Lend rain barrels to gardens"
      haytham run idea.md --mode full --name "Rain barrels"
      haytham run idea.md --model anthropic:claude-sonnet-4-5 --max-cost 2.50
      haytham run idea.md --model "command:claude -p" --max-tokens 200000
      haytham run --project rain_barrels
      echo "Lend rain barrels" | haytham run - --yes --no-input
    """
    from haytham.cli.drive import drive  # noqa: PLC0415
    from haytham.cli.start import read_idea, start  # noqa: PLC0415

    asking = read_asking(given, starts=True)
    session = start(here, read_idea(idea), given, asking)
    here.say(f"session {session.project_id}/{session.session_id}")
    drive(here, session, asking, yes=yes, user=given["user"])


@click.command
@click.argument("which", metavar="[SESSION|SNAPSHOT]", required=False, shell_complete=complete_both)
@session_names(argument=False)
@click.option("--input", "wish", metavar="TEXT|-", help="What you ask of the next phase that runs; - reads it.")
@click.option("--user", help="Who you are, for decisions made in an editor.")
@asking_options
@click.option("--yes", is_flag=True, help="Approve every phase; the record says so.")
@click.option("--trust", "trusting", is_flag=True, help="Let this session's workflow and model run code here.")
@click.option("--accept-workflow", is_flag=True, help="Go on with the workflow as it is in its folder now.")
@click.option("--keep-workflow", is_flag=True, help="Go on with the workflow as the session has it.")
@click.pass_obj
def resume(here: Here, /, which: str | None, session_name: str | None, *, user: str | None, **ways: Any) -> None:
    r"""Go on with a session from what its files say now.

    With a SNAPSHOT, by any unique part of its id (with -s also by its number), from what it was then.

    \b
    Examples:
      haytham resume
      haytham resume 9f3ac1 --yes
      haytham resume --input "Name three rivals in Lyon"
      haytham resume --max-cost 5
      haytham resume --accept-workflow
    """
    from haytham.cli.drive import drive  # noqa: PLC0415
    from haytham.cli.origin import check_origin  # noqa: PLC0415
    from haytham.cli.trust import trust  # noqa: PLC0415

    asking, wish = read_asking(ways), read_wish(ways["wish"])
    session = _meant(here, which, session_name, with_input=wish is not None)
    check_origin(here, session, accept=ways["accept_workflow"], keep=ways["keep_workflow"])
    asking.settle(session)
    if ways["trusting"]:
        trust(session)
    if wish is not None:
        hand_over(here, session, wish, who(user, session))
    drive(here, session, asking, yes=ways["yes"], user=user)


def _meant(here: Here, which: str | None, session_name: str | None, *, with_input: bool) -> Session:
    """The session that is meant; where a snapshot is named, made what it was then."""
    from haytham.cli.moment import restore, session_at  # noqa: PLC0415
    from haytham.cli.snapshot_view import named  # noqa: PLC0415

    if which is not None and session_name is None and is_number(which) and len(here.folders(None)) > 1:
        raise Usage(f"{which} is the number of a snapshot in which session? say it with -s SESSION")
    if which is None or (session_name is None and not is_number(which) and here.folders(which)):
        return here.choose(which or session_name, among=UNFINISHED)
    try:
        history, snapshot = here.snapshot(which, session_name, among=TO_GO_BACK)
    except NoSnapshot:
        if session_name is not None:
            raise
        ways = "haytham list and haytham checkpoints --all tell what there is"
        raise Usage(f"no session and no snapshot matches {which!r}; {ways}") from None
    if with_input:
        check_wish(session_at(here, snapshot))
    recovery, moved = restore(here, history, snapshot)
    here.say(f"restored {named(snapshot)}: {moved.sentence()}; to undo that: haytham restore {recovery.id}")
    return history.session


@click.command
@click.argument("phase", type=PHASE)
@session_names(argument=True)
@click.option("--user", help="Who you are; else HAYTHAM_USER, who started the session, git's user.email, the login.")
@click.option("--anyway", is_flag=True, help="Also while phases that it needs have work left: on what is there.")
@asking_options
@click.pass_obj
def retry(here: Here, /, phase: int, session_name: str | None, user: str | None, *, anyway: bool, **given: Any) -> None:
    r"""Run a phase again.

    Of a failed phase the failed agents, of a skipped one all of them; else a new attempt, whose gate opens. Refused
    while a phase that it needs has work left, unless --anyway is given.

    \b
    Examples:
      haytham retry 2
      haytham retry 2 --model openai:gpt-5
    """
    from haytham.cli.drive import drive  # noqa: PLC0415
    from haytham.cli.origin import check_origin  # noqa: PLC0415

    asking = read_asking(given)
    session = here.choose(session_name, among=UNFINISHED)
    check_origin(here, session, accept=False, keep=False)
    asking.settle(session)
    drive(here, session, asking, yes=False, user=user, retry=phase, anyway=anyway)
