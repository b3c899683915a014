"""Recording and replay: what was answered once is answered again, to the letter; what was not is told."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haytham.agents.base import Reply, Task
from haytham.agents.registry import load_agent
from haytham.agents.replay import Recorder, Recordings
from haytham.config.agent_spec import AgentSpec
from haytham.errors import AgentError
from support import fake_agents
from support.fake_agents import Desk, called
from support.hostile_inputs import counts, lines, plain_values, texts

TIMES = (
    "- Executed: ",
    "saved_at: ",
    "- Duration: ",
    "- Started: ",
    "- Completed: ",
    "- Last Updated: ",
    "- Created: ",
)
TIMES += ("- Timestamp: ", "- Total Duration: ", "derived_digest: ", "model: ")
SPENT = ("- Total Tokens: ", "- Total Cost: ")  # of the manifest: a replay spends nothing
REPLY = Reply(
    "A text.\n",
    model="acme:large",
    input_tokens=12,
    output_tokens=7,
    cost=0.0125,
    tools_used=("search",),
    state={"city": "Lyon"},
)


@pytest.fixture(autouse=True)
def _anew():
    fake_agents.forget()


def task(agent="a", prompt="Write.", **more):
    given = {"idea": "An idea", "agent_file": "Do it.", "phase": 1, "phase_name": "One", "attempt": 1, **more}
    return Task(agent=agent, prompt=prompt, **given)


def replayed(folder, asked):
    return asyncio.run(load_agent(f"replay:{folder}")(asked, AgentSpec(asked.agent)))


def failure(folder, asked):
    with pytest.raises(AgentError) as failed:
        replayed(folder, asked)
    assert failed.value.retry is False
    return failed.value


def files(folder):
    return sorted(path.name for path in folder.glob("*.json"))


# The same again.


def test_a_recorded_task_is_answered_with_the_very_reply(tmp_path):
    """Text, model, tokens, cost, tools and changes of state are those that were recorded."""
    Recorder(tmp_path / "new").record(task(), REPLY)
    assert replayed(tmp_path / "new", task()) == REPLY


replies = st.builds(
    Reply,
    texts,
    model=st.none() | lines.filter(str.isprintable),
    input_tokens=st.none() | counts,
    cost=st.none() | st.floats(0, 1e9),
    tools_used=st.lists(lines.filter(str.isprintable), max_size=3).map(tuple),
    state=st.none() | st.dictionaries(texts, plain_values, max_size=2),
)


@given(replies, texts)
def test_whatever_was_answered_comes_back(tmp_path_factory, reply, prompt):
    """No text, name or value is changed by being written down; neither is what was asked."""
    folder, asked = tmp_path_factory.mktemp("recordings"), task(prompt=prompt)
    Recorder(folder).record(asked, reply)
    assert replayed(folder, asked) == reply
    (found,) = Recordings(folder).find("a", asked.digest)
    assert (found.agent, found.task, dict(found.parts), found.prompt) == ("a", asked.digest, asked.parts, prompt)


def test_a_session_run_again_offline_is_the_same_but_for_times(tmp_path):
    """All phases of a workflow, answered from recordings: the same documents, and no agent is called."""
    recorder = Recorder(tmp_path / "recordings")
    fake_agents.watching.append(
        lambda asked: recorder.record(
            asked, Reply(fake_agents.answer(asked.agent, asked.digest), model="python:support.fake_agents:write")
        )
    )
    first = documents(tmp_path / "first", "python:support.fake_agents:write")
    assert called() == ["a", "b", "c", "d", "e", "f"]
    assert documents(tmp_path / "again", f"replay:{tmp_path / 'recordings'}") == first
    assert called() == []


def documents(base, model):
    """What the documents of a session say once it is completed, but for times and the model it was run with."""
    agents = {f"agents/{name}.md": b"---\nhaytham: {retries: 0}\n---\nWrite about {{ phase }}.\n" for name in "abcdef"}
    desk = Desk(base, files=agents)
    desk.session.update_manifest({"model": model})
    assert desk.resume(approve_as="ann") == ("completed", None)
    folder = base / "p" / "sessions" / "s"
    return {path.relative_to(folder).as_posix(): _lines(path) for path in sorted(folder.rglob("*.md"))}


def _lines(path):
    times = (*TIMES, "| ") if path.name in ("session_manifest.md", "checkpoint.md") else TIMES
    times += SPENT if path.name == "session_manifest.md" else ()
    return [line for line in path.read_text(encoding="utf-8").split("\n") if not line.startswith(times)]


def test_a_recording_is_plain_data(tmp_path):
    """One file an answer, named by agent, task and order, with all that was asked and answered."""
    asked = task(agent="market-analysis", evidence="A fact", attempt=2)
    Recorder(tmp_path).record(asked, replace(REPLY, state=MappingProxyType({"city": "Lyon"})))
    name = f"market-analysis-{asked.digest.removeprefix('sha256:')[:16]}-1.json"
    assert files(tmp_path) == [name]
    assert json.loads((tmp_path / name).read_text(encoding="utf-8")) == {
        "haytham": "recording/1",
        "agent": "market-analysis",
        "phase": 1,
        "attempt": 2,
        "task": asked.digest,
        "parts": asked.parts,
        "prompt": "Write.",
        "reply": {
            "text": "A text.\n",
            "model": "acme:large",
            "input_tokens": 12,
            "output_tokens": 7,
            "cost": 0.0125,
            "tools_used": ["search"],
            "state": {"city": "Lyon"},
        },
    }


# Several answers to a task.


def test_the_last_reply_wins(tmp_path):
    """A task that was asked again is answered as it was last; what failed before or after is passed over."""
    recorder = Recorder(tmp_path)
    for outcome in ("one", None, "two", None):
        if outcome is None:
            recorder.record_failure(task(), OSError("the line is busy"))
        else:
            recorder.record(task(), replace(REPLY, text=outcome))
    assert len(files(tmp_path)) == 4
    assert replayed(tmp_path, task()).text == "two"


def test_the_order_is_that_of_recording_beyond_nine(tmp_path):
    """The tenth answer comes after the ninth."""
    for at in range(1, 12):
        Recorder(tmp_path).record(task(), replace(REPLY, text=f"text {at}"))
    assert replayed(tmp_path, task()).text == "text 11"


def test_a_repair_is_replayed_as_it_went(tmp_path):
    """A task asked in other words is answered to these words: first the flawed reply, then the repaired one."""
    recorder, again = Recorder(tmp_path), task(prompt="Write. And mend it.")
    recorder.record(task(), replace(REPLY, text="flawed"))
    recorder.record(again, replace(REPLY, text="repaired"))
    assert [replayed(tmp_path, asked).text for asked in (task(), again)] == ["flawed", "repaired"]
    assert replayed(tmp_path, task(prompt="In words of a newer template.")).text == "repaired"


def test_the_same_answer_twice_in_a_row_is_kept_once(tmp_path):
    """Recording a replay adds nothing; the same text after another one is an answer of its own."""
    recorder = Recorder(tmp_path)
    for text in ("one", "one", "two", "one"):
        recorder.record(task(), replace(REPLY, text=text))
    assert len(files(tmp_path)) == 3
    assert replayed(tmp_path, task()).text == "one"


def test_two_recorders_of_one_folder_lose_nothing(tmp_path):
    """A number that somebody else took in between is passed over."""
    first, second = Recorder(tmp_path), Recorder(tmp_path)
    put = first._write_new

    def late(key, data):
        second.record(task(), replace(REPLY, text="theirs"))
        return put(key, data)

    first._write_new = late
    first.record(task(), replace(REPLY, text="ours"))
    assert [one.outcome.text for one in Recordings(tmp_path).find("a")] == ["theirs", "ours"]


# Failures.


def test_a_recorded_failure_fails_again(tmp_path):
    """Where no try succeeded, the last failure is raised, with what it had come to; asking again would not help."""
    recorder = Recorder(tmp_path)
    recorder.record_failure(task(), OSError("the line is busy"))
    recorder.record_failure(task(), AgentError("cut off", text="half a", input_tokens=3, output_tokens=2, cost=0.5))
    error = failure(tmp_path, task())
    assert (str(error), error.text, error.input_tokens, error.output_tokens, error.cost) == (
        "cut off", "half a", 3, 2, 0.5
    )  # fmt: skip


def test_any_error_can_be_recorded(tmp_path):
    """One without words is named by its type, and what is no Unicode is shown as a question mark."""
    recorder = Recorder(tmp_path)
    recorder.record_failure(task(), ZeroDivisionError())
    assert str(failure(tmp_path, task())) == "ZeroDivisionError"
    recorder.record_failure(task(), RuntimeError("half a pair: \ud800"))
    assert str(failure(tmp_path, task())) == "half a pair: ?"


def test_a_secret_is_not_recorded_with_a_failure(tmp_path):
    """What a provider quotes of the request in its complaint stays out of the folder."""
    secret = "hunter2-hunter2"  # noqa: S105 - made up
    Recorder(tmp_path, secrets=[secret]).record_failure(task(), AgentError(f"wrong: {secret}", text=secret))
    assert all(secret not in path.read_text(encoding="utf-8") for path in tmp_path.glob("*.json"))
    assert str(failure(tmp_path, task())) == "wrong: ***"


def test_a_task_that_was_not_recorded_is_told_by_how_it_differs(tmp_path):
    """The failure names the parts that differ from the nearest recording, and notes how the prompts differ."""
    recorder = Recorder(tmp_path)
    recorder.record(task(idea="Another", agent_file="Other", prompt="far away"), REPLY)
    recorder.record(task(prompt="Write.\nOf gardens.\n", evidence="old"), REPLY)
    error = failure(tmp_path, task(prompt="Write.\nOf barrels.\n", evidence="new", request="be short"))
    assert str(error) == "agent a was recorded with another task; the nearest one differs in: evidence, input"
    shown = "--- prompt before\n+++ prompt now\n@@ -1,2 +1,2 @@\n Write.\n-Of gardens.\n+Of barrels."
    assert error.__notes__ == [f"How the prompt differs from the recorded one:\n{shown}"]


def test_the_difference_is_short_however_long_the_prompts_are(tmp_path):
    """Twenty lines are shown, none of them longer than a screen, and how many more there are."""
    Recorder(tmp_path).record(task(prompt="\n".join("x" * 1000 for _ in range(100))), REPLY)
    asked = task(prompt="\n".join("y" * 1000 for _ in range(100)), idea="Another")
    noted = failure(tmp_path, asked).__notes__[0].split("\n")
    assert len(noted) == 22
    assert noted[-1] == "… 183 more lines"
    assert max(map(len, noted)) <= 200


def test_an_agent_that_was_not_recorded_is_told(tmp_path):
    """Recordings of another agent are no answer, also where one name begins with the other."""
    Recorder(tmp_path).record(task(agent="a-b"), REPLY)
    assert str(failure(tmp_path, task())) == "no recording of agent a"


@pytest.mark.parametrize("rest", ["", "  "])
def test_a_folder_has_to_be_named(rest):
    """`replay:` alone says how it is said."""
    with pytest.raises(AgentError, match=r"^no folder of recordings given; write replay:DIR$"):
        load_agent(f"replay:{rest}")


def test_a_folder_that_is_not_there_is_told(tmp_path):
    """Neither a folder nor a file in its place: the folder is named, and nothing is made."""
    (tmp_path / "file").touch()
    for name in ("nowhere", "file"):
        with pytest.raises(AgentError, match=rf"^the folder of recordings '.*{name}' was not found$"):
            load_agent(f"replay:{tmp_path / name}")
    assert not (tmp_path / "nowhere").exists()


def spoiled(**changes):
    """What a change makes of a recording."""
    return lambda facts: {**facts, **changes}


def with_reply(**changes):
    return lambda facts: {**facts, "reply": {**facts["reply"], **changes}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda facts: [], "haytham: found []; allowed: recording/1"),
        (spoiled(haytham="recording/2"), "haytham: found 'recording/2'; allowed: recording/1"),
        (spoiled(agent=1), "agent: found 1; allowed: text"),
        (spoiled(prompt=None), "prompt: found None; allowed: text"),
        (spoiled(parts={"idea": 1}), "parts: found {'idea': 1}; allowed: digests"),
        (spoiled(reply=None), "reply: found None; allowed: a map with text"),
        (with_reply(more=1), "allowed: a map with text, and any of cost, input_tokens"),
        (with_reply(text=1), "reply: text: found 1"),
        (with_reply(cost=-1), "cost: found -1; allowed: dollars, 0 or more"),
        (with_reply(cost=True), "cost: found True"),
        (with_reply(cost=float("inf")), "number: found 'Infinity'; allowed: a finite one"),
        (with_reply(tools_used="abc"), "tools_used: found 'abc'; allowed: a list of names"),
        (with_reply(model="two\nlines"), "reply: model"),
        (with_reply(state=[1]), "reply: state"),
        (lambda facts: {name: facts[name] for name in facts if name != "reply"}, "failure: found None"),
    ],
)
def test_a_damaged_recording_is_told_with_its_file(tmp_path, change, said):
    """What a recording does not say, or cannot, is named in a sentence; nothing is guessed."""
    Recorder(tmp_path).record(task(), REPLY)
    (path,) = tmp_path.glob("*.json")
    path.write_text(json.dumps(change(json.loads(path.read_text(encoding="utf-8")))), encoding="utf-8")
    told = str(failure(tmp_path, task()))
    assert told.startswith(f"{path.name}: is not a valid recording: ")
    assert said in told
    assert "\n" not in told


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000])
def test_a_file_that_is_no_json_is_told(tmp_path, data):
    """Cut off, no text, or nested beyond reason: a sentence with the file."""
    Recorder(tmp_path).record(task(), REPLY)
    (path,) = tmp_path.glob("*.json")
    path.write_bytes(data)
    assert str(failure(tmp_path, task())).startswith(f"{path.name}: is not a valid recording: ")


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    """A note of a person, or a file of another name, is no recording."""
    Recorder(tmp_path).record(task(), REPLY)
    (tmp_path / "notes.json").write_text("{", encoding="utf-8")
    (tmp_path / "a-copy.json").write_text("{", encoding="utf-8")
    assert replayed(tmp_path, task()) == REPLY
