"""Columns of whole numbers, compressed for a page; ``binary_columns.js`` reads them.

The bytes of a column are written plane by plane, all lowest bytes first, and deflated: small
numbers and repeated ones take few bytes. Every browser of today can inflate them.

A page is text, so the bytes are written as such: five letters for four bytes, where base64 takes
five and a third.
"""

from __future__ import annotations

import base64
import re
import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
from bokeh.models import (
    BasicTickFormatter,
    CustomJSHover,
    CustomJSTickFormatter,
    GlyphRenderer,
    HoverTool,
    Legend,
    LegendItem,
    Range1d,
    WheelZoomTool,
)
from bokeh.plotting import figure

from dask_diag.analysis.occupancy import Occupancy
from dask_diag.columns import Array, IntArray
from dask_diag.errors import DiagnosticError, UnknownKeywordError
from dask_diag.views.assets import call
from dask_diag.views.colors import FunctionColors
from dask_diag.views.escaping import shown

SIZES = {
    *("width", "height", "sizing_mode", "frame_width", "frame_height", "aspect_ratio"),
    *("min_width", "max_width", "min_height", "max_height", "width_policy", "height_policy"),
}
"""With one of these keywords, figures are as large as it says, and not fitted to the window."""
_SHORTEST_VIEW = 1e-6
"""Seconds: nobody can zoom further in."""
_LEGEND_LABEL = 26
_LEGEND_ROWS = 12


class Options:
    """Keywords of a plot: `palette`, `label_size`, and those of bokeh's figure.

    Parameters
    ----------
    palette : str, optional
        Name of a bokeh palette for the functions' colours.
    label_size : int, optional
        Most characters of a label.
    **kwargs
        Given to bokeh's figure, over the defaults.
    """

    def __init__(self, palette: str | None = None, label_size: int = 60, **kwargs: Any) -> None:
        if not isinstance(label_size, int) or label_size < 1:
            raise DiagnosticError(
                f"label_size: expected the most characters of a label, found {label_size!r}"
            )
        self.palette = palette
        self.colors: FunctionColors | None = None
        self.is_pinnable = False
        """Whether the page has what a script shows of a task that is clicked."""
        self.has_legend = True
        """Whether figures name their colours; a page may do so beside them."""
        self.occupied: Sequence[Occupancy] | None = None
        """Of the computations of the one recording that is drawn, if they were computed."""
        self.label_size = label_size
        for old, new in (("plot_width", "width"), ("plot_height", "height")):
            if old in kwargs:
                warnings.warn(f"Use {new} instead of {old}", FutureWarning, stacklevel=3)
                kwargs[new] = kwargs.pop(old)
        self.figure = kwargs

    def colors_of(self, functions: Iterable[str]) -> FunctionColors:
        """The colours of a plot's functions: those of all plots of the page, if it has set them."""
        return self.colors or FunctionColors(functions, self.palette)


def new_figure(options: Options, duration: float, **defaults: object) -> figure:
    """An empty figure with a time axis from 0 to `duration` seconds."""
    settings: dict[str, object] = {
        "title": "Profile Results",
        "tools": "hover,xpan,xbox_zoom,reset,save",
        "toolbar_location": "above",
        "width": 1000,
        "height": 300,
        "x_range": time_range(duration),
        **defaults,
        **options.figure,
    }
    try:
        plot = figure(**settings)
    except AttributeError as error:
        # Where none is similar, the message lists all of bokeh's.
        reason = str(error).partition(", possible attributes")[0]
        raise UnknownKeywordError(
            f"{reason}: expected palette, label_size, or a keyword of bokeh's figure"
        ) from None
    plot.xaxis.axis_label = "Time (s)"
    plot.xaxis.formatter = BasicTickFormatter(use_scientific=False)
    plot.xgrid.grid_line_alpha = 0.4
    plot.outline_line_color = None
    plot.toolbar.logo = None
    if "tools" not in {**defaults, **options.figure}:
        # The wheel alone scrolls the page.
        wheel = WheelZoomTool(dimensions="width", modifiers={"ctrl": True})
        plot.add_tools(wheel)
        plot.toolbar.active_scroll = wheel
    return plot


def time_range(duration: float) -> Range1d:
    """All of a time axis; it cannot be left, and nobody can zoom in to nothing."""
    return Range1d(0, duration, bounds=(0, duration), min_interval=_SHORTEST_VIEW)


def label(text: object, limit: int) -> str:
    """The user's text as a label of a figure, with nothing in it that would start a formula."""
    return re.sub(r"\$(?=\$)|\\(?=[(\[])", "\\g<0>\u200b", shown(text, limit))


def legend_label(function: str) -> str:
    """A function's name, short enough for a legend."""
    return label(function, _LEGEND_LABEL)


