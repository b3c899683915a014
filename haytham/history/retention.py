"""Which snapshots may go: pure decisions over values. What must stay stays, whatever the settings say.

Letting snapshots go: what the rules say, what must stay for others' sake, and the bytes that nobody names then.
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from haytham import clock
from haytham.errors import HaythamError, InvalidArgument
from haytham.history import restore
from haytham.history.catalog import SnapshotCatalog, recorded_sessions
from haytham.session import Session
from haytham.session.paths import MANIFEST, sessions_prefix

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from haytham.config.policy import RetentionRule
    from haytham.history.catalog import HistoryStore, RecordRef
    from haytham.history.snapshot import Snapshot

_ALWAYS_KEPT = frozenset({"manual", "final"})
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(m|h|d|w)", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def expired(
    snapshots: Sequence[Snapshot], rules: Mapping[str, RetentionRule], *, now: str, kept: Collection[str]
) -> list[str]:
    """The ids that the rules let go, of one session's snapshots in the order of their numbers."""
    for kind, rule in rules.items():
        if rule.keep_last is not None and rule.keep_last < 1:
            raise InvalidArgument(f"retention.{kind}.keep_last", rule.keep_last, "1 or more")
    stays = protected(snapshots, kept)
    gone: set[str] = set()
    for kind, rule in rules.items():
        gone |= _let_go([one for one in snapshots if one.kind == kind], rule, now)
    return [one.id for one in snapshots if one.id in gone - stays]


def _let_go(snapshots: list[Snapshot], rule: RetentionRule, now: str) -> set[str]:
    """What one rule lets go of its own kind."""
    surplus = snapshots[: -rule.keep_last] if rule.keep_last is not None else []
    days = rule.cleanup_after_days
    old = [] if days is None else older_than(snapshots, timedelta(days=days), now)
    return {one.id for one in (*surplus, *old)}


def older_than(snapshots: Iterable[Snapshot], age: timedelta, now: str) -> list[Snapshot]:
    """Those that were taken longer ago than that."""
    try:
        before = parse_time(now) - age
    except OverflowError:  # longer ago than a calendar goes back
        return []
    return [one for one in snapshots if parse_time(one.time) < before]


def protected(snapshots: Sequence[Snapshot], kept: Collection[str]) -> set[str]:
    """What is never let go: the newest, the last of each approval, labelled, manual and final ones, and `kept`."""
    approvals = {one.approval: one.id for one in snapshots if one.approval is not None}
    stays = {one.id for one in snapshots if one.label is not None or one.kind in _ALWAYS_KEPT}
    return {*stays, *approvals.values(), *kept, *(one.id for one in snapshots[-1:])}


def excess(snapshots: Sequence[Snapshot], most: int, stays: Collection[str]) -> list[str]:
    """The oldest that go so that no more than so many are left, as far as those that must stay let them."""
    many = len(snapshots) - most
    return [one.id for one in snapshots if one.id not in stays][: max(many, 0)]


def parse_duration(text: object) -> timedelta:
    """A length of time as people write it: 90m, 12h, 30d, 2w."""
    found = _SPAN.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise InvalidArgument("age", text, "a number and m, h, d or w, like 30d")
    try:
        return timedelta(**{_UNITS[found[2]]: float(found[1])})
    except OverflowError:
        raise InvalidArgument("age", text, "one that a calendar has") from None


def parse_time(time: str) -> datetime:
    """A time as records say it; without a zone it is UTC."""
    found = datetime.fromisoformat(time)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


log = logging.getLogger(__name__)

_IN_SESSION = 4  # project, "history", "snapshots", session, and more


def prune(
    archive: HistoryStore, *, dry_run: bool = False, age: timedelta | None = None, kind: str | None = None
) -> list[Snapshot]:
    """Remove what the rules let go, or what is older than that; which, oldest first."""
    with archive.lock():
        snapshots = archive.records.snapshots()
        gone = _condemned(archive, snapshots, age, kind)
        if not dry_run:
            remove(archive, [one.id for one in gone])
        return gone


def _condemned(
    archive: HistoryStore, snapshots: list[Snapshot], age: timedelta | None, kind: str | None
) -> list[Snapshot]:
    kept = archive.protected_ids() | fork_points(archive, [one.id for one in snapshots])
    if age is None:
        ids = set(expired(snapshots, archive.policy.retention, now=clock.now(), kept=kept))
    else:
        stays = protected(snapshots, kept)
        ids = {one.id for one in older_than(snapshots, age, clock.now()) if one.id not in stays}
    return _spare(archive, snapshots, [one for one in snapshots if one.id in ids and kind in (None, one.kind)])


def _spare(archive: HistoryStore, snapshots: list[Snapshot], gone: list[Snapshot]) -> list[Snapshot]:
    """What may go after a last look: not the last that verifies, nor what its record does not say a list says."""
    sound = _last_sound(archive, snapshots) if gone else None
    names = {name.id: name for name in archive.records.refs()}
    return [one for one in gone if one.id != sound and _is_as_listed(archive, names.get(one.id), one)]


