"""How a worker's clock differs from the scheduler's, as long as it is measured."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from dask_diag.cluster.wire import host_id

if TYPE_CHECKING:
    from distributed.worker import Worker


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


_PINGS_AT_START = 20
_PINGS = 5
_SECONDS_BETWEEN_PINGS = 5.0
_SECONDS_TO_SECOND_READING = 0.5
"""How fast a clock drifts is not known before."""
_SECONDS_AT_END = 1.0


def clock_of(worker: object) -> Callable[[], float]:
    """The clock that measures on a worker."""
    return perf_counter


class WorkerClock:
    """Compares the clock of a worker with the scheduler's, unless they are one.

    Parameters
    ----------
    worker : Worker
    clock : callable
        What measures there.
    report : callable
        Awaited with each reading.
    fault : callable
        Called with what was done and the error: nothing is raised once it runs.

    Attributes
    ----------
    host : str
        The same in all processes that share this clock; empty if that is not known.
    """

    def __init__(
        self,
        worker: Worker,
        clock: Callable[[], float],
        report: Callable[[ClockReading], Awaitable[None]],
        fault: Callable[[str, BaseException], None],
    ) -> None:
        self.host = host_id() if clock is perf_counter else ""
        self._worker = worker
        self._clock = clock
        self._report = report
        self._fault = fault
        self._pinging: asyncio.Task[None] | None = None

    async def follow(self, host: str) -> None:
        """Report how the clock differs from that of the scheduler's host, now and from now on."""
        if self.host and self.host == host:
            return
        await self._report(await self._compare(_PINGS_AT_START))
        self._pinging = asyncio.ensure_future(self._ping())

    async def compare_at_end(self) -> None:
        """Compare once more, if the clocks are not one: after this, nothing is measured."""
        if self._pinging is None:
            return
        try:
            await asyncio.wait_for(self._compare_and_report(), _SECONDS_AT_END)
        except Exception as error:
            self._fault("comparing clocks", error)

    def stop(self) -> None:
        """Compare no more."""
        if self._pinging is not None:
            self._pinging.cancel()

    async def _compare(self, attempts: int) -> ClockReading:
        async def ask() -> float:
            answer = await self._worker.scheduler.dask_diag_clock()
            return float(answer["time"])

        return await compare_clocks(ask, self._clock, attempts)

    async def _ping(self) -> None:
        """Compare the clocks again every few seconds: they drift."""
        pause = _SECONDS_TO_SECOND_READING
        while True:
            await asyncio.sleep(min(pause, _SECONDS_BETWEEN_PINGS))
            pause *= 2
            try:
                await self._compare_and_report()
            except Exception as error:
                self._fault("comparing clocks", error)
                return

    async def _compare_and_report(self) -> None:
        await self._report(await self._compare(_PINGS))
