"""Files of pages: scripts, linked for bokeh; styles; images."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from bokeh.models import CustomJS

# `link` understands no other forms of modules: eslint.config.js refuses them.
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "([^"]+)"$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)
# A browser needs no comments, no empty lines, and no space before code, and a page has some modules
# ten times. No text in a module has several lines.
_UNREAD = re.compile(r"^ *//.*\n| {2,}//.*$|^ *\n|^ +", re.MULTILINE)


def text_of(name: str) -> str:
    """Text of a file, by its path from the views on."""
    return files("dask_diag.views").joinpath(name).read_text(encoding="utf-8")


@cache
def link(name: str) -> str:
    """Statements that define a module as a constant, after the modules that it imports.

    Parameters
    ----------
    name : str
        Path of the module, from the views on.

    Returns
    -------
    str
        Each module is one constant, called by `_constant`, with its exports: names that a module
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
    """Body of a function that returns the result of a function of a module."""
    return f"{link(name)}\nreturn {_constant(name)}.{function}({arguments})"


def callback(name: str, function: str, args: Mapping[str, object]) -> CustomJS:
    """Script that calls a function of a module with these arguments, as one object."""
    return CustomJS(args=dict(args), code=call(name, function, f"{{{', '.join(args)}}}"))
