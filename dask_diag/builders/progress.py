"""How far computations are, and what they were to run: `Recording.progress` and `planned`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from dask_diag.builders.chunks import Increment
from dask_diag.builders.tasks import functions_of
from dask_diag.capture.computation import Computation
from dask_diag.capture.computation_progress import ProgressInfo, open_calls, progress_of
from dask_diag.capture.session import Session
from dask_diag.capture.snapshot import ComputationSnapshot
from dask_diag.columns import Categorical
from dask_diag.model import tables
from dask_diag.model.table import Table, stack

__all__ = ["IncrementalProgress", "progress_tables"]

_Counts = tuple[str, Mapping[str, int]]
"""A computation, and how many tasks of each function it was to run."""


class IncrementalProgress:
    """What computations are to run, with their start; how far they are, until they end."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ended: set[int] = set()

    def take(self) -> Increment:
        """What computations that have ended since last asked were to run; and what goes on."""
        ended: list[_Counts] = []
        planned: list[_Counts] = []
        progress: list[ProgressInfo] = []
        computations = tuple(self._session.computations)
        for computation in computations:
            if computation.number in self._ended:
                continue
            info = progress_of(computation)
            counts = _planned_now(computation)
            finished = computation.finished
            if finished is not None:
                # If it ended meanwhile, what was read may lack what was released.
                self._ended.add(computation.number)
                ended.append((computation.name, _planned_of_ended(finished)))
            elif info is not None:
                progress.append(info)
                planned.append((computation.name, counts))
        progress += open_calls({computation.called for computation in computations})
        return (
            {"planned": _planned_table(ended)},
            {"planned": _planned_table(planned), "progress": _progress_table(progress)},
        )


def progress_tables(session: Session) -> dict[str, Table]:
    """`Recording.planned` and `Recording.progress` of all computations, as they are now."""
    lasting, provisional = IncrementalProgress(session).take()
    parts = [lasting["planned"], provisional["planned"]]
    return {**provisional, "planned": stack(parts)}


def _planned_now(computation: Computation) -> Mapping[str, int]:
    planned = computation.planned
    return {} if planned is None else planned.by_function(computation.dsk)


def _planned_of_ended(finished: ComputationSnapshot) -> Mapping[str, int]:
    """The tasks that were submitted, and those that it did not come to."""
    functions = functions_of(finished)
    counts = np.bincount(functions.codes, minlength=len(functions.values)).tolist()
    planned = dict(finished.info.not_run)
    for function, count in zip(functions.values, counts, strict=True):
        planned[function] = planned.get(function, 0) + count
    return planned


def _planned_table(counts: Iterable[_Counts]) -> tables.Planned:
    rows = [
        (computation, function, count)
        for computation, functions in counts
        for function, count in sorted(functions.items())
        if count
    ]
    return tables.Planned(
        {
            "computation": Categorical.of(row[0] for row in rows),
            "function": Categorical.of(row[1] for row in rows),
            "tasks": np.array([row[2] for row in rows], dtype=np.int64),
        }
    )


def _progress_table(infos: Iterable[ProgressInfo]) -> tables.Progress:
    rows = list(infos)
    numbers = ("total", "finished", "ready", "waiting", "running")
    return tables.Progress(
        {
            "computation": Categorical.of(info.computation for info in rows),
            "phase": Categorical.of(info.phase for info in rows),
            "since": np.array([info.since for info in rows], dtype=float),
            **{
                name: np.array([getattr(info, name) for info in rows], dtype=np.int64)
                for name in numbers
            },
        }
    )
