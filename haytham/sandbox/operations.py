"""Operators, filters, tests and text methods for templates; each counts its steps and characters before it acts.

Templates have nothing else: no filters for HTML, and no methods that change a value.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

from jinja2 import filters as jinja
from jinja2 import pass_environment, pass_eval_context
from jinja2.sandbox import SandboxedFormatter
from jinja2.tests import TESTS as JINJA_TESTS

from haytham.sandbox.meter import LimitReached, check_number, meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jinja2 import Environment
    from jinja2.nodes import EvalContext

WIDEST = 1000
LARGEST_POWER = 64  # bits
_LONGEST_SET = 100  # characters that are stripped from a text's ends
_PERCENT = re.compile(r"%%|%(\([^)]*\))?[-#0 +]*(\*|\d+)?(?:\.(\*|\d+)?)?")
_DIGITS = re.compile(r"\d+")
_WORD = re.compile(r"\w+")
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_SLOW = 10  # a filter in Python takes this much longer for a character than one in C


# Operators.


def _add(left: Any, right: Any) -> Any:
    meter().weigh(left)
    meter().weigh(right)
    return _plain(left) + _plain(right)


def _multiply(left: Any, right: Any) -> Any:
    for value, times in ((left, right), (right, left)):
        if isinstance(times, int) and isinstance(value, str):
            meter().write(len(value) * max(times, 0))
        elif isinstance(times, int) and isinstance(value, list | tuple):
            meter().step(len(value) * max(times, 0))
    return _plain(left) * _plain(right)


def _plain(value: Any) -> Any:
    """Return a value; for a text that Jinja marked, the plain text, which escapes nothing joined to it."""
    return str(value) if isinstance(value, str) else value


def _power(left: Any, right: Any) -> Any:
    whole = isinstance(left, int) and isinstance(right, int)
    if whole and left.bit_length() * right > LARGEST_POWER:
        raise LimitReached("a whole number is beyond 10**15")
    return left**right


def _remainder(left: Any, right: Any) -> Any:
    return percent(left, right) if isinstance(left, str) else left % right


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": _add,
    "-": operator.sub,
    "*": _multiply,
    "/": operator.truediv,
    "//": operator.floordiv,
    "**": _power,
    "%": _remainder,
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
    "in": lambda value, within: value in within,
    "notin": lambda value, within: value not in within,
}


def compare(value: Any, *chain: Any) -> bool:
    """Compare a chain of values: operators and values in turn."""
    for name, other in zip(chain[::2], chain[1::2], strict=True):
        meter().step()
        (meter().search if name in ("in", "notin") else meter().compare)(value, other)
        if not _COMPARISONS[name](value, other):
            return False
        value = other
    return True


def percent(text: str, values: Any) -> str:
    """Format a text with %, with bounded widths."""
    matches = list(_PERCENT.finditer(text))
    for match in matches:
        if "(" in (match[1] or "")[1:]:
            raise LimitReached("a name in a format has a bracket")
        _check_widths(match[2], match[3])
    meter().write(len(text) + len(matches) * WIDEST)
    by_name = isinstance(values, Mapping)
    for _ in matches if by_name else range(1):  # by name, a text can use a value many times
        meter().weigh(values)
    for value in values.values() if by_name else values if isinstance(values, tuple) else (values,):
        meter().text(value)
    return str(_plain(text) % values)


def _check_widths(*widths: str | None) -> None:
    for width in widths:
        if width and (width == "*" or len(width) > len(str(WIDEST)) or int(width) > WIDEST):
            raise LimitReached(f"a format has the width {width[:12]}; allowed: up to {WIDEST}")


# Filters.


def _iterating(value: Any) -> Any:
    """Count what a filter iterates over."""
    if isinstance(value, str | range):
        meter().step(len(value))
    return value


def _batch(value: Iterable[Any], linecount: int, fill_with: Any = None) -> Any:
    meter().step(check_number(linecount))
    return jinja.do_batch(_iterating(value), linecount, fill_with)  # type: ignore[arg-type, unused-ignore]


def _slice(value: Any, slices: int, fill_with: Any = None) -> Any:
    meter().step(check_number(slices))
    return jinja.sync_do_slice(_iterating(value), slices, fill_with)


def _center(value: Any, width: int = 80) -> str:
    text = meter().text(value)
    meter().write(check_number(width))
    return text.center(width)


def _format(value: Any, *args: Any, **named: Any) -> str:
    if args and named:
        raise TypeError("format takes values by place or by name, not both")
    return percent(meter().text(value), named or args)


def _indent(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:  # noqa: FBT001, FBT002 - jinja's
    text = meter().text(s)
    indent = width if isinstance(width, str) else " " * min(check_number(width), WIDEST + 1)
    if len(indent) > WIDEST:
        raise LimitReached(f"a text is indented by more than {WIDEST}")
    meter().write(_count_lines(text) * (len(indent) + _SLOW))
    return jinja.do_indent(text, indent, first, blank)


def _count_lines(text: str) -> int:
    return 1 + sum(map(text.count, _LINE_ENDS))


@pass_environment
def _join(environment: Environment, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    if attribute is not None:
        value = map(jinja.make_attrgetter(environment, attribute), value)
    texts = [meter().text(part) for part in meter().counted(value)]
    meter().write(len(d) * len(texts))
    return str(d).join(texts)


def _replace(s: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new = meter().text(s), meter().text(old), meter().text(new)
    meter().write(text.count(old) * len(new))
    return text.replace(old, new, -1 if count is None else count)


def _round(value: float, precision: int = 0, method: Any = "common") -> Any:
    if abs(precision) > _LONGEST_SET:
        raise LimitReached(f"a number is rounded to more than {_LONGEST_SET} digits")
    return jinja.do_round(value, precision, method)


@pass_environment
def _sum(environment: Environment, iterable: Any, attribute: Any = None, start: float = 0) -> Any:
    if not isinstance(start, int | float):
        raise TypeError("sum adds numbers")
    return jinja.sync_do_sum(environment, _iterating(iterable), attribute, start)  # type: ignore[arg-type, unused-ignore]


@pass_eval_context
def _tojson(context: EvalContext, value: Any, indent: int | None = None) -> str:
    if indent is not None and not 0 <= indent <= _SLOW:
        raise LimitReached(f"JSON is indented by {indent}; allowed: 0 to {_SLOW}")
    meter().weigh(value)
    return str(jinja.do_tojson(context, value, indent))


def _title(s: Any) -> str:
    text = meter().text(s)
    meter().write(len(text) * _SLOW)
    return jinja.do_title(text)


def _trim(value: Any, chars: str | None = None) -> str:
    return _strip(str.strip, meter().text(value), chars)


def _wordcount(s: Any) -> int:
    text = meter().text(s)
    meter().write(len(text) * _SLOW)
    return sum(1 for _ in _WORD.finditer(text))


@pass_environment
def _truncate(environment: Environment, s: Any, *args: Any, **named: Any) -> str:
    return jinja.do_truncate(environment, meter().text(s), *args, **named)


@pass_environment
def _attribute(environment: Environment, obj: Any, name: str) -> Any:
    return environment.getattr(obj, name)


_OWN_FILTERS: dict[str, Callable[..., Any]] = {
    "attr": _attribute,
    "batch": _batch,
    "center": _center,
    "format": _format,
    "indent": _indent,
    "join": _join,
    "replace": _replace,
    "round": _round,
    "safe": lambda value: meter().text(value),
    "slice": _slice,
    "string": lambda value: meter().text(value),
    "sum": _sum,
    "title": _title,
    "tojson": _tojson,
    "trim": _trim,
    "truncate": _truncate,
    "wordcount": _wordcount,
}
_OF_TEXTS = ("capitalize", "lower", "reverse", "upper")
_OF_NUMBERS = ("abs", "filesizeformat", "float", "int")
_OF_SEVERAL = (
    *("dictsort", "groupby", "items", "list", "map", "max", "min", "sort", "unique"),
    *("reject", "rejectattr", "select", "selectattr"),
)
_OF_ANY = ("count", "d", "default", "first", "last", "length")
_TAKING = frozenset(_OF_TEXTS + _OF_NUMBERS)


def _limited(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that counts its input and its result."""

    @wraps(function)
    def act(*args: Any, **named: Any) -> Any:
        counts = meter()
        counts.step()
        for value in (*args, *named.values()):
            if isinstance(value, list | tuple | dict | int) or (name in _TAKING and isinstance(value, str)):
                counts.weigh(value)
            elif name in _OF_SEVERAL:
                _iterating(value)
        return counts.made(function(*args, **named))

    return act


