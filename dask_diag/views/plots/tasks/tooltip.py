"""The tooltip of the task under the mouse."""

from __future__ import annotations

from bokeh.models import CustomJSHover, GlyphRenderer
from bokeh.plotting import figure

from dask_diag.views.assets import call
from dask_diag.views.plots.figures import formatted, set_hover
from dask_diag.views.plots.tasks.columns import LANE

__all__ = ["add_tooltip"]

_DURATIONS = "plots/tasks/tooltip.js"
_LOOKUPS = "plots/tasks/lookups.js"
_TOOLTIP = [
    ("key", "@key{custom}"),
    ("function", "@function{custom}"),
    ("start", "@left{custom}"),
    ("duration", "@right{custom}"),
    ("CPU", "@cpu{custom}"),
    ("worker", "@top{custom}"),
    ("outcome", "@outcome{custom}"),
]


def add_tooltip(
    plot: figure, renderer: GlyphRenderer, names: dict[str, list[str]], workers: list[str]
) -> None:
    """Give the hover tool a task's key, function, start, duration, CPU, non-CPU and worker.

    The columns hold codes; `names` has the texts of each coded column. Bokeh escapes them.
    """
    name = call(_LOOKUPS, "name_of", "names, value")
    formatters = {
        f"@{column}": CustomJSHover(args={"names": texts}, code=name)
        for column, texts in names.items()
    }
    formatters["@key"] = CustomJSHover(code=call(_LOOKUPS, "short_key", "value"))
    formatters["@left"] = formatted("moment")
    for field, function in (("@right", "duration"), ("@cpu", "cpu_time")):
        code = call(_DURATIONS, function, "source.data, special_vars.index")
        formatters[field] = CustomJSHover(args={"source": renderer.data_source}, code=code)
    formatters["@top"] = CustomJSHover(
        args={"names": workers, "lane_height": LANE},
        code=call(_LOOKUPS, "worker_at", "names, value, lane_height"),
    )
    set_hover(plot, [renderer], _TOOLTIP, formatters=formatters, point_policy="follow_mouse")
