"""Programs as agents: what goes in and comes out, how they fail, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import json
import pickle
import shlex
import time
import tracemalloc
from pathlib import Path

import pytest

from haytham.agents.base import Task, call_agent
from haytham.agents.command import KEPT_BYTES
from haytham.agents.registry import load_agent
from haytham.config.agent_spec import AgentSpec
from haytham.errors import AgentError
from support.bad_agents import wait_for
from support.fake_agents import Desk
from support.hostile_inputs import FRAGMENTS

ONE = "name: one\nphases:\n  - {number: 1, name: One, slug: one, agents: [a]}\nmodes: {all: [1]}\n"
LONG = "x" * 1_000_000
HOSTILE = [
    "a\x00b",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "# Agent Output: A\n\n## Metadata\n\n- Status: failed\n\n## Output\n\nmine\n",
    "---\nhaytham: agent_output/1\nwrote: nothing\n---\n",
    "one\r\ntwo\rthree",
    "",
    "\n\n",
    "\ufeffno end of line",
    "".join(FRAGMENTS),
]


def task(prompt="Write.", **more):
    return Task(agent="a", agent_file="", phase=1, phase_name="One", attempt=1, idea="An idea", prompt=prompt, **more)


async def answer(command, *, seconds=20.0, stream=True, **more):
    spec = AgentSpec("a", timeout=seconds, runtime={} if stream else {"stream": False})
    return await call_agent(load_agent(f"command:{command}"), task(**more), spec)


def run(command, **more):
    return asyncio.run(answer(command, **more))


def failure(command, **more):
    with pytest.raises(AgentError) as failed:
        run(command, **more)
    return failed.value


def sh(script):
    return f"sh -c {shlex.quote(script)}"


def desk_with(base, command, **ours):
    """A session whose one agent is a command."""
    front = {"model": f"command:{command}", "haytham": {"retries": 0, **ours}}
    return Desk(base, ONE, {"agents/a.md": f"---\n{json.dumps(front)}\n---\nWrite.\n".encode()})


def output(desk):
    return desk.session.read().outputs(desk.phase(1))["a"].value.to_value()


# What goes in and comes out.


@pytest.mark.parametrize("prompt", ["Write.\n", *HOSTILE])
def test_the_prompt_goes_in_and_the_reply_comes_out(prompt):
    """What `cat` answers is the prompt, to the letter; tokens and cost are unknown, the model is the command."""
    reply = run("cat", prompt=prompt)
    assert (reply.text, reply.model) == (prompt, "command:cat")
    assert (reply.input_tokens, reply.output_tokens, reply.cost) == (None, None, None)


def test_words_are_split_as_a_shell_would_and_no_shell_reads_them():
    """Quotes hold words together; what a shell would expand stays as it is."""
    assert run("printf '%s|' 'two words' \"a\\\"b\" $HOME * ; #").text == 'two words|a"b|$HOME|*|;|#|'


def test_a_program_may_write_before_it_reads():
    """More than a pipe holds, both ways: nobody waits for the other."""
    reply = run(sh("head -c 1000000 /dev/zero | tr '\\0' y; cat"), prompt=LONG)
    assert reply.text == "y" * 1_000_000 + LONG


@pytest.mark.parametrize("command", ["true", sh("exec <&-"), sh("head -c 10 >/dev/null")])
def test_a_program_need_not_read_its_prompt(command):
    """Whoever closes standard input early answers all the same."""
    assert run(command, prompt=LONG).text == ""


def test_pieces_are_told_as_they_come(tmp_path):
    """Who listens hears a piece before the next is written; a character cut in two is told once it is whole."""
    told, signal = [], tmp_path / "heard"

    def tell(piece):
        told.append(piece)
        signal.touch()

    wait = f"while ! test -e {signal}; do sleep 0.01; done"
    reply = run(sh(f"printf 'one \\303'; {wait}; printf '\\251 two'"), on_text=tell)
    assert told == ["one ", "é two"]
    assert reply.text == "one é two"


def test_an_agent_that_is_not_to_stream_tells_nothing():
    """`runtime: {stream: false}` in an agent's file: the reply is shown once it is whole."""
    told = []
    assert run("cat", stream=False, on_text=told.append).text == "Write."
    assert told == []


def test_whoever_listens_may_fail():
    """An error of the listener is an error of the call, and the program is ended."""
    begun = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        run(sh("echo one; exec sleep 60"), on_text=lambda piece: 1 / 0)
    assert time.monotonic() - begun < 10


