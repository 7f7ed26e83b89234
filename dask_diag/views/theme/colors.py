"""A colour for each function and activity: always the same, whatever else is drawn."""

from __future__ import annotations

import colorsys
import zlib
from collections.abc import Iterable

from dask_diag.errors import DiagnosticError
from dask_diag.schema import Activity

__all__ = [
    "color_of",
    "color_of_activity",
    "colors_of",
    "pale_color_of",
    "stacking_order",
    "text_color_on",
]

_HUES = 41
_SALT = 9106
"""A start of the digest that sets apart the names which dask's collections often use together."""
_SHADES = ((0.34, 0.55), (0.50, 0.60), (0.66, 0.58))

_BEFORE_METERED = {Activity.CPU: "#1567b1"}
_AFTER_METERED = {
    Activity.NONCPU: "#8fc1e9",
    Activity.CPU_WAIT: "#f2c80f",
    Activity.GIL_WAIT: "#b02d99",
    Activity.LOCK_WAIT: "#7d50ad",
    Activity.IO_WAIT: "#1b8a5a",
    Activity.SLEEP: "#bfe3c9",
    Activity.DEVICE_WAIT: "#5cc4bd",
    Activity.PAGE_FAULT: "#8c564b",
    Activity.UNEXPLAINED: "#cfe3f5",
    Activity.DESERIALIZE: "#f7b267",
    Activity.SERIALIZE: "#d9730d",
    Activity.FAILED: "#cd1a27",
    Activity.UNFINISHED: "#f2a0ab",
    Activity.GRAPH: "#96704a",
    Activity.STARTUP: "#b89b7a",
    Activity.OVERHEAD: "#656565",
    Activity.OTHER: "#999999",
    Activity.IDLE: "#e2e2e2",
}
"""Neighbours in a stack differ in lightness too: not everyone can distinguish hues.

None is too dark for the dark theme: each has a contrast of 3 or more to its background.
"""


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
    return _hex(colorsys.hls_to_rgb(digest % _HUES / _HUES, lightness, saturation))


def colors_of(functions: Iterable[str], palette: str | None = None) -> list[str]:
    """The colour of each function."""
    return [color_of(function, palette) for function in functions]


def pale_color_of(family: str, member: str, palette: str | None = None) -> str:
    """A light colour of the family's hue; how light follows from the member's name.

    Parameters
    ----------
    family, member : str
        Such as a package and one of its files.
    palette : str, optional
        The name of a bokeh palette to take the family's colour from.
    """
    red, green, blue = _channels(color_of(family, palette))
    hue, _, saturation = colorsys.rgb_to_hls(red, green, blue)
    lightness = 0.74 + 0.02 * (zlib.crc32(member.encode("utf-8", "surrogatepass"), _SALT) % 7)
    return _hex(colorsys.hls_to_rgb(hue, lightness, saturation))


def text_color_on(background: str) -> str:
    """Of black and white the one that is read more easily."""
    light = _luminance(background)
    against_white, against_black = 1.05 / (light + 0.05), (light + 0.05) / 0.05
    return "#ffffff" if against_white > against_black else "#000000"


def _luminance(color: str) -> float:
    """How bright a colour is to the eye, from 0 to 1."""
    red, green, blue = (
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in _channels(color)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _channels(color: str) -> tuple[float, float, float]:
    red, green, blue = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return red, green, blue


def _hex(channels: Iterable[float]) -> str:
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)


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
