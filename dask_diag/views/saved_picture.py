"""Picture of tasks without scripts: SVG of a bounded size, which a saved notebook keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from math import ceil, floor, log10
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.functions import by_function, positions_among
from dask_diag.analysis.intervals import Intervals, sums_of_rectangles
from dask_diag.columns import IntArray, ratio
from dask_diag.formatting import counted, seconds
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.cell import image_tag, in_a_row, swatch
from dask_diag.views.colors import OTHER, STRIPED, FunctionColors
from dask_diag.views.escaping import shown
from dask_diag.views.lanes import TasksInLanes, end_of_name, tasks_in_lanes

MOST_BYTES = 44_000
"""Bytes of the SVG, which takes a third more in base64."""
_BINS = 400
_MOST_LANES = 16
_WIDTH, _LEFT, _RIGHT, _TOP = 760, 92, 30, 10
_ALL_LANES, _LOWEST, _HIGHEST, _GAP = 112, 14, 36, 3
"""Pixels: all lanes if possible, the least and the most from one lane to the next, and the gap."""
_STEP = 0.5
"""Pixels of which heights are multiples, so that they take few digits."""
_AXIS = 18
_LABEL, _NAME = 13, 26
_STYLE = (
    "<style>text{font:12px sans-serif;fill:#7c7c7c}.lane{fill:#8883}.tick{stroke:#8888}</style>"
)
"""Gray letters on no background are read in a light and in a dark notebook."""


class SavedPicture(NamedTuple):
    """A picture, and its contents in words.

    Attributes
    ----------
    html : str
        The image, and below it the colors and their names.
    text : str
        One line with names of the user: not HTML.
    caption : str
        Sentences on how to read the picture.
    """

    html: str
    text: str
    caption: str


class _Lanes(NamedTuple):
    """Steps below and on top of each lane, function and bin, on the CPU and above that off it.

    `together` is the number of workers in a lane, `is_shared` whether a worker ran several tasks
    at once.
    """

    levels: IntArray
    names: list[str]
    together: int
    is_shared: bool

    @property
    def pitch(self) -> int:
        """Pixels from one lane to the next."""
        return _pitch(len(self.names))


def _pitch(lanes: int) -> int:
    return min(max(_ALL_LANES // lanes, _LOWEST), _HIGHEST)


def saved_picture(
    recording: Recording, colors_of: Callable[[Iterable[str]], FunctionColors] = FunctionColors
) -> SavedPicture | None:
    """Draw when workers ran tasks of each function; None if no task is known to have started.

    A lane is a worker, or several of many workers. In each interval of time the colored height is
    the share in which tasks ran, striped where they were off the CPU. The SVG has at most
    `MOST_BYTES`, however many tasks there are: if much is different, intervals are longer.
    """
    tasks = tasks_in_lanes(recording, recording.start)
    if not len(tasks.table):
        return None
    table = by_function(recording)
    totals = dict(table.tuples("function", "wall"))
    colors = colors_of(totals)
    duration = recording.stop - recording.start or 1.0
    color_of = {name: colors[name] for name in totals if name in colors}
    layer = positions_among(list(color_of), tasks.table["function"])
    text = _in_words(tasks, totals, duration)
    html, caption = picture_of_lanes(
        tasks.table.replacing({"function": layer}),
        tasks.workers,
        [*color_of.values(), OTHER],
        _legend(totals, color_of),
        duration,
        text=text,
    )
    return SavedPicture(html, text, caption)


def timeline_html(recording: Recording) -> str:
    """The picture with its caption; nothing if no task is known to have started."""
    picture = saved_picture(recording)
    return "" if picture is None else f"<p>{picture.caption}</p>{picture.html}"


def picture_of_lanes(
    tasks: Table,
    workers: Sequence[str],
    colors: Sequence[str],
    legend: Sequence[tuple[str, str]],
    duration: float,
    *,
    text: str,
    origin: float = 0.0,
    most_bytes: int = MOST_BYTES,
) -> tuple[str, str]:
    """HTML of a picture with a legend, whose SVG has at most so many bytes, and its caption.

    Parameters
    ----------
    tasks : Table
        ``lane`` is one of the workers, ``function`` one of the colors; ``start`` and ``stop`` are
        seconds, from 0 to the duration; ``cpu`` are seconds, or NaN, which counts as all.
    workers, colors : sequence of str
    legend : sequence of (str, str)
        Colors and their names.
    duration : float
    text : str
        Text in place of the image.
    origin : float, optional
        The time that the axis names at its start.
    most_bytes : int, optional
    """
    bins = _BINS
    while True:
        lanes = _lanes(tasks, workers, len(colors), duration, bins)
        svg = "".join(_drawn(lanes, colors, duration, origin))
        too_large = len(svg.encode()) / most_bytes
        if too_large <= 1 or bins == 1:
            names = in_a_row(
                swatch(f"background-color: {color}") + escape(name) for color, name in legend
            )
            return f"{image_tag(svg, text, _WIDTH)}{names}", _caption(lanes)
        bins = max(1, int(bins * min(0.95, 0.95 / too_large)))


def _in_words(tasks: TasksInLanes, totals: Mapping[str, float], duration: float) -> str:
    most = [f"{shown(name, _NAME)} {seconds(total)}" for name, total in totals.items()]
    return (
        f"Timeline of {seconds(duration)}: {counted(len(tasks.table), 'task')} on "
        f"{counted(len(tasks.workers), 'worker')}; most time in {', '.join(most[:3])}"
    )


def _caption(lanes: _Lanes) -> str:
    workers = "each worker" if lanes.together == 1 else f"every {lanes.together} workers"
    caption = (
        f"The picture has a lane for {workers}: color says which function ran, height for what "
        "share of the time."
    )
    if np.diff(lanes.levels, axis=1)[:, 1::2].any():
        caption += f" Striped: {STRIPED.name}."
    return f"{caption} Tasks that a worker ran at once share it." if lanes.is_shared else caption


def _legend(totals: Mapping[str, float], color_of: Mapping[str, str]) -> list[tuple[str, str]]:
    """Colors, and functions with the seconds of their tasks."""
    items = [
        (color, f"{shown(name, _NAME)} {seconds(totals[name])}") for name, color in color_of.items()
    ]
    others = [total for name, total in totals.items() if name not in color_of]
    if others:
        text = f"{counted(len(others), 'other function')} {seconds(float(np.nansum(others)))}"
        items.append((OTHER, text))
    return items


def _lanes(tasks: Table, workers: Sequence[str], layers: int, duration: float, bins: int) -> _Lanes:
    together = ceil(len(workers) / _MOST_LANES)
    members = [workers[n : n + together] for n in range(0, len(workers), together)]
    lasted = tasks["stop"] - tasks["start"]
    cpu = ratio(tasks["cpu"], lasted, 1.0)
    cpu = np.nan_to_num(cpu, nan=1.0).clip(0.0, 1.0)
    areas = [
        sums_of_rectangles(
            Intervals(tasks["start"], tasks["stop"]),
            heights,
            tasks["lane"] // together * layers + tasks["function"],
            count=len(members) * layers,
            edges=np.linspace(0.0, duration, bins + 1),
        ).reshape(len(members), layers, bins)
        for heights in (cpu, 1.0 - cpu)
    ]
    capacity = np.array([len(names) for names in members]) * duration / bins
    both = np.stack(areas, axis=2).reshape(len(members), 2 * layers, bins)
    shares = both / capacity[:, np.newaxis, np.newaxis]
    # A worker that ran several tasks at once has one height for all.
    most = shares.sum(axis=1).max(axis=1).clip(min=1.0)
    tops = np.cumsum(shares / most[:, np.newaxis, np.newaxis], axis=1)
    tops = np.pad(tops, ((0, 0), (1, 0), (0, 0))) * (_pitch(len(members)) - _GAP)
    levels = np.round(tops / _STEP).astype(np.int64)
    return _Lanes(levels, [_label(names) for names in members], together, bool((most > 1.01).any()))


def _label(workers: Sequence[str]) -> str:
    """Number of the workers of a lane, or the end of one worker's name."""
    if len(workers) > 1:
        return counted(len(workers), "worker")
    return end_of_name(workers[0], _LABEL)


