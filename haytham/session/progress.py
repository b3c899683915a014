"""The table the product stands on, pure: what each phase is, and what resume does with it.

A phase's text is the agent's while it matches the digest in its own header, else a person revised it. It is stale when
the task it would get now is not the one it answered, nor one that an approval accepted for that text, or when a phase
that it needs is stale. The first row that applies decides.

A phase without recorded tasks was saved by a program and is taken at its word: its status counts, its outputs are
never stale, and it has a gate only where there is feedback.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.session.summary import Decision
    from haytham.workflow import Phase

Step = Literal["rejected", "nothing", "run", "write", "next attempt", "run again", "gate", "approved"]


@dataclass(frozen=True)
class Output:
    """An agent's output as far as progress asks: its digests, the task it would get now, and what is new in that."""

    status: str
    text: str
    wrote: str
    task: str | None
    due: str
    changed: tuple[str, ...] = ()

    @property
    def revised(self) -> bool:
        """Whether a person changed the text since the agent wrote it."""
        return self.text != self.wrote


@dataclass(frozen=True)
class Feedback:
    """A person's review as far as progress asks; `agents` are those that changes are requested of, if not all."""

    decision: Decision | None
    attempt: int
    texts: Mapping[str, str]
    tasks: Mapping[str, str | None]
    agents: tuple[str, ...] = ()


@dataclass(frozen=True)
class PhaseFacts:
    """What the documents of a phase say.

    `left_out` is why a phase is passed over, where it is; `stale_needs` the phases that it needs and that are stale;
    `by_program` whether a program saved it instead of the runner; `lost` the outputs on record whose files are gone.
    """

    phase: Phase
    status: str
    attempt: int
    outputs: Mapping[str, Output]
    feedback: Feedback | None
    left_out: str | None = None
    stale_needs: tuple[int, ...] = ()
    by_program: bool = False
    lost: tuple[str, ...] = ()

    @property
    def current_feedback(self) -> Feedback | None:
        """The feedback on the present attempt."""
        return self.feedback if self.feedback is not None and self.feedback.attempt == self.attempt else None

    @property
    def stale(self) -> tuple[str, ...]:
        """The agents whose outputs are stale."""
        moved = bool(self.stale_needs)
        return tuple(
            agent
            for agent, output in self.outputs.items()
            if output.task is not None and (moved or _is_outdated(agent, output, self.current_feedback))
        )


@dataclass(frozen=True)
class Verdict:
    """What resume does with a phase, for which agents, and why."""

    step: Step
    agents: tuple[str, ...] = ()
    why: str = ""


def judge(facts: PhaseFacts) -> Verdict:
    """The first row of the table that applies to a phase."""
    feedback = facts.current_feedback
    decision = feedback.decision if feedback is not None else None
    if decision == "rejected":
        return Verdict("rejected")
    if facts.left_out is not None:
        return Verdict("nothing", why=facts.left_out)
    undone = tuple(agent for agent in _required(facts) if not _is_done(facts, agent))
    if undone or facts.status != "completed":
        return _judge_undone(facts, undone)
    if decision == "changes":
        asked = feedback.agents if feedback is not None else ()
        return Verdict("next attempt", asked or facts.phase.agents)
    return _judge_texts(facts, feedback)


def _required(facts: PhaseFacts) -> tuple[str, ...]:
    """The agents whose outputs must be there: all; of a completed phase that a program saved, those on record."""
    if facts.by_program and facts.status == "completed":
        return tuple(agent for agent in facts.phase.agents if agent in facts.lost)
    return facts.phase.agents


def _judge_undone(facts: PhaseFacts, undone: tuple[str, ...]) -> Verdict:
    """Agents without a completed output run; where a person has to write first, or all others are done, they wait."""
    unwritten = tuple(agent for agent in undone if _is_unwritten(facts, agent))
    if unwritten and facts.phase.run == "sequential":
        ahead = undone[: undone.index(unwritten[0])]
    else:
        ahead = tuple(agent for agent in undone if agent not in unwritten)
    if unwritten and not ahead:
        return Verdict("write", unwritten, why="a person has to write it")
    return Verdict("run", ahead)


def _judge_texts(facts: PhaseFacts, feedback: Feedback | None) -> Verdict:
    stale = {agent: facts.outputs[agent] for agent in facts.stale}
    own = tuple(agent for agent in facts.phase.agents if agent in stale and not stale[agent].revised)
    if own:
        return Verdict("run again", own, why=_what_changed(facts, stale))
    if stale:
        return Verdict("gate", tuple(stale), why=f"{_what_changed(facts, stale)}, and a person has revised it")
    if feedback is not None and feedback.decision == "approved":
        texts = {agent: output.text for agent, output in facts.outputs.items()}
        return Verdict("approved") if feedback.texts == texts else Verdict("gate", why="the text has changed since")
    if feedback is None and (facts.phase.review == "none" or facts.by_program):
        return Verdict("approved", why="no review is asked for")
    return Verdict("gate", why="it waits for review")


def _what_changed(facts: PhaseFacts, stale: Mapping[str, Output]) -> str:
    """What is new in the ground of stale outputs, each part once; the needed phases that are stale where nothing is."""
    parts = sorted({part for output in stale.values() for part in output.changed})
    parts = parts or [f"phase {number} is stale" for number in facts.stale_needs]
    return "what it builds on has changed" + (f" ({'; '.join(parts)})" if parts else "")


def _is_outdated(agent: str, output: Output, feedback: Feedback | None) -> bool:
    """Whether the task an output would get now is neither the one it answered nor one that was accepted for it."""
    if output.task is None or output.due == output.task:
        return False
    accepted = feedback is not None and feedback.decision == "approved" and feedback.tasks.get(agent) == output.due
    return not (accepted and feedback is not None and feedback.texts.get(agent) == output.text)


def _is_done(facts: PhaseFacts, agent: str) -> bool:
    """Whether an agent has an output that is completed, or that a person wrote: in the place of a failure, or at all.

    What lies in the phase's folder is of the present attempt: an earlier one was moved away.
    """
    output = facts.outputs.get(agent)
    return output is not None and _is_good(output)


def _is_good(output: Output) -> bool:
    return output.status == "completed" or output.revised


def _is_unwritten(facts: PhaseFacts, agent: str) -> bool:
    """Whether an output is the page that a person has yet to write on, laid out for the task as it is now."""
    output = facts.outputs.get(agent)
    if output is None or output.status != "pending" or output.task is None:
        return False
    return agent not in facts.stale
