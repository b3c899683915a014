"""Letting snapshots go: what the rules say, what must stay for others' sake, and the bytes that nobody names then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from haytham import clock
from haytham.errors import HaythamError, InvalidValue
from haytham.session import Session
from haytham.session.layout import MANIFEST, sessions_prefix
from haytham.snapshot import freezing, retention
from haytham.snapshot.records import Records, recorded_sessions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import timedelta

    from haytham.snapshot.archive import Archive
    from haytham.snapshot.records import Name
    from haytham.snapshot.snapshot import Snapshot

log = logging.getLogger(__name__)

_IN_SESSION = 4  # project, "history", "snapshots", session, and more


def prune(
    archive: Archive, *, dry_run: bool = False, older_than: timedelta | None = None, kind: str | None = None
) -> list[Snapshot]:
    """Remove what the rules let go, or what is older than that; which, oldest first."""
    with archive.lock():
        snapshots = archive.records.snapshots()
        gone = _condemned(archive, snapshots, older_than, kind)
        if not dry_run:
            remove(archive, [one.id for one in gone])
        return gone


def _condemned(
    archive: Archive, snapshots: list[Snapshot], older_than: timedelta | None, kind: str | None
) -> list[Snapshot]:
    kept = archive.held() | fork_points(archive, [one.id for one in snapshots])
    if older_than is None:
        ids = set(retention.outdated(snapshots, archive.policy.retention, now=clock.now(), kept=kept))
    else:
        stays = retention.protected(snapshots, kept)
        ids = {one.id for one in retention.older(snapshots, older_than, clock.now()) if one.id not in stays}
    return _spare(archive, snapshots, [one for one in snapshots if one.id in ids and kind in (None, one.kind)])


def _spare(archive: Archive, snapshots: list[Snapshot], gone: list[Snapshot]) -> list[Snapshot]:
    """What may go after a last look: not the last that verifies, nor what its record does not say a list says."""
    sound = _last_sound(archive, snapshots) if gone else None
    names = {name.id: name for name in archive.records.names()}
    return [one for one in gone if one.id != sound and _is_as_listed(archive, names.get(one.id), one)]


def _is_as_listed(archive: Archive, name: Name | None, one: Snapshot) -> bool:
    """Whether a record itself says what a list said of it: an index may be old, or somebody's joke."""
    try:
        return name is not None and archive.records.read(name).snapshot == one
    except (HaythamError, OSError) as error:
        log.warning("snapshot %d is kept, as it cannot be read: %s", one.number, error)
        return False


def _last_sound(archive: Archive, snapshots: list[Snapshot]) -> str | None:
    """The last snapshot of which every byte is there."""
    names = {name.id: name for name in archive.records.names()}
    for one in reversed(snapshots):
        try:
            freezing.check(archive, archive.records.read(names[one.id]))
        except (HaythamError, OSError, KeyError) as error:
            log.warning("snapshot %d cannot be relied on: %s", one.number, error)
        else:
            return one.id
    return None


def fork_points(archive: Archive, ids: Collection[str]) -> set[str]:
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


def remove(archive: Archive, ids: Iterable[str]) -> None:
    """Remove snapshots, pins included, and the bytes that no record names then. Call it holding the project's lock."""
    wanted = set(ids)
    if not wanted:
        return
    for one in wanted & archive.pins():
        archive.unpin(one)
    archive.records.remove([name for name in archive.records.names() if name.id in wanted])
    sweep(archive)


def sweep(archive: Archive) -> int:
    """Remove the bytes that no record of the project names; none where a record can no longer say what it named."""
    project = archive.session.project_id
    try:
        named = [
            digest
            for session_id in recorded_sessions(archive.store, project)
            for digest in Records(archive.store, project, session_id).digests()
        ]
    except HaythamError as error:
        log.warning("no bytes were let go: %s", error)
        return 0
    return archive.blobs.sweep(named)


def delete(archive: Archive, snapshot_id: str) -> None:
    """Remove one snapshot, of whatever kind and damaged or not, unless a fork or a pin holds it."""
    with archive.lock():
        if snapshot_id in archive.pins():
            raise InvalidValue("snapshot", snapshot_id, "one that is not pinned; unpin it first")
        if fork_points(archive, [snapshot_id]):
            raise InvalidValue("snapshot", snapshot_id, "one that no fork comes from; discard the fork first")
        remove(archive, [snapshot_id])


def limit(archive: Archive, user: str | None) -> None:
    """Keep to the most snapshots that the store may hold: the project's oldest go first, as far as any may go."""
    most = archive.policy.most()
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


def _project(archive: Archive) -> list[Archive]:
    """The pasts of all sessions of the project, whose lock is held."""
    names = recorded_sessions(archive.store, archive.session.project_id)
    others = [name for name in names if name != archive.session.session_id]
    return [archive, *(archive.other(Session(archive.session.store, archive.session.project_id, n)) for n in others)]


def _removable(archive: Archive, snapshots: list[Snapshot]) -> list[Snapshot]:
    """What nothing keeps."""
    stays = retention.protected(snapshots, archive.held() | fork_points(archive, [one.id for one in snapshots]))
    return _spare(archive, snapshots, [one for one in snapshots if one.id not in stays])


def _count_elsewhere(archive: Archive, user: str | None) -> int:
    """How many snapshots other projects have in the store: all, or those of a user."""
    places = {(key.split("/")[0], key.split("/")[3]) for key in archive.store.keys("") if _is_record(key)}
    others = [place for place in places if place[0] != archive.session.project_id]
    found = [one for project, name in others for one in Records(archive.store, project, name).snapshots()]
    return sum(user in (None, one.user) for one in found)


def _is_record(key: str) -> bool:
    parts = key.split("/")
    return len(parts) > _IN_SESSION and parts[1:3] == ["history", "snapshots"]
