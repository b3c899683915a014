"""Workflows as callers name them: found, checked before use, compared with their source, copied for editing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from haytham.app.settings import REPLAY, current_user
from haytham.config.workflow import (
    AGENTS,
    FILE,
    Workflow,
    WorkflowFiles,
    agent_file,
    editable_copy,
    folder_files,
    has_place_for_reviewers,
    load_workflow,
    parse_workflow,
    shipped_names,
    shipped_workflow,
)
from haytham.errors import InvalidArgument, InvalidDocument, InvalidRequest, WorkflowChanged
from haytham.session.paths import session_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from haytham.config.workflow import Phase
    from haytham.session.session import SessionDocuments
    from haytham.session.view import SessionView

WorkflowSource = str | os.PathLike[str] | Workflow | WorkflowFiles
BUILT_IN = "idea_validation"
TEMPLATES = ("minimal", "idea-validation", "rfc", "post-mortem")
BUILT_IN_TEMPLATE = "idea-validation"
USUAL_MODE = "mvp"


def resolve_workflow(workflow: WorkflowSource | None) -> WorkflowFiles:
    """Return the files of a workflow given by name, folder, object or files; without one, the built-in workflow."""
    if workflow is None:
        return shipped_workflow(BUILT_IN)
    if isinstance(workflow, Workflow):
        return workflow.to_files()
    return workflow if isinstance(workflow, WorkflowFiles) else load_workflow(os.fspath(workflow), Path())


def is_workflow(name: str) -> bool:
    """Return whether a workflow is meant: its folder, its workflow.yaml, or the name of a shipped one."""
    path = Path(name)
    try:
        return name in shipped_names() or (path / FILE).is_file() or (path.name == FILE and path.is_file())
    except OSError:  # too long for a name
        return False


def check(source: WorkflowFiles, *, replayed: bool = False) -> None:
    """Raise InvalidDocument for a workflow that could not run to its end; no code of it is run."""
    from haytham.engine.preflight import check_workflow  # noqa: PLC0415 - brings Jinja, a third-party package

    check_workflow(source, replayed=replayed)


def choose_mode(source: WorkflowFiles, mode: str | None) -> str:
    """Return a mode of a workflow: the given one, else mvp, else its first."""
    modes = source.workflow.modes
    chosen = mode or (USUAL_MODE if USUAL_MODE in modes else next(iter(modes)))
    source.workflow.mode_phases(chosen)
    return chosen


def copy_template(folder: Path, template: str, reviewers: Sequence[str]) -> tuple[str, ...]:
    """Copy a shipped workflow to a new or empty folder, for a person to edit; return the names of its files.

    `reviewers` review the phases that the template leaves to named people; without any, whoever copies it.
    """
    if template not in TEMPLATES:
        raise InvalidArgument("template", template, ", ".join(TEMPLATES))
    name = template.replace("-", "_")
    has_place = has_place_for_reviewers(name)
    if reviewers and not has_place:
        raise InvalidRequest(f"template {template} names no reviewers; add them to a phase: reviewers: [ann, bob]")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidRequest(f"{folder} is there already and not an empty folder; name a new one")
    files = editable_copy(name, (reviewers or [current_user(None)]) if has_place else ())
    parse_workflow(files[FILE], file=str(folder / FILE))  # names of reviewers come from outside
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tuple(sorted(files))


# A workflow that was changed in the folder it was copied from.


@dataclass(frozen=True)
class WorkflowUpdate:
    """What the changed source of a session's workflow led to: nothing, the session's copy kept, or the new one."""

    accepted: bool = False
    kept: bool = False
    quarantined: tuple[str, ...] = ()


def update_workflow(
    view: SessionView, given: WorkflowFiles | None, *, accept: bool, keep: bool
) -> WorkflowFiles | None:
    """Return the changed source of a session's workflow, as given or in its folder; None if it has not changed.

    Raise WorkflowChanged for a changed one unless the caller accepts it or keeps the session's copy.
    """
    manifest = view.manifest.value
    source = given or _source_in_folder(Path(manifest.origin))
    if source is None:
        return None  # a shipped workflow, or one built in Python: a new release is no change
    if keep and not _is_readable(source):
        return None  # the session has its own copy
    if source.digest in (manifest.workflow, manifest.kept_workflow):
        return None
    if not (accept or keep):
        raise WorkflowChanged(source.origin, workflow_changes(view.workflow_files(), source))
    return source


def _source_in_folder(origin: Path) -> WorkflowFiles | None:
    """Return the workflow in the folder that a session's copy was made from; None if there is no such folder."""
    if not origin.is_absolute() or not origin.is_dir():
        return None
    return WorkflowFiles(str(origin), folder_files(origin))


