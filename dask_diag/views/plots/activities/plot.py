"""The pictures of activities: where worker time went by function, activity and worker."""

from __future__ import annotations

import html
from dataclasses import replace
from typing import Any

from bokeh.layouts import column, row
from bokeh.models import Div

from dask_diag.model.recording import Recording
from dask_diag.views.assets import text_of
from dask_diag.views.plots.activities.bars import (
    MOST_BARS,
    UNUSED_WORKERS,
    Numbers,
    bars_by,
    bars_of_cpu,
    numbers_of,
)
from dask_diag.views.plots.activities.controls import Choice
from dask_diag.views.plots.activities.figures import AMOUNTS_AND_SHARES, Artist, Picture
from dask_diag.views.plots.figures import Options, label
from dask_diag.views.theme.colors import color_of_activity

__all__ = ["plot_activities"]

_WIDTH = 1000
_NARROWEST = 800
_NOTHING = "<i>nothing was measured</i>"
_HEADING = "Where worker time went"


def plot_activities(recording: Recording, options: Options) -> Any:
    """Draw where worker time went, with a choice of functions and of the unit."""
    measured = numbers_of(recording)
    numbers = _as_shown(measured, options)
    colors = [color_of_activity(name, options.palette) for name, _ in measured.activities]
    width = max(int(options.figure.get("width") or _WIDTH), _NARROWEST)
    choice = Choice(numbers, width)
    pictures = _pictures(numbers, Artist(numbers, colors, choice), width)
    heading = Div(text=_HEADING, styles={"font-size": "15px", "font-weight": "bold"})
    items = [
        _legend_item(name, color)
        for (name, _), color in zip(numbers.activities, colors, strict=True)
    ]
    there = sorted(set(pictures["by_activity"].pieces.data["activity"]))
    text = "".join(items[place] for place in there) or _NOTHING
    legend = Div(text=text, width=width - 10, disable_math=True)
    choice.when_changed(
        text_of("plots/activities/activities.js"),
        {
            "numbers": {**vars(numbers), "most_bars": MOST_BARS},
            "pictures": {name: picture.in_the_page() for name, picture in pictures.items()},
            "heading": heading,
            "heading_of_all": _HEADING,
            "legend": legend,
            "legend_items": items,
            "nothing": _NOTHING,
            "unused_workers": UNUSED_WORKERS,
        },
    )
    by_function, of_cpu, by_activity, by_worker = (picture.figure for picture in pictures.values())
    return column(
        heading,
        *choice.layout,
        legend,
        row(by_function, of_cpu, spacing=0),
        row(by_activity, by_worker, spacing=0),
    )


def _pictures(numbers: Numbers, artist: Artist, width: int) -> dict[str, Picture]:
    by_function, by_activity, by_worker = (
        bars_by(numbers, by) for by in ("function", "activity", "worker")
    )
    left, half = int(0.7 * width), width // 2
    return {
        "by_function": artist.stacked(by_function, 0.15, title="Tasks by function", width=left),
        "of_cpu": artist.shares_of_cpu(bars_of_cpu(numbers, by_function.rows), width - left),
        "by_activity": artist.stacked(
            by_activity, 0.55, AMOUNTS_AND_SHARES, title="By activity", width=half
        ),
        "by_worker": artist.stacked(
            by_worker, 0.25, names=160, title="By worker", width=width - half
        ),
    }


def _as_shown(numbers: Numbers, options: Options) -> Numbers:
    """With the user's text made safe."""

    def safe(names: list[str]) -> list[str]:
        return [
            name if name == UNUSED_WORKERS else label(name, options.label_size) or "(unnamed)"
            for name in names
        ]

    of_free_workers = {name for name, free in numbers.activities if free}
    activities = [
        (safe([name])[0] + (" (metered)" if name in of_free_workers and not free else ""), free)
        for name, free in numbers.activities
    ]
    return replace(
        numbers,
        functions=safe(numbers.functions),
        workers=safe(numbers.workers),
        units=safe(numbers.units),
        activities=activities,
    )


def _legend_item(name: str, color: str) -> str:
    return (
        '<span style="display: inline-block; margin: 0 14px 2px 0; white-space: nowrap">'
        f'<span style="display: inline-block; width: 13px; height: 11px; background: {color}; '
        'border: 1px solid #bbb; margin-right: 5px; box-sizing: border-box"></span>'
        f"{html.escape(name)}</span>"
    )
