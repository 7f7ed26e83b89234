"""Waits of running tasks, read from the kernel at each tick.

How long a task's thread could have run and had no processor is read from the kernel, exactly: of
about one task of each thread between two ticks, so of nearly each that is longer. To read it for
each task of a fraction of a millisecond took a tenth of it. What a task was blocked in is sampled.
The sampler needs the GIL itself, so a thread that was running Python code has just lost it whenever
the sampler runs: that a thread waits for the GIL is sure only if it has not run at all since the
sample before. Other samples of such waits are counted, and analysis gives them the part
of the exact time that nothing else explains.
"""

from __future__ import annotations

import concurrent.futures
import os
import queue
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from math import nan
from random import Random
from types import FrameType
from weakref import WeakSet

from dask_diag.capture.computation import Computation
from dask_diag.capture.metrics import Metered, Wait
from dask_diag.capture.task import RemoteTask, TaskThread, ThisThread, TimedTask
from dask_diag.hooks.stack import WAITS_FOR_TASKS
from dask_diag.model.codes import Activity
from dask_diag.sampling.linux import LinuxThread, seconds_waited, why_not_here
from dask_diag.sampling.probes import SampledTask, attach_probe, has_seceded
from dask_diag.sampling.sampler import (
    Listener,
    StandingSubscription,
    TaskRun,
    running_now,
    thread_frames,
)

_TICKS = 4
"""Over so many it is averaged how many tasks a thread starts between two."""
_TASKS_AT_FIRST = 32
"""And before the first one."""


class ProbedThread(TaskThread):
    """A thread that runs tasks; for some of them its wait for a processor is read.

    About one between two ticks is: of long tasks nearly each, of short ones one of so many as the
    thread runs meanwhile. All have the same chance. Were it the first after a tick, tasks that wait
    for long would be read too often: between their ticks there are fewer.

    Attributes
    ----------
    linux : LinuxThread
    """

    __slots__ = ("__weakref__", "_between_ticks", "_random", "_tasks_at_tick", "linux")

    def __init__(self, ident: int, native_id: int) -> None:
        super().__init__(ident, native_id)
        self.linux = LinuxThread(native_id)
        # The first one always is: so it is known that those of its computation were probed.
        self.due = 1
        self._tasks_at_tick = 0
        # Its own generator: the program's draws are what they would be without it. Gaps of any
        # pattern may keep step with tasks that alternate.
        self._random = Random(native_id)
        # Until a tick says better: of tasks of some microseconds not all are to be read.
        self._between_ticks = 0.0

    def was_read(self) -> None:
        """Choose the next task to read."""
        self.due = self.tasks + self._gap()

    def tick(self) -> None:
        """Count the tasks started since the previous tick."""
        tasks = self.tasks
        started, self._tasks_at_tick = tasks - self._tasks_at_tick, tasks
        before = self._between_ticks or started
        self._between_ticks = before + (started - before) / _TICKS
        if self.due - tasks > max(1, 2 * self._between_ticks):
            self.due = tasks + self._gap()

    def _gap(self) -> int:
        """Random number of tasks between two readings, on average those of a tick."""
        mean = self._between_ticks or _TASKS_AT_FIRST
        return 1 + int(2 * (mean - 1) * self._random.random()) if mean > 1 else 1


class ThisProbedThread(ThisThread):
    """The current thread; a plain one if its state cannot be read.

    Parameters
    ----------
    probed : weakref.WeakSet of ProbedThread
        Where the threads are put that run tasks and live.
    """

    def __init__(self, probed: WeakSet[ProbedThread]) -> None:
        super().__init__()
        self.probed = probed
        with suppress(Exception):
            self.now = ProbedThread(self.now.ident, self.now.native_id)
            self.probed.add(self.now)


INTERVAL = 0.01
"""Seconds between samples."""
_AT_ONCE = 2
"""Tasks that are sampled in one tick, so that many threads cost no more than two."""
_ticks = count(1)
"""Numbers of the ticks in which only some tasks are sampled."""
_UNNOTICED = 10e-6
"""Seconds off the CPU in which no task can have waited for one: to be switched takes as long."""
_DID_NOT_RUN = 0.02
"""The share of an interval that a thread may have had of CPU and still count as not having run."""


