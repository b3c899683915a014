"""Merging texts of another session: three-way, from what both were when they parted or were merged last.

Only outputs are merged, and of them only the text. Where both sessions changed the same lines or table rows, or nobody
knows what they come from, that is a conflict: nothing is guessed.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from haytham.errors import HaythamError, InvalidArgument, InvalidDocument, MergeConflict
from haytham.history.catalog import SnapshotCatalog
from haytham.history.fork import lineage
from haytham.history.snapshot_events import ask_taking, capture_and_emit
from haytham.markdown.parser import parse
from haytham.markdown.schema import load_schema
from haytham.session import SessionDocuments
from haytham.session.merged import PageMerge, is_written, save_merge
from haytham.session.models import AgentOutput
from haytham.session.paths import output_file, phase_folder
from haytham.session.review import bind_typed
from haytham.text import text_digest
from haytham.text_merge import merge_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from haytham.config.workflow import Phase
    from haytham.events import Events
    from haytham.history.catalog import HistoryStore
    from haytham.history.snapshot import Snapshot, SnapshotManifest
    from haytham.session.models import MergeBase
    from haytham.session.view import SessionView
    from haytham.text_merge import Side

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MergedPage:
    """An output that a merge changed, by its path in the session, and the conflicts that are marked in it."""

    phase: int
    agent: str
    path: str
    conflicts: int = 0


@dataclass(frozen=True)
class MergeReport:
    """The outputs that a merge changed, the phases whose gates it opened, and the snapshot that undoes it, if any."""

    pages: tuple[MergedPage, ...] = ()
    opened: tuple[int, ...] = ()
    recovery: Snapshot | None = None

    @property
    def phases(self) -> tuple[int, ...]:
        """Return the phases that a merge changed."""
        return tuple(dict.fromkeys(page.phase for page in self.pages))


def merge(  # noqa: PLR0913 - what is merged, who hears of it, and who decides conflicts
    archive: HistoryStore,
    other: HistoryStore,
    numbers: Sequence[int],
    events: Events,
    *,
    prefer: Side | None = None,
    mark_conflicts: bool = False,
) -> MergeReport:
    """Merge the texts of phases of another session in one transaction; MergeConflict if both changed the same.

    With `mark_conflicts` those are marked in the texts instead. Call it holding the run lock and the project's lock.
    """
    source = other.session.session_id
    theirs = other.session.read()
    bases = MergeBases(archive, other)
    with archive.session.transaction() as changes:
        bind_typed(changes, None)  # what was decided before was decided on the texts before
        phases = [_same_phase(changes.view.phase(number), theirs.phase(number)) for number in numbers]
        pages = [page for phase in phases for page in _merge_phase(changes.view, theirs, phase, bases, prefer)]
        changed = tuple(
            MergedPage(page.phase.number, page.agent, _path(page.phase, page.agent), page.conflicts)
            for page in pages
            if page.is_changed
        )
        conflicts = {page.path: page.conflicts for page in changed if page.conflicts}
        if conflicts and not mark_conflicts:
            raise MergeConflict(conflicts)
        record = _take_recovery(archive, events, source) if changed else None
        opened = save_merge(changes, source, pages)
        report = MergeReport(changed, tuple(opened), None if record is None else record.snapshot)
        changes.emit("merged", session=source, phases=list(report.phases))
    return report


def _take_recovery(archive: HistoryStore, events: Events, source: str) -> SnapshotManifest:
    taking = ask_taking(events, "recovery", None)
    return capture_and_emit(archive, events, taking, "recovery", metadata={"operation": f"merge {source}"})[0]


def _same_phase(own: Phase, other: Phase) -> Phase:
    if phase_folder(own) != phase_folder(other):
        raise InvalidArgument(
            "phase", phase_folder(other), f"one that both sessions have; this one has {phase_folder(own)}"
        )
    return own


def _path(phase: Phase, agent: str) -> str:
    return f"{phase_folder(phase)}/{output_file(agent)}"


def _merge_phase(
    ours: SessionView, theirs: SessionView, phase: Phase, bases: MergeBases, prefer: Side | None
) -> Iterator[PageMerge]:
    """Yield the merges of a phase's outputs that the other session has written since the last one."""
    for agent in phase.agents:
        own, other = ours.output(phase, agent), theirs.output(phase, agent)
        if other is None or not is_written(other):
            continue
        text, last = other.value.text, bases.last(ours, theirs, phase, agent)
        if own is None or not is_written(own):
            yield PageMerge(phase, agent, text, 0, other.value, is_changed=True, last=last)
            continue
        base = bases.fork_point(phase, agent) if last is None else last.text
        if base is not None and text_digest(base) == text_digest(text):
            continue
        merge = merge_texts(base, own.value.text, text, names=bases.names, prefer=prefer)
        is_changed = text_digest(merge.text) != text_digest(own.value.text)
        yield PageMerge(phase, agent, merge.text, merge.conflicts, other.value, is_changed, last)


class MergeBases:
    """What the outputs of two sessions come from: the texts that were merged last, else those when they parted."""

    def __init__(self, archive: HistoryStore, other: HistoryStore) -> None:
        self._archive, self._other = archive, other
        self.names = archive.session.session_id, other.session.session_id

    def last(self, ours: SessionView, theirs: SessionView, phase: Phase, agent: str) -> MergeBase | None:
        """Return the record of the last merge of an output, in either direction; None if it was never merged."""
        own, other = self.names
        records = ours.merge_base(phase, agent, other), theirs.merge_base(phase, agent, own)
        merged = [record.value for record in records if record is not None]
        return max(merged, key=lambda base: base.number, default=None)

    def fork_point(self, phase: Phase, agent: str) -> str | None:
        """Return the text of an output when the sessions parted; None if nobody knows it."""
        texts = [self._text(record, _path(phase, agent)) for record in self._fork_points]
        return texts[0] if texts and all(text == texts[0] for text in texts) else None

    def _text(self, record: SnapshotManifest, path: str) -> str | None:
        """Return the text of an output in a snapshot; None if it has none, or none that can be read."""
        entry = next((entry for entry in record.files if entry.path == path), None)
        if entry is None:
            return None
        try:
            parsed = parse(load_schema(AgentOutput.KIND), self._archive.blobs.read(entry))
        except InvalidDocument as error:
            log.warning("what %s was when the sessions parted cannot be read: %s", path, error)
            return None
        return None if parsed.faults else str(parsed.value["text"])

    @cached_property
    def _fork_points(self) -> list[SnapshotManifest]:
        """Both sessions as they were when forked from their nearest common ancestor, which may be one of them."""
        own, theirs = _ancestry(self._archive), _ancestry(self._other)
        ancestor = next((name for name in own if name in theirs), None)
        lines = [line for line in (own, theirs) if line[0] != ancestor]
        forks = [] if ancestor is None else [line[line.index(ancestor) - 1] for line in lines]
        records = [_first_record(self._archive, fork) for fork in forks]
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
