"""Options that commands share: which session, which model, limits and recording; and shell completion of ids."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haytham.app.settings import RunSettings, check_model
from haytham.cli.context import UsageError, in_a_line
from haytham.errors import InvalidRequest, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BASE = Path("projects")
_RECORD = re.compile(r"\d+\.(.+)\.[0-9a-f]+\.md")


def complete_sessions(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of sessions."""
    names = sorted(folder.name for folder in _BASE.glob("*/sessions/*/"))
    return [name for name in names if incomplete in name and name == in_a_line(name)]


def complete_snapshots(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of snapshots."""
    matches = (_RECORD.fullmatch(path.name) for path in _BASE.glob("*/history/snapshots/*/*/*.md"))
    return sorted(match[1] for match in matches if match is not None and incomplete in match[1])


def complete_both(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of sessions, then those of snapshots."""
    return [*complete_sessions(ctx, parameter, incomplete), *complete_snapshots(ctx, parameter, incomplete)]


def session_option(*, argument: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the option that names a session, and an argument for commands that take no phase."""
    about = "Which session, by any unique part of its id."
    if not argument:
        return click.option("-s", "--session", "session_name", help=about, shell_complete=complete_sessions)

    def keep(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        ctx.meta["haytham.session"] = value

    def take(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
        return value or ctx.meta["haytham.session"]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        known: dict[str, Any] = {"shell_complete": complete_sessions}
        option = click.option("-s", "--session", help=about, expose_value=False, is_eager=True, callback=keep, **known)
        named = click.argument("session_name", metavar="[SESSION]", required=False, callback=take, **known)
        return named(option(command))

    return decorate


_MODEL = "The model for agents that name none of their own; replay:DIR answers for all. Holds until it is changed."
_DEFAULT = "HAYTHAM_MODEL"
_LONGEST_ANSWER = "HAYTHAM_MAX_OUTPUT_TOKENS"
_MOST_TOKENS = 10**15
_MOST_DOLLARS = 10**12 - 1  # what a manifest can hold


class _Limit(click.ParamType):  # type: ignore[type-arg]  # older releases of click take none
    """The most that may be spent; 0 is nothing at all."""

    def __init__(self, read: Callable[[str], float], most: int, allowed: str) -> None:
        self.name = "limit"
        self._read, self._most, self._allowed = read, most, f"{allowed}, up to {most:,}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ARG002
        """Return a number from 0 to the largest; raise UsageError for anything else."""
        try:
            number = self._read(str(value))
        except (ValueError, OverflowError):
            number = math.nan
        if not 0 <= number <= self._most:
            option = "it" if param is None else param.opts[0]
            raise UsageError(f"{option}: found {short_repr(value)}; allowed: {self._allowed}")
        return abs(number)  # -0.0 is 0


_DOLLARS = _Limit(lambda said: float(said.removeprefix("$")), _MOST_DOLLARS, "dollars, 0 or more, like 1.50")
_TOKENS = _Limit(lambda said: int(said.replace(",", "")), _MOST_TOKENS, "a whole number, 0 or more, like 200000")


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of commands that call agents."""
    for decorate in (
        click.option(
            "--record",
            metavar="DIR",
            type=click.Path(path_type=Path),
            help="Keep every reply in DIR, from which --model replay:DIR answers; holds until it is changed.",
        ),
        click.option("--no-record", is_flag=True, help="Record no longer."),
        click.option(
            "--max-tokens", metavar="N", type=_TOKENS, help="The most tokens it may take; holds until it is changed."
        ),
        click.option(
            "--max-cost", metavar="USD", type=_DOLLARS, help="The most it may cost; holds until it is changed."
        ),
        click.option("--model", help=_MODEL),
    ):
        command = decorate(command)
    return command


def parse_model_options(given: Mapping[str, Any], *, starts: bool = False) -> RunSettings:
    """Take the options of a command that asks agents; for one that starts a session the environment names a model."""
    record: Path | None = given["record"]
    if record is not None and given["no_record"]:
        raise UsageError("--record and --no-record: say one of them")
    if record is not None and not str(record).isprintable():
        raise UsageError(f"--record: found {str(record)!r}; allowed: the name of a folder, one line of text")
    if record is not None and record.exists() and not record.is_dir():
        raise UsageError(f"--record: {record} is a file; name a folder, which is made where it is not there")
    limits = {name: given[name] for name in ("max_cost", "max_tokens") if given[name] is not None}
    model, longest = _model(given["model"], starts=starts), _max_output_tokens()
    return RunSettings(model, limits, record, longest, no_record=given["no_record"])


def default_model() -> str | None:
    """Return the model that the environment names for new sessions."""
    return os.environ.get(_DEFAULT) or None


def _model(given: str | None, *, starts: bool) -> str | None:
    """Return the model that the command names, else, for a new session, the environment."""
    default = default_model() if starts and given is None else None
    try:
        return check_model(default if given is None else given)
    except InvalidRequest as error:
        if not default:
            raise
        raise UsageError(f"{_DEFAULT} names what cannot be used: {error}") from None


def _max_output_tokens() -> int | None:
    text = os.environ.get(_LONGEST_ANSWER, "").strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > len(str(_MOST_TOKENS)) or not 0 < int(text) <= _MOST_TOKENS:
        raise UsageError(
            f"{_LONGEST_ANSWER}: found {short_repr(text)}; allowed: a whole number of tokens, 1 or more, like 4000"
        )
    return int(text)
