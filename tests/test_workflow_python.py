"""Workflows that are built in Python: phases, callables as agents, and the copy that a session keeps."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from haytham import Phase, Reply, Workflow
from haytham.agents.registry import find_fault, require_agents
from haytham.config.agent_spec import agent_name, agent_reference, is_importable, read_agent, source_digest
from haytham.config.workflow import FILE, WorkflowFiles, parse_workflow
from haytham.engine.invoke import RunOptions
from haytham.engine.preflight import check_workflow
from haytham.engine.runner import Runner
from haytham.errors import CallableNotImportable, InvalidDocument, UntrustedCode
from haytham.events import Events
from haytham.session import SessionDocuments
from haytham.session.paths import EVENTS
from haytham.session.plan import SessionPlan
from haytham.storage import MemoryStore


async def research(task):
    """Count the gardens."""
    return f"# Market\n\n{task.idea}: 14,000 gardens."


def check(task):
    """Repeat what was found."""
    return Reply(f"Checked: {task.inputs[-1].text}", model="hand")


class Method:
    """Has agents that are no names of a module."""

    def answer(self, task):
        return task.agent

    @staticmethod
    def plain(task):
        return task.agent

    def __call__(self, task):
        return task.agent


def offer(**given):
    """The workflow of the documentation, with a third phase."""
    phases = [
        Phase("Concept", agents=["worksheet"], review="none"),
        Phase("Market Size", agents=[research], needs=["Concept"], review="none"),
        Phase("Check", agents=[check], needs=["Market Size", 1], run="sequential", snapshot=False),
    ]
    return Workflow("offer", **{"phases": phases, **given})


def session_of(workflow):
    """A session in memory that runs on a workflow."""
    session = SessionDocuments(MemoryStore(), "p", "s")
    session.create(user_id="ann", source=workflow.to_files(), mode="all")
    return session


def run(session, **given):
    """Run a session until it stops."""
    events = Events(session.store, session.prefix + EVENTS)
    return asyncio.run(Runner(session, events, options=RunOptions(backoff=0, **given)).run(by="ann"))


def test_a_workflow_gives_phases_their_numbers_and_slugs():
    """Phases are numbered in order, slugs come from names, needs may be names or numbers, and one mode has all."""
    workflow = offer()
    assert [(phase.number, phase.slug, phase.needs) for phase in workflow.phases] == [
        (1, "concept", ()),
        (2, "market_size", (1,)),
        (3, "check", (1, 2)),
    ]
    assert [phase.agents for phase in workflow.phases] == [("worksheet",), ("research",), ("check",)]
    assert (workflow.modes, workflow.phases[2].run, workflow.phases[2].snapshot) == (
        {"all": (1, 2, 3)},
        "sequential",
        False,
    )


def test_numbers_slugs_modes_and_policies_can_be_given():
    """What is given stays; the numbers go on from it. Policies have the keys of workflow.yaml."""
    phases = [
        Phase("Ü", agents=["human"], number=3, slug="first"),
        Phase("Ü!", agents=["human"]),
        Phase("?", agents=["human"]),
    ]
    given = {"modes": {"short": ["?"], "long": [3, 4, "?"]}, "snapshots": {"auto": "every"}, "limits": {"max_cost": 2}}
    workflow = Workflow("w", phases=phases, **given)
    assert [(phase.number, phase.slug) for phase in workflow.phases] == [(3, "first"), (4, "u"), (5, "phase_5")]
    assert workflow.modes == {"short": (5,), "long": (3, 4, 5)}
    assert (workflow.policy.auto, workflow.limits.max_cost) == ("every", 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"phases": []}, "workflow w: phases: "),
        ({"phases": ["Concept"]}, "phases[0]: found 'Concept'; allowed: Phase(name, agents=[…])"),
        ({"phases": [Phase("A", agents=[])]}, "workflow w: phases[0].agents: "),
        ({"phases": [Phase("A", agents=[7])]}, "phases[0].agents[0]: found 7; allowed: text"),
        ({"phases": [Phase("A", agents=["B!"])]}, "phases[0].agents[0]: "),
        ({"phases": [Phase("A", agents="human", needs=["B"])]}, "phases[0].needs: found 'B'; allowed: A"),
        ({"phases": [Phase("A", agents=["human"], needs=["A"])]}, "phase 1 needs [1]; allowed: earlier phases"),
        ({"phases": [Phase("A", agents=["human"], run="fast")]}, "phases[0].run: found 'fast'; allowed: parallel, seq"),
        (
            {"phases": [Phase("A", agents=[check, "check"])]},
            "phases[0].agents: found ['check', 'check']; allowed: each",
        ),
        (
            {"phases": [Phase("A", agents=[lambda task: "a"]), Phase("B", agents=[lambda task: "b"])]},
            "phases[1].agents: found two agents called lambda; allowed: one of a name",
        ),
        ({"modes": {"all": ["B"]}}, "modes.all: found 'B'; allowed: A"),
        ({"modes": 7}, "modes: found 7; allowed: a map"),
        ({"limits": {"max_cots": 1}}, "workflow w: budget.max_cots: unknown key; did you mean max_cost?"),
        ({"snapshots": {"auto": "often"}}, "workflow w: snapshots.auto: found 'often'; allowed: phase, every, off"),
        (
            {"phases": [Phase("A", agents=["human"]), Phase("A", agents=["human"], needs=["A"])]},
            "phases[1].needs: found 'A'; allowed: the number of one of 2 phases with this name",
        ),
    ],
)
def test_a_wrong_workflow_is_refused_as_its_file_would_be(given, said):
    """A fault is one sentence with the workflow and the key; there is no line."""
    with pytest.raises(InvalidDocument) as refused:
        Workflow("w", **{"phases": [Phase("A", agents=["human"])], **given})
    assert said in str(refused.value)
    assert str(refused.value).startswith("workflow w: ")


def test_the_files_of_a_workflow_say_what_it_says():
    """The recorded workflow.yaml reads back as the same workflow, and the files have one digest."""
    workflow = offer(snapshots={"auto": "off"}, limits={"max_tokens": 10})
    source = workflow.to_files()
    assert parse_workflow(source.files[FILE], file="w").digest == workflow.digest
    assert source.workflow.phases == workflow.phases
    assert source.digest == offer(snapshots={"auto": "off"}, limits={"max_tokens": 10}).to_files().digest


def test_a_callable_is_recorded_by_its_name_and_the_digest_of_its_source():
    """The agent's file has the reference and the digest; other code with the same name is another workflow."""
    spec = read_agent("research", offer().to_files().files["agents/research.md"].decode())
    assert spec.models == (f"python:{__name__}:research",)
    assert (spec.source, spec.description) == (source_digest(research), "Count the gardens.")

    def changed(task):
        return "other"

    changed.__name__, changed.__qualname__ = "research", "research"
    other = Workflow("offer", phases=[*offer().phases[:1], Phase("Market Size", agents=[changed], needs=[1])])
    same = Workflow("offer", phases=[*offer().phases[:1], Phase("Market Size", agents=[research], needs=[1])])
    assert other.digest == same.digest
    assert other.to_files().digest != same.to_files().digest


