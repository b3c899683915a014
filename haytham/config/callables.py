"""Agents that are Python callables: their names, their references, and the files that record them.

A callable is recorded as `python:<module>:<qualified name>` with a digest of its source, so that changed code is a
changed workflow. A reference that no import can resolve is marked, and only runs where the callable itself is passed.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from functools import partial, reduce
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Callable

    AgentFunction = Callable[[Any], Any]  # takes a Task; returns or awaits a Reply or text

_UNWANTED = re.compile(r"[^a-z0-9_-]+")
_BY_OBJECT = "<object>"  # a method of an object, a partial: no name in a module leads to it
_MAIN = "__main__"
_LONGEST_NAME = 64


def agent_name(function: AgentFunction) -> str:
    """Return the name of the agent that a callable is: its own name, in small letters."""
    return _UNWANTED.sub("_", str(_unbound(function).__name__).lower()).strip("_-")[:_LONGEST_NAME] or "agent"


def agent_reference(function: AgentFunction) -> str:
    """Return `module:qualified name` of a callable; with a mark that no import resolves if it leads elsewhere."""
    named = _unbound(function)
    module, name = getattr(named, "__module__", None) or _MAIN, _own_name(named)
    is_named = "<" not in name and (module == _MAIN or _resolve(module, name) is function)
    return f"{module}:{name}" if is_named or "<" in name else f"{module}:{name}.{_BY_OBJECT}"


def is_importable(reference: str) -> bool:
    """Return whether an import could resolve `module:qualified name`: not a script's, and not a local function's."""
    module, _, name = reference.partition(":")
    return module != _MAIN and "<" not in name


def agent_file_text(function: AgentFunction) -> str:
    """Return the agent's file that records a callable: what it is, and the digest of its source."""
    summary = (inspect.getdoc(_unbound(function)) or "").partition("\n")[0]
    description = (
        [f"description: {json.dumps(summary, ensure_ascii=False)}"] if summary and summary.isprintable() else []
    )
    model = json.dumps(f"python:{agent_reference(function)}", ensure_ascii=False)
    lines = ["---", *description, f"model: {model}", "haytham:", f"  source: {source_digest(function)}", "---", ""]
    return "\n".join(lines)


def source_digest(function: AgentFunction) -> str:
    """Return the digest of a callable's source; of its reference where there is no source, as for a builtin."""
    try:
        source = dedent(inspect.getsource(_unbound(function)))
    except (OSError, TypeError):
        source = agent_reference(function)
    return text_digest(source)


def _unbound(function: AgentFunction) -> Any:
    """Return what has a name and source: the function of a partial or a method, or the class of an object."""
    while isinstance(function, partial):
        function = function.func
    if inspect.ismethod(function):
        return function.__func__
    return function if hasattr(function, "__qualname__") else type(function)


def _own_name(named: Any) -> str:
    return str(getattr(named, "__qualname__", type(named).__qualname__))


def _resolve(module: str, name: str) -> object:
    try:
        return reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return None
