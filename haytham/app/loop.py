"""A caller's own loop around a session: they do the work of a cycle; snapshots and drift are looked after here."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from haytham.app.running import run_here
from haytham.engine.autosnapshot import without_autosnapshots

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham.app.session import Session
    from haytham.engine.drift import DriftReport
    from haytham.history.snapshot import Snapshot


@dataclass(frozen=True)
class Cycle:
    """A cycle: what the work returned or raised, snapshots that were taken, and what is known of drift.

    `snapshot` is the routine one, `recovery` that of an error or of drift; `is_refreshed` says that the loop went on
    from disk after it.
    """

    result: Any
    error: Exception | None
    snapshot: Snapshot | None
    recovery: Snapshot | None
    drift: DriftReport | None
    is_refreshed: bool


class AgentLoop:
    """Does work on a session, cycle after cycle; only the session's files are remembered from one to the next."""

    def __init__(self, session: Session, *, on_refresh: Callable[[Session], object] | None = None) -> None:
        self.session = session
        self._on_refresh = on_refresh

    def cycle(self, work: Callable[[Session], object]) -> Cycle:
        """Do the work once, and count it; an exception that it raises is in the result, with a recovery snapshot.

        An async callable is awaited. A text that the work returns is compared with the one before. After a refresh the
        session is opened anew and `on_refresh` is called with it. SessionPaused if the workflow says that drift pauses.
        """
        result, error = None, None
        try:
            with without_autosnapshots():
                result = work(self.session)
                if isinstance(result, Awaitable):
                    result = run_here(partial(_value, result), instead="session.history.take_step() after the work")
        except Exception as raised:  # noqa: BLE001 - where a cycle ends: whatever it raises is in its result
            error = raised
        text = result if isinstance(result, str) else None
        step = self.session.history.take_step(text=text, error=error)
        if step.is_refreshed:
            self._refresh()
        return Cycle(result, error, step.snapshot, step.recovery, step.report, step.is_refreshed)

    def _refresh(self) -> None:
        """Open the session anew from disk, as a process does that starts again."""
        self.session = self.session.workspace.open(self.session.project_id, self.session.session_id)
        if self._on_refresh is not None:
            self._on_refresh(self.session)


async def _value(result: Awaitable[Any]) -> Any:
    return await result
