"""What callers of a history give, checked before anything is made of it; and whether a snapshot is due."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from haytham import clock
from haytham.document.check import check_text, unfit
from haytham.errors import InvalidValue
from haytham.policy import KINDS
from haytham.snapshot import retention

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.policy import Kind, Policy
    from haytham.snapshot.snapshot import Snapshot


def page(found: list[Snapshot], limit: int | None, offset: int) -> list[Snapshot]:
    """A part of a list."""
    for name, value in (("limit", limit), ("offset", offset)):
        if value is not None and (type(value) is not int or value < 0):
            raise InvalidValue(name, value, "a whole number, 0 or more")
    return found[offset:] if limit is None else found[offset : offset + limit]


def is_due(policy: Policy, last: Snapshot | None, done: int) -> bool:
    """Whether so many steps, or so much time, have gone by since the last snapshot."""
    if done - (0 if last is None else last.step) >= policy.frequency:
        return True
    return last is not None and bool(retention.older([last], timedelta(minutes=policy.interval_minutes), clock.now()))


def check_kind(kind: object) -> None:
    """Refuse a kind of snapshot that there is not."""
    if kind not in KINDS:
        raise InvalidValue("kind of snapshot", kind, ", ".join(KINDS))


def line(what: str, text: str | None) -> str | None:
    """One line of text, or none."""
    if text is not None and (not isinstance(text, str) or not text.strip() or not text.isprintable()):
        raise InvalidValue(what, text, "one line of text")
    return text if text is None else check_text(what, text)


def plain_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Refuse what would not come back from a file as it went in."""
    plain: dict[str, Any] = {}
    try:
        given = dict(metadata or {})
        plain = json.loads(json.dumps(given, allow_nan=False))
        fits = plain == given and not any(unfit(plain))
    except (TypeError, ValueError, RecursionError):
        fits = False
    if not fits:
        raise InvalidValue(
            "metadata", metadata, "a dict of text, finite numbers, true, false, None, lists and dicts of them"
        )
    return plain


def check_choice(older_than: str | timedelta | None, kind: Kind | None) -> timedelta | None:
    """What is to be let go, checked: the age as a length of time, and a kind that there is."""
    if kind is not None:
        check_kind(kind)
    return older_than if older_than is None or isinstance(older_than, timedelta) else retention.span(older_than)
