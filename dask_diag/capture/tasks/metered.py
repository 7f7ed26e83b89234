"""What is known of one task beside its times."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from math import isfinite, isnan
from time import thread_time
from typing import Any, NamedTuple, Protocol

__all__ = ["Block", "Metered", "MeteredTask", "Metric", "Wait", "sums_of"]

_NAN = float("nan")
_SINGLE = 1_000
"""Metrics of a task that are there one by one: beyond them, they are added up."""

Metric = tuple[str, str, float, float]
"""What was metered once: its label, unit, value, and of seconds how many were CPU (NaN: unknown).

A plain tuple, because to make one that has names takes longer than to read a clock.
"""


class Wait(NamedTuple):
    """One thing that a task waited for.

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
    """What is known of one task beside its times: what it metered, and what it waited for.

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
        """Record a metric; one that is no amount is left out, with a warning."""
        metric = _metric(label, unit, value)
        if metric is None:
            return
        self.append(metric)
        if unit == "seconds" and self.open:
            self.open[-1].inner_wall += metric[2]

    def append(self, metric: Metric) -> None:
        """Add a metric; a task that has many has few labels as a rule, which are added up."""
        self.metrics.append(metric)
        if len(self.metrics) > self._most:
            self.metrics = sums_of(self.metrics)
            self._most = max(_SINGLE, 2 * len(self.metrics))


def sums_of(metrics: Iterable[Metric]) -> list[Metric]:
    """One metric for all of a label and unit, as distributed has it; two if some know no CPU."""
    sums: dict[tuple[str, str, bool], Metric] = {}
    for metric in metrics:
        label, unit, value, cpu = metric
        kind = label, unit, isnan(cpu)
        before = sums.get(kind)
        sums[kind] = metric if before is None else (label, unit, before[2] + value, before[3] + cpu)
    return list(sums.values())


def _metric(label: Hashable, unit: str, value: float) -> Metric | None:
    """A metric; None, with a warning, if it is no amount: the task goes on."""
    try:
        metric = str(label), str(unit), float(value), _NAN
        if isfinite(metric[2]) and (metric[2] >= 0 or unit != "seconds"):
            return metric
    except Exception:
        # What it says of itself is no text, or no number.
        pass
    what = "seconds of 0 or more" if unit == "seconds" else "a finite number"
    message = f"context_meter: expected {what}, found {_shown(value)}; it is left out"
    with suppress(RuntimeWarning):
        # Where warnings are errors, too, the task goes on.
        warnings.warn(message, RuntimeWarning, stacklevel=4)
    return None


class MeteredTask(Protocol):
    """A task that may meter."""

    metered: Metered | None


class Block:
    """One block of code that is metered, in one task.

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
        """Record what was metered."""
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
            own = value - self.inner_wall, cpu - self.inner_cpu
            metered.append((metric[0], unit, *own))

    def _take_out_of(self, opened: list[Block]) -> tuple[Block, Block | None]:
        """The block entered next, which has all seconds since; and the one entered before."""
        index = opened.index(self)
        del opened[index]
        return opened[index], opened[index - 1] if index else None


def _shown(value: object) -> str:
    try:
        return repr(value)[:60]
    except Exception:
        return f"a {type(value).__name__}"
