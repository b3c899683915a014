"""The root of the command line: its options, the table of commands, and how an error is printed.

An error is one sentence that says what to do, and one exit code; a traceback only with --debug.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haytham import __version__, errors
from haytham.cli.context import (
    CONFLICT,
    ERROR,
    INVALID,
    LOCKED,
    STOPPED,
    USAGE,
    AppContext,
    UsageError,
    as_json,
    echo,
    sanitize,
)
from haytham.redact import environment_secrets, redact
from haytham.text import closest

if TYPE_CHECKING:
    from collections.abc import Callable


class WarningHandler(logging.Handler):
    """Prints warnings of the library on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record; a closed standard error ends nothing."""
        try:
            echo(f"haytham: {record.getMessage()}", err=True)
        except OSError:
            self.handleError(record)


def report_error(error: Exception) -> int:
    """Print what went wrong; return its exit code."""
    secrets = environment_secrets(os.environ)
    if "--debug" in sys.argv:
        trace = "".join(traceback.format_exception(error))
        echo(redact(trace, secrets), nl=False, err=True)
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        error.show()  # type: ignore[attr-defined]
        return USAGE
    code = _exit_code(error)
    sentence = sanitize(redact(_sentence(error), secrets))
    if "--json" in sys.argv:
        facts: dict[str, Any] = {"exit_code": code, "message": sentence, "problems": _problems(error)}
        echo(as_json({"kind": "error", "version": 1, **facts}))
    echo(f"haytham: {sentence}", err=True)
    return code


def _exit_code(error: Exception) -> int:
    if isinstance(error, click.Abort):
        return STOPPED
    if isinstance(error, click.ClickException):
        return error.exit_code
    if isinstance(error, errors.InvalidDocument | errors.SymbolicLink):
        return INVALID
    if isinstance(error, errors.AlreadyRunning | errors.LockTimeout):
        return LOCKED
    if isinstance(error, errors.MergeConflict):
        return CONFLICT
    refused = isinstance(
        error, errors.InvalidArgument | errors.InvalidRequest | errors.RefusedDecision | errors.WorkLeft
    )
    return USAGE if refused else ERROR


def _sentence(error: Exception) -> str:
    if isinstance(error, click.Abort):
        return "stopped"
    if isinstance(error, click.UsageError) and not isinstance(error, UsageError) and error.ctx is not None:
        return f"{error.format_message().rstrip('.')}; more: {error.ctx.command_path} --help"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, errors.HaythamError):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    description = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"this is a fault of haytham's own: {description}; the session is as it was saved last; --debug shows where"


def _problems(error: Exception) -> list[str]:
    if isinstance(error, errors.MergeConflict):
        return [f"{path}: {count}" for path, count in error.conflicts.items()]
    return [str(problem) for problem in error.problems] if isinstance(error, errors.InvalidDocument) else []


_COMMANDS = {
    "run": "run:run",
    "resume": "run:resume",
    "status": "look:status",
    "list": "look:list_",
    "show": "look:show",
    "cost": "cost:cost",
    "config": "config:config",
    "log": "log:log",
    "stats": "stats:stats",
    "agents": "agents:agents",
    "prompt": "agents:prompt",
    "graph": "graph:graph",
    "review": "review:review",
    "approve": "review:approve",
    "request-changes": "review:request_changes",
    "reject": "review:reject",
    "skip": "review:skip",
    "undo": "review:undo",
    "retry": "run:retry",
    "work": "work:work",
    "session": "sessions:session",
    "memory": "memory:memory",
    "validate": "maintain:validate",
    "doctor": "maintain:doctor",
    "init": "maintain:init",
}
_OF_THE_PAST = {
    "checkpoints": "snapshots:checkpoints",
    "snapshot": "snapshots:snapshot",
    "restore": "snapshots:restore",
    "recover": "snapshots:recover",
    "fork": "forks:fork",
    "diff": "forks:diff",
    "merge": "forks:merge",
    "pin": "maintain:pin",
    "unpin": "maintain:unpin",
    "delete": "maintain:delete",
    "prune": "maintain:prune",
    "verify": "maintain:verify",
}
_ALIASES = {
    "snapshots": "snapshots:checkpoints",
    "list-checkpoints": "snapshots:checkpoints",
    "discard": "sessions:delete",
}
_ALL = {**_COMMANDS, **_OF_THE_PAST, **_ALIASES}


def command_names() -> list[str]:
    """Return the names of all commands, without aliases."""
    return [*_COMMANDS, *_OF_THE_PAST]


_SHARED = {
    "as_json": (["--json"], "Answer with one JSON object; progress as JSON lines on standard error."),
    "no_input": (["--no-input"], "Never ask; stop where a person is needed."),
    "quiet": (["-q", "--quiet"], "Say only what was asked for."),
    "debug": (["--debug"], "Show where an error comes from."),
}


def _note(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    """Return a callback that sets an option, before a command or after it."""

    def note(ctx: click.Context, _option: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
        setattr(ctx.obj.options, name, value or getattr(ctx.obj.options, name))

    return note


def _move(_ctx: click.Context, _option: click.Parameter, folder: Path | None) -> None:
    """Change to the folder that was named, before anything is read."""
    if folder is not None:
        os.chdir(folder)


def _shared_options() -> list[click.Parameter]:
    """Return the options that are allowed before a command or after it."""
    folder = click.Option(
        ["-C", "work_in"],
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        metavar="DIR",
        is_eager=True,
        expose_value=False,
        callback=_move,
        help="Work in DIR, which holds projects/.",
    )
    flags = [
        click.Option([*words, name], is_flag=True, expose_value=False, callback=_note(name), help=about)
        for name, (words, about) in _SHARED.items()
    ]
    return [folder, *flags]


def _as_written(text: str | None) -> str | None:
    r"""Return help in which each \b is the one character that click looks for, not the two of a raw docstring."""
    return None if text is None else text.replace("\\b\n", "\b\n")


class LazyGroup(click.Group):
    """A group whose commands are imported when they are named."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Create the AppContext before options are read."""
        return super().make_context(*args, obj=AppContext(), **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return [*_COMMANDS, *_OF_THE_PAST]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in _ALL:
            return None
        module, _, name = _ALL[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"haytham.cli.commands.{module}"), name)
        for inner in (command, *(command.commands.values() if isinstance(command, click.Group) else ())):
            if not any(option.name == "as_json" for option in inner.params):
                inner.params += _shared_options()
                inner.help = _as_written(inner.help)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write commands in two lists: for a session, and for its snapshots."""
        for title, names in (("Commands", _COMMANDS), ("Snapshots and forks", _OF_THE_PAST)):
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, command.get_short_help_str(60)) for name, command in commands if command is not None]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; for an unknown one, name the nearest."""
        if args[0] not in _ALL and not args[0].startswith("-"):
            near = closest(args[0], _ALL)
            hint = f"did you mean {near}?" if near else f'to start with an idea: haytham run "{args[0]}"'
            raise UsageError(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command and exit with its code; an error is one sentence."""
        logging.getLogger("haytham").handlers[:] = [WarningHandler(logging.WARNING)]
        logging.lastResort = WarningHandler(logging.WARNING)  # what other packages warn of
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except Exception as error:  # noqa: BLE001 - the edge: whatever it is, a person reads a sentence
            code = report_error(error)
        sys.exit(code)


@click.group(
    cls=LazyGroup,
    params=_shared_options(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def root() -> None:
    r"""Drive an idea through reviewed phases; the folder of Markdown is the database.

    \b
    Examples:
      haytham run "Lend rain barrels to gardens" --name "Rain barrels"
      haytham status
      haytham approve && haytham resume
      haytham request-changes -m "Too broad" --change "Name one city"

    \b
    A session is named by its id or display name, or by any unique part of its
    id. Without a name: the one changed last for commands that look; for
    commands that act the only one there is, else the only one that waits
    (resume, retry and those for snapshots: is unfinished). A snapshot is named
    by any unique part of its id, or by its number in the session.

    \b
    Exit codes: 0 done, 1 error, 2 usage, 3 waiting for review, 4 rejected,
    5 budget reached, 6 a file does not validate, 7 locked,
    8 conflicts in a merge;
    130 and 143 stopped by Ctrl-C and SIGTERM: haytham resume goes on.

    \b
    Shell completion, for bash (or zsh, fish), in ~/.bashrc:
      eval "$(_HAYTHAM_COMPLETE=bash_source haytham)"
    """


root.help = _as_written(root.help)
