"""Check a whole workflow before any agent is called: its files, templates, conditions, contracts, models and store.

Nothing of it is run: modules and programs are looked up, and templates are compiled.
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from haytham.agents.base import Task
from haytham.agents.registry import declared_models, find_fault, import_fault, unknown_agents
from haytham.config.agent_spec import INHERIT, contract_line, inspect_agent, read_agent
from haytham.config.wording import USUAL, Wording
from haytham.config.workflow import AGENTS, CONTRACTS, agent_file, read_text
from haytham.contracts import load_contract
from haytham.engine import hooks
from haytham.errors import HaythamError, InvalidArgument, InvalidDocument, NotFound, Problem
from haytham.memory.factory import check_note_store
from haytham.sandbox import inspect, inspect_condition
from haytham.storage.factory import check_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from haytham.config.agent_spec import AgentSpec
    from haytham.config.workflow import Phase, Workflow, WorkflowFiles
    from haytham.sandbox import Names

_OF_TASK = [*(field.name for field in fields(Task)), "parts", "digest"]
_BODY_NAMES: Names = {"task": dict.fromkeys(_OF_TASK), "idea": None, "phase": None, "contract": None}
_BODY_NAMES |= {"memory": None, "preferences": None, "subject": None, "currency": None}
_OF_PHASE = ("status", "approved")


def check_workflow(source: WorkflowFiles, *, replayed: bool = False) -> None:
    """Raise InvalidDocument, with every fault, for a workflow that could not run to its end here.

    With `replayed`, recorded replies answer for all agents, so that their own models are not needed.
    """
    problems = list(dict.fromkeys(_problems(source, replayed=replayed)))
    if problems:
        raise InvalidDocument(problems)


def _problems(source: WorkflowFiles, *, replayed: bool) -> Iterator[Problem]:
    names = _names(source, AGENTS, ".md")
    try:
        workflow = source.workflow
    except InvalidDocument as error:
        yield from error.problems
    else:
        names = list(dict.fromkeys(agent for phase in workflow.phases for agent in phase.agents))
        yield from unknown_agents(source)
        yield from _store_problems(workflow)
        yield from _memory_problems(workflow)
        yield from _hook_problems(workflow, source)
        for at, phase in enumerate(workflow.phases):
            yield from _condition_problems(workflow, at, phase)
    for name in _names(source, AGENTS, ".md"):
        yield from _collected(partial(_agent_problems, name, source, is_used=name in names, replayed=replayed))
    for name in _names(source, CONTRACTS, ".json"):
        yield from _collected(partial(_contract_problems, name, source))


def _names(source: WorkflowFiles, folder: str, ending: str) -> list[str]:
    paths = [name.removeprefix(f"{folder}/") for name in source.files if name.startswith(f"{folder}/")]
    return [name.removesuffix(ending) for name in paths]


def _collected(look: Callable[[], Iterable[Problem]]) -> list[Problem]:
    try:
        return list(look())
    except InvalidDocument as error:
        return list(error.problems)
    except InvalidArgument as error:
        return [Problem(str(error), file=CONTRACTS)]


def _store_problems(workflow: Workflow) -> Iterator[Problem]:
    """Yield a problem if the history's store is unknown or cannot be imported."""
    policy = workflow.policy
    path = (workflow.snapshots_key, "storage_type")
    yield from _named_problems(workflow, path, policy.storage_type, check_type, is_used=policy.enabled)


def _memory_problems(workflow: Workflow) -> Iterator[Problem]:
    """Yield a problem if the store of notes is unknown or cannot be imported."""
    policy = workflow.memory
    yield from _named_problems(workflow, ("memory", "store"), policy.store, check_note_store, is_used=policy.enabled)


def _named_problems(
    workflow: Workflow, path: tuple[str, str], kind: str, check: Callable[[str], None], *, is_used: bool
) -> Iterator[Problem]:
    location: dict[str, Any] = {"label": ".".join(path), "file": workflow.file}
    try:
        check(kind)
    except HaythamError as error:
        yield Problem(str(error), workflow.lines.get(path, 1), **location)
        return
    fault = import_fault(kind) if ":" in kind else None
    if fault is not None and is_used:
        yield Problem(f"found {kind!r}; {fault}", workflow.lines.get(path, 1), **location)


def _hook_problems(workflow: Workflow, source: WorkflowFiles) -> Iterator[Problem]:
    """Yield a problem for each hook whose program is not found."""
    for at, hook in enumerate(workflow.hooks):
        fault = hooks.find_fault(hook, source.files)
        if fault is not None:
            line = workflow.lines.get(("hooks", at, "run"), 1)
            yield Problem(fault, line, label=f"hooks[{at}].run", file=workflow.file)


def _condition_problems(workflow: Workflow, at: int, phase: Phase) -> Iterator[Problem]:
    if phase.when is None:
        return
    known: Names = {"phases": {earlier.slug: dict.fromkeys(_OF_PHASE) for earlier in workflow.phases[:at]}}
    for fault in inspect_condition(phase.when, known):
        yield Problem(fault.message, phase.when_line, label=f"phases[{at}].when", file=workflow.file)


def _agent_problems(name: str, source: WorkflowFiles, *, is_used: bool, replayed: bool) -> Iterator[Problem]:
    file = agent_file(name)
    text = read_text(source.files[file], file)
    spec = read_agent(name, text)
    if not is_used:
        return
    yield from inspect_agent(name, text)
    if spec.contract is not None:
        try:
            load_contract(spec.contract, source.files, _wording(source))
        except NotFound as error:
            yield Problem(str(error), contract_line(name, text), label="haytham.contract", file=file)
    if not spec.is_foreign:
        for fault in inspect(spec.body, _BODY_NAMES):
            yield Problem(fault.message, spec.body_line + fault.line - 1, file=file)
    if not replayed and name not in source.callables:
        yield from _model_problems(spec, file)


def _contract_problems(name: str, source: WorkflowFiles) -> list[Problem]:
    load_contract(name, source.files, _wording(source))
    return []


def _wording(source: WorkflowFiles) -> Wording:
    """Return the words of a workflow; the usual ones if it cannot be read, which is reported elsewhere."""
    try:
        return source.workflow.wording
    except InvalidDocument:
        return USUAL


def _model_problems(spec: AgentSpec, file: str) -> list[Problem]:
    """Return a problem for each model of an agent if none of them can answer."""
    models = declared_models(spec)
    faults = [find_fault(model) for model in models if model != INHERIT]
    if INHERIT in models or None in faults:
        return []
    named = zip(models, faults, strict=True)
    return [Problem(f"found {model!r}; {fault}", label="model", file=file) for model, fault in named]
