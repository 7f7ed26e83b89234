"""How a worker's clock differs from the scheduler's, as long as it is measured."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING

from dask_diag.capture.cluster.clock import ClockReading, compare_clocks
from dask_diag.capture.cluster.host import host_id

if TYPE_CHECKING:
    from distributed.worker import Worker

__all__ = ["WorkerClock"]

_PINGS_AT_START = 20
_PINGS = 5
_SECONDS_BETWEEN_PINGS = 5.0


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
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_PINGS)
            try:
                await self._report(await self._compare(_PINGS))
            except Exception as error:
                self._fault("comparing clocks", error)
                return
