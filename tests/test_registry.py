"""Agent adapters: what each declares, and that a new one is a single module."""

from __future__ import annotations

import asyncio
from dataclasses import fields

import pytest

import haytham.agents
from haytham.agents import registry
from haytham.agents.base import Task, call_agent
from haytham.agents.registry import (
    Adapter,
    find_adapter,
    find_fault,
    is_bare_name,
    load_agent,
    own_adapters,
    runs_code,
)
from haytham.config.agent_spec import AgentSpec
from haytham.config.workflow import FILE, WorkflowFiles
from haytham.engine.preflight import check_workflow
from haytham.errors import InvalidArgument
from haytham.usage import Usage

SHOUT = """
from haytham.agents.base import Reply
from haytham.agents.registry import adapter


@adapter(is_free=True, runs_code=False, bare_name=True)
def open_agent(rest):
    async def agent(task, spec):
        return Reply(task.idea.upper() + rest)

    return agent
"""


@pytest.fixture
def shout(tmp_path, monkeypatch):
    """Put one more module into haytham/agents."""
    (tmp_path / "shout.py").write_text(SHOUT, encoding="utf-8")
    monkeypatch.setattr(haytham.agents, "__path__", [*haytham.agents.__path__, str(tmp_path)])
    registry._has_module.cache_clear()
    yield
    registry._has_module.cache_clear()


def test_an_adapter_is_one_module(shout):
    """A module in haytham/agents is an adapter by its name alone: found, declared, checked, and an agent by itself."""
    task = Task(agent="shout", agent_file="", phase=1, phase_name="One", attempt=1, idea="rain")
    assert asyncio.run(call_agent(load_agent("shout:!"), task, AgentSpec("shout"))).text == "RAIN!"
    assert (find_adapter("shout").is_free, runs_code("shout"), find_fault("shout"), is_bare_name("shout")) == (
        True,
        False,
        None,
        True,
    )
    yaml = "name: w\nphases: [{number: 1, name: A, slug: a, agents: [shout]}]\nmodes: {all: [1]}\n"
    check_workflow(WorkflowFiles("here", {FILE: yaml.encode()}))


def test_every_adapter_is_named_where_a_model_is_wrong(shout):
    """The adapters of the package are found by their modules; a new one is offered at once."""
    assert own_adapters().keys() == {"command", "human", "python", "replay", "shout", "worksheet"}
    with pytest.raises(
        InvalidArgument, match="allowed: human, shout, worksheet, command:…, python:…, replay:…, or pro"
    ):
        load_agent("nothing")


@pytest.mark.parametrize(
    ("model", "capabilities"),
    [
        ("worksheet", {"is_free", "reserves", "bare_name"}),
        ("human", {"is_free", "reserves", "bare_name"}),
        ("replay:x", {"is_free", "reserves"}),
        ("python:a:b", {"runs_code"}),
        ("command:x", {"runs_code", "streams"}),
        ("openai:gpt-4o", {"reserves", "streams"}),
    ],
)
def test_every_adapter_declares_what_it_can_do(model, capabilities):
    """Free of charge, reserved, code of this machine, shown while it is written, a name by itself."""
    found = find_adapter(model)
    switches = {field.name for field in fields(Adapter) if field.type == "bool"}
    assert {name for name in switches if getattr(found, name)} == capabilities


@pytest.mark.parametrize("word", ["base", "prompt", "registry", "llm", "worksheet_fill", "nothing", "..", "", "human:"])
def test_a_module_that_is_no_adapter_is_no_name(word):
    """Other modules of the package, and words that name none, are no agents."""
    assert not is_bare_name(word)


def test_an_estimate_follows_from_what_is_declared():
    """A free call takes nothing; one that is not reserved has no known cost; else prompt and answer count."""
    opened = load_agent
    assert Adapter(opened, is_free=True).estimate("m", "prompt", 9) == Usage()
    assert Adapter(opened, reserves=False).estimate("m", "prompt", 9) == Usage(cost=None)
    assert Adapter(opened).estimate("m", "", 9).tokens >= 9
    assert Adapter(opened, price=lambda *given: Usage(1, 2.0)).estimate("m", "prompt", 9) == Usage(1, 2.0)
