"""`graph`: phases and what each needs, as a tree, as Mermaid, or as JSON."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from haytham.app.workflows import is_workflow
from haytham.cli.context import AppContext, UsageError, sanitize
from haytham.cli.options import session_option
from haytham.cli.output import reviewer_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from haytham.app.graph import GraphNode, WorkflowGraph
    from haytham.app.results import PhaseStatus
    from haytham.app.session import Session
    from haytham.config.workflow import Phase

_WIDEST, _NARROWEST = 100, 16
_STATES = {
    "approved": "approved",
    "rejected": "rejected",
    "gate": "waits for review",
    "write": "to be written",
    "run again": "stale",
    "next attempt": "changes requested",
    "nothing": "left out",
}
_ESCAPED = {ord(char): f"#{ord(char)};" for char in '"#&<>`'}


@dataclass(frozen=True)
class Characters:
    """What a tree is drawn with."""

    bar: str
    branch: str
    end: str
    arrow: str


_LINES = Characters("\u2502", "\u251c\u2500 ", "\u2514\u2500 ", "\u2192")
_PLAIN = Characters("|", "|- ", "`- ", "->")


@click.command()
@click.argument("which", metavar="[DIR|SESSION]", required=False)
@session_option(argument=False)
@click.option("--mermaid", is_flag=True, help="As a Mermaid flowchart, for documents.")
@click.pass_obj
def graph(context: AppContext, /, which: str | None, session_name: str | None, *, mermaid: bool) -> None:
    r"""Draw phases and what each needs.

    Of a workflow, by its folder or name; else of a session, with where each phase stands. A phase is drawn below the
    last of the phases that it needs.

    \b
    Examples:
      haytham graph my_workflow
      haytham graph my_workflow --mermaid
      haytham graph
    """
    if which is not None and session_name is not None:
        raise UsageError("say what to draw: a workflow or -s SESSION, not both")
    if which is not None and is_workflow(which):
        session, drawn = None, context.workspace.graph(which)
    elif which is not None and not context.workspace.folders(which):
        raise UsageError(f"no workflow and no session matches {which!r}; name the folder of a workflow, or a session")
    else:
        session = context.workspace.session(which or session_name)
        drawn = context.workspace.graph(session)
    text = _mermaid(drawn) if mermaid else "\n".join(_text(drawn, session))
    context.output("graph", _facts(drawn, session), sanitize(text))


def _facts(drawn: WorkflowGraph, session: Session | None) -> dict[str, Any]:
    ids = {} if session is None else {"project": session.project_id, "session": session.session_id}
    modes = {mode: list(numbers) for mode, numbers in drawn.workflow.modes.items()}
    phases = [_phase_facts(phase, drawn.statuses.get(phase.number)) for phase in drawn.phases]
    return {**ids, "workflow": drawn.workflow.name, "mode": drawn.mode, "modes": modes, "phases": phases}


def _phase_facts(phase: Phase, status: PhaseStatus | None) -> dict[str, Any]:
    facts = {name: getattr(phase, name) for name in ("name", "slug", "run", "review", "when")}
    lists = {name: list(getattr(phase, name)) for name in ("agents", "needs", "reviewers")}
    return {"phase": phase.number, **facts, **lists, "state": None if status is None else _state(status)}


def _state(status: PhaseStatus) -> str:
    return _STATES.get(status.action or "", status.status)


# The tree.


def _text(drawn: WorkflowGraph, session: Session | None) -> Iterator[str]:
    """Yield the lines of a tree, below the name of the workflow or session and its modes."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    characters = _LINES if _can_draw() else _PLAIN
    name = drawn.workflow.name if session is None else f"session {session.id}"
    modes = drawn.workflow.modes if drawn.mode is None else {drawn.mode: drawn.workflow.modes[drawn.mode]}
    yield from textwrap.wrap(name, width)
    for mode, numbers in modes.items():
        yield from textwrap.wrap(f"mode {mode}: {', '.join(map(str, numbers))}", width, subsequent_indent="  ")
    for root in drawn.roots:
        yield ""
        yield from _node_lines(root, None, drawn, characters, width)


def _can_draw() -> bool:
    """Return whether whoever reads can show lines of tables."""
    return os.environ.get("TERM") != "dumb" and "utf" in (sys.stdout.encoding or "").lower()


def _node_lines(
    node: GraphNode, above: int | None, drawn: WorkflowGraph, characters: Characters, width: int
) -> Iterator[str]:
    """Yield a phase and all below it; a lone phase below another one stays in its column."""
    below: tuple[GraphNode, ...] = (node,)
    while len(below) == 1:
        (node,) = below
        below = node.children
        yield from _phase_lines(node, above, drawn, characters, width)
        above = node.phase.number
    for child in below:
        first, rest = (characters.end, "   ") if child is below[-1] else (characters.branch, f"{characters.bar}  ")
        for at, line in enumerate(_node_lines(child, above, drawn, characters, width - len(first))):
            yield f"{rest if at else first}{line}"


def _phase_lines(
    node: GraphNode, above: int | None, drawn: WorkflowGraph, characters: Characters, width: int
) -> Iterator[str]:
    """Yield the title of a phase and, indented, its agents and what is special about it."""
    phase, status = node.phase, drawn.statuses.get(node.phase.number)
    title = f"{phase.number} {phase.name}" + ("" if status is None else f": {_state(status)}")
    bar = characters.bar if node.children else " "
    room = max(width - 1, _NARROWEST)
    first, *rest = textwrap.wrap(title, room) or [title]
    yield first
    lines = [*(f"  {line}" for line in rest)]
    for detail in _details(phase, above, drawn, characters):
        lines += textwrap.wrap(detail, room, initial_indent="   ", subsequent_indent="     ")
    yield from (f"{bar}{line}" for line in lines)


def _details(phase: Phase, above: int | None, drawn: WorkflowGraph, characters: Characters) -> Iterator[str]:
    yield f" {characters.arrow} ".join(phase.agents) if phase.run == "sequential" else ", ".join(phase.agents)
    drawn_needs = {need for need, later in drawn.edges if later == phase.number}
    if phase.needs and set(phase.needs) != {above}:
        yield "needs " + ", ".join(
            f"{need}" if need in drawn_needs else f"{need} (not in this mode)" for need in sorted(phase.needs)
        )
    if phase.when is not None:
        yield f"when {phase.when}"
    if phase.review == "none":
        yield "no review"
    elif phase.reviewers:
        yield f"review{reviewer_words(phase.reviewers)}"


# Mermaid.


def _mermaid(drawn: WorkflowGraph) -> str:
    """Return a flowchart with every need as an arrow."""
    nodes = [f'    p{phase.number}["{_label(phase)}"]' for phase in drawn.phases]
    return "\n".join(["flowchart TD", *nodes, *(f"    p{need} --> p{later}" for need, later in drawn.edges)])


def _label(phase: Phase) -> str:
    """Return the text in a box: a phase and its agents, with all that Mermaid reads escaped."""
    parts = [f"{phase.number} {phase.name}", *phase.agents]
    return "<br>".join(part.translate(_ESCAPED) for part in parts)
