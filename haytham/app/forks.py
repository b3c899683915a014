"""Forking a session: from a snapshot or the present, on another workflow or model if one is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.app import trust, workflows
from haytham.app.settings import REPLAY, check_model, set_model

if TYPE_CHECKING:
    from haytham.app.session import Session
    from haytham.app.workflows import WorkflowSource
    from haytham.history.history import Which


def fork_session(  # noqa: PLR0913 - what a fork may differ in
    session: Session,
    which: Which | None,
    *,
    name: str,
    purpose: str | None,
    model: str | None,
    workflow: WorkflowSource | None,
) -> Session:
    """Start a session of its own; everything is checked before anything is written."""
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
