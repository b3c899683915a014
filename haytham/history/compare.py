"""What differs between two moments of one session, or of two: fields by their paths, texts as unified differences.

A field's path begins with what holds it: `manifest.model`, `state.memory.session.x`, `checkpoint.2.status`,
`feedback.2.approved`, `output.1.concept_expansion.model`, `task.1.concept_expansion.attempt`, and for an earlier
attempt at phase 2, the first, `attempt.2.1.output.market_intelligence.model`. What is only shown takes no part, nor do
line ends, the order of named rows, and when something was saved.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from haytham.markdown.parser import parse
from haytham.markdown.schema import load_schema
from haytham.session import paths
from haytham.session.derived import row_tokens, sum_known
from haytham.session.validate import schema_for_path
from haytham.text import unified_diff

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_SESSION = "project/sessions/session/"  # a place is told by a whole key
_WORDS = {"session_manifest": "manifest", "user_feedback": "feedback", "agent_output": "output"}
_LEFT_OUT = {("checkpoint", "saved_at"), ("state", "saved_at")}  # say only that something was saved
_ROW_KEYS = ("agent_name", "document", "part")
_LONGEST = 200  # characters of a field that is shown as a value
_MOST_LINES = 10_000  # of a text that is compared line by line: the time that takes grows with their square

Value = dict[str, Any]


@dataclass(frozen=True)
class CompareSide:
    """A session at one moment: its documents by their paths within it, and its status."""

    documents: Mapping[str, bytes]
    status: str


@dataclass(frozen=True)
class Change:
    """What something was and what it is; None is nothing, or not known."""

    old: Any
    new: Any

    @property
    def is_changed(self) -> bool:
        """Whether it is another one now."""
        return not _same(self.old, self.new)


@dataclass(frozen=True)
class Comparison:
    """What differs: fields by path, documents that came and went, statuses, texts by document, totals.

    A text that is the content of its document stands under the document's path, another long one under the path, `#`
    and the field. Totals are None where a checkpoint cannot be read, and where no document differs.
    """

    changed_fields: Mapping[str, Change]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    old_status: str
    new_status: str
    texts: Mapping[str, str]
    tokens: Change
    cost: Change

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        differs = self.changed_fields or self.added or self.removed or self.texts
        moved = self.old_status != self.new_status or self.tokens.is_changed or self.cost.is_changed
        return not differs and not moved


def compare(old: CompareSide, new: CompareSide) -> Comparison:
    """What differs between two moments. Documents of equal bytes say the same, and are not compared."""
    paths = sorted(old.documents.keys() | new.documents.keys(), key=natural_sort_key)
    moved = [path for path in paths if old.documents.get(path) != new.documents.get(path)]
    found = [_compared(DocumentPath(path), old.documents.get(path), new.documents.get(path)) for path in moved]
    tokens, cost = _totals(old.documents, new.documents) if moved else (_UNKNOWN, _UNKNOWN)
    return Comparison(
        changed_fields={name: change for one in found for name, change in one.fields.items()},
        added=tuple(path for path in moved if path not in old.documents),
        removed=tuple(path for path in moved if path not in new.documents),
        old_status=old.status,
        new_status=new.status,
        texts={name: text for one in found for name, text in one.texts.items()},
        tokens=tokens,
        cost=cost,
    )


def natural_sort_key(path: str) -> str:
    """A path as it is sorted: phase 2 before phase 10."""
    return re.sub(r"\d+", lambda number: number[0].zfill(12), path)


@dataclass(frozen=True)
class CompareState:
    """What differs in one document."""

    fields: dict[str, Change] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DocumentPath:
    """Where a document stands, and what follows from that."""

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
    def is_aside(self) -> bool:
        """Whether it belongs to an earlier attempt."""
        return self.path.partition("/")[2].startswith(paths.ATTEMPTS)

    @property
    def is_copy(self) -> bool:
        """Whether it is an output as it was presented: a copy, kept for later differences."""
        return f"/{paths.PRESENTED}" in self.path and self.kind is not None

    @property
    def content(self) -> str | None:
        """The field that is the document's content, where its kind has one."""
        verbatim = load_schema(self.kind).trailing_field if self.kind is not None else None
        return None if verbatim is None else verbatim.name

    @cached_property
    def names(self) -> str:
        """What the paths of its fields begin with."""
        kind = self.kind or ""
        folder, *rest = self.path.split("/")
        word, phase = _WORDS.get(kind, kind), folder.split("_")[1:2] if rest else []
        agent = [_name(rest[-1].removesuffix(".md"))] if kind in ("agent_output", "task") else []
        names = ["attempt", *phase, rest[1], word, *agent] if self.is_aside else [word, *phase, *agent]
        return ".".join(names)


def _compared(place: DocumentPath, before: bytes | None, after: bytes | None) -> CompareState:
    """What differs in a document whose bytes do; one that cannot be read, or is none of ours, is compared as text."""
    if place.is_copy:
        return CompareState()
    old, new = _value(place.kind, before), _value(place.kind, after)
    if old is None or new is None:
        text = _file_difference(place.path, before, after)
        return CompareState(texts={place.path: text} if text else {})
    if before is None or after is None:
        old, new = _telling(place, old), _telling(place, new)
    return _sorted_out(place, old, new)


def _value(kind: str | None, data: bytes | None) -> Value | None:
    """What a document says; nothing where it is absent, None where it does not say it."""
    if kind is None:
        return None
    if data is None:
        return {}
    parsed = parse(load_schema(kind), data)
    if parsed.faults:
        return None
    return {name: content for name, content in parsed.value.items() if (kind, name) not in _LEFT_OUT}


