"""All profilers over one block: the one list of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ParamSpec

from dask_diag.capture.result_sizes import ResultSizes
from dask_diag.profilers.base import Diagnostic
from dask_diag.profilers.cache import CacheProfiler
from dask_diag.profilers.profiler import Profiler
from dask_diag.profilers.resources import ResourceProfiler
from dask_diag.profilers.result_metric import ResultMetric
from dask_diag.profilers.sampling import SamplingProfiler

if TYPE_CHECKING:
    from typing_extensions import Self

    from dask_diag.capture.system.allocations import Allocations, AllocationTracer
    from dask_diag.model.recording import Recording
    from dask_diag.views.text import Summary

__all__ = ["ProfilerGroup"]

P = ParamSpec("P")
_LONGEST_PAUSE = 0.5
"""Seconds between checks of the memory, where it is traced."""


class ProfilerGroup:
    """Runs all profilers over a block, and notes where.

    Parameters
    ----------
    interval, waits, metric, metric_name, unit
        As the profilers have them; but results are measured in bytes by default: `ResultSizes`.
    code : bool or str
        Whether to note the code that calls, in which what looks like a secret is masked; or the
        code to note in its place, as that of a notebook's cell.
    trace_memory : bool
        Whether to trace who allocates, as `MemorySampler` does.

    Attributes
    ----------
    profilers : tuple of Diagnostic
    """

    def __init__(
        self,
        *,
        interval: float = 0.5,
        waits: bool = False,
        metric: ResultMetric | None = None,
        metric_name: str | None = None,
        unit: str | None = None,
        code: bool | str = True,
        trace_memory: bool = False,
    ) -> None:
        self.tasks = Profiler(waits)
        self.cache = CacheProfiler(ResultSizes() if metric is None else metric, metric_name, unit)
        self.resources = ResourceProfiler(interval)
        self.stacks = SamplingProfiler()
        self.tasks.share_clusters([self.cache, self.resources, self.stacks])
        self.tasks.measure_for(self.stacks)
        self.tasks.measure_for(self.resources)
        if metric is None:
            # Where a result was made it is in the processor's cache; and to measure it elsewhere
            # would keep the scheduler from its work.
            self.tasks.measure_for(self.cache)
        self.profilers: tuple[Diagnostic, ...] = (
            self.tasks,
            self.cache,
            self.resources,
            self.stacks,
        )
        self._code = code
        self._with_code = code is not False
        self._trace_memory = trace_memory
        self._tracer: AllocationTracer | None = None
        self._faults: list[str] = []
        self._environment: list[tuple[str, str, str]] = []
        self._entered: list[Diagnostic] = []
        self._pid = 0

    def __repr__(self) -> str:
        from dask_diag.profilers.short_text import short_text

        return short_text(self, self.tasks.session, is_active=self.tasks.is_active)

    def __enter__(self) -> Self:
        self._faults = []
        self._pid = os.getpid()
        self._entered = []
        self._guarded(self._note_environment)
        self._tracer = None
        for profiler in self.profilers:
            self._guarded(self._enter, profiler)
        self._start_tracing()
        return self

    def __exit__(self, *args: object) -> None:
        if self._tracer is not None:
            self._guarded(self._tracer.stop)
        # While all are active, so that each has the last of what it wants.
        self._guarded(self.tasks.leave_clusters)
        for profiler in reversed(self._entered):
            self._guarded(profiler.__exit__, *args)

    def _start_tracing(self) -> None:
        """Trace allocations, last of all: what is imported before need not be traced."""
        if self._trace_memory:
            self._guarded(self._start_tracer)

    def _start_tracer(self) -> None:
        from dask_diag.capture.system.allocations import AllocationTracer

        self._tracer = AllocationTracer(_LONGEST_PAUSE, self._tracing_failed)

    def _tracing_failed(self, error: Exception) -> None:
        self._faults.append(f"{type(self).__name__} failed to trace allocations: {error}")

    def _allocated(self) -> Allocations | None:
        """The last snapshot of allocations, if they are traced."""
        return None if self._tracer is None else self._tracer.last

    async def __aenter__(self) -> Self:
        """Enter on the event loop of an asynchronous client."""
        self.__enter__()
        await self.tasks.clusters.joined()
        return self

    async def __aexit__(self, *args: object) -> None:
        """Wait until all is pulled from clusters, and leave."""
        try:
            await self.tasks.clusters.finish()
        finally:
            self.__exit__(*args)

    def _enter(self, profiler: Diagnostic) -> None:
        profiler.__enter__()
        self._entered.append(profiler)

    def _is_left_to_parent(self) -> bool:
        """Whether the block is left by a process whose parent has entered it, too, and records it.

        It was forked in the block, or is a worker that runs the main module again as it starts.
        """
        return os.getpid() != self._pid

    @property
    def faults(self) -> tuple[str, ...]:
        """What kept it from being complete; also among the notices of `recording`."""
        return tuple(self._faults)

    @property
    def recording(self) -> Recording:
        """What has been measured so far."""
        from dask_diag.builders.allocations import allocations_table
        from dask_diag.builders.recording import environment_table
        from dask_diag.model.recording import Recording

        combined = Recording.combine([profiler.recording for profiler in self.profilers])
        return replace(
            combined,
            environment=environment_table(self._environment),
            allocations=allocations_table({"": self._allocated()}, self._with_code),
            notices=(*combined.notices, *self._faults),
        )

    def summary(self, *, verbose: bool = False) -> Summary:
        """A table of what was measured, by function, for a terminal or a notebook.

        With `verbose` it has remarks on the profilers themselves, too.
        """
        from dask_diag.views.summary import summary

        return summary(self.recording, verbose=verbose)

    def _note_environment(self) -> None:
        from dask_diag.capture.system.environment import calling_code, environment, given_code

        self._environment = environment()
        if isinstance(self._code, str):
            self._environment += given_code(self._code)
        elif self._code:
            self._environment += calling_code(sys._getframe())

    def _guarded(self, work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Do it, and note an error to show later: the user's computation comes first."""
        try:
            work(*args, **kwargs)
        except Exception as error:
            self._note_fault(f"what was measured is not complete: {error}")

    def _note_fault(self, text: str) -> None:
        fault = f"{type(self).__name__}: {text}"
        if fault not in self._faults:
            self._faults.append(fault)
