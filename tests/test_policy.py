"""Each setting of snapshots, budget and memory changes what happens: on, off, and at its limit."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from haytham import CheckpointManager, Phase, Reply, Workflow, Workspace, clock
from haytham.config.policy import KINDS
from haytham.config.settings import setting_keys
from haytham.config.workflow import parse_workflow
from haytham.errors import HistoryDisabled, InvalidArgument, InvalidDocument
from support import fake_agents
from support.cli_runner import haytham
from support.fake_agents import Desk
from support.history_workers import WORKFLOW, blobs, new_session, past, put

START = datetime(2024, 11, 24, 10, tzinfo=UTC)
NAMES = ("p", "s", 1)
ONE = "name: one\nphases:\n  - {number: 1, name: One, slug: one, agents: [a], review: none}\nmodes: {all: [1]}\n"
NOTES = itertools.count()


@pytest.fixture(autouse=True)
def _user(monkeypatch):
    monkeypatch.setenv("HAYTHAM_USER", "ann")


def at(minutes=0.0, days=0):
    """Set the clock to a time after the start."""
    return clock.override(lambda: START + timedelta(minutes=minutes, days=days))


def kinds(session):
    """Return the kinds of the session's snapshots, oldest first."""
    return [snapshot.kind for snapshot in past(session).list()][::-1]


def numbers(session):
    return [snapshot.number for snapshot in past(session).list()][::-1]


def take(session, kind="routine", days=0, **given):
    """Take a snapshot of something new on a day."""
    with at(days=days):
        put(session, "notes.txt", f"note {next(NOTES)}")
        past(session).take(kind, **given)


def save(base, count=1):
    """Save an output through the manager some times."""
    for number in range(count):
        CheckpointManager(base).save_agent_output(*NAMES, "a", f"Text {number} {clock.now()}.")


def work(base):
    """Save an output and complete the phase through the manager."""
    save(base)
    CheckpointManager(base).save_checkpoint(*NAMES, "completed", [])


@pytest.mark.parametrize("key", [key for key in setting_keys() if not key.startswith(("drift.", "model"))])
def test_every_setting_has_a_test_here(key):
    """The name of the test is that of the setting; retention has one for all kinds."""
    parts = [part for part in key.split(".") if part not in KINDS]
    assert callable(globals().get(f"test_{'_'.join(parts)}"))


@pytest.mark.parametrize("key", [key for key in setting_keys() if key != "model"])
def test_an_unknown_key_and_a_wrong_value_are_errors_with_their_line(key):
    """Of every setting, in workflow.yaml."""
    *groups, name = key.split(".")

    def text(name, value):
        inner = f"{name}: {value}"
        for group in reversed(groups):
            inner = f"{group}: {{{inner}}}" if group != groups[0] else f"{group}:\n  {inner}"
        return f"{WORKFLOW}{inner}\n"

    line = WORKFLOW.count("\n") + 2
    with pytest.raises(InvalidDocument, match=rf"w\.yaml:{line}: {key}: found \[1\]"):
        parse_workflow(text(name, "[1]").encode(), file="w.yaml")
    with pytest.raises(InvalidDocument, match=rf"w\.yaml:{line}: {'.'.join(groups)}\.x{name}x: unknown key"):
        parse_workflow(text(f"x{name}x", "1").encode(), file="w.yaml")


