"""What is new of one computation since it was last asked: its tasks, and their results."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np

from dask_diag.builders.cached_results import CachedResults, NewResults, table_of
from dask_diag.builders.chunks import Tables
from dask_diag.builders.taken_tasks import TakenTasks
from dask_diag.builders.task_logs import log_tables
from dask_diag.builders.tasks import moved, remember_functions, tasks_of
from dask_diag.builders.threads import task_threads
from dask_diag.builders.workers import Workers
from dask_diag.capture.computation import Computation
from dask_diag.capture.computation_reader import (
    collected_and_in_flight,
    dependents_of_rows,
    info_of,
)
from dask_diag.capture.snapshot import ComputationInfo, ComputationSnapshot, TaskRows
from dask_diag.capture.tasks.dependencies import Dependencies
from dask_diag.capture.tasks.in_flight import InFlight
from dask_diag.capture.tasks.keys import Keys, NamesOfPlainKeys
from dask_diag.capture.tasks.task_log import Log, Metrics, SpansOfTasks, Transfers, Waits
from dask_diag.capture.tasks.task_row import ROW
from dask_diag.model.table import NO_ROWS, Table, stack
from dask_diag.schema import REFERENCES

__all__ = ["IncrementalComputation", "Part", "ResultSource"]


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
