"""Many tasks: the page has them compressed, and draws those in view (tasks.js)."""

from __future__ import annotations

from collections.abc import Mapping

from bokeh.models import ColumnDataSource, CustomJSHover, GlyphRenderer, HoverTool, Title
from bokeh.plotting import figure

from dask_diag.views.assets import call, callback
from dask_diag.views.plots.binary_columns import Packed, size_in_page
from dask_diag.views.plots.figures import formatted
from dask_diag.views.plots.tasks.columns import FULL, LANE, TasksInLanes
from dask_diag.views.plots.tasks.details import Details, packed_details

__all__ = ["draw_in_view"]

_LOOKUPS = "plots/tasks/lookups.js"
_MOST_BYTES = 7_200_000
"""That tasks and their keys may take in a page."""
_MOST_WITH_DETAILS = 4_000_000
"""That they may take together with what else is shown of a pinned task."""
_SAMPLE = 20_000
"""So many keys say whether it is worth the time to pack all."""
_HOPELESS = 2
"""Keys that by the sample are more times too large than this are not packed at all."""


def draw_in_view(
    plot: figure,
    ordered: TasksInLanes,
    details: Details | None,
    settings: Mapping[str, object],
) -> None:
    """Have a script draw the tasks in view, as rectangles if they are few, else pixel by pixel.

    Keys are left out, and the page says so, if they are so different that they take too many bytes.
    """
    packed = ordered.packed()
    size_of_tasks = size_in_page(packed)
    keys, size_of_keys = _keys_that_fit(ordered, _MOST_BYTES - size_of_tasks)
    used = size_of_tasks + (size_of_keys if keys else 0)
    pixels = ColumnDataSource({name: [] for name in ("image", "x", "y", "width")})
    image = plot.image_rgba(image="image", x="x", y="y", dw="width", dh=FULL, source=pixels)
    _add_tooltip(plot, image, ordered.workers)
    status = Title(
        text="unpacking the tasks ...", text_font_size="11px", text_font_style="normal", standoff=2
    )
    plot.add_layout(status, "below")
    draw = callback(
        "plots/tasks/tasks.js",
        "draw_in_view",
        {
            "plot": plot,
            "status": status,
            "packed_tasks": packed,
            "packed_keys": keys,
            "size_of_keys": size_of_keys,
            "tick": ordered.tick,
            "pixels": pixels,
            "details": details and packed_details(details, _MOST_WITH_DETAILS - used),
            **settings,
        },
    )
    plot.js_on_change("inner_width", draw)


def _add_tooltip(plot: figure, image: GlyphRenderer, workers: list[str]) -> None:
    """Say what is in a pixel, if the figure has a hover tool."""
    if not plot.select(HoverTool):
        return
    worker = CustomJSHover(
        args={"names": workers, "lane_height": LANE},
        code=call(_LOOKUPS, "worker_at", "names, value, lane_height"),
    )
    in_pixel = CustomJSHover(
        args={"pixels": image.data_source},
        code=call(_LOOKUPS, "text_of_pixel", "pixels, special_vars"),
    )
    hover = HoverTool(
        renderers=[image],
        tooltips=[("worker", "$y{custom}"), ("time", "$x{custom}"), ("in it", "$sx{custom}")],
        formatters={"$y": worker, "$x": formatted("moment"), "$sx": in_pixel},
        point_policy="follow_mouse",
        show_arrow=False,
        visible=False,
    )
    plot.add_tools(hover)


def _keys_that_fit(tasks: TasksInLanes, most_bytes: int) -> tuple[Packed | None, int]:
    """The keys, packed, if they are small enough, and how many bytes they take or would take."""
    every = max(1, len(tasks) // _SAMPLE)
    likely = every * size_in_page(tasks.rows(slice(None, None, every)).packed_keys())
    if likely > _HOPELESS * most_bytes:
        return None, likely
    keys = tasks.packed_keys()
    size = size_in_page(keys)
    return (keys if size <= most_bytes else None), size
