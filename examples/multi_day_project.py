"""A project of three days: a loop of your own, snapshots by the step and by the day, and a branch to try something.

Usage: python examples/multi_day_project.py [BASE_DIR]     (BASE_DIR is projects/ where none is given)

A handbook of some of Python's modules is written from their docstrings, a chapter a task. Each day is a process of its
own that knows nothing but the folder. After day 2 the session `main` is forked: in `experiment` another form is tried,
while `main` goes on. All numbers at the end are read from the folder.
"""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from haytham import CheckpointManager, ProjectManager, Workspace
from haytham.config.workflow import WorkflowFiles
from haytham.session.plan import summarize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from haytham.app.history import SessionHistory
    from haytham.history.snapshot import Snapshot

IDEA = "A handbook of Python's modules for work with texts and files, written from their docstrings."
WORKFLOW = """
name: handbook
phases:
  - {number: 1, name: Files, slug: files, agents: [pathlib, shutil], review: none}
  - {number: 2, name: Texts, slug: texts, agents: [textwrap, csv, tempfile], review: none}
  - {number: 3, name: Values, slug: values, agents: [json, random, heapq], review: none}
  - {number: 4, name: Trial, slug: trial, agents: [json, heapq], review: none}
modes:
  all: [1, 2, 3, 4]
checkpointing: {frequency: 3}  # a snapshot after so many steps without one; after half an hour, too, as usual
"""
TASKS = {  # by branch and day: the phase, and the modules whose chapters are due
    ("main", 1): (1, ["pathlib", "shutil"]),
    ("main", 2): (2, ["textwrap", "csv", "tempfile"]),
    ("experiment", 3): (4, ["json", "heapq"]),
    ("main", 3): (3, ["json", "random", "heapq"]),
}


class Branch(NamedTuple):
    """Where a line of work lies: all that one process tells another."""

    base: Path
    project: str
    name: str

    @property
    def history(self) -> SessionHistory:
        """Its past; what it is now is `history.session`."""
        return Workspace(self.base).open(self.project, self.name).history


def main(base: Path) -> None:
    """Live through the three days, one process after the other, then tell what the folder says of them."""
    branch = begin(base)
    live(branch, 1)
    live(branch, 2)
    experiment = fork(branch)
    live(experiment, 3)
    live(branch, 3)
    tell_statistics(base, branch.project)


def begin(base: Path) -> Branch:
    """Make a project, with an id that is free, and a session of it that runs on the workflow above."""
    project = ProjectManager(base).create_project("writer", IDEA, project_name="Handbook")
    branch = Branch(base, project["project_id"], "main")
    agents = {f"agents/{name}.md": b"Write a chapter.\n" for _, names in TASKS.values() for name in names}
    source = WorkflowFiles("handbook", {"workflow.yaml": WORKFLOW.encode(), **agents})
    branch.history.session.create(user_id="writer", source=source, mode="all")
    return branch


def live(branch: Branch, day: int) -> None:
    """Let a process of its own do a day's work: what it does not find in the folder, it does not know."""
    subprocess.run([sys.executable, __file__, *map(str, branch), str(day)], check=True)  # noqa: S603 - our own


def work(branch: Branch, day: int) -> None:
    """Do a day's tasks. `step` counts them, and takes a snapshot by itself where the workflow says so."""
    history = branch.history
    history.events.on("snapshot_saved", lambda event: tell(history.get(event.facts["snapshot"])))
    say(f"\n== Day {day} on {branch.name}")
    say(f"so far: {history.session.state()['summary'] or 'nothing'}")
    phase, modules = TASKS[branch.name, day]
    for at, module in enumerate(modules, start=1):
        do(branch, day, phase, module)
        say(f"{at} of {len(modules)}: wrote about {module}")
        history.step()
    history.session.update_state({"summary": f"day {day} is over, and {module} was the last chapter"})
    history.take("final" if (branch.name, day) == ("main", 3) else "manual", f"day {day}", {"day": day})


def do(branch: Branch, day: int, phase: int, module: str) -> None:
    """Do a task: say so in the state, save a page, and remember what came of it."""
    session = branch.history.session
    state = session.update_state({"task": {"current": f"write about {module}", "status": "in_progress"}})
    entries = list(documented(module))
    save(branch, phase, module, (index if branch.name == "experiment" else chapter)(module, entries))
    decisions = [*state["context"]["decisions"], f"{module}: {len(entries)} entries, in the order of the source"]
    done = {f"day {day}": [*state["memory"]["session"].get(f"day {day}", []), module]}
    changes = {"context": {"decisions": decisions}, "memory": {"session": done}}
    session.update_state({"task": {"status": "completed", "progress": len(decisions)}, **changes})


def save(branch: Branch, phase: int, agent: str, text: str) -> None:
    """Save what an agent wrote, and that it cost nothing."""
    checkpoints, ids = CheckpointManager(branch.base), (branch.project, branch.name)
    checkpoints.save_agent_output(*ids, phase, agent, text)
    agents = checkpoints.get_phase_outputs(*ids, [phase])[phase]
    rows = [{"agent_name": name, "status": "completed", "cost": 0.0} for name in agents]
    checkpoints.save_checkpoint(*ids, phase, "completed", rows)


