"""One task, timed on the thread that runs it, in whichever process that is."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from threading import get_ident
from time import perf_counter, thread_time
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_diag.capture.meter import Metered, Metric, hear_distributed, listening, runs_a_task
from dask_diag.capture.scheduler import GraphNode

if TYPE_CHECKING:
    from dask_diag.capture.compute import Compute

__all__ = ["MeasuredTask", "Measurement", "take_measurement", "threads_of_tasks"]

_ON_EXCEPTION = "_dask_diag_measurement"


class Measurement(NamedTuple):
    """What a worker in another process sends home with a result."""

    compute: int
    key: Any
    pid: int
    thread: int
    start: float
    stop: float
    cpu: float
    metrics: tuple[tuple[Any, ...], ...]


class MeasuredTask(GraphNode):
    """Stands in the graph for a task while it is submitted and run.

    It is a graph node, since dask asks nodes for their dependencies. It is used again for another
    task once the scheduler has collected its result: making one anew for each costs more than all
    else that is done for a task.

    The CPU clock is read inside the two readings of the wall clock, so that CPU seconds lie within
    wall seconds.
    """

    __slots__ = (
        "compute",
        "cpu",
        "error",
        "metered",
        "start",
        "stop",
        "submitted",
        "task",
        "thread",
    )

    compute: Compute
    task: Any
    submitted: float
    start: float | None
    stop: float | None
    cpu: float
    thread: int
    metered: Metered | None
    error: str

    def __init__(self, compute: Compute) -> None:
        self.compute = compute
        self.error = ""
        self.thread = 0

    def __call__(self, values: Any = ()) -> Any:
        """Run the task and read the clocks around it."""
        self.start = perf_counter()
        cpu = thread_time()
        try:
            result = self.task(values)
        except BaseException as error:
            self.thread = get_ident()
            self.cpu = thread_time() - cpu
            self.stop = perf_counter()
            self.error = type(error).__name__
            self.compute.set_aside(self)
            raise
        self.cpu = thread_time() - cpu
        self.stop = perf_counter()
        return result

    @property
    def dependencies(self) -> frozenset[Any]:
        """The keys whose results the task takes."""
        return self.task.dependencies  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return repr(self.task)

    def __reduce__(self) -> Any:
        # Pickled on its way to another process: from here on the graph needs no stand-in.
        self.compute.set_aside(self)
        return RemoteTask, (self.task, self.compute.number, self.key)

    def receive(self, measurement: Measurement) -> None:
        """Take over what was measured in another process."""
        self.compute.remote_threads[measurement.pid] = measurement.thread
        self.thread = measurement.pid
        self.start = measurement.start
        self.stop = measurement.stop
        self.cpu = measurement.cpu
        if measurement.metrics:
            self.metered = Metered()
            self.metered.metrics = [Metric(*metric) for metric in measurement.metrics]


class RemoteTask:
    """A task in a worker process; it sends the measurement home with the result."""

    __slots__ = ("compute", "key", "metered", "start", "stop", "task")

    def __init__(self, task: Any, compute: int, key: Any) -> None:
        self.task = task
        self.compute = compute
        self.key = key
        self.metered: Metered | None = None
        self.stop: float | None = None

    def __call__(self, values: Mapping[Any, Any]) -> Delivery:
        """Run the task and read the clocks around it."""
        hear_distributed()
        listening.add(self)
        self.start = perf_counter()
        cpu = thread_time()
        try:
            result = self.task(values)
        except BaseException as error:
            measurement = self._measurement(thread_time() - cpu)
            with contextlib.suppress(Exception):
                setattr(error, _ON_EXCEPTION, tuple(measurement))
            raise
        return Delivery(result, self._measurement(thread_time() - cpu))

    def _measurement(self, cpu: float) -> Measurement:
        self.stop = perf_counter()
        listening.discard(self)
        return Measurement(
            compute=self.compute,
            key=self.key,
            pid=os.getpid(),
            thread=get_ident(),
            start=self.start,
            stop=self.stop,
            cpu=cpu,
            metrics=tuple(map(tuple, self.metered.metrics)) if self.metered else (),
        )


runs_a_task.update((MeasuredTask.__call__.__code__, RemoteTask.__call__.__code__))


def threads_of_tasks() -> dict[int, int]:
    """On which thread each measured task runs that is running now: its ``id()`` to an ident."""
    found = {}
    for thread, leaf in sys._current_frames().items():
        frame: FrameType | None = leaf
        while frame is not None:
            if frame.f_code is MeasuredTask.__call__.__code__:
                found[id(frame.f_locals["self"])] = thread
            frame = frame.f_back
    return found


class Delivery:
    """A result on its way home: it unpickles to the bare result, and hands in the measurement."""

    __slots__ = ("measurement", "result")

    def __init__(self, result: Any, measurement: Measurement) -> None:
        self.result = result
        self.measurement = measurement

    def __reduce__(self) -> Any:
        return land, (self.result, tuple(self.measurement))


def land(result: Any, measurement: tuple[Any, ...]) -> Any:
    """Unpickle a delivery: hand the measurement to its compute, and return the bare result."""
    from dask_diag.capture.compute import running

    received = Measurement(*measurement)
    compute = running.get(received.compute)
    if compute is not None:
        compute.receive(received)
    return result


def take_measurement(error: BaseException | None) -> Measurement | None:
    """Remove from an exception the measurement that a worker process attached to it."""
    for carrier in (error, getattr(error, "exception", None)):
        attached = getattr(carrier, "__dict__", {}).pop(_ON_EXCEPTION, None)
        if attached is not None:
            return Measurement(*attached)
    return None
