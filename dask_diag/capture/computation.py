"""One computation, while it is measured: the scheduler's side, shared by all diagnostics."""

from __future__ import annotations

import os
from array import array
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import count
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from dask_diag.capture.dask_internals import (
    Graph,
    SchedulerState,
    annotations_of_graph,
    call_site,
    scheduler_frame,
    scheduler_kind,
    scheduler_locals,
    when_called,
)
from dask_diag.capture.own_cost import OwnCost
from dask_diag.capture.run_id import run_id
from dask_diag.capture.running import running, start_running
from dask_diag.capture.sampling.ticks import ALWAYS
from dask_diag.capture.snapshot import ComputationSnapshot
from dask_diag.capture.span import current_span
from dask_diag.capture.system.thread_usage import ThreadUsage
from dask_diag.capture.system.usage import UsageSoFar
from dask_diag.capture.tasks.dependencies import Dependencies
from dask_diag.capture.tasks.failure import NO_FAILURE
from dask_diag.capture.tasks.in_flight import InFlight, in_flight_of, outcome_of
from dask_diag.capture.tasks.keys import function_of
from dask_diag.capture.tasks.planned import PlannedTasks
from dask_diag.capture.tasks.remote_task import Measurement, RemoteWorker, Transfer
from dask_diag.capture.tasks.task_log import Metrics, Transfers, Waits
from dask_diag.capture.tasks.task_row import Exceptional, ran_on_of_first
from dask_diag.capture.tasks.task_thread import this_thread
from dask_diag.capture.tasks.timed_task import TimedTask, threads_of_tasks

if TYPE_CHECKING:
    from dask_diag.capture.result_sizes import ResultSizes
    from dask_diag.capture.sampling.stack_sample import StackSample

__all__ = ["STATE_KEY", "Computation", "begin"]

STATE_KEY: Final = "dask_diag"
"""Where the scheduler's state, which lives as long as a computation, holds the `Computation`."""

_NAN = float("nan")
_count = count(1)
_BITS_OF_COUNT = 32


