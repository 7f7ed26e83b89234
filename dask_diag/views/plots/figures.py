"""Figures over time: options, tooltips, legends; and columns of numbers, compressed for a page.

The bytes of a column are written plane by plane, all lowest bytes first, and deflated: small
numbers and repeated ones take few bytes. Every browser of today can inflate them. A page is text,
so bytes are written as text: five letters for four bytes, where base64 takes five and a third.
``binary_columns.js`` reads the columns.
"""

from __future__ import annotations

import base64
import re
import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from bokeh.models import (
    BasicTickFormatter,
    ColumnDataSource,
    CustomJSHover,
    CustomJSTickFormatter,
    GlyphRenderer,
    HoverTool,
    Legend,
    LegendItem,
    Range1d,
    Title,
    WheelZoomTool,
)
from bokeh.plotting import figure

from dask_diag.analysis.occupancy import Occupancy
from dask_diag.columns import Array
from dask_diag.errors import DiagnosticError, UnknownKeywordError
from dask_diag.views.assets import call
from dask_diag.views.colors import FunctionColors
from dask_diag.views.escaping import shown

SIZES = {
    *("width", "height", "sizing_mode", "frame_width", "frame_height", "aspect_ratio"),
    *("min_width", "max_width", "min_height", "max_height", "width_policy", "height_policy"),
}
"""Keywords that set the size of a figure, which is then not fitted to the window."""

_SHORTEST_VIEW = 1e-6
"""Seconds: nobody can zoom further in."""
_LEGEND_LABEL = 26
_LEGEND_ROWS = 12


class Options:
    """Keywords of a plot: `palette`, `label_size`, and those of bokeh's figure.

    Parameters
    ----------
    palette : str, optional
        Name of a bokeh palette for the functions' colors.
    label_size : int, optional
        Most characters of a label.
    **kwargs
        Given to bokeh's figure, over the defaults.

    Attributes
    ----------
    colors : FunctionColors or None
        Colors of functions in all plots of the page.
    is_pinnable : bool
        Whether the page can show the details of a task that is clicked.
    has_legend : bool
        Whether figures name their colors; a page may do so beside them.
    occupied : list of Occupancy or None
        Occupancy of the drawn recording's computations, if already computed.
    """

    def __init__(self, palette: str | None = None, label_size: int = 60, **kwargs: Any) -> None:
        if not isinstance(label_size, int) or label_size < 1:
            raise DiagnosticError(f"label_size: expected a positive integer, found {label_size!r}")
        self.palette = palette
        self.label_size = label_size
        self.colors: FunctionColors | None = None
        self.is_pinnable = False
        self.has_legend = True
        self.occupied: Sequence[Occupancy] | None = None
        for old, new in (("plot_width", "width"), ("plot_height", "height")):
            if old in kwargs:
                warnings.warn(f"Use {new} instead of {old}", FutureWarning, stacklevel=3)
                kwargs[new] = kwargs.pop(old)
        self.figure = kwargs

    def colors_of(self, functions: Iterable[str]) -> FunctionColors:
        """Colors of functions: those of the page, or of this plot alone."""
        return self.colors or FunctionColors(functions, self.palette)

    def shown(self, texts: Iterable[object]) -> list[str]:
        """Texts of the user as labels of at most `label_size` characters."""
        return [shown(text, self.label_size) for text in texts]


def new_figure(options: Options, duration: float, **defaults: object) -> figure:
    """Create an empty figure with a time axis from 0 to `duration` seconds."""
    settings = {**defaults, **options.figure}
    try:
        plot = figure(
            **{
                "title": "Profile Results",
                "tools": "hover,xpan,xbox_zoom,reset,save",
                "toolbar_location": "above",
                "width": 1000,
                "height": 300,
                "x_range": time_range(duration),
                **settings,
            }
        )
    except AttributeError as error:
        # If no attribute is similar, bokeh's message lists all of them.
        reason = str(error).partition(", possible attributes")[0]
        raise UnknownKeywordError(
            f"{reason}: expected palette, label_size, or a keyword of bokeh's figure"
        ) from None
    plot.xaxis.axis_label = "Time (s)"
    plot.xaxis.formatter = BasicTickFormatter(use_scientific=False)
    plot.xgrid.grid_line_alpha = 0.4
    plot.axis.minor_tick_line_color = None
    plot.outline_line_color = None
    plot.toolbar.logo = None
    if "tools" not in settings:
        # The wheel without Ctrl scrolls the page.
        wheel = WheelZoomTool(dimensions="width", modifiers={"ctrl": True})
        plot.add_tools(wheel)
        plot.toolbar.active_scroll = wheel
    return plot


def time_range(duration: float) -> Range1d:
    """Range of a whole time axis, which a reader cannot leave."""
    return Range1d(0, duration, bounds=(0, duration), min_interval=_SHORTEST_VIEW)


def empty_source(columns: str, name: str | None = None) -> ColumnDataSource:
    """Create a source with these columns, which a script of the page fills."""
    return ColumnDataSource({column: [] for column in columns.split()}, name=name)


