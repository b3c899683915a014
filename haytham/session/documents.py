"""Documents at rest: typed values over a store. Whatever is read is checked; what was parsed once is kept by digest."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from haytham.errors import InvalidDocument, NotFound, Problem, conflict_problems, short_repr
from haytham.markdown.parser import TITLE, ParseResult, parse
from haytham.markdown.schema import load_schema
from haytham.storage.base import ABSENT, bytes_digest
from haytham.text import OURS, conflict_lines, text_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from haytham.storage.base import SessionStore

_LARGEST_KEPT = 64 * 1024  # an output may be megabytes, and is seldom asked for twice
_MOST_KEPT = 2048  # some dozens of sessions
_HEAD = 4096  # holds the head of an output that did not fail

T = TypeVar("T")


@dataclass(frozen=True)
class StoredDocument:
    """A document as it rests: what it says, its problems with the file's name, its bytes.

    Its value is shared by all who read the same bytes: make a new one, never change it.
    """

    kind: str
    key: str
    data: bytes
    parsed: ParseResult

    @cached_property
    def digest(self) -> str:
        """The digest of its bytes."""
        return bytes_digest(self.data)

    @property
    def value(self) -> Mapping[str, Any]:
        """What the document says; InvalidDocument where it cannot be read."""
        if self.faults:
            raise InvalidDocument(self.faults)
        return self.parsed.value

    @property
    def faults(self) -> tuple[Problem, ...]:
        """The problems that make the value unfit to be used."""
        faults = tuple(problem.with_file(self.key) for problem in self.parsed.faults) if self.parsed.problems else ()
        return faults or self.conflicts

    @cached_property
    def conflicts(self) -> tuple[Problem, ...]:
        """The git conflicts in the text of an output that is not as its agent wrote it."""
        value = self.parsed.value
        if self.kind != "agent_output" or self.parsed.faults or OURS not in value.get("text", ""):
            return ()
        return () if text_digest(value["text"]) == value["agent_digest"] else self.content_conflicts()

    def content_conflicts(self) -> tuple[Problem, ...]:
        """The git conflicts in the content that stands last, whoever wrote it."""
        field = load_schema(self.kind).trailing_field
        start = 1 if field is None else self.parsed.lines.get(field.name, 1) - 1
        lines = [line for line in conflict_lines(self.data.decode("utf-8", "replace")) if line >= start]
        return tuple(conflict_problems(lines, section=None if field is None else field.section, file=self.key))

    @property
    def unknown_text(self) -> tuple[Problem, ...]:
        """The problems of text that has no seat: to write the document anew would lose it."""
        return tuple(problem.with_file(self.key) for problem in self.parsed.problems if problem.unknown_text)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems, those of what is only shown among them."""
        return (*(problem.with_file(self.key) for problem in self.parsed.problems), *self.conflicts)

    def problem(self, message: str, field: str, *, shown: bool = False) -> Problem:
        """A problem of this document at the seat of a field; `shown` where that is a derived copy."""
        seat = load_schema(self.kind).field_by_name.get(field)
        section, label = seat.place if seat is not None else (None, "title")
        return Problem(message, self.parsed.lines.get(field, 1), section, label, self.key, derived=shown)

    def derived_mismatches(self, shown: Mapping[str, Any]) -> list[Problem]:
        """The shown parts that do not say what is so."""
        title = load_schema(self.kind).title_parts[1]
        found = [
            (name, said, shown.get(title or "" if name == TITLE else name))
            for name, said in self.parsed.derived.items()
        ]
        return [
            self.problem(
                f"shows {short_repr(said)}, and is {short_repr(is_so)}; the next save draws it anew", name, shown=True
            )
            for name, said, is_so in found
            if said != is_so
        ]


