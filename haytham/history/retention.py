"""Retention: which snapshots the rules delete, which are protected, and deleting them with their blobs."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from haytham import clock
from haytham.errors import HaythamError, InvalidArgument
from haytham.history import restore
from haytham.history.catalog import SnapshotCatalog, recorded_sessions
from haytham.session import SessionDocuments
from haytham.session.paths import MANIFEST, sessions_prefix

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from haytham.config.policy import RetentionRule
    from haytham.history.catalog import HistoryStore, RecordRef
    from haytham.history.snapshot import Snapshot

log = logging.getLogger(__name__)

_IN_SESSION = 4  # project, "history", "snapshots", session, and more
_HELD_KINDS = frozenset({"manual", "final"})
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(m|h|d|w)", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def expired(
    snapshots: Sequence[Snapshot], rules: Mapping[str, RetentionRule], *, now: str, kept: Collection[str]
) -> list[str]:
    """Return the ids that the rules delete, of one session's snapshots in the order of their numbers."""
    for kind, rule in rules.items():
        if rule.keep_last is not None and rule.keep_last < 1:
            raise InvalidArgument(f"retention.{kind}.keep_last", rule.keep_last, "1 or more")
    deleted: set[str] = set()
    for kind, rule in rules.items():
        deleted |= _expired_by([snapshot for snapshot in snapshots if snapshot.kind == kind], rule, now)
    deleted -= protected(snapshots, kept, held=_HELD_KINDS - rules.keys())
    return [snapshot.id for snapshot in snapshots if snapshot.id in deleted]


def _expired_by(snapshots: list[Snapshot], rule: RetentionRule, now: str) -> set[str]:
    """Return the ids that one rule deletes of its own kind."""
    surplus = snapshots[: -rule.keep_last] if rule.keep_last is not None else []
    days = rule.cleanup_after_days
    old = [] if days is None else older_than(snapshots, timedelta(days=days), now)
    return {snapshot.id for snapshot in (*surplus, *old)}


def older_than(snapshots: Iterable[Snapshot], age: timedelta, now: str) -> list[Snapshot]:
    """Return the snapshots that are older than an age."""
    try:
        before = parse_time(now) - age
    except OverflowError:  # earlier than any calendar
        return []
    return [snapshot for snapshot in snapshots if parse_time(snapshot.time) < before]


def protected(snapshots: Sequence[Snapshot], kept: Collection[str], *, held: Collection[str] = _HELD_KINDS) -> set[str]:
    """Return the ids that no rule deletes: the newest, the last of each approval, labelled, `held` kinds, `kept`."""
    approvals = {item.approval: item.id for item in snapshots if item.approval is not None}
    by_kind = {item.id for item in snapshots if item.label is not None or item.kind in held}
    return {*by_kind, *approvals.values(), *kept, *(item.id for item in snapshots[-1:])}


def excess(snapshots: Sequence[Snapshot], most: int, kept: Collection[str]) -> list[str]:
    """Return the oldest ids to delete so that at most so many are left, as far as `kept` allows."""
    surplus = len(snapshots) - most
    return [snapshot.id for snapshot in snapshots if snapshot.id not in kept][: max(surplus, 0)]


def parse_duration(text: object) -> timedelta:
    """Return a duration as people write it: 90m, 12h, 30d, 2w."""
    match = _SPAN.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise InvalidArgument("age", text, "a number and m, h, d or w, like 30d")
    try:
        return timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError:
        raise InvalidArgument("age", text, "one that a calendar has") from None


def parse_time(time: str) -> datetime:
    """Return the time of a record; without a zone it is UTC."""
    parsed = datetime.fromisoformat(time)
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def prune(
    archive: HistoryStore, *, dry_run: bool = False, age: timedelta | None = None, kind: str | None = None
) -> list[Snapshot]:
    """Delete expired snapshots, or those older than an age; return them, oldest first."""
    with archive.lock():
        snapshots = archive.records.snapshots()
        deleted = _select(archive, snapshots, age, kind)
        if not dry_run:
            remove(archive, [snapshot.id for snapshot in deleted])
        return deleted


def _select(
    archive: HistoryStore, snapshots: list[Snapshot], age: timedelta | None, kind: str | None
) -> list[Snapshot]:
    """Return the snapshots that are deleted by the rules, or by an age."""
    kept = archive.protected_ids() | fork_points(archive, [snapshot.id for snapshot in snapshots])
    if age is None:
        ids = set(expired(snapshots, archive.policy.retention, now=clock.now(), kept=kept))
    else:
        ids = {snapshot.id for snapshot in older_than(snapshots, age, clock.now())} - protected(snapshots, kept)
    return _confirm(archive, snapshots, [item for item in snapshots if item.id in ids and kind in (None, item.kind)])


def _confirm(archive: HistoryStore, snapshots: list[Snapshot], selected: list[Snapshot]) -> list[Snapshot]:
    """Return the selected snapshots without the last intact one, and without those whose record says otherwise."""
    intact = _last_intact(archive, snapshots) if selected else None
    refs = {ref.id: ref for ref in archive.records.refs()}
    return [item for item in selected if item.id != intact and _is_as_listed(archive, refs.get(item.id), item)]


def _is_as_listed(archive: HistoryStore, ref: RecordRef | None, snapshot: Snapshot) -> bool:
    """Return whether a record agrees with the index, which may be old or forged."""
    try:
        return ref is not None and archive.records.read(ref).snapshot == snapshot
    except (HaythamError, OSError) as error:
        log.warning("snapshot %d is kept, as it cannot be read: %s", snapshot.number, error)
        return False


