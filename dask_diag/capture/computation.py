"""One computation, while it is measured: the scheduler's side, shared by all diagnostics."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from struct import Struct
from threading import get_ident
from time import perf_counter
from typing import Any, NamedTuple

from dask_diag.capture.dask_internals import annotations_of_graph, scheduler_locals, when_called
from dask_diag.capture.run_id import run_id
from dask_diag.capture.span import current_span
from dask_diag.capture.system.thread_usage import ThreadUsage
from dask_diag.capture.system.usage import Pool, Usage, thread_pools
from dask_diag.capture.tasks.metered import Metered
from dask_diag.capture.tasks.metering import hear_distributed, listening, stop_hearing_distributed
from dask_diag.capture.tasks.remote_task import Measurement, running, take_measurement
from dask_diag.capture.tasks.task_log import (
    Dependencies,
    Keys,
    Metrics,
    NamesOfPlainKeys,
    SpansOfTasks,
    Transfers,
    Waits,
    function_of,
)
from dask_diag.capture.tasks.timed_task import TimedTask, threads_of_tasks

__all__ = ["ROW", "STATE_KEY", "Computation", "Exceptional", "Keys", "begin"]

STATE_KEY = "dask_diag"
"""Where the scheduler's state, a dict that lives as long as the computation, holds the
`Computation`."""

ROW = Struct("6d")
pack_row = ROW.pack
"""A task's row: submitted, start, stop, thread CPU, what ran it, collected. NaN is not known.

