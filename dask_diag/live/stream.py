"""The tasks in an interval of time: rectangles if they are few, else an image of each lane."""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import NamedTuple, TypedDict

import numpy as np

from dask_diag.analysis.groups import worker_order
from dask_diag.columns import Array, FloatArray, IntArray
from dask_diag.live.model import LiveModel
from dask_diag.model.codes import Activity
from dask_diag.views.colors import color_of_activity
from dask_diag.views.escaping import shown

ROWS = 16
"""Of a lane's image, as in plots/tasks/binned.js: so many steps of the worker's time."""
OFF_CPU, NOTHING = 254, 255
"""Codes beside those of functions."""

Shape = tuple[int, int]


def shares(
    left: FloatArray, right: FloatArray, functions: IntArray, cpu: FloatArray, shape: Shape
) -> tuple[FloatArray, FloatArray]:
    """Of each function and pixel the share of its time: that tasks ran, and that they had a CPU.

    Parameters
    ----------
    left, right : array
        Start and stop of each task, in pixels.
    functions : array
        Their codes.
    cpu : array
        Of each task the share of its time that was CPU time.
    shape : (int, int)
        How many functions and pixels there are.
    """
    count, columns = shape
    wide = (count, columns + 2)
    busy, computing = np.zeros(wide), np.zeros(wide)
    # The time up to a moment, summed over tasks, is a ramp that begins with each task's start and
    # ends with its stop: what is in a pixel is what that adds there.
    for times, sign in ((left, 1.0), (right, -1.0)):
        inside = np.clip(times, 0, columns)
        pixel = np.minimum(inside.astype(np.int64), columns)
        part_of_pixel = 1.0 - (inside - pixel)
        cells = functions * wide[1] + pixel
        busy += sign * _ramps(cells, part_of_pixel, None, wide)
        computing += sign * _ramps(cells, part_of_pixel * cpu, cpu, wide)
    busy = busy[:, :columns]
    # A rounding error is no task.
    busy[busy < 1e-9] = 0.0
    return busy, np.clip(computing[:, :columns], 0.0, busy)


def _ramps(
    cells: IntArray, within: FloatArray, after: FloatArray | None, shape: Shape
) -> FloatArray:
    """What ramps that begin in these pixels add to them, and to all that come after."""
    size, total = shape[0] * shape[1], np.zeros(shape)
    total += np.bincount(cells, within, size).reshape(shape)
    total += np.cumsum(np.bincount(cells + 1, after, size).reshape(shape), axis=1)
    return total


def dominant(busy: FloatArray) -> IntArray:
    """The function with most time in each pixel; `NOTHING` where nothing ran."""
    if not len(busy):
        return np.full(busy.shape[1], NOTHING)
    return np.where(busy.any(axis=0), busy.argmax(axis=0), NOTHING)


def stacked(busy: FloatArray, cpu: FloatArray) -> Array:
    """The image of a lane, pixel by pixel, each from below: functions, tasks off the CPU, nothing.

    Parameters
    ----------
    busy, cpu : array
        As `shares` returns them.
    """
    count, columns = busy.shape
    parts = np.concatenate([cpu, (busy - cpu).sum(axis=0, keepdims=True)])
    # As in JavaScript, a half is rounded up.
    tops = np.minimum(np.floor(ROWS * np.cumsum(parts, axis=0) + 0.5), ROWS).astype(np.int64)
    # What was there for less than a row is the lowest one.
    small = np.flatnonzero((tops[-1] == 0) & busy.any(axis=0))
    for pixel, function in zip(small.tolist(), dominant(busy)[small].tolist(), strict=True):
        tops[function:, pixel] = 1
    heights = np.diff(tops, axis=0, prepend=0, append=ROWS)
    codes = np.array([*range(count), OFF_CPU, NOTHING], np.uint8)
    return np.repeat(np.tile(codes, columns), heights.T.ravel())


def runs(image: Array) -> tuple[Array, Array]:
    """The codes of an image, one where several in a row are the same; and how many these are."""
    first = np.flatnonzero(np.r_[True, image[1:] != image[:-1]])
    return image[first], np.diff(first, append=len(image))


MOST_RECTANGLES = 1000
"""With their stripes they take a browser longer than images do."""
_PIXELS_OF_A_TASK = 4
"""On average, of a lane: where tasks have fewer, stripes show nothing."""
_MOST_LANES = 40
_MOST_CELLS = 24_000
_MOST_RUNS = 30_000
"""Of an answer's images: with them it has at most 50 kB."""
_MOST_FUNCTIONS = 250
"""A code is one byte."""
_PARTS_OF_A_PIXEL = 4
_NAME, _LANE_NAME = 60, 14


class _Drawn(NamedTuple):
    """The tasks in view.

    Attributes
    ----------
    left, right : array
        Seconds from the left.
    function, lane : array
        Codes; -1 is the lane of those that are not drawn.
    share : array
        Of their time, that was CPU time; NaN of those that run.
    """

    left: FloatArray
    right: FloatArray
    function: IntArray
    lane: IntArray
    share: FloatArray

    def rows(self, chosen: Array | slice) -> _Drawn:
        """Some of them."""
        return _Drawn._make(column[chosen] for column in self)


