"""A worker: runs the sessions of a workspace that can go on, one after the other, beside other workers."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from haytham import clock
from haytham.app.decisions import run_owner
from haytham.errors import AlreadyRunning, HaythamError, SessionNotReady
from haytham.session.summary import summarize
from haytham.storage.base import current_digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from haytham.app.session import Session
    from haytham.app.workspace import Workspace
    from haytham.engine.result import RunResult

log = logging.getLogger(__name__)

_READY = "in_progress"
_STOPPED = ("failed", "paused")  # after these a person has to act, whatever the documents say
_LOGS = (".jsonl",)  # grow with each run, also with one that changes nothing
_POLL = 1.0  # seconds between two looks for sessions that can go on
_LOOK_SHARE = 10  # a look takes at most one part in ten of the time


@dataclass(frozen=True)
class WorkResult:
    """A session that a worker ran: how the run ended, or the error that ended it."""

    session: Session
    result: RunResult | None
    error: Exception | None = None


class DocumentsSeen:
    """The documents of a session at one moment, without its logs, by change token or digest."""

    def __init__(self, session: Session) -> None:
        store, prefix = session.documents.store, session.documents.prefix
        versions = store.versions(prefix)
        self._tokens = {key: token for key, token in versions.items() if not key.endswith(_LOGS)}
        self._contents = {key: current_digest(store, key) for key, token in self._tokens.items() if token is None}
        self._store = store

    def is_same(self, now: DocumentsSeen) -> bool:
        """Return whether nothing has changed since; a file that had no change token then is compared by content."""
        if self._tokens.keys() != now._tokens.keys():
            return False
        return all(self._has(key, token) for key, token in now._tokens.items())

    def _has(self, key: str, token: object | None) -> bool:
        if self._tokens[key] is not None:
            return self._tokens[key] == token
        return self._contents[key] == current_digest(self._store, key)


class Worker:
    """Looks for sessions that can go on, and runs them; the run lock of a session keeps other workers away.

    A session that cannot go on is looked at again when its documents have changed; one that another process runs, at
    each look, as that may die.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        by: str | None = None,
        on_start: Callable[[Session], object] | None = None,
        on_result: Callable[[WorkResult], object] | None = None,
    ) -> None:
        self._workspace, self._by = workspace, by
        self._on_start, self._on_result = on_start, on_result
        self._stopped: dict[str, DocumentsSeen] = {}  # by session: its documents when it could not go on

    async def work(self, *, once: bool) -> tuple[WorkResult, ...]:
        """Run sessions: with `once` until no session can go on, and return the results; else without end."""
        import asyncio  # noqa: PLC0415 - only where something runs

        results: list[WorkResult] = []
        while True:
            begun = clock.monotonic()
            ran = await self._pass()
            results += ran if once else ()
            if not ran and once:
                return tuple(results)
            if not ran:
                await asyncio.sleep(max(_POLL, _LOOK_SHARE * (clock.monotonic() - begun)))

    async def _pass(self) -> list[WorkResult]:
        """Look at each session once, and run those that can go on; return the results."""
        results = []
        for pair in self._workspace.folders():
            session = self._workspace.open(*pair)
            result = await self._run(session) if self._can_go_on(session) else None
            if result is not None:
                results.append(result)
        return results

    def _can_go_on(self, session: Session) -> bool:
        """Return whether a session can go on and nobody runs it; remember one that cannot."""
        if run_owner(session.documents) is not None:
            return False
        seen, now = self._stopped.get(session.id), DocumentsSeen(session)
        if seen is not None and seen.is_same(now):
            self._stopped[session.id] = now
            return False
        if self._is_ready(session):
            return True
        self._stopped[session.id] = now
        return False

    def _is_ready(self, session: Session) -> bool:
        with suppress(HaythamError, OSError):  # what cannot be read cannot go on: haytham validate says why
            status = session.documents.read_consistently(summarize).status
            return status == _READY and self._workspace.is_trusted(session.documents)
        return False

    async def _run(self, session: Session) -> WorkResult | None:
        """Run a session; None if another process was faster."""
        if self._on_start is not None:
            self._on_start(session)
        try:
            result = WorkResult(session, await session.run_async(by=self._by, only_if=_READY))
        except (AlreadyRunning, SessionNotReady):
            return None
        except Exception as error:
            log.debug("session %s", session.id, exc_info=error)
            result = WorkResult(session, None, error)
        if result.result is None or result.result.status in _STOPPED:
            self._stopped[session.id] = DocumentsSeen(session)
        if self._on_result is not None:
            self._on_result(result)
        return result
