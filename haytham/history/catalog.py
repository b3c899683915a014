"""The catalog of a session's snapshots: the records, the branch head, pins, and the store of all of them.

A record is Markdown that is written once and never changed. Its name has its number, its id and the digest of its
bytes: an index made of the same names makes a list without reading, and a changed byte shows. A folder holds a hundred
records, so that the newest is found as quickly among thousands as among ten.

The branch head is what no record says: steps counted, the snapshot restored last, the highest number used. It is one
line of JSON; git joins the lines of two clones (merge=union), which are read as one.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.cache import LruCache
from haytham.config.workflow import FILE, parse_workflow
from haytham.errors import HaythamError, HistoryDisabled, InvalidArgument, InvalidDocument, Problem
from haytham.history.blobs import BlobStore
from haytham.history.snapshot import Snapshot, SnapshotManifest, parse_manifest, parse_snapshot
from haytham.markdown.parser import parse
from haytham.markdown.renderer import check_value, render_verified
from haytham.markdown.schema import load_schema
from haytham.session.settings import read_settings
from haytham.storage.base import ABSENT, Append, Batch, Delete, Write, bytes_digest, cache_of, commit
from haytham.validation import require_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from haytham.config.policy import SnapshotPolicy
    from haytham.config.settings import Settings
    from haytham.config.workflow import Workflow
    from haytham.session import SessionDocuments
    from haytham.storage.base import Store

_HIGHEST_COUNT = 10**12


@dataclass(frozen=True)
class BranchHead:
    """The state of one session's line of snapshots.

    `shelf` is the folder of its newest records, `last` the highest number that was used and removed since, `head` the
    snapshot that was restored when `head_after` was the highest number, `step` the steps counted.
    """

    shelf: int = 0
    last: int = 0
    head: str | None = None
    head_after: int = 0
    step: int = 0


class BranchHeadFile:
    """The file of a branch head. A lost or damaged file counts as an empty one: records tell nearly all of it."""

    def __init__(self, store: Store, project_id: str, session_id: str) -> None:
        self._store = store
        self.key = f"{project_id}/history/branches/{session_id}.jsonl"

    def read(self) -> BranchHead:
        """Return the branch head."""
        try:
            lines = self._store.read(self.key).split(b"\n")
        except FileNotFoundError:
            return BranchHead()
        return _merge([_parse_head(_load(line)) for line in lines])

    def change(self, **facts: Any) -> BranchHead:
        """Change facts of the branch head; return it. Call it holding the project's lock."""
        head = self.read()
        commit(self._store, Batch(self.pack(head, **facts)))
        return replace(head, **facts)

    def pack(self, branch: BranchHead, **facts: Any) -> tuple[Write, ...]:
        """Return the write that changes facts of a branch head, if they differ."""
        changed = replace(branch, **facts)
        return () if changed == branch else (Write(self.key, json.dumps(asdict(changed)).encode() + b"\n"),)


def _load(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):  # damaged, or a conflict marker
        return None


def _merge(branches: list[BranchHead]) -> BranchHead:
    """Merge the heads of several clones: the highest numbers, and the last restore by number."""
    if not branches:
        return BranchHead()
    restored = max(branches, key=lambda branch: branch.head_after)
    highest = {name: max(getattr(branch, name) for branch in branches) for name in ("shelf", "last", "step")}
    return replace(restored, **highest)


def _parse_head(facts: Any) -> BranchHead:
    """Return a branch head with those facts that have the right type."""
    if not isinstance(facts, dict):
        return BranchHead()
    names = [item.name for item in fields(BranchHead) if item.name in facts]
    return BranchHead(**{name: facts[name] for name in names if _fits(name, facts[name])})


def _fits(name: str, value: Any) -> bool:
    if name == "head":
        return value is None or isinstance(value, str)
    return type(value) is int and 0 <= value <= _HIGHEST_COUNT


log = logging.getLogger(__name__)

