"""The root of the command line: its options, which module holds which command, and that a mistake is told well."""

from __future__ import annotations

import difflib
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haytham import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

_COMMANDS = {
    "run": "run:run",
    "resume": "run:resume",
    "status": "status:status",
    "list": "look:list_",
    "show": "look:show",
    "cost": "cost:cost",
    "agents": "agents:agents",
    "prompt": "agents:prompt",
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
_OF_THE_PAST = {
    "checkpoints": "past:checkpoints",
    "snapshot": "past:snapshot",
    "restore": "past:restore",
    "recover": "recovery:recover",
    "fork": "branches:fork",
    "diff": "branches:diff",
    "merge": "branches:merge",
    "discard": "branches:discard",
    "pin": "keeping:pin",
    "unpin": "keeping:unpin",
    "delete": "keeping:delete",
    "prune": "keeping:prune",
    "verify": "keeping:verify",
}
_ALIASES = {"snapshots": "past:checkpoints", "list-checkpoints": "past:checkpoints"}
_ALL = {**_COMMANDS, **_OF_THE_PAST, **_ALIASES}
_SHARED = {
    "as_json": (["--json"], "Answer with one JSON object; progress as JSON lines on standard error."),
    "no_input": (["--no-input"], "Never ask; stop where a person is needed."),
    "quiet": (["-q", "--quiet"], "Say only what was asked for."),
    "debug": (["--debug"], "Show where an error comes from."),
}


def _note(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    """Note an option wherever it stands, before the command or after it."""

    def note(ctx: click.Context, _option: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
        setattr(ctx.obj.options, name, value or getattr(ctx.obj.options, name))

    return note


def _move(_ctx: click.Context, _option: click.Parameter, folder: Path | None) -> None:
    """Go to the folder that was named, before anything is looked for."""
    if folder is not None:
        os.chdir(folder)


def _shared_options() -> list[click.Parameter]:
    """The options that may stand before a command, and after it."""
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
    r"""Help whose paragraphs after a \b keep their lines: in a raw docstring that is two characters, for click one."""
    return None if text is None else text.replace("\\b\n", "\b\n")


class _OnUse(click.Group):
    """A group whose commands are imported when they are named."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Have something to note options on before they are read."""
        from haytham.cli.context import Here  # noqa: PLC0415

        return super().make_context(*args, obj=Here(), **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [*_COMMANDS, *_OF_THE_PAST]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _ALL:
            return None
        module, _, name = _ALL[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"haytham.cli.{module}"), name)
        if not any(option.name == "as_json" for option in command.params):
            command.params += _shared_options()
            command.help = _as_written(command.help)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Commands in two lists: to drive a session, and for its past."""
        for title, names in (("Commands", _COMMANDS), ("Snapshots and forks", _OF_THE_PAST)):
            found = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl([(name, one.get_short_help_str(60)) for name, one in found if one is not None])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; for one there is not, name the nearest."""
        from haytham.cli.context import Usage  # noqa: PLC0415

        if args[0] not in _ALL and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], _ALL, n=1)
            hint = f"did you mean {near[0]}?" if near else f'to start with an idea: haytham run "{args[0]}"'
            raise Usage(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command, and exit with its code; a mistake is told in one sentence."""
        import logging  # noqa: PLC0415

        from haytham.cli.mistake import Warnings, tell_mistake  # noqa: PLC0415

        logging.getLogger("haytham").handlers[:] = [Warnings(logging.WARNING)]
        logging.lastResort = Warnings(logging.WARNING)  # what other packages warn of
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except Exception as error:  # noqa: BLE001 - the edge: whatever it is, a person reads a sentence
            code = tell_mistake(error)
        sys.exit(code)


@click.group(
    cls=_OnUse,
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
    A session is named by any unique part of its id. Without a name: the one
    changed last for commands that look; for commands that act the only one
    there is, else the only one that waits (resume, retry and those for
    snapshots: is unfinished). A snapshot is named by any unique part of its
    id, or by its number in the session.

    \b
    Exit codes: 0 done, 1 error, 2 usage, 3 waiting for review, 4 rejected,
    5 budget reached, 6 a file does not validate, 7 locked;
    130 and 143 stopped by Ctrl-C and SIGTERM: haytham resume goes on.

    \b
    Shell completion, for bash (or zsh, fish), in ~/.bashrc:
      eval "$(_HAYTHAM_COMPLETE=bash_source haytham)"
    """


root.help = _as_written(root.help)
