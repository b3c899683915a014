"""Changes to a session's documents: a transaction reads once, collects changes and commits them as one batch.

The view of a transaction sees its pending changes. Derived parts are rendered once, when it commits: if they cannot be
written, that is a warning; if a document that is the home of a fact cannot be written, that is an error.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from haytham import clock
from haytham.errors import HaythamError, InvalidDocument, NotFound
from haytham.events import Event
from haytham.session import derived, paths
from haytham.session.derived import derived_checkpoint, derived_manifest, derived_output
from haytham.session.documents import DocumentRepository
from haytham.session.models import AgentOutput, PhaseCheckpoint, SessionManifest, TaskPart, TaskRecord
from haytham.session.spend_log import SpendLog
from haytham.session.summary import summarize
from haytham.storage.base import (
    ABSENT,
    ANY,
    Append,
    Batch,
    Delete,
    Write,
    bytes_digest,
    check_precondition,
    commit,
    current_digest,
)
from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from haytham.agents.base import Task
    from haytham.config.workflow import Phase
    from haytham.errors import Problem
    from haytham.session.documents import D, StoredDocument
    from haytham.session.models import LedgerRow
    from haytham.session.session import SessionDocuments
    from haytham.session.view import SessionView
    from haytham.storage.base import SessionStore

log = logging.getLogger(__name__)

T = TypeVar("T")


class PendingStore:
    """A store as it will be once pending changes are committed."""

    def __init__(self, store: SessionStore) -> None:
        self._store = self.base_store = store
        self._writes: dict[str, Write] = {}
        self._deletes: dict[str, Delete] = {}
        self._appends: dict[str, bytes] = {}

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """Return the bytes under a key, or the first of them."""
        if key in self._writes:
            return self._writes[key].data[:limit]
        if key in self._deletes:
            raise NotFound("document", key)
        return self._store.read(key, limit=limit)

    def keys(self, prefix: str = "", *, depth: int | None = None, empty: bool = False) -> list[str]:
        """Return the keys below a folder, sorted."""
        pending = [key for key in self._writes if _is_below(key, prefix, depth)]
        stored = [key for key in self._store.keys(prefix, depth=depth, empty=empty) if key not in self._deletes]
        return sorted({*stored, *pending})

    def versions(
        self, prefix: str = "", *, folders: Iterable[str] | None = None, empty: bool = False
    ) -> dict[str, object | None]:
        """Return the change token of each key below a folder; None for a pending one."""
        stored = self._store.versions(prefix, folders=folders, empty=empty)
        pending = {key: None for key in self._writes if key.startswith(prefix)}
        return {key: token for key, token in stored.items() if key not in self._deletes} | pending

    def change_token(self, key: str) -> object | None:
        """Return the change token of a key; None if it has pending changes."""
        return None if key in self._writes or key in self._deletes else self._store.change_token(key)

    def folders(self, prefix: str = "") -> list[str]:
        """Return the names of the folders in a folder, sorted."""
        pending = {key[len(prefix) :].partition("/")[0] for key in self._writes if _is_below(key, prefix, None)}
        inner = {name for name in pending if any(key.startswith(f"{prefix}{name}/") for key in self._writes)}
        return sorted({*self._store.folders(prefix), *inner})

    def has_folder(self, prefix: str) -> bool:
        """Return whether a folder exists."""
        return self._store.has_folder(prefix) or any(key.startswith(prefix) for key in self._writes)

    def is_regular(self, key: str) -> bool:
        """Return whether a key has bytes of its own."""
        return key in self._writes or (key not in self._deletes and self._store.is_regular(key))

    def write(self, key: str, data: bytes, *, expect: str = ANY) -> str:
        """Add a write; a key that is written again keeps the precondition of its first write."""
        before = self._writes.pop(key, None)
        if before is not None:
            check_precondition(key, expect, bytes_digest(before.data))
            expect = before.expect
        deleted = self._deletes.pop(key, None)
        self._writes[key] = Write(key, data, expect if deleted is None else deleted.expect)
        return bytes_digest(data)

    def delete(self, key: str, *, expect: str = ANY) -> None:
        """Add a delete; a pending write of the key is dropped."""
        before = self._writes.pop(key, None)
        self._deletes[key] = Delete(key, expect if before is None else before.expect)

    def append(self, key: str, line: bytes) -> None:
        """Add a line to the end of a key's bytes."""
        self._appends[key] = self._appends.get(key, b"") + line

    def is_pending(self) -> bool:
        """Return whether there is anything to commit."""
        return bool(self._writes or self._deletes or self._appends)

    def take_batch(self) -> Batch:
        """Return the pending changes as a batch, and start over."""
        known = (change for change in self._deletes.values() if change.expect != ABSENT)
        deletes = [change for change in known if change.expect != ANY or self._store.is_regular(change.key)]
        appends = tuple(Append(key, lines) for key, lines in self._appends.items())
        batch = Batch(tuple(self._writes.values()), appends, tuple(deletes))
        self._writes, self._deletes, self._appends = {}, {}, {}
        return batch


