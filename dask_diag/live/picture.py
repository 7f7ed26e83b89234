"""A picture for a notebook: HTML and an image, which need no script and stay in a saved one."""

from __future__ import annotations

from collections import defaultdict
from html import escape
from itertools import groupby

from dask_diag.columns import IntArray
from dask_diag.live.answer import FOLLOWED
from dask_diag.live.stream import NOTHING, dominant_in_view
from dask_diag.live.texts import (
    duration,
    preparation_line,
    progress_lines,
    running_title,
    state_line,
)
from dask_diag.live.viewer import Viewer
from dask_diag.views.assets import image_tag
from dask_diag.views.escaping import shown

_WIDTH, _LANE, _GAP = 700, 16, 3
_MOST_LANES, _MOST_CELLS, _MOST_NAMES = 8, 600, 12
_NAME = 40


def picture(viewer: Viewer) -> str:
    """The present state as a piece of HTML of less than 20 kB."""
    model, now = viewer.model, viewer.now
    lines = [escape(shown(line, 120)) for line in progress_lines(model, now)[:2]]
    parts = [f"<div><b>{'<br>'.join(lines)}</b></div>" if lines else ""]
    parts.append(f"<div>{escape(state_line(model, shown(viewer.name), now))}</div>")
    if preparation := preparation_line(model):
        parts.append(f"<div>{escape(preparation)}</div>")
    shares = [progress.share for progress in model.progress.running.values() if progress.total]
    if shares:
        parts.append(_bar(shares[0]))
    if model.has_rows:
        parts += _stream_of(viewer)
    if model.running:
        task = model.running[0]
        text = f"{running_title(model)}: {shown(task.key, 80)} for {duration(now - task.start)}"
        parts.append(f"<div>{escape(text)}</div>")
    return f'<div style="font: 13px/1.5 sans-serif; max-width: {_WIDTH}px">{"".join(parts)}</div>'


def _bar(share: float) -> str:
    return (
        '<div style="height: 7px; border: 1px solid #8888; border-radius: 4px; overflow: hidden">'
        f'<div style="height: 100%; width: {100 * share:.1f}%; background: #3a8a46"></div></div>'
    )


def _stream_of(viewer: Viewer) -> list[str]:
    """The tasks of the last minute, and the colours of their functions."""
    model = viewer.model
    stop = max(viewer.now, model.start + 1.0)
    start = max(model.start, stop - FOLLOWED)
    workers = max(1, min(_MOST_LANES, len(model.tasks.workers.names)))
    lanes, functions = dominant_in_view(model, start, stop, _MOST_CELLS // workers)
    lanes = lanes[:_MOST_LANES]
    paths = "".join(
        f'<path d="{data}" fill="{escape(functions[function][1])}"/>'
        for function, data in _paths(lanes).items()
    )
    if not paths:
        return []
    height = len(lanes) * _LANE
    names = "".join(_swatch(*function) for function in functions[:_MOST_NAMES])
    label = f"Tasks of {len(lanes)} workers, {duration(stop - start)}"
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}">{paths}</svg>'
    )
    return [image_tag(svg, label, _WIDTH), f"<div>{names}</div>"]


def _swatch(name: str, color: str) -> str:
    look = f"display: inline-block; width: 10px; height: 10px; background: {escape(color)}"
    return (
        f'<span style="white-space: nowrap; margin-right: 12px"><span style="{look}"></span> '
        f"{escape(name[:_NAME])}</span>"
    )


def _paths(lanes: list[IntArray]) -> dict[int, str]:
    """For each function the rectangles of where it had most of a worker's time."""
    paths: defaultdict[int, list[str]] = defaultdict(list)
    for lane, functions in enumerate(lanes):
        scale, column = _WIDTH / len(functions), 0
        for function, run in groupby(functions.tolist()):
            length = len(list(run))
            if function != NOTHING:
                width = length * scale
                paths[function].append(
                    f"M{column * scale:.0f} {lane * _LANE}h{width:.0f}v{_LANE - _GAP}h-{width:.0f}z"
                )
            column += length
    return {function: "".join(parts) for function, parts in paths.items()}
