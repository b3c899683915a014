"""Opening a store by its type, its path and its options.

Settings may come from elsewhere: only trusted ones run code, or name a path outside of the base folder.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidArgument
from haytham.storage.base import VERBS
from haytham.storage.files import FileStore
from haytham.storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from haytham.storage.base import Store

GROUP = "haytham.stores"
OURS = {"file": "", "memory": "", "sqlite": "history.db"}  # with their default paths
_DOTTED = re.compile(r"\w+(\.\w+)*:\w+")
_MEMORIES: dict[tuple[str, str], MemoryStore] = {}


def open_store(
    kind: str = "file",
    *,
    path: str | None = None,
    base: Path,
    options: Mapping[str, Any] | None = None,
    may_run_code: bool = False,
) -> Store:
    """Open a store of a type: file, memory, sqlite, one that a package registers, or `package.module:Class`.

    A path is relative to `base`, and in it unless the settings may run code. Options are for stores of other packages,
    which are called with `path` and the options; the built-in ones have none.
    """
    if not isinstance(kind, str):
        raise InvalidArgument("storage type", kind, _allowed())
    root = Path(os.path.realpath(base))
    location = _resolve(root, OURS.get(kind, "") if path is None else path, may_leave=may_run_code)
    if kind in OURS:
        return _open_builtin(kind, root, location)
    return _open_other(kind, _load(kind, may_run_code=may_run_code), {**(options or {}), "path": str(location)})


def check_type(kind: str) -> None:
    """Raise InvalidArgument if a type is neither built in, nor registered, nor a `package.module:Class`."""
    if kind not in OURS and kind not in _registered() and _DOTTED.fullmatch(kind) is None:
        raise InvalidArgument("storage type", kind, _allowed())


def _resolve(base: Path, path: str, *, may_leave: bool) -> Path:
    """Return an absolute path; raise if one in the base goes through a link, or if it may not leave the base."""
    if not isinstance(path, str) or "\0" in path:
        raise InvalidArgument("storage path", path, "a path")
    location = Path(os.path.realpath(base / path))
    if not may_leave and not location.is_relative_to(base):
        raise InvalidArgument("storage path", path, f"a path in {base}, as the settings are not trusted")
    written = Path(os.path.normpath(base / path))
    if written.is_relative_to(base) and written != location:  # the settings are trusted, not the files in the base
        raise InvalidArgument("storage path", path, f"a path that goes through no symbolic link in {base}")
    return location


def _open_builtin(kind: str, base: Path, location: Path) -> Store:
    if kind == "file":
        return FileStore(location)
    if kind == "memory":
        return _MEMORIES.setdefault((str(base), str(location)), MemoryStore())
    from haytham.storage.sqlite import SqliteStore  # noqa: PLC0415 - only for stores of this type

    return SqliteStore(location)


def _load(kind: str, *, may_run_code: bool) -> Callable[..., Any]:
    """Return the class of a type: registered by an installed package, else named by module and name."""
    check_type(kind)
    registered = _registered()
    if not may_run_code:
        raise InvalidArgument("storage type", kind, f"{_allowed()}; this one is not trusted")
    if kind in registered:
        return _import(kind, registered[kind].load)
    module, _, name = kind.partition(":")
    return _import(kind, lambda: getattr(import_module(module), name))


def is_registered(kind: str) -> bool:
    """Return whether an installed package registers stores of a type."""
    return kind in _registered()


def _registered() -> dict[str, Any]:
    """Return the entry points of stores, by name."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and few commands need it

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _allowed() -> str:
    return ", ".join([*OURS, *sorted(_registered()), "or a trusted package.module:Class"])


def _import(kind: str, load: Callable[[], Any]) -> Callable[..., Any]:
    try:
        loaded: Callable[..., Any] = load()
    except (ImportError, AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise InvalidArgument("storage type", kind, f"one that can be imported ({error})") from error
    return loaded


def _open_other(kind: str, make: Callable[..., Any], arguments: Mapping[str, Any]) -> Store:
    """Open a store of another package; raise if it lacks a verb."""
    try:
        store: Store = make(**arguments)
    except TypeError as error:
        raise InvalidArgument("storage options", dict(arguments), f"those that {kind} takes ({error})") from error
    missing = [verb for verb in VERBS if not callable(getattr(store, verb, None))]
    if missing:
        raise InvalidArgument("storage type", kind, f"a store with all seven verbs; it lacks {', '.join(missing)}")
    return store
