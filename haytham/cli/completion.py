"""What the shell completes a word with: the ids of sessions and of snapshots that rest in files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

_BASE = Path("projects")
_RECORD = re.compile(r"\d+\.(.+)\.[0-9a-f]+\.md")


def complete_sessions(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The ids of sessions."""
    from haytham.cli.context import in_a_line  # noqa: PLC0415 - which imports this module

    names = sorted(folder.name for folder in _BASE.glob("*/sessions/*/"))
    return [name for name in names if incomplete in name and name == in_a_line(name)]


def complete_snapshots(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The ids of snapshots."""
    found = (_RECORD.fullmatch(path.name) for path in _BASE.glob("*/history/snapshots/*/*/*.md"))
    return sorted(match[1] for match in found if match is not None and incomplete in match[1])


def complete_both(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The ids of sessions, then those of snapshots."""
    return [*complete_sessions(ctx, parameter, incomplete), *complete_snapshots(ctx, parameter, incomplete)]
