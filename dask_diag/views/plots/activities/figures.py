"""Figures of horizontal bars, which ``activities.js`` fills and changes."""

from __future__ import annotations

from dataclasses import dataclass

from bokeh.models import (
    ColumnDataSource,
    CustomJSTickFormatter,
    FixedTicker,
    GlyphRenderer,
    LabelSet,
    LinearColorMapper,
    Range1d,
)
from bokeh.plotting import figure
from bokeh.transform import transform

from dask_diag.schema import Activity
from dask_diag.views.assets import call
from dask_diag.views.plots.activities.bars import MOST_BARS
from dask_diag.views.plots.figures import number_ticks, set_hover
from dask_diag.views.theme.colors import color_of_activity

__all__ = ["Picture", "cpu_picture", "stacked_picture"]

_ROW = 18
_AROUND = 74
"""Height of what is above and below the bars."""
_NAMES = 220
"""Width of the names left of the bars."""
_CPU = (color_of_activity(Activity.CPU), color_of_activity(Activity.NONCPU))


@dataclass(frozen=True)
class Picture:
    """A figure of bars, and the sources that the page fills."""

    plot: figure
    pieces: ColumnDataSource
    rows: ColumnDataSource
    space_for_text: float
    """What the axis has beyond the longest bar, for the text beside it, in lengths of bars."""

    def in_the_page(self) -> dict[str, object]:
        """What ``activities.js`` needs of it."""
        return {**vars(self), "height_of_row": _ROW, "height_around": _AROUND}


def stacked_picture(
    most_rows: int,
    colors: list[str],
    space_for_text: float,
    names_width: int = _NAMES,
    **settings: object,
) -> Picture:
    """A bar of pieces for each row, with its total beside it.

    Parameters
    ----------
    most_rows : int
        How many rows there can be: the figure opens as high as it is likely to stay.
    colors : list of str
        Of the activities, by their index.
    space_for_text : float
    names_width : int, optional
    **settings
        Of the figure.
    """
    picture = _picture(
        most_rows,
        space_for_text,
        "y left right activity name value activity_name text share",
        min_border_left=names_width,
        **settings,
    )
    picture.plot.xaxis.formatter = number_ticks()
    pieces = _draw_pieces(picture, "activity", colors)
    _write_beside(picture, "right")
    set_hover(
        picture.plot,
        [pieces],
        [("", "@name"), ("activity", "@activity_name"), ("value", "@text"), ("share", "@share")],
        point_policy="follow_mouse",
    )
    return picture


def cpu_picture(most_rows: int, width: int) -> Picture:
    """For each row of the functions, how its seconds divide into CPU and non-CPU."""
    picture = _picture(
        most_rows,
        0.3,
        "y left right kind name text",
        x_range=Range1d(0, 1.3),
        title="CPU and non-CPU",
        width=width,
        min_border_left=12,
    )
    plot = picture.plot
    plot.yaxis.visible = False
    plot.xaxis.axis_label = "% of the tasks' seconds"
    plot.xaxis.ticker = FixedTicker(ticks=[0, 0.5, 1])
    plot.xaxis.major_label_overrides = {0: "0", 0.5: "50", 1: "100"}
    pieces = _draw_pieces(picture, "kind", list(_CPU))
    _write_beside(picture, 1)
    set_hover(plot, [pieces], [("", "@name"), ("", "@text")], point_policy="follow_mouse")
    return picture


def _picture(
    most_rows: int,
    space_for_text: float,
    columns_of_pieces: str,
    x_range: Range1d | None = None,
    **settings: object,
) -> Picture:
    height = min(max(most_rows, 1), MOST_BARS)
    rows = _empty("y name label right share text")
    plot = figure(
        height=_AROUND + _ROW * height,
        tools="hover",
        toolbar_location=None,
        x_range=x_range or Range1d(0, 1),
        y_range=Range1d(height - 0.4, -0.6),
        min_border_right=8,
        **settings,
    )
    plot.yaxis.ticker = FixedTicker(ticks=[])
    plot.yaxis.formatter = CustomJSTickFormatter(
        args={"rows": rows},
        code=call("plots/activities/labels.js", "label_of_row", "rows, tick"),
    )
    plot.yaxis.major_tick_line_color = plot.yaxis.minor_tick_line_color = None
    plot.yaxis.axis_line_color = plot.outline_line_color = None
    plot.ygrid.grid_line_color = None
    plot.xgrid.grid_line_alpha = 0.4
    # The axes of figures side by side are at one height only if all have the same ticks.
    plot.xaxis.minor_tick_line_color = None
    plot.xaxis.minor_tick_out = 0
    return Picture(plot, _empty(columns_of_pieces), rows, space_for_text)


def _empty(columns: str) -> ColumnDataSource:
    return ColumnDataSource({name: [] for name in columns.split()})


def _draw_pieces(picture: Picture, code: str, colors: list[str]) -> GlyphRenderer:
    palette = colors or ["white"]
    mapper = LinearColorMapper(palette=palette, low=-0.5, high=len(palette) - 0.5)
    return picture.plot.hbar(
        y="y",
        left="left",
        right="right",
        height=0.8,
        source=picture.pieces,
        fill_color=transform(code, mapper),
        line_color="white",
        line_width=0.5,
    )


def _write_beside(picture: Picture, x: str | float) -> None:
    # Not a glyph: those of older bokeh fail where they are drawn before new texts are ready.
    labels = LabelSet(
        x=x,
        y="y",
        text="text",
        source=picture.rows,
        x_offset=5,
        text_baseline="middle",
        text_font_size="11px",
        text_color="#333333",
    )
    picture.plot.add_layout(labels)
