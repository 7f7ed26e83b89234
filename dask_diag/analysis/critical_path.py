"""Critical paths, slack of tasks, and the last dependency of each task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import nan

import numpy as np

from dask_diag.analysis.groups import counts_by, rows_by, sums_by, table_by, table_of
from dask_diag.analysis.task_times import own_dependencies, stop_times
from dask_diag.columns import Categorical, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.formatting import counted, seconds
from dask_diag.model.recording import Recording, Sources, recording_of
from dask_diag.model.table import Table
from dask_diag.model.tables import Dependencies

_EDGES = 100_000
"""Dependencies that are Python's integers at the same time."""


@dataclass(frozen=True, repr=False)
class CriticalPath:
    """Critical paths of the computations in a recording, by measured seconds.

    Tasks that slowed each other down took longer than they would on unlimited workers.

    Attributes
    ----------
    computations : Table
        A row per computation that ran tasks: ``computation``; ``wall`` (s); ``length`` of its
        critical path (s); ``cpu_scheduler`` (CPU seconds of the scheduler's thread, which works
        sequentially); ``max_speedup`` (upper bound for unlimited workers: wall time divided by the
        larger of the two); ``bound`` (the larger one: ``critical path`` or ``scheduler``); ``work``
        (task time, s); ``workers``.
    tasks : Table
        A row per task on a critical path, in order: ``task`` (position in `Recording.tasks`),
        ``key``, ``function``, ``computation``, ``seconds``.
    functions : Table
        Functions of those tasks, the longest first: ``function``, ``tasks``, ``seconds``, ``share``
        (of the length).
    slack : array of float, shape (tasks,)
        Seconds by which each task of the recording could take longer without lengthening the
        critical path of its computation; NaN for tasks of unknown duration.
    """

    computations: Table
    tasks: Table
    functions: Table
    slack: FloatArray

    @property
    def length(self) -> float:
        """Seconds of all critical paths together."""
        return float(self.computations["length"].sum())

    @property
    def cpu_scheduler(self) -> float:
        """CPU seconds of the schedulers' threads, of all computations together."""
        return float(self.computations["cpu_scheduler"].sum())

    @property
    def max_speedup(self) -> float:
        """Upper bound of the speed-up of all computations by more workers; NaN without tasks."""
        table = self.computations
        serial = float(np.maximum(table["length"], table["cpu_scheduler"]).sum())
        return float(table["wall"].sum()) / serial if serial else nan

    def __repr__(self) -> str:
        return (
            f"<CriticalPath of {seconds(self.length)}: {counted(len(self.tasks), 'task')} of "
            f"{counted(len(self.functions), 'function')}>"
        )

    def __str__(self) -> str:
        return f"{self.computations}\n\n{self.functions}"

    def _repr_html_(self) -> str:
        return self.computations._repr_html_() + self.functions._repr_html_()


def critical_path(source: Sources) -> CriticalPath:
    """Find the longest chain of dependent tasks in each computation.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements with tasks. Several are combined.

    Returns
    -------
    CriticalPath
        Tables of computations, tasks and functions on the paths, and the slack of every task.

    Raises
    ------
    DiagnosticError
        If the dependencies have a cycle.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import Profiler, critical_path
    >>> with Profiler() as prof:
    ...     total = da.ones((500, 500), chunks=(250, 250)).sum().compute()
    >>> path = critical_path(prof)
    >>> path.tasks.columns
    ('task', 'key', 'function', 'computation', 'seconds')
    >>> path.max_speedup > 0
    True
    """
    recording = recording_of(source)
    tasks = recording.tasks
    took = tasks.stop - tasks.start
    seconds = np.nan_to_num(np.maximum(took, 0.0))
    before, after, previous = _slowest_chains(own_dependencies(recording), seconds)
    until = before + seconds
    slack = np.full(len(tasks), np.nan)
    made = []
    on_path: list[int] = []
    rows_of = rows_by(tasks.computation)
    for row in recording.computations.to_dicts():
        rows = rows_of.get(row["computation"])
        if rows is None:
            continue
        last = int(rows[np.argmax(until[rows])])
        length = float(until[last])
        slack[rows] = length - (until + after)[rows]
        chain = [last]
        while previous[chain[-1]] >= 0:
            chain.append(previous[chain[-1]])
        on_path += reversed(chain)
        # Of a synchronous scheduler, the thread runs the tasks, too.
        cpu_scheduler = float(np.nan_to_num(row["cpu_scheduler"]))
        if row["scheduler"] == "synchronous":
            cpu_scheduler -= float(np.nansum(tasks.thread_cpu[rows]))
        cpu_scheduler = max(cpu_scheduler, 0.0)
        wall, serial = row["stop"] - row["start"], max(length, cpu_scheduler)
        max_speedup = wall / serial if serial else nan
        bound = "scheduler" if cpu_scheduler > length else "critical path"
        work = float(seconds[rows].sum())
        numbers = wall, length, cpu_scheduler, max_speedup, bound, work, row["workers"]
        made.append((row["computation"], *numbers))
    slack[np.isnan(took)] = np.nan
    computations = table_of(
        made,
        computation=str,
        **dict.fromkeys(("wall", "length", "cpu_scheduler", "max_speedup"), float),
        bound=str,
        work=float,
        workers=np.int64,
    ).in_units(**dict.fromkeys(("wall", "length", "cpu_scheduler", "work"), "s"))
    path = np.array(on_path, dtype=np.int64)
    of_path = tasks.filter(path)
    names = {name: of_path[name] for name in ("key", "function", "computation")}
    table = Table({"task": path, **names, "seconds": seconds[path]}).in_units(seconds="s")
    labels: Categorical = table["function"]
    sums = sums_by(labels, seconds[path])
    share = sums / (sums.sum() or 1.0)
    functions = table_by(
        labels, "function", sums, tasks=counts_by(labels), seconds=sums, share=share
    ).in_units(seconds="s", share="share")
    return CriticalPath(computations, table, functions, slack)


