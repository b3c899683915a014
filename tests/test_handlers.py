"""Handlers: their order, their time, what becomes of one that fails, and vetoes of snapshots."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from haytham import CheckpointManager, History, SnapshotVetoed, Veto, Workspace
from haytham.app import handlers as installed_module
from haytham.engine.runner import Runner
from haytham.errors import HaythamError, InvalidArgument
from haytham.events import Events
from haytham.handlers import Handlers
from haytham.session.paths import EVENTS
from haytham.storage import MemoryStore
from support import fake_agents
from support.effects import contents, still
from support.fake_agents import AT_ONCE, Desk
from support.history_workers import past, place, worked_session

ONE = """
name: small
phases:
  - {number: 1, name: One, slug: one, agents: [a]}
modes:
  all: [1]
"""
SHORT = 0.05


@pytest.fixture(autouse=True)
def anew():
    fake_agents.forget()


@pytest.fixture
def events():
    """Events of a session that is stored."""
    store = MemoryStore()
    store.ensure_folder("s/")
    return Events(store, "s/events.jsonl")


def emit(events, agent="a"):
    """Emit an event that is stored."""
    events.emit("person_asked", phase=1, agent=agent)


def stored(events):
    """The names of the stored events."""
    return [event.name for event in events.read()[0]]


def failures(events):
    """What is recorded of handlers that failed: handler, event and error."""
    return [tuple(event.facts.values()) for event in events.read()[0] if event.name == "handler_failed"]


def hang(_event):
    """Return only when the test process ends."""
    threading.Event().wait()


async def hang_later(_event):
    await asyncio.Event().wait()


def fail(_event):
    raise KeyError("no")


async def fail_later(_event):
    await asyncio.sleep(0)
    raise KeyError("no")


# Order and time.


def test_the_higher_priority_is_called_first(events):
    """Handlers are called by priority, those with the same in the order they were added; the usual one is 0."""
    heard = []
    for name, priority in (("low", -1), ("first", 0), ("second", 0), ("high", 2.5)):
        events.on("person_asked", lambda _event, name=name: heard.append(name), priority=priority)
    emit(events)
    assert heard == ["high", "first", "second", "low"]


@pytest.mark.parametrize(
    "given",
    [{"priority": "1"}, {"priority": True}, {"timeout": 0}, {"timeout": -1}, {"timeout": "5"}, {"timeout": 1e9}],
    ids=str,
)
def test_a_priority_or_timeout_that_cannot_be_used_is_refused(events, given):
    """A priority is a number, a timeout a number of seconds above 0, or None."""
    with pytest.raises(InvalidArgument):
        events.on("person_asked", fail, **given)


@pytest.mark.parametrize("handler", [hang, hang_later])
def test_a_handler_that_hangs_is_left_behind_and_recorded(events, handler, caplog):
    """The emitter goes on after the timeout, other handlers are called, and the log and the file say which hung."""
    heard = []
    events.on("person_asked", handler, timeout=SHORT, priority=1)
    events.on("person_asked", lambda event: heard.append(event.facts["agent"]))
    emit(events)
    assert heard == ["a"]
    assert failures(events) == [(handler.__name__, "person_asked", "it did not finish within 0.05 s")]
    assert f"{handler.__name__} of event person_asked failed: it did not finish" in caplog.text


def test_a_sync_handler_is_not_called_while_it_hangs(events):
    """Its thread is left behind once, not for each event; when it returns, it is called again."""
    calls, go = [], threading.Event()

    def handler(event):
        calls.append(event.facts["agent"])
        go.wait()

    events.on("person_asked", handler, timeout=0.3)
    emit(events, "a")
    emit(events, "b")
    assert calls == ["a"]
    go.set()
    for thread in threading.enumerate():
        if thread.name == f"handler-{handler.__qualname__}":
            thread.join(5)
    emit(events, "c")
    assert calls == ["a", "c"]
    assert len(failures(events)) == 1


def test_a_handler_that_takes_too_long_three_times_is_not_called_again(events):
    """The third timeout in a row is the last, and its record says so."""
    calls = []

    async def handler(event):
        calls.append(event.facts["agent"])
        await asyncio.sleep(3600)

    events.on("person_asked", handler, timeout=0.01)
    for agent in "abcde":
        emit(events, agent)
    assert calls == ["a", "b", "c"]
    assert failures(events)[-1][2] == "it did not finish within 0.01 s, 3 times in a row; it is not called again"


def test_a_timeout_that_a_handler_raises_is_its_own(events):
    """It is a failure like any other, and counts as no hang."""
    calls = []

    def handler(_event):
        calls.append(1)
        raise TimeoutError("the network")

    events.on("person_asked", handler)
    for _ in range(5):
        emit(events)
    assert len(calls) == 5
    assert all(error.endswith("the network") for _, _, error in failures(events))


def test_without_a_timeout_a_sync_handler_is_called_directly(events):
    """It runs in the emitter's thread; with a timeout, in one of its own."""
    threads = []
    events.on("person_asked", lambda _event: threads.append(threading.current_thread()), timeout=None)
    events.on("person_asked", lambda _event: threads.append(threading.current_thread()))
    emit(events)
    assert [thread is threading.current_thread() for thread in threads] == [True, False]


