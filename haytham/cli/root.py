"""The root of the command line: its options, and which module holds which command."""

from __future__ import annotations

from importlib import import_module

import click

from haytham import __version__

_COMMANDS = {"validate": "haytham.cli.validate"}


class _OnUse(click.Group):
    """A group whose commands are imported when they are named."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(_COMMANDS[cmd_name]).command
        return command


@click.group(cls=_OnUse, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def root() -> None:
    r"""Drive an idea through reviewed phases; the folder of Markdown is the database.

    \b
    Example:
      haytham validate projects/my_idea

    \b
    Exit codes: 0 done, 1 error, 2 usage, 6 a file does not validate.
    """
