"""One session over a store: makes it, reads it and saves its documents; remembers nothing but where it is.

Every save takes the session's write lock, writes the document that is the home of the facts, then draws the shown
copies anew. A home that cannot be written is an error; a shown copy that cannot be drawn is a warning in the log.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from haytham import clock
from haytham.errors import HaythamError, InvalidArgument, InvalidDocument, NotFound
from haytham.markdown.check import require_text
from haytham.session import derived, paths
from haytham.session.derived import (
    Summary,
    derived_checkpoint,
    derived_feedback,
    derived_manifest,
    derived_output,
    parse_decision,
)
from haytham.session.documents import DocumentRepository
from haytham.session.git import write_attributes
from haytham.session.outputs import complete_phase
from haytham.session.paths import check_agent_name, check_agents, check_id, humanize
from haytham.session.plan import SessionPlan, approval_problem, summarize
from haytham.session.quarantine import find_renamed, orphaned_files, quarantine
from haytham.session.spend_log import SpendLog
from haytham.session.state import change_state, read_state
from haytham.session.swap import complete_pending, has_pending
from haytham.session.tracker import ReadTracker
from haytham.session.view import SessionView
from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from haytham.agents.base import Task
    from haytham.config.workflow import Phase, WorkflowFiles
    from haytham.errors import Problem
    from haytham.session.derived import Decision, Value
    from haytham.session.documents import StoredDocument
    from haytham.storage.base import SessionStore

log = logging.getLogger(__name__)

T = TypeVar("T")
_TRIES = 8


class Session:
    """One run through a workflow. Making the object reads nothing; each call reads what is there then."""

    def __init__(self, store: SessionStore, project_id: str, session_id: str) -> None:
        self.project_id = check_id("project id", project_id)
        self.session_id = check_id("session id", session_id)
        self.prefix = paths.session_prefix(project_id, session_id)
        self.store = store
        self._shelf = DocumentRepository(store)
        self._is_swept = False

    def create(
        self, *, user_id: str, source: WorkflowFiles, mode: str, model: str | None = None, rebuild: bool = False
    ) -> None:
        """Make the session, its folders first and its manifest last; nothing changes where the same one is there."""
        check_id("user id", user_id)
        phases = source.workflow.mode_phases(mode)
        wanted = {"user_id": user_id, "workflow_type": source.workflow.name, "execution_mode": mode}
        if not self.exists():  # before the session's lock: the project's is always taken first
            write_attributes(self.store)
            self._copy_workflow(source)
        with self._locked():
            there = self._shelf.find("session_manifest", self.prefix + paths.MANIFEST)
            if there is None:
                if not rebuild:
                    self._refuse_leftovers()
                self._prepare(phases)
                chosen = {} if model is None else {"model": model}
                self._write_first_manifest(source, phases, {**wanted, **chosen})
            else:
                self._check_same(there.value, wanted)
                self._prepare(self.read().phases)

    def make_folders(self) -> list[str]:
        """Make the folders of phases that are missing, since git keeps no empty ones; return their names."""
        reading = self.read()
        folders = [reading.phase_prefix(phase) for phase in reading.phases]
        missing = [one for one in folders if not self.store.has_folder(one) and not self.store.is_regular(one[:-1])]
        if missing:
            with self._locked():
                for folder in missing:
                    self.store.ensure_folder(folder)
        return [folder.removeprefix(self.prefix) for folder in missing]

    def exists(self) -> bool:
        """Whether the session is there: whether it has a manifest."""
        return self._shelf.find("session_manifest", self.prefix + paths.MANIFEST) is not None

    @property
    def is_in_place(self) -> bool:
        """Whether the session's folder is where its ids say."""
        place = paths.session_prefix(self.project_id, self.session_id)
        return self.prefix == place and self.store.has_folder(place)

    def follow(self) -> bool:
        """Find the session's folder by its id where it was renamed, and use that; return whether there is one."""
        if self.store.is_regular(self.prefix + paths.MANIFEST):
            return True
        self.prefix = find_renamed(self._shelf, self.project_id, self.session_id) or self.prefix
        return self.store.has_folder(self.prefix)

    def read(self) -> SessionView:
        """The session as its files say it is; FileNotFoundError or InvalidDocument where its manifest does not say."""
        self.complete_pending_restore()
        return SessionView(self._shelf, self.project_id, self.session_id, self.prefix)

    def read_consistently(self, compute: Callable[[SessionView], T]) -> T:
        """Return what `compute` makes of documents that all stood there at one moment.

        They are read again where one has changed meanwhile; after some tries while the write lock keeps writers away.
        """
        for _ in range(_TRIES):
            self.complete_pending_restore()
            tracker = ReadTracker(self.store)
            try:
                shelf = DocumentRepository(cast("SessionStore", tracker))
                result = compute(SessionView(shelf, self.project_id, self.session_id, self.prefix))
            except (HaythamError, OSError):
                if not tracker.has_changed():
                    raise
                continue
            if not tracker.has_changed() and not has_pending(self.store, self.prefix):
                return result
        with self._locked():
            return compute(self.read())

    def save_checkpoint(self, number: Any, facts: Mapping[str, Any], agents: Any, *, report: bool = True) -> None:
        """Save how a phase stands, and what its agents did as far as their own files do not say.

        What the agents took is reported as spent, unless the caller counts its calls itself.
        """
        given = derived.parse_rows(agents)
        with self.transaction() as reading:
            phase = reading.require_phase(number)
            heads = [reading.output_header(phase, row["agent_name"]) for row in given]
            rows = [derived.complete_row(row, head) for row, head in zip(given, heads, strict=True)]
            order = {"save_counter": reading.save_counter() + 1, "saved_at": clock.now()}
            value = {**facts, **order, "phase": phase.number, "ledger": rows}
            if report:
                self._shelf.check("checkpoint", value)  # money is on record before the phase is: a crash loses none
                own = [head is None or "task" not in head for head in heads]  # the others' tokens a run has counted
                told = [row if is_own else one for row, one, is_own in zip(rows, given, own, strict=True)]
                self._report_spending(reading, phase, value, told)
            self.write_checkpoint(reading, phase, value)

    def save_output(self, number: Any, agent_name: str, facts: Mapping[str, Any], text: str) -> None:
        """Save what an agent wrote, byte for byte, and how it came to be."""
        check_agent_name(agent_name)
        require_text("output content", text)
        with self.transaction() as reading:
            phase = reading.require_phase(number)
            value = {
                "phase_number": phase.number,
                "attempt": reading.attempt(phase),
                "agent_digest": text_digest(text),
                "agent": agent_name,
                "executed": clock.now(),
                **facts,
                "text": text,
            }
            over = reading.output(phase, agent_name)
            key = reading.phase_prefix(phase) + paths.output_file(agent_name)
            self.write(reading, "agent_output", key, value, shown=derived_output(phase, agent_name), over=over)
            checkpoint = self._redraw_checkpoint(reading, phase, value, None if over is None else over.value)
            if checkpoint is not None and "task" not in facts:
                rows = [row for row in checkpoint["ledger"] if row["agent_name"] == agent_name]
                self._report_spending(reading, phase, checkpoint, rows)

    def _report_spending(
        self, reading: SessionView, phase: Phase, checkpoint: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]
    ) -> None:
        """Report what agents took that a program called."""
        attempt = max(reading.attempt(phase), checkpoint["retry_count"] + 1)
        SpendLog(self.store, self.prefix).report(phase.number, attempt, rows)

    def save_task(self, number: Any, task: Task) -> None:
        """Save what an agent is asked, to the letter."""
        with self._locked():
            reading = self._begin()
            phase = reading.require_phase(number)
            key = f"{reading.phase_prefix(phase)}{paths.TASKS}{paths.output_file(task.agent)}"
            parts = [{"part": part, "digest": digest} for part, digest in task.parts.items()]
            facts = {"agent": task.agent, "phase": phase.number, "attempt": task.attempt, "parts": parts}
            value = {**facts, "prompt": task.prompt}
            over = self._shelf.find("task", key)
            if over is not None and not over.faults and dict(over.value) == value:
                return
            self.write(reading, "task", key, value, shown={"agent_title": humanize(task.agent)}, over=over)

    def save_feedback(self, number: Any, facts: Mapping[str, Any]) -> None:
        """Save a person's review of a phase, bound to the texts that are there now.

        A decision that a rule refuses, or on a text that holds a git conflict, is stored without being bound: the next
        command reports it.
        """
        with self.transaction() as reading:
            phase = reading.require_phase(number)
            is_bound = not reading.has_conflicts(phase)
            rows = reading.reviewed_content(phase) if is_bound else []
            place = {"phase_number": phase.number, "attempt": reading.attempt(phase)}
            value = {**place, **facts, "reviewed_content": rows}
            check_agents(phase, facts.get("agents", ()))
            self._shelf.check("user_feedback", value)
            decision = parse_decision(value)
            if decision is not None and is_bound and not _is_refused(reading, phase, decision):
                value |= {"bound_decision": decision}
            key = reading.phase_prefix(phase) + paths.FEEDBACK
            over = reading.feedback(phase)
            if decision in ("approved", "changes") and is_bound:
                complete_phase(self, reading, phase)
            self.write(reading, "user_feedback", key, value, shown=derived_feedback(phase), over=over)

    def refresh_derived_if_needed(self) -> None:
        """Draw shown copies anew where a crash left one behind; nothing is written where none is."""
        reading = self.read()
        behind = reading.manifest.problems or reading.manifest.derived_mismatches(derived_manifest(summarize(reading)))
        records = (phase for phase in reading.phases if reading.checkpoint(phase) is not None)
        if behind or any(reading.checkpoint_problems(phase) for phase in records):
            self.regenerate_derived()

    def regenerate_derived(self) -> list[str]:
        """Draw every shown copy anew; those that were not as they should be."""
        done = []
        with self.transaction() as reading:
            for phase in reading.phases:
                found = reading.checkpoint(phase)
                if found is not None and not found.faults and reading.checkpoint_problems(phase):
                    self.write_checkpoint(reading, phase, found.value)
                    done.append(f"drew {found.key.removeprefix(self.prefix)} anew")
            stale = reading.manifest.problems or reading.manifest.derived_mismatches(
                derived_manifest(summarize(reading))
            )
            return [*done, f"drew {paths.MANIFEST} anew"] if stale else done

    def switch_workflow(self, source: WorkflowFiles) -> list[str]:
        """Go on with another workflow: phases it has, too, stay where they are; others are set aside, never lost."""
        self._copy_workflow(source)
        with self._locked():
            reading = self._begin()
            phases = source.workflow.mode_phases(reading.manifest.value["execution_mode"])
            said = quarantine(self.store, self.prefix, orphaned_files(reading, phases, self.store.keys(self.prefix)))
            self._prepare(phases)
            facts = {"workflow": source.digest, "phases": source.workflow.digest, "origin": source.origin}
            value = {**reading.manifest.value, **facts}
            shown = derived_manifest(Summary(value, phases, {}, {}))
            key = self.prefix + paths.MANIFEST
            self.write(reading, "session_manifest", key, value, shown=shown, over=reading.manifest)
        self.regenerate_derived()
        return said

    def update_manifest(self, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Change what the manifest is the home of; what it says then."""
        with self._locked():
            reading = self._begin()
            self._write_manifest(reading, {**reading.manifest.value, **facts})
            return self.read().manifest.value

    def state(self) -> dict[str, Any]:
        """The values that the caller keeps with the session."""
        return read_state(self)

    def update_state(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Merge changes into those values, by the rules of JSON merge patch; all of them then."""
        return change_state(self, changes)

    @contextmanager
    def transaction(self) -> Iterator[SessionView]:
        """Hold the lock while documents are saved; draw the manifest anew when they are."""
        with self._locked():
            reading = self._begin()
            self._report_changes(reading)
            yield reading
            with _only_shown(self.prefix + paths.MANIFEST):
                self._write_manifest(reading, reading.manifest.value)

    def _report_changes(self, reading: SessionView) -> None:
        """Name what the manifest shows and is not so, before it is drawn anew: a person may have meant something."""
        with _only_shown(reading.manifest.key):
            if reading.manifest.parsed.derived_edited:
                _report(reading.manifest.derived_mismatches(derived_manifest(summarize(reading))))

    def complete_pending_restore(self) -> None:
        """Finish what a killed restore or merge left half done; every opening of a session comes by here."""
        if has_pending(self.store, self.prefix):
            with self._locked():
                for path in complete_pending(self.store, self.prefix):
                    log.warning(
                        "%s%s: was written while a restore lay unfinished, and is kept there", self.prefix, path
                    )

    def _locked(self) -> AbstractContextManager[None]:
        return self.store.lock(paths.session_lock(self.project_id, self.session_id))

    def _begin(self) -> SessionView:
        """Read the session to save something in it; the first time, sweep what a crash left in its folders."""
        reading = self.read()
        if not self._is_swept:
            self._prepare(phase for phase in reading.phases if self.store.has_folder(reading.phase_prefix(phase)))
        return reading

    def _prepare(self, phases: Iterable[Phase]) -> None:
        for folder in ("", *(f"{paths.phase_folder(phase)}/" for phase in phases)):
            self.store.ensure_folder(self.prefix + folder)
        self._is_swept = True

    def _copy_workflow(self, source: WorkflowFiles) -> None:
        """Keep the workflow with the project, so that a session goes on with the one it began with."""
        folder = paths.workflow_prefix(self.project_id, source.digest)
        there = self.store.keys(folder)
        missing = [name for name in source.files if folder + name not in there]
        if not missing:
            return
        with self.store.lock(self.project_id):
            for above in sorted({f"{folder}{name}".rpartition("/")[0] for name in missing}):
                self.store.ensure_folder(f"{above}/")
            for name in missing:
                self.store.write(folder + name, source.files[name])

    def _write_first_manifest(self, source: WorkflowFiles, phases: tuple[Phase, ...], facts: Value) -> None:
        value = {
            "workflow": source.digest,
            "phases": source.workflow.digest,
            "origin": source.origin,
            "session_id": self.session_id,
            "project_id": self.project_id,
            **facts,
            "created": clock.now(),
        }
        shown = derived_manifest(Summary(value, phases, {}, {}))
        self._shelf.write("session_manifest", self.prefix + paths.MANIFEST, value, shown=shown, over=None)

    def _refuse_leftovers(self) -> None:
        """Refuse to make a session where the documents of one lie whose manifest is lost."""
        left = self.store.keys(self.prefix)
        if left:
            key = self.prefix + paths.MANIFEST
            raise NotFound("the manifest of the session that lies here", key, "haytham doctor rebuilds it")

    def _check_same(self, there: Mapping[str, Any], wanted: Value) -> None:
        for name, value in wanted.items():
            if there[name] != value:
                what = f"session {self.session_id!r} is there already with another {name.replace('_', ' ')}"
                raise InvalidArgument(what, value, repr(there[name]))

    def _write_manifest(self, reading: SessionView, value: Mapping[str, Any]) -> None:
        """Store the manifest over the one that was read, unless that says and shows just this."""
        shown = derived_manifest(summarize(reading, value))
        over = reading.manifest
        if dict(value) == dict(over.value) and not over.problems and not over.derived_mismatches(shown):
            return
        key = self.prefix + paths.MANIFEST
        self.write(reading, "session_manifest", key, value, shown=shown, over=reading.manifest)

    def write_checkpoint(self, reading: SessionView, phase: Phase, value: Mapping[str, Any]) -> None:
        """Store a phase's own record over the one that was read, and draw what it shows."""
        key = reading.phase_prefix(phase) + paths.CHECKPOINT
        there = reading.checkpoint(phase)
        if there is not None and not there.faults and there.parsed.derived_edited:
            _report(there.derived_mismatches(derived_checkpoint(there.value, reading.phases)))
        self.write(reading, "checkpoint", key, value, shown=derived_checkpoint(value, reading.phases), over=there)

    def _redraw_checkpoint(
        self, reading: SessionView, phase: Phase, output: Value, before: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """Let the checkpoint show what an agent's file says now; return what it says, None where it cannot be drawn."""
        drawn: Mapping[str, Any] | None = None
        with _only_shown(reading.phase_prefix(phase) + paths.CHECKPOINT):
            there = reading.checkpoint(phase)
            if there is not None:
                value = {**there.value, "ledger": derived.update_rows(there.value["ledger"], output, before)}
                if value["ledger"] != there.value["ledger"]:
                    self.write_checkpoint(reading, phase, value)
                drawn = value
        return drawn

    def write(  # noqa: PLR0913 - a document, and what it is written over
        self,
        reading: SessionView,
        kind: str,
        key: str,
        value: Mapping[str, Any],
        *,
        shown: Mapping[str, Any],
        over: StoredDocument | None,
    ) -> None:
        """Store a document over the one that was read; one that cannot be read is never written over."""
        if over is not None and (over.faults or over.unknown_text):
            raise InvalidDocument(over.faults or over.unknown_text)
        reading.cache(self._shelf.write(kind, key, value, shown=shown, over=over))


def _is_refused(reading: SessionView, phase: Phase, decision: Decision) -> bool:
    """Return whether a rule refuses a decision, or a document that cannot be read keeps anybody from telling."""
    try:
        return approval_problem(SessionPlan(reading).phase(phase.number).state, decision) is not None
    except InvalidDocument:
        return True


def _report(problems: list[Problem]) -> None:
    for problem in problems:
        log.warning("%s", problem)


@contextmanager
def _only_shown(key: str) -> Iterator[None]:
    """What goes wrong in here leaves a shown copy behind the truth, and no more: a warning."""
    try:
        yield
    except (HaythamError, OSError) as error:
        log.warning("%s could not be drawn anew and may show what was: %s", key, error)
