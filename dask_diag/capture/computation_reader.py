"""Reads a computation while it may change, and end, at any moment: see `Computation`."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Mapping, Sequence
from threading import get_ident

from dask_diag.capture.computation import Computation
from dask_diag.capture.snapshot import NOTHING_LEFT, ComputationInfo, ComputationSnapshot, TaskRows
from dask_diag.capture.system.usage import NativePool, Usage
from dask_diag.capture.tasks.dependencies import Dependencies, dependents_of
from dask_diag.capture.tasks.in_flight import InFlight
from dask_diag.capture.tasks.keys import NamesOfPlainKeys, keys_since
from dask_diag.capture.tasks.task_log import SpansOfTasks
from dask_diag.schema import Outcome

__all__ = [
    "collected_and_in_flight",
    "dependents_of_rows",
    "info_at_end",
    "info_of",
    "rows_of",
    "snapshot_of",
]

_NAN = float("nan")


def snapshot_of(computation: Computation) -> ComputationSnapshot:
    """What is known of it now."""
    if computation.finished is None:
        keys, in_flight = collected_and_in_flight(computation, computation.keys, 0)
        snapshot = ComputationSnapshot(
            info_of(computation), rows_of(computation, keys, in_flight, Dependencies())
        )
    # If it ended meanwhile, what was read may lack what was released.
    return computation.finished or snapshot


def collected_and_in_flight(
    computation: Computation, keys: list[Hashable], row: int
) -> tuple[list[Hashable], list[InFlight]]:
    """Keys of the tasks that have a row, from one on; and those in flight: each task once.

    `keys` is the list that was its own when the reader started to read.
    """
    count = len(keys)
    in_flight = computation.in_flight()
    collected, recent = keys_since(keys, row, count)
    return collected, [task for task in in_flight if task.key not in recent]


def info_of(computation: Computation) -> ComputationInfo:
    """What is known of it now, except for its tasks."""
    usage = computation.usage_before.until_now()
    if get_ident() != computation.thread:
        usage = usage._replace(thread_cpu=_NAN)
    info = info_at_end(computation, None, usage)
    return info if computation.finished is None else computation.finished.info


def info_at_end(
    computation: Computation,
    stop: float | None,
    usage: Usage,
    pools: tuple[NativePool, ...] = (),
    *,
    error: str = "",
    pool_end: str = "",
    not_run: Mapping[str, int] = NOTHING_LEFT,
    own_threads_cpu: float = _NAN,
) -> ComputationInfo:
    """What is known of it, except for its tasks, if that is how it ended."""
    return ComputationInfo(
        number=computation.number,
        name=computation.name,
        pid=computation.pid,
        thread=computation.thread,
        called=computation.called,
        call_site=computation.call_site,
        start=computation.start,
        prepared=computation.prepared,
        stop=stop,
        workers=computation.workers,
        span=computation.span,
        scheduler=computation.scheduler,
        error=error,
        pool_end=pool_end,
        usage=usage,
        threads=tuple(computation.threads.threads()),
        graph_bytes=computation.graph_bytes,
        hooks_cpu=hooks_cpu_of(computation),
        ends_cpu=computation.own.cpu,
        own_threads_cpu=own_threads_cpu,
        own_seconds=computation.own.seconds,
        pools=pools,
        remote_workers=dict(computation.remote_workers),
        not_run=not_run,
    )


def hooks_cpu_of(computation: Computation) -> float:
    """CPU seconds of profilers' hooks for its tasks; NaN if not known: in worker processes."""
    if computation.remote_workers:
        return _NAN
    # A profiler that does not measure tasks has no rows of them.
    tasks = max(computation.done, len(computation.state.get("finished", ())))
    return tasks * sum(computation.hooks.values())


def rows_of(
    computation: Computation,
    keys: Sequence[Hashable],
    in_flight: Sequence[InFlight],
    dependencies: Dependencies,
) -> TaskRows:
    """Of the tasks with these keys, which are all that have rows, and of those in flight."""
    done = len(keys)
    all_keys = [*keys, *[task.key for task in in_flight]]
    exceptional = {row: how for row, how in dict(computation.exceptional).items() if row < done}
    metrics = computation.metrics.of_first(done)
    transfers = computation.transfers.of_first(done)
    waits = computation.waits.of_first(done)
    for row, task in enumerate(in_flight, done):
        if task.outcome.outcome != Outcome.OK:
            exceptional[row] = task.outcome
        if task.transfer is not None:
            transfers.add(row, task.transfer)
        if task.metered is not None:
            metrics.add(row, tuple(task.metered.metrics))
            waits.add(row, tuple(task.metered.waits))
    dependencies.extend(all_keys, computation.state.get("dependencies", {}))
    rows = [*computation.rows[:done], *(task.row() for task in in_flight)]
    return TaskRows(
        rows=b"".join(rows),
        keys=all_keys,
        names=NamesOfPlainKeys(all_keys, computation.dsk),
        exceptional=exceptional,
        spans=SpansOfTasks(all_keys, computation.annotated),
        dependencies=dependencies,
        metrics=metrics,
        transfers=transfers,
        waits=waits,
        sizes=_sizes_of(computation, done),
        dependents=dependents_of_rows(computation, all_keys),
    )


def _sizes_of(computation: Computation, done: int) -> array[float]:
    """The bytes of the results of the first rows."""
    return array("d") if computation.sizes is None else computation.sizes[:done]


def dependents_of_rows(computation: Computation, keys: Sequence[Hashable]) -> array[int]:
    """How many tasks depend on the result of each of these; none if results are not measured."""
    requested = computation.requested
    if requested is None:
        return array("I")
    return dependents_of(keys, computation.state, requested)
