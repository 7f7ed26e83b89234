"""Figures of horizontal bars, which change when the reader chooses otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bokeh.models import (
    ColumnDataSource,
    CustomJSHover,
    CustomJSTickFormatter,
    CustomJSTransform,
    FixedTicker,
    LabelSet,
    LinearColorMapper,
    Range1d,
)
from bokeh.plotting import figure
from bokeh.transform import transform

from dask_diag.views.assets import text_of
from dask_diag.views.plots.activities.bars import Bars, Numbers
from dask_diag.views.plots.activities.controls import Choice
from dask_diag.views.plots.figures import SHORT_NUMBER, set_hover
from dask_diag.views.theme.colors import color_of_activity

__all__ = ["AMOUNTS", "AMOUNTS_AND_SHARES", "Artist", "Picture"]

_ROW = 18
_AROUND = 74
"""Height of what is above and below the bars."""
_NAMES = 220
"""Width of the names left of the bars."""
_CPU = (color_of_activity("thread-cpu"), color_of_activity("thread-noncpu"))
_KINDS = ["CPU", "non-CPU"]

_NAME_OF_ROW = """
const name = [...rows.data.name[Math.round(tick)] ?? ""]
return name.length > 34 ? [...name.slice(0, 21), "…", ...name.slice(-12)].join("") : name.join("")
"""
_AMOUNT = "return amount(value, units[+unit_select.value])"
AMOUNTS = "return Array.from(xs, (x) => short_amount(x, units[+unit_select.value]))"
AMOUNTS_AND_SHARES = """
return Array.from(xs, (x, i) =>
    short_amount(x, units[+unit_select.value]) + ", " + percent(rows.data.of_all[i]))
