"""The seconds before the first task of computations: dask makes a graph, and puts it in order."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from dask_diag.schema import Computations

__all__ = ["Preparation", "preparation_of"]


class Preparation(NamedTuple):
    """Of some computations, together.

    Attributes
    ----------
    graph, ordering : float
        Seconds.
    computations : int
        That took any.
    """

    graph: float = 0.0
    ordering: float = 0.0
    computations: int = 0

    def plus(self, other: Preparation) -> Preparation:
        """Of these and others."""
        return Preparation(
            self.graph + other.graph,
            self.ordering + other.ordering,
            self.computations + other.computations,
        )


def preparation_of(computations: Computations, still_ordered: Collection[str] = ()) -> Preparation:
    """The seconds before their first task.

    Parameters
    ----------
    computations : Computations
    still_ordered : collection of str
        Those whose tasks are put in order now: of these only the graph is made.
    """
    graph = np.nan_to_num(np.maximum(computations.start - computations.called, 0.0))
    ordering = np.nan_to_num(np.maximum(computations.prepared - computations.start, 0.0))
    names = computations.computation.tolist()
    ordering[[name in still_ordered for name in names]] = 0.0
    return Preparation(
        float(graph.sum()), float(ordering.sum()), int(np.count_nonzero(graph + ordering))
    )
