"""Wrappers around tasks that read the clocks and the thread's CPU, here or in a worker process."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from math import inf, nan
from struct import Struct
from threading import get_ident, get_native_id
from time import perf_counter, thread_time
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from dask_diag.capture.failures import (
    NO_FAILURE,
    Failure,
    failure_of,
    passes_errors_on,
    take_out_own_frames,
)
from dask_diag.capture.metrics import (
    Metered,
    Metric,
    Wait,
    ends_a_task,
    hear_distributed,
    hearing,
    ignore_collections,
    listening,
    notice_collections,
    runs_a_task,
)
from dask_diag.errors import DiagnosticError
from dask_diag.hooks.inside import hear_inside, stop_hearing_inside
from dask_diag.hooks.stack import GraphNode, bytes_of_result, bytes_of_task
from dask_diag.system.code import current_frames
from dask_diag.system.interpreter import has_gil
from dask_diag.system.threads import ThreadCpu, WorkerThreads

if TYPE_CHECKING:
    from dask_diag.capture.results import ResultSizes
    from dask_diag.system.periodic import TimeWithoutTicks


class Line(NamedTuple):
    """A line of code; `first` is where its function starts. Functions in C have only a name.

    `call` is the name of a call of the program that loads data or commits; else empty.
    """

    name: str
    file: str = ""
    line: int = 0
    first: int = 0
    call: str = ""


StackSample = tuple[float, tuple[Line, ...], float, float, float]
"""When, which lines (none: not sampled), seconds, CPU seconds, and the number of samples."""


# Numbers are packed and keys are marshalled: an object per number would cost memory, and one that
# holds others time in every later run of the garbage collector.
ROW = Struct("6d")
pack_row = ROW.pack
"""A task's row: submitted, start, stop, thread CPU, what ran it, collected. NaN is not known.

What ran it is a thread's ident, as the worker gave it to the scheduler, or the pid of a worker
process (see `Facts.remote_workers`); 0 where the scheduler asks no worker who it is.
"""


def ran_on_of_first(rows: Sequence[bytes]) -> float:
    """Thread, or process, of the first task; 0 without tasks, or if not known."""
    ran_on: float = ROW.unpack(rows[0])[4] if rows else 0.0
    return ran_on


class Exceptional(NamedTuple):
    """Outcome of a task that was not simply done."""

    outcome: str
    error: str
    failure: Failure = NO_FAILURE


# A failed task returns no result that could carry its measurement, so the exception carries it. It
# is removed before the user's code sees the exception.
_ON_EXCEPTION = "_dask_diag_measurement"

T = TypeVar("T")


class Owner(Protocol):
    """The part of a computation used by tasks."""

    before_tasks: tuple[Callable[..., None], ...]
    number: int
    probes: Mapping[type[Any], Any]
    remote_workers: dict[int, RemoteWorker]
    result_sizes: ResultSizes | None
    start_run: Callable[[RemoteTask], Any] | None
    this_thread: ThisThread
    without_ticks: TimeWithoutTicks

    def receive(self, measurement: Measurement, landing: float, landed: float, size: float) -> None:
        """Record a worker process's measurement, as the result of so many bytes arrives."""

    def set_aside(self, wrapper: TimedTask) -> None:
        """Put the task itself back into the graph."""

    def new_transfer(self) -> Transfer:
        """Return the record of a task on its way to another process, as its pickling starts."""

    def log_stacks(self, wrapper: TimedTask, samples: Sequence[StackSample]) -> None:
        """Count the samples that a worker process took of the task's stacks."""

    def report_sampling_failed(self, error: Exception) -> None:
        """Pass an error on to the profilers that have tasks sampled."""


running: dict[int, Owner] = {}
"""The computations that are running in this process, by number: where results may land."""


_worker_threads = WorkerThreads()
_joined = perf_counter()
"""Time of the fork of this process, or of its import of this module: no task ran before."""


def _join() -> None:
    global _joined
    _joined = perf_counter()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_join)


class RemoteWorker(NamedTuple):
    """A worker process: the thread of tasks, the time of joining, CPU of other threads."""

    thread: int
    joined: float
    threads: tuple[ThreadCpu, ...] = ()


class Measurement(NamedTuple):
    """Measurement that a worker in another process sends back with a result.

    `thread` ran the task in the process `pid`, which `joined` when it could first run tasks.
    `opened` is when it started to rebuild the task and its inputs, `closed` when it had pickled the
    result; `bytes_in` is what it was sent. `threads` are other threads of the process, with all
    that they used in this computation, if that is news.
    """

    computation: int
    key: Hashable
    pid: int
    thread: int
    joined: float
    opened: float
    start: float
    stop: float
    closed: float
    cpu: float
    bytes_in: float
    metrics: tuple[Metric, ...]
    waits: tuple[tuple[str, float, int, str], ...]
    stacks: tuple[StackSample, ...]
    fault: str = ""
    """An error of what was to sample it."""
    failure: tuple[str, ...] = ()
    """The message and location of the exception that ended it."""
    threads: tuple[ThreadCpu, ...] = ()
    steps: tuple[list[float], ...] = ()
    """Seconds and CPU seconds of the steps of a fused task, if they were timed."""