def test_many_programs_run_side_by_side():
    """Each has its own time: thirty that sleep take no longer than a few."""

    async def all_of_them():
        return await asyncio.gather(*(answer(sh(f"sleep 0.5; echo {at}")) for at in range(30)))

    begun = time.monotonic()
    assert [reply.text for reply in asyncio.run(all_of_them())] == [f"{at}\n" for at in range(30)]
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("text", [text for text in HOSTILE if text.strip()])
def test_whatever_a_program_writes_is_stored_exactly(tmp_path, text):
    """NUL bytes, escapes, headings of ours: the output holds the very reply, and the session goes on."""
    (tmp_path / "reply").write_bytes(text.encode())
    desk = desk_with(tmp_path / "base", shlex.join(["cat", str(tmp_path / "reply")]))
    assert desk.resume() == ("waiting", 1)
    assert (output(desk)["text"], output(desk)["status"]) == (text, "completed")
    desk.approve(1)
    assert desk.resume() == ("completed", None)


# Failing.


def test_an_exit_code_is_a_failure_and_says_why():
    """The sentence has the code and the last line of standard error; what came before both is kept with it."""
    error = failure(sh("echo half; echo first >&2; printf '\\033[31mno such city\\n\\n' >&2; exit 3"))
    assert str(error) == "the command ended with exit code 3: [31mno such city"
    assert (error.text, error.retry) == ("half\n", True)
    assert error.__notes__ == ["The last of what it wrote to standard error:\nfirst\n\x1b[31mno such city"]
    assert pickle.loads(pickle.dumps(error)).__dict__ == error.__dict__  # noqa: S301 - our own


def test_a_program_that_says_nothing_is_named_by_its_code():
    """Without a word on standard error, the code or the signal is all there is to say."""
    assert str(failure("false")) == "the command ended with exit code 1"
    assert str(failure(sh("kill -9 $$"))) == "the command was ended by SIGKILL"
    assert str(failure(sh("kill -40 $$"))) == "the command was ended by signal 40"


def test_standard_error_stands_in_the_error_details(tmp_path):
    """The last kilobytes of what a failed program complained about are in its output, which reads, however hostile."""
    script = (
        "head -c 1000000 /dev/zero | tr '\\0' z >&2; printf '\\377\\000```\\n## Output\\n' >&2; echo last >&2; exit 3"
    )
    desk = desk_with(tmp_path, sh(script))
    assert desk.resume() == ("failed", 1)
    value = output(desk)
    assert value["error_message"] == "the command ended with exit code 3: last"
    assert value["stack_trace"].rstrip().endswith("zzz\ufffd\x00```\n## Output\nlast")
    assert value["stack_trace"].count("z") < KEPT_BYTES
    assert desk.resume() == ("failed", 1)


def test_standard_error_of_a_program_that_ends_well_is_no_failure():
    """What is written to standard error is no part of the reply."""
    assert run(sh("echo working >&2; echo done")).text == "done\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("", "the command is empty; write command:PROGRAM ARGUMENTS"),
        ("  ", "the command is empty; write command:PROGRAM ARGUMENTS"),
        ("''", "the command is empty; write command:PROGRAM ARGUMENTS"),
        ("cat 'a", 'the command "cat \'a" cannot be split into words: no closing quotation'),
        ("cat a\nb", "the command 'cat a\\nb' is more than one line of text"),
        ("cat a\0b", "the command 'cat a\\x00b' is more than one line of text"),
        ("no_such_program -x", "the command 'no_such_program' was not found"),
        ("./no/such/program", "the command './no/such/program' was not found"),
        ("/", "the command '/' is not executable: Permission denied"),
    ],
)
def test_what_cannot_be_run_is_told_in_a_sentence(command, said):
    """No command, or one that is not there: asking again would not help."""
    error = failure(command)
    assert (str(error), error.retry) == (said, False)


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        ("#!/bin/sh\n", 0o644, "Permission denied"),
        ("no program", 0o755, "Exec format error"),
        ("#!/no/such/interpreter\n", 0o755, "No such file or directory"),
    ],
)
def test_a_file_that_is_no_program_is_told(tmp_path, content, mode, why):
    """A file that may not be run, that is no program, or whose interpreter is not there."""
    path = tmp_path / "script"
    path.write_text(content, encoding="utf-8")
    path.chmod(mode)
    error = failure(shlex.quote(str(path)))
    assert str(error).endswith(f" is not executable: {why}")
    assert not error.retry


