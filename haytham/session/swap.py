"""Replace the documents of a session by others, all or none, also if the process is killed.

The new documents are staged whole in `restoring/`, which appears at once; then they replace the present ones; then the
stage is deleted. Whoever opens the session while the stage exists finishes first. What a person wrote in between is set
aside.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidArgument, InvalidDocument, Problem
from haytham.session import paths
from haytham.session.listing import file_digest
from haytham.storage.base import Batch, Delete, Write, bytes_digest, check_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from haytham.storage.base import SessionStore

_STAGED = "documents/"
_PLAN = "plan.json"


def snapshot_versions(store: SessionStore, prefix: str) -> dict[str, object | None]:
    """Return the change tokens of a session's documents by path, and its empty folders, in the order of their paths."""
    versions = store.versions(prefix, empty=True)
    paths = {key.removeprefix(prefix): token for key, token in versions.items()}
    return {path: paths[path] for path in sorted(paths) if not _is_excluded(path)}


def snapshot_paths(store: SessionStore, prefix: str, *, empty: bool = False) -> list[str]:
    """Return the paths of the documents that snapshots have: all but logs, which only grow, and a stage."""
    keys = (key.removeprefix(prefix) for key in store.keys(prefix, empty=empty))
    return [path for path in keys if not _is_excluded(path)]


def _is_excluded(path: str) -> bool:
    return path in paths.NEVER_FROZEN or f"{path}/".startswith(paths.RESTORING)


def check_paths(paths: Sequence[str], folders: Sequence[str]) -> None:
    """Raise InvalidArgument for paths that no snapshot has: outside of a session, excluded, or both file and folder."""
    keys = [check_key(key) for key in (*paths, *folders)]
    above = {key[:at] for key in keys for at, letter in enumerate(key) if letter == "/"}
    for key in keys:
        if _is_excluded(key):
            raise InvalidArgument("document", key, "one that a snapshot may hold")
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
    """Make documents and empty folders those of a session, and no others; return the paths that were set aside.

    `before` has the digests of the documents that are stored elsewhere: one that differs was written since, and is set
    aside. Call it holding the session's lock. If a document cannot be read, nothing has changed.
    """
    plan = {"before": dict(before), "folders": list(folders)}
    staged = dict(documents)
    files = [(_STAGED, b""), *((_STAGED + path, data) for path, data in staged.items())]
    store.write_folder(prefix + paths.RESTORING, [*files, (_PLAN, json.dumps(plan).encode())])
    return _complete(store, prefix, staged, plan)


def has_pending(store: SessionStore, prefix: str) -> bool:
    """Return whether a process died while it replaced the documents of a session."""
    return store.has_folder(prefix + paths.RESTORING)


def complete_pending(store: SessionStore, prefix: str) -> list[str]:
    """Finish replacing the documents of a session, if a process died meanwhile; return the paths that were set aside.

    Call it holding the session's lock.
    """
    stage = prefix + paths.RESTORING
    if not store.has_folder(stage):
        return []
    names = snapshot_paths(store, stage + _STAGED)
    plan = _read_plan(store, stage, names)
    return _complete(store, prefix, {path: store.read(stage + _STAGED + path) for path in names}, plan)


def _complete(store: SessionStore, prefix: str, staged: Mapping[str, bytes], plan: Mapping[str, Any]) -> list[str]:
    """Replace the present documents by the staged ones, and delete the stage; each step may be repeated."""
    versions = snapshot_versions(store, prefix).items()
    present = {path: file_digest(store, prefix + path, token) for path, token in versions if not path.endswith("/")}
    new = {path: bytes_digest(data) for path, data in staged.items()}
    edited = [path for path, digest in present.items() if digest not in (new.get(path), plan["before"].get(path))]
    aside = _set_aside(store, prefix, edited, present, staged)
    _delete_others(store, prefix, present, {*staged, *aside})
    changed = {prefix + path: data for path, data in staged.items() if present.get(path) != new[path]}
    folders = tuple(f"{prefix}{path}/" for path in plan["folders"])
    store.commit(Batch(tuple(Write(key, data) for key, data in changed.items()), folders=folders))
    _delete_empty_folders(store, prefix, plan["folders"])
    store.delete(prefix + paths.RESTORING)
    return aside


def _delete_others(store: SessionStore, prefix: str, present: Collection[str], kept: set[str]) -> None:
    """Delete other documents first: a file may replace a folder, or a folder a file."""
    others = [path for path in present if path not in kept]
    folders = [f"{path}/" for path in kept.difference(present) if store.has_folder(f"{prefix}{path}/")]
    store.commit(Batch(deletes=tuple(Delete(prefix + path) for path in (*others, *folders))))


def _read_plan(store: SessionStore, stage: str, paths: Sequence[str]) -> dict[str, Any]:
    try:
        plan = json.loads(store.read(stage + _PLAN))
        check_paths(paths, plan["folders"])
        return {"before": dict(plan["before"]), "folders": plan["folders"]}
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError) as error:
        advice = f"remove {stage} to keep the session as it is, then restore again"
        raise InvalidDocument(
            [Problem(f"does not say how to finish a restore: {error}; {advice}", file=stage)]
        ) from None


def _set_aside(
    store: SessionStore, prefix: str, edited: list[str], present: Iterable[str], staged: Mapping[str, bytes]
) -> list[str]:
    """Copy documents to a new folder of `set_aside/`; return their paths there, with those set aside before."""
    copied = [path for path in edited if path in staged or not path.startswith(paths.SET_ASIDE)]
    earlier = [path for path in edited if path not in copied]
    if not copied:
        return earlier
    used = [*present, *staged]
    folders = (f"{paths.SET_ASIDE}{number}/" for number in itertools.count(1))
    aside = next(folder for folder in folders if not any(path.startswith(folder) for path in used))
    store.write_all({f"{prefix}{aside}{path}": store.read(prefix + path) for path in copied})
    return [*earlier, *(aside + path for path in copied)]


def _delete_empty_folders(store: SessionStore, prefix: str, expected: list[str]) -> None:
    """Delete empty folders that are not expected, and those above them that are empty then."""
    while extra := [path for path in snapshot_paths(store, prefix, empty=True) if _is_extra(path, expected)]:
        store.commit(Batch(deletes=tuple(Delete(prefix + path) for path in extra)))


def _is_extra(path: str, expected: list[str]) -> bool:
    return path.endswith("/") and path[:-1] not in expected
