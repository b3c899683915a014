"""The command line: reads arguments, calls haytham.app, prints. Command modules are imported when they are used."""

from __future__ import annotations

import gc
import signal
import sys

_FEW_COLLECTIONS = 50_000  # objects; importing makes many, and all of them stay


def main() -> None:
    """Run the `haytham` command."""
    if sys.argv[1:] == ["--version"]:  # answered before anything is imported
        from haytham import __version__  # noqa: PLC0415

        print(f"haytham {__version__}")
        return
    gc.set_threshold(_FEW_COLLECTIONS)
    from haytham.cli.app import root  # noqa: PLC0415

    try:
        root(prog_name="haytham")
    except SystemExit:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the answer is given, and a late Ctrl-C does not change its code
        raise
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
