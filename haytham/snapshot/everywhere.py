"""The histories of all sessions in a folder of projects: list, clear and prune over all of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from haytham.errors import HaythamError, InvalidValue
from haytham.session import Session
from haytham.session.layout import sessions_prefix
from haytham.session.names import check_id
from haytham.snapshot import pruning
from haytham.snapshot.archive import Archive
from haytham.snapshot.given import check_choice, page
from haytham.snapshot.history import History, Snapshots
from haytham.store import FileStore

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from haytham.policy import Kind
    from haytham.store.protocol import SharedStore

log = logging.getLogger(__name__)


class Histories:
    """The pasts of all sessions there are; one that cannot be read hides no other."""

    def __init__(self, store: SharedStore, *, may_run_code: bool | Callable[[Session], bool] = False) -> None:
        self._store = store
        self._may_run_code = may_run_code

    def list(self, user: str | None = None, limit: int | None = 50, offset: int = 0) -> Snapshots:
        """The snapshots of a user, or of all, newest first."""
        found = [one for archive in self._archives() for one in self._snapshots(archive) if user in (None, one.user)]
        return page(sorted(found, key=lambda one: (one.id.rpartition("-")[0], one.number), reverse=True), limit, offset)

    def clear(self, user: str) -> int:
        """Remove all snapshots of a user, pinned ones too, but those that a fork comes from; how many went."""
        check_id("user id", user)
        return sum(self._clear(archive, user) for archive in self._archives())

    def _clear(self, archive: Archive, user: str) -> int:
        with archive.lock():
            ids = [one.id for one in self._snapshots(archive) if one.user == user]
            kept = pruning.fork_points(archive, ids)
            gone = [one for one in ids if one not in kept]
            pruning.remove(archive, gone)
        return len(gone)

    def prune(
        self, *, dry_run: bool = False, older_than: str | timedelta | None = None, kind: Kind | None = None
    ) -> Snapshots:
        """Remove in every session what retention lets go, or what is older than that; which."""
        age = check_choice(older_than, kind)
        gone: Snapshots = []
        for archive in self._archives():
            try:
                history = History(archive.session, store=archive.store)
                gone += history.prune(dry_run=dry_run, older_than=age, kind=kind)
            except (HaythamError, OSError) as error:
                log.warning("the history of %s could not be pruned: %s", archive.session.session_id, error)
        return gone

    def _snapshots(self, archive: Archive) -> Snapshots:
        try:
            return archive.records.snapshots()
        except (HaythamError, OSError) as error:
            log.warning("the history of %s cannot be read: %s", archive.session.session_id, error)
            return []

    def _archives(self) -> Iterator[Archive]:
        for project_id in self._store.folders():
            for session_id in self._store.folders(sessions_prefix(project_id)):
                try:
                    session = Session(self._store, project_id, session_id)
                except InvalidValue:  # a folder that is no session's
                    continue
                may = self._may_run_code(session) if callable(self._may_run_code) else self._may_run_code
                yield Archive(session, store=None, may_run_code=may)


def history(base_dir: str | os.PathLike[str] = "projects", *, may_run_code: bool = False) -> Histories:
    """The histories of all sessions in a folder of projects."""
    return Histories(FileStore(base_dir), may_run_code=may_run_code)
