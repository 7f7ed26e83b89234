"""The state of one computation while it is measured, in the process that called dask."""

from __future__ import annotations

import os
import threading
from array import array
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import count
from math import isnan, nan
from threading import get_ident
from time import perf_counter, thread_time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_diag.capture.failures import NO_FAILURE
from dask_diag.capture.keys import Keys, PlannedTasks, function_of, function_of_key
from dask_diag.capture.lines.steps import NO_KINDS, EndedKinds
from dask_diag.capture.log import (
    NO_METRICS,
    NO_TRANSFERS,
    NO_WAITS,
    DependencyLog,
    MetricLog,
    RowDependencies,
    TransferLog,
    WaitLog,
    current_span,
)
from dask_diag.capture.metrics import (
    Metered,
    hear_distributed,
    hearing,
    ignore_collections,
    listening,
    notice_collections,
    stop_hearing_distributed,
)
from dask_diag.capture.task import (
    ROW,
    Exceptional,
    Measurement,
    RemoteTask,
    RemoteWorker,
    TimedTask,
    Transfer,
    pack_row,
    ran_on_of_first,
    running,
    this_thread,
    threads_of_tasks,
)
from dask_diag.hooks.calls import call_site, take_cpu_of_noting, when_called
from dask_diag.hooks.stack import (
    DataNode,
    Graph,
    SchedulerState,
    Task,
    annotations_of_graph,
    execute_subgraph,
    nearest_scheduler,
    scheduler_kind,
)
from dask_diag.model.codes import STORED_CHUNKS, Outcome
from dask_diag.system.code import name_of_cell
from dask_diag.system.periodic import ALWAYS
from dask_diag.system.threads import ThreadCpu, ThreadUsage, cpu_of_thread
from dask_diag.system.usage import NativePool, Usage, UsageSoFar

if TYPE_CHECKING:
    from dask_diag.capture.repeated import RepeatedStep
    from dask_diag.capture.results import ResultSizes
    from dask_diag.capture.task import StackSample
    from dask_diag.columns import Categorical
    from dask_diag.hooks.joining import RunningScheduler


_drawn: dict[str, str] = {}


def run_id() -> str:
    """16 hexadecimal digits, drawn when first asked for; a forked child draws its own.

    A pid does not identify a run: in containers every program has pid 1. The digits are the
    operating system's, so that a program which seeds `random` does not repeat them.
    """
    if not _drawn:
        # Of two threads that draw at the same time, the first decides.
        _drawn.setdefault("id", os.urandom(8).hex())
    return _drawn["id"]


@cache
def _first_number() -> int:
    """The digits of `run_id`, as a number before that of a computation."""
    return int(run_id(), 16) << _BITS_OF_COUNT


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)
    os.register_at_fork(after_in_child=_first_number.cache_clear)


_lock = threading.Lock()


def start_running(number: int, computation: Computation) -> None:
    """Register a running computation by number."""
    # Before it may be seen to run: its tasks may meter at once.
    start_listening(number)
    running[number] = computation


def stop_running(number: int) -> None:
    """Undo `start_running`."""
    running.pop(number, None)
    stop_listening(number)


def start_listening(listener: object, everywhere: bool = True) -> None:
    """Record the metrics of tasks from now on.

    Parameters
    ----------
    listener : object
    everywhere : bool, optional
        Whether distributed's meter is heard in any thread, or only in tasks that ask for it.
    """
    with _lock:
        if everywhere:
            hear_distributed()
            hearing.add(listener)
        listening.add(listener)
        notice_collections()


def stop_listening(listener: object) -> None:
    """Undo `start_listening`."""
    with _lock:
        listening.discard(listener)
        hearing.discard(listener)
        if not hearing:
            stop_hearing_distributed()
        if not listening:
            ignore_collections()


def _after_fork() -> None:
    """Start anew in the child of a fork, where no computation of its parent runs.

    The old lock may be held by a thread that the child does not have.
    """
    global _lock
    _lock = threading.Lock()
    running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Readings(NamedTuple):
    """Readings of a thread's CPU clock and of the wall clock, in seconds."""

    cpu: float
    time: float

    @classmethod
    def now(cls) -> Readings:
        """Read both clocks."""
        return cls(thread_time(), perf_counter())