def documented(module: str) -> Iterator[tuple[str, str]]:
    """Return the functions and classes of a module that have a docstring, and its text."""
    for name, found in vars(import_module(module)).items():
        own = str(getattr(found, "__module__", "")).partition(".")[0] == module
        if own and callable(found) and found.__doc__ and not name.startswith("_"):
            yield name, inspect.cleandoc(found.__doc__)


def chapter(module: str, entries: list[tuple[str, str]]) -> str:
    """Return a page with all docstrings."""
    return f"# {module}\n" + "".join(f"\n## {name}\n\n{text}\n" for name, text in entries)


def index(module: str, entries: list[tuple[str, str]]) -> str:
    """Another form of it: a line an entry."""
    return f"# {module} at a glance\n\n" + "".join(f"- {name}: {text.splitlines()[0]}\n" for name, text in entries)


def fork(branch: Branch) -> Branch:
    """Begin an experiment where day 2 ended. It has a past of its own from here on."""
    history = branch.history
    day_2 = next(one for one in history.list("manual") if one.label == "day 2")
    purpose = "Would a line an entry do?"
    child = history.fork(day_2, name="experiment", purpose=purpose, metadata={"decide": "after day 3"})
    say(f"\n== Fork of {branch.name} as it was in snapshot {day_2.number}: {child.session_id}\npurpose: {purpose}")
    tell(child.history.list()[0])
    return branch._replace(name=child.session_id)


def tell(one: Snapshot) -> None:
    """Print what a snapshot is."""
    label = f" ({one.label})" if one.label else ""
    say(f"  snapshot {one.number} of {one.session}, {one.kind}{label}: {one.raw:,} bytes, {one.added:,} added")


def tell_statistics(base: Path, project: str) -> None:
    """Print what the folder says of all branches."""
    names = ProjectManager(base).get_project_status(project)["sessions"]
    histories = {name: Branch(base, project, name).history for name in sorted(names, reverse=True)}
    say("\n== Statistics")
    for history in histories.values():
        tell_branch(history)
    tell_history(base / project / "history", list(histories.values()))
    tell_independence({name: texts_of(base, project, name) for name, history in histories.items()})
    say(f"\nkeep what was tried, too:  haytham merge {project}/experiment --phase 4")
    say(f"or be rid of it:           haytham discard {project}/experiment")


def tell_branch(history: SessionHistory) -> None:
    """Print the days, the tasks, the cost and the snapshots of a branch."""
    session, snapshots = history.session, history.list()[::-1]
    reading, days = session.read(), session.state()["memory"]["session"]
    rows = [row for value in summarize(reading).checkpoints.values() for row in value.ledger]
    origin = reading.manifest.value.forked_from
    own = f", {snapshots[-1].step - snapshots[0].step} of them its own, since {origin} was forked" if origin else ""
    tasks = ", ".join(f"{day}: {len(done)}" for day, done in days.items())
    say(f"{session.session_id}: {len(days)} days, {sum(map(len, days.values()))} tasks ({tasks}){own}")
    say(f"  cost ${sum(row.cost or 0 for row in rows):.2f}")
    for one in snapshots:
        tell(one)


def tell_history(folder: Path, histories: list[SessionHistory]) -> None:
    """Print what all snapshots take, what plain copies of them would, and whether they can be relied on."""
    snapshots = [(history, one) for history in histories for one in history.list()]
    saved = [1 - history.stored_size(one) / one.raw for history, one in snapshots]
    disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    say(f"total snapshots: {len(snapshots)}")
    say(f"average compression: {sum(saved) / len(saved):.1%}")
    forks = [history for history in histories if history.session.read().manifest.value.forked_from]
    say(f"total forks: {len(forks)}")
    say(f"history on disk: {disk:,} bytes; plain copies would take {sum(one.raw for _, one in snapshots):,}")
    say(f"routine snapshots kept: the last {histories[0].policy.retention['routine'].keep_last}")
    say(f"problems found: {sum(len(history.verify()) for history in histories)}")
    blobs, gzip = sorted(folder.glob("blobs/**/*.gz")), shutil.which("gzip")
    if gzip:
        subprocess.run([gzip, "-t", *blobs], check=True)  # noqa: S603 - gzip itself
        say(f"gzip -t: all {len(blobs)} files are sound")


def texts_of(base: Path, project: str, name: str) -> dict[str, str]:
    """Return all pages of a session."""
    session = Workspace(base).open(project, name)
    slugs = {phase.number: phase.slug for phase in session.phases}
    return {f"{slugs[output.phase]}/{output.agent}": output.text for output in session.outputs()}


def tell_independence(pages: dict[str, dict[str, str]]) -> None:
    """Print which pages all branches have, and which only one."""
    shared = set.intersection(*(set(own.items()) for own in pages.values()))
    say(f"pages in all branches: {', '.join(sorted(name for name, _ in shared))}")
    for branch, own in pages.items():
        say(f"only in {branch}: {', '.join(sorted(name for name, _ in own.items() - shared))}")


def say(text: str) -> None:
    """Print at once: several processes write here, one after the other."""
    print(text, flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:  # noqa: PLR2004 - a day's work, as `live` starts it
        work(Branch(Path(sys.argv[1]), *sys.argv[2:4]), int(sys.argv[4]))
    else:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "projects"))