def _slowest_chains(
    dependencies: Dependencies, seconds: FloatArray
) -> tuple[FloatArray, FloatArray, list[int]]:
    """Seconds of the slowest chain before and after each task, and the previous task there."""
    before, after = [0.0] * len(seconds), [0.0] * len(seconds)
    previous = [-1] * len(seconds)
    takes = seconds.tolist()
    rank = _ranks(len(seconds), dependencies)
    # A task's chain is final once all edges into it have been seen: edges in order of its rank.
    forward = np.argsort(rank[dependencies.task], kind="stable")
    for task, dependency in _edges(dependencies.filter(forward)):
        reached = before[dependency] + takes[dependency]
        if reached > before[task] or previous[task] < 0:
            before[task] = reached
            previous[task] = dependency
    # Of a million tasks a list takes four times the memory.
    until_start = np.array(before)
    del before
    backward = np.argsort(-rank[dependencies.depends_on], kind="stable")
    for task, dependency in _edges(dependencies.filter(backward)):
        after[dependency] = max(after[dependency], after[task] + takes[task])
    return until_start, np.array(after), previous


def _edges(dependencies: Dependencies) -> Iterator[tuple[int, int]]:
    """Pairs of a task and a dependency, a block at a time: objects of all would take memory."""
    for first in range(0, len(dependencies), _EDGES):
        some = slice(first, first + _EDGES)
        yield from zip(
            dependencies.task[some].tolist(), dependencies.depends_on[some].tolist(), strict=True
        )


def _ranks(tasks: int, dependencies: Dependencies) -> IntArray:
    """Number tasks, each higher than all dependencies."""
    if (dependencies.depends_on < dependencies.task).all():
        # Schedulers that submit a task when it can be run record them in such an order.
        return np.arange(tasks)
    # Kahn's algorithm: a task is ranked when all its dependencies are.
    order = np.argsort(dependencies.depends_on, kind="stable")
    cuts = np.searchsorted(dependencies.depends_on[order], np.arange(tasks + 1)).tolist()
    dependents = dependencies.task[order].tolist()
    waiting = np.bincount(dependencies.task, minlength=tasks).tolist()
    ranked = [row for row in range(tasks) if not waiting[row]]
    for row in ranked:
        for dependent in dependents[cuts[row] : cuts[row + 1]]:
            waiting[dependent] -= 1
            if not waiting[dependent]:
                ranked.append(dependent)
    if len(ranked) < tasks:
        raise DiagnosticError(
            "expected dependencies without cycles, found "
            f"{counted(tasks - len(ranked), 'task')} in or after a cycle; this recording's "
            "dependencies are damaged"
        )
    ranks = np.empty(tasks, dtype=np.int64)
    ranks[ranked] = np.arange(tasks)
    return ranks


def last_dependencies(recording: Recording) -> IntArray:
    """For each task the row in `Recording.tasks` of the last dependency to stop.

    Returns
    -------
    array of int
        -1 for a task without dependencies among those that are known to have started.
    """
    tasks, table = recording.tasks, recording.dependencies
    last = np.full(len(tasks), -1, np.int64)
    if not len(table):
        return last
    started = ~np.isnan(tasks.start[table.depends_on])
    task, depends_on = table.task[started], table.depends_on[started]
    order = np.lexsort((stop_times(recording)[depends_on], task))
    # Of several assignments to one task the last one holds.
    last[task[order]] = depends_on[order]
    return last
