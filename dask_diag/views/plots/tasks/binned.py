"""Many tasks: they travel packed, and the page draws what is in view; see tasks.js."""

from __future__ import annotations

from typing import Any

from bokeh.models import ColumnDataSource, CustomJS, CustomJSHover, HoverTool, Title

from dask_diag.views.plots.binary_columns import script, size_in_page
from dask_diag.views.plots.tasks.columns import FULL, LANE, TasksInLanes

__all__ = ["draw_in_the_page"]

_WORKER = "return names[Math.floor(value / lane_height)] ?? ''"
_IN_PIXEL = "return pixels.told_at?.(special_vars.x, special_vars.y) ?? ''"
_ROOM = 7_700_000
"""Bytes that tasks and their keys may take in a page."""
_SAMPLE = 20_000
"""Of so many keys it is told whether it is worth the time to pack all."""
_HOPELESS = 2


def draw_in_the_page(
    plot: Any,
    tasks: TasksInLanes,
    rectangles: ColumnDataSource,
    marks: dict[str, ColumnDataSource],
    settings: dict[str, Any],
) -> None:
    """Have a script draw the tasks in view, as rectangles if they are few, else pixel by pixel.

    Keys are left out, and the page tells so, if they are so different that there is no room.
    """
    ordered = tasks.in_order()
    packed = ordered.packed()
    keys, room = _keys_that_fit(ordered, _ROOM - size_in_page(packed))
    pixels = ColumnDataSource({name: [] for name in ("image", "x", "y", "width")})
    image = plot.image_rgba(image="image", x="x", y="y", dw="width", dh=FULL, source=pixels)
    _tell_of_pixels(plot, image, tasks.workers)
    status = Title(
        text="unpacking the tasks ...", text_font_size="11px", text_font_style="normal", standoff=2
    )
    plot.add_layout(status, "below")
    draw = CustomJS(
        code=script("plots/tasks/tasks.js"),
        args={
            "plot": plot,
            "status": status,
            "packed_tasks": packed,
            "packed_keys": keys,
            "size_of_keys": room,
            "tick": tasks.tick,
            "rectangles": rectangles,
            "pixels": pixels,
            "marks": list(marks.values()),
            "marked": [_codes_of(tasks, outcome) for outcome in marks],
            "lane_height": LANE,
            "full": FULL,
            **settings,
        },
    )
    plot.js_on_change("inner_width", draw)


def _tell_of_pixels(plot: Any, image: Any, workers: list[str]) -> None:
    """Have the hover tool, if the figure has one, tell what is in a pixel."""
    if not plot.select(HoverTool):
        return
    args = {"pixels": image.data_source, "names": workers, "lane_height": LANE}
    hover = HoverTool(
        renderers=[image],
        tooltips=[("worker", "$y{custom}"), ("time", "$x{0.000000} s"), ("in it", "$sx{custom}")],
        formatters={
            "$y": CustomJSHover(args=args, code=_WORKER),
            "$sx": CustomJSHover(args=args, code=_IN_PIXEL),
        },
        point_policy="follow_mouse",
        visible=False,
    )
    plot.add_tools(hover)


def _keys_that_fit(tasks: TasksInLanes, room: int) -> tuple[dict[str, Any] | None, int]:
    """The keys, packed, if there is room for them, and how many bytes they take or would take."""
    every = max(1, len(tasks) // _SAMPLE)
    likely = every * size_in_page(tasks.rows(slice(None, None, every)).packed_keys())
    if likely > _HOPELESS * room:
        return None, likely
    keys = tasks.packed_keys()
    size = size_in_page(keys)
    return (keys if size <= room else None), size


def _codes_of(tasks: TasksInLanes, outcome: str) -> list[int]:
    """The codes of the tasks that ended so, whatever their error."""
    texts = tasks.outcome.values
    return [code for code, text in enumerate(texts) if text.partition(": ")[0] == outcome]