class OwnCost:
    """CPU and wall time of hooks in one computation so far, on the thread of the scheduler.

    Attributes
    ----------
    seconds : float
        Wall time of hooks before its first task could be submitted.
    """

    __slots__ = ("_began", "_cpu", "_thread", "seconds")

    def __init__(self) -> None:
        self._thread = get_ident()
        self._began: Readings | None = None
        # To see that the computation starts took some, too.
        self._cpu = take_cpu_of_noting()
        self.seconds = 0.0

    def begin(self, began: Readings) -> None:
        """Note the begin of a hook."""
        self._began = began

    def end(self, is_before_tasks: bool = False) -> None:
        """Note the end of the hook."""
        if self._began is not None:
            now = Readings.now()
            self._cpu += now.cpu - self._began.cpu
            if is_before_tasks:
                self.seconds += now.time - self._began.time
        self._began = None

    @property
    def cpu(self) -> float:
        """CPU seconds; on the computation's own thread with the running hook."""
        began = self._began
        if began is None or get_ident() != self._thread:
            return self._cpu
        return self._cpu + thread_time() - began.cpu


NOTHING: Mapping[Any, Any] = MappingProxyType({})
"""The tasks that a computation did not come to, if it did not fail; no workers in processes."""

_BITS_OF_COUNT = 32


def _name_of(number: int) -> str:
    return "{:016x}-{}".format(*divmod(number, 1 << _BITS_OF_COUNT))


class TaskRows(NamedTuple):
    """Tasks of a computation from a row on: collected tasks in order, then tasks in flight.

    Attributes
    ----------
    first : int
        The number of the first row, which counts all tasks of the computation.
    final : int
        The number of rows, from the first on, that no later reader finds changed.
    rows : bytes
        `ROW` upon `ROW`.
    keys : list or Keys
    names : iterable of (int, str)
        Position among these rows, and function, of each task whose key does not name its function.
    exceptional : mapping
        How tasks ended that were not simply done, by position.
    spans : iterable of (int, str)
        By position.
    dependencies : tuple of (array of int, array of int)
        See `RowDependencies`; the rows are those of the computation.
    metrics, transfers, waits : MetricLog, TransferLog, WaitLog
        Entries refer to rows of the computation.
    sizes : array of float
        The bytes of the results of the first of these rows; none if they were not measured.
    dependents : array of int
        How many tasks depend on the result of each row: see `dependents_of`; none if results were
        not measured.
    groups : bytes
        The position among `kinds` of each task's, as integers of 4 bytes; -1 if not known.
    kinds : EndedKinds
    """

    first: int
    final: int
    rows: bytes
    keys: list[Hashable] | Keys
    names: Iterable[tuple[int, str]]
    exceptional: Mapping[int, Exceptional]
    spans: Iterable[tuple[int, str]]
    dependencies: RowDependencies
    metrics: MetricLog
    transfers: TransferLog
    waits: WaitLog
    sizes: array[float]
    dependents: array[int]
    groups: bytes
    kinds: EndedKinds

    def since(self, row: int) -> TaskRows:
        """The tasks from a row on, of the tasks of an ended computation."""
        counts, depends_on = self.dependencies
        stop = self.first + self.final
        assert isinstance(self.keys, Keys)
        return TaskRows(
            first=row,
            final=stop - row,
            rows=self.rows[row * ROW.size :],
            keys=self.keys.after(row),
            names=[(named - row, name) for named, name in self.names if named >= row],
            exceptional={n - row: how for n, how in self.exceptional.items() if n >= row},
            spans=[(labelled - row, name) for labelled, name in self.spans if labelled >= row],
            dependencies=(counts[row:], depends_on[sum(counts[:row]) :]),
            metrics=self.metrics.between(row, stop),
            transfers=self.transfers.between(row, stop),
            waits=self.waits.between(row, stop),
            sizes=self.sizes[row:],
            dependents=self.dependents[row:],
            groups=self.groups[4 * row :],
            kinds=self.kinds,
        )


