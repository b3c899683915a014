"""Going back in time: look at what was, undo a mishap, try another way, and go on from any snapshot by its id.

Usage: python examples/time_travel.py [BASE_DIR]     (BASE_DIR is projects/ where none is given)

The session is driven by the runner, which takes snapshots by itself: after each phase, at each approval, before a phase
runs again, when something fails, and at the end. Where they rest is the workflow's to say.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from haytham import ProjectManager, Workspace
from haytham.agents.base import Reply, Task
from haytham.config.workflow import WorkflowFiles
from haytham.engine.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from haytham.app.history import SessionHistory
    from haytham.events import Event
    from haytham.history.compare import Comparison
    from haytham.history.snapshot import Snapshot

IDEA = "A service that lends rain barrels to allotment gardens and reads their levels by phone."
WORKFLOW = """
name: offer
phases:
  - {number: 1, name: Facts, slug: facts, agents: [facts]}
  - {number: 2, name: Offer, slug: offer, agents: [offer], needs: [1]}
  - {number: 3, name: Price, slug: price, agents: [price], needs: [1, 2]}
modes:
  all: [1, 2, 3]
checkpointing: """
FINDINGS = {
    "facts": "In the county 14,000 gardens have no mains water.",
    "offer": "We lend a barrel for a season and read its level.",
    "price": "A season costs 30 euros, of which 20 are a deposit.",
}
FACTS = "phase_1_facts/facts.md"


def write(task: Task) -> Reply:
    """Answer as an agent: say what was found and what it builds on, and store the latter in the session."""
    if task.agent == "price":
        task.snapshot("before the price is set")  # an agent may take snapshots, too
    ground = [given.text.splitlines()[2] for given in task.inputs] or [task.idea]
    lines = [f"# {task.phase_name}", "", FINDINGS[task.agent], "", "## Builds on", "", *(f"- {one}" for one in ground)]
    return Reply("\n".join(lines), cost=0.0, state={"fields": {"collected": {task.agent: ground[0]}}})


def main(base: Path) -> None:
    """Walk through all of it, and say what happens."""
    history = begin(base, "ann", "{retention: {recovery: {keep_last: 1}}}")
    two_phases(base, history)
    good = history.list()[0]
    look_back(base, history)
    mishap(base, history, good)
    restore(history)
    fork(base, history, good)
    risk(base, history)
    clean_up(history)
    resume(base, good.id)
    storages(base)


def begin(base: Path, user: str, policy: str) -> SessionHistory:
    """Make a project and a session of it; `policy` is what its workflow says of history."""
    project = ProjectManager(base).create_project(user, IDEA, project_name="Time travel")
    agents = {f"agents/{name}.md": b"---\nmodel: python:time_travel:write\n---\nWrite.\n" for name in FINDINGS}
    source = WorkflowFiles("time_travel", {"workflow.yaml": (WORKFLOW + policy).encode(), **agents})
    session = Workspace(base).open(project["project_id"], "main")
    session.documents.create(user_id=user, source=source, mode="all")
    return listening(session.history)


def listening(history: SessionHistory) -> SessionHistory:
    """Hear of every snapshot that is taken or restored, by us or by the runner."""
    history.events.on("snapshot_saved", hear)
    history.events.on("snapshot_restored", hear)
    return history


def hear(event: Event) -> None:
    """Print what happened."""
    kind = f", {event.facts['kind']}" if "kind" in event.facts else ""
    print(f"  {event.name}: {event.facts['number']}{kind}")


def run(history: SessionHistory, *, approve_as: str | None = None, retry: int | None = None) -> None:
    """Let the runner go on until a person is needed, or all is done."""
    runner = Runner(history.session, history.events, approve_as=approve_as, may_run_code=True)
    outcome = asyncio.run(runner.run(by="ann", retry=retry))
    print(f"{outcome.status} at phase {outcome.phase}" if outcome.phase else outcome.status)


def edit(base: Path, history: SessionHistory, path: str, old: str, new: str) -> None:
    """Change a document of a session as a person does: in an editor."""
    file = base / history.session.prefix / path
    file.write_text(file.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")


def approve(base: Path, history: SessionHistory, folder: str) -> None:
    """Approve a phase; that is a line in a file."""
    edit(base, history, f"{folder}/user_feedback.md", "- Action: pending", "- Action: approved")


def two_phases(base: Path, history: SessionHistory) -> None:
    """Run the first phase, approve it, and run the second."""
    heading("Two phases, and snapshots by themselves")
    run(history)
    approve(base, history, "phase_1_facts")
    run(history)


def look_back(base: Path, history: SessionHistory) -> None:
    """List the snapshots of a user, in whatever project, and read a document as it was in one of them."""
    heading("What there is, and a document as it was")
    for one in Workspace(base).history().list(user="ann", limit=3, offset=0):
        print(f"{one.id}: {one.project}/{one.session} was {one.status} in phase {one.phase} at {one.time}")
    text = history.read("1", FACTS).decode()
    print(text[text.index("# Facts") :].strip())


def mishap(base: Path, history: SessionHistory, good: Snapshot) -> None:
    """Spoil a fact, and let the next phase build on it."""
    heading("A mishap: a number is wrong, approved, and built on")
    edit(base, history, FACTS, "14,000", "140")
    run(history)
    approve(base, history, "phase_1_facts")
    run(history)
    show(history.compare(good))


def show(found: Comparison) -> None:
    """Print what differs between two moments."""
    print(f"status: {found.old_status} -> {found.new_status}")
    of_state = {name: change for name, change in found.changed_fields.items() if name.startswith("state.")}
    print(f"changed fields: {len(found.changed_fields)}, of the state: {len(of_state)}")
    for name, change in of_state.items():
        print(f"  {name}: {change.old} -> {change.new}")
    print(f"changed texts: {', '.join(found.texts) or 'none'}")
    for line in found.texts.get(FACTS, "").splitlines()[2:]:
        if line.startswith(("-", "+")):
            print(f"  {line}")


def restore(history: SessionHistory) -> None:
    """Find the newest snapshot from before the mishap, go back to it, and run the phase again."""
    heading("Back to before the mishap, and again")
    target = next(one for one in history.list() if b"14,000" in history.read(one, FACTS))
    recovery = history.restore(target)
    print(f"restored {target.number}; snapshot {recovery.number} would undo that")
    run(history, retry=2)
    show(history.compare(target))


def fork(base: Path, history: SessionHistory, good: Snapshot) -> None:
    """Try another way in a session of its own; this one is not touched."""
    heading("Another way, in a fork")
    child = listening(history.fork(good, name="one_town", purpose="Begin where people know us").history)
    edit(base, child, FACTS, "In the county 14,000", "In our own town 90")
    run(child, approve_as="ann")
    show(history.compare(history.session, child.session))


def risk(base: Path, history: SessionHistory) -> None:
    """Do something that goes wrong half-way; the session is made what it was before."""
    heading("Something risky")
    file = base / history.session.prefix / FACTS
    try:
        with history.operation("tidy up", rollback=True):
            file.unlink()
            file.with_name("notes.md").rename(file)  # there are no notes
    except FileNotFoundError:
        print(f"it failed, and {file.name} is {'there again' if file.exists() else 'gone'}")


def clean_up(history: SessionHistory) -> None:
    """Let go of what the rules of the workflow let go; first only say what that is."""
    heading("Cleaning up")
    print(f"would go: {numbers(history.prune(dry_run=True))}")
    print(f"went: {numbers(history.prune())}, older than a month: {numbers(history.prune(older_than='30d'))}")
    print(f"left: {numbers(history.list())}, problems: {len(history.verify())}")


def resume(base: Path, snapshot_id: str) -> None:
    """Go on from a snapshot, with nothing at hand but its id."""
    heading(f"Going on from {snapshot_id}")
    found = next(one for one in Workspace(base).history().list(limit=None) if one.id == snapshot_id)
    history = listening(Workspace(base).open(found.project, found.session).history)
    history.restore(found)
    run(history, approve_as="ann")
    print(f"collected: {', '.join(history.session.state()['fields']['collected'])}")


def storages(base: Path) -> None:
    """Keep histories in files, in memory or in a database; then remove all of a user's."""
    heading("Three places to keep a history")
    for policy in ("{storage_type: file}", "{storage_type: memory}", "{storage_type: sqlite}"):
        history = begin(base, "guest", policy)
        run(history)
        print(f"{policy}: {len(history.list())} snapshot, problems: {len(history.verify())}")
    print(f"cleared of guest: {Workspace(base).history().clear('guest')}")


def numbers(snapshots: Sequence[Snapshot]) -> str:
    """Return the numbers of snapshots."""
    return ", ".join(str(one.number) for one in snapshots) or "nothing"


def heading(text: str) -> None:
    """Print a heading."""
    print(f"\n== {text}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "projects"))
