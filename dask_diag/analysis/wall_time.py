"""Where the wall time went, as one bar: the phases, and in that of the tasks what workers did."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dask_diag.analysis.activities import seconds_by_activity
from dask_diag.analysis.phases import first_starts, phases
from dask_diag.analysis.task_times import prepared_times
from dask_diag.columns import Categorical
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.schema import PHASES, Activity

__all__ = ["wall_time"]


def wall_time(recording: Recording, activities: Mapping[str, float] | None = None) -> Table:
    """Divide the wall time of a recording among phases, and that of tasks among activities.

    While tasks run, several workers do different things at once: the wall time of that phase is
    divided as the time of all workers is.

    Parameters
    ----------
    recording : Recording
    activities : mapping of str to float, optional
        The worker-seconds of each activity, if they have been computed.

    Returns
    -------
    Table
        Columns ``part``, a phase other than ``tasks`` or an activity, and ``seconds``, which sum to
        ``recording.stop - recording.start``. Phases are in order of time; activities, in place of
        ``tasks``, the largest first.
    """
    table = phases(recording)
    seconds = dict(zip(table["phase"].tolist(), table["seconds"].tolist(), strict=True))
    worker_seconds = seconds_by_activity(recording) if activities is None else activities
    shares = _shares_while_tasks_run(recording, dict(worker_seconds))
    parts: dict[str, float] = {}
    for phase in PHASES:
        if phase == "tasks" and shares:
            parts.update({name: share * seconds[phase] for name, share in shares.items()})
        else:
            parts[phase] = seconds[phase]
    return Table({"part": Categorical.of(parts), "seconds": np.array([*parts.values()])})


def _shares_while_tasks_run(
    recording: Recording, worker_seconds: dict[str, float]
) -> dict[str, float]:
    """The share of each activity in the worker time from the first task of a computation on."""
    if not len(recording.tasks):
        return {}
    worker_seconds.pop(Activity.GRAPH, None)
    before_the_first = _worker_seconds_before_tasks(recording)
    # Until then each worker was free, though tasks could have run.
    for activity in (Activity.STARTUP, Activity.OVERHEAD, Activity.SERIALIZE):
        here = min(worker_seconds.get(activity, 0.0), before_the_first)
        if here > 0:
            worker_seconds[activity] -= here
            before_the_first -= here
    total = sum(worker_seconds.values())
    shares = {name: value / total for name, value in worker_seconds.items() if value > 0 < total}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _worker_seconds_before_tasks(recording: Recording) -> float:
    waited = first_starts(recording) - prepared_times(recording.computations)
    workers = np.maximum(recording.computations.workers, 1)
    return float((np.clip(waited, 0.0, None) * workers).sum())
