"""Findings so far, made by a thread that takes a thousandth of a core; the report, by a process."""

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
from typing import NamedTuple

from dask_diag.analysis.findings.rule import Finding
from dask_diag.formatting import count
from dask_diag.live.model import LiveModel
from dask_diag.live.texts import duration
from dask_diag.storage.follow import FollowState
from dask_diag.storage.read import load
from dask_diag.views.summary import findings


async def made_report(path: str | os.PathLike[str]) -> bytes | None:
    """The report's page, or None if it cannot be made; a cancelled wait kills the process.

    Parameters
    ----------
    path : str or os.PathLike
    """
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, os.path.abspath(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Modules in the user's folder must not replace others.
        cwd=os.path.abspath(os.sep),
    )
    try:
        # In a thread: not every system's event loop can wait for processes.
        page, _ = await asyncio.get_running_loop().run_in_executor(None, process.communicate)
    finally:
        # This does nothing to a process that has ended.
        process.kill()
    return page if process.returncode == 0 else None


def main(path: str) -> None:
    """Write the report's page to stdout."""
    from dask_diag.analysis.facts import Analysis
    from dask_diag.errors import DiagnosticError
    from dask_diag.views.report.page import report_page

    try:
        page = report_page(Analysis(load(path)), file=path)
    except DiagnosticError:
        sys.exit(1)
    sys.stdout.buffer.write(page.encode())


if __name__ == "__main__":
    main(sys.argv[1])


MOST_TASKS = 100_000
"""Findings of more tasks take as much memory as the recording: a page leaves them to the report."""
_SHARE = 0.001
"""Share of a core for findings."""
_SHORTEST_PAUSE = 4.0
_EARLIEST = 10.0
"""Seconds of a recording before which little can be found, unless it is over."""


class _Rows(NamedTuple):
    """Rows of which findings are made."""

    generation: int
    revision: int
    is_over: bool
    lasted: float


class FindingsSoFar:
    """Findings of a file that grows, updated now and then by a thread.

    At most one thread runs. Attributes get whole objects, `revision` last.

    Parameters
    ----------
    path : Path
    make : callable, optional
        Makes the findings of the file; by default by seconds lost.
    clock, cpu_time : callable, optional
        Seconds.

    Attributes
    ----------
    findings : list of Finding
    problem : str
        Error of the last update.
    revision : int
        Number of updates.
    """

    def __init__(
        self,
        path: Path,
        make: Callable[[Path], list[Finding]] | None = None,
        clock: Callable[[], float] = monotonic,
        cpu_time: Callable[[], float] = thread_time,
    ) -> None:
        self.revision = 0
        self._path = path
        self._make = make or _findings_by_loss
        self._clock = clock
        self._cpu_time = cpu_time
        self._thread: threading.Thread | None = None
        self._forget(0)

    def _forget(self, generation: int) -> None:
        self._generation = generation
        self.findings: list[Finding] = []
        self.problem = ""
        self._next = 0.0
        self._started: _Rows | None = None
        self._made: _Rows | None = None

    def _rows(self, model: LiveModel) -> _Rows:
        if model.generation != self._generation:
            self._forget(model.generation)
            self.revision += 1
        lasted = model.stop - model.start
        return _Rows(model.generation, model.revision, model.is_over, lasted)

    def refresh(self, model: LiveModel) -> None:
        """Start an update, if there are new rows and enough time has passed."""
        rows = self._rows(model)
        is_running = self._thread is not None and self._thread.is_alive()
        if is_running or model.recorded > MOST_TASKS or rows == self._started:
            return
        # The last findings of a recording are not put off.
        is_due = model.recorded and rows.lasted >= _EARLIEST and self._clock() >= self._next
        if is_due or rows.is_over:
            self._start(rows)

    def finish(self, model: LiveModel) -> list[Finding]:
        """Wait for the findings of a recording that is over, however many tasks it has."""
        rows = self._rows(model)
        if self._thread is not None:
            self._thread.join()
        if model.has_rows and rows != self._started:
            self._start(rows).join()
        return self.findings

    def note(self, model: LiveModel) -> str:
        """Extent of the findings: of the first seconds, with their age, or empty for all rows."""
        made = self._made
        if self.problem:
            return self.problem
        if model.recorded > MOST_TASKS:
            return f"of more than {count(MOST_TASKS)} tasks they are in the report, at the end"
        if made is None:
            return "so far"
        if not made.is_over:
            age = model.now - model.start - made.lasted
            when = f"{duration(age)} ago" if age >= 1 and not model.is_over else "so far"
            return f"of the first {duration(made.lasted)}, {when}"
        # A recording that lost its end has no findings of it.
        is_complete = model.state == FollowState.COMPLETE
        return "" if is_complete else f"of the {duration(made.lasted)} that were recorded"

    def _start(self, rows: _Rows) -> threading.Thread:
        self._started = rows
        thread = threading.Thread(target=self._run, args=(rows,), name="findings", daemon=True)
        self._thread = thread
        thread.start()
        return thread

    def _run(self, rows: _Rows) -> None:
        start = self._cpu_time()
        made, problem = self.findings, ""
        try:
            made = self._make(self._path)
        except Exception as error:
            # The file may be replaced or damaged at this moment.
            problem = f"could not be made: {error}"
        if rows.generation != self._generation:
            return
        self.findings, self.problem, self._made = made, problem, rows
        took = self._cpu_time() - start
        self._next = self._clock() + max(_SHORTEST_PAUSE, took / _SHARE)
        self.revision += 1


def _findings_by_loss(path: Path) -> list[Finding]:
    """Findings that lost most first: a live view shows seconds, and not how severe findings are."""

    def order(finding: Finding) -> tuple[bool, float]:
        # Without a result no other finding matters; unknown losses come last.
        lost = finding.potential_saving
        return finding.code != "failed-tasks", inf if isnan(lost) else -lost

    return sorted(findings(load(path)), key=order)