def set_hover(
    plot: figure,
    renderers: Sequence[GlyphRenderer],
    tooltips: list[tuple[str, str]] | None,
    **settings: object,
) -> None:
    """Set the tooltip of `renderers`, if the figure has a hover tool."""
    for hover in plot.select(HoverTool):
        hover.update(tooltips=tooltips, renderers=list(renderers), show_arrow=False, **settings)


def formatted(kind: str, value: str = "value", **args: object) -> CustomJSHover:
    """The value of a tooltip's field as text, in the package's one style.

    Parameters
    ----------
    kind : {"seconds", "moment", "size", "amount", "quantity", "count", "percent"}
        The function of ``formatting.js``.
    value : str, optional
        What it is given: an expression of JavaScript, as ``"1e6 * value"`` of a field in MB.
    **args
        Other names in that expression.
    """
    return CustomJSHover(args=args, code=call("formatting.js", kind, value))


def number_ticks(unit: str = "") -> CustomJSTickFormatter:
    """The numbers at an axis, in the same style."""
    return CustomJSTickFormatter(code=call("formatting.js", "tick_text", f"tick, ticks, '{unit}'"))


def draw_nothing(plot: figure) -> None:
    """Give an empty figure what bokeh wants of a figure: something that can be drawn."""
    plot.scatter([], [])
    set_hover(plot, [], None)


def draw_alike(renderers: Iterable[GlyphRenderer]) -> None:
    """Have rows look the same whether they are selected or muted: where neither can be.

    Otherwise a page has three glyphs more for each renderer, and a browser makes them.
    """
    for renderer in renderers:
        if isinstance(renderer, GlyphRenderer):
            glyph = renderer.glyph
            renderer.update(selection_glyph=glyph, nonselection_glyph=glyph, muted_glyph=glyph)


def add_legend(plot: figure, items: list[LegendItem], **settings: object) -> None:
    """Put a legend right of the frame, of as many items as fit, the others counted.

    Another one, hidden, is below the frame: a page on a phone shows that one.
    """
    if not items:
        return
    shown_items = items[:_LEGEND_ROWS]
    if len(items) > _LEGEND_ROWS:
        shown_items[-1] = LegendItem(label=f"{len(items) - _LEGEND_ROWS + 1} more: hover")
    for side in ("right", "below"):
        legend = Legend(
            items=shown_items,
            label_text_font_size="11px",
            glyph_height=12,
            glyph_width=14,
            label_height=12,
            spacing=2,
            padding=4,
            border_line_color=None,
            visible=side == "right",
            **settings,
        )
        plot.add_layout(legend, side)


_LEVEL = 7
_ESCAPED = bytes.maketrans(b"&<>`", b",.:/")
"""Letters of base 85 that a page or a script would escape, and others in their place."""


class Packed(TypedDict):
    """Columns as a script in the page gets them.

    Attributes
    ----------
    layout : list of (str, int, int, bool)
        Of each column its name, its length, the bytes of a value (0 in a text), and whether it has
        negative numbers.
    data : str
        All columns, deflated, as text.
    """

    layout: list[tuple[str, int, int, bool]]
    data: str


def pack(columns: Mapping[str, Array | str]) -> Packed:
    """Compress columns for a page.

    Parameters
    ----------
    columns : mapping of str to array of int, or str
        Of any lengths; numbers below 2**53.
    """
    layout: list[tuple[str, int, int, bool]] = []
    parts: list[bytes] = []
    for name, column in columns.items():
        if isinstance(column, str):
            parts.append(column.encode("utf-8", "backslashreplace"))
            layout.append((name, len(parts[-1]), 0, False))
            continue
        values = np.asarray(column).astype(np.int64)
        signed = bool((values < 0).any())
        if signed:
            # Small ones of either sign stay small: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
            values = np.where(values < 0, -2 * values - 1, 2 * values)
        width = max(1, (int(values.max(initial=0)).bit_length() + 7) // 8)
        planes = values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width]
        parts.append(np.ascontiguousarray(planes.T).tobytes())
        layout.append((name, len(values), width, signed))
    return {"layout": layout, "data": letters(zlib.compress(b"".join(parts), _LEVEL))}


def letters(data: bytes) -> str:
    """Bytes as text, of which nothing is escaped in a page or a script."""
    return base64.b85encode(data).translate(_ESCAPED).decode("ascii")


def size_in_page(packed: Packed) -> int:
    """Bytes that packed columns take in a page."""
    return len(packed["data"])


def ticks(seconds: npt.ArrayLike, tick: float) -> IntArray:
    """Seconds as whole numbers of `tick` seconds."""
    return np.round(np.asarray(seconds) / tick).astype(np.int64)
