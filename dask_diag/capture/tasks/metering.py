"""Metering from inside a task: seconds, bytes, or anything else, under labels of the user's.

Which task is running is read off the calling stack, so it costs a task that meters nothing nothing.
Code written for ``distributed.metrics.context_meter`` is recorded too, once that module has
been imported; and where no measured task runs, what is metered here goes to distributed's meter, as
on a worker of a cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from functools import cache, wraps
from threading import get_ident
from time import perf_counter, thread_time
from typing import Any, ParamSpec, TypeVar

from dask_diag.capture.tasks.metered import Block, Metered, MeteredTask

__all__ = [
    "ContextMeter",
    "context_meter",
    "ends_a_task",
    "hear_distributed",
    "hear_this_task",
    "hearing",
    "listening",
    "runs_a_task",
    "runs_around_tasks",
    "stop_hearing_distributed",
]

P = ParamSpec("P")
R = TypeVar("R")
_NAME = "dask_diag"

listening: set[object] = set()
"""What listens: computations, and tasks in worker processes. If it is empty, metering costs
nothing."""

ends_a_task: set[int] = set()
"""The ``id()`` of the code of functions that those call once the task has stopped."""

runs_a_task: set[int] = set()
"""The ``id()`` of the code of functions that run a measured task, which is their ``self``.

Code itself would be hashed again, with all its constants, for each frame of a stack.
"""

runs_around_tasks: set[int] = set()
"""The ``id()`` of the code of functions that tasks are called by: a stack need not be read further.

A worker of distributed meters around each of its tasks.
"""

hearing: set[object] = set()
"""Those that listen and have distributed's meter heard in any thread."""


def _current_task() -> MeteredTask | None:
    """The measured task that called, through whatever functions, or None."""
    frame = sys._getframe(2) if listening else None
    codes, around = runs_a_task, runs_around_tasks
    while frame is not None:
        code = id(frame.f_code)
        if code in codes:
            task: MeteredTask = frame.f_locals["self"]
            return task
        if code in around:
            return None
        frame = frame.f_back
    return None


def _metered_of(task: MeteredTask) -> Metered:
    if task.metered is None:
        task.metered = Metered()
    return task.metered


def _distributed_meter() -> Any:
    """Distributed's meter, if it has been imported."""
    module = sys.modules.get("distributed.metrics")
    return getattr(module, "context_meter", None)


class _ForwardedBlock:
    """One block that distributed's meter meters, as no measured task entered it."""

    __slots__ = ("_block_of_distributed", "before")

    def __init__(self, meter: Any, before: _AnyBlock | None) -> None:
        self._block_of_distributed = meter
        self.before = before

    def end(self, unit: str, args: tuple[object, ...]) -> None:
        """Leave the block."""
        self._block_of_distributed.__exit__(*args)


_AnyBlock = Block | _ForwardedBlock


class _Meter:
    """What `ContextMeter.meter` returns, a context manager and a decorator.

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
    """Meters what code does that runs inside a task; see `context_meter`."""

    def __reduce__(self) -> tuple[object, ...]:
        return _the_meter, ()

    def meter(
        self, label: Hashable, unit: str = "seconds", func: Callable[[], float] | None = None
    ) -> _Meter:
        """Meter a block, or every call of a function.

        Parameters
        ----------
        label : str
            The activity to which it is counted.
        unit : str, optional
            Of what. Seconds are taken off the task's ``thread-cpu`` and ``thread-noncpu``, from
            each what it had, and off a meter around this one.
        func : callable, optional
            What to read before and after, if not the wall clock: the difference is counted.

        Returns
        -------
        context manager and decorator
            It costs next to nothing where no task is profiled.

        Examples
        --------
        >>> from dask_diag import context_meter
        >>> @context_meter.meter("I/O")
        ... def read(path):
        ...     return open(path).read()
        """
        return _Meter(label, unit, func or perf_counter)

    def digest_metric(self, label: Hashable, value: float, unit: str) -> None:
        """Count a value to an activity of the task that runs.

        Parameters
        ----------
        label : str
        value : float
        unit : str
            Any: ``"bytes"``, ``"count"``, ``"dollars"``. Seconds are taken off ``thread-noncpu``
            where there are such, else off ``thread-cpu``.
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
