"""One simulator: what a recorded program would take if something were different."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dask_diag.analysis.simulation.change import Changes
from dask_diag.analysis.simulation.result import Simulation
from dask_diag.analysis.simulation.simulator import Simulator
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording, expect_recording

__all__ = [
    "ON_CLUSTER",
    "Changes",
    "Simulation",
    "Simulator",
    "expect_local_schedulers",
    "simulate",
]

ON_CLUSTER = (
    "the simulator knows dask's local schedulers, and this was recorded on a cluster: which worker "
    "would run which task, and what would be sent between workers, it cannot predict"
)


def expect_local_schedulers(recording: Recording) -> None:
    """Refuse what was recorded on a cluster, of which predictions would be wrong.

    Raises
    ------
    DiagnosticError
    """
    expect_recording(recording)
    if recording.computations.scheduler.where("distributed").any():
        raise DiagnosticError(ON_CLUSTER)


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
        machine stays the same: tasks that need a CPU share those that it has.
    remove : collection of str
        Activities that take no time: any of tasks (``gil-wait``, ``io-wait``, ``serialize``, …),
        ``overhead`` (handing tasks out and collecting their results), ``graph``, ``startup`` (of
        worker processes). A mapping has the share of a task's activity that is removed:
        ``{"cpu-wait": 0.5}``.
    speedup : mapping of str to float, optional
        Functions, or keys of single tasks, and how many times as fast they are: ``{"mean": 2.0}``.
    merge_tasks : int, optional
        Every so many tasks of a function become one, as if chunks were so many times as large.
    chunksize : int, optional
        A worker process is sent so many tasks at once, at most.
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
        If an argument is not as described, tasks depend on each other in a cycle, or a cluster ran
        computations.

    Notes
    -----
    The recorded graph is replayed, with measured durations and in the recorded order, on so many
    workers beside the scheduler's thread. What each step of that thread costs is read from the
    recording; for another scheduler it is what was typical where this was written.
    """
    expect_local_schedulers(recording)
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
