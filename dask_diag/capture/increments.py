"""New rows of each table since the previous increment, or all rows in the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_diag.capture.build import (
    Increment,
    Tables,
    computations_tables,
    joined,
    processes_table,
    resources_table,
)
from dask_diag.capture.computation import (
    Computation,
    ComputationInfo,
    ComputationSnapshot,
    TaskRows,
)
from dask_diag.capture.lines.tables import LineTables
from dask_diag.capture.results_table import ResultCache
from dask_diag.capture.session import ProgressInfo, Session, open_calls, progress_of, snapshot_of
from dask_diag.capture.stacks_table import SeenBefore, joined_stacks, stacks_as_seen, stacks_tables
from dask_diag.capture.task import ROW
from dask_diag.capture.tasks_table import (
    joined_rows,
    log_tables,
    tasks_of,
    tasks_of_series,
    with_workers_named,
)
from dask_diag.capture.workers_table import (
    NO_THREADS,
    TaskThreads,
    Workers,
    constant,
    numbers_of,
    task_threads,
)
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


class _TakenComputation:
    """Takes the tasks of a computation, increment by increment.

    In each increment `look`, `read` and `tables` are called, in this order.

    Attributes
    ----------
    info : ComputationInfo
    has_ended : bool
        Whether the computation has ended for all profilers: then all of its rows are final.
    progress : ProgressInfo or None
        How far it was before its rows were read; None after the end.
    threads : TaskThreads
        The threads of all tasks read so far, final or not.
    """

    info: ComputationInfo
    progress: ProgressInfo | None
    threads: TaskThreads
    _planned: Mapping[str, int]
    _rows: TaskRows
    _tasks: Table

    def __init__(self, computation: Computation, results: ResultSource) -> None:
        self._computation = computation
        self._results = results
        self.has_ended = False
        # Of the rows that are final, in the table of all tasks: rows of other computations are
        # between those of one.
        self._positions: IntArray = np.zeros(0, np.int64)
        self._functions = [Categorical([], [])]
        self._final_threads = NO_THREADS
        self._cached_results = ResultCache()

    def look(self) -> None:
        """Read how far the computation is."""
        self.progress, planned = progress_of(self._computation), self._computation.planned
        self._planned = planned.by_function(self._computation.dsk) if planned else {}

    def read(self, workers: Workers, lines: LineTables, position: int) -> int:
        """Read the tasks that have not been taken for good.

        Returns the number of final tasks, from `position` on.
        """
        computation = self._computation
        # The first profiler that ends a computation publishes it; the hooks of others cost more.
        is_closed = computation.is_closed
        snapshot = snapshot_of(computation, len(self._positions), self._sizes())
        self.info, self._rows = snapshot.info, snapshot.tasks
        self.has_ended = is_closed and self.info.stop is not None
        final = self._rows.final
        groups = lines.groups(self._rows.kinds, self._rows.groups)
        self._tasks = tasks_of(self.info, self._rows, workers).replacing({"group": groups})
        positions = np.arange(position, position + final)
        self._positions = np.concatenate([self._positions, positions])
        self._functions.append(self._tasks["function"][:final])
        rows, stop = self._rows.rows, final * ROW.size
        self._final_threads = self._final_threads.plus(task_threads(rows[:stop]))
        self.threads = self._final_threads.plus(task_threads(rows[stop:]))
        finished = computation.finished
        if finished is not None and self.has_ended:
            finished.functions = concatenate(self._functions)
        return final

    def _sizes(self) -> Sequence[float] | None:
        """The size of the result of each row so far; None if not measured.

        The last row's may be missing, or that of the next one be there.
        """
        sizes: Sequence[float] | None = None
        if self._results is not None:
            sizes = self._results.sizes_of(self._computation)
        return sizes

    @property
    def has_stopped(self) -> bool:
        """Whether the computation has ended for a profiler."""
        return self.info.stop is not None

    def infos(self) -> Iterator[tuple[ComputationInfo, TaskThreads]]:
        """Facts about the computation, and the threads of its tasks."""
        yield self.info, self.threads

    def planned(self) -> Iterator[dict[str, object]]:
        """Rows of `Recording.planned`: how many tasks of each function were to run.

        Where the computation has ended these are the tasks that were submitted, and those that it
        did not come to.
        """
        planned = self._planned
        if self.info.stop is not None:
            functions = concatenate(self._functions)
            counts = np.bincount(functions.codes, minlength=len(functions.values)).tolist()
            submitted = Counter(dict(zip(functions.values, counts, strict=True)))
            planned = submitted + Counter(self.info.not_run)
        for function, count in sorted(planned.items()):
            if count:
                yield {"computation": self.info.name, "function": function, "tasks": count}

    def tables(self, position: int) -> Increment:
        """Return the tables of the tasks read; provisional tasks begin at `position`."""
        rows, taken = self._rows, len(self._positions)
        after = np.arange(position, position + len(self._tasks) - rows.final)
        positions = np.concatenate([self._positions, after])
        released, cached = self._results_tables()
        new, provisional = {"cached_results": released}, {"cached_results": cached}
        is_final = np.arange(len(self._tasks)) < rows.final
        new["tasks"], provisional["tasks"] = _split(self._tasks, is_final)
        for name, table in log_tables(rows).items():
            if len(table):
                moved = _moved(table, name, positions)
                new[name], provisional[name] = _split(moved, table["task"] < taken)
        return new, provisional

    def _results_tables(self) -> tuple[Table, Table]:
        """The released results, and the cached results."""
        sizes = self._sizes()
        if sizes is None:
            return NO_ROWS, NO_ROWS
        rows, info = self._rows, self.info
        tasks = self._tasks.filter(slice(rows.final))
        # Tasks that were in flight at the end come last, and have no result.
        collected = int((~np.isnan(tasks["collected"])).sum())
        released = self._cached_results.add(
            Table({name: tasks[name] for name in ("key", "function")}),
            sizes[rows.first : rows.first + collected],
            tasks["collected"],
            rows.dependents,
            rows.dependencies,
        )
        self._cached_results.drop_names()
        cached = self._cached_results.until(perf_counter() if info.stop is None else info.stop)
        released, cached = (_named_results(info.name, table) for table in (released, cached))
        return (stack([released, cached]), NO_ROWS) if self.has_ended else (released, cached)


def _named_results(computation: str, results: Table) -> Table:
    """Results with their computation, as `Recording.cached_results`."""
    if not len(results):
        return NO_ROWS
    made = results.replacing({"computation": constant(computation, len(results))})
    return Table({name: made[name] for name in tables.CachedResults.schema})


def _split(table: Table, is_final: BoolArray) -> tuple[Table, Table]:
    """Divide a table into final and provisional rows."""
    if is_final.all():
        return table, NO_ROWS
    return table.filter(is_final), table.filter(~is_final)


def _moved(table: Table, name: str, positions: IntArray) -> Table:
    """Renumber the tasks in a table with references."""
    return table.replacing({column: positions[table[column]] for column in REFERENCES[name]})


class _TakenSeries:
    """Takes computations that have ended since the previous increment, all at once.

    It has the methods of `_TakenComputation`: to make tables of each computation of two tasks would
    take as long as to compute it.
    """

    has_ended = has_stopped = True
    progress = None

    def __init__(self, computations: Sequence[ComputationSnapshot], sizes: Sequence[Any]) -> None:
        self._computations = computations
        self._sizes = sizes
        self._first = 0
        self._rows: TaskRows
        self._tasks: Table

    @classmethod
    def divide(
        cls, computations: Sequence[Computation], results: ResultSource
    ) -> tuple[list[_TakenSeries], list[Computation]]:
        """Series of the computations of each thread, and those that are taken one by one."""
        series: dict[tuple[object, ...], tuple[list[ComputationSnapshot], list[Any]]] = {}
        others = []
        for computation in computations:
            finished = computation.finished if computation.is_closed else None
            sizes = None if results is None else results.sizes_of(computation)
            if finished is None or not _is_plain(finished, sizes):
                others.append(computation)
                continue
            info = finished.info
            kind = info.pid, info.thread, info.scheduler, info.workers, sizes is None
            snapshots, all_sizes = series.setdefault(kind, ([], []))
            snapshots.append(finished)
            all_sizes.append(sizes)
        return [cls(*parts) for parts in series.values()], others

    def look(self) -> None:
        """Do nothing: they have ended."""

    def read(self, workers: Workers, lines: LineTables, position: int) -> int:
        """Read all tasks; returns their number."""
        self._first, self._rows = position, joined_rows(self._computations)
        rows = (one.tasks for one in self._computations)
        groups = np.concatenate([lines.groups(one.kinds, one.groups) for one in rows])
        tasks = tasks_of_series(self._computations, self._rows, workers)
        self._tasks = tasks.replacing({"group": groups})
        return self._rows.final

    def infos(self) -> Iterator[tuple[ComputationInfo, TaskThreads]]:
        """Facts about each computation, and the threads of its tasks, if any are of use."""
        for one in self._computations:
            threads = task_threads(one.tasks.rows) if one.info.threads else NO_THREADS
            yield one.info, threads

    def planned(self) -> Iterator[dict[str, object]]:
        """Rows of `Recording.planned`."""
        functions, computations = self._tasks["function"], self._tasks["computation"]
        pairs = zip(computations.codes.tolist(), functions.codes.tolist(), strict=True)
        counts = Counter(pairs)
        rows = [
            (code, functions.values[function], count) for (code, function), count in counts.items()
        ]
        for code, function, count in sorted(rows):
            name = computations.values[code]
            yield {"computation": name, "function": function, "tasks": count}

    def tables(self, position: int) -> Increment:
        """Return the tables of the tasks; none is provisional."""
        positions = np.arange(self._first, self._first + self._rows.final)
        new = {"tasks": self._tasks, "cached_results": self._results()}
        for name, table in log_tables(self._rows).items():
            if len(table):
                new[name] = _moved(table, name, positions)
        return new, dict.fromkeys(("tasks", "cached_results"), NO_ROWS)

    def _results(self) -> Table:
        if self._sizes[0] is None:
            return NO_ROWS
        rows, tasks, cache = self._rows, self._tasks, ResultCache()
        stops = np.array([one.info.stop for one in self._computations], float)
        counts = [len(one.tasks.rows) // ROW.size for one in self._computations]
        columns = {name: tasks[name] for name in ("key", "function", "computation")}
        released = cache.add(
            Table({**columns, "ended": np.repeat(stops, counts)}),
            [size for sizes in self._sizes for size in sizes],
            tasks["collected"],
            rows.dependents,
            rows.dependencies,
        )
        cached = cache.columns
        made = stack([released, cached.replacing({"stop": cached["ended"]})])
        made = made.filter(np.argsort(made["computation"].codes, kind="stable"))
        return Table({name: made[name] for name in tables.CachedResults.schema})


_MOST_ROWS = 1000
"""Tasks of a computation that is taken with others, at most."""


def _is_plain(computation: ComputationSnapshot, sizes: Sequence[float] | None) -> bool:
    """Whether a computation can be taken with others: all of its few tasks were collected here."""
    info, tasks = computation.info, computation.tasks
    return (
        not (info.remote_workers or info.not_run or tasks.exceptional or len(tasks.spans.rows))
        and 0 < tasks.final <= _MOST_ROWS
        and not np.isnan(numbers_of(tasks.rows)[5]).any()
        and (sizes is None or len(sizes) == tasks.final == len(tasks.dependents))
    )


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
        self._running: list[_TakenComputation | _TakenSeries] = []
        self._workers: Workers = {}
        self._lines = LineTables(with_code)
        self._count = 0

    def take(self) -> Increment:
        """Return new final rows, and provisional rows."""
        computations = tuple(self._session.computations)
        unseen = [one for one in computations if one.number not in self._seen]
        self._seen.update(one.number for one in unseen)
        series, others = _TakenSeries.divide(unseen, self._results)
        self._running += series
        self._running += [_TakenComputation(one, self._results) for one in others]
        taken = self._running
        for one in taken:
            one.look()
        for one in taken:
            self._count += one.read(self._workers, self._lines, self._count)
        # Of tasks that run none has started later than the computation is said to have reached.
        now = perf_counter()
        on_clusters = self._take_clusters(now)
        position, parts = self._count, []
        for one in taken:
            parts.append(one.tables(position))
            position += len(parts[-1][1]["tasks"])
        ended = [one for one in taken if one.has_ended]
        self._running = [one for one in taken if not one.has_ended]
        new = self._together([part for part, _ in parts], ended, now)
        provisional = self._together([part for _, part in parts], self._running, now)
        calls = open_calls({computation.called for computation in computations})
        going_on = [one.progress for one in self._running if not one.has_stopped]
        provisional["progress"] = tables.Progress.of_rows(
            progress._asdict() for progress in (*going_on, *calls) if progress is not None
        )
        # Their seconds grow as long as tasks run: all rows are written again.
        provisional.update(self._lines.tables())
        return joined(new, on_clusters[0]), joined(provisional, on_clusters[1])

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

    def _together(
        self,
        parts: Sequence[Tables],
        computations: Sequence[_TakenComputation | _TakenSeries],
        now: float,
    ) -> Tables:
        """Concatenate the tables of computations."""
        made = joined(dict.fromkeys(("tasks", "cached_results", *REFERENCES), NO_ROWS), *parts)
        tasks = made["tasks"]
        # A table without rows has no columns of workers yet.
        made["tasks"] = with_workers_named(tasks, self._workers) if len(tasks) else NO_ROWS
        planned = (row for one in computations for row in one.planned())
        infos = [info for one in computations for info in one.infos()]
        # In the order of starts, which numbers have.
        infos.sort(key=lambda info: info[0].number)
        return {
            **made,
            **computations_tables(infos, now),
            "planned": tables.Planned.of_rows(planned),
        }


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
    for name in REFERENCES:
        if len(made[name]):
            made[name] = _moved(made[name], name, position_of)
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
