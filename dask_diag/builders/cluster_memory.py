"""The memory of processes of clusters, added to the series of a MemorySampler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dask_diag.builders.cluster_processes import RemoteProcesses, memory_at, rows_by_process
from dask_diag.capture.cluster.log import ClusterLog
from dask_diag.columns import FloatArray
from dask_diag.model import tables
from dask_diag.model.table import Table

__all__ = ["with_remote_memory"]


def with_remote_memory(
    memory: tables.Memory, logs: Mapping[str, Sequence[ClusterLog]]
) -> tables.Memory:
    """The series, by label, with what processes had that are not of this one's tree.

    Of these only what is resident is known: a series has no other measure if it has any of them.
    """
    columns = {name: np.array(memory[name]) for name in memory.columns if name != "label"}
    for label, of_series in logs.items():
        rows = memory.label.where(label)
        remote = RemoteProcesses().take(of_series)
        for process_rows in rows_by_process(remote) if len(remote) and rows.any() else ():
            process = remote.rows(
                process_rows[np.argsort(remote["time"][process_rows], kind="stable")]
            )
            resident = _resident_at(columns["time"][rows], process)
            columns["rss"][rows] += resident
            columns["processes"][rows] += resident > 0
            for name in ("pss", "uss"):
                columns[name][rows] = np.nan
    return tables.Memory({"label": memory.label, **columns})


def _resident_at(times: FloatArray, process: Table) -> FloatArray:
    """As it was sampled last; it was there at most one interval before it was sampled first."""
    sampled = process["time"]
    interval = float(np.median(np.diff(sampled))) if len(sampled) > 1 else 0.0
    is_first = (times < sampled[0]) & (times >= sampled[0] - interval)
    return np.where(is_first, process["memory"][0], memory_at(times, process))
