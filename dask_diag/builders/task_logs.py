"""From what was logged of tasks to the tables that refer to them by row."""

from __future__ import annotations

import numpy as np

from dask_diag.builders.constants import constant
from dask_diag.builders.keys import recoded
from dask_diag.capture.snapshot import TaskRows
from dask_diag.capture.tasks.dependencies import Dependencies
from dask_diag.capture.tasks.task_log import Metrics, Transfers, Waits
from dask_diag.columns import Categorical
from dask_diag.model.table import NO_ROWS, Table, stack
from dask_diag.schema import Activity

__all__ = ["dependencies_table", "log_tables"]


def log_tables(tasks: TaskRows) -> dict[str, Table]:
    """The tables of what was logged of tasks: metrics, transfers and waits."""
    return {
        "metrics": _metrics_table(tasks.metrics) if tasks.metrics.rows else NO_ROWS,
        "transfers": _transfers_table(tasks.transfers) if tasks.transfers.rows else NO_ROWS,
        "waits": _waits_table(tasks.waits) if tasks.waits.rows else NO_ROWS,
    }


def dependencies_table(dependencies: Dependencies) -> Table:
    """`Recording.dependencies` of a computation."""
    counts = np.array(dependencies.counts, dtype=np.int64)
    return Table(
        {
            "task": np.repeat(np.arange(len(counts)), counts),
            "depends_on": np.array(dependencies.rows, dtype=np.int64),
        }
    )


def _metrics_table(metrics: Metrics) -> Table:
    names = list(metrics.names)
    codes = np.array(metrics.codes, dtype=np.int64)
    return Table(
        {
            "task": np.array(metrics.rows, dtype=np.int64),
            "activity": recoded(codes, [label for label, _ in names]),
            "unit": recoded(codes, [unit for _, unit in names]),
            "value": np.array(metrics.values, dtype=float),
            "cpu": np.array(metrics.cpu, dtype=float),
        }
    )


_STEPS_OF_A_TRANSFER = (
    (Activity.SERIALIZE, "scheduler", "packing", "packed", "bytes_in"),
    (Activity.DESERIALIZE, "worker", "opened", "start", "bytes_in"),
    (Activity.SERIALIZE, "worker", "stop", "closed", "bytes_out"),
    (Activity.DESERIALIZE, "scheduler", "landing", "landed", "bytes_out"),
)
"""Activity, side, and which of `Transfer`'s numbers are its start, its stop and its bytes."""


def _transfers_table(transfers: Transfers) -> Table:
    """Up to four rows for each task: a step is left out of which a time is not known."""
    task = np.array(transfers.rows, dtype=np.int64)
    numbers = np.array(transfers.values, dtype=float).reshape(-1, len(transfers.COLUMNS))
    columns = dict(zip(transfers.COLUMNS, numbers.T, strict=True))
    parts = []
    for activity, side, start, stop, size in _STEPS_OF_A_TRANSFER:
        is_known = ~np.isnan(columns[start]) & ~np.isnan(columns[stop])
        count = int(is_known.sum())
        parts.append(
            Table(
                {
                    "task": task[is_known],
                    "activity": Categorical(np.zeros(count, np.uint8), [activity]),
                    "side": Categorical(np.zeros(count, np.uint8), [side]),
                    "start": columns[start][is_known],
                    "stop": columns[stop][is_known],
                    "bytes": columns[size][is_known],
                    "source": constant("", count),
                    "destination": constant("", count),
                }
            )
        )
    return stack(parts)


def _waits_table(waits: Waits) -> Table:
    names = list(waits.names)
    codes = np.array(waits.codes, dtype=np.int64)
    return Table(
        {
            "task": np.array(waits.rows, dtype=np.int64),
            "activity": recoded(codes, [activity for activity, _ in names]),
            "seconds": np.array(waits.seconds, dtype=float),
            "samples": np.array(waits.samples, dtype=np.int64),
            "label": recoded(codes, [label for _, label in names]),
        }
    )
