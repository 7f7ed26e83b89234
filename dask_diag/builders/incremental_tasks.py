"""The tasks since the last chunk, while computations run, in the order of collection."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dask_diag.builders.chunks import Increment, Tables
from dask_diag.builders.recording import computations_table, pools_table
from dask_diag.builders.taken_tasks import TakenTasks
from dask_diag.builders.task_logs import log_tables
from dask_diag.builders.tasks import moved, remember_functions, tasks_of, with_workers_named
from dask_diag.builders.threads import task_threads, threads_table
from dask_diag.builders.workers import Workers, workers_table
from dask_diag.capture.computation import Computation
from dask_diag.capture.computation_reader import collected_and_in_flight, info_of
from dask_diag.capture.session import Session
from dask_diag.capture.snapshot import ComputationInfo, ComputationSnapshot, TaskRows
from dask_diag.capture.tasks.dependencies import Dependencies
from dask_diag.capture.tasks.in_flight import InFlight
from dask_diag.capture.tasks.keys import Keys, NamesOfPlainKeys
from dask_diag.capture.tasks.task_log import Log, Metrics, SpansOfTasks, Transfers, Waits
from dask_diag.capture.tasks.task_row import ROW
from dask_diag.model.table import NO_ROWS, Table, stack
from dask_diag.schema import REFERENCES

if TYPE_CHECKING:
    from dask_diag.builders.cluster import ClusterTables
    from dask_diag.capture.cluster.log import ClusterLog

__all__ = ["IncrementalTasks"]


class IncrementalTasks:
    """The tasks and the computations of a Profiler, and what refers to tasks by their rows."""

    def __init__(self, session: Session, logs: Callable[[], Sequence[ClusterLog]] = tuple) -> None:
        self._session = session
        self._logs = logs
        self._clusters: ClusterTables | None = None
        self._seen: set[int] = set()
        self._live: list[_TasksOfComputation] = []
        self._workers: Workers = {}
        self._rows = 0

    def take(self) -> Increment:
        """The tasks collected and the computations ended since last asked; and what runs now."""
        for computation in tuple(self._session.computations):
            if computation.number not in self._seen:
                self._seen.add(computation.number)
                self._live.append(_TasksOfComputation(computation))
        now = perf_counter()
        parts = [(source, source.take()) for source in self._live]
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
        return tables

    def _of_clusters(self, now: float) -> Increment:
        """What was pulled from clusters since last asked."""
        logs = self._logs()
        if not logs:
            return {}, {}
        if self._clusters is None:
            from dask_diag.builders.cluster import ClusterTables

            self._clusters = ClusterTables()
        new, provisional = self._clusters.take(logs, self._rows, now)
        self._rows += len(new["tasks"])
        return new, provisional

    def _together(
        self,
        parts: Sequence[Tables],
        computations: Sequence[tuple[_TasksOfComputation, _Part]],
        now: float,
    ) -> Tables:
        tables = {
            name: stack([*(part[name] for part in parts if name in part), NO_ROWS])
            for name in ("tasks", *REFERENCES)
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


class _Part(NamedTuple):
    """What is new of one computation.

    Attributes
    ----------
    info : ComputationInfo
    new : TaskRows
        The tasks collected since last asked; but dependencies, and the rows in ``metrics``,
        ``transfers`` and ``waits``, are those of the whole computation.
    in_flight : TaskRows
    dependencies : tuple of (list of int, list of int)
        On how many tasks with a row each task in flight depends, and on which.
    """

    info: ComputationInfo
    new: TaskRows
    in_flight: TaskRows
    dependencies: tuple[list[int], list[int]]


class _TasksOfComputation:
    """The tasks of one computation, from where they were taken last.

    Of what a computation releases at its end, its keys are retained until all have been taken; but
    no task and no result.
    """

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self._keys = computation.keys
        self._annotated = computation.annotated
        self.taken_tasks = TakenTasks()
        self.threads = task_threads(b"")
        self._dependencies_taken = 0
        self._log_taken = {"metrics": 0, "transfers": 0, "waits": 0}

    def take(self) -> _Part:
        """What was added since last asked; and all that remains of it, if it has ended."""
        computation = self.computation
        if computation.finished is None:
            part = self._read(computation)
        if computation.finished is not None:
            # If it ended meanwhile, what was read may lack what was released.
            part = self._read_finished(computation.finished)
        return part

    def _read(self, computation: Computation) -> _Part:
        keys, in_flight = collected_and_in_flight(computation, self._keys, len(self.taken_tasks))
        if computation.sizer and len(computation.sizes) == len(self.taken_tasks) + len(keys) - 1:
            # The size of the last result is being measured: the next chunk has it.
            del keys[-1]
        names = NamesOfPlainKeys(keys, computation.dsk)
        spans = SpansOfTasks(keys, self._annotated)
        # Dependencies are collected once: by this thread, or at the end of the computation.
        computation.dependencies.extend(self._keys, computation.state.get("dependencies", {}))
        return _Part(
            info_of(computation),
            self._new(computation, keys, names, spans),
            self._rows_of(in_flight),
            computation.dependencies.of([task.key for task in in_flight]),
        )

    def _read_finished(self, finished: ComputationSnapshot) -> _Part:
        tasks, start = finished.tasks, len(self.taken_tasks)
        assert isinstance(tasks.keys, Keys)
        keys = self._keys[start:] + tasks.keys.after(len(self._keys))
        stop = start + len(keys)
        names = [(row - start, name) for row, name in tasks.names if start <= row < stop]
        spans = SpansOfTasks(keys, self._annotated) if start else tasks.spans
        return _Part(
            finished.info, self._new(tasks, keys, names, spans), self._rows_of([]), ([], [])
        )

    def _new(
        self,
        source: Computation | TaskRows,
        keys: list[Hashable],
        names: Iterable[tuple[int, str]],
        spans: SpansOfTasks,
    ) -> TaskRows:
        start, stop = len(self.taken_tasks), len(self.taken_tasks) + len(keys)
        return TaskRows(
            rows=bytes(source.rows[start * ROW.size : stop * ROW.size]),
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
            sizes=source.sizes[start:stop],
        )

    def _since(self, log: Log, name: str, rows: int) -> Log:
        """The new entries about the first rows."""
        start = self._log_taken[name]
        return log.between(start, bisect_left(log.rows, rows, lo=start))

    def _rows_of(self, in_flight: list[InFlight]) -> TaskRows:
        keys = [task.key for task in in_flight]
        return TaskRows(
            rows=b"".join(task.row() for task in in_flight),
            keys=keys,
            names=NamesOfPlainKeys(keys, self.computation.dsk),
            exceptional={row: task.outcome for row, task in enumerate(in_flight)},
            spans=SpansOfTasks(keys, self._annotated),
            dependencies=Dependencies(),
            metrics=Metrics(),
            transfers=Transfers(),
            waits=Waits(),
            sizes=array("d"),
        )

    def collected(self, part: _Part, workers: Workers, position: int) -> Tables:
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
        return {
            "tasks": tasks,
            "dependencies": self._dependencies(part.new.dependencies, first, position),
            **{name: moved(table, REFERENCES[name], to) for name, table in logged.items()},
        }

    def in_flight(self, part: _Part, workers: Workers, position: int) -> Tables:
        """The tasks that are submitted and not collected, of which the first is at `position`."""
        return {
            "tasks": tasks_of(part.info, part.in_flight, workers),
            "dependencies": self._dependencies_table(position, *part.dependencies),
        }

    def _dependencies(self, dependencies: Dependencies, first: int, position: int) -> Table:
        """Those of the tasks from row `first` on, of which the first is at `position`."""
        start = self._dependencies_taken
        counts = dependencies.counts[first : len(self.taken_tasks)]
        stop = self._dependencies_taken = start + sum(counts)
        return self._dependencies_table(position, counts, dependencies.rows[start:stop])

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