def test_a_handler_that_exits_has_failed(events):
    """SystemExit in a handler ends nothing but the handler."""

    def leave(_event):
        raise SystemExit(3)

    events.on("person_asked", leave)
    emit(events)
    assert failures(events) == [(leave.__qualname__, "person_asked", "RuntimeError: it ended itself with SystemExit")]


def test_a_handler_may_emit_what_it_handles(events):
    """A handler that emits its own event is called for that, too, and nobody waits for ever."""
    heard = []

    def handler(event):
        heard.append(event.facts["agent"])
        if len(heard) < 3:
            emit(events, f"{event.facts['agent']}+")

    events.on("person_asked", handler)
    emit(events)
    assert heard == ["a", "a+", "a++"]


# What is recorded.


@pytest.mark.parametrize("handler", [fail, fail_later])
def test_a_failure_is_recorded_and_others_are_told(events, handler):
    """`handler_failed` names handler, event and error; the handler itself is not called for it."""
    heard = []
    events.on("*", handler)
    events.on("handler_failed", lambda event: heard.append(event.facts["handler"]))
    emit(events)
    ((name, event, error),) = failures(events)
    assert (name, event, heard) == (handler.__name__, "person_asked", [handler.__name__])
    assert error.startswith("KeyError in ")


def test_two_handlers_that_fail_at_everything_end(events):
    """What a handler of `handler_failed` raises is only logged."""
    events.on("*", fail)
    events.on("*", fail_later)
    emit(events)
    assert stored(events) == ["person_asked", "handler_failed", "handler_failed"]


def test_a_failure_at_pieces_of_text_is_recorded_once(events):
    """An event that is not stored may come a thousand times."""
    events.on("agent_text", fail)
    for piece in "abc":
        events.emit("agent_text", phase=1, agent="a", text=piece)
    assert stored(events) == ["handler_failed"]


def test_a_recorded_failure_holds_no_secret(events):
    """An error text is redacted like a message of an agent."""

    def leak(_event):
        raise ValueError("Authorization: Bearer sk-ant-api03-abcdefghijklmnop")

    events.on("person_asked", leak)
    emit(events)
    assert "abcdefghijklmnop" not in failures(events)[0][2]


def test_a_handler_finds_the_ids_of_project_and_session(tmp_path):
    """Each event carries them, whether it is heard or read."""
    history, heard = past(worked_session(tmp_path)), []
    history.on("snapshot_saved", heard.append)
    history.take()
    read = [event for event in history.events.read()[0] if event.name == "snapshot_saved"]
    assert [(event.project, event.session) for event in (*heard, *read)] == [("p", "s"), ("p", "s")]


