"""What the scheduler's side of capture learns of results in distributed memory.

This module is shipped: see `scheduler_plugin`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from time import perf_counter

from dask_diag.capture.cluster.formats import RESULT
from dask_diag.capture.cluster.scheduler_computations import ComputationCollector
from dask_diag.capture.cluster.scheduler_sessions import BYTES_PER_KEY, Session, size_of
from dask_diag.capture.cluster.scheduler_tasks import Cached, Task, name_of_plain

__all__ = ["ResultCollector"]


class ResultCollector(ComputationCollector):
    """Collects for how long results were in memory, by client."""

    def _result_came_or_went(self, key: Hashable, task: Task, finish: str) -> None:
        now = perf_counter()
        if finish == "memory":
            state = self.scheduler.tasks[key]
            nbytes, function = float(state.get_nbytes()), name_of_plain(key, state)
            task.cached = Cached(task.computation, nbytes, now, function)
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
        if cached.function:
            session.result_functions[len(session.result_keys)] = cached.function
        session.result_keys.append(key)
        start = max(cached.start, session.start)
        session.results += RESULT.pack(cached.computation.number, cached.nbytes, start, stop)

    def _record_results(self, session: Session) -> None:
        """The results that are there until now."""
        now = perf_counter()
        for key, task in self.tasks.items():
            if task.cached is not None and session in task.cached.computation.sessions:
                self._record_result(session, key, task.cached, now)

    def _recorders_of_dependents(self, key: Hashable) -> Sequence[Session]:
        """Those of the first recorded task that takes a result, which no recorded task made."""
        state = self.scheduler.tasks.get(key)
        for dependent in state.dependents if state is not None else ():
            task = self.tasks.get(dependent.key)
            if task is not None and task.computation.recorders:
                return task.computation.recorders
        return ()
