"""Forks: starting one on another model or workflow, and merging its texts back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.app import trust, workflows
from haytham.app.results import MergeResult
from haytham.app.settings import REPLAY, check_model, set_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from haytham.app.session import Session
    from haytham.app.workflows import WorkflowSource
    from haytham.errors import Problem
    from haytham.history.history import Which
    from haytham.history.merge import MergedPage
    from haytham.text_merge import Side


def fork(  # noqa: PLR0913 - what a fork begins with
    session: Session,
    which: Which | None,
    *,
    name: str,
    purpose: str | None,
    model: str | None,
    workflow: WorkflowSource | None,
) -> Session:
    """Start a session from a snapshot or the present of another one, on another model or workflow if one is given."""
    history, source = session.history, None
    point = None if which is None else history.find(which)
    check_model(model)
    if workflow is not None:
        source, manifest = workflows.resolve_workflow(workflow), session.manifest
        workflows.check(source, replayed=(manifest.model or "").startswith(REPLAY))
        source.workflow.mode_phases(manifest.execution_mode)
    child = history.fork(point, name=name, purpose=purpose)
    if source is not None:
        child.quarantined = tuple(child.documents.switch_workflow(source))
        trust.trust(child.documents)
    if model is not None:
        set_model(child.documents, model)
    return child


def merge(  # noqa: PLR0913 - what is merged, and who decides conflicts
    session: Session,
    source: Session,
    phases: Sequence[int],
    *,
    prefer: Side | None,
    open_editor: Callable[[Path, int], None] | None,
    by: str | None,
) -> MergeResult:
    """Merge the texts of phases of another session into this one.

    With `open_editor` a person resolves conflicts, a page at a time: it is called with the file and the line of the
    first conflict.
    """
    editor = session.bind_editor_decisions(by=by)
    numbers = list(dict.fromkeys(phases))
    report = session.history.merge(source, numbers, prefer=prefer, mark_conflicts=open_editor is not None)
    marked = [page for page in report.pages if page.conflicts]
    if open_editor is not None:
        for page in marked:
            faults = _faults(session, page)
            open_editor(session.folder / page.path, (faults[0].line if faults else None) or 1)
    return MergeResult(
        source.session_id,
        report.phases,
        tuple(number for number in numbers if number not in report.phases),
        opened=report.opened,
        pages=report.pages,
        problems=tuple(str(fault) for page in marked for fault in _faults(session, page)),
        recovery=report.recovery,
        editor=editor,
    )


def _faults(session: Session, page: MergedPage) -> Sequence[Problem]:
    """Return what keeps a page from being read: conflicts that are still marked in it."""
    view = session.documents.read()
    output = view.output(view.phase(page.phase), page.agent)
    return () if output is None else output.faults