class LruCache(Generic[T]):
    """What was worked out once, the least recently used let go first."""

    def __init__(self) -> None:
        self._found: OrderedDict[object, T] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, key: object) -> T | None:
        """Return the cached value, or None."""
        with self._guard:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key)

    def put(self, key: object, found: T) -> None:
        """Cache a value; the least recently used one goes."""
        with self._guard:
            self._found[key] = found
            if len(self._found) > _MOST_KEPT:
                self._found.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._guard:
            self._found.clear()


_KEPT: LruCache[ParseResult] = LruCache()
_OUTPUT_FACTS: LruCache[Any] = LruCache()
_WRITTEN: LruCache[tuple[str, ...]] = LruCache()


class DocumentRepository:
    """The documents of a store, by kind and key."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store

    def find(self, kind: str, key: str) -> StoredDocument | None:
        """A document, readable or not; None where there is none."""
        try:
            data = self.store.read(key)
        except FileNotFoundError:
            return None
        return self._document(kind, key, data)

    def read(self, kind: str, key: str, what: str = "document") -> StoredDocument:
        """A document that can be read; NotFound or InvalidDocument where it cannot."""
        found = self.find(kind, key)
        if found is None:
            raise NotFound(what, key)
        if found.faults:
            raise InvalidDocument(found.faults)
        return found

    def find_header(self, kind: str, key: str) -> StoredDocument | None:
        """A document without the content that stands last, read no further than needed."""
        heading = re.compile(rb"^## " + load_schema(kind).sections[-1].name.encode() + rb"[ \t]*\r?\n", re.MULTILINE)
        limit = _HEAD
        try:
            data = self.store.read(key, limit=limit)
            found = heading.search(data)
            while found is None and len(data) == limit:
                limit *= 4
                data = self.store.read(key, limit=limit)
                found = heading.search(data)
        except FileNotFoundError:
            return None
        return self._document(kind, key, data if found is None else data[: found.end()], head=True)

    def output_facts(self, key: str, read: Callable[[], T]) -> T:
        """Return what `read` makes of an output; it is not called again while the output's file is surely the same."""
        found: T = self._by_stamp(_OUTPUT_FACTS, key, read)
        return found

    def written(self, key: str, read: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
        """Return when an output was written; `read` is not called again while its file is surely the same."""
        return self._by_stamp(_WRITTEN, key, read)

    def _by_stamp(self, kept: LruCache[T], key: str, read: Callable[[], T]) -> T:
        stamp = self.store.change_token(key)
        found = None if stamp is None else kept.get(stamp)
        if found is None:
            found = read()
            if stamp is not None and stamp == self.store.change_token(key):
                kept.put(stamp, found)
        return found

    def check(self, kind: str, value: Mapping[str, Any]) -> None:
        """Refuse a value that does not satisfy its kind, before anything is made of it."""
        from haytham.markdown.renderer import check_value  # noqa: PLC0415 - who only reads need not load Jinja

        check_value(load_schema(kind), value)

    def write(
        self, kind: str, key: str, value: Mapping[str, Any], *, shown: Mapping[str, Any], over: StoredDocument | None
    ) -> StoredDocument:
        """Draw a document and store it in the place of the one that was read before, or of none."""
        from haytham.markdown.renderer import render_verified  # noqa: PLC0415 - who only reads need not load Jinja

        text, parsed = render_verified(load_schema(kind), value, shown)
        data = text.encode()
        digest = self.store.write(key, data, expect=ABSENT if over is None else over.digest)
        if len(data) <= _LARGEST_KEPT:
            _KEPT.put((kind, digest, False), parsed)
        return StoredDocument(kind, key, data, parsed)

    def _document(self, kind: str, key: str, data: bytes, *, head: bool = False) -> StoredDocument:
        if len(data) > _LARGEST_KEPT:
            return StoredDocument(kind, key, data, parse(load_schema(kind), data, head=head))
        place = (kind, bytes_digest(data), head)
        parsed = _KEPT.get(place)
        if parsed is None:
            parsed = parse(load_schema(kind), data, head=head)
            _KEPT.put(place, parsed)
        return StoredDocument(kind, key, data, parsed)
