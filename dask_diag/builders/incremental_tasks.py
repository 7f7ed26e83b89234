"""The tasks measured since last asked, while computations run; see stream.py."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Any

import numpy as np

from dask_diag.builders.incremental import Tables, Taken
from dask_diag.builders.recording import computations_table, pools_table
from dask_diag.builders.tasks import TASK_LOGS, moved, tasks_of, with_workers_named
from dask_diag.builders.threads import threads_table
from dask_diag.capture.computation import (
    ROW,
    Computation,
    Exceptional,
    numbers_in_flight,
    outcome_of,
    pack_row,
)
from dask_diag.capture.session import Session
from dask_diag.capture.tasks.task_log import NamesOfPlainKeys, SpansOfTasks
from dask_diag.columns import Categorical, PrefixStrings, concatenate
from dask_diag.model.table import Table, stack
from dask_diag.schema import REFERENCES

__all__ = ["IncrementalTasks"]

_NAN = float("nan")
Workers = dict[tuple[int, int, str], int]


class IncrementalTasks:
    """The tasks and the computations of a Profiler, and what refers to tasks by their positions."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seen = 0
        self._live: list[_TasksOfComputation] = []
        self._workers: Workers = {}
        self._rows = 0

    def take(self) -> Taken:
        """The tasks collected and the computations ended since last asked; and what runs now."""
        computations = self._session.computations[self._seen :]
        self._seen += len(computations)
        self._live += map(_TasksOfComputation, computations)
        now = perf_counter()
        ended = [each for each in self._live if each.has_ended()]
        running = [each for each in self._live if each not in ended]
        collected, in_flight = [], []
        for each in self._live:
            collected.append(each.collected(self._workers, self._rows))
            self._rows += len(collected[-1]["tasks"])
        rows = self._rows
        for each in running:
            in_flight.append(each.in_flight(self._workers, rows))
            rows += len(in_flight[-1]["tasks"])
        self._live = running
        return (
            self._together(collected, ended, now),
            self._together(in_flight, running, now),
        )

    def columns_of_keys(
        self, computation: Computation, keys: list[Any]
    ) -> tuple[PrefixStrings, Categorical]:
        """Texts and functions of the first of a computation's keys, as far as written."""
        for each in self._live:
            if each.computation is computation:
                return each.columns_of_keys(keys)
        return PrefixStrings.of([]), Categorical([], [])

    def _together(
        self, parts: list[Tables], computations: Iterable[_TasksOfComputation], now: float
    ) -> Tables:
        tables = {
            name: stack([*(part[name] for part in parts if name in part), Table({})])
            for name in ("tasks", *REFERENCES)
        }
        tasks = tables["tasks"]
        # Tasks of nothing have no columns of workers yet.
        tables["tasks"] = with_workers_named(tasks, self._workers) if len(tasks) else Table({})
        seen = [each.computation for each in computations]
        return {
            **tables,
            "computations": computations_table(seen, now),
            "pools": pools_table(seen),
            "threads": threads_table(seen),
        }


