"""Picture for a notebook: HTML with an image and without scripts, as saved notebooks show it."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from dask_diag.live.answer import FOLLOWED, MOST_LANES, tasks_in_view
from dask_diag.live.model import LiveModel
from dask_diag.live.texts import (
    duration,
    preparation_line,
    progress_lines,
    running_title,
    state_line,
)
from dask_diag.views.escaping import shown
from dask_diag.views.saved_picture import picture_of_lanes

_WIDTH = 760
_MOST_BYTES = 12_000
_MOST_NAMES, _NAME = 12, 40


def picture(model: LiveModel) -> str:
    """The present state as HTML of less than 20 kB."""
    parts = "".join(f"<div>{part}</div>" for part in _parts(model) if part)
    return f'<div style="font: 13px/1.5 sans-serif; max-width: {_WIDTH}px">{parts}</div>'


def _parts(model: LiveModel) -> Iterator[str]:
    lines = [escape(shown(line, 120)) for line in progress_lines(model)[:2]]
    yield f"<b>{'<br>'.join(lines)}</b>" if lines else ""
    yield escape(state_line(model))
    yield escape(preparation_line(model))
    if model.share is not None:
        yield (
            '<div style="height: 7px; border: 1px solid #8888; border-radius: 4px; '
            f'overflow: hidden"><div style="height: 100%; width: {100 * model.share:.1f}%; '
            'background: #3a8a46"></div></div>'
        )
    if model.has_rows:
        yield from _stream(model)
    if model.running:
        task = model.running[0]
        took = duration(model.now - task.start)
        yield escape(f"{running_title(model)}: {shown(task.key, 80)} for {took}")


def _stream(model: LiveModel) -> Iterator[str]:
    """Image of the last minute."""
    stop = max(model.now, model.start + 1.0)
    start = max(model.start, stop - FOLLOWED)
    tasks, workers, functions = tasks_in_view(model, start, stop)
    if not len(tasks):
        return
    legend = [(color, name[:_NAME]) for name, color in functions[:_MOST_NAMES]]
    lanes = [shown(worker) for worker in workers[:MOST_LANES]]
    colors = [color for _, color in functions]
    length = stop - start
    text = f"Tasks of {len(lanes)} workers, {duration(length)}"
    yield picture_of_lanes(tasks, lanes, colors, legend, length, text=text, most_bytes=_MOST_BYTES)[
        0
    ]
