"""Lines of any number of points; where there are many, the page draws those in view (lines.js)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from bokeh.models import ColumnDataSource, Title
from bokeh.plotting import figure

from dask_diag.columns import FloatArray, IntArray
from dask_diag.views.assets import callback
from dask_diag.views.plots.binary_columns import pack

__all__ = ["Lines"]

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
