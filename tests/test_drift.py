"""Drift: each of its five signals one below, at and one above its limit, and what a run does about them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from haytham import clock
from haytham.cli.live import EventFormatter
from haytham.config.policy import DriftPolicy
from haytham.config.workflow import Phase, Workflow, WorkflowFiles
from haytham.engine.drift import detect, judge, text_similarity
from haytham.engine.runner import Runner
from haytham.events import Event, Events
from haytham.history.history import History
from haytham.session.drift_log import DriftFold
from haytham.session.paths import EVENTS
from haytham.session.state import change_state
from haytham.session.summary import summarize
from support import fake_agents
from support.fake_agents import Desk, called

START = datetime(2024, 11, 24, 10, tzinfo=UTC)
PLAIN = """name: some
phases:
  - {number: 1, name: One, slug: one, agents: [a], review: none}
  - {number: 2, name: Two, slug: two, agents: [b], needs: [1], review: none}
  - {number: 3, name: Three, slug: three, agents: [c], needs: [2], review: none}
modes: {all: [1, 2, 3]}
"""


@pytest.fixture(autouse=True)
def _anew():
    fake_agents.forget()


def at(minutes=0):
    """Return a time of an event."""
    return (START + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def call(name="agent_completed", **facts):
    """Return a call of an agent that ended."""
    return Event(name, at(), {"phase": 1, "agent": "a", **facts})


FAILED = call("agent_failed", error="broken", tries_left=1)
DONE = Event("phase_completed", at(), {"phase": 1})


def progress(number, task="t"):
    """Return a state with progress of a task."""
    return {"task": {"current": task, "progress": number}}


def signals(history, minutes=0, **limits):
    """Return the signals that are on after some events and states, in this order."""
    policy = DriftPolicy(**limits)
    if all(isinstance(one, Event) for one in history):
        return detect(history, {}, policy, now=at(minutes)).signals
    fold = DriftFold(at())
    for one in history:
        (fold.add if isinstance(one, Event) else fold.observe)(one)
    return judge(fold, policy, now=at(minutes)).signals


@pytest.mark.parametrize(("count", "expected"), [(299, ()), (300, ()), (301, ("cycles",))])
def test_more_than_300_cycles_are_drift(count, expected):
    """Exactly 300 calls are allowed."""
    assert signals([call(), DONE] * count) == expected


@pytest.mark.parametrize(("failed", "expected"), [(1, ()), (2, ()), (3, ("errors",))])
def test_errors_in_more_than_a_tenth_of_the_last_20_cycles_are_drift(failed, expected):
    """Two of 20 are a tenth, and allowed; errors before the last 20 do not count."""
    assert signals([*[FAILED] * 10, *[call()] * (20 - failed), *[FAILED] * failed, DONE]) == expected


@pytest.mark.parametrize(("cycles", "expected"), [(9, ()), (10, ("errors",)), (11, ("errors",))])
def test_fewer_than_10_cycles_have_no_error_rate(cycles, expected):
    """Nine errors in a row say nothing yet."""
    assert signals([*[FAILED] * cycles, DONE]) == expected


@pytest.mark.parametrize(("count", "expected"), [(2, ()), (3, ()), (4, ("repeats",))])
def test_the_same_action_more_than_3_times_with_alike_texts_is_drift(count, expected):
    """The same agent of the same phase may write alike texts three times; a failure between them changes nothing."""
    alike = [call(similarity=0.95)] * (count - 1)
    assert signals([call(), *alike]) == signals([call(), FAILED, *alike]) == expected
    assert signals([call(), *alike, *[call(agent="b", similarity=1.0)]], no_progress=99) == expected


@pytest.mark.parametrize(("similarity", "expected"), [(0.94, ()), (0.95, ("repeats",)), (0.96, ("repeats",))])
def test_texts_are_alike_at_95_percent(similarity, expected):
    """One text below that starts the count anew."""
    assert signals([call(), *[call(similarity=1.0)] * 2, call(similarity=similarity)]) == expected


@pytest.mark.parametrize(("count", "expected"), [(9, ()), (10, ("no_progress",)), (11, ("no_progress",))])
def test_10_cycles_without_progress_are_drift(count, expected):
    """Neither a completed phase nor a higher number in ten calls."""
    assert signals([call()] * count) == expected
    assert signals([progress(5), *[call()] * count, progress(5)]) == expected


def test_progress_starts_the_count_anew():
    """A completed phase, a higher number and another task are progress."""
    nine = [call()] * 9
    assert signals([*nine, DONE, *nine]) == ()
    assert signals([progress(5), *nine, progress(6), *nine]) == ()
    assert signals([progress(5), *nine, progress(5, "next"), *nine]) == ()


@pytest.mark.parametrize(("number", "expected"), [(49, ("no_progress",)), (50, ()), (51, ())])
def test_progress_that_goes_backwards_is_drift_at_once(number, expected):
    """The state's number is compared with the highest of the same task, and the signal clears when it is reached."""
    assert signals([progress(50), progress(number)]) == expected
    assert signals([progress(50), progress(number), progress(50 + number)]) == ()


