"""What each agent would be asked now: the idea, its file, the texts it builds on, what a person wants."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from haytham.agent import Input, LeftOut, Previous, Task
from haytham.session import layout
from haytham.session.condition import left_out
from haytham.session.summary import decide
from haytham.text import difference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.agent_file import AgentSpec
    from haytham.session.reading import PutAside, Reading
    from haytham.workflow import Phase


class Tasks:
    """The tasks of a session, as its documents are now."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    @cached_property
    def _files(self) -> Mapping[str, bytes]:
        return self._reading.workflow_files().files

    @cached_property
    def agent_files(self) -> dict[str, str]:
        """The texts of the agents' files, by agent."""
        return agent_texts(self._files)

    def contract(self, spec: AgentSpec) -> Any:
        """What an agent's answer must have: the workflow's own contract of that name, else the shipped one."""
        if spec.contract is None:
            return None
        from haytham.contract import load_contract  # noqa: PLC0415 - only where an agent has one

        return load_contract(spec.contract, self._files)

    @cached_property
    def left_out(self) -> dict[int, str]:
        """The phases that are passed over, and why."""
        return left_out(self._reading)

    def task(self, phase: Phase, agent: str) -> Task:
        """What an agent of a phase would be asked."""
        needed = [need for need in self._needs(phase) if need.number not in self.left_out]
        return Task(
            agent=agent,
            agent_file=self.agent_files[agent],
            phase=phase.number,
            phase_name=phase.name,
            attempt=self._reading.attempt(phase),
            idea=self._reading.idea,
            inputs=tuple(given for need in needed for given in self._inputs(need)),
            comments={f"phase {need.number}": text for need in needed if (text := self._comments(need))},
            left_out=self._left_out(phase),
            before=self._before(phase, agent),
            previous=self._previous(phase),
            evidence=self._reading.evidence,
            request=self._reading.request(phase),
        )

    def due(self, phase: Phase) -> dict[str, str]:
        """The digest of the task that each agent with an output on record would get now."""
        outputs = self._reading.outputs(phase)
        known = [agent for agent in phase.agents if agent in outputs and outputs[agent].value.get("task") is not None]
        return {agent: self.task(phase, agent).digest for agent in known}

    def _needs(self, phase: Phase) -> list[Phase]:
        return [need for need in self._reading.phases if need.number in phase.needs]

    def _inputs(self, need: Phase) -> list[Input]:
        return [Input(need.number, need.name, agent, text) for agent, text in self._reading.texts(need).items()]

    def _comments(self, need: Phase) -> str:
        """The comments that a phase was approved with."""
        review, feedback = self._reading.review(need), self._reading.feedback(need)
        if feedback is None or review is None or review.decision != "approved":
            return ""
        return str(feedback.value["comments"]).strip()

    def _left_out(self, phase: Phase) -> tuple[LeftOut, ...]:
        used = {need.number for need in self._needs(phase) if need.number not in self.left_out}
        return tuple(
            LeftOut(need.number, need.name, self.left_out.get(need.number, "it is not in this mode"))
            for need in self._reading.workflow.phases
            if need.number in phase.needs and need.number not in used
        )

    def _before(self, phase: Phase, agent: str) -> dict[str, str]:
        """In a sequential phase, the texts of the agents before this one."""
        if phase.run != "sequential":
            return {}
        texts = self._reading.texts(phase)
        earlier = phase.agents[: phase.agents.index(agent)]
        return {name: texts[name] for name in earlier if name in texts}

    def _previous(self, phase: Phase) -> Previous | None:
        """The last attempt that a person wanted changes to; whatever else opens the gate again, these stay wanted."""
        found = self._wanted(phase, self._reading.attempt(phase))
        if found is None:
            return None
        number, wanted, feedback = found
        earlier = self._wanted(phase, number)
        return Previous(
            attempt=number,
            texts=wanted.texts,
            comments=feedback["comments"],
            changes=tuple(feedback["requested_changes"]),
            by_hand=_differences(wanted.presented, wanted.texts),
            difference=_differences(earlier[1].texts, wanted.texts) if earlier is not None else "",
        )

    def _wanted(self, phase: Phase, below: int) -> tuple[int, PutAside, Mapping[str, Any]] | None:
        """The last attempt below a number that ended with changes wanted."""
        for number in range(below - 1, 0, -1):
            found = self._reading.put_aside(phase, number)
            if found.feedback is not None and decide(found.feedback) == "changes":
                return number, found, found.feedback
        return None


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    diffs = (difference(before.get(agent, text), text, agent) for agent, text in after.items())
    return "\n".join(diff for diff in diffs if diff)


def agent_texts(files: Mapping[str, bytes]) -> dict[str, str]:
    """The texts of the agents' files of a workflow, by agent."""
    prefix = layout.AGENTS_PREFIX
    return {
        name.removeprefix(prefix).removesuffix(".md"): data.decode("utf-8-sig")
        for name, data in files.items()
        if name.startswith(prefix)
    }
