"""Where the wall time went, as one bar: the phases, and in that of the tasks what workers did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dask_diag.analysis.activities import seconds_by_activity
from dask_diag.analysis.occupancy import Occupancy, occupancies
from dask_diag.analysis.phases import phases
from dask_diag.columns import Categorical
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

__all__ = ["wall_time"]

_ROUNDING = 1e-9


def wall_time(
    recording: Recording,
    activities: Mapping[str, float] | None = None,
    occupied: Sequence[Occupancy] | None = None,
) -> Table:
    """Divide the wall time of a recording among phases, and that of tasks among activities.

    While tasks run, several workers do different things at once: the wall time of that phase is
    divided as the time of all workers is.

    Parameters
    ----------
    recording : Recording
    activities : mapping of str to float, optional
        Worker-seconds of each activity, where they are known already.
    occupied : sequence of Occupancy, optional
        The occupancies, where they are known already.

    Returns
    -------
    Table
        Columns ``part``, a phase other than ``tasks`` or an activity, and ``seconds``, which sum to
        ``recording.stop - recording.start``. Phases are in order of time; activities, in place of
        ``tasks``, the largest first.
    """
    occupied = occupancies(recording) if occupied is None else occupied
    if activities is None:
        activities = seconds_by_activity(recording, occupied)
    shares = _shares_while_tasks_run(activities, occupied) if len(recording.tasks) else {}
    parts: dict[str, float] = {}
    for row in phases(recording).to_dicts():
        if row["phase"] == "tasks" and shares:
            parts.update({name: share * row["seconds"] for name, share in shares.items()})
        else:
            parts[row["phase"]] = row["seconds"]
    return Table({"part": Categorical.of(parts), "seconds": np.array([*parts.values()])})


def _shares_while_tasks_run(
    activities: Mapping[str, float], occupied: Sequence[Occupancy]
) -> dict[str, float]:
    """The share of each activity in the worker time from the first task of a computation on."""
    seconds = dict(activities)
    for occupancy in occupied:
        first = np.fmin.reduce(occupancy.tasks.worker_start, initial=occupancy.times[-1])
        # Until then all workers were free.
        for activity, workers in {**occupancy.free, **occupancy.blocked}.items():
            before = float(occupancy.seconds_until(workers, np.array([first]))[0])
            seconds[activity] = seconds.get(activity, 0.0) - before
    total = sum(value for value in seconds.values() if value > 0)
    shares = {name: value / total for name, value in seconds.items() if value > _ROUNDING * total}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
