"""Starts a viewer of a recording as a process of its own, which the program does not wait for."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable

from dask_diag.capture.system.own_threads import OwnThread

__all__ = ["LiveViewer"]

_NOT_STARTED = "dask-diag: the live view could not be started"


class LiveViewer:
    """A viewer, started now; its address is printed on stderr once it listens.

    It has its own session, so that Ctrl-C in the terminal and the program's end do not end it, and
    reads the file alone: nothing connects it with the program.

    Parameters
    ----------
    path : str
    opens_browser : bool, optional
        Whether it opens a browser, if there is a display.
    report : callable, optional
        Prints lines.
    """

    def __init__(
        self,
        path: str,
        *,
        opens_browser: bool = False,
        report: Callable[[str], object] | None = None,
    ) -> None:
        self._report = report or _print_on_stderr
        options = [] if opens_browser else ["--no-browser"]
        command = [sys.executable, "-m", "dask_diag", "live", "--child", *options]
        self.addresses = ""
        self._process = subprocess.Popen(
            [*command, os.path.abspath(path)],
            stdin=subprocess.DEVNULL,
            # Not the program's: who reads these would wait for the viewer's end, too.
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Modules beside the program must not take the place of others.
            cwd=os.path.abspath(os.sep),
            start_new_session=True,
        )
        self._thread = OwnThread("live", self._run)
        self._thread.start()

    def wait_for_address(self, seconds: float) -> None:
        """Wait until the address is printed, but not for long."""
        self._thread.join(seconds)

    def _run(self) -> None:
        # The process started here ends at once. The viewer goes on without it, and closes its
        # stdout once it listens.
        text = self._process.communicate()[0]
        self.addresses = text.decode("utf-8", "replace").strip()
        self._report(self.addresses or _NOT_STARTED)


def _print_on_stderr(text: str) -> None:
    # A program may have closed it, or put anything in its place.
    with contextlib.suppress(Exception):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
