"""What profilers cost for each task: CPU seconds of their hooks, calibrated on this machine.

Measured once per process, when a profiler is first used, in about a millisecond; on real tasks it
would cost as much as it measures. Real tasks empty the caches, so hooks take two to three times as
long there. What is done as a computation starts and ends is measured instead: see ``own_cost``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from time import thread_time
from typing import TYPE_CHECKING

from dask_diag.capture.computation import STATE_KEY, Computation
from dask_diag.capture.dask_internals import Graph, SchedulerState
from dask_diag.capture.tasks.dependencies import dependents_of

if TYPE_CHECKING:
    from dask_diag.capture.sampling.probes import Probe

__all__ = ["rehearse_results", "rehearse_tasks", "seconds_per_task"]

Hook = Callable[..., None]

_TASKS = 50
_REPEATS = 4
"""The quickest repeat counts: the first one fills the caches."""

_measured: dict[str, float] = {}


def seconds_per_task(name: str, rehearse: Callable[[], Callable[[int], object]]) -> float:
    """The CPU seconds of the hooks of that name for one task.

    Parameters
    ----------
    name : str
        What the hooks are for: measured once for each name.
    rehearse : callable
        Returns a function of a number that does what is done for one task.
    """
    if name not in _measured:
        work = rehearse()
        _measured[name] = min(_repeat(work) for _ in range(_REPEATS))
    return _measured[name]


def _repeat(work: Callable[[int], object]) -> float:
    start = thread_time()
    for number in range(_TASKS):
        work(number)
    return (thread_time() - start) / _TASKS


def rehearse_tasks(
    measured_key: str, pretask: Hook, posttask: Hook, probe: Probe | None = None
) -> Callable[[int], None]:
    """What hooks of a `TaskDiagnostic` do for each task, sampled by a probe or not."""
    dsk: Graph = {}
    computation = Computation(dsk)
    state = {STATE_KEY: computation, measured_key: computation}
    if probe is not None:
        from dask_diag.capture.sampling.probed_task import attach_probe

        attach_probe(computation, probe, _ignore)

    def work(number: int) -> None:
        key = "task", number
        dsk[key] = _no_task
        pretask(key, dsk, state)
        dsk[key](())
        posttask(key, None, dsk, state, 0)

    # Wrappers and their computation keep each other, and the files of the probe open.
    weakref.finalize(work, computation.wrappers.clear)
    weakref.finalize(work, computation.free.clear)
    return work


def rehearse_results(began: Hook, meet_state: Hook, posttask: Hook) -> Callable[[int], None]:
    """What hooks of a profiler of results do for each task, and what is found of it later."""
    computation = Computation({})
    computation.requested = frozenset()
    tasks = range(_TASKS)
    state: SchedulerState = {
        STATE_KEY: computation,
        "dependencies": {number: (number - 1,) if number else () for number in tasks},
        "dependents": {number: (number + 1,) for number in tasks},
    }
    began(computation)
    meet_state({}, state)

    def work(number: int) -> None:
        posttask(number, None, {}, state, 0)
        if number == tasks[-1]:
            dependents_of(tasks, state, ())

    return work


def _ignore(error: Exception) -> None:
    """No task of a user is sampled here."""


def _no_task(values: object) -> None:
    """Do nothing: what takes time is around it."""
