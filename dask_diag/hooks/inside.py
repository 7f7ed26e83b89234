"""Computations inside of tasks: their number and seconds, and inputs that an earlier one had."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import dask.local
from dask.utils import key_split

from dask_diag.capture.metrics import meter_in_task, meter_repeats
from dask_diag.hooks.stack import CallbackTuple, Graph

_NAME = "local_callbacks"
dasks_own: Any = getattr(dask.local, _NAME, None)
"""The function of dask that gives each computation its callbacks; None in another dask."""
_seen: set[int] = set()
"""Hashes of inputs of computations inside of tasks."""


def replace_callbacks(function: Callable[..., object]) -> None:
    """Have a function take the place of `dasks_own`, if there is one."""
    if dasks_own is not None:
        setattr(dask.local, _NAME, function)


def restore_callbacks() -> None:
    """Undo `replace_callbacks`, and forget the inputs that were seen."""
    _seen.clear()
    replace_callbacks(dasks_own)


@contextmanager
def counted(callbacks: Iterable[CallbackTuple]) -> Iterator[tuple[CallbackTuple, ...]]:
    """Meter the computation that starts here, if a measured task started it."""
    with meter_in_task():
        yield (*callbacks, (_note_repeats, None, None, None, None))


def _note_repeats(dsk: Graph) -> None:
    """Note the name of an input if an earlier computation had most inputs of this one."""
    with suppress(Exception):
        # Few programs compute in tasks: it is loaded where one does.
        from dask_diag.capture.repeated import repeated_input

        again = repeated_input(dsk, _seen)
        if again is not None:
            meter_repeats(key_split(again))


@contextmanager
def _inside(callbacks: Iterable[CallbackTuple] | None = None) -> Iterator[object]:
    """`dasks_own` in a worker process, where no profiler hears of computations."""
    with dasks_own(callbacks) as given, counted(given) as heard:
        yield heard


def hear_inside() -> None:
    """Meter computations inside of tasks, in a process without profilers."""
    if getattr(dask.local, _NAME, None) is dasks_own:
        replace_callbacks(_inside)


def stop_hearing_inside() -> None:
    """Undo `hear_inside`."""
    if getattr(dask.local, _NAME, None) is _inside:
        # The next task may run the same steps.
        replace_callbacks(dasks_own)
