"""What a simulation predicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_diag.columns import Categorical
from dask_diag.model.table import Table

__all__ = ["Row", "Simulation", "table_of"]

Row = dict[str, Any]
"""A row of a table, by column."""


@dataclass(frozen=True)
class Simulation:
    """What a recorded program would take.

    Attributes
    ----------
    seconds : float
        Predicted wall time of all that was recorded.
    measured : float
        The wall time that was measured.
    outside : float
        Seconds before, between and after computations.
    computations : Table
        A row per computation that ran tasks: ``computation``, ``workers``, ``measured``,
        ``seconds``, ``preparing``, ``scheduling``, ``work``.
    """

    seconds: float
    measured: float
    outside: float
    computations: Table

    @property
    def error(self) -> float:
        """Seconds by which the replay is longer than what was measured, if nothing is changed."""
        return self.seconds - self.measured

    @property
    def preparing(self) -> float:
        """Seconds of computations before their first and after their last tasks."""
        return self._sum("preparing")

    @property
    def scheduling(self) -> float:
        """Seconds in which the schedulers' threads hand tasks out and collect results."""
        return self._sum("scheduling")

    @property
    def work(self) -> float:
        """Worker-seconds of tasks."""
        return self._sum("work")

    def _sum(self, column: str) -> float:
        return float(self.computations[column].sum()) if len(self.computations) else 0.0


def table_of(rows: Sequence[Row]) -> Table:
    """The table of these rows."""
    if not rows:
        return Table({})
    names = Categorical.of(row["computation"] for row in rows)
    numbers = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return Table({**numbers, "computation": names})
