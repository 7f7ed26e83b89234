"""Samples what running tasks wait for, when they have no CPU time.

Exact is how long a task's thread could have run and had no processor. What it was blocked in is
sampled. The sampler needs the GIL itself, so a thread that was running Python code has just lost it
whenever the sampler runs: that a thread waits for the GIL is sure only if it has not run at all
since the sample before. Other samples of such waits are counted, and analysis gives them the part
of the exact time that nothing else explains.
"""

from __future__ import annotations

from math import isnan
from threading import get_native_id
from time import thread_time

from dask_diag.capture.sampling.linux_threads import LinuxThread
from dask_diag.capture.sampling.probes import SampledTask
from dask_diag.capture.sampling.sampler import Listener
from dask_diag.capture.sampling.threads_now import running_tasks
from dask_diag.capture.tasks.metered import Metered, Wait
from dask_diag.schema import Activity

__all__ = ["INTERVAL", "WaitProbe", "sample_waits"]

INTERVAL = 0.01
"""Seconds between samples."""
_NAN = float("nan")
_AT_ONCE = 2
"""Tasks that are sampled in one tick, so that many threads cost no more than two."""
_ticks = 0
_DID_NOT_RUN = 0.02
"""The share of an interval that a thread may have had of CPU and still count as not having run."""


class WaitProbe:
    """Samples what tasks wait for."""

    __slots__ = ("_threads",)

    interval = INTERVAL

    def __init__(self) -> None:
        # The files of a thread stay open as long as the probe: opening them is most of the cost.
        self._threads: dict[int, LinuxThread] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return WaitProbe, ()

    @property
    def sample(self) -> Listener:
        """What the sampler calls."""
        return sample_waits

    def task_probe(self, task: SampledTask) -> WaitTaskProbe:
        """The task probe of the task that starts on this thread."""
        ident = get_native_id()
        thread = self._threads.get(ident)
        waited = _waited_for_cpu(thread) if thread else _NAN
        if thread is None or isnan(waited):
            # Another thread may have had its id before.
            thread = self._threads[ident] = LinuxThread(ident)
            waited = _waited_for_cpu(thread)
        return WaitTaskProbe(task, thread, waited)


class WaitTaskProbe:
    """What one run of a task waits for, on a thread that had waited for a processor so long."""

    __slots__ = ("_cpu", "_tally", "_task", "_thread", "_waited")

    def __init__(self, task: SampledTask, thread: LinuxThread, waited: float) -> None:
        self._task = task
        self._thread = thread
        self._tally: dict[str, list[float]] = {}
        self._waited = waited
        self._cpu = thread_time()

    def sample(self, passed: float) -> None:
        """Note what the thread waits for; a sample represents so many seconds."""
        try:
            activity, cpu = self._thread.waits_for(), self._thread.cpu()
        except OSError:
            return
        ran = cpu - self._cpu > _DID_NOT_RUN * passed
        self._cpu = cpu
        metered = self._task.metered
        if not activity or (metered is not None and metered.open):
            return
        seen = self._tally.setdefault(activity, [0.0, 0])
        seen[0] += 0.0 if activity == Activity.GIL_WAIT and ran else passed
        seen[1] += 1

    def end(self) -> None:
        """Hand the samples to the task."""
        waited = _waited_for_cpu(self._thread) - self._waited
        if self._task.metered is None:
            self._task.metered = Metered()
        self._task.metered.waits = [
            Wait(Activity.CPU_WAIT, waited, 0),
            *(Wait(activity, seen[0], int(seen[1])) for activity, seen in self._tally.items()),
        ]


def _waited_for_cpu(thread: LinuxThread) -> float:
    """Seconds; NaN if they cannot be read just now: a task is never hindered by that."""
    try:
        return thread.waited_for_cpu()
    except Exception:
        return _NAN


def first_of(count: int, tick: int) -> int:
    """Which of so many tasks is sampled first in a tick.

    The root of two has nothing in common with the golden ratio, by which ticks are spread over
    their intervals: so each task is sampled in all parts of an interval.
    """
    return int(tick * 2**0.5 % 1.0 * count)


def sample_waits(passed: float) -> None:
    """Sample the tasks that run: some of many, in no order, which represent all."""
    global _ticks
    found = [run.task_probes.get(WaitProbe) for run in tuple(running_tasks.values())]
    task_probes = [task_probe for task_probe in found if task_probe is not None]
    count = len(task_probes)
    if count > _AT_ONCE:
        _ticks += 1
        first = first_of(count, _ticks)
        task_probes = [task_probes[(first + n) % count] for n in range(_AT_ONCE)]
        passed *= count / _AT_ONCE
    for task_probe in task_probes:
        task_probe.sample(passed)
