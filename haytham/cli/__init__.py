"""The command line: one module a group of commands, imported when it is used. Nothing imports this room."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the `haytham` command."""
    if sys.argv[1:] == ["--version"]:  # answered before anything is imported
        from haytham import __version__  # noqa: PLC0415

        print(f"haytham {__version__}")
        return
    from haytham.cli.app import root  # noqa: PLC0415

    root(prog_name="haytham")
