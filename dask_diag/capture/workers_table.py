"""The tables of workers and of threads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from math import nan
from platform import node
from typing import NamedTuple, TypeVar

import numpy as np

from dask_diag._version import __version__
from dask_diag.capture.computation import ComputationSnapshot
from dask_diag.capture.task import ROW
from dask_diag.columns import Array, Categorical, FloatArray, IntArray, smallest_integers
from dask_diag.model import tables
from dask_diag.model.codes import THREAD_KINDS, UNKNOWN_WORKER
from dask_diag.system.processes import memory_limit
from dask_diag.system.threads import ThreadCpu
from dask_diag.system.usage import processors

R = TypeVar("R", bound=tables.RecordingTable)


def constant(value: str, count: int) -> Categorical:
    """A text in each row."""
    return Categorical(_repeated(np.uint8(0), count), [value])


def constant_number(value: float, count: int) -> Array:
    """A number in each row; an integer stays an integer."""
    number = np.int8(value) if isinstance(value, int) else np.float64(value)
    return _repeated(number, count)


def _repeated(number: np.uint8 | np.int8 | np.float64, count: int) -> Array:
    # As np.broadcast_to does in ten times the time; of bytes, so that nothing can be written to it.
    return np.ndarray(count, number.dtype, number.tobytes(), strides=(0,))


def without_nan(values: FloatArray, instead: float = 0.0) -> FloatArray:
    """The numbers, and one in place of NaN: of few numbers in a tenth of `numpy.nan_to_num`'s time.

    There is a call for each computation, and these may have one task each.
    """
    return np.where(np.isnan(values), instead, values)


@cache
def this_host() -> str:
    """The name of this machine."""
    return node()


def on_local_schedulers(count: int) -> dict[str, Array | Categorical]:
    """Columns of tasks filled by clusters only."""
    unknown = constant_number(nan, count)
    return {
        "attempt": constant_number(1, count),
        "host": constant(this_host(), count),
        "nbytes": unknown,
        "queued": unknown,
        "stolen": constant_number(0, count),
        "client": constant("", count),
        "seceded": unknown,
        "seceded_cpu": unknown,
        "group": constant_number(-1, count),
    }


Workers = dict[tuple[int, int, str], int]
"""The number of each worker by its pid, its thread and its kind; it grows."""


def worker_codes(
    computations: Sequence[ComputationSnapshot],
    of_rows: IntArray,
    ran_on: FloatArray,
    start: FloatArray,
    workers: Workers,
) -> Array:
    """A number for each thread of each process, in the order of first tasks.

    Each row is of the computation whose position `of_rows` has. `workers` grows by those not seen
    before.
    """
    idents, ident = np.unique(without_nan(ran_on).astype(np.int64), return_inverse=True)
    # One number for a pair sorts ten times as fast as two.
    pairs, inverse = np.unique(of_rows * len(idents) + ident, return_inverse=True)
    first = np.full(len(pairs), np.inf)
    np.minimum.at(first, inverse, without_nan(start, np.inf))
    codes = np.zeros(len(pairs), dtype=np.int64)
    # Numbered by their first task, so that names do not depend on idents, which the system reuses.
    for position in np.argsort(first, kind="stable").tolist():
        computation, number = divmod(int(pairs[position]), len(idents))
        worker = _worker_of(computations[computation], int(idents[number]))
        codes[position] = workers.setdefault(worker, len(workers))
    return smallest_integers(codes[inverse], len(workers))


def _worker_of(computation: ComputationSnapshot, ident: int) -> tuple[int, int, str]:
    """The pid, the thread and the kind of a task's worker."""
    facts = computation.facts
    if ident in facts.remote_workers:
        return ident, facts.remote_workers[ident].thread, "process"
    synchronous = facts.scheduler == "synchronous"
    if synchronous and (ident == facts.thread or (not ident and facts.workers <= 1)):
        return facts.pid, facts.thread, "caller"
    return (facts.pid, ident, "thread") if ident else (0, 0, UNKNOWN_WORKER)


def workers_table(computations: Iterable[ComputationSnapshot]) -> tables.Workers:
    """`Recording.workers`."""
    return tables.Workers.of_rows(
        {
            "computation": computation.name,
            "pid": pid,
            "joined": worker.joined,
            "worker": "",
            "address": "",
            "host": this_host(),
            "threads": 1,
            "left": nan,
            "reason": "",
            "clock_offset": 0.0,
            "clock_error": 0.0,
            "cpus": processors(),
            "memory_limit": memory_limit(),
            "version": __version__,
            "measured": 1,
        }
        for computation in computations
        for pid, worker in computation.facts.remote_workers.items()
    )


