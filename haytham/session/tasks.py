"""What each agent would be asked now: the idea, its file, the texts and comments it builds on, the changes wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.agent import Input, LeftOut, Previous, Task
from haytham.session import layout
from haytham.text import difference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.session.reading import Reading
    from haytham.workflow import Phase


class Tasks:
    """The tasks of a session, as its documents are now; `skipped` are the phases that are left out, and why."""

    def __init__(self, reading: Reading, agent_files: Mapping[str, str], skipped: Mapping[int, str]) -> None:
        self._reading = reading
        self._agent_files = agent_files
        self._skipped = skipped

    def task(self, phase: Phase, agent: str) -> Task:
        """What an agent of a phase would be asked."""
        needed = [need for need in self._needs(phase) if need.number not in self._skipped]
        return Task(
            agent=agent,
            agent_file=self._agent_files[agent],
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
        )

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
        used = {need.number for need in self._needs(phase) if need.number not in self._skipped}
        return tuple(
            LeftOut(need.number, need.name, self._skipped.get(need.number, "it is not in this mode"))
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
        """The attempt before this one, where a person asked for changes."""
        number = self._reading.attempt(phase) - 1
        put_aside = self._reading.put_aside(phase, number) if number else None
        if put_aside is None or put_aside.feedback is None:
            return None
        feedback = put_aside.feedback
        diffs = (
            difference(put_aside.presented.get(agent, text), text, agent) for agent, text in put_aside.texts.items()
        )
        return Previous(
            attempt=number,
            texts=put_aside.texts,
            comments=feedback["comments"],
            changes=tuple(feedback["requested_changes"]),
            difference="\n".join(diff for diff in diffs if diff),
        )


def agent_texts(files: Mapping[str, bytes]) -> dict[str, str]:
    """The texts of the agents' files of a workflow, by agent."""
    prefix = layout.AGENTS_PREFIX
    return {
        name.removeprefix(prefix).removesuffix(".md"): data.decode("utf-8-sig")
        for name, data in files.items()
        if name.startswith(prefix)
    }
