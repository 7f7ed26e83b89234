"""SVG as an image of a page."""

from __future__ import annotations

import posixpath
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files

from bokeh.models import CustomJS

# All that `link` understands of modules: eslint.config.js refuses other forms.
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "([^"]+)"$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)
# What says nothing to a browser: comments in lines of their own or behind code, empty lines, the
# space before code. A page has some modules ten times. No text in a module has several lines.
_UNREAD = re.compile(r"^ *//.*\n| {2,}//.*$|^ *\n|^ +", re.MULTILINE)


def text_of(name: str) -> str:
    """The text of such a file, by its path from the views on."""
    return files("dask_diag.views").joinpath(name).read_text(encoding="utf-8")


@cache
def link(name: str) -> str:
    """Statements that define a module as a constant, after those that it imports.

    Parameters
    ----------
    name : str
        The path of the module, from the views on.

    Returns
    -------
    str
        Each module is one constant, called by `_constant`, with what it exports: the names that it
        does not export stay its own.
    """
    modules: dict[str, str] = {}
    _add(name, modules)
    return "\n".join(modules.values())


def _add(name: str, modules: dict[str, str]) -> None:
    folder = posixpath.dirname(name)
    text = text_of(name)

    def imported(match: re.Match[str]) -> str:
        other = posixpath.normpath(posixpath.join(folder, match[2]))
        if other not in modules:
            _add(other, modules)
        return f"const {match[1]} = {_constant(other)}"

    body = _IMPORT.sub(imported, text)
    exported = ", ".join(match[2] for match in _EXPORT.finditer(body))
    body = _UNREAD.sub("", _EXPORT.sub(r"\1 \2", body))
    modules[name] = f"const {_constant(name)} = (() => {{\n{body}return {{{exported}}}\n}})()"


def _constant(name: str) -> str:
    return "$" + re.sub(r"\W", "_", name.removesuffix(".js"))


def call(name: str, function: str, arguments: str) -> str:
    """The body of a function which returns what a function of a module returns."""
    return f"{link(name)}\nreturn {_constant(name)}.{function}({arguments})"


def callback(name: str, function: str, args: Mapping[str, object]) -> CustomJS:
    """Call a function of a module with these arguments, as one object."""
    return CustomJS(args=dict(args), code=call(name, function, f"{{{', '.join(args)}}}"))


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
