"""Seconds in which tasks collect garbage, metered as the activity ``gc``.

Python collects on the thread that happens to allocate, and no other thread runs Python code
meanwhile. While nothing is collected, nothing is done.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from contextlib import suppress
from time import perf_counter, thread_time

from dask_diag.capture.metrics import meter_collection, runs_in_collections

_SHORTEST = 50e-6
"""Seconds: collections of few objects are shorter, and to find the task takes a tenth of it."""

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
            lasted = perf_counter() - start
            if lasted >= _SHORTEST:
                meter_collection(lasted, thread_time() - cpu, info["collected"])


runs_in_collections.add(id(_notice.__code__))
