"""`validate`, `doctor` and `init`: look after files, and start a workflow of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from haytham.cli.context import INVALID, Here

if TYPE_CHECKING:
    from haytham.errors import Problem


@click.command
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.pass_obj
def validate(here: Here, /, paths: tuple[Path, ...]) -> None:
    r"""Read every document below PATHS (else below projects/) and report all problems at once.

    \b
    Examples:
      haytham validate
      haytham validate projects/my_idea
    """
    if not paths and not here.base.is_dir():
        raise click.UsageError(f"there is no folder {here.base}; name the files or folders to validate")
    files = [file for path in paths or (here.base,) for file in _documents(path)]
    problems = [problem for file in files for problem in _problems(file)]
    facts = {"documents": len(files), "problems": [str(problem) for problem in problems]}
    here.answer("validation", facts, "\n".join(str(problem) for problem in problems))
    if not here.options.as_json:
        click.echo(f"{len(files)} documents, {len(problems)} problems", err=True)
    if problems:
        raise click.exceptions.Exit(INVALID)


@click.command
@click.argument("session_name", metavar="[SESSION]", required=False)
@click.option("--user", help="Whose session it is, where the files no longer say.")
@click.option("--mode", help="Its mode, where the files no longer say.")
@click.pass_obj
def doctor(here: Here, /, session_name: str | None, user: str | None, mode: str | None) -> None:
    """Rebuild what is derived: a lost manifest, shown copies, left-over files; say what was done."""
    from haytham.session.doctor import mend  # noqa: PLC0415

    done = []
    for project_id, session_id in here.folders(session_name):
        session = here.session(project_id, session_id)
        done += [f"{project_id}/{session_id}: {line}" for line in mend(session, user=user, mode=mode)]
    here.answer("doctor", {"done": done}, "\n".join(done) or "nothing to mend")


@click.command
@click.argument("folder", type=click.Path(path_type=Path))
@click.pass_obj
def init(here: Here, /, folder: Path) -> None:
    r"""Copy the built-in workflow to FOLDER, to edit it and run it with --workflow FOLDER.

    \b
    Example:
      haytham init my_workflow && haytham run IDEA --workflow my_workflow
    """
    from haytham.workflow import shipped_workflow  # noqa: PLC0415

    target = here.options.folder / folder
    if target.exists() and any(target.iterdir()):
        raise click.UsageError(f"{folder} is not empty; name a new folder")
    source = shipped_workflow("idea_validation")
    for name, data in source.files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    here.answer(
        "workflow",
        {"folder": str(folder)},
        f"edit {folder}/workflow.yaml and {folder}/agents/, then: haytham run IDEA --workflow {folder}",
    )


def _documents(path: Path) -> list[Path]:
    """The files that are, by their name and place, documents."""
    if path.is_file():
        return [path]
    found = (file for file in path.rglob("*") if _kind(file) is not None and file.is_file())
    return sorted(file for file in found if not any(part.startswith(".") for part in file.relative_to(path).parts))


def _problems(file: Path) -> list[Problem]:
    from haytham.document.kind import load_kind  # noqa: PLC0415 - help needs no schema
    from haytham.document.parse import parse  # noqa: PLC0415
    from haytham.errors import Problem  # noqa: PLC0415

    kind = _kind(file)
    if kind is None:
        return [Problem("is no document of haytham by its name and place", file=str(file))]
    return [problem.within(str(file)) for problem in parse(load_kind(kind), file.read_bytes()).problems]


def _kind(file: Path) -> str | None:
    from haytham.session.layout import kind_of  # noqa: PLC0415

    return kind_of(file.as_posix())
