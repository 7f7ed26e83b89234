"""The offset between this process's clock and the scheduler's, by messages there and back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

__all__ = ["ClockReading", "compare_clocks"]


class ClockReading(NamedTuple):
    """What to add to a time of this clock to get the scheduler's, as it was at `time`.

    `error` is half of the round trip: the offset is not further from the truth than that, however
    the time was divided between the way there and the way back.
    """

    time: float
    offset: float
    error: float


async def compare_clocks(
    ask: Callable[[], Awaitable[float]], clock: Callable[[], float], attempts: int
) -> ClockReading:
    """Ask for the other clock's time several times; the quickest answer is the best.

    Parameters
    ----------
    ask : callable
        Returns the other side's time.
    clock : callable
        This side's clock.
    attempts : int
    """
    best: ClockReading | None = None
    for _ in range(attempts):
        before = clock()
        other = await ask()
        after = clock()
        middle, error = (before + after) / 2, (after - before) / 2
        # The quickest round trip had the least waiting in it, so it bounds the offset most
        # narrowly; a mean would carry the delays of a busy event loop.
        if best is None or error < best.error:
            best = ClockReading(middle, other - middle, error)
    if best is None:
        raise ValueError("attempts: expected 1 or more, found 0")
    return best
