"""One session over a store: makes it, reads it and saves its documents; remembers nothing but where it is.

Every save takes the session's write lock, writes the document that is the home of the facts, then draws the shown
copies anew. A home that cannot be written is an error; a shown copy that cannot be drawn is a warning in the log.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.document.check import check_text
from haytham.document.digest import text_digest
from haytham.errors import HaythamError, InvalidDocument, InvalidValue
from haytham.session import layout, ledger
from haytham.session.names import check_agent_name, check_id
from haytham.session.reading import Reading
from haytham.session.shelf import Shelf
from haytham.session.shown import shown_checkpoint, shown_feedback, shown_manifest, shown_output
from haytham.session.summary import Summary, decide

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from haytham.session.shelf import Document
    from haytham.session.summary import Value
    from haytham.store.protocol import SharedStore
    from haytham.workflow import Phase, Workflow

log = logging.getLogger(__name__)


class Session:
    """One run through a workflow. Making the object reads nothing; each call reads what is there then."""

    def __init__(self, store: SharedStore, project_id: str, session_id: str) -> None:
        self.project_id = check_id("project id", project_id)
        self.session_id = check_id("session id", session_id)
        self.prefix = layout.session_prefix(project_id, session_id)
        self._store = store
        self._shelf = Shelf(store)
        self._is_swept = False

    def create(self, *, user_id: str, workflow: Workflow, mode: str) -> None:
        """Make the session, its folders first and its manifest last; nothing changes where the same one is there."""
        check_id("user id", user_id)
        phases = workflow.mode_phases(mode)
        wanted = {"user_id": user_id, "workflow_type": workflow.name, "execution_mode": mode}
        self._copy_workflow(workflow)
        with self._locked():
            there = self._shelf.find("session_manifest", self.prefix + layout.MANIFEST)
            if there is None:
                self._prepare(phases)
                self._write_first_manifest(workflow, phases, wanted)
            else:
                self._check_same(there.value, wanted)
                self._prepare(self.read().phases)

    def exists(self) -> bool:
        """Whether the session is there: whether it has a manifest."""
        return self._shelf.find("session_manifest", self.prefix + layout.MANIFEST) is not None

    def read(self) -> Reading:
        """The session as its files say it is; FileNotFoundError or InvalidDocument where its manifest does not say."""
        return Reading(self._shelf, self.project_id, self.session_id)

    def save_checkpoint(self, number: Any, facts: Mapping[str, Any], agents: Any) -> None:
        """Save how a phase stands, and what its agents did as far as their own files do not say."""
        rows = ledger.read_rows(agents)
        with self._saving() as reading:
            phase = reading.there(number)
            rows = [ledger.filled(row, reading.output_head(phase, row["agent_name"])) for row in rows]
            value = {**facts, "saved": reading.last_saved() + 1, "phase": phase.number, "ledger": rows}
            self._write_checkpoint(reading, phase, value)

    def save_output(self, number: Any, agent_name: str, facts: Mapping[str, Any], text: str) -> None:
        """Save what an agent wrote, byte for byte, and how it came to be."""
        check_agent_name(agent_name)
        check_text("output content", text)
        with self._saving() as reading:
            phase = reading.there(number)
            value = {
                "wrote": text_digest(text),
                "agent": agent_name,
                "executed": clock.now(),
                **facts,
                "text": text,
            }
            over = reading.output(phase, agent_name)
            key = reading.folder(phase) + layout.output_file(agent_name)
            self._write(reading, "agent_output", key, value, shown=shown_output(phase, agent_name), over=over)
            self._redraw_checkpoint(reading, phase, value)

    def save_feedback(self, number: Any, facts: Mapping[str, Any]) -> None:
        """Save a person's review of a phase, bound to the texts that are there now."""
        with self._saving() as reading:
            phase = reading.there(number)
            value = {**facts, "reviewed_content": reading.reviewed_content(phase)}
            self._shelf.check("user_feedback", value)
            decide(value)
            key = reading.folder(phase) + layout.FEEDBACK
            over = reading.feedback(phase)
            self._write(reading, "user_feedback", key, value, shown=shown_feedback(phase), over=over)

    def change_manifest(self, facts: Mapping[str, Any]) -> Value:
        """Change what the manifest is the home of; what it says then."""
        with self._locked():
            reading = self._begin()
            self._write_manifest(reading, {**reading.manifest.value, **facts})
            return self.read().manifest.value

    @contextmanager
    def _saving(self) -> Iterator[Reading]:
        """Hold the lock while documents are saved; draw the manifest anew when they are."""
        with self._locked():
            reading = self._begin()
            yield reading
            with _only_shown(self.prefix + layout.MANIFEST):
                self._write_manifest(reading, reading.manifest.value)

    def _locked(self) -> Any:
        return self._store.lock(layout.session_lock(self.project_id, self.session_id))

    def _begin(self) -> Reading:
        """Read the session to save something in it; the first time, sweep what a crash left in its folders."""
        reading = self.read()
        if not self._is_swept:
            self._prepare(phase for phase in reading.phases if self._store.holds(reading.folder(phase)))
        return reading

    def _prepare(self, phases: Iterable[Phase]) -> None:
        for folder in ("", *(f"{layout.phase_folder(phase)}/" for phase in phases)):
            self._store.prepare(self.prefix + folder)
        self._is_swept = True

    def _copy_workflow(self, workflow: Workflow) -> None:
        """Keep the workflow with the project, so that a session goes on with the one it began with."""
        folder = layout.workflow_prefix(self.project_id, workflow.digest)
        there = self._store.keys(folder)
        missing = [name for name in workflow.files if folder + name not in there]
        if not missing:
            return
        with self._store.lock(self.project_id):
            self._store.prepare(folder)
            for name in missing:
                self._store.write(folder + name, workflow.files[name])

    def _write_first_manifest(self, workflow: Workflow, phases: tuple[Phase, ...], facts: Value) -> None:
        moment = clock.now()
        value = {
            "workflow": workflow.digest,
            "session_id": self.session_id,
            "project_id": self.project_id,
            **facts,
            "created": moment,
            "last_updated": moment,
        }
        shown = shown_manifest(Summary(value, phases, {}, {}))
        self._shelf.write("session_manifest", self.prefix + layout.MANIFEST, value, shown=shown, over=None)

    def _check_same(self, there: Value, wanted: Value) -> None:
        for name, value in wanted.items():
            if there[name] != value:
                what = f"session {self.session_id!r} is there already with another {name.replace('_', ' ')}"
                raise InvalidValue(what, value, repr(there[name]))

    def _write_manifest(self, reading: Reading, value: Value) -> None:
        value = {**value, "last_updated": clock.now()}
        summary = reading.summary()
        shown = shown_manifest(Summary(value, summary.phases, summary.checkpoints, summary.reviews))
        key = self.prefix + layout.MANIFEST
        self._write(reading, "session_manifest", key, value, shown=shown, over=reading.manifest)

    def _write_checkpoint(self, reading: Reading, phase: Phase, value: Value) -> None:
        key = reading.folder(phase) + layout.CHECKPOINT
        shown = shown_checkpoint(value, reading.phases)
        self._write(reading, "checkpoint", key, value, shown=shown, over=reading.checkpoint(phase))

    def _redraw_checkpoint(self, reading: Reading, phase: Phase, output: Value) -> None:
        """Let the checkpoint show what an agent's file says now."""
        with _only_shown(reading.folder(phase) + layout.CHECKPOINT):
            there = reading.checkpoint(phase)
            if there is None:
                return
            rows = ledger.updated(there.value["ledger"], output)
            if rows != there.value["ledger"]:
                self._write_checkpoint(reading, phase, {**there.value, "ledger": rows})

    def _write(  # noqa: PLR0913 - a document, and what it is written over
        self, reading: Reading, kind: str, key: str, value: Value, *, shown: Mapping[str, Any], over: Document | None
    ) -> None:
        """Store a document over the one that was read; one that cannot be read is never written over."""
        if over is not None and over.faults:
            raise InvalidDocument(over.faults)
        reading.keep(self._shelf.write(kind, key, value, shown=shown, over=over))


@contextmanager
def _only_shown(key: str) -> Iterator[None]:
    """What goes wrong in here leaves a shown copy behind the truth, and no more: a warning."""
    try:
        yield
    except (HaythamError, OSError) as error:
        log.warning("%s could not be drawn anew and may show what was: %s", key, error)