def _is_as_listed(archive: HistoryStore, name: RecordRef | None, one: Snapshot) -> bool:
    """Whether a record itself says what a list said of it: an index may be old, or somebody's joke."""
    try:
        return name is not None and archive.records.read(name).snapshot == one
    except (HaythamError, OSError) as error:
        log.warning("snapshot %d is kept, as it cannot be read: %s", one.number, error)
        return False


def _last_sound(archive: HistoryStore, snapshots: list[Snapshot]) -> str | None:
    """The last snapshot of which every byte is there."""
    names = {name.id: name for name in archive.records.refs()}
    for one in reversed(snapshots):
        try:
            restore.verify_blobs(archive, archive.records.read(names[one.id]))
        except (HaythamError, OSError, KeyError) as error:
            log.warning("snapshot %d cannot be relied on: %s", one.number, error)
        else:
            return one.id
    return None


def fork_points(archive: HistoryStore, ids: Collection[str]) -> set[str]:
    """The snapshots that a session which is there says it comes from; its manifest need not be readable for that."""
    store, project = archive.session.store, archive.session.project_id
    found: set[str] = set()
    for session_id in store.folders(sessions_prefix(project)):
        try:
            manifest = store.read(f"{sessions_prefix(project)}{session_id}/{MANIFEST}")
        except (HaythamError, OSError):
            continue
        found |= {one for one in ids if one.encode() in manifest}
    return found


def remove(archive: HistoryStore, ids: Iterable[str]) -> None:
    """Remove snapshots, pins included, and the bytes that no record names then. Call it holding the project's lock."""
    wanted = set(ids)
    if not wanted:
        return
    for one in wanted & archive.pins():
        archive.unpin(one)
    archive.records.remove([name for name in archive.records.refs() if name.id in wanted])
    collect_garbage(archive)


def collect_garbage(archive: HistoryStore) -> int:
    """Remove the bytes that no record of the project names; none where a record can no longer say what it named."""
    project = archive.session.project_id
    try:
        named = [
            digest
            for session_id in recorded_sessions(archive.store, project)
            for digest in SnapshotCatalog(archive.store, project, session_id).digests()
        ]
    except HaythamError as error:
        log.warning("no bytes were let go: %s", error)
        return 0
    return archive.blobs.collect_garbage(named)


def delete(archive: HistoryStore, snapshot_id: str) -> None:
    """Remove one snapshot, of whatever kind and damaged or not, unless a fork or a pin holds it."""
    with archive.lock():
        if snapshot_id in archive.pins():
            raise InvalidArgument("snapshot", snapshot_id, "one that is not pinned; unpin it first")
        if fork_points(archive, [snapshot_id]):
            raise InvalidArgument("snapshot", snapshot_id, "one that no fork comes from; discard the fork first")
        remove(archive, [snapshot_id])


def enforce_max(archive: HistoryStore, user: str | None) -> None:
    """Keep to the most snapshots that the store may hold: the project's oldest go first, as far as any may go."""
    most = archive.policy.max_for_user()
    if most is None:
        return
    whose = user if archive.policy.storage_type == "sqlite" else None
    with archive.lock():
        lines = [(one, one.records.snapshots()) for one in _project(archive)]
        count = sum(whose in (None, one.user) for _, line in lines for one in line) + _count_elsewhere(archive, whose)
        free = [(one, where) for where, line in lines for one in _removable(where, line) if whose in (None, one.user)]
        oldest = sorted(free, key=lambda pair: (pair[0].id.rpartition("-")[0], pair[0].number))
        for snapshot, where in oldest[: max(count - most, 0)]:
            remove(where, [snapshot.id])


def _project(archive: HistoryStore) -> list[HistoryStore]:
    """The pasts of all sessions of the project, whose lock is held."""
    names = recorded_sessions(archive.store, archive.session.project_id)
    others = [name for name in names if name != archive.session.session_id]
    return [
        archive,
        *(archive.for_session(Session(archive.session.store, archive.session.project_id, n)) for n in others),
    ]


def _removable(archive: HistoryStore, snapshots: list[Snapshot]) -> list[Snapshot]:
    """What nothing keeps."""
    stays = protected(snapshots, archive.protected_ids() | fork_points(archive, [one.id for one in snapshots]))
    return _spare(archive, snapshots, [one for one in snapshots if one.id not in stays])


def _count_elsewhere(archive: HistoryStore, user: str | None) -> int:
    """How many snapshots other projects have in the store: all, or those of a user."""
    places = {(key.split("/")[0], key.split("/")[3]) for key in archive.store.keys("") if _is_record(key)}
    others = [place for place in places if place[0] != archive.session.project_id]
    found = [one for project, name in others for one in SnapshotCatalog(archive.store, project, name).snapshots()]
    return sum(user in (None, one.user) for one in found)


def _is_record(key: str) -> bool:
    parts = key.split("/")
    return len(parts) > _IN_SESSION and parts[1:3] == ["history", "snapshots"]
