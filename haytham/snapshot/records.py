"""The records of a session's snapshots: Markdown that is written once, found by number, and never changed.

A record's name says its number, its id and the digest of its bytes: a list needs no reading where an index was made of
the same names, and a byte that changed shows. Records lie a hundred to a folder, so that the newest is found as
quickly among thousands as among ten.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.document.check import check_text
from haytham.document.kind import load_kind
from haytham.document.parse import parse
from haytham.errors import HaythamError, InvalidDocument, InvalidValue, Problem
from haytham.snapshot.branch import BranchFile
from haytham.snapshot.snapshot import Record, Snapshot, read_record, read_snapshot
from haytham.store.protocol import ABSENT, bytes_digest, cache_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from haytham.store.protocol import Store

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
class Name:
    """What the name of a record says: where it lies, its number, its id, and the digest of its bytes."""

    key: str
    number: int
    id: str
    digest: str


class Records:
    """The records of one session, in the store of its project's history."""

    def __init__(self, store: Store, project_id: str, session_id: str) -> None:
        self._store, self._cache = store, cache_of(store)
        self._project_id, self._session_id = project_id, session_id
        self._prefix = f"{project_id}/history/snapshots/{session_id}/"
        self.branch = BranchFile(store, project_id, session_id)

    def names(self) -> list[Name]:
        """All records there are, by number."""
        return _names(self._store.keys(self._prefix))

    def newest(self) -> Name | None:
        """The record with the highest number, found without looking at all of them where that is remembered."""
        shelf = self.branch.read().shelf
        if shelf and not self._on(shelf + 1):
            found = self._on(shelf) or self._on(shelf - 1)
            if found:
                return found[-1]
        return max(self.names(), key=_order, default=None)

    def _on(self, shelf: int) -> list[Name]:
        return _names(self._store.keys(self._folder(shelf), depth=1))

    def next_number(self, newest: Name | None) -> int:
        """One above the highest number that was ever used."""
        number = max(0 if newest is None else newest.number, self.branch.read().last) + 1
        if newest is not None and number > _HIGHEST:
            raise InvalidDocument([Problem("has the highest number there is; move it away", file=newest.key)])
        return number

    def write(self, record: Record) -> None:
        """Store a record, to stay. Call it holding the project's lock."""
        from haytham.document.render import check_value, render_and_read  # noqa: PLC0415 - who only looks needs neither

        value = record.value()
        _check_paths(record)
        check_value(load_kind(KIND), {**value, "documents": value["documents"][:1]})  # the others are made like it
        text, _ = render_and_read(load_kind(KIND), value, check=False)
        data, shelf = text.encode(), record.snapshot.number // _ON_A_SHELF
        if shelf:
            self.branch.change(shelf=shelf)
        name = f"{record.snapshot.number:06d}.{record.snapshot.id}.{_short(data)}.md"
        self._store.write(self._folder(shelf) + name, data, expect=ABSENT)
        _keep(bytes_digest(data), record)

    def read(self, name: Name) -> Record:
        """A record with its documents; InvalidDocument where a byte of it has changed, or it does not belong there."""
        data = self._store.read(name.key)
        digest = bytes_digest(data)
        if _short(data) != name.digest:
            message = "is not as it was written: a snapshot's record never changes"
            raise InvalidDocument([Problem(message, file=name.key)])
        known = _KEPT.get(digest)
        if known is not None and not self._misplaced(name, vars(known.snapshot)):
            return known
        parsed = parse(load_kind(KIND), data)
        faults = [problem.within(name.key) for problem in parsed.faults]
        if faults:
            raise InvalidDocument(faults)
        record = self._checked(name, parsed.value)
        _keep(digest, record)
        return record

    def _checked(self, place: Name, value: Mapping[str, Any]) -> Record:
        """A record that says what its place says, and names no path that could leave the session."""
        wrong = self._misplaced(place, value)
        if wrong:
            raise InvalidDocument([Problem(f"{message}, by its place", file=place.key) for message in wrong])
        try:
            return read_record(value)
        except InvalidValue as error:
            raise InvalidDocument([Problem(str(error), file=place.key)]) from None

    def _misplaced(self, place: Name, value: Mapping[str, Any]) -> list[str]:
        """What a record says and its place does not."""
        said = {"project": self._project_id, "session": self._session_id, "number": place.number, "id": place.id}
        return [f"{name}: found {value[name]!r}; allowed: {so!r}" for name, so in said.items() if value[name] != so]

    def snapshots(self) -> list[Snapshot]:
        """All snapshots by number, from the index where it was made of the same records; one damaged hides no other."""
        names = self.names()
        known = self._index(names)
        missing = [name for name in names if name.key not in known]
        for name in missing:
            snapshot = self._readable(name)
            if snapshot is not None:
                known[name.key] = snapshot
        if len(missing) >= _WORTH_AN_INDEX:
            self._write_index([name for name in names if name.key in known], known)
        return [known[name.key] for name in names if name.key in known]

    def _readable(self, name: Name) -> Snapshot | None:
        try:
            return self.read(name).snapshot
        except FileNotFoundError:  # it was removed in between
            return None
        except (HaythamError, OSError) as error:
            log.warning("a snapshot cannot be read: %s", error)
            return None

    def remove(self, names: Iterable[Name]) -> None:
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
        for name in self.names():
            data = self._store.read(name.key)
            if _short(data) != name.digest:
                raise InvalidDocument([Problem("is damaged, so that no bytes can be let go", file=name.key)])
            found |= {digest.decode() for digest in _DIGEST.findall(data)}
        return found

    def clear(self) -> None:
        """Remove all that is known of the session's past."""
        self._store.delete(self._prefix)
        self._cache.delete(self._prefix)
        self.branch.forget()

    def _folder(self, shelf: int) -> str:
        return f"{self._prefix}{shelf:04d}/"

    def _index(self, names: Sequence[Name]) -> dict[str, Snapshot]:
        """What is known of records by their keys; a file that cannot be read, or a line that cannot be, is none."""
        try:
            lines = self._cache.read(self._prefix + _INDEX).split(b"\n")
        except (HaythamError, OSError):
            return {}
        try:
            rows = [json.loads(line) for line in lines if line]
            known = {row.pop("key"): read_snapshot(row) for row in rows}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}
        there = [name for name in names if name.key in known]
        return {name.key: known[name.key] for name in there if not self._misplaced(name, vars(known[name.key]))}

    def _write_index(self, names: Sequence[Name], known: dict[str, Snapshot]) -> None:
        """Keep what a list needs; it is derived, so that a folder one may not write to is no reason to fail."""
        rows = (json.dumps({"key": name.key, **asdict(known[name.key])}) for name in names)
        try:
            self._cache.write(self._prefix + _INDEX, "\n".join(rows).encode() + b"\n")
        except (HaythamError, OSError) as error:
            log.debug("no index was kept: %s", error)


_KEPT: dict[str, Record] = {}
_MOST_KEPT = 64


def _keep(digest: str, record: Record) -> None:
    """Keep what a record says by the digest of its bytes: the newest is asked for again and again."""
    if len(_KEPT) >= _MOST_KEPT:
        _KEPT.clear()
    _KEPT[digest] = record


def _short(data: bytes) -> str:
    return bytes_digest(data).removeprefix("sha256:")[:16]


def _check_paths(record: Record) -> None:
    """Refuse names of files that are no text: no document can hold them."""
    for path in (*(row.path for row in record.rows), *record.folders):
        check_text("name of a file", path)


def _names(keys: list[str]) -> list[Name]:
    found = ((key, _NAME.search(key)) for key in keys)
    names = [Name(key, int(match[1]), match[2], match[3]) for key, match in found if match is not None]
    return sorted(names, key=_order)


def _order(name: Name) -> tuple[int, str]:
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
