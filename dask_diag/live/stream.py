"""The tasks in an interval of time: rectangles if they are few, else what is in each pixel."""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import TypedDict

import numpy as np

from dask_diag.analysis.grouping import worker_order
from dask_diag.columns import Array, FloatArray, IntArray
from dask_diag.live.model import LiveModel
from dask_diag.views.escaping import shown

__all__ = ["MOST_RECTANGLES", "Stream", "binned", "stream_in_view"]

MOST_RECTANGLES = 3000
_MOST_LANES = 40
_MOST_CELLS = 24_000
_MOST_FUNCTIONS = 250
"""A cell has one byte for its function."""
_PARTS_OF_A_PIXEL = 4
_NAME, _LANE_NAME = 60, 14
NOTHING = 255


_Drawn = tuple[FloatArray, FloatArray, IntArray, IntArray]
"""Start and stop, from the left, function and lane of each task."""


class Stream(TypedDict, total=False):
    """What a page draws; numbers are counted in units of `unit` seconds from the left.

    ``functions`` are names and colours; ``function`` has their indices. There is either ``left``,
    ``length``, ``lane``, ``share`` (per cent of CPU, or -1 of a task that runs), or ``cells`` (the
    function of each pixel, lane by lane) and ``busy`` (how much of it was busy, of 255).
    """

    lanes: list[str]
    left_out: int
    functions: list[tuple[str, str]]
    unit: float
    tasks: int
    left: list[int]
    length: list[int]
    lane: list[int]
    function: list[int]
    share: list[int]
    columns: int
    cells: str
    busy: str


