"""What a session's history must remember beside its records: steps counted, where it was restored to, numbers used.

It is one line of JSON. Git joins the lines of two clones (merge=union); they are read as one, and written as one line.

The records of a session's snapshots: Markdown that is written once, found by number, and never changed.

A record's name says its number, its id and the digest of its bytes: a list needs no reading where an index was made of
the same names, and a byte that changed shows. Records lie a hundred to a folder, so that the newest is found as
quickly among thousands as among ten.

Where a session's history rests: the store, records, blobs and pins of it, and the lock that all of them need.
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
from haytham.config.policy import SnapshotPolicy
from haytham.config.workflow import FILE, parse_workflow
from haytham.errors import HaythamError, HistoryDisabled, InvalidArgument, InvalidDocument, Problem
from haytham.history.blobs import BlobStore
from haytham.history.snapshot import Snapshot, SnapshotManifest, parse_manifest, parse_snapshot
from haytham.markdown.check import require_text
from haytham.markdown.parser import parse
from haytham.markdown.schema import load_schema
from haytham.storage.base import ABSENT, bytes_digest, cache_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from haytham.session import Session
    from haytham.storage.base import Store

_MOST = 10**12  # far more than anybody counts to, and far less than a record can say


@dataclass(frozen=True)
class BranchHead:
    """One session's line of snapshots.

    `shelf` is the folder of its newest records, `last` the highest number that was ever used and removed since, `head`
    the snapshot that was restored when `head_after` was the highest number, `step` the steps counted so far.
    """

    shelf: int = 0
    last: int = 0
    head: str | None = None
    head_after: int = 0
    step: int = 0


class BranchHeadFile:
    """Where a branch is kept. A file that is lost or garbled is as good as none: records tell nearly all of it."""

    def __init__(self, store: Store, project_id: str, session_id: str) -> None:
        self._store = store
        self._key = f"{project_id}/history/branches/{session_id}.jsonl"

    def read(self) -> BranchHead:
        """What is remembered."""
        try:
            lines = self._store.read(self._key).split(b"\n")
        except FileNotFoundError:
            return BranchHead()
        return _joined([_checked(_loaded(line)) for line in lines])

    def change(self, **facts: Any) -> BranchHead:
        """Remember something else; what is remembered then. Call it holding the project's lock."""
        before = self.read()
        after = replace(before, **facts)
        if after != before:
            self._store.write(self._key, json.dumps(asdict(after)).encode() + b"\n")
        return after

    def delete(self) -> None:
        """Remember nothing."""
        self._store.delete(self._key)


def _loaded(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):  # garbled, or a mark that git left
        return None


def _joined(branches: list[BranchHead]) -> BranchHead:
    """Join what several clones remember: the highest numbers, and the restore that was the last by number."""
    if not branches:
        return BranchHead()
    restored = max(branches, key=lambda branch: branch.head_after)
    highest = {name: max(getattr(branch, name) for branch in branches) for name in ("shelf", "last", "step")}
    return replace(restored, **highest)


def _checked(facts: Any) -> BranchHead:
    """A branch of what has the right type; the rest counts as unknown."""
    if not isinstance(facts, dict):
        return BranchHead()
    names = [one.name for one in fields(BranchHead) if one.name in facts]
    return BranchHead(**{name: facts[name] for name in names if _fits(name, facts[name])})


def _fits(name: str, value: Any) -> bool:
    if name == "head":
        return value is None or isinstance(value, str)
    return type(value) is int and 0 <= value <= _MOST


log = logging.getLogger(__name__)

KIND = "snapshot"
_NAME = re.compile(r"/([0-9]{6,15})\.([^/]+)\.([0-9a-f]{16})\.md\Z")
_HIGHEST = 10**15 - 1
_DIGEST = re.compile(rb"sha256:[0-9a-f]{64}")
_ON_A_SHELF = 100
_WORTH_AN_INDEX = 20
_INDEX = "index.jsonl"
_REMOVED = "removed.jsonl"


