"""Captures of one profiler; snapshots of computations, and how a computation ends."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from math import nan
from time import perf_counter, time
from types import FrameType, MappingProxyType
from typing import Any, NamedTuple

from dask_diag.capture.computation import (
    CPU_ENDS,
    NOTHING,
    Computation,
    ComputationSnapshot,
    Facts,
    InFlight,
    SeenSteps,
    TaskRows,
    stop_running,
)
from dask_diag.capture.failures import failure_of
from dask_diag.capture.keys import (
    Keys,
    count_functions,
    keys_since,
    names_of_plain_keys,
    tasks_not_submitted,
)
from dask_diag.capture.lines.steps import NO_KINDS
from dask_diag.capture.log import (
    NO_DEPENDENCIES,
    NO_METRICS,
    NO_TRANSFERS,
    NO_WAITS,
    dependents_of,
    shared,
    spans_of_tasks,
)
from dask_diag.capture.task import take_measurement, this_thread
from dask_diag.capture.worker_starts import end_of_pool
from dask_diag.hooks.calls import calls_of_threads, codes_of_dask_calls
from dask_diag.hooks.stack import scheduler_locals
from dask_diag.model.codes import Outcome, ProgressPhase
from dask_diag.system.code import current_frames
from dask_diag.system.interpreter import growing_array
from dask_diag.system.periodic import take_cpu_of_own_threads
from dask_diag.system.threads import NO_THREADS
from dask_diag.system.usage import NO_USAGE, NativePool, Usage, thread_pools

_NO_SIZES, _NO_DEPENDENTS = array("d"), array("I")
_NONE: Any = ()
_NOTHING: Any = MappingProxyType({})
"""In place of the lists and dicts of a computation that has ended: nothing can be added to them."""


def snapshot_of(
    computation: Computation | ComputationSnapshot,
    first: int = 0,
    sizes: Sequence[float] | None = None,
) -> ComputationSnapshot:
    """Take a snapshot of a computation, with the tasks from the row `first` on, each once.

    Parameters
    ----------
    computation : Computation
    first : int, optional
    sizes : sequence of float, optional
        One for each row, if results are measured: a row whose size is not there is not final.
    """
    # It is replaced at the end of the computation, as all that is read here.
    all_keys = [] if isinstance(computation, ComputationSnapshot) else computation.keys
    if computation.finished is None:
        assert isinstance(computation, Computation)
        count = len(all_keys)
        in_flight = computation.in_flight()
        keys, recent = keys_since(all_keys, first, count)
        in_flight = [task for task in in_flight if task.key not in recent]
        measured = [some for some in (computation.sizes, sizes) if some is not None]
        final = min([len(keys), *(len(some) - first for some in measured)])
        computation.dependencies.extend(all_keys, computation.state.get("dependencies", {}))
        usage = computation.usage_so_far()
        rows = rows_of(computation, first, keys, in_flight, final)
        snapshot = _snapshot(computation, rows, usage)
    finished = computation.finished
    if finished is None:
        return snapshot
    # If it ended meanwhile, what was read may lack what was released.
    if not first:
        return finished
    tasks = finished.tasks.since(first)
    return ComputationSnapshot(finished.number, finished.facts, finished.numbers, tasks)


def _snapshot(
    computation: Computation,
    tasks: TaskRows,
    usage: Usage,
    *,
    stop: float = nan,
    cpu_own_threads: float = nan,
    ended: tuple[str, str] = ("", ""),
    pools: tuple[NativePool, ...] = (),
    not_run: Mapping[str, int] = NOTHING,
) -> ComputationSnapshot:
    """A snapshot of a computation, if this process has used so much.

    `ended` is the error that ended it, and the end of the pool.
    """
    plain = (
        computation.pid,
        computation.thread,
        computation.call_site,
        computation.workers,
        computation.span,
        computation.scheduler,
        *ended,
    )
    threads = tuple(computation.threads.threads())
    prepared, own = computation.prepared, computation.own
    numbers = (
        computation.called,
        computation.start,
        nan if prepared is None else prepared,
        stop,
        computation.graph_bytes,
        hooks_cpu_of(computation),
        own.cpu,
        cpu_own_threads,
        own.seconds,
        *usage,
        *computation.tasks_done(),
    )
    facts = Facts.shared(
        plain,
        threads,
        pools,
        dict(computation.remote_workers),
        not_run,
        computation.repeated_steps,
        computation.joined,
    )
    return ComputationSnapshot(computation.number, facts, array("d", numbers), tasks)


def hooks_cpu_of(computation: Computation) -> float:
    """CPU seconds of profilers' hooks for its tasks; NaN if not known: in worker processes."""
    if computation.remote_workers:
        return nan
    # A profiler that does not measure tasks has no rows of them.
    tasks = max(computation.done, len(computation.state.get("finished", ())))
    return tasks * sum(computation.hooks.values())


