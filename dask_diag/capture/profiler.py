"""The profiler of tasks."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from math import isnan
from typing import TYPE_CHECKING

from dask_diag.capture.compute import Compute
from dask_diag.capture.described import DescribedTask
from dask_diag.capture.diagnostic import TaskDiagnostic

if TYPE_CHECKING:
    from dask_diag.recording import Recording

__all__ = ["Profiler", "TaskData"]

TaskData = namedtuple("TaskData", ("key", "task", "start_time", "end_time", "worker_id"))
"""A task that was done, as `Profiler.results` hold it."""


class Profiler(TaskDiagnostic):
    """Profile computes task by task, on dask's local schedulers.

    Each task's start, stop and CPU time are read on the thread that runs it, in whichever process
    that is; the scheduler's own two times, submitted and collected, are kept beside them.

    Attributes
    ----------
    results : list of TaskData
        Key, task, start and stop (seconds of ``time.perf_counter()``) and worker of each task that
        was done. The task is described, not kept: see `DescribedTask`.
    recording : Recording
        Everything that was measured, with the tasks that failed or were not finished.

    Examples
    --------
    >>> from operator import add, mul
    >>> from dask.threaded import get
    >>> from dask_diag import Profiler
    >>> dsk = {"x": 1, "y": (add, "x", 10), "z": (mul, "y", 2)}
    >>> with Profiler() as prof:
    ...     get(dsk, "z")
    22
    >>> [task.key for task in prof.results]
    ['y', 'z']
    """

    @property
    def recording(self) -> Recording:
        """The tasks of all computes so far, those in flight included."""
        from dask_diag.capture import freeze, freeze_tasks

        return freeze.record(self, **freeze_tasks.tasks_tables(self._computes))

    @property
    def metrics(self) -> dict[tuple[str, str, str, str], float]:
        """What tasks did: ``("execute", prefix, activity, unit)`` to a value, as in distributed."""
        from dask_diag.analysis.activities import execute_metrics

        return execute_metrics(self.recording)

    def _results_of(self, compute: Compute) -> Iterator[TaskData]:
        from dask_diag.capture import freeze_tasks

        table = freeze_tasks.tasks_tables([compute])["tasks"]
        keys = list(compute.keys)
        worker = {"processes": "pid", "threads": "thread"}.get(compute.scheduler)
        workers = table[worker].tolist() if worker else [None] * len(table)
        names = ("start", "stop", "function", "collected", "outcome", "submitted")
        columns = [table[name].tolist() for name in names]
        for key, (start, stop, function, collected, outcome, _), who in zip(
            freeze_tasks.in_order_of_submission(compute, keys),
            zip(*columns, strict=True),
            workers,
            strict=True,
        ):
            if outcome == "ok" and not isnan(collected):
                yield TaskData(key, DescribedTask(key, function), start, stop, who)
