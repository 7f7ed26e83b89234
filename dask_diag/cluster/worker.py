"""Worker's side of recording: wraps tasks, and reports runs without a result."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, cast

from dask_diag.capture.computation import start_listening, stop_listening
from dask_diag.capture.lines.steps import StepTiming
from dask_diag.capture.metrics import runs_around_tasks
from dask_diag.cluster.clocks import WorkerClock, clock_of
from dask_diag.cluster.task import ClusterTask, codes_around_tasks
from dask_diag.cluster.wire import (
    CANCELLED,
    FAILED,
    FLUSH,
    NAME,
    RESCHEDULED,
    SETTINGS,
    Fault,
    ProcessSamples,
    Received,
    RunEnded,
    RunMeasurements,
    Running,
    Spilled,
    Unmeasured,
    forget_handlers,
)
from dask_diag.hooks.inside import hear_inside, stop_hearing_inside
from dask_diag.hooks.stack import GraphNode
from dask_diag.model.codes import Activity, WorkerEvent
from dask_diag.sampling.linux import why_not_here
from dask_diag.sampling.probes import Probe
from dask_diag.sampling.sampler import sampler
from dask_diag.sampling.stacks import StackProbe, forget_code, keep_code
from dask_diag.sampling.waits import WaitProbe
from dask_diag.system.processes import memory_limit
from dask_diag.system.samplers import ResourceRows, ResourceSampler
from dask_diag.system.usage import processors

if TYPE_CHECKING:
    from distributed.worker import Worker

    from dask_diag.cluster.wire import HelloReply, Settings, WorkerFacts


_LABELS = {
    WorkerEvent.DISK_WRITE: (WorkerEvent.DISK_WRITE, Activity.SERIALIZE, "compress"),
    WorkerEvent.DISK_READ: (WorkerEvent.DISK_READ, Activity.DESERIALIZE, "decompress"),
}
"""Labels of distributed's counters of seconds; the first also counts the bytes."""
WRITES, READS = ((label, "count") for label in _LABELS)
"""Labels of the worker's counters of events."""

Counters = Mapping[tuple[str, str], float]


class SpillCounters:
    """Finds use of the disk since the previous call.

    The caller compares `count` of `WRITES` and of `READS` with `writes` and `reads`, several times
    for each task, where a call of a method would be expensive.

    Parameters
    ----------
    worker : Worker
        If its buffer of results does not count, as third-party buffers may not, nothing changes.
    clock : callable
    """

    def __init__(self, worker: Worker, clock: Callable[[], float]) -> None:
        counters = getattr(worker.data, "cumulative_metrics", None)
        self._counters: Counters = counters if isinstance(counters, Mapping) else {}
        self._worker = worker
        self._clock = clock
        self._asked_at = clock()
        self._before = dict(self._counters)
        self.count = self._counters.get
        self.writes, self.reads = self.count(WRITES), self.count(READS)

    def changes(self, read_until: float) -> list[Spilled]:
        """Return the writes and reads since the previous call.

        Parameters
        ----------
        read_until : float
            Latest end of a read since the previous call: the start of the task with this input.
        """
        now = self._clock()
        spills = []
        for event, labels in _LABELS.items():
            moved = self._since((labels[0], "bytes"))
            seconds = sum(self._since((label, "seconds")) for label in labels)
            stop = now
            if event == WorkerEvent.DISK_READ and read_until - seconds >= self._asked_at:
                stop = min(now, read_until)
            if moved:
                start = max(stop - seconds, min(self._asked_at, stop))
                spills.append(Spilled(self._worker.address, event, start, stop, moved))
        self._asked_at, self._before = now, dict(self._counters)
        self.writes, self.reads = self.count(WRITES), self.count(READS)
        return spills

    def _since(self, label: tuple[str, str]) -> float:
        return self._counters.get(label, 0.0) - self._before.get(label, 0.0)


_SECONDS_TO_SEND_SAMPLES = 0.25

_lock = threading.Lock()
_of_this_process: list[WorkerProcesses] = []
"""Workers in this process, of which the first samples the process."""


