"""What a command does, as one readable text: its answer, and the snapshots, events and files it leaves.

A scenario is run in a folder of its own, with time, ids and durations held still. What differs all the same from
machine to machine (digests, ids, paths, processes) is replaced by tokens, numbered in the order in which they appear.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import socket
import sys
import zlib
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from haytham import clock
from support.cli_runner import Answer, haytham, own_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parent.parent.parent
GOLDEN = ROOT / "tests" / "golden" / "effects"
START = datetime(2024, 11, 24, 10, tzinfo=UTC)
LENGTH = 150  # of the path of a workspace: documents that name it are as long on every machine
QUIET_ENVIRONMENT = {"HAYTHAM_MODEL": "", "HAYTHAM_MAX_OUTPUT_TOKENS": "", "GIT_CONFIG_GLOBAL": os.devnull}
LEFT_OUT = (".haytham/", "__pycache__/")
EVENTS, RECORDS, BLOBS = "events.jsonl", "/history/snapshots/", "/history/blobs/"

_ID = re.compile(r"\d{8}-\d{9}-[0-9a-f]{6}")
_DIGEST = re.compile(r"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{16}|[0-9a-f]{12})(?![0-9a-f])")
_TRACE = re.compile(r"(Traceback \(most recent call last\):\n)(?:  .*\n)+")
_FACT = re.compile(r"^- (Number|Kind|Label|Phase|Status): (.*)$", re.MULTILINE)


# Scenarios.


@dataclass(frozen=True)
class Write:
    """Write a file, as a person does."""

    path: str
    text: str
    modified: float | None = None

    def __str__(self):
        return f"write {self.path}"

    def __call__(self, folder):
        """Write it, and the folders it lies in."""
        parent, _, name = self.path.rpartition("/")
        path = (only(folder, parent) if "*" in parent else folder / parent) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text, encoding="utf-8")
        if self.modified is not None:
            os.utime(path, (self.modified, self.modified))


@dataclass(frozen=True)
class Edit:
    """Replace text in the only file that a pattern names."""

    path: str
    old: str
    new: str

    def __str__(self):
        return f"edit {self.path}: {self.old!r} to {self.new!r}"

    def __call__(self, folder):
        """Replace it; text that is not there is a mistake in the scenario."""
        path = only(folder, self.path)
        text = path.read_bytes().decode()
        assert self.old in text, f"{self.old!r} is not in {path}"
        path.write_bytes(text.replace(self.old, self.new).encode())


@dataclass(frozen=True)
class Remove:
    """Remove the only file or folder that a pattern names."""

    path: str

    def __str__(self):
        return f"remove {self.path}"

    def __call__(self, folder):
        """Remove it with all that it holds."""
        path = only(folder, self.path)
        shutil.rmtree(path) if path.is_dir() else path.unlink()


Step = str | Write | Edit | Remove


@dataclass(frozen=True)
class Scenario:
    """A command in a workspace that earlier commands and edits have prepared.

    Commands are written as in a shell, without the `haytham` before them.
    """

    name: str
    action: str
    setup: tuple[Step, ...] = ()
    stdin: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self):
        """The words of the command."""
        return shlex.split(self.action)

    @property
    def shown(self):
        """The set-up and the command as a person would type it."""
        lines = [f"# {step if not isinstance(step, str) else f'haytham {step}'}" for step in self.setup]
        known = [
            f"{name}={shlex.quote(value.replace(sys.executable, 'python'))}" for name, value in self.environment.items()
        ]
        given = [] if not self.stdin else [f"<<< {self.stdin!r}"]
        return "\n".join([*lines, " ".join(["$", *known, "haytham", *self.action.split(" "), *given]).strip()])

    @property
    def golden(self):
        """The file with the effects that it should have."""
        return GOLDEN / f"{self.name}.txt"


def only(folder, pattern):
    """The only file or folder that a pattern names below a folder."""
    (path,) = folder.glob(pattern)
    return path


# Workspaces.


class Workspaces:
    """Makes the workspaces of scenarios in one folder after the other; what two set-ups begin with is done once."""

    def __init__(self, base):
        base = Path(base).resolve()
        base.mkdir(parents=True, exist_ok=True)
        self.folder = base / "w".ljust(LENGTH - len(str(base)) - 1, "_")
        assert len(str(self.folder)) == LENGTH, f"the path of {base} is too long"
        self._base, self._made = base, {}

    def prepare(self, setup):
        """Make the workspace what a set-up leaves; its folder."""
        done = max((length for length in range(len(setup) + 1) if setup[:length] in self._made), default=0)
        shutil.rmtree(self.folder, ignore_errors=True)
        if done:
            shutil.copytree(self._made[setup[:done]], self.folder)
        else:
            self.folder.mkdir()
        for at in range(done, len(setup)):
            self._do(setup[at], at)
            if isinstance(setup[at], str):  # an edit is as soon done as copied
                kept = self._base / f"made_{len(self._made)}"
                self._made[setup[: at + 1]] = shutil.copytree(self.folder, kept)
        return self.folder

    def _do(self, step, at):
        if not isinstance(step, str):
            step(self.folder)
            return
        with still(self.folder, at):
            answer = haytham(*shlex.split(step), cwd=self.folder, **QUIET_ENVIRONMENT)
        assert answer.code not in (2, 6, 7), (step, answer)


@contextmanager
def still(folder, step):
    """Hold still what differs from run to run: time, ids, durations, how bytes are packed, modules of a workspace."""
    numbers, pack = count(), zlib.compressobj
    with (
        chdir(folder),
        own_modules(folder),
        clock.override(lambda: START + timedelta(minutes=step), lambda: f"{step:02x}{next(numbers):04x}"),
        patch.object(clock, "monotonic", lambda: 0.0),
        patch.object(os, "fsync", lambda _file: None),  # a workspace does not outlive its test
        patch.object(zlib, "compressobj", lambda _level=0, *more, **named: pack(0, *more, **named)),
    ):
        yield


# Effects.


@dataclass(frozen=True)
class Effects:
    """What an action did: the answer it gave, and what it left in the workspace.

    Files, events and snapshots are the same whether a command or a call of Python did it, if both do the same.
    """

    output: str
    snapshots: str
    events: str
    files: str

    def text(self, scenario):
        """All of it under the scenario, as the golden files have it."""
        parts = [("snapshots", self.snapshots), ("events", self.events), ("files", self.files)]
        told = [f"{scenario.shown}\n{self.output}", *(f"=== {name}\n{text}" for name, text in parts if text)]
        return "\n".join(told)


def effects(workspaces, scenario):
    """Run the command of a scenario; what it did."""
    folder = workspaces.prepare(scenario.setup)
    known = {**QUIET_ENVIRONMENT, **scenario.environment}
    return record(
        folder,
        lambda: haytham(*scenario.words, cwd=folder, stdin=scenario.stdin, **known),
        step=len(scenario.setup),
    )


def record(folder: Path, action: Callable[[], Answer | None], *, step: int = 0) -> Effects:
    """Do something in a workspace; what it did, apart from what it answered if that is no answer of a command."""
    before = contents(folder)
    with still(folder, step):
        answer = action()
    after = contents(folder)
    tokens = Tokens(folder)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    documents = [name for name in changed if BLOBS not in name and not name.endswith(f"/{EVENTS}")]
    logs = [name for name in changed if name.endswith(f"/{EVENTS}")]
    files = tokens.put("".join(_difference(name, before.get(name), after.get(name)) for name in documents))
    events = tokens.put("".join(_growth(name, before.get(name), after.get(name)) for name in logs))
    records = [name for name in changed if RECORDS in name and name.endswith(".md")]
    snapshots = tokens.put("".join(_snapshot(before.get(name), after.get(name)) for name in records))
    files += _blobs(tokens, before, after)
    return Effects("" if answer is None else tokens.put(_answer(answer)), snapshots, events, files)


def contents(folder):
    """Every file of a workspace with its bytes, and every empty folder; locks and caches are none."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix() + "/" * path.is_dir()
        if not any(part in name for part in LEFT_OUT) and (path.is_file() or not any(path.iterdir())):
            found[name] = path.read_bytes() if path.is_file() else b""
    return found


