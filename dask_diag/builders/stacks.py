"""From sampled stacks to the tables of a Recording that are about them."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from dask_diag.builders.stack_cells import Cells, Names, cells_of, summed
from dask_diag.builders.stack_weights import (
    GRAPH,
    SCHEDULER,
    measured_seconds,
    scaled,
    unseen_tasks,
)
from dask_diag.builders.tasks import times_of_tasks
from dask_diag.capture.sampling.call_tree import Snapshot, Stacks
from dask_diag.capture.snapshot import ComputationSnapshot
from dask_diag.columns import Array, Categorical
from dask_diag.model.table import Table
from dask_diag.schema import Root

__all__ = ["stacks_as_seen", "stacks_tables"]


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
    (cells, names), cycle = cells_of(found), found.cycle
    if len(cells.node) > most and cells.key.any():
        cells = summed(cells._replace(key=np.zeros_like(cells.key)))
    while len(cells.node) > most and cells.cycle.min() < cells.cycle.max():
        cells, cycle = summed(cells._replace(cycle=cells.cycle // 2)), 2 * cycle
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


def _samples(
    found: Snapshot, computations: Sequence[ComputationSnapshot], bounds: tuple[float, float]
) -> Table:
    table = times_of_tasks(computations)
    cells, (seen, keys) = cells_of(found)
    of_tasks = [(Root.TASKS, name) for name in table["function"].values]
    functions = list(dict.fromkeys([*seen, *of_tasks, GRAPH, SCHEDULER]))
    measured = measured_seconds(table, computations, functions)
    cells = scaled(cells, measured, len(functions))
    unseen = unseen_tasks(cells, measured, found.cycle, len(functions))
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
