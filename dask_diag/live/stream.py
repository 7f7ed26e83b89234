"""Tasks in an interval of time: rectangles if they are few, else an image of each lane."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.groups import worker_order
from dask_diag.analysis.intervals import Intervals, sums_of_rectangles
from dask_diag.columns import Array, FloatArray, IntArray
from dask_diag.live.model import LiveModel
from dask_diag.model.codes import Activity
from dask_diag.views.colors import color_of_activity
from dask_diag.views.escaping import shown

ROWS = 16
"""Height of a lane's image, as in plots/tasks/binned.js: steps of the worker's time."""
OFF_CPU, NOTHING = 254, 255
"""Codes besides those of functions."""
MOST_RECTANGLES = 1000
"""A browser draws more rectangles and stripes slower than images."""
_PIXELS_OF_A_TASK = 4
"""Mean width, in a lane, below which stripes show nothing."""
_MOST_LANES = 40
_MOST_PIXELS = 24_000
_MOST_RUNS = 30_000
"""Length of an answer's images, for 50 kB at most."""
_MOST_FUNCTIONS = 250
"""A code is one byte."""
_PARTS_OF_A_PIXEL = 4
_NAME, _LANE_NAME = 60, 14


class TasksInView(NamedTuple):
    """Columns of the tasks in an interval.

    Attributes
    ----------
    left, right : array
        Seconds from the start of the interval.
    function, lane : array of int
    share : array
        Share of CPU time; NaN for tasks that still run.
    """

    left: FloatArray
    right: FloatArray
    function: IntArray
    lane: IntArray
    share: FloatArray

    def rows(self, chosen: Array | slice) -> TasksInView:
        """Select tasks."""
        return TasksInView._make(column[chosen] for column in self)

    def by_lane(self, lanes: int) -> list[TasksInView]:
        """Split the tasks by lane."""
        # A stable sort of small integers counts them.
        lane = self.lane.astype(np.int8)
        ordered = self.rows(np.argsort(lane, kind="stable"))
        bounds = np.searchsorted(ordered.lane, np.arange(lanes + 1)).tolist()
        return [ordered.rows(slice(first, last)) for first, last in pairwise(bounds)]


def tasks_in_view(
    model: LiveModel, start: float, stop: float
) -> tuple[TasksInView, list[str], list[tuple[str, str]]]:
    """Tasks that have a lane, names of all workers, and names and colours of the functions."""
    tasks = model.tasks_between(start, stop)
    names = list(model.worker_codes)
    workers = sorted(names, key=worker_order)
    lanes = {name: lane for lane, name in enumerate(workers[:_MOST_LANES])}
    lane = np.array([lanes.get(name, -1) for name in names], np.int64)[tasks["worker"]]
    # Counting is faster than `unique`, which sorts all tasks.
    present = np.flatnonzero(np.bincount(tasks["function"], minlength=1))
    code = np.zeros(len(model.function_codes) + 1, np.int64)
    code[present] = np.minimum(np.arange(len(present)), _MOST_FUNCTIONS)
    every, colors = list(model.function_codes), model.colors()
    drawn = [every[position] for position in present[:_MOST_FUNCTIONS].tolist()]
    if len(present) > _MOST_FUNCTIONS:
        drawn.append("other functions")
    columns = (
        tasks["start"] - start,
        np.minimum(tasks["stop"], stop) - start,
        code[tasks["function"]],
        lane,
        tasks["share"],
    )
    functions = [(shown(name, _NAME), colors[name]) for name in drawn]
    return TasksInView(*columns).rows(lane >= 0), workers, functions


def shares(
    tasks: TasksInView, functions: int, columns: int, length: float
) -> tuple[FloatArray, FloatArray]:
    """Share of each pixel's time by function: of running tasks, and of tasks on a CPU.

    Parameters
    ----------
    tasks : TasksInView
    functions, columns : int
        Numbers of functions and pixels.
    length : float
        Seconds of all pixels.
    """
    edges, pixel = np.arange(columns + 1.0), length / columns
    # Tasks that still run are not said to be off the CPU.
    busy, computing = (
        sums_of_rectangles(
            Intervals(tasks.left / pixel, tasks.right / pixel),
            heights,
            tasks.function,
            count=functions,
            edges=edges,
        )
        for heights in (np.ones(len(tasks.left)), np.nan_to_num(tasks.share, nan=1.0))
    )
    # A rounding error is no task.
    busy[busy < 1e-9] = 0.0
    return busy, np.minimum(computing, busy)


