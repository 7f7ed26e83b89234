"""Samples the call stacks of running tasks, and notices samples that are late.

A sample says where each task is, and how much CPU time its thread had since the sample before. The
times of samples are set beforehand, in ticks; so each tick that falls into a task represents one
interval of it. The sampler may come later, as it must wait for the GIL: its sample then represents
all ticks since the sample before. Ticks of a task that has stopped by then are missed, and counted
as not sampled. A task that started after the last tick is not counted: to sample only what comes
when the GIL is free would be no fair sample.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Hashable
from math import nan
from typing import Any, NamedTuple

from dask_diag.capture.keys import function_of
from dask_diag.capture.metrics import ends_a_task, runs_a_task
from dask_diag.capture.task import Line, StackSample, TimedTask
from dask_diag.sampling.call_tree import LOADED, Run, Stacks, spread
from dask_diag.sampling.io_calls import hash_of_load, values_in_call
from dask_diag.sampling.probes import SampledTask, has_seceded
from dask_diag.sampling.sampler import Listener, TaskRun, thread_frames
from dask_diag.sampling.walker import Stack, Walker
from dask_diag.system.periodic import (
    TimeWithoutTicks,
    clock_of_thread,
    ticks_between,
    ticks_until,
    time_without_ticks,
)

_LATE = 0.05
"""Seconds, or else intervals, from which on the sampler is far too late."""
_LATE_INTERVALS = 5
_MOST_INPUTS = 4
"""Loads of a task that are compared."""
_CPU_OF_OTHERS = sys.platform == "linux" and hasattr(time, "clock_gettime")

_walker = Walker(runs_a_task, ends_a_task)
_lock = threading.Lock()
_users: list[None] = []


class StackProbe(NamedTuple):
    """Samples stacks every `interval` seconds; worker processes sum them up by `cycle`."""

    interval: float
    cycle: float

    @property
    def sample(self) -> Listener:
        """Listener for the sampler."""
        return sample_stacks

    @property
    def late(self) -> float:
        """Seconds between two samples from which on the later one counts as late."""
        return max(_LATE, _LATE_INTERVALS * self.interval)

    @property
    def this_thread(self) -> None:
        """None: no task is chosen beforehand."""

    @property
    def before(self) -> None:
        """None: nothing is read before a task."""

    @property
    def without_ticks(self) -> TimeWithoutTicks:
        """Span in which no task misses a sample."""
        return time_without_ticks(self.interval)

    def stop(self, run: TaskRun, task: SampledTask) -> None:
        """Count ticks missed since the last sample, or since the start of the task."""
        start, stop = task.start, task.stop
        if start is None or stop is None:
            return
        task_probe = run.task_probes.get(StackProbe)
        if task_probe is None or task_probe.start != start:
            if not ticks_between(start, stop, self.interval):
                return
            task_probe = self.task_probe(run, task, start)
        task_probe.end()

    def task_probe(self, run: TaskRun, task: SampledTask, start: float) -> StackTaskProbe:
        """Return a task probe for a task that has started."""
        kind = LocalStackTaskProbe if isinstance(task, TimedTask) else RemoteStackTaskProbe
        return kind(task, self, run.runs_on.native_id, start)


class StackTaskProbe:
    """Stacks of one run of a task.

    Attributes
    ----------
    task : TimedTask or RemoteTask
    start : float
        Start of the run: the wrapper may run another task by the time of the sample.
    """

    __slots__ = (
        *("_clock", "_cpu", "_last", "_loads", "_stop", "_ticks", "_turn"),
        *("probe", "start", "task"),
    )

    def __init__(self, task: Any, probe: StackProbe, native_id: int, start: float) -> None:
        self.task = task
        self.probe = probe
        # The clock of its thread, for others: an error, and nothing worse, if it has ended.
        self._clock = clock_of_thread(native_id)
        self._cpu: float = task.cpu_before
        self.start = self._last = start
        self._stop: float | None = None
        self._ticks = ticks_until(self._last, probe.interval)
        # Who takes this out counts: the task may stop while the sampler is at work.
        self._turn = [True]
        self._loads: set[tuple[int, int]] = set()

    def with_load(self, stack: Stack, values: tuple[Hashable, ...], ident: int) -> Stack:
        """The stack with a line of what is loaded, if it is new in the task."""
        place, code, _, is_function = stack.load or (0, 0, (), False)
        load = code, hash(values)
        if load in self._loads or len(self._loads) >= _MOST_INPUTS:
            return stack
        self._loads.add(load)
        # To look at files gives up the GIL: it is done once for each load.
        of_files = hash_of_load(values, is_function)
        if of_files is None:
            return stack
        loaded = hash((of_files, os.getpid(), ident))
        line = Line(LOADED, "", loaded, -2 - place, str(self.start))
        return Stack((*stack.lines, line))

    def sample(self, stack: Stack, now: float, ticks: int) -> None:
        """Count a stack that was read `now`, at tick number `ticks`."""
        if not self._has_turn():
            return
        try:
            self._count(stack, now, ticks)
        finally:
            self._turn.append(True)
        if self._stop is not None:
            self._count_rest(self._stop)

    def is_due(self, ticks: int) -> bool:
        """Whether there was a tick since the last sample."""
        return ticks > self._ticks

    def end(self) -> None:
        """Count ticks missed since the last sample; the sampler does so if it is counting now."""
        stop = self.task.stop
        if stop is not None:
            self._stop = stop
            self._count_rest(stop)

    def _has_turn(self) -> bool:
        try:
            return self._turn.pop()
        except IndexError:
            return False

    def _count(self, stack: Stack, now: float, ticks: int) -> None:
        since, share = now - self._last, nan
        if _CPU_OF_OTHERS:
            try:
                cpu = time.clock_gettime(self._clock)
            except OSError:
                return
            share = min(max((cpu - self._cpu) / since, 0.0), 1.0) if since > 0 else 0.0
            self._cpu = cpu
        seconds = (ticks - self._ticks) * self.probe.interval
        self._last, self._ticks = now, ticks
        self._see(now, stack, seconds, seconds * share)
        if since > self.probe.late:
            self._note_late(now, since)

    def _count_rest(self, stop: float) -> None:
        """Count missed ticks once: the turn is not returned."""
        if not self._has_turn():
            return
        ticks = ticks_until(stop, self.probe.interval) - self._ticks
        if ticks > 0:
            self._miss(stop, ticks * self.probe.interval)
            if stop - self._last > self.probe.late:
                self._note_late(stop, stop - self._last)

    def _see(self, now: float, stack: Stack, seconds: float, cpu: float) -> None:
        raise NotImplementedError

    def _miss(self, stop: float, seconds: float) -> None:
        raise NotImplementedError

    def _note_late(self, now: float, since: float) -> None:
        """Record a late sample."""


class LocalStackTaskProbe(StackTaskProbe):
    """Stacks of a task of this process: samples are counted at once."""

    __slots__ = ("_key", "_runs", "_task")

    def __init__(self, task: SampledTask, probe: StackProbe, native_id: int, start: float) -> None:
        super().__init__(task, probe, native_id, start)
        # The wrapper may hold another task by the time the sampler has sampled this one.
        self._key, self._task = task.key, task.task
        self._runs: dict[Stacks, Run] = {}

    def _run(self, stacks: Stacks) -> Run:
        """Run of the task in these stacks, by their cycles."""
        run = self._runs.get(stacks)
        if run is None:
            function = function_of(self._key, self._task)
            run = self._runs.setdefault(stacks, Run(function, self._key))
        return run

    def _see(self, now: float, stack: Stack, seconds: float, cpu: float) -> None:
        for stacks in self.task.computation.stacks:
            stacks.see(now, self._run(stacks), stack, seconds, cpu)

    def _miss(self, stop: float, seconds: float) -> None:
        for stacks in self.task.computation.stacks:
            stacks.miss(stop, self._run(stacks), seconds)

    def _note_late(self, now: float, since: float) -> None:
        for stacks in self.task.computation.stacks:
            stacks.note_late(now, since)


class RemoteStackTaskProbe(StackTaskProbe):
    """Stacks of a task in a worker process: samples are sent with its result."""

    __slots__ = ("_seen",)

    def __init__(self, task: SampledTask, probe: StackProbe, native_id: int, start: float) -> None:
        super().__init__(task, probe, native_id, start)
        self._seen: dict[tuple[int, Stack | None], list[float]] = {}

    def end(self) -> None:
        """Hand everything to the task."""
        super().end()
        self.task.stacks = self.samples()

    def samples(self) -> tuple[StackSample, ...]:
        """Samples so far."""
        cycle = self.probe.cycle
        # A copy in one step: the sampler may be at work.
        return tuple(
            ((number + 0.5) * cycle, stack.lines if stack else (), seconds, cpu, count)
            for (number, stack), (seconds, cpu, count) in self._seen.copy().items()
        )

    def _see(self, now: float, stack: Stack | None, seconds: float, cpu: float) -> None:
        cycle, count = self.probe.cycle, int(stack is not None)
        if has_seceded(self.task):
            seconds = min(seconds, cpu)
        for then, share in spread(now, seconds, cycle):
            values = self._seen.setdefault((int(then // cycle), stack), [0.0, 0.0, 0])
            values[0] += share * seconds
            values[1] += share * cpu
            values[2] += count
            count = 0

    def _miss(self, stop: float, seconds: float) -> None:
        self._see(stop, None, seconds, 0.0)


def sample_stacks(passed: float) -> None:
    """Sample every running task that is due."""
    tasks, frames, now, before = thread_frames()
    ticks, interval = 0, 0.0
    for ident, run in tasks.items():
        task_probe = run.task_probe(StackProbe)
        if task_probe is None:
            continue
        if task_probe.probe.interval != interval:
            interval = task_probe.probe.interval
            ticks = ticks_until(now, interval)
        innermost = frames.get(ident)
        if innermost is None or task_probe.start > before or not task_probe.is_due(ticks):
            continue
        stack = _walker.stack_of(innermost, task_probe.task.task)
        values = stack and stack.load and values_in_call(innermost, *stack.load[1:3])
        # If the run goes on before and after, it did when the frame was read.
        if stack is not None and run.goes_on(task_probe):
            if values:
                stack = task_probe.with_load(stack, values, ident)
            task_probe.sample(stack, now, ticks)


def keep_code() -> None:
    """Keep code objects until `forget_code`."""
    with _lock:
        _users.append(None)


def forget_code() -> None:
    """Release all code objects after one call for each `keep_code`."""
    with _lock:
        del _users[-1:]
        if not _users:
            _walker.forget()
