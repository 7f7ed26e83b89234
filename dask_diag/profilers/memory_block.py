"""One block of a program whose memory is sampled: in this process, and on clusters."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dask_diag.capture.cluster.recorder import ClusterRecorder
from dask_diag.capture.system.memory_sampler import BlockSampler

if TYPE_CHECKING:
    from dask_diag.capture.cluster.log import ClusterLog
    from dask_diag.capture.system.allocations import AllocationTracer

__all__ = ["MemoryBlock", "SampledSeries"]

Fault = Callable[[str, BaseException], None]


class SampledSeries(NamedTuple):
    """The samples of this process and its descendants, and what samples those of clusters."""

    rows: array[float]
    clusters: ClusterRecorder

    def logs(self) -> Sequence[ClusterLog]:
        """What was pulled of clusters, up to now."""
        self.clusters.pull()
        return self.clusters.logs


class MemoryBlock:
    """Samples from when it is entered until it is left; it may be entered again.

    With a client whose event loop runs the program, use ``async with``.

    Parameters
    ----------
    interval : float
        Seconds between samples.
    entered : callable
        Called with the series; returns its name.
    left : callable
        Called when all was sampled.
    fault : callable
        Called with what was done and the error: nothing is raised.
    traced : callable, optional
        Called with the name and what traces allocations, if they are to be traced.
    """

    def __init__(
        self,
        interval: float,
        entered: Callable[[SampledSeries], str],
        on_leaving: Callable[[], None],
        fault: Fault,
        traced: Callable[[str, AllocationTracer], None] | None = None,
    ) -> None:
        self._interval = interval
        self._entered = entered
        self._on_leaving = on_leaving
        self._fault = fault
        self._traced = traced
        self._tracer: AllocationTracer | None = None
        self._sampler: BlockSampler | None = None
        self._clusters = ClusterRecorder(fault)

    def __enter__(self) -> str:
        series = SampledSeries(array("d"), ClusterRecorder(self._fault))
        self._sampler, self._clusters = None, series.clusters
        name = self._entered(series)
        try:
            series.clusters.start({"processes": self._interval})
            failed = partial(self._fault, "to sample memory")
            self._sampler = BlockSampler(series.rows, self._interval, failed)
        except Exception as error:
            self._fault("to start sampling", error)
        self._tracer = None
        if self._traced is not None:
            self._start_tracer(name, self._traced)
        return name

    def _start_tracer(self, name: str, traced: Callable[[str, AllocationTracer], None]) -> None:
        from dask_diag.capture.system.allocations import AllocationTracer

        failed = partial(self._fault, "to trace allocations")
        try:
            self._tracer = AllocationTracer(self._interval, failed)
            traced(name, self._tracer)
        except Exception as error:
            failed(error)

    def __exit__(self, *args: object) -> None:
        if self._tracer is not None:
            self._tracer.stop()
        if self._sampler is not None:
            self._sampler.stop()
        try:
            self._clusters.stop()
        except Exception as error:
            self._fault("to leave clusters", error)
        self._on_leaving()

    async def __aenter__(self) -> str:
        """Enter on the event loop of an asynchronous client."""
        name = self.__enter__()
        await self._clusters.joined()
        return name

    async def __aexit__(self, *args: object) -> None:
        """Leave, and wait until all is pulled from clusters."""
        self.__exit__(*args)
        await self._clusters.finish()