def _last_intact(archive: HistoryStore, snapshots: list[Snapshot]) -> str | None:
    """Return the id of the last snapshot whose blobs are all intact."""
    refs = {ref.id: ref for ref in archive.records.refs()}
    for snapshot in reversed(snapshots):
        try:
            restore.verify_blobs(archive, archive.records.read(refs[snapshot.id]))
        except (HaythamError, OSError, KeyError) as error:
            log.warning("snapshot %d cannot be relied on: %s", snapshot.number, error)
        else:
            return snapshot.id
    return None


def fork_points(archive: HistoryStore, ids: Collection[str]) -> set[str]:
    """Return the snapshots that a manifest of the project names as its origin, readable or not."""
    store, project = archive.session.store, archive.session.project_id
    points: set[str] = set()
    for session_id in store.folders(sessions_prefix(project)):
        try:
            manifest = store.read(f"{sessions_prefix(project)}{session_id}/{MANIFEST}")
        except (HaythamError, OSError):
            continue
        points |= {snapshot_id for snapshot_id in ids if snapshot_id.encode() in manifest}
    return points


def remove(archive: HistoryStore, ids: Iterable[str]) -> None:
    """Delete snapshots, pinned ones too, and blobs that no record names then. Call it holding the project's lock."""
    deleted = set(ids)
    if not deleted:
        return
    for snapshot_id in deleted & archive.pins():
        archive.unpin(snapshot_id)
    archive.records.remove([ref for ref in archive.records.refs() if ref.id in deleted])
    collect_garbage(archive)


def collect_garbage(archive: HistoryStore) -> int:
    """Delete the blobs that no record of the project names; none if a record is damaged. Return how many."""
    project = archive.session.project_id
    try:
        used = [
            digest
            for session_id in recorded_sessions(archive.store, project)
            for digest in SnapshotCatalog(archive.store, project, session_id).digests()
        ]
    except HaythamError as error:
        log.warning("no bytes were let go: %s", error)
        return 0
    return archive.blobs.collect_garbage(used)


def delete(archive: HistoryStore, snapshot_id: str) -> None:
    """Delete one snapshot, damaged or not, unless it is pinned or was forked."""
    with archive.lock():
        if snapshot_id in archive.pins():
            raise InvalidArgument("snapshot", snapshot_id, "one that is not pinned; unpin it first")
        if fork_points(archive, [snapshot_id]):
            raise InvalidArgument("snapshot", snapshot_id, "one that no fork comes from; discard the fork first")
        remove(archive, [snapshot_id])


def enforce_limits(archive: HistoryStore, taken: Snapshot) -> None:
    """Delete the oldest unprotected snapshots beyond the limits of the session and of the user."""
    with archive.lock():
        if taken.number > archive.policy.max_snapshots:  # numbers are never used again, so that fewer are no excess
            _limit_session(archive)
        most = archive.policy.user_limit()
        if most is not None:
            _limit_user(archive, taken.user, most)


def _limit_session(archive: HistoryStore) -> None:
    """Delete the session's oldest unprotected snapshots, manual and final ones last."""
    surplus = len(archive.records.refs()) - archive.policy.max_snapshots
    if surplus > 0:
        deletable = _deletable(archive, archive.records.snapshots())
        deletable.sort(key=_is_held)
        remove(archive, [snapshot.id for snapshot in deletable[:surplus]])


def _limit_user(archive: HistoryStore, user: str | None, most: int) -> None:
    """Delete a user's oldest unprotected snapshots in the project, manual and final ones last."""
    histories = [(history, history.records.snapshots()) for history in _project(archive)]
    own = sum(snapshot.user == user for _, snapshots in histories for snapshot in snapshots)
    surplus = own + _count_elsewhere(archive, user) - most
    if surplus <= 0:
        return
    deletable = [
        (snapshot, history)
        for history, snapshots in histories
        for snapshot in _deletable(history, snapshots)
        if snapshot.user == user
    ]
    deletable.sort(key=lambda pair: (_is_held(pair[0]), pair[0].id.rpartition("-")[0], pair[0].number))
    for snapshot, history in deletable[:surplus]:
        remove(history, [snapshot.id])


def _is_held(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is of a kind that limits delete only after all others."""
    return snapshot.kind in _HELD_KINDS


def _project(archive: HistoryStore) -> list[HistoryStore]:
    """Return the histories of all sessions of the project, whose lock is held."""
    session = archive.session
    names = recorded_sessions(archive.store, session.project_id)
    others = [SessionDocuments(session.store, session.project_id, name) for name in names if name != session.session_id]
    return [archive, *map(archive.for_session, others)]


def _deletable(archive: HistoryStore, snapshots: list[Snapshot]) -> list[Snapshot]:
    """Return the snapshots that are not protected."""
    points = fork_points(archive, [snapshot.id for snapshot in snapshots])
    kept = protected(snapshots, archive.protected_ids() | points, held=())
    return _confirm(archive, snapshots, [snapshot for snapshot in snapshots if snapshot.id not in kept])


def _count_elsewhere(archive: HistoryStore, user: str | None) -> int:
    """Return how many snapshots a user has in the store in other projects."""
    names = {(key.split("/")[0], key.split("/")[3]) for key in archive.store.keys("") if _is_record(key)}
    others = [SnapshotCatalog(archive.store, *name) for name in names if name[0] != archive.session.project_id]
    return sum(snapshot.user == user for catalog in others for snapshot in catalog.snapshots())


def _is_record(key: str) -> bool:
    parts = key.split("/")
    return len(parts) > _IN_SESSION and parts[1:3] == ["history", "snapshots"]
