"""Putting other documents in the place of a session's own: all of them or none, whatever is killed when.

What is to come is staged whole in `restoring/`, which appears at once; then it is put in place; then the stage goes.
Whoever opens the session while the stage is there finishes first. What a person wrote in between is set aside.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidArgument, InvalidDocument, Problem
from haytham.session import paths
from haytham.storage.base import bytes_digest, check_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from haytham.storage.base import SessionStore

_STAGED = "documents/"
_PLAN = "plan.json"


def snapshot_paths(store: SessionStore, prefix: str, *, empty: bool = False) -> list[str]:
    """The documents of a session that are frozen and restored, by path: all but what only grows, and a stage."""
    keys = (key.removeprefix(prefix) for key in store.keys(prefix, empty=empty))
    return [path for path in keys if not _is_kept_out(path)]


def _is_kept_out(path: str) -> bool:
    return path in paths.NEVER_FROZEN or f"{path}/".startswith(paths.RESTORING)


def check_paths(paths: Sequence[str], folders: Sequence[str]) -> None:
    """Refuse documents and empty folders that no session has: outside of it, never frozen, or in each other's place."""
    everything = [check_key(place) for place in (*paths, *folders)]
    above = {place[:at] for place in everything for at, letter in enumerate(place) if letter == "/"}
    for place in everything:
        if _is_kept_out(place):
            raise InvalidArgument("document", place, "one that a snapshot may hold")
    for path, times in Counter(paths).items():
        if times > 1 or path in above or path in folders:
            raise InvalidArgument("document", path, "one that has its place to itself")


def replace_tree(
    store: SessionStore,
    prefix: str,
    documents: Iterable[tuple[str, bytes]],
    folders: Iterable[str],
    *,
    before: Mapping[str, str],
) -> list[str]:
    """Make documents and empty folders those of a session, and no others; what was set aside.

    `before` is the digests of what was there and is kept elsewhere: what is another now was written since, and is set
    aside. Call it holding the session's lock. Where a document cannot be had, nothing has changed.
    """
    plan = json.dumps({"before": dict(before), "folders": list(folders)}).encode()
    staged = ((_STAGED + path, data) for path, data in documents)
    store.write_folder(prefix + paths.RESTORING, _with_plan(staged, plan))
    return complete_pending(store, prefix)


def has_pending(store: SessionStore, prefix: str) -> bool:
    """Whether a session was left while its documents were being replaced."""
    return store.has_folder(prefix + paths.RESTORING)


def complete_pending(store: SessionStore, prefix: str) -> list[str]:
    """Put what is staged in its place; what was set aside. Call it holding the session's lock; harmless twice."""
    stage = prefix + paths.RESTORING
    if not store.has_folder(stage):
        return []
    names = snapshot_paths(store, stage + _STAGED)
    plan = _read_plan(store, stage, names)
    staged = {path: store.read(stage + _STAGED + path) for path in names}
    present = snapshot_paths(store, prefix)
    aside = _set_aside(store, prefix, [path for path in present if _is_new(store, prefix, path, plan, staged)], staged)
    _make_way(store, prefix, present, {*staged, *aside})
    store.write_all({prefix + path: data for path, data in staged.items() if not _holds(store, prefix + path, data)})
    _arrange_folders(store, prefix, plan["folders"])
    store.delete(stage)
    return aside


def _make_way(store: SessionStore, prefix: str, present: list[str], kept: set[str]) -> None:
    """Remove what is not to stay, first of all: a file may come where a folder is, or a folder where a file is."""
    for path in (path for path in present if path not in kept):
        store.delete(prefix + path)
    for path in (path for path in kept if store.has_folder(f"{prefix}{path}/")):
        store.delete(f"{prefix}{path}/")


def _with_plan(staged: Iterable[tuple[str, bytes]], plan: bytes) -> Iterable[tuple[str, bytes]]:
    yield _STAGED, b""
    yield from staged
    yield _PLAN, plan


def _read_plan(store: SessionStore, stage: str, paths: Sequence[str]) -> dict[str, Any]:
    try:
        plan = json.loads(store.read(stage + _PLAN))
        check_paths(paths, plan["folders"])
        return {"before": dict(plan["before"]), "folders": plan["folders"]}
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError) as error:
        ways = f"remove {stage} to keep the session as it is, then restore again"
        raise InvalidDocument([Problem(f"does not say how to finish a restore: {error}; {ways}", file=stage)]) from None


def _is_new(store: SessionStore, prefix: str, path: str, plan: Mapping[str, Any], staged: Mapping[str, bytes]) -> bool:
    """Whether a document is neither what was there when this began nor what is to come: a person wrote it since."""
    now = store.read(prefix + path)
    return now != staged.get(path) and bytes_digest(now) != plan["before"].get(path)


def _set_aside(store: SessionStore, prefix: str, edited: list[str], staged: Mapping[str, bytes]) -> list[str]:
    """Copy documents to a folder where nothing was set aside before, nor will be; where they are now."""
    come = [path for path in edited if path in staged or not path.startswith(paths.SET_ASIDE)]
    there = [path for path in edited if path not in come]
    if not come:
        return there
    taken = [*snapshot_paths(store, prefix), *staged]
    folders = (f"{paths.SET_ASIDE}{number}/" for number in itertools.count(1))
    aside = next(folder for folder in folders if not any(path.startswith(folder) for path in taken))
    store.write_all({f"{prefix}{aside}{path}": store.read(prefix + path) for path in come})
    return [*there, *(aside + path for path in come)]


def _holds(store: SessionStore, key: str, data: bytes) -> bool:
    try:
        return store.read(key) == data
    except FileNotFoundError:
        return False


def _arrange_folders(store: SessionStore, prefix: str, wanted: list[str]) -> None:
    """Leave just those folders empty that were."""
    while extra := [path for path in snapshot_paths(store, prefix, empty=True) if _is_extra(path, wanted)]:
        for path in extra:
            store.delete(prefix + path)
    for path in wanted:
        store.ensure_folder(f"{prefix}{path}/")


def _is_extra(path: str, wanted: list[str]) -> bool:
    return path.endswith("/") and path[:-1] not in wanted
