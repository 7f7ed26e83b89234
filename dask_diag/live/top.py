"""A live view in a terminal: drawn again with each poll, left with `q` or Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.live import Live

from dask_diag.live.findings_so_far import FindingsSoFar
from dask_diag.live.screen import screen
from dask_diag.live.viewer import PERIOD, Viewer
from dask_diag.views.findings import lost

__all__ = ["WIDTH", "show_in_terminal", "show_last_frame"]

WIDTH, HEIGHT = 80, 24


def show_in_terminal(path: str, console: Console) -> None:
    """Draw until the recording is over, then leave its last frame; or until the user leaves."""
    viewer, findings = Viewer(path), FindingsSoFar(Path(path))
    viewer.poll()
    with _keys() as key_within, contextlib.suppress(KeyboardInterrupt):
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not viewer.is_over:
                size = console.size
                frame = screen(viewer, size.width, size.height - 1, _notice(findings))
                live.update(frame, refresh=True)
                findings.refresh(viewer)
                if key_within(PERIOD) == "q":
                    return
                viewer.poll()
        _print_end(viewer, findings, console)


def show_last_frame(
    path: str, console: Console, wait: Callable[[float], None] = time.sleep
) -> None:
    """One frame, when the recording is over; or as it is when the user leaves."""
    viewer, findings = Viewer(path), FindingsSoFar(Path(path))
    viewer.poll()
    with contextlib.suppress(KeyboardInterrupt):
        while not viewer.is_over:
            wait(PERIOD)
            viewer.poll()
    _print_end(viewer, findings, console)


def _print_end(viewer: Viewer, findings: FindingsSoFar, console: Console) -> None:
    if viewer.is_over:
        findings.finish(viewer)
    console.print(screen(viewer, console.width, HEIGHT - 1, _notice(findings)))


def _notice(findings: FindingsSoFar) -> str:
    """The largest finding, in a line."""
    if not findings.findings:
        return ""
    first = findings.findings[0]
    return ": ".join(filter(None, (first.code, lost(first), first.advice)))


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits for a key, and returns it, or nothing after so many seconds."""
    if not _stdin_is_terminal() or sys.platform == "win32":
        yield _only_wait
        return
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)

        def key_within(seconds: float) -> str:
            ready = select.select([file], [], [], seconds)[0]
            return os.read(file, 1).decode("ascii", "replace") if ready else ""

        yield key_within
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


def _only_wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _stdin_is_terminal() -> bool:
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return os.isatty(sys.stdin.fileno())
    return False
