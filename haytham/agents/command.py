"""`command:…`: a program that reads the prompt from standard input and writes the reply to standard output.

There is no shell in between. The program runs in a process session of its own, so that everything it starts is ended
with it, except for what starts another session.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import os
import shlex
import shutil
import signal
import subprocess
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from haytham.agents.base import Reply
from haytham.agents.registry import adapter
from haytham.errors import AgentError, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import RawIOBase

    from haytham.agents.base import Agent, Task
    from haytham.config.agent_spec import AgentSpec

MOST_BYTES = 10_000_000  # of a reply
KEPT_BYTES = 4_000  # of what it writes to standard error, the last of it
_LONGEST_LINE = 300
_PIECE = 65_536
_GRACE = 1.0  # seconds between asking a program to end and making it
_LINGER = 0.5  # seconds for the rest of the reply, once the program itself has ended
_POLL = 0.01
_REAPED = 1.0


def _find_fault(command: str) -> str | None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        return f"the command cannot be split into words: {str(error).lower()}"
    if not words or not words[0]:
        return "allowed: command:PROGRAM ARGUMENTS"
    return None if shutil.which(words[0]) else f"program {words[0]!r} not found"


@adapter(reserves=False, streams=True, find_fault=_find_fault)
def open_agent(rest: str) -> Agent:
    """Split a command into words as a shell would."""
    words, model = _split(rest), f"command:{rest}"

    async def agent(task: Task, spec: AgentSpec) -> Reply:
        reply = StdoutReader(task.on_text if spec.runtime.get("stream", True) else None)
        complaints = StderrTail()
        program = start_program(words)
        try:
            try:
                await program.communicate(task.prompt.encode(), reply.take, complaints.take)
            finally:
                await program.end(0.0 if reply.is_too_long else _GRACE)
            if program.code:
                raise ended_badly(program.code, complaints.last_line, reply.text(errors="replace"))
            return Reply(reply.text(), model=model)
        except AgentError as failure:
            if complaints.text:
                failure.add_note(f"The last of what it wrote to standard error:\n{complaints.text}")
            raise

    return agent


def _split(rest: str) -> list[str]:
    if not rest.isprintable():
        raise AgentError(f"the command {short_repr(rest)} is more than one line of text", retry=False)
    try:
        words = shlex.split(rest)
    except ValueError as error:
        reason = str(error).lower()
        raise AgentError(f"the command {short_repr(rest)} cannot be split into words: {reason}", retry=False) from None
    if not words or not words[0]:
        raise AgentError("the command is empty; write command:PROGRAM ARGUMENTS", retry=False)
    return words


def start_program(words: list[str]) -> ChildProcess:
    """Start a program in the running loop; AgentError if that is impossible."""
    try:
        return ChildProcess(words)
    except OSError as error:
        raise _cannot_start(words[0], error) from None


def _cannot_start(name: str, error: OSError) -> AgentError:
    if isinstance(error, FileNotFoundError) and shutil.which(name) is None:
        return AgentError(f"the command {short_repr(name)} was not found", retry=False)
    if isinstance(error, FileNotFoundError | PermissionError) or error.errno == errno.ENOEXEC:
        return AgentError(f"the command {short_repr(name)} is not executable: {error.strerror}", retry=False)
    return AgentError(f"the command {short_repr(name)} cannot be started: {error.strerror}")


def ended_badly(code: int, message: str, text: str) -> AgentError:
    """Return the error of a program that ended with an exit code or by a signal."""
    known = {number.value: number.name for number in signal.Signals}
    how = f"ended with exit code {code}" if code > 0 else f"was ended by {known.get(-code, f'signal {-code}')}"
    return AgentError(f"the command {how}" + (f": {message}" if message else ""), text=text)


class StdoutReader:
    """Collects a reply, and passes on each piece as it arrives."""

    def __init__(self, on_text: Callable[[str], None] | None) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._on_text = on_text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def is_too_long(self) -> bool:
        """Return whether the reply is longer than allowed."""
        return self._size > MOST_BYTES

    def take(self, piece: bytes) -> None:
        """Add a piece; an empty one ends the reply."""
        self._size += len(piece)
        if self.is_too_long:
            raise AgentError(f"the command wrote more than {MOST_BYTES // 1_000_000} MB and was ended", retry=False)
        self._pieces.append(piece)
        if self._on_text is not None and (text := self._decoder.decode(piece, final=not piece)):
            self._on_text(text)

    def text(self, errors: str = "strict") -> str:
        """Return the reply as text; AgentError if it is not UTF-8."""
        try:
            return b"".join(self._pieces).decode("utf-8", errors)
        except UnicodeDecodeError as error:
            where = f"byte {error.start} is 0x{error.object[error.start]:02x}"
            raise AgentError(f"the command's answer is not UTF-8 text: {where}", retry=False) from None


class StderrTail:
    """Collects the last bytes of standard error."""

    def __init__(self) -> None:
        self._last = b""

    def take(self, piece: bytes) -> None:
        """Add a piece."""
        self._last = (self._last + piece)[-KEPT_BYTES:]

    @property
    def text(self) -> str:
        """Return the last bytes as text."""
        return self._last.decode("utf-8", "replace").strip()

    @property
    def last_line(self) -> str:
        """Return the last line, printable and short."""
        line = self.text.rpartition("\n")[2]
        return "".join(character for character in line if character.isprintable())[:_LONGEST_LINE].strip()


class ChildProcess:
    """A running program, with everything it has started."""

    def __init__(self, words: list[str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - what the workflow says, once it is trusted
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        files = self._process.stdin, self._process.stdout, self._process.stderr
        self._pipes = [cast("RawIOBase", file) for file in files]
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        self._ended = asyncio.Event()
        self._waiter = threading.Thread(target=self._wait, args=(asyncio.get_running_loop(),), daemon=True)
        self._waiter.start()

    @property
    def code(self) -> int | None:
        """Return the exit code; negative for the signal that ended it, None while it runs."""
        return self._process.returncode

    async def communicate(self, prompt: bytes, hear: Callable[[bytes], None], note: Callable[[bytes], None]) -> None:
        """Write the prompt and read both outputs until the program has ended.

        Processes that it leaves behind may keep its pipes open; reading stops soon after the program has ended.
        """
        feed, reply, complaints = self._pipes
        try:
            async with asyncio.TaskGroup() as group:
                feeding = group.create_task(_feed(feed, prompt))
                hearing = [group.create_task(_take(reply, hear)), group.create_task(_take(complaints, note))]
                await self._ended.wait()
                await asyncio.wait(hearing, timeout=_LINGER)
                for task in (feeding, *hearing):
                    task.cancel()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def end(self, grace: float) -> None:
        """End the program and everything it started: SIGTERM, then SIGKILL after a grace period or when cancelled."""
        try:
            if self._signal(signal.SIGTERM):
                with suppress(TimeoutError):
                    async with asyncio.timeout(grace):
                        await self._wait_until_ended()
        finally:
            self._signal(signal.SIGKILL)
            self._waiter.join(_REAPED)
            for pipe in self._pipes:
                pipe.close()

    async def _wait_until_ended(self) -> None:
        """Wait until no process is left."""
        while self._signal(0):  # noqa: ASYNC110 - no signal reports the end of a child's child
            await asyncio.sleep(_POLL)

    def _signal(self, number: int) -> bool:
        """Send a signal to all processes that are left; return whether there are any."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # the second for a process that has ended and was not waited for
            return False
        return True

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        self._process.wait()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._ended.set)


async def _feed(pipe: RawIOBase, data: bytes) -> None:
    """Write to a pipe as fast as it is read; the reader may stop early."""
    loop, rest = asyncio.get_running_loop(), memoryview(data)
    with suppress(BrokenPipeError):
        while rest:
            taken = pipe.write(rest)
            if taken is None:
                await _until(loop.add_writer, loop.remove_writer, pipe)
            else:
                rest = rest[taken:]
    pipe.close()


async def _take(pipe: RawIOBase, take: Callable[[bytes], None]) -> None:
    """Read a pipe to its end."""
    loop = asyncio.get_running_loop()
    while (piece := pipe.read(_PIECE)) != b"":
        if piece is None:
            await _until(loop.add_reader, loop.remove_reader, pipe)
        else:
            take(piece)
            await asyncio.sleep(0)  # let other tasks run
    take(b"")


async def _until(watch: Callable[..., object], leave: Callable[..., object], pipe: RawIOBase) -> None:
    """Wait until a pipe can be read or written."""
    ready = asyncio.Event()
    watch(pipe, ready.set)
    try:
        await ready.wait()
    finally:
        leave(pipe)