def quads(
    plot: figure, source: ColumnDataSource, bottom: object, top: object, **look: object
) -> GlyphRenderer:
    """Draw rectangles between the columns ``left`` and ``right`` of a source."""
    return plot.quad("left", "right", top, bottom, source=source, **look)


def status_below(plot: figure, contents: str) -> Title:
    """Add a line below a figure in which a script says what the figure shows."""
    status = Title(
        text=f"unpacking the {contents} ...",
        text_font_size="11px",
        text_font_style="normal",
        standoff=2,
    )
    plot.add_layout(status, "below")
    return status


def label(text: object, limit: int) -> str:
    """Text of the user as a label of a figure, in which nothing starts a formula."""
    return re.sub(r"\$(?=\$)|\\(?=[(\[])", "\\g<0>\u200b", shown(text, limit))


def legend_label(function: str) -> str:
    """Name of a function, short enough for a legend."""
    return label(function, _LEGEND_LABEL)


_FORMAT = re.compile(r"([@$]\w+)\{(?!custom)(\w+)(?:: ([^}]*))?\}")


def set_hover(
    plot: figure,
    renderers: Sequence[GlyphRenderer],
    tooltips: Sequence[tuple[str, str]],
    formatters: Mapping[str, CustomJSHover] | None = None,
    *,
    another: bool = False,
    **settings: object,
) -> None:
    """Set the tooltip of renderers, if the figure has a hover tool.

    Parameters
    ----------
    plot : bokeh figure
    renderers : list of GlyphRenderer
    tooltips : list of (str, str)
        Titles and fields, such as ``@time{moment}`` or ``@memory{size: 1e6 * value}``: the function
        of ``formatting.js`` that writes the value, and an expression of JavaScript to give to it.
    formatters : mapping of str to CustomJSHover, optional
        What writes the fields that are followed by ``{custom}``.
    another : bool, optional
        Add a tool beside the figure's own.
    **settings
        Attributes of the tool.
    """
    # In order: the figure's own tool is the first.
    tools = [tool for tool in plot.tools if isinstance(tool, HoverTool)]
    if not tools:
        return
    found = _FORMAT.findall(" ".join(text for _, text in tooltips))
    tool = HoverTool(visible=False) if another else tools[0]
    tool.update(
        renderers=list(renderers),
        tooltips=[(title, _FORMAT.sub(r"\1{custom}", text)) for title, text in tooltips] or None,
        formatters={
            **{field: formatted(kind, value or "value") for field, kind, value in found},
            **(formatters or {}),
        },
        show_arrow=False,
        **settings,
    )
    if another:
        plot.add_tools(tool)


def formatted(kind: str, value: str = "value", **args: object) -> CustomJSHover:
    """Create what writes a field of a tooltip, in the package's one style.

    Parameters
    ----------
    kind : {"seconds", "moment", "size", "amount", "quantity", "count", "percent"}
        The function of ``formatting.js``.
    value : str, optional
        Arguments of the function: an expression of JavaScript.
    **args
        Other names in that expression.
    """
    return CustomJSHover(args=args, code=call("formatting.js", kind, value))


def number_ticks(unit: str = "") -> CustomJSTickFormatter:
    """Create what writes the numbers at an axis, in the same style."""
    return CustomJSTickFormatter(code=call("formatting.js", "tick_text", f"tick, ticks, '{unit}'"))


def draw_nothing(plot: figure) -> None:
    """Draw no points in an empty figure: bokeh warns of a figure without renderers."""
    plot.scatter([], [])
    set_hover(plot, [], [])


def draw_alike(renderers: Iterable[GlyphRenderer]) -> None:
    """Let rows look the same whether selected or muted, where neither is possible.

    Otherwise a page has three more glyphs for each renderer, and a browser makes them.
    """
    for renderer in renderers:
        if isinstance(renderer, GlyphRenderer):
            glyph = renderer.glyph
            renderer.update(selection_glyph=glyph, nonselection_glyph=glyph, muted_glyph=glyph)


def add_legend(plot: figure, items: list[LegendItem], **settings: object) -> None:
    """Add a legend right of the frame: as many items as fit, and the number of the others.

    A hidden second legend is below the frame, for phones.
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
"""Letters of base 85 that a page or a script would escape, and letters in their place."""


class Packed(TypedDict):
    """Packed columns, as the page's scripts read them.

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
    """Compress columns for a page: texts, and whole numbers below 2**53, of any lengths."""
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
            # Small numbers of either sign stay small: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
            values = np.where(values < 0, -2 * values - 1, 2 * values)
        width = max(1, (int(values.max(initial=0)).bit_length() + 7) // 8)
        planes = values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width]
        parts.append(np.ascontiguousarray(planes.T).tobytes())
        layout.append((name, len(values), width, signed))
    return {"layout": layout, "data": letters(zlib.compress(b"".join(parts), _LEVEL))}


def letters(data: bytes) -> str:
    """Bytes as text in which nothing is escaped in a page or a script."""
    return base64.b85encode(data).translate(_ESCAPED).decode("ascii")


def size_in_page(packed: Packed | None) -> int:
    """Bytes of packed columns in a page."""
    return len(packed["data"]) if packed else 0
