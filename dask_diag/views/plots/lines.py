"""Lines and stacked layers over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from bokeh.models import CDSView, ColumnDataSource, Title
from bokeh.plotting import figure

from dask_diag.columns import FloatArray, IntArray
from dask_diag.formatting import amount
from dask_diag.views.assets import callback
from dask_diag.views.plots.figures import formatted, pack, set_hover

_MOST_POINTS = 10_000
"""If all lines have more points than these, they travel packed."""
_TIME = 1e-6
_DIGITS = 7
_PRECISION = f"fractions to {_DIGITS} digits of the largest"
Columns = Mapping[str, npt.NDArray[np.generic]]


class Lines:
    """The lines of one figure.

    Parameters
    ----------
    plot : bokeh figure
    points : str
        What the points of the lines are, as the page calls them.
    units : mapping of str to float, optional
        To what a column is rounded where points are many. Of others, whole numbers are not rounded,
        and fractions to `_DIGITS` digits of the largest.
    precision : str
        The same in words.
    """

    def __init__(
        self,
        plot: figure,
        points: str,
        units: Mapping[str, float] | None = None,
        precision: str = _PRECISION,
    ) -> None:
        self._plot = plot
        self._points = points
        self._units = {"time": _TIME, **(units or {})}
        self._precision = precision
        self._lines: list[tuple[ColumnDataSource, Columns, Sequence[str]]] = []

    def source(self, columns: Columns, drawn: Sequence[str]) -> ColumnDataSource:
        """A source for one or more lines, which `finish` fills.

        Parameters
        ----------
        columns : mapping of str to array of float
            ``time``, in seconds, ascending, and what is drawn or in the tooltip at these times.
        drawn : sequence of str
            The columns that are drawn: of each pixel, the page draws their extremes.
        """
        source = ColumnDataSource({name: [] for name in columns})
        self._lines.append((source, columns, drawn))
        return source

    def finish(self) -> bool:
        """Give the sources their points, or have the page give them those in view.

        Returns whether they are few, so that the sources have all of them.
        """
        if sum(len(columns["time"]) for _, columns, _ in self._lines) <= _MOST_POINTS:
            for source, columns, _ in self._lines:
                source.data = dict(columns)
            return True
        status = Title(
            text=f"unpacking the {self._points} ...",
            text_font_size="11px",
            text_font_style="normal",
            standoff=2,
        )
        self._plot.add_layout(status, "below")
        draw = callback(
            "plots/lines.js",
            "draw_lines",
            {
                "plot": self._plot,
                "status": status,
                "lines": [self._packed(*line) for line in self._lines],
                "points": self._points,
                "most": _MOST_POINTS,
                "precision": f"times to 1 µs, {self._precision}",
            },
        )
        self._plot.js_on_change("inner_width", draw)
        return False

    def _packed(
        self, source: ColumnDataSource, columns: Columns, drawn: Sequence[str]
    ) -> dict[str, object]:
        """One source for ``lines.js``: steps from point to point, and where values are unknown."""
        units, steps = {}, {}
        for name, column in columns.items():
            values = np.asarray(column, dtype=np.float64)
            unknown = np.isnan(values)
            values = np.where(unknown, 0.0, values)
            integers, units[name] = _integers(values, self._units.get(name))
            steps[name] = np.diff(integers, prepend=0)
            steps["unknown " + name] = np.flatnonzero(unknown)
        return {"source": source, "packed": pack(steps), "units": units, "drawn": list(drawn)}


def _integers(values: FloatArray, unit: float | None) -> tuple[IntArray, float]:
    """Values as whole numbers of a unit, and the unit: as large as it can be for the same."""
    if unit is None:
        largest = float(np.abs(values).max(initial=0.0))
        exact = largest < 2**52 and np.array_equal(values, np.round(values))
        unit = 1.0 if exact or not largest else 10.0 ** (np.ceil(np.log10(largest)) - _DIGITS)
    integers = np.round(values / unit).astype(np.int64)
    common = int(np.gcd.reduce(integers)) if len(integers) else 0
    return (integers // common, unit * common) if common > 1 else (integers, unit)


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