@dataclass(frozen=True)
class RecordRef:
    """What the name of a record says: where it lies, its number, its id, and the digest of its bytes."""

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
        """All records there are, by number."""
        return _names(self._store.keys(self._prefix))

    def newest(self) -> RecordRef | None:
        """The record with the highest number, found without looking at all of them where that is remembered."""
        shelf = self.branch.read().shelf
        if shelf and not self._on(shelf + 1):
            found = self._on(shelf) or self._on(shelf - 1)
            if found:
                return found[-1]
        return max(self.refs(), key=_order, default=None)

    def _on(self, shelf: int) -> list[RecordRef]:
        return _names(self._store.keys(self._folder(shelf), depth=1))

    def next_number(self, newest: RecordRef | None) -> int:
        """One above the highest number that was ever used."""
        number = max(0 if newest is None else newest.number, self.branch.read().last) + 1
        if newest is not None and number > _HIGHEST:
            raise InvalidDocument([Problem("has the highest number there is; move it away", file=newest.key)])
        return number

    def write(self, record: SnapshotManifest) -> None:
        """Store a record, to stay. Call it holding the project's lock."""
        from haytham.markdown.renderer import check_value, render_verified  # noqa: PLC0415 - who only looks needs neither

        value = record.value()
        _check_paths(record)
        check_value(load_schema(KIND), {**value, "documents": value["documents"][:1]})  # the others are made like it
        text, _ = render_verified(load_schema(KIND), value, check=False)
        data, shelf = text.encode(), record.snapshot.number // _ON_A_SHELF
        if shelf:
            self.branch.change(shelf=shelf)
        name = f"{record.snapshot.number:06d}.{record.snapshot.id}.{_short(data)}.md"
        self._store.write(self._folder(shelf) + name, data, expect=ABSENT)
        _keep(bytes_digest(data), record)

    def read(self, name: RecordRef) -> SnapshotManifest:
        """A record with its documents; InvalidDocument where a byte of it has changed, or it does not belong there."""
        data = self._store.read(name.key)
        digest = bytes_digest(data)
        if _short(data) != name.digest:
            message = "is not as it was written: a snapshot's record never changes"
            raise InvalidDocument([Problem(message, file=name.key)])
        known = _KEPT.get(digest)
        if known is not None and not self._misplaced(name, vars(known.snapshot)):
            return known
        parsed = parse(load_schema(KIND), data)
        faults = [problem.with_file(name.key) for problem in parsed.faults]
        if faults:
            raise InvalidDocument(faults)
        record = self._checked(name, parsed.value)
        _keep(digest, record)
        return record

    def _checked(self, place: RecordRef, value: Mapping[str, Any]) -> SnapshotManifest:
        """A record that says what its place says, and names no path that could leave the session."""
        wrong = self._misplaced(place, value)
        if wrong:
            raise InvalidDocument([Problem(f"{message}, by its place", file=place.key) for message in wrong])
        try:
            return parse_manifest(value)
        except InvalidArgument as error:
            raise InvalidDocument([Problem(str(error), file=place.key)]) from None

    def _misplaced(self, place: RecordRef, value: Mapping[str, Any]) -> list[str]:
        """What a record says and its place does not."""
        said = {"project": self._project_id, "session": self._session_id, "number": place.number, "id": place.id}
        return [f"{name}: found {value[name]!r}; allowed: {so!r}" for name, so in said.items() if value[name] != so]

    def snapshots(self) -> list[Snapshot]:
        """All snapshots by number, from the index where it was made of the same records; one damaged hides no other."""
        names = self.refs()
        known = self._index(names)
        missing = [name for name in names if name.key not in known]
        for name in missing:
            snapshot = self._readable(name)
            if snapshot is not None:
                known[name.key] = snapshot
        if len(missing) >= _WORTH_AN_INDEX:
            self._write_index([name for name in names if name.key in known], known)
        return [known[name.key] for name in names if name.key in known]

    def _readable(self, name: RecordRef) -> Snapshot | None:
        try:
            return self.read(name).snapshot
        except FileNotFoundError:  # it was removed in between
            return None
        except (HaythamError, OSError) as error:
            log.warning("a snapshot cannot be read: %s", error)
            return None

    def remove(self, names: Iterable[RecordRef]) -> None:
        """Remove records, and note which; their numbers are never used again. Call it holding the project's lock."""
        gone = sorted(names, key=_order)
        if not gone:
            return
        newest = self.newest()
        if newest is not None and gone[-1].number >= newest.number:
            self.branch.change(last=max(newest.number, self.branch.read().last))
        note = {"time": clock.now(), "removed": [[name.number, name.id] for name in gone]}
        self._store.append(self._prefix + _REMOVED, json.dumps(note).encode() + b"\n")
        for name in gone:
            self._store.delete(name.key)

    def removed(self) -> set[str]:
        """The ids of snapshots that were removed on purpose."""
        try:
            lines = self._store.read(self._prefix + _REMOVED).split(b"\n")
        except FileNotFoundError:
            return set()
        return {snapshot_id for line in lines for snapshot_id in _ids_removed(line)}

    def digests(self) -> set[str]:
        """Every digest that a record names, found without reading them as documents.

        InvalidDocument where a record is damaged: what it named can no longer be told.
        """
        found: set[str] = set()
        for name in self.refs():
            data = self._store.read(name.key)
            if _short(data) != name.digest:
                raise InvalidDocument([Problem("is damaged, so that no bytes can be let go", file=name.key)])
            found |= {digest.decode() for digest in _DIGEST.findall(data)}
        return found

    def clear(self) -> None:
        """Remove all that is known of the session's past."""
        self._store.delete(self._prefix)
        self._cache.delete(self._prefix)
        self.branch.delete()

    def _folder(self, shelf: int) -> str:
        return f"{self._prefix}{shelf:04d}/"

    def _index(self, names: Sequence[RecordRef]) -> dict[str, Snapshot]:
        """What is known of records by their keys; a file that cannot be read, or a line that cannot be, is none."""
        try:
            lines = self._cache.read(self._prefix + _INDEX).split(b"\n")
        except (HaythamError, OSError):
            return {}
        try:
            rows = [json.loads(line) for line in lines if line]
            known = {row.pop("key"): parse_snapshot(row) for row in rows}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}
        there = [name for name in names if name.key in known]
        return {name.key: known[name.key] for name in there if not self._misplaced(name, vars(known[name.key]))}

    def _write_index(self, names: Sequence[RecordRef], known: dict[str, Snapshot]) -> None:
        """Keep what a list needs; it is derived, so that a folder one may not write to is no reason to fail."""
        rows = (json.dumps({"key": name.key, **asdict(known[name.key])}) for name in names)
        try:
            self._cache.write(self._prefix + _INDEX, "\n".join(rows).encode() + b"\n")
        except (HaythamError, OSError) as error:
            log.debug("no index was kept: %s", error)


