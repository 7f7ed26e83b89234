"""The weights of stack samples, scaled to what was measured.

How long the tasks of each function took, and how much CPU time they had, is known exactly; samples
show how these seconds divide among stacks, and among the tasks that are tracked individually. Time
that was missed because the sampler came too late counts as one more stack, called not sampled; so
do all tasks of a function of which no sample was due.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np

from dask_diag.builders.stack_cells import Cells, Function
from dask_diag.capture.sampling.bins import NO_NODE
from dask_diag.capture.snapshot import ComputationInfo, ComputationSnapshot
from dask_diag.columns import Array
from dask_diag.model.table import Table
from dask_diag.schema import Root

__all__ = [
    "GRAPH",
    "SCHEDULER",
    "Measured",
    "measured_seconds",
    "measured_tasks",
    "scaled",
    "unseen_tasks",
]

GRAPH: Function = Root.GRAPH, ""
SCHEDULER: Function = Root.SCHEDULER, ""


class Measured(NamedTuple):
    """What was measured of the tasks that started, and of graphs and the scheduler outside tasks.

    `function` is a number. CPU seconds are NaN if they were not measured.
    """

    function: Array
    middle: Array
    seconds: Array
    cpu: Array


def measured_seconds(
    table: Table, computations: Sequence[ComputationSnapshot], functions: Sequence[Function]
) -> Measured:
    """What was measured of tasks, and of the threads that called dask outside them."""
    tasks = _tasks(table, computations, functions)
    callers = _callers(table, computations, functions)
    return Measured(*map(np.concatenate, zip(tasks, callers, strict=True)))


def _tasks(
    table: Table, computations: Sequence[ComputationSnapshot], functions: Sequence[Function]
) -> Measured:
    """One that has not ended stops now, or when its computation did; its CPU time is not known."""
    now = perf_counter()
    infos = [computation.info for computation in computations]
    stops = {info.name: info.stop or now for info in infos}
    ends = np.zeros(0)
    if len(table):
        of_names = np.array([stops[name] for name in table["computation"].values], dtype=float)
        ends = of_names[table["computation"].codes]
    return measured_tasks(table, functions, ends)


def measured_tasks(table: Table, functions: Sequence[Function], ends: Array) -> Measured:
    """What was measured of tasks; those that have not stopped do so at their `ends`."""
    stop = np.where(np.isnan(table["stop"]), ends, table["stop"]) if len(table) else np.zeros(0)
    names = table["function"].values
    number = np.array([functions.index((Root.TASKS, name)) for name in names], dtype=np.int64)
    function = number[table["function"].codes] if len(stop) else np.zeros(0, dtype=np.int64)
    start = table["start"]
    started = ~np.isnan(start)
    columns = function, (start + stop) / 2, stop - start, table["thread_cpu"]
    return Measured(*(column[started] for column in columns))


def _callers(
    table: Table, computations: Sequence[ComputationSnapshot], functions: Sequence[Function]
) -> Measured:
    """How long the calling thread was in the graph of each computation, and in the scheduler."""
    now = perf_counter()
    rows: list[tuple[int, float, float, float]] = []
    nested = _seconds_of_nested(computations, now)
    in_tasks = _seconds_of_tasks(table)
    for info in (computation.info for computation in computations):
        stop = info.stop or now
        prepared = stop if info.prepared is None else info.prepared
        # There the scheduler's thread runs the tasks itself, and their seconds count with them.
        tasks = in_tasks.get(info.name, 0.0) if info.scheduler == "synchronous" else 0.0
        for function, since, until, elsewhere in (
            (GRAPH, info.called, prepared, nested[info.number]),
            (SCHEDULER, prepared, stop, tasks),
        ):
            seconds = until - since - elsewhere
            if seconds > 0:
                rows.append((functions.index(function), (since + until) / 2, seconds, np.nan))
    columns = np.array(rows, dtype=float).reshape(-1, 4).T
    return Measured(columns[0].astype(np.int64), *columns[1:])


def _seconds_of_nested(computations: Sequence[ComputationSnapshot], now: float) -> dict[int, float]:
    """For how long others ran on its thread while the graph of each computation was made."""
    seconds: dict[int, float] = {}
    earlier: dict[int, list[ComputationInfo]] = {}
    for info in (computation.info for computation in computations):
        on_thread = earlier.setdefault(info.thread, [])
        seconds[info.number] = 0.0
        # Computations come in the order in which they started, the inner ones before the one whose
        # graph they were called in.
        while on_thread and on_thread[-1].called > info.called:
            inner = on_thread.pop()
            seconds[info.number] += (inner.stop or now) - inner.called
        on_thread.append(info)
    return seconds


def _seconds_of_tasks(table: Table) -> dict[str, float]:
    """For how long the tasks of each computation ran."""
    if not len(table):
        return {}
    column = table["computation"]
    seconds = np.nan_to_num(table["stop"] - table["start"])
    sums = np.bincount(column.codes, seconds, minlength=len(column.values))
    return dict(zip(column.values, sums.tolist(), strict=False))


def scaled(cells: Cells, tasks: Measured, functions: int) -> Cells:
    """The cells, whose seconds sum for each function to what was measured, if that is known."""

    def sums(of: Cells | Measured, values: Array) -> Array:
        return np.bincount(of.function, values, minlength=functions)

    missed = cells.node == NO_NODE
    wall, cpu = sums(tasks, tasks.seconds), sums(tasks, tasks.cpu)
    scale = np.where(wall > 0, _ratio(wall, sums(cells, cells.seconds)), 1.0)
    seconds = cells.seconds * scale[cells.function]
    share = np.divide(cells.cpu, cells.seconds, out=np.zeros(len(seconds)), where=cells.seconds > 0)
    seen, lost = sums(cells, seconds * ~missed), sums(cells, seconds * missed)
    estimate = sums(cells, seconds * share * ~missed)
    # Of what was missed it is not known how much was CPU time: somewhere between nothing and all.
    exact = np.clip(estimate, np.minimum(cpu - lost, seen), np.minimum(cpu, seen))
    cpu = np.where(wall > 0, cpu, np.nan)
    exact = np.where(np.isnan(cpu), estimate, exact)
    # More CPU time than samples show is added where they show none, less is taken off in
    # proportion: so no stack gets more CPU time than seconds, nor less than none.
    up = _ratio(exact - estimate, seen - estimate)[cells.function]
    down = _ratio(exact, estimate)[cells.function]
    raised = (exact > estimate)[cells.function]
    share = np.where(raised, share + (1 - share) * up, share * down)
    of_missed = np.clip(_ratio(cpu - exact, lost), 0.0, 1.0)[cells.function]
    return cells._replace(seconds=seconds, cpu=seconds * np.where(missed, of_missed, share))


def unseen_tasks(cells: Cells, tasks: Measured, cycle: float, functions: int) -> Cells:
    """Cells of the tasks of functions that have none, in the cycles of their middles."""
    seen = np.zeros(functions, dtype=bool)
    seen[cells.function] = True
    unseen = ~seen[tasks.function]
    number = (tasks.middle[unseen] // cycle).astype(np.int64)
    distinct, row = np.unique(
        np.stack([number, tasks.function[unseen]], axis=1), axis=0, return_inverse=True
    )
    row = row.reshape(-1)
    zeros = np.zeros(len(distinct), dtype=np.int64)
    return Cells(
        distinct[:, 0],
        distinct[:, 1],
        zeros,
        zeros + NO_NODE,
        np.bincount(row, tasks.seconds[unseen], minlength=len(distinct)),
        np.bincount(row, tasks.cpu[unseen], minlength=len(distinct)),
        zeros,
    )


def _ratio(part: Array, total: Array) -> Array:
    """Zero where there is nothing to divide by."""
    return np.divide(part, total, out=np.zeros(len(part)), where=total > 0)