_left = threading.local()


def leave_steps(seconds: list[float], cpu: list[float]) -> None:
    """Leave the seconds of the steps of a fused task for `take_steps`, on the same thread."""
    _left.steps = seconds, cpu


def take_steps() -> tuple[list[float], ...]:
    """Seconds and CPU seconds of the steps of the task that this thread has run, if timed."""
    steps: tuple[list[float], ...] = _left.__dict__.pop("steps", ())
    return steps


class Transfer:
    """Times and sizes of one task and its result on their way between processes.

    Attributes
    ----------
    packing, packed : float
        Times when the scheduler started and stopped pickling the task with its inputs.
    opened, start, stop, closed : float
        When the worker started to rebuild them, started and stopped the task, and had pickled its
        result.
    landing, landed : float
        Times when the scheduler started and stopped rebuilding the result.
    bytes_in, bytes_out : float
        Size of the task with its inputs, and of its result.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "closed",
        "landed",
        "landing",
        "opened",
        "packed",
        "packing",
        "start",
        "stop",
    )

    def __init__(self, packing: float) -> None:
        self.packing = packing
        self.packed = self.opened = self.start = self.stop = self.closed = nan
        self.landing = self.landed = self.bytes_in = self.bytes_out = nan

    def is_packed_by(self, time: float) -> None:
        """Note a time when the task was pickled: the earliest noted time counts."""
        if not self.packed <= time:
            self.packed = time

    def receive(self, measurement: Measurement) -> None:
        """Record the worker's measurement."""
        self.opened, self.start = measurement.opened, measurement.start
        self.stop, self.closed = measurement.stop, measurement.closed
        self.bytes_in = measurement.bytes_in
        self.is_packed_by(measurement.opened)


class Departure:
    """Pickled along with a task: notes when the scheduler has pickled it, and the worker starts.

    A pickler keeps what it saves until it is done, and then drops it. In the other process it
    becomes a reading of the clock.

    Who samples the scheduler's thread holds the pickler for longer, if that thread goes on
    meanwhile. The task was pickled before the next one, and before it was opened.
    """

    __slots__ = ("_transfer",)

    def __init__(self, transfer: Transfer) -> None:
        self._transfer = transfer

    def __reduce__(self) -> tuple[object, ...]:
        return perf_counter, ()

    def __del__(self) -> None:
        self._transfer.is_packed_by(perf_counter())


