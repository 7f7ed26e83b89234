"""What a person sees on a terminal: a screen of characters, drawn from what programs write."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time

from .commands import Command, environment

_PIECES = re.compile(r"\x1b\[([?\d;:]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b(.)|([\s\S])")


class Screen:
    """The rows that are shown, and those that have left at the top.

    It knows of the sequences that dask-diag, dask's bar, tqdm and rich write; others are an error.
    """

    def __init__(self, columns=80, rows=10):
        self.columns, self.height = columns, rows
        self.cells, self.row, self.column, self.saved = [[] for _ in range(rows)], 0, 0, (0, 0)
        self.gone = []

    @property
    def lines(self):
        """All rows as text, without what is empty below."""
        lines = self.gone + ["".join(row).rstrip() for row in self.cells]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def feed(self, text):
        """Show text as a terminal does."""
        for numbers, final, escaped, character in _PIECES.findall(text):
            if final:
                self._control(numbers, final)
            elif escaped:
                self._escaped(escaped)
            elif character:
                self._put(character)

    def _put(self, character):
        if character == "\n":
            self._down()
        elif character == "\r":
            self.column = 0
        elif character == "\b":
            self.column = max(0, self.column - 1)
        elif character != "\x07":
            assert character.isprintable(), repr(character)
            if self.column == self.columns:
                self.column = 0
                self._down()
            row = self.cells[self.row]
            row.extend(" " * (self.column + 1 - len(row)))
            row[self.column] = character
            self.column += 1

    def _down(self):
        if self.row < self.height - 1:
            self.row += 1
        else:
            self.gone.append("".join(self.cells.pop(0)).rstrip())
            self.cells.append([])

    def _escaped(self, letter):
        if letter == "7":
            self.saved = self.row, self.column
        elif letter == "8":
            self.row, self.column = self.saved
        else:
            assert letter == "D", letter
            self._down()

    def _control(self, numbers, final):
        count = int(numbers) if numbers.isdigit() else 1
        if final == "A":
            self.row = max(0, self.row - count)
        elif final == "B":
            self.row = min(self.height - 1, self.row + count)
        elif final == "K":
            first = 0 if numbers == "2" else self.column
            del self.cells[self.row][first:]
        elif final == "J":
            del self.cells[self.row][self.column :]
            self.cells[self.row + 1 :] = [[] for _ in self.cells[self.row + 1 :]]
        else:
            # Colours, and whether the cursor is seen.
            assert final in "mhl", (numbers, final)


def seen_on_screen(command, *, does=None, columns=80, rows=10, cwd=None, **variables):
    """The screens that a command made, one for each piece that was read; how it ended.

    Parameters
    ----------
    does : callable, optional
        Called with the lines after each piece; what it returns is typed, `Resize` is done.
    """
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    given = environment(**{"TERM": "xterm", "NO_COLOR": "1", **variables})
    # Of the terminal of pytest, or of one that pytest-xdist thinks up.
    for name in {"COLUMNS", "LINES"} - variables.keys():
        given.pop(name, None)
    screen, screens = Screen(columns, rows), []
    deadline = time.monotonic() + 60
    with Command(command, env=given, cwd=cwd, **streams) as child:
        os.close(terminal)
        try:
            while select.select([controller], [], [], deadline - time.monotonic())[0]:
                piece = os.read(controller, 100_000)
                # The other end writes whole lines and whole sequences, none of 100,000 bytes.
                screen.feed(piece.decode())
                screens.append(screen.lines)
                action = does(screen.lines) if does else None
                if isinstance(action, int):
                    size = struct.pack("HHHH", rows, action, 0, 0)
                    fcntl.ioctl(controller, termios.TIOCSWINSZ, size)
                elif action:
                    os.write(controller, action.encode())
            child.kill()
        except OSError:
            # Nobody has the terminal any more.
            pass
    os.close(controller)
    return screens, child.returncode
