"""Count what a template does while it is rendered: steps, characters, depth. LimitReached is raised past a limit.

Every value that a template makes is counted here, so that no single operation of Python can take long.
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
    """A template does more than allowed."""


@dataclass(frozen=True)
class Limits:
    """The limits of one template; steps are loop turns, calls, operators, filters and items of lists."""

    steps: int
    characters: int


class Meter:
    """What is left for one template."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._steps, self._characters, self._depth = limits.steps, limits.characters, 0

    def step(self, count: int = 1) -> None:
        """Use up steps."""
        self._steps -= count
        if self._steps < 0:
            what = "loop turns, calls, operators, list items"
            raise LimitReached(f"the limit of {self._limits.steps:,} steps is exceeded ({what})")

    def write(self, characters: int) -> None:
        """Use up characters: each counts whenever it is read, made or written."""
        self._characters -= characters
        if self._characters < 0:
            raise LimitReached(f"the limit of {self._limits.characters:,} characters is exceeded")

    def weigh(self, value: Any) -> None:
        """Count a value by the size of its text, however often its parts are shared."""
        pending = [(value, 0)]
        while pending:
            current, depth = pending.pop()
            if isinstance(current, str):
                self.write(len(current))
            elif isinstance(current, int):
                check_number(current)
            elif isinstance(current, _NESTING):
                if depth == DEEPEST_VALUE:
                    raise LimitReached(f"lists or maps are nested more than {DEEPEST_VALUE} deep")
                self.step(len(current))
                inner = [*current, *current.values()] if isinstance(current, Mapping) else current
                pending += [(part, depth + 1) for part in inner]

    def text(self, value: Any) -> str:
        """Return the counted text of a value; plain, so that nothing joined to it is escaped for HTML."""
        if isinstance(value, str):
            self.write(len(value))
            return str(value)
        self.weigh(value)
        _refuse_namespaces(value)
        text = str(value)
        self.write(len(text))
        return text

    def made(self, value: Any) -> Any:
        """Count a value that an operation made; an iterator is counted as it is consumed."""
        if isinstance(value, Iterator) and not isinstance(value, LoopContext):
            return self.counted(value)
        self.weigh(value)
        return value

    def counted(self, values: Iterable[Any], cost: int = 1) -> Iterator[Any]:
        """Yield values, each at a cost in steps."""
        for value in values:
            self.step(cost)
            yield value

    def compare(self, left: Any, right: Any) -> None:
        """Count the comparison of two values."""
        if isinstance(left, str) and isinstance(right, str):
            self.write(min(len(left), len(right)))
        elif not isinstance(left, str) and not isinstance(right, str):
            self.weigh(left)
            self.weigh(right)

    def search(self, value: Any, within: Any) -> None:
        """Count the search for a value in others."""
        self.weigh(value)
        self.weigh(within)
        if isinstance(within, range) and not isinstance(value, int):
            self.step(len(within))

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call, within the depth allowed."""
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
    """Count together what the templates rendered in this block do."""
    token = _CURRENT.set(Meter(limits))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def meter() -> Meter:
    """Return the meter of the template that is being rendered."""
    return _CURRENT.get()


def check_number(number: int) -> int:
    """Refuse an integer that is too large to compute with quickly."""
    if not -LARGEST_NUMBER <= number <= LARGEST_NUMBER:
        raise LimitReached("a whole number is beyond 10**15")
    return number


def _refuse_namespaces(value: Any) -> None:
    """Refuse to write out a namespace, which may contain itself."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, Namespace):
            raise LimitReached("a namespace cannot be written; write one of its values")
        if isinstance(item, Mapping):
            pending += [*item, *item.values()]
        elif isinstance(item, _BUILT):
            pending += item
