"""The columns from which a page draws tasks: as measured, or compressed where there are many."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dask_diag.analysis.grouping import worker_order
from dask_diag.analysis.task_times import stop_times
from dask_diag.columns import Array, Categorical, FloatArray, IntArray
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.escaping import shown
from dask_diag.views.plots.binary_columns import Packed, pack, ticks
from dask_diag.views.plots.tasks.packed_keys import columns_of_keys

__all__ = ["FULL", "LANE", "TasksInLanes", "tasks_in_lanes"]

LANE = 320
"""Height of a lane on the y axis: a rectangle of `FULL`, and a gap."""
FULL = 255

_COLUMNS = (
    "key",
    "function",
    "start",
    "stop",
    "thread_cpu",
    "worker",
    "computation",
    "outcome",
    "error",
)
_COARSEST_TICK, _FINEST_TICK = 1e-6, 1e-9
_CPU_DIGITS = 9
"""Binary digits of packed CPU time: it is exact to 0.2% of the task's duration, or to a tick."""


@dataclass(frozen=True)
class TasksInLanes:
    """Tasks that are known to have started, and the lane of each.

    `start` and `stop` are seconds since the plot's origin; of a task that was not finished,
    `stop` is when its computation ended. `lane` is an index in `workers`, `row` one in the
    recording's tasks.
    """

    table: Table
    row: IntArray
    start: FloatArray
    stop: FloatArray
    lane: IntArray
    workers: list[str]
    outcome: Categorical

    def __len__(self) -> int:
        return len(self.table)

    def rows(self, chosen: Array | slice) -> TasksInLanes:
        """Some of the tasks, or all in another order."""
        return TasksInLanes(
            self.table.rows(chosen),
            self.row[chosen],
            self.start[chosen],
            self.stop[chosen],
            self.lane[chosen],
            self.workers,
            self.outcome[chosen],
        )

    def columns(self) -> dict[str, Array]:
        """The tasks, which are in order: ``decode.js`` takes this, or what is packed.

        ``count`` has a number for each lane, the others one for each task; times are seconds.
        """
        return {
            "count": self._count(),
            "start": self.start,
            "stop": self.stop,
            "cpu": self.table["thread_cpu"],
            "function": self.table["function"].codes.astype(np.int32),
            "outcome": self.outcome.codes.astype(np.int32),
        }

    def keys(self, size: int) -> list[str]:
        """The keys as they are shown, of at most so many letters."""
        return [shown(key, size) for key in self.table["key"].tolist()]

    def _count(self) -> Array:
        return np.bincount(self.lane, minlength=len(self.workers)).astype(np.int32)

    @cached_property
    def tick(self) -> float:
        """The unit of packed times: a hundredth of most tasks' durations, at most 1 µs."""
        typical = max(float(np.median(self.stop - self.start)) / 100, _FINEST_TICK)
        exponent = np.floor(np.log10(typical) + 1e-9)
        return float(np.clip(10.0**exponent, _FINEST_TICK, _COARSEST_TICK))

    def in_order(self) -> TasksInLanes:
        """Lane by lane, in order of time."""
        return self.rows(np.lexsort((self.start, self.lane)))

    def packed(self) -> Packed:
        """The tasks, which are in order, but for their keys.

        There are ``count``, a number for each lane, and for each task ``gap`` (ticks since the one
        before it in its lane), ``length`` (ticks), ``function``, ``outcome``, and ``rest``: what of
        its length was not CPU time, without its last digits. ``unknown`` are the indices of tasks
        whose CPU time is not known.
        """
        start, stop = (ticks(time, self.tick) for time in (self.start, self.stop))
        before = np.concatenate([[0], stop[:-1]])
        before[np.diff(self.lane, prepend=-1) != 0] = 0
        length = stop - start
        cpu = self.table["thread_cpu"]
        unknown = np.isnan(cpu)
        off_cpu = np.where(unknown, 0, length - ticks(np.nan_to_num(cpu), self.tick))
        return pack(
            {
                "count": self._count(),
                "gap": start - before,
                "length": length,
                "function": self.table["function"].codes,
                "outcome": self.outcome.codes,
                "rest": np.sign(off_cpu) * (np.abs(off_cpu) >> _digits_left_out(length)),
                "unknown": np.flatnonzero(unknown),
            }
        )

    def packed_keys(self) -> Packed:
        """The keys, in the same order."""
        return pack(columns_of_keys(self.table["key"], self.table["function"].codes))


def tasks_in_lanes(recording: Recording, origin: float) -> TasksInLanes:
    """The tasks of a recording; those that are not known to have started are left out."""
    tasks = recording.tasks
    if not len(tasks):
        nothing = np.zeros(0)
        none = nothing.astype(np.int64)
        return TasksInLanes(tasks, none, nothing, nothing, none, [], Categorical([], []))
    started = ~np.isnan(tasks["start"])
    all_started = bool(started.all())
    table = Table({name: tasks[name] if all_started else tasks[name][started] for name in _COLUMNS})
    workers = _workers_in_order(table["worker"], recording)
    lane_of = {name: lane for lane, name in enumerate(workers)}
    lanes = np.array([lane_of.get(name, 0) for name in table["worker"].values], np.int64)
    return TasksInLanes(
        table,
        np.flatnonzero(started),
        table["start"] - origin,
        stop_times(recording)[started] - origin,
        lanes[table["worker"].codes],
        workers,
        _outcomes(table),
    )


def _workers_in_order(labels: Categorical, recording: Recording) -> list[str]:
    """The workers that ran something: on a cluster by host, then by kind, then by number."""
    names = [labels.values[code] for code in np.unique(labels.codes).tolist()]
    workers = recording.workers
    hosts = dict(zip(workers.worker.tolist(), workers.host.tolist(), strict=True))
    hosts.pop("", None)
    return sorted(
        names, key=lambda name: (hosts.get(name.rpartition("/")[0], ""), worker_order(name))
    )


def _outcomes(table: Table) -> Categorical:
    """How each task ended, with the error of those that failed."""
    outcomes, errors = table["outcome"], table["error"]
    pairs = outcomes.codes.astype(np.int64) * len(errors.values) + errors.codes
    kinds, codes = np.unique(pairs, return_inverse=True)
    names = [divmod(pair, len(errors.values)) for pair in kinds.tolist()]
    texts = [": ".join(filter(None, (outcomes.values[o], errors.values[e]))) for o, e in names]
    return Categorical(codes.reshape(-1), texts)


def _digits_left_out(length: IntArray) -> Array:
    """How many of the last binary digits of a task's CPU time are not worth their bytes."""
    _, digits = np.frexp(np.maximum(length, 0).astype(np.float64))
    return np.asarray(np.maximum(digits - 1 - _CPU_DIGITS, 0))
