"""What the shell completes a word with: the ids of sessions and of snapshots that rest in files.

How a run asks its agents: the options for that, and what the environment says of models, lengths and secrets.
"""

from __future__ import annotations

import logging
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import UsageError, in_a_line
from haytham.errors import short_repr
from haytham.events import Events
from haytham.redact import environment_secrets
from haytham.session.paths import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from haytham.engine.invoke import RunOptions
    from haytham.session import Session

_BASE = Path("projects")
_RECORD = re.compile(r"\d+\.(.+)\.[0-9a-f]+\.md")


def complete_sessions(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The ids of sessions."""
    names = sorted(folder.name for folder in _BASE.glob("*/sessions/*/"))
    return [name for name in names if incomplete in name and name == in_a_line(name)]


def complete_snapshots(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The ids of snapshots."""
    found = (_RECORD.fullmatch(path.name) for path in _BASE.glob("*/history/snapshots/*/*/*.md"))
    return sorted(match[1] for match in found if match is not None and incomplete in match[1])


def complete_both(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The ids of sessions, then those of snapshots."""
    return [*complete_sessions(ctx, parameter, incomplete), *complete_snapshots(ctx, parameter, incomplete)]


def session_option(*, argument: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The ways to name a session: an option, and for commands that take no phase an argument, too."""
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


log = logging.getLogger(__name__)

REPLAY = "replay:"
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
        """A number that is not below 0, else a sentence."""
        try:
            found = self._read(str(value))
        except (ValueError, OverflowError):
            found = math.nan
        if not 0 <= found <= self._most:
            option = "it" if param is None else param.opts[0]
            raise UsageError(f"{option}: found {short_repr(value)}; allowed: {self._allowed}")
        return abs(found)  # -0.0 is 0


_DOLLARS = _Limit(lambda said: float(said.removeprefix("$")), _MOST_DOLLARS, "dollars, 0 or more, like 1.50")
_TOKENS = _Limit(lambda said: int(said.replace(",", "")), _MOST_TOKENS, "a whole number, 0 or more, like 200000")


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of commands that ask agents."""
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


@dataclass(frozen=True)
class ModelOptions:
    """What one command says of asking agents, checked before anything depends on it."""

    model: str | None
    limits: Mapping[str, float]
    record: Path | None
    max_output_tokens: int | None
    no_record: bool = False

    def run_options(self, session: Session) -> RunOptions:
        """How agents of a session are asked: a replay that it runs on answers for all of them."""
        from haytham.agents.replay import Recorder  # noqa: PLC0415
        from haytham.engine.invoke import RunOptions  # noqa: PLC0415

        model, secrets = str(session.read().manifest.value.get("model") or ""), environment_secrets(os.environ)
        folder = self.record or _allowed_folder(session)
        return RunOptions(
            model=model if model.startswith(REPLAY) else None,
            recorder=None if folder is None else Recorder(folder, secrets=secrets),
            max_output_tokens=self.max_output_tokens,
            secrets=secrets,
        )

    @property
    def as_manifest(self) -> dict[str, float | str | None]:
        """Limits and folder as a manifest keeps them: money as text, which no formatter changes."""
        from haytham.usage import format_usd_exact  # noqa: PLC0415

        limits = {name: format_usd_exact(value) if name == "max_cost" else value for name, value in self.limits.items()}
        return {**limits, **self.recording}

    @property
    def recording(self) -> dict[str, str | None]:
        """Return the folder that replies are to be recorded in, None for none; empty where nothing is said of it."""
        if self.record is None:
            return {"record": None} if self.no_record else {}
        return {"record": str(self.record)}

    def store(self, session: Session) -> None:
        """Store the limits and the folder for recordings with a session; whoever names a folder may write there."""
        from haytham.cli.trust import allow_recording  # noqa: PLC0415

        if self.as_manifest:
            session.update_manifest(self.as_manifest)
        if self.record is not None:
            try:
                allow_recording(self.record)
            except OSError as error:
                log.warning("replies are recorded in %s by this command alone: %s", self.record, error)

    def save_settings(self, session: Session) -> None:
        """Store what holds for a session until it is changed, its model and what it may spend; the record tells it."""
        model = {} if self.model is None else {"model": self.model}
        told: dict[str, Any] = {**self.limits, **model, **self.recording}
        self.store(session)
        if self.model is not None:
            set_model(session, self.model)
        if told:
            Events(session.store, session.prefix + EVENTS).emit("settings_changed", **told)
        _warn_of_recording(session)


def parse_model_options(given: Mapping[str, Any], *, starts: bool = False) -> ModelOptions:
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
    return ModelOptions(model, limits, record, longest, no_record=given["no_record"])


def _record_folder(session: Session) -> Path | None:
    """Return the folder that a session names for recordings."""
    found = session.read().manifest.value.get("record")
    return None if found is None else Path(found)


def _allowed_folder(session: Session) -> Path | None:
    """Return that folder where a person named it on this machine: a session from elsewhere writes nowhere else."""
    from haytham.cli.trust import may_record  # noqa: PLC0415

    folder = _record_folder(session)
    return folder if folder is not None and may_record(folder) else None


def _warn_of_recording(session: Session) -> None:
    """Warn of a folder that a session names and nobody on this machine has: nothing is written there."""
    folder = _record_folder(session)
    if folder is not None and _allowed_folder(session) is None:
        said = (
            "replies are not recorded: the session names the folder %r, and you did not; to record there: --record %s"
        )
        log.warning(said, str(folder), folder)


def default_model() -> str | None:
    """The model that the environment names for new sessions."""
    return os.environ.get(_DEFAULT) or None


def _model(given: str | None, *, starts: bool) -> str | None:
    """The model that is named: with the command, else, for a new session, in the environment."""
    said = default_model() if starts and given is None else None
    try:
        return check_model(said if given is None else given)
    except UsageError as error:
        if not said:
            raise
        raise UsageError(f"{_DEFAULT} names what cannot be used: {error.format_message()}") from None


def check_model(model: str | None) -> str | None:
    """Refuse a model that there is not, before a session depends on it."""
    from haytham.agents.base import load_agent  # noqa: PLC0415
    from haytham.cli.trust import add_cwd_to_path  # noqa: PLC0415
    from haytham.errors import AgentError, InvalidArgument  # noqa: PLC0415

    if model is None:
        return None
    add_cwd_to_path()
    try:
        load_agent(model)
    except (AgentError, InvalidArgument) as error:
        raise UsageError(str(error)) from None
    return model


def set_model(session: Session, model: str) -> None:
    """Go on with a model that a person names: who names it trusts it, and not the code of a workflow from elsewhere."""
    from haytham.cli.trust import may_name_model, trust  # noqa: PLC0415

    is_vouched_for = may_name_model(session)
    session.update_manifest({"model": model})
    if is_vouched_for:
        trust(session)


def _max_output_tokens() -> int | None:
    said = os.environ.get(_LONGEST_ANSWER, "").strip()
    if not said:
        return None
    if not said.isdecimal() or len(said) > len(str(_MOST_TOKENS)) or not 0 < int(said) <= _MOST_TOKENS:
        raise UsageError(
            f"{_LONGEST_ANSWER}: found {short_repr(said)}; allowed: a whole number of tokens, 1 or more, like 4000"
        )
    return int(said)