class WaitProbe:
    """Samples the waits of tasks."""

    __slots__ = ("_threads", "this_thread")

    interval = INTERVAL

    def __init__(self) -> None:
        # The files of a thread stay open as long as the probe: opening them is most of the cost.
        self._threads: WeakSet[ProbedThread] = WeakSet()
        self.this_thread = ThisProbedThread(self._threads)

    def begin(self) -> None:
        """Begin a computation, of which the first task on each thread is read."""
        for thread in self._threads:
            thread.due = 0

    def __reduce__(self) -> tuple[object, ...]:
        return WaitProbe, ()

    @property
    def sample(self) -> Listener:
        """Listener for the sampler."""
        return sample_waits

    @property
    def without_ticks(self) -> None:
        """None: missed ticks are not counted."""

    def before(self, run: TaskRun) -> None:
        """Read the seconds in which the thread has waited for a processor."""
        try:
            thread = _probed_thread(run)
            if thread is not None:
                thread.was_read()
                run.waited = thread.linux.read_schedstat()
        except Exception:
            # A task is never hindered by what cannot be read.
            run.waited = b""

    def stop(self, run: TaskRun, task: SampledTask) -> None:
        """Hand samples and, if they were read, seconds without a processor to the task."""
        start, stop = task.start, task.stop
        if start is None or stop is None:
            return
        task_probe = run.task_probes.get(WaitProbe)
        if task_probe is not None and task_probe.start != start:
            task_probe = None
        if task_probe is None and not run.waited:
            return
        waits = [] if task_probe is None else task_probe.waits()
        if run.waited:
            is_off = stop - start - task.cpu > _UNNOTICED
            waited = _waited_since(run.waited, run) if is_off else 0.0
            waits.append(Wait(Activity.CPU_WAIT, waited, 1))
        elif task_probe is not None and stop - start >= INTERVAL:
            # All but what passed before its first sample.
            waits.append(Wait(Activity.CPU_WAIT, _waited_since(task_probe.waited, run), 0))
        if task.metered is None:
            task.metered = Metered()
        task.metered.waits = waits

    def task_probe(self, run: TaskRun, task: SampledTask, start: float) -> WaitTaskProbe:
        """Return a task probe for a task that has started."""
        return WaitTaskProbe(task, _probed_thread(run), start)


class WaitTaskProbe:
    """Waits of one run of a task.

    Attributes
    ----------
    start : float
        Time when the task started.
    waited : bytes
        How long its thread had waited for a processor when it was sampled first.
    """

    __slots__ = ("_cpu", "_is_here", "_labels", "_tally", "_task", "_thread", "start", "waited")

    def __init__(self, task: SampledTask, thread: ProbedThread | None, start: float) -> None:
        self.start = start
        self._task = task
        self._thread = thread
        # Seconds and samples by activity and by the id of the label of the metered code: the
        # sampler's thread must not call a label's own methods.
        self._tally: dict[tuple[str, int], list[float]] = {}
        self._labels: dict[int, Hashable] = {}
        self._cpu = task.cpu_before
        # A task of a cluster waits for a lock of the cluster, too, as for another thread.
        self._is_here = isinstance(task, (TimedTask, RemoteTask))
        self.waited = b"" if thread is None else thread.linux.read_schedstat()

    def tick(self) -> None:
        """Count a sample of the task's thread."""
        if self._thread is not None:
            self._thread.tick()

    def sample(self, passed: float) -> None:
        """Record the wait of the thread, for the seconds that passed since the previous tick."""
        if self._thread is None:
            return
        try:
            linux = self._thread.linux
            activity, cpu = linux.waits_for(), linux.cpu()
        except OSError:
            return
        ran = cpu - self._cpu > _DID_NOT_RUN * passed
        self._cpu = cpu
        if not activity:
            return
        if activity == Activity.LOCK_WAIT and self._is_here and waits_for_thread(self._frame()):
            activity = Activity.THREAD_WAIT
        metered = self._task.metered
        # A slice, in one step: the task may leave the block meanwhile.
        opened = () if metered is None else metered.open[-1:]
        label = opened[0].label if opened else ""
        self._labels[id(label)] = label
        seen = self._tally.setdefault((activity, id(label)), [0.0, 0])
        seen[0] += 0.0 if activity == Activity.GIL_WAIT and ran else passed
        seen[1] += 1

    def _frame(self) -> FrameType | None:
        """Innermost frame of the thread; not to be kept."""
        thread = self._thread
        return None if thread is None else thread_frames().frames.get(thread.ident)

    def waits(self) -> list[Wait]:
        """Waits sampled so far."""
        # A copy in one step: the sampler may be at work.
        return [
            Wait(activity, seen[0], int(seen[1]), _text(self._labels[label]))
            for (activity, label), seen in self._tally.copy().items()
        ]