def test_a_name_that_no_import_resolves_is_marked():
    """Functions of a module and of a class can be imported; lambdas, local functions, methods and partials cannot."""

    def local(task):
        return ""

    assert [is_importable(agent_reference(one)) for one in (research, Method.plain)] == [True, True]
    others = [lambda task: "", local, Method().answer, Method(), partial(research)]
    assert [is_importable(agent_reference(one)) for one in others] == [False] * 5
    assert [agent_name(one) for one in others] == ["lambda", "local", "answer", "method", "research"]
    assert not is_importable("__main__:research")


def test_callables_run_without_trust_because_the_caller_passed_them():
    """Sync and async callables answer; the same session without them asks for trust."""
    workflow = offer()
    session = session_of(workflow)
    with pytest.raises(UntrustedCode, match="agent research"):
        run(session)
    outcome = run(session, callables=workflow.callables)
    assert (outcome.status, outcome.phase) == ("waiting", 3)
    reading = session.read()
    texts = {name: text for phase in reading.phases for name, text in reading.texts(phase).items()}
    assert texts["research"].endswith("14,000 gardens.")
    assert texts["check"].startswith("Checked: # Market")


def test_a_callable_that_cannot_be_imported_is_refused_before_the_run():
    """Without the callable nothing starts, and the sentence says how to go on."""
    workflow = Workflow("w", phases=[Phase("A", agents=["worksheet"]), Phase("B", agents=[lambda task: "text"])])
    session = session_of(workflow)
    before = {key: session.store.read(key) for key in session.store.keys("")}
    with pytest.raises(CallableNotImportable, match=r"agent lambda is a Python callable that cannot be imported"):
        run(session)
    assert {key: session.store.read(key) for key in session.store.keys("")} == before
    assert run(session, callables=workflow.callables).status == "waiting"


def test_a_workflow_is_checked_before_it_runs():
    """Callables that are passed need no import; from the files alone a local one is a fault."""
    local = Workflow("w", phases=[Phase("A", agents=[lambda task: "text"])]).to_files()
    check_workflow(local)
    check_workflow(WorkflowFiles("python", offer().to_files().files))
    with pytest.raises(InvalidDocument, match="it is defined in a script or inside a function"):
        check_workflow(WorkflowFiles("python", local.files))
    assert find_fault("python:__main__:research") is not None


def test_changed_code_makes_outputs_stale():
    """A session that switches to the workflow with other code runs that agent again, and no other."""
    workflow = offer()
    session = session_of(workflow)
    run(session, callables=workflow.callables)

    async def research(task):
        return "15,000 gardens."

    phases = [*offer().phases[:1], Phase("Market Size", agents=[research], needs=[1], review="none")]
    phases.append(Phase("Check", agents=[check], needs=[1, 2], run="sequential", snapshot=False))
    changed = Workflow("offer", phases=phases)
    session.switch_workflow(changed.to_files())
    actions = [place.next_action.action for place in SessionPlan(session.read()).phases]
    assert actions[:2] == ["approved", "run again"]


@pytest.mark.parametrize("agents", [["worksheet"], ["human"]])
def test_an_agent_without_a_file_is_the_adapter_of_its_name(agents):
    """`agents: [worksheet]` and `agents: [human]` need no file, in YAML and in Python."""
    yaml = f"name: w\nphases:\n  - {{number: 1, name: A, slug: a, agents: {agents}}}\nmodes: {{all: [1]}}\n"
    source = WorkflowFiles("here", {FILE: yaml.encode()})
    require_agents(source)
    check_workflow(source)
    assert read_agent(agents[0], source.files[f"agents/{agents[0]}.md"].decode()).models == tuple(agents)
    assert source.digest == Workflow("w", phases=[Phase("A", agents=agents)]).to_files().digest


def test_a_name_that_is_no_adapter_is_a_fault():
    """A word that is neither a file nor an adapter is named; python and command need more than their name."""
    for name in ("worksheets", "python", "command", "replay", "base", "llm"):
        with pytest.raises(InvalidDocument, match=f"agent {name}: no file agents/{name}"):
            session_of(Workflow("w", phases=[Phase("A", agents=[name])]))
