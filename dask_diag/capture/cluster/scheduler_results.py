"""What the scheduler's side of capture learns of results in distributed memory.

This module is shipped: see `scheduler_plugin`.
"""

from __future__ import annotations

from collections.abc import Hashable
from time import perf_counter

from dask_diag.capture.cluster.formats import RESULT
from dask_diag.capture.cluster.scheduler_computations import ComputationCollector
from dask_diag.capture.cluster.scheduler_sessions import BYTES_PER_KEY, Session, size_of
from dask_diag.capture.cluster.scheduler_tasks import Cached, Task

__all__ = ["ResultCollector"]


class ResultCollector(ComputationCollector):
    """Collects for how long results were in memory, by client."""

    def _result_came_or_went(self, key: Hashable, task: Task, finish: str) -> None:
        now = perf_counter()
        if finish == "memory":
            nbytes = float(self.scheduler.tasks[key].get_nbytes())
            task.cached = Cached(task.computation, nbytes, now)
        elif task.cached is not None:
            for session in task.cached.computation.sessions:
                self._record_result(session, key, task.cached, now)
            task.cached = None

    def _record_result(self, session: Session, key: Hashable, cached: Cached, stop: float) -> None:
        """A result was in distributed memory from when it came to `stop`."""
        if not session.wants.get("results"):
            return
        if not session.has_room(RESULT.size + BYTES_PER_KEY + size_of(key)):
            return
        session.result_keys.append(key)
        start = max(cached.start, session.start)
        session.results += RESULT.pack(cached.computation.number, cached.nbytes, start, stop)

    def _record_results(self, session: Session) -> None:
        """The results that are there until now."""
        now = perf_counter()
        for key, task in self.tasks.items():
            if task.cached is not None and session in task.cached.computation.sessions:
                self._record_result(session, key, task.cached, now)