class JoinedAt(NamedTuple):
    """Number of tasks that had ended, and that ran, when a running computation was joined."""

    finished: int
    running: int


class Facts(NamedTuple):
    """What a computation has in common with others.

    Attributes
    ----------
    pid, thread : int
        The process and the thread that ran the scheduler.
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
    threads : tuple of ThreadCpu
        What each thread of this process used; empty if that is not known.
    pools : tuple of NativePool
        The pools of threads of native libraries, if it has ended and was not short.
    remote_workers : mapping
        The worker processes that ran tasks, by pid, with what their other threads used.
    not_run : mapping
        How many tasks of each function it did not come to, if it failed.
    repeated_steps : tuple of RepeatedStep
        Steps in fused tasks that ran in an earlier computation.
    joined : JoinedAt or None
    """

    pid: int
    thread: int
    call_site: str
    workers: int
    span: str
    scheduler: str
    error: str = ""
    pool_end: str = ""
    threads: tuple[ThreadCpu, ...] = ()
    pools: tuple[NativePool, ...] = ()
    remote_workers: Mapping[int, RemoteWorker] = NOTHING
    not_run: Mapping[str, int] = NOTHING
    repeated_steps: tuple[RepeatedStep, ...] = ()
    joined: JoinedAt | None = None

    @classmethod
    def shared(cls, plain: tuple[Any, ...], *others: Any) -> Facts:
        """One object for all computations that are alike, where there is nothing beside `plain`."""
        if any(others):
            return cls(*plain, *others)
        if len(_facts) >= _MOST_FACTS:
            _facts.clear()
        return _facts.get(plain) or _facts.setdefault(plain, cls(*plain))


_facts: dict[tuple[Any, ...], Facts] = {}
_MOST_FACTS = 1000

NUMBERS = (
    *("called", "start", "prepared", "stop", "graph_bytes", "cpu_hooks", "cpu_ends"),
    *("cpu_own_threads", "own_seconds", "cpu_process", "cpu_scheduler", "voluntary_switches"),
    *("involuntary_switches", "cpu_children", "cpu_other_processes", "throttled"),
    *("done", "total"),
)
"""Numbers of a snapshot, as columns of `Recording.computations`; and numbers of its tasks."""
CPU_ENDS, THROTTLED = NUMBERS.index("cpu_ends"), NUMBERS.index("throttled")


class ComputationSnapshot:
    """Facts about a computation, and tasks: of one that has ended, all that is kept.

    A plain class, as to make a dataclass takes a tenth of the import of this package.

    Attributes
    ----------
    number : int
    facts : Facts
    numbers : array of float
        `NUMBERS`; what has not happened yet is NaN.
    tasks : TaskRows
    functions : Categorical or None
        The functions of all tasks of a computation that has ended, once a builder has found them.
    """

    __slots__ = ("facts", "functions", "number", "numbers", "tasks")

    is_closed = True

    def __init__(self, number: int, facts: Facts, numbers: array[float], tasks: TaskRows) -> None:
        self.number = number
        self.facts = facts
        self.numbers = numbers
        self.tasks = tasks
        self.functions: Categorical | None = None

    @property
    def finished(self) -> ComputationSnapshot:
        """Itself: it stands for a `Computation` that has ended."""
        return self

    @property
    def name(self) -> str:
        """The run's id and a count."""
        return _name_of(self.number)

    @property
    def called(self) -> float:
        """Time when dask was called."""
        return self.numbers[0]

    @property
    def start(self) -> float:
        """Time when the scheduler started."""
        return self.numbers[1]

    @property
    def prepared(self) -> float | None:
        """Time when the graph was in order; None before."""
        prepared = self.numbers[2]
        return None if isnan(prepared) else prepared

    @property
    def stop(self) -> float | None:
        """Time when the scheduler returned; None before."""
        stop = self.numbers[3]
        return None if isnan(stop) else stop

    def tasks_done(self) -> tuple[int, int]:
        """Number of tasks that the scheduler had finished, and number of all tasks."""
        return int(self.numbers[-2]), int(self.numbers[-1])


