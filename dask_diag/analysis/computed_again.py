"""Tasks that clusters computed again, as their results were lost."""

from __future__ import annotations

import numpy as np

from dask_diag.columns import BoolArray
from dask_diag.model.recording import Recording
from dask_diag.schema import Outcome

__all__ = ["last_results"]


def last_results(recording: Recording) -> BoolArray:
    """The tasks that brought a result; of one that was computed again, the last run."""
    tasks = recording.tasks
    done = tasks.outcome.where(Outcome.OK)
    again = done & (tasks.attempt > 1)
    if not again.any():
        return done
    # A result that is lost may be computed again in a later computation, of another client, too.
    computations = recording.computations
    names = zip(computations.computation.tolist(), computations.cluster.tolist(), strict=True)
    cluster_of = dict(names)
    clusters = [cluster_of.get(name, "") for name in tasks.computation.values]
    rows = np.flatnonzero(np.isin(tasks.function.codes, np.unique(tasks.function.codes[again])))
    rows = rows[np.argsort(tasks.submitted[rows], kind="stable")]
    columns = (
        *(rows.tolist(), tasks.key[rows].tolist(), tasks.computation.codes[rows].tolist()),
        *(tasks.attempt[rows].tolist(), done[rows].tolist()),
    )
    attempts: dict[tuple[str, str], int] = {}
    results: dict[tuple[str, str], int] = {}
    done = done.copy()
    for row, key, code, attempt, has_result in zip(*columns, strict=True):
        task = key, clusters[code]
        if attempt <= attempts.get(task, 0):
            # A new task of that key: the scheduler had forgotten the one before.
            results.pop(task, None)
        attempts[task] = attempt
        if has_result:
            done[results.get(task, row)] = False
            done[row] = True
            results[task] = row
    return done
