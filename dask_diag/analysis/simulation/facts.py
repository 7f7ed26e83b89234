"""What a recording says that simulations need, each fact read once."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from dask_diag.analysis.cpu_accounting import seconds_beside
from dask_diag.analysis.preparing import seconds_not_of_graphs
from dask_diag.analysis.simulation.calibration import works_of
from dask_diag.analysis.simulation.changes import gil_shares, seconds_by_activity, seconds_metered
from dask_diag.analysis.simulation.contention import contention
from dask_diag.analysis.simulation.replay import Graph, Timeline, replay
from dask_diag.analysis.simulation.replay_cluster import replay_on_cluster
from dask_diag.analysis.simulation.result import Row
from dask_diag.analysis.simulation.schedulers import POOL_START, crowding, result_sizes
from dask_diag.analysis.simulation.work import STEPS, Work
from dask_diag.columns import FloatArray, IntArray
from dask_diag.model.recording import Recording
from dask_diag.schema import Activity

__all__ = ["Facts"]

CPU_OF_SLEEPERS = 0.1
"""Without recorded waits: tasks that had a CPU in a smaller share of their time are taken to sleep.
Those that compute get more even beside five programs on two CPUs."""


class Facts:
    """What was recorded, as simulations use it.

    Parameters
    ----------
    recording : Recording

    Attributes
    ----------
    tasks_replayed : int
        Tasks of all replays so far: a million take about three seconds.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._graphs: dict[int, Graph] = {}
        self._delays: dict[tuple[int, float, float], float] = {}
        self._replayed: dict[int, Timeline] = {}
        self.tasks_replayed = 0

    @cached_property
    def computations(self) -> list[Row]:
        """By when they were called for; where that was not seen, their schedulers' start."""
        rows = self.recording.computations.to_dicts()
        for row in rows:
            row["called"] = float(np.fmin(row["called"], row["start"]))
        return sorted(rows, key=lambda row: float(row["called"]))

    @cached_property
    def works(self) -> dict[str, Work]:
        """The tasks and costs of each computation that ran tasks."""
        works = works_of(self.recording)
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
        """Whether tasks, and programs that they started, wanted no CPU most of the time.

        If it is not known which part of their time they waited for one, they may have in all of it.
        """
        took = float(work.seconds.sum())
        cpu = float(work.cpu.sum()) + seconds_beside(work.others, work.children_cpu, cpus)
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
        """The seconds of each label that tasks metered, task by task; activities have them, too."""
        return seconds_metered(self.recording)

    @cached_property
    def gil(self) -> FloatArray:
        """The share of each task's CPU time in which it holds the GIL."""
        waited = self.activities.get(Activity.GIL_WAIT)
        if waited is None:
            return np.zeros(len(self.recording.tasks))
        return gil_shares(self.recording, waited)

    def gil_held(self, work: Work) -> float:
        """In what share of a computation's time its tasks hold the GIL."""
        lasts = self.timeline_of(work).end
        held = float((work.cpu * self.gil[work.rows]).sum())
        return min(held / lasts, 1.0) if lasts > 0 else 0.0

    @cached_property
    def result_sizes(self) -> FloatArray | None:
        """The bytes of each task's result; None if they were not measured."""
        return result_sizes(self.recording)

    @cached_property
    def pool_start(self) -> float:
        """Seconds in which worker processes start that have a CPU each: as some did, if any did."""
        seconds = 0.0
        for row in self.computations:
            work = self.works.get(row["computation"])
            if work is not None and work.startup and work.cluster is None:
                crowd = crowding(work.workers, work.others, row["cpus"])
                seconds = max(seconds, max(work.startup) / crowd)
        return seconds or POOL_START

    @cached_property
    def uses_processes(self) -> bool:
        """Whether any computation ran in worker processes."""
        return bool(self.recording.computations.scheduler.where("processes").any())

    @cached_property
    def outside(self) -> float:
        """Seconds in which no computation ran."""
        covered, until = 0.0, self.recording.start
        for row in self.computations:
            # Computations may overlap: what those before covered counts once.
            covered += max(0.0, row["stop"] - max(row["called"], until))
            until = max(until, row["stop"])
        return max(0.0, self.recording.stop - self.recording.start - covered)

    def functions(self, work: Work) -> IntArray:
        """The function of each task, as a number."""
        return self.recording.tasks.function.codes[work.rows].astype(np.int64)

    def seconds_of(self, activity: str) -> float:
        """Seconds of workers and schedulers of an activity, those that can be removed."""
        works = self.works.values()
        if activity == Activity.GRAPH:
            return sum(work.graph for work in works)
        if activity == Activity.STARTUP:
            return sum(sum(work.startup) for work in works)
        if activity == Activity.OVERHEAD:
            steps = (getattr(work, name).sum() for work in works for name in STEPS)
            return float(sum(steps)) + sum(work.before for work in works)
        if activity == Activity.TRANSFER:
            moved = self.recording.transfers
            moved = moved.rows(moved.activity.where(activity))
            return float((moved.stop - moved.start).sum())
        by_task = self.metered.get(activity, self.activities.get(activity, np.zeros(0)))
        return float(by_task.sum())

    def replay(self, work: Work, workers: int) -> Timeline:
        """Run what became of a computation's tasks."""
        self.tasks_replayed += len(work)
        graph = self._graph_of(work)
        if work.cluster is not None:
            return replay_on_cluster(work, work.cluster, workers, graph)
        return replay(work, workers, graph)

    def replay_recorded(self, work: Work) -> Timeline:
        """A computation replayed as it was recorded, which is done once."""
        if id(work) not in self._replayed:
            self._replayed[id(work)] = self.replay(work, work.workers)
        return self._replayed[id(work)]

    def _graph_of(self, work: Work) -> Graph:
        """The graph of a computation's tasks; it is made once for those that are not merged."""
        edges = id(work.depends_on)
        # Works of the recording live as long as these facts, so their ids are not used again; those
        # of merged tasks do not.
        if edges not in self._recorded_edges:
            return Graph(work)
        if edges not in self._graphs:
            self._graphs[edges] = Graph(work)
        return self._graphs[edges]

    @cached_property
    def _recorded_edges(self) -> set[int]:
        return {id(work.depends_on) for work in self.works.values()}

    def delays_of(self, work: Work, cpus: float, gils: float) -> float:
        """What `contention` says of a computation as it was recorded."""
        key = id(work), cpus, gils
        if key not in self._delays:
            self._delays[key] = contention(self.timeline_of(work), work, cpus, gils)
        return self._delays[key]

    def timeline_of(self, work: Work) -> Timeline:
        """The timeline of a computation as it was recorded."""
        tasks = self.recording.tasks
        stop = np.fmax(tasks.stop[work.rows], tasks.start[work.rows] + work.seconds)
        start = np.nan_to_num(stop - work.seconds)
        stop = start + work.seconds
        end = float((stop + work.deliver + work.notice).max() - (start - work.wake).min())
        steps = work.prepare.sum() + work.collect.sum() + work.submit * len(work) / work.batch
        return Timeline(start, stop, end, max(end - float(steps), 0.0))