def update_session(
    documents: SessionDocuments, given: WorkflowFiles | None, *, accept: bool, keep: bool
) -> WorkflowUpdate:
    """Switch a session to the changed source of its workflow, or note that it keeps its own copy.

    WorkflowChanged for a changed one unless the caller accepts it or keeps the copy.
    """
    view = documents.read()
    source = update_workflow(view, given, accept=accept, keep=keep)
    if source is None:
        return WorkflowUpdate()
    if accept:
        check(source, replayed=(view.settings.model or "").startswith(REPLAY))
    with documents.store.run_lock(session_lock(documents.project_id, documents.session_id)):
        if accept:
            return WorkflowUpdate(accepted=True, quarantined=tuple(documents.switch_workflow(source)))
        documents.update_manifest({"kept_workflow": source.digest})
        return WorkflowUpdate(kept=True)


def _is_readable(source: WorkflowFiles) -> bool:
    try:
        return bool(source.digest)
    except InvalidDocument:
        return False


def workflow_changes(before: WorkflowFiles, after: WorkflowFiles) -> list[str]:
    """Return what differs between two versions of a workflow, a line for each phase, agent and contract."""
    old = {phase.number: phase for phase in before.workflow.phases}
    new = {phase.number: phase for phase in after.workflow.phases}
    lines = []
    for number in sorted(old.keys() | new.keys()):
        if number not in new:
            lines.append(f"phase {number}, {old[number].name}, is gone")
        elif number not in old:
            lines.append(f"phase {number}, {new[number].name}, is new")
        else:
            lines += [
                f"phase {number}, {old[number].name}: {change}" for change in _phase_changes(old[number], new[number])
            ]
    lines += _changes(before.workflow.wording, after.workflow.wording, ("subject", "currency"))
    agents = sorted({agent for phase in new.values() for agent in phase.agents})
    lines += [f"the file of agent {name}" for name in agents if _differs(before, after, agent_file(name))]
    lines += [f"the file {name}" for name in _changed_files(before, after)]
    lines += ["its hooks"] if before.workflow.hooks != after.workflow.hooks else []
    return lines or ["its modes, or something else that no phase shows"]


def _phase_changes(old: Phase, new: Phase) -> list[str]:
    return _changes(old, new, ("name", "slug", "agents", "needs", "run", "review", "reviewers", "when"))


def _changes(old: object, new: object, names: tuple[str, ...]) -> list[str]:
    """Return a line for each of some fields that differs."""
    return [
        f"{name} {_readable(getattr(old, name))} before, {_readable(getattr(new, name))} now"
        for name in names
        if getattr(old, name) != getattr(new, name)
    ]


def _readable(value: object) -> str:
    """Return a value as a person would write it."""
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in value) or "nothing"
    return "nothing" if value is None else str(value)


def _differs(before: WorkflowFiles, after: WorkflowFiles, name: str) -> bool:
    return name in before.files and before.files[name] != after.files.get(name)


def _changed_files(before: WorkflowFiles, after: WorkflowFiles) -> list[str]:
    """Return the contracts and the scripts of hooks that differ."""
    names = {**before.files, **after.files}.keys() - {FILE}
    others = sorted(name for name in names if not name.startswith(f"{AGENTS}/"))
    return [name for name in others if before.files.get(name) != after.files.get(name)]