class _Opening:
    """Unpickles to the time of unpickling."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        return perf_counter, ()


class _Closing:
    """Pickles as a measurement with the time of pickling as the end."""

    __slots__ = ("_measurement",)

    def __init__(self, measurement: Measurement) -> None:
        self._measurement = measurement

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, (list(self._measurement._replace(closed=perf_counter())),)


class RemoteTask:
    """A task in a worker process; it sends the measurement back with the result."""

    __slots__ = (
        "computation",
        "cpu",
        "cpu_before",
        "fault",
        "key",
        "metered",
        "opened",
        "run",
        "stacks",
        "start",
        "start_run",
        "stop",
        "task",
    )

    def __init__(
        self,
        opened: float,
        task: GraphNode,
        computation: int,
        key: Hashable,
        start_run: Callable[[RemoteTask], Any] | None = None,
    ) -> None:
        self.opened = opened
        self.task = task
        self.computation = computation
        self.key = key
        self.start_run = start_run
        self.run: Any = None
        self.metered: Metered | None = None
        self.start: float | None = None
        self.stop: float | None = None
        self.cpu_before = self.cpu = nan
        self.stacks: tuple[StackSample, ...] = ()
        self.fault = ""

    def __call__(self, values: Mapping[Hashable, object]) -> object:
        """Run the task and read the clocks around it; returns a `Delivery`, or the result itself.

        That is where it runs in the process that computes: an executor may pickle tasks, and hand
        their results on as they are.
        """
        if self.start_run is not None:
            try:
                self.run = self.start_run(self)
            except Exception as error:
                self.fault = f"{type(error).__name__}: {error}"
        hear_distributed()
        _worker_threads.start(self.computation)
        hearing.add(self)
        listening.add(self)
        notice_collections()
        hear_inside()
        start = perf_counter()
        self.cpu_before = cpu = thread_time()
        # Last, for those that sample the task: it has started.
        self.start = start
        try:
            result = self.task(values)
        except BaseException as error:
            measurement = self._measurement(start, thread_time() - cpu)
            with contextlib.suppress(Exception):
                measurement = measurement._replace(failure=tuple(failure_of(error)))
                setattr(error, _ON_EXCEPTION, tuple(measurement))
            take_out_own_frames(error)
            raise
        measurement = self._measurement(start, thread_time() - cpu)
        computation = running.get(self.computation)
        if computation is None:
            return Delivery(result, measurement)
        with contextlib.suppress(Exception):
            computation.receive(measurement, nan, nan, nan)
        return result

    def _measurement(self, start: float, cpu: float) -> Measurement:
        self.cpu = cpu
        self.stop = perf_counter()
        if self.run is not None:
            try:
                self.run.end()
            except Exception as error:
                self.fault = f"{type(error).__name__}: {error}"
        listening.discard(self)
        hearing.discard(self)
        if not listening:
            ignore_collections()
            stop_hearing_inside()
        metered = self.metered
        return Measurement(
            computation=self.computation,
            key=self.key,
            pid=os.getpid(),
            thread=get_ident(),
            joined=_joined,
            opened=self.opened,
            start=start,
            stop=self.stop,
            closed=nan,
            cpu=cpu,
            bytes_in=bytes_of_task(),
            metrics=tuple(metered.metrics) if metered else (),
            waits=tuple(metered.waits) if metered else (),
            stacks=self.stacks,
            threads=_worker_threads.threads(),
            fault=self.fault or _worker_threads.fault,
            steps=take_steps(),
        )


runs_a_task.add(id(RemoteTask.__call__.__code__))
passes_errors_on.add(id(RemoteTask.__call__.__code__))
ends_a_task.add(id(RemoteTask._measurement.__code__))


class Delivery:
    """A result on the way back: unpickling delivers the measurement and returns the bare result."""

    __slots__ = ("measurement", "result")

    def __init__(self, result: object, measurement: Measurement) -> None:
        self.result = result
        self.measurement = measurement

    def __reduce__(self) -> tuple[object, ...]:
        return land, (_Opening(), self.result, _Closing(self.measurement))


def land(landing: float, result: T, measurement: tuple[Any, ...]) -> T:
    """Unpickle a delivery: hand the measurement to its computation, and return the bare result."""
    landed = perf_counter()
    received = Measurement(*measurement)
    computation = running.get(received.computation)
    if computation is not None:
        computation.receive(received, landing, landed, bytes_of_result())
    return result


def take_measurement(error: BaseException | None) -> Measurement | None:
    """Remove from an exception the measurement of a worker process."""
    for carrier in (error, getattr(error, "exception", None)):
        attached = getattr(carrier, "__dict__", {}).pop(_ON_EXCEPTION, None)
        if attached is not None:
            return Measurement(*attached)
    return None


class TaskThread:
    """A thread that runs tasks.

    Attributes
    ----------
    ident, native_id : int
    tasks : int
        Number of sampled tasks that the thread has started.
    due : float
        The number of the next one before which something is to be read.
    """

    __slots__ = ("due", "ident", "native_id", "tasks")

    def __init__(self, ident: int, native_id: int) -> None:
        self.ident = ident
        self.native_id = native_id
        self.tasks = 0
        self.due: float = inf


NO_THREAD = TaskThread(0, 0)
"""The thread of a task that has not started."""
NO_TASK_PROBES: Mapping[type, Any] = {}


class ThisThread(threading.local):
    """The current thread, as `now`: to ask the system for ids takes longer."""

    def __init__(self) -> None:
        self.now = TaskThread(get_ident(), get_native_id())


this_thread = ThisThread()
"""Thread for tasks before which nothing is read."""

if hasattr(os, "register_at_fork"):
    # The child of a fork has one thread, of another native id.
    os.register_at_fork(after_in_child=this_thread.__init__)  # type: ignore[misc]


class TimedTask(GraphNode):
    """Wraps a task in the graph while it is submitted and run.

    It is a graph node, since dask asks nodes for their dependencies. It is used again for another
    task once the scheduler has collected its result: a new one for each would cost more than
    everything else that is done for a task.

    The CPU clock is read inside the two readings of the wall clock, so that CPU seconds lie within
    wall seconds.

    Attributes
    ----------
    thread : int
        The thread that ran the task, or the pid of the process; 0 if the scheduler knows it.
    size : float or None
        The size of the result, if it was measured already.
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

    cpu: float
    submitted: float

    def __init__(self, computation: Owner) -> None:
        self.computation = computation
        self.task: Any = None
        # The sampler may read it before its first task has come.
        self.start: float | None = None
        self.stop: float | None = None
        self.error = ""
        self.failure = NO_FAILURE
        self.thread = 0
        self.metered: Metered | None = None
        self.size: float | None = None
        self.transfer: Transfer | None = None

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
        """The keys of the results taken by the task."""
        return self.task.dependencies  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return repr(self.task)

    def __reduce__(self) -> tuple[object, ...]:
        # Pickled on its way to another process: from here on the graph needs no wrapper.
        self.computation.set_aside(self)
        self.transfer = self.computation.new_transfer()
        return RemoteTask, (
            Departure(self.transfer),
            self.task,
            self.computation.number,
            self.key,
            self.computation.start_run,
        )

    def receive(self, measurement: Measurement) -> None:
        """Record the measurement of another process."""
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
        """Pid of the worker process that ran the task, or ident of a thread of this process."""
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


