"""From sampled stacks to the tables of a Recording that are about them.

How long the tasks of each function took, and how much CPU time they had, is known exactly; samples
show how these seconds divide among stacks, and among the tasks that are tracked individually. So
the weights of samples are scaled to what was measured. Time that was missed because the sampler
came too late counts as one more stack, called not sampled; so do all tasks of a function of which
no sample was due.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np

from dask_diag.builders.tasks import times_of_tasks
from dask_diag.capture.sampling.bins import NOT_SAMPLED
from dask_diag.capture.sampling.call_tree import Snapshot, Stacks
from dask_diag.capture.snapshot import ComputationInfo, ComputationSnapshot
from dask_diag.columns import Array, Categorical
from dask_diag.model.table import Table
from dask_diag.schema import Root

__all__ = ["stacks_as_seen", "stacks_tables"]

_GRAPH = Root.GRAPH, ""
_SCHEDULER = Root.SCHEDULER, ""


def stacks_tables(
    stacks: Stacks,
    computations: Sequence[ComputationSnapshot],
    start: float | None = None,
    stop: float | None = None,
) -> dict[str, Table]:
    """`Recording.frames`, `Recording.call_tree` and `Recording.samples`.

    Cycles are cut at the bounds of the block that was sampled, with its computations.
    """
    found = stacks.snapshot()
    infos = [computation.info for computation in computations]
    starts = [*([] if start is None else [start]), *(info.called for info in infos)]
    stops = [np.inf if stop is None else stop, *(info.stop or np.inf for info in infos)]
    bounds = min(starts, default=-np.inf), max(stops)
    return {**_tree(found), "samples": _samples(found, computations, bounds)}


def stacks_as_seen(stacks: Stacks, most: int) -> dict[str, Table]:
    """The same without regard to what was measured of tasks, in about `most` rows at most."""
    found = stacks.snapshot()
    (cells, names), cycle = _cells(found), found.cycle
    if len(cells.node) > most and cells.key.any():
        cells = _summed(cells._replace(key=np.zeros_like(cells.key)))
    while len(cells.node) > most and cells.cycle.min() < cells.cycle.max():
        cells, cycle = _summed(cells._replace(cycle=cells.cycle // 2)), 2 * cycle
    return {**_tree(found), "samples": _samples_table(cells, cycle, names)}


def _tree(found: Snapshot) -> dict[str, Table]:
    lines, parents = found.lines, found.parents
    return {
        "frames": Table(
            {
                "name": Categorical.of(line.name for line in lines),
                "file": Categorical.of(line.file for line in lines),
                "line": np.array([line.line for line in lines], dtype=np.int64),
                "first_line": np.array([line.first for line in lines], dtype=np.int64),
            }
        ),
        "call_tree": Table(
            {
                "parent": np.array(parents, dtype=np.int64),
                "frame": np.array(found.line_of_node, dtype=np.int64),
            }
        ),
    }


Function = tuple[str, str]
"""A root, and the function of tasks: empty but for that of tasks."""


class Names(NamedTuple):
    """The texts for which numbers stand; the first key is that of tasks that go together."""

    functions: list[Function]
    keys: list[str]


class Cells(NamedTuple):
    """What was seen, in columns of equal length; functions (with roots) and keys are numbers."""

    cycle: Array
    function: Array
    key: Array
    node: Array
    seconds: Array
    cpu: Array
    samples: Array

    def where(self, mask: Array) -> Cells:
        """Some of them."""
        return Cells(*(column[mask] for column in self))


_NO_CELLS = Cells(*(np.zeros(0, dtype=kind) for kind in (*[np.int64] * 4, float, float, np.int64)))


class Measured(NamedTuple):
    """What was measured of the tasks that started, and of graphs and the scheduler outside tasks.

    `function` is a number. CPU seconds are NaN if they were not measured.
    """

    function: Array
    middle: Array
    seconds: Array
    cpu: Array


def _samples(
    found: Snapshot, computations: Sequence[ComputationSnapshot], bounds: tuple[float, float]
) -> Table:
    table = times_of_tasks(computations)
    cells, (seen, keys) = _cells(found)
    of_tasks = [(Root.TASKS, name) for name in table["function"].values]
    functions = list(dict.fromkeys([*seen, *of_tasks, _GRAPH, _SCHEDULER]))
    tasks = _tasks(table, computations, functions)
    callers = _callers(table, computations, functions)
    measured = Measured(*map(np.concatenate, zip(tasks, callers, strict=True)))
    cells = _scaled(cells, measured, len(functions))
    unseen = _unseen(cells, measured, found.cycle, len(functions))
    cells = Cells(*map(np.concatenate, zip(cells, unseen, strict=True)))
    cells = cells.where(np.lexsort((cells.node, cells.key, cells.function, cells.cycle)))
    return _samples_table(cells, found.cycle, Names(functions, keys), *bounds)


def _samples_table(
    cells: Cells, cycle: float, names: Names, start: float = -np.inf, stop: float = np.inf
) -> Table:
    return Table(
        {
            "start": np.maximum(cells.cycle * cycle, start),
            "stop": np.minimum((cells.cycle + 1) * cycle, min(stop, perf_counter())),
            "root": _named(cells.function, [root for root, _ in names.functions]),
            "function": _named(cells.function, [name for _, name in names.functions]),
            "key": Categorical(cells.key, names.keys),
            "node": cells.node,
            "seconds": cells.seconds,
            "cpu_seconds": cells.cpu,
            "count": cells.samples,
        }
    )


def _named(numbers: Array, names: Sequence[str]) -> Categorical:
    """A column of the names that have these numbers; names may repeat."""
    distinct = {name: code for code, name in enumerate(dict.fromkeys(names))}
    codes = np.array([distinct[name] for name in names], dtype=np.int64)
    return Categorical(codes[numbers], list(distinct))


def _cells(found: Snapshot) -> tuple[Cells, Names]:
    functions: dict[Function, int] = {}
    keys = {"": 0}
    columns = []
    for number, packed in found.cycles.items():
        of = np.array(
            [
                (
                    functions.setdefault((root, name), len(functions)),
                    keys.setdefault(key, len(keys)),
                )
                for name, key, root in packed.of
            ],
            dtype=np.int64,
        ).reshape(-1, 2)[packed.groups]
        nodes = np.array(packed.nodes, dtype=np.int64)
        counts = np.array(packed.counts, dtype=np.int64)
        cycle = np.full(len(packed), number, dtype=np.int64)
        seconds, cpu = np.array(packed.seconds), np.array(packed.cpu)
        columns.append(Cells(cycle, of[:, 0], of[:, 1], nodes, seconds, cpu, counts))
    cells = Cells(*map(np.concatenate, zip(_NO_CELLS, *columns, strict=True)))
    return cells, Names(list(functions), list(keys))


def _summed(cells: Cells) -> Cells:
    """The same, where those that are alike in all but numbers are one."""
    places = np.stack([cells.cycle, cells.function, cells.key, cells.node], axis=1)
    distinct, row = np.unique(places, axis=0, return_inverse=True)
    row = row.reshape(-1)
    seconds, cpu, counts = (
        np.bincount(row, values, minlength=len(distinct))
        for values in (cells.seconds, cells.cpu, cells.samples)
    )
    cycle, function, key, node = distinct.T
    return Cells(cycle, function, key, node, seconds, cpu, counts.astype(np.int64))


def _tasks(
    table: Table, computations: Sequence[ComputationSnapshot], functions: Sequence[Function]
) -> Measured:
    """One that has not ended stops now, or when its computation did; its CPU time is not known."""
    now = perf_counter()
    infos = [computation.info for computation in computations]
    stops = {info.name: info.stop or now for info in infos}
    stop = table["stop"]
    if len(stop):
        ends = np.array([stops[name] for name in table["computation"].values], dtype=float)
        stop = np.where(np.isnan(stop), ends[table["computation"].codes], stop)
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
        tasks = in_tasks.get(info.name, 0.0) if info.scheduler == "synchronous" else 0.0
        for function, since, until, elsewhere in (
            (_GRAPH, info.called, prepared, nested[info.number]),
            (_SCHEDULER, prepared, stop, tasks),
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


def _scaled(cells: Cells, tasks: Measured, functions: int) -> Cells:
    """The cells, whose seconds sum for each function to what was measured, if that is known."""

    def sums(of: Cells | Measured, values: Array) -> Array:
        return np.bincount(of.function, values, minlength=functions)

    missed = cells.node == NOT_SAMPLED
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
    up = _ratio(exact - estimate, seen - estimate)[cells.function]
    down = _ratio(exact, estimate)[cells.function]
    raised = (exact > estimate)[cells.function]
    share = np.where(raised, share + (1 - share) * up, share * down)
    of_missed = np.clip(_ratio(cpu - exact, lost), 0.0, 1.0)[cells.function]
    return cells._replace(seconds=seconds, cpu=seconds * np.where(missed, of_missed, share))


def _unseen(cells: Cells, tasks: Measured, cycle: float, functions: int) -> Cells:
    """Cells of the tasks of functions that have none, in the cycles of their middles."""
    seen = np.zeros(functions, dtype=bool)
    seen[cells.function] = True
    unseen = ~seen[tasks.function]
    number = (tasks.middle[unseen] // cycle).astype(np.int64)
    places, row = np.unique(
        np.stack([number, tasks.function[unseen]], axis=1), axis=0, return_inverse=True
    )
    row = row.reshape(-1)
    zeros = np.zeros(len(places), dtype=np.int64)
    return Cells(
        places[:, 0],
        places[:, 1],
        zeros,
        zeros + NOT_SAMPLED,
        np.bincount(row, tasks.seconds[unseen], minlength=len(places)),
        np.bincount(row, tasks.cpu[unseen], minlength=len(places)),
        zeros,
    )


def _ratio(part: Array, whole: Array) -> Array:
    """Zero where there is nothing to divide by."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
