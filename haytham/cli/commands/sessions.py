"""`session`: its display name, putting it out of sight, and deleting it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from haytham.cli.context import ERROR, AppContext, UsageError, confirm, sanitize
from haytham.cli.options import complete_sessions, session_option
from haytham.cli.output import pluralize

if TYPE_CHECKING:
    from haytham.app.session import Session
    from haytham.history.fork import DeletionReport


@click.group
def session() -> None:
    r"""Rename, archive or delete a session.

    A session is named by its id or display name, or by any unique part of its id.

    \b
    Examples:
      haytham session rename 9f3ac1 "Half the price"
      haytham session archive "Half the price"
      haytham session delete cheaper --dry-run
    """


def _find(context: AppContext, name: str | None) -> Session:
    """Return the session that is named; these commands choose none themselves."""
    if name is None:
        raise UsageError("say which session is meant; haytham list shows them")
    return context.workspace.session(name)


@session.command
@click.argument("session_name", metavar="SESSION", shell_complete=complete_sessions)
@click.argument("name")
@click.pass_obj
def rename(context: AppContext, /, session_name: str, name: str) -> None:
    r"""Give a session a display name.

    It stands in lists, and names the session in commands; the id stays. An empty NAME takes it away.

    \b
    Examples:
      haytham session rename cheaper "Half the price"
      haytham session rename cheaper ""
    """
    chosen = _find(context, session_name)
    chosen.set_name(name)
    words = f'is called "{chosen.name}"' if chosen.name else "has no display name"
    _print_labels(context, chosen, f"session {chosen.id} {words}")


@session.command
@session_option(argument=True)
@click.option("--undo", is_flag=True, help="List it again.")
@click.pass_obj
def archive(context: AppContext, /, session_name: str | None, *, undo: bool) -> None:
    r"""Put a session out of sight.

    It is listed by haytham list --all only, and no command chooses it unless it is named. Nothing of it changes.

    \b
    Examples:
      haytham session archive cheaper
      haytham session archive cheaper --undo
    """
    chosen = _find(context, session_name)
    chosen.archive(undo=undo)
    _print_labels(context, chosen, f"session {chosen.id} is {'listed again' if undo else 'archived'}")


def _print_labels(context: AppContext, chosen: Session, sentence: str) -> None:
    manifest = chosen.manifest
    ids = {"project": chosen.project_id, "session": chosen.session_id}
    facts = {**ids, "name": manifest.display_name, "archived": manifest.archived}
    context.output("session", facts, sanitize(sentence))


@session.command
@session_option(argument=True)
@click.option("--dry-run", is_flag=True, help="Delete nothing; say what would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(context: AppContext, /, session_name: str | None, *, dry_run: bool, yes: bool) -> None:
    r"""Delete a session for good, with its snapshots.

    Snapshots that forks come from stay, and no other session is touched. The command discard does the same.

    \b
    Examples:
      haytham session delete cheaper --dry-run
      haytham session delete cheaper --yes
    """
    chosen = _find(context, session_name)
    if not dry_run and not yes:
        _confirm(context, chosen)
    report = chosen.delete(dry_run=dry_run)
    ids = {"project": chosen.project_id, "session": chosen.session_id, "dry_run": dry_run}
    facts = {**ids, "documents": report.documents, "snapshots": list(report.snapshots), "kept": list(report.kept)}
    words = "would be deleted" if dry_run else "is deleted"
    context.output("session_deleted", facts, sanitize(f"session {chosen.id} {words}: {_report_words(report)}"))


def _confirm(context: AppContext, chosen: Session) -> None:
    """Ask whether to go on; UsageError if nobody can be asked."""
    if not context.can_ask():
        raise UsageError(
            f"a deleted session is gone for good; say that you mean it: haytham session delete {chosen.id} --yes"
        )
    words = _report_words(chosen.delete(dry_run=True))
    if not confirm(f"delete session {chosen.id} for good, {words}?"):
        context.info("nothing was deleted")
        raise click.exceptions.Exit(ERROR)


def _report_words(report: DeletionReport) -> str:
    """Return how much is deleted, and what stays for forks."""
    words = f"{pluralize(report.documents, 'document')} and {pluralize(len(report.snapshots), 'snapshot')}"
    if not report.kept:
        return words
    return f"{words}; kept for forks: {pluralize(len(report.kept), 'snapshot')}"
