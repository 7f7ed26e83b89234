"""Tasks in an interval of time, as a report has them: if they are many, one for each pixel."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dask_diag.analysis.groups import worker_order
from dask_diag.analysis.intervals import Intervals, sums_of_rectangles
from dask_diag.columns import Array, FloatArray
from dask_diag.live.model import LiveModel
from dask_diag.model.table import Table
from dask_diag.views.escaping import shown
from dask_diag.views.plots.figures import Packed
from dask_diag.views.plots.tasks import packed_tasks

MOST_RECTANGLES = 1000
"""A browser draws more rectangles and stripes slower than images."""
_PIXELS_OF_A_TASK = 4
"""Mean width, in a lane, below which stripes show nothing."""
MOST_LANES = 40
_MOST_PIXELS = 24_000
_MOST_PARTS = 22_000
"""Functions of all pixels, for an answer of 50 kB at most."""
_MOST_FUNCTIONS = 250
_TICK = 1e-6
PARTS_OF_A_PIXEL = 32
_NAME, _LANE_NAME = 60, 14


def tasks_in_view(
    model: LiveModel, start: float, stop: float
) -> tuple[Table, list[str], list[tuple[str, str]]]:
    """Tasks that have a lane, names of all workers, and names and colours of the functions.

    Tasks are in order of their lanes, ``start``, ``stop`` and ``cpu`` are seconds from the start of
    the interval. Of tasks that still run, CPU time is NaN.
    """
    tasks = model.tasks_between(start, stop)
    names = list(model.worker_codes)
    workers = sorted(names, key=worker_order)
    lanes = {name: lane for lane, name in enumerate(workers[:MOST_LANES])}
    # A stable sort of small integers counts them.
    lane = np.array([lanes.get(name, -1) for name in names], np.int8)[tasks["worker"]]
    # Counting is faster than `unique`, which sorts all tasks.
    present = np.flatnonzero(np.bincount(tasks["function"], minlength=1))
    code = np.zeros(len(model.function_codes) + 1, np.int64)
    code[present] = np.minimum(np.arange(len(present)), _MOST_FUNCTIONS)
    every, colors = list(model.function_codes), model.colors()
    drawn = [every[position] for position in present[:_MOST_FUNCTIONS].tolist()]
    if len(present) > _MOST_FUNCTIONS:
        drawn.append("other functions")
    left, right = tasks["start"] - start, np.minimum(tasks["stop"], stop) - start
    table = Table(
        {
            "start": left,
            "stop": right,
            "cpu": tasks["share"] * (right - left),
            "function": code[tasks["function"]],
            "lane": lane,
        }
    )
    order = np.argsort(lane, kind="stable")[np.count_nonzero(lane < 0) :]
    return table.rows(order), workers, [(shown(n, _NAME), colors[n]) for n in drawn]


def shares(
    tasks: Table, functions: int, columns: int, length: float
) -> tuple[FloatArray, FloatArray]:
    """Share of each pixel's time by function: of running tasks, and of tasks on a CPU.

    Parameters
    ----------
    tasks : Table
    functions, columns : int
        Numbers of functions and pixels.
    length : float
        Seconds of all pixels.
    """
    edges, pixel = np.arange(columns + 1.0), length / columns
    lasted = tasks["stop"] - tasks["start"]
    share = np.divide(tasks["cpu"], lasted, out=np.ones(len(tasks)), where=lasted > 0)
    # Tasks that still run are not said to be off the CPU.
    busy, computing = (
        sums_of_rectangles(
            Intervals(tasks["start"] / pixel, tasks["stop"] / pixel),
            heights,
            tasks["function"],
            count=functions,
            edges=edges,
        )
        for heights in (np.ones(len(tasks)), np.nan_to_num(share, nan=1.0))
    )
    # A rounding error is no task.
    busy[busy < 1e-9] = 0.0
    return busy, np.minimum(computing, busy)


def stream_in_view(
    model: LiveModel,
    start: float,
    stop: float,
    columns: int,
    most_rectangles: int = MOST_RECTANGLES,
) -> dict[str, object]:
    """Tasks of an interval for a page, in a number of pixels.

    ``lanes`` are names of workers, and ``left_out`` is the number of further workers;
    ``functions`` are names and colours. Tasks that ``ended`` and tasks that are ``running`` are
    packed as in a report, with ticks of ``tick`` seconds from the start of the interval. Above
    `most_rectangles` a task that ended stands for all tasks of a function in one of ``columns``
    pixels, which otherwise are 0.
    """
    tasks, workers, functions = tasks_in_view(model, start, stop)
    lanes = [shown(name, _LANE_NAME) for name in workers[:MOST_LANES]]
    is_running = np.isnan(tasks["cpu"])
    ended, pixels, tick = tasks.rows(~is_running), 0, _TICK
    if len(tasks) > min(most_rectangles, columns * len(lanes) // _PIXELS_OF_A_TASK):
        ended, pixels = _by_pixel(ended, len(lanes), len(functions), columns, stop - start)
        tick = (stop - start) / pixels / PARTS_OF_A_PIXEL
    return {
        "lanes": lanes,
        "left_out": len(workers) - len(lanes),
        "functions": functions,
        "tasks": len(tasks),
        "columns": pixels,
        "tick": tick,
        "ended": _packed(ended, len(lanes), tick),
        "running": _packed(tasks.rows(is_running), len(lanes), tick),
    }


def _by_pixel(
    tasks: Table, lanes: int, functions: int, columns: int, length: float
) -> tuple[Table, int]:
    """A task for each function in each pixel of a lane, with the time of all its tasks there.

    Also the number of pixels: wider ones are fewer if the answer would be too large.
    """
    columns = max(1, min(columns, _MOST_PIXELS // max(1, lanes)))
    bounds = np.searchsorted(tasks["lane"], np.arange(lanes + 1)).tolist()
    of_lanes = [tasks.rows(slice(first, last)) for first, last in pairwise(bounds)]
    while True:
        parts = [_parts_of_lane(own, functions, columns, length) for own in of_lanes]
        total = sum(len(rows[0]) for rows in parts)
        if total <= _MOST_PARTS or columns == 1:
            break
        columns = max(1, int(0.95 * columns * _MOST_PARTS / total))
    lane = np.repeat(np.arange(lanes), [len(rows[0]) for rows in parts])
    start, stop, cpu, function = (np.concatenate(part) for part in zip(*parts, strict=True))
    columns_of_parts = {"start": start, "stop": stop, "cpu": cpu, "function": function}
    return Table({**columns_of_parts, "lane": lane}), columns


def _parts_of_lane(tasks: Table, functions: int, columns: int, length: float) -> tuple[Array, ...]:
    """Start, stop, CPU time and function of each part, pixel by pixel."""
    busy, computing = shares(tasks, functions, columns, length)
    # A pixel has no more than all of its time, though a worker may run several tasks at once: CPU
    # time is below, and what is above is not seen.
    reached = np.minimum(np.cumsum(computing, axis=0), 1.0)
    cpu = np.diff(reached, axis=0, prepend=0.0)
    off_cpu = busy - computing
    space = (1.0 - reached[-1:]) / np.maximum(off_cpu.sum(axis=0), 1e-9)
    lasted = cpu + off_cpu * np.minimum(space, 1.0)
    pixel, function = np.nonzero(lasted.T)
    stop = (np.cumsum(lasted, axis=0)[function, pixel] + pixel) * length / columns
    lasted, cpu = (part[function, pixel] * length / columns for part in (lasted, cpu))
    return stop - lasted, stop, cpu, function


def _packed(tasks: Table, lanes: int, tick: float) -> Packed:
    counts = np.bincount(tasks["lane"], minlength=lanes)
    columns = {name: tasks[name] for name in ("start", "stop", "cpu", "function")}
    return packed_tasks({**columns, "count": counts, "outcome": np.zeros(len(tasks))}, tick)