def _answer(answer):
    streams = [("standard output", answer.out), ("standard error", answer.err)]
    return "".join([f"exit {answer.code}\n", *(f"--- {name}\n{_whole(text)}" for name, text in streams if text)])


def _whole(text):
    """Text that ends with its line, and says if it did not; carriage returns can be seen, and no lines of code."""
    text = _TRACE.sub(r"\1  …\n", text.replace("\r", "\\r"))
    return text if text.endswith("\n") else f"{text}\n\\ no newline at the end\n"


def _difference(name, before, after):
    """What became of a file: whole if it is new and no copy of ours, as a unified difference if it was there."""
    if after is None:
        return f"removed {name}\n"
    if before is None and after in _shipped():
        return f"added {name}, as it is shipped\n"
    if name.endswith("/"):
        return f"{'added' if before is None else 'changed'} {name}\n"
    try:
        old, new = (before or b"").decode(), after.decode()
    except UnicodeDecodeError:
        return f"{'added' if before is None else 'changed'} {name}, {len(after)} bytes\n"
    if before is None:
        return f"added {name}\n" + "".join(f"+{line}\n" for line in _lines(new))
    lines = list(difflib.unified_diff(_lines(old), _lines(new), n=1, lineterm=""))[2:]
    return f"changed {name}\n" + "".join(f"{line}\n" for line in lines)


