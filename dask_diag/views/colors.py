"""Colors of functions; the name, color and hatch of each other meaning, the same on all pages."""

from __future__ import annotations

import colorsys
import zlib
from bisect import bisect_left
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from dask_diag.analysis import cpu
from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import WORKER_ACTIVITIES, Activity
from dask_diag.views.escaping import shown

OTHER = "#868686"
"""Color of functions without a color of their own."""

_COLORS = (
    *("#84606c", "#1854fc", "#bd886b", "#0398f6", "#96980c"),
    *("#ac20ae", "#6c9c9c", "#008424", "#ef438c", "#6c6c54"),
)
"""Colors that differ also for readers who see fewer hues, on a light and on a dark page.

No color is like a color with a meaning on the page: red is for failures.
"""
_SALT = 47
"""Start of the digest that sets apart names that dask's collections often use together."""


class Look(NamedTuple):
    """How one meaning looks wherever it is shown.

    Attributes
    ----------
    name, color : str
    hatch : str
        As bokeh writes it, on the color made pale; empty if the color is solid. Of a line
        ``"line"`` or ``"dashed"``.
    terminal : str
        The color in a terminal.
    """

    name: str
    color: str
    hatch: str = ""
    terminal: str = "yellow"

    @property
    def style(self) -> str:
        """Class of an element that looks so, whose ``--color`` is the color; see ``theme.css``."""
        return _STYLES.get(self.hatch, self.hatch)


_STYLES = {
    "/": "hatch-up",
    "\\": "hatch-down",
    ".": "hatch-dots",
    "-": "hatch-lines",
    "x": "hatch-cross",
    "v": "hatch-cross",
    " ": "hatch-none",
}

_GRAPH = Look("graph preparation", "#8d78ad", ".", "magenta")
_BEFORE_METERED = {Activity.CPU: Look("tasks computing (CPU)", "#1567b1", terminal="blue")}
_AFTER_METERED = {
    Activity.GC: Look("collecting garbage", "#d8fea1", terminal="green"),
    Activity.NONCPU: Look("tasks off the CPU", "#e5b93c"),
    Activity.CPU_WAIT: Look("tasks waiting for a CPU", "#ffea61"),
    Activity.GIL_WAIT: Look("tasks waiting for the GIL", "#ea833e"),
    Activity.LOCK_WAIT: Look("tasks waiting for locks", "#bd6105"),
    Activity.THREAD_WAIT: Look("tasks waiting for other threads", "#76635d"),
    Activity.IO_WAIT: Look("tasks waiting for I/O", "#9e6d4c"),
    Activity.CHILD_WAIT: Look("tasks waiting for programs", "#e2bfa4"),
    Activity.SLEEP: Look("tasks sleeping", "#f9e9b8"),
    Activity.DEVICE_WAIT: Look("tasks waiting for a device", "#c09f66"),
    Activity.PAGE_FAULT: Look("tasks waiting for memory", "#c37474"),
    Activity.UNEXPLAINED: Look("tasks off the CPU, cause not sampled", "#c0c87e"),
    Activity.DESERIALIZE: Look("deserialization", "#6fc4ae"),
    Activity.SERIALIZE: Look("serialization", "#2a9d84"),
    Activity.TRANSFER: Look("results in flight", "#3fb8c9", "\\"),
    Activity.SPILL: Look("spilling", "#a8568c", "v"),
    Activity.EVENT_LOOP: Look("waiting for event loops", "#d88fae", "\\"),
    Activity.FAILED: Look("tasks that failed", "#cd1a27", terminal="red"),
    Activity.UNFINISHED: Look("tasks that did not finish", "#f2a0ab"),
    Activity.CANCELLED: Look("tasks that were cancelled", "#e6d3d6"),
    Activity.RESCHEDULED: Look("tasks that were rescheduled", "#c9a7b4"),
    Activity.GRAPH: _GRAPH,
    Activity.STARTUP: Look("start-up", "#d8a2fc", ".", "magenta"),
    Activity.PROFILERS: Look("profilers", "#b763e8", ".", "magenta"),
    Activity.OVERHEAD: Look("scheduling overhead", "#757575", "/", "bright_black"),
    Activity.OTHER: Look("not known", "#a6a6a6", "x"),
    Activity.IDLE: Look("no task to run", "#8a8f96", " ", "dim"),
}
"""In the order of stacks. CPU time is blue, waits are warm, serialization is green, and what is no
task is hatched: paler, and gray or purple.

Neighbors in a stack differ in lightness too: not everyone can distinguish hues. Each color has a
contrast of 3 or more to the background of the dark theme.
"""
_OF_FREE_WORKERS = {
    activity: Look(f"no task: {look.name}", look.color, "-")
    for activity, look in _AFTER_METERED.items()
    if activity in (Activity.DESERIALIZE, Activity.SERIALIZE)
}
_PHASES = {
    "before": Look("before the first computation", "#a9bcd6"),
    "preparing": _GRAPH,
    "tasks": Look("tasks, not recorded", "#7a8794"),
    "finishing": Look("putting results together, ending pools", "#dd83bd"),
    "between": Look("between computations", "#8790ab"),
    "after": Look("after the last computation", "#b4eafc"),
}

