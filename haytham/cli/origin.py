"""What becomes of a session whose workflow was changed in the folder it was copied from: refused, accepted or kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from haytham.errors import WorkflowChanged
from haytham.workflow import WorkflowFiles, agent_file, folder_files

if TYPE_CHECKING:
    from haytham.cli.context import Here
    from haytham.session import Session
    from haytham.workflow import Phase


def check_origin(here: Here, session: Session, *, accept: bool, keep: bool) -> None:
    """Refuse to go on with a workflow that changed, unless it is said which one counts."""
    reading = session.read()
    manifest = reading.manifest.value
    origin = Path(manifest["origin"])
    if not origin.is_absolute() or not origin.is_dir():
        return  # a shipped workflow: a new release is no change
    source = WorkflowFiles(str(origin), folder_files(origin))
    if source.digest in (manifest["workflow"], manifest.get("kept")):
        return
    if accept:
        for line in session.accept_workflow(source):
            here.say(line)
    elif keep:
        session.change_manifest({"kept": source.digest})
    else:
        raise WorkflowChanged(str(origin), _changes(reading.workflow_files(), source))


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
    said += [f"agent {name}: its file" for name in agents if _differs(before, after, agent_file(name))]
    return said or ["something that no phase shows"]


def _phase_changes(old: Phase, new: Phase) -> list[str]:
    names = ("name", "slug", "agents", "needs", "run", "review", "when")
    return [
        f"{name} {getattr(old, name)!r} is now {getattr(new, name)!r}"
        for name in names
        if getattr(old, name) != getattr(new, name)
    ]


def _differs(before: WorkflowFiles, after: WorkflowFiles, name: str) -> bool:
    return name in before.files and before.files[name] != after.files.get(name)