What ran it is a thread's ident, as the worker told the scheduler, or the pid of a worker process
(see `Computation.remote_threads`); 0 where the scheduler asks no worker who it is.
"""

WORTH_LISTING_POOLS = 0.1
"""Seconds of a computation from which on the libraries' pools are listed: that takes a
millisecond."""

INTERRUPTIONS = {"KeyboardInterrupt", "SystemExit"}
"""Exceptions that end a task which did not fail."""

_NAN = float("nan")
_count = count(1)
_BITS_OF_COUNT = 32


class Exceptional(NamedTuple):
    """How a task ended that was not simply done."""

    outcome: str
    error: str


class Computation:
    """What is known of one computation: while it runs, and once it is done.

    Attributes
    ----------
    number : int
        What it goes by in this process and, pickled, in its workers: the digits of `run_id` and a
        count, so that no other computation of any process has it.
    called, start, prepared, stop : float
        When dask was called, the scheduler started, the graph was in order, and the scheduler
        returned; seconds of ``time.perf_counter()``. What has not happened yet is None.
    usage_before : Usage
        What this process had used when the computation started.
    usage : Usage or None
        What it used meanwhile, once the computation is done.
    threads : ThreadUsage
        The CPU of each thread of this process.
    pools : list of Pool
        The pools of threads of native libraries, if it is done and was not short.
    workers : int
        How many tasks the scheduler lets run at once; 0 if not known.
    wrapper_type : type
        The kind of `TimedTask` that stands in for tasks.
    probes : mapping
        What looks at its tasks while they run, by type.
    stacks : tuple of Stacks
        Who keeps the stacks of its tasks.
    rows : bytearray
        `ROW` upon `ROW`, in the order in which the scheduler collected the tasks.
    functions : Categorical or None
        The function of each row, if it is done and who made a table of it has told.
    """

    __slots__ = (
        "annotated",
        "aside",
        "called",
        "dependencies",
        "dsk",
        "error",
        "exceptional",
        "free",
        "functions",
        "keys",
        "measurer",
        "metrics",
        "names",
        "number",
        "pid",
        "pools",
        "prepared",
        "probes",
        "remote_threads",
        "rows",
        "share",
        "span",
        "spans",
        "stacks",
        "start",
        "state",
        "stop",
        "thread",
        "threads",
        "transfers",
        "usage",
        "usage_before",
        "waits",
        "worker_id",
        "workers",
        "wrapper_type",
    )

    def __init__(self, dsk: Any) -> None:
        self.start = perf_counter()
        self.called = when_called() or self.start
        self.prepared: float | None = None
        self.stop: float | None = None
        self.number = (int(run_id(), 16) << _BITS_OF_COUNT) + next(_count)
        self.pid = os.getpid()
        self.thread = get_ident()
        self.workers = int(scheduler_locals().get("num_workers") or 0)
        self.usage_before = Usage.now()
        self.usage: Usage | None = None
        self.threads = ThreadUsage()
        self.pools: list[Pool] = []
        self.share = 0.0
        self.error = ""
        self.worker_id: Any = None
        self.measurer: Any = None
        self.rows: bytearray | bytes = bytearray()
        self.keys: list[Any] | Keys = []
        self.names: NamesOfPlainKeys | None = None
        self.functions: Any = None
        self.dependencies = Dependencies()
        self.metrics = Metrics()
        self.transfers = Transfers()
        self.waits = Waits()
        self.wrapper_type: type[TimedTask] = TimedTask
        self.probes: Mapping[type[Any], Any] = {}
        self.stacks: tuple[Any, ...] = ()
        self.span = current_span()
        self.annotated: Mapping[Any, Any] = annotations_of_graph("span")
        self.spans: SpansOfTasks | None = None
        self.exceptional: dict[int, Exceptional] = {}
        self.remote_threads: dict[int, int] = {}
        self.free: list[TimedTask] = []
        self.aside: dict[Any, TimedTask] = {}
        self.dsk = dsk
        self.state: Any = {}

    @property
    def name(self) -> str:
        """The run's id and a count: unique among all computations of all runs."""
        run, count = divmod(self.number, 1 << _BITS_OF_COUNT)
        return f"{run:016x}-{count}"

    @property
    def scheduler(self) -> str:
        """What kind of scheduler ran it: ``processes``, ``threads`` or ``synchronous``."""
        if self.remote_threads:
            return "processes"
        return "synchronous" if self.worker_id is None else "threads"

    @property
    def done(self) -> int:
        """How many tasks have a row."""
        return len(self.rows) // ROW.size

    @property
    def is_final(self) -> bool:
        """Whether nothing of it changes any more: its rows are made final last."""
        return type(self.rows) is bytes

    def share_done(self) -> float:
        """How many of its tasks the scheduler has finished, from 0 to 1."""
        if self.stop is None:
            state = self.state
            finished, *left = (
                len(state.get(kind, ())) for kind in ("finished", "ready", "waiting", "running")
            )
            self.share = finished / (finished + sum(left)) if finished else 0.0
        return self.share

    def set_aside(self, measured: TimedTask) -> None:
        """Put the task itself back into the graph; its stand-in is found here from now on."""
        if self.stop is not None:
            return
        self.aside[measured.key] = measured
        self.dsk[measured.key] = measured.task

    def receive(self, measurement: Measurement, landing: float, landed: float, size: float) -> None:
        """Take over what a worker process measured, as its result lands."""
        measured = self.aside.get(measurement.key)
        if measured is None:
            return
        measured.receive(measurement)
        transfer = measured.transfer
        if transfer is not None:
            transfer.landing, transfer.landed, transfer.bytes_out = landing, landed, size

    def take_set_aside(self, key: Any) -> TimedTask | None:
        """The stand-in, now collected, of a task that was pickled or that failed."""
        measured = self.aside.pop(key, None)
        if measured is None:
            return None
        if measured.error:
            self.exceptional[self.done] = outcome_of(measured)
            measured.error = ""
        if measured.start is None:
            measured.start = measured.stop = measured.cpu = _NAN
            measured.thread = 0
        self.log_transfer(measured, self.done)
        return measured

    def log_transfer(self, measured: TimedTask, row: int) -> None:
        """Keep what moving a task took whose row is this one."""
        if measured.transfer is not None:
            self.transfers.add(row, measured.transfer)
            measured.transfer = None

    def log_metered(self, metered: Metered) -> None:
        """Keep what a task metered and waited for whose row is the last one."""
        self.metrics.add(self.done - 1, metered.metrics)
        self.waits.add(self.done - 1, metered.waits)

    def log_stacks(self, measured: TimedTask, seen: Sequence[tuple[Any, ...]]) -> None:
        """Keep what a worker process saw of the stacks of a task."""
        function = function_of(measured.key, measured.task)
        for stacks in self.stacks:
            stacks.take(function, measured.key, seen)

    def wrapper_of(self, key: Any) -> TimedTask | None:
        """The stand-in of a task that has been submitted and not collected."""
        measured = self.dsk.get(key)
        return measured if isinstance(measured, TimedTask) else self.aside.get(key)

    def in_flight(self) -> list[TimedTask]:
        """The stand-ins of all tasks that have been submitted and not collected."""
        running_keys = tuple(self.state.get("running", ()))
        found = [task for task in map(self.wrapper_of, running_keys) if task is not None]
        threads = threads_of_tasks() if found else {}
        for task in found:
            task.thread = threads.get(id(task), task.thread)
        return found

    def finish(self, failed: bool) -> None:
        """Record what is still in flight, let go of the graph and of every task."""
        if self.stop is not None:
            return
        self.share_done()
        self.threads.stop()
        self.usage = self.usage_before.until_now()
        self.stop = perf_counter()
        if self.stop - self.start >= WORTH_LISTING_POOLS:
            self.pools = thread_pools()
        self.threads.name()
        running.pop(self.number, None)
        if not running:
            stop_hearing_distributed()
        assert isinstance(self.keys, list)
        if failed:
            self._note_failure()
        for measured in self.in_flight():
            self._record_in_flight(measured)
        types = set(map(type, self.keys))
        self.names = NamesOfPlainKeys(self.keys, types, self.dsk)
        self.dependencies.extend(self.keys, self.state.get("dependencies", {}))
        self.dependencies.close()
        self.spans = self.spans_among(self.keys)
        self.keys = Keys(self.keys, types)
        self.rows = bytes(self.rows)
        self._release()

    def names_of_plain_keys(self, keys: list[Any]) -> Iterator[tuple[int, str]]:
        """Row and function name of each of `keys` that does not tell its function itself."""
        return iter(self.names or NamesOfPlainKeys(keys, set(map(type, keys)), self.dsk))

    def dependencies_among(self, keys: Sequence[Any]) -> Dependencies:
        """Which of the tasks with these keys need which."""
        if self.dependencies.closed:
            return self.dependencies
        needs = Dependencies()
        needs.extend(keys, self.state.get("dependencies", {}))
        return needs

    def spans_among(self, keys: Sequence[Any]) -> SpansOfTasks:
        """Which of the tasks with these keys were annotated with a span."""
        return self.spans or SpansOfTasks(keys, self.annotated)

    def _note_failure(self) -> None:
        error = sys.exc_info()[1]
        self.error = type(error).__name__ if error is not None else ""
        measurement = take_measurement(error)
        key = measurement.key if measurement else scheduler_locals().get("key")
        measured = self.aside.get(key)
        if measured is None or measured.error:
            return
        measured.error = self.error
        if measurement:
            measured.receive(measurement)

    def _record_in_flight(self, measured: TimedTask) -> None:
        assert isinstance(self.keys, list)
        outcome = outcome_of(measured)
        if outcome.outcome != "ok":
            self.exceptional[self.done] = outcome
        self.log_transfer(measured, self.done)
        self.rows += pack_row(*numbers_in_flight(measured), _NAN)
        if measured.metered is not None:
            self.log_metered(measured.metered)
        self.keys.append(measured.key)
        self.dsk[measured.key] = measured.task

    def _release(self) -> None:
        for measured in self.free:
            del measured.task
        listening.discard(self.number)
        self.free.clear()
        self.aside.clear()
        self.annotated = {}
        self.dsk = {}
        self.state = {}
        self.measurer = None
        self.probes = {}
        self.stacks = ()


def numbers_in_flight(measured: TimedTask) -> tuple[float, float, float, float, float]:
    """The first five numbers of a row, for a task that has not been collected."""
    start, stop = measured.start, measured.stop
    if start is None:
        return measured.submitted, _NAN, _NAN, _NAN, _NAN
    if stop is None:
        return measured.submitted, start, _NAN, _NAN, measured.thread
    return measured.submitted, start, stop, measured.cpu, measured.thread


def outcome_of(measured: TimedTask) -> Exceptional:
    """How a task ended that the scheduler has not collected."""
    if measured.error:
        return Exceptional(
            "unfinished" if measured.error in INTERRUPTIONS else "failed", measured.error
        )
    return Exceptional("unfinished" if measured.stop is None else "ok", "")


def begin(dsk: Any) -> Computation:
    """The `Computation` of the graph that the scheduler starts on, the same for all diagnostics."""
    for computation in tuple(running.values()):
        if isinstance(computation, Computation) and computation.dsk is dsk:
            return computation
    hear_distributed()
    computation = Computation(dsk)
    running[computation.number] = computation
    listening.add(computation.number)
    return computation
