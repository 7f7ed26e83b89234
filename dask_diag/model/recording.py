"""The data model: what was measured, in frozen columns, without user data."""

from __future__ import annotations

from collections.abc import Iterable

from dask_diag.errors import DiagnosticError
from dask_diag.formatting import seconds
from dask_diag.model.combine import combined
from dask_diag.model.measurements import STATES, Measurements
from dask_diag.model.tables import TABLES, RecordingTable


class Recording(Measurements):
    """What was measured in one block, or by one profiler since it was cleared.

    Times are seconds of ``time.perf_counter()``; add `epoch` for seconds since 1970. What could not
    be known is NaN.

    Each table is empty if nothing that was recorded fills it. Their columns, with units and
    meanings, are in ``dask_diag/model/tables.py`` and on the documentation's page of columns.

    Attributes
    ----------
    start, stop : float
        When recording started and stopped.
    epoch : float
        What to add to a time to get seconds since the epoch.
    computations : Table
        A row per computation.
    planned : Table
        A row per computation and function: how many tasks the scheduler was to run.
    progress : Table
        A row per computation that still runs: how far it is.
    tasks : Table
        A row per task that was submitted.
    dependencies : Table
        A row per dependency of a task on another task's result.
    metrics : Table
        A row per metric that a task reported through `context_meter`.
    resources : Table
        A row per sample of a `ResourceProfiler`.
    processes : Table
        A row per process and sample of `resources`, and more from when sampling started and from
        between tasks, when none ran.
    memory : Table
        A row per sample of a `MemorySampler`.
    allocations : Table
        A row per line of code that allocated memory in use near the peak, with
        ``MemorySampler(trace=True)`` or ``record(trace_memory=True)``.
    cached_results : Table
        A row per result that the scheduler cached.
    transfers : Table
        A row each time that a task or a result was pickled or rebuilt between processes.
    pools : Table
        A row per native thread pool at the end of a computation. Without threadpoolctl they are not
        known: one row, without a name and with 0 threads.
    workers : Table
        A row per worker of a cluster, or computation and worker process that ran its tasks.
    other_tasks : Table
        A row per task of a client that was not recorded, on a worker of a cluster that was.
    worker_events : Table
        A row each time that a worker of a cluster was paused, or moved results to disk or back.
    threads : Table
        A row per computation and group of threads of the computing process.
    waits : Table
        A row per thing that a task waited for, with ``Profiler(waits=True)``. The seconds of
        ``cpu-wait`` are exact, and 0 for tasks without a row in a computation that has some; of the
        others they are what the samples represent. Samples in which
        a task waited for the GIL, but had run shortly before, represent none: the sampler may have
        taken the GIL from it.
    frames : Table
        A row per line of code that was sampled.
    call_tree : Table
        A row per node of the tree of calls.
    samples : Table
        A row per cycle, function, key and call stack. A task has its own rows if a quarter of a
        cycle or more of it was sampled; those of shorter tasks are summed up under an empty key.
    environment : Table
        A row per fact about where it was made. Entries of the configuration that look like secrets
        are left out; in values and in the calling code, text that looks like a secret is masked
        (``'…'``).
    metric : str
        What ``cached_results.metric`` measures.
    metric_unit : str
        The unit of ``cached_results.metric``, such as ``bytes``; empty for a number without one.
    notices : tuple of str
        What a reader must know beside the numbers.
    run_id : str
        Which run it is of: random digits of the process that recorded, the same for all recordings
        that it made. Of a combination of several runs: their ids, separated by commas.
    state : {"complete", "truncated", "damaged"}
        Whether it has all that was measured. `load` reports a file as ``truncated`` that its writer
        did not close (it was killed, or is still writing), and as ``damaged`` if it is no longer as
        it was written; either way the remaining data is missing. Of a combination: the worst of its
        parts.
    """

    @classmethod
    def combine(cls, recordings: Iterable[Recording]) -> Recording:
        """See `dask_diag.combine`."""
        return combine(recordings)

    @property
    def is_complete(self) -> bool:
        """Whether it has all that was measured: its `state` is ``complete``."""
        return self.state == STATES[0]

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}: {len(table):,}" for name, table in self.tables().items())
        state = "" if self.is_complete else f", {self.state}"
        return f"<Recording of {seconds(self.stop - self.start)}{state}; {counts}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{name}</td><td>{len(table):,}</td></tr>"
            for name, table in self.tables().items()
            if len(table)
        )
        return (
            f"<p>Recording of {seconds(self.stop - self.start)}; dask_diag.summary() shows more</p>"
            f"<table><tr><th>table</th><th>rows</th></tr>{rows}</table>"
        )

    def tables(self) -> dict[str, RecordingTable]:
        """All tables by their names."""
        return {name: getattr(self, name) for name in TABLES}


def combine(recordings: Iterable[Recording]) -> Recording:
    """One recording of several that were made over the same block, or one after the other.

    Each computation is in it once, and so is each series of memory; another series of the same
    label has a number added: ``"load (2)"``. What is left out is named in its notices. Times are
    those of the first recording's clock; one of another clock is placed by the time of day.

    Parameters
    ----------
    recordings : iterable of Recording

    Raises
    ------
    DiagnosticError
        If there is none, or one is no `Recording`.
    """
    parts = list(recordings)
    if not parts:
        raise DiagnosticError("expected at least one recording to combine, found none")
    for part in parts:
        expect_recording(part)
    return Recording(**combined(parts))


def expect_recording(value: object) -> None:
    """Say what to do where something else is given.

    Raises
    ------
    DiagnosticError
        If it is no `Recording`.
    """
    if not isinstance(value, Recording):
        raise DiagnosticError(
            f"expected a Recording, found {type(value).__name__}; a profiler's is its .recording, "
            "and Recording.combine makes one of several"
        )