def test_a_fault_in_a_workflow_ends_a_command_with_exit_6(tmp_path):
    """The sentence has file and line."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "workflow.yaml").write_text(f"{WORKFLOW}snapshots: {{auot: every}}\n", encoding="utf-8")
    answer = haytham("run", "Barrels", "--workflow", "mine", cwd=tmp_path)
    assert (answer.code, f"workflow.yaml:{WORKFLOW.count(chr(10)) + 1}: snapshots.auot" in answer.err) == (6, True)


# Snapshots.


def test_snapshots_enabled(tmp_path):
    """Off: none is taken, by policy or by hand; on: both."""
    on, off = new_session(tmp_path / "on"), new_session(tmp_path / "off", "{enabled: false}")
    work(tmp_path / "on")
    work(tmp_path / "off")
    past(on).take()
    with pytest.raises(HistoryDisabled, match="enabled: true"):
        past(off).take()
    assert (kinds(on), kinds(off)) == (["phase", "manual"], [])


@pytest.mark.parametrize(
    ("kind", "place"), [("file", "p/history/snapshots"), ("memory", None), ("sqlite", "history.db")]
)
def test_snapshots_storage_type(tmp_path, kind, place):
    """Files in the project, the memory of the process, or a database; snapshots are found again in each."""
    session = new_session(tmp_path, f"{{storage_type: {kind}}}")
    taken = past(session).take()
    assert past(session).latest() == taken
    places = {name for name in ("p/history/snapshots", "history.db") if (tmp_path / name).exists()}
    assert places == {place} - {None}


def test_snapshots_storage_path(tmp_path):
    """Relative to the workspace; a path outside of it needs trust."""
    session = new_session(tmp_path / "a", "{storage_path: kept/here}")
    past(session, may_run_code=True).take()
    assert (tmp_path / "a" / "kept" / "here" / "p" / "history").is_dir()
    outside = new_session(tmp_path / "b", "{storage_path: ../outside}")
    with pytest.raises(InvalidArgument, match="not trusted"):
        past(outside).take()
    past(outside, may_run_code=True).take()
    assert (tmp_path / "outside" / "p" / "history").is_dir()


def test_snapshots_compress(tmp_path):
    """On: gzip files; off: the bytes of the documents."""
    for policy, ending in (("{compress: true}", ".gz"), ("{compress: false}", "")):
        session = new_session(tmp_path / f"c{ending}", policy)
        past(session).take()
        assert {blob.suffix for blob in blobs(session)} == {ending}


@pytest.mark.parametrize(
    ("auto", "expected"),
    [("every", ["phase", "routine"]), ("phase", ["phase"]), ("off", []), ("no", []), ("false", [])],
)
def test_snapshots_auto(tmp_path, auto, expected):
    """`every`: by steps and phases; `phase`: after phases; `off`, which YAML has as false: none by itself."""
    session = new_session(tmp_path, f"{{auto: {auto}, frequency: 3}}")
    work(tmp_path)
    save(tmp_path, 4)
    assert [kind for kind in kinds(session) if kind != "pre_operation"][:2] == expected


@pytest.mark.parametrize(("steps", "taken"), [(2, 0), (3, 1), (5, 1), (6, 2)])
def test_snapshots_frequency(tmp_path, steps, taken):
    """One below the frequency none, at it one, and one for each so many more."""
    session = new_session(tmp_path, "{auto: every, frequency: 3}")
    save(tmp_path, steps)
    assert kinds(session) == ["routine"] * taken


@pytest.mark.parametrize("auto", ["every", "phase"])
@pytest.mark.parametrize(("minutes", "taken"), [(29.99, 0), (30, 1), (30.01, 1)])
def test_snapshots_interval_minutes(tmp_path, auto, minutes, taken):
    """Before the interval none, at it one: from the start of the session, and then from the last snapshot."""
    with at():
        session = new_session(tmp_path, f"{{auto: {auto}, frequency: 1000, interval_minutes: 30}}")
    for turn in (0, 1):
        with at(minutes + turn * 30):
            save(tmp_path)
        assert len(kinds(session)) == taken + (turn and 1)


@pytest.mark.parametrize(("count", "left"), [(2, [1, 2]), (3, [1, 2, 3]), (4, [2, 3, 4]), (5, [3, 4, 5])])
def test_snapshots_max_snapshots(tmp_path, count, left):
    """At the limit all stay; above it the oldest goes, and one that is protected in its place the next."""
    session = new_session(tmp_path, "{max_snapshots: 3}")
    for _ in range(count):
        take(session)
    assert numbers(session) == left
    pinned = new_session(tmp_path / "pinned", "{max_snapshots: 1}")
    for _ in range(2):
        take(pinned, label="kept")
    assert numbers(pinned) == [1, 2]


@pytest.mark.parametrize(("count", "left"), [(1, [1]), (2, [1, 2]), (3, [2, 3])])
def test_snapshots_max_per_user(tmp_path, count, left):
    """The oldest of all sessions of a user go; by default files have no limit, and databases one of a hundred."""
    limited = new_session(tmp_path, "{max_per_user: 2}")
    for _ in range(count):
        take(limited)
    assert numbers(limited) == left
    assert past(new_session(tmp_path / "file")).policy.user_limit() is None
    assert past(new_session(tmp_path / "db", "{storage_type: sqlite}")).policy.user_limit() == 100


@pytest.mark.parametrize("kind", KINDS)
def test_snapshots_retention_keep_last(tmp_path, kind):
    """Of each kind: at the limit all stay, above it the oldest goes; without a rule all stay."""
    ruled, free = (
        new_session(tmp_path / "r", f"{{retention: {{{kind}: {{keep_last: 2}}}}}}"),
        new_session(tmp_path / "f"),
    )
    for expected in ([1], [1, 2], [2, 3]):
        take(ruled, kind)
        take(free, kind)
        assert numbers(ruled) == expected
    assert numbers(free) == [1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_snapshots_retention_cleanup_after_days(tmp_path, kind):
    """Of each kind: at the age it stays, past it it goes with the next snapshot of any kind."""
    session = new_session(tmp_path, f"{{retention: {{{kind}: {{cleanup_after_days: 3}}}}}}")
    take(session, kind)
    take(session, "manual", days=3, label="at the age")
    assert numbers(session) == [1, 2]
    take(session, "manual", days=3.001, label="past it")
    assert numbers(session) == [2, 3]


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("{}", ["routine", "manual", "final"]),
        ("{cleanup_after_days: 3}", ["manual", "final"]),
        ("{cleanup_after_days: 3, retention: {phase: {}}}", ["phase", "manual", "final"]),
        ("{cleanup_after_days: 100}", [*KINDS]),
    ],
)
def test_snapshots_cleanup_after_days(tmp_path, policy, left):
    """An age for all kinds but manual and final, and but for those that `retention` names; else 7 and 30 days."""
    session = new_session(tmp_path, policy)
    for kind in KINDS:
        take(session, kind)
    take(session, "manual", days=40, label="the newest")
    assert sorted(kinds(session)[:-1]) == sorted(left)


def fail(times):
    """Let an agent fail so many times, and answer then."""
    left = [times]

    def watch(task):
        (fake_agents.failing.add if left[0] > 0 else fake_agents.failing.discard)(task.agent)
        left[0] -= 1

    fake_agents.forget()
    fake_agents.watching.append(watch)


def resumed(base, policy, times):
    """Run an agent that fails so many times; status, recovery snapshots and Retry Count."""
    desk = Desk(base, f"{ONE}snapshots: {policy}\n")
    fail(times)
    status, _ = desk.resume()
    checkpoint = desk.session.read().checkpoint(desk.phase(1)).value
    return status, len(past(desk.session).list("recovery")), checkpoint.retry_count


def test_snapshots_auto_resume_on_failure(tmp_path):
    """On: finished, one recovery snapshot, Retry Count 1; off, the default: failed, and the snapshot is there."""
    assert resumed(tmp_path / "on", "{auto_resume_on_failure: true}", 1) == ("completed", 1, 1)
    assert resumed(tmp_path / "off", "{}", 1) == ("failed", 1, 0)


@pytest.mark.parametrize(("times", "status"), [(1, "completed"), (2, "completed"), (3, "failed")])
def test_snapshots_max_retries(tmp_path, times, status):
    """An agent that fails as often as that is finished; one that fails once more is not."""
    policy = "{auto_resume_on_failure: true, max_retries: 2}"
    assert resumed(tmp_path, policy, times) == (status, times, min(times, 2))


# Budget and memory.


def run(base, agents, **groups):
    """Run a session of a workflow with one phase of some agents, one after the other; its session and status."""
    phase = Phase("Concept", agents=agents, review="none", run="sequential")
    session = Workspace(base).start("Barrels", workflow=Workflow("offer", phases=[phase], **groups), user="ann")
    return session, session.run().status


def paid(task):
    """Answer for a quarter of a dollar and seven tokens."""
    return Reply(f"From {task.agent}.", model="m", input_tokens=3, output_tokens=4, cost=0.25)


def two_calls(base, **limits):
    """Run two agents under limits; how that ended, and how many warnings were given."""

    def first(task):
        return paid(task)

    def second(task):
        return paid(task)

    session, status = run(base, [first, second], limits=limits)
    return status, len([event for event in session.new_events().read()[0] if event.name == "budget_warning"])


@pytest.mark.parametrize(("limit", "status"), [(0.25, "paused"), (0.26, "completed"), (None, "completed")])
def test_budget_max_cost(tmp_path, limit, status):
    """The limit is reached by the first call: the second is refused; one cent more lets it through; off: no limit."""
    assert two_calls(tmp_path, **({} if limit is None else {"max_cost": limit}))[0] == status


@pytest.mark.parametrize(("limit", "status"), [(7, "paused"), (8, "completed"), (None, "completed")])
def test_budget_max_tokens(tmp_path, limit, status):
    """The same for tokens."""
    assert two_calls(tmp_path, **({} if limit is None else {"max_tokens": limit}))[0] == status


@pytest.mark.parametrize(("share", "warnings"), [(0.25, 1), (0.26, 1), (0.51, 0)])
def test_budget_warn_at(tmp_path, share, warnings):
    """Of a dollar a half is spent: a share up to that warns once, a larger one does not."""
    assert two_calls(tmp_path, max_cost=1, warn_at=share) == ("completed", warnings)


def learned(base, **memory):
    """The notes that a decision with a comment leaves."""
    phase = Phase("Concept", agents=["worksheet"])
    workflow = Workflow("offer", phases=[phase], memory=memory)
    session = Workspace(base).start("Barrels", workflow=workflow, user="ann")
    session.run()
    session.approve(1, comment="Name one city.", by="ann")
    return session


@pytest.mark.parametrize(("enabled", "count"), [(True, 1), (False, 0)])
def test_memory_enabled(tmp_path, enabled, count):
    """On: a decision with a comment becomes a note; off: it does not."""
    learned(tmp_path, enabled=enabled)
    assert len(Workspace(tmp_path).memory("ann").list()) == count


def test_memory_store(tmp_path):
    """`files` has a file for each note; a store that does not exist is refused before the run."""
    learned(tmp_path, store="files")
    assert len(list((tmp_path / "memory" / "ann").glob("*.md"))) == 1
    with pytest.raises((InvalidArgument, InvalidDocument), match="redis"):
        learned(tmp_path, store="redis")


# Two hours.

MINUTES = (1, 29, 30, 31, 59, 60, 61, 89, 90, 91, 119, 120, 121)


def test_two_hours_of_a_run_have_four_routine_snapshots(tmp_path):
    """With `auto: every`: at 30, 60, 90 and 120 minutes, by the runner; retention holds as set."""
    now, taken = [0], []

    def agent_at(minutes):
        def work(task):
            now[0] = minutes
            return f"At {minutes}, {task.agent}."

        work.__name__ = f"at_{minutes}"
        return work

    agents = [agent_at(minutes) for minutes in MINUTES]
    policy = {"auto": "every", "frequency": 1000, "retention": {"routine": {"keep_last": 3}}}
    with clock.override(lambda: START + timedelta(minutes=now[0])):
        phase = Phase("Concept", agents=agents, review="none", run="sequential", snapshot=False)
        workflow = Workflow("offer", phases=[phase], snapshots=policy)
        session = Workspace(tmp_path).start("Barrels", workflow=workflow, user="ann")
        events = session.new_events()
        events.on("snapshot_saved", lambda event: taken.append((now[0], event.facts["kind"])))
        assert session.run(events=events).status == "completed"
    assert [minutes for minutes, kind in taken if kind == "routine"] == [30, 60, 90, 120]
    assert len(session.history.list("routine")) == 3
