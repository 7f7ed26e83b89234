"""The end of a computation: what was in flight is recorded, and the user's objects are released."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from time import perf_counter

from dask_diag.capture.computation import Computation
from dask_diag.capture.computation_reader import info_at_end, rows_of
from dask_diag.capture.dask_internals import scheduler_locals
from dask_diag.capture.running import stop_running
from dask_diag.capture.snapshot import ComputationSnapshot
from dask_diag.capture.system.thread_clocks import take_cpu_of_own_threads
from dask_diag.capture.system.usage import thread_pools
from dask_diag.capture.tasks.failure import failure_of
from dask_diag.capture.tasks.keys import Keys
from dask_diag.capture.tasks.planned import count_functions, tasks_not_submitted
from dask_diag.capture.tasks.remote_task import take_measurement
from dask_diag.capture.tasks.task_thread import this_thread
from dask_diag.capture.worker_starts import end_of_pool

__all__ = ["count_end", "finish"]

NOT_KNOWN = "unknown"
"""The error of a computation that was left, where nothing says by which."""
WORTH_LISTING_POOLS = 0.1
"""Seconds of a computation from which on the libraries' pools are listed: that takes a
millisecond."""


def finish(computation: Computation, failed: bool) -> None:
    """Publish everything, with what is still in flight; release the graph and every task."""
    if computation.finished is None:
        try:
            _publish(computation, failed)
        except Exception:
            _release(computation)
            raise
    # Also if it was published before: what did so may have been interrupted.
    _release(computation)


def count_end(computation: Computation) -> None:
    """Count what a hook took at its end, also where another one has published the computation."""
    computation.own.end()
    finished = computation.finished
    if finished is not None:
        finished.info = finished.info._replace(ends_cpu=computation.own.cpu)


def _publish(computation: Computation, failed: bool) -> None:
    computation.done_at_end = computation.tasks_done()
    computation.threads.stop()
    error, end = _failure_of(computation) if failed else ("", "")
    # If it failed, others of its tasks go on: none is to start or stop after the computation does.
    in_flight = computation.in_flight()
    usage, stop = computation.usage_before.until_now(), perf_counter()
    worth_listing = stop - computation.start >= WORTH_LISTING_POOLS
    pools = tuple(thread_pools()) if worth_listing else ()
    not_run = _tasks_not_run(computation) if failed else {}
    tasks = rows_of(computation, computation.keys, in_flight, computation.dependencies)
    keys = Keys(computation.keys, [task.key for task in in_flight])
    computation.finished = ComputationSnapshot(
        info_at_end(
            computation,
            stop,
            usage,
            pools,
            error=error,
            pool_end=end,
            not_run=not_run,
            own_threads_cpu=take_cpu_of_own_threads(),
        ),
        tasks._replace(keys=keys),
    )
    # Others may be reading what was here: it is replaced, and not cleared.
    computation.rows, computation.keys, computation.exceptional = [], [], {}
    computation.metrics, computation.transfers = tasks.metrics, tasks.transfers
    computation.waits, computation.sizes = tasks.waits, tasks.sizes


def _tasks_not_run(computation: Computation) -> Mapping[str, int]:
    """How many tasks of each function were not handed out."""
    return count_functions(tasks_not_submitted(computation.state), computation.dsk)


def _failure_of(computation: Computation) -> tuple[str, str]:
    """The type of the exception by which it ends, noted at its task, and how a pool broke."""
    error = sys.exc_info()[1]
    name = type(error).__name__ if error is not None else NOT_KNOWN
    measurement = take_measurement(error)
    scheduler = scheduler_locals()
    key = measurement.key if measurement else scheduler.get("key")
    pool_end = end_of_pool(error, scheduler.get("submit"), sys._getframe())
    wrapper = computation.aside.get(key)
    if wrapper is not None and not wrapper.error:
        wrapper.error = name
        if measurement:
            wrapper.receive(measurement)
        elif error is not None:
            # As where its result could not be pickled.
            wrapper.failure = failure_of(error)
    return name, pool_end


def _release(computation: Computation) -> None:
    computation.dependencies.close()
    # A task that still runs keeps its wrapper, which must not keep the other tasks.
    computation.wrappers = []
    computation.free = deque()
    computation.aside = {}
    computation.annotated = {}
    computation.dsk = {}
    computation.state = {}
    computation.keeper = None
    computation.requested = None
    computation.result_sizes = None
    computation.planned = None
    computation.probes = {}
    # Tasks that start later find their thread, and no open files of it.
    computation.this_thread = this_thread
    computation.before_tasks = ()
    computation.between_tasks = ()
    computation.stacks = ()
    stop_running(computation.number)
