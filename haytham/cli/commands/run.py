"""How a run ended, told in a sentence: what waits, failed or is paused, and the command that goes on.

Driving a session from the terminal: until it is done, a person is needed, or a signal stops it.

`run`, `resume` and `retry`: drive a session until it is done or a person is needed.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from haytham import errors
from haytham.cli.context import (
    BUDGET,
    ERROR,
    PHASE,
    REJECTED,
    TO_GO_BACK,
    UNFINISHED,
    WAITING,
    AppContext,
    SnapshotNotFound,
    UsageError,
    current_user,
    echo,
    is_number,
    sanitize,
)
from haytham.cli.options import complete_both, model_options, parse_model_options, session_option
from haytham.cli.output import assumed_words, fault_lines, spent_facts, suggest_limit, unknown_words
from haytham.cli.wish import give_input, read_input, require_runnable_phase
from haytham.redact import HIDDEN
from haytham.session.spend_log import SpendSummary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from haytham.cli.live import ProgressView
    from haytham.cli.options import ModelOptions
    from haytham.config.workflow import Phase
    from haytham.engine.runner import RunResult
    from haytham.session import Session
    from haytham.session.documents import StoredDocument
    from haytham.session.view import SessionView

_CODES = {"completed": 0, "waiting": WAITING, "rejected": REJECTED, "paused": BUDGET}
_MOST_COMPLAINTS = 5
_LONGEST = 300
_CROWDED_OUT = "a call found no room beside those that were made at the same time"
_WORKSHEET = "worksheet"
_MODELS = "--model anthropic:… (needs pip install 'haytham[llm]' and its key), --model command:'claude -p', "
_MODELS += "or --model python:module:function"


@dataclass(frozen=True)
class Failure:
    """An agent that failed: what it said, and what its reply was short of, where it had a contract to keep.

    `traceback` is the file that holds the traceback of an error that is not one of ours.
    """

    agent: str
    message: str
    complaints: tuple[str, ...] = ()
    traceback: str = ""

    def __str__(self) -> str:
        more = len(self.complaints) - _MOST_COMPLAINTS
        listed = [one_line(complaint) for complaint in self.complaints[:_MOST_COMPLAINTS]]
        listed += [f"and {more} more"] if more > 0 else []
        where = f" (traceback: {self.traceback})" if self.traceback else ""
        return "\n  ".join([f"{self.agent}: {one_line(self.message)}{where}", *listed])


def print_result(here: AppContext, session: Session, outcome: RunResult) -> int:
    """Say in one line how the run ended and how to go on; the exit code of that."""
    number = outcome.phase.number if outcome.phase is not None else None
    failures = _failures(session, outcome)
    following = _next(here, session, outcome, failures)
    sentence = _sentence(session, outcome, failures) + (f": {following}" if following else "")
    ids = {"project": session.project_id, "session": session.session_id}
    came = {"status": outcome.status, "phase": number, "agents": list(outcome.agents), "why": outcome.reason}
    facts = {
        **ids,
        **came,
        "errors": _errors(failures),
        "tracebacks": _tracebacks(failures),
        "next": following,
        **spent_facts(session.read()),
    }
    here.output("run", facts, sanitize(sentence))
    return _CODES.get(outcome.status, ERROR)


def _sentence(session: Session, outcome: RunResult, failures: list[Failure]) -> str:
    """What happened, up to where the command to go on follows."""
    phase, name = outcome.phase, f"session {session.project_id}/{session.session_id}"
    if phase is None:
        return f"{name} is {outcome.status}"
    where = f"phase {phase.number}, {phase.name}"
    if outcome.status == "waiting":
        written = outcome.reason.replace(session.prefix, f"{AppContext.base}/{session.prefix}")
        return f"{where}: {written}; then" if outcome.agents else f"{where}, waits for review"
    if outcome.status == "failed":
        said = [*map(str, failures)] or [outcome.reason]
        return f"{where}, failed: " + _break(failures).join([*said, "try again with"])
    why = outcome.reason or (_CROWDED_OUT if outcome.status == "paused" else "")
    on = "; go on with" if outcome.status == "paused" else ""
    return f"{name} is {outcome.status} in {where}" + (f": {why}" if why else "") + on


def _break(failures: list[Failure]) -> str:
    """What stands between errors, and before the way on: a list of complaints ends its line."""
    return "\n" if any(failure.complaints for failure in failures) else "; "


def _next(here: AppContext, session: Session, outcome: RunResult, failures: list[Failure]) -> str | None:
    """The command that goes on; None where the session is over."""
    if outcome.phase is None or outcome.status == "rejected":
        return None
    which, option, number = here.session_hint(session), here.session_hint(session, "-s"), outcome.phase.number
    if outcome.status == "waiting" and outcome.agents:  # which a person has to write
        return f"haytham resume{which}"
    if outcome.status == "waiting":
        return _review(session, number, which, option)
    if outcome.status == "paused":
        return f"haytham resume{which}{suggest_limit(session.read())}"
    again = f"haytham retry {number}{which}"
    if not any(failure.complaints for failure in failures):
        return again
    mended = f"haytham review {number}{option} && haytham approve {number}{option} && haytham resume{which}"
    return f"{again}, or mend the text in an editor and approve it: {mended}"


def _review(session: Session, number: int, which: str, option: str) -> str:
    """The commands that answer at a gate; of a phase run again on stale needs, what renews those, too."""
    if _is_next(session, number):
        return f"haytham review{option}, or haytham approve{option} && haytham resume{which}"
    approve = f"haytham approve {number} --anyway{option}"
    return f"haytham review {number}{option}, or {approve}; haytham resume{which} renews what it needs"


def _is_next(session: Session, number: int) -> bool:
    """Whether resume has nothing to do before a phase."""
    from haytham.session.plan import SessionPlan  # noqa: PLC0415

    place = SessionPlan(session.read()).next
    return place is not None and place.state.phase.number == number


def _failures(session: Session, outcome: RunResult) -> list[Failure]:
    """What the agents that failed said, by their own files."""
    if outcome.status != "failed" or outcome.phase is None:
        return []
    outputs = session.read().outputs(outcome.phase)
    return [_failure(name, outputs[name]) for name in outcome.agents if name in outputs]


def _failure(agent: str, output: StoredDocument) -> Failure:
    first, *rest = str(output.value.get("error_message") or "failed").strip().split("\n")
    kind = str(output.value.get("error_type"))
    complaints = (
        tuple(line.strip() for line in rest if line.strip()) if kind == errors.ContractViolation.__name__ else ()
    )
    return Failure(agent, first, complaints, "" if _is_ours(kind) else f"{AppContext.base}/{output.key}")


def _is_ours(error_type: str) -> bool:
    """Return whether an error is one that Haytham raises on purpose, by the name of its class."""
    found = getattr(errors, error_type, None)
    return isinstance(found, type) and issubclass(found, errors.HaythamError)


def _errors(failures: Iterable[Failure]) -> list[str]:
    return ["\n  ".join([f"{one.agent}: {one.message}", *one.complaints]) for one in failures]


def _tracebacks(failures: Iterable[Failure]) -> dict[str, str]:
    return {one.agent: one.traceback for one in failures if one.traceback}


def one_line(text: str) -> str:
    """What somebody else said, as it can stand within a sentence of ours."""
    line = " ".join(text.split()).rstrip(".;")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def redacted_words(reading: SessionView, phase: Phase) -> list[str]:
    """Say which replies of a phase held secrets of the environment, and are stored without them."""
    found = {agent: output.value.get("redacted") for agent, output in reading.outputs(phase).items()}
    return [
        f"{agent}: the value of a secret of your environment stood in {places} place{'s' * (places > 1)} of its reply, "
        f"and is stored as {HIDDEN}"
        for agent, places in found.items()
        if places
    ]


def hints(here: AppContext, session: Session, outcome: RunResult, models: set[str]) -> list[str]:
    """Return what is worth a word after a run: contract faults, no model asked, unknown costs, secrets in replies."""
    reading = session.read()
    is_gate = outcome.status == "waiting" and not outcome.agents
    said = fault_lines(reading, outcome.phase) if outcome.phase is not None and is_gate else []
    if models == {_WORKSHEET} and "model" not in reading.manifest.value:
        command = "run IDEA" if outcome.phase is None else f"resume{here.session_hint(session)}"
        said.append(f"these pages came from the built-in worksheet; for a model: haytham {command} {_MODELS}")
    if reading.limits.max_cost is not None:
        asked = SpendSummary(tuple(call for call in reading.spending().calls if call.model in models))
        said += [unknown_words(asked.total, reading.limits), assumed_words(asked)]
    if outcome.status == "waiting" and outcome.phase is not None:
        said += redacted_words(reading, outcome.phase)
    return [one for one in said if one]


def print_hints(here: AppContext, session: Session, outcome: RunResult, models: set[str]) -> None:
    """Tell these beside the answer, once."""
    if here.options.quiet or here.options.as_json:
        return
    for hint in hints(here, session, outcome, models):
        echo(f"haytham: {hint}", err=True)


def run_session(  # noqa: PLR0913 - what is run, for whom, and how it is asked
    here: AppContext,
    session: Session,
    asking: ModelOptions,
    *,
    yes: bool,
    user: str | None,
    retry: int | None = None,
    anyway: bool = False,
) -> None:
    """Run a session, ask at its gates where a person is there to answer, and exit with what came of it."""
    from haytham.cli.commands.review import prompt_for_decision  # noqa: PLC0415
    from haytham.cli.live import ProgressView  # noqa: PLC0415

    by, view = current_user(user, session), ProgressView(here.options)
    while True:
        outcome = _run(here, session, asking, view, by=by, yes=yes, retry=retry, anyway=anyway)
        retry = None
        if outcome.status != "waiting" or outcome.agents or not here.can_ask():
            break
        if not prompt_for_decision(here, session, outcome, by, seen=view.seen):
            break
    code = print_result(here, session, outcome)
    print_hints(here, session, outcome, view.models)
    raise click.exceptions.Exit(code)


def _run(  # noqa: PLR0913 - who runs what, how, and who looks on
    here: AppContext,
    session: Session,
    asking: ModelOptions,
    view: ProgressView,
    *,
    by: str,
    yes: bool,
    retry: int | None,
    anyway: bool,
) -> RunResult:
    from haytham.cli.trust import add_cwd_to_path, may_run_code  # noqa: PLC0415
    from haytham.engine.runner import Runner  # noqa: PLC0415
    from haytham.events import Events  # noqa: PLC0415
    from haytham.session.paths import EVENTS  # noqa: PLC0415

    events = Events(session.store, session.prefix + EVENTS)
    trusted = may_run_code(session)
    if trusted:
        add_cwd_to_path()
    approve_as, ways = by if yes else None, asking.run_options(session)
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


def _until_signalled(run: Callable[[], Awaitable[RunResult]]) -> RunResult:
    """Run until an outcome; Ctrl-C and SIGTERM stop between two writes, and the session can be resumed."""
    import asyncio  # noqa: PLC0415 - only where something runs

    got: list[int] = []

    async def work() -> RunResult:
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


def _tell_stopped(here: AppContext, session: Session, number: int) -> None:
    name = signal.Signals(number).name
    ids = {"project": session.project_id, "session": session.session_id}
    facts = {**ids, "status": "stopped", "signal": name}
    if here.options.as_json:
        here.output("run", facts, "")
    echo(f"haytham: stopped by {name}; go on with: haytham resume{here.session_hint(session)}", err=True)


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
@model_options
@click.option("--yes", is_flag=True, help="Approve every phase; the record says so.")
@click.pass_obj
def run(here: AppContext, /, idea: str | None, yes: bool, **given: Any) -> None:  # noqa: FBT001 - click's switch
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
    from haytham.cli.start import read_idea, start  # noqa: PLC0415

    asking = parse_model_options(given, starts=True)
    session = start(here, read_idea(idea), given, asking)
    here.info(f"session {session.project_id}/{session.session_id}")
    run_session(here, session, asking, yes=yes, user=given["user"])


@click.command
@click.argument("which", metavar="[SESSION|SNAPSHOT]", required=False, shell_complete=complete_both)
@session_option(argument=False)
@click.option("--input", "wish", metavar="TEXT|-", help="What you ask of the next phase that runs; - reads it.")
@click.option("--user", help="Who you are, for decisions made in an editor.")
@model_options
@click.option("--yes", is_flag=True, help="Approve every phase; the record says so.")
@click.option("--trust", "trusting", is_flag=True, help="Let this session's workflow and model run code here.")
@click.option("--accept-workflow", is_flag=True, help="Go on with the workflow as it is in its folder now.")
@click.option("--keep-workflow", is_flag=True, help="Go on with the workflow as the session has it.")
@click.pass_obj
def resume(here: AppContext, /, which: str | None, session_name: str | None, *, user: str | None, **ways: Any) -> None:
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
    from haytham.cli.origin import check_workflow_changed  # noqa: PLC0415
    from haytham.cli.trust import trust  # noqa: PLC0415

    asking, wish = parse_model_options(ways), read_input(ways["wish"])
    session = _meant(here, which, session_name, with_input=wish is not None)
    check_workflow_changed(here, session, accept=ways["accept_workflow"], keep=ways["keep_workflow"])
    asking.save_settings(session)
    if ways["trusting"]:
        trust(session)
    if wish is not None:
        give_input(here, session, wish, current_user(user, session))
    run_session(here, session, asking, yes=ways["yes"], user=user)


def _meant(here: AppContext, which: str | None, session_name: str | None, *, with_input: bool) -> Session:
    """The session that is meant; where a snapshot is named, made what it was then."""
    from haytham.cli.moment import restore, session_at_snapshot  # noqa: PLC0415
    from haytham.cli.output import snapshot_title  # noqa: PLC0415

    if which is not None and session_name is None and is_number(which) and len(here.folders(None)) > 1:
        raise UsageError(f"{which} is the number of a snapshot in which session? say it with -s SESSION")
    if which is None or (session_name is None and not is_number(which) and here.folders(which)):
        return here.resolve_session(which or session_name, among=UNFINISHED)
    try:
        history, snapshot = here.snapshot(which, session_name, among=TO_GO_BACK)
    except SnapshotNotFound:
        if session_name is not None:
            raise
        ways = "haytham list and haytham checkpoints --all tell what there is"
        raise UsageError(f"no session and no snapshot matches {which!r}; {ways}") from None
    if with_input:
        require_runnable_phase(session_at_snapshot(here, snapshot))
    recovery, moved = restore(here, history, snapshot)
    here.info(f"restored {snapshot_title(snapshot)}: {moved.sentence()}; to undo that: haytham restore {recovery.id}")
    return history.session


@click.command
@click.argument("phase", type=PHASE)
@session_option(argument=True)
@click.option("--user", help="Who you are; else HAYTHAM_USER, who started the session, git's user.email, the login.")
@click.option("--anyway", is_flag=True, help="Also while phases that it needs have work left: on what is there.")
@model_options
@click.pass_obj
def retry(
    here: AppContext, /, phase: int, session_name: str | None, user: str | None, *, anyway: bool, **given: Any
) -> None:
    r"""Run a phase again.

    Of a failed phase the failed agents, of a skipped one all of them; else a new attempt, whose gate opens. Refused
    while a phase that it needs has work left, unless --anyway is given.

    \b
    Examples:
      haytham retry 2
      haytham retry 2 --model openai:gpt-5
    """
    from haytham.cli.origin import check_workflow_changed  # noqa: PLC0415

    asking = parse_model_options(given)
    session = here.resolve_session(session_name, among=UNFINISHED)
    check_workflow_changed(here, session, accept=False, keep=False)
    asking.save_settings(session)
    run_session(here, session, asking, yes=False, user=user, retry=phase, anyway=anyway)