def test_another_task_may_begin_at_a_lower_number():
    """Numbers of two tasks are not compared."""
    assert signals([progress(50), progress(0, "next")]) == ()


@pytest.mark.parametrize(("minutes", "expected"), [(119, ()), (120, ("age",)), (121, ("age",))])
def test_two_hours_since_the_start_are_drift(minutes, expected):
    """The age counts from the start of the run."""
    assert signals([call()], minutes) == expected


def test_similarity_is_the_share_of_common_words():
    """Equal texts are 1, texts without a common word 0, and one word of 20 makes 0.95."""
    words = [f"w{number}" for number in range(20)]
    assert text_similarity("a b", "a b") == text_similarity("", " ") == 1
    assert text_similarity("a b", "c d") == 0
    assert text_similarity(" ".join(words), " ".join([*words[1:], "x"])) == 0.95


def step(name="cycle_completed", minutes=0, process="p", task="t", **facts):
    """Return a step of a loop that ended."""
    return Event(name, at(minutes), {"process": process, "task": task, "progress": None, **facts})


@pytest.mark.parametrize(("count", "expected"), [(299, ()), (300, ()), (301, ("cycles",))])
def test_a_step_is_a_cycle(count, expected):
    """Steps count like calls, those that failed, too; the events of other things do not."""
    other = Event("review_opened", at(), {"phase": 1, "why": "x"})
    assert signals([step(), other] * count) == expected
    assert signals([step()] * (count - 1) + [step("cycle_failed", error="x")]) == expected


@pytest.mark.parametrize(("failed", "expected"), [(1, ()), (2, ()), (3, ("errors",))])
def test_failed_steps_are_errors(failed, expected):
    """Two of 20 are a tenth."""
    assert signals([step()] * (20 - failed) + [step("cycle_failed", error="x")] * failed) == expected


@pytest.mark.parametrize(("count", "expected"), [(2, ()), (3, ()), (4, ("repeats",))])
def test_the_action_of_a_step_is_its_task(count, expected):
    """Alike texts of one task are repeats; those of two tasks are counted each for itself."""
    alike = [step(similarity=0.95)] * (count - 1)
    assert signals([step(), *alike]) == expected
    mixed = [step(task=name, similarity=1.0) for name in "ab" * 3]
    assert signals(mixed) == ()


@pytest.mark.parametrize(("count", "expected"), [(9, ()), (10, ("no_progress",)), (11, ("no_progress",))])
def test_steps_with_the_same_progress_are_stalled(count, expected):
    """A higher number starts the count anew; a loop that tells no number is never stalled."""
    assert signals([step(progress=5)] * count) == expected
    assert signals([step(progress=5)] * 9 + [step(progress=6)] + [step(progress=6)] * 9) == ()
    assert signals([step()] * count) == ()


@pytest.mark.parametrize(("minutes", "expected"), [(119, ()), (120, ("age",)), (121, ("age",))])
def test_the_age_of_a_loop_counts_from_the_last_refresh(minutes, expected):
    """It also counts from the end of a run and, in another process, from the end of half an hour without a step."""
    refresh = Event("drift_cleared", at(), {"signals": ["age"], "by": "refresh"})
    ended = Event("run_ended", at(), {"status": "completed", "phase": None})
    early = step(minutes=-200)
    assert signals([early, refresh, step()], minutes) == signals([early, ended, step()], minutes) == expected
    assert signals([early, step(process="q")], minutes) == expected
    assert signals([early, step()], minutes) == ("age",)


@pytest.mark.parametrize("by", ["refresh", "resume"])
def test_a_refresh_begins_all_counts_anew(by):
    """What was on before is off, whatever it was; a signal that clears by itself changes no count."""
    drift = [step("cycle_failed", error="x", progress=5)] * 301
    cleared = Event("drift_cleared", at(), {"signals": ["cycles"], "by": by})
    assert signals(drift) == ("cycles", "errors", "no_progress")
    assert signals([*drift, cleared]) == ()
    assert signals([*drift, replace(cleared, facts={"signals": ["cycles"], "by": "itself"})]) == signals(drift)