def stream_in_view(
    model: LiveModel,
    start: float,
    stop: float,
    columns: int,
    most_rectangles: int = MOST_RECTANGLES,
) -> Stream:
    """What is in view between two times, in so many pixels."""
    tasks = model.tasks.between(start, stop)
    workers = sorted(
        {*model.tasks.workers.names, *(task.worker for task in model.running)}, key=worker_order
    )
    lanes = workers[:_MOST_LANES]
    lane_of = {name: lane for lane, name in enumerate(lanes)}
    start_times, stop_times, functions, names = _with_running(model, tasks, start, stop)
    lane = _lanes(model, tasks, lane_of, len(start_times))
    colors = model.colors()
    stream: Stream = {
        "lanes": [shown(name, _LANE_NAME) for name in lanes],
        "left_out": len(workers) - len(lanes),
        "functions": [(shown(name, _NAME), colors[name]) for name in names],
        "tasks": int(np.count_nonzero(lane >= 0)),
    }
    drawn: _Drawn = (start_times - start, stop_times - start, functions, lane)
    if stream["tasks"] <= most_rectangles:
        _add_rectangles(stream, drawn, _share(tasks, len(lane)), (stop - start) / columns)
    else:
        columns = max(1, min(columns, _MOST_CELLS // max(1, len(lanes))))
        _add_cells(stream, drawn, columns, (stop - start) / columns)
    return stream


def _add_rectangles(stream: Stream, drawn: _Drawn, share: IntArray, pixel: float) -> None:
    """Each task that has a lane."""
    inside = drawn[3] >= 0
    left, right, functions, lane = (column[inside] for column in drawn)
    unit = stream["unit"] = pixel / _PARTS_OF_A_PIXEL
    left = np.round(np.maximum(left, 0.0) / unit).astype(int)
    right = np.round(right / unit).astype(int)
    stream["left"], stream["length"] = left.tolist(), np.maximum(right - left, 1).tolist()
    stream["lane"], stream["function"] = lane.tolist(), functions.tolist()
    stream["share"] = share[inside].tolist()


def _add_cells(stream: Stream, drawn: _Drawn, columns: int, pixel: float) -> None:
    """What is in each pixel, lane by lane."""
    # Of integers of a byte, to sort is to count.
    lane = drawn[3].astype(np.int8)
    order = np.argsort(lane, kind="stable")
    bounds = np.searchsorted(lane[order], np.arange(len(stream["lanes"]) + 1))
    left, right, functions = drawn[0][order], drawn[1][order], drawn[2][order]
    cells, busy = [], []
    for first, last in pairwise(bounds):
        rows = slice(int(first), int(last))
        dominant, level = binned(
            left[rows] / pixel,
            right[rows] / pixel,
            functions[rows],
            len(stream["functions"]),
            columns,
        )
        cells.append(dominant.astype(np.uint8))
        busy.append(np.ceil(255 * level).astype(np.uint8))
    stream["columns"], stream["unit"] = columns, pixel
    stream["cells"], stream["busy"] = _as_text(cells), _as_text(busy)


def binned(
    left: FloatArray, right: FloatArray, functions: IntArray, count: int, columns: int
) -> tuple[IntArray, FloatArray]:
    """Of each pixel of a lane the function with most time there, and how much was busy, up to 1.

    Where nothing ran the function is `NOTHING`.
    """
    width = columns + 2
    cover = np.zeros((count, width))
    # The time up to a moment, summed over tasks, is a ramp that begins with each task's start and
    # ends with its stop: what is in a pixel is what that adds there.
    for times, sign in ((left, 1.0), (right, -1.0)):
        inside = np.clip(times, 0, columns)
        pixel = np.minimum(inside.astype(np.int64), columns)
        part_of_pixel = 1.0 - (inside - pixel)
        cell = functions * width + pixel
        within = np.bincount(cell, part_of_pixel, minlength=count * width)
        after = np.bincount(cell + 1, minlength=count * width)
        cover += sign * within.reshape(count, width)
        cover += sign * np.cumsum(after.reshape(count, width), axis=1)
    cover = np.maximum(cover[:, :columns], 0.0)
    level = np.minimum(cover.sum(axis=0), 1.0)
    level[level < 1e-9] = 0.0
    dominant = cover.argmax(axis=0) if count else np.zeros(columns, int)
    return np.where(level > 0, dominant, NOTHING), level


def _with_running(
    model: LiveModel, tasks: dict[str, Array], start: float, stop: float
) -> tuple[FloatArray, FloatArray, IntArray, list[str]]:
    """Times and functions of the tasks, those that run last; and names of these functions."""
    every = model.tasks.functions.names
    # Not `unique`, which sorts all.
    present = np.flatnonzero(np.bincount(tasks["function"], minlength=len(every)))
    names = [every[code] for code in present.tolist()]
    code_of = np.zeros(len(every), np.int64)
    code_of[present] = np.arange(len(present))
    codes = code_of[tasks["function"]]
    code_of_name = {name: code for code, name in enumerate(names)}
    running = [code_of_name.setdefault(task.function, len(code_of_name)) for task in model.running]
    functions = np.concatenate([codes, np.array(running, np.int64)])
    starts = np.concatenate([tasks["start"], [task.start for task in model.running]])
    stops = np.concatenate([tasks["stop"], np.full(len(running), max(model.stop, start))])
    return starts, np.minimum(stops, stop), *_few(functions, list(code_of_name))


def _few(functions: IntArray, names: list[str]) -> tuple[IntArray, list[str]]:
    """No more functions than there are codes: the others are one."""
    if len(names) <= _MOST_FUNCTIONS:
        return functions, names
    return np.minimum(functions, _MOST_FUNCTIONS), [*names[:_MOST_FUNCTIONS], "other functions"]


def _lanes(
    model: LiveModel, tasks: dict[str, Array], lane_of: dict[str, int], count: int
) -> IntArray:
    """The lane of each task; -1 of those that are not drawn."""
    table = np.array([lane_of.get(name, -1) for name in model.tasks.workers.names], np.int64)
    lanes = np.full(count, -1, np.int64)
    if len(table):
        lanes[: len(tasks["worker"])] = table[tasks["worker"]]
    first = len(tasks["worker"])
    lanes[first:] = [lane_of.get(task.worker, -1) for task in model.running]
    return lanes


def _share(tasks: dict[str, Array], count: int) -> IntArray:
    """Per cent of CPU of each task; -1 of those that run."""
    share = np.full(count, -1, np.int64)
    lasted = np.maximum(tasks["stop"] - tasks["start"], 1e-9)
    share[: len(lasted)] = np.clip(100 * np.nan_to_num(tasks["cpu"]) / lasted, 0, 100)
    return share


def _as_text(rows: list[Array]) -> str:
    return base64.b64encode(b"".join(row.tobytes() for row in rows)).decode("ascii")
