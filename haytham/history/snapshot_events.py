"""The events of snapshots: about to be taken, saved, deleted. What they are and who hears of them is in `events`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from haytham.errors import SnapshotVetoed
from haytham.events import Event
from haytham.history.snapshot import capture
from haytham.session import SessionDocuments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from haytham.config.policy import SnapshotKind
    from haytham.events import Events
    from haytham.history.catalog import HistoryStore, RecordRef
    from haytham.history.snapshot import Snapshot, SnapshotManifest
    from haytham.storage.base import Append

Why = Literal["retention", "limit", "request", "operation"]

VETOABLE = frozenset({"routine", "phase", "manual"})


def ask_taking(events: Events, kind: SnapshotKind, label: str | None) -> Event:
    """Call the handlers of `snapshot_taking`; SnapshotVetoed, once that is recorded, if one vetoes the snapshot.

    Return the event, which is stored together with what comes of it: a snapshot that fails leaves nothing.
    """
    taking = Event.new("snapshot_taking", kind=kind, label=label)
    if kind not in VETOABLE:
        events.dispatch(taking)
        return taking
    answer = events.ask(taking)
    if answer is not None:
        handler, veto = answer
        events.emit_all([Event.new("snapshot_skipped", kind=kind, handler=handler, why=veto.reason)], after=[taking])
        raise SnapshotVetoed(kind, veto.reason, handler)
    return taking


def capture_and_emit(
    archive: HistoryStore, events: Events, taking: Event, kind: SnapshotKind, **facts: Any
) -> tuple[SnapshotManifest, bool]:
    """Take a snapshot as `capture` does, and say so: in its commit, if that goes to the session's store.

    Call it in `events.held()`, as its caller holds a lock.
    """
    saved: list[Event] = []
    is_one_store = archive.store is archive.session.store

    def appends(snapshot: Snapshot) -> tuple[Append, ...]:
        sizes = {"raw": snapshot.raw, "added": snapshot.added}
        saved.append(Event.new("snapshot_saved", **_ids(snapshot), **sizes))
        return events.lines([taking, *saved]) if is_one_store else ()

    record, is_new = capture(archive, kind, **facts, appends=appends)
    if saved and is_one_store:
        events.dispatch(saved[0])
    elif saved:
        events.emit_all(saved, after=[taking])
    return record, is_new


def emit_deleted(events: Events, own: SessionDocuments, snapshots: Iterable[Snapshot | RecordRef], why: Why) -> None:
    """Say that snapshots were deleted, in the file of the session of each."""
    by_session: dict[str, list[dict[str, Any]]] = {}
    for snapshot in snapshots:
        name = getattr(snapshot, "session", own.session_id)
        by_session.setdefault(name, []).append({**_ids(snapshot), "why": why})
    for name, facts in by_session.items():
        is_own = name == own.session_id
        log = events if is_own else SessionDocuments(own.store, own.project_id, name).events
        log.emit_all([Event.new("snapshot_deleted", **about) for about in facts])


def _ids(snapshot: Snapshot | RecordRef) -> dict[str, Any]:
    return {"snapshot": snapshot.id, "number": snapshot.number, "kind": getattr(snapshot, "kind", None)}
