"""New rows of each table since the previous increment, or all rows in the first."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_diag.capture.build import (
    Increment,
    Tables,
    calls_table,
    computations_tables,
    joined,
    processes_table,
    resources_table,
)
from dask_diag.capture.computation import NOTHING, Computation, ComputationSnapshot
from dask_diag.capture.lines.tables import LineTables
from dask_diag.capture.results_table import ResultCache
from dask_diag.capture.session import ProgressInfo, Session, open_calls, progress_of, snapshot_of
from dask_diag.capture.stacks_table import SeenBefore, joined_stacks, stacks_as_seen, stacks_tables
from dask_diag.capture.task import ROW
from dask_diag.capture.tasks_table import (
    joined_rows,
    log_tables,
    of_rows,
    tasks_of,
    with_workers_named,
)
from dask_diag.capture.workers_table import NO_THREADS, TaskThreads, Workers, task_threads
from dask_diag.columns import BoolArray, Categorical, IntArray, concatenate
from dask_diag.model import tables
from dask_diag.model.table import NO_ROWS, Table, stack
from dask_diag.model.tables import REFERENCES
from dask_diag.sampling.call_tree import Stacks
from dask_diag.system.samplers import PROCESS_COLUMNS, SAMPLE_COLUMNS, ResourceRows

if TYPE_CHECKING:
    from dask_diag.cluster.log import ClusterLog
    from dask_diag.cluster.tables import ClusterTables
    from dask_diag.cluster.tasks_table import ClusterStacks
    from dask_diag.cluster.workers_table import RemoteProcesses


ResultSource = Any
"""A profiler of results: a `CacheProfiler`, or None."""


class _Taken:
    """A computation whose tasks are taken, increment by increment.

    Attributes
    ----------
    computation : Computation or ComputationSnapshot
    snapshot : ComputationSnapshot
        With the tasks that have not been taken for good.
    positions : array of int
        Of the rows taken for good, in the table of all tasks: rows of other computations are
        between those of one.
    functions : list of Categorical
        Of these rows.
    threads : TaskThreads
        The threads of these rows.
    planned : mapping of str to int
        Number of tasks of each function.
    progress : ProgressInfo or None
        How far it was before its rows were read; None after the end.
    has_ended : bool
        Whether the computation has ended for all profilers: then all of its rows are final.
    """

    __slots__ = (
        "computation",
        "functions",
        "has_ended",
        "planned",
        "positions",
        "progress",
        "snapshot",
        "threads",
    )

    snapshot: ComputationSnapshot

    def __init__(self, computation: Computation | ComputationSnapshot) -> None:
        self.computation = computation
        self.positions = _NO_POSITIONS
        self.functions: list[Categorical] = []
        self.threads = NO_THREADS
        self.planned: Mapping[str, int] = NOTHING
        self.progress: ProgressInfo | None = None
        self.has_ended = False

    def read(self, results: ResultSource) -> None:
        """Read the tasks that have not been taken for good."""
        computation = self.computation
        self.progress = None
        if isinstance(computation, Computation):
            self.progress, planned = progress_of(computation), computation.planned
            self.planned = planned.by_function(computation.dsk) if planned else NOTHING
        # The first profiler that ends a computation publishes it; the hooks of others cost more.
        is_closed = computation.is_closed
        sizes = None if results is None else results.sizes_of(computation)
        self.snapshot = snapshot_of(computation, len(self.positions), sizes)
        self.has_ended = is_closed and self.snapshot.stop is not None

    def take(self, positions: IntArray, functions: Categorical, rows: slice) -> TaskThreads:
        """Take the final rows, of all that were read; returns the threads of all tasks so far.

        Parameters
        ----------
        positions, functions
            Of the rows of all computations.
        rows : slice
            Those of this one.
        """
        tasks, ended = self.snapshot.tasks, self.computation.finished
        if self.has_ended and ended is not None:
            if self.functions or tasks.final > _WORTH_KEEPING:
                ended.functions = concatenate([*self.functions, functions[rows]])
            if not self.snapshot.facts.threads:
                return NO_THREADS
        final = slice(rows.start, rows.start + tasks.final)
        self.positions = np.concatenate([self.positions, positions[final]])
        self.functions.append(functions[final])
        stop = tasks.final * ROW.size
        self.threads = self.threads.plus(task_threads(tasks.rows[:stop]))
        return self.threads.plus(task_threads(tasks.rows[stop:]))


_NO_POSITIONS: IntArray = np.zeros(0, np.int64)
_WORTH_KEEPING = 1000
"""Tasks of a computation from which on their functions are kept."""


class _TakenTasks:
    """The tasks that were read of several computations: as tables, all at once.

    To make tables of each computation of two tasks would take as long as to compute it.

    Parameters
    ----------
    taken : sequence of _Taken
    workers : dict
        Grows by new workers.
    lines : LineTables
        Grows by new kinds of tasks.

    Attributes
    ----------
    is_final : array of bool
    """

    def __init__(self, taken: Sequence[_Taken], workers: Workers, lines: LineTables) -> None:
        self._taken = taken
        snapshots = [one.snapshot for one in taken]
        self._rows = joined_rows(snapshots)
        self._of_row = of_rows(snapshots)
        groups = [lines.groups(one.tasks.kinds, one.tasks.groups) for one in snapshots]
        tasks = tasks_of(snapshots, self._rows, workers)
        self._tasks = tasks.replacing({"group": np.concatenate([_NO_POSITIONS, *groups])})
        self._stops = np.cumsum(np.bincount(self._of_row, minlength=len(taken)))
        starts = np.append(0, self._stops[:-1])
        self._among_own = np.arange(len(self._of_row)) - starts[self._of_row]
        final = np.array([one.tasks.final for one in snapshots], np.int64)
        self.is_final: BoolArray = self._among_own < final[self._of_row]
        self._positions = self._refers = _NO_POSITIONS

    def tables(self, first: int, provisional: int) -> Increment:
        """Tables of final and of provisional tasks, which begin at these positions."""
        is_final = self.is_final
        final, others = first + np.cumsum(is_final), provisional + np.cumsum(~is_final)
        self._positions = positions = np.where(is_final, final, others) - 1
        self._refers = positions
        if any(len(one.positions) for one in self._taken):
            now = np.split(positions, self._stops[:-1])
            pairs = zip([one.positions for one in self._taken], now, strict=True)
            self._refers = np.concatenate([part for pair in pairs for part in pair])
        new, running = {}, {}
        new["tasks"], running["tasks"] = _split(self._tasks, is_final)
        limit = first + np.count_nonzero(is_final)
        for name, table in log_tables(self._rows, positions, self._refers).items():
            if len(table):
                new[name], running[name] = _split(table, table["task"] < limit)
        return new, running

    def take(self) -> list[TaskThreads]:
        """Take the final rows of each computation; returns the threads of their tasks."""
        functions, start, threads = self._tasks["function"], 0, []
        for one, stop in zip(self._taken, self._stops.tolist(), strict=True):
            threads.append(one.take(self._positions, functions, slice(start, stop)))
            start = stop
        return threads

    def planned(self) -> Iterator[list[tuple[str, str, int]]]:
        """Rows of `Recording.planned` of each computation.

        Where it has ended these are the tasks that were submitted, and those that it did not come
        to.
        """
        functions = self._tasks["function"]
        names, count = functions.values, max(1, len(functions.values))
        pairs, numbers = np.unique(self._of_row * count + functions.codes, return_counts=True)
        submitted: list[dict[str, int]] = [{} for _ in self._taken]
        for pair, number in zip(pairs.tolist(), numbers.tolist(), strict=True):
            submitted[pair // count][names[pair % count]] = number
        for one, tasks in zip(self._taken, submitted, strict=True):
            not_run = one.snapshot.facts.not_run
            planned = one.planned if one.snapshot.stop is None else tasks
            if planned is tasks and (one.functions or not_run):
                before = (functions.tolist() for functions in one.functions)
                planned = Counter(tasks) + Counter(chain(*before)) + Counter(not_run)
            yield [(one.snapshot.name, *item) for item in sorted(planned.items()) if item[1]]

    def results(self, cache: ResultCache, source: ResultSource) -> Increment:
        """The released results, and the cached results."""
        taken, rows, names = self._taken, self._rows, ("key", "function", "computation")
        collected, count = self._tasks["collected"], len(self._of_row)
        came = np.bincount(self._of_row, ~np.isnan(collected), len(taken)).tolist()
        sizes, measured = array("d"), np.zeros(len(taken), np.int64)
        for number, one in enumerate(taken):
            # Tasks that were in flight at the end come last, and have no result.
            last = min(int(came[number]), one.snapshot.tasks.final)
            of_tasks, first = source.sizes_of(one.computation), one.snapshot.tasks.first
            new = () if of_tasks is None else of_tasks[first : first + last]
            sizes.extend(new)
            measured[number] = len(new)
        chosen = self._among_own < measured[self._of_row]
        needed, dependents = np.zeros((2, count), np.int64)
        needed[: len(rows.dependencies[0])] = rows.dependencies[0]
        dependents[: len(rows.dependents)] = rows.dependents
        depends_on = np.array(rows.dependencies[1], np.int64)[np.repeat(chosen, needed)]
        released = cache.add(
            Table({name: self._tasks[name] for name in names}).filter(chosen),
            sizes,
            collected[chosen],
            dependents[chosen],
            (needed[chosen], self._refers[depends_on]),
            positions=self._positions[chosen],
        )
        cache.drop_names()
        stops = {one.snapshot.name: one.snapshot.stop for one in taken}
        ended = {one.snapshot.name for one in taken if one.has_ended}
        cached = cache.until(perf_counter(), stops)
        cache.forget(ended)
        if not len(cached):
            return {"cached_results": _results_table(released)}, {}
        has_ended = cached["computation"].is_in(ended)
        new_rows = stack([released, cached.filter(has_ended)])
        running = _results_table(cached.filter(~has_ended))
        return {"cached_results": _results_table(new_rows)}, {"cached_results": running}


def _results_table(results: Table) -> Table:
    """Results as `Recording.cached_results`, computation by computation."""
    if not len(results):
        return NO_ROWS
    order = np.argsort(results["computation"].codes, kind="stable")
    return Table({name: results[name][order] for name in tables.CachedResults.schema})


def _split(table: Table, is_final: BoolArray) -> tuple[Table, Table]:
    """Divide a table into final and provisional rows."""
    if is_final.all():
        return table, NO_ROWS
    return table.filter(is_final), table.filter(~is_final)


class TaskTables:
    """Tables of the computations of a session, with tasks and references to tasks.

    Tasks that were collected, and computations that have ended, are final; what runs is
    provisional.

    Parameters
    ----------
    session : Session
    logs : callable, optional
        Returns what was pulled from clusters.
    results : CacheProfiler, optional
        The profiler that measures results, if any.
    with_code : bool, optional
        Whether the text of lines that built tasks is recorded.
    """

    def __init__(
        self,
        session: Session,
        logs: Callable[[], Sequence[ClusterLog]] = tuple,
        results: ResultSource = None,
        with_code: bool = True,
    ) -> None:
        self._session = session
        self._logs = logs
        self._results = results
        self._results_on_clusters: Callable[[], Table] | None = None
        self._clusters: ClusterTables | None = None
        self._seen: set[int] = set()
        self._running: list[_Taken] = []
        self._cache = ResultCache()
        self._workers: Workers = {}
        self._lines = LineTables(with_code)
        self._count = self._calls = 0

    def take(self) -> Increment:
        """Return new final rows, and provisional rows."""
        computations = tuple(self._session.computations)
        unseen = [one for one in computations if one.number not in self._seen]
        self._seen.update(one.number for one in unseen)
        taken = [*self._running, *map(_Taken, unseen)]
        for one in taken:
            one.read(self._results)
        # Of tasks that run none has started later than the computation is said to have reached.
        now = perf_counter()
        new, provisional = self._take_local(taken, now)
        times = self._session.calls[self._calls :]
        self._calls += len(times)
        new["calls"] = calls_table(times)
        self._running = [one for one in taken if not one.has_ended]
        calls = open_calls({computation.called for computation in computations})
        going_on = [one.progress for one in self._running if one.snapshot.stop is None]
        provisional["progress"] = tables.Progress.of_rows(
            progress._asdict() for progress in (*going_on, *calls) if progress is not None
        )
        # Their seconds grow as long as tasks run: all rows are written again.
        provisional.update(self._lines.tables())
        return new, provisional

    def _take_local(self, taken: Sequence[_Taken], now: float) -> Increment:
        """Take the computations of this process, and those of clusters."""
        rows, first = _TakenTasks(taken, self._workers, self._lines), self._count
        self._count += int(np.count_nonzero(rows.is_final))
        on_clusters = self._take_clusters(now)
        made = rows.tables(first, self._count)
        results: Increment = {}, {}
        if self._results is not None:
            results = rows.results(self._cache, self._results)
        planned, threads = list(rows.planned()), rows.take()
        # In the order of starts, which numbers have.
        order = sorted(range(len(taken)), key=lambda position: taken[position].snapshot.number)
        parts: list[Tables] = []
        for is_final, part, others in zip((True, False), made, results, strict=True):
            chosen = [position for position in order if taken[position].has_ended == is_final]
            tasks = part["tasks"]
            snapshots = [taken[position].snapshot for position in chosen]
            of_tasks = [threads[position] for position in chosen]
            rows_planned = (row for position in chosen for row in planned[position])
            all_tables = {
                **dict.fromkeys(("cached_results", *REFERENCES), NO_ROWS),
                **part,
                **others,
                # A table without rows has no columns of workers yet.
                "tasks": with_workers_named(tasks, self._workers) if len(tasks) else NO_ROWS,
                **computations_tables(snapshots, of_tasks, now),
                "planned": tables.Planned.of_rows(rows_planned),
            }
            parts.append(joined(all_tables, on_clusters[len(parts)]))
        return parts[0], parts[1]

    def _take_clusters(self, now: float) -> Increment:
        """Return the new rows pulled from clusters."""
        logs = self._logs()
        if not logs:
            return {}, {}
        if self._clusters is None:
            from dask_diag.cluster.tables import ClusterTables

            self._clusters = ClusterTables(self._lines)
            if self._results is not None:
                self._results_on_clusters = self._results.results_on_clusters()
        new, provisional = self._clusters.take(logs, self._count, now)
        self._count += len(new["tasks"])
        if self._results_on_clusters is not None:
            new = {**new, "cached_results": self._results_on_clusters()}
        return new, provisional


def tasks_tables(session: Session, results: ResultSource = None) -> Tables:
    """Tables of all that a session has captured, with tasks in the order of submission."""
    made = joined(*TaskTables(session, results=results).take())
    tasks = made["tasks"]
    if not len(tasks):
        return made
    order = np.argsort(tasks["submitted"], kind="stable")
    position_of = np.empty(len(order), dtype=np.int64)
    position_of[order] = np.arange(len(order))
    made["tasks"] = tasks.filter(order)
    for name, columns in REFERENCES.items():
        if len(made[name]):
            moved = {column: position_of[made[name][column]] for column in columns}
            made[name] = made[name].replacing(moved)
    return made


_SECONDS_TO_ARRIVE = 2.0
"""For so long samples of other hosts may be on the way."""
_SECONDS_OF_HISTORY = 600.0


def sampled_tables(rows: ResourceRows, logs: Sequence[ClusterLog]) -> Tables:
    """`Recording.resources` and `Recording.processes` of all that was sampled, in order of time."""
    made = joined(*ResourceTables(rows, lambda: logs).take())
    processes = made["processes"]
    if logs:
        processes = processes.filter(np.argsort(processes["time"], kind="stable"))
    return {**made, "processes": processes}


class ResourceTables:
    """The samples of a ResourceProfiler.

    Parameters
    ----------
    rows : ResourceRows
    logs : callable
        Returns what was pulled from clusters.
    """

    def __init__(
        self, rows: ResourceRows, logs: Callable[[], Sequence[ClusterLog]] = tuple
    ) -> None:
        self._rows = rows
        self._read: tuple[int, ...] = 0, 0
        self._logs = logs
        self._remote: RemoteProcesses | None = None
        self._remote_rows: Table = Table({})
        self._waiting: Table = Table({})
        self._last = -np.inf

    def take(self) -> Increment:
        """Return the new samples; a sample is provisional while other hosts may add to the sum."""
        logs = self._logs()
        samples, read = self._rows.samples, self._rows.processes
        before = self._read
        # The sampling thread may be in the middle of a row.
        self._read = tuple(
            len(numbers) // len(columns) * len(columns)
            for numbers, columns in ((samples, SAMPLE_COLUMNS), (read, PROCESS_COLUMNS))
        )
        resources = resources_table(samples[before[0] : self._read[0]])
        processes = processes_table(read[before[1] : self._read[1]], logs)
        if self._last == -np.inf and len(processes):
            self._last = float(processes.time[0])
        if not logs:
            return {"resources": resources, "processes": processes}, {}
        if self._remote is None:
            from dask_diag.cluster.workers_table import RemoteProcesses

            self._remote = RemoteProcesses()
        remote = self._remote.take(logs)
        processes = stack([processes, remote])
        self._remote_rows = stack([self._remote_rows, remote])
        now = perf_counter()
        waiting = stack([self._waiting, resources])
        # A row is the sum over all hosts: it is final when no sample of its time can come any more.
        is_new = waiting["time"] > now - _SECONDS_TO_ARRIVE
        final, self._waiting = waiting.filter(~is_new), waiting.filter(is_new)
        new = {"resources": self._complete(final), "processes": processes}
        self._last = float(np.max(final["time"], initial=self._last))
        provisional = {"resources": self._complete(self._waiting)}
        is_recent = self._remote_rows["time"] > now - _SECONDS_OF_HISTORY
        self._remote_rows = self._remote_rows.filter(is_recent)
        return new, provisional

    def _complete(self, resources: Table) -> Table:
        from dask_diag.cluster.workers_table import with_remote_processes

        return with_remote_processes(resources, self._remote_rows, self._last)


_MOST_CELLS = 20_000
"""Rows written while computations run; if there are more, cycles are merged: it is cheap."""


class StackTables:
    """The call stacks that a SamplingProfiler sampled.

    All rows are written again each time, since what samples represent is known only when their
    tasks have ended. Until then they are written as they were sampled.

    Parameters
    ----------
    session : Session
    stacks : Stacks
    is_active : callable
        Whether the profiler still samples.
    logs : callable
        Returns what was pulled from clusters.
    """

    def __init__(
        self,
        session: Session,
        stacks: Stacks,
        is_active: Callable[[], bool],
        logs: Callable[[], Sequence[ClusterLog]] = tuple,
    ) -> None:
        self._session = session
        self._logs = logs
        self._clusters: ClusterStacks | None = None
        self._stacks = stacks
        self._is_active = is_active
        self._before = SeenBefore()

    def take(self) -> Increment:
        """Nothing for good, and all samples so far; final once the profiler has ended."""
        clusters = self._of_clusters()
        began = min((log.began for log in self._logs()), default=inf)
        if self._is_active():
            local = stacks_as_seen(self._stacks, _MOST_CELLS, before=self._before, began=began)
            others = clusters.as_seen(_MOST_CELLS) if clusters else []
        else:
            session = self._session
            start, stop = session.start, session.stop
            local = stacks_tables(self._stacks, session.snapshots(), start, stop, began)
            now = perf_counter()
            others = clusters.scaled(start or now, stop or now) if clusters else []
        return {}, joined_stacks([local, *others]) if others else local

    def _of_clusters(self) -> ClusterStacks | None:
        logs = self._logs()
        if logs and self._clusters is None:
            from dask_diag.cluster.tasks_table import ClusterStacks

            self._clusters = ClusterStacks(self._stacks.finest)
        if self._clusters is not None:
            self._clusters.take(logs)
        return self._clusters
