"""Tasks on a worker of a cluster, measured and sampled while they run."""

from __future__ import annotations

import sys
from array import array
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Generator,
    Hashable,
    Iterator,
    Sequence,
)
from inspect import unwrap
from math import isnan, nan
from threading import get_ident
from time import clock_gettime, perf_counter, thread_time
from types import coroutine
from typing import TYPE_CHECKING, cast

from dask_diag.capture.failures import passes_errors_on, take_out_own_frames
from dask_diag.capture.lines.steps import StepTiming
from dask_diag.capture.metrics import (
    Metered,
    ends_a_task,
    hear_this_task,
    runs_a_task,
    sums_of,
)
from dask_diag.capture.task import take_steps
from dask_diag.cluster.chunks import ChunkTask, chunk_of
from dask_diag.cluster.wire import (
    COROUTINE,
    NAME,
    WORKER_ROW,
    ChunkOfEvents,
    RunMeasurements,
    packed_stacks,
)
from dask_diag.hooks.stack import GraphNode
from dask_diag.model.codes import Activity
from dask_diag.sampling.probes import Probe, RunningTask
from dask_diag.sampling.stacks import RemoteStackTaskProbe, StackProbe

if TYPE_CHECKING:
    from distributed.worker import Worker
    from distributed.worker_state_machine import TaskState

    from dask_diag.capture.task import StackSample


class ClusterTask(GraphNode):
    """Replaces a task in a worker's state, until its call.

    The call begins by putting the task back. Measurements go into the metadata of the task, for the
    worker to send with the result: the scheduler has the row of each result, also of a worker that
    dies. Probes sample running tasks, but not coroutines, on the thread of the event loop.

    Attributes
    ----------
    state : TaskState
        State of the task at the worker.
    row : bytes
        Measurements; empty until the task has run.
    error, rescheduled : str, bool
        Type of the task's exception, and whether the exception asks for another run.
    stacks, packed : tuple of StackSample, bytes
        Sampled stacks, from a probe and packed.
    chunk, events : ChunkTask or None, ChunkOfEvents
        The chunk of coffea that the task processes, and its description at the end; empty without.
    timing : StepTiming or None
        Chooses the fused tasks whose steps are timed.
    steps_taken : bytes
        Seconds and CPU seconds of the steps of a fused task, if timed.
    discarded : bool
        Whether the measurements are not to be sent.
    fault : str
        Error of the measurement; the task itself goes on.
    is_coro : bool
        Whether the worker has to await the task.
    """

    __slots__ = (
        *("__dict__", "clock", "cpu_before", "is_coro", "probes", "row", "run_id"),
        *("start", "state", "task", "thread", "timing"),
    )

    # Attributes that most tasks never set are those of the class: a wrapper is made for each task.
    metered: Metered | None = None
    error = fault = ""
    rescheduled = discarded = False
    seceded = seceded_at_cpu = nan
    running: RunningTask | None = None
    stop: float | None = None
    cpu = 0.0
    stacks: tuple[StackSample, ...] = ()
    packed = steps_taken = b""
    chunk: ChunkTask | None = None
    events: ChunkOfEvents | Sequence[object] = ()

    def __init__(
        self,
        state: TaskState,
        task: GraphNode,
        clock: Callable[[], float],
        probes: Collection[Probe] = (),
        timing: StepTiming | None = None,
    ) -> None:
        self.state = state
        self.task = task
        self.key = task.key
        self.clock = clock
        self.probes = probes
        self.timing = timing
        self.run_id: int = state.run_id
        self.is_coro: bool = task.is_coro
        self.row = b""
        self.thread = 0
        self.start: float | None = None
        self.cpu_before = 0.0

    def __call__(self, values: object = ()) -> object:
        """Run the task and read the clocks around it."""
        self.state.run_spec = run = task = self.task
        try:
            hear_this_task()
            if self.timing is not None:
                run = self.timing.copy_of(task)
            self.chunk = chunk_of(task)
            if self.chunk is not None:
                run = self.chunk.run
            if self.probes and not self.is_coro:
                self.running = RunningTask(self, self.probes)
        except Exception as fault:
            self.fault = f"{type(fault).__name__}: {fault}"
        start = self.clock()
        self.cpu_before = cpu = thread_time()
        # Other threads take a task that has a start, and then a thread, for one that runs.
        self.start = start
        self.thread = get_ident()
        if self.is_coro:
            return self.steps(cast("Awaitable[object]", run(values)))
        try:
            result = run(values)
        except BaseException as error:
            self._end(thread_time() - cpu, error)
            take_out_own_frames(error)
            raise
        self._end(thread_time() - cpu)
        return result

    @coroutine
    def steps(self, coroutine: Awaitable[object]) -> Generator[object, object, object]:
        """Run a coroutine and sum the times of its steps: other coroutines run between them."""
        iterator = cast("Generator[object, object, object]", coroutine.__await__())
        resume: Callable[..., object] = iterator.send
        argument: object = None
        spent, had_loop = 0.0, 0.0
        while True:
            wall, cpu = perf_counter(), thread_time()
            try:
                waits_for = resume(argument)
            except StopIteration as stopped:
                self._end(spent + thread_time() - cpu, on_loop=had_loop + perf_counter() - wall)
                return stopped.value
            except BaseException as error:
                self._end(spent + thread_time() - cpu, error)
                take_out_own_frames(error)
                raise
            spent += thread_time() - cpu
            had_loop += perf_counter() - wall
            try:
                argument = yield waits_for
                resume = iterator.send
            except BaseException as error:
                argument, resume = error, iterator.throw

    def secede(self) -> None:
        """Note that the thread of the task leaves the worker's pool; called from another thread."""
        self.seceded = self.clock()
        if not self.is_coro:
            self.seceded_at_cpu = _cpu_of(self.thread) - self.cpu_before

    def _end(
        self, cpu: float, error: BaseException | None = None, on_loop: float | None = None
    ) -> None:
        """Store the measurements. Nothing is raised: it would be the task's failure."""
        try:
            stop = self.clock()
            seceded, seceded_cpu = self.seceded, nan
            if not isnan(seceded):
                seceded_cpu = max(0.0, cpu - self.seceded_at_cpu)
            self.row = WORKER_ROW.pack(
                self.start, stop, cpu, seceded, seceded_cpu, self.thread, self.run_id
            )
            if error is not None:
                self.error = type(error).__name__
                self.rescheduled = _asks_to_be_rescheduled(error)
            if on_loop is not None:
                self.metered = self.metered or Metered()
                self.metered.append((Activity.EVENT_LOOP, "seconds", on_loop, cpu))
            if self.probes:
                self.end_sampling(cpu)
            if self.chunk is not None:
                self.events = self.chunk.end(error)
            if error is None and not self.discarded:
                # Most tasks have only a row.
                if self.timing is not None:
                    self.steps_taken = b"".join(map(_packed, take_steps()))
                is_alone = (
                    self.metered is None
                    and self.chunk is None
                    and not self.packed
                    and not self.steps_taken
                )
                self.state.metadata[NAME] = self.row if is_alone else tuple(self.measurements())
        except Exception as fault:
            self.fault = f"{type(fault).__name__}: {fault}"
        finally:
            if self.running is not None:
                # The end may have failed before the probes were stopped.
                self.running.leave()

    def end_sampling(self, cpu: float) -> None:
        """Stop the probes, and pack the sampled stacks."""
        if self.is_coro:
            are_stacks = any(isinstance(probe, StackProbe) for probe in self.probes)
            self.packed = COROUTINE if are_stacks else b""
        elif self.running is not None:
            self.stop, self.cpu = perf_counter(), cpu
            self.running.end()
            self.packed = packed_stacks(self.stacks)

    def stacks_so_far(self) -> bytes:
        """Pack the stacks of a running task; called from another thread."""
        task_probe = None if self.running is None else self.running.task_probes.get(StackProbe)
        if not isinstance(task_probe, RemoteStackTaskProbe):
            return b""
        return packed_stacks(task_probe.samples())

    def occupied_until(self) -> float:
        """End of the task's time on a thread of the pool, so far."""
        return self.clock() if isnan(self.seceded) else self.seceded

    def measurements(self) -> RunMeasurements:
        """Measurements of the run, with the sums of metrics."""
        row, metered = self.row, self.metered
        steps = self.steps_taken
        if metered is None:
            return RunMeasurements(
                row, self.error, stacks=self.packed, chunk=self.events, steps=steps
            )
        metrics, waits = sums_of(metered.metrics), list(metered.waits)
        return RunMeasurements(row, self.error, metrics, waits, self.packed, self.events, steps)

    @property
    def dependencies(self) -> frozenset[Hashable]:
        """The keys whose results the task takes."""
        return self.task.dependencies

    def __repr__(self) -> str:
        return repr(self.task)

    def __reduce__(self) -> tuple[object, ...]:
        # A copy that is sent or spilled is the task.
        return _itself, (self.task,)


