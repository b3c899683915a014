"""A merge: whole phases of another session in the place of one's own, refused where both have changed them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from haytham.errors import HaythamError, InvalidArgument, MergeConflict
from haytham.history.catalog import SnapshotCatalog
from haytham.history.fork import lineage
from haytham.history.tree import scan_tree
from haytham.session import Session
from haytham.session.paths import phase_folder, session_lock
from haytham.session.swap import replace_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from haytham.config.workflow import Phase
    from haytham.history.catalog import HistoryStore
    from haytham.history.snapshot import FileEntry, SnapshotManifest
    from haytham.history.tree import WorkingTree

Digests = dict[str, str]


class Merge:
    """Phases that another session has changed and this one has not; MergeConflict where both have.

    Make and carry it out holding the project's lock. A phase that only this session has changed stays as it is.
    """

    def __init__(self, archive: HistoryStore, other: HistoryStore, numbers: Sequence[int]) -> None:
        own, theirs = archive.session.read(), other.session.read()
        phases = {number: _same_folder(own.phase(number), theirs.phase(number)) for number in numbers}
        here, there = scan_tree(archive.session, ()), scan_tree(other.session, ())
        self._folders = _taken(here, there, _parted(archive, other), list(phases.values()))
        self._session, self._other, self._before = archive.session, other.session, _digests(here.files)
        self.numbers = [number for number, folder in phases.items() if folder in self._folders]

    def carry_out(self) -> None:
        """Replace the documents of the phases, all or none; what the manifest shows is drawn anew."""
        session = self._session
        with session.store.lock(session_lock(session.project_id, session.session_id)):
            here, there = scan_tree(session, ()), scan_tree(self._other, ())
            _put_in_place(session, here, there, self._folders, before=self._before)
        session.regenerate_derived()


def _taken(here: WorkingTree, there: WorkingTree, bases: list[SnapshotManifest], folders: list[str]) -> list[str]:
    """The phases that the other session has changed and this one has not; MergeConflict where both have."""
    taken, both = [], []
    for folder in folders:
        was, mine, his = _common(bases, folder), _within(here.files, folder), _within(there.files, folder)
        if his in (mine, was):
            continue
        taken.append(folder)
        if mine != was:
            both += sorted(path for path in mine.keys() | his.keys() if mine.get(path) != his.get(path))
    if both:
        raise MergeConflict(both)
    return taken


def _same_folder(mine: Phase, his: Phase) -> str:
    if phase_folder(mine) != phase_folder(his):
        raise InvalidArgument(
            "phase", phase_folder(his), f"one that both sessions have; this one has {phase_folder(mine)}"
        )
    return phase_folder(mine)


def _within(rows: Sequence[FileEntry], folder: str) -> Digests:
    """The documents of a phase, by path."""
    return _digests(row for row in rows if row.path.startswith(f"{folder}/"))


def _digests(rows: Iterable[FileEntry]) -> Digests:
    return {row.path: row.digest for row in rows}


def _common(bases: list[SnapshotManifest], folder: str) -> Digests | None:
    """A phase as it was when two sessions parted; None where that cannot be told: then both count as changed."""
    found = [_within(base.files, folder) for base in bases]
    return found[0] if found and all(one == found[0] for one in found) else None


def _put_in_place(
    session: Session, here: WorkingTree, there: WorkingTree, folders: list[str], *, before: Digests
) -> None:
    """Make documents those of the session; one that changed since it was looked at is set aside."""
    kept = [row for row in here.files if row.path.partition("/")[0] not in folders]
    come = [row for row in there.files if row.path.partition("/")[0] in folders]
    contents = {**here.new, **there.new}
    empty = [path for path in here.folders if path.partition("/")[0] not in folders]
    empty += [path for path in there.folders if path.partition("/")[0] in folders]
    documents = ((row.path, contents[row.digest]) for row in (*kept, *come))
    replace_tree(session.store, session.prefix, documents, empty, before=before)


def _parted(archive: HistoryStore, other: HistoryStore) -> list[SnapshotManifest]:
    """What two sessions were when they parted from the nearest session that both come from, or that one of them is."""
    mine, his = _line(archive), _line(other)
    shared = next((name for name in mine if name in his), None)
    children = [] if shared is None else [line[line.index(shared) - 1] for line in (mine, his) if line[0] != shared]
    found = [_beginning(archive, child) for child in children]
    return [record for record in found if record is not None] if None not in found else []


def _line(archive: HistoryStore) -> list[str]:
    return [archive.session.session_id, *lineage(archive, archive.session.session_id)]


def _beginning(archive: HistoryStore, session_id: str) -> SnapshotManifest | None:
    """What a fork began with: its first snapshot, else the one it was forked from; None where both are gone."""
    project = archive.session.project_id
    manifest = Session(archive.session.store, project, session_id).read().manifest.value
    records = SnapshotCatalog(archive.store, project, session_id)
    first = [(records, name) for name in records.refs() if name.number == 1]
    of_parent = SnapshotCatalog(archive.store, project, manifest["forked_from"])
    point = [(of_parent, name) for name in of_parent.refs() if name.id == manifest.get("fork_point")]
    for where, name in (*first, *point):
        with suppress(HaythamError, OSError):
            return where.read(name)
    return None