class ProbedTask(TimedTask):
    """A timed and sampled task: the sampler finds running tasks among the wrappers.

    To enter each task in a register of those that run took longer than to time it: tasks clear the
    caches, so each step takes several times as long as in a loop.

    Attributes
    ----------
    cpu_before : float
        The CPU seconds of the thread as the task started.
    runs_on : TaskThread
        The thread that runs the task.
    task_probes : mapping
        The task probe of each probe that has sampled the task, by the probe's type. Some may be
        left from the task before: each has the start of its run.
    waited : bytes
        What the wait probe read as the task started; empty before, and if it was not to be read.
    """

    __slots__ = ("cpu_before", "runs_on", "task_probes", "waited")

    cpu_before: float

    def __init__(self, computation: Owner) -> None:
        super().__init__(computation)
        self.runs_on = NO_THREAD
        self.task_probes = NO_TASK_PROBES
        self.waited = b""

    def __call__(self, values: object = ()) -> Any:
        """Run the task as a `TimedTask` does: a call of its method would cost each task more."""
        computation = self.computation
        self.runs_on = thread = computation.this_thread.now
        thread.tasks = number = thread.tasks + 1
        if number >= thread.due:
            for before in computation.before_tasks:
                before(self)
        start = perf_counter()
        self.cpu_before = cpu = thread_time()
        # Last, for those that sample the task: it has started.
        self.start = start
        try:
            result = self.task.__call__(values)
        except BaseException as error:
            self.fail(error, cpu)
            self._stop_probes()
            raise
        self.cpu = thread_time() - cpu
        self.stop = stop = perf_counter()
        quiet_from, quiet_until = computation.without_ticks.span
        # Of most tasks nothing was sampled, and nothing missed: no probe is asked.
        if self.task_probes or self.waited or start < quiet_from or stop >= quiet_until:
            self._stop_probes()
        result_sizes = computation.result_sizes
        if result_sizes is not None:
            self.size = result_sizes.size_of(result)
        return result

    def _stop_probes(self) -> None:
        try:
            for probe in self.computation.probes.values():
                probe.stop(self, self)
        except Exception as error:
            self.computation.report_sampling_failed(error)
        self.task_probes = NO_TASK_PROBES
        self.waited = b""

    def task_probe(self, kind: type) -> Any:
        """The task probe of a kind of probe; None without a probe of the kind or a running task."""
        start = self.start
        if start is None or self.stop is not None:
            return None
        task_probe = self.task_probes.get(kind)
        if task_probe is None or task_probe.start != start:
            probe = self.computation.probes.get(kind)
            if probe is None:
                return None
            task_probe = probe.task_probe(self, self, start)
            self.task_probes = {**self.task_probes, kind: task_probe}
        return task_probe

    def goes_on(self, task_probe: Any) -> bool:
        """Whether the run that this task probe samples has not ended."""
        return self.stop is None and self.start == task_probe.start


runs_a_task.add(id(ProbedTask.__call__.__code__))
passes_errors_on.add(id(ProbedTask.__call__.__code__))


class ThreadNotingTask(ProbedTask):
    """A timed task, sampled or not, that notes its thread, for schedulers that do not ask.

    It is set aside as it starts: where the scheduler finds the task itself in the graph, the
    wrapper says what ran it.
    """

    __slots__ = ()

    def __call__(self, values: object = ()) -> object:
        """Note the thread, and run the task."""
        self.thread = get_ident()
        self.computation.set_aside(self)
        run = ProbedTask.__call__ if self.computation.probes else TimedTask.__call__
        try:
            return run(self, values)
        except BaseException as error:
            take_out_own_frames(error)
            raise


passes_errors_on.add(id(ThreadNotingTask.__call__.__code__))


def threads_of_tasks() -> dict[int, int]:
    """The idents of the threads with running tasks, by the ``id()`` of the wrappers.

    None without a GIL, where the local variables of another thread's frames must not be read.
    """
    threads: dict[int, int] = {}
    if not has_gil():
        return threads
    for thread, leaf in current_frames().items():
        frame: FrameType | None = leaf
        while frame is not None:
            if id(frame.f_code) in runs_a_task:
                threads[id(frame.f_locals.get("self"))] = thread
            frame = frame.f_back
    return threads