_KEPT: dict[str, SnapshotManifest] = {}
_MOST_KEPT = 64


def _keep(digest: str, record: SnapshotManifest) -> None:
    """Keep what a record says by the digest of its bytes: the newest is asked for again and again."""
    if len(_KEPT) >= _MOST_KEPT:
        _KEPT.clear()
    _KEPT[digest] = record


def _short(data: bytes) -> str:
    return bytes_digest(data).removeprefix("sha256:")[:16]


def _check_paths(record: SnapshotManifest) -> None:
    """Refuse names of files that are no text: no document can hold them."""
    for path in (*(row.path for row in record.files), *record.folders):
        require_text("name of a file", path)


def _names(keys: list[str]) -> list[RecordRef]:
    found = ((key, _NAME.search(key)) for key in keys)
    names = [RecordRef(key, int(match[1]), match[2], match[3]) for key, match in found if match is not None]
    return sorted(names, key=_order)


def _order(name: RecordRef) -> tuple[int, str]:
    """Sort by number; clones that were merged may have given one number twice, and ids sort by time."""
    return name.number, name.id


def _ids_removed(line: bytes) -> list[str]:
    try:
        return [str(snapshot_id) for _, snapshot_id in json.loads(line)["removed"]]
    except (ValueError, KeyError, TypeError, RecursionError):  # a line that a crash cut off, or garbage
        return []


