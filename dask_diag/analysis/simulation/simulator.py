"""Simulate a whole recording: its computations one by one, and where each moves to."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import replace
from math import inf, nan
from typing import TYPE_CHECKING

import numpy as np

from dask_diag.analysis.simulation.change import Change, Changes
from dask_diag.analysis.simulation.computation import ComputationSimulator
from dask_diag.analysis.simulation.facts import Facts
from dask_diag.analysis.simulation.merge import side_by_side
from dask_diag.analysis.simulation.result import Row, Simulation, table_of
from dask_diag.analysis.simulation.schedulers import bytes_moved
from dask_diag.columns import FloatArray
from dask_diag.model.recording import Recording, expect_recording

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Simulator"]


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
