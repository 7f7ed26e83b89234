"""The tables of sampled stacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np

from dask_diag.capture.build import joined
from dask_diag.capture.computation import ComputationSnapshot
from dask_diag.capture.tasks_table import recoded, times_of_tasks
from dask_diag.capture.workers_table import constant
from dask_diag.columns import Array, Categorical, FloatArray, ratio
from dask_diag.model.codes import Root
from dask_diag.model.table import Table
from dask_diag.model.tables import IoCalls, seconds_of_tasks
from dask_diag.sampling.call_tree import NO_NODE, PackedCycle, Snapshot, Stacks

Function = tuple[str, str]
"""A root, and the function of tasks: empty but for that of tasks."""


class Names(NamedTuple):
    """Numbers of functions and of keys; the first key stands for grouped tasks."""

    functions: dict[Function, int]
    keys: dict[str, int]

    def number(self, root: str, function: str = "") -> int:
        """The number of a function, which may be new."""
        return self.functions.setdefault((root, function), len(self.functions))


class Cells(NamedTuple):
    """Samples in columns of equal length; functions (with roots) and keys are numbers."""

    cycle: Array
    function: Array
    key: Array
    node: Array
    seconds: Array
    cpu: Array
    samples: Array

    def filter(self, selection: Array) -> Cells:
        """Select cells by a mask or by positions."""
        return Cells(*(column[selection] for column in self))


NO_CELLS = Cells(*(np.zeros(0, dtype=kind) for kind in (*[np.int64] * 4, float, float, np.int64)))


def _together(parts: Iterable[Cells]) -> Cells:
    return Cells(*map(np.concatenate, zip(NO_CELLS, *parts, strict=True)))


def summed(cells: Cells) -> Cells:
    """Sum cells of the same cycle, function, key and node."""
    distinct, row = np.unique(np.stack(cells[:4], axis=1), axis=0, return_inverse=True)
    row = row.reshape(-1)
    seconds, cpu, counts = (np.bincount(row, of, minlength=len(distinct)) for of in cells[4:])
    return Cells(*(*distinct.T, seconds, cpu, counts.astype(np.int64)))


class SeenBefore:
    """Cells and tree of a profiler's last snapshot: what has not changed is not made again."""

    def __init__(self) -> None:
        self._tree: dict[str, Table] = {}
        self._tree_size: object = None
        self._forget()

    def _forget(self) -> None:
        self._cells_of_cycle: dict[int, tuple[PackedCycle, Cells]] = {}
        self._names = Names({}, {"": 0})

    def cells(self, snapshot: Snapshot) -> tuple[Cells, Names]:
        """The cells of a snapshot, and the names of their numbers."""
        known = self._cells_of_cycle
        if not known.keys() <= snapshot.cycles.keys():
            # Cycles were merged: names may have gone with them.
            self._forget()
            known = self._cells_of_cycle
        for number, packed in snapshot.cycles.items():
            if number not in known or known[number][0] is not packed:
                known[number] = packed, _cells_of(number, packed, self._names)
        cells = _together(known[number][1] for number in snapshot.cycles)
        return cells, Names(dict(self._names.functions), dict(self._names.keys))

    def tree(self, snapshot: Snapshot) -> dict[str, Table]:
        """The tables of the tree, which only grows."""
        size = len(snapshot.lines), len(snapshot.parents), snapshot.calls
        if size != self._tree_size:
            self._tree_size, self._tree = size, _tree(snapshot)
        return self._tree


def _cells_of(cycle: int, packed: PackedCycle, names: Names) -> Cells:
    keys = names.keys
    numbers = [
        (names.number(group.root, group.function), keys.setdefault(group.key, len(keys)))
        for group in packed.distinct
    ]
    function, key = np.array(numbers, dtype=np.int64).reshape(-1, 2)[packed.groups].T
    return Cells(
        np.full(len(packed), cycle),
        function,
        key,
        np.array(packed.nodes, dtype=np.int64),
        np.array(packed.seconds),
        np.array(packed.cpu),
        np.array(packed.counts, dtype=np.int64),
    )


def _tree(snapshot: Snapshot) -> dict[str, Table]:
    lines = snapshot.lines
    return {
        "frames": Table(
            {
                "name": Categorical.of(line.name for line in lines),
                "file": Categorical.of(line.file for line in lines),
                "line": np.array([line.line for line in lines], dtype=np.int64),
                "first_line": np.array([line.first for line in lines], dtype=np.int64),
            }
        ),
        "io_calls": IoCalls.of_rows(snapshot.calls),
        "call_tree": Table(
            {
                "parent": np.array(snapshot.parents, dtype=np.int64),
                "frame": np.array(snapshot.line_of_node, dtype=np.int64),
            }
        ),
    }


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
    now = perf_counter()
    starts = [*([] if start is None else [start]), *(one.called for one in computations)]
    stops = [np.inf if stop is None else stop, *(one.stop or np.inf for one in computations)]
    tasks = times_of_tasks(computations)

    def measured(names: Names, cycle: float) -> Cells:
        """Seconds of tasks, and of graphs and the scheduler outside tasks.

        A task that has not ended stops now, or when its computation did.
        """
        until = {one.name: one.stop or now for one in computations}
        ends = np.array([until[name] for name in tasks["computation"].values], dtype=float)
        of_tasks = _measured_tasks(tasks, ends[tasks["computation"].codes], names, cycle)
        return _together([of_tasks, _measured_callers(tasks, computations, now, names, cycle)])

    bounds = min(starts, default=-np.inf), max(stops)
    return _scaled_tables(stacks, measured, bounds, began=began)