def rows_of(
    computation: Computation,
    first: int,
    keys: Sequence[Hashable],
    in_flight: Sequence[InFlight],
    final: int,
    *,
    has_ended: bool = False,
) -> TaskRows:
    """The tasks with these keys, from the row `first` on, and the tasks in flight.

    Once the computation has ended keys are packed, and what is alike is shared.
    """
    starts = range(0, len(keys), _BLOCK) if has_ended else ()
    blocks = [list(keys[start : start + _BLOCK]) for start in starts]
    stop = first + len(keys)
    in_flight_keys: list[Hashable] = [task.key for task in in_flight]
    keys = [*keys, *in_flight_keys]
    exceptional = computation.exceptional and dict(computation.exceptional)
    outcomes = {row - first: how for row, how in exceptional.items() if first <= row < stop}
    # What all computations lack is shared by them.
    metrics, transfers, waits = computation.metrics, computation.transfers, computation.waits
    metrics = metrics.between(first, stop) if metrics.rows or in_flight else NO_METRICS
    transfers = transfers.between(first, stop) if transfers.rows or in_flight else NO_TRANSFERS
    waits = waits.between(first, stop) if waits.rows or in_flight else NO_WAITS
    for row, task in enumerate(in_flight, stop):
        if task.outcome.outcome != Outcome.OK:
            outcomes[row - first] = task.outcome
        if task.transfer is not None:
            transfers.add(row, task.transfer)
        if task.metered is not None:
            metrics.add(row, tuple(task.metered.metrics))
            waits.add(row, tuple(task.metered.waits))
    sizes, dependents = computation.sizes, _dependents_of_rows(computation, keys)
    dependencies = computation.dependencies.between(first, stop, in_flight_keys)
    kinds, groups = computation.kinds, computation.kinds.numbers_of(keys)
    if has_ended:
        kinds, groups = computation.kinds.ended(groups)
        counts, depends_on = dependencies
        dependencies, dependents = (shared(counts), shared(depends_on)), shared(dependents)
    return TaskRows(
        first=first,
        final=final,
        rows=b"".join([*computation.rows[first:stop], *(task.row() for task in in_flight)]),
        keys=Keys(*blocks, in_flight_keys) if has_ended else keys,
        names=names_of_plain_keys(keys, computation.dsk),
        exceptional=outcomes or NOTHING,
        spans=spans_of_tasks(keys, computation.annotated),
        dependencies=dependencies,
        metrics=metrics,
        transfers=transfers,
        waits=waits,
        sizes=_NO_SIZES if sizes is None else sizes if has_ended else sizes[first : first + final],
        dependents=dependents,
        groups=groups,
        kinds=kinds,
    )


def _dependents_of_rows(computation: Computation, keys: Sequence[Hashable]) -> array[int]:
    """Number of tasks that depend on each result; empty if results are not measured."""
    requested = computation.requested
    if requested is None:
        return _NO_DEPENDENTS
    return dependents_of(keys, computation.state, requested)


class ProgressInfo(NamedTuple):
    """A row of `Recording.progress`."""

    computation: str
    phase: str
    since: float
    total: int
    finished: int
    ready: int
    waiting: int
    running: int


