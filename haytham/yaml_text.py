"""YAML through python-frontmatter's handler, the one way it is read and written here: safe, in order, unfolded."""

from __future__ import annotations

from typing import Any

from frontmatter.default_handlers import YAMLHandler
from yaml import YAMLError  # the library under YAMLHandler: its errors come through

_HANDLER = YAMLHandler()
_UNFOLDED = 2**30


class InvalidYaml(ValueError):
    """Text that is not YAML: the reason and the line."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


def load_yaml(text: str) -> Any:
    """The value of a YAML text."""
    try:
        return _HANDLER.load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error)
        raise InvalidYaml(f"is not valid YAML: {reason}", 1 if mark is None else mark.line + 1) from None


def dump_yaml(facts: dict[str, object]) -> str:
    """YAML with keys in the order given, each value on its own line."""
    return _HANDLER.export(facts, sort_keys=False, width=_UNFOLDED)