_FOR_THREADS = {
    *(threading.Event.wait.__code__, threading.Thread.join.__code__),
    *(threading.Barrier.wait.__code__, Future.result.__code__, Future.exception.__code__),
    *(concurrent.futures.wait.__code__, concurrent.futures.as_completed.__code__),
    *(code for code in [WAITS_FOR_TASKS] if code is not None),
}
"""Functions that return when another thread has done something, not when one releases a lock."""
_WAITING_FILES = {code.co_filename for code in _FOR_THREADS} | {queue.__file__}


def waits_for_thread(frame: FrameType | None) -> bool:
    """Whether a thread that is blocked in a lock waits for another thread to do something."""
    while frame is not None:
        code = frame.f_code
        if code in _FOR_THREADS:
            return True
        if code.co_filename not in _WAITING_FILES:
            return False
        frame = frame.f_back
    return False


def _text(label: Hashable) -> str:
    """Text of a label; empty if it has none, as its block is then left out, too."""
    try:
        return str(label)
    except Exception:
        return ""


def _probed_thread(run: TaskRun) -> ProbedThread | None:
    """Thread of a task; None if its state cannot be read."""
    thread = run.runs_on
    return thread if isinstance(thread, ProbedThread) else None


def _waited_since(reading: bytes, run: TaskRun) -> float:
    """Seconds without a processor since a reading; NaN if unknown."""
    try:
        thread = _probed_thread(run)
        return nan if thread is None else thread.linux.waited_for_cpu() - seconds_waited(reading)
    except Exception:
        return nan


def first_position(count: int, tick: int) -> int:
    """Position of the first task to sample in a tick.

    The root of two has nothing in common with the golden ratio, by which ticks are spread over
    their intervals: so each task is sampled in all parts of an interval.
    """
    return int(tick * 2**0.5 % 1.0 * count)


def sample_waits(passed: float) -> None:
    """Sample running tasks; of many only some, which represent all."""
    runs = (run for run in running_now().values() if not has_seceded(run.task))
    sampled = (run.task_probe(WaitProbe) for run in runs)
    task_probes = [task_probe for task_probe in sampled if task_probe is not None]
    for task_probe in task_probes:
        task_probe.tick()
    running = len(task_probes)
    if running > _AT_ONCE:
        first = first_position(running, next(_ticks))
        task_probes = [task_probes[(first + n) % running] for n in range(_AT_ONCE)]
        passed *= running / _AT_ONCE
    for task_probe in task_probes:
        task_probe.sample(passed)


class WaitRecorder:
    """Samples the tasks of computations with a `WaitProbe`.

    Parameters
    ----------
    is_active : callable
        Whether the profiler is active; while it is, threads' files stay open between computations.
    failed : callable
        Called with an error of the sampler.

    Attributes
    ----------
    why_not : str
        Why waits are not recorded here, as of the last computation; empty if they are.
    """

    def __init__(self, is_active: Callable[[], bool], failed: Callable[[Exception], None]) -> None:
        self.why_not = ""
        self._is_active = is_active
        self._failed = failed
        self._subscription = StandingSubscription(is_active, failed)
        self._probes: dict[int, WaitProbe] = {}
        self._idle: list[WaitProbe] = []
        self._pid = 0

    def probe(self) -> WaitProbe | None:
        """A probe whose cost can be measured; None where waits cannot be recorded."""
        return None if why_not_here() else WaitProbe()

    def begin(self, computation: Computation) -> None:
        """Sample the tasks of a computation."""
        if self._pid != os.getpid():
            # The threads of idle probes are those of the parent of a fork.
            self._idle, self._pid, self.why_not = [], os.getpid(), why_not_here()
        if self.why_not:
            return
        # One for each computation that runs: of each the first task of each thread is read.
        probe = self._idle.pop() if self._idle else WaitProbe()
        probe.begin()
        self._probes[computation.number] = probe
        attach_probe(computation, probe, self._failed)
        self._subscription.begin(computation.number, probe.sample, probe.interval)

    def end(self, computation: Computation) -> None:
        """Stop sampling a computation that has ended."""
        probe = self._probes.pop(computation.number, None)
        if probe is not None and self._is_active():
            self._idle.append(probe)
        self._subscription.end(computation.number)

    def close(self) -> None:
        """Close all files, and stop sampling: the profiler has ended."""
        self._idle, self._pid = [], 0
        self._subscription.end_if_unused()
