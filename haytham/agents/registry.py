"""Find the adapter and the agent of a model string, and what the adapter declares about its agents.

An adapter is one module: `haytham/agents/<kind>.py` with an `open_agent` that `@adapter(…)` declares, or the same in
another package, registered as an entry point of the group `haytham.agents`. Any other `provider:model` is a language
model. Nothing is imported before a model string names it.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from haytham.config.agent_spec import INHERIT
from haytham.errors import HaythamError, InvalidArgument, InvalidDocument, Problem
from haytham.usage import Usage, estimated_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from importlib.metadata import EntryPoint

    from haytham.agents.base import Agent
    from haytham.config.agent_spec import AgentSpec
    from haytham.config.workflow import WorkflowFiles

DEFAULT_MODEL = "worksheet"
ENTRY_POINTS = "haytham.agents"
_PACKAGE = "haytham.agents"
_PROVIDERS = "llm"  # the module for every kind that is neither ours nor registered


@dataclass(frozen=True)
class Adapter:
    """Opens the agents of one kind, and declares what they can do.

    - `is_free`: a call costs nothing and is not counted.
    - `reserves`: the estimate of a call is reserved before it is made; without it only what the reply reports counts.
    - `runs_code`: an agent runs code on this machine, which needs trust.
    - `streams`: an agent can show its text while it is written.
    - `bare_name`: the kind alone is a whole model string and, in a workflow, an agent that needs no file.
    - `price`: returns the estimate of a call from model, prompt and the most output tokens.
    - `find_fault`: returns why an agent cannot answer here, without running it; by default it is opened.
    """

    open: Callable[[str], Agent]
    is_free: bool = False
    reserves: bool = True
    runs_code: bool = True
    streams: bool = False
    bare_name: bool = False
    price: Callable[[str, str, int], Usage] | None = None
    find_fault: Callable[[str], str | None] | None = None

    def __call__(self, rest: str) -> Agent:
        """Open the agent that the text after the colon names."""
        return self.open(rest)

    def estimate(self, model: str, prompt: str, max_output_tokens: int) -> Usage:
        """Return what a call may take; it is reserved before the call is made."""
        if self.is_free:
            return Usage()
        if not self.reserves:
            return Usage(cost=None)
        if self.price is not None:
            return self.price(model, prompt, max_output_tokens)
        return Usage(estimated_tokens(prompt) + max_output_tokens, None)


def adapter(  # noqa: PLR0913 - one argument for each capability
    *,
    is_free: bool = False,
    reserves: bool = True,
    runs_code: bool = True,
    streams: bool = False,
    bare_name: bool = False,
    price: Callable[[str, str, int], Usage] | None = None,
    find_fault: Callable[[str], str | None] | None = None,
) -> Callable[[Callable[[str], Agent]], Adapter]:
    """Declare the capabilities of the agents that a function opens."""
    return lambda opener: Adapter(
        opener,
        is_free=is_free,
        reserves=reserves,
        runs_code=runs_code,
        streams=streams,
        bare_name=bare_name,
        price=price,
        find_fault=find_fault,
    )


def find_adapter(model: str) -> Adapter:
    """Return the adapter for a model string; one of another package that declares nothing has the defaults."""
    kind = model.partition(":")[0]
    own = _own_adapter(kind)
    if own is not None:
        return own
    entry_point = _entry_point(kind)
    if entry_point is None:
        return _module_adapter(_PROVIDERS)
    opener = entry_point.load()
    return opener if isinstance(opener, Adapter) else Adapter(opener)


def load_agent(model: str) -> Agent:
    """Return the agent that a model string names."""
    check_form(model)
    kind, _, rest = model.partition(":")
    return find_adapter(model)(rest if _is_named(kind) else model)


def check_form(model: str) -> None:
    """Raise InvalidArgument for what is no model string; nothing is imported to find out."""
    kind, _, rest = model.partition(":")
    if not (_is_named(kind) or (kind and rest)):
        raise InvalidArgument("model", model, f"{', '.join(_model_forms())}, or provider:model")


def find_fault(model: str) -> str | None:
    """Return why a model cannot answer here, or None. Code of the workflow and of other packages is not run."""
    kind, _, rest = model.partition(":")
    own = _own_adapter(kind)
    if own is None and _entry_point(kind) is not None:
        return None
    chosen = own or _module_adapter(_PROVIDERS)
    try:
        if chosen.find_fault is not None:
            return chosen.find_fault(model if own is None else rest)
        load_agent(model)
    except HaythamError as error:
        return str(error)
    return None


def runs_code(model: str) -> bool:
    """Return whether a model string names code that would run on this machine, which needs trust.

    An adapter of another package is such code itself: it is not imported to find out.
    """
    kind = model.partition(":")[0]
    own = _own_adapter(kind)
    return _entry_point(kind) is not None if own is None else own.runs_code


def is_bare_name(word: str) -> bool:
    """Return whether a word alone names an adapter of ours, like `worksheet` and `human`."""
    own = _own_adapter(word)
    return own is not None and own.bare_name


def declared_models(spec: AgentSpec) -> tuple[str, ...]:
    """Return the models that an agent's file names; `inherit` for the default and for a word of another tool."""
    models = spec.models or (INHERIT,)
    return tuple(model if ":" in model or is_bare_name(model) else INHERIT for model in models)


