"""What the page tells of the task under the mouse."""

from __future__ import annotations

from typing import Any

from bokeh.models import CustomJSHover

from dask_diag.views.plots.figures import set_hover

__all__ = ["tell_of_tasks"]

_NAME = "return names[value]"
_WORKER = "return names[Math.round(value / lane_height)]"
_DURATIONS = """
const {left, right, cpu} = source.data
const i = special_vars.index
const wall = right[i] - left[i]
function seconds(x) {
    if (isNaN(x)) return "unknown"
    return x >= 1 ? x.toFixed(3) + " s" : (1e3 * x).toFixed(3) + " ms"
}
"""
_CPU = """
if (isNaN(cpu[i])) return "unknown"
const share = wall > 0 ? " (" + (100 * cpu[i] / wall).toFixed(0) + "%)" : ""
return seconds(cpu[i]) + share + ", " + seconds(Math.max(0, wall - cpu[i])) + " non-CPU"
"""


def tell_of_tasks(
    plot: Any, renderer: Any, names: dict[str, list[str]], workers: list[str], lane_height: int
) -> None:
    """Give the hover tool a task's key, function, start, duration, CPU, non-CPU and worker.

    The columns hold codes; `names` has the texts of each coded column. Bokeh escapes them.
    """
    lookups = {
        f"@{column}": CustomJSHover(args={"names": texts}, code=_NAME)
        for column, texts in names.items()
    }
    lookups["@top"] = CustomJSHover(
        args={"names": workers, "lane_height": lane_height}, code=_WORKER
    )
    durations = {
        "left": "return left[i].toFixed(6) + ' s'",
        "right": "return seconds(wall)",
        "cpu": _CPU,
    }
    for column, code in durations.items():
        lookups[f"@{column}"] = CustomJSHover(
            args={"source": renderer.data_source}, code=_DURATIONS + code
        )
    set_hover(
        plot,
        [renderer],
        [
            ("key", "@key"),
            ("function", "@function{custom}"),
            ("start", "@left{custom}"),
            ("duration", "@right{custom}"),
            ("CPU", "@cpu{custom}"),
            ("worker", "@top{custom}"),
            ("outcome", "@outcome{custom}"),
        ],
        formatters=lookups,
        point_policy="follow_mouse",
    )
