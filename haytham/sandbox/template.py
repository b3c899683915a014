"""Render templates and evaluate conditions within limits; find their faults without doing either."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import nodes
from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser

from haytham.sandbox.environment import LimitedEnvironment
from haytham.sandbox.meter import LimitReached, Limits, metered
from haytham.sandbox.operations import FILTERS, MAP_METHODS, TESTS
from haytham.text import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from jinja2.environment import Template, TemplateExpression

Names = dict[str, "Names | None"]  # what a template may name, and of each what it may name there; None is anything
_BODY = Limits(steps=100_000, characters=10_000_000)
_CONDITION = Limits(steps=1_000, characters=100_000)
_LONGEST_MESSAGE = 300
_GUARDS = ("defined", "undefined", "default", "d")


class Fault(NamedTuple):
    """What is wrong with a template, and in which line."""

    message: str
    line: int


class TemplateFault(ValueError):
    """A template cannot be rendered. `is_template` is false if the text is not a Jinja template at all."""

    def __init__(self, message: str, line: int, *, is_template: bool) -> None:
        super().__init__(message)
        self.message, self.line, self.is_template = message, line, is_template


def render(source: str, values: Mapping[str, Any], *, show: Callable[[str], str] = str) -> str:
    """Render a template; TemplateFault if it is wrong or does more than allowed.

    Texts of values are printed as `show` returns them; a value marked as safe is printed as it is.
    """
    try:
        with metered(_BODY):
            return str(_template(source, show).render(values))
    except Exception as error:  # noqa: BLE001 - whatever a template raises is its own fault
        raise _fault(error) from None


def holds(condition: str, values: Mapping[str, Any]) -> bool:
    """Return whether an expression is true; TemplateFault if it is wrong or does more than allowed."""
    try:
        with metered(_CONDITION):
            return bool(_compiled(condition)(values))
    except Exception as error:  # noqa: BLE001 - whatever an expression raises is its own fault
        raise _fault(error) from None


def inspect(source: str, known: Names) -> list[Fault]:
    """Return the faults of a template that are visible without rendering it: syntax and unknown names."""
    try:
        with metered(_BODY):
            tree = _environment().parse(source)
            faults = _unknown_helpers(tree) or _unknown_names(tree, known)
            _ = faults or _environment().compile(source)
            return faults
    except Exception as error:  # noqa: BLE001 - whatever a template raises is its own fault
        fault = _fault(error)
        return [Fault(fault.message, fault.line)]


def inspect_condition(condition: str, known: Names) -> list[Fault]:
    """Return the faults of an expression that are visible without evaluating it."""
    try:
        with metered(_CONDITION):
            _compiled(condition)
            return _unknown_names(nodes.Template([_parsed(condition)], lineno=1), known)
    except Exception as error:  # noqa: BLE001 - whatever an expression raises is its own fault
        return [Fault(_fault(error).message, 1)]


@lru_cache(maxsize=4)
def _environment(show: Callable[[str], str] = str) -> LimitedEnvironment:
    return LimitedEnvironment(show)


@lru_cache(maxsize=64)
def _template(source: str, show: Callable[[str], str]) -> Template:
    return _environment(show).from_string(source)


@lru_cache(maxsize=256)
def _compiled(condition: str) -> TemplateExpression:
    if _parsed(condition).find(nodes.Pow) is not None:
        raise TemplateSyntaxError("** cannot be used in a condition", 1)
    return _environment().compile_expression(condition, undefined_to_none=False)


def _parsed(condition: str) -> nodes.Node:
    parser = Parser(_environment(), condition, state="variable")
    return nodes.ExprStmt(parser.parse_expression(), lineno=1)


def _fault(error: Exception) -> TemplateFault:
    if isinstance(error, LimitReached):
        return TemplateFault(str(error), _line(error), is_template=True)
    if isinstance(error, RecursionError | MemoryError) or type(error) in (SyntaxError, IndentationError):
        return TemplateFault("it is nested too deeply", 1, is_template=True)
    message = str(error).split("\n", maxsplit=1)[0][:300]
    return TemplateFault(
        f"{type(error).__name__}: {message}", _line(error), is_template=not isinstance(error, TemplateError)
    )


def _line(error: Exception) -> int:
    """Return the line of a template that an error comes from."""
    trace, line = error.__traceback__, getattr(error, "lineno", None) or 1
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return int(line)


def _unknown_names(tree: nodes.Template, known: Names) -> list[Fault]:
    tree.set_environment(_environment())
    undeclared = find_undeclared_variables(tree) - known.keys() - _guarded(tree)
    parts = tree.find_all((nodes.Getattr, nodes.Getitem))
    faults = [Fault(f"unknown name {name}; {_hint(name, known)}", _first(tree, name)) for name in undeclared]
    faults += [fault for node in parts if (fault := _unknown_part(node, known)) is not None]
    return _in_order(faults)


def _unknown_helpers(tree: nodes.Template) -> list[Fault]:
    """Return the filters and tests that do not exist."""
    faults = []
    for kind, name, known in (("filter", nodes.Filter, FILTERS), ("test", nodes.Test, TESTS)):
        used: Iterable[Any] = tree.find_all(name)
        unknown = [node for node in used if node.name not in known]
        faults += [Fault(f"unknown {kind} {node.name}; {_hint(node.name, known)}", node.lineno) for node in unknown]
    return _in_order(faults)


def _in_order(faults: Iterable[Fault]) -> list[Fault]:
    return sorted(dict.fromkeys(faults), key=lambda fault: (fault.line, fault.message))


def _guarded(tree: nodes.Template) -> set[str]:
    """Return the names that a template tests before it uses them."""
    helpers = tree.find_all((nodes.Test, nodes.Filter))
    return {helper.node.name for helper in helpers if helper.name in _GUARDS and isinstance(helper.node, nodes.Name)}


def _first(tree: nodes.Template, name: str) -> int:
    lines = [node.lineno for node in tree.find_all(nodes.Name) if node.name == name and node.ctx == "load"]
    return min(lines, default=1)


def _hint(name: str, known: Iterable[str]) -> str:
    near = closest(name, known)
    return f"did you mean {near}?" if near else f"known: {', '.join(known) or 'nothing'}"


def _unknown_part(node: nodes.Expr, known: Names) -> Fault | None:
    """Return the fault of `a.b` if the parts of `a` are known and `b` is not one."""
    path = _path(node)
    *above, name = path or [""]
    parts: Names | None = known
    for part in above:
        parts = None if parts is None else parts.get(part)
    if not path or parts is None or name in parts or name in MAP_METHODS:
        return None
    return Fault(f"{'.'.join(above)} has no {name}; {_hint(name, parts)}", node.lineno)


def _path(node: nodes.Node) -> list[str]:
    """Return the names of `a.b.c` or `a['b']`; empty for anything else."""
    if isinstance(node, nodes.Name):
        return [node.name]
    if isinstance(node, nodes.Getattr) and (above := _path(node.node)):
        return [*above, node.attr]
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and (above := _path(node.node)):
        return [*above, str(node.arg.value)]
    return []
