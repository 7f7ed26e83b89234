"""Predict the wall time of a recorded program with a change.

Each computation's work is changed, replayed, and slowed down: the replay knows workers and the
scheduler's thread; what tasks lose where there are more workers than CPUs, or more that need the
GIL, is added afterwards, see `contention`.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from math import inf, nan
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dask_diag.analysis.cpu import seconds_beside
from dask_diag.analysis.groups import counts_by
from dask_diag.analysis.phases import seconds_not_of_graphs
from dask_diag.analysis.simulation.calibrate import works_of
from dask_diag.analysis.simulation.change import (
    Change,
    Changes,
    merged,
    side_by_side,
    speedups,
    with_fewer_turns,
    with_fewer_workers,
    without,
)
from dask_diag.analysis.simulation.replay import Graph, Timeline, contention, least_seconds, replay
from dask_diag.analysis.simulation.replay_cluster import replay_on_cluster
from dask_diag.analysis.simulation.schedulers import (
    POOL_START,
    bytes_moved,
    result_sizes,
    startup_slowdown,
    startups,
    startups_of_all,
    under,
)
from dask_diag.analysis.simulation.task_seconds import (
    gil_shares,
    seconds_by_activity,
    seconds_metered,
)
from dask_diag.analysis.simulation.work import STEPS, Row, Simulation, Work, table_of
from dask_diag.analysis.task_times import TRANSFERS, transfers_between_workers
from dask_diag.columns import FloatArray, IntArray, ratio
from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import Activity
from dask_diag.model.recording import Recording, Sources, recording_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

CPU_OF_SLEEPERS = 0.1
"""Without recorded waits: tasks that had a CPU in a smaller share of their time are taken to sleep.
Those that compute get more even beside five programs on two CPUs."""


MOST_REPLAYED = 200
"""Computations that are replayed; of more, each is like the most similar one that is."""

CONTENTION = (Activity.CPU_WAIT, Activity.GIL_WAIT)
"""Waits that are there because tasks ran at once."""


class Simulator:
    """Simulates one recording under several changes; the recording is read once.

    Parameters
    ----------
    source : Recording, profiler, or list of these

    Attributes
    ----------
    tasks_replayed : int
        Tasks of all replays so far: a million take about three seconds.
    """

    def __init__(self, source: Sources) -> None:
        self.recording = recording_of(source)
        self.tasks_replayed = 0
        self._simulated: dict[Change, Simulation] = {}
        self._graphs: dict[str, Graph] = {}
        self._replayed: dict[str, Timeline] = {}
        self._delays: dict[tuple[str, float, float], float] = {}

    @cached_property
    def computations(self) -> list[Row]:
        """Rows of computations, in the order of their calls, or of their schedulers' starts."""
        rows = self.recording.computations.to_dicts()
        for row in rows:
            row["called"] = float(np.fmin(row["called"], row["start"]))
        return sorted(rows, key=lambda row: float(row["called"]))

    @cached_property
    def alike(self) -> dict[str, str]:
        """The replayed computation that stands for each other one: none, up to `MOST_REPLAYED`.

        Of the computations of one line with as many tasks, those are replayed that are evenly
        spread over all, by how long they lasted.
        """
        if len(self.computations) <= MOST_REPLAYED:
            return {}
        labels = self.recording.tasks.computation
        counts = dict(zip(labels.values, counts_by(labels).tolist(), strict=True))
        groups: dict[tuple[object, ...], list[Row]] = {}
        for row in self.computations:
            kind = row["scheduler"], row["cluster"], row["workers"], row["call_site"]
            groups.setdefault((*kind, counts.get(row["computation"], 0)), []).append(row)
        each = max(MOST_REPLAYED // len(groups), 1)
        alike = {}
        for rows in groups.values():
            rows.sort(key=lambda row: float(row["stop"] - row["called"]))
            parts = min(each, len(rows))
            for part in range(parts):
                these = rows[part * len(rows) // parts : (part + 1) * len(rows) // parts]
                middle = these[len(these) // 2]["computation"]
                alike.update({row["computation"]: middle for row in these})
        return {name: other for name, other in alike.items() if name != other}

    @cached_property
    def works(self) -> dict[str, Work]:
        """Tasks and costs of each computation with tasks that is replayed."""
        works = works_of(self.recording, self.alike)
        cpus = {row["computation"]: max(float(row["cpus"]), 1.0) for row in self.computations}
        recorded = self.recording.computations.computation.tolist()
        fixed = dict(zip(recorded, seconds_not_of_graphs(self.recording).tolist(), strict=True))
        return {
            name: replace(
                work,
                sleeps=self._sleeps(work, cpus[name]),
                imports=(imports := min(fixed[name], work.graph)),
                graph=work.graph - imports,
            )
            for name, work in works.items()
        }

    def _sleeps(self, work: Work, cpus: float) -> bool:
        """Whether tasks, and the programs started by tasks, wanted no CPU most of the time.

        If it is not known which part of their time they waited for one, they may have in all of it.
        """
        took = float(work.seconds.sum())
        cpu = float(work.cpu.sum()) + seconds_beside(work.others, work.cpu_children, cpus)
        waited = self.activities.get(Activity.CPU_WAIT)
        if waited is None:
            return cpu < CPU_OF_SLEEPERS * took
        return cpu + float(waited[work.rows].sum()) < took / 2

    @cached_property
    def activities(self) -> dict[str, FloatArray]:
        """The seconds of each activity, task by task."""
        return seconds_by_activity(self.recording)

    @cached_property
    def metered(self) -> dict[str, FloatArray]:
        """Seconds of each metered label, task by task; also a part of `activities`."""
        return seconds_metered(self.recording)

    @cached_property
    def gil(self) -> FloatArray:
        """Share of each task's CPU time with the GIL held."""
        waited = self.activities.get(Activity.GIL_WAIT)
        if waited is None:
            return np.zeros(len(self.recording.tasks))
        return gil_shares(self.recording, waited)

    def gil_held(self, work: Work) -> float:
        """Share of a computation's time in which tasks hold the GIL."""
        lasts = self.recorded_timeline(work).end
        held = float((work.cpu * self.gil[work.rows]).sum())
        return min(held / lasts, 1.0) if lasts > 0 else 0.0

    @cached_property
    def result_sizes(self) -> FloatArray | None:
        """Bytes of each task's result; None if not measured."""
        return result_sizes(self.recording)

    @cached_property
    def pool_start(self) -> float:
        """Seconds in which worker processes with a CPU each start, as recorded if any did."""
        seconds = 0.0
        for row in self.computations:
            work = self.works.get(row["computation"])
            if work is not None and work.startup and work.cluster is None:
                crowd = startup_slowdown(work.workers, work.others, row["cpus"])
                seconds = max(seconds, max(work.startup) / crowd)
        return seconds or POOL_START

    @cached_property
    def uses_processes(self) -> bool:
        """Whether any computation ran in worker processes."""
        return bool(self.recording.computations.scheduler.eq("processes").any())

    @cached_property
    def outside(self) -> float:
        """Seconds without a running computation."""
        covered, until = 0.0, self.recording.start
        for row in self.computations:
            # Computations may overlap: what those before covered counts once.
            covered += max(0.0, row["stop"] - max(row["called"], until))
            until = max(until, row["stop"])
        return max(0.0, self.recording.stop - self.recording.start - covered)

    @cached_property
    def _lasted(self) -> dict[str, float]:
        """Seconds of each computation."""
        return {row["computation"]: row["stop"] - row["called"] for row in self.computations}

    @cached_property
    def _times(self) -> dict[str, float]:
        """How many computations as long as each of those that are replayed it stands for."""
        times = dict.fromkeys(self.works, 1.0)
        for name, other in self.alike.items():
            if other in times and self._lasted[other] > 0:
                times[other] += self._lasted[name] / self._lasted[other]
        return times

    def functions(self, work: Work) -> IntArray:
        """The function of each task, as a number."""
        return self.recording.tasks.function.codes[work.rows].astype(np.int64)

    def seconds_of(self, activity: str) -> float:
        """Removable seconds of an activity, of workers and schedulers."""
        works = [(work, self._times[name]) for name, work in self.works.items()]
        if activity == Activity.GRAPH:
            return sum(work.graph * times for work, times in works)
        if activity == Activity.STARTUP:
            return sum(sum(work.startup) * times for work, times in works)
        if activity == Activity.OVERHEAD:
            steps = (getattr(work, name).sum() * times for work, times in works for name in STEPS)
            return float(sum(steps)) + sum(work.before * times for work, times in works)
        if activity == Activity.TRANSFER:
            moved = transfers_between_workers(self.recording)
            return float((moved.stop - moved.start).sum())
        return float(self.metered.get(activity, self.by_task(activity)).sum())

    def by_task(self, activity: str) -> FloatArray:
        """Seconds of an activity on workers, task by task."""
        return self.activities.get(activity, np.zeros(len(self.recording.tasks)))

    @property
    def bytes_of_results(self) -> float:
        """Bytes of results passing between processes; NaN if unknown.

        Each once to the scheduler, and once to each task that uses it.
        """
        sizes = self.result_sizes
        if sizes is None:
            return nan
        total = 0.0
        for name, work in self.works.items():
            moved = bytes_moved(replace(work, graph_bytes=0.0), sizes[work.rows])
            total += self._times[name] * float(sum(part.sum() for part in moved))
        return total

    @property
    def bytes_of_graphs(self) -> float:
        """Bytes of graphs' data sent to processes; 0 if unknown."""
        return sum(self._times[name] * work.graph_bytes for name, work in self.works.items())

    def chunks(self) -> tuple[int, int]:
        """Number of mergeable tasks of a function, and of workers, in one computation.

        The computation with most task time need not have most tasks: dask-awkward first computes
        which columns are needed, with tasks that have no data. Nor need it be the longest: on a
        cluster, that may be a wait for few tasks.
        """
        works = self.works
        if not works:
            return 0, 1
        work = max(works.values(), key=lambda work: float(work.seconds.sum()))
        return side_by_side(work, self.functions(work)), work.workers

    def simulate(self, **changes: Unpack[Changes]) -> Simulation:
        """Simulate as `dask_diag.simulate` does, each change once."""
        change = Change.of(self.recording, **changes)
        if change not in self._simulated:
            self._simulated[change] = self._simulate(change)
        return self._simulated[change]

    def is_simulated(self, **changes: Unpack[Changes]) -> bool:
        """Whether a change was simulated before."""
        return Change.of(self.recording, **changes) in self._simulated

    def _simulate(self, change: Change) -> Simulation:
        factors = speedups(self.recording, dict(change.speedup))
        rows: list[Row] = []
        row_of: dict[str, Row] = {}
        for computation in self.computations:
            if computation["computation"] in self.works:
                is_same = computation["scheduler"] == change.scheduler
                changed = replace(change, scheduler=None) if is_same else change
                made = _ChangedComputation(self, changed, factors, computation).row()
                row_of[made["computation"]] = made
        moved: list[tuple[float, float]] = []
        first = last = self.recording.start
        for computation in self.computations:
            # It starts as long after the computations before it as it did.
            before = bisect_right(moved, (computation["called"], inf))
            stop, simulated = moved[before - 1] if before else (first, first)
            seconds = computation["stop"] - computation["called"]
            name = str(computation["computation"])
            row = row_of.get(self.alike.get(name, name))
            if row is not None:
                rows.append(row if row["computation"] == name else _as_long(row, name, seconds))
                seconds = rows[-1]["seconds"]
            begins = simulated + computation["called"] - stop
            insort(moved, (computation["stop"], begins + seconds))
        stop, simulated = max(moved, default=(first, first))
        last = max([simulated + self.recording.stop - stop, *(end for _, end in moved)])
        return Simulation(
            seconds=last - first,
            measured=self.recording.stop - self.recording.start,
            outside=self.outside,
            computations=table_of(rows),
        )

    def replay(self, computation: str, work: Work, workers: int, is_merged: bool) -> Timeline:
        """Run the tasks of a computation; the graph is made once for all without merging."""
        self.tasks_replayed += len(work)
        if is_merged:
            graph = Graph(work)
        else:
            graph = self._graphs[computation] = self._graphs.get(computation) or Graph(work)
        if work.cluster is not None:
            return replay_on_cluster(work, work.cluster, workers, graph)
        return replay(work, workers, graph)

    def replay_recorded(self, computation: str) -> Timeline:
        """Replay a computation as recorded, once."""
        if computation not in self._replayed:
            work = self.works[computation]
            self._replayed[computation] = self.replay(computation, work, work.workers, False)
        return self._replayed[computation]

    def recorded_delays(self, computation: str, cpus: float, gils: float) -> float:
        """`contention` of a computation as recorded."""
        key = computation, cpus, gils
        if key not in self._delays:
            work = self.works[computation]
            self._delays[key] = contention(self.recorded_timeline(work), work, cpus, gils)
        return self._delays[key]

    def recorded_timeline(self, work: Work) -> Timeline:
        """Timeline of a computation as recorded."""
        tasks = self.recording.tasks
        stop = np.fmax(tasks.stop[work.rows], tasks.start[work.rows] + work.seconds)
        start = np.nan_to_num(stop - work.seconds)
        stop = start + work.seconds
        end = float((stop + work.deliver + work.notice).max() - (start - work.wake).min())
        steps = work.prepare.sum() + work.collect.sum() + work.submit * len(work) / work.batch
        return Timeline(start, stop, end, max(end - float(steps), 0.0))


class _ChangedComputation:
    """Simulates one computation with a change.

    Parameters
    ----------
    simulator : Simulator
    change : Change
    factors : array of float
        By what the seconds of each task of the recording are divided.
    computation : dict
        A row of `Simulator.computations`; it ran tasks.
    """

    def __init__(
        self, simulator: Simulator, change: Change, factors: FloatArray, computation: Row
    ) -> None:
        self._simulator, self._change, self._computation = simulator, change, computation
        self._name = computation["computation"]
        self._work = simulator.works[self._name]
        self._factors = factors[self._work.rows]
        self._workers = self._work.workers
        if change.workers is not None:
            # More workers than tasks change nothing, and the replay needs a number.
            most = max(len(self._work), self._workers)
            self._workers = most if change.workers == inf else int(change.workers)

    def row(self) -> Row:
        """The row of the computation in `Simulation.computations`.

        Raises
        ------
        DiagnosticError
            If sizes of results that matter are not known.
        """
        measured = float(self._computation["stop"] - self._computation["called"])
        changed, is_merged = self._changed(), self._change.merge_tasks > 1
        if self._change.is_of_tasks:
            timeline = self._simulator.replay(self._name, changed, self._workers, is_merged)
        else:
            # Nothing of the tasks changes: the replay of what was recorded is shared by all such
            # changes.
            timeline = self._simulator.replay_recorded(self._name)
        preparing = changed.imports + changed.graph + changed.before + changed.after
        seconds = preparing + timeline.end
        is_other = self._workers != self._work.workers or self._change.scheduler
        if is_other or self._change.remove:
            seconds = self._slowed(seconds, timeline, changed, measured)
        return {
            "computation": self._name,
            "workers": self._workers,
            "measured": measured,
            "seconds": seconds,
            "preparing": preparing,
            "scheduling": timeline.end - timeline.waiting,
            "work": float(changed.seconds.sum()),
        }

    def _changed(self) -> Work:
        """Change the tasks, and then the costs of the scheduler."""
        change, simulator, workers = self._change, self._simulator, self._workers
        changed, cpus = self._with_other_tasks(), self._computation["cpus"]
        # Tasks are merged before another scheduler's costs are put on them: these are of each task
        # that is handed out, however large it is.
        if change.merge_tasks > 1:
            changed = merged(changed, simulator.functions(changed), change.merge_tasks)
        if change.scheduler is not None:
            start = simulator.pool_start * startup_slowdown(workers, changed.others, cpus)
            changed = under(changed, change.scheduler, workers, self._sizes(changed), start)
        elif change.workers is not None:
            changed = replace(changed, startup=startups(changed, self._work, workers, cpus))
        if change.chunksize is not None:
            startup = startups_of_all(changed)
            changed = replace(changed, batch=change.chunksize, startup=startup)
        return changed

    def _sizes(self, work: Work) -> FloatArray:
        """Bytes of results; 0 for threads."""
        if self._change.scheduler != "processes":
            return np.zeros(len(work))
        if self._change.result_bytes is not None:
            return np.full(len(work), float(self._change.result_bytes))
        if self._simulator.result_sizes is None:
            raise DiagnosticError(
                "scheduler: the sizes of results are unknown, which pass between processes; record "
                "them with CacheProfiler(metric=nbytes, unit='bytes'), or pass result_bytes"
            )
        return self._simulator.result_sizes[work.rows]

    def _with_other_tasks(self) -> Work:
        """Remove activities, and make functions quicker."""
        simulator, less = self._simulator, self._shares_of_tasks()
        work, workers = self._work, self._workers
        if workers < work.workers:
            work = with_fewer_workers(work, workers)
        turns = less.get(Activity.GIL_WAIT, 0.0) * simulator.gil_held(work)
        if turns and work.cluster is None:
            work = with_fewer_turns(work, turns)
        work = without(work, simulator.recording, self._change.shares)
        seconds, cpu = work.seconds, work.cpu
        for label in less.keys() & simulator.metered.keys():
            seconds = seconds - less[label] * simulator.metered[label][work.rows]
        # What is left of a task without its metered code has activities in proportion.
        seconds = np.maximum(seconds, 0.0)
        left = ratio(seconds, work.seconds, 1.0)
        for activity in less.keys() & simulator.activities.keys():
            removed = less[activity] * left * simulator.activities[activity][work.rows]
            seconds = seconds - removed
            cpu = cpu - removed if activity == Activity.CPU else cpu
        # Where tasks are always on a CPU, they wait for no threads of libraries.
        is_idle = self._change.idle_pools or self._change.without(Activity.NONCPU)
        seconds = np.maximum(seconds, 0.0) / self._factors
        # A task has no more CPU time than it lasts, whatever was removed from it.
        cpu = np.minimum(np.maximum(cpu, 0.0) / self._factors, seconds)
        return replace(
            work,
            seconds=seconds,
            cpu=cpu,
            gil=cpu * simulator.gil[work.rows],
            pool_cpu=0.0 if is_idle else work.pool_cpu,
            others=0.0 if self._change.idle_machine else work.others,
        )

    def _shares_of_tasks(self) -> dict[str, float]:
        """Share of each activity removed from tasks: asked for, or a consequence."""
        less = self._change.shares
        if self._workers < self._work.workers:
            less |= dict.fromkeys(CONTENTION, 1.0)
        if self._change.scheduler and self._simulator.uses_processes:
            less |= dict.fromkeys(TRANSFERS, 1.0)
        if self._change.scheduler == "processes":
            less[Activity.GIL_WAIT] = 1.0
        return less

    def _slowed(self, seconds: float, timeline: Timeline, changed: Work, measured: float) -> float:
        """Seconds with the delays of tasks by each other, at least the seconds of CPUs and GILs."""
        cpus, gils = self._limits(self._workers)
        delays = contention(timeline, changed, cpus, gils)
        # As recorded, delays were measured: what the model says of them is its error.
        recorded = self._simulator.recorded_delays(self._name, *self._limits(self._work.workers))
        least = min(least_seconds(changed, cpus, gils), max(measured, seconds))
        return max(seconds + max(delays - recorded, 0.0), least)

    def _limits(self, workers: int) -> tuple[float, float]:
        """Numbers of CPUs and of GILs for a number of workers."""
        change, cluster = self._change, self._work.cluster
        cpus, processes = max(float(self._computation["cpus"]), 1.0), 1.0
        if cluster is not None:
            # Where workers were on several hosts, more of them are on more hosts.
            times = workers / self._work.workers if cluster.hosts > 1 else 1.0
            cpus = cluster.cpus * times
            if not cluster.is_one_process:
                processes = max(workers / cluster.threads, 1.0)
        elif (change.scheduler or self._computation["scheduler"]) == "processes":
            processes = inf
        # Without half of the waits for it, half of the turns need not be taken.
        turns = 1.0 - change.shares.get(Activity.GIL_WAIT, 0.0)
        cpus = inf if change.without(Activity.CPU_WAIT) else cpus
        return cpus, processes / turns if turns > 0 else inf


def _as_long(row: Row, computation: str, seconds: float) -> Row:
    """The row of a computation that took so many seconds, and is like the one of another row."""
    times = seconds / row["measured"] if row["measured"] > 0 else 1.0
    of_time = ("measured", "seconds", "preparing", "scheduling", "work")
    return {**row, "computation": computation, **{name: row[name] * times for name in of_time}}


def is_of_cluster(recording: Recording) -> bool:
    """Whether a cluster ran any computation."""
    return bool(recording.computations.scheduler.eq("distributed").any())


T = TypeVar("T")


def _is_given(number: object) -> bool:
    return number is not None and not (isinstance(number, tuple) and not number)


def number_of_workers(recording: Recording, workers: T, threads: T) -> T:
    """The one of both that suits the recording: `threads` on a cluster, else `workers`.

    Raises
    ------
    DiagnosticError
        If the other one is given.
    """
    if is_of_cluster(recording):
        if _is_given(workers):
            raise DiagnosticError(
                "workers: expected None for a recording of a cluster, whose workers may have "
                f"several threads, found {workers!r}; pass threads=, the threads of all workers"
            )
        return threads
    if _is_given(threads):
        raise DiagnosticError(
            f"threads: expected None without a cluster, found {threads!r}; pass workers="
        )
    return workers


def simulate(
    source: Sources,
    workers: float | None = None,
    remove: Collection[str] = frozenset(),
    speedup: Mapping[str, float] | None = None,
    merge_tasks: int | None = None,
    *,
    threads: float | None = None,
    chunksize: int | None = None,
    scheduler: str | None = None,
    result_bytes: float | None = None,
    idle_machine: bool = False,
    idle_pools: bool = False,
) -> Simulation:
    """Predict the wall time of a recorded program under a change.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements with tasks. Several are combined.
    workers : int, optional
        Number of workers (threads or processes) of a local scheduler, for every computation;
        ``math.inf`` for one per task. The machine stays the same: tasks that need a CPU share its
        CPUs. Default: as recorded.
    remove : collection of str, or mapping of str to float, optional
        Activities that take no time: any activity of tasks (``gil-wait``, ``io-wait``,
        ``serialize``, …), ``overhead`` (scheduling overhead), ``graph``, ``startup`` (of worker
        processes), ``transfer`` (between workers of a cluster). A mapping gives the share of an
        activity that is removed: ``{"cpu-wait": 0.5}``. Default: none.
    speedup : mapping of str to float, optional
        Speed-up factors of functions, or of single tasks by key: ``{"mean": 2.0}``. Default: none.
    merge_tasks : int, optional
        Merge this many tasks of a function into one, as if chunks were larger by that factor.
        Default: 1.
    threads : int, optional
        On a cluster, the number of threads of all workers together. Threads per worker stay as
        recorded; if the recorded workers were on several hosts, more threads are on more hosts.
        Default: as recorded.
    chunksize : int, optional
        Maximum number of tasks sent to a worker process at once. No effect on clusters. Default: as
        recorded.
    scheduler : {"processes", "threads"}, optional
        Run computations of other local schedulers under this one. Processes need the sizes of
        results in bytes, from a `CacheProfiler`, because results pass between processes. Threads
        are predicted as if tasks that ran in processes did not need the GIL. Default: as recorded.
    result_bytes : float, optional
        Size of each result in bytes. Default: as recorded.
    idle_machine : bool, default False
        Predict for a machine without other programs. Otherwise CPU time that other programs used is
        also unavailable to additional workers.
    idle_pools : bool, default False
        Ignore the CPU time of native thread pools and of other threads that tasks use.

    Returns
    -------
    Simulation
        Its ``seconds`` are the predicted wall time.

    Raises
    ------
    DiagnosticError
        If an argument is not as described, dependencies of tasks have a cycle, or `scheduler` is
        given for computations of a cluster.

    See Also
    --------
    what_if : Predict many changes at once.

    Notes
    -----
    The recorded graph is replayed on these workers and the scheduler's thread, with measured
    durations and in the recorded order. The cost of each step of the scheduler's thread is taken
    from the recording; for another scheduler, a typical cost is used.

    Computations of a cluster are replayed as distributed schedules them, with transfers between
    workers as fast as recorded. The prediction ignores memory and spilling, tasks of other clients,
    restrictions of tasks to some workers, and tasks that the client would submit earlier because
    it would have results earlier.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import Profiler, simulate
    >>> with Profiler() as prof:
    ...     total = da.ones((500, 500), chunks=(250, 250)).sum().compute()
    >>> simulate(prof, workers=8).seconds > 0
    True
    """
    simulator = Simulator(source)
    return simulator.simulate(
        workers=number_of_workers(simulator.recording, workers, threads),
        remove=remove,
        speedup=speedup,
        merge_tasks=merge_tasks,
        chunksize=chunksize,
        scheduler=scheduler,
        result_bytes=result_bytes,
        idle_machine=idle_machine,
        idle_pools=idle_pools,
    )
