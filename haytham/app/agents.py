"""The agents of a session or a workflow: their models, contracts and files, and the exact prompt each would get now."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from haytham.agents.registry import DEFAULT_MODEL, declared_models, runs_code
from haytham.app.settings import REPLAY
from haytham.config.agent_spec import INHERIT, read_agent
from haytham.config.workflow import agent_file
from haytham.resources import resource_path
from haytham.session import paths
from haytham.session.inputs import agent_texts, no_notes, phase_comments
from haytham.session.plan import SessionPlan
from haytham.session.review import ReviewGate
from haytham.session.session import SessionDocuments
from haytham.storage.memory import MemoryStore
from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from haytham.agents.base import Task
    from haytham.config.agent_spec import AgentSpec
    from haytham.config.workflow import Phase, WorkflowFiles
    from haytham.session.inputs import Recall
    from haytham.session.view import SessionView


@dataclass(frozen=True)
class AgentListing:
    """An agent of a phase: models in the order they are tried, and which of them is the session's default.

    `file` is where it can be edited; None for an agent of a built-in workflow, whose `name` in it is still given.
    """

    phase: int
    phase_name: str
    agent: str
    description: str
    models: tuple[str, ...]
    inherits: tuple[bool, ...]
    replayed: bool
    trusted: bool
    contract: str | None
    tools: tuple[str, ...]
    file: Path | None
    name: str


@dataclass(frozen=True)
class AgentList:
    """The agents of a workflow, with its name and origin."""

    workflow: str
    origin: str
    agents: tuple[AgentListing, ...]


def list_agents(
    phases: tuple[Phase, ...], source: WorkflowFiles, model: str | None, *, trusted: bool
) -> tuple[AgentListing, ...]:
    """Return the agents of phases, in order."""
    texts = agent_texts(source.files)
    specs = {name: read_agent(name, texts[name]) for phase in phases for name in phase.agents}
    return tuple(
        _listing(phase, specs[name], source, model, trusted=trusted) for phase in phases for name in phase.agents
    )


def _listing(phase: Phase, spec: AgentSpec, source: WorkflowFiles, model: str | None, *, trusted: bool) -> AgentListing:
    default = model or DEFAULT_MODEL
    replayed = default.startswith(REPLAY)
    own = (INHERIT,) if replayed else declared_models(spec)
    answering = {default if name == INHERIT else name: name == INHERIT for name in dict.fromkeys(own)}
    origin, name = Path(source.origin), agent_file(spec.name)
    return AgentListing(
        phase=phase.number,
        phase_name=phase.name,
        agent=spec.name,
        description=spec.description,
        models=tuple(answering),
        inherits=tuple(answering.values()),
        replayed=replayed,
        trusted=trusted or not any(map(runs_code, answering)),
        contract=spec.contract,
        tools=tuple(spec.tools),
        file=origin / name if origin.is_absolute() else None,
        name=f"{source.origin}/{name}",
    )


_BUILT_IN = "built in: "


@dataclass(frozen=True)
class PromptPart:
    """A part of a prompt: its name, the file it comes from, and its digest."""

    name: str
    file: str
    digest: str


@dataclass(frozen=True)
class PromptPreview:
    """What one agent would be asked; `notes` say in how far that may still change."""

    task: Task
    parts: tuple[PromptPart, ...]
    notes: tuple[str, ...]


def preview_prompts(
    documents: SessionDocuments, number: int, agents: tuple[str, ...], *, folder: str, recall: Recall = no_notes
) -> list[PromptPreview]:
    """Return what agents of a phase would be asked if it ran now: the first steps of a run, done on a copy.

    `folder` is the workspace, as files in it are named; `recall` finds notes for a task.
    """
    plan, state = _about_to_run(documents, number), documents.state()
    phase, previews = plan.view.phase(number), []
    for agent in agents:
        task, spec = plan.build_request(phase, agent, state, recall)
        sources = _Sources(folder, documents, plan.view, phase)
        found = [sources.part(name, digest, agent=agent) for name, digest in task.parts.items()]
        parts = [replace(part, name=task.part_title(part.name)) for part in found]
        frame = _frame(folder, documents, spec, task)
        previews.append(PromptPreview(task, (*frame, *parts), tuple(_notes(plan, phase, agent))))
    return previews


def _about_to_run(documents: SessionDocuments, number: int) -> SessionPlan:
    """Return the plan that a run of a phase finds: decisions are bound, an attempt that is to change is archived."""
    copy = copy_in_memory(documents)
    gate = ReviewGate(copy)
    gate.complete_pending_move()
    gate.bind_editor_decisions(None)
    plan = SessionPlan(copy.read())
    if plan.phase(number).next_action.action != "next attempt":
        return plan
    gate.start_attempt(number)
    return SessionPlan(copy.read())


def copy_in_memory(documents: SessionDocuments) -> SessionDocuments:
    """Return a session in memory that reads like the one at rest; changes to it are not stored."""
    memory, store, view = MemoryStore(), documents.store, documents.read()
    workflow = paths.workflow_prefix(documents.project_id, view.manifest.value.workflow)
    keys = [*store.keys(documents.prefix), *store.keys(workflow), paths.project_key(documents.project_id)]
    memory.write_all({key: store.read(key) for key in keys if store.is_regular(key)})
    for phase in view.phases:
        memory.ensure_folder(view.phase_prefix(phase))
    return SessionDocuments(memory, documents.project_id, documents.session_id)


def _notes(plan: SessionPlan, phase: Phase, agent: str) -> Iterator[str]:
    """Yield in how far what an agent is asked may still change before it is."""
    action = plan.phase(phase.number).next_action
    if action.action == "nothing":
        yield f"phase {phase.number} is left out: {action.reason}"
    for need in (entry.state.phase for entry in plan.phases if not entry.is_done):
        if need.number in phase.needs:
            yield f"phase {need.number}, {need.name}, is open: what it comes to may be another text"
    earlier = phase.agents[: phase.agents.index(agent)] if phase.run == "sequential" else ()
    waiting = [name for name in earlier if name in action.agents]
    if waiting:
        yield f"{', '.join(waiting)} will write before it: that text is not in here yet"


def _frame(folder: str, session: SessionDocuments, spec: AgentSpec, task: Task) -> Iterator[PromptPart]:
    """Yield what holds a prompt together, and what its contract asks for."""
    template = resource_path("templates", "prompt.md.j2").read_text(encoding="utf-8")
    yield PromptPart("frame", f"{_BUILT_IN}prompt.md.j2", text_digest(template))
    if spec.contract is not None and task.contract is not None:
        own = paths.workflow_prefix(session.project_id, session.read().manifest.value.workflow)
        key = f"{own}contracts/{spec.contract}.json"
        file = f"{folder}/{key}" if session.store.is_regular(key) else f"{_BUILT_IN}contracts/{spec.contract}.json"
        yield PromptPart("contract", file, text_digest(task.contract.prompt_text()))
    if task.preferences:
        file = f"{folder}/{paths.project_key(session.project_id)}"
        yield PromptPart("preferences", file, text_digest(json.dumps(dict(task.preferences))))
    if task.memory:
        user = session.read().manifest.value.user_id
        yield PromptPart("memory", f"{folder}/{paths.memory_prefix(user)}", text_digest(task.memory))
    if "state" in spec.body and session.store.is_regular(session.prefix + paths.STATE):
        data = session.store.read(session.prefix + paths.STATE)
        yield PromptPart(
            "state", f"{folder}/{session.prefix}{paths.STATE}", text_digest(data.decode("utf-8", "replace"))
        )


class _Sources:
    """The files that parts of a task come from, by the names of the parts."""

    def __init__(self, folder: str, session: SessionDocuments, view: SessionView, phase: Phase) -> None:
        self._base, self._session, self._view, self._phase = folder, session, view, phase
        self._rules: list[tuple[str, Callable[..., str]]] = [
            (r"idea", lambda: paths.project_key(session.project_id)),
            (r"evidence", lambda: session.prefix + paths.EVIDENCE),
            (r"input", lambda: view.phase_prefix(phase) + paths.REQUEST),
            (r"phase (\d+): (.+)", lambda number, agent: self._folder(number) + paths.output_file(agent)),
            (r"comments on phase (\d+)", self._approval),
            (r"comments on phase (\d+), asked for in attempt (\d+)", self._feedback),
            (r"comments on phase (\d+), which was skipped", lambda number: self._folder(number) + paths.FEEDBACK),
            (r"before it: (.+)", lambda agent: view.phase_prefix(phase) + paths.output_file(agent)),
            (r"attempt (\d+): (.+)", lambda number, agent: self._aside(number, paths.output_file(agent))),
            (r"changes wanted after attempt (\d+)", lambda number: self._aside(number, paths.FEEDBACK)),
            (r"phase (\d+) left out", self._left_out),
        ]

    def part(self, name: str, digest: str, *, agent: str) -> PromptPart:
        """Return a part with the file it comes from, as a person would name it."""
        if name == "agent file":
            return PromptPart(name, self._agent_file(agent), digest)
        for pattern, key in self._rules:
            match = re.fullmatch(pattern, name)
            if match is not None:
                return PromptPart(name, f"{self._base}/{key(*match.groups())}", digest)
        return PromptPart(name, "-", digest)

    def _agent_file(self, agent: str) -> str:
        manifest = self._view.manifest.value
        folder = paths.workflow_prefix(self._session.project_id, manifest.workflow)
        key = f"{folder}{paths.AGENTS_PREFIX}{agent}.md"
        if self._session.store.is_regular(key):
            return f"{self._base}/{key}"
        return f"{_BUILT_IN}{manifest.workflow_type}/{paths.AGENTS_PREFIX}{agent}.md"

    def _folder(self, number: str) -> str:
        return self._view.phase_prefix(self._view.phase(int(number)))

    def _approval(self, number: str) -> str:
        """Return the feedback whose comments a phase was approved with."""
        phase = self._view.phase(int(number))
        attempts = (str(attempt) for attempt, _ in phase_comments(self._view, phase, "approved"))
        return self._feedback(number, next(attempts, ""))

    def _feedback(self, number: str, attempt: str) -> str:
        """Return the feedback on an attempt at a phase: an earlier one, else the present one."""
        return self._in_attempt(self._folder(number), attempt, paths.FEEDBACK)

    def _aside(self, number: str, file: str) -> str:
        """Return a file of an earlier attempt; of one that a run would archive first, where it lies now."""
        return self._in_attempt(self._view.phase_prefix(self._phase), number, file)

    def _in_attempt(self, folder: str, attempt: str, file: str) -> str:
        key = paths.attempt_prefix(folder, int(attempt)) + file if attempt else folder + file
        return key if self._session.store.is_regular(key) else folder + file

    def _left_out(self, number: str) -> str:
        """Return the file that skips a phase: a decision, else the mode or the workflow."""
        phases = [phase for phase in self._view.phases if phase.number == int(number)]
        if not phases:
            return self._session.prefix + paths.MANIFEST
        feedback = self._view.phase_prefix(phases[0]) + paths.FEEDBACK
        own = paths.workflow_prefix(self._session.project_id, self._view.manifest.value.workflow)
        return feedback if phases[0].when is None else f"{own}workflow.yaml"
