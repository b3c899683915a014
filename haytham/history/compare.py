"""Comparing two snapshots or sessions: fields by their paths, texts as unified differences.

`status` is that of the session. Other paths begin with their document: `manifest.model`, `state.memory.session.x`,
`checkpoint.2.status`, `feedback.2.approved`, `output.1.concept_expansion.model`, `task.1.concept_expansion.attempt`,
and for an earlier attempt at phase 2, the first, `attempt.2.1.output.market_intelligence.model`. Derived fields, line
ends, the order of named rows, and times of saving are not compared.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from haytham.errors import InvalidArgument
from haytham.history.lookup import ref_text, resolve_anywhere
from haytham.history.restore import read_files
from haytham.history.snapshot import Snapshot, scan_tree, session_status
from haytham.markdown.parser import parse
from haytham.markdown.schema import load_schema
from haytham.session import SessionDocuments, paths
from haytham.session.derived import row_tokens, sum_known
from haytham.session.models import LedgerRow
from haytham.session.validate import schema_for_path
from haytham.text import natural_sort_key, unified_diff
from haytham.validation import matches_format

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from haytham.history.catalog import HistoryStore

_SESSION = "project/sessions/session/"  # the kind of a document is told by a whole key
_PREFIXES = {"session_manifest": "manifest", "user_feedback": "feedback", "agent_output": "output"}
_IGNORED = {("checkpoint", "saved_at"), ("state", "saved_at")}
_ROW_KEYS = ("agent_name", "document", "part")
_ALWAYS_FIELDS = ("fields.", "summary")  # of the state: listed as fields, long or not
_COUNTERS = ("duration", "save_counter")
_IDS = ("manifest.session_id", "manifest.forked_from", "manifest.fork_point")  # what is compared is named anyway
_LONGEST = 200  # characters of a field that is shown as a value
_MOST_LINES = 10_000  # of a text that is compared line by line: the time that takes grows with their square

Value = dict[str, Any]
Which = str | int | Snapshot | SessionDocuments


@dataclass(frozen=True)
class CompareSide:
    """A session at one moment: its documents by their paths within it, and its status."""

    documents: Mapping[str, bytes]
    status: str


@dataclass(frozen=True)
class Change:
    """An old and a new value; None is absent, or not known."""

    old: Any
    new: Any

    @property
    def is_changed(self) -> bool:
        """Return whether the values differ."""
        return not _same(self.old, self.new)


@dataclass(frozen=True)
class TextChange:
    """An old and a new text; empty where the document is absent."""

    old: str
    new: str


@dataclass(frozen=True)
class Comparison:
    """The differences: fields by path, documents added and removed, statuses, texts by document, totals.

    The status is also a changed field, and so are the state's summary and collected and required fields, long or not.
    The content of a document is listed under the document's path, another long text under the path, `#` and the field:
    in `texts` as a unified diff, in `contents` both texts, unless they are too long to compare. Totals are None if a
    checkpoint cannot be read, and if no document differs.
    """

    changed_fields: Mapping[str, Change]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    old_status: str
    new_status: str
    texts: Mapping[str, str]
    tokens: Change
    cost: Change
    contents: Mapping[str, TextChange] = field(default_factory=dict)

    @property
    def without_records(self) -> Comparison:
        """Return the same without what is only recorded: times, digests, ids, tasks, presented and merged copies."""
        fields = {name: change for name, change in self.changed_fields.items() if not _is_record(name, change)}
        texts = {path: text for path, text in self.texts.items() if not DocumentPath(path.partition("#")[0]).is_record}
        contents = {path: content for path, content in self.contents.items() if path in texts}
        added, removed = (
            tuple(path for path in paths if not DocumentPath(path).is_record) for paths in (self.added, self.removed)
        )
        return replace(self, changed_fields=fields, added=added, removed=removed, texts=texts, contents=contents)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing differs."""
        documents = self.changed_fields or self.added or self.removed or self.texts
        totals = self.old_status != self.new_status or self.tokens.is_changed or self.cost.is_changed
        return not documents and not totals


