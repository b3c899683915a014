"""The history of a session, and of all sessions of a workspace: the public interface of snapshots. Stateless."""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.errors import AlreadyRunning, HaythamError, InvalidArgument, NotFound, SnapshotVetoed
from haytham.events import EventSource
from haytham.history import restore, retention
from haytham.history.catalog import HistoryStore
from haytham.history.lookup import (
    SnapshotQuery,
    check_kind,
    paginate,
    parse_prune_args,
    parse_since,
    ref_text,
    require_line,
    resolve,
)
from haytham.history.schedule import parse_time
from haytham.history.sizes import stored_sizes
from haytham.history.snapshot import Snapshot
from haytham.history.snapshot_events import ask_taking, capture_and_emit, emit_deleted
from haytham.history.snapshot_fields import SnapshotFields, parse_fields
from haytham.session import SessionDocuments
from haytham.session.paths import STATE, check_id, sessions_prefix
from haytham.validation import plain_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from haytham.config.policy import SnapshotKind, SnapshotPolicy
    from haytham.errors import Problem
    from haytham.events import Events
    from haytham.handlers import Handlers
    from haytham.history.compare import Comparison
    from haytham.history.fork import DeletionReport, SnapshotNode
    from haytham.history.merge import MergeReport
    from haytham.history.retention import Deleted
    from haytham.history.snapshot import SnapshotManifest
    from haytham.history.snapshot_events import Why
    from haytham.storage.base import SessionStore, Store
    from haytham.text_merge import Side


log = logging.getLogger(__name__)

Snapshots = list[Snapshot]  # `list` is one of the verbs below
Which = str | int | Snapshot
Paths = list[str]
if TYPE_CHECKING:
    Nodes = list[SnapshotNode]
    Problems = list[Problem]