class Transaction:
    """The changes of one operation on a session, made under its lock; `commit` writes them as one batch."""

    def __init__(self, session: SessionDocuments, *, derive: bool = True) -> None:
        self._session = session
        self._prefix = session.prefix
        self.store = PendingStore(session.store)
        self._documents = DocumentRepository(cast("SessionStore", self.store))
        self.view: SessionView = session.view(self._documents)
        self._manifest: SessionManifest | None = None
        self._derives_manifest = derive
        self._is_manifest_final = False
        self._derived: set[str] = set()
        self._outputs: list[tuple[Phase, str]] = []
        self._events: list[Event] = []
        if derive:
            self._report_edits()

    def _report_edits(self) -> None:
        """Log what a person changed in derived parts of the manifest, before they are rendered again."""
        manifest = self.view.manifest
        with derived_only(manifest.key):
            if manifest.parsed.derived_edited:
                report_problems(manifest.derived_mismatches(derived_manifest(summarize(self.view))))

    # Changes.

    def write(  # noqa: PLR0913 - a document, and the one it replaces
        self,
        model: type[D],
        key: str,
        value: D | Mapping[str, Any],
        *,
        derived_values: Mapping[str, Any],
        previous: StoredDocument[D] | None,
        is_derived: bool = False,
    ) -> None:
        """Write a document over the one that was read; one that cannot be read is never overwritten."""
        if previous is not None and (previous.faults or previous.unknown_text):
            raise InvalidDocument(previous.faults or previous.unknown_text)
        self.view.cache(self._documents.write(model, key, value, derived_values=derived_values, previous=previous))
        if is_derived:
            self._derived.add(key)
        else:
            self._derived.discard(key)

    def put(self, key: str, data: bytes, *, expect: str = ANY) -> None:
        """Write the bytes of a file that is not rendered: a copy, or a person's own words."""
        self.store.write(key, data, expect=expect)
        self.view.forget(key)

    def delete(self, key: str, *, expect: str = ANY) -> None:
        """Delete a file."""
        self.store.delete(key, expect=expect)
        self.view.forget(key)

    def emit(self, name: str, /, **facts: Any) -> None:
        """Add an event: its line is part of the batch, and handlers are called once that is committed."""
        event = Event.new(name, **facts)
        self._events.append(event)
        self.store.append(self._prefix + paths.EVENTS, event.line())

    def change_manifest(self, facts: Mapping[str, Any]) -> None:
        """Change facts that the manifest is the home of."""
        self._manifest = replace(self._manifest or self.view.manifest.value, **facts)

    def keep_manifest(self) -> None:
        """Commit the manifest as it was written, without rendering it again."""
        self._is_manifest_final = True

    def refresh_manifest(self) -> None:
        """Render the manifest even if nothing else changes."""
        self._manifest = self._manifest or self.view.manifest.value

    # Documents.

    def write_checkpoint(self, phase: Phase, value: PhaseCheckpoint, *, is_derived: bool = False) -> None:
        """Write a phase's record over the one that was read."""
        previous, phases = self.view.checkpoint(phase), self.view.phases
        if previous is not None and not previous.faults and previous.parsed.derived_edited:
            report_problems(previous.derived_mismatches(derived_checkpoint(previous.value, phases)))
        key, derived_values = self.view.phase_prefix(phase) + paths.CHECKPOINT, derived_checkpoint(value, phases)
        self.write(PhaseCheckpoint, key, value, derived_values=derived_values, previous=previous, is_derived=is_derived)

    def save_checkpoint(
        self, phase: Phase, facts: Mapping[str, Any], given: list[LedgerRow], *, report: bool = True
    ) -> None:
        """Save the status of a phase, and what its agents did as far as their own files do not say."""
        heads = [self.view.output_header(phase, row.agent_name) for row in given]
        rows = [derived.complete_row(row, head) for row, head in zip(given, heads, strict=True)]
        order = {"save_counter": self._session.next_save_counter(self.view), "saved_at": clock.now()}
        plain = {**facts, **order, "phase": phase.number, "ledger": [row.to_value() for row in rows]}
        self._documents.check("checkpoint", plain)
        value = PhaseCheckpoint.from_value(plain)
        if report:  # the spending is on record before the phase is
            own = [head is None or head.task is None for head in heads]  # a run has counted the tokens of the others
            told = [row if is_own else one for row, one, is_own in zip(rows, given, own, strict=True)]
            self._report_spending(phase, value, told)
        self.write_checkpoint(phase, value)

    def save_output(self, phase: Phase, agent: str, facts: Mapping[str, Any], text: str) -> None:
        """Save an agent's text, byte for byte, and how it was made."""
        value = {
            "phase_number": phase.number,
            "attempt": self.view.attempt(phase),
            "agent_digest": text_digest(text),
            "agent": agent,
            "executed": clock.now(),
            **facts,
            "text": text,
        }
        previous = self.view.output(phase, agent)
        key = self.view.phase_prefix(phase) + paths.output_file(agent)
        self.write(AgentOutput, key, value, derived_values=derived_output(phase, agent), previous=previous)
        self._outputs.append((phase, agent))
        checkpoint = self._update_ledger(
            phase, AgentOutput.from_value(value), None if previous is None else previous.value
        )
        if checkpoint is not None and "task" not in facts:
            rows = [row for row in checkpoint.ledger if row.agent_name == agent]
            self._report_spending(phase, checkpoint, rows)

    def save_task(self, phase: Phase, task: Task) -> None:
        """Save what an agent is asked, to the letter."""
        key = f"{self.view.phase_prefix(phase)}{paths.TASKS}{paths.output_file(task.agent)}"
        parts = tuple(TaskPart(part=part, digest=digest) for part, digest in task.parts.items())
        value = TaskRecord(agent=task.agent, phase=phase.number, attempt=task.attempt, parts=parts, prompt=task.prompt)
        previous = self._documents.find(TaskRecord, key)
        if previous is None or previous.faults or previous.value != value:
            self.write(
                TaskRecord, key, value, derived_values={"agent_title": paths.humanize(task.agent)}, previous=previous
            )

    def _update_ledger(self, phase: Phase, output: AgentOutput, before: AgentOutput | None) -> PhaseCheckpoint | None:
        """Show in the checkpoint what an agent's file says now; return its value, None if it cannot be rendered."""
        updated: PhaseCheckpoint | None = None
        with derived_only(self.view.phase_prefix(phase) + paths.CHECKPOINT):
            checkpoint = self.view.checkpoint(phase)
            if checkpoint is not None:
                rows = derived.update_rows(checkpoint.value.ledger, output, before)
                value = replace(checkpoint.value, ledger=rows)
                if rows != checkpoint.value.ledger and self._derives_manifest:
                    self.write_checkpoint(phase, value, is_derived=True)
                updated = value
        return updated

    def _report_spending(self, phase: Phase, checkpoint: PhaseCheckpoint, rows: Iterable[LedgerRow]) -> None:
        """Append what agents took that a program called; this is written at once, before the batch."""
        attempt = max(self.view.attempt(phase), checkpoint.retry_count + 1)
        SpendLog(self._session.store, self._prefix).report(phase.number, attempt, rows)

    # The end.

    def flush(self) -> None:
        """Commit the changes so far: what follows must not be visible without them."""
        commit(self._session.store, self.store.take_batch())

    def commit(self) -> None:
        """Render derived documents, and write all changes as one batch."""
        if self._manifest is None and not self.store.is_pending():
            return
        self._write_manifest()
        batch = self.store.take_batch()
        if not batch:
            return
        try:
            commit(self._session.store, batch)
        except (HaythamError, OSError) as error:
            if not any(write.key in self._derived for write in batch.writes):
                raise
            commit(self._session.store, self._without_derived(batch))
            for key in sorted(self._derived):
                log.warning("%s could not be rendered and may be out of date: %s", key, error)
        for phase, agent in self._outputs:
            self._session.remember_output(self.view, phase, agent)

    def dispatch(self) -> None:
        """Call the handlers of the events that were committed."""
        events, self._events = self._events, []
        for event in events:
            self._session.events.dispatch(event)

    def _write_manifest(self) -> None:
        """Write the manifest: with facts that changed, or if what it shows is out of date and rendering is due."""
        if self._is_manifest_final:
            return
        previous = self.view.manifest
        value = previous.value if self._manifest is None else self._manifest
        is_home = value != previous.value
        if not is_home and not (self._derives_manifest or self._manifest is not None):
            self._session.is_manifest_behind = True
            return
        self._session.is_manifest_behind = False
        if is_home:
            self._render_manifest(previous, value)
            return
        with derived_only(previous.key):
            self._render_manifest(previous, value)

    def _render_manifest(self, previous: StoredDocument[SessionManifest], value: SessionManifest) -> None:
        derived_values = derived_manifest(self._session.summarize(self.view, value))
        is_same = value == previous.value
        if is_same and not previous.problems and previous.shows(derived_values):
            return
        self.write(
            SessionManifest, previous.key, value, derived_values=derived_values, previous=previous, is_derived=is_same
        )

    def _without_derived(self, batch: Batch) -> Batch:
        """Return the part of a batch that must be written: no derived documents, and nothing that is in place."""
        required = [write for write in batch.writes if write.key not in self._derived]
        store = self._session.store
        missing = [write for write in required if current_digest(store, write.key) != bytes_digest(write.data)]
        return Batch(tuple(missing), batch.appends, batch.deletes)


