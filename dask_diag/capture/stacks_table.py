"""The tables of sampled stacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np

from dask_diag.capture.computation import ComputationInfo, ComputationSnapshot
from dask_diag.capture.tasks_table import recoded, times_of_tasks
from dask_diag.capture.workers_table import constant
from dask_diag.columns import Array, Categorical
from dask_diag.model.codes import Root
from dask_diag.model.table import NO_ROWS, Table, stack
from dask_diag.sampling.call_tree import NO_NODE, Packed, Snapshot, Stacks

Function = tuple[str, str]
"""A root, and the function of tasks: empty but for that of tasks."""


class Names(NamedTuple):
    """Texts by number; the first key stands for grouped tasks."""

    functions: list[Function]
    keys: list[str]


class Cells(NamedTuple):
    """Samples in columns of equal length; functions (with roots) and keys are numbers."""

    cycle: Array
    function: Array
    key: Array
    node: Array
    seconds: Array
    cpu: Array
    samples: Array

    def where(self, mask: Array) -> Cells:
        """Select cells by a mask."""
        return Cells(*(column[mask] for column in self))


NO_CELLS = Cells(*(np.zeros(0, dtype=kind) for kind in (*[np.int64] * 4, float, float, np.int64)))


class CellsByCycle:
    """Cells of a profiler's snapshots; unchanged cycles are taken from the last snapshot."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._cells_of_cycle: dict[int, tuple[Packed, Cells]] = {}
        self._functions: dict[Function, int] = {}
        self._keys = {"": 0}

    def of(self, snapshot: Snapshot) -> tuple[Cells, Names]:
        """The cells of a snapshot, and the names of their numbers."""
        if not self._cells_of_cycle.keys() <= snapshot.cycles.keys():
            # Cycles were merged: names may have gone with them.
            self._forget()
        for number, packed in snapshot.cycles.items():
            if number not in self._cells_of_cycle or self._cells_of_cycle[number][0] is not packed:
                self._cells_of_cycle[number] = packed, self._columns_of(number, packed)
        columns = (self._cells_of_cycle[number][1] for number in snapshot.cycles)
        cells = Cells(*map(np.concatenate, zip(NO_CELLS, *columns, strict=True)))
        return cells, Names(list(self._functions), list(self._keys))

    def _columns_of(self, number: int, packed: Packed) -> Cells:
        functions, keys = self._functions, self._keys
        of = np.array(
            [
                (
                    functions.setdefault((root, name), len(functions)),
                    keys.setdefault(key, len(keys)),
                )
                for name, key, root in packed.distinct
            ],
            dtype=np.int64,
        ).reshape(-1, 2)[packed.groups]
        nodes = np.array(packed.nodes, dtype=np.int64)
        counts = np.array(packed.counts, dtype=np.int64)
        cycle = np.full(len(packed), number, dtype=np.int64)
        seconds, cpu = np.array(packed.seconds), np.array(packed.cpu)
        return Cells(cycle, of[:, 0], of[:, 1], nodes, seconds, cpu, counts)


def cells_of(snapshot: Snapshot) -> tuple[Cells, Names]:
    """The cells of a snapshot, and the texts for numbers."""
    return CellsByCycle().of(snapshot)


def summed(cells: Cells) -> Cells:
    """Sum cells of the same cycle, function, key and node."""
    rows = np.stack([cells.cycle, cells.function, cells.key, cells.node], axis=1)
    distinct, row = np.unique(rows, axis=0, return_inverse=True)
    row = row.reshape(-1)
    seconds, cpu, counts = (
        np.bincount(row, values, minlength=len(distinct))
        for values in (cells.seconds, cells.cpu, cells.samples)
    )
    cycle, function, key, node = distinct.T
    return Cells(cycle, function, key, node, seconds, cpu, counts.astype(np.int64))


GRAPH: Function = Root.GRAPH, ""
SCHEDULER: Function = Root.SCHEDULER, ""


class Measured(NamedTuple):
    """Measured seconds of the tasks that started, and of graphs and the scheduler outside tasks.

    `function` is a number. CPU seconds are NaN if they were not measured.
    """

    function: Array
    middle: Array
    seconds: Array
    cpu: Array


