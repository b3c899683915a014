"""A loop around an agent of your own: routine snapshots every 30 minutes, a refresh every two hours.

Usage: python examples/agent_loop.py [BASE_DIR]     (BASE_DIR is projects/ where none is given)

The agent is any callable; here it answers one letter of its mailbox in a cycle of ten minutes. What it knows it keeps
in the state of its session, so that nothing is lost when the loop goes on from disk. An exception of the agent would be
told, with a recovery snapshot, and the loop would go on. The two hours pass at once: the clock is not the real one.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from haytham import Phase, Workflow, Workspace, clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham import Session
    from haytham.app.loop import Cycle

MINUTES = 121
CYCLE = 10
LETTERS = [f"letter {number}" for number in range(1, 16)]
WORKFLOW = Workflow(
    "agent_loop",
    phases=[Phase("Letters", agents=["worksheet"])],
    snapshots={
        "auto": "every",
        "frequency": 1000,  # by time alone: so many steps are never reached before
        "interval_minutes": 30,
        "retention": {"routine": {"keep_last": 3}, "recovery": {"cleanup_after_days": 7}},
    },
    drift={"age_minutes": 120, "action": "refresh"},
)


def answer_letter(session: Session) -> str:
    """Answer the next letter of the mailbox, and remember that in the state."""
    mailbox, done = session.state["mailbox"], session.state["task"]["progress"] or 0
    if not mailbox["pending"]:
        return "No letter is left."
    letter, *rest = mailbox["pending"]
    session.update_state({"mailbox": {"last_processed": letter, "pending": rest}, "task": {"progress": done + 1}})
    return f"Dear sender of {letter}: yes."


def run_loop(
    session: Session, work: Callable[[Session], object], *, is_active: Callable[[], bool], wait: Callable[[], object]
) -> Session:
    """Work until the loop is to end, cycle after cycle; return the session as the last cycle had it."""
    loop = session.loop()
    while is_active():
        cycle = loop.cycle(work)
        tell(cycle)
        if cycle.is_refreshed:
            print(f"{clock.now()}  goes on from disk: {progress(loop.session)}")
        wait()
    return loop.session


def tell(cycle: Cycle) -> None:
    """Print what a cycle left behind: a snapshot that was due, an error, or drift."""
    if cycle.snapshot is not None:
        print(f"{clock.now()}  {cycle.snapshot.kind} snapshot {cycle.snapshot.number}")
    if cycle.error is not None:
        print(f"{clock.now()}  error: {cycle.error}")
    if cycle.recovery is not None:
        print(f"{clock.now()}  recovery snapshot {cycle.recovery.number}: {cycle.recovery.metadata['operation']}")


def progress(session: Session) -> str:
    """Return how far the work is, by the state alone."""
    state = session.state
    return f"{state['task']['progress']} letters answered, {len(state['mailbox']['pending'])} left"


class Clock:
    """A time that goes on only when it is told to."""

    def __init__(self) -> None:
        self.minutes = 0

    def __call__(self) -> datetime:
        """Return the time now."""
        return datetime(2024, 11, 24, 10, tzinfo=UTC) + timedelta(minutes=self.minutes)

    def wait(self) -> None:
        """Let the time of a cycle pass, and no more than what is left at the end."""
        self.minutes += min(CYCLE, MINUTES - self.minutes) or 1


def main(base: Path, time: Clock) -> Session:
    """Start a session, and let the agent work in it from 0:00 to 2:01."""
    session = Workspace(base).start("Answer all letters.", workflow=WORKFLOW, name="Letters", user="ann")
    task = {"current": "answer letters", "status": "in_progress", "progress": 0}
    session.update_state({"task": task, "mailbox": {"pending": LETTERS}, "context": {"goals": ["an empty mailbox"]}})
    session = run_loop(session, answer_letter, is_active=lambda: time.minutes <= MINUTES, wait=time.wait)
    session.history.prune()  # retention: the newest three routine snapshots, as each run of `haytham` does
    kept = [f"{snapshot.number} {snapshot.kind}" for snapshot in reversed(session.snapshots())]
    print(f"kept: {', '.join(kept)}")
    print(f"at last: {progress(session)}")
    return session


if __name__ == "__main__":
    now = Clock()
    with clock.override(now):
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("projects"), now)