def progress_of(computation: Computation) -> ProgressInfo | None:
    """Progress of a computation; None after the end."""
    state, planned, dsk = computation.state, computation.planned, computation.dsk
    if planned is None:
        phase, since, total = ProgressPhase.ORDERING, computation.start, len(dsk)
    else:
        phase, since = ProgressPhase.TASKS, computation.prepared or computation.start
        total = planned.total
    finished = len(state.get("finished", ()))
    info = ProgressInfo(
        computation=computation.name,
        phase=phase,
        since=since,
        total=total,
        finished=finished,
        # The scheduler goes on while this is read: what is in two places is counted once.
        running=(running := min(len(state.get("running", ())), total - finished)),
        ready=(ready := min(len(state.get("ready", ())), total - finished - running)),
        waiting=total - finished - running - ready if planned else 0,
    )
    # At its end its state is released: what was read may be of that.
    return info if computation.finished is None else None


def open_calls(started: Collection[float]) -> Iterator[ProgressInfo]:
    """The calls of dask that go on and have not come to a computation yet.

    Parameters
    ----------
    started : collection of float
        Times when dask was called for computations that have started.
    """
    threads = tuple(calls_of_threads.copy().items())
    if not threads:
        return
    frames = current_frames()
    try:
        for ident, calls in threads:
            times = _open_times(frames.pop(ident, None), calls.times)
            # A computation inside another's call, as an optimization may start one, is its own.
            if times and max(times) not in started:
                yield ProgressInfo("", ProgressPhase.GRAPH, max(times), 0, 0, 0, 0, 0)
    finally:
        # The frame of this call is among them, and would keep all alive in a circle.
        frames.clear()


def _open_times(frame: FrameType | None, times: dict[int, float]) -> list[float]:
    """Times of the noted calls of dask's functions that are on a stack."""
    called = []
    while frame is not None:
        if id(frame.f_code) in codes_of_dask_calls and id(frame) in times:
            called.append(times[id(frame)])
        frame = frame.f_back
    return called


NOT_KNOWN = "unknown"
"""The error of a computation that was left, where nothing says by which."""
_BLOCK = 10_000
"""Keys that are packed together: a reader that has most of a computation unpacks the last."""
WORTH_LISTING_POOLS = 0.1
"""Seconds of a computation from which on the libraries' pools are listed: that takes a
millisecond."""


def finish(computation: Computation, failed: bool) -> None:
    """Publish everything, with what is still in flight; release the graph and every task."""
    if computation.finished is None:
        try:
            _publish(computation, failed)
        except Exception:
            _release(computation)
            raise
    # Also if it was published before: what did so may have been interrupted.
    _release(computation)


def count_end(computation: Computation) -> None:
    """Count the cost of a hook at the end, also after another profiler published the end."""
    computation.own.end()
    finished = computation.finished
    if finished is not None:
        finished.numbers[CPU_ENDS] = computation.own.cpu


def _publish(computation: Computation, failed: bool) -> None:
    computation.threads.stop()
    ended = _failure_of(computation) if failed else ("", "")
    # If it failed, others of its tasks go on: none is to start or stop after the computation does.
    in_flight = computation.in_flight()
    usage, stop = computation.usage_so_far(), perf_counter()
    worth_listing = stop - computation.start >= WORTH_LISTING_POOLS
    pools = tuple(thread_pools()) if worth_listing else ()
    not_run = _tasks_not_run(computation) if failed else NOTHING
    collected = computation.keys
    computation.dependencies.extend(collected, computation.state.get("dependencies", {}))
    tasks = rows_of(
        computation, 0, collected, in_flight, len(collected) + len(in_flight), has_ended=True
    )
    tasks.waits.share()
    computation.finished = _snapshot(
        computation,
        tasks,
        usage,
        stop=stop,
        cpu_own_threads=take_cpu_of_own_threads(),
        ended=ended,
        pools=pools,
        not_run=not_run,
    )
    # Others may be reading what was here: it is replaced, and not cleared.
    computation.rows, computation.keys, computation.exceptional = _NONE, _NONE, _NOTHING
    computation.metrics, computation.transfers = tasks.metrics, tasks.transfers
    computation.waits, computation.sizes = tasks.waits, tasks.sizes


def _tasks_not_run(computation: Computation) -> Mapping[str, int]:
    """Number of tasks of each function that were not submitted."""
    return count_functions(tasks_not_submitted(computation.state), computation.dsk)


