"""Which snapshots may go: pure decisions over values. What must stay stays, whatever the settings say."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from haytham.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from haytham.policy import Rule
    from haytham.snapshot.snapshot import Snapshot

_ALWAYS_KEPT = frozenset({"manual", "final"})
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(m|h|d|w)", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def outdated(snapshots: Sequence[Snapshot], rules: Mapping[str, Rule], *, now: str, kept: Collection[str]) -> list[str]:
    """The ids that the rules let go, of one session's snapshots in the order of their numbers."""
    for kind, rule in rules.items():
        if rule.keep_last is not None and rule.keep_last < 1:
            raise InvalidValue(f"retention.{kind}.keep_last", rule.keep_last, "1 or more")
    stays = protected(snapshots, kept)
    gone: set[str] = set()
    for kind, rule in rules.items():
        gone |= _let_go([one for one in snapshots if one.kind == kind], rule, now)
    return [one.id for one in snapshots if one.id in gone - stays]


def _let_go(snapshots: list[Snapshot], rule: Rule, now: str) -> set[str]:
    """What one rule lets go of its own kind."""
    surplus = snapshots[: -rule.keep_last] if rule.keep_last is not None else []
    days = rule.cleanup_after_days
    old = [] if days is None else older(snapshots, timedelta(days=days), now)
    return {one.id for one in (*surplus, *old)}


def older(snapshots: Iterable[Snapshot], age: timedelta, now: str) -> list[Snapshot]:
    """Those that were taken longer ago than that."""
    try:
        before = moment(now) - age
    except OverflowError:  # longer ago than a calendar goes back
        return []
    return [one for one in snapshots if moment(one.time) < before]


def protected(snapshots: Sequence[Snapshot], kept: Collection[str]) -> set[str]:
    """What is never let go: the newest, the last of each approval, labelled, manual and final ones, and `kept`."""
    approvals = {one.approval: one.id for one in snapshots if one.approval is not None}
    stays = {one.id for one in snapshots if one.label is not None or one.kind in _ALWAYS_KEPT}
    return {*stays, *approvals.values(), *kept, *(one.id for one in snapshots[-1:])}


def surplus(snapshots: Sequence[Snapshot], most: int, stays: Collection[str]) -> list[str]:
    """The oldest that go so that no more than so many are left, as far as those that must stay let them."""
    many = len(snapshots) - most
    return [one.id for one in snapshots if one.id not in stays][: max(many, 0)]


def span(text: object) -> timedelta:
    """A length of time as people write it: 90m, 12h, 30d, 2w."""
    found = _SPAN.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise InvalidValue("age", text, "a number and m, h, d or w, like 30d")
    try:
        return timedelta(**{_UNITS[found[2]]: float(found[1])})
    except OverflowError:
        raise InvalidValue("age", text, "one that a calendar has") from None


def moment(time: str) -> datetime:
    """A time as records say it; without a zone it is UTC."""
    found = datetime.fromisoformat(time)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
