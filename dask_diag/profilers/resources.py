"""The profiler of CPU, memory, and bytes read and written, over time."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Sequence
from functools import partial
from math import nan
from time import perf_counter
from typing import TYPE_CHECKING

from dask_diag.capture.computation import Computation
from dask_diag.errors import number
from dask_diag.profilers.base import Diagnostic
from dask_diag.system.samplers import SAMPLE_COLUMNS, ResourceRows, ResourceSampler

if TYPE_CHECKING:
    from typing_extensions import Self

    from dask_diag.cluster.log import ClusterLog
    from dask_diag.cluster.wire import Wants
    from dask_diag.model.recording import Recording
    from dask_diag.model.table import Table


ResourceData = namedtuple("ResourceData", ("time", "mem", "cpu"))
ResourceData.__doc__ = "A sample in `ResourceProfiler.results`: s, MB (1e6 bytes), % of a CPU."


class ResourceProfiler(Diagnostic):
    """Profile CPU, memory and I/O of this process and its child processes.

    On a cluster of distributed, also CPU and memory of the workers and the scheduler.

    Parameters
    ----------
    dt : float, default 1
        Seconds between samples.

    Attributes
    ----------
    results : list of ResourceData
        Time (seconds of ``time.perf_counter()``), memory (MB) and CPU (% of one CPU) of each
        sample; filled when sampling stops.
    recording : Recording
        The samples so far, in the tables ``resources`` and ``processes``.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        If `dt` is not a finite number above 0.

    See Also
    --------
    record : Runs all profilers over a block, this one every 0.5 s.

    Notes
    -----
    A thread samples with psutil; the CPU time of that thread is subtracted. In a ``with`` block the
    profiler samples all the time; when registered, only while computations run: each computation
    starts the thread and ends it, so that none is left between them. The CPU of a sample
    is that of the interval before the sample. Memory is the sum of resident sizes, in which shared
    pages count once per process. Between tasks only memory is sampled, for at most 1% of the time,
    to obtain the value at the start of the next task.

    On a cluster, each process is sampled on its host every `dt` seconds while the profiler is
    active. A process that several workers share counts once.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import ResourceProfiler
    >>> with ResourceProfiler(dt=0.1) as rprof:
    ...     total = da.ones((500, 500), chunks=(250, 250)).sum().compute()
    >>> rprof.results[0]._fields
    ('time', 'mem', 'cpu')
    """

    draws = "resources"
    notes_pauses = True

    def __init__(self, dt: float = 1) -> None:
        super().__init__()
        self._dt = number("dt", dt, "seconds between samples", above=0)
        self.rows = ResourceRows()
        self._published = 0
        self._next_note = 0.0
        self._sampler: ResourceSampler | None = None
        self._blocks = 0
        self._sampled_computations: set[int] = set()

    def __enter__(self) -> Self:
        super().__enter__()
        with self._lock:
            self._blocks += 1
            self._guarded("to start sampling", self._start_sampling)
        return self

    def __exit__(self, *args: object) -> None:
        with self._lock:
            self._blocks = max(0, self._blocks - 1)
            self._guarded("to stop sampling", self._stop_if_unused)
        super().__exit__(*args)

    @property
    def results(self) -> list[ResourceData]:
        """A `ResourceData` for each sample; filled when sampling stops."""
        with self._lock:
            if not self._results:
                width = len(SAMPLE_COLUMNS)
                columns = (self.rows.samples[n : self._published : width] for n in range(4))
                self._results = [
                    ResourceData(time, (memory + children) / 1e6, cpu)
                    for time, cpu, memory, children in zip(*columns, strict=True)
                ]
            return self._results

    @results.setter
    def results(self, samples: Iterable[Sequence[float]]) -> None:
        with self._lock:
            self.clear()
            unknown = [nan] * (len(SAMPLE_COLUMNS) - 4)
            for time, mem, cpu in samples:
                self.rows.samples.extend((time, cpu, mem * 1e6, 0.0, *unknown))
            self._published = len(self.rows.samples)

    @property
    def recording(self) -> Recording:
        """All samples so far."""
        from dask_diag.capture.build import build_recording, snapshots_tables
        from dask_diag.capture.increments import sampled_tables

        self.clusters.pull()
        logs = self.clusters.logs
        tables = {
            **snapshots_tables(self.session.snapshots()),
            **sampled_tables(self.rows, logs),
        }
        return self._with_clusters(build_recording(self.session, self.notices(), tables))

    def _wants(self) -> Wants:
        return {"processes": self._dt}

    def _sampled_on_clusters(self, logs: Sequence[ClusterLog]) -> dict[str, Table]:
        # They are in the tables of samples, with those of this process.
        return {}

    def close(self) -> None:
        """Stop sampling, even inside a block."""
        with self._lock:
            self._blocks = 0
            self._sampled_computations.clear()
            self._stop_if_unused()

    def clear(self) -> None:
        """Forget all samples."""
        with self._lock:
            super().clear()
            self.rows.clear()
            self._published = 0

    def _is_running(self) -> bool:
        return self._sampler is not None

    def _began(self, computation: Computation) -> None:
        self._sampled_computations.add(computation.number)
        self._start_sampling()
        computation.between_tasks = (*computation.between_tasks, self._between_tasks)

    def computation_ends(self, computation: Computation, failed: bool) -> None:
        """Stop sampling, outside a block with the last computation."""
        with self._lock:
            self._sampled_computations.discard(computation.number)
            self._stop_if_unused()

    def _between_tasks(self) -> None:
        """Sample memory while no task runs, to know the growth in the next task."""
        if perf_counter() >= self._next_note:
            self._guarded("to sample between tasks", self._note)

    def _note(self) -> None:
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._sampler is not None:
                self._next_note = self._sampler.note()
        finally:
            self._lock.release()

    def _start_sampling(self) -> None:
        if self._sampler is None:
            failed = partial(self.fault, "to sample resources")
            self._sampler = ResourceSampler(self._dt, self.rows, failed)

    def _stop_if_unused(self) -> None:
        sampler = self._sampler
        if self._blocks or self._sampled_computations or sampler is None:
            return
        sampler.stop()
        self._sampler = None
        self._published = len(self.rows.samples)
        self._results = []
