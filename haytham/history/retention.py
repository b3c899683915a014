"""Retention: which snapshots the rules delete, which are protected, and deleting them with their blobs."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

from haytham import clock
from haytham.errors import HaythamError, InvalidArgument
from haytham.history import restore
from haytham.history.catalog import SnapshotCatalog, recorded_sessions
from haytham.history.schedule import make_schedule, parse_time, read_schedule, write_schedule
from haytham.session import SessionDocuments
from haytham.session.paths import MANIFEST, sessions_prefix

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from haytham.config.policy import RetentionRule
    from haytham.history.catalog import HistoryStore, RecordRef
    from haytham.history.snapshot import Snapshot

log = logging.getLogger(__name__)

_IN_SESSION = 4  # project, "history", "snapshots", session, and more
_HELD_KINDS = frozenset({"manual", "final"})
_COLLECTED_EVERY = 100  # snapshots
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
    """Return the ids that no rule deletes.

    The newest, the last of each approval, those before an unfinished operation, labelled, `held` kinds, and `kept`.
    """
    approvals = {item.approval: item.id for item in snapshots if item.approval is not None}
    by_kind = {item.id for item in snapshots if item.label is not None or item.kind in held}
    return {*by_kind, *approvals.values(), *unfinished(snapshots), *kept, *(item.id for item in snapshots[-1:])}


def unfinished(snapshots: Sequence[Snapshot]) -> set[str]:
    """Return the ids of snapshots before an operation that neither succeeded nor failed: a killed process left them.

    One that succeeds deletes its snapshot, and one that fails has a recovery snapshot, which names the one before.
    """
    failed = {item.metadata.get("before") for item in snapshots if item.kind == "recovery"}
    before = [item for item in snapshots if item.kind == "pre_operation" and "operation" in item.metadata]
    return {item.id for item in before if item.id not in failed}


def parse_duration(text: object) -> timedelta:
    """Return a duration as people write it: 90m, 12h, 30d, 2w."""
    match = _SPAN.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise InvalidArgument("age", text, "a number and m, h, d or w, like 30d")
    try:
        return timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError:
        raise InvalidArgument("age", text, "one that a calendar has") from None


def prune(
    archive: HistoryStore,
    *,
    dry_run: bool = False,
    age: timedelta | None = None,
    kind: str | None = None,
    collect: bool = True,
) -> list[Snapshot]:
    """Delete expired snapshots, or those older than an age, and unused blobs; return the snapshots, oldest first."""
    with archive.lock():
        deleted = _select(archive, archive.records.snapshots(), age, kind)
        if not dry_run:
            remove(archive, [snapshot.id for snapshot in deleted], collect=False)
            if collect:
                collect_garbage(archive)
        return deleted


def _select(
    archive: HistoryStore, snapshots: list[Snapshot], age: timedelta | None, kind: str | None
) -> list[Snapshot]:
    """Return the snapshots that are deleted by the rules, or by an age."""
    kept = archive.protected_ids()
    if age is None:
        ids = set(expired(snapshots, archive.policy.retention, now=clock.now(), kept=kept))
    else:
        ids = {snapshot.id for snapshot in older_than(snapshots, age, clock.now())} - protected(snapshots, kept)
    if ids:
        ids -= fork_points(archive, ids)
    selected = [item for item in snapshots if item.id in ids and kind in (None, item.kind)]
    return [item for item, _ in _confirm([(item, archive) for item in selected])]


def _confirm(selected: Iterable[tuple[Snapshot, HistoryStore]]) -> Iterator[tuple[Snapshot, HistoryStore]]:
    """Yield the selected snapshots without the last intact one of each history, and those whose record says otherwise.

    Records are read one after the other, so that who needs a few reads no more.
    """
    checked: dict[HistoryStore, tuple[str | None, dict[str, RecordRef]]] = {}
    for snapshot, history in selected:
        if history not in checked:
            refs = {ref.id: ref for ref in history.records.refs()}
            checked[history] = _last_intact(history, history.records.snapshots()), refs
        intact, refs = checked[history]
        if snapshot.id != intact and _is_as_listed(history, refs.get(snapshot.id), snapshot):
            yield snapshot, history


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


def remove(archive: HistoryStore, ids: Iterable[str], *, collect: bool = True) -> None:
    """Delete snapshots, pinned ones too, and blobs that no record names then. Call it holding the project's lock.

    Without `collect` the blobs stay until the next start of a run or `prune`.
    """
    deleted = set(ids)
    if not deleted:
        return
    for snapshot_id in deleted & archive.pins():
        archive.unpin(snapshot_id)
    archive.records.remove([ref for ref in archive.records.refs() if ref.id in deleted])
    if collect:
        collect_garbage(archive)


def collect_garbage(archive: HistoryStore) -> int:
    """Delete the blobs that no record of the project names; none if a record is damaged. Return how many."""
    project = archive.session.project_id
    if not archive.store.keys(f"{project}/history/", depth=3):  # nothing was ever taken
        return 0
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
            raise InvalidArgument("snapshot", snapshot_id, "one that no fork comes from; delete the fork first")
        remove(archive, [snapshot_id])


@dataclass(frozen=True)
class Deleted:
    """Snapshots that were deleted: those that a rule let expire, and those beyond a limit."""

    expired: tuple[Snapshot, ...] = ()
    surplus: tuple[Snapshot, ...] = ()

    def __add__(self, other: Deleted) -> Deleted:
        return Deleted(self.expired + other.expired, self.surplus + other.surplus)


def after_take(archive: HistoryStore, taken: Snapshot) -> Deleted:
    """Delete what rules and limits delete now that a snapshot was taken; return it.

    Nothing is listed while the schedule says that nothing is due.
    """
    with archive.lock():
        schedule, rules = read_schedule(archive), archive.policy.retention
        expired = [] if schedule is not None and not schedule.is_due(rules, taken) else _apply_rules(archive)
        is_full = taken.number > archive.policy.max_snapshots  # numbers are never used again: fewer are no excess
        surplus = _limit_session(archive) if is_full else []
        surplus += _limit_user(archive, taken.user)
        if taken.number % _COLLECTED_EVERY == 0:  # for those who never start a run
            collect_garbage(archive)
        return Deleted(tuple(expired), tuple(surplus))


def apply_to_project(archive: HistoryStore) -> Deleted:
    """Delete what rules and limits delete in all sessions of the project, and unused blobs; return the snapshots.

    In other sessions only what their schedule says is due.
    """
    deleted = Deleted()
    with archive.lock():
        for history in _project(archive):
            try:
                deleted += _apply_all(history, is_own=history is archive)
            except (HaythamError, OSError) as error:
                log.warning("the history of session %s could not be pruned: %s", history.session.session_id, error)
        collect_garbage(archive)
    return deleted


def _apply_all(archive: HistoryStore, *, is_own: bool) -> Deleted:
    """Delete what rules and limits delete in a session; in one that is not our own only if that is due."""
    schedule = None if is_own else read_schedule(archive)
    if not archive.policy.enabled or (schedule is not None and not schedule.is_due(archive.policy.retention)):
        return Deleted()
    expired, surplus = _apply_rules(archive), _limit_session(archive)
    users = {snapshot.user for snapshot in archive.records.snapshots()} if is_own else ()
    surplus += [snapshot for user in users for snapshot in _limit_user(archive, user)]
    return Deleted(tuple(expired), tuple(surplus))


def _apply_rules(archive: HistoryStore) -> list[Snapshot]:
    """Delete the expired snapshots, and note when the next ones are due."""
    deleted = prune(archive, collect=False)
    rest, rules = archive.records.snapshots(), archive.policy.retention
    schedule = make_schedule(rest, rules)
    if schedule != read_schedule(archive):
        write_schedule(archive, schedule)
    return deleted


def _limit_session(archive: HistoryStore) -> list[Snapshot]:
    """Delete the session's oldest unprotected snapshots beyond its limit, manual and final ones last; return them."""
    surplus = len(archive.records.refs()) - archive.policy.max_snapshots
    if surplus <= 0:
        return []
    candidates = sorted(_unprotected(archive, archive.records.snapshots()), key=_is_held)
    deleted = [item for item, _ in islice(_confirm((item, archive) for item in candidates), surplus)]
    remove(archive, [snapshot.id for snapshot in deleted], collect=False)
    return deleted


