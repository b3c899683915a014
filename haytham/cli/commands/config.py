"""`config`: what is set, and where."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import AppContext, in_a_line
from haytham.cli.options import session_option
from haytham.config.settings import variable_name

if TYPE_CHECKING:
    from haytham.config.settings import Setting


@click.command
@click.argument("key", metavar="[KEY]", required=False)
@session_option(argument=True)
@click.pass_obj
def config(context: AppContext, /, key: str | None, session_name: str | None) -> None:
    r"""Show what is set, and where.

    KEY is a setting or a group of them. The first that says something counts: a flag, the environment, the session's
    manifest (an earlier flag), workflow.yaml, projects/haytham.toml, the default. In a workspace without a session:
    what holds for the next one. Nothing is set here: write it to workflow.yaml or projects/haytham.toml.

    \b
    Examples:
      haytham config
      haytham config snapshots.auto
      haytham config budget 9f3ac1 --json
    """
    report = context.workspace.settings(key, session=session_name)
    rows = [{**asdict(setting), "variable": variable_name(setting.key)} for setting in report.settings]
    facts: dict[str, Any] = {"project": report.project_id, "session": report.session_id, "settings": rows}
    context.output("settings", facts, "\n".join(_lines(report.settings)))


def _lines(settings: tuple[Setting, ...]) -> list[str]:
    """Return a line for each setting: key, value, source."""
    values = [_value(setting.value) for setting in settings]
    width, wide = max(len(setting.key) for setting in settings), max(map(len, values))
    return [
        in_a_line(f"{setting.key:<{width}}  {value:<{wide}}  {_where(setting)}")
        for setting, value in zip(settings, values, strict=True)
    ]


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value)


def _where(setting: Setting) -> str:
    """Return the file and line or the variable, else the name of the source."""
    return setting.place or setting.source
