"""Environment of a recording: versions, configuration, machine, and the calling code.

Names and text only, in which what looks like a secret is masked.
"""

from __future__ import annotations

import ast
import linecache
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import metadata
from types import FrameType

from dask_diag.system.code import parsed
from dask_diag.system.interpreter import build
from dask_diag.system.secrets import is_secret_name, redacted_repr, redacted_source, redacted_text

Row = tuple[str, str, str]
"""Section, name, value."""

_PACKAGES = (
    "dask", "dask-diag", "distributed", "numpy", "pandas", "scipy", "xarray", "pyarrow", "zarr",
    "fsspec", "numba", "scikit-learn", "cloudpickle", "toolz", "psutil", "threadpoolctl", "bokeh",
)  # fmt: skip
_MODULE = {"scikit-learn": "sklearn", "dask-diag": "dask_diag"}
_THREADS = re.compile(r"(OMP|MKL|OPENBLAS|BLIS|NUMBA|NUMEXPR|VECLIB\w*|GOTO)_(MAX|NUM)_THREADS")
_LONGEST_VALUE = 200
_MOST_LINES = 200
_LINES_AROUND = 8
_PACKAGE = os.path.dirname(os.path.abspath(sys.modules["dask_diag"].__file__ or ""))
_COMMANDS = os.path.join(_PACKAGE, "cli")


def environment() -> list[Row]:
    """Rows of section, name and value."""
    sections = {"versions": _versions, "machine": _machine, "configuration": _configuration}
    return [(section, *row) for section, rows in sections.items() for row in rows()]


def _versions() -> Iterator[tuple[str, str]]:
    """Versions of Python, and of loaded known packages."""
    yield "python", f"{platform.python_version()} ({platform.python_implementation()}{build()})"
    for name in _PACKAGES:
        module = sys.modules.get(_MODULE.get(name, name))
        if module is None:
            continue
        version = getattr(module, "__version__", None)
        if not isinstance(version, str):
            # All metadata of a package takes a third of a millisecond to parse.
            try:
                version = metadata.version(name)
            except metadata.PackageNotFoundError:
                version = "unknown"
        yield name, version


def _machine() -> Iterator[tuple[str, str]]:
    import psutil

    from dask_diag.formatting import size
    from dask_diag.system.usage import processors

    yield "system", platform.platform()
    yield "architecture", platform.machine()
    yield "processors", f"{os.cpu_count()}, of which this process may use {processors()}"
    yield "memory", size(psutil.virtual_memory().total)
    yield "recursion limit", str(sys.getrecursionlimit())
    yield "switch interval", f"{sys.getswitchinterval():g} s"
    for name in sorted(filter(_THREADS.fullmatch, os.environ)):
        yield name, _short(redacted_text(os.environ[name]))


def _configuration() -> Iterator[tuple[str, str]]:
    """Configuration of dask; entries with names like secrets are left out and listed by name."""
    import dask

    left_out = []
    for name, value in _flat(dask.config.config):
        if is_secret_name(name):
            left_out.append(name)
        else:
            yield name, _short(redacted_repr(value))
    if left_out:
        yield "(left out)", "may be secret: " + ", ".join(left_out)


def _flat(config: Mapping[object, object], before: str = "") -> Iterator[tuple[str, object]]:
    for key in sorted(config, key=str):
        value, name = config[key], f"{before}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, name + ".")
        else:
            yield name, value


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def calling_code(frame: FrameType | None) -> list[Row]:
    """Code around the line of `frame`, or of its first caller outside dask_diag.

    It is the whole function, or script, if that is not long; else the ``with`` block; else the
    lines around. Empty if the source is not there. What looks like a secret is masked in it.
    """
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE + os.sep):
        if frame.f_code.co_filename.startswith(_COMMANDS + os.sep):
            # What comes before is what runs commands, and no code of the user's.
            return script_code(sys.argv[0]) if sys.argv else []
        frame = frame.f_back
    if frame is None:
        return []
    code, line = frame.f_code, frame.f_lineno
    lines = linecache.getlines(code.co_filename, frame.f_globals)
    if not 0 < line <= len(lines):
        return []
    first, last = _block_at(lines, line, code.co_name == "<module>")
    # All of the source is masked: what a part of it means depends on the rest.
    masked = redacted_source("".join(lines)).split("\n")[first - 1 : last]
    name = "a script" if code.co_name == "<module>" else code.co_name
    location = f"{os.path.basename(code.co_filename)}:{first}, in {name}"
    return [("calling code", location, "\n".join(masked).rstrip())]


def given_code(text: str, name: str = "as given") -> list[Row]:
    """Beginning of some code, with secrets masked."""
    lines = redacted_source(text).split("\n")[:_MOST_LINES]
    return [("calling code", name, "\n".join(lines).rstrip())]


def script_code(path: str) -> list[Row]:
    """Beginning of the program of a command."""
    lines = linecache.getlines(path) if path.endswith(".py") else []
    return given_code("".join(lines), os.path.basename(path)) if lines else []


def _block_at(lines: list[str], line: int, in_script: bool) -> tuple[int, int]:
    """First and last line of the largest block around a line of at most `_MOST_LINES` lines."""
    blocks = [*([(1, len(lines))] if in_script else []), *_blocks_in("".join(lines))]
    around = max(1, line - _LINES_AROUND), min(len(lines), line + _LINES_AROUND)
    fitting = (
        block
        for block in blocks
        if block[0] <= line <= block[1] and block[1] - block[0] < _MOST_LINES
    )
    return min(fitting, default=around)


@lru_cache(maxsize=8)
def _blocks_in(text: str) -> tuple[tuple[int, int], ...]:
    """First and last line of each function and ``with`` block."""
    tree = parsed(text)
    return tuple(
        (node.lineno, node.end_lineno or node.lineno)
        for node in (() if tree is None else ast.walk(tree))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.With, ast.AsyncWith))
    )
