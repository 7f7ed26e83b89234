"""What the workers did between tasks, for the lanes of many tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.occupancy import Occupancy, occupancies
from dask_diag.analysis.worker_layers import worker_layers
from dask_diag.columns import FloatArray
from dask_diag.model.recording import Recording
from dask_diag.views.plots.layers import Layer
from dask_diag.views.plots.workers import layers_without_task

__all__ = ["FreeTime", "free_time"]

_BINS = 600
_LEAST = 0.001
"""Of the lanes' time: what has less cannot be seen."""
_UNITS = 1000
"""Shares are whole numbers of this part: the page stays small."""


class FreeTime(NamedTuple):
    """What lanes did in the time in which they had no task.

    Attributes
    ----------
    start, length : float
        Seconds on the plot's axis: of the first bin, and of each.
    layers : list of Layer
        The lowest first; heights are shares of the time without a task. The rest is idle.
    """

    start: float
    length: float
    layers: list[Layer]

    def for_page(self) -> dict[str, object]:
        """It as ``binned.js`` takes it."""
        return {
            "start": self.start,
            "length": self.length,
            "units": _UNITS,
            "colors": [layer.color for layer in self.layers],
            "names": [layer.name for layer in self.layers],
            "hatches": [layer.hatch for layer in self.layers],
            "shares": [
                np.rint(layer.heights * _UNITS).astype(int).tolist() for layer in self.layers
            ],
        }


def free_time(
    recording: Recording, origin: float, lanes: int, occupied: Sequence[Occupancy] | None
) -> FreeTime:
    """Divide the time without a task, in bins; all lanes have an equal part in it.

    Which of the free workers the scheduler kept waiting is not known, only how many. So a lane
    shows of its free time the share that all free workers had, and the lanes sum to what there was.

    Parameters
    ----------
    recording : Recording
    origin : float
        Where the plot's axis starts.
    lanes : int
        One for each worker that had a task.
    occupied : sequence of Occupancy, optional
        Of the computations, if they are there already.
    """
    if occupied is None:
        occupied = occupancies(recording)
    made = worker_layers(recording, occupied, [], _BINS)
    in_tasks = sum(made.functions.values()) + made.off_cpu
    without_task = made.moving + sum(made.free.values())
    # Lanes may be more than the workers of a computation, or fewer: some had no task.
    free: FloatArray = np.maximum(without_task, lanes - in_tasks)
    least = _LEAST * max(lanes, 1) * _BINS
    layers = [
        layer._replace(heights=np.divide(layer.heights, free, np.zeros(_BINS), where=free > 0))
        for layer in layers_without_task(made)
        if layer.total > least
    ]
    start, length = float(made.edges[0]) - origin, float(made.edges[1] - made.edges[0])
    return FreeTime(start, length, layers)
