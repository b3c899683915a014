"""A workflow as a graph: its phases with what each needs, and the trees that it is drawn as."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.app.results import PhaseStatus
    from haytham.config.workflow import Phase, Workflow


@dataclass(frozen=True)
class GraphNode:
    """A phase, and the phases that are drawn below it."""

    phase: Phase
    children: tuple[GraphNode, ...] = ()


@dataclass(frozen=True)
class WorkflowGraph:
    """A workflow's phases, in order; of a session those of its mode, with where each stands."""

    workflow: Workflow
    mode: str | None = None
    statuses: Mapping[int, PhaseStatus] = field(default_factory=dict)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Return the phases that are drawn."""
        return self.workflow.phases if self.mode is None else self.workflow.mode_phases(self.mode)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Return each need among the phases that are drawn: the needed phase and the one that needs it, by number."""
        numbers = {phase.number for phase in self.phases}
        return tuple((need, phase.number) for phase in self.phases for need in sorted(numbers & set(phase.needs)))

    @property
    def roots(self) -> tuple[GraphNode, ...]:
        """Return the graph as trees: each phase is below the last of the phases that it needs."""
        last = {later: need for need, later in self.edges}  # sorted: of several needs the last one stays
        below: dict[int | None, list[GraphNode]] = {}
        for phase in reversed(self.phases):  # what is below a phase comes after it
            node = GraphNode(phase, tuple(reversed(below.get(phase.number, []))))
            below.setdefault(last.get(phase.number), []).append(node)
        return tuple(reversed(below.get(None, [])))
