"""What cost time, or may mislead, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.before import graph_preparation, pool_startup, slow_start
from dask_diag.analysis.findings.cluster import transfer_bound, unbalanced_workers, worker_lost
from dask_diag.analysis.findings.interpreter import busy_machine, gil_bound, thread_oversubscription
from dask_diag.analysis.findings.locks import lock_bound
from dask_diag.analysis.findings.memory import (
    cache_pressure,
    memory_growth,
    memory_pressure,
    spilling,
)
from dask_diag.analysis.findings.number_of_tasks import chunks_too_large, too_few_threads
from dask_diag.analysis.findings.rule import Finding
from dask_diag.analysis.findings.scheduling import (
    overlapping_computations,
    scheduler_bound,
    serial_chain,
    tasks_too_small,
)
from dask_diag.analysis.findings.state import failed_tasks, late_samples
from dask_diag.analysis.findings.uneven import imbalance, straggler
from dask_diag.analysis.findings.waiting import io_bound, serialization_bound
from dask_diag.model import codes
from dask_diag.model.recording import Recording, expect_recording

LONG_ENOUGH = 0.1
"""Seconds of all computations below which time is not worth a finding."""
NOTICED = 0.01
"""Least share of the time of computations that a finding has lost: less is noise."""
NOTICED_SECONDS = 0.005
"""Least seconds of it."""
WITHOUT_TIME = frozenset({"failed-tasks", "worker-lost"})
"""What matters whatever time it took: a result is missing, or was computed twice."""

Rule = Callable[[Analysis], Finding | None]

RULES_ON_TIME: tuple[Rule, ...] = (
    # First what takes most memory, while there are no other facts of the analysis yet.
    serial_chain,
    gil_bound,
    thread_oversubscription,
    tasks_too_small,
    straggler,
    imbalance,
    io_bound,
    serialization_bound,
    overlapping_computations,
    busy_machine,
    pool_startup,
    scheduler_bound,
    lock_bound,
    too_few_threads,
    chunks_too_large,
    transfer_bound,
    unbalanced_workers,
    spilling,
    memory_pressure,
    worker_lost,
)
"""Those on what took time: there are tasks, and computations lasted `LONG_ENOUGH`."""
RULES_ON_STATE: tuple[Rule, ...] = (
    memory_growth,
    cache_pressure,
    slow_start,
    # A graph that took long to make may compute in no time.
    graph_preparation,
    failed_tasks,
    late_samples,
)
"""Those that do not depend on how long tasks took."""
CODES = tuple(codes.FINDINGS)
"""All codes; each has a page in the documentation."""


def findings(recording: Recording) -> list[Finding]:
    """What went wrong in a recording, the worst first.

    Parameters
    ----------
    recording : Recording
        With what only some profilers measure, more can be found: waits for the GIL and for CPUs
        need ``Profiler(waits=True)``, memory needs `ResourceProfiler`.

    Returns
    -------
    list of Finding
        Empty if nothing is worth reporting.
    """
    expect_recording(recording)
    return find(Analysis(recording))


def find(analysis: Analysis) -> list[Finding]:
    """The findings of a recording whose facts may be known already, the worst first."""
    rules = RULES_ON_STATE
    if len(analysis.recording.tasks) and analysis.wall >= LONG_ENOUGH:
        rules += RULES_ON_TIME
    results = (rule(analysis) for rule in rules)
    noticed = (one for one in results if one is not None and _is_noticed(one, analysis.computing))
    return sorted(noticed, key=lambda one: one.rank)


def _is_noticed(finding: Finding, computing: float) -> bool:
    """Whether it lost more than nothing; a finding that does not state seconds is."""
    least = max(NOTICED * computing, NOTICED_SECONDS)
    return finding.code in WITHOUT_TIME or not finding.seconds_lost < least
