"""Append-only logs of JSON lines, read from where the last look ended.

What was read is folded into a state, which is kept in memory and, for a long log, in the store's local cache. It is
computed again if the log is shorter than before, or other bytes precede the position.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from haytham.errors import HaythamError

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham.storage.base import Store

S = TypeVar("S")
Line = dict[str, Any]

_TAIL = 256  # bytes before the position that must be the same
_WORTH_SAVING = 256 * 1024  # bytes of a log that are read again rather than saved in the cache
_MEMORY: WeakKeyDictionary[Any, dict[tuple[str, str], Any]] = WeakKeyDictionary()


@dataclass(frozen=True)
class LogKind(Generic[S]):
    """How a log is folded: a name with a version, an empty state, a fold, and the state to and from JSON.

    `fold` changes a state by some lines, each as its bytes; it returns False if they cannot be folded.
    """

    name: str
    empty: Callable[[], S]
    fold: Callable[[S, list[bytes]], bool]
    encode: Callable[[S], Any]
    decode: Callable[[Any], S]


@dataclass
class _Position(Generic[S]):
    """How far a log was read: the position, the bytes before it, the state, and the position saved in the cache."""

    state: S
    position: int = 0
    tail: bytes = b""
    saved: int = 0


def read_log(store: Store, key: str, kind: LogKind[S]) -> S | None:
    """Return the state of a log; None if it does not end in a whole line, or holds a line that cannot be folded."""
    base = getattr(store, "base_store", store)
    memory = _MEMORY.setdefault(base, {})
    name = (key, kind.name)
    known: _Position[S] = memory.pop(name, None) or _load(base, key, kind) or _Position(kind.empty())
    position = _advance(base, key, kind, known) or _advance(base, key, kind, _Position(kind.empty()))
    if position is None:
        return None
    memory[name] = position
    _save(base, key, kind, position)
    return position.state


def parse_line(line: bytes) -> Line | None:
    """Return a line of a log; None if it is not a JSON object."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_from(store: Store, key: str, offset: int) -> bytes:
    """Return the bytes under a key from an offset on; none if there are none."""
    base = getattr(store, "base_store", store)
    read = getattr(base, "read_from", None)
    try:
        data: bytes = base.read(key)[offset:] if read is None else read(key, offset)
    except FileNotFoundError:
        return b""
    return data


def log_size(store: Store, key: str) -> int:
    """Return how many bytes are under a key; 0 if there are none."""
    base = getattr(store, "base_store", store)
    size = getattr(base, "size", None)
    try:
        return len(base.read(key)) if size is None else int(size(key))
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _advance(store: Store, key: str, kind: LogKind[S], known: _Position[S]) -> _Position[S] | None:
    """Fold the lines after a position; return None if the log was replaced, or cannot be folded."""
    data = read_from(store, key, known.position - len(known.tail))
    if not data.startswith(known.tail):
        return None
    lines = data[len(known.tail) :]
    if lines and (not lines.endswith(b"\n") or not kind.fold(known.state, lines.split(b"\n")[:-1])):
        return None
    return _Position(known.state, known.position + len(lines), data[-_TAIL:], known.saved)


def _load(store: Store, key: str, kind: LogKind[S]) -> _Position[S] | None:
    cache = getattr(store, "cache", None)
    with suppress(HaythamError, OSError, ValueError, KeyError, TypeError, RecursionError):
        if cache is not None:
            facts = json.loads(cache.read(_cache_key(key, kind)))
            state = kind.decode(facts["state"])
            return _Position(state, facts["position"], bytes.fromhex(facts["tail"]), facts["position"])
    return None


def _save(store: Store, key: str, kind: LogKind[S], position: _Position[S]) -> None:
    cache = getattr(store, "cache", None)
    if cache is None or position.position - position.saved < _WORTH_SAVING:
        return
    facts = {"position": position.position, "tail": position.tail.hex(), "state": kind.encode(position.state)}
    with suppress(HaythamError, OSError):
        cache.write(_cache_key(key, kind), json.dumps(facts).encode())
        position.saved = position.position


def _cache_key(key: str, kind: LogKind[S]) -> str:
    return f"logs/{key}/{kind.name}.json"
