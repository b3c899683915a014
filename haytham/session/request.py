"""What a person asks for this time: their words, kept with the attempt that they are given to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.document.check import check_text
from haytham.errors import InvalidValue
from haytham.session import layout
from haytham.session.gate import Gate
from haytham.text import conflict_lines

if TYPE_CHECKING:
    from haytham.session.session import Session


def save_request(session: Session, number: int, text: str, *, by: str | None = None) -> None:
    """Keep a request for the next task of a phase, word for word.

    Where changes are wanted that is a task of the next attempt, which is started first: hold the run lock, as for a
    retry. Another request that somebody was given is put aside with its attempt; one that nobody was given gives way.
    Decisions made in an editor are stamped before all that, in the name of `by`.
    """
    if not check_text("request", text).strip():
        raise InvalidValue("request", text, "words that ask for something")
    if conflict_lines(text):
        raise InvalidValue("request", text, "words without the markers of a git conflict")
    gate = Gate(session)
    session.make_folders()
    gate.finish()
    gate.stamp(by)
    with session.store.lock(layout.session_lock(session.project_id, session.session_id)):
        reading = session.read()
        phase = reading.there(number)
        review = reading.review(phase)
        if review is not None and review.decision == "changes" and reading.is_current(phase):
            gate.next_attempt(number)
        elif reading.request(phase) not in ("", text):
            gate.keep_copy(number)
        session.store.write(reading.folder(phase) + layout.REQUEST, text.encode())
