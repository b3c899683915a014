"""The histories of all sessions in a folder of projects: list, clear and prune over all of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from haytham.errors import HaythamError, InvalidArgument
from haytham.history import retention
from haytham.history.catalog import HistoryStore
from haytham.history.history import History, Snapshots, paginate, parse_prune_args
from haytham.session import Session
from haytham.session.paths import check_id, sessions_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from haytham.config.policy import SnapshotKind
    from haytham.storage.base import SessionStore

log = logging.getLogger(__name__)


class AllHistories:
    """The pasts of all sessions there are; one that cannot be read hides no other."""

    def __init__(self, store: SessionStore, *, may_run_code: bool | Callable[[Session], bool] = False) -> None:
        self._store = store
        self._may_run_code = may_run_code

    def list(self, user: str | None = None, limit: int | None = 50, offset: int = 0) -> Snapshots:
        """The snapshots of a user, or of all, newest first."""
        found = [one for archive in self._archives() for one in self._snapshots(archive) if user in (None, one.user)]
        return paginate(
            sorted(found, key=lambda one: (one.id.rpartition("-")[0], one.number), reverse=True), limit, offset
        )

    def clear(self, user: str) -> int:
        """Remove all snapshots of a user, pinned ones too, but those that a fork comes from; how many went."""
        check_id("user id", user)
        return sum(self._clear(archive, user) for archive in self._archives())

    def _clear(self, archive: HistoryStore, user: str) -> int:
        with archive.lock():
            ids = [one.id for one in self._snapshots(archive) if one.user == user]
            kept = retention.fork_points(archive, ids)
            gone = [one for one in ids if one not in kept]
            retention.remove(archive, gone)
        return len(gone)

    def prune(
        self, *, dry_run: bool = False, older_than: str | timedelta | None = None, kind: SnapshotKind | None = None
    ) -> Snapshots:
        """Remove in every session what retention lets go, or what is older than that; which."""
        age = parse_prune_args(older_than, kind)
        gone: Snapshots = []
        for archive in self._archives():
            try:
                history = History(archive.session, store=archive.store)
                gone += history.prune(dry_run=dry_run, older_than=age, kind=kind)
            except (HaythamError, OSError) as error:
                log.warning("the history of %s could not be pruned: %s", archive.session.session_id, error)
        return gone

    def _snapshots(self, archive: HistoryStore) -> Snapshots:
        try:
            return archive.records.snapshots()
        except (HaythamError, OSError) as error:
            log.warning("the history of %s cannot be read: %s", archive.session.session_id, error)
            return []

    def _archives(self) -> Iterator[HistoryStore]:
        for project_id in self._store.folders():
            for session_id in self._store.folders(sessions_prefix(project_id)):
                try:
                    session = Session(self._store, project_id, session_id)
                except InvalidArgument:  # a folder that is no session's
                    continue
                may = self._may_run_code(session) if callable(self._may_run_code) else self._may_run_code
                yield HistoryStore(session, store=None, may_run_code=may)