class _TasksOfComputation:
    """The tasks of one computation, from where they were taken last.

    What a computation lets go of at its end is held on to until all has been taken: its keys; no
    task
    and no result.
    """

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        keys = computation.keys
        self._keys = keys if isinstance(keys, list) else list(keys)
        self._annotated = computation.annotated
        self._positions = array("q")
        self._needs_taken = 0
        self._told_taken = dict.fromkeys(TASK_LOGS, 0)
        self._columns: tuple[PrefixStrings, Categorical] = PrefixStrings.of([]), Categorical([], [])

    def has_ended(self) -> bool:
        """Whether nothing of it changes any more."""
        return self.computation.is_final

    def collected(self, workers: Workers, position: int) -> Tables:
        """The tasks since last asked, of which the first is to be at `position`."""
        computation, taken = self.computation, len(self._positions)
        # In this order: a computation that has not ended after it was asked had not let go before,
        # and
        # one that has collected a task had a state.
        keys = self._keys[taken:]
        dependencies = computation.state.get("dependencies", {})
        dsk, ended = computation.dsk, self.has_ended()
        if ended:
            keys = self._keys[taken:]
        stop = taken + len(keys)
        names = (
            [(row - taken, name) for row, name in computation.names or () if taken <= row < stop]
            if ended
            else NamesOfPlainKeys(keys, set(map(type, keys)), dsk)
        )
        rows = bytes(computation.rows[taken * ROW.size : stop * ROW.size])
        spans = self._spans(keys, ended, taken)
        part: Any = _Rows(computation, rows=rows, keys=keys, names=names, spans=spans)
        for row, how in list(computation.exceptional.items()):
            if taken <= row < stop:
                part.exceptional[row - taken] = how
        self._positions.extend(range(position, position + len(keys)))
        tasks = tasks_of(part, workers)[1]
        self._columns = tuple(
            concatenate([so_far, tasks[name]])
            for so_far, name in zip(self._columns, ("key", "function"), strict=True)
        )
        if ended:
            computation.functions = self._columns[1]
        return {
            "tasks": tasks,
            "dependencies": self._needs(taken, position, dependencies),
            **{name: self._told(name, part) for name in TASK_LOGS},
        }

    def columns_of_keys(self, keys: list[Any]) -> tuple[PrefixStrings, Categorical]:
        """Texts and functions of the first of these keys, as far as their tasks are taken."""
        texts, functions = self._columns
        rows = np.array(self.computation.dependencies.rows_of(keys), dtype=np.int64)
        later = np.flatnonzero(rows >= len(texts))
        known = rows[: later[0] if len(later) else None]
        return texts[known], functions[known]

    def in_flight(self, workers: Workers, position: int) -> Tables:
        """The tasks that are submitted and not collected, of which the first is at `position`."""
        measured = self.computation.in_flight()
        keys = [task.key for task in measured]
        rows = b"".join(pack_row(*numbers_in_flight(task), _NAN) for task in measured)
        names = NamesOfPlainKeys(keys, set(map(type, keys)), self.computation.dsk)
        spans = self._spans(keys, False, 0)
        part: Any = _Rows(self.computation, rows=rows, keys=keys, names=names, spans=spans)
        part.exceptional = {row: outcome_of(task) for row, task in enumerate(measured)}
        return {
            "tasks": tasks_of(part, workers)[1],
            "dependencies": self._needs_table(position, *self.computation.dependencies.of(keys)),
        }

    def _spans(self, keys: list[Any], ended: bool, taken: int) -> SpansOfTasks:
        if ended and taken == 0 and self.computation.spans is not None:
            return self.computation.spans
        return SpansOfTasks(keys, self._annotated)

    def _needs(self, taken: int, position: int, dependencies: Mapping[Any, Any]) -> Table:
        """What the tasks from row `taken` on need, of which the first is at `position`."""
        needs, start = self.computation.dependencies, self._needs_taken
        needs.extend(self._keys, dependencies)
        counts = np.array(needs.counts[taken : len(self._positions)], dtype=np.int64)
        self._needs_taken = start + int(counts.sum())
        return self._needs_table(position, counts, needs.rows[start : self._needs_taken])

    def _needs_table(self, position: int, counts: Any, rows: Any) -> Table:
        where, needs = self._where(), np.array(rows, dtype=np.int64)
        task = np.repeat(np.arange(position, position + len(counts)), counts)
        # What runs may need what has been collected since.
        taken = needs < len(where)
        return Table({"task": task[taken], "depends_on": where[needs[taken]]})

    def _where(self) -> Any:
        return np.array(self._positions, dtype=np.int64)

    def _told(self, name: str, part: Any) -> Table:
        """What was told of those tasks that have been taken, as far as it is new."""
        kept, start, rows = (
            getattr(self.computation, name),
            self._told_taken[name],
            len(self._positions),
        )
        stop = self._told_taken[name] = bisect_left(kept.rows, rows, lo=start)
        setattr(part, name, kept.between(start, stop))
        table = TASK_LOGS[name](part, rows)
        return moved(table, REFERENCES[name], self._where())


class _Rows:
    """Some rows of a computation, which in all else is like it, for freeze to make a table of."""

    stop = 0.0

    def __init__(
        self,
        computation: Computation,
        *,
        rows: bytes,
        keys: list[Any],
        names: Any,
        spans: SpansOfTasks,
    ) -> None:
        self._compute = computation
        self.rows, self.keys = rows, keys
        self.exceptional: dict[int, Exceptional] = {}
        self._names, self._spans = names, spans

    def names_of_plain_keys(self, keys: Any) -> Any:
        """Row and function name of each task whose key does not tell it."""
        return self._names

    def spans_among(self, keys: Any) -> SpansOfTasks:
        """Which of the tasks were annotated with a span."""
        return self._spans

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compute, name)
