"""Counts what a template does while it is rendered: steps, characters, depth. Past a limit LimitReached is raised.

Every value that a template makes is weighed here, so that no single operation of Python's own can take long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jinja2.runtime import LoopContext
from jinja2.utils import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterable

LARGEST_NUMBER = 10**15
DEEPEST_CALL = 30
DEEPEST_VALUE = 30
_BUILT = (list, tuple, set, frozenset)
_NESTING = (Mapping, *_BUILT)


class LimitReached(RuntimeError):
    """A template does more than it may."""


@dataclass(frozen=True)
class Limits:
    """What one template may do: steps are loop turns, calls, operators, filters and items of lists."""

    steps: int
    characters: int


class Meter:
    """What is left for one template."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._steps, self._characters, self._depth = limits.steps, limits.characters, 0

    def step(self, count: int = 1) -> None:
        """Take steps."""
        self._steps -= count
        if self._steps < 0:
            what = "loop turns, calls, operators, list items"
            raise LimitReached(f"the limit of {self._limits.steps:,} steps is exceeded ({what})")

    def write(self, characters: int) -> None:
        """Take characters: each is counted whenever it is read, made or written."""
        self._characters -= characters
        if self._characters < 0:
            raise LimitReached(f"the limit of {self._limits.characters:,} characters is exceeded")

    def weigh(self, value: Any) -> None:
        """Take a value for what it is when it is written out, however often its parts are shared."""
        waiting = [(value, 0)]
        while waiting:
            one, depth = waiting.pop()
            if isinstance(one, str):
                self.write(len(one))
            elif isinstance(one, int):
                check_number(one)
            elif isinstance(one, _NESTING):
                if depth == DEEPEST_VALUE:
                    raise LimitReached(f"lists or maps are nested more than {DEEPEST_VALUE} deep")
                self.step(len(one))
                inner = [*one, *one.values()] if isinstance(one, Mapping) else one
                waiting += [(part, depth + 1) for part in inner]

    def text(self, value: Any) -> str:
        """The text of a value, taken; plain, so that nothing that is put together with it is escaped for HTML."""
        if isinstance(value, str):
            self.write(len(value))
            return str(value)
        self.weigh(value)
        _refuse_namespaces(value)
        text = str(value)
        self.write(len(text))
        return text

    def made(self, value: Any) -> Any:
        """Take a value that an operation made; of an iterator what it gives is taken when it is asked."""
        if isinstance(value, Iterator) and not isinstance(value, LoopContext):
            return self.counted(value)
        self.weigh(value)
        return value

    def counted(self, values: Iterable[Any], cost: int = 1) -> Iterator[Any]:
        """Values one by one, each at a cost in steps."""
        for value in values:
            self.step(cost)
            yield value

    def compare(self, left: Any, right: Any) -> None:
        """Take what it takes to compare two values."""
        if isinstance(left, str) and isinstance(right, str):
            self.write(min(len(left), len(right)))
        elif not isinstance(left, str) and not isinstance(right, str):
            self.weigh(left)
            self.weigh(right)

    def search(self, value: Any, within: Any) -> None:
        """Take what it takes to look for a value in others."""
        self.weigh(value)
        self.weigh(within)
        if isinstance(within, range) and not isinstance(value, int):
            self.step(len(within))

    @contextmanager
    def call(self) -> Iterator[None]:
        """Take a call, within the calls it is made from."""
        self.step()
        self._depth += 1
        if self._depth > DEEPEST_CALL:
            raise LimitReached(f"calls are nested more than {DEEPEST_CALL} deep")
        try:
            yield
        finally:
            self._depth -= 1


_CURRENT: ContextVar[Meter] = ContextVar("haytham_template_meter")


@contextmanager
def metered(limits: Limits) -> Iterator[None]:
    """Count what the templates that are rendered in here do, all together."""
    token = _CURRENT.set(Meter(limits))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def meter() -> Meter:
    """The meter of the template that is rendered now."""
    return _CURRENT.get()


def check_number(number: int) -> int:
    """Refuse a whole number that is too large to compute with quickly."""
    if not -LARGEST_NUMBER <= number <= LARGEST_NUMBER:
        raise LimitReached("a whole number is beyond 10**15")
    return number


def _refuse_namespaces(value: Any) -> None:
    """Refuse to write out a namespace, which may hold itself."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Namespace):
            raise LimitReached("a namespace cannot be written; write one of its values")
        if isinstance(one, Mapping):
            waiting += [*one, *one.values()]
        elif isinstance(one, _BUILT):
            waiting += one
