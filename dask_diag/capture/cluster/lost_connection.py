"""Schedulers that do not answer any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ConnectionLostError", "unless_lost"]

_SECONDS_WITHOUT_SCHEDULER = 0.5


class ConnectionLostError(ConnectionError):
    """The scheduler does not know a session: it took its client for gone."""


async def unless_lost(
    request: Coroutine[object, object, None], client: Client | None, seconds: float
) -> None:
    """Wait so long for what a client asks its scheduler for, but not for one that is gone."""
    asked = asyncio.ensure_future(request)
    start = perf_counter()
    while not asked.done():
        connection = getattr(client, "scheduler_comm", None)
        is_lost = connection is None or connection.closed()
        most = _SECONDS_WITHOUT_SCHEDULER if is_lost else seconds
        if perf_counter() - start > most:
            asked.cancel()
            raise TimeoutError(f"no answer in {most:g} s")
        await asyncio.wait([asked], timeout=_SECONDS_WITHOUT_SCHEDULER)
    await asked