def test_a_log_that_a_person_damaged_is_no_drift():
    """Facts of other types and times that cannot be read count for nothing."""
    odd = {"process": 1, "task": ["x"], "progress": "9", "similarity": True}
    events = [Event("cycle_completed", "soon", odd), Event("drift_detected", "", {"signals": 3, "action": 1})]
    assert signals([*events, Event("drift_cleared", "", {"by": []})]) == ()


def drifting(limits, workflow=PLAIN):
    """Return a workflow with limits of drift."""
    return f"{workflow}drift: {{{limits}}}\n"


def found(desk):
    """Return the signals of each `drift_detected`, in order."""
    return [event["signals"] for event in desk.events("drift_detected")]


def recoveries(desk):
    return [one.metadata["operation"] for one in reversed(History(desk.session).list("recovery"))]


def retrying(times):
    """Return the file of an agent that is asked again so many times."""
    return fake_agents.AGENT_FILE.replace("retries: 0", f"retries: {times}").encode()


def fail_first(agent, times):
    """Let an agent fail so many times, and answer then."""
    left = [times]

    def watch(task):
        if task.agent == agent:
            (fake_agents.failing.add if left[0] > 0 else fake_agents.failing.discard)(agent)
            left[0] -= 1

    fake_agents.watching.append(watch)


def test_an_episode_makes_one_snapshot_and_one_event(tmp_path):
    """A signal that stays on at later checks takes no second snapshot, and the run goes on to its end."""
    desk = Desk(tmp_path, drifting("cycles: 0"))
    assert desk.resume() == ("completed", None)
    assert (found(desk), recoveries(desk)) == ([["cycles"]], ["drift: cycles"])
    assert desk.events("drift_detected")[0]["action"] == "warn"


@pytest.mark.parametrize(("cycles", "expected"), [(2, [["cycles"]]), (3, [])])
def test_the_limit_of_cycles_is_that_of_the_workflow(tmp_path, cycles, expected):
    """Three calls are more than two."""
    desk = Desk(tmp_path, drifting(f"cycles: {cycles}"))
    desk.resume()
    assert found(desk) == expected


def test_a_run_within_its_limits_is_not_warned_of(tmp_path):
    """Without `drift:` the limits are the built-in ones, and a short run is far from them."""
    desk = Desk(tmp_path, PLAIN)
    desk.resume()
    assert (found(desk), recoveries(desk)) == ([], [])


def test_a_signal_that_cleared_and_comes_on_again_is_another_episode(tmp_path):
    """Progress that goes backwards, recovers and goes backwards again is warned of twice."""
    desk = Desk(tmp_path, PLAIN)
    numbers = {"a": 4, "b": 6, "c": 3}

    def watch(task):
        with desk.session.transaction() as changes:
            change_state(changes, {"task": {"current": "t", "progress": numbers[task.agent]}})

    with desk.session.transaction() as changes:
        change_state(changes, {"task": {"current": "t", "progress": 5}})
    fake_agents.watching.append(watch)
    assert desk.resume() == ("completed", None)
    assert (found(desk), recoveries(desk)) == ([["no_progress"]] * 2, ["drift: no_progress"] * 2)


@pytest.mark.parametrize(("rate", "window", "expected"), [(0.5, 10, [["errors"]]), (0.9, 10, []), (0.5, 20, [])])
def test_failed_calls_that_are_tried_again_are_errors(tmp_path, rate, window, expected):
    """Nine of the last ten calls failed, and nine of all 19."""
    text = drifting(f"error_rate: {rate}, window: {window}", PLAIN.replace("[a]", "[a, d, e, f, g, h, i, j, k]"))
    desk = Desk(tmp_path, text, {"agents/b.md": retrying(9)})
    fail_first("b", 9)
    assert desk.resume() == ("completed", None)
    assert found(desk) == expected


@pytest.mark.parametrize(("limit", "expected"), [(2, [["no_progress"]]), (3, [["no_progress"]]), (4, [])])
def test_calls_without_a_completed_phase_are_no_progress(tmp_path, limit, expected):
    """An agent that fails in all of its three tries completes nothing."""
    desk = Desk(tmp_path, drifting(f"no_progress: {limit}"), {"agents/a.md": retrying(2)})
    fake_agents.failing.add("a")
    assert desk.resume() == ("failed", 1)
    assert found(desk) == expected


