"""The command line: reads arguments, calls haytham.app, prints. Command modules are imported when they are used."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the `haytham` command."""
    if sys.argv[1:] == ["--version"]:  # answered before anything is imported
        from haytham import __version__  # noqa: PLC0415

        print(f"haytham {__version__}")
        return
    from haytham.cli.app import root  # noqa: PLC0415

    try:
        root(prog_name="haytham")
    except SystemExit:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the answer is given, and a late Ctrl-C does not change its code
        raise
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