class Stream(TypedDict, total=False):
    """What a page draws; numbers are counted in units of `unit` seconds from the left.

    ``functions`` are names and colours; ``function`` has their indices. Rectangles have ``left``,
    ``length``, ``lane``, and ``share`` (per cent of CPU, or -1 of a task that runs). If there would
    be too many, only tasks that run are rectangles. Of the others there is an image of each lane,
    of ``columns`` pixels and ``rows``: ``codes`` (bytes) and how often each is repeated
    (``repeats``, of two bytes), pixel by pixel from below. ``off_cpu`` is the code of tasks off the
    CPU, and its colour.
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
    rows: int
    codes: str
    repeats: str
    off_cpu: tuple[int, str]


def stream_in_view(
    model: LiveModel,
    start: float,
    stop: float,
    columns: int,
    most_rectangles: int = MOST_RECTANGLES,
) -> Stream:
    """What is in view between two times, in so many pixels."""
    drawn, workers, names = _in_view(model, start, stop)
    colors = model.colors()
    stream: Stream = {
        "lanes": [shown(name, _LANE_NAME) for name in workers[:_MOST_LANES]],
        "left_out": max(0, len(workers) - _MOST_LANES),
        "functions": [(shown(name, _NAME), colors[name]) for name in names],
        "unit": (stop - start) / columns / _PARTS_OF_A_PIXEL,
        "tasks": len(drawn.lane),
    }
    most_seen = columns * len(stream["lanes"]) // _PIXELS_OF_A_TASK
    if stream["tasks"] > min(most_rectangles, most_seen):
        runs_now = np.isnan(drawn.share)
        _add_images(stream, drawn.rows(~runs_now), columns, stop - start)
        drawn = drawn.rows(runs_now)
    _add_rectangles(stream, drawn)
    return stream


def dominant_in_view(
    model: LiveModel, start: float, stop: float, columns: int
) -> tuple[list[IntArray], list[tuple[str, str]]]:
    """The function with most time in each pixel of each lane; names and colours of functions."""
    drawn, workers, names = _in_view(model, start, stop)
    lanes = [
        dominant(_shares(own, len(names), columns, stop - start)[0])
        for own in _by_lane(drawn, min(len(workers), _MOST_LANES))
    ]
    colors = model.colors()
    return lanes, [(shown(name, _NAME), colors[name]) for name in names]


def _in_view(model: LiveModel, start: float, stop: float) -> tuple[_Drawn, list[str], list[str]]:
    """The tasks that have a lane; and the names of workers, which these are, and of functions."""
    tasks = model.tasks.between(start, stop)
    workers = sorted(
        {*model.tasks.workers.names, *(task.worker for task in model.running)}, key=worker_order
    )
    lane_of = {name: lane for lane, name in enumerate(workers[:_MOST_LANES])}
    start_times, stop_times, functions, names = _with_running(model, tasks, start, stop)
    lane = _lanes(model, tasks, lane_of, len(start_times))
    share = _share(tasks, len(lane))
    drawn = _Drawn(start_times - start, stop_times - start, functions, lane, share)
    return drawn.rows(lane >= 0), workers, names


def _add_rectangles(stream: Stream, drawn: _Drawn) -> None:
    unit = stream["unit"]
    left = np.round(np.maximum(drawn.left, 0.0) / unit).astype(int)
    right = np.round(drawn.right / unit).astype(int)
    stream["left"], stream["length"] = left.tolist(), np.maximum(right - left, 1).tolist()
    stream["lane"], stream["function"] = drawn.lane.tolist(), drawn.function.tolist()
    stream["share"] = np.nan_to_num(100 * drawn.share, nan=-1).astype(int).tolist()


def _add_images(stream: Stream, drawn: _Drawn, columns: int, length: float) -> None:
    """What is in each pixel, lane by lane; of fewer, wider ones if an answer would be too large."""
    lanes = _by_lane(drawn, len(stream["lanes"]))
    columns = max(1, min(columns, _MOST_CELLS // max(1, len(lanes))))
    while True:
        every = [
            runs(stacked(*_shares(own, len(stream["functions"]), columns, length))) for own in lanes
        ]
        total = sum(len(codes) for codes, _ in every)
        if total <= _MOST_RUNS or columns == 1:
            break
        columns = max(1, int(0.95 * columns * _MOST_RUNS / total))
    stream["columns"], stream["rows"] = columns, ROWS
    stream["codes"] = _as_text([codes.astype(np.uint8) for codes, _ in every])
    stream["repeats"] = _as_text([repeats.astype("<u2") for _, repeats in every])
    stream["off_cpu"] = OFF_CPU, color_of_activity(Activity.NONCPU)


def _by_lane(drawn: _Drawn, lanes: int) -> list[_Drawn]:
    # Of integers of a byte, to sort is to count.
    lane = drawn.lane.astype(np.int8)
    order = np.argsort(lane, kind="stable")
    bounds = np.searchsorted(lane[order], np.arange(lanes + 1))
    ordered = drawn.rows(order)
    return [ordered.rows(slice(int(first), int(last))) for first, last in pairwise(bounds)]


def _shares(
    drawn: _Drawn, functions: int, columns: int, length: float
) -> tuple[FloatArray, FloatArray]:
    pixel = length / columns
    left, right = drawn.left / pixel, drawn.right / pixel
    # A task is not said to be off the CPU unless it was.
    cpu = np.nan_to_num(drawn.share, nan=1.0)
    return shares(left, right, drawn.function, cpu, (functions, columns))


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


def _share(tasks: dict[str, Array], count: int) -> FloatArray:
    """The share of CPU time of each task; NaN of those that run."""
    share = np.full(count, np.nan)
    length = tasks["stop"] - tasks["start"]
    # Where it is not known, as in a saved page: all of it.
    cpu = np.where(np.isnan(tasks["cpu"]), length, tasks["cpu"])
    share[: len(length)] = np.clip(cpu / np.maximum(length, 1e-9), 0.0, 1.0)
    return share


def _as_text(rows: list[Array]) -> str:
    return base64.b64encode(b"".join(row.tobytes() for row in rows)).decode("ascii")