def recorded_sessions(store: Store, project_id: str) -> list[str]:
    """The sessions of a project that have a history, be they there or not."""
    prefix = f"{project_id}/history/snapshots/"
    return sorted({key.removeprefix(prefix).partition("/")[0] for key in store.keys(prefix)})


class HistoryStore:
    """The past of one session at rest. `store` says where, else the session's policy does."""

    def __init__(self, session: Session, *, store: Store | None, may_run_code: bool) -> None:
        self.session = session
        self._given = store
        self._may_run_code = may_run_code
        self.shielded: set[str] = set()  # what an operation that is going on comes back to
        self._name = f"{session.project_id}/{session.session_id}"

    @cached_property
    def policy(self) -> SnapshotPolicy:
        """What the session's workflow says of history; of one that cannot be read, the only copy in the project."""
        try:
            return self.session.read().workflow.policy
        except (HaythamError, OSError):
            return self._policy_of_copies()

    def _policy_of_copies(self) -> SnapshotPolicy:
        store, prefix = self.session.store, f"{self.session.project_id}/workflows/"
        copies = [key for key in store.keys(prefix, depth=2) if key.endswith(f"/{FILE}")]
        try:
            return (
                parse_workflow(store.read(copies[0]), file=copies[0]).policy if len(copies) == 1 else SnapshotPolicy()
            )
        except (HaythamError, OSError):
            return SnapshotPolicy()

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
        return open_store(policy.storage_type, path=policy.storage_path, base=base, may_run_code=self._may_run_code)

    def check_store(self) -> None:
        """Refuse a store that cannot be opened: InvalidDocument with the place of its settings."""
        if not self.policy.enabled:
            return
        try:
            if self.store is not self.session.store:
                self.store.ensure_folder(f"{self.session.project_id}/")
        except (HaythamError, OSError) as error:
            workflow = self.session.read().workflow
            way = "" if self._may_run_code else "; if you trust the workflow: haytham resume --trust"
            line, label = workflow.lines.get(("checkpointing",), 1), "checkpointing"
            message = f"the history cannot be opened: {error}{way}"
            raise InvalidDocument([Problem(message, line, label=label, file=workflow.file)]) from None

    @cached_property
    def records(self) -> SnapshotCatalog:
        """The records of the session's own snapshots."""
        return SnapshotCatalog(self.store, self.session.project_id, self.session.session_id)

    @cached_property
    def blobs(self) -> BlobStore:
        """The bytes of all snapshots of the project."""
        return BlobStore(self.store, self.session.project_id, compress=self.policy.compress)

    def lock(self) -> AbstractContextManager[None]:
        """The lock of what shares bytes in a project: it is taken before a session's own, always."""
        return self.session.store.lock(self.session.project_id)

    def require_enabled(self, wanted: str) -> None:
        """Refuse what needs a history, where the policy says there is none."""
        if not self.policy.enabled:
            raise HistoryDisabled(self._name, wanted)

    def for_session(self, session: Session) -> HistoryStore:
        """The past of another session of the project, in the same store."""
        return HistoryStore(session, store=self.store, may_run_code=self._may_run_code)

    def pins(self) -> set[str]:
        """The ids of snapshots that a person pinned."""
        prefix = self._pin("")
        return {key.removeprefix(prefix) for key in self.store.keys(prefix, depth=1)}

    def protected_ids(self) -> set[str]:
        """What nothing may let go: pinned, or needed by an operation that is going on."""
        return self.pins() | self.shielded

    def pin(self, snapshot_id: str) -> None:
        """Keep a snapshot, whatever the settings say."""
        self.store.write(self._pin(snapshot_id), b"")

    def unpin(self, snapshot_id: str) -> None:
        """Let a snapshot go its way."""
        self.store.delete(self._pin(snapshot_id))

    def delete_all(self) -> None:
        """Remove all that is known of the session's past but for bytes, which others may share."""
        self.records.clear()
        self.store.delete(self._pin(""))

    def _pin(self, snapshot_id: str) -> str:
        return f"{self.session.project_id}/history/pins/{self.session.session_id}/{snapshot_id}"