@cache
def _shipped():
    """What the files are that a workflow is copied from."""
    return {path.read_bytes() for name in ("schemas", "templates") for path in (ROOT / name).rglob("*.*")}


def _lines(text):
    return _whole(text).removesuffix("\n").split("\n") if text else []


def _growth(name, before, after):
    """The events that were added to a file; the whole difference if it did not just grow."""
    known = b"" if before is None else before
    if after is None or not after.startswith(known):
        return _difference(name, before, after)
    session = "/".join(name.split("/")[1:4:2])
    return "".join(f"{session}: {line}\n" for line in _lines(after[len(known) :].decode()))


def _snapshot(before, after):
    """A snapshot that was added or removed, by its record."""
    facts = dict(_FACT.findall((after if after is not None else before).decode()))
    happened = "added" if before is None else "removed" if after is None else "changed"
    number = facts.pop("Number")
    return f"{happened} {number}: {', '.join(f'{name.lower()} {value}' for name, value in facts.items())}\n"


def _blobs(tokens, before, after):
    """The bytes of snapshots that were added, by digest, and how many were removed."""
    records = b"".join(data for name, data in after.items() if "/history/snapshots/" in name)
    names = [name for name in after.keys() - before if BLOBS in name]
    used = [name for name in names if name.rpartition("/")[2].removesuffix(".gz").encode() in records]
    added = [tokens.put(f"added {name}, {len(after[name])} bytes\n") for name in used]
    added += [f"added a blob of a deleted snapshot, {len(after[name])} bytes\n" for name in set(names) - set(used)]
    gone = [f"removed a blob, {len(before[name])} bytes\n" for name in before.keys() - after if BLOBS in name]
    changed = [name for name in before.keys() & after if BLOBS in name and before[name] != after[name]]
    assert not changed, changed
    return "".join([*sorted(added, key=_natural), *sorted(gone, key=_natural)])


def _natural(text):
    """A key that sorts numbers in a text by their value."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


class Tokens:
    """Puts tokens in the place of what differs from machine to machine, the same one for the same thing."""

    def __init__(self, folder):
        self._plain = {
            str(folder): "<workspace>",
            sys.executable: "<python>",
            f"process {os.getpid()} on host {socket.gethostname()}": "process <number> on host <name>",
        }
        self._ids, self._digests = {}, {}

    def put(self, text):
        """The text with tokens; new ones get the next number."""
        for found, token in self._plain.items():
            text = text.replace(found, token)
        text = _ID.sub(lambda found: self._number("id", self._ids, found[0]), text)
        return _DIGEST.sub(lambda found: self._number("digest", self._digests, found[0][:12]), text)

    def _number(self, kind, known, found):
        return f"<{kind} {known.setdefault(found, len(known) + 1)}>"