FILTERS = {name: _limited(name, jinja.FILTERS[name]) for name in (*_OF_TEXTS, *_OF_NUMBERS, *_OF_SEVERAL, *_OF_ANY)}
FILTERS |= {name: _limited(name, function) for name, function in _OWN_FILTERS.items()}


# Tests.


def _limited_test(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a test that counts what it compares."""

    @wraps(function)
    def act(*args: Any, **named: Any) -> Any:
        counts = meter()
        counts.step()
        if name == "in":
            counts.search(*args)
        elif name in ("lower", "upper"):
            counts.weigh(args[0])
        elif getattr(function, "__module__", "") == "_operator" and len(args) > 1:
            counts.compare(*args)
        return function(*args, **named)

    return act


_KNOWN_TESTS: Mapping[str, Any] = JINJA_TESTS
TESTS = {name: _limited_test(name, function) for name, function in _KNOWN_TESTS.items() if name != "escaped"}


# Methods: the only attributes of texts, lists and maps that a template can call.


class Method:
    """A method of a value, as a template calls it."""

    def __init__(self, act: Callable[..., Any], value: Any) -> None:
        self._act, self._value = act, value

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Count the arguments, then call the method."""
        for given in (*args, *named.values()):
            meter().weigh(given)
        return self._act(self._value, *args, **named)


def _strip(strip: Callable[[str, str | None], str], text: str, chars: str | None = None) -> str:
    if chars is not None and len(chars) > _LONGEST_SET:
        raise LimitReached(f"{len(chars)} characters to strip; allowed: up to {_LONGEST_SET}")
    meter().write(len(text))
    return strip(text, chars)


def _padded(pad: Callable[..., str]) -> Callable[..., str]:
    def act(text: str, width: int, *fill: str) -> str:
        meter().write(len(text) + check_number(width))
        return pad(text, width, *fill)

    return act


def _linear(act: Callable[..., Any]) -> Callable[..., Any]:
    def take(text: str, *args: Any) -> Any:
        meter().write(len(text))
        return act(text, *args)

    return take


def _stripping(strip: Callable[..., str]) -> Callable[..., str]:
    return lambda text, chars=None: _strip(strip, text, chars)


def _split(text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    meter().write(len(text))
    pieces = len(text) // 2 if sep is None else text.count(sep)
    meter().step(pieces if maxsplit < 0 else min(pieces, maxsplit))
    return text.split(sep, maxsplit)


def _splitlines(text: str, keepends: bool = False) -> list[str]:  # noqa: FBT001, FBT002 - Python's own
    meter().write(len(text))
    meter().step(_count_lines(text))
    return text.splitlines(keepends)


def _expandtabs(text: str, tabsize: int = 8) -> str:
    meter().write(len(text) + text.count("\t") * check_number(tabsize))
    return text.expandtabs(tabsize)


def _join_texts(text: str, values: Iterable[str]) -> str:
    texts = list(meter().counted(values))
    meter().weigh(texts)
    meter().write(len(text) * len(texts))
    return str(text).join(texts)


class Formatter(SandboxedFormatter):
    """Formats a text with `{}`, with bounded widths."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return the text of one value."""
        meter().step()
        _check_widths(*_DIGITS.findall(format_spec))
        text = format(value, format_spec) if format_spec else meter().text(value)
        meter().write(len(text))
        return text

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """Return the repr of a value, if that is asked for."""
        if conversion:
            meter().text(value)
        return super().convert_field(value, conversion)


def formatted(environment: Environment, text: str) -> Method:
    """Format a text with its `format` method."""

    def act(value: str, *args: Any, **named: Any) -> str:
        meter().write(len(value))
        return Formatter(environment).vformat(value, args, named)

    return Method(act, text)


_PLAIN_METHODS = (
    "capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit islower isnumeric "
    "isspace istitle isupper lower partition removeprefix removesuffix startswith swapcase title upper"
)
TEXT_METHODS: dict[str, Callable[..., Any]] = {
    **{name: _linear(getattr(str, name)) for name in _PLAIN_METHODS.split()},
    **{name: _stripping(getattr(str, name)) for name in ("strip", "lstrip", "rstrip")},
    **{name: _padded(getattr(str, name)) for name in ("center", "ljust", "rjust", "zfill")},
    "expandtabs": _expandtabs,
    "join": _join_texts,
    "replace": _replace,
    "split": _split,
    "splitlines": _splitlines,
}


def _in_list(act: Callable[[Any, Any], int]) -> Callable[[Any, Any], int]:
    def take(values: Any, value: Any) -> int:
        meter().search(value, values)
        return act(values, value)

    return take


LIST_METHODS: dict[str, Callable[..., Any]] = {
    "count": _in_list(lambda values, value: values.count(value)),
    "index": _in_list(lambda values, value: values.index(value)),
}


def _get(values: Mapping[Any, Any], key: Any, default: Any = None) -> Any:
    return values.get(key, default)


MAP_METHODS: dict[str, Callable[..., Any]] = {
    "get": _get,
    "items": lambda values: list(values.items()),
    "keys": list,
    "values": lambda values: list(values.values()),
}
