"""The table of threads: the CPU of the computing process, divided among groups of its threads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from dask_diag.builders.constants import without_nan
from dask_diag.capture.snapshot import ComputationInfo
from dask_diag.capture.tasks.task_row import ROW
from dask_diag.columns import Categorical
from dask_diag.model import tables
from dask_diag.schema import THREAD_KINDS

__all__ = ["TaskThreads", "task_threads", "threads_table"]

_NANOSECONDS = 1_000_000_000
"""In a second."""
_NUMBER = re.compile(r"[-_]\d+(?=$| \()")
"""What distinguishes threads of one name: ``zarr_io_3``, ``Thread-7 (work)``."""

_Groups = dict[tuple[str, str], tuple[int, float]]
"""By kind and name: how many threads, and their CPU seconds."""


class TaskThreads(NamedTuple):
    """The idents of the threads that ran tasks, and the tasks' CPU in nanoseconds.

    Whole ones: their sum is the same however tasks were divided among the chunks of a file.
    """

    idents: frozenset[int]
    nanoseconds: int

    @property
    def cpu(self) -> float:
        """CPU seconds of the tasks."""
        return self.nanoseconds / _NANOSECONDS

    def plus(self, other: TaskThreads) -> TaskThreads:
        """Of these and other tasks."""
        nanoseconds = self.nanoseconds + other.nanoseconds
        return TaskThreads(self.idents | other.idents, nanoseconds)


_NO_TASKS = TaskThreads(frozenset(), 0)


def threads_table(computations: Iterable[tuple[ComputationInfo, TaskThreads]]) -> tables.Threads:
    """`Recording.threads` of computations, each with what its tasks used."""
    rows = [
        (computation.name, kind, name, *values)
        for computation, tasks in computations
        for (kind, name), values in sorted(_groups_of(computation, tasks).items(), key=_order)
    ]
    if not rows:
        return tables.Threads.empty()
    names, kinds, labels, counts, cpu = zip(*rows, strict=True)
    return tables.Threads(
        {
            "computation": Categorical.of(names),
            "kind": Categorical.of(kinds),
            "name": Categorical.of(labels),
            "threads": np.array(counts, dtype=np.int64),
            "cpu_seconds": np.array(cpu, dtype=float),
        }
    )


def _order(group: tuple[tuple[str, str], object]) -> tuple[int, str]:
    (kind, name), _ = group
    return list(THREAD_KINDS).index(kind), name


def _groups_of(computation: ComputationInfo, tasks: TaskThreads) -> _Groups:
    groups: _Groups = {}
    if not computation.threads:
        return groups
    # In worker processes idents mean other threads.
    in_this_process = computation.scheduler != "processes"
    ran_tasks, cpu_of_tasks = (tasks.idents, tasks.cpu) if in_this_process else (frozenset(), 0.0)
    for thread in computation.threads:
        kind, name, count, cpu = thread.kind, _NUMBER.sub("", thread.name), 1, thread.cpu
        if thread.ident == computation.thread:
            kind = "scheduler"
            if computation.scheduler == "synchronous":
                _add(groups, ("tasks", name), 1, min(cpu_of_tasks, cpu))
                cpu = max(0.0, cpu - cpu_of_tasks)
        elif thread.ident in ran_tasks:
            kind = "tasks"
        elif thread.kind == "ended":
            count = 0
        _add(groups, (kind, name), count, cpu)
    return groups


def _add(groups: _Groups, group: tuple[str, str], count: int, cpu: float) -> None:
    count_before, cpu_before = groups.get(group, (0, 0.0))
    groups[group] = count_before + count, cpu_before + cpu


def task_threads(rows: bytes | bytearray) -> TaskThreads:
    """Of the tasks of these rows."""
    if not rows:
        return _NO_TASKS
    numbers = np.frombuffer(rows, dtype=float).reshape(-1, ROW.size // 8)
    idents = without_nan(numbers[:, 4]).astype(np.int64)
    # A set: `numpy.unique` imports masked arrays. 0 is not known, or the thread that called the
    # scheduler.
    nanoseconds = np.rint(without_nan(numbers[:, 3]) * _NANOSECONDS).astype(np.int64)
    return TaskThreads(frozenset(idents.tolist()) - {0}, int(nanoseconds.sum()))
