"""Read and write YAML, through python-frontmatter's handler: safe, keys in order, lines not folded.

Text from elsewhere can at worst be refused, quickly: aliases, which can stand for billions of values, deep nesting,
which crashes the C parser, and large texts are errors. A repeated key is an error, too. PyYAML is imported on first
use.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNFOLDED = 2**30
_MOST_CHARACTERS = 256 * 1024
_MOST_EVENTS = 20_000
_DEEPEST = 50
_LONGEST_NUMBER = 100
_LONGEST_REASON = 200
_TRIPPED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # on values like 2024-13-45

Path = tuple[str | int, ...]


class InvalidYaml(ValueError):
    """Text that is not YAML: the reason and the line."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


class _Yaml(NamedTuple):
    """PyYAML as python-frontmatter has it: the module, its handler, a safe loader, and one that records lines."""

    module: Any
    handler: Any
    safe_loader: Any
    lined_loader: Any


@lru_cache(maxsize=1)
def _yaml() -> _Yaml:
    from frontmatter.default_handlers import (  # type: ignore[attr-defined]  # noqa: PLC0415 - slow to import
        SafeLoader,
        YAMLHandler,
        yaml,
    )

    class LinedLoader(SafeLoader):  # type: ignore[misc, valid-type]  # in C if available
        """Records the line of every value."""

        lines: dict[Path, int]

        def get_single_data(self: Any) -> Any:
            node = self.get_single_node()
            self.lines = _lines(node)
            return None if node is None else self.construct_document(node)

    return _Yaml(yaml, YAMLHandler(), SafeLoader, LinedLoader)


def load_yaml(text: str) -> tuple[Any, dict[Path, int]]:
    """Return the value of a YAML text, and the line of every key and item by its path."""
    yaml = _yaml()
    loaders: list[Any] = []

    def open_loader(stream: str) -> Any:
        loaders.append(yaml.lined_loader(stream))
        return loaders[0]

    try:
        _check(text)
        return yaml.handler.load(text, Loader=open_loader), loaders[0].lines
    except InvalidYaml:
        raise
    except (yaml.module.YAMLError, RecursionError, *_TRIPPED) as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or f"{type(error).__name__}: {error}"
        raise InvalidYaml(
            f"is not valid YAML: {reason[:_LONGEST_REASON]}", 1 if mark is None else mark.line + 1
        ) from None


def _check(text: str) -> None:
    """Refuse text that is slow to load or crashes the parser, while reading it event by event."""
    if len(text) > _MOST_CHARACTERS:
        raise InvalidYaml(f"has {len(text):,} characters; allowed: {_MOST_CHARACTERS:,}", 1)
    depth = 0
    yaml, _, safe_loader, _ = _yaml()
    events: Iterator[Any] = yaml.parse(text, Loader=safe_loader)
    for count, event in enumerate(events):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise InvalidYaml(
                f"has the alias *{str(event.anchor)[:40]}; allowed: no aliases, write the value out", line
            )
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise InvalidYaml(f"is nested more than {_DEEPEST} deep; allowed: less", line)
        if count == _MOST_EVENTS:
            raise InvalidYaml(f"has more than {_MOST_EVENTS:,} keys and values; allowed: fewer", line)


def dump_yaml(facts: dict[str, object]) -> str:
    """Return YAML with keys in the order given, each value on its own line."""
    text: str = _yaml().handler.export(facts, sort_keys=False, width=_UNFOLDED)
    return text


def _lines(root: Any) -> dict[Path, int]:
    lines: dict[Path, int] = {}
    waiting: list[tuple[Path, Any]] = [((), root)] if root is not None else []
    while waiting:
        path, node = waiting.pop()
        lines.setdefault(path, node.start_mark.line + 1)
        if node.id == "mapping":
            _refuse_twice(node)
            for key, content in node.value:
                _refuse_long_number(key)
                lines[(*path, str(key.value))] = key.start_mark.line + 1
                waiting.append(((*path, str(key.value)), content))
        elif node.id == "sequence":
            waiting += [((*path, at), content) for at, content in enumerate(node.value)]
        else:
            _refuse_long_number(node)
    return lines


def _refuse_long_number(node: Any) -> None:
    if node.tag.endswith((":int", ":float", ":timestamp")) and len(node.value) > _LONGEST_NUMBER:
        what = f"has a number of {len(node.value):,} characters"
        raise InvalidYaml(f"{what}; allowed: {_LONGEST_NUMBER}", node.start_mark.line + 1)


def _refuse_twice(node: Any) -> None:
    counts = Counter(str(key.value) for key, _ in node.value)
    for key, _ in node.value:
        if counts[str(key.value)] > 1:
            raise InvalidYaml(
                f"has the key {str(key.value)[:_LONGEST_REASON]} twice; allowed: once", key.start_mark.line + 1
            )