class WorkerProcesses:
    """Samples the process of a worker, unless another worker of the same process does.

    Only the sampling runs outside of the worker's event loop.

    Parameters
    ----------
    send : callable
        Called with new samples.
    fault : callable
        Called with what was done and the error: nothing is raised.
    """

    def __init__(
        self, send: Callable[[bytes], None], fault: Callable[[str, BaseException], None]
    ) -> None:
        self._send = send
        self._failed = partial(fault, "sampling processes")
        self._rows = ResourceRows()
        self._dt = 0.0
        self._sampler: ResourceSampler | None = None
        self._sending: asyncio.Task[None] | None = None

    def sample_every(self, dt: float) -> None:
        """Sample every `dt` seconds from now on, or not at all if `dt` is 0."""
        if dt == self._dt:
            return
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
            with _lock:
                _of_this_process.remove(self)
            self.flush()
        self._dt = dt
        if dt:
            with _lock:
                _of_this_process.append(self)
            self._sending = asyncio.ensure_future(self._send_regularly())

    def flush(self) -> None:
        """Take a sample now, send all, and go on."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop()
        self._send_new()
        self._start_if_first()

    async def _send_regularly(self) -> None:
        while True:
            try:
                # Another worker of this process may have left.
                self._start_if_first()
                self._send_new()
            except Exception as error:
                self._failed(error)
            await asyncio.sleep(max(self._dt, _SECONDS_TO_SEND_SAMPLES))

    def _start_if_first(self) -> None:
        with _lock:
            is_first = _of_this_process[:1] == [self]
        if is_first and self._sampler is None:
            self._sampler = ResourceSampler(self._dt, self._rows, self._failed)

    def _send_new(self) -> None:
        rows = self._rows.processes
        new = rows[:]
        # Samples are added on another thread, at the end.
        del rows[: len(new)]
        del self._rows.samples[:]
        if new:
            self._send(new.tobytes())


class WorkerProbes:
    """The probes of the tasks of one worker.

    Parameters
    ----------
    fault : callable
        Called with what was done and the error: nothing is raised.

    Attributes
    ----------
    probes : list
        Empty if nothing is sampled.
    """

    def __init__(self, fault: Callable[[str, BaseException], None]) -> None:
        self.probes: list[Probe] = []
        self._fault = fault
        self._failed = partial(fault, "sampling tasks")
        self._steps_back = ExitStack()

    def change(self, stacks: Sequence[float], waits: bool) -> None:
        """Sample stacks from now on, if their interval and cycle are given, and waits if wanted."""
        self.stop()
        probes: list[Probe] = []
        if stacks:
            probes.append(StackProbe(*stacks))
            keep_code()
            self._steps_back.callback(forget_code)
        if waits:
            why_not = why_not_here()
            if why_not:
                self._fault("recording waits", RuntimeError(why_not))
            else:
                probes.append(WaitProbe())
        for probe in probes:
            subscription = sampler.add(probe.sample, probe.interval, self._failed)
            self._steps_back.callback(sampler.remove, subscription)
        self.probes = probes

    def stop(self) -> None:
        """Stop sampling."""
        self.probes = []
        self._steps_back.close()


_GOES_ON = {"running", "paused"}
"""Statuses of a worker that goes on without measuring."""
_SECONDS_TO_SEND = 0.05
_MESSAGES_AT_ONCE = 500
_DEFAULT: dict[str, str] = {}
_BARRIER = "P2PBarrierTask"
"""Task of each shuffle, in which workers send each other data outside of tasks."""
Message = RunEnded | Running | Received | Spilled | ProcessSamples | Unmeasured | Fault
_WAITING = {"ready", "constrained", "waiting"}
_RUNNING = frozenset(("executing", "long-running", "cancelled", "resumed"))
_NO_NEWS = {*_WAITING, "forgotten"}
"""Next states of a task that are ignored if it did not run: half of all transitions."""


def _fault_message(doing: str, error: BaseException) -> Fault:
    return Fault(f"on a worker, {doing}: {type(error).__name__}: {error}")


def _sent(messages: Iterable[Message]) -> list[tuple[object, ...]]:
    return [(type(message).__name__, *message) for message in messages]


class WorkerSide:
    """Measures the tasks of one worker.

    Only wrappers run outside of the worker's event loop. A fault is reported and never raised, as
    the worker would log it where nobody looks.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._clock = clock_of(worker)
        self._tasks: dict[Hashable, ClusterTask] = {}
        self._flights: dict[Hashable, tuple[float, str, int]] = {}
        self._spills = SpillCounters(worker, self._clock)
        self._messages: list[Message] = []
        self._due: asyncio.TimerHandle | None = None
        self._is_heard = True
        self._is_of_threads: dict[type, bool] = {}
        self._compared = WorkerClock(worker, self._clock, self._report, self._fault)
        self._settings: Settings = {"number": 0}
        self._processes = WorkerProcesses(self._log_processes, self._fault)
        self._sampling = WorkerProbes(self._fault)
        self._timing: StepTiming | None = None

    async def start(self, version: str) -> None:
        """Report facts, compare clocks and start to measure; undone after an error."""
        worker = self._worker
        try:
            runs_around_tasks.update(codes_around_tasks(worker))
            start_listening(self, everywhere=False)
            hear_inside()
            worker.handlers[FLUSH] = self.flush
            worker.handlers[SETTINGS] = self.change_settings
            # What distributed and the machine allow.
            limit = getattr(worker.memory_manager, "memory_limit", None) or inf
            facts: WorkerFacts = {
                "version": version,
                "reason": "",
                "measured": 1,
                "pid": os.getpid(),
                "clock_host": self._compared.host,
                "cpus": processors(),
                "memory_limit": min(float(limit), memory_limit()),
            }
            welcome = await self._report(facts)
            await self._compared.follow(welcome["host"])
            await self.change_settings(welcome["settings"])
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Restore the worker; tasks that run go on, unmeasured."""
        stop_listening(self)
        stop_hearing_inside()
        for name in (FLUSH, SETTINGS):
            self._worker.handlers.pop(name, None)
        forget_handlers()
        for task in self._tasks.values():
            task.discarded = True
            if task.state.run_spec is task:
                task.state.run_spec = task.task
        for state in self._worker.state.tasks.values():
            if state.metadata:
                state.metadata.pop(NAME, None)
        self._tasks = {}
        # Without our plugin, a late message would create the topic at the scheduler again.
        self._is_heard = self._worker.status.name not in _GOES_ON
        stop_processes = partial(self._processes.sample_every, 0)
        for step in (self._compared.stop, stop_processes, self._sampling.stop, self._send):
            # Continue after an error: later steps must still run.
            with suppress(Exception):
                step()
        if self._due is not None:
            self._due.cancel()

    def transition(self, key: Hashable, start: str, finish: str, **kwargs: object) -> None:
        """Note a change of a task's state: the worker calls this several times for each task."""
        if finish in _NO_NEWS and start not in _RUNNING:
            return
        try:
            spills = self._spills
            if spills.count(WRITES) != spills.writes or spills.count(READS) != spills.reads:
                self._log_spills(key)
            if key in self._flights:
                self._flies(key, finish)
            if start in _RUNNING:
                try:
                    if self._messages:
                        # The scheduler may forget inputs as soon as this task is done.
                        self._send()
                finally:
                    self._goes_on(key, finish)
            elif finish == "executing":
                self._wrap(key)
            elif finish == "flight":
                state = self._worker.state.tasks[key]
                # A result that arrives when no task needs it any more has no size.
                self._flights[key] = self._clock(), state.coming_from, state.get_nbytes()
            elif finish == "released" and start in _WAITING and key in self._worker.state.tasks:
                # Cancelled, or to be run elsewhere.
                run_id = self._worker.state.tasks[key].run_id
                self._log_run(key, run_id, CANCELLED, RunMeasurements(b""))
        except Exception as error:
            self._fault(f"{start} to {finish}", error)

    def _goes_on(self, key: Hashable, finish: str) -> None:
        """Note a new state of a task that runs, and may run on, as a cancelled task does."""
        state = self._worker.state.tasks.get(key)
        actual = finish if state is None else state.state
        if actual not in _RUNNING:
            self._unwrap(key, actual)
        elif finish == "long-running" and key in self._tasks:
            self._tasks[key].secede()

    async def flush(self) -> list[tuple[object, ...]]:
        """Return unsent messages, and current runs."""
        await self._compared.compare_at_end()
        for step in (self._processes.flush, self._log_spills, self._log_running):
            try:
                step()
            except Exception as error:
                self._messages.append(_fault_message("sending what was not sent yet", error))
        messages, self._messages = self._messages, []
        return _sent(messages)

    def _log_running(self) -> None:
        self._messages += [
            Running(
                key,
                task.run_id,
                task.start,
                task.occupied_until(),
                task.thread,
                task.stacks_so_far(),
            )
            for key, task in self._tasks.items()
            if task.thread and task.start is not None
        ]

    async def change_settings(self, settings: Settings) -> None:
        """Make the measurements that the scheduler asks for from now on."""
        if settings["number"] <= self._settings["number"]:
            return
        self._settings = settings
        self._timing = StepTiming() if settings.get("steps") else None
        try:
            self._processes.sample_every(settings.get("processes", 0))
            self._sampling.change(settings.get("stacks", ()), settings.get("waits", False))
        except Exception as error:
            self._fault("changing what is measured", error)

    def _log_spills(self, key: Hashable = None) -> None:
        """Log use of the disk; inputs of a task were read before its start."""
        task = self._tasks.get(key)
        started = None if task is None else task.start
        for event in self._spills.changes(self._clock() if started is None else started):
            self._log(event)

    def _wrap(self, key: Hashable) -> None:
        state = self._worker.state.tasks[key]
        task = state.run_spec
        name = (state.annotations or _DEFAULT).get("executor", "default")
        executor = type(self._worker.executors.get(name))
        runs_in_thread = self._is_of_threads.get(executor)
        if runs_in_thread is None:
            # As the worker itself decides.
            runs_in_thread = self._is_of_threads[executor] = "ThreadPoolExecutor" in str(executor)
        if type(task).__name__ == _BARRIER:
            self._log(Unmeasured(key, "shuffle"))
        if key in self._worker.state.actors:
            self._log(Unmeasured(key, "actor"))
        if not (runs_in_thread or getattr(task, "is_coro", False)):
            self._log(Unmeasured(key, "executor"))
        elif isinstance(task, GraphNode):
            probes = self._sampling.probes
            self._tasks[key] = state.run_spec = ClusterTask(
                state, task, self._clock, probes, self._timing
            )

    def _unwrap(self, key: Hashable, finish: str) -> None:
        """End a run; report a run whose result the scheduler does not get or refuses."""
        task = self._tasks.pop(key, None)
        if task is None:
            return
        if task.state.run_spec is task:
            task.state.run_spec = task.task
        if task.fault:
            self._log(Fault(f"on a worker, measuring a task: {task.fault}"))
        if finish == "memory" and task.state.run_id == task.run_id:
            return
        if finish == "error":
            outcome = FAILED
        elif task.rescheduled:
            outcome = RESCHEDULED
        else:
            outcome = CANCELLED
        self._log_run(key, task.run_id, outcome, task.measurements())

    def _log_run(self, key: Hashable, run_id: int, outcome: int, measured: RunMeasurements) -> None:
        self._messages.append(RunEnded(key, run_id, self._worker.address, outcome, measured))
        # Sent at once, as it has to arrive before the worker's own message.
        self._send()

    def _flies(self, key: Hashable, finish: str) -> None:
        """Report the end of a transfer to this worker.

        A transfer goes on while more tasks ask for the result, while no task needs the result, and
        while the result is to be computed here. The source is forgotten when the other worker has
        answered, whether busy, without the result, or gone. The next request is another transfer.
        """
        if self._worker.state.tasks[key].coming_from is not None:
            return
        started, source, size = self._flights.pop(key)
        if finish == "memory":
            address = self._worker.address
            self._log(Received(key, source, address, started, self._clock(), size))

    def _log(self, message: Message) -> None:
        self._messages.append(message)
        if len(self._messages) >= _MESSAGES_AT_ONCE:
            self._send()
        elif self._due is None:
            loop = asyncio.get_running_loop()
            self._due = loop.call_later(_SECONDS_TO_SEND, self._send_due)

    def _send_due(self) -> None:
        self._due = None
        try:
            self._send()
        except Exception as error:
            self._fault("sending what was measured", error)

    def _send(self) -> None:
        messages, self._messages = self._messages, []
        if messages and self._is_heard:
            self._worker.log_event(NAME, _sent(messages))

    def _fault(self, doing: str, error: BaseException) -> None:
        if not self._is_heard:
            return
        try:
            self._worker.log_event(NAME, _sent([_fault_message(doing, error)]))
        except Exception:
            # The worker goes on without the report.
            return

    def _log_processes(self, samples: bytes) -> None:
        self._log(ProcessSamples(self._worker.address, samples))

    async def _report(self, facts: WorkerFacts) -> HelloReply:
        reply = await self._worker.scheduler.dask_diag_worker(
            address=self._worker.address, facts=facts
        )
        return cast("HelloReply", reply)