def worker_names(workers: Iterable[tuple[int, int, str]]) -> list[str]:
    """A short name for each: ``thread-0``, ``process-3``; ``caller`` for the computing thread."""
    names: list[str] = []
    counts: dict[str, int] = {}
    for _, _, kind in workers:
        count = counts[kind] = counts.get(kind, -1) + 1
        names.append(f"{kind}-{count}" if kind in ("thread", "process") or count else kind)
    return names


_NANOSECONDS = 1_000_000_000
"""In a second."""
_NUMBER = re.compile(r"[-_]\d+(?=$| \()")
"""Number or function in the name of a thread: ``zarr_io_3``, ``Thread-7 (work)``."""


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
        """Threads and CPU time of two sets of tasks together."""
        nanoseconds = self.nanoseconds + other.nanoseconds
        return TaskThreads(self.idents | other.idents, nanoseconds)


NO_THREADS = TaskThreads(frozenset(), 0)


def threads_table(
    computations: Iterable[tuple[ComputationSnapshot, TaskThreads]],
) -> tables.Threads:
    """`Recording.threads` of computations, with the threads of tasks."""
    return tables.Threads.of_rows(
        row for computation, tasks in computations for row in _thread_rows(computation, tasks)
    )


def _thread_rows(
    computation: ComputationSnapshot, tasks: TaskThreads
) -> Iterator[dict[str, object]]:
    """Rows of the computing process, then of worker processes, of each by kind and name."""
    kinds = list(THREAD_KINDS)
    groups: dict[tuple[int, int, int, str], tuple[int, float]] = {}
    for pid, is_child, kind, thread, cpu in _cpu_by_kind(computation, tasks):
        group = is_child, pid, kinds.index(kind), _NUMBER.sub("", thread.name)
        count, cpu_before = groups.get(group, (0, 0.0))
        # How many have ended is not known.
        groups[group] = count + (kind != "ended"), cpu_before + cpu
    for (is_child, pid, number, name), (count, cpu) in sorted(groups.items()):
        yield {
            "computation": computation.name,
            "pid": pid,
            "is_child": is_child,
            "kind": kinds[number],
            "name": name,
            "threads": count,
            "cpu_seconds": cpu,
        }


def _cpu_by_kind(
    computation: ComputationSnapshot, tasks: TaskThreads
) -> Iterator[tuple[int, int, str, ThreadCpu, float]]:
    """Pid, whether it is a worker process, kind, thread and CPU seconds of each thread."""
    facts = computation.facts
    # In worker processes idents mean other threads.
    in_this_process = facts.scheduler != "processes"
    ran_tasks, cpu_of_tasks = (tasks.idents, tasks.cpu) if in_this_process else (frozenset(), 0.0)
    pid = facts.pid
    for thread in facts.threads:
        kind, cpu = "tasks" if thread.ident in ran_tasks else thread.kind, thread.cpu
        if thread.ident == facts.thread:
            kind = "scheduler"
            if facts.scheduler == "synchronous":
                in_tasks = min(cpu_of_tasks, cpu)
                yield pid, 0, "tasks", thread, in_tasks
                cpu -= in_tasks
        yield pid, 0, kind, thread, cpu
    for pid, worker in facts.remote_workers.items():
        for thread in worker.threads:
            yield pid, 1, thread.kind, thread, thread.cpu


def numbers_of(rows: bytes) -> FloatArray:
    """The numbers of rows of tasks: an array for each number of a `ROW`."""
    return np.frombuffer(rows, dtype=float).reshape(-1, ROW.size // 8).T.copy()


def task_threads(rows: bytes) -> TaskThreads:
    """The threads of the tasks in rows, and the CPU time of the tasks."""
    if not rows:
        return NO_THREADS
    _, _, _, cpu, ran_on, _ = numbers_of(rows)
    idents = without_nan(ran_on).astype(np.int64)
    # A set: `numpy.unique` imports masked arrays. 0 is not known, or the thread that called the
    # scheduler.
    nanoseconds = np.rint(without_nan(cpu) * _NANOSECONDS).astype(np.int64)
    return TaskThreads(frozenset(idents.tolist()) - {0}, int(nanoseconds.sum()))
