"""The environment for templates from elsewhere: Jinja's sandbox, with everything counted.

Jinja compiles a template to Python. Before that, loops, comparisons, lists, slices and texts are rewritten to go
through the meter; calls, operators and attributes go through hooks of the sandbox.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jinja2 import StrictUndefined, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.filters import do_mark_safe
from jinja2.lexer import TokenStream
from jinja2.runtime import BlockReference, LoopContext, Macro, Undefined
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer

from haytham.sandbox.meter import LimitReached, check_number, meter
from haytham.sandbox.operations import (
    FILTERS,
    LIST_METHODS,
    MAP_METHODS,
    OPERATORS,
    TESTS,
    TEXT_METHODS,
    Method,
    compare,
    formatted,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_TOKENS = 5_000
LONGEST_SOURCE = 250_000
_PLAIN = (str, int, float, list, tuple, Mapping, set, frozenset, range, bytes)
_FORBIDDEN: dict[type[nodes.Node], str] = {
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "import",
    nodes.Extends: "extends",
    nodes.ScopedEvalContextModifier: "autoescape",
}


def _range(*numbers: int) -> range:
    numbers_in_range = range(*map(check_number, numbers))
    meter().step(len(numbers_in_range))
    return numbers_in_range


def _slice(value: Any, start: Any, stop: Any, step: Any) -> Any:
    meter().weigh(value)
    return value[start:stop:step]


def _concat(values: tuple[Any, ...]) -> str:
    meter().step()
    return "".join([meter().text(value) for value in values])


_GLOBALS: dict[str, Any] = {"range": _range, "dict": dict, "cycler": Cycler, "joiner": Joiner, "namespace": Namespace}
_CALLABLE = (Macro, BlockReference, LoopContext, Joiner, Method)
_INTERNAL = {  # no template can name them
    " compare": compare,
    " concat": _concat,
    " counted": lambda values, cost: meter().counted(values, cost),
    " made": lambda value: meter().made(value),
    " slice": _slice,
    " step": lambda cost: meter().step(cost),
}


class LimitedEnvironment(SandboxedEnvironment):
    """A sandbox whose templates use up steps and characters of the current meter, and change no value.

    Text of the template itself is marked by Jinja's autoescape; any other text that it prints is passed to `show`.
    """

    intercepted_binops = frozenset(OPERATORS)

    def __init__(self, show: Callable[[str], str] = str) -> None:
        @pass_context
        def write(_context: object, value: Any) -> str:
            meter().step()
            text = meter().text(value)
            return do_mark_safe(text if hasattr(value, "__html__") else show(text))

        super().__init__(
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # work done while compiling is not counted
            autoescape=True,
            finalize=write,
            cache_size=0,
        )
        self.filters = {**FILTERS, **_INTERNAL}
        self.tests = dict(TESTS)
        self.globals = dict(_GLOBALS)

    def _tokenize(self, source: str, name: str | None, filename: str | None = None, state: str | None = None) -> Any:
        if len(source) > LONGEST_SOURCE:
            raise LimitReached(f"{len(source):,} characters; allowed: {LONGEST_SOURCE:,}")
        stream = super()._tokenize(source, name, filename, state)
        return TokenStream(_limited_tokens(stream), name, filename)

    def _generate(self, source: nodes.Template, *args: Any, **named: Any) -> str:
        rewritten: Any = _Rewriter(self).visit(source)
        return super()._generate(rewritten, *args, **named)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an attribute; of texts, lists and maps only counted methods."""
        return self._plain_attribute(obj, attribute) if isinstance(obj, _PLAIN) else super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return an item, else an attribute."""
        if not isinstance(obj, _PLAIN):
            return super().getitem(obj, argument)
        meter().step()
        try:
            return obj[argument]  # type: ignore[index, call-overload, unused-ignore]
        except (TypeError, LookupError):
            if not isinstance(argument, str):
                return self.undefined(obj=obj, name=argument)
        return self._plain_attribute(obj, argument)

    def _plain_attribute(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, str) and attribute == "format":
            return formatted(self, obj)
        methods = TEXT_METHODS if isinstance(obj, str) else MAP_METHODS if isinstance(obj, Mapping) else LIST_METHODS
        if attribute in methods and isinstance(obj, str | Mapping | list | tuple):
            return Method(methods[attribute], obj)
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        value = getattr(obj, attribute, None)
        if value is None:
            return self.undefined(obj=obj, name=attribute)
        return self.unsafe_undefined(obj, attribute) if callable(value) or attribute.startswith("_") else value

    def is_safe_callable(self, obj: Any) -> bool:
        """Return whether a template may call this: its own macros and loops, and our functions."""
        if isinstance(obj, _CALLABLE) or any(obj is known for known in _GLOBALS.values()):
            return True
        return isinstance(getattr(obj, "__self__", None), Cycler | LoopContext)

    def call(self, context: Any, obj: Any, /, *args: Any, **named: Any) -> Any:
        """Call a function, and count what it returns."""
        counts = meter()
        if isinstance(obj, Undefined):
            return obj()
        if not self.is_safe_callable(obj):
            raise SecurityError(f"{type(obj).__name__} cannot be called here")
        if isinstance(obj, LoopContext) and args:
            args = (counts.counted(args[0]), *args[1:])
        with counts.call():
            counts.weigh([value for value in (*args, *named.values()) if not isinstance(value, Iterator)])
            return counts.made(super().call(context, obj, *args, **named))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:  # noqa: ARG002 - jinja's signature
        """Apply an operator to two values."""
        counts = meter()
        counts.step()
        for value in (left, right):
            if isinstance(value, int):
                check_number(value)
        return counts.made(OPERATORS[operator](left, right))


def _limited_tokens(stream: TokenStream) -> Iterator[Any]:
    for count, token in enumerate(stream):
        if count == MOST_TOKENS:
            raise LimitReached(f"more than {MOST_TOKENS:,} words and signs in tags")
        yield token


def _cost(node: nodes.Node | None) -> int:
    """Return the steps for a part of a template, besides those counted while it runs."""
    return 1 if node is None else 1 + sum(1 for _ in node.find_all(nodes.Node)) // 10


class _Rewriter(NodeTransformer):
    """Rewrites what Jinja would compile to plain Python, so that it goes through the meter."""

    def __init__(self, environment: LimitedEnvironment) -> None:
        self._environment = environment
        self._acts: dict[type[nodes.Node], Callable[[Any], nodes.Node]] = {
            nodes.For: self._loop,
            nodes.Macro: self._repeated,
            nodes.CallBlock: self._repeated,
            nodes.Block: self._repeated,
            nodes.Concat: self._concat,
            nodes.Compare: self._compare,
            nodes.Tuple: self._tuple,
            nodes.List: self._made,
            nodes.Dict: self._made,
            nodes.Getitem: self._item,
            nodes.TemplateData: self._data,
            nodes.Const: self._const,
        }

    def visit(self, node: nodes.Node, *_args: Any, **_named: Any) -> nodes.Node:
        """Return a node to compile; refuse access to other templates."""
        if type(node) in _FORBIDDEN:
            raise TemplateSyntaxError(f"{_FORBIDDEN[type(node)]} cannot be used here", node.lineno)
        act = self._acts.get(type(node))
        return self.generic_visit(node) if act is None else act(node)

    def _loop(self, node: nodes.For) -> nodes.Node:
        cost = nodes.Const(_cost(node.test))
        self._repeated(node)
        node.iter = self._through("counted", node.iter, cost)
        return node

    def _repeated(self, node: nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block) -> nodes.Node:
        """Count steps for the size of what is repeated."""
        cost = nodes.Const(sum(map(_cost, node.body)), lineno=node.lineno)
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(self._through("step", cost), lineno=node.lineno))
        return node

    def _concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return self._through("concat", nodes.Tuple(node.nodes, "load", lineno=node.lineno))

    def _compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        chain = [part for operand in node.ops for part in (nodes.Const(operand.op, lineno=node.lineno), operand.expr)]
        return self._through("compare", node.expr, *chain)

    def _tuple(self, node: nodes.Tuple) -> nodes.Node:
        return self._made(node) if node.ctx == "load" else self.generic_visit(node)

    def _made(self, node: nodes.Node) -> nodes.Node:
        return self._through("made", self.generic_visit(node))

    def _item(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        bounds = (node.arg.start, node.arg.stop, node.arg.step)
        return self._through("slice", node.node, *(bound or nodes.Const(None) for bound in bounds))

    def _data(self, node: nodes.TemplateData) -> nodes.Node:
        return nodes.Const(do_mark_safe(node.data), lineno=node.lineno, environment=self._environment)

    def _const(self, node: nodes.Const) -> nodes.Node:
        if isinstance(node.value, int):
            check_number(node.value)
        return node

    def _through(self, name: str, node: Any, *args: nodes.Expr) -> nodes.Filter:
        made = nodes.Filter(node, f" {name}", list(args), [], None, None, lineno=node.lineno)
        made.set_environment(self._environment)
        return made
