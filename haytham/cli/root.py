"""The root of the command line: its options, which module holds which command, and how mistakes are told."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from haytham import __version__

_COMMANDS = {
    "run": "run:run",
    "resume": "run:resume",
    "status": "look:status",
    "list": "look:list_",
    "show": "look:show",
    "review": "review:review",
    "approve": "decide:approve",
    "request-changes": "decide:request_changes",
    "reject": "decide:reject",
    "skip": "decide:skip",
    "retry": "run:retry",
    "validate": "care:validate",
    "doctor": "care:doctor",
    "init": "care:init",
}


class _OnUse(click.Group):
    """A group whose commands are imported when they are named."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"haytham.cli.{module}"), name)
        return command

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; a mistake is told in one sentence, with the exit code that belongs to it."""
        if "--debug" in sys.argv:
            return super().main(*args, **kwargs)
        from haytham.errors import HaythamError  # noqa: PLC0415

        try:
            return super().main(*args, **kwargs)
        except HaythamError as error:
            click.echo(f"haytham: {error}", err=True)
            sys.exit(_exit_code(error))
        except OSError as error:
            click.echo(f"haytham: {error.filename or ''}: {error.strerror or error}", err=True)
            sys.exit(1)


def _exit_code(error: Exception) -> int:
    from haytham import errors  # noqa: PLC0415

    if isinstance(error, errors.InvalidDocument):
        return 6
    if isinstance(error, errors.Running | errors.Locked):
        return 7
    return 2 if isinstance(error, errors.InvalidValue) else 1


@click.group(cls=_OnUse, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option(
    "-C", "folder", type=click.Path(path_type=Path, file_okay=False, exists=True), default=".", help="Work there."
)
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object; progress as JSON lines on stderr.")
@click.option("--no-input", is_flag=True, help="Never ask; stop where a person is needed.")
@click.option("-q", "--quiet", is_flag=True, help="Say only what was asked for.")
@click.option("--debug", is_flag=True, help="Show where an error comes from.")
@click.pass_context
def root(ctx: click.Context, folder: Path, as_json: bool, no_input: bool, quiet: bool, debug: bool) -> None:  # noqa: ARG001, FBT001, PLR0913, PLR0917
    r"""Drive an idea through reviewed phases; the folder of Markdown is the database.

    \b
    Examples:
      haytham run "Lend rain barrels to gardens" --name "Rain barrels"
      haytham status
      haytham approve && haytham resume
      haytham request-changes -m "Too broad" --change "Name one city"

    \b
    Exit codes: 0 done, 1 error, 2 usage, 3 waiting for review, 4 rejected,
    5 budget reached, 6 a file does not validate, 7 locked.
    """
    from haytham.cli.context import Here, Options  # noqa: PLC0415

    ctx.obj = Here(Options(folder, as_json, no_input, quiet))
