"""Frames of threads, source files and syntax trees."""

from __future__ import annotations

import ast
import gc
import linecache
import operator
import os
import sys
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from itertools import takewhile
from types import FrameType
from typing import TypeVar, cast

import dask

from dask_diag.model.codes import SENT_CODE

_COLLECTS_WHILE_IT_READS = sys.version_info[:2] == (3, 11)
"""
Whether Python may collect garbage while it reads frames. Python 3.11 makes an object of each frame
when it is first asked for, also by ``f_back``, and may collect before it does. What is collected
may wait for the lock of the list of threads, as a `threading.local` does, which is held meanwhile:
the program stands still. Or it lets other threads run, and the frame that was to be made is gone.
"""


def tracers() -> list[str]:
    """Names of the tracers that are on in this thread or process: their cost is in all times."""
    found, memory = [], sys.modules.get("tracemalloc")
    if memory is not None and memory.is_tracing():
        # A memory profiler of this package says so itself.
        own = sys.modules.get("dask_diag.system.allocations")
        found += ["tracemalloc"] * (own is None or not own.traces())
    if sys.gettrace() is not None:
        found.append("a trace function, as of a debugger or of coverage")
    if sys.version_info >= (3, 12):
        found += filter(None, map(sys.monitoring.get_tool, range(6)))
    # Python 3.12 and later: cProfile is such a tool.
    if sys.getprofile() is not None and not found:
        found.append("a profile function, as of cProfile")
    return found


T = TypeVar("T")

_MOST_CALLS = 10_000
_is_not_false = partial(operator.is_not, False)
_make_callers = operator.attrgetter(".".join(["f_back"] * _MOST_CALLS))
"""Asks for a frame's caller, for that one's, and so on; the outermost frame's has none."""


def current_frames() -> dict[int, FrameType]:
    """Innermost frame of each thread, by ident, as of `sys._current_frames`.

    That of each caller can be read from it at any time.
    """
    if not _COLLECTS_WHILE_IT_READS:
        return sys._current_frames()
    read = _without_collecting(sys._current_frames)
    frames = read[0] if read else sys._current_frames()
    for frame in frames.values():
        try:
            _without_collecting(partial(_make_callers, frame))
        except AttributeError:
            # This is how the outermost frame is reached.
            continue
    return frames


def _without_collecting(read: Callable[[], T]) -> list[T]:
    """Result of a function, alone in a list; an empty list if the collector is off."""
    # Four calls with no step of Python between them: no other thread can run and find the
    # collector off, or switch it off itself and have it on again. The first says whether it is on.
    steps: tuple[Callable[[], object], ...] = (gc.isenabled, gc.disable, read, gc.enable)
    try:
        results = list(takewhile(_is_not_false, map(operator.call, steps)))
    except BaseException:
        gc.enable()
        raise
    return cast("list[T]", results[2:3])


USER, LIBRARY, STANDARD_LIBRARY, OF_DASK, OWN = range(5)
"""Owners, the one first whose line says most to the user."""

_PACKAGE = os.path.dirname(os.path.abspath(sys.modules["dask_diag"].__file__ or "")) + os.sep
_DASK = os.path.dirname(os.path.abspath(dask.__file__)) + os.sep
_PACKAGES = ("/site-packages/", "/dist-packages/")
_STANDARD = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))


@lru_cache(4096)
def owner_of_file(file: str) -> int:
    """Owner of a source file, by the path alone."""
    if file.startswith(_PACKAGE):
        return OWN
    path = file.replace("\\", "/")
    if file.startswith(_DASK) or any(f"{part}distributed/" in path for part in _PACKAGES):
        return OF_DASK
    if any(part in path for part in _PACKAGES):
        return LIBRARY
    if file.startswith((*_STANDARD, "<frozen ", "<unknown>")):
        return STANDARD_LIBRARY
    return USER


def name_of_cell(file: str) -> str:
    """The name of a cell as IPython shows it, by the name of its file; empty for other files."""
    name, ipython = "", sys.modules.get("IPython")
    if ipython is not None:
        # It need not be complete: it may be loaded just now, or be another one's.
        with suppress(Exception):
            _, name = ipython.get_ipython().compile.format_code_name(file)
    return str(name)


_LINES_OF_HEAD = 5
"""Lines from the first of a function on, of which one names it: before it are decorators."""


def file_of_sent_code(name: str, first: int) -> str:
    """The file or the cell of a notebook that defines a function of the main module.

    It is the one with the function's name near its first line: `SENT_CODE` if there is none.
    """
    return _file_of_sent_code(name, first, len(linecache.cache))


@lru_cache(1024)
def _file_of_sent_code(name: str, first: int, known: int) -> str:
    kind = name.rpartition(".")[2]
    word = "lambda" if kind == "<lambda>" else "for" if "<" in kind else f"def {kind}"
    # Cells have no time of change. A later one replaces functions of one before.
    cells = [file for file, entry in linecache.cache.items() if len(entry) > 1 and not entry[1]]
    script: str = getattr(sys.modules["__main__"], "__file__", None) or ""
    for line in range(first, first + _LINES_OF_HEAD):
        for file in (script, *cells[::-1]):
            if word in linecache.getline(file, line):
                return os.path.abspath(file) if os.path.exists(file) else file
    return SENT_CODE


_ATTEMPTS = 5


def parsed(code: str) -> ast.Module | None:
    """Syntax tree of code; None if the code does not parse.

    Up to Python 3.11.7 the parser fails where another thread parses, too, or what is collected
    meanwhile does, as tracebacks that are logged do: then it is asked again.
    """
    for _ in range(_ATTEMPTS):
        try:
            return ast.parse(code)
        except SystemError:
            continue
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return None
