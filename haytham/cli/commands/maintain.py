"""Care of files and snapshots: validate, doctor, init, pin, unpin, delete, prune and verify."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haytham.app.workflows import BUILT_IN_TEMPLATE, TEMPLATES
from haytham.cli.context import (
    ERROR,
    INVALID,
    UNFINISHED,
    AppContext,
    UsageError,
    ask,
    confirm,
    echo,
    in_a_line,
    sanitize,
)
from haytham.cli.options import complete_snapshots, session_option
from haytham.cli.output import format_size, pluralize, reviewer_words, snapshot_title, snapshot_to_json
from haytham.config.policy import KINDS
from haytham.errors import HaythamError, Problem, UnknownFact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from haytham.app.session import Session
    from haytham.config.policy import SnapshotKind
    from haytham.history.snapshot import Snapshot


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
        summary = f"{count} documents, {len(lines)} problems" + (f", {pluralize(len(notes), 'note')}" if notes else "")
        echo(summary, err=True)
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
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    default=BUILT_IN_TEMPLATE,
    help="The workflow to start from.  [default: idea-validation]",
)
@click.option(
    "--reviewer",
    "reviewers",
    metavar="NAME",
    multiple=True,
    help="With rfc: who decides; may be given several times.  [default: you]",
)
@click.pass_obj
def init(context: AppContext, /, folder: Path, template: str, reviewers: tuple[str, ...]) -> None:
    r"""Copy a workflow to DIR, to edit it.

    It runs with --workflow DIR. minimal has one phase, idea-validation seven; rfc is for proposals: problem, options,
    decision; post-mortem for incidents: timeline, causes, actions.

    \b
    Examples:
      haytham init my_workflow && haytham run IDEA --workflow my_workflow
      haytham init proposals --template rfc --reviewer ann --reviewer bob
    """
    files = context.workspace.copy_workflow(folder, template=template, reviewers=reviewers)
    workflow = context.workspace.graph(folder).workflow
    then = f"haytham run {workflow.wording.subject.upper()} --workflow {folder}"
    reviewed = [phase for phase in workflow.phases if phase.reviewers]
    lines = [f"phase {one.number}, {one.name}, is reviewed{reviewer_words(one.reviewers)}" for one in reviewed]
    facts: dict[str, Any] = {"folder": str(folder), "template": template, "files": list(files)}
    text = "\n".join([*lines, f"edit {folder}/workflow.yaml and {folder}/agents/, then: {then}"])
    context.output("workflow", facts, text)


def _one(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments of a command about one snapshot."""
    for decorate in (
        click.pass_obj,
        session_option(argument=False),
        click.argument("which", metavar="ID", shell_complete=complete_snapshots),
    ):
        command = decorate(command)
    return command


@click.command
@_one
def pin(context: AppContext, /, which: str, session_name: str | None) -> None:
    r"""Keep a snapshot, whatever the rules say.

    \b
    Example:
      haytham pin 3
    """
    session, snapshot = context.workspace.snapshot(which, session_name, among=UNFINISHED)
    session.history.pin(snapshot)
    context.output(
        "pin",
        {"snapshot": snapshot_to_json(snapshot, pinned=True)},
        f"{snapshot_title(snapshot)}, is pinned: it is never deleted",
    )


@click.command
@_one
def unpin(context: AppContext, /, which: str, session_name: str | None) -> None:
    r"""Let the rules decide on a pinned snapshot again.

    \b
    Example:
      haytham unpin 3
    """
    session, snapshot = context.workspace.snapshot(which, session_name, among=UNFINISHED)
    history = session.history
    was_pinned = snapshot.id in history.pins()
    history.unpin(snapshot)
    result = "is not pinned any more" if was_pinned else "was not pinned"
    context.output(
        "unpin", {"snapshot": snapshot_to_json(snapshot, pinned=False)}, f"{snapshot_title(snapshot)}, {result}"
    )


@click.command
@_one
def delete(context: AppContext, /, which: str, session_name: str | None) -> None:
    r"""Remove one snapshot, of whatever kind.

    One that is pinned, or that a fork comes from, stays. Nothing of the session itself is touched.

    \b
    Example:
      haytham delete 9f3ac1
    """
    session, snapshot = context.workspace.snapshot(which, session_name, among=UNFINISHED)
    before = _bytes_at_rest(context, snapshot.project)
    session.history.delete(snapshot)
    freed = _freed(before, _bytes_at_rest(context, snapshot.project))
    row = snapshot_to_json(snapshot, pinned=False)
    context.output(
        "delete", {"snapshot": row, "bytes": freed}, f"{snapshot_title(snapshot)}, is removed{_given_back(freed)}"
    )


@click.command
@session_option(argument=True)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--older-than", metavar="AGE", help="All that is older, like 30d (m, h, d, w), not by the rules.")
@click.option("--kind", type=click.Choice(KINDS), help="Only those of a kind.")
@click.option("--all", "everywhere", is_flag=True, help="In all sessions of all projects.")
@click.option("--user", help="With --all: clear the history of a user, whatever the rules keep.")
@click.option("--yes", is_flag=True, help="With --user: do not ask.")
@click.pass_obj
def prune(
    context: AppContext, /, session_name: str | None, *, everywhere: bool, user: str | None, yes: bool, **options: Any
) -> None:
    r"""Let go of snapshots that the rules do not keep.

    The rules are those of the workflow. The newest, those of approvals, labelled, manual, final and pinned ones, and
    those that a fork comes from always stay. With --all and --user all snapshots of a user are deleted, pinned ones
    too, except those that a fork comes from.

    \b
    Examples:
      haytham prune --dry-run
      haytham prune --older-than 30d --kind phase
      haytham prune --all
      haytham prune --user ann --all --dry-run
    """
    if everywhere and session_name is not None:
        raise UsageError("say where to prune: in a session or --all, not both")
    if user is not None:
        _clear_user(context, user, everywhere=everywhere, yes=yes, **options)
        return
    session = None if everywhere else context.workspace.session(session_name, among=UNFINISHED)
    project = None if session is None else session.project_id
    before = _bytes_at_rest(context, project)
    removed = _pruned(context, session, **options)
    freed = None if options["dry_run"] else _freed(before, _bytes_at_rest(context, project))
    rows = [snapshot_to_json(snapshot, pinned=False) for snapshot in removed]
    facts = {"dry_run": options["dry_run"], "snapshots": rows, "bytes": freed}
    context.output("prune", facts, _gone_words(removed, freed, dry_run=options["dry_run"], everywhere=everywhere))


