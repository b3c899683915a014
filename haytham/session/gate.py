"""The gate of a phase: opened for a person, answered by them, and closed on the texts they saw. Writes, under the lock.

An attempt is one round up to a decision. What a person wrote or decided is never replaced in place: it moves to
`attempts/<k>/`, feedback last, so that feedback which names an earlier attempt is a move to be finished.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham import clock
from haytham.session import layout
from haytham.session.shown import shown_feedback
from haytham.session.summary import Review
from haytham.text import counted, difference

if TYPE_CHECKING:
    from haytham.session.reading import Reading
    from haytham.session.session import Session
    from haytham.session.summary import Decision, Value
    from haytham.workflow import Phase

_ACTIONS: dict[Decision, str] = {
    "approved": "approved",
    "changes": "retry_with_changes",
    "skip": "skip_phase",
    "rejected": "rejected",
}
_WORDS = {
    "approved": "approved",
    "retry_with_changes": "changes requested",
    "skip_phase": "skipped",
    "rejected": "rejected",
}
_UNDECIDED = Review(None, outdated=False)


class Gate:
    """The gates of a session's phases."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._store = session.store

    def open(self, number: int) -> None:
        """Present a phase to a person: nothing decided yet. A review of another text is put aside first."""
        with self._session.saving() as reading:
            phase = reading.there(number)
            feedback = reading.feedback(phase)
            if feedback is not None and reading.review(phase) != _UNDECIDED:
                self._put_aside(reading, phase, move=False)
            self._present(reading, phase)
            self._write(reading, phase, _undecided(reading, phase))

    def answer(self, number: int, decision: Decision, *, by: str | None, comments: str = "", changes: list[str]) -> str:
        """Decide on a phase as its texts are now; what was decided, in words."""
        with self._session.saving() as reading:
            phase = reading.there(number)
            there = reading.feedback(phase)
            kept = there.value if there is not None else _undecided(reading, phase)
            facts = {
                **kept,
                "attempt": reading.attempt(phase),
                "approved": decision == "approved",
                "comments": comments or kept["comments"],
                "requested_changes": changes or kept["requested_changes"],
                "action": _ACTIONS[decision],
            }
            return self._stamp(reading, phase, facts, by)

    def stamp(self, by: str | None) -> list[tuple[int, str]]:
        """Bind the decisions that a person made in an editor to the texts that are there; which, in words."""
        reading = self._session.read()
        numbers = [phase.number for phase in reading.phases if _is_unstamped(reading, phase)]
        return [(number, self._stamp_one(number, by)) for number in numbers]

    def _stamp_one(self, number: int, by: str | None) -> str:
        with self._session.saving() as reading:
            phase = reading.there(number)
            there, review = reading.feedback(phase), reading.review(phase)
            if there is None or review is None or review.decision is None:
                return "undecided"
            facts = {**there.value, "approved": review.decision == "approved", "action": _ACTIONS[review.decision]}
            return self._stamp(reading, phase, facts, by)

    def next_attempt(self, number: int) -> None:
        """Put the present attempt aside, whole, and make room for the next one."""
        with self._session.saving() as reading:
            phase = reading.there(number)
            self._put_aside(reading, phase, move=True)

    def retry(self, number: int) -> None:
        """Make a phase run again: lift a skip; leave a failed one to its failed agents; else start a new attempt."""
        with self._session.saving() as reading:
            phase = reading.there(number)
            checkpoint, review = reading.checkpoint(phase), reading.review(phase)
            status = "pending" if checkpoint is None else checkpoint.value["status"]
            skipped = status == "skipped" or (review is not None and review.decision == "skip")
            if skipped or status == "completed":
                self._put_aside(reading, phase, move=True)
            if skipped and checkpoint is not None:
                self._store.delete(checkpoint.key)
                reading.forget(checkpoint.key)

    def reopen(self, number: int) -> None:
        """Put the review of a phase aside with a copy of what it was of: its texts are about to change."""
        with self._session.saving() as reading:
            phase = reading.there(number)
            if reading.feedback(phase) is not None:
                self._put_aside(reading, phase, move=False)

    def finish(self) -> None:
        """Finish what a crash cut short: feedback that names an earlier attempt than the present one."""
        reading = self._session.read()
        if not any(_is_left_over(reading, phase) for phase in reading.phases):
            return
        with self._session.saving() as reading:
            for phase in (phase for phase in reading.phases if _is_left_over(reading, phase)):
                there, review = reading.feedback(phase), reading.review(phase)
                if there is not None:
                    move = review is not None and review.decision == "changes"
                    self._put_aside(reading, phase, move=move, attempt=there.value["attempt"])

    def _present(self, reading: Reading, phase: Phase) -> None:
        """Keep the outputs as they are presented, to tell later what a person changed in them."""
        folder = reading.folder(phase) + layout.PRESENTED
        for agent, document in reading.outputs(phase).items():
            self._store.write(folder + layout.output_file(agent), document.data)

    def _stamp(self, reading: Reading, phase: Phase, facts: Value, by: str | None) -> str:
        presented, added, removed = reading.presented(phase), 0, 0
        for agent, text in reading.texts(phase).items():
            plus, minus = counted(difference(presented.get(agent, text), text))
            added, removed = added + plus, removed + minus
        rows = reading.reviewed_content(phase)
        facts = {**facts, "reviewed": True, "timestamp": clock.now(), "reviewed_content": rows}
        if by is not None:
            facts["by"] = by
        if added or removed:
            facts["revised"] = f"+{added} -{removed}"
        self._write(reading, phase, facts)
        return _WORDS[facts["action"]] + (f" with changes, +{added} -{removed}" if added or removed else "")

    def _put_aside(self, reading: Reading, phase: Phase, *, move: bool, attempt: int | None = None) -> None:
        """Copy or move the tasks and outputs of an attempt to its own folder, and move the feedback, last."""
        folder = reading.folder(phase)
        aside = layout.attempt_prefix(folder, reading.attempt(phase) if attempt is None else attempt)
        names = [key.removeprefix(folder) for key in self._store.keys(folder)]
        names = [name for name in names if not name.startswith(layout.ATTEMPTS) and name != layout.CHECKPOINT]
        for name in sorted(names, key=lambda name: name == layout.FEEDBACK):
            self._store.write(aside + name, self._store.read(folder + name))
            if move or name == layout.FEEDBACK:
                self._store.delete(folder + name)
                reading.forget(folder + name)

    def _write(self, reading: Reading, phase: Phase, facts: Value) -> None:
        key = reading.folder(phase) + layout.FEEDBACK
        over = reading.feedback(phase)
        self._session.write(reading, "user_feedback", key, facts, shown=shown_feedback(phase), over=over)


def _is_unstamped(reading: Reading, phase: Phase) -> bool:
    """Whether a person decided in an editor, and nothing has bound that to the texts yet."""
    there, review = reading.feedback(phase), reading.review(phase)
    return there is not None and there.value["timestamp"] is None and review is not None and review.decision is not None


def _is_left_over(reading: Reading, phase: Phase) -> bool:
    there = reading.feedback(phase)
    return there is not None and bool(there.value["attempt"] < reading.attempt(phase))


def _undecided(reading: Reading, phase: Phase) -> Value:
    """The feedback that an open gate waits with: nothing decided, and what it presents."""
    return {
        "phase_number": phase.number,
        "attempt": reading.attempt(phase),
        "reviewed": False,
        "approved": None,
        "timestamp": None,
        "comments": "",
        "requested_changes": [],
        "reviewed_content": reading.reviewed_content(phase),
        "action": "pending",
        "retry_count": reading.attempt(phase) - 1,
    }
