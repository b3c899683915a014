"""When retention next has something to delete in a session: a derived note, so that taking a snapshot lists no others.

The note is in the cache. One that is lost, damaged or made for other rules counts as due.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.errors import HaythamError
from haytham.storage.base import cache_of
from haytham.text import text_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from haytham.config.policy import RetentionRule
    from haytham.history.catalog import HistoryStore
    from haytham.history.snapshot import Snapshot

log = logging.getLogger(__name__)

_NOTE = "due.json"
_ALWAYS = 0


@dataclass(frozen=True)
class Schedule:
    """By kind the number from which on a new snapshot is one too many, and the time when one gets too old."""

    rules: str
    numbers: Mapping[str, int]
    time: str | None

    def is_due(self, rules: Mapping[str, RetentionRule], taken: Snapshot | None = None) -> bool:
        """Return whether a rule may have something to delete now, once `taken` was taken."""
        if self.rules != _digest(rules) or (self.time is not None and parse_time(clock.now()) >= parse_time(self.time)):
            return True
        return taken is not None and taken.number >= self.numbers.get(taken.kind, taken.number + 1)


def make_schedule(snapshots: Sequence[Snapshot], rules: Mapping[str, RetentionRule]) -> Schedule:
    """Return the schedule of a session's snapshots, from which the rules have deleted what they could."""
    newest = snapshots[-1].number if snapshots else 0
    counts = {kind: sum(snapshot.kind == kind for snapshot in snapshots) for kind in rules}
    room = {kind: rule.keep_last - counts[kind] for kind, rule in rules.items() if rule.keep_last is not None}
    numbers = {kind: newest + left + 1 if left > 0 else _ALWAYS for kind, left in room.items()}
    times = [time for kind, rule in rules.items() for time in _expiries(snapshots, kind, rule)]
    return Schedule(_digest(rules), numbers, min(times).isoformat() if times else None)


def _expiries(snapshots: Sequence[Snapshot], kind: str, rule: RetentionRule) -> list[datetime]:
    """Return when snapshots of a kind get too old, those that are there and one that is taken now."""
    if rule.cleanup_after_days is None:
        return []
    now, age = parse_time(clock.now()), timedelta(days=rule.cleanup_after_days)
    taken = [parse_time(snapshot.time) for snapshot in snapshots if snapshot.kind == kind]
    try:
        return [time + age for time in (now, *taken) if time + age >= now]  # an older one is protected
    except OverflowError:  # later than any calendar
        return []


def read_schedule(archive: HistoryStore) -> Schedule | None:
    """Return the note of a session; None if there is none that can be read."""
    try:
        facts = json.loads(cache_of(archive.store).read(_key(archive)))
        schedule = Schedule(**facts)
        if schedule.time is not None:
            parse_time(schedule.time)
    except (HaythamError, OSError, ValueError, TypeError, RecursionError):
        return None
    return schedule if isinstance(schedule.numbers, dict) and all(map(_is_number, schedule.numbers.values())) else None


def write_schedule(archive: HistoryStore, schedule: Schedule) -> None:
    """Write the note of a session; it is derived, so that a folder without write permission is no error."""
    try:
        cache_of(archive.store).write(_key(archive), json.dumps(asdict(schedule)).encode())
    except (HaythamError, OSError) as error:
        log.debug("no schedule was kept: %s", error)


def parse_time(time: str) -> datetime:
    """Return the time of a record; without a zone it is UTC."""
    parsed = datetime.fromisoformat(time)
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def _is_number(value: Any) -> bool:
    return type(value) is int


def _digest(rules: Mapping[str, RetentionRule]) -> str:
    return text_digest(repr(sorted(rules.items(), key=lambda item: item[0])))


def _key(archive: HistoryStore) -> str:
    return f"{archive.session.project_id}/history/snapshots/{archive.session.session_id}/{_NOTE}"
