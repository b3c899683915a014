"""What each agent would be asked now: the idea, its file, the texts it builds on, what a person wants."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from haytham.agents.base import PhaseInput, PreviousAttempt, SkippedPhase, Task
from haytham.agents.prompt import build_prompt
from haytham.cache import LruCache
from haytham.config.agent_spec import read_agent
from haytham.session import paths
from haytham.session.derived import asked_agents, parse_decision, skipped_phases
from haytham.text import unified_diff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from haytham.config.agent_spec import AgentSpec
    from haytham.config.workflow import Phase
    from haytham.errors import Problem
    from haytham.session.derived import Decision
    from haytham.session.models import UserFeedback
    from haytham.session.view import ArchivedAttempt, SessionView

    Recall = Callable[[str], str]


_VERIFIED: LruCache[bool] = LruCache(64)  # by the digest of a workflow and the change tokens of its files


def no_notes(_query: str) -> str:
    """Return no notes, whatever the task."""
    return ""


class TaskInputs:
    """The tasks of a session, as its documents are now."""

    def __init__(self, view: SessionView, skipped: Mapping[int, str] | None = None) -> None:
        self._view = view
        if skipped is not None:
            self.skipped_phases = skipped

    @cached_property
    def _files(self) -> Mapping[str, bytes]:
        return self._view.workflow_files().files

    def take_over(self, before: TaskInputs) -> None:
        """Use the workflow's files that were read before, if they were."""
        vars(self).update({name: vars(before)[name] for name in ("_files", "agent_files") if name in vars(before)})

    def verified_digest(self) -> str:
        """Return the digest of the workflow's files, which are read again only if one of them may have changed."""
        digest = self._view.manifest.value.workflow
        versions = self._view.workflow_versions()
        key = (digest, self._view.manifest.value.origin, *versions.items())
        is_known = bool(versions) and None not in versions.values()
        if "_files" not in vars(self) and not (is_known and _VERIFIED.get(key)):
            _ = self._files
            if is_known and versions == self._view.workflow_versions():
                _VERIFIED.put(key, value=True)
        return digest

    @cached_property
    def agent_files(self) -> dict[str, str]:
        """Return the texts of the agents' files, by agent."""
        return agent_texts(self._files)

    def contract(self, spec: AgentSpec) -> Any:
        """Return an agent's contract: the workflow's own of that name, else the built-in one."""
        if spec.contract is None:
            return None
        from haytham.contracts import load_contract  # noqa: PLC0415 - only where an agent has one

        return load_contract(spec.contract, self._files, self._view.workflow.wording)

    def contract_faults(self, phase: Phase) -> dict[str, list[Problem]]:
        """Return what breaks the contract in the texts of a phase as they are now, by agent."""
        faults: dict[str, list[Problem]] = {}
        for agent, text in self._view.texts(phase).items():
            contract = self.contract(read_agent(agent, self.agent_files[agent])) if agent in self.agent_files else None
            if contract is not None and (problems := contract.validate(text)):
                faults[agent] = problems
        return faults

    @cached_property
    def skipped_phases(self) -> Mapping[int, str]:
        """Return the phases that are skipped, and why."""
        return skipped_phases(self._view)

    def task(self, phase: Phase, agent: str) -> Task:
        """Return the task that an agent of a phase would get now."""
        needed = [need for need in self._needs(phase) if need.number not in self.skipped_phases]
        return Task(
            agent=agent,
            agent_file=self.agent_files[agent],
            phase=phase.number,
            phase_name=phase.name,
            attempt=self._view.attempt(phase),
            idea=self._view.idea,
            inputs=tuple(given for need in needed for given in self._inputs(need)),
            comments={f"phase {need.number}": text for need in needed if (text := self._comments(need))},
            other_comments={name: text for need in self._needs(phase) for name, text in self._other_comments(need)},
            skipped_phases=self._left_out(phase),
            earlier_outputs=self._before(phase, agent),
            previous=self._previous(phase, agent),
            evidence=self._view.evidence,
            request=self._view.request(phase),
            subject=self._view.workflow.wording.subject,
            currency=self._view.workflow.wording.currency,
        )

    def request(self, phase: Phase, agent: str, state: Mapping[str, Any], recall: Recall) -> tuple[Task, AgentSpec]:
        """Return the exact task that an agent gets now, and its settings; `recall` finds notes for it."""
        spec = read_agent(agent, self.agent_files[agent])
        task = self.task(phase, agent)
        task = replace(
            task,
            state=state,
            contract=self.contract(spec),
            preferences=self._view.preferences,
            memory=recall(f"{task.idea}\n{phase.name}\n{spec.description}"),
        )
        return replace(task, prompt=build_prompt(task, spec)), spec

    def current_digests(self, phase: Phase) -> dict[str, str]:
        """Return the digest of the task that each agent with an output on record would get now."""
        outputs = self._view.outputs(phase)
        known = [agent for agent in phase.agents if agent in outputs and outputs[agent].value.task is not None]
        return {agent: self.task(phase, agent).digest for agent in known}

    def _needs(self, phase: Phase) -> list[Phase]:
        return [need for need in self._view.phases if need.number in phase.needs]

    def _inputs(self, need: Phase) -> list[PhaseInput]:
        return [PhaseInput(need.number, need.name, agent, text) for agent, text in self._view.texts(need).items()]

    def _comments(self, need: Phase) -> str:
        """Return the comments that a phase was approved with; they stay until another approval has some."""
        return next((text for _, text in phase_comments(self._view, need, "approved")), "")

    def _other_comments(self, need: Phase) -> Iterator[tuple[str, str]]:
        """Yield the comments on a phase that came with other decisions, by phase and occasion."""
        if need.number not in self.skipped_phases:
            for number, text in reversed(list(phase_comments(self._view, need, "changes"))):
                yield f"phase {need.number}, asked for in attempt {number}", text
            return
        for number, text in phase_comments(self._view, need, "skip"):
            if number == self._view.attempt(need):
                yield f"phase {need.number}, which was skipped", text

    def _left_out(self, phase: Phase) -> tuple[SkippedPhase, ...]:
        used = {need.number for need in self._needs(phase) if need.number not in self.skipped_phases}
        return tuple(
            SkippedPhase(need.number, need.name, self.skipped_phases.get(need.number, "it is not in this mode"))
            for need in self._view.workflow.phases
            if need.number in phase.needs and need.number not in used
        )

    def _before(self, phase: Phase, agent: str) -> dict[str, str]:
        """Return the texts of the agents before this one in a sequential phase."""
        if phase.run != "sequential":
            return {}
        texts = self._view.texts(phase)
        earlier = phase.agents[: phase.agents.index(agent)]
        return {name: texts[name] for name in earlier if name in texts}

    def _previous(self, phase: Phase, agent: str) -> PreviousAttempt | None:
        """Return the attempt that an agent starts from; whatever else opens the gate again, it stays that one."""
        chain = list(self._starting_points(phase, agent))
        if not chain:
            return None
        number, last, feedback = chain[0]
        is_wanted = _is_about_changes(feedback)
        return PreviousAttempt(
            attempt=number,
            texts=last.texts,
            comments=feedback.comments if is_wanted else "",
            changes=feedback.requested_changes if is_wanted else (),
            manual_diff=_differences(last.presented, last.texts),
            diff=_differences(chain[1][1].texts, last.texts) if len(chain) > 1 else "",
            revised=frozenset(name for name in last.texts if any(name in earlier.revised for _, earlier, _ in chain)),
        )

    def _starting_points(self, phase: Phase, agent: str) -> Iterator[tuple[int, ArchivedAttempt, UserFeedback]]:
        """Yield the attempts whose successor an agent was to start from, the last first.

        Those ended with changes requested, or were run again although a person had revised the page or said something.
        """
        for number in range(self._view.attempt(phase) - 1, 0, -1):
            feedback = self._view.earlier_feedback(phase, number)
            if feedback is None or not (feedback.superseded or parse_decision(feedback) == "changes"):
                continue
            if parse_decision(feedback) == "changes" and agent not in asked_agents(feedback, phase.agents):
                continue  # its output moved on unchanged
            archived = self._view.archived_attempt(phase, number)
            if agent in archived.revised or _is_about_changes(feedback):
                yield number, archived, feedback


