"""Comparison of a worker's clock with the scheduler's, while the worker measures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from dask_diag.cluster.wire import host_id

if TYPE_CHECKING:
    from distributed.worker import Worker

    from dask_diag.cluster.wire import WorkerFacts


class ClockReading(NamedTuple):
    """Offset from this clock to the scheduler's at a time of this clock.

    `error` is half of the round trip. The offset is no further from the truth, however the time was
    divided between the two ways.
    """

    time: float
    offset: float
    error: float


async def compare_clocks(
    ask: Callable[[], Awaitable[float]], clock: Callable[[], float], attempts: int
) -> ClockReading:
    """Ask for the other clock's time several times and use the quickest answer.

    Parameters
    ----------
    ask : callable
        Returns the time of the other clock.
    clock : callable
        Clock of this process.
    attempts : int
    """
    readings = []
    for _ in range(attempts):
        before = clock()
        other = await ask()
        after = clock()
        middle = (before + after) / 2
        readings.append(ClockReading(middle, other - middle, (after - before) / 2))
    # The quickest round trip contains the least waiting and bounds the offset most narrowly. A
    # mean would contain the delays of a busy event loop.
    return min(readings, key=attrgetter("error"))


_PINGS_AT_START = 20
_PINGS = 5
_SECONDS_BETWEEN_PINGS = 5.0
_SECONDS_TO_SECOND_READING = 0.5
"""The drift of a clock is not known before the second reading."""
_SECONDS_AT_END = 1.0


def clock_of(worker: object) -> Callable[[], float]:
    """The clock that measures on a worker."""
    return perf_counter


class WorkerClock:
    """Compares the clock of a worker with the scheduler's, unless both share a clock.

    Parameters
    ----------
    worker : Worker
    clock : callable
        Clock of the measurements.
    report : callable
        Awaited with each reading, as facts of the worker.
    fault : callable
        Called with an action and its error; nothing is raised after `follow`.

    Attributes
    ----------
    host : str
        Name of this clock, equal in all processes that share the clock; empty if unknown.
    """

    def __init__(
        self,
        worker: Worker,
        clock: Callable[[], float],
        report: Callable[[WorkerFacts], Awaitable[object]],
        fault: Callable[[str, BaseException], None],
    ) -> None:
        self.host = host_id() if clock is perf_counter else ""
        self._worker = worker
        self._clock = clock
        self._report = report
        self._fault = fault
        self._pinging: asyncio.Task[None] | None = None

    async def follow(self, host: str) -> None:
        """Report the offset to the clock of the scheduler's host, now and regularly."""
        if self.host and self.host == host:
            return
        await self._compare(_PINGS_AT_START)
        self._pinging = asyncio.ensure_future(self._ping())

    async def compare_at_end(self) -> None:
        """Compare different clocks once more: nothing is measured after that."""
        if self._pinging is None:
            return
        try:
            await asyncio.wait_for(self._compare(_PINGS), _SECONDS_AT_END)
        except Exception as error:
            self._fault("comparing clocks", error)

    def stop(self) -> None:
        """Stop comparing."""
        if self._pinging is not None:
            self._pinging.cancel()

    async def _compare(self, attempts: int) -> None:
        ask = self._worker.scheduler.dask_diag_clock
        reading = await compare_clocks(ask, self._clock, attempts)
        await self._report({"clock": [list(reading)]})

    async def _ping(self) -> None:
        """Compare drifting clocks again every few seconds."""
        pause = _SECONDS_TO_SECOND_READING
        while True:
            await asyncio.sleep(min(pause, _SECONDS_BETWEEN_PINGS))
            pause *= 2
            try:
                await self._compare(_PINGS)
            except Exception as error:
                self._fault("comparing clocks", error)
                return
