"""Picture for a notebook: HTML with an image and without scripts, as saved notebooks show it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from html import escape
from itertools import groupby

from dask_diag.live.answer import FOLLOWED
from dask_diag.live.model import LiveModel
from dask_diag.live.stream import NOTHING, dominant, shares, tasks_in_view
from dask_diag.live.texts import (
    duration,
    preparation_line,
    progress_lines,
    running_title,
    state_line,
)
from dask_diag.views.assets import image_tag
from dask_diag.views.escaping import shown

_WIDTH, _LANE, _GAP = 700, 16, 3
_MOST_LANES, _MOST_PIXELS, _MOST_NAMES = 8, 600, 12
_NAME = 40


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
    """Image of the last minute: the function with most time in each pixel; names of functions."""
    stop = max(model.now, model.start + 1.0)
    start = max(model.start, stop - FOLLOWED)
    tasks, workers, functions = tasks_in_view(model, start, stop)
    lanes = min(_MOST_LANES, len(workers))
    columns = _MOST_PIXELS // max(1, lanes)
    paths: defaultdict[int, str] = defaultdict(str)
    for lane, own in enumerate(tasks.by_lane(lanes)):
        busy, _ = shares(own, len(functions), columns, stop - start)
        scale, column = _WIDTH / columns, 0
        for function, run in groupby(dominant(busy).tolist()):
            length = len(list(run))
            if function != NOTHING:
                width = length * scale
                paths[function] += (
                    f"M{column * scale:.0f} {lane * _LANE}h{width:.0f}v{_LANE - _GAP}h-{width:.0f}z"
                )
            column += length
    if not paths:
        return
    drawn = "".join(
        f'<path d="{data}" fill="{escape(functions[function][1])}"/>'
        for function, data in paths.items()
    )
    height = lanes * _LANE
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}">{drawn}</svg>'
    )
    yield image_tag(svg, f"Tasks of {lanes} workers, {duration(stop - start)}", _WIDTH)
    yield "".join(
        '<span style="white-space: nowrap; margin-right: 12px"><span style="display: inline-block; '
        f'width: 10px; height: 10px; background: {escape(color)}"></span> '
        f"{escape(name[:_NAME])}</span>"
        for name, color in functions[:_MOST_NAMES]
    )
