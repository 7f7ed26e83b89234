"""Metrics of tasks: seconds, bytes, or anything else, under labels of the user's."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar
from functools import cache, wraps
from math import isfinite, isnan, nan
from threading import get_ident
from time import perf_counter, thread_time
from typing import Any, NamedTuple, ParamSpec, TypeVar

from dask_diag.model.codes import (
    COLLECTED,
    COMPUTATIONS,
    FULL_COLLECTION,
    IN_TASKS,
    REPEATS,
    Activity,
)

_SINGLE = 1_000
"""Metrics of a task that are there one by one: beyond them, they are added up."""

Metric = tuple[str, str, float, float]
"""What was metered once: its label, unit, value, and of seconds how many were CPU (NaN: unknown).

A plain tuple, because to make one that has names takes longer than to read a clock.
"""


class Wait(NamedTuple):
    """A wait of a task.

    Attributes
    ----------
    activity : str
    seconds : float
    samples : int
        In how many samples it was seen; 0 if the seconds were read.
    label : str
        The label of the metered code in which it was seen; empty outside of metered code.
    """

    activity: str
    seconds: float
    samples: int
    label: str = ""


class Metered:
    """Metrics and waits of one task.

    Attributes
    ----------
    metrics : list of Metric
    waits : list of Wait
    open : list of Block
        The blocks whose seconds are being metered now, in the order in which they were entered.
    """

    __slots__ = ("_most", "metrics", "open", "waits")

    def __init__(self) -> None:
        self._most = _SINGLE
        self.metrics: list[Metric] = []
        self.waits: list[Wait] = []
        self.open: list[Block] = []

    def add(self, label: Hashable, value: float, unit: str) -> None:
        """Record a metric; a value which is no amount is left out, with a warning."""
        metric = _metric(label, unit, value)
        if metric is None:
            return
        self.append(metric)
        if unit == "seconds" and self.open:
            self.open[-1].inner_wall += metric[2]

    def add_collection(self, seconds: float, cpu: float, objects: float, full: bool) -> None:
        """Record a collection of garbage, and take it off the block that is open."""
        if self.open:
            self.open[-1].inner_wall += seconds
            self.open[-1].inner_cpu += cpu
        added = (
            ("seconds", seconds, cpu),
            (COLLECTED, objects, nan),
            (FULL_COLLECTION, float(full), nan),
        )
        last = self.metrics[-len(added) :]
        if [metric[:2] for metric in last] != [(Activity.GC, unit) for unit, *_ in added]:
            self.metrics += ((Activity.GC, *metric) for metric in added)
            return
        for at, (unit, value, of_cpu) in enumerate(added, len(self.metrics) - len(added)):
            _, _, before, cpu_before = self.metrics[at]
            self.metrics[at] = (Activity.GC, unit, before + value, cpu_before + of_cpu)

    def append(self, metric: Metric) -> None:
        """Add a metric; many metrics of a task, as a rule of few labels, are added up."""
        self.metrics.append(metric)
        if len(self.metrics) > self._most:
            self.metrics = sums_of(self.metrics)
            self._most = max(_SINGLE, 2 * len(self.metrics))


def sums_of(metrics: Iterable[Metric]) -> list[Metric]:
    """Sum metrics by label and unit, as distributed does; metrics without CPU apart."""
    sums: dict[tuple[str, str, bool], Metric] = {}
    for metric in metrics:
        label, unit, value, cpu = metric
        kind = label, unit, isnan(cpu)
        before = sums.get(kind)
        sums[kind] = metric if before is None else (label, unit, before[2] + value, before[3] + cpu)
    return list(sums.values())


def _metric(label: Hashable, unit: str, value: float) -> Metric | None:
    """A metric; None, with a warning, if the value is no amount: the task goes on."""
    try:
        metric = str(label), str(unit), float(value), nan
        if isfinite(metric[2]) and (metric[2] >= 0 or unit != "seconds"):
            return metric
    except Exception:
        # The label gives no text, or the value no number: the warning below says so.
        pass
    what = "seconds of at least 0" if unit == "seconds" else "a finite number"
    message = f"context_meter: expected {what}, found {_shown(value)}; the value is ignored"
    with suppress(RuntimeWarning):
        # Where warnings are errors, too, the task goes on.
        warnings.warn(message, RuntimeWarning, stacklevel=4)
    return None


MeteredTask = Any
"""A task that may meter: it has `metered`, its `Metered` or None."""


class Block:
    """A metered block of code in a task.

    Attributes
    ----------
    before : object
        The block of the same meter, on the same thread, that this one is inside of; or None.
    metered : Metered
        Of the task that entered the block.
    label : object
        The activity to which the block is counted.
    func : callable
        The clock.
    wall, cpu : float
        What the two clocks showed when the block was entered.
    inner_wall, inner_cpu : float
        Seconds that were metered inside the block, to be taken off its own.
    """

    __slots__ = ("before", "cpu", "func", "inner_cpu", "inner_wall", "label", "metered", "wall")

    before: Any
    metered: Metered
    label: Hashable
    func: Callable[[], float]
    wall: float
    cpu: float
    inner_wall: float
    inner_cpu: float

    def end(self, unit: str, args: tuple[object, ...]) -> None:
        """Record the metric of the block."""
        value = self.func() - self.wall
        cpu = thread_time() - self.cpu
        label, metered = self.label, self.metered
        if unit != "seconds":
            metered.add(label, value, unit)
            return
        metric = _metric(label, unit, value)
        opened = metered.open
        if opened[-1] is self:
            opened.pop()
            outer = opened[-1] if opened else None
        else:
            # Coroutines and generators that take turns leave blocks in any order.
            later, outer = self._take_out_of(opened)
            value = max(0.0, value - (later.func() - later.wall))
            cpu = max(0.0, cpu - (thread_time() - later.cpu))
        if outer is not None:
            # Of a block that is left out, what was metered in it still counts once.
            outer.inner_wall += self.inner_wall if metric is None else value
            outer.inner_cpu += self.inner_cpu if metric is None else cpu
        if metric is not None:
            # Garbage may have been collected since the clocks were read.
            own = max(0.0, value - self.inner_wall), max(0.0, cpu - self.inner_cpu)
            metered.append((metric[0], unit, *own))

    def _take_out_of(self, opened: list[Block]) -> tuple[Block, Block | None]:
        """The block entered next, with all seconds since; and the block entered before."""
        index = opened.index(self)
        del opened[index]
        return opened[index], opened[index - 1] if index else None


def _shown(value: object) -> str:
    try:
        return repr(value)[:60]
    except Exception:
        return f"a {type(value).__name__}"


P = ParamSpec("P")
R = TypeVar("R")
_NAME = "dask_diag"

listening: set[object] = set()
"""Listeners: computations, and tasks in worker processes. If it is empty, metering costs
nothing."""

ends_a_task: set[int] = set()
"""The ``id()`` of the code of functions that those call once the task has stopped."""

runs_a_task: set[int] = set()
"""The ``id()`` of the code of functions that run a measured task, which is their ``self``.