def _telling(place: DocumentPath, value: Value) -> Value:
    """What to tell of a document that is on one side only.

    Of the session's, whatever is not empty; of a phase's, how it stands and what an agent wrote; of an earlier
    attempt's, which was at hand before, what was decided.
    """
    if not place.in_phase:
        return {name: content for name, content in value.items() if not _is_nothing(content)}
    wrote = {place.content} if place.kind == "agent_output" else set()
    names = {"approved", "action"} if place.is_aside else {"status", "approved", "action", *wrote}
    return {name: content for name, content in value.items() if name in names}


def _sorted_out(place: DocumentPath, old: Value, new: Value) -> CompareState:
    """What differs in what a document says: short values as fields, content and long values as texts."""
    found = CompareState()
    for name in dict.fromkeys([*old, *new]):
        for path, before, after in _differences(name, old.get(name), new.get(name)):
            if path == place.content or _is_long(before) or _is_long(after):
                where = place.path if path == place.content else f"{place.path}#{path}"
                text = _text_difference(where, _as_text(before), _as_text(after))
                found.texts.update({where: text} if text else {})
            else:
                found.fields[f"{place.names}.{path}"] = Change(before, after)
    return found


def _differences(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """The single values that differ within two values, by the names that lead to them; null is as good as absent."""
    key = next((key for key in _ROW_KEYS if _is_named(old, key) and _is_named(new, key)), None)
    before, after = _parts(old, key), _parts(new, key)
    if not before and not after:
        yield from () if _same(old, new) else [(path, old, new)]
    elif type(old) is type(new) or _is_nothing(old) or _is_nothing(new):
        for name in dict.fromkeys([*before, *after]):
            yield from _differences(f"{path}.{name}", before.get(name), after.get(name))
    else:  # a value in the place of parts, or a map in the place of a list: one went and the other came
        yield from _differences(path, old, None)
        yield from _differences(path, None, new)


def _is_nothing(value: Any) -> bool:
    return value is None or value in ([], {})


def _is_named(rows: Any, key: str) -> bool:
    """Whether each row of a list has a name of its own under a key."""
    if not isinstance(rows, list):
        return True
    names = [_row_name(row, key) for row in rows]
    return None not in names and len(set(names)) == len(names)


def _row_name(row: Any, key: str) -> str | None:
    """The name of a row; a document's without its ending, unless that could be taken for another's."""
    name = row.get(key) if isinstance(row, dict) else None
    if not isinstance(name, str):
        return None
    if key != "document":
        return _name(name)
    stem = name.removesuffix(".md")
    return stem if stem != name and _name(stem) == stem else json.dumps(name)


def _parts(value: Any, key: str | None) -> Value:
    """What a map or a list is made of, by name; rows without one by their place, counted from 1 as documents do."""
    if isinstance(value, dict):
        return {_name(str(name)): content for name, content in value.items()}
    if not isinstance(value, list):
        return {}
    if key is None:
        return {str(at): content for at, content in enumerate(value, 1)}
    return {str(_row_name(row, key)): {name: row[name] for name in row if name != key} for row in value}


def _name(name: str) -> str:
    """A name as part of a path: as it is where that is clear, else as a JSON string."""
    is_clear = name.isprintable() and name.strip() == name != "" and not {".", '"'} & set(name)
    return name if is_clear else json.dumps(name, ensure_ascii=not name.isprintable())


def _same(old: Any, new: Any) -> bool:
    """Whether two values are the same; true is not 1."""
    return bool(old == new) and isinstance(old, bool) == isinstance(new, bool)


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and ("\n" in value or len(value) > _LONGEST)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value)


def _file_difference(path: str, before: bytes | None, after: bytes | None) -> str:
    old, new = before or b"", after or b""
    try:
        return _text_difference(path, old.decode("utf-8-sig"), new.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return f"binary, {len(old)} bytes -> {len(new)} bytes"


def _text_difference(name: str, before: str, after: str) -> str:
    """How two texts differ, line by line; of very long ones only that they do. Line ends do not count."""
    old, new = before.replace("\r\n", "\n"), after.replace("\r\n", "\n")
    counts = [text.count("\n") + 1 for text in (old, new)]
    if old != new and max(counts) > _MOST_LINES:
        return f"text, {counts[0]} lines -> {counts[1]} lines"
    return unified_diff(old, new, name)


_UNKNOWN = Change(None, None)


def _totals(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> tuple[Change, Change]:
    """Tokens and cost of all phases, as a manifest shows them; not known where a checkpoint does not say."""
    sides = [_checkpoints(documents) for documents in (old, new)]
    values = {data: _value("checkpoint", data) for data in {*sides[0], *sides[1]}}
    ledgers = [_rows(values[data] for data in side) for side in sides]
    tokens = (None if rows is None else sum_known(row_tokens(row) for row in rows) for rows in ledgers)
    costs = (None if rows is None else sum_known(row["cost"] for row in rows) for rows in ledgers)
    return Change(*tokens), Change(*costs)


def _checkpoints(documents: Mapping[str, bytes]) -> list[bytes]:
    """The checkpoints of all phases."""
    places = [DocumentPath(path) for path in documents]
    return [documents[place.path] for place in places if place.kind == "checkpoint" and not place.is_aside]


def _rows(checkpoints: Iterable[Value | None]) -> list[Value] | None:
    """The rows of all ledgers; None where one of them cannot be read."""
    values = list(checkpoints)
    known = [value["ledger"] for value in values if value is not None]
    return [row for ledger in known for row in ledger] if len(known) == len(values) else None