def resolve_models(spec: AgentSpec, default: str | None) -> list[str]:
    """Return the models that answer for an agent, in the order they are tried, each once."""
    usual = default or DEFAULT_MODEL
    return list(dict.fromkeys(usual if model == INHERIT else model for model in declared_models(spec)))


def unknown_agents(source: WorkflowFiles) -> list[Problem]:
    """Return a problem for each agent of a workflow that has no file and is no adapter's bare name."""
    return [
        Problem(f"agent {name}: no file agents/{name}.md", file=source.workflow.file)
        for name in source.bare_agents
        if not is_bare_name(name)
    ]


def require_agents(source: WorkflowFiles) -> None:
    """Raise InvalidDocument if an agent of a workflow has no file and is no adapter's bare name."""
    problems = unknown_agents(source)
    if problems:
        raise InvalidDocument(problems)


def own_adapters() -> dict[str, Adapter]:
    """Return every adapter in this package by its kind; each module is imported."""
    kinds = sorted(module.name for module in iter_modules(import_module(_PACKAGE).__path__))
    return {kind: opener for kind in kinds if (opener := _own_adapter(kind)) is not None}


def _model_forms() -> list[str]:
    adapters = own_adapters()
    bare = [kind for kind, opener in adapters.items() if opener.bare_name]
    return [*bare, *(f"{kind}:…" for kind in adapters if kind not in bare)]


def _is_named(kind: str) -> bool:
    return _own_adapter(kind) is not None or _entry_point(kind) is not None


def _own_adapter(kind: str) -> Adapter | None:
    """Return the adapter in the module of this package that has the kind's name, or None."""
    if kind == _PROVIDERS or not kind.isidentifier() or not _has_module(kind):
        return None
    module = import_module(f"{_PACKAGE}.{kind}")
    opener = getattr(module, "open_agent", None)
    return opener if isinstance(opener, Adapter) else None


@lru_cache(maxsize=256)
def _has_module(kind: str) -> bool:
    return find_spec(f"{_PACKAGE}.{kind}") is not None


def _module_adapter(name: str) -> Adapter:
    opener: Adapter = import_module(f"{_PACKAGE}.{name}").open_agent
    return opener


def _entry_point(kind: str) -> EntryPoint | None:
    """Return what another package registers for a kind of agent, without importing it."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and only for kinds that are not ours

    return next(iter(entry_points(group=ENTRY_POINTS, name=kind)), None)


def find_modules(module: str, *, then: Sequence[str] = ()) -> list[ModuleSpec]:
    """Find a module and the packages around it, as far as they exist, without importing any.

    `then` are folders to search where Python itself finds nothing.
    """
    specs: list[ModuleSpec] = []
    for name in module.split("."):
        folders = specs[-1].submodule_search_locations if specs else ()
        if not name.isidentifier() or folders is None:
            break
        spec = PathFinder.find_spec(name, list(folders)) if specs else _find_top_module(name, then)
        if spec is None:
            break
        specs.append(spec)
    return specs


def _find_top_module(name: str, then: Sequence[str]) -> ModuleSpec | None:
    finders = (finder.find_spec for finder in sys.meta_path if hasattr(finder, "find_spec"))
    spec = next((spec for find in finders if (spec := find(name, None)) is not None), None)
    return spec or PathFinder.find_spec(name, then)


def find_module(module: str, *, then: Sequence[str] = ()) -> ModuleSpec | None:
    """Find a module without importing it or the packages around it; `then` are folders to search after Python's."""
    specs = find_modules(module, then=then)
    return specs[-1] if len(specs) == len(module.split(".")) else None


def import_fault(target: str) -> str | None:
    """Return why `module:name` cannot be imported, or None; the module is read, never run."""
    module, _, name = target.partition(":")
    name = name.partition(".")[0]
    if not name:
        return "allowed: module:function"
    if module in sys.modules:
        return None if hasattr(sys.modules[module], name) else f"module {module} has no {name}"
    spec = find_module(module, then=[str(Path.cwd())])
    if spec is None:
        return f"module {module} not found"
    if not spec.origin or not spec.origin.endswith(".py"):
        return None
    try:
        tree = ast.parse(Path(spec.origin).read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        return f"module {module} cannot be read: {error}"
    return None if _may_define(tree, name) else f"module {module} has no {name}"


def _may_define(tree: ast.Module, name: str) -> bool:
    """Return whether a module may have a name: it binds it outside of functions, or imports names it does not list."""
    nodes: list[ast.AST] = list(tree.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name in (name, "__getattr__"):
                return True
            continue
        if isinstance(node, ast.alias) and (node.asname or node.name).partition(".")[0] in (name, "*"):
            return True
        if isinstance(node, ast.Name) and node.id in (name, "globals", "exec", "setattr"):
            return True
        nodes += ast.iter_child_nodes(node)
    return False