def _clear_user(  # noqa: PLR0913 - the options of a command
    context: AppContext,
    user: str,
    *,
    everywhere: bool,
    yes: bool,
    dry_run: bool,
    older_than: str | None,
    kind: SnapshotKind | None,
) -> None:
    """Delete all snapshots of a user, or list them."""
    if not everywhere or older_than is not None or kind is not None:
        raise UsageError(
            "--user clears the whole history of a user: give it with --all, without --older-than and --kind"
        )
    histories = context.workspace.history()
    removed, before = histories.clearable(user), _bytes_at_rest(context, None)
    if removed and not dry_run:
        if not yes:
            _confirm_clear(context, user, len(removed))
        histories.clear(user)
    freed = None if dry_run else _freed(before, _bytes_at_rest(context, None))
    rows = [snapshot_to_json(snapshot, pinned=False) for snapshot in removed]
    text = _gone_words(removed, freed, dry_run=dry_run, everywhere=True)
    context.output("prune", {"dry_run": dry_run, "snapshots": rows, "bytes": freed}, text)


def _confirm_clear(context: AppContext, user: str, count: int) -> None:
    if not context.can_ask():
        raise UsageError(f"deleted snapshots cannot be restored; confirm with: haytham prune --user {user} --all --yes")
    if not confirm(f"delete {pluralize(count, 'snapshot')} of {user}?"):
        context.info("nothing was deleted")
        raise click.exceptions.Exit(ERROR)


def _pruned(
    context: AppContext, session: Session | None, *, dry_run: bool, older_than: str | None, kind: SnapshotKind | None
) -> list[Snapshot]:
    if session is None:
        return context.workspace.history().prune(dry_run=dry_run, older_than=older_than, kind=kind)
    return session.history.prune(dry_run=dry_run, older_than=older_than, kind=kind)


def _gone_words(removed: list[Snapshot], freed: int | None, *, dry_run: bool, everywhere: bool) -> str:
    """Return each snapshot that was or would be deleted, and their number."""
    if not removed:
        return "no snapshot is to go"
    where = [f"{snapshot.project}/{snapshot.session}, " if everywhere else "" for snapshot in removed]
    about = [f"{snapshot_title(snapshot)}, {snapshot.kind}, {snapshot.time}" for snapshot in removed]
    lines = [sanitize(f"{'would remove' if dry_run else 'removed'} {a}{b}") for a, b in zip(where, about, strict=True)]
    many = pluralize(len(removed), "snapshot")
    return "\n".join([*lines, f"{many} would go" if dry_run else f"{many} removed{_given_back(freed)}"])


def _bytes_at_rest(context: AppContext, project_id: str | None) -> int | None:
    """Return how many bytes the history of a project, or of all, takes on disk; None if it rests elsewhere."""
    folders = list(context.base.glob(f"{project_id or '*'}/history"))
    return (
        sum(path.lstat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
        if folders
        else None
    )


def _freed(before: int | None, after: int | None) -> int | None:
    return None if before is None else max(before - (after or 0), 0)


def _given_back(freed: int | None) -> str:
    return "" if freed is None else f", {format_size(freed)} given back"


@click.command
@session_option(argument=True)
@click.option("--all", "everywhere", is_flag=True, help="The snapshots of all sessions of all projects.")
@click.pass_obj
def verify(context: AppContext, /, session_name: str | None, *, everywhere: bool) -> None:
    r"""Check that snapshots can be relied on.

    Records and bytes are read, and each snapshot is restored into memory. Exit code 6 where something is wrong.

    \b
    Examples:
      haytham verify
      haytham verify --all
    """
    if everywhere and session_name is not None:
        raise UsageError("say what to verify: a session or --all, not both")
    chosen = None if everywhere else context.workspace.session(session_name)
    pairs = context.workspace.folders() if chosen is None else [(chosen.project_id, chosen.session_id)]
    reports = [_verified(context, *pair) for pair in pairs]
    count = sum(snapshots for snapshots, _ in reports)
    lines = list(dict.fromkeys(in_a_line(str(problem)) for _, problems in reports for problem in problems))
    context.output("verification", {"snapshots": count, "problems": lines}, "\n".join(lines))
    if not context.options.as_json and not context.options.quiet:
        echo(f"{pluralize(count, 'snapshot')}, {pluralize(len(lines), 'problem')}", err=True)
    if lines:
        raise click.exceptions.Exit(INVALID)


def _verified(context: AppContext, project_id: str, session_id: str) -> tuple[int, list[Problem]]:
    """Return how many snapshots a session has, and their problems with readable paths."""
    try:
        history = context.workspace.open(project_id, session_id).history
        count, problems = len(history.ids()), history.verify()
    except (HaythamError, OSError) as error:
        return 0, [Problem(str(error), file=f"{context.base}/{project_id}/sessions/{session_id}")]
    is_here = history.is_in_workspace
    return count, [
        replace(problem, file=f"{context.base}/{problem.file}") if is_here else problem for problem in problems
    ]
