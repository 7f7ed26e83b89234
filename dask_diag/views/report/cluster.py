"""The section of a report on the workers of clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isnan

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.cluster_occupancy import rows_of_workers
from dask_diag.analysis.grouping import worker_order
from dask_diag.analysis.task_times import worker_stop_times
from dask_diag.formatting import count, percent, seconds
from dask_diag.views.report.components import Grid, Part, of_first, safe
from dask_diag.views.report.figures import Figures

__all__ = ["workers"]

_WORKERS = 200
_COLUMNS = (
    *(
        "worker",
        "host",
        "address",
        "version",
        "left because of",
        "joined",
        "left",
        "pid",
        "threads",
    ),
    *("clock offset", "tasks", "CPU", "busy"),
)
_TEXTS = 5


def workers(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Each worker: where it ran and when, and what it did; nothing if there was no cluster."""
    table = analysis.recording.workers
    rows = table.rows(~table.address.where("")).to_dicts()
    if not rows:
        return
    rows.sort(key=lambda row: (row["host"], worker_order(row["worker"])))
    done = _Done(analysis)
    yield Grid(
        "Workers of clusters" + of_first(len(rows), _WORKERS),
        _COLUMNS,
        [_cells(row, done, analysis.recording.start) for row in rows[:_WORKERS]],
        texts=_TEXTS,
    )


class _Done:
    """What each worker did."""

    def __init__(self, analysis: Analysis) -> None:
        recording = analysis.recording
        lanes = recording.tasks.worker
        self._rows = rows_of_workers(lanes.codes, lanes.values)
        self._cpu = np.nan_to_num(recording.tasks.thread_cpu)
        self._is_cpu_known = ~np.isnan(recording.tasks.thread_cpu)
        self._took = np.nan_to_num(worker_stop_times(recording) - recording.tasks.start)
        self._stop = recording.stop
        self._start = recording.start

    def of(self, worker: Mapping[str, float]) -> tuple[str, str, str]:
        """How many tasks, their CPU, and what share of its threads' time they had."""
        rows = self._rows.get(str(worker["worker"]), np.zeros(0, np.int64))
        left_at = self._stop if isnan(worker["left"]) else worker["left"]
        thread_seconds = worker["threads"] * max(left_at - max(worker["joined"], self._start), 0.0)
        has_cpu = bool(self._is_cpu_known[rows].any()) or not len(rows)
        return (
            count(len(rows)),
            seconds(float(self._cpu[rows].sum())) if has_cpu else "not known",
            percent(float(self._took[rows].sum()) / thread_seconds) if thread_seconds else "",
        )


def _cells(row: Mapping[str, float], done: _Done, start: float) -> tuple[str, ...]:
    measured = str(row["version"]) if row["measured"] else f"{row['version']} (did not measure)"
    return (
        safe(row["worker"], 60),
        safe(row["host"], 60),
        safe(row["address"], 60),
        safe(measured.strip(), 60),
        safe(row["reason"], 60),
        seconds(row["joined"] - start) if row["joined"] > start else "before",
        "" if isnan(row["left"]) else seconds(row["left"] - start),
        str(row["pid"] or ""),
        count(int(row["threads"])),
        _offset(row["clock_offset"], row["clock_error"]),
        *done.of(row),
    )


def _offset(offset: float, error: float) -> str:
    """How a worker's clock differs from this process's; nothing where they share one."""
    return f"{seconds(offset)} ± {seconds(error)}" if offset or error else "same clock"
