"""Time travel: look at what was, undo a mistake, try again from any snapshot, compare, listen, clean up.

Usage: python examples/time_travel.py [BASE_DIR]     (BASE_DIR is projects/ if none is given)

The workflow says `checkpoint: true`: a snapshot is taken after each step. A step may say so for itself, or `false`.
What an agent collects is stored with the session's state, so that every snapshot has it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from haytham import Reply, Workspace
from haytham.config.workflow import WorkflowFiles

if TYPE_CHECKING:
    from haytham import Session, Task
    from haytham.events import Event
    from haytham.history.compare import Comparison

IDEA = "Lend rain barrels to allotment gardens."
WORKFLOW = """
name: offer
workflow:
  checkpoint: true
phases:
  - {number: 1, name: Count gardens, slug: count, agents: [count], review: none, checkpoint: true}
  - {number: 2, name: Find a price, slug: price, agents: [price], review: none, needs: [1], checkpoint: true}
  - {number: 3, name: Write the offer, slug: offer, agents: [offer], needs: [1, 2], checkpoint: false}
modes: {all: [1, 2, 3]}
"""
AGENT = "---\nmodel: python:time_travel:{name}\n---\nAnswer in a line.\n"


def count(_task: Task) -> Reply:
    """Count the gardens."""
    return Reply("14,000 gardens have no mains water.", state={"fields": {"collected": {"gardens": "14,000"}}})


def price(task: Task) -> Reply:
    """Find a price, by mistake ten times too high; unless it is told one."""
    found = task.request or "300 euros"
    state = {"fields": {"collected": {"price": found}}, "summary": f"A barrel costs {found}."}
    return Reply(f"A barrel costs {found} a season.", state=state)


def offer(task: Task) -> Reply:
    """Write the offer from what the other agents found; the step is risky, so it guards itself."""
    with task.operation("write the offer"):  # a snapshot before, deleted when all went well
        return Reply("\n".join(given.text for given in task.inputs))


def main(base: Path) -> None:
    """Make a mistake, and travel back."""
    heading("A run with a mistake")
    session = start(base, "user_123")
    print(f"{session.run().status}: {session.output('offer').text.splitlines()[-1]}")

    heading("The snapshots of a user, in whatever project")
    history = Workspace(base).history()
    for one in history.list("user_123", limit=50, offset=0):
        print(f"{one.kind} {one.number} of {one.session}: {one.status} in phase {one.phase}")
    target = next(one for one in history.list("user_123") if one.phase == 1)

    heading("Restore to the moment before the mistake, and retry")
    mistaken = session.snapshot("with the mistake")
    session.restore(target)
    print(f"collected then: {session.state['fields']['collected']}")
    session.give_input("30 euros")
    print(f"{session.run().status}: {session.output('offer').text.splitlines()[-1]}")

    heading("Compare")
    show(session.diff(mistaken))

    heading("Run another session from a snapshot, by its id alone")
    run_from(base, target.id)

    heading("Clean up")
    print(f"older than 30 days: {len(session.history.prune(older_than='30d'))} deleted")
    print(f"of user_123: {history.clear('user_123')} deleted, {len(history.list('user_123'))} left")


def start(base: Path, user: str) -> Session:
    """Start a session on the workflow, and listen to its snapshots."""
    agents = {f"agents/{name}.md": AGENT.format(name=name).encode() for name in ("count", "price", "offer")}
    source = WorkflowFiles("offer", {"workflow.yaml": WORKFLOW.encode(), **agents})
    return listen(Workspace(base).start(IDEA, workflow=source, user=user, name="Time travel"))


def listen(session: Session) -> Session:
    """Print every snapshot that is saved or restored."""
    session.on("checkpoint_saved", on_saved)

    @session.on("checkpoint_restored")
    async def on_restored(event: Event) -> None:
        print(f"  restored: {event.facts['number']}")

    return session


def on_saved(event: Event) -> None:
    """Print which snapshot was saved."""
    print(f"  saved: {event.facts['number']}, {event.facts['kind']}")


def show(diff: Comparison) -> None:
    """Print what differs between two moments."""
    print(f"status: {diff.old_status} -> {diff.new_status}")
    for name, change in diff.changed_fields.items():
        if name.startswith("state."):
            print(f"{name}: {change.old} -> {change.new}")
    print(f"changed texts: {', '.join(diff.texts)}")


def run_from(base: Path, snapshot_id: str) -> None:
    """Fork the session at a snapshot, and run that to its end; the session itself is not touched."""
    session, snapshot = Workspace(base).snapshot(snapshot_id)
    child = listen(session.fork(snapshot, name="cheaper", purpose="Try a lower price"))
    child.give_input("20 euros")
    print(f"{child.run().status}: {child.output('offer').text.splitlines()[-1]}")
    print(f"the session itself: {session.output('offer').text.splitlines()[-1]}")


def heading(text: str) -> None:
    """Print a heading."""
    print(f"\n== {text}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "projects"))
