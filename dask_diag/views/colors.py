"""A colour for each function and activity: always the same, whatever else is drawn."""

from __future__ import annotations

import colorsys
import zlib
from collections.abc import Iterable

from dask_diag.errors import DiagnosticError

__all__ = ["color_of", "color_of_activity", "colors_of", "stacking_order"]

_HUES = 41
_SALT = 9106
"""A start of the digest that sets apart the names which dask's collections often use together."""
_SHADES = ((0.34, 0.55), (0.50, 0.60), (0.66, 0.58))

_BEFORE_METERED = {"thread-cpu": "#0b5394"}
_AFTER_METERED = {
    "thread-noncpu": "#8fc1e9",
    "cpu-wait": "#f2c80f",
    "gil-wait": "#a5278f",
    "lock-wait": "#6a3d9a",
    "io-wait": "#1b8a5a",
    "sleep": "#bfe3c9",
    "device-wait": "#5cc4bd",
    "page-fault": "#8c564b",
    "unexplained": "#cfe3f5",
    "deserialize": "#f7b267",
    "serialize": "#d9730d",
    "failed": "#c1121f",
    "unfinished": "#f2a0ab",
    "overhead": "#4f4f4f",
    "other": "#999999",
    "idle": "#e2e2e2",
}
"""Neighbours in a stack differ in lightness too: not everyone tells hues apart."""


def color_of(function: str, palette: str | None = None) -> str:
    """The colour of a function, from its name alone.

    Parameters
    ----------
    function : str
    palette : str, optional
        The name of a bokeh palette to take the colour from.
    """
    digest = zlib.crc32(function.encode("utf-8", "surrogatepass"), _SALT)
    if palette is not None:
        colors = _bokeh_palette(palette)
        return colors[digest % len(colors)]
    lightness, saturation = _SHADES[digest // _HUES % len(_SHADES)]
    channels = colorsys.hls_to_rgb(digest % _HUES / _HUES, lightness, saturation)
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)


def colors_of(functions: Iterable[str], palette: str | None = None) -> list[str]:
    """The colour of each function."""
    return [color_of(function, palette) for function in functions]


def color_of_activity(activity: str, palette: str | None = None) -> str:
    """The colour of an activity; of one that was metered, it follows from its name."""
    fixed = {**_BEFORE_METERED, **_AFTER_METERED}
    return fixed.get(activity) or color_of(activity, palette)


def stacking_order(activity: str) -> tuple[int, str]:
    """By what activities are sorted before they are stacked: useful work first, idle last."""
    if activity in _BEFORE_METERED:
        return (0, activity)
    if activity in _AFTER_METERED:
        return (2 + list(_AFTER_METERED).index(activity), activity)
    return (1, activity)


def _bokeh_palette(name: str) -> tuple[str, ...]:
    from bokeh.palettes import all_palettes

    try:
        sizes = all_palettes[name]
    except (KeyError, TypeError):
        raise DiagnosticError(
            f"palette: expected the name of a bokeh palette, such as 'Viridis' or 'Category20', "
            f"found {name!r}"
        ) from None
    return tuple(sizes[max(sizes)])