class History(EventSource):
    """The snapshots of one session: take, list, read, restore, fork, compare, delete.

    A snapshot is named by its id, a unique part of it, its number, or the Snapshot itself. Snapshots are in the store
    that the workflow names, unless `store` is given; a store that is code of a workflow needs `may_run_code`.
    """

    def __init__(
        self,
        session: SessionDocuments,
        *,
        store: Store | None = None,
        events: Events | None = None,
        may_run_code: bool = False,
    ) -> None:
        self.session = session
        self.events = session.events if events is None else events
        self._archive = HistoryStore(session, store=store, may_run_code=may_run_code)

    @property
    def handlers(self) -> Handlers:  # type: ignore[override]  # read only here
        """The handlers of the session's events; `on` adds to them."""
        return self.events.handlers

    @property
    def policy(self) -> SnapshotPolicy:
        """The snapshot policy of the session's workflow."""
        return self._archive.policy

    def check_store(self) -> None:
        """Raise InvalidDocument if the history is switched on and its store cannot be opened."""
        self._archive.check_store()

    def take(
        self,
        kind: SnapshotKind = "manual",
        label: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        approval: str | None = None,
    ) -> Snapshot:
        """Take a snapshot of the session, readable or not; a routine one is skipped if nothing changed.

        SnapshotVetoed if a handler of `snapshot_taking` vetoes it: a routine, phase or manual one.
        """
        self._archive.require_enabled("take a snapshot")
        check_kind(kind)
        facts: Any = {"label": require_line("label", label), "approval": require_line("approval", approval)}
        facts["metadata"] = plain_dict("metadata", metadata or {})
        if not self.session.store.has_folder(self.session.prefix):
            raise NotFound(f"session {self.session.session_id!r}", self.session.prefix)
        taking = ask_taking(self.events, kind, label)
        with self.events.held(), self._archive.lock():
            record, is_new = capture_and_emit(self._archive, self.events, taking, kind, **facts)
            if is_new:
                self._emit_deleted(retention.after_take(self._archive, record.snapshot))
        return record.snapshot

    def _emit_deleted(self, deleted: Deleted) -> None:
        emit_deleted(self.events, self.session, deleted.expired, "retention")
        emit_deleted(self.events, self.session, deleted.surplus, "limit")

    def list(
        self,
        kind: SnapshotKind | None = None,
        status: str | None = None,
        limit: int | None = None,
        offset: int = 0,
        *,
        since: str | datetime | None = None,
    ) -> Snapshots:
        """Return the snapshots, newest first; `since` is a date, a time or an age (`30d`)."""
        query = SnapshotQuery(kind, status, since=parse_since(since))
        return paginate([*filter(query.matches, reversed(self._archive.records.snapshots()))], limit, offset)

    def get(self, which: Which) -> Snapshot:
        """Return one snapshot."""
        return self._record(which).snapshot

    def latest(self, kind: SnapshotKind | None = None) -> Snapshot | None:
        """Return the newest readable snapshot, of a kind or of any; None if there is none."""
        if kind is None:
            newest = self._archive.records.newest()
            with suppress(HaythamError):
                return None if newest is None else self._archive.records.read(newest).snapshot
        return next(iter(self.list(kind, limit=1)), None)

    def tree(self) -> Nodes:
        """Return the trees of this session's snapshots and those of its forks."""
        from haytham.history.fork import build_forest, descendants  # noqa: PLC0415

        return build_forest(descendants(self._archive))

    def documents(self, which: Which) -> Paths:
        """Return the paths of a snapshot's documents."""
        return [entry.path for entry in self._record(which).files]

    def read(self, which: Which, path: str) -> bytes:
        """Return the bytes of a document of a snapshot."""
        record = self._record(which)
        entry = next((entry for entry in record.files if entry.path == path), None)
        if entry is None:
            raise NotFound(f"{path} in snapshot {record.snapshot.number}", "document of that path in it")
        return self._archive.blobs.read(entry)

    def fields(self, which: Which) -> SnapshotFields:
        """Return agent type, collected and required fields and summary of a snapshot, as its state has them."""
        record = self._record(which)
        entry = next((entry for entry in record.files if entry.path == STATE), None)
        return parse_fields(None if entry is None else self._archive.blobs.read(entry), STATE)

    def contents(self, which: Which) -> dict[str, bytes]:
        """Return the bytes of all documents of a snapshot, by path."""
        return dict(restore.read_files(self._archive, self._record(which)))

    def stored_size(self, which: Which) -> int:
        """Return the stored size of a snapshot's blobs, each content once, shared with other snapshots or not."""
        return sum(self._archive.blobs.stored_size(digest) for digest in set(self._record(which).digests.values()))

    def stored_sizes(self) -> dict[str, int]:
        """Return the stored size of each snapshot by its id; those that were counted before are not read again."""
        return stored_sizes(self._archive)

    def step(self) -> Snapshot | None:
        """Count a step of a loop; take and return a routine snapshot if frequency or interval say so."""
        return self.count_step()

    def count_step(self) -> Snapshot | None:
        """Count a step for `frequency` alone: a save, an agent's answer, or a step of a loop."""
        self._archive.require_enabled("count a step")
        with self._archive.lock():
            last, branch = self.latest(), self._archive.records.branch
            steps = max(branch.read().step, 0 if last is None else last.step) + 1
            branch.change(step=steps)
        if steps - (0 if last is None else last.step) < self.policy.frequency and not self._is_interval_over(last):
            return None
        try:
            snapshot = self.take("routine")
        except SnapshotVetoed as veto:
            log.info("%s", veto)
            return None
        return None if last is not None and snapshot.id == last.id else snapshot

    def is_interval_over(self) -> bool:
        """Return whether the policy's interval has passed since the last snapshot, or since the session started."""
        return self._is_interval_over(self.latest())

    def _is_interval_over(self, last: Snapshot | None) -> bool:
        since = self._started() if last is None else last.time
        interval = timedelta(minutes=self.policy.interval_minutes)
        return since is not None and parse_time(clock.now()) - parse_time(since) >= interval

    def _started(self) -> str | None:
        """Return when the session was created, if its manifest can be read."""
        try:
            return self.session.read().manifest.value.created
        except (HaythamError, OSError):
            return None

    def restore(self, which: Which) -> Snapshot:
        """Restore the session, all documents or none; return the recovery snapshot, which undoes the restore."""
        self._archive.require_enabled("restore")
        record = self._record(which)
        contents = dict(restore.read_files(self._archive, record))
        with self.events.held(), restore.exclusive_run(self.session), self._archive.lock():
            taking = ask_taking(self.events, "recovery", None)
            operation = {"operation": f"restore {record.snapshot.id}"}
            facts: Any = {"metadata": operation, "intact": set(record.digests.values())}
            recovery, _ = capture_and_emit(self._archive, self.events, taking, "recovery", **facts)
            self._checkout(record, recovery, contents)
        return recovery.snapshot

    def _checkout(
        self, record: SnapshotManifest, recovery: SnapshotManifest, contents: Mapping[str, bytes] | None = None
    ) -> None:
        """Make a snapshot's documents those of the session, and emit the event."""
        if contents is None:
            contents = dict(restore.read_files(self._archive, record))
        restore.checkout(self._archive, record, contents, before=recovery)
        snapshot, after = record.snapshot, recovery.snapshot
        branch = self._archive.records.branch
        branch.change(head=snapshot.id, head_after=after.number)
        facts: dict[str, Any] = {"snapshot": snapshot.id, "number": snapshot.number, "kind": snapshot.kind}
        self.events.emit("snapshot_restored", **facts, recovery=after.id)

    def fork(
        self,
        which: Which | None = None,
        *,
        name: str,
        purpose: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> SessionDocuments:
        """Create a session with the documents of a snapshot, or of the present; this one is not changed."""
        from haytham.history.fork import fork  # noqa: PLC0415

        self._archive.require_enabled("fork")
        record = None if which is None else self._record(which)
        facts = plain_dict("metadata", metadata or {})
        child = fork(self._archive, record, name=name, purpose=require_line("purpose", purpose), metadata=facts)
        self.events.dispatch(child.events.read()[0][0])  # which is in the file of the fork
        return child

    def merge(
        self,
        other: SessionDocuments | str,
        phases: Sequence[int],
        *,
        prefer: Side | None = None,
        mark_conflicts: bool = False,
    ) -> MergeReport:
        """Merge the texts of another session's phases, from what both were when they parted or were merged last.

        What changes is a person's revision, whose gate opens; the recovery snapshot that is returned undoes it. If both
        changed the same, MergeConflict, and nothing is merged; unless a side is preferred, or conflicts are marked.
        """
        from haytham.history.merge import merge  # noqa: PLC0415

        self._archive.require_enabled("merge")
        source = self._archive.for_session(self._session(other))
        with self.events.held(), restore.exclusive_run(self.session), self._archive.lock():
            return merge(self._archive, source, phases, self.events, prefer=prefer, mark_conflicts=mark_conflicts)

    def discard(self, *, dry_run: bool = False) -> DeletionReport:
        """Delete this session with its snapshots, but for those that forks come from; return what that is."""
        from haytham.history.fork import delete_session  # noqa: PLC0415

        return delete_session(self._archive, dry_run=dry_run)

    def compare(self, old: Which | SessionDocuments, new: Which | SessionDocuments | None = None) -> Comparison:
        """Compare two snapshots or sessions of the project; without `new`, with the present."""
        from haytham.history.compare import compare_refs  # noqa: PLC0415

        return compare_refs(self._archive, old, self.session if new is None else new)

    @contextmanager
    def operation(self, name: str, *, rollback: bool = False) -> Iterator[Snapshot]:
        """Take a snapshot before an operation; delete it when the operation succeeds, keep it when it fails.

        After a failure a recovery snapshot has the progress, and with `rollback` the session is restored; if a run is
        at work then, AlreadyRunning is raised and the session stays as it is.
        """
        before = self.take("pre_operation", metadata={"operation": name})
        self._archive.shielded.add(before.id)  # so that no rule deletes it meanwhile
        try:
            yield before
        except BaseException as failure:
            recovery = self._record(self._take_progress(name, before))
            if rollback:
                self._roll_back_after(failure, self._record(before), recovery)
            raise
        finally:
            self._archive.shielded.discard(before.id)
        self._remove(before)

    def _take_progress(self, name: str, before: Snapshot) -> Snapshot:
        """Take a snapshot of the progress of a failed operation; return the one before it if that fails."""
        try:
            return self.take("recovery", metadata={"operation": name, "before": before.id})
        except (HaythamError, OSError) as error:
            log.warning("how far %s came could not be kept: %s", name, error)
            return before

    def _roll_back_after(self, failure: BaseException, before: SnapshotManifest, recovery: SnapshotManifest) -> None:
        """Restore the session after a failure; if a run is at work, log what to restore later."""
        try:
            with self.events.held(), restore.exclusive_run(self.session), self._archive.lock():
                self._checkout(before, recovery)
        except AlreadyRunning as error:
            log.warning("nothing was rolled back, as a run is at work; later: haytham restore %s", before.snapshot.id)
            raise error from failure

    def pin(self, which: Which) -> Snapshot:
        """Pin a snapshot, so that no rule deletes it."""
        snapshot = self.get(which)
        with self._archive.lock():
            self._archive.pin(snapshot.id)
        return snapshot

    def unpin(self, which: Which) -> Snapshot:
        """Unpin a snapshot."""
        snapshot = self.get(which)
        with self._archive.lock():
            self._archive.unpin(snapshot.id)
        return snapshot

    def pins(self) -> set[str]:
        """Return the ids of pinned snapshots."""
        return self._archive.pins()

    def delete(self, which: Which, *, why: Why = "request") -> str:
        """Delete one snapshot, damaged or not, unless it is pinned or was forked; return its id."""
        ref = resolve(self._archive, ref_text(which))
        snapshot = next((item for item in self._archive.records.snapshots() if item.id == ref.id), ref)
        retention.delete(self._archive, ref.id)
        emit_deleted(self.events, self.session, [snapshot], why)
        return ref.id

    def _remove(self, snapshot: Snapshot) -> None:
        """Delete the snapshot before an operation, unless it was pinned or forked meanwhile."""
        with self._archive.lock():
            protected = self._archive.pins() | retention.fork_points(self._archive, [snapshot.id])
            retention.remove(self._archive, {snapshot.id} - protected)
        if snapshot.id not in protected:
            emit_deleted(self.events, self.session, [snapshot], "operation")

    def prune(
        self, *, dry_run: bool = False, older_than: str | timedelta | None = None, kind: SnapshotKind | None = None
    ) -> Snapshots:
        """Delete expired snapshots, or those older than an age (`30d`); return them. With `dry_run`, delete nothing."""
        age = parse_prune_args(older_than, kind)
        deleted = retention.prune(self._archive, dry_run=dry_run, age=age, kind=kind)
        if not dry_run:
            emit_deleted(self.events, self.session, deleted, "retention" if age is None else "request")
        return deleted

    def prune_project(self) -> None:
        """Delete what rules and limits delete in all sessions of the project, and unused blobs."""
        self._emit_deleted(retention.apply_to_project(self._archive))

    def verify(self) -> Problems:
        """Return all problems of the history: records, blobs, parents, and snapshots that do not restore."""
        from haytham.history.verify import verify  # noqa: PLC0415

        return verify(self._archive)

    def _record(self, which: Which) -> SnapshotManifest:
        return self._archive.records.read(resolve(self._archive, ref_text(which)))

    def _session(self, other: SessionDocuments | str) -> SessionDocuments:
        """Return another session of the same project."""
        session = (
            other
            if isinstance(other, SessionDocuments)
            else SessionDocuments(self.session.store, self.session.project_id, other)
        )
        if session.project_id != self.session.project_id or session.session_id == self.session.session_id:
            raise InvalidArgument("session", session.session_id, f"another one of project {self.session.project_id}")
        return session


class AllHistories:
    """The histories of all sessions of a workspace; one that cannot be read hides no other."""

    def __init__(
        self,
        store: SessionStore,
        *,
        may_run_code: bool | Callable[[SessionDocuments], bool] = False,
        documents: Callable[[str, str], SessionDocuments] | None = None,
    ) -> None:
        self._store = store
        self._may_run_code = may_run_code
        self._documents = partial(SessionDocuments, store) if documents is None else documents

    def list(  # noqa: PLR0913 - what a listing can be narrowed by
        self,
        user: str | None = None,
        limit: int | None = 50,
        offset: int = 0,
        *,
        kind: SnapshotKind | None = None,
        status: str | None = None,
        since: str | datetime | None = None,
    ) -> Snapshots:
        """Return the snapshots of a user, or of all, newest first; `since` is a date, a time or an age (`30d`)."""
        query = SnapshotQuery(kind, status, user, parse_since(since))
        snapshots = [item for archive in self._archives() for item in self._snapshots(archive)]
        selected = [*filter(query.matches, snapshots)]
        selected.sort(key=lambda snapshot: (snapshot.id.rpartition("-")[0], snapshot.number), reverse=True)
        return paginate(selected, limit, offset)

    def clear(self, user: str) -> int:
        """Delete all snapshots of a user, pinned ones too, except those that were forked; return how many."""
        check_id("user id", user)
        return sum(self._clear(archive, user) for archive in self._archives())

    def clearable(self, user: str) -> Snapshots:
        """Return the snapshots that `clear` would delete, oldest first in each session."""
        check_id("user id", user)
        return [snapshot for archive in self._archives() for snapshot in self._clearable(archive, user)]

    def _clearable(self, archive: HistoryStore, user: str) -> Snapshots:
        owned = [snapshot for snapshot in self._snapshots(archive) if snapshot.user == user]
        protected = retention.fork_points(archive, [snapshot.id for snapshot in owned])
        return [snapshot for snapshot in owned if snapshot.id not in protected]

    def _clear(self, archive: HistoryStore, user: str) -> int:
        with archive.lock():
            deleted = self._clearable(archive, user)
            retention.remove(archive, [snapshot.id for snapshot in deleted])
        emit_deleted(archive.session.events, archive.session, deleted, "request")
        return len(deleted)

    def prune(
        self, *, dry_run: bool = False, older_than: str | timedelta | None = None, kind: SnapshotKind | None = None
    ) -> Snapshots:
        """Delete in every session the expired snapshots, or those older than an age; return them."""
        age = parse_prune_args(older_than, kind)
        deleted: Snapshots = []
        for archive in self._archives():
            try:
                history = History(archive.session, store=archive.store)
                deleted += history.prune(dry_run=dry_run, older_than=age, kind=kind)
            except (HaythamError, OSError) as error:
                log.warning("the history of %s could not be pruned: %s", archive.session.session_id, error)
        return deleted

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
                    session = self._documents(project_id, session_id)
                except InvalidArgument:  # a folder that is no session's
                    continue
                may = self._may_run_code(session) if callable(self._may_run_code) else self._may_run_code
                yield HistoryStore(session, store=None, may_run_code=may)