Code itself would be hashed again, with all its constants, for each frame of a stack.
"""

runs_in_collections: set[int] = set()
"""The ``id()`` of the code of functions that Python's collector calls: what they interrupted is
what a stack is of."""

runs_around_tasks: set[int] = set()
"""The ``id()`` of the code of functions that tasks are called by: a stack need not be read further.

A worker of distributed meters around each of its tasks.
"""

hearing: set[object] = set()
"""Listeners that hear distributed's meter in any thread."""


def _current_task() -> MeteredTask | None:
    """The measured task among the callers, or None."""
    frame = sys._getframe(2) if listening else None
    codes, around = runs_a_task, runs_around_tasks
    while frame is not None:
        code = id(frame.f_code)
        if code in codes:
            return frame.f_locals["self"]
        if code in around:
            return None
        frame = frame.f_back
    return None


def _metered_of(task: MeteredTask) -> Metered:
    metered: Metered = task.metered or Metered()
    task.metered = metered
    return metered


def _distributed_meter() -> Any:
    """Distributed's meter, if it has been imported."""
    module = sys.modules.get("distributed.metrics")
    return getattr(module, "context_meter", None)


class _ForwardedBlock:
    """A block passed on to distributed's meter, outside measured tasks."""

    __slots__ = ("_block_of_distributed", "before")

    def __init__(self, meter: Any, before: _AnyBlock | None) -> None:
        self._block_of_distributed = meter
        self.before = before

    def end(self, unit: str, args: tuple[object, ...]) -> None:
        """Leave the block."""
        self._block_of_distributed.__exit__(*args)