def _drawn(lanes: _Lanes, colors: Sequence[str], duration: float, origin: float) -> Iterator[str]:
    count, _, bins = lanes.levels.shape
    bottom = _TOP + count * lanes.pitch
    inside = _WIDTH - _LEFT - _RIGHT
    height = bottom + _AXIS
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}">{_STYLE}'
    )
    for lane, name in enumerate(lanes.names):
        top, full = _TOP + lane * lanes.pitch, lanes.pitch - _GAP
        yield f'<rect class="lane" x="{_LEFT}" y="{top}" width="{inside}" height="{full}"/>'
        yield _text(_LEFT - 6, top + full / 2 + 4, name, "end")
    yield from _axis(origin, duration, bottom, inside)
    x_unit = round(inside / bins, 6)
    yield (
        '<pattern id="off" width="4" height="4" patternUnits="userSpaceOnUse" '
        f'patternTransform="scale({round(1 / x_unit, 4)} {1 / _STEP}) rotate(-45)">'
        f'<rect width="4" height="1.5" fill="{STRIPED.color}"/></pattern>'
    )
    # In units of bins and steps numbers are short.
    yield (
        f'<g shape-rendering="crispEdges" transform="translate({_LEFT} {_TOP}) '
        f'scale({x_unit} {_STEP})">'
    )
    for layer, color in enumerate(colors):
        below, middle, above = np.moveaxis(lanes.levels[:, 2 * layer : 2 * layer + 3], 1, 0)
        for fill, low in ((color, below), ("url(#off)", middle)):
            path = "".join(_rectangles(low, above, lanes.pitch))
            if path:
                yield f'<path fill="{fill}" d="{path}"/>'
    yield "</g></svg>"


def _rectangles(lows: IntArray, highs: IntArray, pitch: int) -> Iterator[str]:
    """Rectangles of a function, from lower to upper levels of each lane.

    Each rectangle but the first starts from the left and lower corner of the rectangle before:
    large coordinates would take more digits.
    """
    x = y = 0
    for lane, (below, above) in enumerate(zip(lows, highs, strict=True)):
        base, left = int((lane * pitch + pitch - _GAP) / _STEP), 0
        for (low, high), run in groupby(zip(below.tolist(), above.tolist(), strict=True)):
            width = len(list(run))
            if high > low:
                yield f"m{left - x} {base - high - y}h{width}v{high - low}h-{width}"
                x, y = left, base - low
            left += width


def _axis(origin: float, duration: float, bottom: int, inside: int) -> Iterator[str]:
    step = 10.0 ** floor(log10(duration / 2))
    step = next(factor * step for factor in (1, 2, 5, 10) if duration <= 6 * factor * step)
    last = floor((origin + duration) / step * (1 + 1e-9))
    for number in range(ceil(origin / step), last + 1):
        x = _LEFT + inside * (number * step - origin) / duration
        yield f'<path class="tick" d="M{round(x, 1)} {_TOP}V{bottom + 2}"/>'
        yield _text(x, bottom + 13, seconds(number * step), "middle")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{round(x, 2)}" y="{round(y, 2)}" text-anchor="{anchor}">{escape(text)}</text>'
