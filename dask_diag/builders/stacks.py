"""From sampled stacks to the tables of a Recording that are about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter

import numpy as np

from dask_diag.builders.constants import constant
from dask_diag.builders.keys import recoded
from dask_diag.builders.stack_cells import Cells, CellsByCycle, Names, cells_of, summed
from dask_diag.builders.stack_weights import (
    GRAPH,
    SCHEDULER,
    Measured,
    measured_seconds,
    measured_tasks,
    scaled,
    unseen_tasks,
)
from dask_diag.builders.tasks import times_of_tasks
from dask_diag.capture.sampling.call_tree import Snapshot, Stacks
from dask_diag.capture.snapshot import ComputationSnapshot
from dask_diag.columns import Categorical
from dask_diag.model.table import NO_ROWS, Table, stack
from dask_diag.schema import Root

__all__ = ["SeenBefore", "joined_stacks", "stacks_as_seen", "stacks_of_tasks", "stacks_tables"]


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
    """The same of tasks that one worker of a cluster ran; those that still run stop at the end."""
    snapshot = stacks.snapshot()
    cells, (seen, keys) = cells_of(snapshot)
    of_tasks = [(Root.TASKS, name) for name in tasks["function"].values]
    names = Names(list(dict.fromkeys([*seen, *of_tasks])), keys)
    measured = measured_tasks(tasks, names.functions, np.full(len(tasks), bounds[1]))
    samples = _scaled_samples(cells, snapshot.cycle, names, measured, (*bounds, worker))
    return {**_tree(snapshot), "samples": samples}


def joined_stacks(parts: Sequence[dict[str, Table]]) -> dict[str, Table]:
    """The tables of several as one, in which rows refer to the right ones."""
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
    """A table some of whose columns are rows that have moved; -1 is none."""
    columns = {name: table[name] for name in table.columns}
    moved = {name: np.where(columns[name] < 0, -1, columns[name] + by[name]) for name in by}
    return Table({**columns, **moved})


class SeenBefore:
    """What `stacks_as_seen` made of the stacks of one profiler, most of which is the same again."""

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
    """The same without regard to what was measured of tasks, in about `most` rows at most.

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
    """The cells, of which none is before computations after a graph has arrived at a cluster.

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
"""Where cycles are cut, and the worker of a cluster that ran the tasks."""


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
    """The cells, of which none is in a cycle before the first, or after the last.

    A sample represents whole intervals. So one that came late may reach back to a little before its
    task started, and clocks of workers are known to some accuracy: what is in a cycle that has no
    time in the block would be selected by no range.
    """
    if not ((cells.cycle < first) | (cells.cycle > last)).any():
        return cells
    return summed(cells._replace(cycle=np.clip(cells.cycle, first, last).astype(np.int64)))
