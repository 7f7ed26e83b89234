"""How much memory tasks took while they ran, from samples of the processes that ran them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dask_diag.analysis.task_times import start_times, stop_times
from dask_diag.columns import Array, Categorical
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording, expect_recording
from dask_diag.model.table import Table

__all__ = ["memory_usage", "together"]


def memory_usage(recording: Recording, by: str = "function") -> Table:
    """What memory was seen while tasks ran, and by how much it grew.

    Parameters
    ----------
    recording : Recording
        Of a `Profiler` and a `ResourceProfiler` over the same block, combined.
    by : {"function", "task"}, optional

    Returns
    -------
    Table
        By function, the largest growth first: ``function``; ``tasks``, ``sampled`` (how many of
        them a sample fell into), ``exact`` (of how many the growth is theirs alone);
        ``min_memory``, ``max_memory`` (bytes: the least and most that was seen while one ran);
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
    The memory of a task is that of the process which ran it; if that computes itself, the tasks
    of
    its threads share it, and its descendants count in it. ``growth`` is **exact** if no other task
    ran there from the sample before the task until its end: the most that was seen less that
    sample. Else it is an **upper bound**: the most that was seen less the least that had been seen
    since no computation ran, as if all in between were this task's. What is between two samples is
    not seen: choose a short ``dt``, and mind ``sampled``.
    """
    expect_recording(recording)
    if by not in ("function", "task"):
        raise DiagnosticError(f"by: expected 'function' or 'task', found {by!r}")
    tasks = recording.tasks
    if not len(tasks):
        return Table({})
    seen = _Seen.nothing(len(tasks))
    start, stop = start_times(recording), stop_times(recording)
    for rows, sampled, others in _scopes(recording):
        seen.put(rows, sampled, start, stop, others)
    if by == "task":
        names = ("samples", "min_memory", "max_memory", "growth", "exact")
        columns = {name: getattr(seen, name) for name in names}
        return Table({"key": tasks["key"], "function": tasks["function"], **columns})
    return _by_function(tasks["function"], seen)


@dataclass(frozen=True)
class Samples:
    """The memory of one process, or several: bytes at ascending times.

    `least` is the least since the last sample at which no computation ran, that one included.
    """

    times: Array
    sizes: Array
    least: Array

    @classmethod
    def of(cls, times: Array, sizes: Array, computations: Table) -> Samples:
        """From samples in any order."""
        order = np.argsort(times, kind="stable")
        times, sizes = times[order], sizes[order]
        begun = np.searchsorted(np.sort(computations["start"]), times, "right")
        ended = np.searchsorted(np.sort(computations["stop"]), times)
        period = np.cumsum(begun == ended)
        by_size = np.argsort(sizes, kind="stable")
        rank = np.empty(len(sizes), np.int64)
        rank[by_size] = np.arange(len(sizes))
        # Each period has lower numbers than all before it: so one running minimum does for all.
        lowest = np.minimum.accumulate(rank - period * len(sizes)) + period * len(sizes)
        return cls(times, sizes, sizes[by_size[lowest]])


@dataclass(frozen=True)
class _Seen:
    """What was seen while each task ran."""

    samples: Array
    min_memory: Array
    max_memory: Array
    growth: Array
    exact: Array

    @classmethod
    def nothing(cls, count: int) -> _Seen:
        least, most, growth = np.full((3, count), np.nan)
        return cls(np.zeros(count, np.int64), least, most, growth, np.zeros(count, bool))

    def put(self, rows: Array, sampled: Samples, start: Array, stop: Array, others: Array) -> None:
        """Fill in the tasks in `rows`, which ran where `sampled` was seen, as `others` did."""
        times, sizes = sampled.times, sampled.sizes
        first = np.searchsorted(times, start[rows])
        last = np.searchsorted(times, stop[rows], "right") - 1
        within = last >= first
        rows, first, last = rows[within], first[within], last[within]
        if not len(rows):
            return
        before = np.maximum(first - 1, 0)
        # Of those that began before its end, all but itself had ended by the sample before it.
        begun = np.searchsorted(np.sort(start[others]), stop[rows])
        ended = np.searchsorted(np.sort(stop[others]), times[before], "right")
        exact = (first > 0) & (begun - ended == 1)
        most = _extreme(np.maximum, sizes, first, last)
        base = np.where(exact, sizes[before], sampled.least[last])
        self.samples[rows] = last - first + 1
        self.min_memory[rows] = _extreme(np.minimum, sizes, first, last)
        self.max_memory[rows] = most
        # Without a sample before it, not even a bound is known.
        self.growth[rows] = np.where(first > 0, np.maximum(most - base, 0.0), np.nan)
        self.exact[rows] = exact


def _extreme(of: np.ufunc, values: Array, first: Array, last: Array) -> Array:
    """The largest or smallest of each range of `values`, ends included.

    Each range is covered by two, that may overlap, of a length that is a power of two.
    """
    power = np.frexp(last - first + 1)[1] - 1
    found = np.empty(len(first))
    level, length = values, 1
    for exponent in range(int(power.max(initial=0)) + 1):
        here = power == exponent
        found[here] = of(level[first[here]], level[last[here] - length + 1])
        level = of(level[:-length], level[length:])
        length *= 2
    return found


def _scopes(recording: Recording) -> Iterator[tuple[Array, Samples, Array]]:
    """Tasks, the samples of where they ran, and all tasks that count there.

    A task in a sampled child has that process alone, any other has all processes together.
    """
    tasks, processes = recording.tasks, recording.processes
    known = ~np.isnan(tasks["start"])
    elsewhere = np.zeros(len(tasks), bool)
    if len(processes):
        children = np.unique(processes["pid"][processes["is_child"] > 0])
        for code, pid in enumerate(tasks["pid"].values):
            if pid in children:
                there = tasks["pid"].codes == code
                elsewhere |= there
                own = processes.rows(processes["pid"] == pid)
                sampled = Samples.of(own["time"], own["memory"], recording.computations)
                yield np.flatnonzero(there & known), sampled, np.flatnonzero(there)
    yield np.flatnonzero(~elsewhere & known), together(recording), np.arange(len(tasks))


def together(recording: Recording) -> Samples:
    """The memory of all processes."""
    processes, resources = recording.processes, recording.resources
    if not len(processes):
        if not len(resources):
            return Samples.of(np.zeros(0), np.zeros(0), recording.computations)
        memory = resources["memory"] + resources["memory_children"]
        return Samples.of(resources["time"], memory, recording.computations)
    times, at = np.unique(processes["time"], return_inverse=True)
    # Each reading has the computing process once: recordings of the same samples count once.
    readings = np.bincount(at, processes["is_child"] == 0, minlength=len(times))
    sizes = np.bincount(at, processes["memory"], minlength=len(times))
    read = readings > 0
    return Samples.of(times[read], sizes[read] / readings[read], recording.computations)


def _by_function(function: Categorical, seen: _Seen) -> Table:
    """A row for each function, the largest growth first, those not seen last."""
    width = len(function.values)

    def count(chosen: Array) -> Array:
        return np.bincount(function.codes[chosen], minlength=width)

    def extreme(of: np.ufunc, values: Array) -> Array:
        found = np.full(width, np.nan)
        of.at(found, function.codes, values)
        return found

    known = ~np.isnan(seen.growth)
    sums = np.bincount(function.codes[known], seen.growth[known], minlength=width)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sums / count(known)
    columns = {
        "tasks": count(np.ones(len(function), bool)),
        "sampled": count(seen.samples > 0),
        "exact": count(seen.exact),
        "min_memory": extreme(np.fmin, seen.min_memory),
        "max_memory": extreme(np.fmax, seen.max_memory),
        "peak_growth": extreme(np.fmax, seen.growth),
        "mean_growth": mean,
    }
    order = np.flatnonzero(columns["tasks"])
    order = order[np.argsort(-np.nan_to_num(columns["peak_growth"][order], nan=-1), kind="stable")]
    chosen = {name: column[order] for name, column in columns.items()}
    all_exact = (chosen["exact"] == chosen["sampled"]) & (chosen["sampled"] > 0)
    bound = Categorical(np.where(chosen["sampled"] == 0, 2, ~all_exact), ["exact", "upper", ""])
    return Table({"function": Categorical(order, function.values), **chosen, "bound": bound})
