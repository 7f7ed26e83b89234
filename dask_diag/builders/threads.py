"""The table of threads: CPU of the computing process and of its workers, by group of threads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from dask_diag.builders.constants import without_nan
from dask_diag.capture.snapshot import ComputationInfo
from dask_diag.capture.system.thread_usage import ThreadCpu
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
        (computation.name, pid, is_child, kind, name, *values)
        for computation, tasks in computations
        for pid, is_child, groups in _processes_of(computation, tasks)
        for (kind, name), values in sorted(groups.items(), key=_order)
    ]
    if not rows:
        return tables.Threads.empty()
    names, pids, are_children, kinds, labels, counts, cpu = zip(*rows, strict=True)
    return tables.Threads(
        {
            "computation": Categorical.of(names),
            "pid": np.array(pids, dtype=np.int64),
            "is_child": np.array(are_children, dtype=np.int64),
            "kind": Categorical.of(kinds),
            "name": Categorical.of(labels),
            "threads": np.array(counts, dtype=np.int64),
            "cpu_seconds": np.array(cpu, dtype=float),
        }
    )


def _order(group: tuple[tuple[str, str], object]) -> tuple[int, str]:
    (kind, name), _ = group
    return list(THREAD_KINDS).index(kind), name


def _processes_of(
    computation: ComputationInfo, tasks: TaskThreads
) -> Iterator[tuple[int, int, _Groups]]:
    """Of each process its pid, whether it is a worker process, and its threads."""
    yield computation.pid, 0, _groups_of(computation, tasks)
    for pid, worker in sorted(computation.remote_workers.items()):
        groups: _Groups = {}
        for thread in worker.threads:
            _add(groups, thread.kind, thread, thread.cpu)
        yield pid, 1, groups


def _groups_of(computation: ComputationInfo, tasks: TaskThreads) -> _Groups:
    """The threads of the computing process."""
    groups: _Groups = {}
    if not computation.threads:
        return groups
    # In worker processes idents mean other threads.
    in_this_process = computation.scheduler != "processes"
    ran_tasks, cpu_of_tasks = (tasks.idents, tasks.cpu) if in_this_process else (frozenset(), 0.0)
    for thread in computation.threads:
        kind = "tasks" if thread.ident in ran_tasks else thread.kind
        if thread.ident == computation.thread:
            kind = "scheduler"
            if computation.scheduler == "synchronous":
                in_tasks = min(cpu_of_tasks, thread.cpu)
                _add(groups, "tasks", thread, in_tasks)
                _add(groups, kind, thread, thread.cpu - in_tasks)
                continue
        _add(groups, kind, thread, thread.cpu)
    return groups


def _add(groups: _Groups, kind: str, thread: ThreadCpu, cpu: float) -> None:
    group = kind, _NUMBER.sub("", thread.name)
    count, cpu_before = groups.get(group, (0, 0.0))
    # How many have ended is not known.
    groups[group] = count + (kind != "ended"), cpu_before + cpu


def task_threads(rows: bytes) -> TaskThreads:
    """Of the tasks of these rows."""
    if not rows:
        return _NO_TASKS
    numbers = np.frombuffer(rows, dtype=float).reshape(-1, ROW.size // 8)
    idents = without_nan(numbers[:, 4]).astype(np.int64)
    # A set: `numpy.unique` imports masked arrays. 0 is not known, or the thread that called the
    # scheduler.
    nanoseconds = np.rint(without_nan(numbers[:, 3]) * _NANOSECONDS).astype(np.int64)
    return TaskThreads(frozenset(idents.tolist()) - {0}, int(nanoseconds.sum()))