"""
_SHARES = "return Array.from(xs, (x) => isNaN(x) ? 'unknown' : percent(x) + ' CPU')"


@dataclass(frozen=True)
class Picture:
    """A figure of bars, and what changes in it when the reader chooses."""

    figure: Any
    pieces: ColumnDataSource
    rows: ColumnDataSource
    room: float
    """What the axis has beyond the longest bar, for the text beside it, in lengths of bars."""

    def in_the_page(self) -> dict[str, Any]:
        """What ``activities.js`` needs of it."""
        return {
            "figure": self.figure,
            "pieces": self.pieces,
            "rows": self.rows,
            "axis": self.figure.yaxis[0],
            "x_range": self.figure.x_range,
            "y_range": self.figure.y_range,
            "room": self.room,
            "row": _ROW,
            "around": _AROUND,
        }


class Artist:
    """Draws bars; knows the names and colours of what they are made of."""

    def __init__(self, numbers: Numbers, colors: list[str], choice: Choice) -> None:
        self._numbers = numbers
        self._colors = colors
        self._args = {"units": numbers.units, "unit_select": choice.unit}
        self._code = text_of("plots/activities/amounts.js")

    def stacked(
        self, bars: Bars, room: float, beside: str = AMOUNTS, names: int = _NAMES, **settings: Any
    ) -> Picture:
        """A bar of pieces for each row, with its total beside it."""
        longest, least = max(bars.rows["right"], default=0), min(bars.rows["left"], default=0)
        picture = self._new(
            bars,
            room,
            Range1d(least, longest + (longest - least) * room or 1),
            min_border_left=names,
            **settings,
        )
        plot = picture.figure
        plot.xaxis.axis_label = self._numbers.units[0]
        plot.xaxis.formatter = CustomJSTickFormatter(code=SHORT_NUMBER)
        pieces = self._pieces(picture, "activity", self._colors)
        self._beside(picture, "right", "total", beside)
        activities = [name for name, _ in self._numbers.activities]
        self._tell(
            picture,
            pieces,
            [
                ("", "@name"),
                ("activity", "@activity{custom}"),
                ("value", "@value{custom}"),
                ("share", "@of_bar{custom} of this bar, @of_all{custom} of all"),
            ],
            {"@activity": ("return names[value]", {"names": activities}), "@value": (_AMOUNT, {})},
        )
        return picture

    def shares_of_cpu(self, bars: Bars, width: int) -> Picture:
        """For each row of the functions, how its seconds divide into CPU and non-CPU."""
        picture = self._new(
            bars, 0.3, Range1d(0, 1.3), title="CPU and non-CPU", width=width, min_border_left=12
        )
        plot = picture.figure
        plot.yaxis.visible = False
        plot.xaxis.axis_label = "% of the tasks' seconds"
        plot.xaxis.ticker = FixedTicker(ticks=[0, 0.5, 1])
        plot.xaxis.formatter = CustomJSTickFormatter(code="return '' + 100 * tick")
        pieces = self._pieces(picture, "kind", list(_CPU))
        self._beside(
            picture,
            1,
            "share",
            _SHARES,
        )
        self._tell(
            picture,
            pieces,
            [("", "@name"), ("", "@kind{custom}: @value{custom}")],
            {
                "@kind": ("return names[value]", {"names": _KINDS}),
                "@value": ("return amount(value, 'seconds')", {}),
            },
        )
        return picture

    def _new(self, bars: Bars, room: float, x_range: Range1d, **settings: Any) -> Picture:
        rows = ColumnDataSource(bars.rows)
        count = max(len(bars.rows["y"]), 1)
        plot = figure(
            height=_AROUND + _ROW * count,
            tools="hover",
            toolbar_location=None,
            x_range=x_range,
            y_range=Range1d(count - 0.4, -0.6),
            min_border_right=8,
            **settings,
        )
        plot.yaxis.ticker = FixedTicker(ticks=bars.rows["y"])
        plot.yaxis.formatter = CustomJSTickFormatter(args={"rows": rows}, code=_NAME_OF_ROW)
        plot.yaxis.major_tick_line_color = plot.yaxis.minor_tick_line_color = None
        plot.yaxis.axis_line_color = plot.outline_line_color = None
        plot.ygrid.grid_line_color = None
        plot.xgrid.grid_line_alpha = 0.4
        # The axes of figures side by side are at one height only if all have the same ticks.
        plot.xaxis.minor_tick_line_color = None
        plot.xaxis.minor_tick_out = 0
        return Picture(plot, ColumnDataSource(bars.pieces), rows, room)

    def _pieces(self, picture: Picture, code: str, colors: list[str]) -> Any:
        palette = colors or ["white"]
        mapper = LinearColorMapper(palette=palette, low=-0.5, high=len(palette) - 0.5)
        return picture.figure.hbar(
            y="y",
            left="left",
            right="right",
            height=0.8,
            source=picture.pieces,
            fill_color=transform(code, mapper),
            line_color="white",
            line_width=0.5,
        )

    def _beside(self, picture: Picture, x: Any, column_name: str, code: str) -> None:
        texts = CustomJSTransform(
            args={**self._args, "rows": picture.rows}, v_func=self._code + code
        )
        # Not a glyph: those of older bokeh fail where they are drawn before new texts are ready.
        labels = LabelSet(
            x=x,
            y="y",
            text=transform(column_name, texts),
            source=picture.rows,
            x_offset=5,
            text_baseline="middle",
            text_font_size="11px",
            text_color="#333333",
        )
        picture.figure.add_layout(labels)

    def _tell(
        self,
        picture: Picture,
        pieces: Any,
        tooltips: list[tuple[str, str]],
        lookups: dict[str, tuple[str, dict[str, Any]]],
    ) -> None:
        share: tuple[str, dict[str, Any]] = ("return percent(value)", {})
        formatters = {
            field: CustomJSHover(args={**self._args, **args}, code=self._code + code)
            for field, (code, args) in {"@of_bar": share, "@of_all": share, **lookups}.items()
        }
        set_hover(
            picture.figure, [pieces], tooltips, formatters=formatters, point_policy="follow_mouse"
        )