def compare(old: CompareSide, new: CompareSide) -> Comparison:
    """Compare two sides; documents of equal bytes are skipped."""
    paths = sorted(old.documents.keys() | new.documents.keys(), key=natural_sort_key)
    changed = [path for path in paths if old.documents.get(path) != new.documents.get(path)]
    states = [_compare(DocumentPath(path), old.documents.get(path), new.documents.get(path)) for path in changed]
    tokens, cost = _totals(old.documents, new.documents) if changed else (_UNKNOWN, _UNKNOWN)
    status = {} if old.status == new.status else {"status": Change(old.status, new.status)}
    return Comparison(
        changed_fields={**status, **{name: change for state in states for name, change in state.fields.items()}},
        added=tuple(path for path in changed if path not in old.documents),
        removed=tuple(path for path in changed if path not in new.documents),
        old_status=old.status,
        new_status=new.status,
        texts={name: text for state in states for name, text in state.texts.items()},
        tokens=tokens,
        cost=cost,
        contents={name: content for state in states for name, content in state.contents.items()},
    )


def compare_refs(archive: HistoryStore, old: Which, new: Which) -> Comparison:
    """Compare two snapshots or sessions of a project; raise if one is unknown."""
    return compare(resolve_side(archive, old), resolve_side(archive, new))


def resolve_side(archive: HistoryStore, which: Which) -> CompareSide:
    """Return the documents of a session, named by its whole id too, or of a snapshot of any session of the project."""
    if isinstance(which, SessionDocuments):
        return _present(archive, which)
    if isinstance(which, str) and which in archive.session.store.folders(
        paths.sessions_prefix(archive.session.project_id)
    ):
        return _present(archive, SessionDocuments(archive.session.store, archive.session.project_id, which))
    owner, ref = resolve_anywhere(archive, ref_text(which))
    record = owner.records.read(ref)
    return CompareSide(dict(read_files(owner, record)), record.snapshot.status)


def _present(archive: HistoryStore, session: SessionDocuments) -> CompareSide:
    if session.project_id != archive.session.project_id:
        raise InvalidArgument("session", session.session_id, f"one of project {archive.session.project_id}")
    with archive.lock():
        tree = scan_tree(session, ())
        status = str(session_status(session, None, tree.versions)["status"])
    return CompareSide({entry.path: tree.new[entry.digest] for entry in tree.files}, status)


@dataclass(frozen=True)
class CompareState:
    """The differences in one document."""

    fields: dict[str, Change] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    contents: dict[str, TextChange] = field(default_factory=dict)

    def add_text(self, name: str, old: str, new: str) -> bool:
        """Add a text if it differs, of very long ones only their lengths; line ends are ignored. Return whether so."""
        content = TextChange(old.replace("\r\n", "\n"), new.replace("\r\n", "\n"))
        counts = [text.count("\n") + 1 for text in (content.old, content.new)]
        if content.old == content.new:
            return False
        if max(counts) > _MOST_LINES:
            self.texts[name] = f"text, {counts[0]} lines -> {counts[1]} lines"
        else:
            self.texts[name] = unified_diff(content.old, content.new, name)
            self.contents[name] = content
        return True


