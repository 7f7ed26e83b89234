"""Memory of tasks, of processes over time, and of cached results; allocations at the peak."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, isinf, isnan, nan
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dask_diag.analysis.groups import (
    counts_by,
    extremes_by,
    quantiles_by,
    rows_by,
    sums_by,
    table_by,
    workers_of_clusters,
)
from dask_diag.analysis.intervals import Intervals, StepFunction
from dask_diag.analysis.task_times import running_computations, start_times, stop_times
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.errors import DiagnosticError, import_optional
from dask_diag.formatting import BYTES, count, counted, size
from dask_diag.model.recording import Recording, Sources, recording_of
from dask_diag.model.table import Table
from dask_diag.model.tables import CachedResults, Memory

if TYPE_CHECKING:
    import pandas


def task_memory(source: Sources, by: str = "function") -> Table:
    """Sampled memory of tasks and its growth.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements of a `Profiler` and a `ResourceProfiler` over the same block. Several are
        combined.
    by : {"function", "task"}, default "function"
        One row per function, or one per task.

    Returns
    -------
    Table
        By function, the largest growth first:

        * ``function``; ``tasks``; ``sampled``: number of tasks with at least one sample; ``exact``:
          number of tasks whose growth is exact (see Notes).
        * ``min_memory``, ``max_memory``: minimum and maximum of the samples while a task ran, in
          bytes.
        * ``peak_growth``, ``p90_growth``, ``median_growth``: growth of the largest task, and growth
          that 90% and 50% of the tasks do not exceed, in bytes.
        * ``bound``: ``exact`` if the growth of all tasks is exact, otherwise ``upper``; empty
          without a sample.

        By task, in the order of `Recording.tasks`: ``key``, ``function``, ``samples`` (count),
        ``min_memory``, ``max_memory``, ``growth`` (bytes; NaN without a sample), ``exact``.

    Raises
    ------
    DiagnosticError
        If `by` is unknown.

    Notes
    -----
    The memory of a task is that of the process that ran it. In the main process, all threads share
    this memory, and it includes child processes. ``growth`` is **exact** if no other task ran in
    the process from the sample before the task until its end: the maximum minus that sample.
    Otherwise it is an **upper bound**: the maximum minus the minimum since the last sample at which
    no computation ran, as if this task had allocated everything in between. Peaks between two
    samples are missed: choose a short ``dt``, and check ``sampled``.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import Profiler, ResourceProfiler, task_memory
    >>> with Profiler() as prof, ResourceProfiler(dt=0.01) as rprof:
    ...     total = da.ones((500, 500), chunks=(250, 250)).sum().compute()
    >>> task_memory([prof, rprof]).columns[:4]
    ('function', 'tasks', 'sampled', 'exact')
    """
    recording = recording_of(source)
    if by not in ("function", "task"):
        raise DiagnosticError(f"by: expected 'function' or 'task', found {by!r}")
    tasks = recording.tasks
    memory = _memory_of_tasks(recording)
    if by == "task":
        table = Table({"key": tasks.key, "function": tasks.function, **memory._asdict()})
        return table.in_units(**dict.fromkeys(("min_memory", "max_memory", "growth"), "bytes"))
    return _table_of_functions(tasks.function, memory)


GROWTHS = ("median_growth", "p90_growth", "peak_growth")
"""Columns of the growth of memory in tasks, ascending."""
_IN_BYTES = ("min_memory", "max_memory", *GROWTHS)


class MemoryReadings(NamedTuple):
    """The memory of one or several processes: bytes at ascending times.

    `lowest` is the minimum since the last sample at which no computation ran, that one included.
    """

    times: FloatArray
    sizes: FloatArray
    lowest: FloatArray

    @classmethod
    def of(cls, recording: Recording, times: FloatArray, sizes: FloatArray) -> MemoryReadings:
        """Sort samples by time."""
        order = np.argsort(times, kind="stable")
        times, sizes = times[order], sizes[order]
        period = np.cumsum(running_computations(recording.computations, times) == 0)
        # Sizes are replaced by their ranks, whole numbers that can be shifted without rounding.
        by_size = np.argsort(sizes, kind="stable")
        rank = np.empty(len(sizes), np.int64)
        rank[by_size] = np.arange(len(sizes))
        # Each period has lower numbers than all before it: so one running minimum serves all.
        lowest = np.minimum.accumulate(rank - period * len(sizes)) + period * len(sizes)
        return cls(times, sizes, sizes[by_size[lowest]])


class _TaskMemory(NamedTuple):
    """The columns of the table by task."""

    samples: IntArray
    min_memory: FloatArray
    max_memory: FloatArray
    growth: FloatArray
    exact: BoolArray


def _memory_of_tasks(recording: Recording) -> _TaskMemory:
    """Sampled memory of each task."""
    start, stop = start_times(recording), stop_times(recording)
    lowest, highest, growth = np.full((3, len(start)), np.nan)
    count, is_exact = np.zeros(len(start), np.int64), np.zeros(len(start), bool)
    for tasks, (times, sizes, low), others in _scopes(recording):
        first = np.searchsorted(times, start[tasks])
        last = np.searchsorted(times, stop[tasks], "right") - 1
        # A task between two samples has none of its own.
        within = last >= first
        rows, first, last = tasks[within], first[within], last[within]
        if not len(rows):
            continue
        before = np.maximum(first - 1, 0)
        # A task was alone if all others that started before its end had stopped by the sample
        # before it.
        started = np.searchsorted(np.sort(start[others]), stop[rows])
        stopped = np.searchsorted(np.sort(stop[others]), times[before], "right")
        exact = (first > 0) & (started - stopped == 1)
        # What a concurrent task started with is not known: the sample before it may include memory
        # of others. The minimum since no computation ran cannot.
        base = np.where(exact, sizes[before], low[last])
        count[rows], is_exact[rows] = last - first + 1, exact
        lowest[rows] = _extremes(np.minimum, sizes, first, last)
        highest[rows] = _extremes(np.maximum, sizes, first, last)
        # Without a sample before it, not even a bound is known.
        growth[rows] = np.where(first > 0, np.maximum(highest[rows] - base, 0.0), np.nan)
    return _TaskMemory(count, lowest, highest, growth, is_exact)


def _extremes(extreme: np.ufunc, values: FloatArray, first: IntArray, last: IntArray) -> FloatArray:
    """The maximum or minimum of each range of `values`, ends included."""
    bounds = np.stack([first, last + 1], axis=1).ravel()
    # Every second range lies between a range and the next.
    return np.asarray(extreme.reduceat(np.append(values, np.nan), bounds)[::2])


def _scopes(recording: Recording) -> Iterator[tuple[IntArray, MemoryReadings, IntArray]]:
    """Tasks by place, with the samples of the place, and all tasks of the place.

    A task in a sampled child, or elsewhere on a cluster, has that process alone, any other has all
    processes of this tree together.
    """
    tasks, processes = recording.tasks, recording.processes
    has_start = ~np.isnan(tasks.start)
    in_children = np.zeros(len(tasks), bool)
    children = processes.filter(processes.is_child > 0)
    for host, on_host in rows_by(children.host).items():
        of_host = children.filter(on_host)
        tasks_on_host = tasks.host.eq(host)
        sampled = set(np.unique(of_host.pid).tolist())
        for pid, rows in rows_by(tasks.pid).items():
            rows_there = rows[tasks_on_host[rows]]
            if pid not in sampled or not len(rows_there):
                continue
            in_children[rows_there] = True
            of_process = of_host.filter(of_host.pid == pid)
            samples = MemoryReadings.of(recording, of_process.time, of_process.memory)
            yield rows_there[has_start[rows_there]], samples, rows_there
    yield np.flatnonzero(~in_children & has_start), memory_of_all(recording), np.arange(len(tasks))


def memory_of_all(recording: Recording) -> MemoryReadings:
    """The memory of all processes together."""
    processes, resources = recording.processes, recording.resources
    if not len(processes):
        memory = resources.memory + resources.memory_children
        return MemoryReadings.of(recording, resources.time, memory)
    times, index = np.unique(processes.time, return_inverse=True)
    # Each reading has the computing process once: recordings of the same samples count once.
    readings = np.bincount(index, processes.is_child == 0, minlength=len(times))
    sizes = np.bincount(index, processes.memory, minlength=len(times))
    complete = readings > 0
    return MemoryReadings.of(recording, times[complete], sizes[complete] / readings[complete])


def _table_of_functions(labels: Categorical, memory: _TaskMemory) -> Table:
    """A row for each function, the largest growth first, functions without samples last."""
    sampled, exact = counts_by(labels, memory.samples > 0), counts_by(labels, memory.exact)
    peak = extremes_by(np.fmax, labels, memory.growth)
    return table_by(
        labels,
        "function",
        np.nan_to_num(peak, nan=-1),
        tasks=counts_by(labels),
        sampled=sampled,
        exact=exact,
        min_memory=extremes_by(np.fmin, labels, memory.min_memory),
        max_memory=extremes_by(np.fmax, labels, memory.max_memory),
        peak_growth=peak,
        p90_growth=quantiles_by(labels, memory.growth, 0.9),
        median_growth=quantiles_by(labels, memory.growth, 0.5),
        bound=Categorical(np.where(sampled == 0, 2, exact != sampled), ["exact", "upper", ""]),
    ).in_units(**dict.fromkeys(_IN_BYTES, "bytes"))


def memory_at_rest(recording: Recording) -> tuple[FloatArray, FloatArray]:
    """Times of readings while no task ran, in order, and the bytes of all processes.

    Where tasks were not recorded, only readings count that were taken while no computation ran, or
    because a moment was between two tasks.
    """
    samples = memory_of_all(recording)
    times = samples.times
    if len(recording.tasks):
        start, stop = np.sort(start_times(recording)), np.sort(stop_times(recording))
        at_rest = np.searchsorted(start, times) <= np.searchsorted(stop, times, "right")
    else:
        # Periodic samples have a row in `resources`; readings between tasks do not.
        is_periodic = np.isin(times, recording.resources.time)
        at_rest = (running_computations(recording.computations, times) == 0) | ~is_periodic
    return times[at_rest], samples.sizes[at_rest]


def cached_levels(
    recording: Recording, origin: float = 0.0
) -> tuple[dict[str, StepFunction], StepFunction]:
    """The cached results of each function over time, highest peak first, and of all functions.

    Times are relative to `origin`. Results of unknown size (NaN) are ignored.
    """
    cached = recording.cached_results
    sized = cached.filter(~np.isnan(cached.metric))
    levels = {
        name: _cached_level(sized.filter(rows), origin)
        for name, rows in rows_by(sized.function).items()
    }
    highest_first = dict(sorted(levels.items(), key=lambda item: -item[1].peak))
    return highest_first, _cached_level(sized, origin)


def _cached_level(cached: CachedResults, origin: float) -> StepFunction:
    times, amounts = StepFunction.of(Intervals(cached.start, cached.stop), cached.metric)
    # All results are released by the last step; what is left is rounding.
    return StepFunction(times - origin, np.append(amounts[:-1], amounts[-1:] * 0.0))


def cached_at(recording: Recording, moments: FloatArray) -> FloatArray:
    """Bytes cached by the scheduler at each time; NaN if not measured."""
    if recording.metric_unit != BYTES:
        return np.full(len(moments), np.nan)
    cached = recording.cached_results
    sizes = np.nan_to_num(cached.metric)
    held = Intervals(cached.start, cached.stop).open_at(moments, sizes, closed=True)
    return held.astype(float)


def returned_by(recording: Recording, moment: float) -> tuple[float, float]:
    """Bytes returned by the last computation before a moment, and by earlier computations.

    NaN if results were not measured in bytes.
    """
    if recording.metric_unit != BYTES:
        return nan, nan
    cached = recording.cached_results
    computation = cached.computation.codes
    last_release = np.full(len(cached.computation.values), -np.inf)
    np.maximum.at(last_release, computation, cached.stop)
    # The scheduler releases what a computation returns at the very end of it.
    end = last_release[computation]
    returned = (cached.stop == end) & (end < moment)
    if not returned.any():
        return 0.0, 0.0
    sizes, end = np.nan_to_num(cached.metric)[returned], end[returned]
    return float(sizes[end == end.max()].sum()), float(sizes[end < end.max()].sum())


MOST_OF_MEMORY = 0.8
"""Share of the memory that a process may use up to which more tasks at once are advised. A worker
of a cluster pauses there; elsewhere other programs, and what is between two samples, need some."""


class MemoryHeadroom(NamedTuple):
    """How many workers fit into memory, by the memory that their tasks needed.

    Attributes
    ----------
    times : float
        Multiple of the recorded tasks at once that fits; infinite if that is not known.
    workers : int
        Recorded workers; on a cluster threads of all workers together.
    needed, limit : float
        Bytes of the process with the least room: what it needed then, and may use. NaN if not
        known.
    is_known, on_cluster : bool
    """

    times: float
    workers: int
    needed: float
    limit: float
    is_known: bool
    on_cluster: bool

    @property
    def most(self) -> float:
        """Number of workers that fit: no fewer than recorded, and infinite if not known."""
        return inf if isinf(self.times) else float(int(self.workers * max(1.0, self.times)))

    def __str__(self) -> str:
        if isinf(self.times):
            return "more workers fit into memory" if self.is_known else "memory was not recorded"
        if isnan(self.needed):
            return "workers paused or moved results to disk: no more fit into memory"
        needed = f"needed {size(self.needed)} of {size(self.limit)}"
        if self.on_cluster:
            return f"a worker process {needed}: at most {counted(int(self.most), 'thread')} fit"
        return f"{counted(self.workers, 'worker')} {needed}: at most {count(self.most)} fit"


def memory_headroom(recording: Recording) -> MemoryHeadroom:
    """Estimate the multiple of the tasks at once for the available memory.

    What the memory of a process grew by while computations ran, since none did, is taken to be that
    of its tasks: so many times as many need so many times as much. Where a worker paused, or moved
    results to disk, there is none for more.
    """
    rooms = [room for room in _room_of_processes(recording) if not isnan(room[0])]
    if len(recording.worker_events):
        rooms.append((1.0, nan, nan))
    times, needed, limit = min(rooms, key=itemgetter(0), default=(inf, nan, nan))
    workers = max(1, int(recording.computations.workers.max(initial=1)))
    on_cluster = bool(recording.computations.scheduler.eq("distributed").any())
    return MemoryHeadroom(times, workers, needed, limit, bool(rooms), on_cluster)


_Room = tuple[float, float, float]
"""A multiple of the tasks at once, and the bytes that a process needed and may use."""


def _room_of_processes(recording: Recording) -> Iterator[_Room]:
    """The room of each worker, or of the local process.

    NaN where there is no sample while computations ran, or no limit is known.
    """
    processes = recording.processes
    # Workers of one process are one sample.
    names = [set(text.split(", ")) for text in processes.worker.values]
    for worker in workers_of_clusters(recording).to_dicts():
        is_of_it = np.array([worker["worker"] in some for some in names], bool)
        rows = processes.filter(is_of_it[processes.worker.codes])
        readings = MemoryReadings.of(recording, rows.time, rows.memory)
        yield _room(recording, readings, worker["memory_limit"])
    computations = recording.computations
    local = computations.memory_limit[~computations.scheduler.eq("distributed")]
    if len(local):
        yield _room(recording, memory_of_all(recording), float(np.fmin.reduce(local)))


def _room(recording: Recording, readings: MemoryReadings, limit: float) -> _Room:
    running = running_computations(recording.computations, readings.times) > 0
    # If something ran when it was read first, what it had before is not known: all is of tasks.
    base = np.where(np.maximum.accumulate(~running), readings.lowest, 0.0)
    grown = readings.sizes - base
    if isnan(limit) or not (running & ~np.isnan(grown)).any():
        return nan, nan, nan
    rows = np.flatnonzero(running & (grown > 0))
    if not len(rows):
        return inf, nan, nan
    times = np.maximum(MOST_OF_MEMORY * limit - base[rows], 0.0) / grown[rows]
    least = int(times.argmin())
    return float(times[least]), float(readings.sizes[rows[least]]), limit


def series_of(
    recording: Recording, measures: Mapping[str, str] | None = None
) -> Iterator[tuple[str, FloatArray, FloatArray]]:
    """The label of each series, with the times (s) and bytes of samples.

    Parameters
    ----------
    recording : Recording
    measures : mapping of str to {"process", "rss", "pss", "uss"}, optional
        Which measure of a series, by its label. By default ``"process"``: resident memory if there
        was one process, proportional memory if there were several.

    Notes
    -----
    Samples without that measure are left out.
    """
    table = recording.memory
    for label, rows in rows_by(table.label).items():
        series = table.filter(rows)
        sizes: FloatArray = series[_column((measures or {}).get(label, "process"), series)]
        is_read = ~np.isnan(sizes)
        yield label, series.time[is_read], sizes[is_read]


def _column(measure: str, series: Memory) -> str:
    if measure != "process":
        return measure
    # Resident memory of several processes counts the pages twice that they share. It is in every
    # sample, proportional memory is not.
    is_alone = (series.processes <= 1).all()
    return "rss" if is_alone or np.isnan(series.pss).all() else "pss"


def dataframe(
    recording: Recording, measures: Mapping[str, str] | None = None, align: bool = False
) -> pandas.DataFrame:
    """Bytes by time of day, or, with `align`, by time from the first sample of each series.

    Where only another series has a sample, the last one of this is repeated, up to its end.

    Raises
    ------
    MissingDependencyError
        If pandas is not installed.
    """
    pd = import_optional("pandas", "to_pandas()", "samples and recording work without it")
    columns = {}
    for label, times, sizes in series_of(recording, measures):
        since_first = times - times[:1].sum()
        index = (
            pd.to_timedelta(since_first, unit="s")
            if align
            else pd.to_datetime(times + recording.epoch, unit="s")
        )
        series = pd.Series(sizes, index=index)
        columns[label] = series[~series.index.duplicated()]
    frame: pandas.DataFrame = pd.DataFrame(columns).sort_index()
    return frame.ffill().where(frame.bfill().notna())


def peak_allocations(source: Sources, by: str = "function") -> Table:
    """Functions or lines that allocated the memory in use near the peak, most bytes first.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements of ``MemorySampler(trace=True)`` or ``record(trace_memory=True)``. Several are
        combined.
    by : {"function", "line"}, default "function"
        One row per function, or one per line.

    Returns
    -------
    Table
        ``label`` (the block; empty for a whole recording), ``function``, ``file``; by line also
        ``line`` and ``code``; ``bytes`` and ``blocks`` (count) in use; ``near``: traced memory in
        use at that moment, as a fraction of the peak of traced memory.

    Raises
    ------
    DiagnosticError
        If `by` is unknown.

    Examples
    --------
    >>> from dask_diag import MemorySampler, peak_allocations
    >>> ms = MemorySampler(trace=True)
    >>> with ms.sample("load"):
    ...     block = bytearray(50_000_000)
    >>> peak_allocations(ms).columns
    ('label', 'function', 'file', 'bytes', 'blocks', 'near')
    """
    recording = recording_of(source)
    if by not in ("function", "line"):
        raise DiagnosticError(f"by: expected 'function' or 'line', found {by!r}")
    table = recording.allocations
    names = ("label", "function", "file", *(("line", "code") if by == "line" else ()))
    groups = Categorical.of(zip(*(table[name].tolist() for name in names), strict=True))
    first = np.unique(groups.codes, return_index=True)[1]
    size, blocks = sums_by(groups, table.bytes), sums_by(groups, table.blocks).astype(np.int64)
    order = np.lexsort((-size, table.label.codes[first]))
    chosen = table.filter(first[order])
    columns = {name: chosen[name] for name in names}
    near = chosen.memory / chosen.peak
    numbers = {"bytes": size[order], "blocks": blocks[order], "near": near}
    return Table({**columns, **numbers}).in_units(bytes="bytes", near="share")


class PeakSnapshot(NamedTuple):
    """The snapshot of a block: time, memory then and at the peak, and traced bytes."""

    label: str
    time: float
    memory: float
    peak: float
    traced: float

    @property
    def near(self) -> float:
        """Memory at the snapshot as a share of the peak."""
        return self.memory / self.peak


def peak_snapshots(recording: Recording) -> Iterator[PeakSnapshot]:
    """The snapshot of each block."""
    table = recording.allocations
    for label, rows in rows_by(table.label).items():
        part = table.filter(rows)
        time, memory, peak = (float(column[0]) for column in (part.time, part.memory, part.peak))
        yield PeakSnapshot(label, time, memory, peak, float(part.bytes.sum()))
