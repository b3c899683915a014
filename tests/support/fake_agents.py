"""A small session on real files, driven by scripted agents with a call log: what resume does, seen from outside."""

from __future__ import annotations

import asyncio
import contextlib
import re
from unittest.mock import patch

from haytham.cache import LruCache
from haytham.config.workflow import FILE, WorkflowFiles
from haytham.engine.invoke import RunOptions
from haytham.engine.runner import Runner
from haytham.events import Events
from haytham.session import SessionDocuments, documents, inputs, listing, plan_cache
from haytham.session.paths import EVENTS
from haytham.session.plan import SessionPlan
from haytham.session.review import ReviewGate
from haytham.storage import FileStore
from haytham.storage.base import Batch, bytes_digest

AT_ONCE = RunOptions(backoff=0)

WORKFLOW = """
name: small
phases:
  - {number: 1, name: One, slug: one, agents: [a]}
  - {number: 2, name: Two, slug: two, agents: [b, c], needs: [1]}
  - {number: 3, name: Three, slug: three, agents: [d, e], run: sequential, needs: [1, 2]}
  - {number: 4, name: Four, slug: four, agents: [f], needs: [3], review: none}
modes:
  all: [1, 2, 3, 4]
"""
AGENT_FILE = "---\nmodel: python:support.fake_agents:write\nhaytham: {retries: 0}\n---\nWrite about {{ phase }}.\n"
HEADING = b"\n## Output\n\n"

calls = []
failing = set()
constant = set()
CACHES = [(plan_cache, "_ENTRIES"), (plan_cache, "_HAS_TASKS"), (listing, "_MEASURED"), (documents, "_OUTPUT_FACTS")]
CACHES += [(inputs, "_VERIFIED")]
watching = []


def forget():
    """Begin anew: nobody was called, and all agents answer, each to its task."""
    calls.clear()
    failing.clear()
    constant.clear()
    watching.clear()


async def write(task):
    """Answer with a text that follows from the task alone."""
    for watch in watching:
        watch(task)
    calls.append((task.agent, task.digest))
    if task.agent in failing:
        raise RuntimeError(f"{task.agent} cannot")
    return answer(task.agent, "always" if task.agent in constant else task.digest)


def answer(agent, digest):
    """What an agent writes to a task."""
    return f"# {agent}\n\nAn answer to {digest.removeprefix('sha256:')[:12]}.\n\nThe end of {agent}."


class Desk:
    """Where a person and a runner meet over one session; remembers nothing but the folder."""

    def __init__(self, base, workflow=WORKFLOW, files=None):
        self.base = base
        names = re.findall(r"\b[a-z]\b", " ".join(re.findall(r"agents: \[(.*?)\]", workflow)))
        agents = {f"agents/{name}.md": AGENT_FILE.encode() for name in names}
        source = WorkflowFiles("here", {FILE: workflow.encode(), **agents, **(files or {})})
        self.session.create(user_id="u", source=source, mode="all")

    @property
    def session(self):
        """The session, through objects made anew."""
        return self.over(FileStore(self.base))

    def over(self, store):
        """The session over a store of the caller's."""
        return SessionDocuments(store, "p", "s")

    @property
    def gate(self):
        return ReviewGate(self.session)

    def resume(self, session=None, by="ann", **given):
        """Run until something ends it; status and phase of that."""
        session = session or self.session
        events = Events(session.store, session.prefix + EVENTS)
        given = {"options": AT_ONCE, **given}
        outcome = asyncio.run(Runner(session, events, may_run_code=True, **given).run(by=by))
        return outcome.status, outcome.phase

    def approve(self, number, comments=""):
        return self.gate.decide(number, "approved", by="ann", comments=comments, changes=[])

    def request_changes(self, number, comments="", changes=(), agents=()):
        return self.gate.decide(
            number, "changes", by="ann", comments=comments, changes=list(changes), agents=list(agents)
        )

    def skip(self, number):
        return self.gate.decide(number, "skip", by="ann", changes=[])

    def standing(self):
        return SessionPlan(self.session.read())

    def steps(self):
        """What resume would do with each phase."""
        return [place.next_action.action for place in self.standing().phases]

    def phase(self, number):
        return self.session.read().phase(number)

    def folder(self, number):
        return self.base / "p" / "sessions" / "s" / f"phase_{number}_{self.phase(number).slug}"

    def text(self, number, agent):
        return self.session.read().texts(self.phase(number))[agent]

    def task(self, number, agent, attempt=None):
        """The recorded task of an agent."""
        return self.session.read().shown_texts(self.phase(number), attempt=attempt, tasks=True)[agent]

    def feedback(self, number):
        found = self.session.read().feedback(self.phase(number))
        return None if found is None else found.value.to_value()

    def edit(self, number, agent, text):
        """Let a person write another text into an output."""
        path = self.folder(number) / f"{agent}.md"
        head, _, _ = path.read_bytes().partition(HEADING)
        path.write_bytes(head + HEADING + text.encode() + b"\n")

    def edit_feedback(self, number, comments=None, changes=(), **lines):
        """Let a person fill in the feedback in an editor."""
        path = self.folder(number) / "user_feedback.md"
        told = path.read_text(encoding="utf-8")
        for label, value in lines.items():
            told = re.sub(
                rf"^- {label.capitalize()}: .*$", f"- {label.capitalize()}: {value}", told, flags=re.MULTILINE
            )
        if comments is not None:
            told = re.sub(r"(?s)(## User Comments\n).*?(\n## )", rf"\1\n{comments}\n\2", told)
        if changes:
            rows = "\n".join(f"- Change {at}: {change}" for at, change in enumerate(changes, 1))
            told = re.sub(r"(?s)(## Requested Changes\n).*?(\n## )", rf"\1\n{rows}\n\2", told)
        path.write_text(told, encoding="utf-8")

    def events(self, name):
        """The events of a name, from the session's file."""
        import json

        lines = (self.base / "p" / "sessions" / "s" / EVENTS).read_text(encoding="utf-8").splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == name]


class Crash(BaseException):
    """The process is gone."""


class Dying(FileStore):
    """A store whose process dies at the n-th write, append or delete: before it is done, or just after."""

    def __init__(self, base, at, *, done=False):
        super().__init__(base)
        self.left, self.done = at, done

    def commit(self, batch):
        """Commit change by change: a process may die between any two of them."""
        parts = [Batch(folders=(folder,)) for folder in batch.folders]
        parts += [Batch(writes=(change,)) for change in batch.writes]
        parts += [Batch(appends=(change,)) for change in batch.appends]
        parts += [Batch(deletes=(change,)) for change in batch.deletes]
        for part in parts:
            self._step(lambda part=part: super(Dying, self).commit(part))
        return {change.key: bytes_digest(change.data) for change in batch.writes}

    def _step(self, act):
        self.left -= 1
        if self.left == 0 and not self.done:
            raise Crash
        answer = act()
        if self.left == 0:
            raise Crash
        return answer


def planned_anew(session):
    """The plan of a session as a process makes it that has planned nothing before."""
    with contextlib.ExitStack() as stack:
        for owner, name in CACHES:
            stack.enter_context(patch.object(owner, name, LruCache()))
        return SessionPlan(session.read())


def called():
    """The agents that were called since this was asked last."""
    names = [agent for agent, _ in calls]
    calls.clear()
    return names
