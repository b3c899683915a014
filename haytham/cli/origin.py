"""What becomes of a session whose workflow was changed in the folder it was copied from: refused, accepted or kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from haytham.cli.context import UsageError
from haytham.cli.options import REPLAY
from haytham.cli.start import check
from haytham.config.workflow import CONTRACTS, WorkflowFiles, agent_file, folder_files
from haytham.errors import InvalidDocument, WorkflowChanged
from haytham.session.paths import session_lock

if TYPE_CHECKING:
    from haytham.cli.context import AppContext
    from haytham.config.workflow import Phase
    from haytham.session import Session


def check_workflow_changed(here: AppContext, session: Session, *, accept: bool, keep: bool) -> None:
    """Refuse to go on with a workflow that changed, unless it is said which one counts."""
    if accept and keep:
        raise UsageError("say which workflow counts: --accept-workflow or --keep-workflow, not both")
    reading = session.read()
    manifest = reading.manifest.value
    origin = Path(manifest["origin"])
    if not origin.is_absolute() or not origin.is_dir():
        return  # a shipped workflow: a new release is no change
    source = WorkflowFiles(str(origin), folder_files(origin))
    if keep and not _can_be_read(source):
        return  # whatever becomes of it there, the session has its own
    if source.digest in (manifest["workflow"], manifest.get("kept_workflow")):
        return
    if not (accept or keep):
        raise WorkflowChanged(str(origin), _changes(reading.workflow_files(), source))
    if accept:
        check(source, replayed=str(manifest.get("model", "")).startswith(REPLAY))
    with session.store.run_lock(session_lock(session.project_id, session.session_id)):
        for line in session.switch_workflow(source) if accept else ():
            here.info(line)
        if keep:
            session.update_manifest({"kept_workflow": source.digest})


def _can_be_read(source: WorkflowFiles) -> bool:
    try:
        return bool(source.digest)
    except InvalidDocument:
        return False


def _changes(before: WorkflowFiles, after: WorkflowFiles) -> list[str]:
    old = {phase.number: phase for phase in before.workflow.phases}
    new = {phase.number: phase for phase in after.workflow.phases}
    said = []
    for number in sorted(old.keys() | new.keys()):
        if number not in new:
            said.append(f"phase {number}, {old[number].name}, is gone")
        elif number not in old:
            said.append(f"phase {number}, {new[number].name}, is new")
        else:
            said += [
                f"phase {number}, {old[number].name}: {change}" for change in _phase_changes(old[number], new[number])
            ]
    agents = sorted({agent for phase in new.values() for agent in phase.agents})
    said += [f"the file of agent {name}" for name in agents if _differs(before, after, agent_file(name))]
    said += [f"the file {name}" for name in _changed_contracts(before, after)]
    return said or ["its modes, or something else that no phase shows"]


def _phase_changes(old: Phase, new: Phase) -> list[str]:
    names = ("name", "slug", "agents", "needs", "run", "review", "when")
    return [
        f"{name} {_said(getattr(old, name))} before, {_said(getattr(new, name))} now"
        for name in names
        if getattr(old, name) != getattr(new, name)
    ]


def _said(value: object) -> str:
    """A value as a person would write it."""
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in value) or "nothing"
    return "nothing" if value is None else str(value)


def _differs(before: WorkflowFiles, after: WorkflowFiles, name: str) -> bool:
    return name in before.files and before.files[name] != after.files.get(name)


def _changed_contracts(before: WorkflowFiles, after: WorkflowFiles) -> list[str]:
    names = sorted(name for name in {**before.files, **after.files} if name.startswith(f"{CONTRACTS}/"))
    return [name for name in names if before.files.get(name) != after.files.get(name)]
