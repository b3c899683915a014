"""The results of a run, of a phase and of an agent; and what an output says of a reply or a failure. Values only."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from haytham import clock
from haytham.errors import ContractViolation, InvalidArgument, InvalidDocument, describe_error
from haytham.redact import redact, redact_values_in
from haytham.session.derived import execution_mode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.agents.base import Reply
    from haytham.config.workflow import Phase
    from haytham.engine.invoke import CallResult
    from haytham.session.models import AgentOutput
    from haytham.session.view import SessionView

Status = Literal["completed", "waiting", "rejected", "failed", "paused"]
AgentOutcome = Literal["done", "failed", "refused", "unwritten"]


@dataclass(frozen=True)
class RunResult:
    """How a run ended: completed, or at which phase it waits, was rejected, failed or paused, and at which agents."""

    status: Status
    phase: int | None = None
    reason: str = ""
    agents: tuple[str, ...] = ()


@dataclass
class PhaseRun:
    """A phase while its agents run: when it started, the agents that are not done, and the outcomes of the others.

    `retries` is how often failed agents ran again in this attempt; `is_mendable` whether that may help once more.
    """

    phase: Phase
    started: str
    begun: float
    waiting: set[str]
    retries: int = 0
    outcomes: dict[str, AgentOutcome] = field(default_factory=dict)
    status: str | None = None
    is_mendable: bool = True

    def end(self, agent: str, outcome: AgentOutcome) -> None:
        """Record the outcome of an agent."""
        self.waiting.discard(agent)
        self.outcomes[agent] = outcome

    def named(self, outcome: AgentOutcome) -> tuple[str, ...]:
        """Return the agents with an outcome, in the order of the phase."""
        return tuple(agent for agent in self.phase.agents if self.outcomes.get(agent) == outcome)

    def is_last(self, agent: str) -> bool:
        """Return whether an agent is the last, and all others are done."""
        return self.waiting == {agent} and all(outcome == "done" for outcome in self.outcomes.values())


def without_secrets(reply: Reply, secrets: tuple[str, ...]) -> tuple[Reply, int]:
    """Return a reply without the values of secrets, and in how many places they were."""
    facts = {
        "text": reply.text,
        "state": dict(reply.state or {}),
        "tools": list(reply.tools_used),
        "model": reply.model,
    }
    hidden, count = redact_values_in(facts, secrets)
    if not count:
        return reply, 0
    state = None if reply.state is None else hidden["state"]
    tools = tuple(hidden["tools"])
    return replace(reply, text=hidden["text"], state=state, tools_used=tools, model=hidden["model"]), count


def completed_facts(answer: CallResult, reply: Reply) -> dict[str, Any]:
    """Return the facts of the output of an agent that answered."""
    return {
        "status": "completed",
        "model": reply.model,
        "input_tokens": answer.tokens("input_tokens"),
        "output_tokens": answer.tokens("output_tokens"),
        "tools_used": list(reply.tools_used),
    }


def failed_facts(answer: CallResult, error: Exception, secrets: tuple[str, ...]) -> dict[str, Any]:
    """Return the facts of the output of an agent that failed."""
    return {
        "status": "failed",
        "model": answer.model,
        "input_tokens": answer.tokens("input_tokens"),
        "output_tokens": answer.tokens("output_tokens"),
        "tools_used": None,
        "error_type": type(error).__name__,
        "error_message": redact(plain_text(describe_error(error)), secrets),
        "stack_trace": redact(plain_text("".join(traceback.format_exception(error))), secrets),
    }


def checkpoint_facts(run: PhaseRun, status: str, attempt: int, errors: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the facts of the checkpoint of a phase whose agents have run; `errors` are those of failed agents."""
    facts: dict[str, Any] = {
        "status": status,
        "started": run.started,
        "completed": clock.now() if status == "completed" else None,
        "duration": round(clock.monotonic() - run.begun, 3),
        "retry_count": attempt - 1 + run.retries,
        "execution_mode": execution_mode(run.phase),
    }
    if errors:
        facts["errors"] = [f"{name}: {message or 'failed'}" for name, message in errors.items()]
    return facts


def ledger_costs(
    view: SessionView, phase: Phase, known: Mapping[tuple[int, str], float | None]
) -> dict[str, float | None]:
    """Return the cost of each agent of a phase in this attempt: by the spend file, `known`, or the checkpoint."""
    before, attempt = view.checkpoint(phase), view.attempt(phase)
    costs = {} if before is None else {row.agent_name: row.cost for row in before.value.ledger}
    costs |= {name: cost for (number, name), cost in known.items() if number == phase.number}
    return costs | view.spending().costs(phase.number, attempt)


def ledger_rows(
    phase: Phase, outputs: Mapping[str, AgentOutput], costs: Mapping[str, float | None]
) -> list[dict[str, Any]]:
    """Return the rows of a checkpoint for the agents of a phase that have an output."""
    written = [name for name in phase.agents if name in outputs]
    return [{"agent_name": name, "status": outputs[name].status, "cost": costs.get(name)} for name in written]


def is_mendable(error: Exception) -> bool:
    """Return whether running the agent again may help: not after an error that would be the same."""
    if isinstance(error, ContractViolation):
        return not error.by_budget
    return not isinstance(error, InvalidArgument | InvalidDocument) and getattr(error, "retry", True) is True


def plain_text(text: str) -> str:
    """Return a text as it can be stored: what is no Unicode becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def is_readable(view: SessionView, phase: Phase) -> bool:
    """Return whether a phase's documents can be read, so that its checkpoint can be saved with a reply."""
    documents = [view.checkpoint(phase), *view.outputs(phase).values()]
    return not any(document.faults or document.unknown_text for document in documents if document is not None)


def count_retries(view: SessionView, phase: Phase) -> int:
    """Return how often failed agents of the present attempt ran again, by the checkpoint of an earlier run."""
    checkpoint = view.checkpoint(phase)
    return 0 if checkpoint is None else max(0, checkpoint.value.retry_count + 1 - view.attempt(phase))
