"""Spans of OpenTelemetry for sessions, phases and agents, made of events; needs the extra `haytham[otel]`.

Names and attributes are those of the semantic conventions for generative AI, as far as they have one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haytham.errors import MissingExtra
from haytham.handlers import EVERY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.trace import Span, Tracer, TracerProvider

    from haytham.events import Event, EventSource

_SCOPE = "haytham"
_ENDS_AGENT = ("agent_completed", "person_asked", "budget_exceeded", "reply_not_stored")
_ENDS_PHASE = ("phase_completed", "phase_failed", "phase_waiting")
_FAILURES = ("failed", "error")


def instrument(source: EventSource, tracer_provider: TracerProvider | None = None) -> None:
    """Make spans of the events of a workspace, a session or a run, with the global provider unless one is given."""
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtra("OpenTelemetry", "otel") from None
    tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
    source.on(EVERY, SpanWriter(tracer), timeout=None)


@dataclass
class _SessionSpans:
    """The open spans of a session's run: its own, those of its phases, and those of agents by phase and name.

    `errors` has the last error of agents that have not answered since.
    """

    run: Span
    phases: dict[int, Span] = field(default_factory=dict)
    agents: dict[tuple[int, str], Span] = field(default_factory=dict)
    errors: dict[tuple[int, str], str] = field(default_factory=dict)

    def open(self) -> Iterator[Span]:
        """Yield the open spans, the inner ones first."""
        yield from (*self.agents.values(), *self.phases.values(), self.run)


class SpanWriter:
    """A handler of all events that starts and ends spans."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._sessions: dict[tuple[str, str], _SessionSpans] = {}

    def __call__(self, event: Event) -> None:
        """Start or end the span that an event is about."""
        key = (event.project, event.session)
        if event.name == "run_ended":
            self._end_run(self._sessions.pop(key, None), event)
        elif event.name in ("phase_started", "agent_started"):
            spans = self._sessions.get(key) or self._sessions.setdefault(key, self._start_run(event))
            start = self._start_phase if event.name == "phase_started" else self._start_agent
            start(spans, event)
        elif key in self._sessions:
            self._note(self._sessions[key], event)

    def _start_run(self, event: Event) -> _SessionSpans:
        attributes = _attributes("invoke_workflow", event) | {"gen_ai.workflow.name": event.project}
        return _SessionSpans(self._tracer.start_span(f"invoke_workflow {event.project}", attributes=attributes))

    def _start_phase(self, spans: _SessionSpans, event: Event) -> None:
        number = event.facts["phase"]
        attributes = _attributes(None, event) | {"haytham.phase.name": event.facts["name"]}
        spans.phases[number] = self._start(f"phase {number} {event.facts['name']}", spans.run, attributes)

    def _start_agent(self, spans: _SessionSpans, event: Event) -> None:
        """Start the span of an agent; one that is asked again goes on with the same."""
        number, agent = event.facts["phase"], event.facts["agent"]
        span = spans.agents.get((number, agent))
        if span is None:
            attributes = _attributes("invoke_agent", event) | {"gen_ai.agent.name": agent}
            parent = spans.phases.get(number, spans.run)
            span = spans.agents[number, agent] = self._start(f"invoke_agent {agent}", parent, attributes)
        provider, _, model = event.facts["model"].partition(":")
        span.set_attributes({"gen_ai.provider.name": provider, "gen_ai.request.model": model or provider})

    def _start(self, name: str, parent: Span, attributes: dict[str, Any]) -> Span:
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415

        return self._tracer.start_span(name, context=set_span_in_context(parent), attributes=attributes)

    def _note(self, spans: _SessionSpans, event: Event) -> None:
        """End a span, or add to it what happened."""
        number = event.facts.get("phase")
        agent = (number or 0, str(event.facts.get("agent")))
        if event.name == "agent_failed" and agent in spans.agents:
            spans.errors[agent] = str(event.facts["error"])
            spans.agents[agent].add_event("exception", {"exception.message": spans.errors[agent]})
        elif event.name in _ENDS_AGENT and agent in spans.agents:
            _end_agent(spans.agents.pop(agent), event)
        elif event.name in _ENDS_PHASE and number is not None and number in spans.phases:
            self._end_phase(spans, number, event)

    def _end_phase(self, spans: _SessionSpans, number: int, event: Event) -> None:
        for key in [key for key in spans.agents if key[0] == number]:
            _mark_failed(spans.agents[key], spans.errors.pop(key, "it did not answer"))
            spans.agents.pop(key).end()
        span = spans.phases.pop(number)
        if event.name == "phase_failed":
            _mark_failed(span, "an agent has failed")
        span.end()

    def _end_run(self, spans: _SessionSpans | None, event: Event) -> None:
        if spans is None:
            return
        spans.run.set_attribute("haytham.run.status", event.facts["status"])
        if event.facts["status"] in _FAILURES:
            _mark_failed(spans.run, f"the run ended: {event.facts['status']}")
        for span in spans.open():
            span.end()


def _attributes(operation: str | None, event: Event) -> dict[str, Any]:
    """Return what each span says: its operation, and the session, which is the conversation."""
    named = {} if operation is None else {"gen_ai.operation.name": operation}
    phase = {"haytham.phase.number": event.facts["phase"]} if operation != "invoke_workflow" else {}
    return {**named, "gen_ai.conversation.id": event.session, "haytham.project": event.project, **phase}


def _end_agent(span: Span, event: Event) -> None:
    """End the span of an agent, with what it used as far as that is known."""
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415

    names = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
    for name, count in zip(names, event.facts.get("tokens") or (), strict=False):
        if count is not None:
            span.set_attribute(name, count)
    if event.facts.get("cost") is not None:
        span.set_attribute("haytham.cost", event.facts["cost"])
    if event.name == "agent_completed":
        span.set_status(Status(StatusCode.OK))
    elif event.name != "person_asked":
        _mark_failed(span, str(event.facts.get("why", "")))
    span.end()


def _mark_failed(span: Span, why: str) -> None:
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415

    span.set_attribute("error.type", "_OTHER")
    span.set_status(Status(StatusCode.ERROR, why))
