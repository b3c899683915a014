"""Running to the end where the caller does not: an event loop of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from haytham.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


def run_here(call: Callable[[], Coroutine[Any, Any, T]], *, instead: str) -> T:
    """Await what `call` returns in a loop of its own; InvalidRequest where one is running, with what to await."""
    import asyncio  # noqa: PLC0415 - only where something runs

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        is_running = False
    else:
        is_running = True
    if is_running:
        raise InvalidRequest(f"an event loop is running here; await {instead} instead")
    return asyncio.run(call())