INTERRUPTIONS = {"KeyboardInterrupt", "SystemExit"}
"""Exceptions that end a task which did not fail."""


class InFlight(NamedTuple):
    """A submitted task, not collected yet, at a moment."""

    key: Hashable
    submitted: float
    start: float
    stop: float
    cpu: float
    ran_on: int
    outcome: Exceptional
    metered: Metered | None
    transfer: Transfer | None

    def row(self) -> bytes:
        """Return the packed `ROW` of the task."""
        return pack_row(self.submitted, self.start, self.stop, self.cpu, self.ran_on, nan)


def in_flight_of(wrapper: TimedTask, thread: int) -> InFlight | None:
    """The task in a wrapper; None if collected. `thread`, if not 0, runs the task now."""
    task = wrapper.task
    start, stop = wrapper.start, wrapper.stop
    in_flight = InFlight(
        key=wrapper.key,
        submitted=wrapper.submitted,
        start=nan if start is None else start,
        stop=nan if stop is None else stop,
        cpu=nan if stop is None else wrapper.cpu,
        ran_on=0 if start is None else thread or wrapper.thread,
        outcome=outcome_of(wrapper),
        metered=wrapper.metered,
        transfer=wrapper.transfer,
    )
    # The task is the last that is put into a wrapper, and the first that is taken out: if it is the
    # same before and after, all that was read between is its own.
    return in_flight if task is not None and wrapper.task is task else None


def outcome_of(wrapper: TimedTask) -> Exceptional:
    """Outcome of a task that the scheduler has not collected."""
    if wrapper.error:
        is_interrupted = wrapper.error in INTERRUPTIONS
        outcome = Outcome.UNFINISHED if is_interrupted else Outcome.FAILED
        file, _, line = wrapper.failure.location.rpartition(":")
        cell = name_of_cell(file)
        failure = wrapper.failure._replace(location=f"{cell}:{line}") if cell else wrapper.failure
        return Exceptional(outcome, wrapper.error, failure)
    return Exceptional(Outcome.UNFINISHED if wrapper.stop is None else Outcome.OK, "")


_count = count(1)


