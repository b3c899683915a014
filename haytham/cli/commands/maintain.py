"""`validate`, `doctor` and `init`: look after files, and start a workflow of one's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import INVALID, AppContext, UsageError, ask, echo, in_a_line
from haytham.cli.options import session_option
from haytham.cli.output import pluralize
from haytham.errors import HaythamError, UnknownFact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from haytham.app.session import Session
    from haytham.errors import Problem


@click.command
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.pass_obj
def validate(context: AppContext, /, paths: tuple[Path, ...]) -> None:
    r"""Report all problems of all documents.

    Below each PATH, else below projects/. A PATH is a file or a folder of a session, a session, a project, a folder
    of projects, or a workflow. A derived copy that is behind is a note: the next save draws it again.

    \b
    Examples:
      haytham validate
      haytham validate projects/my_idea
      haytham validate my_workflow
    """
    missing = [str(path) for path in paths if not os.path.lexists(path)]
    if missing:
        raise UsageError(f"{', '.join(missing)} is not there; name a file or a folder to validate")
    if not paths and not context.base.is_dir():
        raise UsageError(f"there is no folder {context.base}/; name the files or folders to validate")
    reports = [context.workspace.validate_path(path, _readable) for path in paths or (context.base,)]
    count = sum(report.documents for report in reports)
    problems = list(dict.fromkeys(problem for report in reports for problem in report.problems))
    lines = _lines(problem for problem in problems if not problem.derived)
    notes = _lines(problem for problem in problems if problem.derived)
    text = "\n".join([*lines, *(f"note: {note}" for note in notes)])
    context.output("validation", {"documents": count, "problems": lines, "notes": notes}, text)
    if not context.options.as_json and not context.options.quiet:
        told = f"{count} documents, {len(lines)} problems" + (f", {pluralize(len(notes), 'note')}" if notes else "")
        echo(told, err=True)
    if lines:
        raise click.exceptions.Exit(INVALID)


def _lines(problems: Iterable[Problem]) -> list[str]:
    """Return problems as they are printed, each once."""
    return list(dict.fromkeys(in_a_line(str(problem)) for problem in problems))


def _readable(base: Path, file: str) -> str:
    """Return a key as a path from the working folder, unless that leads up and down again."""
    path = os.path.relpath(base.resolve() / file)
    return str(base.resolve() / file) if path.startswith("..") else path


@click.command
@session_option(argument=True)
@click.option("--user", help="Whose session it is, where the files no longer say.")
@click.option("--mode", help="Its mode, where the files no longer say.")
@click.option("--workflow", help="Its workflow, by the start of its name in workflows/, where several are there.")
@click.pass_obj
def doctor(context: AppContext, /, session_name: str | None, **said: str | None) -> None:
    r"""Rebuild what is derived, and say what was done.

    A lost manifest, shown copies that disagree, folders of phases that git did not keep, files that a killed process
    left. Without a name, all sessions. What stands nowhere is asked for, or said with an option.

    \b
    Examples:
      haytham doctor
      haytham doctor 9f3ac1 --user ann --mode mvp
    """
    folders = context.workspace.folders(session_name)
    if not folders:
        raise UsageError(f"there is no session{f' {session_name!r}' if session_name else ''} in {context.base}/")
    done, faults = [], []
    for project_id, session_id in folders:
        try:
            lines = _repair(context, context.workspace.open(project_id, session_id), said)
            done += [f"{in_a_line(f'{project_id}/{session_id}')}: {line}" for line in lines]
        except (HaythamError, UsageError) as error:
            faults.append(error)
    text = "\n".join(done) or ("" if faults else "no repairs were needed")
    if not context.options.as_json or not faults:
        context.output("doctor", {"done": done}, text)
    for fault in faults[:-1]:
        echo(f"haytham: {fault}", err=True)
    if faults:
        raise faults[-1]


def _repair(context: AppContext, session: Session, facts: dict[str, str | None]) -> list[str]:
    """Repair a session, and ask for what no file says."""
    while True:
        try:
            report = session.repair(**facts)
        except UnknownFact as unknown:
            if not context.can_ask():
                raise
            facts = {**facts, unknown.name: str(ask(f"the {unknown.name} of session {session.session_id}"))}
        else:
            return [*report.done, *([f"swept {report.swept} temporary files"] if report.swept else [])]


@click.command
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.pass_obj
def init(context: AppContext, /, folder: Path) -> None:
    r"""Copy the built-in workflow to DIR, to edit it.

    It runs with --workflow DIR.

    \b
    Example:
      haytham init my_workflow && haytham run IDEA --workflow my_workflow
    """
    files = context.workspace.copy_workflow(folder)
    ways = f"edit {folder}/workflow.yaml and {folder}/agents/, then: haytham run IDEA --workflow {folder}"
    facts: dict[str, Any] = {"folder": str(folder), "files": list(files)}
    context.output("workflow", facts, ways)