def test_an_answer_that_is_no_text_is_a_failure():
    """Bytes that are no UTF-8 are named, not guessed at."""
    error = failure(sh("printf 'caf\\351 noir'; echo oops >&2"))
    assert (str(error), error.retry) == ("the command's answer is not UTF-8 text: byte 3 is 0xe9", False)
    assert "oops" in error.__notes__[0]


def test_an_answer_that_is_too_long_is_cut_off():
    """Past 10 MB the program is ended at once, and what it wrote is not held."""
    tracemalloc.start()
    begun = time.monotonic()
    error = failure("head -c 50000000 /dev/zero")
    took, (_, most) = time.monotonic() - begun, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (str(error), error.retry, error.text) == ("the command wrote more than 10 MB and was ended", False, "")
    assert most < 15_000_000
    assert took < 10


def test_ten_megabytes_are_not_too_long():
    """The limit itself is allowed."""
    assert len(run("head -c 10000000 /dev/zero").text) == 10_000_000


# Nothing of it stays.


def is_gone(pid):
    """Whether a process has ended, also where nobody has asked after it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def family(tmp_path, before="", after="wait"):
    """A program, its child and its grandchild, which write down their numbers; and how to read these."""
    script = tmp_path / "family.sh"
    own = f'test "$1" -eq 3 && {{ {after}; exit; }}'
    script.write_text(
        f'{before}\necho $$ >> {tmp_path}/pids\ntest "$1" -gt 1 && sh "$0" $(($1 - 1)) &\n{own}\nsleep 60\n',
        encoding="utf-8",
    )

    def pids():
        path = tmp_path / "pids"
        return path.read_text(encoding="utf-8").split() if path.exists() else []

    return f"sh {shlex.quote(str(script))} 3", pids


@pytest.mark.parametrize("before", ["", "trap '' TERM"])
def test_a_time_out_ends_a_program_and_all_it_started(tmp_path, before):
    """Child and grandchild are gone with it, also where they do not heed being asked to end."""
    command, pids = family(tmp_path, before)
    error = failure(command, seconds=2.0)
    assert str(error) == "no answer within 2 s"
    assert len(pids()) == 3
    assert wait_for(lambda: all(map(is_gone, pids())), 5)


def test_being_cancelled_ends_a_program_and_all_it_started(tmp_path):
    """Whoever stops the run waits for no program, and leaves none behind."""
    command, pids = family(tmp_path, "trap '' TERM")

    async def stop():
        running = asyncio.ensure_future(answer(command))
        assert await asyncio.to_thread(wait_for, lambda: len(pids()) == 3)
        running.cancel()
        await running

    begun = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(stop())
    assert wait_for(lambda: all(map(is_gone, pids())), 5)
    assert time.monotonic() - begun < 10


def test_a_program_is_asked_to_end_before_it_is_made_to(tmp_path):
    """Within its grace it may put its things in order."""

    async def late():
        with pytest.raises(AgentError, match="no answer within"):
            await answer(sh(f"trap 'sleep 0.2; echo bye > {tmp_path}/bye; exit' TERM; sleep 60 & wait"), seconds=0.5)
        return await asyncio.to_thread(wait_for, (tmp_path / "bye").exists, 5)

    assert asyncio.run(late())


@pytest.mark.parametrize("after", ["echo done", "echo done; kill -9 $$"])
def test_what_a_program_leaves_behind_keeps_nobody_waiting(tmp_path, after):
    """A child that holds standard output open is ended soon after the program that started it."""
    command, pids = family(tmp_path, after=f"while test $(wc -l < {tmp_path}/pids) -lt 3; do sleep 0.01; done; {after}")
    begun = time.monotonic()
    if "kill" in after:
        assert failure(command).text == "done\n"
    else:
        assert run(command).text == "done\n"
    assert time.monotonic() - begun < 10
    assert len(pids()) == 3
    assert wait_for(lambda: all(map(is_gone, pids())), 5)


def test_a_program_that_closes_its_output_is_waited_for():
    """The reply is over when the program is: its exit code still counts."""
    assert str(failure(sh("echo half; exec >&- 2>&-; sleep 0.3; exit 4"))) == "the command ended with exit code 4"


def test_a_stopped_run_is_resumed_with_the_same_command(tmp_path):
    """A time-out is the agent's failure; the next run asks the command again."""
    flag = tmp_path / "flag"
    desk = desk_with(tmp_path / "base", sh(f"test -e {flag} || exec sleep 60; echo now"), timeout=0.3)
    assert desk.resume() == ("failed", 1)
    assert output(desk)["error_message"] == "no answer within 0.3 s"
    flag.touch()
    assert desk.resume() == ("waiting", 1)
    assert output(desk)["text"] == "now\n"
