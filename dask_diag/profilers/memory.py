"""The sampler of memory: named series over parts of a program, to be compared."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_diag.capture.session import Session
from dask_diag.cluster.recorder import ClusterRecorder
from dask_diag.errors import ArgumentTypeError, ArgumentValueError, number
from dask_diag.system.interpreter import growing_array
from dask_diag.system.samplers import BlockSampler

if TYPE_CHECKING:
    import pandas

    from dask_diag.cluster.log import ClusterLog
    from dask_diag.model.recording import Recording
    from dask_diag.system.allocations import AllocationTracer
    from dask_diag.views.text import Summary


Fault = Callable[[str, BaseException], None]


class SampledSeries(NamedTuple):
    """Samples of this process and its descendants, and the recorder of clusters."""

    rows: array[float]
    clusters: ClusterRecorder

    def logs(self) -> Sequence[ClusterLog]:
        """Rows pulled from clusters so far."""
        self.clusters.pull()
        return self.clusters.logs


class MemoryBlock:
    """Samples memory while the block is entered, also several times.

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
        series = SampledSeries(growing_array("d"), ClusterRecorder(self._fault))
        self._sampler, self._clusters = None, series.clusters
        name = self._entered(series)
        try:
            series.clusters.start({"processes": self._interval})
            series.clusters.wait()
            failed = partial(self._fault, "to sample memory")
            self._sampler = BlockSampler(series.rows, self._interval, failed)
        except Exception as error:
            self._fault("to start sampling", error)
        self._tracer = None
        if self._traced is not None:
            self._start_tracer(name, self._traced)
        return name

    def _start_tracer(self, name: str, traced: Callable[[str, AllocationTracer], None]) -> None:
        from dask_diag.system.allocations import AllocationTracer

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


MEMORY_KINDS = ("process", "rss", "pss", "uss")


