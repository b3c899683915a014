"""A software project of three days, one process a day: snapshots, a budget, events, a fork, statistics.

Usage: python examples/multi_day_project.py [BASE_DIR]     (BASE_DIR is projects/ if none is given)

A day is a phase, a task is an agent. A day ends at a review; the next day is another process, which knows nothing but
the folder, and begins by approving the work of the day before. The clock is fake: a task takes an hour. After day 2 the
session is forked to try another kind of login, and both branches go on.
"""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from haytham import Phase, Reply, Workflow, Workspace, clock
from haytham.app.settings import RunSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham import Session, Task
    from haytham.app.statistics import Statistics
    from haytham.events import Event

IDEA = "An app that lends rain barrels to allotment gardens."


class FakeClock:
    """A clock that stands still until somebody moves it."""

    moment = datetime(2025, 1, 1, 9, tzinfo=UTC)

    def __call__(self) -> datetime:
        """Return the time that it shows."""
        return self.moment


now = FakeClock()


def agent(name: str) -> Callable[[Task], Reply]:
    """Return the agent of a task. Yours would ask an LLM; this one takes an hour and a quarter of a dollar."""

    def work(task: Task) -> Reply:
        now.moment += timedelta(hours=1)
        how = f", as asked: {task.request}" if task.request else ""
        text = f"# {name}\n\nDone on {now():%A} at {now():%H:%M}{how}.\n" + f"\nA line about {name}." * 20
        done = [*task.state["memory"]["session"].get("done", []), name]
        state = {"memory": {"session": {"done": done}}, "task": {"current": name, "progress": len(done)}}
        return Reply(text, input_tokens=900, output_tokens=300, cost=0.25, state=state)

    work.__name__ = name
    return work


WORKFLOW = Workflow(
    "three_days",
    phases=[
        Phase("Day 1", agents=[agent("architecture"), agent("environment")], run="sequential"),
        Phase("Day 2", agents=[agent("data"), agent("logic"), agent("tests")], run="sequential", needs=["Day 1"]),
        Phase("Day 3", agents=[agent("login"), agent("checks"), agent("manual")], run="sequential", needs=["Day 2"]),
    ],
    snapshots={"auto": "every", "frequency": 3, "interval_minutes": 600, "retention": {"routine": {"keep_last": 20}}},
    limits={"max_cost": 1.5},
    drift={"age_minutes": 600},
)


def main(base: Path) -> None:
    """Live through the three days, each in a process of its own, then show what the folder says of them."""
    with clock.override(now):
        session = Workspace(base).start(IDEA, workflow=WORKFLOW, name="Three days", user="sam")
    for day in (1, 2):
        in_another_process(base, session, day)
    now.moment = datetime(2025, 1, 2, 18, tzinfo=UTC)
    with clock.override(now):
        experiment = session.fork(name="experiment", purpose="A login without passwords")
    for one in (experiment, session):
        in_another_process(base, one, 3)
    show_statistics(Workspace(base).statistics(session.project_id))


def in_another_process(base: Path, session: Session, day: int) -> None:
    """Work through a day in a new process."""
    command = [sys.executable, __file__, str(base), session.id, str(day)]
    subprocess.run(command, check=True)  # noqa: S603 - this very file


def work(base: Path, name: str, day: int) -> None:
    """Do the tasks of a day in a session, from where it was left."""
    now.moment = datetime(2025, 1, day, 9, tzinfo=UTC)
    with clock.override(now):
        session = Workspace(base).session(name, workflow=WORKFLOW)
        done = session.state["memory"]["session"].get("done", [])
        say(f"\n== Day {day} of {'the experiment' if session.is_fork else 'the project'}")
        say(f"done so far: {', '.join(done) or 'nothing'}")
        if day > 1:
            session.approve(comment="Go on.")
        if session.is_fork:
            session.give_input("a link by e-mail instead of a password")
        run(session)
        session.snapshot(f"end of day {day}")


def run(session: Session) -> None:
    """Run until the review. At the limit of the budget the run is paused, and somebody raises it."""
    events = session.new_events()
    events.on("agent_completed", show_task)
    events.on("snapshot_saved", show_snapshot)
    events.on("budget_warning", lambda event: say(f"  {event.facts['why']}"))
    result = session.run(events=events)
    if result.status == "paused":
        say(f"  paused: {session.status().spending.paused}")
        result = session.run(events=events, settings=RunSettings.of(max_cost=3.0))
    say(f"{result.status}, ${session.cost().spending.summary.total.cost:.2f} spent")


def show_task(event: Event) -> None:
    """Print what a task took. Metrics of your own go where this does: a function an event."""
    say(f"  {event.time[11:16]}  {event.facts['agent']}: {sum(event.facts['tokens'])} tokens")


def show_snapshot(event: Event) -> None:
    """Print which snapshot was saved."""
    say(f"  snapshot {event.facts['number']}, {event.facts['kind']}")


def show_statistics(found: Statistics) -> None:
    """Print the figures of both branches; `haytham stats` draws them."""
    say("\n== Statistics")
    for session in found.sessions:
        tasks, snapshots = len(session.usage), sum(kind.count for kind in session.snapshots)
        say(f"{'experiment' if session.forked_from else 'main'}: {tasks} tasks, {snapshots} snapshots")
    every, spent = found.all_snapshots, found.spent
    say(f"snapshots: {every.count}, of them {', '.join(f'{kind.count} {kind.kind}' for kind in found.snapshots)}")
    say(f"compression: {1 - every.stored / every.raw:.0%}; on disk {1 - every.added / every.raw:.0%} less than copies")
    say(f"forks: {found.forks}, {found.depth} deep")
    say(f"cost: ${spent.usage.cost:.2f} for {spent.usage.tokens:,} tokens in {spent.usage.calls} calls")
    for phase in found.phases:
        say(f"{phase.name}: {phase.seconds / 3600:g} h of work, {phase.waits.seconds / 3600:g} h until approved")


def say(text: str) -> None:
    """Print at once: several processes write here, one after the other."""
    print(text, flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 4:  # noqa: PLR2004 - a day's work
        work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    else:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "projects"))
