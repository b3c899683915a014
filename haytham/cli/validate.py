"""`haytham validate`: read every document below a path and report all problems at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from haytham.errors import Problem

DOES_NOT_VALIDATE = 6


@click.command("validate")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
def command(paths: tuple[Path, ...]) -> None:
    r"""Read every document below PATHS (else below projects/) and report all problems at once.

    \b
    Examples:
      haytham validate
      haytham validate projects/my_idea/sessions/20241124-100000512-9f3ac1/phase_1_concept/checkpoint.md
    """
    if not paths and not Path("projects").is_dir():
        raise click.UsageError("there is no folder projects here; name the files or folders to validate")
    files = [file for path in paths or (Path("projects"),) for file in _documents(path)]
    problems = [problem for file in files for problem in _problems(file)]
    for problem in problems:
        click.echo(str(problem))
    click.echo(f"{len(files)} documents, {len(problems)} problems", err=True)
    if problems:
        raise click.exceptions.Exit(DOES_NOT_VALIDATE)


def _documents(path: Path) -> Iterator[Path]:
    """The files that are, or by their place should be, documents."""
    if path.is_file():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if _kind(Path(folder, name)) is not None)


def _problems(file: Path) -> list[Problem]:
    from haytham.document.kind import load_kind  # noqa: PLC0415 - help needs no schema
    from haytham.document.parse import parse  # noqa: PLC0415
    from haytham.errors import Problem  # noqa: PLC0415

    kind = _kind(file)
    if kind is None:
        return [Problem("is no document of haytham by its name and place", file=str(file))]
    return [problem.within(str(file)) for problem in parse(load_kind(kind), file.read_bytes()).problems]


def _kind(file: Path) -> str | None:
    """The kind of a file, by its name and place; what it says it is must agree."""
    from haytham.session.layout import kind_of  # noqa: PLC0415

    return kind_of(file.as_posix())
