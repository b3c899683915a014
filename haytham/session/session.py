"""One session over a store: makes it, reads it and saves its documents; remembers nothing but where it is.

Every save takes the session's write lock, writes the document that is the home of the facts, then draws the shown
copies anew. A home that cannot be written is an error; a shown copy that cannot be drawn is a warning in the log.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from haytham import clock
from haytham.document.check import check_text
from haytham.errors import HaythamError, InvalidDocument, InvalidValue, NotThere
from haytham.session import layout, ledger
from haytham.session.aside import find_renamed, set_aside, unowned
from haytham.session.git import write_attributes
from haytham.session.names import check_agent_name, check_agents, check_id, title
from haytham.session.page import complete_phase
from haytham.session.reading import Reading
from haytham.session.restoring import finish, is_unfinished
from haytham.session.shelf import Shelf
from haytham.session.shown import shown_checkpoint, shown_feedback, shown_manifest, shown_output
from haytham.session.spend import Spend
from haytham.session.standing import Standing, refusal, summarize
from haytham.session.state import change_state, read_state
from haytham.session.summary import Summary, decide
from haytham.session.tracker import ReadTracker
from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from haytham.agent import Task
    from haytham.errors import Problem
    from haytham.session.shelf import Document
    from haytham.session.summary import Decision, Value
    from haytham.store.protocol import SharedStore
    from haytham.workflow import Phase, WorkflowFiles

log = logging.getLogger(__name__)

T = TypeVar("T")
_TRIES = 8


class Session:
    """One run through a workflow. Making the object reads nothing; each call reads what is there then."""

    def __init__(self, store: SharedStore, project_id: str, session_id: str) -> None:
        self.project_id = check_id("project id", project_id)
        self.session_id = check_id("session id", session_id)
        self.prefix = layout.session_prefix(project_id, session_id)
        self.store = store
        self._shelf = Shelf(store)
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
            there = self._shelf.find("session_manifest", self.prefix + layout.MANIFEST)
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
        folders = [reading.folder(phase) for phase in reading.phases]
        missing = [one for one in folders if not self.store.holds(one) and not self.store.is_plain(one[:-1])]
        if missing:
            with self._locked():
                for folder in missing:
                    self.store.prepare(folder)
        return [folder.removeprefix(self.prefix) for folder in missing]

    def exists(self) -> bool:
        """Whether the session is there: whether it has a manifest."""
        return self._shelf.find("session_manifest", self.prefix + layout.MANIFEST) is not None

    @property
    def is_in_place(self) -> bool:
        """Whether the session's folder is where its ids say."""
        place = layout.session_prefix(self.project_id, self.session_id)
        return self.prefix == place and self.store.holds(place)

    def follow(self) -> bool:
        """Find the session's folder by its id where it was renamed, and use that; return whether there is one."""
        if self.store.is_plain(self.prefix + layout.MANIFEST):
            return True
        self.prefix = find_renamed(self._shelf, self.project_id, self.session_id) or self.prefix
        return self.store.holds(self.prefix)

    def read(self) -> Reading:
        """The session as its files say it is; FileNotFoundError or InvalidDocument where its manifest does not say."""
        self.finish_restore()
        return Reading(self._shelf, self.project_id, self.session_id, self.prefix)

    def read_consistently(self, compute: Callable[[Reading], T]) -> T:
        """Return what `compute` makes of documents that all stood there at one moment.

        They are read again where one has changed meanwhile; after some tries while the write lock keeps writers away.
        """
        for _ in range(_TRIES):
            self.finish_restore()
            tracker = ReadTracker(self.store)
            try:
                shelf = Shelf(cast("SharedStore", tracker))
                result = compute(Reading(shelf, self.project_id, self.session_id, self.prefix))
            except (HaythamError, OSError):
                if not tracker.has_changed():
                    raise
                continue
            if not tracker.has_changed() and not is_unfinished(self.store, self.prefix):
                return result
        with self._locked():
            return compute(self.read())

    def save_checkpoint(self, number: Any, facts: Mapping[str, Any], agents: Any, *, report: bool = True) -> None:
        """Save how a phase stands, and what its agents did as far as their own files do not say.

        What the agents took is reported as spent, unless the caller counts its calls itself.
        """
        given = ledger.read_rows(agents)
        with self.saving() as reading:
            phase = reading.there(number)
            heads = [reading.output_head(phase, row["agent_name"]) for row in given]
            rows = [ledger.merged(row, head) for row, head in zip(given, heads, strict=True)]
            order = {"saved": reading.last_saved() + 1, "saved_at": clock.now()}
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
        check_text("output content", text)
        with self.saving() as reading:
            phase = reading.there(number)
            value = {
                "phase_number": phase.number,
                "attempt": reading.attempt(phase),
                "wrote": text_digest(text),
                "agent": agent_name,
                "executed": clock.now(),
                **facts,
                "text": text,
            }
            over = reading.output(phase, agent_name)
            key = reading.folder(phase) + layout.output_file(agent_name)
            self.write(reading, "agent_output", key, value, shown=shown_output(phase, agent_name), over=over)
            checkpoint = self._redraw_checkpoint(reading, phase, value, None if over is None else over.value)
            if checkpoint is not None and "task" not in facts:
                rows = [row for row in checkpoint["ledger"] if row["agent_name"] == agent_name]
                self._report_spending(reading, phase, checkpoint, rows)

    def _report_spending(
        self, reading: Reading, phase: Phase, checkpoint: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]
    ) -> None:
        """Report what agents took that a program called."""
        attempt = max(reading.attempt(phase), checkpoint["retry_count"] + 1)
        Spend(self.store, self.prefix).report(phase.number, attempt, rows)

    def save_task(self, number: Any, task: Task) -> None:
        """Save what an agent is asked, to the letter."""
        with self._locked():
            reading = self._begin()
            phase = reading.there(number)
            key = f"{reading.folder(phase)}{layout.TASKS}{layout.output_file(task.agent)}"
            parts = [{"part": part, "digest": digest} for part, digest in task.parts.items()]
            facts = {"agent": task.agent, "phase": phase.number, "attempt": task.attempt, "parts": parts}
            value = {**facts, "prompt": task.prompt}
            over = self._shelf.find("task", key)
            if over is not None and not over.faults and dict(over.value) == value:
                return
            self.write(reading, "task", key, value, shown={"agent_title": title(task.agent)}, over=over)

    def save_feedback(self, number: Any, facts: Mapping[str, Any]) -> None:
        """Save a person's review of a phase, bound to the texts that are there now.

        A decision that a rule refuses, or on a text that holds a git conflict, is stored without being bound: the next
        command reports it.
        """
        with self.saving() as reading:
            phase = reading.there(number)
            is_bound = not reading.has_conflicts(phase)
            rows = reading.reviewed_content(phase) if is_bound else []
            place = {"phase_number": phase.number, "attempt": reading.attempt(phase)}
            value = {**place, **facts, "reviewed_content": rows}
            check_agents(phase, facts.get("agents", ()))
            self._shelf.check("user_feedback", value)
            decision = decide(value)
            if decision is not None and is_bound and not _is_refused(reading, phase, decision):
                value |= {"decided": decision}
            key = reading.folder(phase) + layout.FEEDBACK
            over = reading.feedback(phase)
            if decision in ("approved", "changes") and is_bound:
                complete_phase(self, reading, phase)
            self.write(reading, "user_feedback", key, value, shown=shown_feedback(phase), over=over)

    def catch_up(self) -> None:
        """Draw shown copies anew where a crash left one behind; nothing is written where none is."""
        reading = self.read()
        behind = reading.manifest.problems or reading.manifest.disagreements(shown_manifest(summarize(reading)))
        records = (phase for phase in reading.phases if reading.checkpoint(phase) is not None)
        if behind or any(reading.checkpoint_problems(phase) for phase in records):
            self.redraw()

    def redraw(self) -> list[str]:
        """Draw every shown copy anew; those that were not as they should be."""
        done = []
        with self.saving() as reading:
            for phase in reading.phases:
                found = reading.checkpoint(phase)
                if found is not None and not found.faults and reading.checkpoint_problems(phase):
                    self.write_checkpoint(reading, phase, found.value)
                    done.append(f"drew {found.key.removeprefix(self.prefix)} anew")
            stale = reading.manifest.problems or reading.manifest.disagreements(shown_manifest(summarize(reading)))
            return [*done, f"drew {layout.MANIFEST} anew"] if stale else done

    def accept_workflow(self, source: WorkflowFiles) -> list[str]:
        """Go on with another workflow: phases it has, too, stay where they are; others are set aside, never lost."""
        self._copy_workflow(source)
        with self._locked():
            reading = self._begin()
            phases = source.workflow.mode_phases(reading.manifest.value["execution_mode"])
            said = set_aside(self.store, self.prefix, unowned(reading, phases, self.store.keys(self.prefix)))
            self._prepare(phases)
            facts = {"workflow": source.digest, "phases": source.workflow.digest, "origin": source.origin}
            value = {**reading.manifest.value, **facts}
            shown = shown_manifest(Summary(value, phases, {}, {}))
            key = self.prefix + layout.MANIFEST
            self.write(reading, "session_manifest", key, value, shown=shown, over=reading.manifest)
        self.redraw()
        return said

    def change_manifest(self, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Change what the manifest is the home of; what it says then."""
        with self._locked():
            reading = self._begin()
            self._write_manifest(reading, {**reading.manifest.value, **facts})
            return self.read().manifest.value

    def state(self) -> dict[str, Any]:
        """The values that the caller keeps with the session."""
        return read_state(self)

    def change_state(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Merge changes into those values, by the rules of JSON merge patch; all of them then."""
        return change_state(self, changes)

    @contextmanager
    def saving(self) -> Iterator[Reading]:
        """Hold the lock while documents are saved; draw the manifest anew when they are."""
        with self._locked():
            reading = self._begin()
            self._report_changes(reading)
            yield reading
            with _only_shown(self.prefix + layout.MANIFEST):
                self._write_manifest(reading, reading.manifest.value)

    def _report_changes(self, reading: Reading) -> None:
        """Name what the manifest shows and is not so, before it is drawn anew: a person may have meant something."""
        with _only_shown(reading.manifest.key):
            if reading.manifest.parsed.retouched:
                _report(reading.manifest.disagreements(shown_manifest(summarize(reading))))

    def finish_restore(self) -> None:
        """Finish what a killed restore or merge left half done; every opening of a session comes by here."""
        if is_unfinished(self.store, self.prefix):
            with self._locked():
                for path in finish(self.store, self.prefix):
                    log.warning(
                        "%s%s: was written while a restore lay unfinished, and is kept there", self.prefix, path
                    )

    def _locked(self) -> AbstractContextManager[None]:
        return self.store.lock(layout.session_lock(self.project_id, self.session_id))

    def _begin(self) -> Reading:
        """Read the session to save something in it; the first time, sweep what a crash left in its folders."""
        reading = self.read()
        if not self._is_swept:
            self._prepare(phase for phase in reading.phases if self.store.holds(reading.folder(phase)))
        return reading

    def _prepare(self, phases: Iterable[Phase]) -> None:
        for folder in ("", *(f"{layout.phase_folder(phase)}/" for phase in phases)):
            self.store.prepare(self.prefix + folder)
        self._is_swept = True

    def _copy_workflow(self, source: WorkflowFiles) -> None:
        """Keep the workflow with the project, so that a session goes on with the one it began with."""
        folder = layout.workflow_prefix(self.project_id, source.digest)
        there = self.store.keys(folder)
        missing = [name for name in source.files if folder + name not in there]
        if not missing:
            return
        with self.store.lock(self.project_id):
            for above in sorted({f"{folder}{name}".rpartition("/")[0] for name in missing}):
                self.store.prepare(f"{above}/")
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
        shown = shown_manifest(Summary(value, phases, {}, {}))
        self._shelf.write("session_manifest", self.prefix + layout.MANIFEST, value, shown=shown, over=None)

    def _refuse_leftovers(self) -> None:
        """Refuse to make a session where the documents of one lie whose manifest is lost."""
        left = self.store.keys(self.prefix)
        if left:
            key = self.prefix + layout.MANIFEST
            raise NotThere("the manifest of the session that lies here", key, "haytham doctor rebuilds it")

    def _check_same(self, there: Mapping[str, Any], wanted: Value) -> None:
        for name, value in wanted.items():
            if there[name] != value:
                what = f"session {self.session_id!r} is there already with another {name.replace('_', ' ')}"
                raise InvalidValue(what, value, repr(there[name]))

    def _write_manifest(self, reading: Reading, value: Mapping[str, Any]) -> None:
        """Store the manifest over the one that was read, unless that says and shows just this."""
        shown = shown_manifest(summarize(reading, value))
        over = reading.manifest
        if dict(value) == dict(over.value) and not over.problems and not over.disagreements(shown):
            return
        key = self.prefix + layout.MANIFEST
        self.write(reading, "session_manifest", key, value, shown=shown, over=reading.manifest)

    def write_checkpoint(self, reading: Reading, phase: Phase, value: Mapping[str, Any]) -> None:
        """Store a phase's own record over the one that was read, and draw what it shows."""
        key = reading.folder(phase) + layout.CHECKPOINT
        there = reading.checkpoint(phase)
        if there is not None and not there.faults and there.parsed.retouched:
            _report(there.disagreements(shown_checkpoint(there.value, reading.phases)))
        self.write(reading, "checkpoint", key, value, shown=shown_checkpoint(value, reading.phases), over=there)

    def _redraw_checkpoint(
        self, reading: Reading, phase: Phase, output: Value, before: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """Let the checkpoint show what an agent's file says now; return what it says, None where it cannot be drawn."""
        drawn: Mapping[str, Any] | None = None
        with _only_shown(reading.folder(phase) + layout.CHECKPOINT):
            there = reading.checkpoint(phase)
            if there is not None:
                value = {**there.value, "ledger": ledger.updated(there.value["ledger"], output, before)}
                if value["ledger"] != there.value["ledger"]:
                    self.write_checkpoint(reading, phase, value)
                drawn = value
        return drawn

    def write(  # noqa: PLR0913 - a document, and what it is written over
        self,
        reading: Reading,
        kind: str,
        key: str,
        value: Mapping[str, Any],
        *,
        shown: Mapping[str, Any],
        over: Document | None,
    ) -> None:
        """Store a document over the one that was read; one that cannot be read is never written over."""
        if over is not None and (over.faults or over.unclaimed):
            raise InvalidDocument(over.faults or over.unclaimed)
        reading.keep(self._shelf.write(kind, key, value, shown=shown, over=over))


def _is_refused(reading: Reading, phase: Phase, decision: Decision) -> bool:
    """Return whether a rule refuses a decision, or a document that cannot be read keeps anybody from telling."""
    try:
        return refusal(Standing(reading).place(phase.number).facts, decision) is not None
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
