"""Table of predictions: the gain of more workers, quicker functions, or no waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

import numpy as np

from dask_diag.analysis.groups import totals_by
from dask_diag.analysis.simulation.change import Changes
from dask_diag.analysis.simulation.simulate import Simulator, is_of_cluster
from dask_diag.columns import Categorical
from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import WAITS, Activity
from dask_diag.model.table import Table

TIMES_AS_MANY = (2, 4, inf)
UNLIMITED = "unlimited"
TIMES_AS_LARGE = (2, 10)
"""Numbers of tasks of a function that become one, where enough are left for all workers."""
FUNCTIONS = 5
"""Functions, the longest first, that are tried twice as fast."""
REMOVED = (
    *(Activity.GRAPH, Activity.STARTUP, Activity.OVERHEAD),
    *(Activity.SERIALIZE, Activity.DESERIALIZE, Activity.TRANSFER, Activity.NONCPU),
    *WAITS,
)
WORTH_TRYING = 0.01
"""Least share of the wall time that removing an activity, or half a function, takes off workers."""


def predictions(simulator: Simulator, workers: Iterable[float] = ()) -> Table:
    """Table of `what_if`; changes that this simulator knows are not simulated again."""
    kinds, names, changes = zip(*_changes(simulator, workers), strict=True)
    predicted = np.array([simulator.simulate(**change).seconds for change in changes])
    # Less to do takes no longer, though tasks then start in another order: more workers may.
    is_less = [kind in ("chunks", "function", "activity") for kind in kinds]
    predicted = np.where(is_less, np.minimum(predicted, predicted[0]), predicted)
    # As many processes as tasks may take longer to start than all tasks, and are no limit.
    starts = simulator.recording.computations.scheduler.eq("processes").any()
    is_shown = [name != UNLIMITED or not starts for name in names] | (predicted <= predicted[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        speedup = predicted[0] / predicted
    return (
        Table(
            {
                "kind": Categorical.of(kinds),
                "name": Categorical.of(names),
                "seconds": predicted,
                "gain": predicted[0] - predicted,
                "speedup": speedup,
            }
        )
        .in_units(seconds="s", gain="s")
        .filter(np.flatnonzero(is_shown))
    )


def _changes(simulator: Simulator, workers: Iterable[float]) -> Iterator[tuple[str, str, Changes]]:
    """The kind and the name of each row, and the change that the row predicts."""
    recording = simulator.recording
    yield "recorded", "", {}
    if not len(recording.tasks):
        return
    recorded = max(int(recording.computations.workers.max(initial=1)), 1)
    kind = "threads" if is_of_cluster(recording) else "workers"
    numbers = {*workers, *(times * recorded for times in TIMES_AS_MANY)}
    for number in sorted(numbers):
        name = UNLIMITED if number == inf else str(int(number))
        yield kind, name, {"workers": number}
    for times in _larger_chunks(simulator):
        yield "chunks", str(times), {"merge_tasks": times}
    least = WORTH_TRYING * (recording.stop - recording.start)
    tasks = recording.tasks
    seconds = totals_by(tasks.function, np.nan_to_num(tasks.stop - tasks.start))
    for function in sorted(seconds, key=lambda name: -seconds[name])[:FUNCTIONS]:
        if seconds[function] > 2 * least:
            yield "function", function, {"speedup": {function: 2.0}}
    for activity in REMOVED:
        if simulator.seconds_of(activity) > least:
            yield "activity", activity, {"remove": {activity}}


def _larger_chunks(simulator: Simulator) -> Iterator[int]:
    """Factors by which chunks may be larger while all workers have tasks."""
    parallel, workers = simulator.chunks()
    for times in TIMES_AS_LARGE:
        if parallel >= times * workers:
            try:
                simulator.simulate(merge_tasks=times)
            except DiagnosticError:
                # Dependencies are damaged.
                return
            yield times
