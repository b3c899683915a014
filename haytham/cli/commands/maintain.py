"""`validate`, `doctor` and `init`: look after files, and start a workflow of one's own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import INVALID, AppContext, UsageError, ask, echo, in_a_line
from haytham.cli.options import session_option
from haytham.errors import HaythamError, InvalidDocument, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from haytham.session import Session
    from haytham.session.repair import InferredManifest

_TEMPORARY = ".haytham-*"


@click.command
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.pass_obj
def validate(here: AppContext, /, paths: tuple[Path, ...]) -> None:
    r"""Report all problems of all documents.

    Below each PATH, else below projects/. A PATH is a file or a folder of a session, a session, a project, a folder
    of projects, or a workflow. A derived copy that is behind is a note: the next save draws it again.

    \b
    Examples:
      haytham validate
      haytham validate projects/my_idea
      haytham validate my_workflow
    """
    from haytham.cli.output import pluralize  # noqa: PLC0415

    missing = [str(path) for path in paths if not os.path.lexists(path)]
    if missing:
        raise UsageError(f"{', '.join(missing)} is not there; name a file or a folder to validate")
    if not paths and not here.base.is_dir():
        raise UsageError(f"there is no folder {here.base}/; name the files or folders to validate")
    reports = [_inspect(path) for path in paths or (here.base,)]
    count = sum(documents for documents, _ in reports)
    problems = list(dict.fromkeys(problem for _, problems in reports for problem in problems))
    lines = _lines(problem for problem in problems if not problem.derived)
    notes = _lines(problem for problem in problems if problem.derived)
    text = "\n".join([*lines, *(f"note: {note}" for note in notes)])
    here.output("validation", {"documents": count, "problems": lines, "notes": notes}, text)
    if not here.options.as_json and not here.options.quiet:
        told = f"{count} documents, {len(lines)} problems" + (f", {pluralize(len(notes), 'note')}" if notes else "")
        echo(told, err=True)
    if lines:
        raise click.exceptions.Exit(INVALID)


def _lines(problems: Iterable[Problem]) -> list[str]:
    """Return problems as they are printed, each once."""
    return list(dict.fromkeys(in_a_line(str(problem)) for problem in problems))


def _inspect(path: Path) -> tuple[int, list[Problem]]:
    """How many documents a path holds, and their problems, with files as a person would name them."""
    from haytham.cli.place import locate  # noqa: PLC0415
    from haytham.config.workflow import FILE  # noqa: PLC0415
    from haytham.session.validate import schema_for_path, validate_tree  # noqa: PLC0415
    from haytham.storage.files import FileStore  # noqa: PLC0415

    if path.name == FILE or (path / FILE).is_file():
        return _inspect_workflow(path)
    spot = locate(path)
    if spot.prefix and not spot.prefix.endswith("/") and schema_for_path(spot.prefix) is None:
        return 1, [Problem("is no document of haytham by its name and place", file=str(path))]
    report = validate_tree(FileStore(spot.base), spot.prefix)
    return report.documents, [replace(one, file=_readable(spot.base, one.file)) for one in report.problems]


def _inspect_workflow(path: Path) -> tuple[int, list[Problem]]:
    from haytham.cli.start import check  # noqa: PLC0415
    from haytham.config.workflow import load_workflow  # noqa: PLC0415

    source = load_workflow(str(path), Path())
    try:
        check(source)
    except InvalidDocument as error:
        return len(source.files), list(error.problems)
    return len(source.files), []


def _readable(base: Path, file: str) -> str:
    """A key as a path from where one is, unless that leads up and down again."""
    path = os.path.relpath(base.resolve() / file)
    return str(base.resolve() / file) if path.startswith("..") else path


@click.command
@session_option(argument=True)
@click.option("--user", help="Whose session it is, where the files no longer say.")
@click.option("--mode", help="Its mode, where the files no longer say.")
@click.option("--workflow", help="Its workflow, by the start of its name in workflows/, where several are there.")
@click.pass_obj
def doctor(here: AppContext, /, session_name: str | None, **said: str | None) -> None:
    r"""Rebuild what is derived, and say what was done.

    A lost manifest, shown copies that disagree, folders of phases that git did not keep, files that a killed process
    left. Without a name, all sessions. What stands nowhere is asked for, or said with an option.

    \b
    Examples:
      haytham doctor
      haytham doctor 9f3ac1 --user ann --mode mvp
    """
    folders = here.folders(session_name)
    if not folders:
        raise UsageError(f"there is no session{f' {session_name!r}' if session_name else ''} in {here.base}/")
    done, faults = [], []
    for project_id, session_id in folders:
        try:
            lines = _mend(here, here.session(project_id, session_id), said)
            done += [f"{in_a_line(f'{project_id}/{session_id}')}: {line}" for line in lines]
        except (HaythamError, UsageError) as error:
            faults.append(error)
    text = "\n".join(done) or ("" if faults else "nothing was to mend")
    if not here.options.as_json or not faults:
        here.output("doctor", {"done": done}, text)
    for fault in faults[:-1]:
        echo(f"haytham: {fault}", err=True)
    if faults:
        raise faults[-1]


def _mend(here: AppContext, session: Session, said: dict[str, str | None]) -> list[str]:
    from haytham.session.repair import infer_manifest, repair  # noqa: PLC0415

    before = _left_over(here, session)
    facts = None if session.exists() else _asked(here, infer_manifest(session, **said))
    done = repair(session, facts)
    swept = before - _left_over(here, session)
    return [*done, *([f"swept {swept} temporary files"] if swept else [])]


def _asked(here: AppContext, facts: InferredManifest) -> InferredManifest:
    """What a lost manifest was the home of, with what stands nowhere asked for."""

    def said(name: str) -> str:
        what = f"the {name} of session {facts.session_id}"
        if not here.can_ask():
            raise UsageError(f"nothing says {what}; say it with --{name}")
        return str(ask(what))

    return replace(facts, user=facts.user or said("user"), mode=facts.mode or said("mode"))


def _left_over(here: AppContext, session: Session) -> int:
    """How many temporary files killed writers left in a session, beside it, and where all of them are written."""
    project = here.base / session.project_id
    inside = (here.base / session.prefix).rglob(_TEMPORARY)
    beside = [*project.glob(_TEMPORARY), *project.glob(f"workflows/**/{_TEMPORARY}")]
    others = here.base.glob(f".haytham/tmp/{_TEMPORARY}")
    return sum(1 for _ in inside) + len(beside) + sum(1 for _ in others)


@click.command
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.pass_obj
def init(here: AppContext, /, folder: Path) -> None:
    r"""Copy the built-in workflow to DIR, to edit it.

    It runs with --workflow DIR.

    \b
    Example:
      haytham init my_workflow && haytham run IDEA --workflow my_workflow
    """
    from haytham.config.workflow import shipped_workflow  # noqa: PLC0415

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already and not an empty folder; name a new one")
    source = shipped_workflow("idea_validation")
    for name, data in source.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    ways = f"edit {folder}/workflow.yaml and {folder}/agents/, then: haytham run IDEA --workflow {folder}"
    facts: dict[str, Any] = {"folder": str(folder), "files": sorted(source.files)}
    here.output("workflow", facts, ways)
