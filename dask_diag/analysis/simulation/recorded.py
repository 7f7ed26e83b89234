"""What was recorded of one computation, as the simulator is calibrated with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_diag.analysis.simulation.steps import Moments
from dask_diag.columns import FloatArray, IntArray

__all__ = ["Recorded"]


@dataclass(frozen=True)
class Recorded:
    """What was recorded of one computation, its tasks in the order in which they were submitted."""

    computation: dict[str, Any]
    rows: IntArray
    workers: IntArray
    cpu: FloatArray
    worker_cpu: float
    pool_cpu: float
    moments: Moments

    @property
    def in_processes(self) -> bool:
        """Whether other processes ran the tasks."""
        return bool(self.computation["scheduler"] == "processes")

    @property
    def on_cluster(self) -> bool:
        """Whether the workers of a cluster ran the tasks."""
        return bool(self.computation["scheduler"] == "distributed")

    @property
    def switching_cpu(self) -> float:
        """CPU seconds of worker threads outside tasks; 0 if not known, as in other processes."""
        return max(self.worker_cpu - float(self.cpu.sum()), 0.0)

    @property
    def scheduler_cpu(self) -> float:
        """CPU seconds of the scheduler's thread, without those of tasks; 0 if not known."""
        cpu = float(np.nan_to_num(self.computation["scheduler_cpu"]))
        is_in_tasks = self.computation["scheduler"] == "synchronous"
        return max(cpu - float(self.cpu.sum()), 0.0) if is_in_tasks else cpu

    @property
    def others(self) -> float:
        """CPUs that other programs had, on average; 0 if that is not known."""
        lasted = float(self.computation["stop"] - self.computation["start"])
        used = float(np.nan_to_num(self.computation["others_cpu"]))
        return used / lasted if lasted > 0 else 0.0

    @property
    def children_cpu(self) -> float:
        """CPU seconds of programs that tasks start; 0 if not known, as in worker processes."""
        cpu = float(np.nan_to_num(self.computation["children_cpu"]))
        return 0.0 if self.in_processes else cpu

    @property
    def ordered(self) -> float:
        """When the graph was in order; if that is not known, when the first task was submitted."""
        first = float(self.moments.submitted[0])
        return float(np.fmin(self.computation["prepared"], first))
