"""Checks a whole workflow before anybody is asked: its files, templates, conditions, contracts, models and store.

Nothing of it is run: modules and programs are looked for, and templates are compiled.
"""

from __future__ import annotations

import ast
import shlex
import shutil
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haytham.agents.base import Task, find_modules, load_agent, model_kind
from haytham.config.agent_spec import INHERIT, contract_line, inspect_agent, read_agent
from haytham.config.workflow import AGENTS, CONTRACTS, agent_file, read_text
from haytham.contracts import load_contract
from haytham.errors import HaythamError, InvalidArgument, InvalidDocument, NotFound, Problem
from haytham.sandbox import inspect, inspect_condition
from haytham.storage.factory import check_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from importlib.machinery import ModuleSpec

    from haytham.config.agent_spec import AgentSpec
    from haytham.config.workflow import Phase, Workflow, WorkflowFiles
    from haytham.sandbox import Names

_OF_TASK = [*(one.name for one in fields(Task)), "parts", "digest"]
_BODY_NAMES: Names = {"task": dict.fromkeys(_OF_TASK), "idea": None, "phase": None, "contract": None}
_OF_PHASE = ("status", "approved")


def check_workflow(source: WorkflowFiles, *, replayed: bool = False) -> None:
    """Refuse a workflow that could not run to its end here: InvalidDocument with every fault, its file and line.

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
        yield from _store_problems(workflow)
        for at, phase in enumerate(workflow.phases):
            yield from _condition_problems(workflow, at, phase)
    for name in _names(source, AGENTS, ".md"):
        yield from _collected(partial(_agent_problems, name, source, is_used=name in names, replayed=replayed))
    for name in _names(source, CONTRACTS, ".json"):
        yield from _collected(partial(_contract_problems, name, source))


def _names(source: WorkflowFiles, folder: str, ending: str) -> list[str]:
    found = [name.removeprefix(f"{folder}/") for name in source.files if name.startswith(f"{folder}/")]
    return [name.removesuffix(ending) for name in found]


def _collected(look: Callable[[], Iterable[Problem]]) -> list[Problem]:
    try:
        return list(look())
    except InvalidDocument as error:
        return list(error.problems)
    except InvalidArgument as error:
        return [Problem(str(error), file=CONTRACTS)]


def _store_problems(workflow: Workflow) -> Iterator[Problem]:
    """Whether the history can be opened, as far as that is seen without opening it."""
    kind, path = workflow.policy.storage_type, ("checkpointing", "storage_type")
    place: dict[str, Any] = {"label": ".".join(path), "file": workflow.file}
    try:
        check_type(kind)
    except HaythamError as error:
        yield Problem(str(error), workflow.lines.get(path, 1), **place)
        return
    fault = _fault_of_name(kind) if ":" in kind else None
    if fault is not None and workflow.policy.enabled:
        yield Problem(f"found {kind!r}; {fault}", workflow.lines.get(path, 1), **place)


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
            load_contract(spec.contract, source.files)
        except NotFound as error:
            yield Problem(str(error), contract_line(name, text), label="haytham.contract", file=file)
    if not spec.is_foreign:
        for fault in inspect(spec.body, _BODY_NAMES):
            yield Problem(fault.message, spec.body_line + fault.line - 1, file=file)
    if not replayed:
        yield from _model_problems(spec, file)


def _contract_problems(name: str, source: WorkflowFiles) -> list[Problem]:
    load_contract(name, source.files)
    return []


def _model_problems(spec: AgentSpec, file: str) -> list[Problem]:
    """What keeps every model of an agent from answering; one that can is enough, as they are tried in order."""
    faults = [_fault_of_model(model) for model in spec.models if model != INHERIT]
    if INHERIT in spec.models or None in faults:
        return []
    named = zip(spec.models, faults, strict=True)
    return [Problem(f"found {model!r}; {fault}", label="model", file=file) for model, fault in named]


def _fault_of_model(model: str) -> str | None:
    """Why a model cannot answer here; None where nothing speaks against it."""
    kind, rest = model_kind(model), model.partition(":")[2]
    if kind == "python":
        return _fault_of_name(rest)
    if kind == "command":
        return _fault_of_command(rest)
    if kind == "llm":
        return None if _find_module("pydantic_ai") else "it needs: pip install 'haytham[llm]'"
    try:
        _ = kind == "installed" or load_agent(model)
    except HaythamError as error:
        return str(error)
    return None


def _fault_of_command(command: str) -> str | None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        return f"the command cannot be split into words: {str(error).lower()}"
    if not words or not words[0]:
        return "allowed: command:PROGRAM ARGUMENTS"
    return None if shutil.which(words[0]) else f"there is no program {words[0]!r} here that can be run"


def _fault_of_name(target: str) -> str | None:
    """Why `module:name` cannot be imported; found without importing it, which would run it."""
    module, _, name = target.partition(":")
    if not name:
        return "allowed: module:function"
    if module in sys.modules:
        return None if hasattr(sys.modules[module], name) else f"module {module} has no {name}"
    spec = _find_module(module)
    if spec is None:
        return f"there is no module {module} here"
    if not spec.origin or not spec.origin.endswith(".py"):
        return None
    try:
        tree = ast.parse(Path(spec.origin).read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        return f"module {module} cannot be read: {error}"
    return None if _may_define(tree, name) else f"module {module} has no {name}"


def _find_module(module: str) -> ModuleSpec | None:
    """The module of a name; packages around it are not imported either."""
    specs = find_modules(module)
    return specs[-1] if len(specs) == len(module.split(".")) else None


def _may_define(tree: ast.Module, name: str) -> bool:
    """Whether a module may have a name: it binds it somewhere outside of functions, or takes names from elsewhere."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name in (name, "__getattr__"):
                return True
            continue
        if isinstance(node, ast.alias) and (node.asname or node.name).partition(".")[0] in (name, "*"):
            return True
        if isinstance(node, ast.Name) and node.id in (name, "globals", "exec", "setattr"):
            return True
        waiting += ast.iter_child_nodes(node)
    return False
