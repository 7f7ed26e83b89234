"""``dask-diag run --repeat``: several runs of one program, each as a single one would be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from statistics import median
from types import FrameType
from typing import NoReturn

from dask_diag.cli.output import end_as, one_line, print_message, why_failed

__all__ = ["numbered", "run_repeatedly"]


def numbered(path: str, count: int) -> list[str]:
    """The names of so many files: ``run-1.diag`` of ``run.diag``; patterns list them in order."""
    stem, ending = os.path.splitext(path)
    digits = len(str(count))
    return [f"{stem}-{number:0{digits}}{ending}" for number in range(1, count + 1)]


def run_repeatedly(
    files: Sequence[tuple[str, str | None]], arguments: Sequence[str], quiet: bool
) -> NoReturn:
    """Run ``dask-diag run`` once for each recording, and end as a single run would.

    Parameters
    ----------
    files : sequence of (str, str or None)
        The recording of each run, and its report, if there is to be one.
    arguments : sequence of str
        What else a single run is given: options, the program and its arguments.
    quiet : bool
        Whether to print nothing about the runs.
    """
    status, finished = 0, 0
    with _Interrupts() as interrupts:
        for path, page in files:
            options = ["--quiet", f"--output={path}"]
            options += [] if page is None else [f"--report={page}"]
            command = [*_this_command(), "run", *options, *arguments]
            status = interrupts.wait_for(subprocess.Popen(command))
            if status or interrupts.noted:
                break
            finished += 1
    if finished < len(files):
        print_message(
            f"run {finished + 1} of {len(files)} {_ended(status)}; the runs after it were not "
            "started"
        )
    if finished and not quiet:
        _report([path for path, _ in files[:finished]])
    signal_number = interrupts.noted or -status
    if signal_number > 0:
        end_as(signal_number)
    sys.exit(status)


class _Interrupts:
    """Ctrl-C, SIGTERM and SIGHUP end the running child first, and then this process.

    Ctrl-C reaches the child from the terminal, which may take its time to close its recording.
    """

    _SIGNALS = tuple(
        getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
    )

    def __init__(self) -> None:
        self.noted = 0
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _Interrupts:
        self._handlers = [
            (number, signal.signal(number, self._note))
            for number in self._SIGNALS
            if signal.getsignal(number) not in (signal.SIG_IGN, None)
        ]
        return self

    def __exit__(self, *args: object) -> None:
        for number, handler in self._handlers:
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.noted = number
        self._forward()

    def _forward(self) -> None:
        if self.noted not in (0, signal.SIGINT) and self._child is not None:
            self._child.send_signal(self.noted)

    def wait_for(self, child: subprocess.Popen[bytes]) -> int:
        """The status with which a process ends."""
        self._child = child
        self._forward()
        status = child.wait()
        self._child = None
        return status


def _this_command() -> list[str]:
    """What starts dask-diag as this process was started, up to the command's name.

    With the interpreter's options, and without what ``python -m`` would add to ``sys.path``.
    """
    given = len(sys.argv) - 1
    return [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - given]]


def _report(paths: Sequence[str]) -> None:
    from dask_diag.formatting import seconds
    from dask_diag.storage import load

    names = one_line(paths[0]) + (f" to {one_line(paths[-1])}" if len(paths) > 1 else "")
    try:
        walls = sorted(recording.stop - recording.start for recording in map(load, paths))
    except Exception as error:
        print_message(f"dask-diag: the runs could not be summarized: {why_failed(error)}")
        return
    print_message(
        f"{len(walls)} runs: wall {seconds(median(walls))} (median), {seconds(walls[0])} to "
        f"{seconds(walls[-1])}\nrecordings: {names}"
    )


def _ended(status: int) -> str:
    if status < 0:
        return f"was ended by signal {-status}"
    return f"ended with status {status}" if status else "was interrupted"
