"""Simulate a whole recording: what a recorded program would take if something were different."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import inf, nan
from typing import TYPE_CHECKING

import numpy as np

from dask_diag.analysis.simulation.change import Change, Changes
from dask_diag.analysis.simulation.computation import ComputationSimulator, Facts, side_by_side
from dask_diag.analysis.simulation.schedulers import bytes_moved
from dask_diag.analysis.simulation.work import Row, Simulation, table_of
from dask_diag.columns import FloatArray
from dask_diag.model.recording import Recording, expect_recording

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Simulator:
    """Simulates one recording under several changes; what the recording says is read once.

    Parameters
    ----------
    recording : Recording
    """

    def __init__(self, recording: Recording) -> None:
        expect_recording(recording)
        self.recording = recording
        self.facts = Facts(recording)
        self._simulated: dict[Change, Simulation] = {}

    def by_task(self, activity: str) -> FloatArray:
        """The seconds of an activity, task by task: those of its worker."""
        return self.facts.activities.get(activity, np.zeros(len(self.recording.tasks)))

    @property
    def result_sizes(self) -> FloatArray | None:
        """The bytes of each task's result; None if they were not measured."""
        return self.facts.result_sizes

    @property
    def bytes_of_results(self) -> float:
        """Bytes of results that would pass between processes; NaN if not known.

        Each once to the scheduler, and once to each task that uses it.
        """
        sizes = self.result_sizes
        if sizes is None:
            return nan
        moved = (
            bytes_moved(replace(work, graph_bytes=0.0), sizes[work.rows])
            for work in self.facts.works.values()
        )
        return float(sum(to_task.sum() + from_task.sum() for to_task, from_task in moved))

    @property
    def bytes_of_graphs(self) -> float:
        """Bytes of data that graphs give to tasks, which processes would be sent; 0 if unknown."""
        return sum(work.graph_bytes for work in self.facts.works.values())

    def seconds_of(self, activity: str) -> float:
        """Seconds of workers and schedulers of an activity, those that can be removed."""
        return self.facts.seconds_of(activity)

    def chunks(self) -> tuple[int, int]:
        """Tasks of a function that can be merged, and workers, in the longest computation.

        That need not have most tasks: dask-awkward first computes which columns are needed, with
        tasks that have no data.
        """
        works = self.facts.works
        if not works:
            return 0, 1
        lasted = {
            row["computation"]: row["stop"] - row["called"] for row in self.facts.computations
        }
        work = works[max(works, key=lasted.__getitem__)]
        return side_by_side(work, self.facts.functions(work)), work.workers

    def simulate(self, **changes: Unpack[Changes]) -> Simulation:
        """See `dask_diag.simulate`. What was asked before is not simulated again."""
        change = Change.of(self.recording, **changes)
        if change not in self._simulated:
            self._simulated[change] = self._simulate(change)
        return self._simulated[change]

    def is_simulated(self, **changes: Unpack[Changes]) -> bool:
        """Whether this was asked before."""
        return Change.of(self.recording, **changes) in self._simulated

    def _simulate(self, change: Change) -> Simulation:
        simulator = ComputationSimulator(self.facts, change)
        as_recorded = ComputationSimulator(self.facts, replace(change, scheduler=None))
        rows: list[Row] = []
        moved: list[tuple[float, float]] = []
        first = last = self.recording.start
        for computation in self.facts.computations:
            # It starts as long after the computations before it as it did.
            before = bisect_right(moved, (computation["called"], inf))
            stop, simulated = moved[before - 1] if before else (first, first)
            is_same = computation["scheduler"] == change.scheduler
            row = (as_recorded if is_same else simulator).simulate(computation)
            begins = simulated + computation["called"] - stop
            insort(moved, (computation["stop"], begins + row["seconds"]))
            if computation["computation"] in self.facts.works:
                rows.append(row)
        stop, simulated = max(moved, default=(first, first))
        last = max([simulated + self.recording.stop - stop, *(end for _, end in moved)])
        return Simulation(
            seconds=last - first,
            measured=self.recording.stop - self.recording.start,
            outside=self.facts.outside,
            computations=table_of(rows),
        )


def simulate(
    recording: Recording,
    workers: float | None = None,
    remove: Collection[str] = frozenset(),
    speedup: Mapping[str, float] | None = None,
    merge_tasks: int | None = None,
    *,
    chunksize: int | None = None,
    scheduler: str | None = None,
    result_bytes: float | None = None,
    idle_machine: bool = False,
    idle_pools: bool = False,
) -> Simulation:
    """Predict how long a recorded program would have taken, had something been different.

    Parameters
    ----------
    recording : Recording
    workers : int, optional
        As many workers, for every computation; ``math.inf`` for as many as there are tasks. The
        machine stays the same: tasks that need a CPU share those that it has. On a cluster it is
        the number of threads, of workers with as many each as recorded; where these were on several
        hosts, more of them are on more hosts.
    remove : collection of str
        Activities that take no time: any of tasks (``gil-wait``, ``io-wait``, ``serialize``, …),
        ``overhead`` (handing tasks out and collecting their results), ``graph``, ``startup`` (of
        worker processes), ``transfer`` (between workers of a cluster). A mapping has the share of
        a task's activity that is removed: ``{"cpu-wait": 0.5}``.
    speedup : mapping of str to float, optional
        Functions, or keys of single tasks, and how many times as fast they are: ``{"mean": 2.0}``.
    merge_tasks : int, optional
        Every so many tasks of a function become one, as if chunks were so many times as large.
    chunksize : int, optional
        A worker process is sent so many tasks at once, at most. It changes nothing on clusters.
    scheduler : {"processes", "threads"}, optional
        Computations that ran under another scheduler run under this one. For processes the sizes of
        results must have been measured in bytes, by a `CacheProfiler`: they pass between processes.
        Threads are predicted as if tasks that ran in processes did not need the GIL.
    result_bytes : float, optional
        The size of each result, in place of those that were measured.
    idle_machine : bool, optional
        No other program uses the CPUs. Else those that others used are not there for more workers,
        either.
    idle_pools : bool, optional
        Threads of native libraries, and others that tasks use, do nothing.

    Returns
    -------
    Simulation
        Its ``seconds`` are the prediction.

    Raises
    ------
    DiagnosticError
        If an argument is not as described, tasks depend on each other in a cycle, or `scheduler` is
        given and a cluster ran computations.

    Notes
    -----
    The recorded graph is replayed, with measured durations and in the recorded order, on so many
    workers beside the scheduler's thread. What each step of that thread costs is read from the
    recording; for another scheduler it is what was typical where this was written.

    Computations of a cluster are replayed as distributed schedules them, with transfers between
    workers as fast as recorded. Not in the prediction are: memory and what is moved to disk, tasks
    of other clients, tasks that only some workers may run, and tasks that the client would submit
    earlier as it has results earlier.
    """
    return Simulator(recording).simulate(
        workers=workers,
        remove=remove,
        speedup=speedup,
        merge_tasks=merge_tasks,
        chunksize=chunksize,
        scheduler=scheduler,
        result_bytes=result_bytes,
        idle_machine=idle_machine,
        idle_pools=idle_pools,
    )