def dominant(busy: FloatArray) -> IntArray:
    """The function with most time in each pixel; `NOTHING` where no task ran."""
    if not len(busy):
        return np.full(busy.shape[1], NOTHING)
    return np.where(busy.any(axis=0), busy.argmax(axis=0), NOTHING)


def stacked(busy: FloatArray, cpu: FloatArray) -> Array:
    """Image of a lane, each pixel from below: functions on the CPU, tasks off the CPU, nothing.

    Parameters
    ----------
    busy, cpu : array
        As `shares` returns them.
    """
    count, columns = busy.shape
    parts = np.concatenate([cpu, (busy - cpu).sum(axis=0, keepdims=True)])
    # As in JavaScript, a half is rounded up.
    tops = np.minimum(np.floor(ROWS * np.cumsum(parts, axis=0) + 0.5), ROWS).astype(np.int64)
    # Tasks that take less than a row have the lowest one.
    small = np.flatnonzero((tops[-1] == 0) & busy.any(axis=0))
    for pixel, function in zip(small.tolist(), dominant(busy)[small].tolist(), strict=True):
        tops[function:, pixel] = 1
    heights = np.diff(tops, axis=0, prepend=0, append=ROWS)
    codes = np.array([*range(count), OFF_CPU, NOTHING], np.uint8)
    return np.repeat(np.tile(codes, columns), heights.T.ravel())


def stream_in_view(
    model: LiveModel,
    start: float,
    stop: float,
    columns: int,
    most_rectangles: int = MOST_RECTANGLES,
) -> dict[str, object]:
    """Drawing of an interval for a page, in a number of pixels.

    ``lanes`` are names of workers, and ``left_out`` is the number of further workers;
    ``functions`` are names and colours. Numbers are counted in units of ``unit`` seconds from the
    start. Rectangles have ``left``, ``length``, ``lane``, ``function`` (an index) and ``share``
    (per cent of CPU; -1 while the task runs). Above `most_rectangles`, only tasks that still run
    are rectangles. Others are in an image of each lane, of ``columns`` and ``rows``: ``codes``
    (bytes) and how often each is repeated (``repeats``, of two bytes), pixel by pixel from below.
    ``off_cpu`` is the code of tasks off the CPU, and its colour.
    """
    tasks, workers, functions = tasks_in_view(model, start, stop)
    lanes = [shown(name, _LANE_NAME) for name in workers[:_MOST_LANES]]
    unit = (stop - start) / columns / _PARTS_OF_A_PIXEL
    stream: dict[str, object] = {
        "lanes": lanes,
        "left_out": len(workers) - len(lanes),
        "functions": functions,
        "unit": unit,
        "tasks": len(tasks.lane),
    }
    if len(tasks.lane) > min(most_rectangles, columns * len(lanes) // _PIXELS_OF_A_TASK):
        runs_now = np.isnan(tasks.share)
        ended = tasks.rows(~runs_now).by_lane(len(lanes))
        stream |= _images(ended, len(functions), columns, stop - start)
        tasks = tasks.rows(runs_now)
    left = np.round(np.maximum(tasks.left, 0.0) / unit).astype(int)
    right = np.round(tasks.right / unit).astype(int)
    return stream | {
        "left": left.tolist(),
        "length": np.maximum(right - left, 1).tolist(),
        "lane": tasks.lane.tolist(),
        "function": tasks.function.tolist(),
        "share": np.nan_to_num(100 * tasks.share, nan=-1).astype(int).tolist(),
    }


def _images(
    lanes: list[TasksInView], functions: int, columns: int, length: float
) -> dict[str, object]:
    """Run lengths of the images; wider pixels are fewer if the answer would be too large."""
    columns = max(1, min(columns, _MOST_PIXELS // max(1, len(lanes))))
    while True:
        images = [stacked(*shares(tasks, functions, columns, length)) for tasks in lanes]
        starts = [np.flatnonzero(np.r_[True, image[1:] != image[:-1]]) for image in images]
        total = sum(map(len, starts))
        if total <= _MOST_RUNS or columns == 1:
            break
        columns = max(1, int(0.95 * columns * _MOST_RUNS / total))
    lane_size = ROWS * columns
    return {
        "columns": columns,
        "rows": ROWS,
        "codes": _as_text(image[first] for image, first in zip(images, starts, strict=True)),
        "repeats": _as_text(np.diff(first, append=lane_size).astype("<u2") for first in starts),
        "off_cpu": (OFF_CPU, color_of_activity(Activity.NONCPU)),
    }


def _as_text(rows: Iterable[Array]) -> str:
    return base64.b64encode(b"".join(row.tobytes() for row in rows)).decode("ascii")
