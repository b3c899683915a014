"""`command:…`: any program; the prompt on its standard input, the reply on its standard output, no shell in between.

It runs in a session of its own, so that all it starts is ended with it; what makes itself another one has left it.
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

from haytham.agents.base import Reply, adapter
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


@adapter(reserves=False)
def open_agent(rest: str) -> Agent:
    """Split the words of a command as a shell would."""
    words, model = _split(rest), f"command:{rest}"

    async def agent(task: Task, spec: AgentSpec) -> Reply:
        reply = StdoutReader(task.on_text if spec.runtime.get("stream", True) else None)
        complaints = StderrTail()
        program = _start(words)
        try:
            try:
                await program.converse(task.prompt.encode(), reply.take, complaints.take)
            finally:
                await program.end(0.0 if reply.is_too_long else _GRACE)
            if program.code:
                raise _ended_badly(program.code, complaints.last_line, reply.text(errors="replace"))
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
        said = str(error).lower()
        raise AgentError(f"the command {short_repr(rest)} cannot be split into words: {said}", retry=False) from None
    if not words or not words[0]:
        raise AgentError("the command is empty; it is said as command:PROGRAM ARGUMENTS", retry=False)
    return words


def _start(words: list[str]) -> ChildProcess:
    try:
        return ChildProcess(words)
    except OSError as error:
        raise _cannot_start(words[0], error) from None


def _cannot_start(name: str, error: OSError) -> AgentError:
    if isinstance(error, FileNotFoundError) and shutil.which(name) is None:
        return AgentError(f"the command {short_repr(name)} is not there", retry=False)
    if isinstance(error, FileNotFoundError | PermissionError) or error.errno == errno.ENOEXEC:
        return AgentError(f"the command {short_repr(name)} is not executable: {error.strerror}", retry=False)
    return AgentError(f"the command {short_repr(name)} cannot be started: {error.strerror}")


def _ended_badly(code: int, said: str, text: str) -> AgentError:
    known = {number.value: number.name for number in signal.Signals}
    how = f"ended with exit code {code}" if code > 0 else f"was ended by {known.get(-code, f'signal {-code}')}"
    return AgentError(f"the command {how}" + (f": {said}" if said else ""), text=text)


class StdoutReader:
    """A reply while it comes; pieces of it are told to whoever listens."""

    def __init__(self, tell: Callable[[str], None] | None) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._tell = tell
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def is_too_long(self) -> bool:
        """Return whether more was written than may be read."""
        return self._size > MOST_BYTES

    def take(self, piece: bytes) -> None:
        """Take a piece, the empty one at the end."""
        self._size += len(piece)
        if self.is_too_long:
            raise AgentError(f"the command wrote more than {MOST_BYTES // 1_000_000} MB and was ended", retry=False)
        self._pieces.append(piece)
        if self._tell is not None and (told := self._decoder.decode(piece, final=not piece)):
            self._tell(told)

    def text(self, errors: str = "strict") -> str:
        """All of it as text; AgentError where it is none."""
        try:
            return b"".join(self._pieces).decode("utf-8", errors)
        except UnicodeDecodeError as error:
            where = f"byte {error.start} is 0x{error.object[error.start]:02x}"
            raise AgentError(f"the command's answer is no UTF-8 text: {where}", retry=False) from None


class StderrTail:
    """What a program writes to standard error: the last of it."""

    def __init__(self) -> None:
        self._last = b""

    def take(self, piece: bytes) -> None:
        """Keep the last bytes."""
        self._last = (self._last + piece)[-KEPT_BYTES:]

    @property
    def text(self) -> str:
        """Return the last bytes as text."""
        return self._last.decode("utf-8", "replace").strip()

    @property
    def last_line(self) -> str:
        """The last line, fit for a sentence."""
        line = self.text.rpartition("\n")[2]
        return "".join(character for character in line if character.isprintable())[:_LONGEST_LINE].strip()


class ChildProcess:
    """A program at work, with all it has started."""

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
        """What it ended with; below 0, the signal that ended it."""
        return self._process.returncode

    async def converse(self, prompt: bytes, hear: Callable[[bytes], None], note: Callable[[bytes], None]) -> None:
        """Hand the prompt over and take what comes, until the program has ended.

        What it leaves behind may hold its pipes open; the reply is over soon after the program, all the same.
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
        """Have done with it and all it started: asked to end, and made to after a while, or at once when cancelled."""
        try:
            if self._signal(signal.SIGTERM):
                with suppress(TimeoutError):
                    async with asyncio.timeout(grace):
                        await self._gone()
        finally:
            self._signal(signal.SIGKILL)
            self._waiter.join(_REAPED)
            for pipe in self._pipes:
                pipe.close()

    async def _gone(self) -> None:
        """Wait until nothing is left of it."""
        while self._signal(0):  # noqa: ASYNC110 - nobody tells when a child's child ends
            await asyncio.sleep(_POLL)

    def _signal(self, number: int) -> bool:
        """Send a signal to all that is left of it; whether anything is."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # the second one of what has ended and nobody has asked after yet
            return False
        return True

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        self._process.wait()
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._ended.set)


async def _feed(pipe: RawIOBase, data: bytes) -> None:
    """Write to a pipe, as fast as it is read; who is at its other end need not read it all."""
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
            await asyncio.sleep(0)  # others have their turn
    take(b"")


async def _until(watch: Callable[..., object], leave: Callable[..., object], pipe: RawIOBase) -> None:
    """Wait until a pipe can be read or written."""
    ready = asyncio.Event()
    watch(pipe, ready.set)
    try:
        await ready.wait()
    finally:
        leave(pipe)
