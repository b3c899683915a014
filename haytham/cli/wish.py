"""What a person asks of the next phase that runs: `resume --input`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from haytham.cli.context import Here, Usage, harmless

if TYPE_CHECKING:
    from haytham.session import Session
    from haytham.session.standing import Place, Standing

_RUNS = ("run", "write", "run again", "next attempt")


def read_wish(given: str | None) -> str | None:
    """The words as they were given, or from standard input; None where there are none."""
    if given is None:
        return None
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig") if given == "-" else given
    except UnicodeDecodeError:
        raise Usage("standard input is not UTF-8 text; save what you ask for as UTF-8") from None
    if not text.strip():
        raise Usage("the input is empty; say what you ask for")
    return text


def hand_over(here: Here, session: Session, text: str, by: str) -> None:
    """Keep a person's words for the next phase that will run, which is told; refused where none will."""
    from haytham.cli.decide import stamp  # noqa: PLC0415
    from haytham.event import Events  # noqa: PLC0415
    from haytham.keeping import Keeper  # noqa: PLC0415
    from haytham.session.layout import EVENTS, session_lock  # noqa: PLC0415
    from haytham.session.request import save_request  # noqa: PLC0415
    from haytham.session.standing import Standing  # noqa: PLC0415

    with here.store.run_lock(session_lock(session.project_id, session.session_id)):
        for line in stamp(session, by):
            here.say(line)
        place = _next_to_run(Standing(session.read()))
        phase = place.facts.phase
        if place.verdict.step == "next attempt":
            Keeper(here.history(session)).before_again(phase, "input for the next attempt")
        save_request(session, phase.number, text, by=by)
        if place.verdict.step == "next attempt":  # which the request began
            events = Events(session.store, session.prefix + EVENTS)
            events.emit("attempt_started", phase=phase.number, attempt=place.facts.attempt + 1)
    here.say(harmless(f"phase {phase.number}, {phase.name}, is given your input"))


def check_wish(session: Session) -> None:
    """Refuse input for a session in which no phase will run, before anything is changed for it."""
    from haytham.session.standing import Standing  # noqa: PLC0415

    _next_to_run(Standing(session.read()))


def _next_to_run(standing: Standing) -> Place:
    """The first phase that will run: it is neither settled nor waits for review."""
    steps = [place.verdict.step for place in standing.places]
    if "rejected" in steps:
        raise Usage("the session was rejected, so that no phase will run any more; leave --input out")
    found = next((place for place in standing.places if place.verdict.step in _RUNS), None)
    if found is None:
        raise Usage("no phase will run any more that could be given input; haytham retry N runs one again")
    return found
