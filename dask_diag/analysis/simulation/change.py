"""What is different in a simulation, and checks of how it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from dask_diag.analysis.simulation.schedulers import COSTS
from dask_diag.columns import FloatArray
from dask_diag.errors import DiagnosticError

__all__ = ["Change", "check"]


@dataclass(frozen=True)
class Change:
    """What is different.

    Attributes
    ----------
    workers : float or None
        None, here and below, is as recorded.
    remove : dict of str to float
        The share of each activity that is removed.
    factors : array of float or None
        How many times as fast each task is.
    merge : int
        How many tasks become one.
    chunksize : int or None
    scheduler : str or None
    sizes : array of float
        The bytes of each task's result.
    idle_machine : bool
        Whether no other program uses the CPUs.
    idle_pools : bool
        Whether threads of native libraries, and others that tasks use, do nothing.
    """

    workers: float | None
    remove: dict[str, float]
    factors: FloatArray | None
    merge: int
    chunksize: int | None
    scheduler: str | None
    sizes: FloatArray
    idle_machine: bool = False
    idle_pools: bool = False

    def without(self, activity: str) -> bool:
        """Whether all of an activity is removed."""
        return self.remove.get(activity, 0.0) >= 1.0


def check(
    workers: float | None, merge_tasks: int | None, chunksize: int | None, scheduler: str | None
) -> None:
    """Refuse what cannot be simulated.

    Raises
    ------
    DiagnosticError
    """
    if workers is not None and not (workers == inf or (workers >= 1 and workers % 1 == 0)):
        raise DiagnosticError(f"workers: expected a number from 1 on, or inf, found {workers}")
    for name, value in (("merge_tasks", merge_tasks), ("chunksize", chunksize)):
        if value is not None and not (value >= 1 and value % 1 == 0):
            raise DiagnosticError(f"{name}: expected a number from 1 on, found {value}")
    if scheduler is not None and scheduler not in COSTS:
        raise DiagnosticError(f"scheduler: expected one of {', '.join(COSTS)}, found {scheduler!r}")
