"""What saving and loading cost, beside the least that the disk asks for the same bytes. `make bench` runs it.

Each row: the median of a call, the median of its floor (called in turn with it), their ratio, and the ratio aimed at.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from random import choice
from statistics import median
from unittest.mock import patch

from haytham import CheckpointManager, FileStore, History, ProjectManager
from haytham.config.workflow import WorkflowFiles
from haytham.engine.runner import Runner
from haytham.events import Events
from haytham.session import SessionDocuments, documents, listing, plan_cache, view
from haytham.session.plan import SessionPlan
from haytham.session.review import ReviewGate
from haytham.session.summary import summarize
from haytham.storage import Append, Batch, Write

CALLS = 100
SESSION = ("idea", "run")
PHASES = range(1, 8)
AGENT = "agent"
REPLY = {"task": "sha256:" + "0" * 64, "duration": 1.0, "status": "completed", "model": "m", "tools_used": None}
REPLY |= {"input_tokens": 1, "output_tokens": 2}
LINE = "A line of an output, as long as lines are, and one of a good many.\n"
SMALL, LARGE = 5_000, 5_000_000
WORDS = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8").split()
HAYTHAM = str(Path(sys.executable).with_name("haytham"))


def main():
    with tempfile.TemporaryDirectory(prefix="haytham-bench-") as folder:
        print(f"medians of {CALLS} calls, in ms, in {folder}\n")
        print(f"{'what':<58}{'measured':>10}{'floor':>10}{'ratio':>8}{'aim':>7}")
        for approved in (False, True):
            small = new_session(Path(folder) / f"small_{approved}", size=SMALL, approved=approved)
            large = new_session(Path(folder) / f"large_{approved}", size=LARGE, approved=approved)
            when = " with approvals" if approved else ""
            bench_saves(small, when)
            bench_loads(small, when, approved=approved)
            bench_growth(small, large, when)
        bench_commands(Path(folder) / "commands")
        bench_runner(Path(folder) / "runner")
        bench_steps(Path(folder) / "steps")
        bench_history(Path(folder) / "history")
        bench_days(Path(folder) / "days")


# The rows.


def bench_saves(manager, when):
    for name, save in (("save_checkpoint", save_checkpoint), ("save_agent_output", save_output)):
        files = replaced_by(lambda save=save: save(manager))
        row(f"{name}{when}", 3, lambda save=save: save(manager), lambda files=files: replace(files))


def bench_loads(manager, when, *, approved):
    files = files_of_a_load(manager, with_outputs=approved)
    row(f"load_session, first{when}", 100, lambda: load_first(manager), lambda: read(files))
    row(f"load_session, again{when}", 10, lambda: load(manager), lambda: read(files))


def bench_growth(small, large, when):
    """5 MB outputs beside 5 KB outputs, once their files are older than the clock of the disk is coarse."""
    time.sleep(2.5)
    for name, call in (("load_session", load), ("save_checkpoint", save_checkpoint)):
        row(
            f"{name}{when}, outputs of 5 MB beside 5 KB",
            1,
            lambda call=call: call(large),
            lambda call=call: call(small),
        )


def bench_commands(base):
    """Commands beside the start of Python alone."""
    base.mkdir()
    start(HAYTHAM, "--no-input", "run", "An idea", cwd=base)
    nothing = partial(start, sys.executable, "-c", "pass", cwd=base)
    row("haytham --version", 2.5, partial(start, HAYTHAM, "--version", cwd=base), nothing, calls=20)
    row("haytham status", 9, partial(start, HAYTHAM, "status", cwd=base), nothing, calls=20)
    manager = partial(start, sys.executable, "-c", "from haytham import CheckpointManager", cwd=base)
    row("import haytham and CheckpointManager", 6.5, manager, nothing, calls=20)


def bench_runner(base):
    """What the runner adds to a phase with one instant agent, over 50 phases."""
    session, ends = workflow_session(base, phases=50), []
    events = Events(session.store, session.prefix + "events.jsonl")
    events.on("phase_completed", lambda _: ends.append(time.perf_counter()), timeout=None)
    begun = time.perf_counter()
    files = replaced_by(lambda: asyncio.run(Runner(session, events, may_run_code=True).run()))
    spans = [end - before for before, end in zip([begun, *ends], ends, strict=False)]
    lines = (session.store.base / session.prefix / "events.jsonl").read_bytes().splitlines(keepends=True)
    floor = (seconds(lambda: replace(files)) + seconds(lambda: append(base / "floor", lines))) / len(ends)
    tell("runner, a phase with an instant agent", median(spans), floor, 4)
    tell("runner, the last 10 of 50 phases beside the first 10", median(spans[-10:]), median(spans[:10]), 1)


def bench_steps(base):
    """The aims of a step, each beside one durable replacement of 7 KB, and growth with phases and events."""
    one = [(str(base), prose(7000).encode())]
    base.mkdir()
    floor = median([seconds(lambda: replace(one)) for _ in range(CALLS)])
    history, number = history_of(base / "persist", snapshots=1), iter(range(10_000))
    manager, texts = CheckpointManager(base / "persist"), [prose(7000) for _ in range(CALLS)]

    def persist():
        at = next(number)
        manager.save_agent_output(*SESSION, at % 7 + 1, "a", texts[at], duration=1.0)
        save_checkpoint(manager, phase=at % 7 + 1)
        history.take()

    spans = [seconds(persist) for _ in range(CALLS)]
    tell("persist a phase: output, checkpoint, snapshot", median(spans), floor, 8)
    few, many = step_spans(base / "few", 10), step_spans(base / "many", 200)
    tell("runner, a step with an instant agent", median(few), floor, 10)
    tell("runner, a step in 200 phases beside 10", median(many), median(few), 1.5)
    count_calls(base / "count")
    bench_events(base / "events")


def step_spans(base, phases):
    """How long each step of a run takes, from one end of a phase to the next."""
    session, ends = workflow_session(base, phases=phases), []
    events = Events(session.store, session.prefix + "events.jsonl")
    events.on("phase_completed", lambda _: ends.append(time.perf_counter()), timeout=None)
    asyncio.run(Runner(session, events, may_run_code=True).run())
    return [end - before for before, end in itertools.pairwise(ends)]


def count_calls(base):
    """Count locks, readings of the session and renderings of one document, for one stored reply."""
    session, counts = workflow_session(base, phases=3), {"locks": 0, "readings": 0, "renderings": 0}
    task = SessionPlan(session.read()).build_request(session.read().phase(1), "a", {})[0]
    ReviewGate(session).save_reply(task, REPLY, "First.")
    rendered = []

    def counted(owner, name, note):
        call = getattr(owner, name)

        def counting(*args, **options):
            note(args)
            return call(*args, **options)

        return patch.object(owner, name, counting)

    def add(name):
        return lambda _: counts.__setitem__(name, counts[name] + 1)

    with (
        counted(FileStore, "lock", add("locks")),
        counted(view.SessionView, "__init__", add("readings")),
        counted(documents.DocumentRepository, "write", lambda args: rendered.append(args[2])),
    ):
        ReviewGate(session).save_reply(task, REPLY, "Second.")
    counts["renderings"] = max(rendered.count(key) for key in rendered)
    for name, count in counts.items():
        print(f"{f'one reply: {name}':<58}{count:>10}{'':>18}{1:>7.1f}{'  over the aim' if count > 1 else ''}")


def bench_events(base):
    """Commands on a session with many events and calls beside one with few, once their indexes are there."""
    plans = []
    for lines in (1_000, 100_000):
        session = workflow_session(base / str(lines) / "projects", phases=3)
        folder = session.store.base / session.prefix
        event = b'{"time": "2024-11-24T10:00:00Z", "event": "agent_started", "phase": 1, "agent": "a", "model": "m"}\n'
        (folder / "events.jsonl").write_bytes(event * lines)
        calls = (
            f'{{"time": "2024-11-24T10:00:00Z", "event": "reserved", "call": "{at}", "phase": {at % 3 + 1}, '
            '"agent": "a", "attempt": 1, "model": "m", "tokens": 10, "cost": 0.001}\n'
            f'{{"time": "2024-11-24T10:00:00Z", "event": "settled", "call": "{at}", "tokens": 7, "cost": 0.0005, '
            '"outcome": "completed"}\n'
            for at in range(lines // 2)
        )
        (folder / "spend.jsonl").write_text("".join(calls), encoding="utf-8")
        plans.append(session)
    for command in ("log", "status", "stats"):
        few, many = (partial(start, HAYTHAM, command, cwd=session.store.base.parent) for session in plans)
        few(), many()
        row(f"haytham {command}, 100,000 events beside 1,000", 1.5, many, few, calls=10)
    few, many = (partial(lambda session: summarize(session.read()), session) for session in plans)
    row("summary of a session, 100,000 events beside 1,000", 1.5, many, few, calls=10)


def bench_history(base):
    """Snapshots beside the durable writes that each of them does, and the bytes they take beside plain copies."""
    few, many = history_of(base / "few", snapshots=10), history_of(base / "many", snapshots=1000)
    time.sleep(2.5)
    few.take(), many.take()  # what was looked at once is known from now on
    floor = replaced_by(lambda: take_changed(few))
    row("take after one changed file", 3, lambda: take_changed(few), lambda: replace(floor))
    row("take, 1,000 snapshots beside 10", 1, lambda: take_changed(many), lambda: take_changed(few))
    names = iter(range(10_000))
    replacement = [(str(base), prose(7000).encode())]
    calls = {"take": (3, lambda: take_changed(few)), "fork": (10, lambda: few.fork(name=f"fork{next(names)}"))}
    for name, (aim, call) in {**calls, "restore": (20, lambda: few.restore(3))}.items():
        row(f"{name} beside one durable 7 KB replacement", aim, call, lambda: replace(replacement), calls=50)
    batch = Batch(
        tuple(Write(f"batch/{number}", replacement[0][1]) for number in range(3)), (Append("batch/log", b"1\n"),)
    )
    store = few.session.store
    row(
        "commit of 3 files and a line beside one replacement",
        4,
        lambda: store.commit(batch),
        lambda: replace(replacement),
    )
    tree = written_by_a_fork(few, next(names))
    row("fork", 1.5, lambda: few.fork(name=f"fork{next(names)}"), lambda: write_tree(base, tree), calls=30)
    many.list()
    heads = [str(path) for path in base.glob("many/*/history/snapshots/*/*/*.md")]
    row("list of 1,000", 1.5, many.list, lambda: scan_heads(heads), calls=20)
    for snapshots, least in ((1, 50), (20, 85)):
        plain, stored = disk_use(base / f"disk{snapshots}", snapshots)
        what, saved = f"disk, {snapshots} of ten 7 KB outputs, bytes", 1 - stored / plain
        print(f"{what:<58}{stored:>10}{plain:>10}{saved:>8.1%}{least:>6}%")


def bench_days(base):
    """The figures of a project of several days: a session of 11 KB, beside one durable replacement of as many bytes."""
    history = session_of_days(base)
    session, names, values = history.session, iter(range(10_000)), iter(range(10_000))
    size = history.take().raw
    whole = [(str(base), prose(size * 3).encode()[:size])]

    def save():
        session.update_state({"task": {"progress": next(values)}})
        history.take()

    calls = {"save": (save, 8, 15), "load": (lambda: history.contents("latest"), 3, 7)}
    calls["fork"] = (lambda: history.fork("latest", name=f"fork{next(names)}"), 5, 10)
    for name, (call, low, high) in calls.items():
        spans, floors = [], []
        for _ in range(50):
            spans.append(seconds(call) * 1000)
            floors.append(seconds(lambda: replace(whole)) * 1000)
        numbers = f"{median(spans):>10.3f}{median(floors):>10.3f}{median(spans) / median(floors):>8.2f}"
        aim = f"{low}-{high} ms"
        over = "  over the aim" if median(spans) > high else ""
        print(f"{f'{name} a session of {size / 1000:.0f} KB':<58}{numbers}{aim:>10}{over}", flush=True)


def row(what, aim, measured, floor, *, calls=CALLS):
    """Time two functions in turn and print the row."""
    times, floors = [], []
    for _ in range(calls):
        times.append(seconds(measured))
        floors.append(seconds(floor))
    tell(what, median(times), median(floors), aim)


def tell(what, measured, floor, aim):
    numbers = f"{measured * 1000:>10.3f}{floor * 1000:>10.3f}{measured / floor:>8.2f}{aim:>7.1f}"
    print(f"{what:<58}{numbers}{'  over the aim' if measured / floor > aim * 1.1 else ''}", flush=True)


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


# What is measured.


def new_session(base, *, size, approved):
    """A session whose seven phases are completed."""
    manager = CheckpointManager(base)
    manager.create_session(*SESSION, "user", execution_mode="full")
    for phase in PHASES:
        save_output(manager, phase=phase, size=size)
        save_checkpoint(manager, phase=phase)
        if approved:
            manager.save_user_feedback(*SESSION, phase, True, True)
    return manager


def save_output(manager, *, phase=1, size=SMALL):
    text = LINE * (size // len(LINE))
    manager.save_agent_output(*SESSION, phase, AGENT, text, duration=12.5, input_tokens=1000, output_tokens=2000)


def save_checkpoint(manager, *, phase=1):
    agents = [{"agent_name": AGENT, "status": "completed", "cost": 0.0375}]
    manager.save_checkpoint(*SESSION, phase, "completed", agents, duration=12.5)


def load(manager):
    manager.load_session(*SESSION)


def load_first(manager):
    """Load with the parsed documents forgotten, as a process does that has read none of them yet."""
    for cache in (documents._KEPT, documents._OUTPUT_FACTS, documents._WRITTEN, listing._MEASURED, plan_cache._ENTRIES):
        cache.clear()
    load(manager)


def start(*command, cwd):
    subprocess.run(command, cwd=cwd, capture_output=True, check=False)


def instant(task):
    """An agent that answers at once."""
    return f"Phase {task.phase}."


def workflow_session(base, *, phases):
    """A session on a workflow of many phases, each with one instant agent and no review."""
    lines = [f"  - {{number: {n}, name: P{n}, slug: p{n}, agents: [a], review: none}}" for n in range(1, phases + 1)]
    yaml = "\n".join(["name: long", "phases:", *lines, "modes:", f"  all: {list(range(1, phases + 1))}"])
    agent = b"---\nmodel: python:bench:instant\n---\nAnswer.\n"
    source = WorkflowFiles("long", {"workflow.yaml": yaml.encode(), "agents/a.md": agent})
    project = ProjectManager(base).create_project("user", "An idea.", project_name="long")["project_id"]
    session = SessionDocuments(FileStore(base), project, "run")
    session.create(user_id="user", source=source, mode="all")
    return session


def session_of_days(base):
    """The history of a session with a few chapters and a state, of 11 KB together, as three days of work leave."""
    manager = CheckpointManager(base)
    manager.create_session(*SESSION, "user")
    for phase in (1, 2):
        manager.save_agent_output(*SESSION, phase, "writer", prose(6000)[:2830], duration=1.0)
        manager.save_checkpoint(*SESSION, phase, "completed", [{"agent_name": "writer", "status": "completed"}])
    history = History(SessionDocuments(FileStore(base), *SESSION))
    notes = {f"day {day}": prose(900)[:360] for day in (1, 2, 3)}
    history.session.update_state({"memory": {"session": notes}, "task": {"current": "write", "progress": 0}})
    return history


def prose(size):
    """Text that compresses as prose does: words of many lengths, none twice in a row."""
    return " ".join(choice(WORDS) for _ in range(size // 6))  # noqa: S311 - no secret


NOTES = prose(3000)


def history_of(base, *, snapshots):
    """The history of a session of some thirty documents."""
    manager = CheckpointManager(base)
    manager.create_session(*SESSION, "user", execution_mode="full")
    for phase in PHASES:
        for agent in ("a", "b", "c"):
            manager.save_agent_output(*SESSION, phase, agent, prose(7000), duration=1.0)
        save_checkpoint(manager, phase=phase)
    history = History(SessionDocuments(FileStore(base), *SESSION))
    for _ in range(snapshots):
        take_changed(history)
    return history


def take_changed(history):
    """Change a file by hand, then freeze the session."""
    path = history.session.store.base / history.session.prefix / "notes.md"
    path.write_text(f"{NOTES} {secrets.token_hex(8)}\n", encoding="utf-8")
    history.take()


def written_by_a_fork(history, number):
    """The files of a fork by folder, and the two that its history has more of; a line of events comes with them."""
    child = history.fork(name=f"fork{number}")
    folder = child.store.base / child.prefix
    files = [path for path in folder.rglob("*") if path.is_file()]
    more = [prose(600).encode(), prose(3000).encode()]
    return [(path.parent.relative_to(folder).as_posix(), path.read_bytes()) for path in files], more


def disk_use(base, snapshots):
    """The bytes of plain copies, and of the history, of a session with ten outputs of 7 KB, one changed each time."""
    manager = CheckpointManager(base)
    manager.create_session(*SESSION, "user", execution_mode="full")
    for at in range(10):
        manager.save_agent_output(*SESSION, at % 7 + 1, f"agent_{at}", prose(7000), duration=1.0)
    history, plain = History(SessionDocuments(FileStore(base), *SESSION)), 0
    for at in range(snapshots):
        if at:
            manager.save_agent_output(*SESSION, at % 7 + 1, f"agent_{at % 7}", prose(7000), duration=1.0)
        plain += history.take().raw
    return plain, sum(path.stat().st_size for path in base.glob("*/history/**/*") if path.is_file())


# The floor.


def replaced_by(save):
    """The files that a save replaces, and their bytes."""
    paths, call = [], os.replace

    def noted(source, target):
        paths.append(Path(target))
        call(source, target)

    os.replace = noted
    try:
        save()
    finally:
        os.replace = call
    return [(path.parent, path.read_bytes()) for path in paths]


def replace(files):
    """Put bytes into a file of a folder, to stay, for each file that a save replaces."""
    for folder, data in files:
        temporary = f"{folder}/.floor-{secrets.token_hex(8)}"
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        os.write(file, data)
        os.fsync(file)
        os.close(file)
        os.replace(temporary, f"{folder}/.floor")  # noqa: PTH105 - the least there is
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def write_tree(base, tree):
    """Put files into new folders, each to stay, with one sync a folder; and two files and a line more."""
    files, more = tree
    top = base / f"floor-{secrets.token_hex(8)}"
    for folder in sorted({folder for folder, _ in files}):
        (top / folder).mkdir(parents=True, exist_ok=True)
    for at, (folder, data) in enumerate(files):
        file = os.open(top / folder / str(at), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        os.write(file, data)
        os.fsync(file)
        os.close(file)
    for folder in {top.parent, top, *(top / folder for folder, _ in files)}:
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    replace([(str(base), data) for data in more])
    append(base / "floor", [b"{}\n"])


def scan_heads(paths):
    """Read the lines of each record up to its table."""
    for path in paths:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - the least there is
            for line in file:
                if line.startswith("## Documents"):
                    break


def append(path, lines):
    """Add lines to a file, each to stay before the next."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for line in lines:
        os.write(file, line)
        os.fsync(file)
    os.close(file)


def files_of_a_load(manager, *, with_outputs):
    """The manifest, the copy of the workflow, checkpoints and feedback; the outputs where approvals bind to them."""
    project = manager.base_dir / SESSION[0]
    session = project / "sessions" / SESSION[1]
    found = [session / "session_manifest.md", *project.glob("workflows/*/workflow.yaml")]
    found += [*session.glob("*/checkpoint.md"), *session.glob("*/user_feedback.md")]
    return [str(path) for path in found] + (outputs_of(manager) if with_outputs else [])


def outputs_of(manager):
    return [str(path) for path in manager.base_dir.glob(f"*/sessions/*/*/{AGENT}.md")]


def read(files):
    for path in files:
        file = os.open(path, os.O_RDONLY)
        os.read(file, os.fstat(file).st_size)
        os.close(file)


if __name__ == "__main__":
    main()
