"""`python -m haytham` is the `haytham` command."""

import sys
from pathlib import Path

if not sys.flags.safe_path and Path(sys.path[0]).resolve() != Path(__file__).resolve().parents[1]:
    del sys.path[0]  # the working folder, which -m puts first: what lies there may come from elsewhere

from haytham.cli import main

main()
