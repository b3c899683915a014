"""Opening a store as settings say: by its type, its path and its options.

Settings may come from elsewhere: only those that are trusted run code, or lead out of the folder they are for.
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
OURS = {"file": "", "memory": "", "sqlite": "history.db"}  # and the path of each where none is given
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

    A path is taken from `base` on, and lies in it unless the settings may run code. Options are for the stores of
    others, which are called with `path` and them; ours have none.
    """
    if not isinstance(kind, str):
        raise InvalidArgument("storage type", kind, _allowed())
    root = Path(os.path.realpath(base))
    place = _place(root, OURS.get(kind, "") if path is None else path, may_leave=may_run_code)
    if kind in OURS:
        return _open_ours(kind, root, place)
    return _open_other(kind, _find(kind, may_run_code=may_run_code), {**(options or {}), "path": str(place)})


def check_type(kind: str) -> None:
    """Refuse a type that names no store: none of ours, none that is registered, and no `package.module:Class`."""
    if kind not in OURS and kind not in _registered() and _DOTTED.fullmatch(kind) is None:
        raise InvalidArgument("storage type", kind, _allowed())


def _place(base: Path, path: str, *, may_leave: bool) -> Path:
    """Where a path leads. One within the base goes through no link; one that may leave it has all links followed."""
    if not isinstance(path, str) or "\0" in path:
        raise InvalidArgument("storage path", path, "a path")
    place = Path(os.path.realpath(base / path))
    if not may_leave and not place.is_relative_to(base):
        raise InvalidArgument("storage path", path, f"a path in {base}, as the settings are not trusted")
    written = Path(os.path.normpath(base / path))
    if written.is_relative_to(base) and written != place:  # trust is in the settings, not in what lies in the folder
        raise InvalidArgument("storage path", path, f"a path that goes through no symbolic link in {base}")
    return place


def _open_ours(kind: str, base: Path, place: Path) -> Store:
    if kind == "file":
        return FileStore(place)
    if kind == "memory":
        return _MEMORIES.setdefault((str(base), str(place)), MemoryStore())
    from haytham.storage.sqlite import SqliteStore  # noqa: PLC0415 - who keeps files need not load it

    return SqliteStore(place)


def _find(kind: str, *, may_run_code: bool) -> Callable[..., Any]:
    """What makes stores of a type: by its name among the installed packages, else by module and name."""
    check_type(kind)
    registered = _registered()
    if not may_run_code:
        raise InvalidArgument("storage type", kind, f"{_allowed()}; this one is not trusted")
    if kind in registered:
        return _import(kind, registered[kind].load)
    module, _, name = kind.partition(":")
    return _import(kind, lambda: getattr(import_module(module), name))


def is_registered(kind: str) -> bool:
    """Whether an installed package registers stores of a type."""
    return kind in _registered()


def _registered() -> dict[str, Any]:
    """The entry points for stores, by name."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - it costs a command of ours its start

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _allowed() -> str:
    return ", ".join([*OURS, *sorted(_registered()), "or a trusted package.module:Class"])


def _import(kind: str, load: Callable[[], Any]) -> Callable[..., Any]:
    try:
        found: Callable[..., Any] = load()
    except (ImportError, AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise InvalidArgument("storage type", kind, f"one that can be imported ({error})") from error
    return found


def _open_other(kind: str, make: Callable[..., Any], arguments: Mapping[str, Any]) -> Store:
    """A store of somebody else's making, once it is sure that it is one."""
    try:
        store: Store = make(**arguments)
    except TypeError as error:
        raise InvalidArgument("storage options", dict(arguments), f"those that {kind} takes ({error})") from error
    missing = [verb for verb in VERBS if not callable(getattr(store, verb, None))]
    if missing:
        raise InvalidArgument("storage type", kind, f"a store with all seven verbs; it lacks {', '.join(missing)}")
    return store