@pytest.mark.parametrize(("limit", "expected"), [(1, [["repeats"]]), (2, [])])
def test_an_agent_that_writes_the_same_again_in_a_run_repeats_itself(tmp_path, limit, expected):
    """A text that was changed while the run goes on makes the agent that needs it run again."""
    desk = Desk(tmp_path, drifting(f"repeats: {limit}"))
    fake_agents.constant.add("b")
    edited = []

    def watch(task):
        if task.agent == "c" and not edited:
            edited.append(desk.edit(1, "a", "Another text of a person."))

    fake_agents.watching.append(watch)
    assert desk.resume() == ("completed", None)
    assert [event["agent"] for event in desk.events("agent_completed")][:4] == ["a", "b", "c", "b"]
    assert found(desk) == expected


@pytest.mark.parametrize(("minutes", "expected"), [(39, []), (40, [["age"]]), (41, [["age"]])])
def test_the_age_counts_from_the_start_of_a_run(tmp_path, minutes, expected):
    """A night between two runs does not count; the minutes of the second run do."""
    passed = [0]
    with clock.override(lambda: START + timedelta(minutes=passed[0])):
        desk = Desk(tmp_path, drifting("age_minutes: 40", PLAIN.replace("[a], review: none", "[a]")))
        assert desk.resume() == ("waiting", 1)
        passed[0] = 600
        desk.approve(1)
        fake_agents.watching.append(lambda task: passed.__setitem__(0, 600 + minutes))
        assert desk.resume() == ("completed", None)
    assert found(desk) == expected


def test_a_completed_call_says_how_alike_its_text_is_to_the_one_before(tmp_path):
    """The first text has none; that of the next attempt is compared with the attempt before."""
    desk = Desk(tmp_path, PLAIN.replace("[a], review: none", "[a]"))
    fake_agents.constant.add("a")
    desk.resume()
    desk.request_changes(1, "Shorter.")
    desk.resume()
    assert [event.get("similarity") for event in desk.events("agent_completed")] == [None, 1.0]


def test_drift_without_automatic_snapshots_is_told_all_the_same(tmp_path):
    """`auto: off` takes no recovery snapshot, and the event is there."""
    desk = Desk(tmp_path, drifting("cycles: 0") + "snapshots: {auto: off}\n")
    desk.resume()
    assert (found(desk), recoveries(desk)) == ([["cycles"]], [])


def cleared(desk):
    """Return by what each episode ended."""
    return [event["by"] for event in desk.events("drift_cleared")]


def test_pause_stops_the_run_before_the_next_call(tmp_path):
    """The session is paused, with the reason; the next run goes on and the same episode does not stop it again."""
    desk = Desk(tmp_path, drifting("cycles: 1, action: pause"))
    assert desk.resume() == ("paused", 3)
    assert (called(), summarize(desk.session.read()).status) == (["a", "b"], "paused")
    assert desk.session.read().drift_pause() == "drift: 2 cycles since the last refresh"
    assert desk.resume() == ("completed", None)
    assert (called(), found(desk), recoveries(desk)) == (["c"], [["cycles"]], ["drift: cycles"])
    assert (cleared(desk), desk.session.read().drift_pause()) == (["resume"], None)


def test_after_a_pause_a_new_episode_pauses_again(tmp_path):
    """Counts begin anew when a run goes on, and so do the limits."""
    desk = Desk(tmp_path, drifting("cycles: 0, action: pause"))
    assert [desk.resume() for _ in range(3)] == [("paused", 2), ("paused", 3), ("completed", None)]
    assert (len(found(desk)), len(recoveries(desk))) == (3, 3)


def test_a_pause_holds_nothing_that_a_person_has_to_do(tmp_path):
    """A gate is opened all the same; the session waits and is not paused."""
    desk = Desk(tmp_path, drifting("cycles: 0, action: pause", PLAIN.replace("[a], review: none", "[a]")))
    assert desk.resume() == ("waiting", 1)
    assert summarize(desk.session.read()).status == "waiting"


def test_a_paused_session_goes_on_once_its_workflow_only_warns(tmp_path):
    """A pause that the policy no longer asks for is over, as a budget pause is with another limit."""
    desk = Desk(tmp_path, drifting("cycles: 0, action: pause"))
    desk.resume()
    source = desk.session.read().workflow_files()
    text = source.files["workflow.yaml"].replace(b"pause", b"warn")
    desk.session.switch_workflow(WorkflowFiles("here", {**source.files, "workflow.yaml": text}))
    assert summarize(desk.session.read()).status == "in_progress"


