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
    open : int
        How many meters are open now.
    inner_wall, inner_cpu : float
        Seconds that were metered within the meter that is open, to be taken off it.
    """

    __slots__ = ("inner_cpu", "inner_wall", "metrics", "open", "waits")

    def __init__(self) -> None:
        self.metrics: list[Metric] = []
        self.waits: list[Wait] = []
        self.open = 0
        self.inner_wall = self.inner_cpu = 0.0

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
        if unit == "seconds":
            self.inner_wall += metric[2]


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


class _Meter:
    """One use of `ContextMeter.meter`, as a context manager or as a decorator."""

    __slots__ = (
        "_cpu",
        "_func",
        "_label",
        "_metered",
        "_outer_cpu",
        "_outer_wall",
        "_theirs",
        "_unit",
        "_wall",
    )

    def __init__(self, label: Hashable, unit: str, func: Callable[[], float]) -> None:
        self._label = label
        self._unit = unit
        self._func = func

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
            self._metered = None
            self._enter_theirs()
            return
        self._metered = metered = task.metered or _metered_of(task)
        self._outer_wall, self._outer_cpu = metered.inner_wall, metered.inner_cpu
        metered.inner_wall = metered.inner_cpu = 0.0
        metered.open += 1
        self._wall = self._func()
        self._cpu = thread_time()

    def __exit__(self, *args: object) -> None:
        metered = self._metered
        if metered is None:
            if self._theirs is not None:
                self._theirs.__exit__(*args)
            return
        cpu = thread_time() - self._cpu
        value = self._func() - self._wall
        metered.open -= 1
        if self._unit == "seconds":
            metered.metrics.append(
                (str(self._label), "seconds", value - metered.inner_wall, cpu - metered.inner_cpu)
            )
            metered.inner_wall = self._outer_wall + value
            metered.inner_cpu = self._outer_cpu + cpu
        else:
            metered.inner_wall += self._outer_wall
            metered.inner_cpu += self._outer_cpu
            metered.add(self._label, value, self._unit)

    def _enter_theirs(self) -> None:
        theirs = _distributed_meter()
        self._theirs = None
        if theirs is not None:
            self._theirs = theirs.meter(self._label, self._unit, self._func)
            self._theirs.__enter__()


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
