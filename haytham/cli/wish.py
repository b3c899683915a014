"""What a person asks of the next phase that runs: `resume --input`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from haytham.cli.context import AppContext, UsageError, sanitize

if TYPE_CHECKING:
    from haytham.session import Session
    from haytham.session.plan import PhasePlan, SessionPlan

_RUNS = ("run", "write", "run again", "next attempt")


def read_input(given: str | None) -> str | None:
    """The words as they were given, or from standard input; None where there are none."""
    if given is None:
        return None
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig") if given == "-" else given
    except UnicodeDecodeError:
        raise UsageError("standard input is not UTF-8 text; save what you ask for as UTF-8") from None
    if not text.strip():
        raise UsageError("the input is empty; say what you ask for")
    return text


def give_input(here: AppContext, session: Session, text: str, by: str) -> None:
    """Keep a person's words for the next phase that will run, which is told; refused where none will."""
    from haytham.cli.commands.review import stamp  # noqa: PLC0415
    from haytham.engine.autosnapshot import AutoSnapshotter  # noqa: PLC0415
    from haytham.events import Events  # noqa: PLC0415
    from haytham.session.paths import EVENTS, session_lock  # noqa: PLC0415
    from haytham.session.plan import SessionPlan  # noqa: PLC0415
    from haytham.session.review import save_request  # noqa: PLC0415

    with here.store.run_lock(session_lock(session.project_id, session.session_id)):
        for line in stamp(session, by):
            here.info(line)
        place = _next_to_run(SessionPlan(session.read()))
        phase = place.state.phase
        if place.next_action.action == "next attempt":
            AutoSnapshotter(here.history(session)).before_rerun(phase, "input for the next attempt")
        save_request(session, phase.number, text, by=by)
        if place.next_action.action == "next attempt":  # which the request began
            events = Events(session.store, session.prefix + EVENTS)
            events.emit("attempt_started", phase=phase.number, attempt=place.state.attempt + 1)
    here.info(sanitize(f"phase {phase.number}, {phase.name}, is given your input"))


def require_runnable_phase(session: Session) -> None:
    """Refuse input for a session in which no phase will run, before anything is changed for it."""
    from haytham.session.plan import SessionPlan  # noqa: PLC0415

    _next_to_run(SessionPlan(session.read()))


def _next_to_run(standing: SessionPlan) -> PhasePlan:
    """The first phase that will run: it is neither settled nor waits for review."""
    steps = [place.next_action.action for place in standing.places]
    if "rejected" in steps:
        raise UsageError("the session was rejected, so that no phase will run any more; leave --input out")
    found = next((place for place in standing.places if place.next_action.action in _RUNS), None)
    if found is None:
        raise UsageError("no phase will run any more that could be given input; haytham retry N runs one again")
    return found