def test_the_seeds_names_are_heard(tmp_path):
    """`checkpoint_saved` and `checkpoint_restored` are aliases; an unknown name is refused with all that there are."""
    history, heard = past(worked_session(tmp_path)), []
    history.on("checkpoint_saved", lambda event: heard.append((event.name, event.facts["kind"])))
    history.on("checkpoint_restored", lambda event: heard.append((event.name, event.facts["number"])))
    history.take()
    history.restore(1)
    assert heard == [("snapshot_saved", "manual"), ("snapshot_saved", "recovery"), ("snapshot_restored", 1)]
    with pytest.raises(InvalidArgument, match="snapshot_taken"):
        history.on("snapshot_taken", fail)


def test_a_saved_snapshot_has_its_sizes(tmp_path):
    """The event has id, number, kind, and the bytes before and after compression."""
    history = past(worked_session(tmp_path))
    taken = history.take()
    event = next(event for event in history.events.read()[0] if event.name == "snapshot_saved")
    assert event.facts == {
        "snapshot": taken.id, "number": 1, "kind": "manual", "raw": taken.raw, "added": taken.added
    }  # fmt: skip
    assert taken.raw > taken.added > 0


def test_each_deleted_snapshot_is_told_with_its_reason(tmp_path):
    """By hand, by retention, by a limit, and at the end of an operation."""
    session = worked_session(tmp_path, "{retention: {routine: {keep_last: 1}}, max_snapshots: 3}")
    history, heard = past(session), []
    history.on("snapshot_deleted", lambda event: heard.append((event.facts["number"], event.facts["why"])))
    history.delete(history.take())
    with history.operation("x"):
        pass
    for text in "abc":
        (place(session) / "evidence.md").write_text(text, encoding="utf-8")
        history.take("routine")
    history.prune()
    history.take(), history.take(), history.take(label="kept")
    assert heard[:4] == [(1, "request"), (2, "operation"), (3, "retention"), (4, "retention")]
    assert (5, "limit") in heard


# A handler holds no lock of its caller.


@pytest.mark.parametrize("event", ["snapshot_restored", "snapshot_saved"])
def test_a_handler_of_a_restore_may_take_a_snapshot(tmp_path, event):
    """Handlers are called once the locks of a restore are free."""
    history = past(worked_session(tmp_path))
    history.take()
    history.on(event, lambda _event: history.take(label="seen") if history.latest().label is None else None)
    history.restore(1)
    assert history.latest().label == "seen"
    assert failures(history.events) == []


# Vetoes.


def veto(_event):
    raise Veto("too early")


async def veto_later(_event):
    await asyncio.sleep(0)
    raise Veto("too early")


@pytest.mark.parametrize("kind", ["manual", "routine", "phase"])
@pytest.mark.parametrize("handler", [veto, veto_later])
def test_a_vetoed_snapshot_raises_and_is_recorded(tmp_path, kind, handler):
    """The reason and the handler are in the error and in the file; no snapshot is there."""
    history = past(worked_session(tmp_path))
    history.on("snapshot_taking", handler)
    with pytest.raises(SnapshotVetoed, match=f"no {kind} snapshot was taken: the handler {handler.__name__} vetoed"):
        history.take(kind)
    assert history.list() == []
    names = stored(history.events)
    assert names == ["snapshot_taking", "snapshot_skipped"]
    assert history.events.read()[0][-1].facts == {"kind": kind, "handler": handler.__name__, "why": "too early"}


@pytest.mark.parametrize("kind", ["recovery", "pre_operation", "final"])
def test_a_snapshot_that_protects_cannot_be_vetoed(tmp_path, kind):
    """It is taken, and the veto is a failure of the handler."""
    history = past(worked_session(tmp_path))
    history.on("snapshot_taking", veto)
    assert history.take(kind).kind == kind
    assert failures(history.events) == [("veto", "snapshot_taking", "it vetoed what cannot be vetoed: too early")]


