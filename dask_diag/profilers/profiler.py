"""The profiler of tasks."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from functools import partial
from math import isnan
from typing import TYPE_CHECKING

from dask_diag.capture.computation import Computation, ComputationSnapshot
from dask_diag.capture.task_info import TaskInfo
from dask_diag.errors import ArgumentTypeError
from dask_diag.hooks.lines import capturing
from dask_diag.model.codes import Outcome
from dask_diag.profilers.base import Diagnostic

if TYPE_CHECKING:
    from dask_diag.cluster.wire import Wants
    from dask_diag.model.recording import Recording
    from dask_diag.profilers.engine import Watch
    from dask_diag.sampling.waits import WaitRecorder


TaskData = namedtuple("TaskData", ("key", "task", "start_time", "end_time", "worker_id"))
TaskData.__doc__ = "A finished task in `Profiler.results`; times of ``time.perf_counter()``."


class Profiler(Diagnostic):
    """Profile computations task by task, on local schedulers and on clusters.

    The thread or process that runs a task reads the task's start, stop and CPU time. The
    scheduler's two times of the task, submitted and collected, are recorded as well.

    Parameters
    ----------
    waits : bool, default False
        Record the reason why a task's thread was off the CPU: the wait for a CPU (exact), for the
        GIL, another lock, files or sockets, a device, the end of a sleep, or memory (sampled every
        10 ms). On Linux only; elsewhere a notice says so.

    Attributes
    ----------
    results : list of TaskData
        Key, task, start and stop (seconds of ``time.perf_counter()``) and worker of each task that
        finished. The task is described, not kept: see `TaskInfo`.
    recording : Recording
        Everything that was measured, including tasks that failed or did not finish.

    See Also
    --------
    record : Runs all profilers over a block.

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

    measures_tasks = True

    def __init__(self, waits: bool = False) -> None:
        if not isinstance(waits, bool):
            raise ArgumentTypeError(f"waits: expected True or False, found {waits!r}")
        super().__init__()
        self._waits = self._wait_recorder() if waits else None
        self._cluster_results: dict[int, int] = {}

    def clear(self) -> None:
        """Forget everything except running computations."""
        super().clear()
        self._cluster_results = {}

    def _wants(self) -> Wants:
        return {
            "tasks": True,
            "waits": self._waits is not None,
            "lines": capturing() is not None,
        }

    @property
    def results(self) -> list[TaskData]:
        """A `TaskData` for each finished task, those of clusters last."""
        with self._lock:
            results = super().results
            if self.clusters.logs:
                from dask_diag.cluster.tables import results_of

                self.clusters.pull()
                logs = self.clusters.logs
                # The rows of one client come while those of another are there already.
                for log, done in zip(logs, results_of(logs), strict=True):
                    results.extend(
                        TaskData(key, TaskInfo(key, function), *others)
                        for key, function, *others in done[self._cluster_results.get(id(log), 0) :]
                    )
                    self._cluster_results[id(log)] = len(done)
            return results

    @property
    def recording(self) -> Recording:
        """The tasks of all computations so far, those in flight included."""
        from dask_diag.capture.build import build_recording
        from dask_diag.capture.increments import tasks_tables

        tables = tasks_tables(self.session)
        return self._with_clusters(build_recording(self.session, self.notices(), tables))

    @property
    def metrics(self) -> dict[tuple[str, str, str, str], float]:
        """Values by ``("execute", prefix, activity, unit)``, as in distributed."""
        from dask_diag.analysis.activities import execute_metrics

        return execute_metrics(self.recording)

    def _calibrate(self) -> None:
        super()._calibrate()
        probe = self._waits.probe() if self._waits else None
        if probe is not None:
            self._calibrate_probe("waits", probe)

    def _began(self, computation: Computation) -> None:
        if self._waits is not None:
            self._waits.begin(computation)

    def tasks_start(self, watch: Watch) -> None:
        """Count the steps in fused tasks that ran in an earlier computation."""
        computation = watch.computation
        repeated = self.session.steps.count(computation.dsk)
        computation.repeated_steps = computation.repeated_steps or repeated

    def computation_ends(self, computation: Computation, failed: bool) -> None:
        """Stop recording waits."""
        if self._waits is not None:
            self._waits.end(computation)

    def _wait_recorder(self) -> WaitRecorder:
        from dask_diag.sampling.waits import WaitRecorder

        return WaitRecorder(lambda: self.is_active, partial(self.fault, "to record waits"))

    def _deactivate(self) -> None:
        super()._deactivate()
        if self._waits is not None:
            self._guarded("to stop recording waits", self._waits.close)

    def notices(self) -> list[str]:
        """Sentences that a reader of the numbers should know."""
        from dask_diag.system.threads import why_not_by_thread

        notices = super().notices()
        if self.session.computations and why_not_by_thread():
            notices.append(f"CPU time of single threads is unknown: {why_not_by_thread()}")
        why_not = self._waits.why_not if self._waits else ""
        if why_not:
            notices.append(f"waits=True has no effect here: {why_not}")
        return notices

    def _results_of(self, computation: ComputationSnapshot) -> list[TaskData]:
        return list(_tasks_done(computation))


def _tasks_done(computation: ComputationSnapshot) -> Iterator[TaskData]:
    from dask_diag.capture.tasks_table import tasks_and_keys

    table, keys = tasks_and_keys(computation)
    worker = {"processes": "pid", "threads": "thread"}.get(computation.facts.scheduler)
    worker_ids = table[worker].tolist() if worker else [None] * len(table)
    names = ("start", "stop", "function", "collected", "outcome")
    columns = [table[name].tolist() for name in names]
    for key, worker_id, row in zip(keys, worker_ids, zip(*columns, strict=True), strict=True):
        start, stop, function, collected, outcome = row
        if outcome == Outcome.OK and not isnan(collected):
            yield TaskData(key, TaskInfo(key, function), start, stop, worker_id)
