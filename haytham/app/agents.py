"""The agents of a session or a workflow: which models would answer for each, by which contract, from which file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from haytham.agents.registry import DEFAULT_MODEL, declared_models, runs_code
from haytham.app.settings import REPLAY
from haytham.config.agent_spec import INHERIT, read_agent
from haytham.config.workflow import agent_file
from haytham.session.inputs import agent_texts

if TYPE_CHECKING:
    from haytham.config.agent_spec import AgentSpec
    from haytham.config.workflow import Phase, WorkflowFiles


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