def measured_seconds(
    table: Table, computations: Sequence[ComputationSnapshot], functions: Sequence[Function]
) -> Measured:
    """Measured seconds of tasks, and of the threads that called dask outside tasks."""
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
    """Measured seconds of tasks; tasks that have not stopped do so at their `ends`."""
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
    """Seconds of the calling thread in the graph of each computation, and in the scheduler."""
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
    """Seconds of nested computations on the thread, in the making of each graph."""
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
    """Scale cells to the measured seconds of each function, if known."""

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
    """Cells for functions without samples, in the cycles of the tasks' middles."""
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
    """Divide; 0 for a divisor of 0."""
    return np.divide(part, total, out=np.zeros(len(part)), where=total > 0)


def stacks_tables(
    stacks: Stacks,
    computations: Sequence[ComputationSnapshot],
    start: float | None = None,
    stop: float | None = None,
    began: float = np.inf,
) -> dict[str, Table]:
    """`Recording.frames`, `Recording.call_tree` and `Recording.samples`.

    Cycles are cut at the bounds of the block that was sampled, with its computations. `began` is
    when the first graph arrived at a cluster.
    """
    snapshot = stacks.snapshot()
    infos = [computation.info for computation in computations]
    starts = [*([] if start is None else [start]), *(info.called for info in infos)]
    stops = [np.inf if stop is None else stop, *(info.stop or np.inf for info in infos)]
    bounds = min(starts, default=-np.inf), max(stops)
    return {**_tree(snapshot), "samples": _samples(snapshot, computations, bounds, began)}


def stacks_of_tasks(
    stacks: Stacks, tasks: Table, worker: str, bounds: tuple[float, float]
) -> dict[str, Table]:
    """The tables of a cluster's worker; running tasks stop at the end."""
    snapshot = stacks.snapshot()
    cells, (seen, keys) = cells_of(snapshot)
    of_tasks = [(Root.TASKS, name) for name in tasks["function"].values]
    names = Names(list(dict.fromkeys([*seen, *of_tasks])), keys)
    measured = measured_tasks(tasks, names.functions, np.full(len(tasks), bounds[1]))
    samples = _scaled_samples(cells, snapshot.cycle, names, measured, (*bounds, worker))
    return {**_tree(snapshot), "samples": samples}


def joined_stacks(parts: Sequence[dict[str, Table]]) -> dict[str, Table]:
    """Concatenate tables of stacks, with references to rows shifted."""
    moved: dict[str, list[Table]] = {name: [] for name in ("frames", "call_tree", "samples")}
    frames = nodes = 0
    for part in parts:
        tree, samples = part["call_tree"], part["samples"]
        moved["frames"].append(part["frames"])
        moved["call_tree"].append(_moved(tree, {"parent": nodes, "frame": frames}))
        moved["samples"].append(_moved(samples, {"node": nodes}))
        frames, nodes = frames + len(part["frames"]), nodes + len(tree)
    return {name: stack([*tables, NO_ROWS]) for name, tables in moved.items()}


def _moved(table: Table, by: Mapping[str, int]) -> Table:
    """Shift references to rows in some columns of a table; -1 is no row."""
    return table.replacing(
        {name: np.where(table[name] < 0, -1, table[name] + by[name]) for name in by}
    )


class SeenBefore:
    """Cache of the parts of `stacks_as_seen` that do not change between calls for one profiler."""

    def __init__(self) -> None:
        self.cells = CellsByCycle()
        self._size = -1, -1
        self._tree: dict[str, Table] = {}

    def tree(self, snapshot: Snapshot) -> dict[str, Table]:
        """The tables of the tree, which only grows."""
        size = len(snapshot.lines), len(snapshot.parents)
        if size != self._size:
            self._size, self._tree = size, _tree(snapshot)
        return self._tree


def stacks_as_seen(
    stacks: Stacks,
    most: int,
    worker: str = "",
    before: SeenBefore | None = None,
    began: float = np.inf,
) -> dict[str, Table]:
    """The tables of the samples alone, without measured seconds, in about `most` rows at most.

    If this is asked again and again, `before` has what is the same.
    """
    before = before or SeenBefore()
    snapshot = stacks.snapshot()
    (cells, names), cycle = before.cells.of(snapshot), snapshot.cycle
    cells, names = _before_until(began, cells, names, cycle)
    # First single tasks are given up, then resolution in time: stacks by function are what a live
    # view shows.
    if len(cells.node) > most and cells.key.any():
        cells = summed(cells._replace(key=np.zeros_like(cells.key)))
    while len(cells.node) > most and cells.cycle.min() < cells.cycle.max():
        cells, cycle = summed(cells._replace(cycle=cells.cycle // 2)), 2 * cycle
    bounds = -np.inf, np.inf, worker
    return {**before.tree(snapshot), "samples": _samples_table(cells, cycle, names, bounds)}


def _tree(snapshot: Snapshot) -> dict[str, Table]:
    lines, parents = snapshot.lines, snapshot.parents
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
                "frame": np.array(snapshot.line_of_node, dtype=np.int64),
            }
        ),
    }