@pytest.mark.parametrize("name", ["snapshot_saved", "*"])
def test_only_a_handler_of_snapshot_taking_can_veto(tmp_path, name):
    """A veto of another event, or of one that hears everything, is a failure."""
    history = past(worked_session(tmp_path))
    history.on(name, veto)
    assert history.take() == history.latest()
    assert {error for _, _, error in failures(history.events)} == {"it vetoed what cannot be vetoed: too early"}


def test_a_step_that_is_vetoed_takes_nothing(tmp_path):
    """`step` counts on, and returns None."""
    history = past(worked_session(tmp_path, "{auto: every, frequency: 1}"))
    history.on("snapshot_taking", veto)
    assert history.step() is None
    assert history.list() == []


def test_a_handler_that_hangs_vetoes_nothing(tmp_path):
    """The snapshot is taken once the timeout is over."""
    history = past(worked_session(tmp_path))
    history.on("snapshot_taking", hang, timeout=SHORT)
    assert history.take() == history.latest()
    assert failures(history.events)[0][:2] == ("hang", "snapshot_taking")


# A run.


def run_with(tmp_path, *handlers, timeout=5.0):
    """Run a session to its end with handlers; how it ended, its files without events, and what is recorded."""
    tmp_path.mkdir()
    with still(tmp_path, 0):
        desk = Desk(tmp_path / "projects", ONE)
        session = desk.session
        events = Events(session.store, session.prefix + EVENTS)
        for name, handler in handlers:
            events.on(name, handler, timeout=timeout)
        result = asyncio.run(Runner(session, events, may_run_code=True, options=AT_ONCE, approve_as="ann").run())
    files = {name: data for name, data in contents(tmp_path / "projects").items() if not name.endswith(EVENTS)}
    lines = (tmp_path / "projects/p/sessions/s" / EVENTS).read_text(encoding="utf-8").splitlines()
    return result, files, [json.loads(line) for line in lines]


@pytest.mark.parametrize("handler", [fail, fail_later, hang, hang_later], ids=lambda handler: handler.__name__)
def test_a_run_ends_as_if_its_handlers_were_not_there(tmp_path, handler):
    """Result and files are the same, and the log has one line for each failure more."""
    plain = run_with(tmp_path / "plain")
    timeout = SHORT if handler in (hang, hang_later) else 5.0
    handlers = ("agent_completed", handler), ("review_opened", handler)
    result, files, log = run_with(tmp_path / "with", *handlers, timeout=timeout)
    assert (result, files) == plain[:2]
    assert [event for event in log if event["event"] != "handler_failed"] == plain[2]
    failed = [(event["handler"], event["on"]) for event in log if event["event"] == "handler_failed"]
    assert failed[0] == (handler.__name__, "agent_completed")


def test_a_run_goes_on_without_vetoed_snapshots(tmp_path):
    """Phase snapshots are skipped and recorded; the final one, which cannot be vetoed, is there."""
    plain, vetoed = run_with(tmp_path / "plain"), run_with(tmp_path / "with", ("snapshot_taking", veto))
    assert vetoed[0] == plain[0]
    skipped = [event for event in vetoed[2] if event["event"] == "snapshot_skipped"]
    assert {(event["kind"], event["handler"], event["why"]) for event in skipped} == {("phase", "veto", "too early")}
    assert [event["kind"] for event in vetoed[2] if event["event"] == "snapshot_saved"] == ["final"]
    assert [event for event in vetoed[2] if event["event"] == "snapshot_failed"] == []


# Sessions, workspaces, packages.


def test_a_sessions_handlers_hear_its_decisions_and_runs(tmp_path):
    """What is registered with a session is called for every call of it, and beside those of a run."""
    session, heard, of_run = Workspace(tmp_path).start("Barrels", user="ann"), [], []

    @session.on("decision", priority=1)
    def hear(event):
        heard.append((event.name, event.facts["phase"]))

    session.on("review_opened", lambda event: heard.append((event.name, event.facts["phase"])))
    events = session.new_events()
    events.on("review_opened", lambda event: of_run.append(event.facts["phase"]))
    session.run(events=events)
    session.approve()
    session.run()
    assert heard == [("review_opened", 1), ("decision", 1), ("review_opened", 2)]
    assert of_run == [1]