def _failure_of(computation: Computation) -> tuple[str, str]:
    """The type of the exception, also noted at the failed task, and the end of a broken pool."""
    error = sys.exc_info()[1]
    name = type(error).__name__ if error is not None else NOT_KNOWN
    measurement = take_measurement(error)
    scheduler = scheduler_locals()
    key = measurement.key if measurement else scheduler.get("key")
    pool_end = end_of_pool(error, scheduler.get("submit"), sys._getframe())
    wrapper = computation.aside.get(key)
    if wrapper is not None and not wrapper.error:
        wrapper.error = name
        if measurement:
            wrapper.receive(measurement)
        elif error is not None:
            # As where its result could not be pickled.
            wrapper.failure = failure_of(error)
    # The synchronous scheduler does not come to know the key of the task that fails.
    wrappers = [wrapper] if wrapper is not None else computation.aside.copy().values()
    failed = next((one for one in wrappers if one.error == name), None)
    if failed is not None:
        # Most programs do not need it.
        from dask_diag.capture.lines.notes import note_lines

        note_lines(error, failed.key, computation.kinds)
    return name, pool_end


def _release(computation: Computation) -> None:
    computation.dependencies.close()
    computation.dependencies = NO_DEPENDENCIES
    computation.kinds = NO_KINDS
    # A task that still runs keeps its wrapper, which must not keep the other tasks.
    computation.wrappers = computation.free = _NONE
    computation.aside = computation.annotated = computation.hooks = _NOTHING
    computation.remote_workers = computation.remote_workers or _NOTHING
    computation.dsk = computation.state = _NOTHING
    computation.usage_before, computation.threads = NO_USAGE, NO_THREADS
    computation.requested = None
    computation.result_sizes = None
    computation.planned = None
    computation.probes = _NOTHING
    computation.start_run = None
    # Tasks that start later find their thread, and no open files of it.
    computation.this_thread = this_thread
    computation.before_tasks = ()
    computation.between_tasks = ()
    computation.stacks = computation.sampling_failed = ()
    stop_running(computation.number)


class Session:
    """Computations, times and faults of a profiler.

    Attributes
    ----------
    start, stop : float or None
        Start and last end of profiling, in seconds of
        ``time.perf_counter()``.
    epoch : float
        Difference between seconds since 1970 and these times.
    computations : list of Computation or ComputationSnapshot
        Computations since the diagnostic was cleared; of an ended one its snapshot.
    calls : array of float
        When dask was called, and when it returned, call by call.
    faults : list of str
        Errors of the diagnostic itself, and tracers that were on, each once. They are shown to the
        user and never raised.
    steps : SeenSteps
        Steps in fused tasks of these computations.
    """

    def __init__(self) -> None:
        self.start: float | None = None
        self.stop: float | None = None
        self.epoch = 0.0
        self.computations: list[Computation | ComputationSnapshot] = []
        self.calls = growing_array("d")
        self.faults: list[str] = []
        self.steps = SeenSteps()
        self.anchor()

    def anchor(self) -> None:
        """Tie the clock of the times to the time of day, as it is now."""
        self.epoch = time() - perf_counter()

    def clear(self, start: float | None) -> None:
        """Forget all but the computations that run now, and start again."""
        self.computations = [
            computation for computation in self.computations if computation.finished is None
        ]
        del self.calls[:]
        self.faults = []
        self.steps = SeenSteps()
        self.start = start
        self.stop = None

    def keep_end_of(self, computation: Computation) -> None:
        """Keep the snapshot of a computation that has ended in place of it.

        Without a lock: the list only grows, or is replaced by one with what has not ended.
        """
        computations, ended = self.computations, computation.finished
        for position in range(len(computations) - 1, -1, -1):
            if computations[position] is computation and ended is not None:
                computations[position] = ended
                return

    def fault(self, text: str) -> None:
        """Note an error of the diagnostic itself."""
        if text not in self.faults:
            self.faults.append(text)

    def snapshots(self) -> list[ComputationSnapshot]:
        """Take snapshots of all computations."""
        return [snapshot_of(computation) for computation in tuple(self.computations)]
