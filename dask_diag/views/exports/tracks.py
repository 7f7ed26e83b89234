"""Where in a trace each worker and each counter is, and what time it is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.task_times import computation_stops, start_times
from dask_diag.columns import Array, BoolArray, Categorical, FloatArray, IntArray
from dask_diag.model.recording import Recording

__all__ = ["Track", "Tracks", "bounds_of_tasks", "distinct"]


class Track(NamedTuple):
    """A line of a trace: the process and thread it is said to be, and its name."""

    pid: int
    tid: int
    name: str


class Tracks:
    """A track for each thread of each process that ran tasks.

    Threads are numbered, with numbers that are no process's: those of the operating system are
    too large for some readers, and a thread of its process's number is taken for the main one.

    Attributes
    ----------
    workers : list of Track
    of_tasks : array of int, shape (tasks,)
        The position in `workers` of each task's, if it has one.
    placed : array of bool, shape (tasks,)
        Which tasks have one; the others have no known start or no known worker, such as tasks in
        flight when their computation stopped.
    about : int
        A number that no process has, for what belongs to no worker.
    """

    def __init__(self, recording: Recording) -> None:
        self._origin = recording.start
        tasks = recording.tasks
        self.workers: list[Track] = []
        self.of_tasks: IntArray = np.zeros(0, np.int64)
        self.placed: BoolArray = np.zeros(0, bool)
        self.about = 1
        if not len(tasks):
            return
        names = ("worker", "pid", "thread")
        pids = np.array(tasks["pid"].values, np.int64)
        self.placed = ~np.isnan(tasks["start"]) & (pids[tasks["pid"].codes] > 0)
        ran = np.flatnonzero(self.placed)
        of_those, rows = distinct([tasks[name][ran] for name in names])
        self.of_tasks = np.zeros(len(tasks), np.int64)
        self.of_tasks[ran] = of_those
        described = [tuple(tasks[name][int(row)] for name in names) for row in ran[rows]]
        self.about = max((int(pid) for _, pid, _ in described), default=0) + 1
        self.workers = [
            Track(int(pid), self.about + 1 + number, str(worker))
            for number, (worker, pid, _) in enumerate(described)
        ]

    def nanoseconds(self, times: FloatArray) -> IntArray:
        """Whole nanoseconds from when recording began; of a time that is not known, the last."""
        since = np.nan_to_num((times - self._origin) * 1e9, nan=2**53)
        return np.asarray(np.rint(since).astype(np.int64))

    def microseconds(self, times: FloatArray, since: FloatArray | None = None) -> FloatArray:
        """Microseconds from when recording began, or from other times, to the nanosecond."""
        nanoseconds = self.nanoseconds(times)
        if since is not None:
            nanoseconds = np.maximum(nanoseconds - self.nanoseconds(since), 0)
        return np.asarray(nanoseconds / 1000)

    def processes(self) -> Iterator[tuple[int, str]]:
        """The number and name of each process."""
        yield self.about, "dask_diag"
        for pid in dict.fromkeys(track.pid for track in self.workers):
            yield pid, f"process {pid}"


def bounds_of_tasks(recording: Recording) -> tuple[FloatArray, FloatArray]:
    """Start and stop of each task; else when it was submitted, and when its computation stopped."""
    tasks = recording.tasks
    stops = np.where(np.isnan(tasks["start"]), tasks["collected"], tasks["stop"])
    unknown = np.isnan(stops)
    return start_times(recording), np.where(unknown, computation_stops(recording), stops)


def distinct(columns: Sequence[Categorical]) -> tuple[Array, Array]:
    """A number for each row, the same for rows in which all columns are, and a row of each."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        combined = codes * len(column.values) + column.codes
        _, rows, codes = np.unique(combined, return_index=True, return_inverse=True)
    return codes, rows