def stacks_of_tasks(
    stacks: Stacks, tasks: Table, worker: str, bounds: tuple[float, float]
) -> dict[str, Table]:
    """The tables of a cluster's worker; running tasks stop at the end."""

    def measured(names: Names, cycle: float) -> Cells:
        return _measured_tasks(tasks, np.full(len(tasks), bounds[1]), names, cycle)

    return _scaled_tables(stacks, measured, bounds, worker)


def _measured_tasks(tasks: Table, ends: FloatArray, names: Names, cycle: float) -> Cells:
    """Measured seconds of the tasks that started, a cell each, in the cycle of the task's middle.

    Tasks that have not stopped do so at their `ends`. CPU seconds are NaN if not measured.
    """
    functions = [names.number(Root.TASKS, name) for name in tasks["function"].values]
    function = np.array(functions, dtype=np.int64)[tasks["function"].codes]
    start = tasks["start"]
    stop = np.where(np.isnan(tasks["stop"]), ends, tasks["stop"])
    started = ~np.isnan(start)
    seconds = stop - start
    if "seceded" in tasks.columns:
        seconds = seconds_of_tasks(tasks.replacing({"stop": stop}))
    columns = function, (start + stop) / 2, seconds, tasks["thread_cpu"]
    return _measured(cycle, *(column[started] for column in columns))


