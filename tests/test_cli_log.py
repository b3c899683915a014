"""The events of a session on the command line and from Python: the last ones, by kind and time, and as they come."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from datetime import UTC, datetime

import pytest

from haytham import Workspace, clock
from haytham.errors import InvalidArgument
from haytham.events import Event, Events
from haytham.storage.files import FileStore
from haytham.storage.memory import MemoryStore
from support.cli_runner import IDEA, command, environment, haytham, session_folder


@pytest.fixture(scope="module")
def second_gate(tmp_path_factory):
    """A folder with a session that waits at its first gate."""
    folder = tmp_path_factory.mktemp("log")
    assert haytham("run", IDEA, "--no-input", cwd=folder).code == 3
    return folder


def file_of(here):
    return session_folder(here) / "events.jsonl"


def fill(here, count, padding=""):
    """Replace the events by so many, a minute apart, each with a number; every tenth is a decision."""
    lines = [
        {
            "time": f"2024-11-24T{10 + at // 60:02d}:{at % 60:02d}:00Z",
            "event": "decision" if at % 10 == 0 else "phase_completed",
            "phase": at,
            **({"padding": padding} if padding else {}),
        }
        for at in range(count)
    ]
    file_of(here).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def phases(here, *options):
    """The numbers in the events that `log` answers with."""
    answer = haytham("log", *options, "--json", cwd=here)
    assert answer.code == 0, answer.err
    return [event["facts"]["phase"] for event in answer.json["events"]]


def test_log_prints_time_name_and_facts_on_a_line(here):
    """An event is one line: plain texts as they are, other values as JSON."""
    told = haytham("log", cwd=here).out.splitlines()
    stored = [json.loads(line) for line in file_of(here).read_text(encoding="utf-8").splitlines()]
    assert [line.split("  ")[:2] for line in told] == [[event["time"], event["event"]] for event in stored]
    assert any(line.endswith('  review_opened  phase=1 why="it waits for review"') for line in told)
    assert told[-1].endswith("  run_ended  status=waiting phase=1")


def test_log_shows_the_last_50_events_unless_it_is_told_how_many(here):
    """Without an option 50 events are shown, with `-n` so many, with `--all` all of them; oldest first."""
    fill(here, 120)
    assert phases(here) == list(range(70, 120))
    assert phases(here, "-n", "3") == [117, 118, 119]
    assert phases(here, "-n", "0") == []
    assert phases(here, "-n", "500") == phases(here, "--all") == list(range(120))


def test_log_filters_by_kind_before_it_counts(here):
    """`-n` counts the events of the kinds that are asked for; `--kind` may be repeated."""
    fill(here, 120)
    assert phases(here, "--kind", "decision", "-n", "2") == [100, 110]
    assert phases(here, "--kind", "decision", "--kind", "phase_completed", "-n", "2") == [118, 119]
    assert phases(here, "--kind", "merged") == []


def test_log_takes_the_other_names_of_snapshots(here):
    """`checkpoint_saved` stands for `snapshot_saved`."""
    answers = [haytham("log", "--kind", name, cwd=here).out for name in ("checkpoint_saved", "snapshot_saved")]
    assert answers[0] == answers[1] != ""


@pytest.mark.parametrize("name", ["decisions", "agent_text", ""])
def test_log_refuses_a_kind_that_is_never_stored(here, name):
    """An unknown kind, and one that only reaches handlers, is refused with those that are allowed."""
    answer = haytham("log", "--kind", name, cwd=here)
    assert (answer.code, answer.out) == (2, "")
    assert f"kind of event: found {name!r}; allowed: session_started, " in answer.err
    assert "agent_text" not in answer.err.partition("allowed: ")[2]


@pytest.mark.parametrize("since", ["2024-11-24T11:58:00Z", "2024-11-24 11:58", "2024-11-24T12:58:00+01:00", "2m"])
def test_log_shows_events_since_a_time_or_an_age(here, since):
    """A time without a zone is in UTC, an age counts back from now, and the moment itself is included."""
    fill(here, 120)
    with clock.override(lambda: datetime(2024, 11, 24, 12, 0, tzinfo=UTC)):
        assert phases(here, "--since", since) == [118, 119]


@pytest.mark.parametrize("since", ["lately", "", "-2h", "99999999d", "2h ago"])
def test_log_refuses_what_is_neither_a_time_nor_an_age(here, since):
    """The sentence names what was found and what is allowed."""
    answer = haytham("log", f"--since={since}", cwd=here)
    assert (answer.code, answer.out) == (2, "")
    assert f"since: found {since!r}; allowed: an age like 90m, 12h, 30d or 2w, or a time" in answer.err


def test_an_event_without_a_readable_time_is_not_since_any_time(here):
    """An event whose time a person spoilt is shown, but not with `--since`."""
    file_of(here).write_text('{"time": "noon", "event": "phase_completed", "phase": 1}\n', encoding="utf-8")
    assert phases(here) == [1]
    assert phases(here, "--since", "2000-01-01") == []


def test_log_leaves_out_a_line_that_was_cut_off(here):
    """A last line without its end is no event yet; a line that cannot be read hides no other."""
    with file_of(here).open("ab") as file:
        file.write(b'no event\n{"time": "t", "event": "phase_completed", "phase": 8}\n{"time": "t", "event": "pha')
    assert phases(here, "-n", "1") == [8]


def test_log_prints_nothing_that_a_terminal_acts_on(here):
    """Escape sequences, ends of lines and marks of direction in names and facts do not reach the terminal."""
    odd = {
        "time": "t\x1b[2J",
        "event": "x\n\x1b]0;y\x07",
        "a\nb": "c\x1b[31m\nd\u202e",
        "plain": "\x9b31m",
        "e": ["\x1b"],
    }
    file_of(here).write_text(json.dumps(odd) + "\n", encoding="utf-8")
    told = haytham("log", cwd=here).out
    assert told == 't[2J  x ]0;y  a b="c\\u001b[31m\\nd\\u202e" plain="\\u009b31m" e=["\\u001b"]\n'
    assert haytham("log", "--json", cwd=here).json["events"][0]["facts"]["a\nb"] == odd["a\nb"]


def test_log_refuses_a_number_beside_all(here):
    """`-n` and `--all` exclude each other, and a number below 0 is none."""
    assert haytham("log", "--all", "-n", "3", cwd=here).err == "haytham: say how many events: -n or --all, not both\n"
    assert haytham("log", "-n", "-1", cwd=here).code == 2


def test_only_the_end_of_a_large_file_is_read(here, monkeypatch):
    """The last events are read from the end of the file, further back only while some are missing."""
    fill(here, 800, "x" * 1000)
    size, sizes, read = file_of(here).stat().st_size, [], FileStore.read_from

    def read_from(store, key, offset):
        data = read(store, key, offset)
        if key.endswith("events.jsonl"):
            sizes.append(len(data))
        return data

    monkeypatch.setattr(FileStore, "read_from", read_from)
    assert phases(here) == list(range(750, 800))
    assert sizes == [64 * 1024]
    assert phases(here, "-n", "100") == list(range(700, 800))
    assert sizes[1:] == [64 * 1024, 256 * 1024]
    assert phases(here, "-n", "3", "--kind", "merged") == []
    assert sizes[3:] == [64 * 1024, 256 * 1024, size]


@pytest.mark.parametrize("count", range(1, 8))
def test_every_limit_gives_the_end_of_all_events(here, monkeypatch, count):
    """Wherever the first window begins, in a line or at its start, no event is lost or cut."""
    fill(here, 7)
    log = Workspace(here / "projects").session().log
    everything = log().read()
    for window in range(1, file_of(here).stat().st_size + 2):
        monkeypatch.setattr("haytham.app.log._FIRST_WINDOW", window)
        assert log().read(count) == everything[-count:]


def test_a_store_without_sizes_is_read_as_well():
    """The size of a log in a store that only reads whole values is that of the value; of none it is 0."""
    store = MemoryStore()
    events = Events(store, "s/events.jsonl")
    assert events.size() == Events().size() == 0
    store.ensure_folder("s/")
    events.emit("phase_completed", phase=1)
    assert events.size() == len(store.read("s/events.jsonl"))


def test_log_is_a_call_of_python(here):
    """`Session.log` returns typed events, and refuses what the command refuses."""
    session = Workspace(here / "projects").session()
    (event,) = session.log(["run_ended"]).read(5)
    assert (type(event), event.name, event.facts) == (Event, "run_ended", {"status": "waiting", "phase": 1})
    with pytest.raises(InvalidArgument):
        session.log(["nothing"])


def test_following_goes_on_after_what_was_read(here):
    """`follow` yields what was stored after `read`, if it is wanted; a line that was cut off comes once it is whole."""
    session = Workspace(here / "projects").session()
    log = session.log(["phase_completed"])
    assert len(log.read(1)) == 1
    following = log.follow()
    session.new_events().emit("run_ended", status="waiting", phase=1)
    with file_of(here).open("ab") as file:
        file.write(b'{"event": "phase_completed", "phase": 8}\n{"event": "phase_comp')
    assert [event.facts["phase"] for event in next(following)] == [8]
    with file_of(here).open("ab") as file:
        file.write(b'leted", "phase": 9}\n')
    assert [event.facts["phase"] for event in next(following)] == [9]


def test_following_never_begins_inside_a_line(here, monkeypatch):
    """A last line that is not complete and longer than the first window is yielded once it is whole."""
    monkeypatch.setattr("haytham.app.log._FIRST_WINDOW", 4)
    log = Workspace(here / "projects").session().log()
    with file_of(here).open("ab") as file:
        file.write(b'{"event": "phase_completed", "pha')
    assert log.read(0) == []
    with file_of(here).open("ab") as file:
        file.write(b'se": 9}\n')
    assert [event.facts for event in next(log.follow())] == [{"phase": 9}]


@pytest.mark.parametrize("as_json", [False, True])
def test_log_follows_a_session_until_it_is_stopped(here, as_json):
    """`--follow` prints the last events, then new ones of other processes at once; Ctrl-C ends it with exit 130."""
    words = command("log", "-n", "1", "--follow", *(["--json"] if as_json else []))
    following = subprocess.Popen(
        words, cwd=here, env=environment(here), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        first = following.stdout.readline()
        assert haytham("approve", "1", cwd=here).code == 0
        second = following.stdout.readline()
        assert [name in line for name, line in (("run_ended", first), ("decision", second))] == [True, True]
        if as_json:
            assert [json.loads(line)["kind"] for line in (first, second)] == ["log", "log"]
        os.kill(following.pid, signal.SIGINT)
        errors = following.communicate(timeout=30)[1]
        assert (following.returncode, errors.strip()) == (130, "haytham: stopped")
    finally:
        following.kill()
        following.communicate()


def test_log_without_events_prints_nothing(here):
    """A session whose file of events is lost has an empty log."""
    file_of(here).unlink()
    assert haytham("log", cwd=here).out == ""
    assert phases(here) == []
