"""Facts of a recording, each computed when it is first used, and once.

A summary, a report and the findings use the same facts. The sweep over the workers' time, the
critical path and the division of waits take most of the time of a report; each is done once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dask_diag.analysis import cpu, memory
from dask_diag.analysis.activities import cells, seconds_by_activity
from dask_diag.analysis.built_by import BuiltBy, table_of_lines
from dask_diag.analysis.client_times import client_times
from dask_diag.analysis.critical_path import CriticalPath, critical_path
from dask_diag.analysis.first_calls import first_calls
from dask_diag.analysis.functions import by_function, shown_names
from dask_diag.analysis.groups import (
    counts_by,
    cpus_of_hosts,
    environment_rows,
    rows_by,
    workers_of_clusters,
)
from dask_diag.analysis.lines import busiest_thread, lines_of_io
from dask_diag.analysis.occupancy import Occupancy, occupancies
from dask_diag.analysis.phases import phases
from dask_diag.analysis.simulation.change import Changes
from dask_diag.analysis.simulation.simulate import Simulator
from dask_diag.analysis.simulation.work import Simulation
from dask_diag.analysis.task_times import seconds_called, seconds_computing
from dask_diag.analysis.waits import waits
from dask_diag.analysis.wall_time import wall_time
from dask_diag.columns import FloatArray
from dask_diag.errors import DiagnosticError
from dask_diag.formatting import count
from dask_diag.model.codes import NO_GIL, Activity
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.model.tables import seconds_of_tasks

if TYPE_CHECKING:
    from typing_extensions import Unpack

Fact = TypeVar("Fact")

REPLAYED_WITHIN = 0.1
"""Share of the time in computations by which the replay of a cluster may differ from it."""
_ROUNDING = 1e-9
_ALWAYS = 0.99
"""Largest share of the time that a thread is taken to be busy where others wait for it, too."""
_BESIDE_TASKS = 5.0
"""Factor of the calibrated cost that hooks may have for real tasks: tasks empty the caches of a
processor, and threads wait for each other. `benchmarks.switched` finds two to three times."""
_WITH_EFFECTS = 1.5
"""Factor of the measured cost that profilers may have: the program finds other things in the caches
after them, and collects the garbage. With both factors the bound holds in tests."""
MOST_SIMULATED = 4_000_000
"""Tasks of all simulations for findings together: ten seconds. Beyond them are upper bounds."""


def _fact(function: Callable[[Recording], Fact]) -> cached_property[Fact]:
    return cached_property(lambda analysis: function(analysis.recording))


class Analysis:
    """Facts of a recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.tasks = recording.tasks
        self.computations = recording.computations

    @cached_property
    def occupancies(self) -> list[Occupancy]:
        """Numbers of busy, blocked and idle workers over time, of each computation or series."""
        return occupancies(self.recording, in_series=True)

    @property
    def large_occupancies(self) -> list[Occupancy]:
        """Those of single computations: of many small ones none has an end that matters."""
        return [occupancy for occupancy in self.occupancies if not occupancy.is_series]

    @cached_property
    def activities(self) -> dict[str, float]:
        """Worker-seconds of each activity, the largest first; `cells` has labels, too."""
        return seconds_by_activity(self.recording, self.occupancies)

    def spent(self, *activities: str) -> float:
        """Worker-seconds of these activities."""
        return sum(self.activities.get(activity, 0.0) for activity in activities)

    @cached_property
    def wall_time(self) -> Table:
        """Wall time, divided among phases and, while tasks ran, among activities."""
        return wall_time(self.recording, self.activities, self.occupancies)

    @cached_property
    def phases(self) -> Table:
        """Wall time of each phase."""
        return phases(self.recording)

    @cached_property
    def cells(self) -> Table:
        """Activities by function and worker, in every unit."""
        return cells(self.recording, self.occupancies)

    built_by = _fact(BuiltBy.of)
    """Which share of each group of tasks each line of the program built."""

    @cached_property
    def lines(self) -> Table:
        """Seconds of tasks by the line that built them, without bytes; no rows without lines."""
        return table_of_lines(self.recording, self.built_by)

    client_times = _fact(client_times)
    """Seconds of the samples of the program's own thread: waiting, sending, its own code."""

    shown_names = _fact(shown_names)
    """The name of each function of tasks as texts have it, with the main steps of fused tasks."""

    functions = _fact(by_function)
    """Seconds of the tasks of each function, the longest first."""

    @cached_property
    def waits(self) -> Table:
        """Waits of tasks, by activity; no rows if waits were not recorded."""
        return waits(self.recording, by="activity")

    @property
    def has_waits(self) -> bool:
        """Whether waits were recorded."""
        return len(self.waits) > 0

    def waited(self, *activities: str) -> float:
        """Seconds that tasks waited in these ways; 0 if waits were not recorded."""
        return float(self.waits["seconds"][self.waits["activity"].is_in(activities)].sum())

    @cached_property
    def critical_path(self) -> CriticalPath:
        """The critical path of each computation."""
        return critical_path(self.recording)

    simulator = _fact(Simulator)
    """Predicts the wall time with changes."""

    @cached_property
    def python(self) -> str:
        """What the environment says of the program's Python; empty if it was not recorded."""
        return dict(environment_rows(self.recording, "versions")).get("python", "")

    @property
    def has_gil(self) -> bool:
        """Whether threads take turns: always, but in a build without a GIL."""
        return NO_GIL not in self.python

    @cached_property
    def seconds_with_gil(self) -> float:
        """CPU seconds of tasks of threads that need the GIL, about; 0 if not known."""
        if not self.has_waits or not self._may_simulate() or self.schedulers != {"threads"}:
            return 0.0
        return float(np.nansum(self.tasks.thread_cpu * self.simulator.gil)) / self.overlap

    def seconds_saved(self, **changes: Unpack[Changes]) -> float:
        """Seconds by which the program is shorter with a change, by the simulator.

        Both walls are simulated, so the simulator's errors are in both. Where computations overlap
        the seconds are a part of `computing`, not of `wall`. NaN if the change is not simulated:
        dependencies are damaged, `MOST_SIMULATED` tasks have been simulated, sizes of results are
        not known for processes, a cluster's replay differs from what was measured, or its programs
        and pools would be taken from its CPUs. The arguments are those of `simulate`.
        """
        of_cpus = changes.get("idle_machine") or changes.get("idle_pools")
        if not self._may_simulate() or (self.on_cluster and of_cpus):
            return math.nan
        try:
            recorded = self.simulator.simulate()
            if not self._may_simulate(**changes) or not self._is_true(recorded):
                return math.nan
            return recorded.seconds - self.simulator.simulate(**changes).seconds
        except DiagnosticError:
            return math.nan

    def _is_true(self, recorded: Simulation) -> bool:
        # On a cluster memory may matter, other clients, or that only some workers may run a task.
        return not self.on_cluster or abs(recorded.error) <= REPLAYED_WITHIN * self.computing

    def _may_simulate(self, **changes: Unpack[Changes]) -> bool:
        """Whether the simulation takes seconds at most; a change simulated before takes no time."""
        tasks = self.simulator.tasks_replayed + len(self.tasks)
        return tasks <= MOST_SIMULATED or self.simulator.is_simulated(**changes)

    @cached_property
    def chunks(self) -> tuple[int, int]:
        """Number of tasks of a function that could be one, and the number of workers for them."""
        if len(self.tasks) <= MOST_SIMULATED:
            return self.simulator.chunks()
        tasks = int(counts_by(self.tasks.function).max(initial=0))
        return tasks, max(1, round(self.workers))

    def waits_of_tasks(self, activity: str) -> FloatArray:
        """Seconds of a wait, task by task; without recorded waits, all seconds off a CPU."""
        if self.has_waits:
            return self.simulator.by_task(activity)
        return np.nan_to_num(self.tasks.thread_noncpu)

    first_calls = _fact(first_calls)
    """First runs of functions that took longer than later ones, and elsewhere."""

    lines_of_io = _fact(lines_of_io)
    """Lines of the program at which tasks load data, or repeat a call in a loop."""

    task_memory = _fact(memory.task_memory)
    """Memory that was sampled while the tasks of each function ran."""

    memory_headroom = _fact(memory.memory_headroom)
    """How many workers fit into memory, and by which multiple tasks at once may be more."""

    cached_levels = _fact(memory.cached_levels)
    """Cached results of each function over time, and of all functions."""

    @cached_property
    def task_seconds(self) -> FloatArray:
        """Task time of each task; 0 if not known."""
        return np.nan_to_num(seconds_of_tasks(self.tasks))

    def named(self, functions: Iterable[str]) -> tuple[str, ...]:
        """Names of functions, as texts have them."""
        return tuple(self.shown_names.get(name, name) for name in functions)

    @cached_property
    def in_tasks(self) -> float:
        """Worker-seconds of all tasks."""
        return float(self.task_seconds.sum())

    @cached_property
    def cpu_in_tasks(self) -> float:
        """CPU seconds of all tasks."""
        return float(np.nansum(self.tasks.thread_cpu))

    @cached_property
    def off_cpu_in_tasks(self) -> float:
        """Seconds off the CPU of all tasks with known times."""
        return float(np.nansum(self.tasks.thread_noncpu))

    thread_groups = _fact(cpu.thread_groups)
    """CPU of groups of threads, the largest first; empty if not known."""

    @property
    def cpu_beside_tasks(self) -> float:
        """CPU seconds of Python threads beside tasks in worker processes; 0 if not known.

        Such as event loops: in one process they and tasks may take turns for the GIL.
        """
        groups = self.thread_groups
        return sum(group.cpu for group in groups if group.kind == "python" and group.processes)

    @cached_property
    def cpu_of_own_threads(self) -> float:
        """CPU seconds of the profilers' threads; NaN if not known."""
        own = [group for group in self.thread_groups if group.kind == "dask_diag"]
        known = _known_sum(self.computations.cpu_own_threads)
        if not math.isnan(known):
            # Those of worker processes are known by computation only.
            return known + sum(group.cpu for group in own if group.processes)
        return sum(group.cpu for group in own) if self.thread_groups else math.nan

    @property
    def cpu_of_task_hooks(self) -> float:
        """CPU seconds of the profilers' hooks for tasks, about; NaN if not known of any."""
        return _known_sum(self.computations.cpu_hooks)

    @property
    def cpu_at_ends(self) -> float:
        """CPU seconds of the profilers' hooks as computations started and ended; NaN if unknown."""
        return _known_sum(self.computations.cpu_ends)

    @property
    def cpu_of_hooks(self) -> float:
        """CPU seconds of the profilers' hooks, about; NaN if not known of any computation."""
        return _known_sum(np.array([self.cpu_of_task_hooks, self.cpu_at_ends]))

    @property
    def share_of_task_hooks(self) -> float:
        """Share of the wall that hooks may have added while tasks ran; 0 if not known."""
        hooks = float(np.nan_to_num(self.cpu_of_task_hooks))
        return min(1.0, hooks / self.wall) if self.wall else 0.0

    @property
    def most_cpu_of_profilers(self) -> float:
        """CPU seconds that profilers added, at most; 0 for unknown parts."""
        measured = np.nansum([self.cpu_at_ends, self.cpu_of_own_threads])
        calibrated = np.nan_to_num(self.cpu_of_task_hooks)
        return float(_WITH_EFFECTS * measured + _BESIDE_TASKS * calibrated)

    @property
    def share_of_profilers(self) -> float:
        """Share of the recording that profilers may have added, at most; 0 for unknown parts."""
        recorded = self.recording.stop - self.recording.start
        return min(1.0, self.most_cpu_of_profilers / recorded) if recorded else 0.0

    @property
    def known_cpu_outside_tasks(self) -> float:
        """CPU seconds of threads that are neither a task's nor the scheduler's; 0 if unknown."""
        return max(float(np.nan_to_num(cpu.cpu_outside_tasks(self.recording))), 0.0)

    busiest_thread = _fact(busiest_thread)
    """The Python thread besides tasks and schedulers that was busy for longest; None if unknown."""

    @cached_property
    def busy_with_gil(self) -> float:
        """Seconds in which the busiest thread computed, or tasks with the GIL, about."""
        if self.busiest_thread is None or not self.busy_wall:
            return 0.0
        share = min(self.busiest_thread.seconds / self.busy_wall, _ALWAYS)
        # Tasks that need the GIL wait for it while the thread has it.
        for_gil = self.waited(Activity.GIL_WAIT) * (1 - share) / share if share else 0.0
        in_tasks = max(self.seconds_with_gil, min(for_gil, self.cpu_in_tasks))
        return min(self.busiest_thread.seconds + in_tasks, self.busy_wall)

    cpu_of_scheduler = _fact(cpu.cpu_of_scheduler)
    """CPU seconds of the threads that called the scheduler."""

    @cached_property
    def cpu_of_children(self) -> float:
        """CPU seconds of programs that tasks started; 0 if not known."""
        return cpu.cpu_of_children(self.recording) / self.overlap

    @cached_property
    def computing(self) -> float:
        """Seconds in which at least one computation ran."""
        return seconds_computing(self.computations)

    @cached_property
    def called(self) -> float:
        """Seconds in which at least one computation ran, or its graph was prepared."""
        return seconds_called(self.computations)

    @cached_property
    def wall(self) -> float:
        """Seconds of all computations, added up."""
        return sum(occupancy.wall for occupancy in self.occupancies)

    @cached_property
    def overlap(self) -> float:
        """Number of computations at once, on average: a lost second of each passes for all."""
        return self.wall / self.called if self.called > 0 else 1.0

    @property
    def added_up(self) -> str:
        """Words to add to seconds of computations that overlap, which are more than passed."""
        if self.wall <= self.called * (1 + _ROUNDING):
            return ""
        return f" (sum of {count(len(self.computations))} overlapping computations)"

    @cached_property
    def available(self) -> float:
        """Worker-seconds of all computations: wall time times workers."""
        return sum(occupancy.worker_seconds for occupancy in self.occupancies)

    @cached_property
    def occupied(self) -> float:
        """Worker-seconds in which a task ran or was moved, or may have been."""
        return sum(o.seconds(o.busy) + o.seconds(o.unknown) for o in self.occupancies)

    @property
    def workers(self) -> float:
        """Workers, on average over time."""
        return self.available / self.wall if self.wall else 1.0

    def share_of_workers(self, seconds: float) -> float:
        """Share that these seconds are of all worker-seconds."""
        return seconds / self.available if self.available else 0.0

    def wall_of_workers(self, seconds: float) -> float:
        """Wall time of these worker-seconds, if all workers lost them evenly."""
        return seconds / self.workers / self.overlap

    def wall_of_tasks(self, seconds: float) -> float:
        """Wall time of these seconds of tasks, of which several run at once."""
        return seconds / self.at_once / self.overlap

    @cached_property
    def busy_wall(self) -> float:
        """Seconds in which at least one task ran."""
        return self._seconds_with_more_than(0)

    @property
    def at_once(self) -> float:
        """Number of tasks at once, on average over the time in which any ran."""
        return self.in_tasks / self.busy_wall if self.busy_wall else 0.0

    @cached_property
    def share_at_once(self) -> float:
        """Share of the time with a running task in which several ran."""
        return self._seconds_with_more_than(1) / self.busy_wall if self.busy_wall else 0.0

    @cached_property
    def cpus(self) -> int:
        """CPUs that the computing process may use."""
        return int(self.computations.cpus.max(initial=1))

    @cached_property
    def cpu_limit(self) -> float:
        """CPUs that a limit of CPU time allows; infinite without one."""
        return float(self.recording.quotas.cpus.min(initial=math.inf))

    @cached_property
    def held_back(self) -> float:
        """Seconds in which a limit of CPU time kept the program from running."""
        quotas = self.recording.quotas
        rows = rows_by(self.computations.computation)
        held = 0.0
        for name, throttled in zip(
            quotas.computation.tolist(), quotas.throttled.tolist(), strict=True
        ):
            if throttled > 0 and name in rows:
                ran = self.computations.filter(rows[name])
                used = float(np.nansum([*ran.cpu_process, *ran.cpu_children]))
                wall = float((ran.stop - ran.start).sum())
                # As many CPUs stand still in the rest of the time as were used before.
                held += min(throttled, wall * throttled / (used + throttled))
        return held / self.overlap

    @cached_property
    def schedulers(self) -> set[str]:
        """Kinds of schedulers that ran computations."""
        return set(self.computations.scheduler.tolist())

    @cached_property
    def on_cluster(self) -> bool:
        """Whether a cluster ran computations: all of them or some."""
        return "distributed" in self.schedulers

    @cached_property
    def cpus_for_tasks(self) -> float:
        """CPUs that tasks could use; infinite on a cluster whose CPUs are not known."""
        if not self.on_cluster:
            return min(self.cpus, self.cpu_limit)
        return cpus_of_hosts(workers_of_clusters(self.recording))

    def _seconds_with_more_than(self, tasks: int) -> float:
        return sum(float(np.diff(o.times)[o.busy > tasks].sum()) for o in self.occupancies)


def _known_sum(seconds: FloatArray) -> float:
    """Sum of the known seconds; NaN if none is known."""
    return math.nan if np.isnan(seconds).all() else float(np.nansum(seconds))
