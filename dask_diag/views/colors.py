"""A colour for each function: always the same, whatever else is drawn."""

from __future__ import annotations

import colorsys
import zlib
from collections.abc import Iterable

from dask_diag.errors import DiagnosticError

__all__ = ["color_of", "colors_of"]

_HUES = 41
_SALT = 9106
"""A start of the digest that sets apart the names which dask's collections often use together."""
_SHADES = ((0.34, 0.55), (0.50, 0.60), (0.66, 0.58))


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
