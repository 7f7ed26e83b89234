"""Findings about what has been recorded so far, on a thread that has little of the time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic, thread_time

from dask_diag.analysis.findings import Finding, findings
from dask_diag.live.viewer import Viewer
from dask_diag.storage import load

__all__ = ["MOST_TASKS", "FindingsSoFar"]

MOST_TASKS = 100_000
"""Of more tasks, findings are made when the recording is complete."""
_SHARE = 0.003
"""Of a core, that they may take: what follows the file takes a few times as much."""
_SHORTEST_PAUSE = 4.0


class FindingsSoFar:
    """The findings of a file, made again every now and then.

    Parameters
    ----------
    path : Path
    make : callable, optional
        Makes the findings of the file.
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
        make: Callable[[Path], list[Finding]] = lambda path: findings(load(path)),
        clock: Callable[[], float] = monotonic,
        cpu_time: Callable[[], float] = thread_time,
    ) -> None:
        self.findings: list[Finding] = []
        self.problem = ""
        self.revision = 0
        self._path = path
        self._make = make
        self._clock = clock
        self._cpu_time = cpu_time
        self._next = 0.0
        self._is_final = False
        self._thread: threading.Thread | None = None

    def refresh(self, viewer: Viewer) -> None:
        """Start to make them again, if it is time to."""
        model = viewer.model
        if not viewer.is_over:
            self._is_final = False
        is_running = self._thread is not None and self._thread.is_alive()
        if is_running or self._is_final or not model.recorded or self._clock() < self._next:
            return
        if model.recorded > MOST_TASKS and not viewer.is_over:
            return
        self._is_final = viewer.is_over
        self._thread = threading.Thread(target=self._run, name="findings", daemon=True)
        self._thread.start()

    def finish(self, viewer: Viewer) -> list[Finding]:
        """Those of a recording that is over."""
        if self._thread is not None:
            self._thread.join()
        self._next = 0.0
        self.refresh(viewer)
        if self._thread is not None:
            self._thread.join()
        return self.findings

    def _run(self) -> None:
        start = self._cpu_time()
        try:
            self.findings = self._make(self._path)
            self.problem = ""
        except Exception as error:
            # The file may be replaced or damaged just then.
            self.problem = f"could not be made: {error}"
        self.revision += 1
        took = self._cpu_time() - start
        self._next = self._clock() + max(_SHORTEST_PAUSE, took / _SHARE)