def test_a_workspaces_handlers_hear_all_of_its_sessions(tmp_path):
    """From their start on, forks included; other workspaces are not heard."""
    workspace, heard = Workspace(tmp_path), []
    workspace.on("*", lambda event: heard.append((event.name, event.project, event.session)))
    session = workspace.start("Barrels", user="ann", name="one")
    Workspace(tmp_path).session().snapshot()
    session.fork(name="other")
    names = [(name, project) for name, project, _ in heard]
    assert names[0] == ("session_started", "one")
    assert ("snapshot_forked", "one") in names
    assert "snapshot_saved" not in [name for name, _ in names]


def install(folder, monkeypatch, line):
    """Install a package that registers handlers, by its metadata alone."""
    metadata = folder / "site" / "mine-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(f"[haytham.handlers]\n{line}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(metadata.parent)
    monkeypatch.setattr("haytham.app.workspace.INSTALLED", Handlers(load=installed_module._load_installed))


def test_handlers_of_installed_packages_are_called(tmp_path, monkeypatch):
    """A function of the entry point group registers them once a process, when something happens."""
    install(tmp_path, monkeypatch, "mine = test_handlers:register_mine")
    monkeypatch.setattr("test_handlers.HEARD", heard := [])
    session = Workspace(tmp_path / "projects").start("Barrels", user="ann")
    session.snapshot()
    assert heard == ["session_started", "snapshot_saved"]


HEARD = []


def register_mine(on):
    """Register what a package would."""
    on("session_started", lambda event: HEARD.append(event.name))
    on("checkpoint_saved", lambda event: HEARD.append(event.name), priority=3)


def test_a_package_in_the_working_folder_is_not_installed(tmp_path, monkeypatch):
    """Metadata in a folder from elsewhere runs no code, though its modules could be imported."""
    install(tmp_path, monkeypatch, "mine = test_handlers:register_mine")
    monkeypatch.setattr("test_handlers.HEARD", heard := [])
    for folder in (tmp_path, tmp_path / "site"):
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend("")
        monkeypatch.setattr("haytham.app.workspace.INSTALLED", Handlers(load=installed_module._load_installed))
        Workspace(tmp_path / "projects").start("Barrels", user="ann")
    assert heard == []


def test_a_package_that_cannot_be_loaded_is_recorded(tmp_path, monkeypatch):
    """Its name and error are an event; everything else works."""
    install(tmp_path, monkeypatch, "broken = no_such_module:register")
    session = Workspace(tmp_path / "projects").start("Barrels", user="ann")
    session.snapshot()
    (failed,) = session.log(["handler_failed"]).read()
    assert (failed.facts["handler"], failed.facts["on"]) == ("broken (no_such_module:register)", "*")
    assert "no_such_module" in failed.facts["error"]


def test_a_checkpoint_managers_handlers_hear_its_sessions(tmp_path):
    """What is registered with the manager is called for the snapshots of each of its sessions."""
    manager, heard = CheckpointManager(tmp_path / "projects"), []

    @manager.on("checkpoint_saved")
    async def hear(event):
        heard.append((event.project, event.session, event.facts["kind"]))

    for name in ("s", "t"):
        manager.create_session("p", name, "ann")
        History(manager._records.documents("p", name)).take()
    assert heard == [("p", "s", "manual"), ("p", "t", "manual")]


def test_a_manual_veto_reaches_whoever_asked(tmp_path):
    """`Session.snapshot` raises, as an error of ours."""
    session = Workspace(tmp_path).start("Barrels", user="ann")
    session.on("snapshot_taking", veto)
    with pytest.raises(HaythamError, match="too early"):
        session.snapshot("mine")
