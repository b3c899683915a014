"""Recovery points of a session: what was kept before something was done to it, or when something went wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from haytham.app import repair
from haytham.errors import HaythamError, InvalidRequest
from haytham.session.state import EMPTY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.app.history import SessionHistory
    from haytham.app.results import RestoreResult
    from haytham.app.session import Session
    from haytham.config.policy import SnapshotKind
    from haytham.history.snapshot import Snapshot

KINDS: tuple[SnapshotKind, ...] = ("recovery", "pre_operation")


@dataclass(frozen=True)
class StatePart:
    """A part of a session's state that a recovery brought back, and the value before it."""

    name: str
    value: Mapping[str, Any]
    before: Mapping[str, Any]

    @property
    def is_changed(self) -> bool:
        """Return whether the recovery changed it."""
        return self.value != self.before


@dataclass(frozen=True)
class RecoveryResult:
    """What a recovery did: the restore, and task, mailbox, context, memory and goals as they are now.

    `parts` is empty if the state cannot be read.
    """

    restored: RestoreResult
    parts: tuple[StatePart, ...]


@dataclass(frozen=True)
class ClearResult:
    """The recovery points that were deleted, by id, and those that stay with the reason."""

    deleted: tuple[str, ...]
    kept: tuple[tuple[Snapshot, HaythamError], ...]


class Recovery:
    """The recovery points of a session: list them, go back to one, delete them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def points(self) -> list[Snapshot]:
        """Return the recovery points, newest first."""
        return [snapshot for snapshot in self._history.list() if snapshot.kind in KINDS]

    def find(self, which: str | None = None) -> Snapshot:
        """Return a recovery point by its number or a part of its id, or the newest; InvalidRequest for any other."""
        points = self.points()
        if not points:
            raise InvalidRequest("there is nothing to recover: nothing was restored, and nothing went wrong")
        if which is None:
            return points[0]
        snapshot = self._history.find(which)
        if snapshot.kind not in KINDS:
            hint = f"restore it with: haytham restore {snapshot.id}"
            raise InvalidRequest(f"snapshot {snapshot.number} is no recovery point but of kind {snapshot.kind}; {hint}")
        return snapshot

    def recover(self, which: str | Snapshot | None = None) -> RecoveryResult:
        """Verify a recovery point, the newest by default, and make the session what it was then.

        InvalidDocument, with all that is wrong, for a damaged one: nothing is restored.
        """
        point = self.find(which) if which is None or isinstance(which, str) else which
        self._history.check(point)
        documents, before = self._session.documents, self._parts()
        restored = repair.restore(documents, self._history, point)
        parts = tuple(StatePart(name, value, before.get(name, {})) for name, value in self._parts().items())
        facts: dict[str, Any] = {"snapshot": point.id, "number": point.number, "recovery": restored.recovery.id}
        documents.events.emit("recovered", **facts, parts=[part.name for part in parts if part.is_changed])
        return RecoveryResult(restored, parts)

    def clear(self) -> ClearResult:
        """Delete all recovery points but those that a pin or a fork holds."""
        deleted, kept = [], []
        for point in self.points():
            try:
                deleted.append(self._history.delete(point))
            except HaythamError as error:
                kept.append((point, error))
        return ClearResult(tuple(deleted), tuple(kept))

    @property
    def _history(self) -> SessionHistory:
        return self._session.history

    def _parts(self) -> dict[str, dict[str, Any]]:
        """Return the parts of the state by name; nothing if it cannot be read."""
        try:
            state = self._session.state
        except (HaythamError, OSError):
            return {}
        context = dict(state["context"])
        goals = {"goals": context.pop("goals", EMPTY["context"]["goals"])}
        return {
            "task": state["task"],
            "mailbox": state["mailbox"],
            "context": context,
            "memory": state["memory"],
            "goals": goals,
        }
