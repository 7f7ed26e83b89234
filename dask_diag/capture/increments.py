"""New rows of each table since the last chunk, while computations run."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from dask_diag.capture.build import (
    computations_table,
    pools_table,
    processes_table,
    resources_table,
)
from dask_diag.capture.chunks import Increment, Tables
from dask_diag.capture.computation import (
    Computation,
    ComputationInfo,
    ComputationSnapshot,
    InFlight,
    TaskRows,
)
from dask_diag.capture.keys import Keys, NamesOfPlainKeys
from dask_diag.capture.log import Dependencies, Log, Metrics, SpansOfTasks, Transfers, Waits
from dask_diag.capture.results_table import CachedResults, NewResults, table_of
from dask_diag.capture.session import Session, collected_and_in_flight, dependents_of_rows, info_of
from dask_diag.capture.stacks_table import SeenBefore, joined_stacks, stacks_as_seen, stacks_tables
from dask_diag.capture.task import ROW
from dask_diag.capture.tasks_table import (
    log_tables,
    moved,
    remember_functions,
    tasks_of,
    with_workers_named,
)
from dask_diag.capture.workers_table import Workers, task_threads, threads_table, workers_table
from dask_diag.columns import Categorical, IntArray, concatenate
from dask_diag.model.table import NO_ROWS, Table, stack
from dask_diag.model.tables import REFERENCES
from dask_diag.sampling.call_tree import Stacks
from dask_diag.system.samplers import PROCESS_COLUMNS, SAMPLE_COLUMNS, ResourceRows

if TYPE_CHECKING:
    from dask_diag.cluster.log import ClusterLog
    from dask_diag.cluster.tables import ClusterTables
    from dask_diag.cluster.tasks_table import ClusterStacks
    from dask_diag.cluster.workers_table import RemoteProcesses


class TakenTasks:
    """The rows of one computation, part by part; its length is how many there are."""

    def __init__(self) -> None:
        self._functions = [Categorical([], [])]
        # The first row of each part, and of the next one; and by how much a part has moved.
        self._rows = [0, 0]
        self._moved = [0]

    def __len__(self) -> int:
        return self._rows[-1]

    def add(self, position: int, functions: Categorical) -> None:
        """Add the rows that follow, of which the first is at `position` of all tasks."""
        if len(functions):
            self._functions.append(functions)
            self._moved.append(position - len(self))
            self._rows.append(len(self) + len(functions))

    def positions_of(self, rows: IntArray) -> IntArray:
        """Where rows are in the table of all tasks."""
        parts = np.searchsorted(self._rows[:-1], rows, "right") - 1
        positions: IntArray = rows + np.array(self._moved)[parts]
        return positions

    def functions(self) -> Categorical:
        """The functions of all rows."""
        functions: Categorical = concatenate(self._functions)
        return functions


class ResultSource(Protocol):
    """What measures the results of tasks."""

    def sizes_of(self, computation: Computation) -> Sequence[float] | None:
        """The size of the result of each row so far; None if they are not measured.

        The last row's may be missing, or that of the next one be there.
        """

    def results_on_clusters(self) -> Callable[[], Table]:
        """Returns what, each time it is called, returns the results on clusters that are new."""


class Part(NamedTuple):
    """What is new of one computation.

    Attributes
    ----------
    info : ComputationInfo
    new : TaskRows
        The tasks collected since last asked; but dependencies, and the rows in ``metrics``,
        ``transfers`` and ``waits``, are those of the whole computation.
    in_flight : TaskRows
        Those that are not taken for good yet: in flight, or their results are being measured.
    dependencies : tuple of (list of int, list of int)
        On how many tasks with a row each of these depends, and on which.
    """

    info: ComputationInfo
    new: TaskRows
    in_flight: TaskRows
    dependencies: tuple[list[int], list[int]]


class IncrementalComputation:
    """The tasks of one computation, and their results, from where they were taken last.

    Of what a computation releases at its end, its keys are retained until all have been taken; but
    no task and no result.
    """

    def __init__(self, computation: Computation, results: ResultSource | None) -> None:
        self.computation = computation
        self._sizes_of = results.sizes_of if results else _not_measured
        self._cached_results = CachedResults()
        self._keys = computation.keys
        self._annotated = computation.annotated
        self.taken_tasks = TakenTasks()
        self.threads = task_threads(b"")
        self._dependencies_taken = 0
        self._log_taken = {"metrics": 0, "transfers": 0, "waits": 0}

    def take(self) -> Part:
        """What was added since last asked; and all that remains of it, if it has ended."""
        computation = self.computation
        if computation.finished is None:
            part = self._read(computation)
        if computation.finished is not None:
            # If it ended meanwhile, what was read may lack what was released.
            part = self._read_finished(computation.finished)
        return part

    def _read(self, computation: Computation) -> Part:
        keys, in_flight = collected_and_in_flight(computation, self._keys, len(self.taken_tasks))
        sized = self._sized(computation, len(keys))
        keys, unsized = keys[:sized], keys[sized:]
        names = NamesOfPlainKeys(keys, computation.dsk)
        spans = SpansOfTasks(keys, self._annotated)
        # Dependencies are collected once: by this thread, or at the end of the computation.
        computation.dependencies.extend(self._keys, computation.state.get("dependencies", {}))
        return Part(
            info_of(computation),
            self._new(computation, keys, names, spans)._replace(
                dependents=dependents_of_rows(computation, keys)
            ),
            self._provisional(computation, len(self.taken_tasks) + sized, unsized, in_flight),
            computation.dependencies.of([*unsized, *(task.key for task in in_flight)]),
        )

    def _sized(self, computation: Computation, count: int) -> int:
        """How many of so many new rows are to be taken for good.

        If the size of the last result is being measured, the next chunk has it.
        """
        start = len(self.taken_tasks)
        sizes = (computation.sizes, self._sizes_of(computation))
        return min([count, *(len(some) - start for some in sizes if some is not None)])

    def _read_finished(self, finished: ComputationSnapshot) -> Part:
        tasks, start = finished.tasks, len(self.taken_tasks)
        assert isinstance(tasks.keys, Keys)
        keys = self._keys[start:] + tasks.keys.after(len(self._keys))
        stop = start + len(keys)
        names = [(row - start, name) for row, name in tasks.names if start <= row < stop]
        spans = SpansOfTasks(keys, self._annotated) if start else tasks.spans
        return Part(finished.info, self._new(tasks, keys, names, spans), _no_rows(), ([], []))

    def _new(
        self,
        source: Computation | TaskRows,
        keys: list[Hashable],
        names: Iterable[tuple[int, str]],
        spans: SpansOfTasks,
    ) -> TaskRows:
        start, stop = len(self.taken_tasks), len(self.taken_tasks) + len(keys)
        return TaskRows(
            rows=b"".join(source.rows[start:stop])
            if isinstance(source, Computation)
            else source.rows[start * ROW.size : stop * ROW.size],
            keys=keys,
            names=names,
            exceptional={
                row - start: how
                for row, how in dict(source.exceptional).items()
                if start <= row < stop
            },
            spans=spans,
            dependencies=source.dependencies,
            metrics=self._since(source.metrics, "metrics", stop),
            transfers=self._since(source.transfers, "transfers", stop),
            waits=self._since(source.waits, "waits", stop),
            sizes=(source.sizes or array("d"))[start:stop],
            dependents=source.dependents[start:stop]
            if isinstance(source, TaskRows)
            else array("I"),
        )

    def _since(self, log: Log, name: str, rows: int) -> Log:
        """The new entries about the first rows."""
        start = self._log_taken[name]
        return log.between(start, bisect_left(log.rows, rows, lo=start))

    def _provisional(
        self,
        computation: Computation,
        row: int,
        unsized: list[Hashable],
        in_flight: list[InFlight],
    ) -> TaskRows:
        """The tasks from a row on whose results are being measured, and those in flight."""
        keys = [*unsized, *(task.key for task in in_flight)]
        rows = computation.rows[row : row + len(unsized)]
        return _no_rows()._replace(
            rows=b"".join([*rows, *(task.row() for task in in_flight)]),
            keys=keys,
            names=NamesOfPlainKeys(keys, computation.dsk),
            exceptional={row: task.outcome for row, task in enumerate(in_flight, len(unsized))},
            spans=SpansOfTasks(keys, self._annotated),
        )

    def collected(self, part: Part, workers: Workers, position: int) -> Tables:
        """The tasks that are new, of which the first is to be at `position`."""
        first = len(self.taken_tasks)
        tasks = tasks_of(part.info, part.new, workers)
        self.threads = self.threads.plus(task_threads(part.new.rows))
        self.taken_tasks.add(position, tasks["function"])
        if self.computation.finished is not None and part.info.stop is not None:
            remember_functions(self.computation.finished, self.taken_tasks.functions())
        logged = log_tables(part.new)
        for name in logged:
            self._log_taken[name] += len(getattr(part.new, name).rows)
        to = self.taken_tasks.positions_of
        dependencies = self._dependencies(part.new.dependencies, first)
        return {
            "tasks": tasks,
            "cached_results": self._released(part, tasks, first, dependencies),
            "dependencies": self._dependencies_table(position, *dependencies),
            **{name: moved(table, REFERENCES[name], to) for name, table in logged.items()},
        }

    def in_flight(self, part: Part, workers: Workers, position: int) -> Tables:
        """The tasks that are submitted and not collected, of which the first is at `position`."""
        return {
            "tasks": tasks_of(part.info, part.in_flight, workers),
            "cached_results": table_of(part.info.name, self._cached_results.until(perf_counter())),
            "dependencies": self._dependencies_table(position, *part.dependencies),
        }

    def _dependencies(
        self, dependencies: Dependencies, first: int
    ) -> tuple[Sequence[int], Sequence[int]]:
        """On how many rows each task from row `first` on depends, and on which."""
        start = self._dependencies_taken
        counts = dependencies.counts[first : len(self.taken_tasks)]
        stop = self._dependencies_taken = start + sum(counts)
        return counts, dependencies.rows[start:stop]

    def _released(
        self,
        part: Part,
        tasks: Table,
        first: int,
        dependencies: tuple[Sequence[int], Sequence[int]],
    ) -> Table:
        """The results that were released; and all others, if the computation has ended."""
        sizes = self._sizes_of(self.computation)
        if sizes is None:
            return NO_ROWS
        sizes = sizes[first : first + len(tasks)]
        columns = Table({name: tasks[name] for name in ("key", "function")})
        new = NewResults.of(columns, sizes, tasks["collected"], part.new.dependents, dependencies)
        released = [self._cached_results.add(new)]
        self._cached_results.drop_names()
        if part.info.stop is not None:
            released.append(self._cached_results.until(part.info.stop))
        return stack([*(table_of(part.info.name, some) for some in released)])

    def _dependencies_table(
        self, position: int, counts: Sequence[int], rows: Sequence[int]
    ) -> Table:
        """On which rows each of some tasks depends, of which the first is at `position`."""
        if not rows:
            return NO_ROWS
        depends_on = np.array(rows, dtype=np.int64)
        task = np.arange(position, position + len(counts)).repeat(counts)
        # What runs may depend on what has been collected since.
        is_collected = depends_on < len(self.taken_tasks)
        return Table(
            {
                "task": task[is_collected],
                "depends_on": self.taken_tasks.positions_of(depends_on[is_collected]),
            }
        )


def _no_rows() -> TaskRows:
    return TaskRows(
        rows=b"",
        keys=[],
        names=[],
        exceptional={},
        spans=SpansOfTasks([], {}),
        dependencies=Dependencies(),
        metrics=Metrics(),
        transfers=Transfers(),
        waits=Waits(),
        sizes=array("d"),
        dependents=array("I"),
    )


def _not_measured(computation: Computation) -> None:
    """The sizes of results where nothing measures them."""


_SECONDS_TO_ARRIVE = 2.0
"""For so long samples of other hosts may be on the way."""
_SECONDS_OF_HISTORY = 600.0


def sampled_tables(
    samples: array[float], processes: array[float], logs: Sequence[ClusterLog]
) -> dict[str, Table]:
    """`Recording.resources` and `Recording.processes` of all that was sampled."""
    resources, local = resources_table(samples), processes_table(processes, logs)
    if not logs:
        return {"resources": resources, "processes": local}
    from dask_diag.cluster.workers_table import RemoteProcesses, with_remote_processes

    remote = RemoteProcesses().take(logs)
    start = float(np.min(local["time"], initial=np.inf))
    together: Table = stack([local, remote])
    return {
        "resources": with_remote_processes(resources, remote, start),
        "processes": together.rows(np.argsort(together["time"], kind="stable")),
    }


class IncrementalResources:
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
        self._resources = _NewRows(rows.samples, len(SAMPLE_COLUMNS))
        self._processes = _NewRows(rows.processes, len(PROCESS_COLUMNS))
        self._logs = logs
        self._remote: RemoteProcesses | None = None
        self._recent: Table = Table({})
        self._waiting: Table = Table({})
        self._last = -np.inf

    def take(self) -> Increment:
        """The samples since last asked; those that others may still be added to are provisional."""
        logs = self._logs()
        resources = resources_table(self._resources.take())
        processes = processes_table(self._processes.take(), logs)
        if self._last == -np.inf and len(processes):
            self._last = float(processes.time[0])
        if not logs:
            return {"resources": resources, "processes": processes}, {}
        if self._remote is None:
            from dask_diag.cluster.workers_table import RemoteProcesses

            self._remote = RemoteProcesses()
        remote = self._remote.take(logs)
        processes = stack([processes, remote])
        recent = stack([self._recent, remote])
        now = perf_counter()
        self._recent = recent.rows(recent["time"] > now - _SECONDS_OF_HISTORY)
        waiting = stack([self._waiting, resources])
        # A row is the sum over all hosts: it is final when no sample of its time can come any more.
        is_new = waiting["time"] > now - _SECONDS_TO_ARRIVE
        final, self._waiting = waiting.rows(~is_new), waiting.rows(is_new)
        new = {"resources": self._complete(final), "processes": processes}
        self._last = float(np.max(final["time"], initial=self._last))
        return new, {"resources": self._complete(self._waiting)}

    def _complete(self, resources: Table) -> Table:
        from dask_diag.cluster.workers_table import with_remote_processes

        return with_remote_processes(resources, self._recent, self._last)


class _NewRows:
    """The complete rows of numbers that were added since last asked."""

    def __init__(self, numbers: array[float], width: int) -> None:
        self._numbers = numbers
        self._width = width
        self._position = 0

    def take(self) -> array[float]:
        # The sampling thread may be in the middle of a row.
        stop = len(self._numbers) // self._width * self._width
        new = self._numbers[self._position : stop]
        self._position = stop
        return new


_MOST_CELLS = 20_000
"""Rows written while computations run; if there are more, cycles are merged: it is cheap."""


class IncrementalStacks:
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


class IncrementalTasks:
    """The tasks and the computations of a Profiler, their results, and what refers to tasks by row.

    Parameters
    ----------
    session : Session
    logs : callable, optional
        Returns what was pulled from clusters.
    results : CacheProfiler, optional
        What measures results, if one does.
    """

    def __init__(
        self,
        session: Session,
        logs: Callable[[], Sequence[ClusterLog]] = tuple,
        results: ResultSource | None = None,
    ) -> None:
        self._session = session
        self._logs = logs
        self._results = results
        self._results_on_clusters = results.results_on_clusters() if results else None
        self._clusters: ClusterTables | None = None
        self._seen: set[int] = set()
        self._live: list[IncrementalComputation] = []
        self._workers: Workers = {}
        self._rows = 0

    def take(self) -> Increment:
        """The tasks collected and the computations ended since last asked; and what runs now."""
        for computation in tuple(self._session.computations):
            if computation.number not in self._seen:
                self._seen.add(computation.number)
                self._live.append(IncrementalComputation(computation, self._results))
        parts = [(source, source.take()) for source in self._live]
        # Of tasks that run none has started later than the computation is said to have reached.
        now = perf_counter()
        collected, in_flight = [], []
        for source, part in parts:
            collected.append(source.collected(part, self._workers, self._rows))
            self._rows += len(collected[-1]["tasks"])
        on_clusters = self._of_clusters(now)
        rows = self._rows
        running = [(source, part) for source, part in parts if part.info.stop is None]
        for source, part in running:
            in_flight.append(source.in_flight(part, self._workers, rows))
            rows += len(in_flight[-1]["tasks"])
        self._live = [source for source, _ in running]
        ended = [(source, part) for source, part in parts if part.info.stop is not None]
        tables = self._together(collected, ended, now), self._together(in_flight, running, now)
        for local, others in zip(tables, on_clusters, strict=True):
            for name, table in others.items():
                local[name] = stack([local[name], table]) if name in local else table
        if self._results_on_clusters is not None:
            new = tables[0]
            new["cached_results"] = stack([new["cached_results"], self._results_on_clusters()])
        return tables

    def _of_clusters(self, now: float) -> Increment:
        """What was pulled from clusters since last asked."""
        logs = self._logs()
        if not logs:
            return {}, {}
        if self._clusters is None:
            from dask_diag.cluster.tables import ClusterTables

            self._clusters = ClusterTables()
        new, provisional = self._clusters.take(logs, self._rows, now)
        self._rows += len(new["tasks"])
        return new, provisional

    def _together(
        self,
        parts: Sequence[Tables],
        computations: Sequence[tuple[IncrementalComputation, Part]],
        now: float,
    ) -> Tables:
        tables = {
            name: stack([*(part[name] for part in parts if name in part), NO_ROWS])
            for name in ("tasks", "cached_results", *REFERENCES)
        }
        tasks = tables["tasks"]
        # A table without rows has no columns of workers yet.
        tables["tasks"] = with_workers_named(tasks, self._workers) if len(tasks) else NO_ROWS
        infos = [part.info for _, part in computations]
        return {
            **tables,
            "computations": computations_table(infos, now),
            "pools": pools_table(infos),
            "workers": workers_table(infos),
            "threads": threads_table((part.info, source.threads) for source, part in computations),
        }