def _limit_user(archive: HistoryStore, user: str | None) -> list[Snapshot]:
    """Delete a user's oldest unprotected snapshots in the project beyond their limit, manual and final ones last."""
    most = archive.policy.user_limit()
    if most is None:
        return []
    histories = [(history, history.records.snapshots()) for history in _project(archive)]
    own = sum(snapshot.user == user for _, snapshots in histories for snapshot in snapshots)
    surplus = own + _count_elsewhere(archive, user) - most
    if surplus <= 0:
        return []
    candidates = [
        (snapshot, history)
        for history, snapshots in histories
        for snapshot in _unprotected(history, snapshots)
        if snapshot.user == user
    ]
    candidates.sort(key=lambda pair: (_is_held(pair[0]), pair[0].id.rpartition("-")[0], pair[0].number))
    deleted = list(islice(_confirm(candidates), surplus))
    for snapshot, history in deleted:
        remove(history, [snapshot.id], collect=False)
    return [snapshot for snapshot, _ in deleted]


def _is_held(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is of a kind that limits delete only after all others."""
    return snapshot.kind in _HELD_KINDS


def _project(archive: HistoryStore) -> list[HistoryStore]:
    """Return the histories of all sessions of the project, whose lock is held."""
    session = archive.session
    names = recorded_sessions(archive.store, session.project_id)
    others = [SessionDocuments(session.store, session.project_id, name) for name in names if name != session.session_id]
    return [archive, *map(archive.for_session, others)]


def _unprotected(archive: HistoryStore, snapshots: list[Snapshot]) -> list[Snapshot]:
    """Return the snapshots that are not protected, by the index."""
    points = fork_points(archive, [snapshot.id for snapshot in snapshots])
    kept = protected(snapshots, archive.protected_ids() | points, held=())
    return [snapshot for snapshot in snapshots if snapshot.id not in kept]


def _count_elsewhere(archive: HistoryStore, user: str | None) -> int:
    """Return how many snapshots a user has in the store in other projects."""
    names = {(key.split("/")[0], key.split("/")[3]) for key in archive.store.keys("") if _is_record(key)}
    others = [SnapshotCatalog(archive.store, *name) for name in names if name[0] != archive.session.project_id]
    return sum(snapshot.user == user for catalog in others for snapshot in catalog.snapshots())


def _is_record(key: str) -> bool:
    parts = key.split("/")
    return len(parts) > _IN_SESSION and parts[1:3] == ["history", "snapshots"]
