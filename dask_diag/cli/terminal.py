"""Terminal of a running program: a line below the program's output.

The cursor stays where the program has left it. The line is on the row below, and is erased before
the program writes. The buffers of ``sys.stdout`` and ``sys.stderr`` announce each write: `print`,
`logging` and everybody who has kept one of the streams write through them. Output of child
processes and of code in C is not announced. It begins where the output has ended, on a row of its
own; the second of several lines meets the rest of the bar.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from mmap import mmap
from time import perf_counter
from typing import TYPE_CHECKING, BinaryIO, TextIO, TypeVar

from dask_diag.cursor import ERASED, below_cursor, moves_cursor

if TYPE_CHECKING:
    from typing_extensions import Self


R = TypeVar("R")
_DRAWS_ITSELF = re.compile(rb"\r(?!\n)|\x08|\x1b(?!\[[\d;:]*(?:m|\Z)|\]|\Z)")
"""Output that moves the cursor and draws over other output: not colors, titles and links."""
_MOST_A_SECOND = 20
"""Lines of output a second above which the bar would flicker, if drawn again at once."""


class ProgramTerminal:
    """Show one line below the program's output on the terminal of stderr, while entered.

    Once the program draws on the terminal itself, with a bar of its own for example, the line is
    not shown any more.

    Raises
    ------
    OSError
        If stderr is no terminal, or one that cannot move the cursor.
    """

    def __init__(self) -> None:
        if not moves_cursor() or not _is_terminal(sys.stderr):
            raise OSError("stderr is no terminal that moves its cursor")
        # The program may close stderr, and open a file that gets its number.
        self._file = os.dup(sys.stderr.fileno())
        self._process = os.getpid()
        # A signal's handler may print while its thread does.
        self._lock = threading.RLock()
        # Shared with processes that the program forks.
        self._is_shown = mmap(-1, 1)
        self._line = b""
        self._lines, self._counted = 0.0, perf_counter()
        self._ends_line = True
        self._is_off = False
        self._buffers: list[tuple[BinaryIO, dict[str, object]]] = []

    def __enter__(self) -> Self:
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            buffer = getattr(stream, "buffer", None)
            hooked = [hooked for hooked, _ in self._buffers]
            if buffer is not None and buffer not in hooked and self._is_of(stream):
                self._hook(buffer)
        return self

    def __exit__(self, *args: object) -> None:
        for buffer, hooks in self._buffers:
            for name, hook in hooks.items():
                if vars(buffer).get(name) is hook:
                    del vars(buffer)[name]
        if os.getpid() == self._process:
            with self._lock:
                self.erase()
                self._is_off = True
                os.close(self._file)

    def is_in_place(self) -> bool:
        """Whether a line can be replaced."""
        return True

    def columns(self) -> int | None:
        """Columns of the terminal; None if unknown."""
        with suppress(KeyError, ValueError):
            return int(os.environ["COLUMNS"]) or None
        with suppress(OSError):
            return os.get_terminal_size(self._file).columns or None
        return None

    def write(self, line: str, final: bool = False, functions: object = None) -> None:
        """Replace the line; a final line is erased, and functions are not shown."""
        with self._lock:
            self._line = b"" if final else self._fitted(line)
            if final:
                self.erase()
            elif self._recent_lines() < _MOST_A_SECOND:
                self._draw()

    def announce(self, line: str) -> None:
        """Show a line until the next output; the program has ended."""
        with self._lock:
            self._line, self._is_off = self._fitted(line), False
            self._draw()
            self._line = b""

    def erase(self) -> None:
        """Erase the line; the program's output stays."""
        with self._lock:
            if self._is_shown[0]:
                self._is_shown[0] = 0
                self._send(ERASED.encode())

    def _fitted(self, line: str) -> bytes:
        """Cut a line to one row of the terminal."""
        columns = self.columns()
        line = line if columns is None else line[: max(1, columns - 1)]
        return line.encode("ascii", "replace")

    def _draw(self) -> None:
        if self._line and not self._is_off and self._may_draw():
            self._is_shown[0] = 1
            self._send(below_cursor([self._line.decode()]).encode())

    def _may_draw(self) -> bool:
        """Whether nothing else uses the terminal.

        A terminal does not edit lines while an editor, a pager or `input` reads keys, and belongs
        to other programs while this program is in the background.
        """
        import termios

        try:
            if not termios.tcgetattr(self._file)[3] & termios.ICANON:
                return False
        except termios.error:
            return False
        with suppress(OSError):
            return os.tcgetpgrp(self._file) == os.getpgrp()
        # It controls no session: then it has no foreground.
        return True

    def _send(self, text: bytes) -> None:
        # What a terminal that is gone does not show is no loss.
        with suppress(OSError):
            os.write(self._file, text)

    def _is_of(self, stream: TextIO | None) -> bool:
        """Whether a stream writes to this terminal."""
        if stream is None or not _is_terminal(stream):
            return False
        return os.fstat(stream.fileno()).st_rdev == os.fstat(self._file).st_rdev

    def _hook(self, buffer: BinaryIO) -> None:
        """Note all output: attributes of an object come before methods of its class.

        Ctrl-C may be raised here, after the buffer has done its work: nothing is written twice
        then, as it would be if the file below the buffer were hooked.
        """
        write, flush = buffer.write, buffer.flush
        is_buffered = hasattr(buffer, "raw")
        waits = False

        def hooked_write(data: bytes) -> int:
            nonlocal waits
            waits = is_buffered
            return self._around(partial(write, data), data, shows=not is_buffered)

        def hooked_flush() -> None:
            nonlocal waits
            if not waits:
                return flush()
            waits = False
            return self._around(flush)

        hooks: dict[str, object] = {"write": hooked_write, "flush": hooked_flush}
        vars(buffer).update(hooks)
        self._buffers.append((buffer, hooks))

    def _around(self, write: Callable[[], R], data: bytes = b"", shows: bool = True) -> R:
        """Write for the program; `shows` says that the output reaches the terminal at once."""
        if os.getpid() != self._process:
            # The lock may have been taken when this process was forked.
            if self._is_shown[0]:
                self._send(ERASED.encode())
            return write()
        with self._lock:
            self._note(data)
            self.erase()
            result = write()
            if shows:
                self._show_again()
            return result

    def _note(self, data: bytes) -> None:
        """Note how the program's output ends."""
        # The buffer refuses other types.
        with suppress(Exception):
            self._is_off = self._is_off or _DRAWS_ITSELF.search(data) is not None
            if len(data):
                self._ends_line = bytes(data[-1:]) == b"\n"

    def _show_again(self) -> None:
        """Show the line at once, unless the program writes much or goes on in this line."""
        if self._ends_line:
            self._lines = min(self._recent_lines() + 1, 2 * _MOST_A_SECOND)
            if self._lines < _MOST_A_SECOND:
                self._draw()

    def _recent_lines(self) -> float:
        """Number of recent lines; each second subtracts `_MOST_A_SECOND`."""
        now = perf_counter()
        self._lines = max(0.0, self._lines - _MOST_A_SECOND * (now - self._counted))
        self._counted = now
        return self._lines


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and os.isatty(stream.fileno())
    except Exception:
        # A stream of the program may raise anything.
        return False
