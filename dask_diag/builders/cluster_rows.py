"""The tables of what was pulled of a cluster that refer to its tasks, and of tasks of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dask_diag.builders.clocks import bounds_in_microseconds
from dask_diag.builders.cluster_tasks import distinct_of
from dask_diag.builders.cluster_workers import times_of_workers
from dask_diag.builders.constants import constant
from dask_diag.capture.cluster.batch import Batch
from dask_diag.capture.cluster.log import ClusterLog
from dask_diag.columns import Categorical, IntArray
from dask_diag.model.table import Table
from dask_diag.schema import Activity

__all__ = ["Positions", "metrics_of", "others_of", "transfers_of", "waits_of"]

Positions = Callable[[IntArray], IntArray]
"""Where runs are in `tasks`, by their ids; -1 where they were not recorded."""


def metrics_of(metrics: Mapping[int, Sequence[Sequence[float | str]]]) -> Table:
    """What tasks metered, by their rows."""
    rows = [
        (task, *metric) for task, metrics_of_task in metrics.items() for metric in metrics_of_task
    ]
    tasks, labels, units, values, cpu = zip(*rows, strict=True) if rows else ((),) * 5
    return Table(
        {
            "task": np.array(tasks, np.int64),
            "activity": Categorical.of(labels),
            "unit": Categorical.of(units),
            "value": np.array(values, float),
            "cpu": np.array(cpu, float),
        }
    )


def waits_of(waits: Mapping[int, Sequence[tuple[str, float, int, str]]]) -> Table:
    """What tasks waited for, by their rows."""
    rows = [(task, *wait) for task, waits_of_task in waits.items() for wait in waits_of_task]
    tasks, activities, seconds, samples, labels = zip(*rows, strict=True) if rows else ((),) * 5
    return Table(
        {
            "task": np.array(tasks, np.int64),
            "activity": Categorical.of(activities),
            "seconds": np.array(seconds, float),
            "samples": np.array(samples, np.int64),
            "label": Categorical.of(labels),
        }
    )


def transfers_of(batch: Batch, log: ClusterLog, positions_of: Positions) -> Table:
    """What workers sent to each other for tasks that were recorded, whatever made it."""
    names = log.labels
    rows, sources, destinations, starts, stops, sizes = (
        zip(*batch.transfers, strict=True) if batch.transfers else ((),) * 6
    )
    count = len(batch.transfers)
    numbers = np.array(destinations, np.int64)
    bounds = [
        times_of_workers(np.array(times, float), numbers, log) - log.offset
        for times in (starts, stops)
    ]
    start, stop = bounds_in_microseconds(*bounds)
    return Table(
        {
            "task": positions_of(np.array(rows, np.int64)),
            "activity": constant(Activity.TRANSFER, count),
            "side": constant("network", count),
            "start": start,
            "stop": stop,
            "bytes": np.array(sizes, float),
            "source": Categorical.of([names.get(w, "") for w in sources]),
            "destination": Categorical.of([names.get(w, "") for w in destinations]),
        }
    )


def others_of(batch: Batch, log: ClusterLog) -> Table:
    """When tasks of clients that are not recorded ran."""
    worker, start, stop = np.frombuffer(batch.others, float).reshape(-1, 3).T
    workers, codes = distinct_of(worker.astype(np.int64))
    names = log.labels
    numbers = worker.astype(np.int64)
    start, stop = times_of_workers(start, numbers, log), times_of_workers(stop, numbers, log)
    return Table(
        {
            "computation": constant(log.scheduler, len(codes)),
            "worker": Categorical(codes, [names.get(number, "") for number in workers]),
            "start": start - log.offset,
            "stop": stop - log.offset,
        }
    )
