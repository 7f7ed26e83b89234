"""What a page gets when it asks: the present state, and what is in view.

Numbers change with each poll; what is drawn of what is in view costs a page many times as much, so
it asks for that more seldom.
"""

from __future__ import annotations

from math import isnan
from typing import TypedDict

import numpy as np
import tornado.web

from dask_diag.columns import FloatArray
from dask_diag.formatting import count, percent, seconds, size
from dask_diag.live.background import FindingsSoFar
from dask_diag.live.model import LiveModel
from dask_diag.live.stream import Stream, stream_in_view
from dask_diag.live.texts import (
    duration,
    long_running_line,
    preparation_line,
    progress_lines,
    running_title,
    state_parts,
)
from dask_diag.live.viewer import Viewer
from dask_diag.model.codes import PROFILING, Activity
from dask_diag.views.colors import color_of_activity
from dask_diag.views.escaping import shown
from dask_diag.views.findings import lost


class QuickCompression(tornado.web.GZipContentEncoding):
    """A page gets an answer every second: some more bytes of it take less CPU."""

    GZIP_LEVEL = 1


FOLLOWED = 60.0
"""Seconds that are in view if nothing else is asked for."""
_MOST_FUNCTIONS, _MOST_RUNNING, _MOST_FINDINGS, _MOST_NOTICES = 40, 12, 8, 8
_MOST_POINTS, _POINTS_OF_OVERVIEW = 400, 300
_LONGEST = 300
_RUNNING_COLOR = "#3fa7d6"


class Answer(TypedDict):
    """What a page says of the present state."""

    revision: int
    recording: int
    kind: str
    over: bool
    word: str
    state: str
    lines: list[str]
    preparation: str
    long_running: str
    share: float | None
    memory: str
    workers: list[tuple[str, str, float, str]]
    functions: list[tuple[str, str, str, str, str, str]]
    functions_left_out: int
    running: list[tuple[str, str, str]]
    running_title: str
    running_left_out: int
    findings: list[tuple[str, str, str, str]]
    findings_note: str
    notices: list[str]


class Pictures(TypedDict):
    """What a page draws, times in seconds since the recording started."""

    now: float
    view: tuple[float, float]
    stream: Stream
    resources: dict[str, list[float | None]]
    overview: dict[str, list[float | None]]
    limits: dict[str, float]


def pictures(viewer: Viewer, view: tuple[float, float] | None, columns: int) -> Pictures:
    """What is in view.

    Parameters
    ----------
    viewer : Viewer
    view : (float, float) or None
        Seconds since the recording started; None for the last ones.
    columns : int
        Pixels.
    """
    model, now = viewer.model, max(viewer.now - viewer.model.start, 0.0)
    start, stop = _clipped(view, now)
    return {
        "now": now,
        "view": (start, stop),
        "stream": stream_in_view(model, model.start + start, model.start + stop, columns),
        "resources": _resources(model, start, stop, _MOST_POINTS),
        "overview": _resources(model, 0.0, now, _POINTS_OF_OVERVIEW),
        "limits": {"cpu": 100.0 * model.machine.cpus, "memory": model.machine.memory},
    }


def answer(viewer: Viewer, findings: FindingsSoFar, revision: int) -> Answer:
    """The state of a viewer.

    Parameters
    ----------
    viewer : Viewer
    findings : FindingsSoFar
    revision : int
        What the page gives back when it asks for what is new.
    """
    model = viewer.model
    functions = _functions(model)
    word, state = state_parts(model, shown(viewer.name), viewer.now)
    shares = [progress.share for progress in model.progress.running.values() if progress.total]
    return {
        "revision": revision,
        "recording": model.generation,
        "kind": model.state,
        "over": viewer.is_over,
        "word": word,
        "state": state,
        "lines": progress_lines(model, viewer.now)[:4] or [shown(viewer.name)],
        "preparation": preparation_line(model),
        "long_running": long_running_line(model, viewer.now),
        "share": shares[0] if shares else None,
        "memory": _memory(model),
        "workers": _workers(model),
        "functions": functions[:_MOST_FUNCTIONS],
        "functions_left_out": max(0, len(functions) - _MOST_FUNCTIONS),
        "running": [
            (shown(task.key, 120), shown(task.worker), duration(viewer.now - task.start))
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
        "findings_note": shown(findings.note(viewer), _LONGEST),
        "notices": [shown(text, _LONGEST) for text in _notices(model)[:_MOST_NOTICES]],
    }


def _notices(model: LiveModel) -> list[str]:
    """Those that are needed to read the numbers: none about the profilers themselves."""
    return [text for text in model.notices if not text.startswith(PROFILING)]


def _clipped(view: tuple[float, float] | None, now: float) -> tuple[float, float]:
    """An interval of some length within the recording."""
    longest = max(now, 1.0)
    if view is None:
        return max(0.0, longest - FOLLOWED), longest
    start = min(max(view[0], 0.0), longest)
    stop = min(max(view[1], 0.0), longest)
    return (start, stop) if stop - start >= 1e-6 else (max(0.0, stop - 1e-6), max(stop, 1e-6))


def _resources(
    model: LiveModel, start: float, stop: float, most: int
) -> dict[str, list[float | None]]:
    """Samples in view, and one on each side; of many, the largest of several."""
    time = model.resources("time") - model.start
    first, last = np.searchsorted(time, [start, stop])
    rows = slice(max(0, int(first) - 1), int(last) + 1)
    memory = model.resources("memory") + model.resources("memory_children")
    columns = {
        "time": time,
        "cpu": model.resources("cpu"),
        "others": model.resources("cpu_others"),
        "memory": memory,
    }
    return {name: _thinned(values[rows], most, name) for name, values in columns.items()}


def _thinned(values: FloatArray, most: int, name: str) -> list[float | None]:
    per_point = -(-len(values) // most)
    if per_point > 1:
        values = np.fmax.reduceat(values, np.arange(0, len(values), per_point))
    # Digits that no pixel shows.
    digits = {"time": 3, "memory": -3}.get(name, 1)
    rounded: list[float] = np.round(values, digits).tolist()
    if not np.isnan(values).any():
        return [*rounded]
    # JSON has no word for what is not known but null.
    return [None if isnan(value) else value for value in rounded]


def _memory(model: LiveModel) -> str:
    memory = model.resources("memory") + model.resources("memory_children")
    if not len(memory):
        return ""
    limit = f" of {size(model.machine.memory)}" if model.machine.memory else ""
    cached = f", cached results {size(model.cached_bytes)}" if model.cached_bytes else ""
    return f"{size(float(memory[-1]))}{limit}, peak {size(float(memory.max()))}{cached}"


def _workers(model: LiveModel) -> list[tuple[str, str, float, str]]:
    """The parts of the workers' time: name, seconds, share and colour."""
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


def _functions(model: LiveModel) -> list[tuple[str, str, str, str, str, str]]:
    """Name, colour, done, planned, seconds and CPU of each function, the longest first."""
    planned = model.progress.planned_by_function()
    sums = model.functions
    colors = model.colors()
    rows = []
    for name in model.functions_by_time():
        took = sums[name].seconds if name in sums else 0.0
        rows.append(
            (
                shown(name),
                colors[name],
                count(sums[name].tasks if name in sums else 0),
                count(planned[name]) if name in planned else "",
                seconds(took) if name in sums else "",
                percent(sums[name].cpu / took) if took else "",
            )
        )
    return rows
