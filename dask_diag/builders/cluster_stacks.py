"""The stacks that workers of clusters sampled: tables of a Recording, worker by worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dask_diag.builders.clocks import to_other_clock
from dask_diag.builders.cluster_tasks import RUN, tasks_of
from dask_diag.builders.cluster_workers import Lanes, readings_of
from dask_diag.builders.stacks import joined_stacks, stacks_as_seen, stacks_of_tasks
from dask_diag.capture.cluster.batch import Batch
from dask_diag.capture.cluster.formats import COROUTINE
from dask_diag.capture.cluster.log import ClusterLog
from dask_diag.capture.cluster.packed_stacks import unpacked_stacks
from dask_diag.capture.sampling.call_tree import Stacks
from dask_diag.columns import IntArray
from dask_diag.model.table import Table, stack

__all__ = ["ClusterStacks"]

Parts = list[dict[str, Table]]


class ClusterStacks:
    """Sums up the stacks of tasks, pull by pull.

    Parameters
    ----------
    cycle : float
        Seconds of which samples are summed up.
    """

    def __init__(self, cycle: float) -> None:
        self._cycle = cycle
        self._logs: dict[int, _StacksOfLog] = {}

    def take(self, logs: Sequence[ClusterLog]) -> None:
        """Add what was pulled since the last call."""
        for log in logs:
            self._logs.setdefault(id(log), _StacksOfLog(log, self._cycle)).take()

    def as_seen(self, most: int) -> Parts:
        """`frames`, `call_tree` and `samples`, as samples were taken, in about `most` rows."""
        workers = [stacks for log in self._logs.values() for stacks in log.stacks_by_label()]
        most //= max(len(workers), 1)
        return [stacks_as_seen(stacks, most, label) for label, stacks in workers]

    def scaled(self, start: float, stop: float) -> Parts:
        """The same, scaled to the seconds that tasks took; what still runs stops at the end."""
        return [part for log in self._logs.values() for part in log.scaled((start, stop))]

    def tables(self, start: float, stop: float) -> dict[str, Table]:
        """`scaled`, as one of each table."""
        return joined_stacks(self.scaled(start, stop))


class _StacksOfLog:
    """The stacks of what one client has pulled, by worker."""

    def __init__(self, log: ClusterLog, cycle: float) -> None:
        self._log = log
        self._cycle = cycle
        self._lanes = Lanes()
        self._batches = 0
        self._tasks: list[Table] = []
        self._workers: list[IntArray] = []
        self._stacks: dict[int, Stacks] = {}

    def take(self) -> None:
        batches = self._log.batches[self._batches :]
        self._batches += len(batches)
        for batch in batches:
            if not batch.ids:
                continue
            tasks = tasks_of(batch, self._log, self._lanes)
            workers = np.frombuffer(batch.rows, RUN)["worker"].astype(np.int64)
            self._tasks.append(tasks)
            self._workers.append(workers)
            self._add(batch, tasks, workers)

    def _add(self, batch: Batch, tasks: Table, workers: IntArray) -> None:
        log = self._log
        ids = np.frombuffer(batch.ids, np.int64)
        keys, functions = list(batch.keys), tasks["function"]
        for number, details in batch.details.items():
            if not details.stacks or details.stacks == COROUTINE:
                continue
            row = int(np.searchsorted(ids, number))
            worker = int(workers[row])
            readings = readings_of(log.workers.get(worker))
            samples = unpacked_stacks(details.stacks)
            times = to_other_clock(np.array([time for time, *_ in samples]), readings) - log.offset
            moved = [
                (time, *sample[1:]) for time, sample in zip(times.tolist(), samples, strict=True)
            ]
            self._stacks_of(worker).take(functions[row : row + 1].tolist()[0], keys[row], moved)

    def _stacks_of(self, worker: int) -> Stacks:
        return self._stacks.setdefault(worker, Stacks(self._cycle))

    def stacks_by_label(self) -> Iterator[tuple[str, Stacks]]:
        labels = self._log.labels
        for worker, stacks in self._stacks.items():
            yield labels.get(worker, ""), stacks

    def scaled(self, bounds: tuple[float, float]) -> Parts:
        if not self._tasks:
            return []
        tasks, workers = stack(self._tasks), np.concatenate(self._workers)
        labels = self._log.labels
        return [
            stacks_of_tasks(
                self._stacks_of(worker),
                tasks.rows(workers == worker),
                labels.get(worker, ""),
                bounds,
            )
            for worker in np.unique(workers).tolist()
        ]