class ReadTracker:
    """The calls of a store that read, each checked again later: by change token where there is one, else by content."""

    def __init__(self, store: SessionStore) -> None:
        self._store = self.base_store = store
        self._checks: list[Callable[[], bool]] = []

    def has_changed(self) -> bool:
        """Return whether anything that was read is different now, or can no longer be read."""
        try:
            return not all(is_same() for is_same in self._checks)
        except (HaythamError, OSError):
            return True

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """Return the bytes under a key, or the first of them; FileNotFoundError where there are none."""
        token = self._store.change_token(key)
        data = self._find(key, limit)
        self._checks.append(lambda: self._has_token(key, token) or self._find(key, limit) == data)
        if data is None:
            raise NotFound("document", key)
        return data

    def change_token(self, key: str) -> object | None:
        """Return the change token of a key; None if there is none."""
        token = self._store.change_token(key)
        if token is not None:
            self._checks.append(lambda: self._has_token(key, token))
        return token

    def keys(self, prefix: str = "", *, depth: int | None = None, empty: bool = False) -> list[str]:
        """Return the keys below a folder, sorted."""
        return self._look(lambda: self._store.keys(prefix, depth=depth, empty=empty))

    def versions(
        self, prefix: str = "", *, folders: Iterable[str] | None = None, empty: bool = False
    ) -> dict[str, object | None]:
        """Return the change tokens of the keys below a folder."""
        return self._look(lambda: self._store.versions(prefix, folders=folders, empty=empty))

    def folders(self, prefix: str = "") -> list[str]:
        """Return the names of the folders in a folder, sorted."""
        return self._look(lambda: self._store.folders(prefix))

    def has_folder(self, prefix: str) -> bool:
        """Return whether a folder exists."""
        return self._look(lambda: self._store.has_folder(prefix))

    def is_regular(self, key: str) -> bool:
        """Return whether a key has bytes of its own."""
        return self._look(lambda: self._store.is_regular(key))

    def _look(self, look: Callable[[], T]) -> T:
        result = look()
        self._checks.append(lambda: look() == result)
        return result

    def _find(self, key: str, limit: int | None) -> bytes | None:
        try:
            return self._store.read(key, limit=limit)
        except FileNotFoundError:
            return None

    def _has_token(self, key: str, token: object | None) -> bool:
        return token is not None and self._store.change_token(key) == token


@contextmanager
def derived_only(key: str) -> Iterator[None]:
    """Log a failure to render a derived document; the next save tries again."""
    try:
        yield
    except (HaythamError, OSError) as error:
        log.warning("%s could not be rendered and may be out of date: %s", key, error)


def report_problems(problems: list[Problem]) -> None:
    """Log problems, before what they are about is rendered again: a person may have meant something."""
    for problem in problems:
        log.warning("%s", problem)


def _is_below(key: str, prefix: str, depth: int | None) -> bool:
    return key.startswith(prefix) and (depth is None or key.count("/", len(prefix)) < depth)
