"""Answers to a page: numbers of the present state, and drawings of the interval in view.

Numbers change with each poll. Drawings cost a page many times as much, so it asks for drawings more
seldom.
"""

from __future__ import annotations

from itertools import pairwise
from math import isnan

import numpy as np

from dask_diag.analysis.groups import worker_order
from dask_diag.analysis.intervals import Intervals, sums_of_rectangles
from dask_diag.columns import Array, FloatArray, ratio
from dask_diag.formatting import percent, seconds, size
from dask_diag.live.background import FindingsSoFar
from dask_diag.live.model import LiveModel
from dask_diag.live.texts import (
    duration,
    function_rows,
    line_rows,
    long_running_line,
    preparation_line,
    progress_lines,
    running_title,
    state_parts,
)
from dask_diag.model.codes import PROFILING, Activity
from dask_diag.model.table import Table
from dask_diag.views.colors import NO_TASK, RUNNING, look_of
from dask_diag.views.escaping import shown
from dask_diag.views.findings import fix, saving
from dask_diag.views.plots.figures import Packed
from dask_diag.views.plots.tasks import packed_tasks

FOLLOWED = 60.0
"""Seconds in view by default."""
_MOST_FUNCTIONS, _MOST_RUNNING, _MOST_FINDINGS, _MOST_NOTICES = 40, 12, 8, 8
_MOST_LINES = 5
_MOST_POINTS, _POINTS_OF_OVERVIEW = 400, 300
_LONGEST = 300


def pictures(model: LiveModel, view: tuple[float, float] | None, columns: int) -> dict[str, object]:
    """Drawings, with times in seconds since the recording started.

    Parameters
    ----------
    model : LiveModel
    view : (float, float) or None
        Seconds since the recording started; None for the last minute.
    columns : int
        Pixels.
    """
    now = max(model.now - model.start, 0.0)
    start, stop = _clipped(view, max(now, 1.0))
    return {
        "now": now,
        "view": (start, stop),
        "stream": stream_in_view(model, model.start + start, model.start + stop, columns),
        "resources": _resources(model, start, stop, _MOST_POINTS),
        "overview": _resources(model, 0.0, now, _POINTS_OF_OVERVIEW),
        "limits": {"cpu": 100.0 * model.machine.cpus, "memory": model.machine.memory},
    }


def answer(model: LiveModel, findings: FindingsSoFar, revision: int) -> dict[str, object]:
    """Numbers and texts of the present state.

    Parameters
    ----------
    model : LiveModel
    findings : FindingsSoFar
    revision : int
        Number that the page returns when it asks for news.
    """
    functions = [tuple(row[:-2]) for row in function_rows(model)]
    word, state = state_parts(model)
    # Notices about the profilers change no number.
    notices = [text for text in model.notices if not text.startswith(PROFILING)]
    return {
        "revision": revision,
        "recording": model.generation,
        "kind": model.state,
        "over": model.is_over,
        "word": word,
        "state": state,
        "lines": progress_lines(model)[:4] or [shown(model.name)],
        "preparation": preparation_line(model),
        "long_running": long_running_line(model),
        "share": model.share,
        "memory": _memory(model),
        "workers": _workers(model),
        "built": list(line_rows(model, _MOST_LINES)),
        "functions": functions[:_MOST_FUNCTIONS],
        "functions_left_out": max(0, len(functions) - _MOST_FUNCTIONS),
        "running": [
            (shown(task.key, 120), shown(task.worker), duration(model.now - task.start))
            for task in model.running[:_MOST_RUNNING]
        ],
        "running_title": running_title(model).capitalize(),
        "running_left_out": max(0, len(model.running) - _MOST_RUNNING),
        "findings": [
            (
                finding.code,
                saving(finding),
                shown(finding.evidence, _LONGEST),
                shown(fix(finding.advice), _LONGEST),
            )
            for finding in findings.findings[:_MOST_FINDINGS]
        ],
        "findings_note": shown(findings.note(model), _LONGEST),
        "notices": [shown(text, _LONGEST) for text in notices[:_MOST_NOTICES]],
    }


def _clipped(view: tuple[float, float] | None, longest: float) -> tuple[float, float]:
    """Clip an interval to the recording; the result has some length."""
    if view is None:
        return max(0.0, longest - FOLLOWED), longest
    start, stop = np.clip(view, 0.0, longest).tolist()
    return (start, stop) if stop - start >= 1e-6 else (max(0.0, stop - 1e-6), max(stop, 1e-6))


