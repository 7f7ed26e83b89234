"""The pictures of activities: where worker time went by function, activity and worker."""

from __future__ import annotations

import html
from dataclasses import replace

from bokeh.layouts import column, row
from bokeh.models import Div, LayoutDOM

from dask_diag.analysis.analysis import Analysis
from dask_diag.views.assets import callback
from dask_diag.views.plots.activities.bars import (
    UNUSED_WORKERS,
    Numbers,
    numbers_of,
)
from dask_diag.views.plots.activities.controls import Choice
from dask_diag.views.plots.activities.figures import (
    Picture,
    cpu_picture,
    stacked_picture,
)
from dask_diag.views.plots.figures import Options, label
from dask_diag.views.theme.colors import color_of_activity

__all__ = ["plot_activities"]

_WIDTH = 1000
_NARROWEST = 800
_NOTHING = "<i>nothing was measured</i>"
_HEADING = "Where worker time went"


def plot_activities(analysis: Analysis, options: Options) -> LayoutDOM:
    """Draw where worker time went, with a choice of functions and of the unit."""
    measured = numbers_of(analysis)
    numbers = _as_shown(measured, options)
    colors = [color_of_activity(name, options.palette) for name, _ in measured.activities]
    width = max(int(options.figure.get("width") or _WIDTH), _NARROWEST)
    choice = Choice(numbers, width)
    pictures = _pictures(numbers, colors, width)
    heading = Div(text=_HEADING, styles={"font-size": "15px", "font-weight": "bold"})
    legend_items = [
        _legend_item(name, color)
        for (name, _), color in zip(numbers.activities, colors, strict=True)
    ]
    # As it will be, most likely: what is below it stays where it is when the script writes it.
    legend = Div(text="".join(legend_items) or _NOTHING, width=width - 10, disable_math=True)
    arguments = {
        "numbers": numbers.in_the_page(),
        "function_list": choice.functions,
        "unit_select": choice.unit,
        "pictures": {name: picture.in_the_page() for name, picture in pictures.items()},
        "heading": heading,
        "legend": legend,
        "texts": {"heading": _HEADING, "legend_items": legend_items, "nothing": _NOTHING},
    }
    by_function, of_cpu, by_activity, by_worker = (picture.plot for picture in pictures.values())
    draw = callback("plots/activities/activities.js", "draw", arguments)
    by_function.js_on_change("inner_width", draw)
    choice.when_changed(draw)
    return column(
        heading,
        *choice.layout,
        legend,
        row(by_function, of_cpu, spacing=0),
        row(by_activity, by_worker, spacing=0),
    )


def _pictures(numbers: Numbers, colors: list[str], width: int) -> dict[str, Picture]:
    functions = len(numbers.functions)
    width_of_functions, half = int(0.7 * width), width // 2
    return {
        "by_function": stacked_picture(
            functions, colors, 0.15, title="Tasks by function", width=width_of_functions
        ),
        "of_cpu": cpu_picture(functions, width - width_of_functions),
        "by_activity": stacked_picture(
            len(numbers.activities), colors, 0.55, title="By activity", width=half
        ),
        "by_worker": stacked_picture(
            len(numbers.workers), colors, 0.25, 160, title="By worker", width=width - half
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
