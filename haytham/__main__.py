"""`python -m haytham` is the `haytham` command."""

from haytham.cli import main

main()
