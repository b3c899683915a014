"""Hooks of a workflow: commands that are run for an event, and the files of the workflow's folder that they name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path as FilePath

_TIMEOUT = 10.0  # seconds


@dataclass(frozen=True)
class Hook:
    """A command, as its words, that is run for events of a name or for all (`*`), for at most `timeout` seconds."""

    on: str
    run: tuple[str, ...]
    timeout: float = _TIMEOUT

    @property
    def is_in_folder(self) -> bool:
        """Return whether the program is a file of the workflow's folder: a relative path with a slash."""
        return "/" in self.run[0] and not self.run[0].startswith("/")

    def files(self, names: Collection[str]) -> dict[str, str]:
        """Return the words that name one of the workflow's files, each with the file's name."""
        words = self.run if self.is_in_folder else self.run[1:]
        return {word: name for word in words if (name := file_name(word)) in names and name is not None}


def parse_hooks(facts: Iterable[Mapping[str, Any]]) -> tuple[Hook, ...]:
    """Return the hooks in `hooks:`."""
    return tuple(Hook(about["on"], tuple(about["run"]), about.get("timeout", _TIMEOUT)) for about in facts)


def with_text_keys(facts: Any) -> Any:
    """Return the facts of a workflow with the key `on` of hooks, which YAML reads as true, as text."""
    hooks = facts.get("hooks") if isinstance(facts, dict) else None
    if not isinstance(hooks, list):
        return facts
    return {**facts, "hooks": [_with_on(hook) if isinstance(hook, dict) else hook for hook in hooks]}


def _with_on(hook: dict[Any, Any]) -> dict[Any, Any]:
    return {"on" if key is True and "on" not in hook else key: value for key, value in hook.items()}


def file_name(word: str) -> str | None:
    """Return the name that a word has as a path in the workflow's folder; None if it leads out of it."""
    path = PurePosixPath(word)
    is_inside = not path.is_absolute() and ".." not in path.parts and bool(path.parts) and "\0" not in word
    return path.as_posix() if is_inside else None


def hook_files(folder: FilePath, hooks: Iterable[Hook]) -> list[FilePath]:
    """Return the files of a workflow's folder that its hooks name."""
    words = [word for hook in hooks for word in (hook.run if hook.is_in_folder else hook.run[1:])]
    names = {name for name in map(file_name, words) if name is not None}
    top = folder.resolve()
    return [folder / name for name in sorted(names) if _is_inside(folder / name, top)]


def _is_inside(path: FilePath, top: FilePath) -> bool:
    """Return whether a path is a file, and not one that a link leads to outside of the folder."""
    try:
        return path.is_file() and path.resolve().is_relative_to(top)
    except OSError:  # too long for a name
        return False
