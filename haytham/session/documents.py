"""Documents at rest: typed values over a store. Whatever is read is checked; what was parsed once is kept by digest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from haytham.cache import LruCache
from haytham.errors import InvalidDocument, NotFound, Problem, conflict_problems, short_repr
from haytham.markdown.parser import ParseResult, parse
from haytham.markdown.renderer import check_value, render_verified
from haytham.markdown.schema import TITLE, load_schema
from haytham.session.models import Document, OutputHeader
from haytham.storage.base import ABSENT, bytes_digest
from haytham.text import OURS, conflict_lines, text_digest
from haytham.validation import matches_format

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from haytham.storage.base import SessionStore

_LARGEST_KEPT = 64 * 1024  # an output may be megabytes, and is seldom asked for twice
_OUTPUT_HEADING = re.compile(rb"^## Output[ \t]*\r?\n", re.MULTILINE)
_HEAD = 4096  # holds the head of an output that did not fail

T = TypeVar("T")
D = TypeVar("D", bound=Document)
D_co = TypeVar("D_co", bound=Document, covariant=True)


@dataclass(frozen=True)
class StoredDocument(Generic[D_co]):
    """A document as it is stored: its typed value, its problems with the file's name, its bytes."""

    model: type[D_co]
    key: str
    data: bytes
    parsed: ParseResult

    @property
    def kind(self) -> str:
        """Return the name of its kind."""
        return self.model.KIND

    @cached_property
    def digest(self) -> str:
        """Return the digest of its bytes."""
        return bytes_digest(self.data)

    @cached_property
    def value(self) -> D_co:
        """Return the typed value; InvalidDocument if the document cannot be read."""
        if self.faults:
            raise InvalidDocument(self.faults)
        return self.model.from_value(self.parsed.value)

    @property
    def faults(self) -> tuple[Problem, ...]:
        """Return the problems that make the value unusable."""
        faults = tuple(problem.with_file(self.key) for problem in self.parsed.faults) if self.parsed.problems else ()
        return faults or self.conflicts

    @cached_property
    def conflicts(self) -> tuple[Problem, ...]:
        """Return the git conflicts in the text of an output that differs from what its agent wrote."""
        value = self.parsed.value
        if self.kind != "agent_output" or self.parsed.faults or OURS not in value.get("text", ""):
            return ()
        return () if text_digest(value["text"]) == value["agent_digest"] else self.content_conflicts()

    def content_conflicts(self) -> tuple[Problem, ...]:
        """Return the git conflicts in the last section, whoever wrote it."""
        field = load_schema(self.kind).trailing_field
        start = 1 if field is None else self.parsed.lines.get(field.name, 1) - 1
        lines = [line for line in conflict_lines(self.data.decode("utf-8", "replace")) if line >= start]
        return tuple(conflict_problems(lines, section=None if field is None else field.section, file=self.key))

    @property
    def unknown_text(self) -> tuple[Problem, ...]:
        """Return the problems of unknown text, which would be lost if the document were rendered again."""
        return tuple(problem.with_file(self.key) for problem in self.parsed.problems if problem.unknown_text)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return all problems, those of derived parts included."""
        return (*(problem.with_file(self.key) for problem in self.parsed.problems), *self.conflicts)

    def problem(self, message: str, field: str, *, derived_values: bool = False) -> Problem:
        """Return a problem of this document at the place of a field; `shown` marks a derived copy."""
        seat = load_schema(self.kind).field_by_name.get(field)
        section, label = seat.place if seat is not None else (None, "title")
        return Problem(message, self.parsed.lines.get(field, 1), section, label, self.key, derived=derived_values)

    def shows(self, derived_values: Mapping[str, Any]) -> bool:
        """Return whether no derived part is out of date."""
        title = load_schema(self.kind).title_parts[1]
        parts = ((title or "" if name == TITLE else name, said) for name, said in self.parsed.derived.items())
        return all(derived_values.get(name) == said for name, said in parts)

    def derived_mismatches(self, derived_values: Mapping[str, Any]) -> list[Problem]:
        """Return a problem for each derived part that is out of date."""
        title = load_schema(self.kind).title_parts[1]
        values = [
            (name, shown, derived_values.get(title or "" if name == TITLE else name))
            for name, shown in self.parsed.derived.items()
        ]
        return [
            self.problem(
                f"shows {short_repr(shown)}, and is {short_repr(computed)}; the next save draws it anew",
                name,
                derived_values=True,
            )
            for name, shown, computed in values
            if shown != computed
        ]


_KEPT: LruCache[ParseResult] = LruCache()
_OUTPUT_FACTS: LruCache[Any] = LruCache()
_WRITTEN: LruCache[tuple[str, ...]] = LruCache()


class DocumentRepository:
    """The documents of a store, by kind and key."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store

    def find(self, model: type[D], key: str) -> StoredDocument[D] | None:
        """Return a document, readable or not; None if it does not exist."""
        try:
            data = self.store.read(key)
        except FileNotFoundError:
            return None
        return _document(model, key, data)

    def read(self, model: type[D], key: str, what: str = "document") -> StoredDocument[D]:
        """Return a document that can be read; raise NotFound or InvalidDocument where it cannot."""
        document = self.find(model, key)
        if document is None:
            raise NotFound(what, key)
        if document.faults:
            raise InvalidDocument(document.faults)
        return document

    def find_header(self, key: str) -> StoredDocument[OutputHeader] | None:
        """Return an output without its text, read no further than needed; None if it does not exist."""
        limit = _HEAD
        try:
            data = self.store.read(key, limit=limit)
            heading = _OUTPUT_HEADING.search(data)
            while heading is None and len(data) == limit:
                limit *= 4
                data = self.store.read(key, limit=limit)
                heading = _OUTPUT_HEADING.search(data)
        except FileNotFoundError:
            return None
        return _document(OutputHeader, key, data if heading is None else data[: heading.end()])

    def output_facts(self, key: str, stamp: object | None, read: Callable[[], T]) -> T:
        """Return what `read` makes of an output; it is not called again while the output has the same change token."""
        found: T = self._by_stamp(_OUTPUT_FACTS, key, stamp, read)
        return found

    def written(self, key: str, read: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
        """Return when an output was written; `read` is not called again while its file is surely the same."""
        return self._by_stamp(_WRITTEN, key, self.store.change_token(key), read)

    def _by_stamp(self, kept: LruCache[T], key: str, stamp: object | None, read: Callable[[], T]) -> T:
        found = None if stamp is None else kept.get(stamp)
        if found is None:
            found = read()
            if stamp is not None and stamp == self.store.change_token(key):
                kept.put(stamp, found)
        return found

    def check(self, kind: str, value: Mapping[str, Any]) -> None:
        """Raise InvalidDocument for a value that does not satisfy its kind."""
        check_value(load_schema(kind), value)

    def write(
        self,
        model: type[D],
        key: str,
        value: D | Mapping[str, Any],
        *,
        derived_values: Mapping[str, Any],
        previous: StoredDocument[D] | None,
    ) -> StoredDocument[D]:
        """Render a document and store it in the place of the one that was read before, or of none."""
        text, parsed = render_verified(load_schema(model.KIND), _plain_value(value), derived_values)
        data = text.encode()
        digest = self.store.write(key, data, expect=ABSENT if previous is None else previous.digest)
        if len(data) <= _LARGEST_KEPT:
            _KEPT.put((model, digest), parsed)
        return StoredDocument(model, key, data, parsed)


def time_of(document: StoredDocument[Document] | None, field: str) -> tuple[str, ...]:
    """Return a time that a document says, also where other parts of it cannot be read."""
    said = None if document is None else document.parsed.value.get(field)
    return (said,) if isinstance(said, str) and matches_format("time", said) else ()


def _plain_value(value: Document | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the plain value of a typed document; any other mapping as it is."""
    return value.to_value() if isinstance(value, Document) else value


def _document(model: type[D], key: str, data: bytes) -> StoredDocument[D]:
    kind, head = load_schema(model.KIND), model is OutputHeader
    if len(data) > _LARGEST_KEPT:
        return StoredDocument(model, key, data, parse(kind, data, head=head))
    cache_key = (model, bytes_digest(data))
    parsed = _KEPT.get(cache_key)
    if parsed is None:
        parsed = parse(kind, data, head=head)
        _KEPT.put(cache_key, parsed)
    return StoredDocument(model, key, data, parsed)


def check_location(document: StoredDocument[Document], field: str, wanted: object) -> None:
    """Refuse a document that says it belongs elsewhere: it was copied or moved by hand."""
    found = getattr(document.value, field)
    if found != wanted:
        message = f"found {found!r}; allowed: {wanted!r}, by the place of the file"
        raise InvalidDocument([document.problem(message, field)])