def phase_comments(view: SessionView, phase: Phase, decision: Decision) -> Iterator[tuple[int, str]]:
    """Yield attempt and comments of each review of a phase that made a decision and says something, the last first."""
    present, review = view.feedback(phase), view.review(phase)
    if present is not None and review is not None and review.decision == decision and _text(present.value):
        yield present.value.attempt, _text(present.value)
    for number in range(view.attempt(phase) - 1, 0, -1):
        feedback = view.earlier_feedback(phase, number)
        if feedback is not None and parse_decision(feedback) == decision and _text(feedback):
            yield number, _text(feedback)


def _text(feedback: UserFeedback) -> str:
    return feedback.comments.strip()


def _is_about_changes(feedback: UserFeedback) -> bool:
    """Return whether a review asks for changes, or says something without a decision."""
    decision = parse_decision(feedback)
    return decision == "changes" or (decision is None and bool(_text(feedback) or feedback.requested_changes))


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    diffs = (unified_diff(before.get(agent, text), text, agent) for agent, text in after.items())
    return "\n".join(diff for diff in diffs if diff)


def agent_texts(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the texts of the agents' files of a workflow, by agent."""
    prefix = paths.AGENTS_PREFIX
    return {
        name.removeprefix(prefix).removesuffix(".md"): data.decode("utf-8-sig")
        for name, data in files.items()
        if name.startswith(prefix)
    }
