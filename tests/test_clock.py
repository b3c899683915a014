"""Time and ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from haytham import clock

MOMENT = datetime(2024, 11, 24, 10, 0, 0, 512_000, tzinfo=UTC)


def test_time_and_ids_can_be_held_still():
    """A replaced clock gives its own time and ids, and the real one comes back."""
    with clock.override(lambda: MOMENT, lambda: "9f3ac1"):
        assert (clock.now(), clock.new_id()) == ("2024-11-24T10:00:00Z", "20241124-100000512-9f3ac1")
    assert clock.now() != "2024-11-24T10:00:00Z"


def test_ids_sort_by_time():
    """A later id sorts behind an earlier one."""
    moments = iter(MOMENT + timedelta(milliseconds=step) for step in (0, 1, 10, 1000, 100_000))
    with clock.override(lambda: next(moments)):
        ids = [clock.new_id() for _ in range(5)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 5
