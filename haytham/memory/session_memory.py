"""What a session has to do with memory: notes that fit a task are recalled, and decisions of reviews become notes.

Both are best effort: what fails is logged, and neither a run nor a decision ends by it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from haytham import clock
from haytham.config.agent_spec import read_agent
from haytham.errors import HaythamError, InvalidDocument, NotFound
from haytham.memory.base import Note
from haytham.memory.index import query_words
from haytham.session.inputs import TaskInputs
from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from haytham.config.workflow import Phase
    from haytham.memory.base import NoteStore
    from haytham.session.models import UserFeedback
    from haytham.session.session import SessionDocuments
    from haytham.session.view import SessionView

log = logging.getLogger(__name__)

MOST_NOTES = 5
_MOST_LOOKED_AT = 100  # more than a session makes, whose own notes are left out
LONGEST_NOTE = 600
LONGEST_MEMORY = 2400
_LONGEST_IDEA = 120
_LONGEST_WORDS = 2000
_VERBS = {
    "approved": "approved",
    "changes": "asked for changes",
    "skip": "skipped the phase",
    "rejected": "rejected it",
}
_SHORTEST_WORD = 3
_COMMON_WORDS = (  # of most tasks and notes: to have them in common says nothing
    "about all and any are but can each for from has have how idea into its more not one our out phase that the their "
    "them then this was were what when where which who will with would you your approved asked changes skipped rejected"
)


class SessionMemory:
    """The memory of a session's user. Without a store it recalls nothing and learns nothing."""

    def __init__(self, session: SessionDocuments | None, open_store: Callable[[], NoteStore | None]) -> None:
        self._session = session
        self._open_store = open_store
        self._notes: NoteStore | None = None
        self._has_failed = False

    def check(self) -> None:
        """Raise InvalidArgument if the store cannot be opened; an unreadable session is reported by its run."""
        with suppress(InvalidDocument):
            self._store()

    def _store(self) -> NoteStore | None:
        if self._notes is None:
            self._notes = self._open_store()
        return self._notes

    # Notes for a task.

    def recall(self, query: str) -> str:
        """Return the notes that fit a task best, as text for its prompt; empty if there are none."""
        try:
            return notes_text(self._recall(query))
        except (HaythamError, OSError) as error:
            if not self._has_failed:
                log.warning("no notes are used: %s", error)
            self._has_failed = True
            return ""

    def _recall(self, query: str) -> list[Note]:
        """Return notes of other sessions that have words of the task, then the newest that a person added."""
        notes = self._store()
        if notes is None or self._session is None:
            return []
        manifest, words = self._session.read().manifest.value, _telling_words(query)
        own = {f"{manifest.project_id}/{session}" for session in (manifest.session_id, manifest.forked_from)}
        fitting = notes.search(manifest.user_id, " ".join(words), limit=_MOST_LOOKED_AT) if words else []
        chosen = {note.id: note for note in fitting if note.session not in own}
        if len(chosen) < MOST_NOTES:
            chosen |= {note.id: note for note in notes.search(manifest.user_id, "") if note.session is None}
        return list(chosen.values())[:MOST_NOTES]

    # Notes of decisions.

    def learn(self, phases: Iterable[int]) -> None:
        """Make notes of what was decided on phases; the same decision again makes no second note."""
        try:
            self._learn(phases)
        except (HaythamError, OSError) as error:
            log.warning("no note was made of the decision: %s", error)

    def forget(self, phase: int) -> None:
        """Delete the note of a decision that was withdrawn."""
        try:
            notes = self._store()
            if notes is not None and self._session is not None:
                view = self._session.read()
                chosen, user = view.phase(phase), view.manifest.value.user_id
                with suppress(NotFound):
                    notes.delete(user, _review_id(_session_name(view), chosen, view.attempt(chosen)))
        except (HaythamError, OSError) as error:
            log.warning("the note of the decision was not deleted: %s", error)

    def _learn(self, phases: Iterable[int]) -> None:
        notes = self._store()
        if notes is None or self._session is None:
            return
        view = self._session.read()
        for note, number in _review_notes(view, phases):
            if notes.add(note):
                self._session.events.emit("memory_added", phase=number, user=note.user, note=note.id)
            else:
                notes.update(note.user, note.id, text=note.text, tags=note.tags)


NO_MEMORY = SessionMemory(None, lambda: None)


def notes_text(notes: Iterable[Note]) -> str:
    """Return notes as a list, each cut to a length, and no more than fit in a prompt."""
    items: list[str] = []
    for note in notes:
        item = "- " + _cut(note.text, LONGEST_NOTE).replace("\n", "\n  ")
        if sum(map(len, items)) + len(item) > LONGEST_MEMORY:
            break
        items.append(item)
    return "\n".join(items)


def _telling_words(query: str) -> list[str]:
    common = set(query_words(_COMMON_WORDS))
    return [word for word in query_words(query) if len(word) >= _SHORTEST_WORD and word not in common]


def _review_notes(view: SessionView, phases: Iterable[int]) -> Iterator[tuple[Note, int]]:
    """Yield the note of each decision that says something, with its phase."""
    manifest = view.manifest.value
    session = _session_name(view)
    for phase in (view.phase(number) for number in dict.fromkeys(phases)):
        feedback = view.feedback(phase)
        if feedback is None or feedback.value.bound_decision is None:
            continue
        agents = feedback.value.agents or phase.agents
        text = _review_text(view.idea, phase, feedback.value)
        if text and _may_store(view, agents):
            note_id = _review_id(session, phase, feedback.value.attempt)
            tags = tuple(dict.fromkeys(["review", feedback.value.bound_decision, phase.slug, *agents]))
            yield Note(note_id, manifest.user_id, text, clock.now(), tags, session), phase.number


def _session_name(view: SessionView) -> str:
    return f"{view.manifest.value.project_id}/{view.manifest.value.session_id}"


def _review_id(session: str, phase: Phase, attempt: int) -> str:
    """Return the id of the note on an attempt at a phase: the same whenever a decision on it is made."""
    digest = text_digest(f"{session} {phase.number} {attempt}")
    return f"review-{digest.removeprefix('sha256:')[:12]}"


def _may_store(view: SessionView, agents: Iterable[str]) -> bool:
    """Return whether no agent that a decision is about has a file that says `runtime: {store: false}`."""
    files = TaskInputs(view).agent_files
    return all(read_agent(name, files[name]).runtime.get("store", True) for name in agents)


def _review_text(idea: str, phase: Phase, feedback: UserFeedback) -> str:
    """Return what was decided on which idea, and what was said; empty for an approval without words."""
    words = "\n".join([feedback.comments.strip(), *(f"- {change}" for change in feedback.requested_changes)]).strip()
    decision = feedback.bound_decision or ""
    if decision == "approved" and not words:
        return ""
    about = f'On "{_cut(" ".join(idea.split()), _LONGEST_IDEA)}", phase {phase.name}, {feedback.by or "somebody"}'
    verb = _VERBS[decision]
    return f"{about} {verb}:\n{_cut(words, _LONGEST_WORDS)}" if words else f"{about} {verb}."


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"
