"""A task on a worker of a cluster that is sampled while it runs."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Collection, Generator, Hashable, Iterator
from inspect import unwrap
from math import isnan
from threading import get_ident
from time import clock_gettime, perf_counter, thread_time
from typing import TYPE_CHECKING, cast

from dask_diag.capture.failures import passes_errors_on, take_out_own_frames
from dask_diag.capture.metrics import (
    Metered,
    ends_a_task,
    hear_this_task,
    runs_a_task,
    sums_of,
)
from dask_diag.capture.task import StackSample
from dask_diag.cluster.wire import (
    COROUTINE,
    NAME,
    WORKER_ROW,
    RunMeasurements,
    Waits,
    packed_stacks,
)
from dask_diag.hooks.stack import GraphNode
from dask_diag.sampling.probes import Probe, RunningTask
from dask_diag.sampling.stacks import RemoteStackTaskProbe, StackProbe

if TYPE_CHECKING:
    from distributed.worker import Worker
    from distributed.worker_state_machine import TaskState


_NAN = float("nan")
Sampled = tuple[()] | tuple[Waits, bytes]
"""Waits and stacks of a task; empty if it was not sampled."""


class ClusterTask(GraphNode):
    """Replaces a task in a worker's state, from when it is to be run until it is called.

    Its first act is to put the task back. A row of numbers goes into the metadata that the worker
    sends with the result: what the scheduler knows to be done has its row, whatever happens to the
    worker then.

    Attributes
    ----------
    state : TaskState
        The worker's own state of the task.
    row : bytes
        What was measured; empty while it has not run.
    error : str
        The type of the exception that it raised.
    is_sampled : bool
        Whether a subclass samples it.
    rescheduled : bool
        Whether that asked for it to be run again.
    sampled : tuple
        What it waited for and its stacks, if these were sampled.
    discarded : bool
        Whether no one asks for its row any more.
    fault : str
        What failed as it was measured; the task itself goes on.
    is_coro : bool
        Whether the worker has to await it.
    """

    __slots__ = (
        *("__dict__", "clock", "cpu", "is_coro", "row", "run_id"),
        *("start", "state", "task", "thread"),
    )

    # What most tasks never have is the class's until then: this is made for every task.
    is_sampled = False
    metered: Metered | None = None
    error = fault = ""
    rescheduled = discarded = False
    sampled: Sampled = ()
    seceded = seceded_at_cpu = _NAN

    def __init__(self, state: TaskState, task: GraphNode, clock: Callable[[], float]) -> None:
        self.state = state
        self.task = task
        self.key = task.key
        self.clock = clock
        self.run_id: int = state.run_id
        self.is_coro: bool = task.is_coro
        self.row = b""
        self.thread = 0
        self.start = _NAN
        self.cpu = 0.0

    def __call__(self, values: object = ()) -> object:
        """Run the task and read the clocks around it."""
        self.state.run_spec = self.task
        try:
            hear_this_task()
        except Exception as fault:
            self.fault = f"{type(fault).__name__}: {fault}"
        if self.is_sampled:
            self.start_sampling()
        self.thread = get_ident()
        self.start = self.clock()
        if self.is_coro:
            return _Steps(self, cast("Awaitable[object]", self.task(values)))
        cpu = thread_time()
        self.cpu = cpu
        try:
            result = self.task(values)
        except BaseException as error:
            self._stop(thread_time() - cpu, error)
            take_out_own_frames(error)
            raise
        self._stop(thread_time() - cpu)
        return result

    def steps(self, coroutine: Awaitable[object]) -> Generator[object, object, object]:
        """Run a coroutine and add up the CPU of its steps: others may run between them."""
        iterator = cast("Generator[object, object, object]", coroutine.__await__())
        resume: Callable[..., object] = iterator.send
        argument: object = None
        spent = 0.0
        while True:
            cpu = thread_time()
            try:
                waits_for = resume(argument)
            except StopIteration as stopped:
                self._stop(spent + thread_time() - cpu)
                return stopped.value
            except BaseException as error:
                self._stop(spent + thread_time() - cpu, error)
                take_out_own_frames(error)
                raise
            spent += thread_time() - cpu
            try:
                argument = yield waits_for
                resume = iterator.send
            except BaseException as error:
                argument, resume = error, iterator.throw

    def secede(self) -> None:
        """Its thread is no worker thread any more; called from another one."""
        self.seceded = self.clock()
        if not self.is_coro:
            self.seceded_at_cpu = _cpu_of(self.thread) - self.cpu

    def _stop(self, cpu: float, error: BaseException | None = None) -> None:
        """Note what was measured. Nothing is raised here: it would be the task's failure."""
        try:
            stop = self.clock()
            seceded, seceded_cpu = self.seceded, _NAN
            if seceded is not _NAN:
                seceded_cpu = max(0.0, cpu - self.seceded_at_cpu)
            self.row = WORKER_ROW.pack(
                self.start, stop, cpu, seceded, seceded_cpu, self.thread, self.run_id
            )
            if error is not None:
                self.error = type(error).__name__
                self.rescheduled = _asks_to_be_rescheduled(error)
            sampled: Sampled = ()
            if self.is_sampled:
                self.sampled = sampled = self.end_sampling(cpu)
            if error is None and not self.discarded:
                # Most tasks meter nothing: of those the row is all that is sent.
                is_alone = self.metered is None and not sampled
                self.state.metadata[NAME] = self.row if is_alone else tuple(self.measurements())
        except Exception as fault:
            self.fault = f"{type(fault).__name__}: {fault}"
        finally:
            if self.is_sampled:
                self.leave_sampling()

    def bounds(self) -> tuple[float, float]:
        """Since when it has had its thread, and until when so far; called from another thread."""
        return self.start, self.clock() if isnan(self.seceded) else self.seceded

    def so_far(self) -> Sampled:
        """What a subclass has sampled of a task that still runs; called from another thread."""
        return ()

    def start_sampling(self) -> None:
        """Have a subclass sample what runs now; nothing is raised."""

    def end_sampling(self, cpu: float) -> Sampled:
        """What a subclass has sampled; called when the task has stopped, after so much CPU."""
        return ()

    def leave_sampling(self) -> None:
        """Have a subclass sample it no more, whatever has failed before; nothing is raised."""

    def measurements(self) -> RunMeasurements:
        """Return the row, and the sums of metrics, which are sent with the result."""
        metrics = [] if self.metered is None else sums_of(self.metered.metrics)
        return RunMeasurements(self.row, self.error, metrics, *self.sampled)

    @property
    def dependencies(self) -> frozenset[Hashable]:
        """The keys whose results the task takes."""
        return self.task.dependencies

    def __repr__(self) -> str:
        return repr(self.task)

    def __reduce__(self) -> tuple[object, ...]:
        # A copy that is sent or spilled is the task's.
        return _itself, (self.task,)