def _before_until(began: float, cells: Cells, names: Names, cycle: float) -> tuple[Cells, Names]:
    """End *before computations* in cells when a graph has arrived at a cluster.

    This process hears of it later. Of the cycle in which it arrived each has its part.
    """
    before, between = (Root.BEFORE, ""), (Root.BETWEEN, "")
    if not np.isfinite(began) or before not in names.functions:
        return cells, names
    number = names.functions.index(before)
    share = np.where(cells.function == number, began / cycle - cells.cycle, 1.0).clip(0.0, 1.0)
    seen = np.rint(cells.samples * share).astype(np.int64)
    functions = list(dict.fromkeys([*names.functions, between]))
    since = cells._replace(
        function=np.full_like(cells.function, functions.index(between)),
        seconds=cells.seconds * (1 - share),
        cpu=cells.cpu * (1 - share),
        samples=cells.samples - seen,
    ).where(share < 1)
    until = cells._replace(seconds=cells.seconds * share, cpu=cells.cpu * share, samples=seen)
    parts = zip(until.where(share > 0), since, strict=True)
    return summed(Cells(*map(np.concatenate, parts))), Names(functions, names.keys)


def _samples(
    snapshot: Snapshot,
    computations: Sequence[ComputationSnapshot],
    bounds: tuple[float, float],
    began: float,
) -> Table:
    table = times_of_tasks(computations)
    cells, (seen, keys) = _before_until(began, *cells_of(snapshot), snapshot.cycle)
    of_tasks = [(Root.TASKS, name) for name in table["function"].values]
    functions = list(dict.fromkeys([*seen, *of_tasks, GRAPH, SCHEDULER]))
    measured = measured_seconds(table, computations, functions)
    names = Names(functions, keys)
    return _scaled_samples(cells, snapshot.cycle, names, measured, (*bounds, ""))


Bounds = tuple[float, float, str]
"""Cuts of cycles, and the worker of a cluster that ran the tasks."""


def _scaled_samples(
    cells: Cells, cycle: float, names: Names, measured: Measured, bounds: Bounds
) -> Table:
    functions = len(names.functions)
    cells = scaled(cells, measured, functions)
    unseen = unseen_tasks(cells, measured, cycle, functions)
    cells = Cells(*map(np.concatenate, zip(cells, unseen, strict=True)))
    # In order of time, and in a cycle those of one task side by side: so they differ little from
    # row to row, and take few bytes in a file.
    cells = cells.where(np.lexsort((cells.node, cells.key, cells.function, cells.cycle)))
    return _samples_table(cells, cycle, names, bounds)


def _samples_table(cells: Cells, cycle: float, names: Names, bounds: Bounds) -> Table:
    start, stop, worker = bounds
    # A cycle that goes on ends now: it has no seconds in the future.
    stop = min(stop, perf_counter())
    cells = _within(cells, start // cycle if np.isfinite(start) else start, stop // cycle)
    return Table(
        {
            "start": np.maximum(cells.cycle * cycle, start),
            "stop": np.minimum((cells.cycle + 1) * cycle, stop),
            "root": recoded(cells.function, [root for root, _ in names.functions]),
            "function": recoded(cells.function, [name for _, name in names.functions]),
            "key": Categorical(cells.key, names.keys),
            "worker": constant(worker, len(cells.node)),
            "node": cells.node,
            "seconds": cells.seconds,
            "cpu_seconds": cells.cpu,
            "count": cells.samples,
        }
    )


def _within(cells: Cells, first: float, last: float) -> Cells:
    """Move cells outside the block to the first or the last cycle.

    A sample represents whole intervals. So one that came late may reach back to a little before its
    task started, and clocks of workers are known to some accuracy: what is in a cycle that has no
    time in the block would be selected by no range.
    """
    if not ((cells.cycle < first) | (cells.cycle > last)).any():
        return cells
    return summed(cells._replace(cycle=np.clip(cells.cycle, first, last).astype(np.int64)))