@dataclass(frozen=True)
class DocumentPath:
    """The path of a document, and what it implies."""

    path: str

    @cached_property
    def kind(self) -> str | None:
        """Return the kind of document at this path."""
        return schema_for_path(_SESSION + self.path)

    @property
    def in_phase(self) -> bool:
        """Return whether the document belongs to a phase."""
        return "/" in self.path

    @property
    def is_archived(self) -> bool:
        """Return whether the document belongs to an earlier attempt."""
        return self.path.partition("/")[2].startswith(paths.ATTEMPTS)

    @property
    def is_copy(self) -> bool:
        """Return whether the document is the copy of an output as it was presented or merged."""
        return self._folder in (paths.PRESENTED, paths.MERGED) and self.kind is not None

    @property
    def is_record(self) -> bool:
        """Return whether the document only records what was asked, presented or merged."""
        return self._folder in (paths.TASKS, paths.PRESENTED, paths.MERGED)

    @property
    def _folder(self) -> str:
        """Return the folder within the phase or the earlier attempt; empty if there is none."""
        parts = self.path.split("/")[3 if self.is_archived else 1 : -1]
        return f"{parts[0]}/" if parts else ""

    @property
    def content(self) -> str | None:
        """Return the name of the field that is the document's content, if its kind has one."""
        trailing = load_schema(self.kind).trailing_field if self.kind is not None else None
        return None if trailing is None else trailing.name

    @cached_property
    def names(self) -> str:
        """Return the prefix of the paths of its fields."""
        kind = self.kind or ""
        folder, *rest = self.path.split("/")
        word, phase = _PREFIXES.get(kind, kind), folder.split("_")[1:2] if rest else []
        agent = [_name(rest[-1].removesuffix(".md"))] if kind in ("agent_output", "task") else []
        names = ["attempt", *phase, rest[1], word, *agent] if self.is_archived else [word, *phase, *agent]
        return ".".join(names)


def _compare(place: DocumentPath, before: bytes | None, after: bytes | None) -> CompareState:
    """Compare a document whose bytes differ; one that cannot be parsed, or has no kind, is compared as text."""
    if place.is_copy:
        return CompareState()
    old, new = _value(place.kind, before), _value(place.kind, after)
    if old is None or new is None:
        return _compare_files(place.path, before or b"", after or b"")
    if before is None or after is None:
        old, new = _essential(place, old), _essential(place, new)
    return _compare_values(place, old, new)


def _value(kind: str | None, data: bytes | None) -> Value | None:
    """Return the value of a document; empty if it is absent, None if it cannot be parsed."""
    if kind is None:
        return None
    if data is None:
        return {}
    parsed = parse(load_schema(kind), data)
    if parsed.faults:
        return None
    return {name: content for name, content in parsed.value.items() if (kind, name) not in _IGNORED}


def _essential(place: DocumentPath, value: Value) -> Value:
    """Return the fields to list of a document that is on one side only.

    Of the session's, those that are not empty; of a phase's, its status and what an agent wrote; of an earlier
    attempt's, the decision.
    """
    if not place.in_phase:
        return {name: content for name, content in value.items() if not _is_nothing(content)}
    content = {place.content} if place.kind == "agent_output" else set()
    names = {"approved", "action"} if place.is_archived else {"status", "approved", "action", *content}
    return {name: item for name, item in value.items() if name in names}


def _compare_values(place: DocumentPath, old: Value, new: Value) -> CompareState:
    """Compare the values of a document: short ones as fields, content and long ones as texts."""
    state = CompareState()
    for name in dict.fromkeys([*old, *new]):
        for path, before, after in _differences(name, old.get(name), new.get(name)):
            if path == place.content or _is_long(before) or _is_long(after):
                where = place.path if path == place.content else f"{place.path}#{path}"
                is_changed = state.add_text(where, _as_text(before), _as_text(after))
                if is_changed and place.kind == "state" and path.startswith(_ALWAYS_FIELDS):
                    state.fields[f"{place.names}.{path}"] = Change(before, after)
            else:
                state.fields[f"{place.names}.{path}"] = Change(before, after)
    return state