def _measured(cycle: float, function: Array, middle: Array, seconds: Array, cpu: Array) -> Cells:
    zeros = np.zeros(len(function), dtype=np.int64)
    number = (middle // cycle).astype(np.int64)
    return Cells(number, function, zeros, zeros + NO_NODE, seconds, cpu, zeros)


def _measured_callers(
    tasks: Table,
    computations: Sequence[ComputationSnapshot],
    now: float,
    names: Names,
    cycle: float,
) -> Cells:
    """Seconds of the calling thread in the graph of each computation, and in the scheduler."""
    graph, scheduler = names.number(Root.GRAPH), names.number(Root.SCHEDULER)
    labels = tasks["computation"]
    took = np.nan_to_num(tasks["stop"] - tasks["start"])
    sums = np.bincount(labels.codes, took, minlength=len(labels.values)).tolist()
    seconds_of_tasks = dict(zip(labels.values, sums, strict=True))
    rows: list[tuple[int, float, float, float]] = []
    earlier: dict[int, list[ComputationSnapshot]] = {}
    for one in computations:
        nested, on_thread = 0.0, earlier.setdefault(one.facts.thread, [])
        # Computations come in the order in which they started, the inner ones before the one whose
        # graph they were called in.
        while on_thread and on_thread[-1].called > one.called:
            inner = on_thread.pop()
            nested += (inner.stop or now) - inner.called
        on_thread.append(one)
        stop = one.stop or now
        prepared = stop if one.prepared is None else one.prepared
        # There the scheduler's thread runs the tasks itself, and their seconds count with them.
        is_own = one.facts.scheduler == "synchronous"
        in_tasks = seconds_of_tasks.get(one.name, 0.0) if is_own else 0.0
        for function, since, until, elsewhere in (
            (graph, one.called, prepared, nested),
            (scheduler, prepared, stop, in_tasks),
        ):
            seconds = until - since - elsewhere
            if seconds > 0:
                rows.append((function, (since + until) / 2, seconds, np.nan))
    numbers, *columns = np.array(rows, dtype=float).reshape(-1, 4).T
    return _measured(cycle, numbers.astype(np.int64), *columns)


def _scaled_tables(
    stacks: Stacks,
    measure: Callable[[Names, float], Cells],
    bounds: tuple[float, float],
    worker: str = "",
    began: float = np.inf,
) -> dict[str, Table]:
    """The tables, scaled to measured seconds; functions without samples have those seconds."""
    snapshot = stacks.snapshot()
    cells, names = SeenBefore().cells(snapshot)
    cells = _before_until(began, cells, names, snapshot.cycle)
    measured = measure(names, snapshot.cycle)
    unseen = measured.filter(~np.isin(measured.function, cells.function))
    cells = _together([scaled(cells, measured, len(names.functions)), summed(unseen)])
    # In order of time, and in a cycle those of one task side by side: so they differ little from
    # row to row, and take few bytes in a file.
    cells = cells.filter(np.lexsort((cells.node, cells.key, cells.function, cells.cycle)))
    samples = _samples_table(cells, snapshot.cycle, names, worker, bounds)
    return {**_tree(snapshot), "samples": samples}


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
    (cells, names), cycle = before.cells(snapshot), snapshot.cycle
    cells = _before_until(began, cells, names, cycle)
    # First single tasks are given up, then resolution in time: stacks by function are what a live
    # view shows.
    if len(cells.node) > most and cells.key.any():
        cells = summed(cells._replace(key=np.zeros_like(cells.key)))
    while len(cells.node) > most and cells.cycle.min() < cells.cycle.max():
        cells, cycle = summed(cells._replace(cycle=cells.cycle // 2)), 2 * cycle
    return {**before.tree(snapshot), "samples": _samples_table(cells, cycle, names, worker)}


def _before_until(began: float, cells: Cells, names: Names, cycle: float) -> Cells:
    """End *before computations* in cells when a graph has arrived at a cluster.

    This process hears of it later. Of the cycle in which it arrived each has its part.
    """
    before = names.functions.get((Root.BEFORE, ""))
    if before is None or not np.isfinite(began):
        return cells
    share = np.where(cells.function == before, began / cycle - cells.cycle, 1.0).clip(0.0, 1.0)
    seen = np.rint(cells.samples * share).astype(np.int64)
    since = cells._replace(
        function=np.full_like(cells.function, names.number(Root.BETWEEN)),
        seconds=cells.seconds * (1 - share),
        cpu=cells.cpu * (1 - share),
        samples=cells.samples - seen,
    ).filter(share < 1)
    until = cells._replace(seconds=cells.seconds * share, cpu=cells.cpu * share, samples=seen)
    return summed(_together([until.filter(share > 0), since]))


def scaled(cells: Cells, measured: Cells, functions: int) -> Cells:
    """Scale cells to the measured seconds of each function, if known."""

    def sums(of: Cells, values: Array) -> Array:
        return np.bincount(of.function, values, minlength=functions)

    missed = cells.node == NO_NODE
    wall, cpu = sums(measured, measured.seconds), sums(measured, measured.cpu)
    scale = np.where(wall > 0, ratio(wall, sums(cells, cells.seconds)), 1.0)
    seconds = cells.seconds * scale[cells.function]
    share = ratio(cells.cpu, cells.seconds)
    seen, lost = sums(cells, seconds * ~missed), sums(cells, seconds * missed)
    estimate = sums(cells, seconds * share * ~missed)
    # Of what was missed it is not known how much was CPU time: somewhere between nothing and all.
    exact = np.clip(estimate, np.minimum(cpu - lost, seen), np.minimum(cpu, seen))
    cpu = np.where(wall > 0, cpu, np.nan)
    exact = np.where(np.isnan(cpu), estimate, exact)
    # More CPU time than samples show is added where they show none, less is taken off in
    # proportion: so no stack gets more CPU time than seconds, nor less than none.
    up = ratio(exact - estimate, seen - estimate)[cells.function]
    down = ratio(exact, estimate)[cells.function]
    raised = (exact > estimate)[cells.function]
    share = np.where(raised, share + (1 - share) * up, share * down)
    of_missed = np.clip(ratio(cpu - exact, lost), 0.0, 1.0)[cells.function]
    return cells._replace(seconds=seconds, cpu=seconds * np.where(missed, of_missed, share))


def _samples_table(
    cells: Cells,
    cycle: float,
    names: Names,
    worker: str,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> Table:
    start, stop = bounds
    # A cycle that goes on ends now: it has no seconds in the future.
    stop = min(stop, perf_counter())
    first, last = start // cycle if np.isfinite(start) else start, stop // cycle
    if ((cells.cycle < first) | (cells.cycle > last)).any():
        # A sample represents whole intervals. So one that came late may reach back to a little
        # before its task started, and clocks of workers are known to some accuracy: what is in a
        # cycle that has no time in the block would be selected by no range.
        cells = summed(cells._replace(cycle=np.clip(cells.cycle, first, last).astype(np.int64)))
    return Table(
        {
            "start": np.maximum(cells.cycle * cycle, start),
            "stop": np.minimum((cells.cycle + 1) * cycle, stop),
            "root": recoded(cells.function, [root for root, _ in names.functions]),
            "function": recoded(cells.function, [name for _, name in names.functions]),
            "key": Categorical(cells.key, list(names.keys)),
            "worker": constant(worker, len(cells.node)),
            "node": cells.node,
            "seconds": cells.seconds,
            "cpu_seconds": cells.cpu,
            "count": cells.samples,
        }
    )


def joined_stacks(parts: Sequence[dict[str, Table]]) -> dict[str, Table]:
    """Concatenate tables of stacks, with references to rows shifted."""
    moved: list[dict[str, Table]] = []
    frames = nodes = 0
    for part in parts:
        tree = _moved(part["call_tree"], {"parent": nodes, "frame": frames})
        calls = _moved(part["io_calls"], {"frame": frames})
        samples = _moved(part["samples"], {"node": nodes})
        moved.append({**part, "io_calls": calls, "call_tree": tree, "samples": samples})
        frames, nodes = frames + len(part["frames"]), nodes + len(tree)
    return joined(*moved)


def _moved(table: Table, by: Mapping[str, int]) -> Table:
    """Shift references to rows in some columns of a table; -1 is no row."""
    return table.replacing(
        {name: np.where(table[name] < 0, -1, table[name] + by[name]) for name in by}
    )
