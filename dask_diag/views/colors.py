"""Colours of functions and activities: few, and no two alike."""

from __future__ import annotations

import colorsys
import zlib
from bisect import bisect_left
from collections.abc import Iterable
from itertools import islice

from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import Activity

OTHER = "#868686"
"""Colour of functions without a colour of their own."""

_COLORS = (
    *("#84606c", "#1854fc", "#bd886b", "#0398f6", "#96980c"),
    *("#ac20ae", "#6c9c9c", "#008424", "#ef438c", "#6c6c54"),
)
"""Colours that differ also for readers who see fewer hues, on a light and on a dark page.

No colour is like a colour with a meaning on the page: red is for failures.
"""
_SALT = 47
"""Start of the digest that sets apart names that dask's collections often use together."""

_BEFORE_METERED = {Activity.CPU: "#1567b1"}
_AFTER_METERED = {
    Activity.NONCPU: "#e5b93c",
    Activity.CPU_WAIT: "#ffea61",
    Activity.GIL_WAIT: "#f28e2b",
    Activity.LOCK_WAIT: "#d9590e",
    Activity.IO_WAIT: "#96582f",
    Activity.CHILD_WAIT: "#e2bfa4",
    Activity.SLEEP: "#fbe6b0",
    Activity.DEVICE_WAIT: "#c09f66",
    Activity.PAGE_FAULT: "#c66c6c",
    Activity.UNEXPLAINED: "#c0c87e",
    Activity.DESERIALIZE: "#6fc4ae",
    Activity.SERIALIZE: "#2a9d84",
    Activity.TRANSFER: "#3fb8c9",
    Activity.SPILL: "#a8568c",
    Activity.FAILED: "#cd1a27",
    Activity.UNFINISHED: "#f2a0ab",
    Activity.CANCELLED: "#e6d3d6",
    Activity.RESCHEDULED: "#c9a7b4",
    Activity.GRAPH: "#8d78ad",
    Activity.STARTUP: "#d8a2fc",
    Activity.PROFILERS: "#b763e8",
    Activity.OVERHEAD: "#757575",
    Activity.OTHER: "#a6a6a6",
    Activity.IDLE: "#e2e2e2",
}
"""CPU time is blue, waits are warm, pickling is green, the rest grey or pale.

Neighbours in a stack differ in lightness too: not everyone can distinguish hues. Each colour has a
contrast of 3 or more to the background of the dark theme.
"""


_PHASES = {
    "before": "#a9bcd6",
    "preparing": "#8d78ad",
    "tasks": "#7a8794",
    "between": "#8790ab",
    "after": "#b4eafc",
}


class FunctionColors:
    """Colours of functions, the same in all plots of a page.

    A name wishes for a colour, whatever else is drawn. Of functions with the same wish the first
    gets the colour, the others get the next free colour. When no colour is left, functions are
    `OTHER`.

    Parameters
    ----------
    functions : iterable of str
        The most important functions first.
    palette : str, optional
        The name of a bokeh palette to take the colours from.
    """

    def __init__(self, functions: Iterable[str], palette: str | None = None) -> None:
        colors = _COLORS if palette is None else _bokeh_palette(palette)
        free = list(range(len(colors)))
        self._colors: dict[str, str] = {}
        for name in islice(dict.fromkeys(functions), len(colors)):
            wish = _digest(name) % len(colors)
            # The first free colour from the wish on, and then from the start.
            slot = free.pop(bisect_left(free, wish) % len(free))
            self._colors[name] = colors[slot]

    def __getitem__(self, function: str) -> str:
        return self._colors.get(function, OTHER)

    def __contains__(self, function: object) -> bool:
        """Whether a function has a colour of its own."""
        return function in self._colors


def color_of(name: str, palette: str | None = None) -> str:
    """Colour that a name wishes for, whatever else is drawn.

    Parameters
    ----------
    name : str
    palette : str, optional
        The name of a bokeh palette to take the colour from.
    """
    return FunctionColors([name], palette)[name]


def _digest(name: str) -> int:
    return zlib.crc32(name.encode("utf-8", "surrogatepass"), _SALT)


def pale_color_of(family: str, member: str, palette: str | None = None) -> str:
    """Light colour of the family's hue, as light as follows from the member's name.

    Parameters
    ----------
    family, member : str
        Such as a package and one of its files.
    palette : str, optional
        The name of a bokeh palette to take the family's colour from.
    """
    red, green, blue = _channels(color_of(family, palette))
    hue, _, saturation = colorsys.rgb_to_hls(red, green, blue)
    lightness = 0.74 + 0.02 * (_digest(member) % 7)
    return _hex(colorsys.hls_to_rgb(hue, lightness, saturation))


def text_color_on(background: str) -> str:
    """Black or white: the colour that is read more easily."""
    light = _luminance(background)
    against_white, against_black = 1.05 / (light + 0.05), (light + 0.05) / 0.05
    return "#ffffff" if against_white > against_black else "#000000"


def _luminance(color: str) -> float:
    """Brightness of a colour to the eye, from 0 to 1."""
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
    """Colour of an activity; for a metered activity it follows from the name."""
    fixed = {**_BEFORE_METERED, **_AFTER_METERED}
    return fixed.get(activity) or color_of(activity, palette)


def color_of_phase(phase: str) -> str:
    """Colour of a phase of the wall time in which no tasks run."""
    return _PHASES[phase]


def stacking_order(activity: str) -> tuple[int, str]:
    """Sorting key of activities in a stack: useful work first, idle last."""
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
