"""Answers to a page: numbers of the present state, and drawings of the interval in view.

Numbers change with each poll. Drawings cost a page many times as much, so it asks for drawings more
seldom.
"""

from __future__ import annotations

from math import isnan

import numpy as np

from dask_diag.columns import FloatArray
from dask_diag.formatting import percent, seconds, size
from dask_diag.live.background import FindingsSoFar
from dask_diag.live.model import LiveModel
from dask_diag.live.stream import stream_in_view
from dask_diag.live.texts import (
    duration,
    function_rows,
    long_running_line,
    preparation_line,
    progress_lines,
    running_title,
    state_parts,
)
from dask_diag.model.codes import PROFILING, Activity
from dask_diag.views.colors import color_of_activity
from dask_diag.views.escaping import shown
from dask_diag.views.findings import lost

FOLLOWED = 60.0
"""Seconds in view by default."""
_MOST_FUNCTIONS, _MOST_RUNNING, _MOST_FINDINGS, _MOST_NOTICES = 40, 12, 8, 8
_MOST_POINTS, _POINTS_OF_OVERVIEW = 400, 300
_LONGEST = 300
_RUNNING_COLOR = "#3fa7d6"


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
    functions = [tuple(row[:-1]) for row in function_rows(model)]
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
                lost(finding),
                shown(finding.evidence, _LONGEST),
                shown(finding.advice, _LONGEST),
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
    cpu, others = model.resources["cpu"], model.resources["cpu_others"]
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


def _workers(model: LiveModel) -> list[tuple[str, str, float, str]]:
    """Parts of the workers' time: name, seconds, share and colour."""
    time = model.worker_time()
    total = sum(time)
    parts = (
        ("CPU in tasks", time.cpu, color_of_activity(Activity.CPU)),
        ("waiting in tasks", time.waiting, color_of_activity(Activity.CPU_WAIT)),
        ("tasks that run", time.running, _RUNNING_COLOR),
        ("no task", time.no_task, color_of_activity(Activity.OVERHEAD)),
    )
    return [
        (f"{name} {percent(value / total)}", seconds(value), value / total, color)
        for name, value, color in parts
        if total and value / total >= 5e-4
    ]
