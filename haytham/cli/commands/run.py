"""`run`, `resume` and `retry`: run a session until it is done, a person is needed, or a signal stops it."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haytham import errors
from haytham.app.history import is_in_session
from haytham.cli.commands.review import prompt_for_decision
from haytham.cli.context import (
    BUDGET,
    ERROR,
    PHASE,
    REJECTED,
    TO_GO_BACK,
    UNFINISHED,
    WAITING,
    AppContext,
    Stopped,
    UsageError,
    ask,
    echo,
    sanitize,
    until_signalled,
)
from haytham.cli.live import ProgressView
from haytham.cli.options import complete_both, model_options, parse_model_options, session_option
from haytham.cli.output import (
    assumed_words,
    editor_lines,
    fault_lines,
    one_line,
    redacted_lines,
    restore_words,
    reviewer_words,
    run_cost_words,
    setting_lines,
    snapshot_title,
    spent_facts,
    suggest_limit,
    totals,
    unknown_words,
)
from haytham.config.wording import SUBJECT
from haytham.errors import InvalidIdea, SnapshotNotFound
from haytham.session.spend_log import SpendSummary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from haytham.app.results import AgentFailure, SessionStatus
    from haytham.app.review import ReviewView
    from haytham.app.session import Session
    from haytham.app.settings import RunSettings
    from haytham.engine.runner import RunResult
    from haytham.usage import UsageTotal

_FILE_ENDINGS = (".md", ".txt", ".markdown", ".rst")
_CODES = {"completed": 0, "waiting": WAITING, "rejected": REJECTED, "paused": BUDGET}
_MOST_COMPLAINTS = 5
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


def print_result(context: AppContext, session: Session, result: RunResult, cost: UsageTotal) -> int:
    """Print in one line how the run ended and how to go on; return the exit code of that."""
    facts, sentence = describe_result(context, session, result)
    context.output("run", {**facts, "cost": totals(cost)}, sentence)
    return _CODES.get(result.status, ERROR)


def describe_result(context: AppContext, session: Session, result: RunResult) -> tuple[dict[str, Any], str]:
    """Return how a run ended and how to go on, for JSON and in one line."""
    status, failures = session.status(), [_failure(failure) for failure in session.failures(result)]
    following = _next(context, session, status, result, failures)
    reading = f"haytham show{context.session_hint(session, '-s')}" if result.phase is None else None
    command = following or reading
    sentence = _sentence(session, status, result, failures) + (f": {command}" if command else "")
    facts = {
        "project": session.project_id,
        "session": session.session_id,
        "status": result.status,
        "phase": result.phase,
        "agents": list(result.agents),
        "reviewers": list(_reviewers(status, result)),
        "why": result.reason,
        "errors": _errors(failures),
        "tracebacks": _tracebacks(failures),
        "next": following,
        **spent_facts(session.cost().spending),
        "paused": status.paused,
    }
    return facts, sanitize(sentence)


def _phase_name(status: SessionStatus, number: int) -> str:
    return next((phase.name for phase in status.phases if phase.number == number), "")


def _reviewers(status: SessionStatus, outcome: RunResult) -> tuple[str, ...]:
    """Return who may review the phase that a run waits at, if not everybody."""
    is_review = outcome.status == "waiting" and not outcome.agents
    return next((phase.reviewers for phase in status.phases if is_review and phase.number == outcome.phase), ())


def _sentence(session: Session, status: SessionStatus, outcome: RunResult, failures: list[Failure]) -> str:
    """Return what happened, up to where the command to go on follows."""
    name = f"session {session.id}"
    if outcome.phase is None:
        return f"{name} is {outcome.status}; read its last page with"
    where = f"phase {outcome.phase}, {_phase_name(status, outcome.phase)}"
    if outcome.status == "waiting":
        prefix = session.documents.prefix
        written = outcome.reason.replace(prefix, f"{AppContext.base}/{prefix}")
        waits = f"{where}, waits for review{reviewer_words(_reviewers(status, outcome))}"
        return f"{where}: {written}; then" if outcome.agents else waits
    if outcome.status == "failed":
        causes = [*map(str, failures)] or [outcome.reason]
        return f"{where}, failed: " + _break(failures).join([*causes, "try again with"])
    why = outcome.reason or (_CROWDED_OUT if outcome.status == "paused" else "")
    on = "; go on with" if outcome.status == "paused" else ""
    return f"{name} is {outcome.status} in {where}" + (f": {why}" if why else "") + on


def _break(failures: list[Failure]) -> str:
    """Return the separator of errors: a line break if one of them lists complaints."""
    return "\n" if any(failure.complaints for failure in failures) else "; "


def _next(
    context: AppContext, session: Session, status: SessionStatus, outcome: RunResult, failures: list[Failure]
) -> str | None:
    """Return the command that goes on; None if the session is over."""
    if outcome.phase is None or outcome.status == "rejected":
        return None
    which, option, number = context.session_hint(session), context.session_hint(session, "-s"), outcome.phase
    if outcome.status == "waiting" and outcome.agents:  # which a person has to write
        return f"haytham resume{which}"
    if outcome.status == "waiting":
        return _review(status, number, which, option)
    if outcome.status == "paused":
        return f"haytham resume{which}{suggest_limit(session.cost().spending)}"
    again = f"haytham retry {number}{which}"
    if not any(failure.complaints for failure in failures):
        return again
    mended = f"haytham review {number}{option} && haytham approve {number}{option} && haytham resume{which}"
    return f"{again}, or mend the text in an editor and approve it: {mended}"


def _review(status: SessionStatus, number: int, which: str, option: str) -> str:
    """Return the commands that decide at a gate; of a phase run again on stale needs, what renews those, too."""
    if status.next is not None and status.next.number == number:
        return f"haytham review{option}, or haytham approve{option} && haytham resume{which}"
    approve = f"haytham approve {number} --anyway{option}"
    return f"haytham review {number}{option}, or {approve}; haytham resume{which} renews what it needs"


def _failure(failure: AgentFailure) -> Failure:
    first, *rest = failure.message.strip().split("\n")
    is_violation = failure.error_type == errors.ContractViolation.__name__
    complaints = tuple(line.strip() for line in rest if line.strip()) if is_violation else ()
    traceback = "" if _is_ours(failure.error_type) else f"{AppContext.base}/{failure.key}"
    return Failure(failure.agent, first, complaints, traceback)


def _is_ours(error_type: str) -> bool:
    """Return whether an error is one that Haytham raises on purpose, by the name of its class."""
    kind = getattr(errors, error_type, None)
    return isinstance(kind, type) and issubclass(kind, errors.HaythamError)


def _errors(failures: Iterable[Failure]) -> list[str]:
    return ["\n  ".join([f"{failure.agent}: {failure.message}", *failure.complaints]) for failure in failures]


def _tracebacks(failures: Iterable[Failure]) -> dict[str, str]:
    return {failure.agent: failure.traceback for failure in failures if failure.traceback}


def hints(context: AppContext, session: Session, outcome: RunResult, models: set[str]) -> list[str]:
    """Return what is worth a word after a run: contract faults, no model asked, unknown costs, secrets in replies."""
    spending, review = session.cost().spending, _waiting_review(session, outcome)
    lines = fault_lines(review.faults) if review is not None and not outcome.agents else []
    if models == {_WORKSHEET} and session.manifest.model is None:
        command = "run IDEA" if outcome.phase is None else f"resume{context.session_hint(session)}"
        lines.append(f"these pages came from the built-in worksheet; for a model: haytham {command} {_MODELS}")
    if spending.limits.max_cost is not None:
        asked = SpendSummary(tuple(call for call in spending.summary.calls if call.model in models))
        lines += [unknown_words(asked.total, spending.limits), assumed_words(asked)]
    if review is not None:
        lines += redacted_lines(review.redacted)
    return [line for line in lines if line]


def _waiting_review(session: Session, outcome: RunResult) -> ReviewView | None:
    """Return the phase that a run waits at, as a reviewer sees it."""
    return session.review(outcome.phase) if outcome.status == "waiting" and outcome.phase is not None else None


def print_hints(context: AppContext, session: Session, outcome: RunResult, models: set[str]) -> None:
    """Print hints beside the answer, each once."""
    if context.options.quiet or context.options.as_json:
        return
    for hint in hints(context, session, outcome, models):
        echo(f"haytham: {hint}", err=True)


def run_session(  # noqa: PLR0913 - what is run, for whom, and how agents are called
    context: AppContext,
    session: Session,
    settings: RunSettings,
    *,
    yes: bool,
    user: str | None,
    retry: int | None = None,
    anyway: bool = False,
) -> None:
    """Run a session, ask at its gates if a person is there to answer, and exit with the code of the result."""
    by, view = session.acting_user(user), ProgressView(context.options)
    before = session.cost().spending.summary.total
    while True:
        how: dict[str, Any] = {"by": by, "approve_all": yes, "settings": settings, "retry": retry, "anyway": anyway}
        result = _run(context, session, view, how)
        retry = None
        if result.status != "waiting" or not context.can_ask():
            break
        if result.phase is not None and not (result.agents or session.phase(result.phase).may_review(by)):
            break
        if not prompt_for_decision(session, result, by, seen=view.seen):
            break
    total = session.cost().spending.summary.total
    if view.models or total.calls > before.calls:
        context.info(run_cost_words(total - before, total))
    code = print_result(context, session, result, total - before)
    print_hints(context, session, result, view.models)
    raise click.exceptions.Exit(code)


def _run(context: AppContext, session: Session, view: ProgressView, how: dict[str, Any]) -> RunResult:
    events = session.new_events()
    try:
        with view.following(events):
            return until_signalled(lambda: session.run_async(**how, events=events, is_prepared=True))
    except Stopped as stopped:  # told below the live view, which is gone by now
        _tell_stopped(context, session, stopped.number)
        raise click.exceptions.Exit(128 + stopped.number) from None


def _tell_stopped(context: AppContext, session: Session, number: int) -> None:
    name = signal.Signals(number).name
    ids = {"project": session.project_id, "session": session.session_id}
    facts = {**ids, "status": "stopped", "signal": name}
    if context.options.as_json:
        context.output("run", facts, "")
    echo(f"haytham: stopped by {name}; go on with: haytham resume{context.session_hint(session)}", err=True)


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
def run(context: AppContext, /, idea: str | None, yes: bool, **given: Any) -> None:  # noqa: FBT001 - click's switch
    r"""Take an idea through the phases.

    The idea is given as text, as a file, or as - for standard input; in a terminal it is asked for. HAYTHAM_MODEL names
    a model where --model does not. HAYTHAM_MAX_OUTPUT_TOKENS says how long an answer may be, whatever agents' files
    say.

    \b
    Examples:
      haytham run "Lend rain barrels to gardens"
      haytham run idea.md --mode full --name "Rain barrels"
      haytham run idea.md --model anthropic:claude-sonnet-4-5 --max-cost 2.50
      haytham run idea.md --model "command:claude -p" --max-tokens 200000
      haytham run --project rain_barrels
      echo "Lend rain barrels" | haytham run - --yes --no-input
    """
    settings = parse_model_options(given, starts=True)
    about = {name: given[name] for name in ("workflow", "mode", "name", "project", "user")}
    session = context.workspace.start(_idea(context, idea, **about), **about, settings=settings)
    context.info(f"session {session.id}")
    run_session(context, session, settings, yes=yes, user=given["user"])


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
def resume(
    context: AppContext, /, which: str | None, session_name: str | None, *, user: str | None, **ways: Any
) -> None:
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
    settings, text = parse_model_options(ways), read_input(ways["wish"])
    session = _meant(context, which, session_name, with_input=text is not None)
    update = session.prepare(
        accept_workflow=ways["accept_workflow"],
        keep_workflow=ways["keep_workflow"],
        settings=settings,
        trust_code=ways["trusting"],
    )
    for line in update.quarantined:
        context.info(line)
    if text is not None:
        given = session.give_input(text, by=user)
        for line in editor_lines(given.editor):
            context.info(line)
        context.info(sanitize(f"phase {given.phase}, {given.name}, is given your input"))
    run_session(context, session, settings, yes=ways["yes"], user=user)


def _meant(context: AppContext, which: str | None, session_name: str | None, *, with_input: bool) -> Session:
    """Return the session that is meant; if a snapshot is named, restored to it."""
    folders = context.workspace.folders
    if which is not None and session_name is None and is_in_session(which) and len(folders()) > 1:
        what = "the latest snapshot of" if which == "latest" else f"{which} is the number of a snapshot in"
        raise UsageError(f"{what} which session? say it with -s SESSION")
    if which is None or (session_name is None and not is_in_session(which) and folders(which)):
        return context.workspace.session(which or session_name, among=UNFINISHED)
    try:
        session, snapshot = context.workspace.snapshot(which, session_name, among=TO_GO_BACK)
    except SnapshotNotFound:
        if session_name is not None:
            raise
        hint = "haytham list and haytham checkpoints --all tell what there is"
        raise UsageError(f"no session and no snapshot matches {which!r}; {hint}") from None
    if with_input:
        session.at(snapshot).require_runnable_phase()
    result = session.restore(snapshot)
    for line in setting_lines(result):
        context.info(line)
    undo = f"to undo that: haytham restore {result.recovery.id}"
    context.info(f"restored {snapshot_title(snapshot)}: {restore_words(result)}; {undo}")
    return session


@click.command
@click.argument("phase", type=PHASE)
@session_option(argument=True)
@click.option("--user", help="Who you are; else HAYTHAM_USER, who started the session, git's user.email, the login.")
@click.option("--anyway", is_flag=True, help="Also while phases that it needs have work left: on what is there.")
@model_options
@click.pass_obj
def retry(
    context: AppContext, /, phase: int, session_name: str | None, user: str | None, *, anyway: bool, **given: Any
) -> None:
    r"""Run a phase again.

    Of a failed phase the failed agents, of a skipped one all of them; else a new attempt, whose gate opens. Refused
    while a phase that it needs has work left, unless --anyway is given.

    \b
    Examples:
      haytham retry 2
      haytham retry 2 --model openai:gpt-5
    """
    settings = parse_model_options(given)
    session = context.workspace.session(session_name, among=UNFINISHED)
    session.prepare(settings=settings)
    run_session(context, session, settings, yes=False, user=user, retry=phase, anyway=anyway)


def _idea(
    context: AppContext, given: str | None, *, workflow: str | None, project: str | None, **_about: Any
) -> str | None:
    """Return the idea that a command was given; ask for it if a session of a new project is without one."""
    if workflow is None and given is not None:
        return read_idea(given)
    subject = context.workspace.subject(workflow)
    if given is None and project is None and context.can_ask():
        given = str(ask(f"your {subject}, in a sentence"))
    return read_idea(given, subject)


def read_idea(given: str | None, subject: str = SUBJECT) -> str | None:
    """Return the idea: from standard input, a file, or the text itself; None if none was given."""
    if given is None:
        return None
    if not given.strip():
        raise InvalidIdea(empty=True, subject=subject)
    if given == "-":
        return _decoded(sys.stdin.buffer.read(), "standard input", subject)
    path = Path(given)
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except (OSError, ValueError):  # too long for a name, or with a character that no name has
        return given
    if is_file:
        return _decoded(path.read_bytes(), given, subject)
    if is_folder:
        raise UsageError(f"{given} is a folder; name a file, or say the {subject} in a sentence")
    if given.endswith(_FILE_ENDINGS) and not any(letter.isspace() for letter in given):
        raise UsageError(f"there is no file {given}; name one that is there, or say the {subject} in a sentence")
    return given


def _decoded(data: bytes, where: str, subject: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{where} is not UTF-8 text; save the {subject} as UTF-8") from None


def read_input(given: str | None) -> str | None:
    """Return the input as it was given, or from standard input; None if there is none."""
    if given is None:
        return None
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig") if given == "-" else given
    except UnicodeDecodeError:
        raise UsageError("standard input is not UTF-8 text; save what you ask for as UTF-8") from None
    if not text.strip():
        raise UsageError("the input is empty; say what you ask for")
    return text
