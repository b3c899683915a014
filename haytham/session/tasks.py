"""What each agent would be asked now: the idea, its file, the texts it builds on, what a person wants."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from haytham.agent import Input, LeftOut, Previous, Task
from haytham.agent_file import read_agent
from haytham.session import layout
from haytham.session.condition import left_out
from haytham.session.summary import asked_agents, decide
from haytham.text import difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from haytham.agent_file import AgentSpec
    from haytham.errors import Problem
    from haytham.session.reading import PutAside, Reading
    from haytham.session.summary import Decision
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

    def contract_faults(self, phase: Phase) -> dict[str, list[Problem]]:
        """Return what breaks the contract in the texts of a phase as they are now, by agent."""
        found: dict[str, list[Problem]] = {}
        for agent, text in self._reading.texts(phase).items():
            contract = self.contract(read_agent(agent, self.agent_files[agent])) if agent in self.agent_files else None
            if contract is not None and (problems := contract.complaints(text)):
                found[agent] = problems
        return found

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
            other_comments={name: text for need in self._needs(phase) for name, text in self._other_comments(need)},
            left_out=self._left_out(phase),
            before=self._before(phase, agent),
            previous=self._previous(phase, agent),
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
        """Return the comments that a phase was approved with; they stay until another approval has some."""
        return next((text for _, text in commented(self._reading, need, "approved")), "")

    def _other_comments(self, need: Phase) -> Iterator[tuple[str, str]]:
        """Yield the comments on a phase that came with other decisions, by phase and occasion."""
        if need.number not in self.left_out:
            for number, text in reversed(list(commented(self._reading, need, "changes"))):
                yield f"phase {need.number}, asked for in attempt {number}", text
            return
        for number, text in commented(self._reading, need, "skip"):
            if number == self._reading.attempt(need):
                yield f"phase {need.number}, which was skipped", text

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

    def _previous(self, phase: Phase, agent: str) -> Previous | None:
        """Return the attempt that an agent starts from; whatever else opens the gate again, it stays that one."""
        chain = list(self._starting_points(phase, agent))
        if not chain:
            return None
        number, last, feedback = chain[0]
        is_wanted = _is_about_changes(feedback)
        return Previous(
            attempt=number,
            texts=last.texts,
            comments=feedback["comments"] if is_wanted else "",
            changes=tuple(feedback["requested_changes"] if is_wanted else ()),
            by_hand=_differences(last.presented, last.texts),
            difference=_differences(chain[1][1].texts, last.texts) if len(chain) > 1 else "",
            revised=frozenset(name for name in last.texts if any(name in earlier.revised for _, earlier, _ in chain)),
        )

    def _starting_points(self, phase: Phase, agent: str) -> Iterator[tuple[int, PutAside, Mapping[str, Any]]]:
        """Yield the attempts whose successor an agent was to start from, the last first.

        Those ended with changes requested, or were run again although a person had revised the page or said something.
        """
        for number in range(self._reading.attempt(phase) - 1, 0, -1):
            feedback = self._reading.earlier_feedback(phase, number)
            if feedback is None or not (feedback.get("superseded") or decide(feedback) == "changes"):
                continue
            if decide(feedback) == "changes" and agent not in asked_agents(feedback, phase.agents):
                continue  # its output moved on unchanged
            found = self._reading.put_aside(phase, number)
            if agent in found.revised or _is_about_changes(feedback):
                yield number, found, feedback


def commented(reading: Reading, phase: Phase, decision: Decision) -> Iterator[tuple[int, str]]:
    """Yield attempt and comments of each review of a phase that made a decision and says something, the last first."""
    present, review = reading.feedback(phase), reading.review(phase)
    if present is not None and review is not None and review.decision == decision and _text(present.value):
        yield present.value["attempt"], _text(present.value)
    for number in range(reading.attempt(phase) - 1, 0, -1):
        feedback = reading.earlier_feedback(phase, number)
        if feedback is not None and decide(feedback) == decision and _text(feedback):
            yield number, _text(feedback)


def _text(feedback: Mapping[str, Any]) -> str:
    return str(feedback["comments"]).strip()


def _is_about_changes(feedback: Mapping[str, Any]) -> bool:
    """Whether a review asks for changes, or says something without a decision."""
    decision = decide(feedback)
    return decision == "changes" or (decision is None and bool(_text(feedback) or feedback["requested_changes"]))


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