# What only some pages show.
RUNNING = Look("tasks still running", "#3fa7d6", "/", "cyan")
NO_TASK = Look("no task", "transparent", terminal="bright_black")
PAUSED = Look("worker paused", "#d10557")
ABSENT = Look("worker not there", "#9a9a9a", "/")
OTHER_PROCESSES = Look("other processes", "#a48484", "/")
CPU = Look("CPU", _BEFORE_METERED[Activity.CPU].color, "line")
STRIPED = _AFTER_METERED[Activity.NONCPU]._replace(hatch="striped")
"""A task's time off the CPU, over the color of its function."""
MEMORY = Look("resident memory", "#c2740c", "line")
CHILDREN = Look("of it child processes", "#a8763a", "dashed")
CACHED = Look("cached results", "#00757e", "line")
LIMIT = Look("limit", "#cd1a27", "dashed")
CPU_LAYERS = {
    cpu.TASKS: _BEFORE_METERED[Activity.CPU],
    cpu.SCHEDULER: Look("scheduler", "#5b647b"),
    cpu.THREADS: Look("other threads (pools of libraries)", "#886e1f"),
    cpu.PROFILERS: _AFTER_METERED[Activity.PROFILERS]._replace(hatch=""),
    cpu.WORKER_PROCESSES: Look(cpu.WORKER_PROCESSES, "#3e745b"),
    cpu.PROGRAM: Look(cpu.PROGRAM, "#81936c"),
    cpu.OTHERS: OTHER_PROCESSES,
}


def look_of(part: str, palette: str | None = None, *, is_free: bool | None = None) -> Look:
    """Look of an activity, of a phase, or of what tasks metered under any other label.

    Parameters
    ----------
    part : str
    palette : str, optional
        The name of a bokeh palette to take the colors of metered labels from.
    is_free : bool, optional
        Whether it is an activity of workers without a task, if known: a label may be called so.
    """
    if is_free and part in _OF_FREE_WORKERS:
        return _OF_FREE_WORKERS[part]
    is_label = is_free is False and part in WORKER_ACTIVITIES and part != Activity.OTHER
    known = {} if is_label else {**_BEFORE_METERED, **_AFTER_METERED, **_PHASES}
    return known.get(part) or Look(f"tasks in {shown(part, 28)!r}", color_of(part, palette))


class FunctionColors:
    """Colors of functions, the same in all plots of a page.

    A name wishes for a color, whatever else is drawn. Of functions with the same wish the first
    gets the color, the others get the next free color. When no color is left, functions are
    `OTHER`.

    Parameters
    ----------
    functions : iterable of str
        The most important functions first.
    palette : str, optional
        The name of a bokeh palette to take the colors from.
    """

    def __init__(self, functions: Iterable[str], palette: str | None = None) -> None:
        colors = _COLORS if palette is None else _bokeh_palette(palette)
        free = list(range(len(colors)))
        self._colors: dict[str, str] = {}
        for name in islice(dict.fromkeys(functions), len(colors)):
            wish = _digest(name) % len(colors)
            # The first free color from the wish on, and then from the start.
            slot = free.pop(bisect_left(free, wish) % len(free))
            self._colors[name] = colors[slot]

    def __getitem__(self, function: str) -> str:
        return self._colors.get(function, OTHER)

    def __contains__(self, function: object) -> bool:
        """Whether a function has a color of its own."""
        return function in self._colors


def color_of(name: str, palette: str | None = None) -> str:
    """Color that a name wishes for, whatever else is drawn.

    Parameters
    ----------
    name : str
    palette : str, optional
        The name of a bokeh palette to take the color from.
    """
    return FunctionColors([name], palette)[name]


def _digest(name: str) -> int:
    return zlib.crc32(name.encode("utf-8", "surrogatepass"), _SALT)


def pale_color_of(family: str, member: str, palette: str | None = None) -> str:
    """Light color of the family's hue, as light as follows from the member's name.

    Parameters
    ----------
    family, member : str
        Such as a package and one of its files.
    palette : str, optional
        The name of a bokeh palette to take the family's color from.
    """
    red, green, blue = _channels(color_of(family, palette))
    hue, _, saturation = colorsys.rgb_to_hls(red, green, blue)
    lightness = 0.74 + 0.02 * (_digest(member) % 7)
    return _hex(colorsys.hls_to_rgb(hue, lightness, saturation))


def text_color_on(background: str) -> str:
    """Black or white: the color that is read more easily."""
    light = _luminance(background)
    against_white, against_black = 1.05 / (light + 0.05), (light + 0.05) / 0.05
    return "#ffffff" if against_white > against_black else "#000000"


def _luminance(color: str) -> float:
    """Brightness of a color to the eye, from 0 to 1."""
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
