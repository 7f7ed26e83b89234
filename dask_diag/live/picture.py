"""Picture for a notebook: HTML with an image and without scripts, as saved notebooks show it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from html import escape
from itertools import islice

import numpy as np

from dask_diag.formatting import amount, count
from dask_diag.live.answer import FOLLOWED, MOST_LANES, tasks_in_view
from dask_diag.live.model import LiveModel
from dask_diag.live.texts import (
    duration,
    function_rows,
    preparation_line,
    progress_lines,
    running_title,
    state_line,
)
from dask_diag.views.cell import function_progress, progress_bar
from dask_diag.views.escaping import shown
from dask_diag.views.saved_picture import picture_of_lanes

_WIDTH = 760
_MOST_BYTES = 12_000
_MOST_NAMES, _NAME = 12, 40
_OF_LATE = 10.0
"""Seconds that the rate is a mean of."""


def picture(model: LiveModel) -> str:
    """The present state as HTML of less than 20 kB."""
    parts = "".join(f"<div>{part}</div>" for part in _parts(model) if part)
    return f'<div style="font: 13px/1.5 sans-serif; max-width: {_WIDTH}px">{parts}</div>'


def _parts(model: LiveModel) -> Iterator[str]:
    lines = [escape(shown(line, 120)) for line in progress_lines(model)[:2]]
    yield f"<b>{'<br>'.join(lines)}</b>" if lines else ""
    yield escape(state_line(model))
    yield escape(preparation_line(model))
    yield _times(model)
    if model.share is not None:
        yield progress_bar(model.share, "#3a8a46", 7)
    if model.has_rows:
        yield from _functions(model)
        yield from _stream(model)
    if model.running:
        task = model.running[0]
        took = duration(model.now - task.start)
        yield escape(f"{running_title(model)}: {shown(task.key, 80)} for {took}")


def _times(model: LiveModel) -> str:
    """Start and end by the clock, and tasks per second."""
    if not model.has_rows:
        return ""
    left = [progress.seconds_left(model.now) for progress in model.computations.values()]
    known = [value for value in left if value is not None] if model.is_growing else []
    end = f", ends about {_clock(model, model.now + max(known))}" if known else ""
    if not model.is_growing:
        end = f", ended {_clock(model, model.stop)}"
    return f"started {_clock(model, model.start)}{end} (UTC){_rate(model)}"


def _clock(model: LiveModel, time: float) -> str:
    return datetime.fromtimestamp(model.epoch + time, timezone.utc).strftime("%H:%M:%S")


def _rate(model: LiveModel) -> str:
    """Tasks that ended per second: of late, or of the whole recording that is complete."""
    start = max(model.start, model.now - _OF_LATE) if model.is_growing else model.start
    tasks = model.tasks_between(start, model.now)
    ended = np.count_nonzero(~np.isnan(tasks["share"]) & (tasks["stop"] > start))
    passed = model.now - start
    return f", {amount(ended / passed)} tasks/s" if passed > 0 and ended else ""


def _functions(model: LiveModel) -> Iterator[str]:
    """A line for each function: tasks that are done, and of how many."""
    rows = list(function_rows(model))
    for row in islice(rows, _MOST_NAMES):
        yield function_progress(row.name[:_NAME], row.color, row.done, row.planned, row.share)
    if len(rows) > _MOST_NAMES:
        yield f"and {count(len(rows) - _MOST_NAMES)} more functions"


def _stream(model: LiveModel) -> Iterator[str]:
    """Image of the last minute."""
    stop = max(model.now, model.start + 1.0)
    start = max(model.start, stop - FOLLOWED)
    tasks, workers, functions = tasks_in_view(model, start, stop)
    if not len(tasks):
        return
    lanes = [shown(worker) for worker in workers[:MOST_LANES]]
    colors = [color for _, color in functions]
    length = stop - start
    text = f"Tasks of {len(lanes)} workers, {duration(length)}"
    html, caption = picture_of_lanes(
        tasks,
        lanes,
        colors,
        (),
        length,
        text=text,
        origin=start - model.start,
        most_bytes=_MOST_BYTES,
    )
    yield f"{html}<div>{caption}</div>"
