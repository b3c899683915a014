"""The only source of time and of new ids; tests can override both."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


def _system_time() -> datetime:
    return datetime.now(UTC)


def _system_suffix() -> str:
    return os.urandom(3).hex()


_time: Callable[[], datetime] = _system_time
_suffix: Callable[[], str] = _system_suffix


def now() -> str:
    """Return the current time for documents: ISO 8601, UTC, whole seconds."""
    return _time().strftime("%Y-%m-%dT%H:%M:%SZ")


def new_id() -> str:
    """Return a new id that sorts by time, like `20241124-100000512-9f3ac1`."""
    moment = _time()
    return f"{moment:%Y%m%d-%H%M%S}{moment.microsecond // 1000:03d}-{_suffix()}"


def newest(moments: Iterable[str]) -> str:
    """Return the newest of some times in documents; one without a time zone is in UTC."""
    return max(moments, key=_instant)


def _instant(moment: str) -> datetime:
    instant = datetime.fromisoformat(moment)
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def timestamp() -> float:
    """Return the current time in seconds, to compare with the times of files."""
    return _time().timestamp()


def monotonic() -> float:
    """Return seconds from an arbitrary start, to measure durations; never set back."""
    return time.monotonic()


@contextmanager
def override(moment: Callable[[], datetime], suffix: Callable[[], str] = _system_suffix) -> Iterator[None]:
    """Take the time and the random part of ids from the caller for a while."""
    global _time, _suffix
    before = _time, _suffix
    _time, _suffix = moment, suffix
    try:
        yield
    finally:
        _time, _suffix = before
