"""What callers of a history give, checked before anything is made of it; and whether a snapshot is due.

The history of a session: the public face of its snapshots. Synchronous, and remembers nothing between two calls.
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.config.policy import KINDS
from haytham.errors import AlreadyRunning, HaythamError, InvalidArgument, NotFound
from haytham.events import Events
from haytham.history import restore, retention
from haytham.history.catalog import HistoryStore
from haytham.history.lookup import ref_text, resolve
from haytham.history.snapshot import Snapshot
from haytham.markdown.check import non_json_values, require_text
from haytham.session import Session
from haytham.session.paths import EVENTS
from haytham.session.repair import FORKED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from haytham.config.policy import SnapshotKind, SnapshotPolicy
    from haytham.errors import Problem
    from haytham.history.compare import Comparison
    from haytham.history.fork import SnapshotNode
    from haytham.history.snapshot import SnapshotManifest
    from haytham.storage.base import Store


def paginate(found: list[Snapshot], limit: int | None, offset: int) -> list[Snapshot]:
    """A part of a list."""
    for name, value in (("limit", limit), ("offset", offset)):
        if value is not None and (type(value) is not int or value < 0):
            raise InvalidArgument(name, value, "a whole number, 0 or more")
    return found[offset:] if limit is None else found[offset : offset + limit]


def is_due(policy: SnapshotPolicy, last: Snapshot | None, done: int) -> bool:
    """Whether so many steps, or so much time, have gone by since the last snapshot."""
    if done - (0 if last is None else last.step) >= policy.frequency:
        return True
    return last is not None and bool(
        retention.older_than([last], timedelta(minutes=policy.interval_minutes), clock.now())
    )


def check_kind(kind: object) -> None:
    """Refuse a kind of snapshot that there is not."""
    if kind not in KINDS:
        raise InvalidArgument("kind of snapshot", kind, ", ".join(KINDS))


def require_line(what: str, text: str | None) -> str | None:
    """One line of text, or none."""
    if text is not None and (not isinstance(text, str) or not text.strip() or not text.isprintable()):
        raise InvalidArgument(what, text, "one line of text")
    return text if text is None else require_text(what, text)


def plain_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Refuse what would not come back from a file as it went in."""
    plain: dict[str, Any] = {}
    try:
        given = dict(metadata or {})
        plain = json.loads(json.dumps(given, allow_nan=False))
        fits = plain == given and not any(non_json_values(plain))
    except (TypeError, ValueError, RecursionError):
        fits = False
    if not fits:
        raise InvalidArgument(
            "metadata", metadata, "a dict of text, finite numbers, true, false, None, lists and dicts of them"
        )
    return plain


def parse_prune_args(older_than: str | timedelta | None, kind: SnapshotKind | None) -> timedelta | None:
    """What is to be let go, checked: the age as a length of time, and a kind that there is."""
    if kind is not None:
        check_kind(kind)
    return (
        older_than if older_than is None or isinstance(older_than, timedelta) else retention.parse_duration(older_than)
    )


log = logging.getLogger(__name__)

Snapshots = list[Snapshot]  # `list` is one of the verbs below
Which = str | int | Snapshot
Paths = list[str]
Numbers = list[int]
if TYPE_CHECKING:
    Nodes = list[SnapshotNode]
    Problems = list[Problem]
_TOLD_OF_A_FORK = {  # what a lost manifest can be rebuilt from
    "session": "forked_from",
    "snapshot": "fork_point",
    "purpose": "purpose",
    "user": "user_id",
    "mode": "execution_mode",
    "workflow": "workflow",
    "origin": "origin",
    "model": "model",
}


