"""Lines below the cursor of a terminal, which stays where the program has left it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

ERASED = "\x1b[J"
"""Erase from the cursor on; the cursor stays."""


def moves_cursor() -> bool:
    """Whether a terminal of this process would move its cursor as it is told."""
    return sys.platform != "win32" and os.environ.get("TERM", "dumb") != "dumb"


def below_cursor(lines: Sequence[str]) -> str:
    """Draw lines in the rows below, for which the screen scrolls if needed; the cursor stays."""
    rows, scrolled, text = len(lines), "\x1bD" * len(lines), "\r\n".join(lines)
    return f"{ERASED}{scrolled}\x1b[{rows}A\x1b7\x1b[B\r{text}\x1b8"
