"""What is different in a simulation: as it is asked for, and checked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

from dask_diag.analysis.simulation.changes import shares_removed
from dask_diag.analysis.simulation.checks import check
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording
from dask_diag.schema import Activity

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["Change", "Changes"]


class Changes(TypedDict, total=False):
    """What can be different; `dask_diag.simulate` describes each. None is as recorded."""

    workers: float | None
    remove: Collection[str]
    speedup: Mapping[str, float] | None
    merge_tasks: int | None
    chunksize: int | None
    scheduler: str | None
    result_bytes: float | None
    idle_machine: bool
    idle_pools: bool


@dataclass(frozen=True)
class Change:
    """What is different, checked; two that are equal give the same simulation.

    Attributes
    ----------
    workers : float or None
        None, here and below, is as recorded.
    removed : tuple of (str, float)
        Activities, and the share of each that is removed.
    factors : tuple of (str, float)
        Functions or keys, and how many times as fast their tasks are.
    merge : int
        How many tasks become one.
    chunksize : int or None
    scheduler : str or None
    result_bytes : float or None
        The size of each result.
    idle_machine : bool
        Whether no other program uses the CPUs.
    idle_pools : bool
        Whether threads of native libraries, and others that tasks use, do nothing.
    """

    workers: float | None
    removed: tuple[tuple[str, float], ...]
    factors: tuple[tuple[str, float], ...]
    merge: int
    chunksize: int | None
    scheduler: str | None
    result_bytes: float | None
    idle_machine: bool
    idle_pools: bool

    @classmethod
    def of(cls, recording: Recording, **changes: Unpack[Changes]) -> Self:
        """What is asked for.

        Raises
        ------
        DiagnosticError
            If it cannot be simulated.
        """
        check(changes)
        ran_on_cluster = recording.computations.scheduler.where("distributed").any()
        if changes.get("scheduler") is not None and ran_on_cluster:
            raise DiagnosticError(
                "scheduler: expected a recording of local schedulers; what a computation of a "
                "cluster would take on one of these is not known"
            )
        return cls(
            workers=changes.get("workers"),
            removed=tuple(sorted(shares_removed(recording, changes.get("remove") or ()).items())),
            factors=tuple(sorted((changes.get("speedup") or {}).items())),
            merge=changes.get("merge_tasks") or 1,
            chunksize=changes.get("chunksize"),
            scheduler=changes.get("scheduler"),
            result_bytes=changes.get("result_bytes"),
            idle_machine=changes.get("idle_machine", False),
            idle_pools=changes.get("idle_pools", False),
        )

    @property
    def shares(self) -> dict[str, float]:
        """The share of each activity that is removed."""
        return dict(self.removed)

    @property
    def is_of_tasks(self) -> bool:
        """Whether tasks, or what lies between them, take another time than was recorded."""
        as_recorded = Change(None, (), (), 1, None, None, None, False, False)
        return replace(self, removed=tuple(self._removed_of_tasks())) != as_recorded

    def _removed_of_tasks(self) -> Iterator[tuple[str, float]]:
        return (pair for pair in self.removed if pair[0] != Activity.GRAPH)

    def without(self, activity: str) -> bool:
        """Whether all of an activity is removed."""
        return self.shares.get(activity, 0.0) >= 1.0
