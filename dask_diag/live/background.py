"""Findings about what has been recorded so far, on a thread that has little of the time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from math import inf, isnan
from pathlib import Path
from time import monotonic, thread_time

from dask_diag.analysis.findings.rule import Finding
from dask_diag.analysis.findings.rules import findings
from dask_diag.formatting import count
from dask_diag.live.texts import duration
from dask_diag.live.viewer import Viewer
from dask_diag.storage.follow import FollowState
from dask_diag.storage.read import load


async def made_report(path: str | os.PathLike[str]) -> bytes | None:
    """The page; None if none can be made. If it is not waited for, its process is killed.

    Parameters
    ----------
    path : str or os.PathLike
    """
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, os.path.abspath(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Modules where the user is must not take the place of others.
        cwd=os.path.abspath(os.sep),
    )
    try:
        # In a thread: not every system's event loop can wait for processes.
        page, _ = await asyncio.get_running_loop().run_in_executor(None, process.communicate)
    finally:
        # Of a process that has ended nothing is killed.
        process.kill()
    return page if process.returncode == 0 else None


def main(path: str) -> None:
    """Write the page to stdout."""
    from dask_diag.analysis.facts import Analysis
    from dask_diag.errors import DiagnosticError
    from dask_diag.storage.read import load
    from dask_diag.views.report.page import report_page

    try:
        page = report_page(Analysis(load(path)), file=path)
    except DiagnosticError:
        sys.exit(1)
    sys.stdout.buffer.write(page.encode())


if __name__ == "__main__":
    main(sys.argv[1])


MOST_TASKS = 100_000
"""Findings of more tasks take a whole recording's memory: a page leaves them to the report."""
_SHARE = 0.001
"""Of a core, that they may take: what follows the file takes a few times as much."""
_SHORTEST_PAUSE = 4.0
_EARLIEST = 10.0
"""Seconds of a recording before which there is little to be found, unless it is over."""


class FindingsSoFar:
    """The findings of a file, made again every now and then.

    Parameters
    ----------
    path : Path
    make : callable, optional
        Makes the findings of the file; those that lost most come first if it is not given.
    clock, cpu_time : callable, optional
        Seconds.

    Attributes
    ----------
    findings : list of Finding
    problem : str
        Why there are no newer ones.
    revision : int
        It grows with each time that they are made.
    """

    def __init__(
        self,
        path: Path,
        make: Callable[[Path], list[Finding]] | None = None,
        clock: Callable[[], float] = monotonic,
        cpu_time: Callable[[], float] = thread_time,
    ) -> None:
        self.findings: list[Finding] = []
        self.problem = ""
        self.revision = 0
        self._path = path
        self._make = make or _findings_by_loss
        self._clock = clock
        self._cpu_time = cpu_time
        self._next = 0.0
        self._is_final = False
        self._are_final = False
        self._generation = 0
        self._of = 0.0
        self._made_of = -1
        self._thread: threading.Thread | None = None

    def refresh(self, viewer: Viewer) -> None:
        """Start to make them again, if it is time to."""
        model = viewer.model
        if model.generation != self._generation:
            self._forget(model.generation)
        if not viewer.is_over:
            self._is_final = False
        is_running = self._thread is not None and self._thread.is_alive()
        has_some = (model.recorded and model.stop - model.start >= _EARLIEST) or viewer.is_over
        if is_running or self._is_final or not has_some or model.recorded > MOST_TASKS:
            return
        # Of the same rows they would say the same. Those of a recording that is over are the last:
        # they are not put off.
        are_due = self._clock() >= self._next and model.revision != self._made_of
        if are_due or viewer.is_over:
            self._start(viewer)

    def _forget(self, generation: int) -> None:
        """Of another recording, none is shown."""
        self._generation = generation
        self.findings, self.problem, self._next = [], "", 0.0
        self._is_final = self._are_final = False
        self._of = 0.0
        self.revision += 1

    def _start(self, viewer: Viewer) -> None:
        self._is_final = viewer.is_over
        self._made_of = viewer.model.revision
        lasted = viewer.model.stop - viewer.model.start
        self._thread = threading.Thread(
            target=self._run, args=(lasted,), name="findings", daemon=True
        )
        self._thread.start()

    def finish(self, viewer: Viewer) -> list[Finding]:
        """Those of a recording that is over, however many tasks it has."""
        if self._thread is not None:
            self._thread.join()
        if viewer.model.has_rows and not self._is_final:
            self._start(viewer)
        if self._thread is not None:
            self._thread.join()
        return self.findings

    def note(self, viewer: Viewer) -> str:
        """What is to be known about them; nothing if they are all there are."""
        if self.problem:
            return self.problem
        if viewer.model.recorded > MOST_TASKS:
            return f"of more than {count(MOST_TASKS)} tasks they are in the report, at the end"
        if self._are_final:
            # What was lost is not in them, and nothing more comes.
            is_complete = viewer.model.state == FollowState.COMPLETE
            return "" if is_complete else f"of the {duration(self._of)} that were recorded"
        return f"of the first {duration(self._of)}, so far" if self._of else "so far"

    def _run(self, lasted: float) -> None:
        start, generation, are_final = self._cpu_time(), self._generation, self._is_final
        made: list[Finding] = []
        problem = ""
        try:
            made = self._make(self._path)
        except Exception as error:
            # The file may be replaced or damaged just then.
            problem = f"could not be made: {error}"
        if generation != self._generation:
            return
        self.findings, self.problem = (self.findings if problem else made), problem
        self._are_final, self._of = are_final, lasted
        self.revision += 1
        took = self._cpu_time() - start
        self._next = self._clock() + max(_SHORTEST_PAUSE, took / _SHARE)


def _findings_by_loss(path: Path) -> list[Finding]:
    return sorted(findings(load(path)), key=_order)


def _order(finding: Finding) -> tuple[bool, float]:
    """By seconds lost, the most first: a live view shows them, and not how severe findings are.

    Without a result no other finding matters; those whose seconds are not known come last.
    """
    lost = finding.seconds_lost
    return finding.code != "failed-tasks", inf if isnan(lost) else -lost