_AnyBlock = Block | _ForwardedBlock


class _Meter:
    """Context manager and decorator from `ContextMeter.meter`.

    One object may be entered any number of times: again inside itself, and by several threads at
    once. So what belongs to one block is in a `Block`, which the thread that leaves it looks up.
    """

    __slots__ = ("_blocks", "_func", "_label", "_unit")

    def __init__(self, label: Hashable, unit: str, func: Callable[[], float]) -> None:
        self._label = label
        self._unit = unit
        self._func = func
        # By thread: none touches what is another's.
        self._blocks: dict[int, _AnyBlock] = {}

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Meter every call of a function."""

        @wraps(function)
        def metered(*args: P.args, **kwargs: P.kwargs) -> R:
            with _Meter(self._label, self._unit, self._func):
                return function(*args, **kwargs)

        return metered

    def __enter__(self) -> None:
        task = _current_task()
        if task is None:
            meter = _distributed_meter()
            if meter is not None:
                self._forward_to(meter)
            return
        block = Block()
        block.metered = metered = task.metered or _metered_of(task)
        block.label, block.func = self._label, self._func
        block.inner_wall = block.inner_cpu = 0.0
        ident = get_ident()
        block.before = self._blocks.get(ident)
        # First, and last of all at the end: CPU that is read outside of a block's seconds is more
        # than it had by what reading takes, and what is left of its task never is.
        block.cpu = thread_time()
        block.wall = block.func()
        self._blocks[ident] = block
        if self._unit == "seconds":
            metered.open.append(block)

    def __exit__(self, *args: object) -> None:
        if not self._blocks:
            return
        ident = get_ident()
        block = self._blocks.pop(ident, None)
        if block is None:
            return
        if block.before is not None:
            self._blocks[ident] = block.before
        block.end(self._unit, args)

    def _forward_to(self, meter: Any) -> None:
        block = meter.meter(self._label, self._unit, self._func)
        block.__enter__()
        ident = get_ident()
        self._blocks[ident] = _ForwardedBlock(block, self._blocks.get(ident))


class ContextMeter:
    """Meters code inside tasks, like ``distributed.metrics.context_meter``.

    The numbers appear in `activities`, in the summary and in the report, under your labels. Outside
    of recorded tasks, the meter does nothing.

    Examples
    --------
    >>> import dask
    >>> from dask_diag import Profiler, activities, context_meter
    >>> def load(size):
    ...     with context_meter.meter("I/O"):
    ...         data = bytes(size)
    ...     context_meter.digest_metric("read", size, "bytes")
    ...     return len(data)
    >>> with Profiler() as prof:
    ...     dask.compute(dask.delayed(load)(1000))
    (1000,)
    >>> [(row["activity"], row["value"]) for row in activities(prof, unit="bytes").to_dicts()]
    [('read', 1000.0)]
    """

    def __reduce__(self) -> tuple[object, ...]:
        return _the_meter, ()

    def meter(
        self, label: Hashable, unit: str = "seconds", func: Callable[[], float] | None = None
    ) -> _Meter:
        """Meter a block, or every call of a function.

        Parameters
        ----------
        label : str
            Activity that the amount is added to.
        unit : str, default "seconds"
            Unit of the amount. Seconds are subtracted from the task's ``thread-cpu`` and
            ``thread-noncpu`` (each by its own part) and from an enclosing meter.
        func : callable, optional
            Read before and after; the difference is the amount. Default: the wall clock.

        Returns
        -------
        context manager and decorator
            Nearly free in tasks that are not profiled.

        Examples
        --------
        >>> from dask_diag import context_meter
        >>> @context_meter.meter("I/O")
        ... def read(path):
        ...     return open(path).read()
        """
        return _Meter(label, unit, func or perf_counter)

    def digest_metric(self, label: Hashable, value: float, unit: str) -> None:
        """Add a value to an activity of the running task.

        Parameters
        ----------
        label : str
            Activity that the value is added to.
        value : float
            The amount, finite.
        unit : str
            Any unit: ``"bytes"``, ``"count"``, ``"dollars"``. Seconds are subtracted from the
            task's ``thread-noncpu`` as far as possible, the rest from ``thread-cpu``.
        """
        task = _current_task()
        if task is not None:
            _metered_of(task).add(label, value, unit)
            return
        meter = _distributed_meter()
        if meter is not None:
            meter.digest_metric(label, value, unit)


context_meter = ContextMeter()
"""The meter to use in tasks."""


def meter_in_task() -> AbstractContextManager[None]:
    """Meter a computation that starts here, if it is in a measured task."""
    if _current_task() is None:
        return nullcontext()
    context_meter.digest_metric(IN_TASKS, 1, COMPUTATIONS)
    return context_meter.meter(IN_TASKS)


def meter_repeats(step: str) -> None:
    """Note that a computation in a measured task, which starts here, runs a step again."""
    task = _current_task()
    if task is not None:
        _metered_of(task).add(IN_TASKS, 1, f"{REPEATS}{step}")


def _the_meter() -> ContextMeter:
    return context_meter


def _hear(label: Hashable, value: float, unit: str) -> None:
    """Record what was given to distributed's meter in a measured task."""
    task = _current_task()
    if task is not None:
        _metered_of(task).add(label, value, unit)


