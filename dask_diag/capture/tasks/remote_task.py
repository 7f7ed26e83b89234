"""A task in another process: measured there, with what moving it took, and sent with its result.

Picklers save a tuple's parts in order, and rebuild them in order. So small objects between the
parts read the clock as each side gets there; nothing is pickled twice.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Hashable, Mapping
from threading import get_ident
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from dask_diag.capture.dask_internals import GraphNode, bytes_of_result, bytes_of_task
from dask_diag.capture.system.thread_usage import ThreadCpu
from dask_diag.capture.system.worker_threads import WorkerThreads
from dask_diag.capture.tasks.failure import failure_of
from dask_diag.capture.tasks.metered import Metered, Metric
from dask_diag.capture.tasks.metering import (
    ends_a_task,
    hear_distributed,
    hearing,
    listening,
    runs_a_task,
)
from dask_diag.capture.tracebacks import passes_errors_on, take_out_own_frames

if TYPE_CHECKING:
    from dask_diag.capture.sampling.stack_sample import StackSample

__all__ = ["Measurement", "RemoteTask", "RemoteWorker", "Transfer", "running", "take_measurement"]

# A failed task returns no result that could carry its measurement, so the exception carries it. It
# is removed before the user's code sees the exception.
_ON_EXCEPTION = "_dask_diag_measurement"
_NAN = float("nan")

T = TypeVar("T")


class Receiver(Protocol):
    """What a measurement is for: the computation whose task it is of."""

    def receive(self, measurement: Measurement, landing: float, landed: float, size: float) -> None:
        """Record what a worker process measured, as its result of so many bytes lands."""


running: dict[int, Receiver] = {}
"""The computations that are running in this process, by number: where results may land."""


_worker_threads = WorkerThreads()
_joined = perf_counter()
"""When this process could first run tasks: when it was forked, or imported this module."""


def _join() -> None:
    global _joined
    _joined = perf_counter()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_join)


class RemoteWorker(NamedTuple):
    """A worker process: its thread that ran tasks, when it joined, and what other threads used."""

    thread: int
    joined: float
    threads: tuple[ThreadCpu, ...] = ()


class Measurement(NamedTuple):
    """What a worker in another process sends back with a result.

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


class Transfer:
    """When one task and its result were on their way between processes, and how large they were.

    Attributes
    ----------
    packing, packed : float
        When the scheduler started and stopped pickling the task with its inputs.
    opened, start, stop, closed : float
        When the worker started to rebuild them, started and stopped the task, and had pickled its
        result.
    landing, landed : float
        When the scheduler started and stopped rebuilding the result.
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
        self.packed = self.opened = self.start = self.stop = self.closed = _NAN
        self.landing = self.landed = self.bytes_in = self.bytes_out = _NAN

    def is_packed_by(self, time: float) -> None:
        """Note that it was pickled by then: the earliest time that is noted is the one."""
        if not self.packed <= time:
            self.packed = time

    def receive(self, measurement: Measurement) -> None:
        """Record what the worker measured."""
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
    """Unpickles to the time at which it is unpickled."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        return perf_counter, ()


class _Closing:
    """Pickles as a measurement that ends when it is pickled."""

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
        "stacks",
        "start",
        "stop",
        "task",
    )

    def __init__(self, opened: float, task: GraphNode, computation: int, key: Hashable) -> None:
        self.opened = opened
        self.task = task
        self.computation = computation
        self.key = key
        self.metered: Metered | None = None
        self.start: float | None = None
        self.stop: float | None = None
        self.cpu_before = self.cpu = _NAN
        self.stacks: tuple[StackSample, ...] = ()
        self.fault = ""

    def __call__(self, values: Mapping[Hashable, object]) -> object:
        """Run the task and read the clocks around it; returns a `Delivery`, or the result itself.

        That is where it runs in the process that computes: an executor may pickle tasks, and hand
        their results on as they are.
        """
        hear_distributed()
        _worker_threads.start(self.computation)
        hearing.add(self)
        listening.add(self)
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
            computation.receive(measurement, _NAN, _NAN, _NAN)
        return result

    def _measurement(self, start: float, cpu: float) -> Measurement:
        self.cpu = cpu
        self.stop = perf_counter()
        self.ended()
        listening.discard(self)
        hearing.discard(self)
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
            closed=_NAN,
            cpu=cpu,
            bytes_in=bytes_of_task(),
            metrics=tuple(metered.metrics) if metered else (),
            waits=tuple(metered.waits) if metered else (),
            stacks=self.stacks,
            threads=_worker_threads.threads(),
            fault=self.fault or _worker_threads.fault,
        )

    def ended(self) -> None:
        """Do what a subclass has to do when the task has ended."""


runs_a_task.add(id(RemoteTask.__call__.__code__))
passes_errors_on.add(id(RemoteTask.__call__.__code__))
ends_a_task.add(id(RemoteTask._measurement.__code__))


class Delivery:
    """A result on its way back: it unpickles to the bare result, and delivers the measurement."""

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
    """Remove from an exception the measurement that a worker process attached to it."""
    for carrier in (error, getattr(error, "exception", None)):
        attached = getattr(carrier, "__dict__", {}).pop(_ON_EXCEPTION, None)
        if attached is not None:
            return Measurement(*attached)
    return None
