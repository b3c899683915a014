"""Resume and memory: go on from a checkpoint with new words, after a failure by itself, and remember across sessions.

Usage: python examples/resume_and_memory.py [BASE_DIR]     (BASE_DIR is projects/ if none is given)

Checkpoints are the memory of one session; notes are what later sessions of the same user are given. The second session
runs in a process of its own, which knows nothing but the folder.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from haytham import Phase, Workflow, Workspace

if TYPE_CHECKING:
    from haytham import Session, Task

IDEA = "A newsletter on rain barrels"
failures = ["the line is down"] * 3  # what goes wrong: the call, and both times it is repeated


def plan(task: Task) -> str:
    """Plan, with the notes that the task was given: what earlier sessions of the user have learned."""
    return f"# Plan for {task.idea}\n\nRemembered:\n{task.memory or 'nothing'}"


def write(task: Task) -> str:
    """Write a draft, with the words that the user gave for it."""
    if failures:
        raise ValueError(failures.pop())
    return f"# Draft\n\n{task.request or 'As planned.'}"


WORKFLOW = Workflow(
    "newsletter",
    phases=[Phase("Plan", agents=[plan]), Phase("Draft", agents=[write], needs=["Plan"], review="none")],
    snapshots={"enabled": True, "storage_type": "file", "cleanup_after_days": 30, "auto_resume_on_failure": True},
    memory={"enabled": True, "store": "files"},
)


def main(base: Path) -> None:
    """Work through two sessions of one user, and one of another user."""
    heading("Session 1 of ann: a plan, and what she says of it")
    session = start(base, "ann")
    session.run()
    print(session.output("plan").text)
    session.request_changes(comment="Newsletters of mine are never longer than a page.")
    session.run()
    session.approve()

    heading("The draft: its agent fails, and the run goes on by itself")
    print(session.run().status)
    for one in reversed(session.snapshots()):
        print(f"checkpoint {one.number}: {one.kind}, phase {one.phase}, {one.status}, {one.time}")

    heading("Going on from a checkpoint, with other words for the next task")
    approved = next(one for one in session.snapshots() if one.status == "in_progress" and one.kind == "phase")
    session.resume(approved.id, input="Only barrels of wood, please.")
    print(session.output("write").text)

    heading("Session 2 of ann, in a new process")
    in_another_process(base, "ann")
    heading("A session of ben, in a new process")
    in_another_process(base, "ben")
    heading("The notes of ann")
    for note in Workspace(base).memory("ann").list():
        print(note.text.splitlines()[-1])


def start(base: Path, user: str) -> Session:
    """Start a session of a user."""
    return Workspace(base).start(IDEA, workflow=WORKFLOW, user=user)


def in_another_process(base: Path, user: str) -> None:
    """Let a process of its own start a session of a user and show the plan."""
    command = [sys.executable, __file__, str(base), user]
    subprocess.run(command, check=True)  # noqa: S603 - this very file


def another_session(base: Path, user: str) -> None:
    """Run a session up to its plan, and show what is remembered there."""
    session = start(base, user)
    session.run()
    print(session.output("plan").text.partition("Remembered:\n")[2])


def heading(text: str) -> None:
    """Print a heading at once: several processes write here, one after the other."""
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:  # noqa: PLR2004 - a session in a process of its own
        another_session(Path(sys.argv[1]), sys.argv[2])
    else:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "projects"))