def hear_distributed() -> None:
    """Listen to distributed's meter too, if it has been imported; see `stop_hearing_distributed`.

    What is metered outside of measured tasks is ignored.
    """
    # The meter falls back on this dict where no context variable was set, as in threads that dask
    # started. While a computation runs, an entry in it receives all that is metered.
    callbacks = getattr(_distributed_meter(), "_callbacks", None)
    if callbacks is not None:
        callbacks.get().setdefault(_NAME, _hear)


def hear_this_task() -> None:
    """Listen to distributed's meter in the task of a worker that is about to run on this thread.

    A worker meters around each of its tasks, and the meter makes a dict of its callbacks for that:
    what is put there goes with it. What the worker meters elsewhere, several times for each task,
    is not heard.
    """
    callbacks = _callbacks_on_a_worker()
    # Where nothing was set there is only the dict of all threads, which is left as it is.
    of_task = None if callbacks is None else callbacks.get(None)
    if of_task is not None:
        of_task[_NAME] = _hear


@cache
def _callbacks_on_a_worker() -> ContextVar[dict[Hashable, object]] | None:
    """The callbacks of distributed's meter, by context; a worker has imported it long before."""
    callbacks: ContextVar[dict[Hashable, object]] | None
    callbacks = getattr(_distributed_meter(), "_callbacks", None)
    return callbacks


def stop_hearing_distributed() -> None:
    """Leave distributed's meter as it was."""
    callbacks = getattr(_distributed_meter(), "_callbacks", None)
    if callbacks is not None:
        callbacks.get().pop(_NAME, None)


# Python collects on the thread that happens to allocate, and no other thread runs Python code
# meanwhile. While nothing is collected, nothing is done.

_SHORTEST = 200e-6
"""CPU seconds: collections of few new objects are shorter, and so many that to find the task of
each, and to keep that, would cost more than it tells."""

_began: list[tuple[float, float]] = []
"""The clocks as the collection that runs now began; Python runs one at a time."""


def notice_collections() -> None:
    """Meter the collections of tasks from now on; more than one call does no more."""
    # PyPy has no callbacks.
    callbacks = getattr(gc, "callbacks", None)
    if callbacks is not None and _notice not in callbacks:
        # Two threads may both add it: a collection is popped by the first to see its end.
        callbacks.append(_notice)


def ignore_collections() -> None:
    """Undo `notice_collections`."""
    callbacks = getattr(gc, "callbacks", [])
    while _notice in callbacks:
        with suppress(ValueError):
            callbacks.remove(_notice)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ignore_collections)


def _notice(phase: str, info: Mapping[str, int]) -> None:
    # An error would be printed to the program's stderr.
    with suppress(Exception):
        if phase == "start":
            _began[:] = [(perf_counter(), thread_time())]
        elif _began:
            start, cpu = _began.pop()
            lasted, used = perf_counter() - start, thread_time() - cpu
            task = _current_task() if used >= _SHORTEST else None
            if task is not None and task.start is not None and task.stop is None:
                # A collector that has no third threshold takes a part of all objects at a time.
                full = info["generation"] >= (2 if gc.get_threshold()[2] else 1)
                _metered_of(task).add_collection(lasted, used, info["collected"], full)


runs_in_collections.add(id(_notice.__code__))
