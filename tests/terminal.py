"""Commands in a terminal, of which all that they write is read."""

from __future__ import annotations

import os
import pty

from .commands import Command


def in_terminal(command, columns=80, cwd=None, **variables):
    """The exit status of a command, and what it wrote on a terminal of so many columns."""
    controller, terminal = pty.openpty()
    environment = {"TERM": "xterm", **os.environ, **variables, "COLUMNS": str(columns)}
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    pieces = []
    with Command(command, env=environment, cwd=cwd, **streams) as child:
        os.close(terminal)
        try:
            while piece := os.read(controller, 10_000):
                pieces.append(piece)
        except OSError:
            # The command has ended, and nobody else has the terminal.
            pass
    os.close(controller)
    return child.returncode, b"".join(pieces).decode().replace("\r\n", "\n")
