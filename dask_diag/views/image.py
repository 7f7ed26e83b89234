"""SVG as an image of a page."""

from __future__ import annotations

from base64 import b64encode
from html import escape

__all__ = ["image_tag"]


def image_tag(svg: str, text: str, width: int) -> str:
    """HTML that shows SVG, where JupyterLab shows it in a notebook that is not trusted, too.

    It strips inline SVG, and outputs that are nothing but SVG.

    Parameters
    ----------
    svg : str
    text : str
        What is read in place of the image.
    width : int
        Pixels, if the page has as many.
    """
    data = b64encode(svg.encode()).decode()
    return (
        f'<img alt="{escape(text)}" width="{width}" style="max-width: 100%" '
        f'src="data:image/svg+xml;base64,{data}">'
    )
