"""What is known of a computation at one moment: it never changes, so any thread may read it."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from dask_diag.capture.system.thread_usage import ThreadCpu
from dask_diag.capture.system.usage import NativePool, Usage
from dask_diag.capture.tasks.dependencies import Dependencies
from dask_diag.capture.tasks.remote_task import RemoteWorker
from dask_diag.capture.tasks.task_log import Metrics, SpansOfTasks, Transfers, Waits
from dask_diag.capture.tasks.task_row import Exceptional

__all__ = ["NOTHING_LEFT", "ComputationInfo", "ComputationSnapshot", "TaskRows"]

NOTHING_LEFT: Mapping[str, int] = MappingProxyType({})
"""The tasks that a computation did not come to, if it did not fail."""


class ComputationInfo(NamedTuple):
    """A computation, except for its tasks.

    Attributes
    ----------
    number : int
        Unique among all computations of all runs: the digits of `run_id`, and a count.
    name : str
        The same as text.
    pid, thread : int
        The process and the thread that ran the scheduler.
    called, start, prepared, stop : float
        When dask was called, the scheduler started, the graph was in order, and the scheduler
        returned; seconds of ``time.perf_counter()``. What has not happened yet is None.
    call_site : str
        The line of the user's code that called dask, as ``file.py:12``; empty if not known.
    workers : int
        How many tasks the scheduler lets run at once; 0 if not known.
    span : str
    scheduler : str
        ``processes``, ``threads`` or ``synchronous``.
    error : str
        The type of the exception by which it ended.
    pool_end : str
        How the worker process ended that broke the pool; empty if none did, or if it is not known.
    usage : Usage
        What this process used meanwhile; thread CPU is NaN if it could not be read.
    threads : tuple of ThreadCpu
        What each thread of this process used; empty if that is not known.
    graph_bytes : float
        Bytes of data that its tasks are given by the graph; NaN if it is not known.
    hooks_cpu : float
        CPU seconds of the hooks of profilers for its tasks, calibrated; NaN if it is not known.
    ends_cpu, own_seconds : float
        CPU seconds of hooks as it started and ended, and wall time of those that were before tasks.
    own_threads_cpu : float
        CPU seconds of the profilers' own threads since the computation before; NaN if not known, as
        while it runs.
    pools : tuple of NativePool
        The pools of threads of native libraries, if it has ended and was not short.
    remote_workers : mapping
        The worker processes that ran tasks, by pid, with what their other threads used.
    not_run : mapping
        How many tasks of each function it did not come to, if it failed.
    """

    number: int
    name: str
    pid: int
    thread: int
    called: float
    call_site: str
    start: float
    prepared: float | None
    stop: float | None
    workers: int
    span: str
    scheduler: str
    error: str
    pool_end: str
    usage: Usage
    threads: tuple[ThreadCpu, ...]
    graph_bytes: float
    hooks_cpu: float
    ends_cpu: float
    own_threads_cpu: float
    own_seconds: float
    pools: tuple[NativePool, ...]
    remote_workers: Mapping[int, RemoteWorker]
    not_run: Mapping[str, int] = NOTHING_LEFT


class TaskRows(NamedTuple):
    """Tasks of a computation, a row each: in the order of collection, then those in flight.

    Attributes
    ----------
    rows : bytes
        `ROW` upon `ROW`.
    keys : iterable
    names : iterable of (int, str)
        Row and function of each task whose key does not name its function.
    exceptional : mapping
        How tasks ended that were not simply done, by row.
    spans : SpansOfTasks
    dependencies : Dependencies
    metrics, transfers, waits : Metrics, Transfers, Waits
    sizes : array of float
        The bytes of the results of the first rows; none if they were not measured.
    dependents : array of int
        How many tasks depend on the result of each row: see `dependents_of`; none if results were
        not measured.
    """

    rows: bytes
    keys: Iterable[Hashable]
    names: Iterable[tuple[int, str]]
    exceptional: Mapping[int, Exceptional]
    spans: SpansOfTasks
    dependencies: Dependencies
    metrics: Metrics
    transfers: Transfers
    waits: Waits
    sizes: array[float]
    dependents: array[int]


class ComputationSnapshot:
    """A computation and its tasks; none equals another.

    A plain class, as to make a dataclass takes a tenth of the import of this package.
    """

    __slots__ = ("__weakref__", "info", "tasks")

    def __init__(self, info: ComputationInfo, tasks: TaskRows) -> None:
        self.info = info
        self.tasks = tasks