def test_refresh_builds_the_run_anew_and_resets_cycles_and_age(tmp_path):
    """Each episode makes one recovery snapshot, and the run goes on to its end by itself."""
    passed = [0]
    with clock.override(lambda: START + timedelta(minutes=passed[0])):
        desk = Desk(tmp_path, drifting("age_minutes: 60, cycles: 1, action: refresh"))
        fake_agents.watching.append(lambda _task: passed.__setitem__(0, passed[0] + 40))
        assert desk.resume() == ("completed", None)
    assert (called(), found(desk)) == (["a", "b", "c"], [["cycles", "age"]])
    assert (recoveries(desk), cleared(desk)) == (["drift: cycles, age"], ["refresh"])


def test_a_refresh_keeps_nothing_that_was_read(tmp_path):
    """Each of the three phases runs on documents that were opened anew."""
    desk, opened = Desk(tmp_path, drifting("cycles: 0, action: refresh")), []
    events = Events(desk.session.store, desk.session.prefix + EVENTS)
    runner = Runner(desk.session, events, may_run_code=True, options=fake_agents.AT_ONCE)
    fake_agents.watching.append(lambda _task: opened.append(runner._session))
    asyncio.run(runner.run())
    assert len({id(session) for session in opened}) == 3


def test_an_episode_goes_on_in_the_next_run(tmp_path):
    """Errors before a run count in it, and what was told of them is not told again."""
    desk = Desk(tmp_path, drifting("no_progress: 2"), {"agents/a.md": retrying(2)})
    fake_agents.failing.add("a")
    assert desk.resume() == desk.resume() == ("failed", 1)
    assert (found(desk), recoveries(desk).count("drift: no_progress")) == ([["no_progress"]], 1)
    fake_agents.failing.clear()
    assert desk.resume() == ("completed", None)
    assert cleared(desk) == ["itself"]


@pytest.mark.parametrize("action", ["warn", "refresh"])
def test_two_hours_of_a_run_are_four_routine_snapshots_and_one_recovery(tmp_path, action):
    """From 0 to 2 h 01 with `auto: every`: one each half an hour, and the recovery snapshot once 2 h are over."""
    agents = "abcdefghijklm"
    phase = f"{{number: 1, name: One, slug: one, agents: [{', '.join(agents)}], run: sequential, review: none}}"
    more = "snapshots: {auto: every, frequency: 1000, retention: {routine: {keep_last: 3}}}\n"
    more += f"drift: {{action: {action}}}\n"
    passed = [0]
    with clock.override(lambda: START + timedelta(minutes=passed[0])):
        desk = Desk(tmp_path, f"name: some\nphases:\n  - {phase}\nmodes: {{all: [1]}}\n{more}")
        taken = []

        def watch(task):
            passed[0] += 10 if task.agent != "m" else 1
            taken.append(History(desk.session).latest("routine"))

        fake_agents.watching.append(watch)
        assert desk.resume() == ("completed", None)
        assert passed == [121]
        taken.append(History(desk.session).latest("routine"))
        History(desk.session).prune()
        kept = History(desk.session).list("routine")
    assert sorted({one.time[11:16] for one in taken if one}) == ["10:30", "11:00", "11:30", "12:00"]
    assert (len(kept), recoveries(desk), found(desk)) == (3, ["drift: age"], [["age"]])


def test_an_agent_that_repeats_itself_from_run_to_run_is_noticed(tmp_path):
    """Four alike answers to requests for changes are a repeat, though each was a run of its own."""
    desk = Desk(tmp_path, PLAIN.replace("[a], review: none", "[a]"))
    fake_agents.constant.add("a")
    for _ in range(5):
        desk.resume()
        desk.request_changes(1, "Shorter.")
    assert found(desk) == [["repeats"]]


def test_a_workflow_in_python_takes_the_same_keys():
    """`drift` of a Workflow has the keys of `drift:`, and the rest keep their defaults."""
    workflow = Workflow("some", phases=[Phase("One", agents=["human"])], drift={"cycles": 7})
    assert workflow.drift == DriftPolicy(cycles=7)


def test_the_terminal_shows_drift():
    """The signals stand in one line, with their figures; so does their end."""
    why = "drift: 10 cycles without progress"
    event = Event.new("drift_detected", signals=["no_progress"], action="warn", why=why, recovery=None)
    assert EventFormatter().line(event) == why
    over = Event.new("drift_cleared", signals=["no_progress", "age"], by="itself")
    assert EventFormatter().line(over) == "drift is over: no progress, age"
