"""Stacked layers over time: areas of steps, and a tooltip that names the largest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from bokeh.models import CDSView, ColumnDataSource
from bokeh.plotting import figure

from dask_diag.columns import FloatArray
from dask_diag.formatting import amount
from dask_diag.views.plots.figures import formatted, set_hover

__all__ = ["STRIPES", "Layer", "draw_layers", "look_of", "top_of"]

_NAMED_IN_TOOLTIP = 4
_ROUNDING = 1e-6

STRIPES: dict[str, str | float | None] = {
    "fill_color": None,
    "line_color": None,
    "hatch_pattern": "left_diagonal_line",
    "hatch_color": "white",
    "hatch_scale": 10,
    "hatch_weight": 2,
}
"""Of tasks that were off the CPU. They rise to the left: those of the scheduler's time, which is no
task's, and of tasks that did not finish rise to the right."""


class Layer(NamedTuple):
    """One of the layers: its height in each interval."""

    name: str
    color: str
    heights: FloatArray
    hatch: str = ""

    @property
    def total(self) -> float:
        """Heights, summed over the intervals."""
        return float(self.heights.sum())


def top_of(layers: Sequence[Layer]) -> float:
    """How high all layers together reach."""
    return float(np.sum([layer.heights for layer in layers], axis=0).max(initial=0.0))


def draw_layers(
    plot: figure, edges: FloatArray, layers: Sequence[Layer], unit: str, nothing: str
) -> None:
    """Draw layers one on top of the other, the first at the bottom.

    Parameters
    ----------
    plot : bokeh figure
        Its y range ends above all layers.
    edges : array of float
        Of the intervals, on the plot's axis.
    layers : sequence of Layer
        At least one.
    unit : str
        What heights are, for the tooltip.
    nothing : str
        What the tooltip says of an interval in which all are 0.
    """
    # The top of a layer is the bottom of the next: all share one source.
    levels = np.cumsum([np.zeros(len(edges) - 1), *(layer.heights for layer in layers)], axis=0)
    columns = {str(n): np.append(level, level[-1]) for n, level in enumerate(levels)}
    source = ColumnDataSource({"time": edges, **columns})
    view = CDSView()
    for n, layer in enumerate(layers):
        coordinates = {"x": "time", "y1": str(n), "y2": str(n + 1), "source": source, "view": view}
        plot.varea_step(**coordinates, step_mode="after", **look_of(layer))
    _add_tooltip(plot, edges, layers, (unit, nothing))


def look_of(layer: Layer) -> dict[str, object]:
    """Keywords of a glyph that is filled; a hatch marks what is no work of the program."""
    look: dict[str, object] = {"fill_color": layer.color}
    if layer.hatch:
        look |= {
            "fill_alpha": 0.25,
            "hatch_pattern": layer.hatch,
            "hatch_color": layer.color,
            "hatch_scale": 8,
            "hatch_weight": 1.2,
        }
    return look


def _add_tooltip(
    plot: figure, edges: FloatArray, layers: Sequence[Layer], words: tuple[str, str]
) -> None:
    """Over the whole height of each interval: what is in it, the largest layers first."""
    unit, nothing = words
    rows = np.array([layer.heights for layer in layers])
    source = ColumnDataSource(
        {
            "left": edges[:-1],
            "right": edges[1:],
            "what": [_text(layers, rows[:, n]) or nothing for n in range(rows.shape[1])],
        }
    )
    bins = plot.quad(
        left="left",
        right="right",
        bottom=0,
        top=float(plot.y_range.end),
        source=source,
        fill_alpha=0,
        line_alpha=0,
    )
    set_hover(
        plot,
        [bins],
        [("time", "@left{custom}"), (unit, "@what")],
        formatters={"@left": formatted("moment")},
        point_policy="follow_mouse",
    )


def _text(layers: Sequence[Layer], heights: FloatArray) -> str:
    order = np.argsort(-heights, kind="stable")[:_NAMED_IN_TOOLTIP].tolist()
    seen = [n for n in order if heights[n] > _ROUNDING]
    return ", ".join(f"{amount(heights[n])} {layers[n].name}" for n in seen)
