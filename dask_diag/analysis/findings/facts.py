"""What findings are drawn from: sums over a recording, made when first asked for."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from dask_diag.analysis.activities import activities
from dask_diag.analysis.cpu_accounting import cpu_outside_tasks
from dask_diag.analysis.critical_path import CriticalPath, critical_path
from dask_diag.analysis.occupancy import Occupancy, occupancies
from dask_diag.analysis.waits import waits
from dask_diag.columns import Array
from dask_diag.model.recording import Recording

__all__ = ["MOST_NAMED", "Facts", "in_words"]

MOST_NAMED = 3
"""Functions that a finding names."""
WORTH_NAMING = 0.05
"""The share of something that a function has, from which on it is named for it."""


class Facts:
    """Sums over a recording.

    Attributes
    ----------
    recording : Recording
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    @cached_property
    def activities(self) -> dict[str, float]:
        """Worker-seconds of each activity."""
        return {row["activity"]: row["value"] for row in activities(self.recording).to_dicts()}

    @cached_property
    def waits(self) -> dict[str, float]:
        """Worker-seconds that tasks waited, by activity; empty if that was not asked for."""
        table = waits(self.recording, by="activity")
        return {row["activity"]: row["seconds"] for row in table.to_dicts()}

    @cached_property
    def occupancies(self) -> list[Occupancy]:
        """The occupancy of each computation."""
        return occupancies(self.recording)

    @cached_property
    def critical_path(self) -> CriticalPath:
        """The longest chains."""
        return critical_path(self.recording)

    @cached_property
    def seconds_of_tasks(self) -> Array:
        """How long each task took; 0 if that is not known."""
        tasks = self.recording.tasks
        if not len(tasks):
            return np.zeros(0)
        return np.asarray(np.nan_to_num(tasks["stop"] - tasks["start"]))

    @property
    def in_tasks(self) -> float:
        """Worker-seconds of all tasks."""
        return float(self.seconds_of_tasks.sum())

    @property
    def cpu_in_tasks(self) -> float:
        """CPU seconds of all tasks."""
        tasks = self.recording.tasks
        return float(np.nansum(tasks["thread_cpu"])) if len(tasks) else 0.0

    @cached_property
    def cpu_outside(self) -> float:
        """CPU seconds of threads that are neither a task's nor the scheduler's; 0 if not known."""
        outside = cpu_outside_tasks(self.recording)
        return float(np.nan_to_num(max(0.0, outside)))

    @cached_property
    def wall(self) -> float:
        """Seconds of all computations together."""
        return sum(float(o.times[-1] - o.times[0]) for o in self.occupancies)

    @cached_property
    def available(self) -> float:
        """Worker-seconds of all computations together."""
        return sum(o.workers * float(o.times[-1] - o.times[0]) for o in self.occupancies)

    @cached_property
    def occupied(self) -> float:
        """Worker-seconds in which a task ran or moved, or one was out of which that is unknown."""
        return sum(o.seconds(o.busy) + o.seconds(o.unknown) for o in self.occupancies)

    @property
    def workers(self) -> float:
        """Workers, on average over time."""
        return self.available / self.wall if self.wall else 1.0

    @cached_property
    def busy_wall(self) -> float:
        """Seconds in which at least one task ran."""
        return sum(float(np.diff(o.times)[o.busy > 0].sum()) for o in self.occupancies)

    @property
    def at_once(self) -> float:
        """How many tasks ran at once, on average over the time in which any did."""
        return self.in_tasks / self.busy_wall if self.busy_wall else 0.0

    @cached_property
    def share_at_once(self) -> float:
        """In what share of the time in which any task ran, several did."""
        several = sum(float(np.diff(o.times)[o.busy > 1].sum()) for o in self.occupancies)
        return several / self.busy_wall if self.busy_wall else 0.0

    @cached_property
    def cpus(self) -> int:
        """CPUs that the computing process may use."""
        computations = self.recording.computations
        return int(computations["cpus"].max()) if len(computations) else 1

    @cached_property
    def schedulers(self) -> set[str]:
        """The kinds of scheduler that ran computations."""
        computations = self.recording.computations
        return set(computations["scheduler"].tolist()) if len(computations) else set()

    def top_functions(self, weights: Array, share: float = WORTH_NAMING) -> list[str]:
        """The functions that have most of the tasks' `weights`, at most three of them."""
        functions = self.recording.tasks.function
        sums = np.bincount(functions.codes, weights, minlength=len(functions.values))
        order = np.argsort(-sums, kind="stable")[:MOST_NAMED]
        return [functions.values[code] for code in order if sums[code] >= share * sums.sum() > 0]


def in_words(names: list[str]) -> str:
    """Names in a row, as in a sentence."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
