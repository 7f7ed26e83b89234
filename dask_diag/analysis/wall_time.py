"""Wall time as a bar: phases, and the activities of workers while tasks ran.

What `preparing` has of imports and of worker processes that start is not the graph's: it is
`startup`, or `profilers` for what these had to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dask_diag.analysis.activities import seconds_by_activity
from dask_diag.analysis.groups import workers_of_clusters
from dask_diag.analysis.intervals import Intervals
from dask_diag.analysis.occupancy import Occupancy, occupancies
from dask_diag.analysis.phases import times_of_phases
from dask_diag.columns import Categorical
from dask_diag.model.codes import PHASES, Activity
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

_ROUNDING = 1e-9


def wall_time(
    recording: Recording,
    activities: Mapping[str, float] | None = None,
    occupied: Sequence[Occupancy] | None = None,
) -> Table:
    """Divide the wall time of a recording among phases, and the time of tasks among activities.

    While tasks run, several workers do different things at once: the wall time of that phase is
    divided as the time of all workers is. Metered code is divided by what tasks did in it, not by
    its labels: what it was for does not say why it took long.

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
        ``tasks``, the largest first. ``startup`` and ``profilers`` have what was ``preparing``
        before the first task, too; ``startup`` also the time in which a cluster had no worker.
    """
    occupied = occupancies(recording) if occupied is None else occupied
    if activities is None:
        activities = seconds_by_activity(recording, occupied)
    shares = _shares_while_tasks_run(activities, occupied) if len(recording.tasks) else {}
    seconds, starting = _seconds_of_phases(recording, occupied)
    without = seconds_without_workers(recording, occupied)
    if without:
        seconds["tasks"] -= without
        starting[Activity.STARTUP] = starting.get(Activity.STARTUP, 0.0) + without
    parts: dict[str, float] = {}
    for phase in PHASES:
        if phase == "tasks" and shares:
            parts.update({name: share * seconds[phase] for name, share in shares.items()})
        else:
            parts[phase] = seconds[phase]
    for activity, started in starting.items():
        parts[activity] = parts.get(activity, 0.0) + started
    return Table({"part": Categorical.of(parts), "seconds": np.array([*parts.values()])})


def seconds_without_workers(recording: Recording, occupied: Sequence[Occupancy]) -> float:
    """Seconds in computations of clusters that had no worker, while no other had one."""
    if not len(workers_of_clusters(recording)):
        # Workers are known by their tasks only.
        return 0.0
    without = Intervals.join([occupancy.without_workers for occupancy in occupied]).union()
    having = Intervals.join([occupancy.when(occupancy.capacity) for occupancy in occupied])
    return without.seconds - having.union().intersection(without).seconds


def _seconds_of_phases(
    recording: Recording, occupied: Sequence[Occupancy]
) -> tuple[dict[str, float], dict[str, float]]:
    """The seconds of each phase, and of starts by activity, taken out of `preparing`.

    Of computations that start at the same time, profilers come first.
    """
    times = times_of_phases(recording)
    seconds = {phase: of_phase.seconds for phase, of_phase in times.items()}
    of_starts: dict[str, float] = {}
    starting: list[Intervals] = []
    before = 0.0
    for activity in (Activity.PROFILERS, Activity.STARTUP):
        starting += [occupancy.when(occupancy.free[activity]) for occupancy in occupied]
        until = times["preparing"].intersection(Intervals.join(starting)).seconds
        if until > before:
            of_starts[activity] = until - before
        before = until
    seconds["preparing"] -= sum(of_starts.values())
    return seconds, of_starts


def _shares_while_tasks_run(
    activities: Mapping[str, float], occupied: Sequence[Occupancy]
) -> dict[str, float]:
    """The share of each activity in the worker time from the first task of a computation on."""
    seconds = dict(activities)
    for occupancy in occupied:
        # Until the first task all workers were free.
        for activity, workers in {**occupancy.free, **occupancy.blocked}.items():
            before = occupancy.seconds_before_tasks(workers)
            seconds[activity] = seconds.get(activity, 0.0) - before
    total = sum(value for value in seconds.values() if value > 0)
    some = {name: value for name, value in seconds.items() if value > _ROUNDING * total}
    total = sum(some.values())
    return {name: some[name] / total for name in sorted(some, key=lambda name: -some[name])}
