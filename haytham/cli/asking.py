"""What an agent would be asked now, to the letter, and where each part of it comes from. Nothing is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from haytham.session import layout
from haytham.session.tasks import commented
from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from haytham.agent import Task
    from haytham.agent_file import AgentSpec
    from haytham.cli.context import Here
    from haytham.session import Session
    from haytham.session.reading import Reading
    from haytham.session.standing import Standing
    from haytham.workflow import Phase

_BUILT_IN = "built in: "


@dataclass(frozen=True)
class Part:
    """A part of what an agent is asked: its name, the file it comes from, and the digest of it."""

    name: str
    file: str
    digest: str


@dataclass(frozen=True)
class Question:
    """What one agent would be asked; `notes` tell in how far that may still change."""

    task: Task
    parts: tuple[Part, ...]
    notes: tuple[str, ...]


def questions(here: Here, session: Session, number: int, agents: tuple[str, ...]) -> list[Question]:
    """What agents of a phase would be asked if it ran now: found out on a copy, with the first steps of a run."""
    standing, state = _about_to_run(session, number), session.state()
    phase, found = standing.reading.phase(number), []
    for agent in agents:
        task, spec = standing.asked(phase, agent, state)
        sources = _Sources(here, session, standing.reading, phase)
        parts = (*_frame(here, session, spec, task), *(sources.part(*one, agent=agent) for one in task.parts.items()))
        found.append(Question(task, parts, tuple(_notes(standing, phase, agent))))
    return found


def _about_to_run(session: Session, number: int) -> Standing:
    """A session as a run of a phase finds it: decisions are bound, and an attempt that is to change is put aside."""
    from haytham.session.gate import Gate  # noqa: PLC0415
    from haytham.session.standing import Standing  # noqa: PLC0415

    copy = _copy(session)
    gate = Gate(copy)
    gate.finish()
    gate.stamp(None)
    standing = Standing(copy.read())
    if standing.place(number).verdict.step != "next attempt":
        return standing
    gate.next_attempt(number)
    return Standing(copy.read())


def _copy(session: Session) -> Session:
    """A session in memory: it reads like the one at rest, and nothing that is done to it stays."""
    from haytham.session import Session  # noqa: PLC0415
    from haytham.store.memory import MemoryStore  # noqa: PLC0415

    memory, store, reading = MemoryStore(), session.store, session.read()
    workflow = layout.workflow_prefix(session.project_id, reading.manifest.value["workflow"])
    keys = [*store.keys(session.prefix), *store.keys(workflow), layout.project_key(session.project_id)]
    memory.write_all({key: store.read(key) for key in keys if store.is_plain(key)})
    for phase in reading.phases:
        memory.prepare(reading.folder(phase))
    return Session(memory, session.project_id, session.session_id)


def _notes(standing: Standing, phase: Phase, agent: str) -> Iterator[str]:
    """In how far what an agent is asked may still change before it is."""
    verdict = standing.place(phase.number).verdict
    if verdict.step == "nothing":
        yield f"phase {phase.number} is left out: {verdict.why}"
    for need in (place.facts.phase for place in standing.places if not place.settled):
        if need.number in phase.needs:
            yield f"phase {need.number}, {need.name}, is open: what it comes to may be another text"
    earlier = phase.agents[: phase.agents.index(agent)] if phase.run == "sequential" else ()
    waiting = [name for name in earlier if name in verdict.agents]
    if waiting:
        yield f"{', '.join(waiting)} will write before it: that text is not in here yet"


def _frame(here: Here, session: Session, spec: AgentSpec, task: Task) -> Iterator[Part]:
    """What holds a prompt together, and what its contract asks for."""
    from haytham.resource import resource  # noqa: PLC0415

    template = resource("templates", "prompt.md.j2").read_text(encoding="utf-8")
    yield Part("frame", f"{_BUILT_IN}prompt.md.j2", text_digest(template))
    if spec.contract is not None and task.contract is not None:
        own = layout.workflow_prefix(session.project_id, session.read().manifest.value["workflow"])
        key = f"{own}contracts/{spec.contract}.json"
        file = f"{here.base}/{key}" if session.store.is_plain(key) else f"{_BUILT_IN}contracts/{spec.contract}.json"
        yield Part("contract", file, text_digest(task.contract.description()))
    if "state" in spec.body and session.store.is_plain(session.prefix + layout.STATE):
        data = session.store.read(session.prefix + layout.STATE)
        yield Part("state", f"{here.base}/{session.prefix}{layout.STATE}", text_digest(data.decode("utf-8", "replace")))


class _Sources:
    """The files that parts of a task come from, by the names of the parts."""

    def __init__(self, here: Here, session: Session, reading: Reading, phase: Phase) -> None:
        self._base, self._session, self._reading, self._phase = here.base, session, reading, phase
        self._rules: list[tuple[str, Callable[..., str]]] = [
            (r"idea", lambda: layout.project_key(session.project_id)),
            (r"evidence", lambda: session.prefix + layout.EVIDENCE),
            (r"input", lambda: reading.folder(phase) + layout.REQUEST),
            (r"phase (\d+): (.+)", lambda number, agent: self._folder(number) + layout.output_file(agent)),
            (r"comments on phase (\d+)", self._approval),
            (r"comments on phase (\d+), asked for in attempt (\d+)", self._feedback),
            (r"comments on phase (\d+), which was skipped", lambda number: self._folder(number) + layout.FEEDBACK),
            (r"before it: (.+)", lambda agent: reading.folder(phase) + layout.output_file(agent)),
            (r"attempt (\d+): (.+)", lambda number, agent: self._aside(number, layout.output_file(agent))),
            (r"changes wanted after attempt (\d+)", lambda number: self._aside(number, layout.FEEDBACK)),
            (r"phase (\d+) left out", self._left_out),
        ]

    def part(self, name: str, digest: str, *, agent: str) -> Part:
        """A part, with the file it comes from as a person would name it."""
        if name == "agent file":
            return Part(name, self._agent_file(agent), digest)
        for pattern, key in self._rules:
            found = re.fullmatch(pattern, name)
            if found is not None:
                return Part(name, f"{self._base}/{key(*found.groups())}", digest)
        return Part(name, "-", digest)

    def _agent_file(self, agent: str) -> str:
        manifest = self._reading.manifest.value
        folder = layout.workflow_prefix(self._session.project_id, manifest["workflow"])
        key = f"{folder}{layout.AGENTS_PREFIX}{agent}.md"
        if self._session.store.is_plain(key):
            return f"{self._base}/{key}"
        return f"{_BUILT_IN}{manifest['workflow_type']}/{layout.AGENTS_PREFIX}{agent}.md"

    def _folder(self, number: str) -> str:
        return self._reading.folder(self._reading.phase(int(number)))

    def _approval(self, number: str) -> str:
        """Return the feedback whose comments a phase was approved with."""
        phase = self._reading.phase(int(number))
        attempts = (str(attempt) for attempt, _ in commented(self._reading, phase, "approved"))
        return self._feedback(number, next(attempts, ""))

    def _feedback(self, number: str, attempt: str) -> str:
        """Return the feedback on an attempt at a phase: an earlier one, else the present one."""
        return self._in_attempt(self._folder(number), attempt, layout.FEEDBACK)

    def _aside(self, number: str, file: str) -> str:
        """A file of an earlier attempt; of one that a run would put aside first, where it lies now."""
        return self._in_attempt(self._reading.folder(self._phase), number, file)

    def _in_attempt(self, folder: str, attempt: str, file: str) -> str:
        key = layout.attempt_prefix(folder, int(attempt)) + file if attempt else folder + file
        return key if self._session.store.is_plain(key) else folder + file

    def _left_out(self, number: str) -> str:
        """Where it says that a phase is left out: a person's decision, else the mode or the workflow."""
        phases = [phase for phase in self._reading.phases if phase.number == int(number)]
        if not phases:
            return self._session.prefix + layout.MANIFEST
        feedback = self._reading.folder(phases[0]) + layout.FEEDBACK
        own = layout.workflow_prefix(self._session.project_id, self._reading.manifest.value["workflow"])
        return feedback if phases[0].when is None else f"{own}workflow.yaml"