class Computation:
    """A computation under measurement; after the end only the snapshot is left.

    The scheduler's thread and those that run tasks change it while others read it, and no lock is
    taken for each task. So there is one rule: until `finished` is published, in one step, rows are
    added and nothing is released. What a reader has read is complete if none was published by then:
    see `snapshot_of`.

    Attributes
    ----------
    finished : ComputationSnapshot or None
        Everything that was measured, once it has ended.
    number : int
        The digits of `run_id` and a count, which no other computation of any process has.
    called, start, prepared : float
        Times when dask was called, the scheduler started, and the graph was in order; seconds of
        ``time.perf_counter()``. What has not happened yet is None.
    kinds : TaskKinds
        The steps of its tasks, and the lines that built them, from when the graph was in order.
    planned, usage_before
        The tasks that it was to run, from when the graph was in order to its end; and what this
        process had used when it started.
    graph_bytes : float
        Bytes of data in the graph, NaN if not known.
    joined : JoinedAt or None
        What had happened before it was measured, if it ran already.
    hooks, own : dict, OwnCost
        CPU seconds of hooks for a task, by purpose; and what hooks take as it starts and ends.
    is_closed : bool
        Whether all profilers have ended it, so that the cost of their hooks is known.
    frame : int
        The scheduler's, while that is on the stack: see `scheduler_frame`.
    kind, workers
        What is known of the scheduler at the start; how many tasks may run at once, 0 if not known.
    wrappers, aside
        All, of one `wrapper_type`: those that hold a task are in flight, others are in `free`, too.
        And by key those of tasks that are in the graph themselves: pickled or failed.
    probes : mapping
        Probes that sample its tasks, by type.
    this_thread, before_tasks, without_ticks
        Where a task finds its thread; what probes read on it just before; when none missed a tick.
    start_run : callable or None
        Starts to sample a task in another process.
    sampling_failed, stacks : tuple
        Whom an error of the probes is passed to, and where samples of stacks are counted.
    rows, keys
        The `ROW` of each task as it was collected, and its key: a row is there before its key.
    packing : Transfer or None
        Of the last task that was pickled.
    requested : collection or None
        The keys that the caller asked for, if results are measured.
    sizes, result_sizes
        The bytes of the result of each row, if measured: a row may be there just before. And what
        measures them on the threads that made the results, if anything does.
    between_tasks : tuple of callable
        Functions to call when a task is collected and none is out.
    """

    __slots__ = (
        "annotated",
        "aside",
        "before_tasks",
        "between_tasks",
        "call_site",
        "called",
        "dependencies",
        "dsk",
        "exceptional",
        "finished",
        "frame",
        "free",
        "graph_bytes",
        "hooks",
        "is_closed",
        "joined",
        "keys",
        "kind",
        "kinds",
        "metrics",
        "native_id",
        "number",
        "own",
        "packing",
        "pid",
        "planned",
        "prepared",
        "probes",
        "remote_workers",
        "repeated_steps",
        "requested",
        "result_sizes",
        "rows",
        "sampling_failed",
        "sizes",
        "span",
        "stacks",
        "start",
        "start_run",
        "state",
        "this_thread",
        "thread",
        "threads",
        "transfers",
        "usage_before",
        "waits",
        "without_ticks",
        "worker_id",
        "workers",
        "wrapper_type",
        "wrappers",
    )

    def __init__(self, dsk: Graph, running: RunningScheduler | None = None) -> None:
        self.start = perf_counter()
        # Each walks on from where dask's scheduler is on the stack.
        scheduler = nearest_scheduler() if running is None else running.frame
        self.called = when_called(scheduler) or self.start
        self.call_site = call_site(scheduler)
        self.prepared: float | None = None
        self.planned: PlannedTasks | None = None
        self.kinds: EndedKinds = NO_KINDS
        self.finished: ComputationSnapshot | None = None
        self.number = _first_number() + next(_count)
        self.pid = os.getpid()
        # One object for all computations of a thread.
        caller = running or this_thread.now
        self.thread, self.native_id = caller.ident, caller.native_id
        self.frame = 0 if scheduler is None else id(scheduler)
        self.kind = scheduler_kind(scheduler)
        self.workers = self.kind.workers
        self.usage_before = UsageSoFar.now()
        self.threads = ThreadUsage()
        self.graph_bytes = nan
        self.hooks: dict[str, float] = {}
        self.own = OwnCost()
        self.is_closed = False
        self.worker_id: object = None
        self.requested: Collection[Hashable] | None = None
        self.sizes: array[float] | None = None
        self.result_sizes: ResultSizes | None = None
        self.rows: list[bytes] = []
        self.keys: list[Hashable] = []
        self.between_tasks: tuple[Callable[[], None], ...] = ()
        self.exceptional: dict[int, Exceptional] = {}
        self.dependencies = DependencyLog()
        # Few have any: a log is made for the first entry.
        self.metrics, self.transfers, self.waits = NO_METRICS, NO_TRANSFERS, NO_WAITS
        self.wrapper_type: type[TimedTask] = TimedTask
        self.wrappers: list[TimedTask] = []
        self.free: deque[TimedTask] = deque()  # An empty list would be allocated time and again.
        self.aside: dict[Hashable, TimedTask] = {}
        self.probes: Mapping[type[Any], Any] = {}
        self.start_run: Callable[[RemoteTask], Any] | None = None
        self.this_thread = this_thread
        self.before_tasks: tuple[Callable[..., None], ...] = ()
        self.without_ticks = ALWAYS
        self.sampling_failed: tuple[Callable[[Exception], None], ...] = ()
        self.stacks: tuple[Any, ...] = ()
        self.joined: JoinedAt | None = None
        # That of another thread is not known.
        self.span = current_span() if running is None else ""
        self.annotated: Mapping[Hashable, object] = annotations_of_graph("span", scheduler)
        self.remote_workers: dict[int, RemoteWorker] = {}
        self.repeated_steps: tuple[RepeatedStep, ...] = ()
        self.packing: Transfer | None = None
        self.dsk = dsk
        self.state: SchedulerState = {}

    def usage_so_far(self) -> Usage:
        """Usage of the machine since its start, and CPU seconds of the thread that called dask."""
        is_here = get_ident() == self.thread
        clock = thread_time if is_here else partial(cpu_of_thread, self.native_id)
        return self.usage_before.until_now(clock)

    def begin_now(self) -> None:
        """Measure from now on: it runs already, on another thread."""
        clock = partial(cpu_of_thread, self.native_id)
        self.usage_before, self.threads = UsageSoFar.now(clock), ThreadUsage()
        self.called = self.start = self.prepared = perf_counter()

    def add_running(self, key: Hashable, task: object) -> TimedTask | None:
        """Add a task that was submitted before; None if its wrapper is there by now."""
        wrapper = self.wrapper_type(self)
        wrapper.key = key  # type: ignore[assignment]
        wrapper.task, wrapper.submitted = task, self.start
        if self.aside.setdefault(key, wrapper) is not wrapper:
            return None
        self.wrappers.append(wrapper)
        return wrapper

    def drop_running(self, key: Hashable) -> None:
        """Undo `add_running`, if the scheduler has not collected the task."""
        wrapper = self.aside.pop(key, None)
        if wrapper is not None:
            wrapper.task = None

    @property
    def name(self) -> str:
        """The run's id and a count: unique among all computations of all runs."""
        return _name_of(self.number)

    @property
    def stop(self) -> float | None:
        """Seconds of ``time.perf_counter()``; None before the end."""
        finished = self.finished
        return None if finished is None else finished.stop

    @property
    def scheduler(self) -> str:
        """Kind of the scheduler: ``processes``, ``threads`` or ``synchronous``."""
        if self.remote_workers:
            return "processes"
        threads = (wrapper.thread for wrapper in tuple(self.wrappers))
        thread = ran_on_of_first(self.rows) or next(filter(None, threads), 0)
        if thread:
            # Where a task ran says more than the executor, which may be anything.
            return "synchronous" if thread == self.thread else "threads"
        return self.kind.name if self.worker_id is None else "threads"

    @property
    def done(self) -> int:
        """Number of collected tasks."""
        return len(self.rows)

    def tasks_done(self) -> tuple[int, int]:
        """Number of tasks that the scheduler has finished, and number of all tasks."""
        state = self.state
        finished = len(state.get("finished", ()))
        unfinished = sum(
            len(keys)
            for keys in (state.get("ready", ()), state.get("waiting", ()), state.get("running", ()))
        )
        # Its state is released at the end, and may have been meanwhile.
        ended = self.finished
        return (finished, finished + unfinished) if ended is None else ended.tasks_done()

    def new_wrapper(self) -> TimedTask:
        """Make a wrapper, where no wrapper is free."""
        wrapper = self.wrapper_type(self)
        self.wrappers.append(wrapper)
        return wrapper

    def set_aside(self, wrapper: TimedTask) -> None:
        """Put the task itself back into the graph, and its wrapper into `aside`."""
        wrapper.size = None
        # If it ends just now, these are no longer its own, and keep nothing alive.
        aside, dsk = self.aside, self.dsk
        if self.finished is None:
            aside[wrapper.key] = wrapper
            dsk[wrapper.key] = wrapper.task

    def new_transfer(self) -> Transfer:
        """Record the start of a task's pickling, and the end of the previous task's."""
        now = perf_counter()
        if self.packing is not None:
            self.packing.is_packed_by(now)
        self.packing = Transfer(now)
        return self.packing

    def receive(self, measurement: Measurement, landing: float, landed: float, size: float) -> None:
        """Record a worker process's measurement, as the result arrives."""
        wrapper = self.aside.get(measurement.key)
        if wrapper is None:
            return
        wrapper.receive(measurement)
        if measurement.steps:
            self.kinds.add(self.kinds.number_of(measurement.key), *measurement.steps)
        if (transfer := wrapper.transfer) is not None:
            transfer.landing, transfer.landed, transfer.bytes_out = landing, landed, size

    def take_set_aside(self, key: Hashable) -> TimedTask | None:
        """Collect the wrapper of a pickled or failed task."""
        wrapper = self.aside.pop(key, None)
        if wrapper is None:
            return None
        if wrapper.error:
            self.exceptional[self.done] = outcome_of(wrapper)
            wrapper.error, wrapper.failure = "", NO_FAILURE
        if wrapper.start is None:
            wrapper.start = wrapper.stop = wrapper.cpu = nan
            wrapper.thread = 0
        if wrapper.transfer is not None:
            if self.transfers is NO_TRANSFERS:
                self.transfers = TransferLog()
            self.transfers.add(self.done, wrapper.transfer)
            wrapper.transfer = None
        return wrapper

    def add_metered_key(self, key: Hashable, wrapper: TimedTask) -> None:
        """Add the key of the last row, after the metrics and waits of the task."""
        if (metered := wrapper.metered) is not None:
            if metered.metrics:
                if self.metrics is NO_METRICS:
                    self.metrics = MetricLog()
                self.metrics.add(self.done - 1, metered.metrics)
            if metered.waits:
                if self.waits is NO_WAITS:
                    self.waits = WaitLog()
                self.waits.add(self.done - 1, metered.waits)
        self.keys.append(key)
        wrapper.metered = None

    def log_stacks(self, wrapper: TimedTask, samples: Sequence[StackSample]) -> None:
        """Count the samples that a worker process took of the stacks of a task."""
        function = function_of(wrapper.key, wrapper.task)
        for stacks in self.stacks:
            stacks.take(function, wrapper.key, samples)

    def report_sampling_failed(self, error: Exception) -> None:
        """Pass an error on to the profilers with samples of tasks."""
        for failed in self.sampling_failed:
            failed(error)

    def in_flight(self) -> list[InFlight]:
        """The tasks submitted and not collected by now."""
        busy = [wrapper for wrapper in tuple(self.wrappers) if wrapper.task is not None]
        threads = threads_of_tasks() if busy else {}
        tasks = (in_flight_of(wrapper, threads.get(id(wrapper), 0)) for wrapper in busy)
        return [task for task in tasks if task is not None]