class MemorySampler:
    """Sample the memory of this process and its child processes, in named parts of a program.

    On a cluster of distributed, also the memory of the workers and the scheduler.

    Parameters
    ----------
    trace : bool, default False
        Record which functions and lines allocated the memory in use at the peak of each block, with
        tracemalloc: see `peak_allocations`. Code that allocates many small Python objects runs 2 to
        12 times slower; code that computes with large arrays hardly slows down.
    code : bool, default True
        With `trace`, also record the source of these lines. Literals and comments that look like
        secrets are masked.

    Attributes
    ----------
    samples : dict of str to list of (float, float)
        For each label: seconds since 1970 and bytes of each sample, as in distributed.
    recording : Recording
        The samples so far, in the tables ``memory`` and ``allocations``.

    See Also
    --------
    task_memory : The memory of tasks.

    Notes
    -----
    Any number of blocks may run at the same time, in any threads; each has its own sampling thread.
    A label names one block. If a label is used again, a number is appended: ``"load (2)"`` is the
    second block of ``"load"``.

    Resident memory (RSS) counts shared pages once per process. Proportional memory (PSS) divides
    shared pages among the processes. Unique memory (USS) excludes shared pages. On Linux all three
    are read, elsewhere those that psutil knows. PSS and USS are expensive to read, so they are read
    in as many samples as fit into 2% of the time.

    With `trace`, a snapshot of all allocations is taken whenever the process has more memory than
    at the last snapshot, for at most 10% of the time. The last snapshot is reported, and how near
    the peak it is. It covers allocations by Python or numpy in this process since the block began.
    tracemalloc is stopped at the end of the block, unless it was on before.

    Examples
    --------
    >>> from dask_diag import MemorySampler
    >>> ms = MemorySampler()
    >>> with ms.sample("one"):
    ...     block = bytearray(50_000_000)
    >>> with ms.sample("two", interval=0.01):
    ...     del block
    >>> list(ms.samples)
    ['one', 'two']
    >>> figure = ms.plot(align=True)
    """

    draws = "memory"

    def __init__(self, *, trace: bool = False, code: bool = True) -> None:
        self._trace = trace
        self._with_code = code
        self.session = Session()
        self._lock = threading.Lock()
        self._measures: dict[str, str] = {}
        self._series: dict[str, SampledSeries] = {}
        self._tracers: dict[str, AllocationTracer] = {}

    def __repr__(self) -> str:
        from dask_diag.profilers.base import short_text

        return short_text(self, self.session, series=len(self._series))

    def sample(
        self, label: str | None = None, *, measure: str = "process", interval: float = 0.5
    ) -> MemoryBlock:
        """Sample memory in a ``with`` block, which binds the label of the series.

        With an asynchronous client, use ``async with``.

        Parameters
        ----------
        label : str, optional
            Label of the series. Default: a new one.
        measure : {"process", "rss", "pss", "uss"}, default "process"
            Kind of memory that `samples`, `to_pandas` and `plot` show; the recording has all kinds.
            ``"process"`` is resident memory; with several processes it is proportional memory,
            where that is known.
        interval : float, default 0.5
            Seconds between samples. The first is taken on entering the block, the last on leaving.

        Returns
        -------
        context manager

        Raises
        ------
        ArgumentTypeError, ArgumentValueError
            If `measure` or `interval` is not as described.
        """
        if label is not None and not isinstance(label, str):
            raise ArgumentTypeError(f"label: expected text, found {type(label).__name__}")
        if measure not in MEMORY_KINDS:
            names = ", ".join(map(repr, MEMORY_KINDS))
            raise ArgumentValueError(f"measure: expected one of {names}, found {measure!r}")
        interval = number("interval", interval, "seconds between samples", above=0)
        entered = partial(self._add_series, label or "sample", measure)
        traced = self._traced if self._trace else None
        return MemoryBlock(interval, entered, self._block_left, self._fault, traced)

    def _add_series(self, label: str, measure: str, series: SampledSeries) -> str:
        with self._lock:
            if self.session.start is None:
                self.session.start = perf_counter()
            name, count = label, 1
            while name in self._series:
                count += 1
                name = f"{label} ({count})"
            self._measures[name] = measure
            self._series[name] = series
            return name

    def _traced(self, name: str, tracer: AllocationTracer) -> None:
        with self._lock:
            self._tracers[name] = tracer

    def _block_left(self) -> None:
        self.session.stop = perf_counter()

    @property
    def samples(self) -> dict[str, list[tuple[float, float]]]:
        """For each label, seconds since 1970 and bytes of each sample."""
        from dask_diag.analysis.memory import series_of

        recording = self.recording
        return {
            label: list(zip((times + recording.epoch).tolist(), sizes.tolist(), strict=True))
            for label, times, sizes in series_of(recording, self._measures)
        }

    @property
    def recording(self) -> Recording:
        """All samples so far, in the tables ``memory`` and ``allocations``."""
        from dask_diag.capture.build import build_recording, memory_table
        from dask_diag.capture.results_table import allocations_table

        with self._lock:
            # Copies: numpy lets other threads run while it reads, and what it reads cannot grow.
            rows = {name: series.rows[:] for name, series in self._series.items()}
            sampled = dict(self._series)
            tracers = dict(self._tracers)
        memory = memory_table(rows)
        logs = {name: log for name, series in sampled.items() if (log := series.logs())}
        if logs:
            from dask_diag.cluster.tables import with_remote_memory

            memory = with_remote_memory(memory, logs)
        allocated = {name: tracer.last for name, tracer in tracers.items()}
        allocations = allocations_table(allocated, self._with_code)
        tables = {"memory": memory, "allocations": allocations}
        return build_recording(self.session, self.notices(), tables)

    def to_pandas(self, *, align: bool = False) -> pandas.DataFrame:
        """The samples as a DataFrame of bytes, with one column per label.

        Parameters
        ----------
        align : bool, default False
            Index by the time since the first sample of each series, so that series can be compared.
            Otherwise the index is the time of day (UTC).

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        from dask_diag.analysis.memory import dataframe

        return dataframe(self.recording, self._measures, align)

    def plot(self, *, align: bool = False, **kwargs: Any) -> Any:
        """Draw all series, in MB (1e6 bytes).

        Parameters
        ----------
        align : bool, default False
            Draw each series from its first sample on, so that series can be compared.
        **kwargs
            ``palette``, ``label_size``, and keyword arguments of bokeh's figure.

        Returns
        -------
        bokeh figure
        """
        from dask_diag.views.plots.lines import figure_of_series

        return figure_of_series(self.recording, self._measures, align, **kwargs)

    def summary(self) -> Summary:
        """Table of the samples, for a terminal or a notebook."""
        from dask_diag.views.summary import summary

        return summary(self)

    def visualize(self, **kwargs: Any) -> Any:
        """Draw all series over time; the arguments are those of `dask_diag.visualize`."""
        from dask_diag.views.visualize import visualize

        return visualize(self, **kwargs)

    def _fault(self, doing: str, error: BaseException) -> None:
        """Note an error of the sampler itself for the summary; the user's program goes on."""
        text = f"MemorySampler failed {doing}: {type(error).__name__}: {error}"
        self.session.fault(text)

    def notices(self) -> list[str]:
        """Sentences that a reader of the numbers should know."""
        with self._lock:
            recorders = [series.clusters for series in self._series.values()]
        texts = [text for recorder in recorders for log in recorder.logs for text in log.notices()]
        return list(dict.fromkeys([*self.session.faults, *texts]))