class _Steps:
    """What a coroutine's task returns: awaited, it runs the coroutine step by step."""

    __slots__ = ("_coroutine", "_task")

    def __init__(self, task: ClusterTask, coroutine: Awaitable[object]) -> None:
        self._task = task
        self._coroutine = coroutine

    def __await__(self) -> Generator[object, object, object]:
        return self._task.steps(self._coroutine)


ends_a_task.add(id(ClusterTask._stop.__code__))
_codes = {id(ClusterTask.__call__.__code__), id(ClusterTask.steps.__code__)}
runs_a_task.update(_codes)
passes_errors_on.update(_codes)


def _asks_to_be_rescheduled(error: BaseException) -> bool:
    """Whether it is distributed's `Reschedule`, or a subclass: as the worker itself decides."""
    kind = getattr(sys.modules.get("distributed.exceptions"), "Reschedule", ())
    return isinstance(error, kind)


def _itself(task: object) -> object:
    return task


def _cpu_of(thread: int) -> float:
    """The CPU seconds of another thread of this process; NaN where that cannot be known."""
    try:
        from time import pthread_getcpuclockid

        return clock_gettime(pthread_getcpuclockid(thread))
    except (ImportError, OSError):
        return _NAN


def codes_around_tasks(worker: Worker) -> Iterator[int]:
    """The ``id()`` of the code of functions of distributed that call tasks, and meter beside."""
    module = sys.modules.get("distributed.worker")
    names = ("_run_task", "_run_task_simple", "_run_task_async")
    for function in (type(worker).execute, *(getattr(module, name, None) for name in names)):
        code = getattr(unwrap(function), "__code__", None)
        if code is not None:
            yield id(code)


