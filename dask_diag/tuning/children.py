"""Child processes that are timed, and that never outlive this one's interest in them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import IO, NamedTuple

import psutil

__all__ = ["Ended", "run_child"]


class Ended(NamedTuple):
    """How a process ended.

    Attributes
    ----------
    wall : float
        Seconds from its start to its end.
    status : int
        Its exit status, or minus the number of the signal that ended it.
    timed_out : bool
        Whether it was ended for taking too long.
    """

    wall: float
    status: int
    timed_out: bool


def run_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout: float,
    *,
    stdout: IO[bytes],
    stderr: IO[bytes],
    stdin: IO[bytes] | None = None,
) -> Ended:
    """Run a command to its end, or end it; nothing that it started stays behind.

    Its standard input is empty if none is given. It is in a group of its own, so that Ctrl-C
    reaches it through this process only, which then ends it.
    """
    timed_out = threading.Event()
    start = perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=stdout,
        stderr=stderr,
        env=dict(environment),
        start_new_session=True,
    )

    def end() -> None:
        timed_out.set()
        _kill(process)

    timer = threading.Timer(timeout, end)
    timer.daemon = True
    try:
        timer.start()
        _wait(process)
        wall = perf_counter() - start
    finally:
        timer.cancel()
        timer.join()
        # Also after its end: the processes that it started and left.
        _kill(process)
        process.wait()
    return Ended(wall, process.returncode, timed_out.is_set())


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end, exactly: `Popen.wait` with a timeout would look every 50 ms."""
    if hasattr(os, "waitid"):
        # Its number is not given to another process before it is waited for.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    else:
        process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started, also those with a group of their own."""
    descendants: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        descendants = psutil.Process(process.pid).children(recursive=True)
    if hasattr(os, "killpg"):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process.returncode is None:
        with contextlib.suppress(OSError):
            process.kill()
    for descendant in descendants:
        with contextlib.suppress(psutil.Error):
            descendant.kill()