def _resources(
    model: LiveModel, start: float, stop: float, most: int
) -> dict[str, list[float | None]]:
    """Samples in view and one on each side; the maximum of several, if they are too many."""
    time = model.resources["time"] - model.start
    first, last = np.searchsorted(time, [start, stop]).tolist()
    rows = slice(max(0, first - 1), last + 1)
    cpu, others = model.resources["cpu"], model.resources["cpu_other_processes"]
    # Digits below these are not seen in a pixel.
    columns = (
        ("time", time, 3),
        ("cpu", cpu, 1),
        ("others", others, 1),
        ("memory", model.memory, -3),
    )
    return {name: _thinned(values[rows], most, digits) for name, values, digits in columns}


def _thinned(values: FloatArray, most: int, digits: int) -> list[float | None]:
    per_point = -(-len(values) // most)
    if per_point > 1:
        values = np.fmax.reduceat(values, np.arange(0, len(values), per_point))
    # JSON has no NaN.
    return [None if isnan(value) else value for value in np.round(values, digits).tolist()]


def _memory(model: LiveModel) -> str:
    memory = model.memory
    if not len(memory):
        return ""
    limit = f" of {size(model.machine.memory)}" if model.machine.memory else ""
    cached = f", cached results {size(model.cached_bytes)}" if model.cached_bytes else ""
    return f"{size(float(memory[-1]))}{limit}, peak {size(float(memory.max()))}{cached}"


def _workers(model: LiveModel) -> list[tuple[str, str, float, str, str]]:
    """Parts of the workers' time: name, seconds, share, color and style."""
    time = model.worker_time()
    total = sum(time)
    looks = (look_of(Activity.CPU), look_of(Activity.NONCPU), RUNNING, NO_TASK)
    return [
        (
            f"{look.name} {percent(value / total)}",
            seconds(value),
            value / total,
            look.color,
            look.style,
        )
        for look, value in zip(looks, time, strict=True)
        if total and value / total >= 5e-4
    ]


# Tasks in an interval of time, as a report has them: if they are many, one for each pixel.

MOST_RECTANGLES = 1000
"""A browser draws more rectangles and stripes slower than images."""
_PIXELS_OF_A_TASK = 4
"""Mean width, in a lane, below which stripes show nothing."""
MOST_LANES = 40
_MOST_PIXELS = 24_000
_MOST_PARTS = 22_000
"""Functions of all pixels, for an answer of 50 kB at most."""
_MOST_DRAWN = 250
_TICK = 1e-6
PARTS_OF_A_PIXEL = 32
_NAME, _LANE_NAME = 60, 14


def tasks_in_view(
    model: LiveModel, start: float, stop: float
) -> tuple[Table, list[str], list[tuple[str, str]]]:
    """Tasks that have a lane, names of all workers, and names and colors of the functions.

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
    code[present] = np.minimum(np.arange(len(present)), _MOST_DRAWN)
    every, colors = list(model.function_codes), model.colors()
    drawn = [every[position] for position in present[:_MOST_DRAWN].tolist()]
    if len(present) > _MOST_DRAWN:
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
    return table.filter(order), workers, [(shown(n, _NAME), colors[n]) for n in drawn]


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
    share = ratio(tasks["cpu"], lasted, 1.0)
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
    ``functions`` are names and colors. Tasks that ``ended`` and tasks that are ``running`` are
    packed as in a report, with ticks of ``tick`` seconds from the start of the interval. Above
    `most_rectangles` a task that ended stands for all tasks of a function in one of ``columns``
    pixels, which otherwise are 0.
    """
    tasks, workers, functions = tasks_in_view(model, start, stop)
    lanes = [shown(name, _LANE_NAME) for name in workers[:MOST_LANES]]
    is_running = np.isnan(tasks["cpu"])
    ended, pixels, tick = tasks.filter(~is_running), 0, _TICK
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
        "running": _packed(tasks.filter(is_running), len(lanes), tick),
    }


def _by_pixel(
    tasks: Table, lanes: int, functions: int, columns: int, length: float
) -> tuple[Table, int]:
    """A task for each function in each pixel of a lane, with the time of all its tasks there.

    Also the number of pixels: wider ones are fewer if the answer would be too large.
    """
    columns = max(1, min(columns, _MOST_PIXELS // max(1, lanes)))
    bounds = np.searchsorted(tasks["lane"], np.arange(lanes + 1)).tolist()
    of_lanes = [tasks.filter(slice(first, last)) for first, last in pairwise(bounds)]
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