ends_a_task.add(id(ClusterTask._end.__code__))
_codes = {id(ClusterTask.__call__.__code__), id(ClusterTask.steps.__code__)}
runs_a_task.update(_codes)
passes_errors_on.update(_codes)


def _asks_to_be_rescheduled(error: BaseException) -> bool:
    """Return whether an error is distributed's `Reschedule`, as the worker itself decides."""
    kind = getattr(sys.modules.get("distributed.exceptions"), "Reschedule", ())
    return isinstance(error, kind)


def _packed(numbers: list[float]) -> bytes:
    return array("d", numbers).tobytes()


def _itself(task: object) -> object:
    return task


def _cpu_of(thread: int) -> float:
    """The CPU seconds of another thread of this process; NaN where they cannot be known."""
    try:
        from time import pthread_getcpuclockid

        return clock_gettime(pthread_getcpuclockid(thread))
    except (ImportError, OSError):
        return nan


def codes_around_tasks(worker: Worker) -> Iterator[int]:
    """The ``id()`` of the code of functions of distributed that call tasks and meter other work."""
    module = sys.modules.get("distributed.worker")
    names = ("_run_task", "_run_task_simple", "_run_task_async")
    for function in (type(worker).execute, *(getattr(module, name, None) for name in names)):
        code = getattr(unwrap(function), "__code__", None)
        if code is not None:
            yield id(code)