class History:
    """The past of one session: taken, listed, looked at, restored, forked, compared, let go.

    A snapshot is named by its id, a unique part of it, its number, or the Snapshot itself. Where the past rests is the
    workflow's to say, or `store`; a store that is code of a workflow's own is opened with `may_run_code` only.
    """

    def __init__(
        self,
        session: Session,
        *,
        store: Store | None = None,
        events: Events | None = None,
        may_run_code: bool = False,
    ) -> None:
        self.session = session
        self.events = Events(session.store, session.prefix + EVENTS) if events is None else events
        self._archive = HistoryStore(session, store=store, may_run_code=may_run_code)

    @property
    def policy(self) -> SnapshotPolicy:
        """What the session's workflow says of history."""
        return self._archive.policy

    def check_store(self) -> None:
        """Refuse a history that cannot be opened; one that is switched off need not be."""
        self._archive.check_store()

    def take(
        self,
        kind: SnapshotKind = "manual",
        label: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        approval: str | None = None,
    ) -> Snapshot:
        """Freeze the session as it is, readable or not; a routine one is left out where nothing changed since."""
        self._archive.require_enabled("take a snapshot")
        check_kind(kind)
        facts: Any = {"label": require_line("label", label), "approval": require_line("approval", approval)}
        facts["metadata"] = plain_metadata(metadata)
        if not self.session.store.has_folder(self.session.prefix):
            raise NotFound(f"session {self.session.session_id!r}", self.session.prefix)
        with self._archive.lock():
            snapshot, is_new = restore.capture(self._archive, kind, **facts)
            if is_new:
                retention.enforce_max(self._archive, snapshot.user)
        if is_new:
            self._tell_taken(snapshot)
        return snapshot

    def _tell_taken(self, snapshot: Snapshot) -> None:
        """Tell who listens now; what is kept of it is the record."""
        facts = {"snapshot": snapshot.id, "number": snapshot.number, "kind": snapshot.kind}
        self.events.emit("snapshot_taken", keep=False, session=snapshot.session, **facts)

    def list(
        self, kind: SnapshotKind | None = None, status: str | None = None, limit: int | None = None, offset: int = 0
    ) -> Snapshots:
        """The snapshots, newest first."""
        if kind is not None:
            check_kind(kind)
        found = [
            one
            for one in reversed(self._archive.records.snapshots())
            if kind in (None, one.kind) and status in (None, one.status)
        ]
        return paginate(found, limit, offset)

    def get(self, which: Which) -> Snapshot:
        """One snapshot."""
        return self._record(which).snapshot

    def latest(self, kind: SnapshotKind | None = None) -> Snapshot | None:
        """The newest snapshot that can be read, of a kind or of any."""
        if kind is None:
            newest = self._archive.records.newest()
            with suppress(HaythamError):
                return None if newest is None else self._archive.records.read(newest).snapshot
        return next(iter(self.list(kind, limit=1)), None)

    def tree(self) -> Nodes:
        """What came of what: this session's snapshots and those of its forks."""
        from haytham.history.fork import build_forest, descendants  # noqa: PLC0415

        return build_forest(descendants(self._archive))

    def documents(self, which: Which) -> Paths:
        """The documents that a snapshot holds, by path."""
        return [row.path for row in self._record(which).files]

    def read(self, which: Which, path: str) -> bytes:
        """A document as it was."""
        record = self._record(which)
        row = next((row for row in record.files if row.path == path), None)
        if row is None:
            raise NotFound(f"{path} in snapshot {record.snapshot.number}", "document of that path in it")
        return self._archive.blobs.read(row)

    def contents(self, which: Which) -> dict[str, bytes]:
        """All documents as they were, by path."""
        return dict(restore.read_files(self._archive, self._record(which)))

    def stored_size(self, which: Which) -> int:
        """The bytes that a snapshot's documents take at rest, each content once, shared with others or not."""
        return sum(self._archive.blobs.stored_size(digest) for digest in set(self._record(which).digests.values()))

    def step(self) -> Snapshot | None:
        """Count a step of a loop, and take a routine snapshot where frequency or interval say so; that, if any."""
        self._archive.require_enabled("count a step")
        with self._archive.lock():
            last, branch = self.latest(), self._archive.records.branch
            done = max(branch.read().step, 0 if last is None else last.step) + 1
            branch.change(step=done)
        if not is_due(self.policy, last, done):
            return None
        taken = self.take("routine")
        return None if last is not None and taken.id == last.id else taken

    def restore(self, which: Which) -> Snapshot:
        """Make the session what it was, all documents or none; the recovery snapshot, which undoes that again."""
        self._archive.require_enabled("restore")
        record = self._record(which)
        restore.verify_blobs(self._archive, record)
        with restore.exclusive_run(self.session), self._archive.lock():
            said = {"operation": f"restore {record.snapshot.id}"}
            recovery, _ = restore.capture(self._archive, "recovery", metadata=said)
            self._put_back(record, recovery)
        self._tell_taken(recovery)
        return recovery

    def _put_back(self, record: SnapshotManifest, recovery: Snapshot) -> None:
        restore.checkout(self._archive, record, before=self._record(recovery))
        self._archive.records.branch.change(head=record.snapshot.id, head_after=recovery.number)
        snapshot = record.snapshot
        self.events.emit("snapshot_restored", snapshot=snapshot.id, number=snapshot.number, recovery=recovery.id)

    def fork(
        self,
        which: Which | None = None,
        *,
        name: str,
        purpose: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Begin a session of its own, with the documents of a snapshot or of the present; this one is not touched."""
        from haytham.history.fork import fork  # noqa: PLC0415 - who only takes need not load it

        self._archive.require_enabled("fork")
        record = None if which is None else self._record(which)
        facts = plain_metadata(metadata)
        child = fork(self._archive, record, name=name, purpose=require_line("purpose", purpose), metadata=facts)
        manifest = child.read().manifest.value
        facts = {name: manifest.get(field) for name, field in _TOLD_OF_A_FORK.items()}
        Events(child.store, child.prefix + EVENTS).emit(FORKED, **facts)
        return child

    def merge(self, other: Session | str, phases: Sequence[int]) -> Numbers:
        """Put whole phases of another session in the place of one's own; those that differed.

        MergeConflict, with the list, where both have changed since they parted; nothing is merged then.
        """
        from haytham.history.merge import Merge  # noqa: PLC0415

        self._archive.require_enabled("merge")
        source = self._session(other)
        with restore.exclusive_run(self.session), self._archive.lock():
            merge = Merge(self._archive, self._archive.for_session(source), phases)
            if merge.numbers:
                with self._operation(f"merge {source.session_id}", self._put_back):
                    merge.carry_out()
        self.events.emit("merged", session=source.session_id, phases=merge.numbers)
        return merge.numbers

    def discard(self) -> None:
        """Remove this session, which is a fork, and only it."""
        from haytham.history.fork import discard  # noqa: PLC0415

        discard(self._archive)

    def compare(self, old: Which | Session, new: Which | Session | None = None) -> Comparison:
        """What differs between two snapshots or sessions of the project; without `new`, from then to the present."""
        from haytham.history.compare_refs import compare_refs  # noqa: PLC0415

        return compare_refs(self._archive, old, self.session if new is None else new)

    @contextmanager
    def operation(self, name: str, *, rollback: bool = False) -> Iterator[Snapshot]:
        """Do something that may go wrong: a snapshot before it goes when it went well, and stays when it did not.

        Then a recovery snapshot says how far it came, and with `rollback` the session is made what it was; Running
        where a run is at work then, which keeps the session as it is.
        """
        with self._operation(name, self._roll_back if rollback else None) as before:
            yield before

    @contextmanager
    def _operation(
        self, name: str, put_back: Callable[[SnapshotManifest, Snapshot], None] | None
    ) -> Iterator[Snapshot]:
        before = self.take("pre_operation", metadata={"operation": name})
        self._archive.shielded.add(before.id)  # whatever is let go meanwhile, the way back is not
        try:
            yield before
        except BaseException as failure:
            recovery = self._keep_progress(name, before)
            if put_back is not None:
                self._put_back_after(failure, partial(put_back, self._record(before), recovery), before)
            raise
        finally:
            self._archive.shielded.discard(before.id)
        self._remove(before)

    def _keep_progress(self, name: str, before: Snapshot) -> Snapshot:
        """Take a snapshot of how far a failed operation came; return the one before it where that fails."""
        try:
            return self.take("recovery", metadata={"operation": name, "before": before.id})
        except (HaythamError, OSError) as error:
            log.warning("how far %s came could not be kept: %s", name, error)
            return before

    def _put_back_after(self, failure: BaseException, put_back: Callable[[], None], before: Snapshot) -> None:
        """Put the session back after a failure; where a run is at work say what to restore later."""
        try:
            put_back()
        except AlreadyRunning as error:
            log.warning("nothing was rolled back, as a run is at work; later: haytham restore %s", before.id)
            raise error from failure

    def _roll_back(self, record: SnapshotManifest, recovery: Snapshot) -> None:
        """Put the session back while no run is at work on it."""
        with restore.exclusive_run(self.session), self._archive.lock():
            self._put_back(record, recovery)

    def pin(self, which: Which) -> Snapshot:
        """Keep a snapshot, whatever the settings say."""
        snapshot = self.get(which)
        with self._archive.lock():
            self._archive.pin(snapshot.id)
        return snapshot

    def unpin(self, which: Which) -> Snapshot:
        """Let a pinned snapshot go its way again."""
        snapshot = self.get(which)
        with self._archive.lock():
            self._archive.unpin(snapshot.id)
        return snapshot

    def pins(self) -> set[str]:
        """The ids of the snapshots that are pinned."""
        return self._archive.pins()

    def delete(self, which: Which) -> str:
        """Remove one snapshot, of whatever kind and damaged or not, unless it is pinned or a fork's; its id."""
        snapshot_id = resolve(self._archive, ref_text(which)).id
        retention.delete(self._archive, snapshot_id)
        return snapshot_id

    def _remove(self, snapshot: Snapshot) -> None:
        """Remove a snapshot that was taken by the way, unless somebody holds on to it by now."""
        with self._archive.lock():
            held = self._archive.pins() | retention.fork_points(self._archive, [snapshot.id])
            retention.remove(self._archive, {snapshot.id} - held)

    def prune(
        self, *, dry_run: bool = False, older_than: str | timedelta | None = None, kind: SnapshotKind | None = None
    ) -> Snapshots:
        """Remove what retention lets go, or what is older than that (`30d`); which. With `dry_run`, only say so."""
        age = parse_prune_args(older_than, kind)
        gone = retention.prune(self._archive, dry_run=dry_run, age=age, kind=kind)
        if gone and not dry_run:
            self.events.emit("snapshots_pruned", snapshots=[one.id for one in gone])
        return gone

    def verify(self) -> Problems:
        """All that is wrong with the past: records, bytes, parents, and whether each snapshot restores for real."""
        from haytham.history.verify import verify  # noqa: PLC0415

        return verify(self._archive)

    def _record(self, which: Which) -> SnapshotManifest:
        return self._archive.records.read(resolve(self._archive, ref_text(which)))

    def _session(self, other: Session | str) -> Session:
        """Another session of the same project."""
        found = other if isinstance(other, Session) else Session(self.session.store, self.session.project_id, other)
        if found.project_id != self.session.project_id or found.session_id == self.session.session_id:
            raise InvalidArgument("session", found.session_id, f"another one of project {self.session.project_id}")
        return found
