"""How the scheduler's side of capture packs a run of a task, for each session that wants it.

This module is shipped: see `scheduler_plugin`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from dask_diag.capture.cluster.formats import WORKER_ROW
from dask_diag.capture.cluster.scheduler_computations import NESTED
from dask_diag.capture.cluster.scheduler_others import OthersCollector
from dask_diag.capture.cluster.scheduler_records import OK, RUN, End, RunDetails
from dask_diag.capture.cluster.scheduler_sessions import Computation, Session
from dask_diag.capture.cluster.scheduler_tasks import Task, name_of_plain

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

__all__ = ["RunPacker"]


class RunPacker(OthersCollector):
    """Packs rows of runs."""

    def _record(
        self,
        key: Hashable,
        task: Task,
        row: bytes,
        end: End,
        recorders: Sequence[Session] | None = None,
    ) -> None:
        """Record a run that ended in another way than with its result, for some sessions or all."""
        outcome, worker, time, measured, error, metrics, sampled = end
        has_details = error or metrics or any(sampled) or task.span != task.computation.span
        details = (error, metrics, task.span, *sampled) if has_details else None
        self._add(
            key, task, row, (outcome, worker, time, measured, 0.0), details, recorders=recorders
        )

    def _add(
        self,
        key: Hashable,
        task: Task,
        row: bytes,
        end: tuple[int, str, float, int, float],
        details: RunDetails | None,
        *,
        recorders: Sequence[Session] | None = None,
    ) -> None:
        """Pack a run for every session of its client, or for `recorders`, with how it ended."""
        number = self.row = self.row + 1
        outcome, worker, time, measured, nbytes = end  # Unlike a named one it takes no time.
        if outcome == OK:
            task.row = number
        computation = task.computation
        if recorders is None:
            recorders = computation.recorders
        if self.is_shared or not recorders:
            self._record_for_others(row, worker, recorders, measured)
            if computation.client.startswith(NESTED):
                self._leave_out_nested()
            if not recorders:
                return
        if computation.client_number < 0:
            self._number_client(computation)
        state = self.scheduler.tasks.get(key)
        depends_on = self._rows_of(state.dependencies) if state and state.dependencies else ()
        packed = row + RUN.pack(
            task.sent,
            time,
            task.queued,
            nbytes,
            self.numbers.get(worker, -1),
            computation.number,
            task.attempt,
            computation.client_number,
            len(depends_on),
            outcome,
            worker != task.worker,
            measured,
        )
        for session in recorders:
            session.add_run(number, key, packed, depends_on, details)
        function = name_of_plain(key, state)
        for session in recorders if function else ():
            session.add_function(number, function)

    def _number_client(self, computation: Computation) -> None:
        """Of its first run: the ids of clients of whom nothing is recorded are not sent."""
        numbers = self.clients
        computation.client_number = numbers.setdefault(computation.client, len(numbers))

    def _rows_of(self, dependencies: Iterable[TaskState]) -> list[int]:
        tasks = (self.tasks.get(other.key) for other in dependencies)
        return [task.row for task in tasks if task is not None and task.row >= 0]

    def _add_seconds(self, computation: Computation, row: bytes) -> None:
        """Add up what tasks took, for progress bars."""
        start, stop, cpu, *_ = WORKER_ROW.unpack(row)
        computation.seconds += stop - start
        computation.cpu_of_tasks += cpu
