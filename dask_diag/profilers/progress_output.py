"""Where a progress bar is written: a terminal, a notebook's cell, or any other file."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TextIO, runtime_checkable

from dask_diag.errors import ArgumentTypeError

__all__ = ["Place", "ProgressOutput"]


@runtime_checkable
class Place(Protocol):
    """Where lines are written, over and over."""

    def is_in_place(self) -> bool:
        """Whether a line can be drawn over."""

    def columns(self) -> int | None:
        """How many there are; None if it is not known."""

    def write(self, line: str, final: bool = False) -> None:
        """Write a line; a final one is the last of its bar."""


class ProgressOutput:
    """Writes lines, over and over in one place where that can be done.

    Parameters
    ----------
    out : file or None
        None is whatever ``sys.stdout`` is when a line is written.
    fault : callable
        Called with the error if a line cannot be written.

    Raises
    ------
    TypeError
        If it is no file open for writing text.
    """

    def __init__(self, out: TextIO | None, fault: Callable[[Exception], None]) -> None:
        if out is not None and not hasattr(out, "write"):
            raise ArgumentTypeError(f"out: expected a file open for writing text, found {out!r}")
        self._out = out
        self._fault = fault
        # Of what is written last: no lock is taken, and nothing is waited for, while it is held.
        self._writing = threading.RLock()
        self._drawn = 0
        self._displayed: Any = None

    def is_in_place(self) -> bool:
        """Whether a line can be drawn over: on a terminal, and in a notebook."""
        if self._in_notebook():
            return True
        stream = self._stream()
        try:
            return bool(stream is not None and stream.isatty())
        except Exception:
            return False

    def columns(self) -> int | None:
        """Of the terminal; None if it is none, or has no known size."""
        stream = self._stream()
        if stream is None or self._in_notebook() or not self.is_in_place():
            return None
        with suppress(KeyError, ValueError):
            return int(os.environ["COLUMNS"]) or None
        with suppress(OSError, ValueError, AttributeError):
            return os.get_terminal_size(stream.fileno()).columns or None
        return None

    def write(self, line: str, final: bool = False) -> None:
        """Write a line; a final one stays."""
        stream = self._stream()
        if stream is None:
            return
        try:
            with self._writing:
                if self._in_notebook():
                    self._display(line, final)
                    return
                if self.is_in_place():
                    columns = None if final else self.columns()
                    # What is drawn over must not take two lines of the terminal.
                    line = line if columns is None else line[: max(1, columns - 1)]
                    line, self._drawn = f"\r{line:<{self._drawn}}", len(line)
                if final:
                    line, self._drawn = line + "\n", 0
                stream.write(line)
                stream.flush()
        except Exception as error:
            self._fault(error)

    def _stream(self) -> TextIO | None:
        return sys.stdout if self._out is None else self._out

    def _in_notebook(self) -> bool:
        return type(self._stream()).__module__.startswith("ipykernel")

    def _display(self, line: str, final: bool) -> None:
        """Show the line as a cell's output, and replace it from then on: also in the saved file."""
        from IPython.display import display

        data = {"text/plain": line}
        if self._displayed is None:
            self._displayed = display(data, raw=True, display_id=True)
        else:
            self._displayed.update(data, raw=True)
        if final:
            self._displayed = None
