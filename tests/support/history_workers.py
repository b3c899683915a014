"""A small session with a past, on real files: how tests make it, change it, look at it, break it and kill at it."""

from __future__ import annotations

import errno
import hashlib
import itertools
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from haytham import History
from haytham.config.settings import Settings
from haytham.config.workflow import FILE, WorkflowFiles
from haytham.errors import NotFound
from haytham.session import SessionDocuments
from haytham.session.summary import summarize
from haytham.storage import ANY, FileStore, bytes_digest
from haytham.storage.base import check_precondition
from support.subprocess_workers import FORK, running

WORKFLOW = """
name: small
phases:
  - {number: 1, name: One, slug: one, agents: [a]}
  - {number: 2, name: Two, slug: two, agents: [b], needs: [1]}
  - {number: 3, name: Three, slug: three, agents: [c], needs: [2]}
modes:
  all: [1, 2, 3]
"""
AGENT_FILE = b"---\nmodel: python:support.fake_agents:write\n---\nWrite about {{ phase }}.\n"
AGENTS = {1: "a", 2: "b", 3: "c"}
FOLDERS = {1: "phase_1_one", 2: "phase_2_two", 3: "phase_3_three"}
PATHS = {number: f"{folder}/{AGENTS[number]}.md" for number, folder in FOLDERS.items()}
NEVER_FROZEN = ("events.jsonl", "spend.jsonl")

_OUTPUT = {"duration": None, "status": "completed", "model": "m", "input_tokens": 1, "output_tokens": 2}
_OUTPUT |= {"tools_used": None}
_PHASE = {"status": "completed", "started": None, "completed": None, "duration": None, "retry_count": 0}
_PHASE |= {"execution_mode": "single"}
_FEEDBACK = {"reviewed": True, "approved": True, "timestamp": None, "comments": "", "requested_changes": []}
_FEEDBACK |= {"action": "approved", "retry_count": 0}


# Sessions, and what is done in them.


def source(policy=""):
    """The workflow, with what it says of history."""
    text = WORKFLOW + (f"checkpointing: {policy}\n" if policy else "")
    agents = {f"agents/{name}.md": AGENT_FILE for name in AGENTS.values()}
    return WorkflowFiles("here", {FILE: text.encode(), **agents})


def new_session(base, policy="", name="s", project="p", user="u"):
    """A session in which nothing was done."""
    session = SessionDocuments(FileStore(base), project, name)
    session.create(user_id=user, source=source(policy), mode="all")
    return session


def worked_session(base, policy="", **names):
    """A session with an approved phase, one that is under way, words of a person's own, and empty folders."""
    session = new_session(base, policy, **names)
    work(session, 1, "one")
    approve(session, 1)
    write(session, 2, "two")
    put(session, "evidence.md", "What we know.\n")
    session.store.append(f"{session.prefix}spend.jsonl", b"{}\n")
    return session


def copied(session, base):
    """The same session in another folder, with all of its project: quicker than to make one anew."""
    copy_of(session.store.base, base)
    return SessionDocuments(FileStore(base), session.project_id, session.session_id)


def again(session):
    """The session through objects made anew, as another process has it."""
    return SessionDocuments(FileStore(session.store.base), session.project_id, session.session_id)


def past(session, **given):
    """The session's history through objects made anew."""
    return History(again(session), **given)


def lenient(session):
    """The session's history under a policy without rules, as it was before its workflow got some."""
    history = past(session)
    history._archive._settings = settings = Settings([])
    settings.policy = replace(past(session).policy, retention={})
    return history


def write(session, number, text):
    """Let an agent write the output of a phase."""
    session.save_output(number, AGENTS[number], _OUTPUT, text)


def work(session, number, text):
    """Let a phase be completed."""
    write(session, number, text)
    session.save_checkpoint(number, _PHASE, [{"agent_name": AGENTS[number], "status": "completed"}])


def approve(session, number):
    """Let a person approve a phase."""
    session.save_feedback(number, _FEEDBACK)


def text_of(session, number):
    """What stands in the output of a phase."""
    return again(session).read().texts(again(session).read().phase(number))[AGENTS[number]]


def put(session, path, text):
    """Let a person write a file of the session."""
    file = place(session) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())


def upset(session):
    """Change every document of a session, take some away, and add files and folders."""
    folder = place(session)
    for path in [path for path in folder.rglob("*") if path.is_file() and path.name not in NEVER_FROZEN]:
        path.write_bytes(path.read_bytes() + b"\nchanged\n")
    (folder / "evidence.md").unlink()
    shutil.rmtree(folder / FOLDERS[2])
    put(session, "notes.txt", "a note\n")
    put(session, "phase_1_one/attempts/1/a.md", "an attempt\n")
    put(session, "far/down/below/x", "x")
    (folder / "empty" / "in_empty").mkdir(parents=True)


