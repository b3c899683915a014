"""The tree of snapshots: what came of what, over a session and all its forks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from haytham.session import Session
from haytham.session.layout import sessions_prefix
from haytham.snapshot.forking import lineage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from haytham.snapshot.archive import Archive
    from haytham.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class Node:
    """A snapshot, and those that came of it, oldest first."""

    snapshot: Snapshot
    children: tuple[Node, ...]


def grown(sessions: Iterable[Sequence[Snapshot]]) -> list[Node]:
    """The trees of snapshots, each session's in the order of their numbers.

    One whose parent was let go hangs on the one before it in its session; one without any before it is a root.
    """
    lines = [list(line) for line in sessions]
    known = {one.id for line in lines for one in line}
    parents: dict[str, str | None] = {}
    for line in lines:
        before: str | None = None
        for one in line:
            parents[one.id] = one.parent if one.parent in known else before
            before = one.id
    children: dict[str | None, list[Snapshot]] = {}
    for one in (one for line in lines for one in line):
        children.setdefault(parents[one.id], []).append(one)
    return _nodes(children)


def _nodes(children: dict[str | None, list[Snapshot]]) -> list[Node]:
    """Nodes from the leaves up, without a call for each generation: a line may be thousands long."""
    done: dict[str, Node] = {}
    todo = list(children.get(None, []))
    order: list[Snapshot] = []
    while todo:
        one = todo.pop()
        order.append(one)
        todo += children.get(one.id, [])
    for one in reversed(order):
        done[one.id] = Node(one, tuple(done[child.id] for child in children.get(one.id, [])))
    return [done[one.id] for one in children.get(None, [])]


def family(archive: Archive) -> list[list[Snapshot]]:
    """The snapshots of a session, and of every session that comes from it."""
    own = archive.session
    forks = [name for name in own.store.folders(sessions_prefix(own.project_id)) if _descends(archive, name)]
    others = [archive.other(Session(own.store, own.project_id, name)) for name in forks]
    return [one.records.snapshots() for one in (archive, *others)]


def _descends(archive: Archive, session_id: str) -> bool:
    return session_id != archive.session.session_id and archive.session.session_id in lineage(archive, session_id)
