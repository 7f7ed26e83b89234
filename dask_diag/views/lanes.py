"""Tasks in lanes, a lane for each worker, as the plot of tasks and pictures draw them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_diag.analysis.groups import worker_order
from dask_diag.analysis.task_times import stop_times
from dask_diag.columns import Array, Categorical
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.escaping import shown

_COARSEST_TICK, _FINEST_TICK = 1e-6, 1e-9


class TasksInLanes(NamedTuple):
    """Tasks that are known to have started, in order of their numbers.

    Attributes
    ----------
    table : Table
        ``row`` is a position in the recording's tasks, ``lane`` one in `workers`. ``start``,
        ``stop`` and ``cpu`` are seconds, from the plot's origin on; an unfinished task stops when
        its computation ended. ``outcome`` has the error of a task that failed.
    workers : list of str
        Workers with tasks: on a cluster by host, then by kind, then by number.
    """

    table: Table
    workers: list[str]

    @property
    def counts(self) -> Array:
        """Number of tasks in each lane."""
        return np.bincount(self.table["lane"], minlength=len(self.workers)).astype(np.int32)

    @property
    def columns(self) -> dict[str, Array]:
        """Columns as measured; times are seconds."""
        return {
            "count": self.counts,
            **{name: self.table[name] for name in ("start", "stop", "cpu")},
            **{name: self.table[name].codes.astype(np.int32) for name in ("function", "outcome")},
        }

    @property
    def tick(self) -> float:
        """Unit of packed times in seconds: a hundredth of most tasks' durations, at most 1 µs."""
        duration = self.table["stop"] - self.table["start"]
        typical = max(float(np.median(duration)) / 100, _FINEST_TICK)
        exponent = np.floor(np.log10(typical) + 1e-9)
        return float(np.clip(10.0**exponent, _FINEST_TICK, _COARSEST_TICK))


def tasks_in_lanes(recording: Recording, origin: float) -> TasksInLanes:
    """Tasks of a recording in lanes; `origin` is the start of the plot's axis."""
    tasks = recording.tasks
    started = np.flatnonzero(~np.isnan(tasks.start))
    labels = tasks.worker[started]
    hosts = dict(recording.workers.tuples("worker", "host"))
    hosts.pop("", None)
    workers = sorted(
        (labels.values[code] for code in np.unique(labels.codes).tolist()),
        key=lambda name: (hosts.get(name.rpartition("/")[0], ""), worker_order(name)),
    )
    lane_of = {name: lane for lane, name in enumerate(workers)}
    lanes = np.array([lane_of.get(name, 0) for name in labels.values], np.int64)[labels.codes]
    order = np.lexsort((tasks.start[started], lanes))
    rows = started[order]
    table = Table(
        {
            "row": rows,
            "lane": lanes[order],
            "key": tasks.key[rows],
            "function": tasks.function[rows],
            "start": tasks.start[rows] - origin,
            "stop": stop_times(recording)[rows] - origin,
            "cpu": tasks.thread_cpu[rows],
            "outcome": _outcomes(tasks.outcome[rows], tasks.error[rows]),
        }
    )
    return TasksInLanes(table, workers)


def _outcomes(outcomes: Categorical, errors: Categorical) -> Categorical:
    """Outcome of each task, with the error if the task failed."""
    kinds = max(len(errors.values), 1)
    pairs, codes = np.unique(
        outcomes.codes.astype(np.int64) * kinds + errors.codes, return_inverse=True
    )
    names = [divmod(pair, kinds) for pair in pairs.tolist()]
    texts = [": ".join(filter(None, (outcomes.values[o], errors.values[e]))) for o, e in names]
    return Categorical(codes.reshape(-1), texts)


def end_of_name(name: str, limit: int) -> str:
    """The end of a long name: a worker may have its address for a name."""
    text = shown(name, limit * 10)
    return text if len(text) <= limit else f"…{text[1 - limit :]}"
