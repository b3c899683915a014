"""YAML through python-frontmatter's handler, the one way it is read and written here: safe, in order, unfolded.

Text from elsewhere can at worst be refused: large texts go through the loader in Python, whose depth has a limit (the
one in C ends the process), and a key that stands twice is an error, not the last one.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from frontmatter.default_handlers import SafeLoader, YAMLHandler, yaml  # type: ignore[attr-defined] # its own YAML

_HANDLER = YAMLHandler()
_UNFOLDED = 2**30
_LARGEST_FOR_C = 8 * 1024
_TRIPPED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # on values like 2024-13-45

Path = tuple[str | int, ...]


class InvalidYaml(ValueError):
    """Text that is not YAML: the reason and the line."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


class _Lined:
    """Keeps the lines of what a loader composes on the way to the value."""

    lines: dict[Path, int]

    def get_single_data(self: Any) -> Any:
        node = self.get_single_node()
        self.lines = _lines(node)
        return None if node is None else self.construct_document(node)


class _Fast(_Lined, SafeLoader):  # type: ignore[misc, valid-type] # in C where that is there
    """For text of a size that cannot nest too deep."""


class _Deep(_Lined, yaml.SafeLoader):
    """In Python, whose depth has a limit."""


def load_yaml(text: str) -> tuple[Any, dict[Path, int]]:
    """The value of a YAML text, and the line of every key and item by the path that leads to it."""
    made: list[Any] = []

    def open_loader(stream: str) -> Any:
        made.append(_Fast(stream) if len(text) <= _LARGEST_FOR_C else _Deep(stream))
        return made[0]

    try:
        return _HANDLER.load(text, Loader=open_loader), made[0].lines
    except InvalidYaml:
        raise
    except (yaml.YAMLError, RecursionError, *_TRIPPED) as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or f"{type(error).__name__}: {error}"
        raise InvalidYaml(f"is not valid YAML: {reason}", 1 if mark is None else mark.line + 1) from None


def dump_yaml(facts: dict[str, object]) -> str:
    """YAML with keys in the order given, each value on its own line."""
    return _HANDLER.export(facts, sort_keys=False, width=_UNFOLDED)


def _lines(root: Any) -> dict[Path, int]:
    lines: dict[Path, int] = {}
    waiting: list[tuple[Path, Any]] = [((), root)] if root is not None else []
    seen = set()
    while waiting:
        path, node = waiting.pop()
        lines.setdefault(path, node.start_mark.line + 1)
        if id(node) in seen:  # an alias: its lines are those of the anchor
            continue
        seen.add(id(node))
        if node.id == "mapping":
            _refuse_twice(node)
            for key, content in node.value:
                lines[(*path, str(key.value))] = key.start_mark.line + 1
                waiting.append(((*path, str(key.value)), content))
        elif node.id == "sequence":
            waiting += [((*path, at), content) for at, content in enumerate(node.value)]
    return lines


def _refuse_twice(node: Any) -> None:
    counts = Counter(str(key.value) for key, _ in node.value)
    for key, _ in node.value:
        if counts[str(key.value)] > 1:
            raise InvalidYaml(f"has the key {key.value} twice; allowed: once", key.start_mark.line + 1)
