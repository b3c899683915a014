"""Merging: replacing whole phases by those of another session, refused if both sessions changed them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from haytham.errors import HaythamError, InvalidArgument, MergeConflict
from haytham.history.catalog import SnapshotCatalog
from haytham.history.fork import lineage
from haytham.history.snapshot import scan_tree
from haytham.session import SessionDocuments
from haytham.session.paths import phase_folder, session_lock
from haytham.session.swap import replace_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from haytham.config.workflow import Phase
    from haytham.history.catalog import HistoryStore
    from haytham.history.snapshot import FileEntry, SnapshotManifest, WorkingTree

Digests = dict[str, str]


class Merge:
    """The phases that another session has changed and this one has not; MergeConflict if both have.

    Create and apply it holding the project's lock. A phase that only this session has changed stays as it is.
    """

    def __init__(self, archive: HistoryStore, other: HistoryStore, numbers: Sequence[int]) -> None:
        own, theirs = archive.session.read(), other.session.read()
        phases = {number: _same_folder(own.phase(number), theirs.phase(number)) for number in numbers}
        mine, other_tree = scan_tree(archive.session, ()), scan_tree(other.session, ())
        self._folders = _changed_folders(mine, other_tree, _fork_points(archive, other), list(phases.values()))
        self._session, self._other, self._before = archive.session, other.session, _digests(mine.files)
        self.numbers = [number for number, folder in phases.items() if folder in self._folders]

    def apply(self) -> None:
        """Replace the documents of the phases, all or none, and render the derived documents."""
        session = self._session
        with session.store.lock(session_lock(session.project_id, session.session_id)):
            mine, other = scan_tree(session, ()), scan_tree(self._other, ())
            _replace_folders(session, mine, other, self._folders, before=self._before)
        session.regenerate_derived()


def _changed_folders(
    mine: WorkingTree, other: WorkingTree, bases: list[SnapshotManifest], folders: list[str]
) -> list[str]:
    """Return the phases that the other session has changed and this one has not; MergeConflict if both have."""
    changed, conflicts = [], []
    for folder in folders:
        base, own, theirs = _base(bases, folder), _within(mine.files, folder), _within(other.files, folder)
        if theirs in (own, base):
            continue
        changed.append(folder)
        if own != base:
            conflicts += sorted(path for path in own.keys() | theirs.keys() if own.get(path) != theirs.get(path))
    if conflicts:
        raise MergeConflict(conflicts)
    return changed


def _same_folder(own: Phase, other: Phase) -> str:
    if phase_folder(own) != phase_folder(other):
        raise InvalidArgument(
            "phase", phase_folder(other), f"one that both sessions have; this one has {phase_folder(own)}"
        )
    return phase_folder(own)


def _within(entries: Sequence[FileEntry], folder: str) -> Digests:
    """Return the documents of a phase, by path."""
    return _digests(entry for entry in entries if entry.path.startswith(f"{folder}/"))


def _digests(entries: Iterable[FileEntry]) -> Digests:
    return {entry.path: entry.digest for entry in entries}


def _base(bases: list[SnapshotManifest], folder: str) -> Digests | None:
    """Return a phase as it was at the fork; None if that is unknown: then both count as changed."""
    digests = [_within(base.files, folder) for base in bases]
    return digests[0] if digests and all(other == digests[0] for other in digests) else None


def _replace_folders(
    session: SessionDocuments, mine: WorkingTree, other: WorkingTree, folders: list[str], *, before: Digests
) -> None:
    """Replace the documents of folders by those of another tree; one that was edited meanwhile is set aside."""
    entries = [entry for entry in mine.files if entry.path.partition("/")[0] not in folders]
    entries += [entry for entry in other.files if entry.path.partition("/")[0] in folders]
    contents = {**mine.new, **other.new}
    empty = [path for path in mine.folders if path.partition("/")[0] not in folders]
    empty += [path for path in other.folders if path.partition("/")[0] in folders]
    documents = ((entry.path, contents[entry.digest]) for entry in entries)
    replace_tree(session.store, session.prefix, documents, empty, before=before)


def _fork_points(archive: HistoryStore, other: HistoryStore) -> list[SnapshotManifest]:
    """Return both sessions as they were when forked from their nearest common ancestor, which may be one of them."""
    own, theirs = _ancestry(archive), _ancestry(other)
    ancestor = next((name for name in own if name in theirs), None)
    lines = [line for line in (own, theirs) if line[0] != ancestor]
    forks = [] if ancestor is None else [line[line.index(ancestor) - 1] for line in lines]
    records = [_first_record(archive, fork) for fork in forks]
    return [record for record in records if record is not None] if None not in records else []


def _ancestry(archive: HistoryStore) -> list[str]:
    return [archive.session.session_id, *lineage(archive, archive.session.session_id)]


def _first_record(archive: HistoryStore, session_id: str) -> SnapshotManifest | None:
    """Return the first snapshot of a fork, else the one it was forked from; None if both are missing."""
    project = archive.session.project_id
    manifest = SessionDocuments(archive.session.store, project, session_id).read().manifest.value
    records = SnapshotCatalog(archive.store, project, session_id)
    parent = SnapshotCatalog(archive.store, project, manifest.forked_from or "")
    candidates = [(records, ref) for ref in records.numbered(1)]
    candidates += [(parent, ref) for ref in parent.refs() if ref.id == manifest.fork_point]
    for catalog, ref in candidates:
        with suppress(HaythamError, OSError):
            return catalog.read(ref)
    return None
