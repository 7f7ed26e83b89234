"""Metering from inside a task: seconds, bytes, or anything else, under labels of the user's.

Which task is running is read off the calling stack, so it costs a task that meters nothing nothing.
Code written for ``distributed.metrics.context_meter`` is heard too, once that module has
been imported; and where no task of ours runs, what is metered here goes to distributed's meter, as
on a worker of a cluster.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import wraps
from math import isfinite
from threading import get_ident
from time import perf_counter, thread_time
from typing import Any, NamedTuple, TypeVar

__all__ = [
    "ContextMeter",
    "Metered",
    "Metric",
    "Wait",
    "context_meter",
    "hear_distributed",
    "listening",
    "runs_a_task",
    "stop_hearing_distributed",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NAN = float("nan")
_OURS = "dask_diag"

listening: set[Any] = set()
"""What listens: computations, and tasks in worker processes. If it is empty, metering costs
nothing."""

runs_a_task: set[int] = set()
"""The ``id()`` of the code of functions that run a measured task, which is their ``self``.

Code itself would be hashed anew, with all its constants, for each frame of a stack.
"""


Metric = tuple[str, str, float, float]
"""What was metered once: its label, unit, value, and of seconds how many were CPU (NaN: unknown).

A plain tuple, because to make one that has names takes longer than to read a clock.
"""


class Wait(NamedTuple):
    """What a task waited for: seconds, and in how many samples it was seen (0: it is exact)."""

    activity: str
    seconds: float
    samples: int


class Metered:
    """What is known of one task beside its times: what it metered, and what it waited for.

    Attributes
    ----------
    metrics : list of Metric
    waits : list of Wait
    open : list of _Use
        The blocks whose seconds are being metered now, in the order in which they were entered.
    """

    __slots__ = ("metrics", "open", "waits")

    def __init__(self) -> None:
        self.metrics: list[Metric] = []
        self.waits: list[Wait] = []
        self.open: list[_Use] = []

    def add(self, label: Hashable, value: float, unit: str) -> None:
        """Keep a metric; one that is no amount is left out, with a warning: a task goes on."""
        try:
            metric = str(label), str(unit), float(value), _NAN
            if not (isfinite(metric[2]) and (metric[2] >= 0 or unit != "seconds")):
                raise ValueError
        except Exception:
            what = "seconds of 0 or more" if unit == "seconds" else "a finite number"
            told = f"context_meter: expected {what}, found {_shown(value)}; it is left out"
            with suppress(RuntimeWarning):
                # Where warnings are errors, too, the task goes on.
                warnings.warn(told, RuntimeWarning, stacklevel=3)
            return
        self.metrics.append(metric)
        if unit == "seconds" and self.open:
            self.open[-1].inner_wall += metric[2]


def _shown(value: Any) -> str:
    try:
        return repr(value)[:60]
    except Exception:
        return f"a {type(value).__name__}"


def _current_task() -> Any:
    """The measured task that called, through whatever functions, or None."""
    frame = sys._getframe(2) if listening else None
    codes = runs_a_task
    while frame is not None:
        if id(frame.f_code) in codes:
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


def _metered_of(task: Any) -> Metered:
    if task.metered is None:
        task.metered = Metered()
    return task.metered  # type: ignore[no-any-return]


def _distributed_meter() -> Any:
    """Distributed's meter, if it has been imported."""
    module = sys.modules.get("distributed.metrics")
    return getattr(module, "context_meter", None)


class _Use:
    """One block that a `_Meter` meters, in one task.

    Attributes
    ----------
    before : _Use or _Forwarded or None
        The use of the same meter, on the same thread, that this one is inside of.
    metered : Metered
        Of the task that entered the block.
    func : callable
        The clock.
    wall, cpu : float
        What the two clocks showed when the block was entered.
    inner_wall, inner_cpu : float
        Seconds that were metered inside the block, to be taken off its own.
    """

    __slots__ = ("before", "cpu", "func", "inner_cpu", "inner_wall", "metered", "wall")

    before: _Use | _Forwarded | None
    metered: Metered
    func: Callable[[], float]
    wall: float
    cpu: float
    inner_wall: float
    inner_cpu: float

    def end(self, meter: _Meter, args: Any) -> None:
        """Record what was metered."""
        cpu = thread_time() - self.cpu
        value = self.func() - self.wall
        metered = self.metered
        if meter._unit != "seconds":
            metered.add(meter._label, value, meter._unit)
            return
        opened = metered.open
        if opened[-1] is self:
            opened.pop()
            outer = opened[-1] if opened else None
        else:
            # Coroutines and generators that take turns leave blocks in any order.
            later, outer = self._take_out_of(opened)
            value -= later.func() - later.wall
            cpu -= thread_time() - later.cpu
        if outer is not None:
            outer.inner_wall += value
            outer.inner_cpu += cpu
        metered.metrics.append(
            (str(meter._label), "seconds", value - self.inner_wall, cpu - self.inner_cpu)
        )

    def _take_out_of(self, opened: list[_Use]) -> tuple[_Use, _Use | None]:
        """The block entered next, which has all seconds since; and the one entered before."""
        place = opened.index(self)
        del opened[place]
        return opened[place], opened[place - 1] if place else None