class OwnStore:
    """A store of somebody else's making: the seven verbs, and not one more."""

    held = {}  # noqa: RUF012 - what was written outlives the object

    def __init__(self, path):
        self.path, self._files = path, self.held.setdefault(path, {})

    def read(self, key, *, limit=None):
        if key not in self._files:
            raise NotFound("document", key)
        return self._files[key][:limit]

    def write(self, key, data, *, expect=ANY):
        there = self._files.get(key)
        check_precondition(key, expect, None if there is None else bytes_digest(there))
        self._files[key] = data
        return bytes_digest(data)

    def append(self, key, line):
        self._files[key] = self._files.get(key, b"") + line

    def delete(self, key):
        for gone in [name for name in self._files if name == key or (key.endswith("/") and name.startswith(key))]:
            del self._files[gone]

    def keys(self, prefix="", *, depth=None):
        found = sorted(name for name in self._files if name.startswith(prefix))
        return [name for name in found if depth is None or name.count("/", len(prefix)) < depth]

    def ensure_folder(self, prefix):
        """Nothing is needed."""

    def close(self):
        """Nothing is open."""


# What is looked at.


def place(session):
    """The folder of a session."""
    return Path(session.store.base) / session.prefix


def records(session):
    """The folder of a session's records."""
    return Path(session.store.base) / session.project_id / "history" / "snapshots" / session.session_id


def record_file(session, snapshot):
    """The file of a snapshot's record."""
    (found,) = records(session).rglob(f"*.{snapshot.id}.*.md")
    return found


def branch_file(session):
    """The file where a session's history remembers what its records do not say."""
    return Path(session.store.base) / session.project_id / "history" / "branches" / f"{session.session_id}.jsonl"


def index_file(session):
    """The file that lists need no records for, on this machine only."""
    folder = Path(session.store.base) / ".haytham" / "cache" / session.project_id / "history" / "snapshots"
    return folder / session.session_id / "index.jsonl"


def blobs(session):
    """The files with the bytes of the project's snapshots."""
    folder = Path(session.store.base) / session.project_id / "history" / "blobs"
    return sorted(path for path in folder.rglob("*") if path.is_file())


def tree(folder, *, without=NEVER_FROZEN):
    """Every file below a folder with its bytes, and every folder, but for what killed writers left."""
    paths = [path for path in Path(folder).rglob("*") if path.name not in without and not is_stray(path)]
    found = {str(path.relative_to(folder)): path for path in paths}
    return {name: path.read_bytes() if path.is_file() else None for name, path in sorted(found.items())}


def is_stray(path):
    """Whether a path is that of a file or folder that a killed writer left: it never had its name."""
    return any(part.startswith(".haytham-") for part in path.parts)


def whole(folder):
    """A digest of every byte and name below a folder, of what only grows, too."""
    told = repr(tree(folder, without=()))
    return hashlib.sha256(told.encode()).hexdigest()


def all_of(session):
    """Everything there is of a session: documents, records, and what is remembered beside them."""
    history = session.store.base / session.project_id / "history"
    name = session.session_id
    branch, pins = history / "branches" / f"{name}.jsonl", history / "pins" / name
    said = branch.read_bytes() if branch.exists() else None
    return whole(place(session)), whole(records(session)), said, whole(pins)


def difference(old, new):
    """What `diff -r` says of two folders, but for what only grows and what killed writers left."""
    left_out = [word for name in (*NEVER_FROZEN, ".haytham-*") for word in ("-x", name)]
    found = subprocess.run(["diff", "-r", *left_out, old, new], capture_output=True, text=True, check=False)  # noqa: S607
    assert found.returncode in (0, 1), found.stderr
    return found.stdout


def copy_of(folder, target):
    """A copy of a folder, made by means that are not ours."""
    return Path(shutil.copytree(folder, target, symlinks=True))


def is_sound(session):
    """Every snapshot of a session verifies, each is listed, and the session loads."""
    history = past(session)
    summarize(history.session.read())
    return history.verify() == [] and len(history.list()) == len(list(records(session).rglob("0*.md")))


# What goes wrong.


def kill_while(function, after):
    """Let a process do something for ever, and kill it some seconds after it has begun."""
    receive, send = FORK.Pipe(duplex=False)
    with running(_on_and_on, function, send) as process:
        assert receive.recv() == "ready"
        time.sleep(after)
    assert process.exitcode == -signal.SIGKILL


def _on_and_on(function, send):
    send.send("ready")
    for number in itertools.count():
        function(number)


def fails(function):
    """Whether a function raises the error of a broken disk."""
    try:
        function()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return True
    return False
