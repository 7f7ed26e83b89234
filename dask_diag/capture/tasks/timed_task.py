"""One task, timed on the thread that runs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from threading import get_ident
from time import perf_counter, thread_time
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from dask_diag.capture.dask_internals import GraphNode
from dask_diag.capture.system.frames import current_frames
from dask_diag.capture.tasks.failure import NO_FAILURE, Failure, failure_of
from dask_diag.capture.tasks.metered import Metered, Wait
from dask_diag.capture.tasks.metering import ends_a_task, runs_a_task
from dask_diag.capture.tasks.remote_task import (
    Departure,
    Measurement,
    RemoteTask,
    RemoteWorker,
    Transfer,
)
from dask_diag.capture.tracebacks import passes_errors_on, take_out_own_frames
from dask_diag.errors import DiagnosticError

if TYPE_CHECKING:
    from dask_diag.capture.result_sizes import ResultSizes
    from dask_diag.capture.sampling.stack_sample import StackSample
    from dask_diag.capture.sampling.ticks import TimeWithoutTicks
    from dask_diag.capture.tasks.task_thread import ThisThread

__all__ = ["Owner", "TimedTask", "noting_its_thread", "threads_of_tasks"]


class Owner(Protocol):
    """The computation that a timed task belongs to, with what the task uses of it."""

    before_tasks: tuple[Callable[..., None], ...]
    number: int
    probes: Mapping[type[Any], Any]
    remote_workers: dict[int, RemoteWorker]
    result_sizes: ResultSizes | None
    stacks: tuple[Any, ...]
    this_thread: ThisThread
    without_ticks: TimeWithoutTicks

    def set_aside(self, wrapper: TimedTask) -> None:
        """Put the task itself back into the graph."""

    def new_transfer(self) -> Transfer:
        """What is noted of a task on its way to another process, as its pickling starts."""

    def log_stacks(self, wrapper: TimedTask, samples: Sequence[StackSample]) -> None:
        """Count the samples that a worker process took of the task's stacks."""

    def report_sampling_failed(self, error: Exception) -> None:
        """Pass an error on to those who have its tasks sampled."""


class TimedTask(GraphNode):
    """Wraps a task in the graph while it is submitted and run.

    It is a graph node, since dask asks nodes for their dependencies. It is used again for another
    task once the scheduler has collected its result: a new one for each would cost more than
    everything else that is done for a task.

    `size` is that of its result, if it was measured already.

    The CPU clock is read inside the two readings of the wall clock, so that CPU seconds lie within
    wall seconds.
    """

    __slots__ = (
        "computation",
        "cpu",
        "error",
        "failure",
        "metered",
        "size",
        "start",
        "stop",
        "submitted",
        "task",
        "thread",
        "transfer",
    )

    computation: Owner
    task: Any
    submitted: float
    start: float | None
    stop: float | None
    cpu: float
    thread: int
    metered: Metered | None
    size: float | None
    error: str
    failure: Failure
    transfer: Transfer | None

    def __init__(self, computation: Owner) -> None:
        self.computation = computation
        self.task = None
        # The sampler may read it before its first task has come.
        self.start = None
        self.stop = None
        self.error = ""
        self.failure = NO_FAILURE
        self.thread = 0
        self.metered = None
        self.size = None
        self.transfer = None

    def __call__(self, values: object = ()) -> Any:
        """Run the task and read the clocks around it."""
        self.start = perf_counter()
        cpu = thread_time()
        try:
            # Its method, called as such, is found in fewer steps: 7% of what is added to a task.
            result = self.task.__call__(values)
        except BaseException as error:
            self.fail(error, cpu)
            raise
        self.cpu = thread_time() - cpu
        self.stop = perf_counter()
        return result

    def fail(self, error: BaseException, cpu: float) -> None:
        """Note how the task failed, before its error is raised again.

        `cpu` are its thread's CPU seconds as it began.
        """
        self.thread = get_ident()
        self.cpu = thread_time() - cpu
        self.stop = perf_counter()
        self.failure = failure_of(error)
        self.error = type(error).__name__
        self.computation.set_aside(self)
        take_out_own_frames(error)

    @property
    def dependencies(self) -> frozenset[Hashable]:
        """The keys whose results the task takes."""
        return self.task.dependencies  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return repr(self.task)

    def __reduce__(self) -> tuple[object, ...]:
        # Pickled on its way to another process: from here on the graph needs no wrapper.
        self.computation.set_aside(self)
        self.transfer = transfer = self.computation.new_transfer()
        return self.depart(transfer)

    def depart(self, transfer: Transfer) -> tuple[object, ...]:
        """What it pickles to."""
        return RemoteTask, (Departure(transfer), self.task, self.computation.number, self.key)

    def receive(self, measurement: Measurement) -> None:
        """Record what was measured in another process."""
        self.thread = self._worker_of(measurement)
        self.cpu = measurement.cpu
        self.start = measurement.start
        self.stop = measurement.stop
        if self.transfer is not None:
            self.transfer.receive(measurement)
        if measurement.metrics or measurement.waits:
            self.metered = Metered()
            self.metered.metrics = list(measurement.metrics)
            self.metered.waits = [Wait(*wait) for wait in measurement.waits]
        self.failure = Failure(*measurement.failure)
        if measurement.stacks:
            self.computation.log_stacks(self, measurement.stacks)
        if measurement.fault:
            self.computation.report_sampling_failed(
                DiagnosticError(f"in a worker process, {measurement.fault}")
            )

    def _worker_of(self, measurement: Measurement) -> int:
        """What ran it, as a `ROW` has it: a worker process, or a thread of this one."""
        pid = measurement.pid
        if pid == os.getpid():
            # Pickled, as for worker processes, and handed to a pool of threads.
            return measurement.thread
        workers = self.computation.remote_workers
        before = workers.get(pid)
        threads = measurement.threads or (before.threads if before else ())
        workers[pid] = RemoteWorker(measurement.thread, measurement.joined, threads)
        return pid


runs_a_task.add(id(TimedTask.__call__.__code__))
passes_errors_on.add(id(TimedTask.__call__.__code__))
ends_a_task.add(id(TimedTask.fail.__code__))


@cache
def noting_its_thread(kind: type[TimedTask]) -> type[TimedTask]:
    """A kind of task that says which thread runs it, for schedulers that do not ask.

    It is set aside as it starts: where the scheduler finds the task itself in the graph, the
    wrapper says what ran it.
    """

    def call(self: TimedTask, values: object = ()) -> object:
        self.thread = get_ident()
        self.computation.set_aside(self)
        try:
            return kind.__call__(self, values)
        except BaseException as error:
            take_out_own_frames(error)
            raise

    passes_errors_on.add(id(call.__code__))
    return type(kind.__name__, (kind,), {"__slots__": (), "__call__": call})


def threads_of_tasks() -> dict[int, int]:
    """The idents of the threads that run tasks now, by the ``id()`` of their wrappers."""
    threads = {}
    for thread, leaf in current_frames().items():
        frame: FrameType | None = leaf
        while frame is not None:
            if id(frame.f_code) in runs_a_task:
                threads[id(frame.f_locals.get("self"))] = thread
            frame = frame.f_back
    return threads
