"""Which kind of scheduler runs a computation, by the executor that dask hands tasks to."""

from __future__ import annotations

import multiprocessing.pool
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, NamedTuple

import dask.local
import dask.multiprocessing
import dask.threaded

__all__ = ["SchedulerKind", "scheduler_kind"]

_SAY_WHO: Final = {
    getattr(dask.threaded, "_thread_get_id", None): "threads",
    getattr(dask.multiprocessing, "_process_get_id", None): "processes",
}
"""The functions by which a scheduler of dask asks a worker who it is, and what kind it then is."""
_SYNCHRONOUS: type | tuple[()] = getattr(dask.local, "SynchronousExecutor", ())
_OF_A_POOL: type | tuple[()] = getattr(dask.local, "MultiprocessingPoolExecutor", ())


class SchedulerKind(NamedTuple):
    """What is known of a scheduler before the first task has run.

    Attributes
    ----------
    name : str
        ``processes``, ``threads`` or ``synchronous``. Of an executor that is none of Python's or
        dask's it is likely: where tasks run shows what it is.
    workers : int
        How many tasks may run at once; 0 if not known.
    says_who : bool
        Whether dask says to callbacks which thread ran a task, or it is the caller; if not,
        tasks have to note it.
    """

    name: str
    workers: int
    says_who: bool


def scheduler_kind(variables: Mapping[str, Any]) -> SchedulerKind:
    """Of the local variables of dask's scheduler; a scheduler that is not dask's has none."""
    executor = getattr(variables.get("submit"), "__self__", None)
    if isinstance(executor, _OF_A_POOL):
        executor = getattr(executor, "pool", None)
    workers = 0
    with suppress(TypeError, ValueError):
        workers = int(variables.get("num_workers") or 0)
    who = variables.get("get_id")
    said = next((kind for asks, kind in _SAY_WHO.items() if asks is who), None) if who else None
    name = _kind_of(executor) or said or ("threads" if variables else "synchronous")
    is_called = isinstance(executor, _SYNCHRONOUS)
    return SchedulerKind(name, workers, is_called or said == name == "threads")


def _kind_of(executor: object) -> str | None:
    """The kind of an executor, or pool, of Python's or of dask's; None of all others."""
    if isinstance(executor, _SYNCHRONOUS):
        return "synchronous"
    if isinstance(executor, (ThreadPoolExecutor, multiprocessing.pool.ThreadPool)):
        return "threads"
    if isinstance(executor, (ProcessPoolExecutor, multiprocessing.pool.Pool)):
        return "processes"
    return None
