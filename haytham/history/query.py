"""Which snapshots a listing has: by kind, status, user and time."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from haytham import clock
from haytham.config.policy import KINDS
from haytham.errors import InvalidArgument
from haytham.history.retention import parse_duration, parse_time
from haytham.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from haytham.history.snapshot import Snapshot


@dataclass(frozen=True)
class SnapshotQuery:
    """What snapshots must be like; None is any. `since` is the earliest time."""

    kind: str | None = None
    status: str | None = None
    user: str | None = None
    since: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse a kind that does not exist."""
        if self.kind is not None and self.kind not in KINDS:
            raise InvalidArgument("kind", self.kind, ", ".join(KINDS))

    def matches(self, snapshot: Snapshot) -> bool:
        """Return whether a snapshot is one of those."""
        facts = (self.kind, snapshot.kind), (self.status, snapshot.status), (self.user, snapshot.user)
        is_alike = all(asked in (None, actual) for asked, actual in facts)
        return is_alike and (self.since is None or parse_time(snapshot.time) >= self.since)


def parse_since(since: str | datetime | None) -> datetime | None:
    """Return a time that is given as a date, a time or an age (`30d`); without a zone it is in UTC."""
    if since is None or isinstance(since, datetime):
        return since if since is None or since.tzinfo is not None else since.replace(tzinfo=UTC)
    for read in (parse_time, _parse_age):
        with suppress(TypeError, ValueError, OverflowError):
            return read(since)
    raise InvalidArgument("since", since, "a date, a time, or an age like 30d")


def _parse_age(age: str) -> datetime:
    return parse_time(clock.now()) - parse_duration(age)