class Computation:
    """One computation, as it is measured; once it has ended, its snapshot is what is left of it.

    The scheduler's thread and those that run tasks change it while others read it, and no lock is
    taken for each task. So there is one rule: until `finished` is published, in one step, rows are
    added and nothing is released. What a reader has read is complete if none was published by then:
    see `snapshot_of`.

    Attributes
    ----------
    finished : ComputationSnapshot or None
        Everything that was measured, once it has ended.
    number : int
        The digits of `run_id` and a count, which no other computation of any process has.
    called, start, prepared : float
        When dask was called, the scheduler started, and the graph was in order; seconds of
        ``time.perf_counter()``. What has not happened yet is None.
    planned, usage_before
        The tasks that it was to run, from when the graph was in order to its end; and what this
        process had used when it started.
    graph_bytes : float
        Bytes of data in the graph, NaN if not known.
    hooks, own : dict, OwnCost
        CPU seconds of hooks for a task, by purpose; and what hooks take as it starts and ends.
    frame : int
        The scheduler's, while that is on the stack: see `scheduler_frame`.
    kind, workers
        What is known of the scheduler at the start; how many tasks may run at once, 0 if not known.
    wrappers, aside
        All, of one `wrapper_type`: those that hold a task are in flight, others are in `free`, too.
        And by key those of tasks that are in the graph themselves: pickled or failed.
    probes : mapping
        What samples its tasks, by type.
    this_thread, before_tasks, without_ticks
        Where a task finds its thread; what probes read on it just before; when none missed a tick.
    sampling_failed, stacks : tuple
        Whom an error of the probes is passed to, and where samples of stacks are counted.
    rows, keys
        The `ROW` of each task as it was collected, and its key: a row is there before its key.
    is_measured, keeper
        Whether a diagnostic measures tasks for all; and which one adds the rows.
    packing : Transfer or None
        Of the last task that was pickled.
    requested : collection or None
        The keys that the caller asked for, if results are measured.
    sizes, result_sizes
        The bytes of the result of each row, if measured: a row may be there just before. And what
        measures them on the threads that made the results, if anything does.
    between_tasks : tuple of callable
        What is called when a task is collected and none is out.
    """

    __slots__ = (
        "annotated",
        "aside",
        "before_tasks",
        "between_tasks",
        "call_site",
        "called",
        "dependencies",
        "done_at_end",
        "dsk",
        "exceptional",
        "finished",
        "frame",
        "free",
        "graph_bytes",
        "hooks",
        "is_measured",
        "keeper",
        "keys",
        "kind",
        "metrics",
        "number",
        "own",
        "packing",
        "pid",
        "planned",
        "prepared",
        "probes",
        "remote_workers",
        "requested",
        "result_sizes",
        "rows",
        "sampling_failed",
        "sizes",
        "span",
        "stacks",
        "start",
        "state",
        "this_thread",
        "thread",
        "threads",
        "transfers",
        "usage_before",
        "waits",
        "without_ticks",
        "worker_id",
        "workers",
        "wrapper_type",
        "wrappers",
    )

    def __init__(self, dsk: Graph) -> None:
        self.start = perf_counter()
        self.called = when_called() or self.start
        self.call_site = call_site()
        self.prepared: float | None = None
        self.planned: PlannedTasks | None = None
        self.finished: ComputationSnapshot | None = None
        self.number = (int(run_id(), 16) << _BITS_OF_COUNT) + next(_count)
        self.pid = os.getpid()
        self.thread = get_ident()
        self.frame = scheduler_frame()
        self.kind = scheduler_kind(scheduler_locals())
        self.workers = self.kind.workers
        self.usage_before = UsageSoFar.now()
        self.threads = ThreadUsage()
        self.graph_bytes = _NAN
        self.hooks: dict[str, float] = {}
        self.own = OwnCost()
        self.done_at_end = (0, 0)
        self.worker_id: object = None
        self.is_measured = False
        self.keeper: object = None
        self.requested: Collection[Hashable] | None = None
        self.sizes: array[float] | None = None
        self.result_sizes: ResultSizes | None = None
        self.rows: list[bytes] = []
        self.keys: list[Hashable] = []
        self.between_tasks: tuple[Callable[[], None], ...] = ()
        self.exceptional: dict[int, Exceptional] = {}
        self.dependencies = Dependencies()
        self.metrics, self.transfers, self.waits = Metrics(), Transfers(), Waits()
        self.wrapper_type: type[TimedTask] = TimedTask
        self.wrappers: list[TimedTask] = []
        self.free: deque[TimedTask] = deque()  # An empty list would be allocated time and again.
        self.aside: dict[Hashable, TimedTask] = {}
        self.probes: Mapping[type[Any], Any] = {}
        self.this_thread = this_thread
        self.before_tasks: tuple[Callable[..., None], ...] = ()
        self.without_ticks = ALWAYS
        self.sampling_failed: tuple[Callable[[Exception], None], ...] = ()
        self.stacks: tuple[Any, ...] = ()
        self.span = current_span()
        self.annotated: Mapping[Hashable, object] = annotations_of_graph("span")
        self.remote_workers: dict[int, RemoteWorker] = {}
        self.packing: Transfer | None = None
        self.dsk = dsk
        self.state: SchedulerState = {}

    @property
    def name(self) -> str:
        """The run's id and a count: unique among all computations of all runs."""
        return "{:016x}-{}".format(*divmod(self.number, 1 << _BITS_OF_COUNT))

    @property
    def stop(self) -> float | None:
        """Seconds of ``time.perf_counter()``; None while it runs."""
        finished = self.finished
        return None if finished is None else finished.info.stop

    @property
    def scheduler(self) -> str:
        """What kind of scheduler ran it: ``processes``, ``threads`` or ``synchronous``."""
        if self.remote_workers:
            return "processes"
        threads = (wrapper.thread for wrapper in tuple(self.wrappers))
        thread = ran_on_of_first(self.rows) or next(filter(None, threads), 0)
        if thread:
            # Where a task ran says more than the executor, which may be anything.
            return "synchronous" if thread == self.thread else "threads"
        return self.kind.name if self.worker_id is None else "threads"

    @property
    def done(self) -> int:
        """How many tasks have a row."""
        return len(self.rows)

    def tasks_done(self) -> tuple[int, int]:
        """How many of its tasks the scheduler has finished, and how many it has."""
        state = self.state
        finished = len(state.get("finished", ()))
        unfinished = sum(
            len(keys)
            for keys in (state.get("ready", ()), state.get("waiting", ()), state.get("running", ()))
        )
        # Its state is released at the end, and may have been meanwhile.
        return (finished, finished + unfinished) if self.finished is None else self.done_at_end

    def new_wrapper(self) -> TimedTask:
        """One more wrapper, where none is free."""
        wrapper = self.wrapper_type(self)
        self.wrappers.append(wrapper)
        return wrapper

    def set_aside(self, wrapper: TimedTask) -> None:
        """Put the task itself back into the graph, and its wrapper into `aside`."""
        wrapper.size = None
        # If it ends just now, these are no longer its own, and keep nothing alive.
        aside, dsk = self.aside, self.dsk
        if self.finished is None:
            aside[wrapper.key] = wrapper
            dsk[wrapper.key] = wrapper.task

    def new_transfer(self) -> Transfer:
        """What is noted of one more task, as its pickling starts: that of the last has ended."""
        now = perf_counter()
        if self.packing is not None:
            self.packing.is_packed_by(now)
        self.packing = Transfer(now)
        return self.packing

    def receive(self, measurement: Measurement, landing: float, landed: float, size: float) -> None:
        """Record what a worker process measured, as its result lands."""
        wrapper = self.aside.get(measurement.key)
        if wrapper is None:
            return
        wrapper.receive(measurement)
        if (transfer := wrapper.transfer) is not None:
            transfer.landing, transfer.landed, transfer.bytes_out = landing, landed, size

    def take_set_aside(self, key: Hashable) -> TimedTask | None:
        """The wrapper, now collected, of a task that was pickled or that failed."""
        wrapper = self.aside.pop(key, None)
        if wrapper is None:
            return None
        if wrapper.error:
            self.exceptional[self.done] = outcome_of(wrapper)
            wrapper.error, wrapper.failure = "", NO_FAILURE
        if wrapper.start is None:
            wrapper.start = wrapper.stop = wrapper.cpu = _NAN
            wrapper.thread = 0
        if wrapper.transfer is not None:
            self.transfers.add(self.done, wrapper.transfer)
            wrapper.transfer = None
        return wrapper

    def add_metered_key(self, key: Hashable, wrapper: TimedTask) -> None:
        """Add the key of the last row, and before it what its task metered and waited for."""
        if (metered := wrapper.metered) is not None:
            self.metrics.add(self.done - 1, metered.metrics)
            self.waits.add(self.done - 1, metered.waits)
        self.keys.append(key)
        wrapper.metered = None

    def log_stacks(self, wrapper: TimedTask, samples: Sequence[StackSample]) -> None:
        """Count the samples that a worker process took of the stacks of a task."""
        function = function_of(wrapper.key, wrapper.task)
        for stacks in self.stacks:
            stacks.take(function, wrapper.key, samples)

    def report_sampling_failed(self, error: Exception) -> None:
        """Pass an error on to those who have its tasks sampled."""
        for failed in self.sampling_failed:
            failed(error)

    def in_flight(self) -> list[InFlight]:
        """The tasks that have been submitted and not collected, as they are now."""
        busy = [wrapper for wrapper in tuple(self.wrappers) if wrapper.task is not None]
        threads = threads_of_tasks() if busy else {}
        tasks = (in_flight_of(wrapper, threads.get(id(wrapper), 0)) for wrapper in busy)
        return [task for task in tasks if task is not None]


def begin(dsk: Graph) -> Computation:
    """The `Computation` of the graph that the scheduler starts on, the same for all diagnostics."""
    for computation in tuple(running.values()):
        if isinstance(computation, Computation) and computation.dsk is dsk:
            return computation
    computation = Computation(dsk)
    start_running(computation.number, computation)
    return computation