class _Forwarded:
    """One block that distributed's meter meters, as no task of ours entered it."""

    __slots__ = ("_theirs", "before")

    def __init__(self, theirs: Any, before: _Use | _Forwarded | None) -> None:
        self._theirs = theirs
        self.before = before

    def end(self, meter: _Meter, args: Any) -> None:
        """Leave the block."""
        self._theirs.__exit__(*args)


class _Meter:
    """What `ContextMeter.meter` returns, a context manager and a decorator.

    One object may be entered any number of times: again inside itself, and by several threads at
    once. So what belongs to one block is in a `_Use`, which the thread that leaves it looks up.
    """

    __slots__ = ("_func", "_label", "_unit", "_uses")

    def __init__(self, label: Hashable, unit: str, func: Callable[[], float]) -> None:
        self._label = label
        self._unit = unit
        self._func = func
        # By thread: none touches what is another's.
        self._uses: dict[int, _Use | _Forwarded] = {}

    def __call__(self, function: _Function) -> _Function:
        """Meter every call of a function."""

        @wraps(function)
        def metered(*args: Any, **kwargs: Any) -> Any:
            with _Meter(self._label, self._unit, self._func):
                return function(*args, **kwargs)

        return metered  # type: ignore[return-value]

    def __enter__(self) -> None:
        task = _current_task()
        if task is None:
            theirs = _distributed_meter()
            if theirs is not None:
                self._forward_to(theirs)
            return
        use = _Use()
        use.metered = metered = task.metered or _metered_of(task)
        use.func = func = self._func
        use.inner_wall = use.inner_cpu = 0.0
        ident = get_ident()
        use.before = self._uses.get(ident)
        use.wall = func()
        use.cpu = thread_time()
        self._uses[ident] = use
        if self._unit == "seconds":
            metered.open.append(use)

    def __exit__(self, *args: object) -> None:
        if not self._uses:
            return
        ident = get_ident()
        use = self._uses.pop(ident, None)
        if use is None:
            return
        if use.before is not None:
            self._uses[ident] = use.before
        use.end(self, args)

    def _forward_to(self, theirs: Any) -> None:
        block = theirs.meter(self._label, self._unit, self._func)
        block.__enter__()
        ident = get_ident()
        self._uses[ident] = _Forwarded(block, self._uses.get(ident))


class ContextMeter:
    """Meters what code does that runs inside a task; see `context_meter`."""

    def __reduce__(self) -> Any:
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
            as far as there are such, else off ``thread-cpu``.
        """
        task = _current_task()
        if task is not None:
            _metered_of(task).add(label, value, unit)
            return
        theirs = _distributed_meter()
        if theirs is not None:
            theirs.digest_metric(label, value, unit)


context_meter = ContextMeter()
"""The meter to use in tasks."""


def _the_meter() -> ContextMeter:
    return context_meter


def _hear(label: Hashable, value: float, unit: str) -> None:
    """Take over what was given to distributed's meter in a task of ours."""
    task = _current_task()
    if task is not None:
        _metered_of(task).add(label, value, unit)


def hear_distributed() -> None:
    """Listen to distributed's meter too, if it has been imported; see `stop_hearing_distributed`.

    What it says outside of our tasks is ignored.
    """
    callbacks = getattr(_distributed_meter(), "_callbacks", None)
    if callbacks is not None:
        callbacks.get().setdefault(_OURS, _hear)


def stop_hearing_distributed() -> None:
    """Leave distributed's meter as it was."""
    callbacks = getattr(_distributed_meter(), "_callbacks", None)
    if callbacks is not None:
        callbacks.get().pop(_OURS, None)
