"""How much memory tasks used while they ran, from samples of the processes that ran them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dask_diag.analysis.grouping import counts_by, extremes_by, present_by_size, rows_by, sums_by
from dask_diag.analysis.step_functions import running_computations
from dask_diag.analysis.task_times import start_times, stop_times
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording, expect_recording
from dask_diag.model.table import Table
from dask_diag.model.tables import Computations

__all__ = ["MemoryReadings", "memory_of_all", "memory_usage"]


def memory_usage(recording: Recording, by: str = "function") -> Table:
    """What memory was sampled while tasks ran, and by how much it grew.

    Parameters
    ----------
    recording : Recording
        Of a `Profiler` and a `ResourceProfiler` over the same block, combined.
    by : {"function", "task"}, optional

    Returns
    -------
    Table
        By function, the largest growth first: ``function``; ``tasks``, ``sampled`` (how many of
        them a sample fell into), ``exact`` (of how many no other task had a part in the growth);
        ``min_memory``, ``max_memory`` (bytes: minimum and maximum of the samples while one ran);
        ``peak_growth``, ``mean_growth`` (bytes: the largest growth of its tasks, and their mean);
        ``bound``: ``exact`` if they all are, else ``upper``; empty if none was sampled.

        By task, in the order of `Recording.tasks`: ``key``, ``function``, ``samples`` (how many
        fell into it), ``min_memory``, ``max_memory``, ``growth`` (bytes; NaN without a sample),
        ``exact``.

    Raises
    ------
    DiagnosticError
        If `by` is none of these.

    Notes
    -----
    The memory of a task is that of the process which ran it; if that is the computing process, the
    tasks of its threads share it, and its descendants count in it. ``growth`` is **exact** if no
    other task ran there from the sample before the task until its end: the maximum less that
    sample. Else it is an **upper bound**: the maximum less the minimum since no computation ran, as
    if all in between were this task's. What happens between two samples is not known: choose a
    short ``dt``, and mind ``sampled``.
    """
    expect_recording(recording)
    if by not in ("function", "task"):
        raise DiagnosticError(f"by: expected 'function' or 'task', found {by!r}")
    tasks = recording.tasks
    memory = _TaskMemory.unknown(len(tasks))
    start, stop = start_times(recording), stop_times(recording)
    for rows, samples, others in _scopes(recording):
        memory.fill_in(rows, samples, start, stop, others)
    if by == "task":
        return Table({"key": tasks.key, "function": tasks.function, **vars(memory)})
    return _by_function(tasks.function, memory)


@dataclass(frozen=True)
class MemoryReadings:
    """The memory of one process, or several: bytes at ascending times.

    `lowest` is the minimum since the last sample at which no computation ran, that one included.
    """

    times: FloatArray
    sizes: FloatArray
    lowest: FloatArray

    @classmethod
    def of(cls, times: FloatArray, sizes: FloatArray, computations: Computations) -> MemoryReadings:
        """From samples in any order."""
        order = np.argsort(times, kind="stable")
        times, sizes = times[order], sizes[order]
        period = np.cumsum(running_computations(computations, times) == 0)
        # Sizes are replaced by their ranks, whole numbers that can be shifted without rounding.
        by_size = np.argsort(sizes, kind="stable")
        rank = np.empty(len(sizes), np.int64)
        rank[by_size] = np.arange(len(sizes))
        # Each period has lower numbers than all before it: so one running minimum serves all.
        lowest = np.minimum.accumulate(rank - period * len(sizes)) + period * len(sizes)
        return cls(times, sizes, sizes[by_size[lowest]])


@dataclass(frozen=True)
class _TaskMemory:
    """The columns of the table by task: what was sampled while each ran."""

    samples: IntArray
    min_memory: FloatArray
    max_memory: FloatArray
    growth: FloatArray
    exact: BoolArray

    @classmethod
    def unknown(cls, count: int) -> _TaskMemory:
        lowest, highest, growth = np.full((3, count), np.nan)
        return cls(np.zeros(count, np.int64), lowest, highest, growth, np.zeros(count, bool))

    def fill_in(
        self,
        rows: IntArray,
        sampled: MemoryReadings,
        start: FloatArray,
        stop: FloatArray,
        others: IntArray,
    ) -> None:
        """Fill in the tasks in `rows`, which ran where `sampled` was taken, as `others` did."""
        times, sizes = sampled.times, sampled.sizes
        first = np.searchsorted(times, start[rows])
        last = np.searchsorted(times, stop[rows], "right") - 1
        # A task between two samples has none of its own.
        within = last >= first
        rows, first, last = rows[within], first[within], last[within]
        if not len(rows):
            return
        before = np.maximum(first - 1, 0)
        # A task was alone if all others that started before its end had stopped by the sample
        # before it.
        started = np.searchsorted(np.sort(start[others]), stop[rows])
        stopped = np.searchsorted(np.sort(stop[others]), times[before], "right")
        exact = (first > 0) & (started - stopped == 1)
        # What a concurrent task started with is not known: the sample before it may include memory
        # of others. The minimum since no computation ran cannot.
        base = np.where(exact, sizes[before], sampled.lowest[last])
        highest = _extremes(np.maximum, sizes, first, last)
        self.samples[rows] = last - first + 1
        self.min_memory[rows] = _extremes(np.minimum, sizes, first, last)
        self.max_memory[rows] = highest
        # Without a sample before it, not even a bound is known.
        self.growth[rows] = np.where(first > 0, np.maximum(highest - base, 0.0), np.nan)
        self.exact[rows] = exact


def _extremes(of: np.ufunc, values: FloatArray, first: IntArray, last: IntArray) -> FloatArray:
    """The maximum or minimum of each range of `values`, ends included.

    Two ranges of a length that is a power of two cover each, and may overlap.
    """
    power = np.frexp(last - first + 1)[1] - 1
    extremes = np.empty(len(first))
    # `level` has the extreme of the `length` values from each index on.
    level, length = values, 1
    for exponent in range(int(power.max(initial=0)) + 1):
        rows = power == exponent
        extremes[rows] = of(level[first[rows]], level[last[rows] - length + 1])
        level = of(level[:-length], level[length:])
        length *= 2
    return extremes


def _scopes(recording: Recording) -> Iterator[tuple[IntArray, MemoryReadings, IntArray]]:
    """Tasks, the samples of where they ran, and all tasks that ran there.

    A task in a sampled child, or elsewhere on a cluster, has that process alone, any other has all
    processes of this tree together.
    """
    tasks, processes = recording.tasks, recording.processes
    has_start = ~np.isnan(tasks.start)
    in_children = np.zeros(len(tasks), bool)
    children = processes.rows(processes.is_child > 0)
    for host, on_host in rows_by(children.host).items():
        of_host = children.rows(on_host)
        tasks_on_host = tasks.host.where(host)
        sampled = set(np.unique(of_host.pid).tolist())
        for pid, rows in rows_by(tasks.pid).items():
            rows_there = rows[tasks_on_host[rows]]
            if pid not in sampled or not len(rows_there):
                continue
            in_children[rows_there] = True
            of_process = of_host.rows(of_host.pid == pid)
            samples = MemoryReadings.of(of_process.time, of_process.memory, recording.computations)
            yield rows_there[has_start[rows_there]], samples, rows_there
    yield np.flatnonzero(~in_children & has_start), memory_of_all(recording), np.arange(len(tasks))


def memory_of_all(recording: Recording) -> MemoryReadings:
    """The memory of all processes together."""
    processes, resources = recording.processes, recording.resources
    if not len(processes):
        memory = resources.memory + resources.memory_children
        return MemoryReadings.of(resources.time, memory, recording.computations)
    times, index = np.unique(processes.time, return_inverse=True)
    # Each reading has the computing process once: recordings of the same samples count once.
    readings = np.bincount(index, processes.is_child == 0, minlength=len(times))
    sizes = np.bincount(index, processes.memory, minlength=len(times))
    complete = readings > 0
    return MemoryReadings.of(
        times[complete], sizes[complete] / readings[complete], recording.computations
    )


def _by_function(labels: Categorical, memory: _TaskMemory) -> Table:
    """A row for each function, the largest growth first, those not sampled last."""
    is_known = ~np.isnan(memory.growth)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sums_by(labels, np.where(is_known, memory.growth, 0.0)) / counts_by(labels, is_known)
    columns = {
        "tasks": counts_by(labels),
        "sampled": counts_by(labels, memory.samples > 0),
        "exact": counts_by(labels, memory.exact),
        "min_memory": extremes_by(np.fmin, labels, memory.min_memory),
        "max_memory": extremes_by(np.fmax, labels, memory.max_memory),
        "peak_growth": extremes_by(np.fmax, labels, memory.growth),
        "mean_growth": mean,
    }
    order = present_by_size(counts_by(labels), np.nan_to_num(columns["peak_growth"], nan=-1))
    rows = {name: column[order] for name, column in columns.items()}
    all_exact = (rows["exact"] == rows["sampled"]) & (rows["sampled"] > 0)
    bound = Categorical(np.where(rows["sampled"] == 0, 2, ~all_exact), ["exact", "upper", ""])
    return Table({"function": Categorical(order, labels.values), **rows, "bound": bound})
