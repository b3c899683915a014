"""What an agent would be asked now, to the letter, and where each part of it comes from. Nothing is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from haytham.session import paths
from haytham.session.inputs import phase_comments
from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from haytham.agents.base import Task
    from haytham.cli.context import AppContext
    from haytham.config.agent_spec import AgentSpec
    from haytham.config.workflow import Phase
    from haytham.session import Session
    from haytham.session.plan import SessionPlan
    from haytham.session.view import SessionView

_BUILT_IN = "built in: "


@dataclass(frozen=True)
class PromptPart:
    """A part of what an agent is asked: its name, the file it comes from, and the digest of it."""

    name: str
    file: str
    digest: str


@dataclass(frozen=True)
class PromptPreview:
    """What one agent would be asked; `notes` tell in how far that may still change."""

    task: Task
    parts: tuple[PromptPart, ...]
    notes: tuple[str, ...]


def preview_prompts(here: AppContext, session: Session, number: int, agents: tuple[str, ...]) -> list[PromptPreview]:
    """What agents of a phase would be asked if it ran now: found out on a copy, with the first steps of a run."""
    standing, state = _about_to_run(session, number), session.state()
    phase, found = standing.reading.phase(number), []
    for agent in agents:
        task, spec = standing.build_request(phase, agent, state)
        sources = _Sources(here, session, standing.reading, phase)
        parts = (*_frame(here, session, spec, task), *(sources.part(*one, agent=agent) for one in task.parts.items()))
        found.append(PromptPreview(task, parts, tuple(_notes(standing, phase, agent))))
    return found


def _about_to_run(session: Session, number: int) -> SessionPlan:
    """A session as a run of a phase finds it: decisions are bound, and an attempt that is to change is put aside."""
    from haytham.session.plan import SessionPlan  # noqa: PLC0415
    from haytham.session.review import ReviewGate  # noqa: PLC0415

    copy = _copy(session)
    gate = ReviewGate(copy)
    gate.complete_pending_move()
    gate.bind_editor_decisions(None)
    standing = SessionPlan(copy.read())
    if standing.phase(number).next_action.action != "next attempt":
        return standing
    gate.start_attempt(number)
    return SessionPlan(copy.read())


def _copy(session: Session) -> Session:
    """A session in memory: it reads like the one at rest, and nothing that is done to it stays."""
    from haytham.session import Session  # noqa: PLC0415
    from haytham.storage.memory import MemoryStore  # noqa: PLC0415

    memory, store, reading = MemoryStore(), session.store, session.read()
    workflow = paths.workflow_prefix(session.project_id, reading.manifest.value["workflow"])
    keys = [*store.keys(session.prefix), *store.keys(workflow), paths.project_key(session.project_id)]
    memory.write_all({key: store.read(key) for key in keys if store.is_regular(key)})
    for phase in reading.phases:
        memory.ensure_folder(reading.phase_prefix(phase))
    return Session(memory, session.project_id, session.session_id)


def _notes(standing: SessionPlan, phase: Phase, agent: str) -> Iterator[str]:
    """In how far what an agent is asked may still change before it is."""
    verdict = standing.phase(phase.number).next_action
    if verdict.action == "nothing":
        yield f"phase {phase.number} is left out: {verdict.reason}"
    for need in (place.state.phase for place in standing.places if not place.is_done):
        if need.number in phase.needs:
            yield f"phase {need.number}, {need.name}, is open: what it comes to may be another text"
    earlier = phase.agents[: phase.agents.index(agent)] if phase.run == "sequential" else ()
    waiting = [name for name in earlier if name in verdict.agents]
    if waiting:
        yield f"{', '.join(waiting)} will write before it: that text is not in here yet"


def _frame(here: AppContext, session: Session, spec: AgentSpec, task: Task) -> Iterator[PromptPart]:
    """What holds a prompt together, and what its contract asks for."""
    from haytham.resources import resource_path  # noqa: PLC0415

    template = resource_path("templates", "prompt.md.j2").read_text(encoding="utf-8")
    yield PromptPart("frame", f"{_BUILT_IN}prompt.md.j2", text_digest(template))
    if spec.contract is not None and task.contract is not None:
        own = paths.workflow_prefix(session.project_id, session.read().manifest.value["workflow"])
        key = f"{own}contracts/{spec.contract}.json"
        file = f"{here.base}/{key}" if session.store.is_regular(key) else f"{_BUILT_IN}contracts/{spec.contract}.json"
        yield PromptPart("contract", file, text_digest(task.contract.prompt_text()))
    if "state" in spec.body and session.store.is_regular(session.prefix + paths.STATE):
        data = session.store.read(session.prefix + paths.STATE)
        yield PromptPart(
            "state", f"{here.base}/{session.prefix}{paths.STATE}", text_digest(data.decode("utf-8", "replace"))
        )


class _Sources:
    """The files that parts of a task come from, by the names of the parts."""

    def __init__(self, here: AppContext, session: Session, reading: SessionView, phase: Phase) -> None:
        self._base, self._session, self._reading, self._phase = here.base, session, reading, phase
        self._rules: list[tuple[str, Callable[..., str]]] = [
            (r"idea", lambda: paths.project_key(session.project_id)),
            (r"evidence", lambda: session.prefix + paths.EVIDENCE),
            (r"input", lambda: reading.phase_prefix(phase) + paths.REQUEST),
            (r"phase (\d+): (.+)", lambda number, agent: self._folder(number) + paths.output_file(agent)),
            (r"comments on phase (\d+)", self._approval),
            (r"comments on phase (\d+), asked for in attempt (\d+)", self._feedback),
            (r"comments on phase (\d+), which was skipped", lambda number: self._folder(number) + paths.FEEDBACK),
            (r"before it: (.+)", lambda agent: reading.phase_prefix(phase) + paths.output_file(agent)),
            (r"attempt (\d+): (.+)", lambda number, agent: self._aside(number, paths.output_file(agent))),
            (r"changes wanted after attempt (\d+)", lambda number: self._aside(number, paths.FEEDBACK)),
            (r"phase (\d+) left out", self._left_out),
        ]

    def part(self, name: str, digest: str, *, agent: str) -> PromptPart:
        """A part, with the file it comes from as a person would name it."""
        if name == "agent file":
            return PromptPart(name, self._agent_file(agent), digest)
        for pattern, key in self._rules:
            found = re.fullmatch(pattern, name)
            if found is not None:
                return PromptPart(name, f"{self._base}/{key(*found.groups())}", digest)
        return PromptPart(name, "-", digest)

    def _agent_file(self, agent: str) -> str:
        manifest = self._reading.manifest.value
        folder = paths.workflow_prefix(self._session.project_id, manifest["workflow"])
        key = f"{folder}{paths.AGENTS_PREFIX}{agent}.md"
        if self._session.store.is_regular(key):
            return f"{self._base}/{key}"
        return f"{_BUILT_IN}{manifest['workflow_type']}/{paths.AGENTS_PREFIX}{agent}.md"

    def _folder(self, number: str) -> str:
        return self._reading.phase_prefix(self._reading.phase(int(number)))

    def _approval(self, number: str) -> str:
        """Return the feedback whose comments a phase was approved with."""
        phase = self._reading.phase(int(number))
        attempts = (str(attempt) for attempt, _ in phase_comments(self._reading, phase, "approved"))
        return self._feedback(number, next(attempts, ""))

    def _feedback(self, number: str, attempt: str) -> str:
        """Return the feedback on an attempt at a phase: an earlier one, else the present one."""
        return self._in_attempt(self._folder(number), attempt, paths.FEEDBACK)

    def _aside(self, number: str, file: str) -> str:
        """A file of an earlier attempt; of one that a run would put aside first, where it lies now."""
        return self._in_attempt(self._reading.phase_prefix(self._phase), number, file)

    def _in_attempt(self, folder: str, attempt: str, file: str) -> str:
        key = paths.attempt_prefix(folder, int(attempt)) + file if attempt else folder + file
        return key if self._session.store.is_regular(key) else folder + file

    def _left_out(self, number: str) -> str:
        """Where it says that a phase is left out: a person's decision, else the mode or the workflow."""
        phases = [phase for phase in self._reading.phases if phase.number == int(number)]
        if not phases:
            return self._session.prefix + paths.MANIFEST
        feedback = self._reading.phase_prefix(phases[0]) + paths.FEEDBACK
        own = paths.workflow_prefix(self._session.project_id, self._reading.manifest.value["workflow"])
        return feedback if phases[0].when is None else f"{own}workflow.yaml"
