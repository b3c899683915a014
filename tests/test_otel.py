"""Spans of OpenTelemetry: one for the run of a session, for each phase and each agent."""

from __future__ import annotations

import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from haytham import Phase, Reply, Workflow, Workspace
from haytham.errors import HaythamError, InvalidRequest
from haytham.otel import instrument


async def market(task):
    """Answer, and say what that took."""
    return Reply("# Market", model="m", input_tokens=3, output_tokens=4, cost=0.25)


async def fail(task):
    """Fail for good."""
    raise ValueError("no such market")


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter):
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    yield made
    made.shutdown()


def start(folder, provider, *agents, **more):
    """A session with a phase of these agents, which makes spans."""
    workspace = Workspace(folder / "projects")
    instrument(workspace, provider)
    phases = [Phase("Market", agents=list(agents), **more)]
    return workspace.start("Barrels", user="ann", name="rain", workflow=Workflow("offer", phases=phases))


def spans(exporter):
    """The spans that have ended, by name."""
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_run_has_spans_of_session_phase_and_agent(tmp_path, exporter, provider):
    """Each is a child of the one around it, with the attributes of the conventions."""
    session = start(tmp_path, provider, market)
    session.run()
    made = spans(exporter)
    run, phase, agent = made["invoke_workflow rain"], made["phase 1 Market"], made["invoke_agent market"]
    assert len(made) == 3
    assert (run.parent, phase.parent.span_id, agent.parent.span_id) == (
        None, run.context.span_id, phase.context.span_id
    )  # fmt: skip
    assert {key: value for key, value in agent.attributes.items() if key.startswith("gen_ai.")} == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "market",
        "gen_ai.provider.name": "python",
        "gen_ai.request.model": agent.attributes["gen_ai.request.model"],
        "gen_ai.conversation.id": session.session_id,
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 4,
    }
    assert agent.attributes["haytham.cost"] == 0.25
    assert run.attributes["gen_ai.operation.name"] == "invoke_workflow"
    assert (run.attributes["haytham.run.status"], agent.status.status_code) == ("waiting", StatusCode.OK)


def test_an_agent_that_fails_has_a_span_with_its_error(tmp_path, exporter, provider):
    """So has the phase, and the run; the error of each try is an event of the agent's span."""
    start(tmp_path, provider, fail).run()
    made = spans(exporter)
    assert {span.status.status_code for span in made.values()} == {StatusCode.ERROR}
    agent = made["invoke_agent fail"]
    assert "no such market" in agent.status.description
    assert {event.name for event in agent.events} == {"exception"}
    assert made["invoke_workflow rain"].attributes["haytham.run.status"] == "failed"


def test_a_run_without_agents_has_no_span(tmp_path, exporter, provider):
    """A second `run` at an open gate calls nobody."""
    session = start(tmp_path, provider, market)
    session.run()
    exporter.clear()
    session.run()
    session.approve()
    assert exporter.get_finished_spans() == ()


def test_agents_side_by_side_have_a_span_each(tmp_path, exporter, provider):
    """Both belong to the phase."""

    async def price(task):
        return "# Price"

    start(tmp_path, provider, market, price).run()
    made = spans(exporter)
    parents = {made[f"invoke_agent {name}"].parent.span_id for name in ("market", "price")}
    assert parents == {made["phase 1 Market"].context.span_id}


def test_spans_are_made_where_the_environment_asks_for_them(tmp_path, monkeypatch):
    """HAYTHAM_OTEL is 1 or 0; anything else is refused."""
    asked = []
    monkeypatch.setattr("haytham.app.workspace.instrument", asked.append)
    for value in ("1", "true", "0", "", "off"):
        monkeypatch.setenv("HAYTHAM_OTEL", value)
        Workspace(tmp_path)
    assert len(asked) == 2
    monkeypatch.setenv("HAYTHAM_OTEL", "maybe")
    with pytest.raises(InvalidRequest, match="HAYTHAM_OTEL is 'maybe'; allowed: 1 or 0"):
        Workspace(tmp_path)


def test_without_the_extra_the_error_names_it(tmp_path, monkeypatch):
    """Whoever asks for spans learns what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(HaythamError, match=r"pip install 'haytham\[otel\]'"):
        instrument(Workspace(tmp_path))
