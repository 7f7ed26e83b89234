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
    """Sample the memory of this process and all its descendants, in named parts of a program.

    On a client of distributed: that of the workers and the scheduler, too.

    Parameters
    ----------
    trace : bool, optional
        Find out who allocated the memory that is in use at the peak of each block, by function and
        line, with tracemalloc: see `peak_allocations`. It slows down what Python allocates in small
        pieces 2 to 12 times, and hardly what computes with large arrays.
    code : bool, optional
        Whether `trace` notes the code of these lines. Literals and comments that look like secrets
        are masked in it.

    Attributes
    ----------
    samples : dict of str to list of (float, float)
        Seconds since the epoch and bytes of each sample, by label, as distributed has it.

    Notes
    -----
    Any number of blocks may run at the same time, in any threads; each has a thread that samples.
    Labels name series, and a series is one block: where a label is used again, a number is added,
    ``"load (2)"`` for the second block of ``"load"``, in the order in which they are entered.

    Resident memory (RSS) counts pages that processes share in each of them; the proportional one
    (PSS) in parts that sum to what there is, and the unique one (USS) only pages of one process
    alone. On Linux all are read; elsewhere what psutil knows. It takes the kernel long to find what
    is shared, so that is read in as many samples as fit into a fiftieth of the time.

    Where `trace` is on, a snapshot of all allocations is taken whenever this process has more
    memory than at the last one; but snapshots have a tenth of the time at most. The last one is
    reported, with how near the peak it is. It has what was allocated in the block, by Python or
    numpy, in this process. tracemalloc is stopped at the end of the block, unless it was on before.

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
        """Sample in a ``with`` block; what it binds is the name of the series.

        With a client whose event loop runs the program, use ``async with``.

        Parameters
        ----------
        label : str, optional
            The name of the series; by default a new one.
        measure : {"process", "rss", "pss", "uss"}, optional
            What `samples`, `to_pandas` and `plot` show of the series; the recording has all.
            ``"process"`` is the resident memory, or, if there were several processes, the
            proportional one, where that is known.
        interval : float, optional
            Seconds between samples. The first is taken on entering, the last on leaving.

        Raises
        ------
        TypeError, ValueError
            If an argument is none of these.
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
        """Seconds since the epoch and bytes of each sample, by label."""
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
        """Bytes by time, a column for each series.

        Parameters
        ----------
        align : bool, optional
            Count time from the first sample of each series, so that they can be laid beside each
            other. By default the index has the time of day (UTC).

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
        align : bool, optional
            Count time from the first sample of each series.
        **kwargs
            ``palette``, ``label_size``, and keywords for bokeh's figure, over the defaults.

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
        """Remarks for a reader of the numbers."""
        with self._lock:
            recorders = [series.clusters for series in self._series.values()]
        texts = [text for recorder in recorders for log in recorder.logs for text in log.notices()]
        return list(dict.fromkeys([*self.session.faults, *texts]))