class SeenSteps:
    """Hashes of the keys of steps in fused tasks, of all computations of a session."""

    __slots__ = ("_known", "_seen")

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._known: dict[tuple[RepeatedStep, ...], tuple[RepeatedStep, ...]] = {}

    def count(self, dsk: Graph) -> tuple[RepeatedStep, ...]:
        """Count steps that ran before, and reads of stored chunks, in the tasks of a graph."""
        # Without calls: most graphs have none, and it is asked for each task.
        found = [
            (key, task)
            for key, task in dsk.items()
            if type(task) is Task
            and (task.func is execute_subgraph or (task.args and type(task.args[0]) is Task))
        ]
        # One may be a stored array.
        has_data = DataNode in map(type, dsk.values())
        if not found and not has_data:
            return ()
        from dask_diag.capture.repeated import chunks_read_again, steps_again

        again = steps_again(found, self._seen)
        if has_data:
            again += chunks_read_again(dsk)
        rows = tuple(rows_of_steps(again))
        # Computations in a loop have equal counts: they share one object.
        return self._known.setdefault(rows, rows)


def rows_of_steps(found: Iterable[RepeatedStep]) -> Iterator[RepeatedStep]:
    """Rows of the table of repeated steps, by the names of functions."""
    for one in found:
        task, step = function_of_key((one.task,)), function_of_key((one.step,))
        yield one._replace(task=task, step=step, calls=one.calls or STORED_CHUNKS)