class SampledRun:
    """A run as probes have it.

    Attributes
    ----------
    stop : float or None
        When it stopped, by the clock of samples.
    cpu : float
    stacks : tuple of StackSample
    """

    __slots__ = ("_owner", "cpu", "stacks", "stop")

    def __init__(self, owner: ClusterTask) -> None:
        self._owner = owner
        self.stop: float | None = None
        self.cpu = 0.0
        self.stacks: tuple[StackSample, ...] = ()

    @property
    def key(self) -> Hashable:
        """The task's."""
        return self._owner.key

    @property
    def task(self) -> GraphNode:
        """The task itself."""
        return self._owner.task

    @property
    def start(self) -> float | None:
        """When it started; the CPU clock is read after that."""
        return self._owner.start if self._owner.cpu else None

    @property
    def cpu_before(self) -> float:
        """The CPU seconds of its thread as it started."""
        return self._owner.cpu

    @property
    def metered(self) -> Metered | None:
        """What is known of the task beside its times."""
        return self._owner.metered

    @metered.setter
    def metered(self, metered: Metered | None) -> None:
        self._owner.metered = metered


class ProbedClusterTask(ClusterTask):
    """Has the task sampled by probes, as those of other processes are.

    A coroutine is not: it shares its thread with the worker's event loop.
    """

    __slots__ = ("_probes", "_run", "_running")

    is_sampled = True

    def __init__(
        self,
        state: TaskState,
        task: GraphNode,
        clock: Callable[[], float],
        probes: Collection[Probe],
    ) -> None:
        super().__init__(state, task, clock)
        self._probes = probes
        self._run: SampledRun | None = None
        self._running: RunningTask | None = None

    def start_sampling(self) -> None:
        """Have the probes sample the thread that this is called on."""
        if self.is_coro:
            return
        try:
            run = SampledRun(self)
            self._running = RunningTask(run, self._probes)
            self._run = run
        except Exception as error:
            self.fault = f"{type(error).__name__}: {error}"

    def end_sampling(self, cpu: float) -> Sampled:
        """What it waited for, and its stacks."""
        if self.is_coro:
            are_stacks = any(isinstance(probe, StackProbe) for probe in self._probes)
            return ([], COROUTINE) if are_stacks else ()
        run, running = self._run, self._running
        if run is None or running is None:
            return ()
        run.stop, run.cpu = perf_counter(), cpu
        running.end()
        waits = [] if self.metered is None else list(self.metered.waits)
        if not waits and not run.stacks:
            return ()
        return waits, packed_stacks(run.stacks)

    def leave_sampling(self) -> None:
        """Have the probes find it no more: its end may have failed before they were stopped."""
        if self._running is not None:
            self._running.leave()

    def so_far(self) -> Sampled:
        """The stacks of a task that still runs; called from another thread."""
        running = self._running
        probe = None if running is None else running.task_probes.get(StackProbe)
        if not isinstance(probe, RemoteStackTaskProbe):
            return ()
        return [], packed_stacks(probe.samples())
