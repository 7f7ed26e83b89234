"""One simulator: what a recorded program would take if something were different."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dask_diag.analysis.simulation.change import Changes
from dask_diag.analysis.simulation.result import Simulation
from dask_diag.analysis.simulation.simulator import Simulator
from dask_diag.model.recording import Recording

__all__ = [
    "Changes",
    "Simulation",
    "Simulator",
    "simulate",
]


def simulate(
    recording: Recording,
    workers: float | None = None,
    remove: Collection[str] = frozenset(),
    speedup: Mapping[str, float] | None = None,
    merge_tasks: int | None = None,
    *,
    chunksize: int | None = None,
    scheduler: str | None = None,
    result_bytes: float | None = None,
    idle_machine: bool = False,
    idle_pools: bool = False,
) -> Simulation:
    """Predict how long a recorded program would have taken, had something been different.

    Parameters
    ----------
    recording : Recording
    workers : int, optional
        As many workers, for every computation; ``math.inf`` for as many as there are tasks. The
        machine stays the same: tasks that need a CPU share those that it has. On a cluster it is
        the number of threads, of workers with as many each as recorded; where these were on several
        hosts, more of them are on more hosts.
    remove : collection of str
        Activities that take no time: any of tasks (``gil-wait``, ``io-wait``, ``serialize``, …),
        ``overhead`` (handing tasks out and collecting their results), ``graph``, ``startup`` (of
        worker processes), ``transfer`` (between workers of a cluster). A mapping has the share of
        a task's activity that is removed: ``{"cpu-wait": 0.5}``.
    speedup : mapping of str to float, optional
        Functions, or keys of single tasks, and how many times as fast they are: ``{"mean": 2.0}``.
    merge_tasks : int, optional
        Every so many tasks of a function become one, as if chunks were so many times as large.
    chunksize : int, optional
        A worker process is sent so many tasks at once, at most. It changes nothing on clusters.
    scheduler : {"processes", "threads"}, optional
        Computations that ran under another scheduler run under this one. For processes the sizes of
        results must have been measured in bytes, by a `CacheProfiler`: they pass between processes.
        Threads are predicted as if tasks that ran in processes did not need the GIL.
    result_bytes : float, optional
        The size of each result, in place of those that were measured.
    idle_machine : bool, optional
        No other program uses the CPUs. Else those that others used are not there for more workers,
        either.
    idle_pools : bool, optional
        Threads of native libraries, and others that tasks use, do nothing.

    Returns
    -------
    Simulation
        Its ``seconds`` are the prediction.

    Raises
    ------
    DiagnosticError
        If an argument is not as described, tasks depend on each other in a cycle, or `scheduler` is
        given and a cluster ran computations.

    Notes
    -----
    The recorded graph is replayed, with measured durations and in the recorded order, on so many
    workers beside the scheduler's thread. What each step of that thread costs is read from the
    recording; for another scheduler it is what was typical where this was written.

    Computations of a cluster are replayed as distributed schedules them, with transfers between
    workers as fast as recorded. Not in the prediction are: memory and what is moved to disk, tasks
    of other clients, tasks that only some workers may run, and tasks that the client would submit
    earlier as it has results earlier.
    """
    return Simulator(recording).simulate(
        workers=workers,
        remove=remove,
        speedup=speedup,
        merge_tasks=merge_tasks,
        chunksize=chunksize,
        scheduler=scheduler,
        result_bytes=result_bytes,
        idle_machine=idle_machine,
        idle_pools=idle_pools,
    )