KIND = "snapshot"
_NAME = re.compile(r"/([0-9]{6,15})\.([^/]+)\.([0-9a-f]{16})\.md\Z")
_HIGHEST = 10**15 - 1
_DIGEST = re.compile(rb"sha256:[0-9a-f]{64}")
_ON_A_SHELF = 100
_WORTH_AN_INDEX = 20
_INDEX = "index.jsonl"
_REMOVED = "removed.jsonl"
_DELETED = "deleted"


@dataclass(frozen=True)
class RecordRef:
    """What the name of a record says: its key, its number, its id, and the digest of its bytes."""

    key: str
    number: int
    id: str
    digest: str


class SnapshotCatalog:
    """The records of one session, in the store of its project's history."""

    def __init__(self, store: Store, project_id: str, session_id: str) -> None:
        self._store, self._cache = store, cache_of(store)
        self._project_id, self._session_id = project_id, session_id
        self._prefix = f"{project_id}/history/snapshots/{session_id}/"
        self.branch = BranchHeadFile(store, project_id, session_id)

    def refs(self) -> list[RecordRef]:
        """Return all records, by number."""
        return _refs(self._store.keys(self._prefix))

    def numbered(self, number: int) -> list[RecordRef]:
        """Return the records with a number, of which clones may have made several; only their folder is listed."""
        return [ref for ref in self._on(number // _ON_A_SHELF) if ref.number == number]

    def newest(self, branch: BranchHead | None = None) -> RecordRef | None:
        """Return the record with the highest number; only the folders of the newest are listed, if they are known."""
        shelf = (self.branch.read() if branch is None else branch).shelf
        if shelf and not self._on(shelf + 1):
            refs = self._on(shelf) or self._on(shelf - 1)
            if refs:
                return refs[-1]
        return max(self.refs(), key=_order, default=None)

    def restored(self, branch: BranchHead, newest: RecordRef | None) -> RecordRef | None:
        """Return the record that was restored after the newest one was taken, if there is one."""
        if newest is None or branch.head_after != newest.number:
            return None
        near = [ref for ref in self._on(newest.number // _ON_A_SHELF) if ref.id == branch.head]
        return next(iter(near or [ref for ref in self.refs() if ref.id == branch.head]), None)

    def _on(self, shelf: int) -> list[RecordRef]:
        return _refs(self._store.keys(self._folder(shelf), depth=1))

    def next_number(self, branch: BranchHead, newest: RecordRef | None) -> int:
        """Return one above the highest number that was ever used."""
        number = max(0 if newest is None else newest.number, branch.last) + 1
        if newest is not None and number > _HIGHEST:
            raise InvalidDocument([Problem("has the highest number there is; move it away", file=newest.key)])
        return number

    def pack(self, record: SnapshotManifest, branch: BranchHead, **facts: Any) -> tuple[Write, ...]:
        """Return the writes of a new record, after that of the branch if it or its facts change."""
        value = record.value()
        _check_paths(record)
        check_value(load_schema(KIND), {**value, "documents": value["documents"][:1]})  # the others are made like it
        text, _ = render_verified(load_schema(KIND), value, check=False)
        data, shelf = text.encode(), record.snapshot.number // _ON_A_SHELF
        name = f"{record.snapshot.number:06d}.{record.snapshot.id}.{_short_digest(data)}.md"
        _RECORDS.put(bytes_digest(data), record)
        head = self.branch.pack(branch, **({"shelf": shelf} if shelf else {}), **facts)
        return *head, Write(self._folder(shelf) + name, data, ABSENT)

    def read(self, ref: RecordRef) -> SnapshotManifest:
        """Return a record with its documents; InvalidDocument if a byte of it has changed, or it is misplaced."""
        data = self._store.read(ref.key)
        digest = bytes_digest(data)
        if _short_digest(data) != ref.digest:
            message = "is not as it was written: a snapshot's record never changes"
            raise InvalidDocument([Problem(message, file=ref.key)])
        cached = _RECORDS.get(digest)
        if cached is not None and not self._mismatches(ref, vars(cached.snapshot)):
            return cached
        parsed = parse(load_schema(KIND), data)
        faults = [problem.with_file(ref.key) for problem in parsed.faults]
        if faults:
            raise InvalidDocument(faults)
        record = self._parse(ref, parsed.value)
        _RECORDS.put(digest, record)
        return record

    def _parse(self, ref: RecordRef, value: Mapping[str, Any]) -> SnapshotManifest:
        """Return a record that agrees with its key, and names no path that could leave the session."""
        wrong = self._mismatches(ref, value)
        if wrong:
            raise InvalidDocument([Problem(f"{message}, by its place", file=ref.key) for message in wrong])
        try:
            return parse_manifest(value)
        except InvalidArgument as error:
            raise InvalidDocument([Problem(str(error), file=ref.key)]) from None

    def _mismatches(self, ref: RecordRef, value: Mapping[str, Any]) -> list[str]:
        """Return the facts of a record that do not agree with its key."""
        facts = {"project": self._project_id, "session": self._session_id, "number": ref.number, "id": ref.id}
        return [
            f"{name}: found {value[name]!r}; allowed: {fact!r}" for name, fact in facts.items() if value[name] != fact
        ]

    def snapshots(self) -> list[Snapshot]:
        """Return all snapshots by number, from the index as far as it goes; a damaged record is skipped."""
        refs = self.refs()
        known = self._index(refs)
        missing = [ref for ref in refs if ref.key not in known]
        for ref in missing:
            snapshot = self._read_if_valid(ref)
            if snapshot is not None:
                known[ref.key] = snapshot
        if len(missing) >= _WORTH_AN_INDEX:
            self._write_index([ref for ref in refs if ref.key in known], known)
        return [known[ref.key] for ref in refs if ref.key in known]

    def _read_if_valid(self, ref: RecordRef) -> Snapshot | None:
        try:
            return self.read(ref).snapshot
        except FileNotFoundError:  # it was removed in between
            return None
        except (HaythamError, OSError) as error:
            log.warning("a snapshot cannot be read: %s", error)
            return None

    def remove(self, refs: Iterable[RecordRef]) -> None:
        """Delete records, and log which; their numbers are never used again. Call it holding the project's lock."""
        removed = sorted(refs, key=_order)
        if not removed:
            return
        branch = self.branch.read()
        newest = self.newest(branch)
        is_newest = newest is not None and removed[-1].number >= newest.number
        last = max(newest.number, branch.last) if newest is not None and is_newest else branch.last
        note = {"time": clock.now(), "removed": [[ref.number, ref.id] for ref in removed]}
        batch = Batch(
            self.branch.pack(branch, last=last),
            (Append(self._prefix + _REMOVED, json.dumps(note).encode() + b"\n"),),
            tuple(Delete(ref.key) for ref in removed),
        )
        commit(self._store, batch)

    def removed(self) -> set[str]:
        """Return the ids of snapshots that were removed on purpose."""
        try:
            lines = self._store.read(self._prefix + _REMOVED).split(b"\n")
        except FileNotFoundError:
            return set()
        return {snapshot_id for line in lines for snapshot_id in _ids_removed(line)}

    def mark_deleted(self) -> None:
        """Log that the session itself was deleted on purpose; records that forks come from are left."""
        note = {"time": clock.now(), "removed": [], "session": _DELETED}
        commit(self._store, Batch(appends=(Append(self._prefix + _REMOVED, json.dumps(note).encode() + b"\n"),)))

    def is_marked_deleted(self) -> bool:
        """Return whether the session was deleted on purpose, and not lost."""
        try:
            lines = self._store.read(self._prefix + _REMOVED).split(b"\n")
        except FileNotFoundError:
            return False
        notes = map(_load, lines)
        return any(isinstance(note, dict) and note.get("session") == _DELETED for note in notes)

    def digests(self) -> set[str]:
        """Return every digest that a record names, without parsing the records.

        InvalidDocument if a record is damaged: the digests that it named are unknown.
        """
        digests: set[str] = set()
        for ref in self.refs():
            data = self._store.read(ref.key)
            if _short_digest(data) != ref.digest:
                raise InvalidDocument([Problem("is damaged, so that no bytes can be let go", file=ref.key)])
            digests |= {digest.decode() for digest in _DIGEST.findall(data)}
        return digests

    def clear(self) -> None:
        """Delete all records, the index and the branch head of the session."""
        commit(self._store, Batch(deletes=(Delete(self._prefix), Delete(self.branch.key))))
        self._cache.delete(self._prefix)

    def _folder(self, shelf: int) -> str:
        return f"{self._prefix}{shelf:04d}/"

    def _index(self, refs: Sequence[RecordRef]) -> dict[str, Snapshot]:
        """Return the snapshots of records by key, as the index has them; a damaged index counts as empty."""
        try:
            lines = self._cache.read(self._prefix + _INDEX).split(b"\n")
        except (HaythamError, OSError):
            return {}
        try:
            rows = [json.loads(line) for line in lines if line]
            known = {row.pop("key"): parse_snapshot(row) for row in rows}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}
        indexed = [ref for ref in refs if ref.key in known]
        return {ref.key: known[ref.key] for ref in indexed if not self._mismatches(ref, vars(known[ref.key]))}

    def _write_index(self, refs: Sequence[RecordRef], known: dict[str, Snapshot]) -> None:
        """Write the index; it is derived, so that a folder without write permission is no error."""
        rows = (json.dumps({"key": ref.key, **asdict(known[ref.key])}) for ref in refs)
        try:
            self._cache.write(self._prefix + _INDEX, "\n".join(rows).encode() + b"\n")
        except (HaythamError, OSError) as error:
            log.debug("no index was kept: %s", error)


_RECORDS: LruCache[SnapshotManifest] = LruCache(64)  # by the digest of their bytes


def _short_digest(data: bytes) -> str:
    return bytes_digest(data).removeprefix("sha256:")[:16]


def _check_paths(record: SnapshotManifest) -> None:
    """Raise InvalidArgument if the name of a file is no text, which no document can hold."""
    for path in (*(entry.path for entry in record.files), *record.folders):
        require_text("name of a file", path)


def _refs(keys: list[str]) -> list[RecordRef]:
    matches = ((key, _NAME.search(key)) for key in keys)
    refs = [RecordRef(key, int(match[1]), match[2], match[3]) for key, match in matches if match is not None]
    return sorted(refs, key=_order)


def _order(ref: RecordRef) -> tuple[int, str]:
    """Return the sort key of a record: clones that were merged may have used one number twice, and ids sort by time."""
    return ref.number, ref.id


def _ids_removed(line: bytes) -> list[str]:
    try:
        return [str(snapshot_id) for _, snapshot_id in json.loads(line)["removed"]]
    except (ValueError, KeyError, TypeError, RecursionError):  # a line that a crash cut off, or garbage
        return []


def recorded_sessions(store: Store, project_id: str) -> list[str]:
    """Return the sessions of a project that have a history, whether they still exist or not."""
    prefix = f"{project_id}/history/snapshots/"
    return sorted({key.removeprefix(prefix).partition("/")[0] for key in store.keys(prefix)})


class HistoryStore:
    """The stored history of one session, in the given store or else in the one of the session's policy."""

    def __init__(self, session: SessionDocuments, *, store: Store | None, may_run_code: bool) -> None:
        self.session = session
        self._given = store
        self._may_run_code = may_run_code
        self.shielded: set[str] = set()  # snapshots that an operation under way may have to restore
        self._name = f"{session.project_id}/{session.session_id}"

    @property
    def policy(self) -> SnapshotPolicy:
        """The snapshot policy that holds for the session."""
        return self._settings.policy

    @cached_property
    def _settings(self) -> Settings:
        """The settings of the session; if it cannot be read, of the only workflow in the project."""
        try:
            view = self.session.read()
            _ = view.workflow
        except (HaythamError, OSError):
            return read_settings(self.session.store, self._only_workflow())
        return view.settings

    def _only_workflow(self) -> Workflow | None:
        store, prefix = self.session.store, f"{self.session.project_id}/workflows/"
        copies = [key for key in store.keys(prefix, depth=2) if key.endswith(f"/{FILE}")]
        try:
            return parse_workflow(store.read(copies[0]), file=copies[0]) if len(copies) == 1 else None
        except (HaythamError, OSError):
            return None

    @cached_property
    def store(self) -> Store:
        """The store of the project's history."""
        if self._given is not None:
            return self._given
        policy = self.policy
        if policy.storage_type == "file" and policy.storage_path is None:
            return self.session.store
        from haytham.storage.factory import open_store  # noqa: PLC0415 - only where the workflow names another place

        base = getattr(self.session.store, "base", Path())
        may_run_code = self._may_run_code or self._is_named_here
        return open_store(policy.storage_type, path=policy.storage_path, base=base, may_run_code=may_run_code)

    @property
    def _is_named_here(self) -> bool:
        """Whether nothing but the environment names the store: who sets it trusts it."""
        sources = {self._settings.get(f"snapshots.{name}").source for name in ("storage_type", "storage_path")}
        return sources <= {"environment", "default"}

    def check_store(self) -> None:
        """Raise InvalidDocument, with the line of the setting, if the store cannot be opened."""
        if not self.policy.enabled:
            return
        try:
            if self.store is not self.session.store:
                self.store.ensure_folder(f"{self.session.project_id}/")
        except (HaythamError, OSError) as error:
            way = "" if self._may_run_code else "; if you trust the workflow: haytham resume --trust"
            raise InvalidDocument([self._store_problem(f"the history cannot be opened: {error}{way}")]) from None

    def _store_problem(self, message: str) -> Problem:
        """Return a problem with the place of the setting that names the store."""
        names = [self._settings.get(f"snapshots.{name}") for name in ("storage_path", "storage_type")]
        setting = next((setting for setting in names if setting.source not in ("workflow", "default")), None)
        if setting is None:
            workflow = self.session.read().workflow
            return Problem(
                message, workflow.lines.get(("checkpointing",), 1), label="checkpointing", file=workflow.file
            )
        file, _, line = setting.place.partition(":")
        return Problem(message, int(line) if line else None, label=setting.key, file=file)

    @cached_property
    def records(self) -> SnapshotCatalog:
        """The records of the session's own snapshots."""
        return SnapshotCatalog(self.store, self.session.project_id, self.session.session_id)

    @cached_property
    def blobs(self) -> BlobStore:
        """The bytes of all snapshots of the project."""
        return BlobStore(self.store, self.session.project_id, compress=self.policy.compress)

    def lock(self) -> AbstractContextManager[None]:
        """Return the lock of a project's blobs; it is always acquired before that of a session."""
        return self.session.store.lock(self.session.project_id)

    def require_enabled(self, action: str) -> None:
        """Raise HistoryDisabled if the policy switches history off."""
        if not self.policy.enabled:
            setting = self._settings.get("snapshots.enabled")
            place = "workflow.yaml" if setting.source == "workflow" else setting.place
            raise HistoryDisabled(self._name, action, place)

    def for_session(self, session: SessionDocuments) -> HistoryStore:
        """Return the history of another session of the project, in the same store."""
        return HistoryStore(session, store=self.store, may_run_code=self._may_run_code)

    def pins(self) -> set[str]:
        """Return the ids of pinned snapshots."""
        prefix = self._pin("")
        return {key.removeprefix(prefix) for key in self.store.keys(prefix, depth=1)}

    def protected_ids(self) -> set[str]:
        """Return the ids of snapshots that are never deleted: pinned, or needed by an operation under way."""
        return self.pins() | self.shielded

    def pin(self, snapshot_id: str) -> None:
        """Pin a snapshot, so that no rule deletes it."""
        self.store.write(self._pin(snapshot_id), b"")

    def unpin(self, snapshot_id: str) -> None:
        """Unpin a snapshot."""
        self.store.delete(self._pin(snapshot_id))

    def delete_all(self) -> None:
        """Delete the session's records and pins, but no blobs, which other sessions may share."""
        self.records.clear()
        self.store.delete(self._pin(""))

    def _pin(self, snapshot_id: str) -> str:
        return f"{self.session.project_id}/history/pins/{self.session.session_id}/{snapshot_id}"