def _differences(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the single values that differ within two values, with their paths; null counts as absent."""
    key = next((key for key in _ROW_KEYS if _is_named(old, key) and _is_named(new, key)), None)
    before, after = _parts(old, key), _parts(new, key)
    if not before and not after:
        yield from () if _same(old, new) else [(path, old, new)]
    elif type(old) is type(new) or _is_nothing(old) or _is_nothing(new):
        for name in dict.fromkeys([*before, *after]):
            yield from _differences(f"{path}.{name}", before.get(name), after.get(name))
    else:  # a value in the place of parts, or a map in the place of a list: one was removed and the other added
        yield from _differences(path, old, None)
        yield from _differences(path, None, new)


def _is_nothing(value: Any) -> bool:
    return value is None or value in ([], {})


def _is_named(rows: Any, key: str) -> bool:
    """Return whether each row of a list has a unique name under a key."""
    if not isinstance(rows, list):
        return True
    names = [_row_name(row, key) for row in rows]
    return None not in names and len(set(names)) == len(names)


def _row_name(row: Any, key: str) -> str | None:
    """Return the name of a row; a document's without its ending, unless that could be another's name."""
    name = row.get(key) if isinstance(row, dict) else None
    if not isinstance(name, str):
        return None
    if key != "document":
        return _name(name)
    stem = name.removesuffix(".md")
    return stem if stem != name and _name(stem) == stem else json.dumps(name)


def _parts(value: Any, key: str | None) -> Value:
    """Return the items of a map or a list by name; rows without one by their position, from 1."""
    if isinstance(value, dict):
        return {_name(str(name)): content for name, content in value.items()}
    if not isinstance(value, list):
        return {}
    if key is None:
        return {str(at): content for at, content in enumerate(value, 1)}
    return {str(_row_name(row, key)): {name: row[name] for name in row if name != key} for row in value}


def _name(name: str) -> str:
    """Return a name as a part of a path: as it is if that is unambiguous, else as a JSON string."""
    is_clear = name.isprintable() and name.strip() == name != "" and not {".", '"'} & set(name)
    return name if is_clear else json.dumps(name, ensure_ascii=not name.isprintable())


def _same(old: Any, new: Any) -> bool:
    """Return whether two values are the same; true is not 1."""
    return bool(old == new) and isinstance(old, bool) == isinstance(new, bool)


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and ("\n" in value or len(value) > _LONGEST)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value)


def _compare_files(path: str, old: bytes, new: bytes) -> CompareState:
    state = CompareState()
    try:
        state.add_text(path, old.decode("utf-8-sig"), new.decode("utf-8-sig"))
    except UnicodeDecodeError:
        state.texts[path] = f"binary, {len(old)} bytes -> {len(new)} bytes"
    return state


def _is_record(name: str, change: Change) -> bool:
    """Return whether a changed field only records something: a time, a digest, an id, a part of a task."""
    parts = name.split(".")
    kind, last = parts[3 if parts[0] == "attempt" else 0], parts[-1]
    if kind == "state":
        return False
    values = [value for value in (change.old, change.new) if value is not None]
    return kind == "task" or last in _COUNTERS or name in _IDS or all(map(_is_time_or_digest, values))


def _is_time_or_digest(value: Any) -> bool:
    return isinstance(value, str) and any(matches_format(name, value) for name in ("time", "digest"))


_UNKNOWN = Change(None, None)


def _totals(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> tuple[Change, Change]:
    """Return tokens and cost of all phases; unknown if a checkpoint cannot be read."""
    sides = [_checkpoints(documents) for documents in (old, new)]
    values = {data: _value("checkpoint", data) for data in {*sides[0], *sides[1]}}
    ledgers = [_rows(values[data] for data in side) for side in sides]
    tokens = (None if rows is None else sum_known(row_tokens(row) for row in rows) for rows in ledgers)
    costs = (None if rows is None else sum_known(row.cost for row in rows) for rows in ledgers)
    return Change(*tokens), Change(*costs)


def _checkpoints(documents: Mapping[str, bytes]) -> list[bytes]:
    """Return the checkpoints of all phases."""
    documents_by_path = [DocumentPath(path) for path in documents]
    return [
        documents[place.path] for place in documents_by_path if place.kind == "checkpoint" and not place.is_archived
    ]


def _rows(checkpoints: Iterable[Value | None]) -> list[LedgerRow] | None:
    """Return the rows of all ledgers; None if one of them cannot be read."""
    values = list(checkpoints)
    known = [value["ledger"] for value in values if value is not None]
    return [LedgerRow.from_value(row) for ledger in known for row in ledger] if len(known) == len(values) else None
